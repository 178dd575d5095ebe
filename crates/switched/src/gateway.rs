//! A gateway: takes operations from clients, routes each to a cache node or a backend, and answers once.
//!
//! ```text
//! ask --> rule for the hash, plain read? --> cache node    retried at the backend
//!           | no                                           that was asked as well, if it is hedged
//!           v
//!         backend of the partition                         retried there, under the same number
//! ```
//! Where a rule leads to two cache nodes, the request goes to the one of which this gateway waits for fewer answers.
//! Where the network routes, every plain read is left to that at first (`routed.rs`). In the other [`CacheMode`]s every plain read goes to the cache node, or
//! none.
//!
//! Always true (R3): a change is asked for under one number in one session; when that session is gone, or nothing has come in time, nobody can
//! say whether it took place, and so it is answered. A read is asked for until it is answered, anywhere. A read that may change something (who wins
//! by it) is both: a cache node is probed for it, and once its backend may have been asked only that answers.

mod awaited;
mod away;
mod hedging;
mod pending;
mod routed;
mod upstream;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use guira_chain::{Owned, Reply};
use guira_cluster::{Frame, Incarnation, Opening, SessionId, long_wait};
use guira_item::{Answer, Failure, Key, Moment, Operation, Span, Time};
use guira_routing::{CacheNodes, Choices, KeyHash, NodeId, RouteTable, RuleSink};
use serde::Serialize;

use crate::{
    AskId, Asker, Body, CacheMode, Drift, Message, Mutant, Number, Outbox, Said, Shares, View,
    initiator::{Initiator, Turn},
};
use awaited::Awaited;
pub use hedging::HedgeConfig;
use hedging::{Hedge, Hedging};
use pending::{Pending, What};
use routed::Silent;
use upstream::Upstream;

/// What a gateway is.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// Its name.
    pub me: NodeId,
    /// This life's number.
    pub incarnation: Incarnation,
    /// Who has which keys.
    pub shares: Shares,
    /// How a key is hashed for routing.
    pub hash_of: fn(&[u8]) -> KeyHash,
    /// Who makes rules.
    pub controller: NodeId,
    /// Rules at most.
    pub routes_max: usize,
    /// Who is asked first for what is only read.
    pub cache_mode: CacheMode,
    /// The network routes reads by their content, and this gateway is told no rules.
    pub network_routes: bool,
    /// The cache nodes.
    pub caches: CacheNodes,
    /// Those of backends, for the modes that go by these.
    pub cache_of: BTreeMap<NodeId, NodeId>,
    /// The bound on clocks.
    pub drift: Drift,
    /// How long an answer is waited for before it is asked again, at first.
    pub resend_after: Span,
    /// When a read is asked of its backend as well as of a cache node; `None`: never.
    pub hedges: Option<HedgeConfig>,
    /// How long somebody waits for an answer.
    pub answer_within: Span,
    /// Operations under way at most for one backend, at most [`PENDING_MAX`]; further ones are refused, also those that come from another backend with
    /// their partition.
    pub pending_max: usize,
    /// Bytes of values in them beyond which further ones are refused; one always may be under way.
    pub pending_len_max: usize,
    /// Bytes of key and value together beyond which an item is refused: as the backends'.
    pub item_len_max: usize,
    /// Seeds the table of routes.
    pub seed: u64,
    /// A fault put in on purpose.
    pub mutant: Option<Mutant>,
}

/// Operations that a gateway may have under way with one backend: what that keeps of their answers is bounded so.
pub const PENDING_MAX: usize = 4_096;

/// Requests in a row that a cache node has left unanswered, from which on it is passed by.
const SUSPECT_AFTER: u32 = 3;

/// How long it is passed by.
const SUSPECT_FOR: Span = Span::from_s(1);

/// An answer is asked for again after at most this long.
const RESEND_AFTER_MAX: Span = Span::from_ms(500);

