//! A client of the stations: what one thread has in flight, and how it gets its answers (CPHASH, sections 3.3 and 3.4).
//!
//! ```text
//! window: send (messages, shown line by line) -> fetch (replies, values asked for) -> answer (in order) -> give back
//! ```
//! Always true: outside of `carry_out` nothing is in flight; when it is unwound, every message that was sent is replied to and what
//! it brought is given back before the requests go, which servers may be looking into.

use std::sync::{Arc, atomic::Ordering};

use guira_item::{
    Answer, Footprint, Footprints, Hit, Operation, Request, Sink, Store, StoreMode, Time, VALUE_SLACK_LEN,
};
use guira_sync::{
    cycles, hint, prefetch, prefetch_to_write,
    ring::{Consumer, Producer, ring},
};

use crate::{
    context::{Lookup, Outcome, Shape, Shortage},
    cphash::{Post, Shared},
    direct,
    element::{LINE_LEN, Parts, Slot},
    element_ops::{drop_reference, free_element, is_plain, refer},
    message::{self, Call, SetDraft, Stalled},
    pin::Pin,
    shards::{Held, Shards},
    station::Seat,
};

/// Cache lines of a ring in each direction.
const RING_LINES: usize = 128;

/// Requests in flight at a time (CPHASH, section 6.1: any number from 512 to 8,192 served as well).
const WINDOW_LEN: usize = 1_024;

/// Messages after which partitions are told that something has come, so that they are served while more are being sent.
const SHOWN_AHEAD: usize = 128;

/// Requests whose replies are fetched, and their values asked for, before the first one is answered.
const FETCHED_AHEAD: usize = 16;

/// Turns of waiting for a server thread after which a client serves the partition itself, if nobody does: some two microseconds.
/// A client that has less to do than its server thread takes over partitions in this way until both have as much.
const PATIENCE: u32 = 32;

/// A client's rings to and from one station.
struct Lane {
    requests: Producer,
    replies: Consumer,
    /// Something may not have been shown yet.
    is_unshown: bool,
    /// References from lookups that are not needed any more, and that the partition has not been told of.
    owed: usize,
}

/// A message that has been sent and not been replied to.
#[derive(Clone, Copy)]
enum Sent {
    Lookup,
    Insert,
    Set,
    Call,
}

/// What one thread needs to use the engine: its rings, and what is in flight.
pub struct Worker {
    shared: Arc<Shared>,
    client: usize,
    lanes: Box<[Lane]>,
    hashes: Vec<u64>,
    /// What was sent for each request of the window, with its partition.
    sent: Vec<(Sent, usize)>,
    /// The calls of the window, which servers look into: never more than there is room for, so that none moves.
    calls: Vec<Call>,
    /// The first message of `sent` whose reply has not been fetched.
    fetched: usize,
    /// The replies that were fetched last; most have one word.
    replies: Vec<[u64; 2]>,
    /// The first message of `sent` that has not been answered to the sink.
    answered: usize,
    draft: Box<SetDraft>,
    cycles: ClientCycles,
    /// An element whose value is being copied.
    in_hand: Option<(Slot, usize)>,
    /// A partition that waits for this client to carry out what there was no memory for.
    stalled: Option<usize>,
}

// SAFETY: a call's cells are touched by the thread that has the worker, and by whoever serves the partition between the call's
// message and its reply, during which the worker stays in `execute`.
unsafe impl Send for Worker {}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("in_flight", &(self.sent.len() - self.fetched)).finish_non_exhaustive()
    }
}

