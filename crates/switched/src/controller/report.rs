//! What a controller tells operators of cache nodes, backends and rules.
//!
//! Always true: it is what was heard last, copied; nothing is asked of anybody for it.

use guira_routing::NodeId;

/// A cache node.
#[derive(Clone, PartialEq, Debug)]
pub struct CacheReport {
    /// Its name.
    pub cache: NodeId,
    /// Reads a second, of the keys of all backends; `None` if it has not said so yet.
    pub load_per_s: Option<f64>,
    /// The backends that it is in charge of, with the reads a second of their keys.
    pub charge: Vec<(NodeId, f64)>,
    /// Its parts, one at least.
    pub parts: Vec<PartReport>,
}

impl CacheReport {
    /// Whether all of it has been heard of in the length of a lease.
    pub fn has_session(&self) -> bool {
        self.parts.iter().all(|part| part.has_session)
    }
}

/// A part of a cache node.
#[derive(Clone, PartialEq, Debug)]
pub struct PartReport {
    /// Its name: what rules lead to.
    pub part: NodeId,
    /// Whether it has been heard of in the length of a lease.
    pub has_session: bool,
    /// Reads a second; `None` if it has not said so yet.
    pub load_per_s: Option<f64>,
}

/// A backend whose cache node may change.
#[derive(Clone, PartialEq, Debug)]
pub struct BackendReport {
    /// Its name.
    pub backend: NodeId,
    /// Its cache node, if nothing speaks against that.
    pub home: NodeId,
    /// Who is to be in charge of it; `None` if nobody can be, or yet.
    pub owner: Option<NodeId>,
    /// Reads a second of its keys at who is in charge of it; `None` if nobody has said so.
    pub load_per_s: Option<f64>,
}
