//! Goes through all states of a model, and tells what was found.
//!
//! Always true: of a state that was gone through only its number is kept, and the number of one that leads to it.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

/// What came of going through a model.
#[derive(Clone, Debug)]
pub struct Report {
    /// States that are not the same.
    pub states: usize,
    /// States that were come to, the same ones again included.
    pub come_to: usize,
    /// Acts on the longest of the shortest ways to a state.
    pub depth: usize,
    /// How long it took.
    pub elapsed: Duration,
    /// All states were gone through.
    pub is_exhausted: bool,
    /// What is not as it should be.
    pub found: Option<Found>,
    /// What never came about though it should: then a model that shows nothing wrong shows nothing.
    pub missing: Vec<&'static str>,
}

/// A way to what should not be.
#[derive(Clone, Debug)]
pub struct Found {
    /// What should be.
    pub promise: &'static str,
    /// What has happened, one line an act.
    pub trace: Vec<String>,
}

/// The states and acts on a way.
pub(crate) type Way<M> = Vec<(<M as Model>::State, Option<<M as Model>::Action>)>;

/// What is to be looked for, and how far.
pub(crate) struct Search<'s> {
    /// What is always to be so.
    pub(crate) promises: &'s [&'static str],
    /// What is to come about.
    pub(crate) shown: &'s [&'static str],
    /// Ways to states at most; `None`: as many as there are.
    pub(crate) ways_max: Option<usize>,
    /// So many at a time.
    pub(crate) threads: usize,
}

/// Goes through all states of a model; stops at the first that should not be, which is one of those that the fewest acts lead to.
pub(crate) fn explore<M>(model: M, search: &Search<'_>, trace: impl FnOnce(Way<M>) -> Vec<String>) -> Report
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let started = Instant::now();
    let Search { promises, shown, ways_max, threads } = search;
    let checker = model.checker().threads(*threads).finish_when(HasDiscoveries::AnyFailures);
    let checker = match ways_max {
        Some(most) => checker.target_state_count(*most),
        None => checker,
    };
    let checker = checker.spawn_bfs().join();
    let mut discoveries = checker.discoveries();
    let failed = promises.iter().find_map(|promise| Some((*promise, discoveries.remove(promise)?)));
    let found = failed.map(|(promise, path)| Found { promise, trace: trace(path.into_vec()) });
    let come_to = checker.state_count();
    Report {
        states: checker.unique_state_count(),
        come_to,
        depth: checker.max_depth(),
        elapsed: started.elapsed(),
        is_exhausted: found.is_none() && ways_max.is_none_or(|most| come_to < most),
        found,
        missing: shown.iter().copied().filter(|name| !discoveries.contains_key(name)).collect(),
    }
}