impl Worker {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let client = shared.clients.fetch_add(1, Ordering::Relaxed);
        let lane = |post: &Post| {
            let (requests, served) = ring(RING_LINES);
            let (answered, replies) = ring(RING_LINES);
            post.station.lock().seats.push(Seat::new(client, served, answered));
            Lane { requests, replies, is_unshown: false, owed: 0 }
        };
        Self {
            lanes: shared.stations.iter().map(lane).collect(),
            shared: Arc::clone(shared),
            client,
            hashes: Vec::with_capacity(WINDOW_LEN),
            sent: Vec::with_capacity(WINDOW_LEN),
            calls: Vec::with_capacity(WINDOW_LEN),
            fetched: 0,
            replies: Vec::with_capacity(FETCHED_AHEAD),
            answered: 0,
            draft: SetDraft::new(),
            cycles: ClientCycles::default(),
            in_hand: None,
            stalled: None,
        }
    }

    /// Asks for the buckets of keys, and for the elements that those lead to; returns the keys' hashes. One key is looked up at
    /// once.
    pub(crate) fn prefetch<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) -> &[u64] {
        let common = &self.shared.common;
        self.hashes.clear();
        self.hashes.extend(keys.map(|key| common.hash(key)));
        if self.hashes.len() > 1 {
            let buckets = &common.memory.buckets;
            for hash in &self.hashes {
                prefetch(buckets.address(common.partition(*hash), *hash));
            }
            for hash in &self.hashes {
                if let Some(slot) = buckets.hint(common.partition(*hash), *hash) {
                    let address = common.memory.address(slot);
                    prefetch_to_write(address);
                    prefetch(address.wrapping_add(LINE_LEN));
                }
            }
        }
        &self.hashes
    }

    /// Carries out requests by messages, a window of them at a time.
    pub(crate) fn carry_out<S: Sink>(&mut self, now: Time, requests: &[Request<'_>], sink: &mut S) {
        for (number, chunk) in requests.chunks(WINDOW_LEN).enumerate() {
            let (mut begin, mut served) = (cycles(), self.cycles.serve);
            let mut hashes = std::mem::take(&mut self.hashes);
            hashes.clear();
            hashes.extend(chunk.iter().map(|request| self.shared.common.hash(request.key.as_bytes())));
            let mut done = 0;
            while done < chunk.len() {
                let mut window = Window { worker: self, now };
                let sent = window.worker.send(&chunk[done..], &hashes[done..]);
                window.worker.cycles.send += window.worker.time_since(begin, served);
                window.answer(&chunk[done..][..sent], &hashes[done..], number * WINDOW_LEN + done, sink);
                let (answered, served_before) = (cycles(), window.worker.cycles.serve);
                drop(window);
                self.cycles.access += self.time_since(answered, served_before);
                (begin, served) = (cycles(), self.cycles.serve);
                done += sent;
            }
            self.hashes = hashes;
        }
    }

    /// Gives the references from lookups back that are owed to a partition, by message if there is room for one.
    fn release(&mut self, partition: usize) {
        let lane = &mut self.lanes[partition];
        if lane.owed == 0 {
            return;
        }
        lane.is_unshown = true;
        if lane.requests.put(&[message::word(message::RELEASE, lane.owed as u64)]).is_ok() {
            lane.owed = 0;
        } else {
            self.release_at_once(partition);
        }
    }

    /// The same, not by message: who serves the partition may be waiting for this client.
    fn release_at_once(&mut self, partition: usize) {
        let owed = std::mem::take(&mut self.lanes[partition].owed);
        if owed > 0 {
            let mut held = self.shared.hold(partition);
            // SAFETY: the partition is held.
            let cx = unsafe { self.shared.common.context(self.shared.common.now()) };
            held.0.release(&cx, self.client, owed);
        }
    }

    /// Lets the client be served on at a partition where it was stalled.
    fn resume_at(&mut self, partition: usize) {
        self.shared.hold(partition).0.resume(self.client);
        self.stalled = None;
        self.ring_bell(partition);
    }

    /// Makes room for a message that is stalled, anywhere: memory may be with other partitions, of which one is held at a time.
    fn make_room(&mut self, partition: usize, now: Time, shortage: Shortage) {
        self.stalled = Some(partition);
        self.release_all_at_once();
        self.shared.make_room(partition, now, shortage);
    }

    /// Gives back whatever lookups have brought and has been answered: what this client has references to is no room for what it
    /// stores.
    fn release_all_at_once(&mut self) {
        (0..self.lanes.len()).for_each(|partition| self.release_at_once(partition));
    }

    /// Gives the reference of a call back.
    #[inline]
    fn give_back(&mut self, partition: usize, slot: Slot) {
        let lane = &mut self.lanes[partition];
        lane.is_unshown = true;
        if lane.requests.put(&[message::word(message::DECREF, slot.0.into())]).is_err() {
            // Who serves the partition may be waiting for this client.
            let mut held = self.shared.hold(partition);
            // SAFETY: the partition is held.
            let cx = unsafe { self.shared.common.context(self.shared.common.now()) };
            drop_reference(&cx, held.parts().1, slot);
        }
    }

    /// Shows all partitions what has been sent.
    fn flush(&mut self) {
        for number in 0..self.lanes.len() {
            let lane = &mut self.lanes[number];
            if std::mem::take(&mut lane.is_unshown) {
                lane.requests.flush();
                self.ring_bell(number);
            }
        }
    }

    /// Tells all partitions of the lines that are full: those that are not will be.
    fn tell_of_full_lines(&mut self) {
        for number in 0..self.lanes.len() {
            if self.lanes[number].is_unshown {
                self.ring_bell(number);
            }
        }
    }

    fn ring_bell(&mut self, partition: usize) {
        self.cycles.serve += self.shared.ring_bell(partition).cycles;
    }

    fn help(&mut self, partition: usize) {
        self.cycles.serve += self.shared.help(partition).cycles;
    }

    /// The time since `begin` without what went into serving since this client had served for `served`.
    fn time_since(&self, begin: u64, served: u64) -> u64 {
        cycles().saturating_sub(begin).saturating_sub(self.cycles.serve - served)
    }

    /// The next reply of a partition.
    #[inline]
    fn reply(&mut self, partition: usize) -> u64 {
        let (mut turns, mut round) = (0u32, 0);
        loop {
            if let Some(reply) = self.lanes[partition].replies.take() {
                return reply;
            }
            turns += 1;
            if turns.is_multiple_of(PATIENCE) || self.shared.crew.is_asleep(partition) {
                self.help(partition);
            }
            hint::spin(&mut round);
        }
    }

    /// The next reply, to what was sent.
    #[inline]
    fn reply_to(&mut self, sent: Sent, partition: usize) -> [u64; 2] {
        let first = self.reply(partition);
        [first, if matches!(sent, Sent::Set) { self.reply(partition) } else { 0 }]
    }

    /// Sends messages for requests from the front until the window is full or has to be closed; returns how many.
    fn send(&mut self, requests: &[Request<'_>], hashes: &[u64]) -> usize {
        self.sent.clear();
        self.calls.clear();
        self.replies.clear();
        self.fetched = 0;
        self.answered = 0;
        for (request, hash) in requests.iter().zip(hashes) {
            let partition = self.shared.common.partition(*hash);
            let lane = &mut self.lanes[partition];
            let key_len = request.key.as_bytes().len();
            let (sent, put) = match &request.operation {
                Operation::Get(get) if is_plain(get) && get.bump => {
                    (Sent::Lookup, lane.requests.put(&[message::word(message::LOOKUP, *hash)]))
                }
                Operation::Store(store) if message::is_set(store) => {
                    (Sent::Set, lane.requests.put(self.draft.write(*hash, request.key.as_bytes(), store)))
                }
                Operation::Store(Store { mode, value, .. }) if is_copied_by_client(*mode, value.len()) => {
                    let words = [message::word(message::INSERT, *hash), message::lens(key_len, value.len())];
                    (Sent::Insert, lane.requests.put(&words))
                }
                _ => {
                    self.calls.push(Call::new(request, None));
                    let word = self.calls.last().expect("just pushed").word();
                    let put = lane.requests.put(&[word, *hash]);
                    if put.is_err() {
                        self.calls.pop();
                    }
                    (Sent::Call, put)
                }
            };
            // A full ring is answered first. So is what is stored in two steps: what follows must find it.
            if put.is_err() {
                if self.sent.is_empty() {
                    // What fills it are references given back, to which nobody replies.
                    self.ring_bell(partition);
                    self.help(partition);
                    hint::yield_now();
                }
                break;
            }
            lane.is_unshown = true;
            self.sent.push((sent, partition));
            if matches!(sent, Sent::Insert) || self.sent.len() == WINDOW_LEN {
                break;
            }
            if self.sent.len().is_multiple_of(SHOWN_AHEAD) {
                self.tell_of_full_lines();
            }
        }
        self.flush();
        self.sent.len()
    }

    /// Fetches the replies to the next messages, and asks for the values they lead to.
    fn fetch(&mut self) {
        self.replies.clear();
        let end = self.sent.len().min(self.fetched + FETCHED_AHEAD);
        while self.fetched < end {
            let (sent, partition) = self.sent[self.fetched];
            let reply = self.reply_to(sent, partition);
            self.fetched += 1;
            if let (Sent::Lookup, Lookup::Hit(slot)) = (sent, message::open_lookup_reply(reply[0])) {
                let body = self.shared.common.memory.address(slot).wrapping_add(LINE_LEN);
                prefetch(body);
                prefetch(body.wrapping_add(LINE_LEN));
            }
            self.replies.push(reply);
            if matches!(sent, Sent::Call | Sent::Set) && reply[0] == message::STALLED {
                // Nothing that was sent after it is replied to before it has been seen to.
                return;
            }
        }
    }

    /// Gives up what a window has not come to, when it ends before its time.
    fn settle(&mut self) {
        if let Some((slot, partition)) = self.in_hand.take() {
            self.give_back(partition, slot);
        }
        if let Some(partition) = self.stalled {
            self.resume_at(partition);
        }
        let first = self.fetched - self.replies.len();
        let is_call = |(sent, _): &&(Sent, usize)| matches!(sent, Sent::Call);
        let mut calls = self.sent[..self.answered].iter().filter(is_call).count();
        for index in self.answered..self.sent.len() {
            let (sent, partition) = self.sent[index];
            let [reply, _] =
                if index < self.fetched { self.replies[index - first] } else { self.reply_to(sent, partition) };
            match sent {
                Sent::Lookup => {
                    self.lanes[partition].owed +=
                        usize::from(matches!(message::open_lookup_reply(reply), Lookup::Hit(_)));
                }
                Sent::Insert => {
                    if let Some(slot) = message::open_insert_reply(reply) {
                        let mut held = self.shared.hold(partition);
                        // SAFETY: the partition is held, and the element is this client's.
                        let cx = unsafe { self.shared.common.context(self.shared.common.now()) };
                        free_element(&cx, held.parts().1, slot);
                    }
                }
                Sent::Set => {
                    if reply == message::STALLED {
                        self.resume_at(partition);
                    }
                }
                Sent::Call => {
                    let answered = self.calls[calls].answer.take();
                    calls += 1;
                    if reply == message::STALLED {
                        self.resume_at(partition);
                    } else if let Some(slot) = answered.and_then(message::referenced) {
                        self.give_back(partition, slot);
                    }
                }
            }
        }
        self.answered = self.sent.len();
        self.fetched = self.sent.len();
        self.replies.clear();
        (0..self.lanes.len()).for_each(|partition| self.release(partition));
        self.flush();
    }
}

/// Cache lines that have changed hands between a client and the partitions, and the words in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Lines of requests: lookups, inserts and calls, and references given back.
    pub request_lines: u64,
    /// Words in them.
    pub request_words: u64,
    /// Lines of replies.
    pub reply_lines: u64,
    /// Words in them.
    pub reply_words: u64,
}

