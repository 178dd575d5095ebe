//! What a core is asked, and through whom.

use guira_chain::Owned;
use guira_item::{EngineStats, Time};

use crate::{Direct, owed::Owed};

/// Through which a core is asked, from any thread.
pub trait Front: Clone + Send + Sync + 'static {
    /// What a thread knows without asking it.
    type Direct: Direct;

    /// For one thread.
    fn direct(&self) -> Self::Direct;

    /// Has the core's desk told. If that has ended it is dropped, and what is owed for it with that: it is answered with failures.
    fn tell(&self, wanted: Wanted);

    /// What there is behind all of these, of one cluster, as far as they know.
    fn stats(fronts: &[Self]) -> EngineStats;
}

/// What is wanted of a core.
#[derive(Debug)]
pub struct Wanted(pub(crate) What);

#[derive(Debug)]
pub(crate) enum What {
    /// What is left of a batch, in order.
    Asked(Vec<Asked>),
    /// All items that are there at a time, in the cluster's seconds, are to be gone then.
    Flush(Time, Owed),
}

/// One operation, in the cluster's seconds.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) key: Box<[u8]>,
    pub(crate) operation: Owned,
    pub(crate) owed: Owed,
}
