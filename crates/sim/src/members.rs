//! Who is in a simulated cluster, and what each begins a life as.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;

use guira_cluster::Incarnation;
use guira_hotkeys::Alpha;
use guira_item::{Moment, Span, store::StoreState};
use guira_routing::{CacheNodes, HashSeed, KeyHash, NodeId, PartitionMap, RuleBudget, RuleChoices};
use guira_switched::{
    Commit, Committed, Drift, ITEM_LEN_DEFAULT, Life, Mutant, Revision, ScanBounds, Shares, View,
    backend::{Backend, BackendConfig, GivingConfig, HotConfig},
    cache_node::{CacheConfig, CacheNode},
    controller::{Controller, ControllerConfig},
    gateway::{Gateway, GatewayConfig, HedgeConfig},
};

use rand::RngExt;

use crate::{
    scenario::Scenario,
    switch::{Switch, SwitchBounds},
    world::{Coming, World},
};

pub(crate) const CONTROLLER: NodeId = NodeId(1);
pub(crate) const FIRST_CACHE: u16 = 100;
pub(crate) const FIRST_BACKEND: u16 = 1_000;
pub(crate) const FIRST_GATEWAY: u16 = 10_000;

/// Rules that the controller makes at most.
pub(crate) const ROUTES_MAX: usize = 1_000;

/// What a node is while it is up.
pub(crate) enum Core {
    Backend(Box<Backend>),
    Cache(Box<CacheNode>),
    Controller(Box<Controller>),
    Gateway(Box<Gateway<Switch>>),
}

pub(crate) fn of_kind(first: u16, count: u16) -> Vec<NodeId> {
    (first..first + count).map(NodeId).collect()
}

pub(crate) fn hash_of(key: &[u8]) -> KeyHash {
    KeyHash::of(key, HashSeed(1))
}

/// So many cache nodes of so many parts, whose numbers follow each other.
pub(crate) fn cache_nodes(nodes: u16, threads: NonZero<u16>) -> CacheNodes {
    let firsts = (FIRST_CACHE..).step_by(threads.get().into());
    firsts.take(nodes.into()).map(|first| (NodeId(first), threads)).collect()
}

impl Scenario {
    pub(crate) fn hash_of(&self) -> fn(&[u8]) -> KeyHash {
        if self.hashes_collide { colliding_hash_of } else { hash_of }
    }

    /// All cache nodes.
    pub(crate) fn cache_nodes(&self) -> CacheNodes {
        cache_nodes(self.caches, self.cache_threads)
    }

    /// These, with their parts.
    pub(crate) fn cache_nodes_of(&self, nodes: impl IntoIterator<Item = NodeId>) -> CacheNodes {
        nodes.into_iter().map(|node| (node, self.cache_threads)).collect()
    }

    /// A like share for each backend.
    pub(crate) fn partitions(&self) -> Arc<PartitionMap> {
        let backends = of_kind(FIRST_BACKEND, self.backends);
        PartitionMap::over(&backends).expect("there are some backends, and not too many").into()
    }
}

/// So few that many keys share one.
fn colliding_hash_of(key: &[u8]) -> KeyHash {
    KeyHash(hash_of(key).0 & (7 << 61))
}

impl World {
    /// All nodes.
    pub(crate) fn names(&self) -> Vec<NodeId> {
        let Scenario { backends, standbys, gateways, .. } = self.scenario;
        let (caches, backends) = (self.scenario.cache_nodes(), of_kind(FIRST_BACKEND, backends + standbys));
        [vec![CONTROLLER], caches.parts().collect(), backends, of_kind(FIRST_GATEWAY, gateways)].concat()
    }

    /// Who ends with a node: the parts of a cache node are threads of one process.
    pub(crate) fn process_of(&self, name: NodeId) -> Vec<NodeId> {
        let caches = self.scenario.cache_nodes();
        caches.node_of(name).map_or(vec![name], |node| caches.parts_of(node).collect())
    }

