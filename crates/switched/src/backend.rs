//! A backend: the owner of a part of the keys, before a store.
//!
//! ```text
//! Request --> window (once) --> chain of the key --> store --> [cached? Update --> acknowledged, or lease over] --> Reply
//! Fetch   -----------------------^                                                              (R5: behind what is on its way)
//! ```
//! Always true:
//! - what is on its way for a key takes effect in the order it came, and is answered when the store has it *and* no cache node can serve
//!   anything older (R4); reads and fetches of the key wait behind it (R5);
//! - a cache node may have a key only if the key is in the set of one of its sessions whose lease may still run (R6);
//! - a key that several cache nodes may have is changed in two phases: no one is told the new item before all have ceased to serve the old (R7);
//! - a request acts once (R3): its gateway's session is with this life of the backend, and what was answered is kept until nobody asks again;
//! - a backend that begins serves nothing until no cache node serves what it gave in an earlier life (R2);
//! - versions and generations are reserved in the store before they are used;
//! - what is to come by itself, a `flush_all`, is in the store, and comes whoever has died meanwhile; of two backends between which partitions move both
//!   have the same to come.

mod cached;
mod clients;
mod flush;
mod foreign;
mod giving;
mod hot;
mod standstill;
mod taking;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{
    Committed, Drift, ITEM_LEN_MAX, Message, Mutant, Outbox, ScanNumber, Scanned, Shares, View, message::ABOUT_LEN,
};
use cached::CachePeer;
use clients::{Asked, Client};
use flush::StateWork;
use foreign::Foreign;
use giving::Giving;
pub use giving::GivingConfig;
use guira_chain::Reply;
use guira_cluster::{Incarnation, LinkBounds, NodeClock, Opening, SessionId};
use guira_item::{
    KEY_LEN_MAX, Moment, Span,
    store::{Found, StoreError, StoreState, Written},
};
use guira_routing::{CacheNodes, KeyHash, NodeId, PartitionId};
use hot::HotKeys;
pub use hot::{HotConfig, Reports};
use serde::Serialize;
pub use standstill::{Standstill, Why};
use taking::Taking;
use work::Work;

/// Operations that a backend has on their way at most, some hundred bytes each beside their values: further ones are refused.
const OPERATIONS_MAX: usize = 1 << 16;

/// Keys in a report at most, but for those that are much of the load: all that are kept, which is the most that is told, fit into a datagram.
pub(crate) const REPORTED_MAX: usize = 40;
const _: () = assert!(REPORTED_MAX * hot::KEPT_PER_REPORTED * (KEY_LEN_MAX + ABOUT_LEN) < 60_000);

/// How often an unanswered declaration is repeated.
const VOID_AGAIN_AFTER: Span = Span::from_ms(50);

/// What a backend is.
#[derive(Clone, Debug)]
pub struct BackendConfig {
    /// Its name.
    pub me: NodeId,
    /// This life's number.
    pub incarnation: Incarnation,
    /// Who has which keys, and who is to.
    pub shares: Shares,
    /// How partitions are given away.
    pub giving: GivingConfig,
    /// How a key is hashed for routing.
    pub hash_of: fn(&[u8]) -> KeyHash,
    /// Who may cache its keys. The same in every life, or a lease has passed in between, unless they change.
    pub caches: CacheNodes,
    /// Cache nodes and gateways change ([`Happened::View`]): one that begins waits for a whole lease, for who had one may be nobody any more.
    pub caches_change: bool,
    /// Who may ask.
    pub gateways: Vec<NodeId>,
    /// How long a lease is. The same in every life, or none is shorter than those before it.
    pub lease: Span,
    /// The bound on clocks.
    pub drift: Drift,
    /// Ties its moments to the cluster's seconds.
    pub clock: NodeClock,
    /// Bytes of key and value together beyond which an item is refused, at most [`ITEM_LEN_MAX`].
    pub item_len_max: usize,
    /// Bytes of values in operations on their way beyond which further ones are refused; one always may be.
    pub operations_len_max: usize,
    /// What may be on its way to a cache node.
    pub link: LinkBounds,
    /// How hot keys are found.
    pub hot: HotConfig,
    /// What its store has of partitions that are others' by the map that it begins with is removed, while it serves: an earlier life may have left it.
    pub cleans_up: bool,
    /// A fault put in on purpose, for the tests of the checkers.
    pub mutant: Option<Mutant>,
}

