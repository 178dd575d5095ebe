//! Who has which keys in a cache: sessions with cache nodes, their leases, and what they have yet to hear.
//!
//! Always true (R6): a key is put into the set before its item is told, and taken out only by a drop that has seen what was told last; what is
//! told in a session is heard in order; a session that is ended keeps its set until its lease has run out; no lease goes on while an update
//! has waited for a part of one; a lease is counted from after it was granted (R1).
//!
//! Any number of cache nodes may have a key. Those whose sessions are in charge of this backend are told who is hot: one, but for moments in which
//! that changes. Each part of a cache node ([`CacheNodes`](guira_routing::CacheNodes)) has a session of its own, and is told of the keys that are its part.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use guira_chain::Item;
use guira_cluster::{Frame, Link, Opening, Seq, SessionId};
use guira_item::{Key, Moment, Span, store::StoreState};
use guira_routing::{HashSeed, KeyHash, NodeId};
use serde::Serialize;

use super::{Backend, BackendConfig, ReplyTo, Reports, work::LOOK};
use crate::{Body, ItemCopy, KeyBytes, Loaded, Message, Mutant, Outbox, told};

/// Keys that are remembered for not having been kept.
const DECLINED_MAX: usize = 1_000;

/// Keys whose bursts are remembered; the loads of others are told again with the next report alone.
const BURSTING_MAX: usize = 1_000;

/// Parts of a lease: an update that has waited for one of them keeps the lease from going on.
const INTERVALS: u64 = 4;

/// What is known of one part of a cache node.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct CachePeer {
    last_opening: Opening,
    live: Option<Session>,
    ended: Vec<Session>,
    /// Keys that were not kept in this segment: they are not offered again in it, but for a burst that is hotter than any burst of it that was told.
    declined: HashSet<Box<[u8]>>,
    /// How often the loads that were told last double one query a second, of keys that have burst in this segment.
    bursting: HashMap<Box<[u8]>, u32>,
}

#[derive(Clone, Debug, Serialize)]
struct Session {
    id: SessionId,
    /// It is to be told of hot keys.
    in_charge: bool,
    link: Link<Body>,
    /// Keys it may have, with the message that told it of each last.
    keys: HashMap<Box<[u8]>, Seq>,
    /// By this node's clock.
    lease_until: Moment,
    /// The latest time of the cache node's own that it has told.
    heard_at: Moment,
    /// Updates that are not acknowledged, in order.
    waits: VecDeque<Wait>,
}

/// A change waits for this to be heard.
#[derive(Clone, Debug, Serialize)]
struct Wait {
    seq: Seq,
    since: Moment,
    /// The key that is changed; `None` if it is a drop, for which no change waits.
    key: Option<Box<[u8]>>,
}