    /// What a node is in a life that begins `now`, by its own clock.
    pub(crate) fn core(&self, name: NodeId, now: Moment, life: Life, state: StoreState) -> Core {
        let (scenario, Life { incarnation, clock, seed }) = (&self.scenario, life);
        let View { caches, gateways, backends: _, shares, cache_of, homes, budget, places: _, exchanges_per_s } =
            self.view().clone();
        let hash_of = scenario.hash_of();
        let partitions = Arc::clone(&shares.map);
        let drift = Drift::default();
        let NodeId(number) = name;
        match number {
            FIRST_GATEWAY.. => Core::Gateway(Box::new(Gateway::routing_by(
                // Where the network routes it is a memory, and nothing takes its time.
                Switch::new(if scenario.network_routes { SwitchBounds::NONE } else { scenario.switch }, seed),
                GatewayConfig {
                    me: name,
                    incarnation,
                    shares,
                    hash_of,
                    controller: CONTROLLER,
                    routes_max: ROUTES_MAX,
                    cache_mode: scenario.cache_modes[usize::from(number - FIRST_GATEWAY) % scenario.cache_modes.len()],
                    network_routes: scenario.network_routes,
                    caches,
                    cache_of,
                    drift,
                    resend_after: Span::from_ms(20),
                    hedges: scenario.hedge_after.map(HedgeConfig::after),
                    answer_within: Span::from_s(5),
                    pending_max: 1_000,
                    pending_len_max: scenario.values_len_max,
                    item_len_max: ITEM_LEN_DEFAULT,
                    seed,
                    mutant: scenario.mutant,
                },
            ))),
            FIRST_BACKEND.. => {
                let hot = HotConfig {
                    segment: Span::from_s(1),
                    burst_log: 20,
                    burst_visits: 2,
                    burst_load_min: 0.0,
                    seed,
                    ..HotConfig::default()
                };
                let config = BackendConfig {
                    me: name,
                    incarnation,
                    shares,
                    // Few at a time: what is given goes through many steps.
                    giving: GivingConfig {
                        partitions_at_once: 256,
                        scan: ScanBounds { keys_max: 8, bytes_max: 4_096 },
                    },
                    hash_of,
                    caches,
                    caches_change: scenario.members_change_every.is_some(),
                    gateways,
                    lease: scenario.lease,
                    drift,
                    clock,
                    item_len_max: ITEM_LEN_DEFAULT,
                    operations_len_max: scenario.values_len_max,
                    link: scenario.link(),
                    hot,
                    cleans_up: scenario.cleans_up,
                    mutant: scenario.mutant,
                };
                Core::Backend(Box::new(Backend::new(config, state, now)))
            }
            FIRST_CACHE.. => Core::Cache(Box::new(CacheNode::new(
                CacheConfig {
                    me: name,
                    incarnation,
                    charge: cache_of
                        .into_iter()
                        .filter(|(_, home)| Some(*home) == caches.node_of(name))
                        .map(|(backend, _)| backend)
                        .collect(),
                    controller: CONTROLLER,
                    partitions,
                    hash_of,
                    items_max: scenario.items_max.div_ceil(scenario.cache_threads.get().into()),
                    bytes_max: scenario.values_len_max,
                    drift,
                    clock,
                    segment: Span::from_s(1),
                    alpha: Alpha::new(0.5).expect("between 0 and 1"),
                    threshold_rank: 0.1,
                    exchanges_per_s,
                    seed,
                    mutant: scenario.mutant,
                },
                now,
            ))),
            _ => {
                let config = ControllerConfig {
                    me: name,
                    incarnation,
                    caches,
                    gateways,
                    budget,
                    lease: Span::from_s(2),
                    homes,
                    balance_load_min: 0.0,
                    network_routes: scenario.network_routes,
                };
                Core::Controller(Box::new(Controller::new(config).expect("the budget leaves room")))
            }
        }
    }

    /// A cache node or a gateway comes or goes, unless it is the last one; each node hears of it sooner or later.
    pub(crate) fn change_members(&mut self) {
        let Scenario { gateways, backends, backends_change, .. } = self.scenario;
        // By their places: whoever has them.
        let backends = if backends_change { of_kind(FIRST_BACKEND, backends) } else { Vec::new() };
        let caches = self.scenario.cache_nodes().nodes().collect();
        let all = [caches, of_kind(FIRST_GATEWAY, gateways), backends].concat();
        let name = all[self.rng.random_range(0..all.len())];
        self.change(name);
    }