/// What a gateway is told.
#[derive(Debug)]
pub enum Happened<'e> {
    /// A client asks.
    Ask(AskId, Key<'e>, Operation<'e>),
    /// A client wants all items gone that are there at a time, in the cluster's seconds; what has passed is now. Answered once for all backends.
    Flush(AskId, Time),
    /// A message came.
    Message(NodeId, Message<'e>),
    /// There are others now.
    View(&'e View),
    /// Time has passed.
    Tick,
}

/// Numbers about a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GatewayCounts {
    /// Reads left to the network to route.
    pub routed: u64,
    /// Operations asked of cache nodes.
    pub to_caches: u64,
    /// Operations asked of backends.
    pub to_backends: u64,
    /// Requests that were sent again.
    pub resent: u64,
    /// Reads that were asked of a backend while a cache node was waited for.
    pub hedged: u64,
    /// Operations that were not answered in time.
    pub late: u64,
    /// Operations refused because too many were under way.
    pub refused: u64,
    /// Operations refused because their backend was known to be away.
    pub away: u64,
    /// Operations that were asked of another backend, since the first did not have the key any more.
    pub moved: u64,
    /// Messages that mean nothing here, late answers among them.
    pub ignored: u64,
}

/// A gateway, and what it routes by: a table, or a switch in the simulator. Where the network routes, it has there who has answered last for what.
#[derive(Clone, Debug, Serialize)]
pub struct Gateway<R = RouteTable> {
    #[serde(skip)]
    config: GatewayConfig,
    #[serde(skip)]
    rules: R,
    controller: Initiator,
    upstreams: BTreeMap<NodeId, Upstream>,
    pending: HashMap<Number, Pending>,
    last_number: Number,
    /// When what is to be looked at again.
    timers: BTreeSet<(Moment, Number)>,
    suspects: BTreeMap<NodeId, Suspect>,
    awaited: Awaited,
    silent: Silent,
    hedging: Hedging,
    flushes: BTreeMap<AskId, Flush>,
    /// When silent backends are probed next; never, if there are none.
    #[serde(skip)]
    probe_at: Option<Moment>,
    #[serde(skip)]
    counts: GatewayCounts,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Suspect {
    unanswered: u32,
    until: Moment,
}

/// Where a request goes at first.
#[derive(Clone, Copy, Debug, Default)]
struct First {
    /// The cache node that is asked instead of the backend, or is thought to be where the network routes.
    cache: Option<NodeId>,
    /// The network routes it.
    by_content: bool,
}

/// A flush that some backends have yet to answer.
#[derive(Clone, Debug, Default, Serialize)]
struct Flush {
    left: usize,
    /// The worst that was answered.
    failed: Option<Answer>,
    some_are_done: bool,
}

impl Gateway {
    /// A gateway that routes by a table of its own, and knows no routes.
    ///
    /// # Panics
    /// [`GatewayConfig::pending_max`] is too high.
    pub fn new(config: GatewayConfig) -> Self {
        Self::routing_by(RouteTable::new(config.routes_max, config.seed), config)
    }
}

impl<R: RuleSink> Gateway<R> {
    /// A gateway that routes by rules, of which there are none yet.
    ///
    /// # Panics
    /// [`GatewayConfig::pending_max`] is too high.
    pub fn routing_by(mut rules: R, config: GatewayConfig) -> Self {
        rules.set_len_max(config.routes_max);
        assert!(config.pending_max <= PENDING_MAX, "{} operations under way", config.pending_max);
        let opening = Opening::first_of(config.incarnation);
        let upstreams = config.shares.map.backends().iter().map(|backend| (*backend, Upstream::new(opening))).collect();
        Self {
            rules,
            controller: Initiator::new(config.controller, opening, config.drift, None),
            upstreams,
            pending: HashMap::new(),
            last_number: Number(0),
            timers: BTreeSet::new(),
            suspects: BTreeMap::new(),
            awaited: Awaited::default(),
            silent: Silent::default(),
            hedging: Hedging::new(config.hedges, config.mutant),
            flushes: BTreeMap::new(),
            probe_at: None,
            counts: GatewayCounts::default(),
            config,
        }
    }

