//! The cores of a cluster: who there is, and as what they are made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use guira_cluster::{Incarnation, LinkBounds, NodeClock};
use guira_hotkeys::Alpha;
use guira_item::{Moment, Span, store::StoreState};
use guira_routing::{CacheNodes, NodeId, PartitionMap, RuleBudget, RuleChoices};
use guira_switched::{
    Drift, Shares,
    backend::{Backend, BackendConfig, GivingConfig, HotConfig},
    cache_node::{CacheConfig, CacheNode},
    controller::{Controller, ControllerConfig},
    gateway::{Gateway, GatewayConfig},
};

use super::{LoadScenario, RuleOrder, warming::WARMED_USE};
use crate::members::{CONTROLLER, FIRST_BACKEND, FIRST_CACHE, cache_nodes, hash_of, of_kind};
use crate::switch::{Switch, SwitchBounds};

pub(super) const GATEWAY: NodeId = NodeId(2);

/// When a run begins, by every node's clock, and in Unix time.
pub(super) const BEGINS: Moment = Moment::from_ns(1_000_000_000);
const BEGINS_UNIX: Duration = Duration::from_secs(1_800_000_000);
const INCARNATION: Incarnation = Incarnation(BEGINS_UNIX.as_nanos() as u64);

/// Visits in the log of a backend beyond which a key bursts, and keys in its report (section 4.4).
pub(super) const BURST_VISITS: u32 = 8;
pub(super) const REPORTED: usize = 5;

/// Trackers' segments, as the paper's.
pub(super) const SEGMENT: Span = Span::from_s(1);

/// How long a session goes on without a word.
const LEASE: Span = Span::from_s(2);

/// Clocks are perfect; leases do not know it.
const DRIFT: Drift = Drift { ppm: 1_000 };

/// More than anything.
const UNBOUNDED_PER_S: f64 = 1e12;

/// Rules that a table has room for beyond those it needs: a rule of a key that makes room for another may be wanted a moment longer.
const SPARE_RULES: usize = 64;

/// Who runs, by the number among its kind.
pub(super) enum Core {
    Controller,
    Gateway,
    Cache(usize),
    Backend(usize),
}

impl Core {
    pub(super) fn of(node: NodeId) -> Self {
        match node.0 {
            FIRST_BACKEND.. => Self::Backend(usize::from(node.0 - FIRST_BACKEND)),
            FIRST_CACHE.. => Self::Cache(usize::from(node.0 - FIRST_CACHE)),
            2 => Self::Gateway,
            _ => Self::Controller,
        }
    }
}

impl LoadScenario {
    pub(super) fn cache_nodes(&self) -> CacheNodes {
        cache_nodes(self.caches, self.cache_threads)
    }
}

/// All of them.
pub(super) struct Members {
    pub(super) gateway: Gateway<Switch>,
    pub(super) controller: Controller,
    pub(super) caches: Vec<CacheNode>,
    pub(super) backends: Vec<Backend>,
    pub(super) partitions: Arc<PartitionMap>,
}

impl Members {
    pub(super) fn new(scenario: &LoadScenario) -> Self {
        let backends = of_kind(FIRST_BACKEND, scenario.backends);
        let caches = scenario.cache_nodes();
        let nodes: Vec<NodeId> = caches.nodes().collect();
        let partitions = Arc::new(PartitionMap::over(&backends).expect("there are some backends, and not too many"));
        let budget = budget(scenario);
        let home = |at: usize| nodes.get(at % nodes.len().max(1)).copied();
        let of = |(at, backend): (usize, &NodeId)| Some((*backend, home(at)?));
        let cache_of: BTreeMap<NodeId, NodeId> = backends.iter().enumerate().filter_map(of).collect();
        let controller = Controller::new(ControllerConfig {
            me: CONTROLLER,
            incarnation: INCARNATION,
            caches: caches.clone(),
            gateways: vec![GATEWAY],
            budget,
            lease: LEASE,
            homes: if scenario.balances { cache_of.clone() } else { BTreeMap::new() },
            balance_load_min: balance_load_min(scenario),
            network_routes: false,
        });
        let cache = |(at, part): (usize, NodeId)| {
            let node = caches.node_of(part);
            let charge = cache_of.iter().filter(|(_, home)| Some(**home) == node).map(|(backend, _)| *backend);
            cache(scenario, at, part, charge.collect(), Arc::clone(&partitions))
        };
        Self {
            controller: controller.expect("some rules a second, and room for them"),
            caches: caches.parts().enumerate().map(cache).collect(),
            backends: backends
                .iter()
                .enumerate()
                .map(|(at, me)| backend(scenario, &partitions, at, *me, &caches))
                .collect(),
            gateway: gateway(scenario, Arc::clone(&partitions), caches, cache_of, budget.table_len_max),
            partitions,
        }
    }
}