    /// It comes if it is not there, and goes if it is: of a backend that is whether it is to have its share.
    pub(crate) fn change(&mut self, name: NodeId) {
        let View { caches, mut gateways, shares, .. } = self.view().clone();
        if (FIRST_BACKEND..FIRST_GATEWAY).contains(&name.0) {
            let has_share = |place: &NodeId| shares.wanted.backends().contains(&self.places[place]);
            let changed = self.places.keys().copied().filter(|place| has_share(place) != (*place == name));
            if let Some(wanted) = self.dealt_out_to(&changed.collect::<Vec<_>>()) {
                let shares = Shares { wanted: wanted.into(), ..shares };
                self.set_view(view_of(&self.scenario, &self.places, caches, gateways, shares), Span::from_s(3));
            }
            return;
        }
        let is_cache = name.0 < FIRST_BACKEND;
        let mut caches: Vec<NodeId> = caches.nodes().collect();
        let kind = if is_cache { &mut caches } else { &mut gateways };
        let comes = !kind.contains(&name);
        if comes {
            kind.push(name);
        } else {
            kind.retain(|other| *other != name);
        }
        if !kind.is_empty() {
            let caches = self.scenario.cache_nodes_of(caches);
            self.set_view(view_of(&self.scenario, &self.places, caches, gateways, shares), Span::from_s(3));
            if !comes && self.rng.random_bool(0.5) {
                // It was a mistake.
                let after = self.span(Span::default(), Span::from_s(2));
                self.come(after, Coming::ComesBack(name));
            }
            if comes {
                let after = self.span(Span::default(), Span::from_s(2));
                self.process_of(name).into_iter().for_each(|part| self.come(after, Coming::Restart(part)));
            }
        }
    }

    /// All nodes are there.
    pub(crate) fn full_view(&self) -> View {
        let (caches, gateways) = (self.scenario.cache_nodes(), of_kind(FIRST_GATEWAY, self.scenario.gateways));
        let places: Vec<NodeId> = self.places.keys().copied().collect();
        let wanted = self.dealt_out_to(&places).expect("there are some places").into();
        let shares = Shares { wanted, ..self.view().shares.clone() };
        view_of(&self.scenario, &self.places, caches, gateways, shares)
    }

    /// A backend has given partitions away: they are in the map, if both are still in those lives and they are its own.
    pub(crate) fn commit(&mut self, name: NodeId, begun: Incarnation, commit: &Commit) -> Committed {
        let View { caches, gateways, backends, shares, .. } = self.view().clone();
        let mutant = self.scenario.mutant;
        let is_current = self.incarnation(name) == begun || mutant == Some(Mutant::MoveLife);
        let has_them = self.incarnation(commit.to) == commit.to_life || mutant == Some(Mutant::MoveTakerLife);
        let mut partitions = commit.partitions.iter();
        // Somebody else was faster, again and again.
        let is_refused = self.rng.random_bool(0.03);
        let is_there = backends.contains(&commit.to);
        if !is_current
            || !has_them
            || !is_there
            || is_refused
            || !partitions.all(|partition| shares.map.owner(*partition) == name)
        {
            return Committed::Not;
        }
        let map = shares.map.with_owner(commit.partitions.iter().copied(), commit.to);
        let revision = Revision(shares.revision.0 + 1);
        let shares = Shares { map: map.into(), revision, ..shares };
        self.set_view(view_of(&self.scenario, &self.places, caches, gateways, shares), Span::from_ms(500));
        Committed::As(revision)
    }
}

/// These cache nodes and gateways, and who has the backends' places, with a like share of these for each cache node.
pub(crate) fn view_of(
    scenario: &Scenario,
    places: &BTreeMap<NodeId, NodeId>,
    caches: CacheNodes,
    mut gateways: Vec<NodeId>,
    shares: Shares,
) -> View {
    gateways.sort_unstable();
    let homes = caches.nodes().cycle();
    let home = |(backend, cache): (&NodeId, NodeId)| (*backend, cache);
    let cache_of: BTreeMap<_, _> = places.values().zip(homes).map(home).collect();
    let backends = cache_of.keys().copied().collect();
    let budget = RuleBudget {
        updates_per_s: 400,
        table_len_max: ROUTES_MAX,
        deletion_delay: Span::from_s(1),
        choices: if scenario.network_routes { RuleChoices::One } else { RuleChoices::Two },
    };
    let homes = if scenario.balances { cache_of.clone() } else { BTreeMap::new() };
    let places = BTreeMap::new();
    View { caches, gateways, backends, shares, cache_of, homes, budget, places, exchanges_per_s: 100.0 }
}
