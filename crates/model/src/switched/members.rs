//! Who is in a model: one or two backends, two cache nodes at most, gateways; what each begins a life as.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use guira_cluster::{Frame, Incarnation, LinkBounds, NodeClock, Opening, Seq, SessionId};
use guira_hotkeys::Alpha;
use guira_item::{Moment, Span, store::StoreState};
use guira_routing::{KeyHash, NodeId, PartitionId, PartitionMap, RuleBudget, RuleChoices, RuleUpdate};
use guira_switched::{
    Body, CacheMode, Drift, Message, Outbox, Shares, View,
    backend::{Backend, BackendConfig, GivingConfig, HotConfig, Reports},
    cache_node::{CacheConfig, CacheNode},
    gateway::{Gateway, GatewayConfig, Happened, HedgeConfig},
};
use serde::Serialize;

use crate::switched::{
    coordinator::Coordinator,
    fingerprint::{TICK, fingerprint},
    scenario::{KEYS, Scenario},
};

pub(crate) const CONTROLLER: NodeId = NodeId(1);
/// As many of them as a model has.
pub(crate) const CACHES: [NodeId; 2] = [NodeId(2), NodeId(3)];
/// The same.
pub(crate) const BACKENDS: [NodeId; 2] = [NodeId(4), NodeId(5)];
pub(crate) const FIRST_GATEWAY: u16 = 10;

/// Longer than anything that happens here.
const FOR_EVER: Span = Span::from_ms(1 << 45);

/// Half of what is waited for before something is asked again, and less than a tick: the first time that a gateway has waited it hedges what it may, the
/// second time it asks again.
const HEDGE_AFTER: Span = Span::from_ms(10);

/// The first tick: what has never been done was long ago.
pub(crate) const FIRST_TICK: u64 = 1_000;

/// What a life's number is multiplied by: no life begins so many sessions.
const SESSIONS_MAX: u64 = 1_000;

/// What a name is of: which of the backends, cache nodes or gateways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Member {
    Backend(usize),
    Cache(usize),
    Gateway(usize),
}

impl Member {
    /// # Panics
    /// It is nobody's, or the controller's.
    pub(crate) fn of(name: NodeId) -> Self {
        let among = |names: &[NodeId]| names.iter().position(|other| *other == name);
        let backend = among(&BACKENDS).map(Self::Backend);
        let of = backend.or_else(|| among(&CACHES).map(Self::Cache));
        of.unwrap_or_else(|| Self::Gateway(usize::from(name.0 - FIRST_GATEWAY)))
    }
}

/// A member, in one of its lives.
#[derive(Clone, Debug, Serialize)]
#[serde(bound = "")]
pub(crate) struct Node<C> {
    #[serde(skip)]
    pub(crate) core: Arc<C>,
    print: u64,
    pub(crate) life: u64,
    #[serde(skip)]
    pub(crate) ticks: u64,
}

impl<C: Serialize> Node<C> {
    pub(crate) fn new(core: C) -> Self {
        Self { core: Arc::new(core), print: 0, life: 1, ticks: FIRST_TICK }
    }

    /// Its clock.
    pub(crate) fn now(&self) -> Moment {
        moment(self.ticks)
    }

    /// It, or its clock, has changed.
    pub(crate) fn changed(&mut self) {
        self.print = fingerprint(&*self.core, self.now());
    }
}

pub(crate) fn moment(ticks: u64) -> Moment {
    Moment::from_ns(ticks * TICK.ns())
}

pub(crate) fn incarnation(life: u64) -> Incarnation {
    Incarnation(life * SESSIONS_MAX)
}

fn apart(key: &[u8]) -> KeyHash {
    KeyHash(key.first().map_or(0, |first| u64::from(*first) << 56))
}

fn alike(_: &[u8]) -> KeyHash {
    KeyHash(7)
}

/// The bound on clocks, and a lease, of which the holder's part ends `ticks - 1` of its ticks after it was asked for, and the granter's `ticks + 1`
/// after it was granted. Clocks that are one tick apart at most go two ticks more than one another meanwhile: as much as the bound allows.
pub(crate) fn lease(ticks: u64) -> (Drift, Span) {
    (Drift { ppm: (1_000_000 / ticks) as u32 }, TICK.times(ticks) - Span::from_ms(1))
}

impl Scenario {
    pub(crate) fn hash_of(&self) -> fn(&[u8]) -> KeyHash {
        if self.hashes_collide { alike } else { apart }
    }

    /// Who has what when it begins.
    pub(crate) fn coordinator(&self) -> Coordinator {
        Coordinator::new(self.backends(), PartitionId::of((self.hash_of())(&KEYS[0])))
    }

    pub(crate) fn backends(&self) -> usize {
        if self.moves > 0 { 2 } else { 1 }
    }

    pub(crate) fn clock() -> NodeClock {
        NodeClock::set(Moment::default(), Duration::from_secs(1_800_000_000))
    }

    pub(crate) fn names_of_gateways(&self) -> impl Iterator<Item = NodeId> {
        (0..self.gateways).map(|at| NodeId(FIRST_GATEWAY + at))
    }