    /// Heeds what has happened; `now` was read after it had.
    pub fn step(&mut self, now: Moment, happened: Happened<'_>, out: &mut Outbox) {
        self.rules.advance(now);
        match happened {
            Happened::Ask(id, key, operation) => self.on_ask(now, id, key, &operation, out),
            Happened::Flush(id, at) => self.on_flush(now, id, at, out),
            Happened::Message(from, message) => self.on_message(now, from, message, out),
            Happened::View(view) => self.on_view(now, view, out),
            Happened::Tick => self.on_tick(now, out),
        }
    }

    /// Cache nodes have come or gone. One that has gone is silent, until the controller takes its rules away.
    fn on_view(&mut self, now: Moment, view: &View, out: &mut Outbox) {
        if view.shares.revision >= self.config.shares.revision {
            self.config.shares.clone_from(&view.shares);
        }
        let opening = Opening::first_of(self.config.incarnation);
        for backend in self.config.shares.map.backends() {
            self.upstreams.entry(*backend).or_insert_with(|| Upstream::new(opening));
        }
        self.config.caches.clone_from(&view.caches);
        self.config.cache_of.clone_from(&view.cache_of);
        self.suspects.retain(|cache, _| view.caches.is_part(*cache));
        self.hedging.on_view(&view.caches);
        if self.config.routes_max != view.budget.table_len_max {
            self.config.routes_max = view.budget.table_len_max;
            self.rules.set_len_max(view.budget.table_len_max);
            // There may have been no room for some rules: all come again.
            let _ = self.controller.end(now);
        }
        self.give_up_who_has_gone(view, out);
        // Who was asked before is not waited for any longer.
        let unsent = self.pending.iter().filter(|(_, pending)| !pending.is_sent).map(|(number, _)| *number);
        for number in unsent.collect::<BTreeSet<_>>() {
            if let Some(number) = self.goes_elsewhere(now, number, out) {
                self.send(now, number, out);
            }
        }
    }

    /// A backend that is none any more, and owns nothing, answers nothing: what it was asked for and may have done is of unknown outcome, and the rest is
    /// asked of who has it now.
    fn give_up_who_has_gone(&mut self, view: &View, out: &mut Outbox) {
        let owners = self.config.shares.map.backends();
        let is_there = |backend: &NodeId| view.backends.contains(backend) || owners.contains(backend);
        let gone = self.upstreams.iter_mut().filter(|(backend, _)| !is_there(backend));
        let open: Vec<Number> = gone.flat_map(|(_, upstream)| upstream.end()).collect();
        for number in open {
            let Some(pending) = self.pending.get_mut(&number) else { continue };
            let may_have_acted = pending.may_have_acted();
            if may_have_acted || matches!(pending.what, What::Flush { .. }) {
                self.finish(number, Reply::Answer(Answer::Failed(Failure::Away.or_unknown(may_have_acted)), None), out);
                continue;
            }
            if let Some(cache) = pending.cache.take() {
                self.awaited.remove(cache);
            }
            (pending.is_sent, pending.sent_at) = (false, None);
        }
    }

    fn on_ask(&mut self, now: Moment, id: AskId, key: Key<'_>, operation: &Operation<'_>, out: &mut Outbox) {
        let hash = (self.config.hash_of)(key.as_bytes());
        let backend = self.config.shares.map.owner_of(hash);
        let only_reads = operation.only_reads();
        if key.as_bytes().len() + operation.value_len() > self.config.item_len_max {
            out.answers.push((id, Reply::Answer(Answer::TooLarge, None)));
            return;
        }
        let may_be_copied = operation.copy_may_answer();
        let cache = may_be_copied.then(|| self.route(now, backend, hash)).flatten();
        let by_content = may_be_copied && self.goes_by_content(now, backend, hash, only_reads, cache);
        // What the network could route, and is not to, is its backend's to answer, if that is not away.
        let is_backends = self.leaves_reads_to_network() && only_reads && !by_content && !self.is_away(now, backend);
        let cache = cache.filter(|_| !is_backends);
        let what = What::Operation { key: key.as_bytes().into(), hash, operation: Owned::of(operation) };
        self.begin(now, id, backend, what, only_reads, First { cache, by_content }, out);
    }

