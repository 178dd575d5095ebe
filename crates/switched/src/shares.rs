//! Who has which part of the keys, and who is to have it (`docs/design/0025`).

use std::sync::Arc;

use guira_cluster::Incarnation;
use guira_routing::{NodeId, PartitionId, PartitionMap};
use serde::{Deserialize, Serialize};

/// The number of a partition map: one with a higher number replaces it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Revision(pub u64);

/// Who has which part of the keys, and who is to have it.
#[derive(Clone, PartialEq, Debug)]
pub struct Shares {
    /// Who has what.
    pub map: Arc<PartitionMap>,
    /// The map's number.
    pub revision: Revision,
    /// What the map is to become: its owners give away what is another's there.
    pub wanted: Arc<PartitionMap>,
}

impl Shares {
    /// Those of a map that never changes.
    pub fn fixed(map: Arc<PartitionMap>) -> Self {
        Self { wanted: Arc::clone(&map), map, revision: Revision::default() }
    }
}

/// A backend has given partitions away: they are to be another's in the map, if they are this backend's in it, and the lives of both are still these; told
/// by [`Happened::Committed`](crate::backend::Happened::Committed), once it is known for certain what came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    /// Which.
    pub partitions: Vec<PartitionId>,
    /// Whose they are to be.
    pub to: NodeId,
    /// In that life: it has them, and does no `flush_all` until it sees what came of it.
    pub to_life: Incarnation,
}

/// What came of a [`Commit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Committed {
    /// It took place: the map that says so first has this number.
    As(Revision),
    /// It did not, and will not.
    Not,
}