    /// All gateways, and the cache nodes but for so many.
    pub(crate) fn view(&self, gone: usize, shares: Shares) -> View {
        let budget = RuleBudget {
            updates_per_s: 1,
            table_len_max: KEYS.len(),
            deletion_delay: Span::default(),
            choices: RuleChoices::Two,
        };
        View {
            caches: CACHES[gone..self.caches].iter().copied().collect(),
            gateways: self.names_of_gateways().collect(),
            backends: BACKENDS[..self.backends()].into(),
            shares,
            cache_of: BTreeMap::new(),
            // So that cache nodes go on with what is in their charge.
            homes: BACKENDS.map(|backend| (backend, CACHES[0])).into(),
            budget,
            places: BTreeMap::new(),
            exchanges_per_s: 0.0,
        }
    }

    pub(crate) fn backend(
        &self,
        me: NodeId,
        life: u64,
        ticks: u64,
        state: StoreState,
        gone: usize,
        shares: Shares,
    ) -> Backend {
        let (drift, lease) = lease(self.lease_ticks);
        let hot = HotConfig {
            // Each read bursts.
            reports: if self.reports { Reports::Both } else { Reports::EveryQuery },
            segment: if self.reports { TICK } else { FOR_EVER },
            reported: KEYS.len(),
            tracked: KEYS.len(),
            alpha: Alpha::new(1.0).expect("above 0"),
            sample_one_in: 1,
            burst_log: 1,
            burst_visits: 0,
            burst_load_min: 0.0,
            seed: 0,
        };
        let config = BackendConfig {
            me,
            incarnation: incarnation(life),
            caches: CACHES[gone..self.caches].iter().copied().collect(),
            // Where partitions move, members come and go.
            caches_change: self.faults.departures > 0 || self.moves > 0,
            shares,
            giving: GivingConfig::default(),
            hash_of: self.hash_of(),
            gateways: self.names_of_gateways().collect(),
            lease,
            drift,
            clock: Self::clock(),
            item_len_max: 1_000,
            operations_len_max: usize::MAX,
            link: LinkBounds::default(),
            hot,
            cleans_up: false,
            mutant: self.mutant,
        };
        Backend::new(config, state, moment(ticks))
    }

    pub(crate) fn cache(&self, me: NodeId, life: u64, ticks: u64, partitions: Arc<PartitionMap>) -> CacheNode {
        let config = CacheConfig {
            me,
            incarnation: incarnation(life),
            charge: BACKENDS[..self.backends()].into(),
            controller: CONTROLLER,
            partitions,
            hash_of: self.hash_of(),
            items_max: self.items_max,
            bytes_max: 1_000,
            drift: lease(self.lease_ticks).0,
            clock: Self::clock(),
            segment: FOR_EVER,
            alpha: Alpha::new(1.0).expect("above 0"),
            threshold_rank: 0.1,
            exchanges_per_s: 0.0,
            seed: 0,
            mutant: self.mutant,
        };
        CacheNode::new(config, moment(ticks))
    }

    /// A gateway; the first one has a rule for every key, that leads to the first cache node, and so on. Where the network routes it believes that
    /// this one has answered last.
    pub(crate) fn gateway(&self, name: NodeId, shares: Shares) -> Gateway {
        let config = GatewayConfig {
            me: name,
            incarnation: incarnation(1),
            shares,
            hash_of: self.hash_of(),
            controller: CONTROLLER,
            routes_max: KEYS.len(),
            cache_mode: CacheMode::Switched,
            network_routes: self.network_routes,
            caches: CACHES[..self.caches].iter().copied().collect(),
            cache_of: BTreeMap::new(),
            drift: Drift::default(),
            resend_after: HEDGE_AFTER.times(2),
            hedges: self.hedges.then_some(HedgeConfig { after: HEDGE_AFTER, one_in: NonZero::<u32>::MIN }),
            answer_within: FOR_EVER,
            pending_max: 100,
            pending_len_max: usize::MAX,
            item_len_max: 1_000,
            seed: 0,
            mutant: self.mutant,
        };
        let mut gateway = Gateway::new(config);
        if let Some(cache) = CACHES[..self.caches].get(usize::from(name.0 - FIRST_GATEWAY)) {
            let (now, mut out) = (moment(FIRST_TICK), Outbox::default());
            // Where the network routes, too: it heeds what it is told.
            let session = SessionId { incarnation: incarnation(1), opening: Opening::first_of(incarnation(1)) };
            let opened = Message::Opened { session, at: now, lease: FOR_EVER };
            gateway.step(now, Happened::Message(CONTROLLER, opened), &mut out);
            let install = |key: &[u8; 1]| RuleUpdate::Install { hash: self.hash_of()(key), choices: (*cache).into() };
            let Frame { ack, seq, body } =
                Frame { ack: Seq(0), seq: Seq(1), body: Some(Body::Routes(KEYS.iter().map(install).collect())) };
            let told = Message::Told { session, ack, seq, body };
            gateway.step(now, Happened::Message(CONTROLLER, told), &mut out);
        }
        gateway
    }
}