    /// The cache node that is asked first; of two the one with less to do, as far as this gateway knows, or one after the other. None that has fallen
    /// silent.
    fn route(&self, now: Moment, backend: NodeId, hash: KeyHash) -> Option<NodeId> {
        let choices = match self.config.cache_mode {
            CacheMode::Switched => self.rules.lookup(hash),
            CacheMode::LookAside | CacheMode::LookThrough => {
                let node = self.config.cache_of.get(&backend);
                node.and_then(|node| self.config.caches.part_for(*node, hash)).map(Choices::from)
            }
            CacheMode::None => None,
        }?;
        let is_silent = |cache: &NodeId| self.suspects.get(cache).is_some_and(|suspect| now < suspect.until);
        // Which of two is the first: each every other time.
        let turn = |at: usize| (at as u64 + self.last_number.0) % Choices::MAX as u64;
        let heard_of = choices.iter().enumerate().filter(|(_, cache)| !is_silent(cache));
        heard_of.min_by_key(|(at, cache)| (self.awaited.of(*cache), turn(*at))).map(|(_, cache)| cache)
    }

    /// All items that are there at a time are to be gone then, at every backend.
    fn on_flush(&mut self, now: Moment, id: AskId, at: Time, out: &mut Outbox) {
        let Shares { map, revision, .. } = self.config.shares.clone();
        if map.backends().iter().any(|backend| self.is_away(now, *backend)) {
            // None is asked where not all can be.
            self.counts.away += 1;
            out.answers.push((id, Reply::Answer(Answer::Failed(Failure::Away), None)));
            return;
        }
        self.flushes.insert(id, Flush { left: map.backends().len(), ..Flush::default() });
        for backend in map.backends() {
            self.begin(now, id, *backend, What::Flush { at, revision }, false, First::default(), out);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what a request is made of, told once")]
    fn begin(
        &mut self,
        now: Moment,
        ask: AskId,
        backend: NodeId,
        what: What,
        only_reads: bool,
        First { cache, by_content }: First,
        out: &mut Outbox,
    ) {
        if self.is_away(now, backend) && (cache.is_none() || !self.is_joined(backend)) {
            self.counts.away += 1;
            self.settle(ask, &what, Reply::Answer(Answer::Failed(Failure::Away), None), out);
            return;
        }
        if !self.has_room(backend, what.value_len()) {
            self.counts.refused += 1;
            self.settle(ask, &what, Reply::Answer(Answer::Failed(Failure::Busy), None), out);
            return;
        }
        cache.into_iter().for_each(|cache| self.awaited.add(cache));
        let asked = match cache {
            _ if by_content => &mut self.counts.routed,
            Some(_) => &mut self.counts.to_caches,
            None => &mut self.counts.to_backends,
        };
        *asked += 1;
        let upstream = self.upstreams.get_mut(&backend).expect("every owner of a partition has one");
        self.last_number = Number(self.last_number.0 + 1);
        upstream.open.insert(self.last_number);
        upstream.open_len += what.value_len();
        let answer_until = now + self.config.answer_within;
        let pending = Pending {
            ask,
            backend,
            what,
            only_reads,
            cache,
            by_content,
            is_sent: false,
            sent_at: None,
            hedge: Hedge::None,
            resend_after: self.config.resend_after.max(upstream.patience()).min(RESEND_AFTER_MAX),
            look_at: now,
            answer_until,
        };
        self.pending.insert(self.last_number, pending);
        self.send(now, self.last_number, out);
    }

    /// Whether there may be one more operation for a backend, with so much of a value.
    fn has_room(&self, backend: NodeId, value_len: usize) -> bool {
        let Some(upstream) = self.upstreams.get(&backend) else { return false };
        let has_bytes = upstream.open_len == 0 || upstream.open_len + value_len <= self.config.pending_len_max;
        upstream.open.len() < self.config.pending_max && has_bytes
    }

    /// Sends a request, or has a session begun in which it can be; it is looked at again when an answer should have come.
    fn send(&mut self, now: Moment, number: Number, out: &mut Outbox) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        let upstream = self.upstreams.get_mut(&pending.backend).expect("it has one");
        let is_away = upstream.is_away(now, self.config.away_after());
        match upstream.session_or_join(now, pending.backend, out) {
            Some(session) => {
                let done_below = upstream.open.first().copied().unwrap_or(number);
                let asker = Asker { gateway: self.config.me, session, number, done_below };
                // Nothing is passed on to a backend that is away.
                let probes = self.config.cache_mode == CacheMode::LookAside || !pending.only_reads || is_away;
                pending.by_content &= !is_away;
                pending.send(now, asker, probes, out);
                // Who has what goes by content nobody here knows.
                if pending.cache.is_none() && !pending.by_content {
                    upstream.asked(now);
                }
            }
            None => {
                // It waits for its backend: no cache node has it to do.
                (pending.is_sent, pending.sent_at) = (false, None);
                pending.cache.take().into_iter().for_each(|cache| self.awaited.remove(cache));
            }
        }
        if upstream.is_silent() {
            self.probe_at.get_or_insert(now + self.config.probe_every());
        }
        self.timers.remove(&(pending.look_at, number));
        // What is long comes behind all that is; what is short goes in a datagram, and waits for none of it.
        let is_long = long_wait(pending.what.value_len()) > Span::default();
        let in_front = if is_long { long_wait(upstream.open_len) } else { Span::default() };
        let mut patience = pending.resend_after + in_front;
        if let Some(cache) = pending.cache.filter(|_| pending.hedge != Hedge::Sent) {
            (patience, pending.hedge) = self.hedging.alone(cache, pending.only_reads, patience);
        }
        pending.look_at = (now + patience).min(pending.answer_until);
        self.timers.insert((pending.look_at, number));
    }

    fn on_tick(&mut self, now: Moment, out: &mut Outbox) {
        if !self.config.network_routes {
            // Without it the rules grow old: each costs a detour at most.
            let _ = self.controller.tick(now, out);
        }
        self.count_left(now);
        while let Some((at, number)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            self.look_at(now, number, out);
        }
        if self.probe_at.is_some_and(|at| at <= now) {
            self.probe(now, out);
        }
    }

    /// No answer has come in time.
    fn look_at(&mut self, now: Moment, number: Number, out: &mut Outbox) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        if now >= pending.answer_until {
            self.counts.late += 1;
            let failure = Failure::Away.or_unknown(pending.may_have_acted());
            self.finish(number, Reply::Answer(Answer::Failed(failure), None), out);
            return;
        }
        if let Hedge::Due(rest) = pending.hedge
            && pending.cache.is_some()
        {
            self.hedge(now, number, rest, out);
            return;
        }
        let went_by_content = pending.is_sent && std::mem::take(&mut pending.by_content);
        if let Some(cache) = pending.cache.take_if(|_| pending.is_sent) {
            pending.sent_at = None;
            self.unanswered_by(now, cache);
            self.awaited.remove(cache);
            if self.refuse_if_away(now, number, out) {
                return;
            }
        } else if let (What::Operation { hash, .. }, true) = (&pending.what, went_by_content) {
            let hash = *hash;
            self.nobody_answers(now, hash);
        }
        let Some(pending) = self.pending.get_mut(&number) else { return };
        pending.resend_after = pending.resend_after.times(2).min(RESEND_AFTER_MAX);
        self.counts.resent += u64::from(pending.is_sent);
        let number = self.goes_elsewhere(now, number, out).unwrap_or(number);
        self.send(now, number, out);
    }

