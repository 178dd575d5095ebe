//! A node: a shard, all hot keys, and whatever is asked of it by clients and by other nodes.
//!
//! ```text
//! client -> Node: hot and valid here?  -- yes --> answered, no message
//!                  |  no
//!                  |--- hot: Replica (0037), in rounds
//!                  \--- cold: its home's? -> Shard          another's: a lane: Request -> home -> Replied
//! ```
//! - `asked`: what is asked, from the first try until somebody is told. `requests`: of other nodes' keys, and by other nodes.
//! - `homecoming`: how its own shard comes back to it, and those of others to them.
//! - `views`: who is there, and what that changes. `hot_keys`: which are to be hot. `flushes`: everything is to be gone. `shown`: what other threads answer by themselves.
//!
//! Always true: a key is answered for by the replica if it has an entry there, and by its home's shard otherwise; what a step of the replica says is done before the next one;
//! each client is told once; everything that waits has an end.

mod asked;
mod flushes;
mod homecoming;
mod hot_keys;
mod requests;
mod shown;
mod status;
mod views;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
};

use guira_chain::{Owned, Reply};
use guira_cluster::{Drift, Life};
use guira_consistency::{
    Config, Consistency, Happened, Key, Mutant, Outbox, Replica, RequestId, Ticket, Timestamp, Writer,
};
use guira_item::{Moment, Span, Time};
use guira_routing::NodeId;

use crate::{
    FlowConfig, Has, Holder, HolderConfig, HomecomingConfig, Items, Message, ShardAccess,
    flow::Flow,
    lanes::Lanes,
    node::{
        asked::{Pending, Who},
        flushes::{Flush, FlushNumber},
        homecoming::Homecoming,
        hot_keys::HotKeys,
        shown::Shown,
    },
    sent::SentCounts,
    shard::Shard,
};
pub use shown::ShownMutant;
pub use status::{NodeCounts, NodeStatus};

/// How often what is under way is looked after.
const TICK: Span = Span::from_ms(10);

/// After how long something is told again that nobody has answered: some round trips, and what a busy thread may take.
const TELL_AGAIN_AFTER: Span = Span::from_ms(40);

/// Operations that wait for one hot key at most, some hundred bytes each.
const WAITING_MAX: usize = 4_096;

/// Bytes of a page for who joins, about: some hundred small items.
const PAGE_LEN_MAX: usize = 64 << 10;

/// Names what a node was asked, by whoever drives it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AskId(pub u64);

/// What a node is.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Which.
    pub me: NodeId,
    /// Who gives out views and says which keys are hot.
    pub coordinator: NodeId,
    /// This life of it.
    pub life: Life,
    /// How long a lease lasts; the same for all.
    pub lease: Span,
    /// How far clocks drift apart; the same for all.
    pub drift: Drift,
    /// What is promised; the same for all.
    pub consistency: Consistency,
    /// Bytes of a key and its value at most.
    pub item_len_max: usize,
    /// Bytes of keys and values that its items take, at most.
    pub items_len_max: usize,
    /// Who looks into its shards.
    pub shard_access: ShardAccess,
    /// Keys that are hot at most.
    pub hot_keys_max: usize,
    /// How long an answer is waited for.
    pub answer_within: Span,
    /// Of what is asked here one in so many is counted to find the hottest keys.
    pub sample_one_in: u32,
    /// How much may be under way to another node; the same for all.
    pub flow: FlowConfig,
    /// How shards come back to their nodes.
    pub homecoming: HomecomingConfig,
    /// A fault put into what keeps hot keys, for the tests of the checkers.
    pub mutant: Option<Mutant>,
    /// One put into what is shown to other threads.
    pub shown_mutant: Option<ShownMutant>,
}

/// What has happened to a node.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "it is made for one step, and not kept")]
pub enum NodeHappened<'h> {
    /// A member has said something.
    Message(NodeId, Message),
    /// A client wants something of a key; expiries are in the cluster's seconds.
    Ask(AskId, guira_item::Key<'h>, &'h Owned),
    /// Other threads have answered reads of these keys, of one in so many ([`NodeConfig::sample_one_in`]).
    Seen(&'h [Box<[u8]>]),
    /// A client wants everything to be gone.
    Flush(AskId),
    /// Time has passed: at [`Node::wake_at`], at the latest.
    Tick,
}

/// What a step wants done.
#[derive(Clone, Debug, Default)]
pub struct NodeOutbox {
    /// For members.
    pub sends: Vec<(NodeId, Message)>,
    /// For clients.
    pub answers: Vec<(AskId, Reply)>,
}

impl NodeOutbox {
    /// Everything is done.
    pub fn clear(&mut self) {
        let Self { sends, answers } = self;
        sends.clear();
        answers.clear();
    }
}

