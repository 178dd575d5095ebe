//! What is checked: who does what, what may go wrong, and how often.

use std::fmt;

use guira_consistency::{Consistency, Mutant};

use crate::symmetric::orders::Want;

/// A client: asks one thing after the other, of one node.
#[derive(Clone, Debug)]
pub struct Client {
    /// Which.
    pub node: usize,
    /// What, of which key.
    pub wants: Vec<(usize, Want)>,
}

/// What there is when a model begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begins {
    /// All keys are hot.
    Hot,
    /// None is.
    Cold,
}

/// So often at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Times that a node dies.
    pub crashes: u8,
    /// Times that a node is cut off from whoever gives leases: it has none any more.
    pub lapses: u8,
    /// Times that the members change.
    pub views: u8,
    /// Times that a node comes (back) as one of them.
    pub joins: u8,
    /// Times that time passes at a node, so that it tells again, asks again, and finishes what others have begun.
    pub passes: u8,
}

/// A model with its bounds. Messages are lost, doubled and overtaken any number of times: what was sent may come at any time, and again.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// What is promised.
    pub consistency: Consistency,
    /// Nodes: the first is home to the first key, the second to the second.
    pub nodes: usize,
    /// Keys.
    pub keys: usize,
    /// Who asks what.
    pub clients: Vec<Client>,
    /// What there is.
    pub begins: Begins,
    /// Promotions, evictions.
    pub hot_set: (u8, u8),
    /// What may go wrong; only the nodes from this one on die or are cut off.
    pub faults: Faults,
    /// See there.
    pub faulty_from: usize,
    /// What was left unknown is asked again, elsewhere.
    pub asks_again: bool,
    /// Clients go on at the next node.
    pub wanders: bool,
    /// What a home has in its shard dies with it.
    pub shards_die: bool,
    /// Of one in so many states it is looked whether everything ends once faults stop.
    pub settles_one_in: u64,
    /// What clients have done is written down.
    pub logs: bool,
    /// What can make no difference any more is not told apart.
    pub forgets_dead: bool,
    /// Ways to states at most: when there are more, it has not been gone through.
    pub ways_max: usize,
    /// A fault put into the protocol, which has to be found.
    pub mutant: Option<Mutant>,
}

/// Its bounds, in one line.
impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operations: usize = self.clients.iter().map(|client| client.wants.len()).sum();
        write!(
            f,
            "{} nodes, {} keys, {operations} operations of {} clients, any losses, doublings and order",
            self.nodes,
            self.keys,
            self.clients.len(),
        )?;
        let Faults { crashes, lapses, views, joins, passes } = self.faults;
        let counts = [
            (crashes, "crashes"),
            (lapses, "lapses of a lease"),
            (views, "new views"),
            (joins, "joins"),
            (passes, "waits"),
            (self.hot_set.0, "promotions"),
            (self.hot_set.1, "evictions"),
        ];
        counts.into_iter().filter(|(count, _)| *count > 0).try_for_each(|(count, of)| write!(f, ", {count} {of}"))
    }
}