    /// A cache node has not answered in time: it may be silent.
    fn unanswered_by(&mut self, now: Moment, cache: NodeId) {
        let suspect = self.suspects.entry(cache).or_default();
        suspect.unanswered += 1;
        if suspect.unanswered >= SUSPECT_AFTER {
            *suspect = Suspect { unanswered: 0, until: now + SUSPECT_FOR };
        }
    }

    /// A request is over.
    fn finish(&mut self, number: Number, reply: Reply, out: &mut Outbox) {
        let Some(pending) = self.take(number) else { return };
        self.settle(pending.ask, &pending.what, reply, out);
    }

    /// Answers who has asked: for a flush, once all backends have.
    fn settle(&mut self, ask: AskId, what: &What, reply: Reply, out: &mut Outbox) {
        let What::Flush { .. } = what else {
            out.answers.push((ask, reply));
            return;
        };
        let Some(flush) = self.flushes.get_mut(&ask) else { return };
        flush.left -= 1;
        match reply {
            Reply::Answer(Answer::Deleted, _) => flush.some_are_done = true,
            Reply::Answer(failed @ Answer::Failed(Failure::Unknown), _) => flush.failed = Some(failed),
            Reply::Answer(failed @ Answer::Failed(_), _) => flush.failed = flush.failed.or(Some(failed)),
            _ => flush.failed = flush.failed.or(Some(Answer::Failed(Failure::Refused))),
        }
        if flush.left == 0 {
            let answer = match flush.failed {
                None => Answer::Deleted,
                Some(_) if flush.some_are_done => Answer::Failed(Failure::Unknown),
                Some(failed) => failed,
            };
            self.flushes.remove(&ask);
            out.answers.push((ask, Reply::Answer(answer, None)));
        }
    }

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message<'_>, out: &mut Outbox) {
        let is_controller = from == self.config.controller;
        if let Some(upstream) = self.upstreams.get_mut(&from) {
            upstream.heard();
        }
        match message {
            Message::Reply { session, number, via, said } => {
                self.on_reply(now, from, via, session, number, said, out);
                self.heard_of(from);
                via.into_iter().for_each(|cache| self.heard_of(cache));
            }
            Message::Absent { session, number } => self.on_absent(now, from, session, number, out),
            Message::Moved { session, number } => self.on_moved(now, from, session, number, out),
            Message::Joined { session } => self.on_joined(now, from, session, out),
            Message::Void { incarnation, up_to } if is_controller => {
                // Nothing is served by its rules.
                self.controller.on_void(now, incarnation, up_to, out);
            }
            Message::Gone { session } if is_controller => drop(self.controller.on_gone(now, session)),
            Message::Gone { session } => self.on_gone(now, from, session, out),
            Message::Opened { session, at, lease } if is_controller => {
                if self.controller.on_opened(now, session, at, lease) == Turn::Opened {
                    // What is told from here on begins with all there are.
                    self.rules.clear();
                }
            }
            Message::Lease { session, at, lease } if is_controller => {
                self.controller.on_lease(now, session, at, lease);
            }
            Message::Told { session, ack, seq, body } if is_controller => {
                let Some(open) = self.controller.valid(now).filter(|open| open.id == session) else { return };
                match open.link.hear(now, Frame { ack, seq, body }) {
                    None => {}
                    Some(Body::Routes(updates)) => {
                        updates.into_iter().for_each(|update| self.rules.update(now, update));
                    }
                    Some(_) => self.counts.ignored += 1,
                }
                self.controller.emit(now, out);
            }
            _ => self.counts.ignored += 1,
        }
    }