/// What a backend is told.
#[derive(Debug)]
pub enum Happened<'e> {
    /// A message came.
    Message(NodeId, Message<'e>),
    /// The store has read an item.
    Read(Box<[u8]>, Result<Found, StoreError>),
    /// The store has written an item.
    Written(Box<[u8]>, Result<Written, StoreError>),
    /// The store has written the state.
    StateWritten(Result<Written, StoreError>),
    /// The store has named keys, under the number that it was asked by.
    Scanned(ScanNumber, Result<Scanned, StoreError>),
    /// The store has fenced off what was written before to partitions.
    Fenced(Result<(), StoreError>),
    /// The store has on disk what it had written when it was asked.
    Flushed(Result<(), StoreError>),
    /// What came of partitions that were given away.
    Committed(Committed),
    /// There are others now.
    View(&'e View),
    /// Time has passed.
    Tick,
}

/// Who waits for a reply of a chain.
#[derive(Clone, Copy, Debug, Serialize)]
enum ReplyTo {
    /// A gateway's request.
    Request { asked: Asked, is_hot: bool, value_len: usize },
    /// A cache node's fetch.
    Fetch { cache: NodeId, session: SessionId },
    /// A cache node that is to have a key too.
    Second { cache: NodeId, per_s: f32 },
    /// A backend that the key is given to.
    Taker { to: NodeId, number: ScanNumber },
}

/// Numbers about a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BackendCounts {
    /// Operations that were asked for, each once.
    pub operations: u64,
    /// Requests that came again, or too late.
    pub repeated: u64,
    /// Requests of sessions that are not there.
    pub strangers: u64,
    /// Operations refused because too many were on their way.
    pub refused: u64,
    /// Items that were fetched.
    pub fetches: u64,
    /// Bursts that were told.
    pub bursts: u64,
    /// Updates of cached items.
    pub updates: u64,
    /// Keys that another cache node was told of too, because one had too much to do.
    pub spreads: u64,
    /// Changes in two phases, of keys that several cache nodes may have had.
    pub two_phased: u64,
    /// Changes that have waited for a lease to run out.
    pub lease_waits: u64,
    /// Partitions, some at a time, that were given to others.
    pub given: u64,
    /// Requests for keys of others.
    pub moved: u64,
    /// Messages that mean nothing here.
    pub ignored: u64,
}

/// A backend.
#[derive(Clone, Debug, Serialize)]
pub struct Backend {
    #[serde(skip)]
    config: BackendConfig,
    state: StoreState,
    state_work: StateWork,
    last_version: u64,
    keys: HashMap<Box<[u8]>, Work>,
    clients: BTreeMap<NodeId, Client>,
    /// By part.
    caches: BTreeMap<NodeId, CachePeer>,
    /// The last session that each cache node had begun that has gone: none is there twice.
    gone: BTreeMap<NodeId, Opening>,
    hot: HotKeys,
    giving: Giving,
    taking: Taking,
    foreign: Foreign,
    /// The number of the last scan.
    last_scan: ScanNumber,
    /// On their way.
    operations: usize,
    /// Bytes of the values in them.
    operations_len: usize,
    #[serde(skip)]
    replies: Vec<(ReplyTo, Reply)>,
    /// What this life waits for before it serves.
    start: Option<Start>,
    #[serde(skip)]
    counts: BackendCounts,
}

/// The wait for the end of earlier lives' leases.
#[derive(Clone, Debug, Serialize)]
struct Start {
    unheard: BTreeSet<NodeId>,
    until: Moment,
    ask_at: Moment,
    is_over: bool,
}