/// What cache nodes are told of a key.
#[derive(Clone, Copy)]
enum Telling<'i> {
    /// That it is not to be served.
    Hold,
    /// What it is now.
    New(Option<&'i Item>),
    /// What it is now, to those that do not serve it.
    Held(Option<&'i Item>),
    /// That it is not to be kept, though it has not changed.
    Drop,
}

/// How often a load doubles one query a second.
fn doublings(per_s: f32) -> u32 {
    (per_s as u32).checked_ilog2().unwrap_or(0)
}

impl Session {
    /// An update has waited for so long that the lease is not to go on.
    fn is_behind(&self, now: Moment, lease: Span) -> bool {
        self.waits.front().is_some_and(|wait| now.since(wait.since) >= lease.part(INTERVALS))
    }
}

impl CachePeer {
    /// One whose last session was this.
    pub(super) fn after(last_opening: Opening) -> Self {
        Self { last_opening, ..Self::default() }
    }

    pub(super) fn keys(&self) -> usize {
        self.live.iter().chain(&self.ended).map(|session| session.keys.len()).sum()
    }

    pub(super) fn has_sessions(&self) -> bool {
        self.live.is_some() || !self.ended.is_empty()
    }

    pub(super) fn last_opening(&self) -> Opening {
        self.last_opening
    }

    /// What was told of hot keys in this segment is no longer remembered.
    fn end_segment(&mut self) {
        self.declined.clear();
        self.bursting.clear();
    }

    /// Whether the load of a key that has burst is to be told: it has come to a higher power of two than that which was told last. So each is told a few times at
    /// most.
    fn is_hotter(&self, key: &[u8], per_s: f32) -> bool {
        match self.bursting.get(key) {
            Some(told) => doublings(per_s) > *told,
            None => self.bursting.len() < BURSTING_MAX,
        }
    }

    /// Reports a key that it may have; whether it is told.
    fn report(&mut self, key: &[u8], per_s: f32) -> bool {
        let live = self.live.as_mut().filter(|live| live.keys.contains_key(key));
        live.is_some_and(|live| live.link.send(Body::Report(vec![Loaded { key: key.into(), per_s }])).is_ok())
    }

    pub(super) fn end(&mut self) {
        self.ended.extend(self.live.take());
    }

    pub(super) fn wake_at(&self) -> Option<Moment> {
        let live = self.live.iter().flat_map(|session| [Some(session.lease_until), session.link.wake_at()]);
        let ended = self.ended.iter().map(|session| Some(session.lease_until));
        live.chain(ended).flatten().min()
    }
}

impl Backend {
    pub(super) fn on_open(
        &mut self,
        now: Moment,
        from: NodeId,
        opening: Opening,
        at: Moment,
        in_charge: bool,
        out: &mut Outbox,
    ) {
        let is_busy = self.start.is_some() || self.state_work.is_flushing();
        let has_gone = !self.config.caches.is_part(from);
        let Some(peer) = self.caches.get_mut(&from).filter(|_| !is_busy && !has_gone) else { return };
        let incarnation = self.config.incarnation;
        let session = SessionId { incarnation, opening };
        let is_new = opening > peer.last_opening;
        if is_new {
            peer.end();
        }
        // Who begins a session serves nothing under those before it.
        self.forget_sessions(now, from, Opening(opening.0.saturating_sub(1)), out);
        let Some(peer) = self.caches.get_mut(&from) else { return };
        if is_new {
            peer.end_segment();
            peer.last_opening = opening;
            peer.live = Some(Session {
                id: session,
                in_charge,
                link: Link::new(self.config.link),
                keys: HashMap::new(),
                lease_until: Moment::default(),
                heard_at: at,
                waits: VecDeque::new(),
            });
        }
        match &mut peer.live {
            Some(live) if live.id == session && !live.is_behind(now, self.config.lease) => {
                live.lease_until = live.lease_until.max(now + self.config.drift.granter(self.config.lease));
                live.heard_at = live.heard_at.max(at);
                out.send(from, &Message::Opened { session, at, lease: self.config.lease });
            }
            // It has lapsed before its opener heard of it: it is to begin another.
            None => out.send(from, &Message::Void { incarnation, up_to: peer.last_opening }),
            Some(_) => {}
        }
    }

    pub(super) fn on_ask_lease(&mut self, now: Moment, from: NodeId, id: SessionId, at: Moment, out: &mut Outbox) {
        let (lease, drift) = (self.config.lease, self.config.drift);
        let Some(live) = self.live(from, id, out) else { return };
        live.heard_at = live.heard_at.max(at);
        if !live.is_behind(now, lease) {
            live.lease_until = live.lease_until.max(now + drift.granter(lease));
            out.send(from, &Message::Lease { session: id, at, lease });
        }
    }

    /// A session that is there; who goes by another is told.
    fn live(&mut self, cache: NodeId, id: SessionId, out: &mut Outbox) -> Option<&mut Session> {
        let peer = self.caches.get_mut(&cache)?;
        let live = peer.live.as_mut().filter(|live| live.id == id);
        if live.is_none() {
            out.send(cache, &Message::Gone { session: id });
        }
        live
    }

    pub(super) fn on_told(&mut self, now: Moment, from: NodeId, id: SessionId, frame: Frame<Body>, out: &mut Outbox) {
        let Some(live) = self.live(from, id, out) else { return };
        let body = live.link.hear(now, frame);
        if let Some(Body::InCharge(in_charge)) = body {
            live.in_charge = in_charge;
        }
        let acked = live.link.acked();
        let heard = live.waits.iter().take_while(|wait| wait.seq <= acked).count();
        let heard: Vec<Wait> = live.waits.drain(..heard).collect();
        self.heard_all(now, heard, out);
        match body {
            None | Some(Body::InCharge(_)) => {}
            Some(Body::Fetch(key)) => match Key::new(&key.0) {
                // It is asked of another then.
                Ok(key) if !self.may_be_cached(key.as_bytes()) => {}
                Ok(key) => {
                    self.counts.fetches += 1;
                    self.fetch(now, key, from, id, out);
                }
                Err(_) => self.counts.ignored += 1,
            },
            Some(Body::Spread(loaded)) => self.on_spread(now, from, &loaded, out),
            Some(Body::Drop { key, seen }) => {
                let is_sure = self.config.mutant != Some(Mutant::R6Drop);
                let Some(peer) = self.caches.get_mut(&from) else { return };
                if let Some(live) = &mut peer.live
                    && live.keys.get(&key.0).is_some_and(|told| *told <= seen || !is_sure)
                {
                    live.keys.remove(&key.0);
                    if peer.declined.len() < DECLINED_MAX {
                        peer.declined.insert(key.0);
                    }
                }
            }
            Some(_) => self.counts.ignored += 1,
        }
    }

    /// Gives a cache node what it has fetched.
    pub(super) fn give(&mut self, now: Moment, key: &[u8], item: Option<&Item>, cache: NodeId, id: SessionId) {
        let may_be_cached = self.may_be_cached(key);
        let Some(peer) = self.caches.get_mut(&cache) else { return };
        let Some(live) = peer.live.as_mut().filter(|live| live.id == id) else { return };
        let item = item.filter(|_| may_be_cached);
        let copy = item.and_then(|item| copy_of(&self.config, &self.state, now, key, item, live.heard_at));
        let is_there = copy.is_some();
        // If there is no room it is asked for again.
        if let Ok(seq) = live.link.send(Body::Value(key.into(), copy))
            && is_there
        {
            live.keys.insert(key.into(), seq);
        }
    }

    /// A cache node has too much to do because of a key, or is no longer in charge: another is told of it too, the one in charge or one of the others by
    /// a hash of its own (DistCache, FAST 2019), behind what is on its way for the key; where there is no other, another part of the same. A key that
    /// several have already goes to nobody.
    fn on_spread(&mut self, now: Moment, from: NodeId, loaded: &Loaded, out: &mut Outbox) {
        let Loaded { key: KeyBytes(bytes), per_s } = loaded;
        let Ok(key) = Key::new(bytes) else {
            self.counts.ignored += 1;
            return;
        };
        let (nodes, hash) = (&self.config.caches, (self.config.hash_of)(bytes));
        let drawn_to = |NodeId(cache)| KeyHash::of(bytes, HashSeed(cache.into()));
        let is_elsewhere = |part: NodeId| nodes.node_of(part) != nodes.node_of(from);
        let others = self.caches.iter().filter(|(part, peer)| {
            let may_have_it = if is_elsewhere(**part) { nodes.is_part_for(**part, hash) } else { **part != from };
            may_have_it && !peer.declined.contains(&**bytes)
        });
        // Of those elsewhere: the other parts of a cache node are in charge of what it is.
        let takes_over = |part, session: &Session| is_elsewhere(part) && session.in_charge;
        let others = others.filter_map(|(part, peer)| Some((*part, takes_over(*part, peer.live.as_ref()?))));
        // What leaves a cache node is not for its other parts.
        let leaves = !self.is_in_charge(from);
        let others = others.filter(|(part, _)| !leaves || is_elsewhere(*part));
        let next = others.max_by_key(|(part, takes_over)| (is_elsewhere(*part), *takes_over, drawn_to(*part)));
        let may_be_cached = self.may_be_cached(bytes);
        let goes = |(part, _): &(NodeId, bool)| may_be_cached && self.may_have_too(bytes, *part);
        let Some((cache, takes_over)) = next.filter(goes) else { return };
        // Who is in charge is to have all of it, of which each part that has it now has told its own.
        let per_s = if takes_over { per_s * self.holders(bytes).count() as f32 } else { per_s / 2.0 };
        self.ask(now, key, &LOOK, ReplyTo::Second { cache, per_s }, out);
    }

    /// Tells a cache node of a key that another has too.
    pub(super) fn tell_second(&mut self, now: Moment, key: &[u8], item: &Item, cache: NodeId, per_s: f32) {
        // Where it has gone meanwhile it is enough.
        let is_wanted = self.may_have_too(key, cache) && !self.has_declined(cache, key);
        let is_told = is_wanted && self.offer(now, key, item, cache, per_s);
        self.counts.spreads += u64::from(is_told);
    }

    fn is_in_charge(&self, part: NodeId) -> bool {
        let live = self.caches.get(&part).and_then(|peer| peer.live.as_ref());
        live.is_some_and(|live| live.in_charge)
    }

    /// Whether a part is to have a key that others have: if one does, or if those are all of one other node, which leaves it. Its parts do not hear of that at
    /// one moment, and may do so before the next one is in charge: once one of them has it is enough.
    fn may_have_too(&self, key: &[u8], part: NodeId) -> bool {
        let node_of = |part: NodeId| self.config.caches.node_of(part);
        let holders: Vec<NodeId> = self.holders(key).collect();
        let [first, ref others @ ..] = holders[..] else { return false };
        let is_of_another_node = |node| node_of(first) == node && node_of(part) != node;
        others.is_empty()
            || (holders.iter().all(|holder| is_of_another_node(node_of(*holder)))
                && holders.iter().any(|holder| !self.is_in_charge(*holder)))
    }

    /// Tells cache nodes of a key that has just become hot: its item, or only how hot it is where it may be cached. A key that is cached and asked for here all the same
    /// may have no rule yet, which waits behind those of keys with more load. What was known of its load when it was told first was a guess by few visits,
    /// some of them of before it was hot: so hotter keys than it went first, and those who did not guess as low. What was not kept is told again likewise, with its
    /// item, each time that its load has doubled.
    pub(super) fn tell_burst(&mut self, now: Moment, key: &[u8], item: &Item) {
        let per_s = self.hot.burst_load(key, now);
        let (nodes, hash) = (&self.config.caches, (self.config.hash_of)(key));
        let in_charge = self.caches.iter().filter(|(_, peer)| peer.live.as_ref().is_some_and(|live| live.in_charge));
        let its = in_charge.map(|(part, _)| *part).filter(|part| nodes.is_part_for(*part, hash));
        // Where every query tells no log is kept, and nothing is known of the load.
        let knows_load = self.config.hot.reports != Reports::EveryQuery;
        for cache in its.collect::<Vec<_>>() {
            let is_hotter = knows_load && self.caches.get(&cache).is_some_and(|peer| peer.is_hotter(key, per_s));
            let is_wanted = is_hotter || !self.has_declined(cache, key);
            let is_told = is_wanted && self.offer(now, key, item, cache, per_s);
            self.counts.bursts += u64::from(is_told);
            if is_hotter
                && let Some(peer) = self.caches.get_mut(&cache)
                && (is_told || peer.report(key, per_s))
            {
                peer.bursting.insert(key.into(), doublings(per_s));
            }
        }
    }

    /// Whether a part of a cache node was told of a key in this segment, and has not kept it.
    fn has_declined(&self, part: NodeId, key: &[u8]) -> bool {
        self.caches.get(&part).is_some_and(|peer| peer.declined.contains(key))
    }

    /// Tells a cache node of a key with its item, unless it may have it; whether it is told.
    fn offer(&mut self, now: Moment, key: &[u8], item: &Item, cache: NodeId, per_s: f32) -> bool {
        if !self.may_be_cached(key) {
            return false;
        }
        let live = self.caches.get_mut(&cache).and_then(|peer| peer.live.as_mut());
        let Some(live) = live.filter(|live| !live.keys.contains_key(key)) else { return false };
        let Some(copy) = copy_of(&self.config, &self.state, now, key, item, live.heard_at) else { return false };
        let told = live.link.send(Body::Burst(Loaded { key: key.into(), per_s }, copy));
        told.is_ok_and(|seq| live.keys.insert(key.into(), seq).is_none())
    }

    /// The parts of cache nodes that may serve a key, once for each of their sessions in which they may.
    pub(super) fn holders(&self, key: &[u8]) -> impl Iterator<Item = NodeId> {
        let sessions = |(part, peer): (&NodeId, &'_ CachePeer)| {
            let sessions = peer.live.iter().chain(&peer.ended).filter(|session| session.keys.contains_key(key));
            (*part, sessions.count())
        };
        self.caches.iter().map(sessions).flat_map(|(part, sessions)| std::iter::repeat_n(part, sessions))
    }

    /// Keys that cache nodes may have, of some.
    pub(super) fn cached_where(&self, is_one: impl Fn(&[u8]) -> bool) -> BTreeSet<Box<[u8]>> {
        let sessions = self.caches.values().flat_map(|peer| peer.live.iter().chain(&peer.ended));
        sessions.flat_map(|session| session.keys.keys()).filter(|key| is_one(key)).cloned().collect()
    }

    /// Has every cache node that may have a key cease to serve it until it is told what it is (R7); how many have to hear of it.
    pub(super) fn hold(&mut self, now: Moment, key: &[u8]) -> usize {
        self.counts.two_phased += 1;
        self.tell_each(now, key, Telling::Hold)
    }

    /// Tells every cache node that may have a key what it is now (`None`: nothing, or nobody knows); how many have to hear of it.
    pub(super) fn tell_caches(&mut self, now: Moment, key: &[u8], item: Option<&Item>) -> usize {
        self.tell_each(now, key, Telling::New(item))
    }

    /// Tells every cache node that has ceased to serve a key what it is now. Nobody waits for it: from here on the new item alone is served.
    pub(super) fn tell_held(&mut self, now: Moment, key: &[u8], item: Option<&Item>) {
        self.tell_each(now, key, Telling::Held(item));
    }

    /// Has every cache node that may have a key drop it; that is not waited for by a change.
    pub(super) fn have_dropped(&mut self, now: Moment, key: &[u8]) {
        self.tell_each(now, key, Telling::Drop);
    }

    /// Tells every cache node that may have a key something about it; how many have to hear of it, if that is awaited.
    fn tell_each(&mut self, now: Moment, key: &[u8], telling: Telling<'_>) -> usize {
        let is_awaited = !matches!(telling, Telling::Held(_));
        let may_be_cached = self.may_be_cached(key);
        // The fault: a change believes that it was heard when a drop was.
        let counts = !matches!(telling, Telling::Drop) || self.config.mutant == Some(Mutant::MoveCount);
        let waits_for = counts.then(|| Box::from(key));
        let mut left = 0;
        for peer in self.caches.values_mut() {
            if let Some(live) = peer.live.as_mut().filter(|live| live.keys.contains_key(key)) {
                let body = match telling {
                    Telling::Hold => Body::Hold(key.into()),
                    Telling::Drop => Body::Update(key.into(), None),
                    Telling::New(item) | Telling::Held(item) => {
                        self.counts.updates += 1;
                        let item = item.filter(|_| may_be_cached);
                        let copy = |item| copy_of(&self.config, &self.state, now, key, item, live.heard_at);
                        Body::Update(key.into(), item.and_then(copy))
                    }
                };
                let is_item = matches!(body, Body::Update(_, Some(_)));
                match live.link.send(body) {
                    Ok(seq) => {
                        if is_item {
                            // Only a drop that has seen this one is meant by it.
                            live.keys.insert(key.into(), seq);
                        }
                        if is_awaited {
                            live.waits.push_back(Wait { seq, since: now, key: waits_for.clone() });
                            left += 1;
                        }
                    }
                    Err(_) => peer.end(),
                }
            }
            if !is_awaited {
                continue;
            }
            for ended in peer.ended.iter_mut().filter(|ended| ended.keys.contains_key(key)) {
                // Nothing is acknowledged in it any more.
                ended.waits.push_back(Wait { seq: Seq(u64::MAX), since: now, key: waits_for.clone() });
                left += 1;
            }
        }
        left
    }

    /// Sessions whose leases have run out are over: whatever waits for them goes on.
    pub(super) fn end_lapsed(&mut self, now: Moment, out: &mut Outbox) {
        let mut released: Vec<Wait> = Vec::new();
        for peer in self.caches.values_mut() {
            if peer.live.as_ref().is_some_and(|live| now >= live.lease_until) {
                peer.end();
            }
            for ended in peer.ended.extract_if(.., |ended| now >= ended.lease_until) {
                released.extend(ended.waits);
            }
        }
        self.counts.lease_waits += released.len() as u64;
        self.heard_all(now, released, out);
    }

    /// Cache nodes that have gone are nobody any more once none of their leases may run.
    pub(super) fn forget_who_has_gone(&mut self, now: Moment, out: &mut Outbox) {
        let Self { caches, config, .. } = self;
        if caches.len() == config.caches.parts_len() {
            return;
        }
        let waits_for_leases = config.mutant != Some(Mutant::R2View);
        let stays = |cache: &NodeId, peer: &mut CachePeer| {
            config.caches.is_part(*cache) || (waits_for_leases && peer.has_sessions())
        };
        let gone: BTreeMap<NodeId, CachePeer> = caches.extract_if(.., |cache, peer| !stays(cache, peer)).collect();
        self.gone.extend(gone.iter().map(|(cache, peer)| (*cache, peer.last_opening)));
        // Nobody, but for the fault.
        let gone = gone.into_values().flat_map(|peer| peer.ended).flat_map(|session| session.waits);
        self.heard_all(now, gone.collect(), out);
    }

    /// Ends all sessions, whose leases may go on running.
    pub(super) fn end_sessions(&mut self) {
        self.caches.values_mut().for_each(CachePeer::end);
    }

    /// A cache node has nothing any more of its sessions up to an opening.
    pub(super) fn forget_sessions(&mut self, now: Moment, cache: NodeId, up_to: Opening, out: &mut Outbox) {
        let Some(peer) = self.caches.get_mut(&cache) else { return };
        let released: Vec<Wait> =
            peer.ended.extract_if(.., |ended| ended.id.opening <= up_to).flat_map(|ended| ended.waits).collect();
        self.heard_all(now, released, out);
    }

    /// What changes have waited for is heard, or void.
    fn heard_all(&mut self, now: Moment, waits: Vec<Wait>, out: &mut Outbox) {
        for key in waits.into_iter().filter_map(|wait| wait.key) {
            self.heard(now, key, out);
        }
    }

    /// Tells cache nodes who is hot, when it is time to.
    pub(super) fn report(&mut self, now: Moment) {
        let in_charge = || self.caches.values().filter_map(|peer| peer.live.as_ref()).filter(|live| live.in_charge);
        let is_cached = |key: &[u8]| in_charge().any(|live| live.keys.contains_key(key));
        let Some(hottest) = self.hot.report(now, is_cached) else { return };
        self.caches.values_mut().for_each(CachePeer::end_segment);
        if hottest.is_empty() || self.config.hot.reports == Reports::Instant {
            return;
        }
        let Self { caches, config: BackendConfig { caches: nodes, hash_of, .. }, .. } = self;
        for (part, peer) in caches {
            let Some(live) = peer.live.as_mut().filter(|live| live.in_charge) else { continue };
            let is_its = |loaded: &&Loaded| nodes.is_part_for(*part, hash_of(&loaded.key.0));
            let its: Vec<Loaded> = hottest.iter().filter(is_its).cloned().collect();
            if !its.is_empty() {
                // If there is no room, the next report is soon.
                let _ = live.link.send(Body::Report(its));
            }
        }
    }

    /// Sends what is to be sent by now.
    pub(super) fn emit(&mut self, now: Moment, out: &mut Outbox) {
        for (cache, peer) in &mut self.caches {
            if let Some(live) = &mut peer.live {
                let session = live.id;
                live.link.emit(now, |frame| out.send(*cache, &told(session, frame)));
            }
        }
    }
}

/// An item as a cache node is given it, which has told its own time as `heard_at`; `None` if it is over, or longer than the cluster takes: a store
/// that was filled under another limit has such.
fn copy_of(
    config: &BackendConfig,
    state: &StoreState,
    now: Moment,
    key: &[u8],
    item: &Item,
    heard_at: Moment,
) -> Option<ItemCopy> {
    if key.len() + item.value.len() > config.item_len_max {
        return None;
    }
    let left = config.clock.left(item.expiry, now);
    if item.generation < state.generation || left.is_some_and(|left| left == Span::default()) {
        return None;
    }
    Some(ItemCopy {
        flags: item.flags,
        version: item.version,
        expiry: item.expiry,
        serve_until: left.map(|left| heard_at + config.drift.holder(left)),
        stale: item.stale,
        win_sent: item.win_sent,
        value: Arc::clone(&item.value),
    })
}