    /// A cache node has answered, or passed a request on: it is not silent.
    fn heard_of(&mut self, cache: NodeId) {
        self.suspects.remove(&cache);
        self.has_left_nothing(cache);
    }

    #[expect(clippy::too_many_arguments, reason = "what a reply is made of")]
    fn on_reply(
        &mut self,
        now: Moment,
        from: NodeId,
        via: Option<NodeId>,
        session: SessionId,
        number: Number,
        said: Said<'_>,
        out: &mut Outbox,
    ) {
        let pending = self.pending.get(&number).filter(|pending| pending.is_sent && pending.may_be_answered_by(from));
        let upstream = pending.and_then(|pending| self.upstreams.get_mut(&pending.backend));
        if let (Some(pending), Some(upstream)) = (pending, upstream)
            && upstream.session() == Some(session)
        {
            let is_hedged = pending.hedge == Hedge::Sent;
            if let Some(sent_at) = pending.sent_at.filter(|_| pending.backend == from && !is_hedged) {
                upstream.on_answer(now.since(sent_at));
            }
            let is_from_backend = pending.backend == from;
            // Of two that were asked the backend says nothing of where a rule leads.
            if let (What::Operation { hash, .. }, true) = (&pending.what, pending.by_content)
                && !(is_from_backend && is_hedged && via.is_none())
            {
                let (hash, cache) = (*hash, if is_from_backend { via } else { Some(from) });
                self.learn(now, hash, cache);
            }
            if is_from_backend {
                self.leave_to_backend(number);
            }
            self.finish(number, said.to_reply(), out);
        } else {
            self.counts.ignored += 1;
        }
    }