/// Half as much again as there is to read while the cache is filled, where keys that come first look hotter than others: nothing is evened out then.
fn balance_load_min(scenario: &LoadScenario) -> f64 {
    let all_per_s = f64::from(scenario.backends) * scenario.backend_per_s / scenario.scale;
    1.5 * WARMED_USE * all_per_s / scenario.cache_nodes().parts_len().max(1) as f64
}

/// Room for the rules of all that is cached, and for those that may wait to be deleted.
fn budget(scenario: &LoadScenario) -> RuleBudget {
    let budget = RuleBudget {
        updates_per_s: scenario.rules_per_s,
        table_len_max: 0,
        deletion_delay: scenario.rule_deletion_delay,
        choices: RuleChoices::Two,
    };
    RuleBudget { table_len_max: scenario.cache_items + budget.buffer_len() + SPARE_RULES, ..budget }
}

fn gateway(
    scenario: &LoadScenario,
    partitions: Arc<PartitionMap>,
    caches: CacheNodes,
    cache_of: BTreeMap<NodeId, NodeId>,
    routes_max: usize,
) -> Gateway<Switch> {
    // As long as a full queue takes, and as much again.
    let queued_s = scenario.backend_queue_len_max as f64 * scenario.scale / scenario.backend_per_s;
    let answer_within = Span::from_ms(10) + Span::from_ns((2e9 * queued_s) as u64);
    let config = GatewayConfig {
        me: GATEWAY,
        incarnation: INCARNATION,
        shares: Shares::fixed(partitions),
        hash_of,
        controller: CONTROLLER,
        routes_max,
        cache_mode: scenario.cache_mode,
        network_routes: false,
        caches,
        cache_of,
        drift: DRIFT,
        // Later than that: so nothing is asked for twice.
        resend_after: answer_within.times(2),
        hedges: None,
        answer_within,
        pending_max: guira_switched::gateway::PENDING_MAX,
        pending_len_max: usize::MAX,
        item_len_max: guira_switched::ITEM_LEN_MAX,
        seed: scenario.seed,
        mutant: None,
    };
    Gateway::routing_by(Switch::new(SwitchBounds::NONE, scenario.seed), config)
}

fn backend(
    scenario: &LoadScenario,
    partitions: &Arc<PartitionMap>,
    at: usize,
    me: NodeId,
    caches: &CacheNodes,
) -> Backend {
    let usual = HotConfig::default();
    let config = BackendConfig {
        me,
        incarnation: INCARNATION,
        caches: caches.clone(),
        caches_change: false,
        shares: Shares::fixed(Arc::clone(partitions)),
        giving: GivingConfig::default(),
        hash_of,
        gateways: vec![GATEWAY],
        lease: LEASE,
        drift: DRIFT,
        clock: NodeClock::set(BEGINS, BEGINS_UNIX),
        item_len_max: guira_switched::ITEM_LEN_MAX,
        operations_len_max: usize::MAX,
        link: LinkBounds::default(),
        hot: HotConfig {
            reports: scenario.reports,
            segment: SEGMENT,
            reported: REPORTED,
            burst_visits: BURST_VISITS,
            burst_load_min: usual.burst_load_min / scenario.scale,
            seed: scenario.seed.wrapping_add(at as u64),
            ..usual
        },
        cleans_up: false,
        mutant: None,
    };
    Backend::new(config, StoreState::default(), BEGINS)
}

fn cache(
    scenario: &LoadScenario,
    at: usize,
    me: NodeId,
    charge: Vec<NodeId>,
    partitions: Arc<PartitionMap>,
) -> CacheNode {
    let config = CacheConfig {
        me,
        incarnation: INCARNATION,
        charge,
        controller: CONTROLLER,
        partitions,
        hash_of,
        items_max: scenario.cache_items / scenario.cache_nodes().parts_len(),
        bytes_max: usize::MAX / 16,
        drift: DRIFT,
        clock: NodeClock::set(BEGINS, BEGINS_UNIX),
        segment: SEGMENT,
        alpha: Alpha::new(0.5).expect("between 0 and 1"),
        threshold_rank: 0.1,
        exchanges_per_s: match scenario.rule_order {
            RuleOrder::HottestFirst => CacheConfig::exchanges(scenario.rules_per_s, scenario.cache_nodes().parts_len()),
            RuleOrder::AsTheyCome => UNBOUNDED_PER_S,
        },
        seed: scenario.seed.wrapping_add(at as u64),
        mutant: None,
    };
    CacheNode::new(config, BEGINS)
}