/// A node.
pub struct Node<I> {
    config: NodeConfig,
    holder: Holder,
    replica: Replica,
    shard: Shard<I>,
    /// Shards of which it has been home since it is this member, or has begun to copy what there is.
    had_of: BTreeSet<usize>,
    homecoming: Homecoming,
    /// What was given to the replica and is not answered yet.
    tickets: BTreeMap<Ticket, Pending>,
    last_ticket: Ticket,
    /// What is to be given to the replica, or again.
    to_try: VecDeque<Pending>,
    /// What waits for a lease, or for a home that may serve.
    parked: VecDeque<Pending>,
    lanes: Lanes<Who>,
    flow: Flow,
    /// Requests of other nodes that are under way.
    serving: BTreeSet<RequestId>,
    flushes: BTreeMap<FlushNumber, Flush>,
    last_flush: FlushNumber,
    hot: HotKeys,
    /// SC: the newest that clients here have been told of a key by its home: nothing older is served to them (R12).
    floors: BTreeMap<Key, Timestamp>,
    shown: Shown,
    ticked_at: Moment,
    counts: NodeCounts,
    sent: SentCounts,
}

impl<I> fmt::Debug for Node<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("me", &self.config.me).finish_non_exhaustive()
    }
}

impl<I: Items> Node<I> {
    /// One that is in no view yet.
    pub fn new(now: Moment, config: NodeConfig, items: I) -> Self {
        let NodeConfig { me, lease, drift, .. } = config;
        Self {
            holder: Holder::new(HolderConfig { me, life: config.life.incarnation, lease, drift }),
            replica: Replica::new(replica_config(&config), false),
            shard: Shard::new(items, config.homecoming),
            had_of: BTreeSet::new(),
            homecoming: Homecoming::default(),
            tickets: BTreeMap::new(),
            last_ticket: Ticket(0),
            to_try: VecDeque::new(),
            parked: VecDeque::new(),
            lanes: Lanes::new(me, config.flow),
            flow: Flow::new(config.flow, TELL_AGAIN_AFTER),
            serving: BTreeSet::new(),
            flushes: BTreeMap::new(),
            last_flush: FlushNumber(0),
            hot: HotKeys::new(now, &config),
            floors: BTreeMap::new(),
            shown: Shown::new(&config),
            ticked_at: now,
            counts: NodeCounts::default(),
            sent: SentCounts::default(),
            config,
        }
    }

    /// Heeds what has happened; `now` was read after it had (R1).
    pub fn step(&mut self, now: Moment, happened: NodeHappened<'_>, out: &mut NodeOutbox) {
        let sent_before = out.sends.len();
        match happened {
            NodeHappened::Message(from, message) => self.on_message(now, from, message, out),
            NodeHappened::Ask(id, key, operation) => self.on_ask(now, id, key, operation, out),
            NodeHappened::Seen(keys) => keys.iter().for_each(|key| self.hot.count(key)),
            NodeHappened::Flush(id) => self.on_flush(now, id, out),
            NodeHappened::Tick => {}
        }
        if now.since(self.ticked_at) >= TICK {
            self.ticked_at = now;
            self.on_tick(now, out);
        }
        self.promote_next(now, out);
        self.try_all(now, out);
        self.open_waiting(now, out);
        if let Some(here) = self.holder.ask(now, self.has()) {
            let (hot_set, consistency) = (self.hot.set_number(), self.config.consistency);
            let message = Message::Here { here, hot_set, consistency };
            out.sends.push((self.config.coordinator, message));
        }
        out.sends[sent_before..].iter().for_each(|(_, message)| self.sent.count(message));
    }

    /// When it has to be ticked.
    pub fn wake_at(&self, _now: Moment) -> Option<Moment> {
        let is_busy =
            !self.tickets.is_empty() || !self.parked.is_empty() || self.lanes.len() > 0 || self.flow.waiting() > 0;
        let is_idle = !is_busy && !self.is_coming_home() && self.replica.is_empty() && self.replica.is_whole();
        let tick_at = (!is_idle).then(|| self.ticked_at + TICK);
        Some(tick_at.into_iter().fold(self.holder.wake_at(), Moment::min))
    }