    /// A cache node that was probed has not got it: its backend is asked.
    fn on_absent(&mut self, now: Moment, from: NodeId, session: SessionId, number: Number, out: &mut Outbox) {
        self.heard_of(from);
        let pending = self.pending.get_mut(&number).filter(|pending| pending.cache == Some(from) && pending.is_sent);
        let Some(pending) = pending else {
            self.counts.ignored += 1;
            return;
        };
        if self.upstreams.get(&pending.backend).and_then(Upstream::session) == Some(session) {
            (pending.cache, pending.sent_at) = (None, None);
            let is_asked = pending.hedge == Hedge::Sent;
            self.awaited.remove(from);
            if !is_asked && !self.refuse_if_away(now, number, out) {
                self.send(now, number, out);
            }
        }
    }

    /// A backend does not have what it was asked for, and has done nothing. Who has it is asked, under another number.
    fn on_moved(&mut self, now: Moment, from: NodeId, session: SessionId, number: Number, out: &mut Outbox) {
        let is_there = self.pending.get(&number).is_some_and(|pending| pending.is_sent && pending.backend == from);
        if !is_there || self.upstreams.get(&from).and_then(Upstream::session) != Some(session) {
            self.counts.ignored += 1;
            return;
        }
        self.counts.moved += 1;
        let Some(mut pending) = self.take(number) else { return };
        (pending.is_sent, pending.sent_at, pending.cache, pending.by_content) = (false, None, None, false);
        let number = self.put(pending);
        match self.goes_elsewhere(now, number, out) {
            Some(number) => self.send(now, number, out),
            // The map has not come here yet.
            None => self.look_again(now, number),
        }
    }

    /// Takes a request out.
    fn take(&mut self, number: Number) -> Option<Pending> {
        let pending = self.pending.remove(&number)?;
        self.timers.remove(&(pending.look_at, number));
        pending.cache.into_iter().for_each(|cache| self.awaited.remove(cache));
        if let Some(upstream) = self.upstreams.get_mut(&pending.backend) {
            upstream.open.remove(&number);
            upstream.open_len -= pending.what.value_len();
        }
        Some(pending)
    }

    /// Puts a request in, under a number above all that its backend was asked under.
    fn put(&mut self, pending: Pending) -> Number {
        self.last_number = Number(self.last_number.0 + 1);
        let number = self.last_number;
        if let Some(upstream) = self.upstreams.get_mut(&pending.backend) {
            upstream.open.insert(number);
            upstream.open_len += pending.what.value_len();
        }
        self.timers.insert((pending.look_at, number));
        self.pending.insert(number, pending);
        number
    }