impl Backend {
    /// A backend that begins at `now`, with what its store has as its state.
    ///
    /// # Panics
    /// Items that do not fit into a message, or reports that do not fit into a datagram.
    pub fn new(config: BackendConfig, state: StoreState, now: Moment) -> Self {
        assert!(config.item_len_max <= ITEM_LEN_MAX, "items of {} bytes", config.item_len_max);
        assert!(config.hot.reported <= REPORTED_MAX, "reports of {} keys", config.hot.reported);
        let until = now + config.drift.granter(config.lease);
        let forgets = config.mutant == Some(Mutant::FlushForgotten);
        let flush_at_unix_s = if forgets { 0 } else { state.flush_at_unix_s };
        let Shares { map, wanted, .. } = &config.shares;
        let others = map.backends().iter().chain(wanted.backends()).copied();
        let others: BTreeSet<NodeId> = others.filter(|other| *other != config.me && config.caches_change).collect();
        // Where cache nodes change it is time alone that tells: who had a lease may be in no view.
        let unheard = config.caches.parts().filter(|_| !config.caches_change).collect();
        let mut foreign = Foreign::default();
        if config.cleans_up {
            foreign.clear(PartitionId::all().filter(|partition| map.owner_if_any(*partition) != Some(config.me)));
        }
        Self {
            state: StoreState { flush_at_unix_s, ..state },
            state_work: StateWork::default(),
            last_version: state.versions_reserved,
            keys: HashMap::new(),
            clients: BTreeMap::new(),
            caches: config.caches.parts().map(|cache| (cache, CachePeer::default())).collect(),
            gone: BTreeMap::new(),
            hot: HotKeys::new(&config.hot, now),
            giving: Giving::beginning(now, config.incarnation, others),
            taking: Taking::default(),
            foreign,
            last_scan: ScanNumber::default(),
            operations: 0,
            operations_len: 0,
            replies: Vec::new(),
            start: Some(Start { unheard, until, ask_at: now, is_over: false }),
            counts: BackendCounts::default(),
            config,
        }
    }