    /// Whether a key is hot here: not on its way in or out.
    pub fn is_hot(&self, key: &[u8]) -> bool {
        self.replica.is_hot(&Key::from(key))
    }

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message, out: &mut NodeOutbox) {
        let is_coordinator = from == self.config.coordinator;
        match message {
            Message::Told(told) if is_coordinator => self.on_told(now, *told, out),
            Message::AskHottest if is_coordinator => {
                let (keys, set) = self.hot.end_segment(now);
                out.sends.push((from, Message::Hottest { keys, set }));
            }
            Message::HotSet(set) if is_coordinator => {
                self.hot.set(set);
                self.tend_hot_keys(now, out);
            }
            Message::Protocol { number, seen, envelope } => {
                self.flow.hear(now, from, envelope.epoch, (number, seen), &mut out.sends);
                if !self.is_untimely(&envelope) {
                    self.step_replica(now, Happened::Message(from, envelope), out);
                }
                self.flow.tell(from, &mut out.sends);
            }
            Message::Credits { epoch, seen } => self.flow.hear_credits(now, from, epoch, seen, &mut out.sends),
            Message::AskCredits { epoch, sent } => self.flow.on_asked(from, epoch, sent, &mut out.sends),
            Message::Request(request) => self.on_request(now, from, request, out),
            Message::Fetch(fetch) => self.on_fetch(from, fetch, out),
            Message::Page(page) => self.on_page(now, from, &page, out),
            Message::Replied { request, told } => self.on_replied(now, from, request, told, out),
            // Not for a node, or by nobody who may say so.
            Message::Told(_)
            | Message::AskHottest
            | Message::HotSet(_)
            | Message::Here { .. }
            | Message::Hottest { .. } => {}
        }
    }

    fn on_tick(&mut self, now: Moment, out: &mut NodeOutbox) {
        self.step_replica(now, Happened::Tick, out);
        self.flow.ask(now, &mut out.sends);
        self.tell_lanes_again(now, out);
        self.end_overdue(now, out);
        self.to_try.append(&mut self.parked);
        self.tend_hot_keys_again(now, out);
        self.floors.retain(|key, _| self.replica.has(key));
        self.come_home(now, out);
        self.sweep(now);
        self.shard.maintain(self.time(now));
    }

    /// Has the replica heed something, and does what it says.
    fn step_replica(&mut self, now: Moment, happened: Happened<'_>, out: &mut NodeOutbox) {
        let mut wants = Outbox::default();
        self.replica.step(now, happened, &mut wants);
        self.carry_out(now, &mut wants, out);
        while let Some(write_back) = wants.write_backs.pop() {
            let (key, at) = (write_back.key.clone(), write_back.version.at);
            self.shard.put_back(write_back, self.time(now));
            self.counts.evictions += 1;
            // What waited for the key goes to the shard by this.
            self.replica.step(now, Happened::WrittenBack(key, at), &mut wants);
            self.carry_out(now, &mut wants, out);
        }
    }

    /// What is to be told.
    fn carry_out(&mut self, now: Moment, wants: &mut Outbox, out: &mut NodeOutbox) {
        wants.touched.drain(..).for_each(|key| self.show(now, &key));
        if std::mem::take(&mut wants.is_whole) {
            self.show_grant();
        }
        wants.sends.drain(..).for_each(|(to, envelope)| self.flow.send(now, to, envelope, &mut out.sends));
        wants.answers.drain(..).for_each(|(ticket, outcome)| self.resolve(now, ticket, outcome, out));
    }

    /// Whether it may answer for what it has.
    fn serves(&self, now: Moment) -> bool {
        self.replica.is_whole() && now < self.holder.serves_until()
    }

    /// Whether it answers for a cold key.
    fn is_home_of(&self, key: &[u8]) -> bool {
        slot_of(key, self.holder.view().homes.len()).is_some_and(|slot| self.answers_for(slot))
    }

    fn has(&self) -> Has {
        let own = || self.holder.own_shard().and_then(|own| self.holder.view().homes.get(own));
        match self.replica.is_whole() {
            false => Has::Nothing,
            true if self.homecoming.has_all() || own() == Some(&self.config.me) => Has::Shard,
            true => Has::HotKeys,
        }
    }

    /// The number of this member's life.
    fn writer(&self) -> Writer {
        self.holder.view().members.get(&self.config.me).copied().unwrap_or(Writer(0))
    }

    fn time(&self, now: Moment) -> Time {
        self.config.life.clock.time(now)
    }
}

/// Which shard a key is in, of so many; `None` if there are none.
pub fn slot_of(key: &[u8], shards: usize) -> Option<usize> {
    hash_of(key).checked_rem(shards as u64).map(|slot| slot as usize)
}

/// By which a key's home is found.
pub(crate) fn hash_of(key: &[u8]) -> u64 {
    guira_routing::KeyHash::of(key, guira_routing::HashSeed(0x6775_6972_6122)).0
}

fn replica_config(config: &NodeConfig) -> Config {
    Config {
        me: config.me,
        consistency: config.consistency,
        hash_of,
        tell_again_after: TELL_AGAIN_AFTER,
        replay_after: TELL_AGAIN_AFTER.times(4),
        waiting_max: WAITING_MAX,
        item_len_max: config.item_len_max,
        keys_max: config.hot_keys_max,
        page_len_max: PAGE_LEN_MAX,
        mutant: config.mutant,
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