    /// Has a request that was not sent go to who has its key by now; its number then, if that is another than before. Where there is no room for it, it is
    /// over: it was refused, as any other is.
    fn goes_elsewhere(&mut self, now: Moment, number: Number, out: &mut Outbox) -> Option<Number> {
        let pending = self.pending.get(&number).filter(|pending| !pending.is_sent)?;
        let What::Operation { hash, .. } = &pending.what else { return None };
        let owner = self.config.shares.map.owner_of(*hash);
        if owner == pending.backend {
            return None;
        }
        if self.is_away(now, owner) {
            self.counts.away += 1;
            self.finish(number, Reply::Answer(Answer::Failed(Failure::Away), None), out);
            return None;
        }
        if !self.has_room(owner, pending.what.value_len()) {
            self.counts.refused += 1;
            self.finish(number, Reply::Answer(Answer::Failed(Failure::Busy), None), out);
            return None;
        }
        let pending = self.take(number)?;
        Some(self.put(Pending { backend: owner, ..pending }))
    }

    fn look_again(&mut self, now: Moment, number: Number) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        self.timers.remove(&(pending.look_at, number));
        pending.look_at = (now + pending.resend_after).min(pending.answer_until);
        self.timers.insert((pending.look_at, number));
    }

    fn on_joined(&mut self, now: Moment, backend: NodeId, session: SessionId, out: &mut Outbox) {
        let Some(upstream) = self.upstreams.get_mut(&backend) else { return };
        let ended =
            upstream.session().filter(|old| old.opening == session.opening && old.incarnation < session.incarnation);
        if let Some(old) = ended {
            // A probe was answered by its next life.
            self.on_gone(now, backend, old, out);
        } else if upstream.on_joined(session) {
            let waiting: Vec<Number> = upstream.open.iter().copied().collect();
            waiting.into_iter().for_each(|number| self.send(now, number, out));
        }
    }

    /// A backend has begun another life, or has forgotten this gateway: what became of what it was asked, it cannot say.
    fn on_gone(&mut self, now: Moment, backend: NodeId, session: SessionId, out: &mut Outbox) {
        let Some(upstream) = self.upstreams.get_mut(&backend) else { return };
        if !upstream.on_gone(session) {
            return;
        }
        let numbers: Vec<Number> = upstream.open.iter().copied().collect();
        for number in numbers {
            let Some(pending) = self.pending.get(&number) else { continue };
            if pending.may_have_acted() {
                self.finish(number, Reply::Answer(Answer::Failed(Failure::Unknown), None), out);
            } else {
                self.send(now, number, out);
            }
        }
    }

    /// When `step` has something to do, if nothing happens before.
    pub fn wake_at(&self) -> Option<Moment> {
        let timers = self.timers.first().map(|(first, _)| *first);
        let controller = (!self.config.network_routes).then(|| self.controller.wake_at());
        [timers, controller, self.probe_at, self.hedging.wake_at()].into_iter().flatten().min()
    }

    /// Numbers.
    pub fn counts(&self) -> GatewayCounts {
        self.counts
    }

    /// Backends that own partitions, as far as it knows.
    pub fn owners(&self) -> &[NodeId] {
        self.config.shares.map.backends()
    }

    /// The cache nodes that a hash is routed to: for who measures.
    pub fn route_of(&self, hash: KeyHash) -> Option<Choices> {
        self.rules.lookup(hash)
    }

    /// Hashes that are routed to cache nodes; where the network routes, those that a cache node was seen to answer for.
    pub fn routes(&self) -> usize {
        self.rules.rules()
    }

    /// What it routes by.
    pub fn rules(&self) -> &R {
        &self.rules
    }

    /// What it routes by, for who changes what that can do.
    pub fn rules_mut(&mut self) -> &mut R {
        &mut self.rules
    }

    /// Requests that are under way.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }
}
