//! Who is asked for what operators want to know, and told what they want.
//!
//! Always true: one thing is asked at a time, by the one thread of the API; `None` says that who is asked has ended.

use std::sync::Weak;

use guira_openflow::{FlowAt, Version, WantedChanges, WantedFlows};
use guira_routing::{Choices, KeyHash, NodeId, RuleBudget};
use guira_switched::{
    controller::{BackendReport, CacheReport, ControllerCounts, MoveError},
    host::{ControllerHost, NoFlows},
};

/// A controller as operators see it.
pub trait Operated: Send + Sync + 'static {
    /// How it is.
    fn overview(&self) -> Option<Overview>;

    /// Its cache nodes.
    fn caches(&self) -> Option<Vec<CacheReport>>;

    /// The backends whose cache node may change.
    fn backends(&self) -> Option<Vec<BackendReport>>;

    /// Rules by their hashes, those after `after`: as many as there are, or `len_max`.
    fn rules_after(&self, after: Option<KeyHash>, len_max: usize) -> Option<Vec<(KeyHash, Choices)>>;

    /// The rule of a hash.
    fn rule(&self, hash: KeyHash) -> Option<Option<Choices>>;

    /// Flows that switches are to have, those behind `after`: as many as there are, or `len_max`.
    fn flows_after(&self, after: Option<FlowAt>, len_max: usize) -> Option<Result<WantedFlows, NoFlows>>;

    /// What has changed of them since a version: as many changes as there were, or `len_max`.
    fn flows_since(&self, version: Version, len_max: usize) -> Option<Result<WantedChanges, NoFlows>>;

    /// A backend is to be in the charge of a cache node.
    fn move_backend(&self, backend: NodeId, cache: NodeId) -> Option<Result<(), MoveError>>;
}

/// How a controller is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overview {
    /// Its numbers.
    pub counts: ControllerCounts,
    /// Rules that are made.
    pub rules: usize,
    /// How many installs and how many deletions wait.
    pub waiting: (usize, usize),
    /// What the switch takes.
    pub budget: RuleBudget,
}

/// A controller that may end while it is asked.
impl Operated for Weak<ControllerHost> {
    fn overview(&self) -> Option<Overview> {
        let status = self.upgrade()?.status()?;
        Some(Overview { counts: status.counts, rules: status.rules, waiting: status.waiting, budget: status.budget })
    }

    fn caches(&self) -> Option<Vec<CacheReport>> {
        self.upgrade()?.caches()
    }

    fn backends(&self) -> Option<Vec<BackendReport>> {
        self.upgrade()?.backends()
    }

    fn rules_after(&self, after: Option<KeyHash>, len_max: usize) -> Option<Vec<(KeyHash, Choices)>> {
        self.upgrade()?.rules_after(after, len_max)
    }

    fn rule(&self, hash: KeyHash) -> Option<Option<Choices>> {
        self.upgrade()?.rule(hash)
    }

    fn flows_after(&self, after: Option<FlowAt>, len_max: usize) -> Option<Result<WantedFlows, NoFlows>> {
        self.upgrade()?.flows_after(after, len_max)
    }

    fn flows_since(&self, version: Version, len_max: usize) -> Option<Result<WantedChanges, NoFlows>> {
        self.upgrade()?.flows_since(version, len_max)
    }

    fn move_backend(&self, backend: NodeId, cache: NodeId) -> Option<Result<(), MoveError>> {
        self.upgrade()?.move_backend(backend, cache)
    }
}