/// Where a client's time has gone, by [`guira_sync::cycles`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientCycles {
    /// Hashing keys and sending messages.
    pub send: u64,
    /// Waiting for replies and taking them.
    pub receive: u64,
    /// Serving partitions whose server thread sleeps or is busy elsewhere.
    pub serve: u64,
    /// Comparing keys, copying values, answering, and giving references back.
    pub access: u64,
}

impl Worker {
    /// Where the time has gone so far of what was carried out by messages.
    pub fn cycles(&self) -> ClientCycles {
        self.cycles
    }

    /// What has gone to and fro so far.
    pub fn traffic(&self) -> Traffic {
        let mut sum = Traffic::default();
        for (lane, post) in self.lanes.iter().zip(&self.shared.stations) {
            sum.request_lines += lane.requests.lines();
            sum.request_words += lane.requests.words();
            let station = post.station.lock();
            for seat in station.seats.iter().filter(|seat| seat.client == self.client) {
                sum.reply_lines += seat.replies.lines();
                sum.reply_words += seat.replies.words();
            }
        }
        sum
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Whether a store's value is copied by the client.
fn is_copied_by_client(mode: StoreMode, value_len: usize) -> bool {
    value_len > message::VALUE_LEN_MAX && matches!(mode, StoreMode::Set | StoreMode::Add | StoreMode::Replace)
}

/// A window of requests in flight; what is left of it when it is dropped is given up in order.
struct Window<'w> {
    worker: &'w mut Worker,
    now: Time,
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        self.worker.settle();
    }
}