    /// Heeds what has happened; `now` was read after it had.
    pub fn step(&mut self, now: Moment, happened: Happened<'_>, out: &mut Outbox) {
        match happened {
            Happened::Message(from, message) => self.on_message(now, from, message, out),
            Happened::Read(key, found) => self.on_read(now, key, found, out),
            Happened::Written(key, written) => self.on_written(now, key, written, out),
            Happened::StateWritten(written) => self.on_state_written(now, written.map(drop), out),
            Happened::Scanned(number, found) => {
                self.on_scanned_to_clear(now, number, &found, out);
                self.on_scanned_to_give(now, number, found, out);
            }
            Happened::Fenced(fenced) => self.on_taken_fenced(fenced.is_ok()),
            Happened::Flushed(flushed) => self.on_taken_flushed(flushed.is_ok()),
            Happened::Committed(committed) => self.on_committed(now, committed),
            Happened::View(view) => self.on_view(now, view),
            Happened::Tick => {}
        }
        self.go_on_starting(now, out);
        self.go_on_with_state(now, out);
        self.end_lapsed(now, out);
        self.forget_who_has_gone(now, out);
        self.go_on_giving(now, out);
        // What is taken waits for what is clear, and has more cleared.
        self.go_on_clearing(now, out);
        self.go_on_taking(now, out);
        self.go_on_clearing(now, out);
        self.report(now);
        self.emit(now, out);
    }

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message<'_>, out: &mut Outbox) {
        match message {
            Message::Join { opening } => self.on_join(from, opening, out),
            Message::Request(ask) => self.on_request(now, from, &ask, out),
            Message::Flush { asker, at, revision } => self.on_flush(now, &asker, at, revision, out),
            Message::Open { opening, at, .. } if self.is_backend(from) => {
                self.on_giver_open(now, from, opening, at, out);
            }
            Message::AskLease { session, at } if self.is_backend(from) => {
                self.on_giver_asks_lease(now, from, session, at, out);
            }
            Message::Open { opening, at, in_charge } => self.on_open(now, from, opening, at, in_charge, out),
            Message::AskLease { session, at } => self.on_ask_lease(now, from, session, at, out),
            Message::Voided { incarnation, up_to } => self.on_voided(now, from, incarnation, up_to, out),
            Message::Given { session, ack, seq, body } => {
                self.on_giver_told(now, from, session, guira_cluster::Frame { ack, seq, body }, out);
            }
            Message::Told { session, ack, seq, body } if self.is_backend(from) => {
                let open = self.taker(from).and_then(|taker| taker.valid(now)).filter(|open| open.id == session);
                if let Some(open) = open {
                    let body = open.link.hear(now, guira_cluster::Frame { ack, seq, body });
                    self.on_taker_told(now, from, session, body, out);
                }
            }
            Message::Told { session, ack, seq, body } => {
                self.on_told(now, from, session, guira_cluster::Frame { ack, seq, body }, out);
            }
            Message::Opened { session, at, lease } => {
                let turn = self.taker(from).map(|taker| taker.on_opened(now, session, at, lease));
                self.on_taker_turn(now, from, turn);
            }
            Message::Lease { session, at, lease } => {
                if let Some(taker) = self.taker(from) {
                    taker.on_lease(now, session, at, lease);
                }
            }
            Message::Gone { session } => {
                let turn = self.taker(from).map(|taker| taker.on_gone(now, session));
                self.on_taker_turn(now, from, turn);
            }
            Message::Void { incarnation, up_to } => {
                let turn = self.taker(from).map(|taker| taker.on_void(now, incarnation, up_to, out));
                self.on_taker_turn(now, from, turn);
            }
            Message::Release { up_to, revision } => self.on_release(from, up_to, revision, out),
            Message::Released { up_to } => self.on_released(from, up_to),
            Message::Joined { .. }
            | Message::Probe(_)
            | Message::Absent { .. }
            | Message::Reply { .. }
            | Message::Moved { .. }
            | Message::AskHoldings
            | Message::Holdings(_) => self.counts.ignored += 1,
        }
    }

    /// Whether a member is another backend.
    fn is_backend(&self, node: NodeId) -> bool {
        let Shares { map, wanted, .. } = &self.config.shares;
        node != self.config.me && [map, wanted].iter().any(|map| map.backends().binary_search(&node).is_ok())
    }

    /// Whether a key is this backend's, and requests for it are let in.
    fn owns(&self, key: &[u8]) -> bool {
        self.config.shares.map.owner_of((self.config.hash_of)(key)) == self.config.me
    }

    /// Whether a key is being given away, and nothing new is let in for it.
    fn is_sealed(&self, key: &[u8]) -> bool {
        let is_open = self.giving.is_idle() || self.config.mutant == Some(Mutant::MoveGate);
        !is_open && self.giving.is_sealed(PartitionId::of((self.config.hash_of)(key)))
    }

    /// Whether cache nodes may be given a key.
    fn may_be_cached(&self, key: &[u8]) -> bool {
        let partition = PartitionId::of((self.config.hash_of)(key));
        let Shares { map, .. } = &self.config.shares;
        map.owner(partition) == self.config.me && !self.giving.is_uncached(partition)
    }

    /// Cache nodes and gateways have come or gone. Who has gone is given no lease any more, and is waited for until those that it had are over (R2).
    fn on_view(&mut self, now: Moment, view: &View) {
        if view.shares.revision >= self.config.shares.revision {
            self.config.shares.clone_from(&view.shares);
            self.see_taken();
            self.see_given(now);
        }
        self.config.caches.clone_from(&view.caches);
        self.config.gateways.clone_from(&view.gateways);
        let gone = self.clients.iter_mut().filter(|(gateway, _)| !view.gateways.contains(gateway));
        gone.for_each(|(_, client)| client.leave());
        for cache in view.caches.parts() {
            let last_opening = self.gone.remove(&cache).unwrap_or_default();
            self.caches.entry(cache).or_insert_with(|| CachePeer::after(last_opening));
        }
        let gone = self.caches.iter_mut().filter(|(cache, _)| !view.caches.is_part(**cache));
        gone.for_each(|(_, peer)| peer.end());
    }

    /// Whether it serves: not before what earlier lives gave is void.
    pub fn serves(&self) -> bool {
        self.start.is_none()
    }

    fn go_on_starting(&mut self, now: Moment, out: &mut Outbox) {
        // One whose time came while nobody was here takes place first.
        let is_flushing = self.is_flush_due(now) || self.state_work.is_flushing();
        let Some(start) = &mut self.start else { return };
        let waits = self.config.caches_change && self.config.mutant != Some(Mutant::R2Begin);
        let all_are_heard = start.unheard.is_empty() && !waits;
        start.is_over |= all_are_heard || now >= start.until || self.config.mutant == Some(Mutant::R2);
        if start.is_over && self.state.versions_reserved > self.last_version && !is_flushing {
            self.start = None;
        } else if !start.is_over && !start.unheard.is_empty() && start.ask_at <= now {
            start.ask_at = now + VOID_AGAIN_AFTER;
            let void = Message::Void { incarnation: self.config.incarnation, up_to: Opening(0) };
            start.unheard.iter().for_each(|cache| out.send(*cache, &void));
        }
    }

    fn on_voided(&mut self, now: Moment, from: NodeId, incarnation: Incarnation, up_to: Opening, out: &mut Outbox) {
        if incarnation != self.config.incarnation {
            return;
        }
        if let Some(start) = &mut self.start {
            start.unheard.remove(&from);
        }
        self.forget_sessions(now, from, up_to, out);
    }

    /// When `step` has something to do, if nothing happens before.
    pub fn wake_at(&self) -> Option<Moment> {
        // What has waited long enough waits for the store, which says when.
        let starting = self.start.as_ref().filter(|start| !start.is_over).and_then(|start| {
            let ask_at = (!start.unheard.is_empty()).then_some(start.ask_at);
            let until = self.config.caches_change.then_some(start.until);
            ask_at.map(|at| at.min(start.until)).or(until)
        });
        let caches = self.caches.values().filter_map(|peer| peer.wake_at());
        let moves = [self.giving.wake_at(), self.taking.wake_at(), self.foreign.wake_at(), self.next_giving_at()];
        let states = [self.state_work.wake_at(), self.flush_wake_at()];
        let all = [starting, Some(self.hot.wake_at())].into_iter().chain(states).chain(moves);
        all.flatten().chain(caches).min()
    }

    /// Numbers.
    pub fn counts(&self) -> BackendCounts {
        self.counts
    }

    /// Reads of late, a second.
    pub fn load(&self, now: Moment) -> f64 {
        self.hot.load(now)
    }

    /// Partitions that it has.
    pub fn partitions(&self) -> usize {
        self.config.shares.map.partitions_of(self.config.me).count()
    }

    /// Partitions that it is to have.
    pub fn partitions_wanted(&self) -> usize {
        self.config.shares.wanted.partitions_of(self.config.me).count()
    }

    /// Partitions that it is giving away, or that are others', of which its store may have something that is to be removed.
    pub fn partitions_unclear(&self) -> usize {
        self.foreign.unclear() + self.giving.giving()
    }

    /// Why partitions that are to be given away were not, the last time that it was tried.
    pub fn standstill(&self) -> Option<Standstill> {
        self.giving.standstill()
    }

    /// Operations that are on their way.
    pub fn under_way(&self) -> usize {
        self.operations
    }

    /// Keys that cache nodes may have.
    pub fn cached_keys(&self) -> usize {
        self.caches.values().map(CachePeer::keys).sum()
    }
}