impl Window<'_> {
    /// Answers the first `sent` of `requests`, whose messages are under way.
    fn answer<S: Sink>(&mut self, requests: &[Request<'_>], hashes: &[u64], index: usize, sink: &mut S) {
        let mut calls = 0;
        while self.worker.answered < requests.len() {
            let (begin, served) = (cycles(), self.worker.cycles.serve);
            self.worker.fetch();
            self.worker.cycles.receive += self.worker.time_since(begin, served);
            let (fetched, served) = (cycles(), self.worker.cycles.serve);
            for turn in 0..self.worker.replies.len() {
                let reply = self.worker.replies[turn];
                let number = self.worker.answered;
                let (sent, partition) = self.worker.sent[number];
                let (request, hash) = (&requests[number], hashes[number]);
                let index = index + number;
                // From here on what it holds is in hand, or given back.
                self.worker.answered += 1;
                match sent {
                    Sent::Lookup => self.answer_lookup(request, hash, partition, reply[0], index, sink),
                    Sent::Insert => self.finish_insert(request, hash, partition, reply[0], index, sink),
                    Sent::Set => self.answer_set(request, hash, partition, reply, index, sink),
                    Sent::Call => {
                        calls += 1;
                        self.answer_call(calls - 1, request, hash, partition, index, sink);
                    }
                }
            }
            self.worker.cycles.access += self.worker.time_since(fetched, served);
        }
    }

    #[inline]
    fn answer_lookup<S: Sink>(
        &mut self,
        request: &Request<'_>,
        hash: u64,
        partition: usize,
        reply: u64,
        index: usize,
        sink: &mut S,
    ) {
        match message::open_lookup_reply(reply) {
            Lookup::Hit(slot) => {
                // Given back when the window ends.
                self.worker.lanes[partition].owed += 1;
                let body = self.worker.shared.common.memory.body(slot);
                let key = request.key.as_bytes();
                // The whole key decides: that two have one hash key of 60 bits is possible (CPHASH, section 8.2).
                if body.key() != key {
                    return sink.answer(index, Answer::Miss);
                }
                let settings = &self.worker.shared.common.settings;
                let (value_len, cas) = (body.value_len(), settings.shown(body.version()));
                let class = settings.shape(key.len(), value_len).map_or(0, |shape| shape.class.number());
                let hit = Hit { flags: body.flags(), cas, value_len, class, ..Hit::default() };
                if settings.shape(key.len(), value_len).is_none_or(|shape| shape.in_pieces) {
                    // A reference of its own, since the first one goes back with the window.
                    let held = self.worker.shared.hold(partition);
                    // SAFETY: the partition is held.
                    refer(&unsafe { self.worker.shared.common.context(self.now) }, slot);
                    drop(held);
                    return self.send_pinned(slot, hash, &hit, index, sink);
                }
                self.copy_value(slot, &hit, index, sink);
            }
            Lookup::Miss(death) => {
                if let Some(death) = death {
                    sink.found_dead(index, death);
                }
                sink.answer(index, Answer::Miss);
            }
        }
    }

    /// Copies a value that lies in one chunk to where it is wanted.
    #[inline]
    fn copy_value<S: Sink>(&self, slot: Slot, hit: &Hit, index: usize, sink: &mut S) {
        let value = self.worker.shared.common.memory.body(slot).value();
        sink.reserve(index, hit)[VALUE_SLACK_LEN..][..value.len()].copy_from_slice(value);
        sink.commit(index, hit);
    }

    /// Has a large value sent from where it lies; it keeps the reference to its element.
    fn send_pinned<S: Sink>(&self, slot: Slot, hash: u64, hit: &Hit, index: usize, sink: &mut S) {
        let shared = &self.worker.shared;
        let pieces = shared.common.memory.first_piece(slot);
        let pin = Pin::new(Arc::clone(shared), slot, hash, pieces, hit.value_len);
        sink.pinned(index, hit, Box::new(pin));
    }

    /// Delivers the value of an element that a call has a reference to, which is in hand.
    fn deliver<S: Sink>(&mut self, slot: Slot, hash: u64, partition: usize, hit: &Hit, index: usize, sink: &mut S) {
        let common = &self.worker.shared.common;
        let shape = common.settings.shape(common.memory.body(slot).key_len(), hit.value_len);
        if shape.is_none_or(|shape| shape.in_pieces) {
            self.worker.in_hand = None;
            return self.send_pinned(slot, hash, hit, index, sink);
        }
        self.copy_value(slot, hit, index, sink);
        self.worker.in_hand = None;
        self.worker.give_back(partition, slot);
    }

    /// Fills the element that a store was given, and has it stored.
    fn finish_insert<S: Sink>(
        &mut self,
        request: &Request<'_>,
        hash: u64,
        partition: usize,
        reply: u64,
        index: usize,
        sink: &mut S,
    ) {
        let filled = message::open_insert_reply(reply);
        if let (Some(slot), Operation::Store(store)) = (filled, &request.operation) {
            let parts = Parts::new([store.value, &[], &[]], 0);
            // SAFETY: the element was allocated for this key and value, and for this thread.
            unsafe { self.worker.shared.common.memory.fill(slot, request.key.as_bytes(), store.flags, parts) };
            // An insert ends its window, so that there is room for one call more, and nothing else is under way.
            debug_assert!(self.worker.calls.len() < self.worker.calls.capacity());
            self.worker.calls.push(Call::new(request, filled));
            let call = self.worker.calls.len() - 1;
            let lane = &mut self.worker.lanes[partition];
            lane.is_unshown = true;
            if lane.requests.put(&[self.worker.calls[call].word(), hash]).is_ok() {
                self.worker.flush();
                self.worker.reply(partition);
                return self.answer_call(call, request, hash, partition, index, sink);
            }
        }
        self.carry_out(filled, request, hash, partition, index, sink);
    }

    fn answer_set<S: Sink>(
        &mut self,
        request: &Request<'_>,
        hash: u64,
        partition: usize,
        reply: [u64; 2],
        index: usize,
        sink: &mut S,
    ) {
        let Operation::Store(store) = &request.operation else { unreachable!("a set is a store") };
        let key_len = request.key.as_bytes().len();
        let settings = &self.worker.shared.common.settings;
        let shape_of = |value_len| settings.shape(key_len, value_len);
        let class_of = |value_len| shape_of(value_len).map_or(0, |shape| shape.class.number());
        match (message::open_set_reply(reply, class_of), shape_of(store.value.len())) {
            (Ok((death, answer, before)), _) => {
                if let Some(death) = death {
                    sink.found_dead(index, death);
                }
                let value_len = store.value.len();
                let is_stored = matches!(answer, Answer::Stored { .. });
                let after =
                    is_stored.then(|| Footprint { class: class_of(value_len), value_len, expiry: store.expiry });
                sink.answer_change(index, answer, &Footprints { before, after });
            }
            (Err(Stalled), shape) => {
                if let Some(Shape { class, .. }) = shape {
                    self.worker.make_room(partition, self.now, Shortage { class, pages: 1 });
                }
                self.carry_out(None, request, hash, partition, index, sink);
            }
        }
    }

    fn answer_call<S: Sink>(
        &mut self,
        call: usize,
        request: &Request<'_>,
        hash: u64,
        partition: usize,
        index: usize,
        sink: &mut S,
    ) {
        let answered = self.worker.calls[call].answer.take().expect("a call that was replied to has its answer");
        match answered {
            Ok((death, outcome)) => {
                if let Outcome::Hit(_, slot) = &outcome {
                    self.worker.in_hand = Some((*slot, partition));
                }
                if let Some(death) = death {
                    sink.found_dead(index, death);
                }
                self.answer_outcome(outcome, hash, partition, index, sink);
            }
            Err(shortage) => {
                self.worker.make_room(partition, self.now, shortage);
                self.carry_out(None, request, hash, partition, index, sink);
            }
        }
    }

    fn answer_outcome<S: Sink>(&mut self, outcome: Outcome, hash: u64, partition: usize, index: usize, sink: &mut S) {
        match outcome {
            Outcome::Hit(hit, slot) => self.deliver(slot, hash, partition, &hit, index, sink),
            Outcome::Metadata(hit) => sink.metadata(index, &hit),
            Outcome::Answer(answer, items) => sink.answer_change(index, answer, &items),
        }
    }

    /// Carries out one operation on the spot, while what was sent to the partition after it waits.
    fn carry_out<S: Sink>(
        &mut self,
        filled: Option<Slot>,
        request: &Request<'_>,
        hash: u64,
        partition: usize,
        index: usize,
        sink: &mut S,
    ) {
        if filled.is_none() {
            self.worker.release_all_at_once();
        }
        let shared = Arc::clone(&self.worker.shared);
        // SAFETY: what is touched through it is touched while the partition is held.
        let cx = unsafe { shared.common.context(self.now) };
        let (held, death, outcome) = direct::execute(&*shared, &cx, hash, request, filled);
        if let Outcome::Hit(_, slot) = &outcome {
            refer(&cx, *slot);
            self.worker.in_hand = Some((*slot, partition));
        }
        drop(held);
        self.worker.resume_at(partition);
        if let Some(death) = death {
            sink.found_dead(index, death);
        }
        self.answer_outcome(outcome, hash, partition, index, sink);
    }
}
