//! A client of the stations: what one thread has in flight, and how it gets its answers (CPHASH, sections 3.3 and 3.4).
//!
//! ```text
//! window: send (messages, shown line by line) -> fetch (replies, values asked for) -> answer (in order) -> give back
//! ```
//! Always true: outside of `carry_out` nothing is in flight; when it is unwound, every message that was sent is replied to and what
//! it brought is given back before the requests go, which servers may be looking into.

mod window;

use std::sync::Arc;

use guira_item::{Operation, Request, Sink, Store, StoreMode, Time};
use guira_sync::{
    atomic::Ordering,
    cycles, hint, prefetch,
    ring::{Consumer, Producer, ring},
};

use crate::{
    batch::Batch,
    context::{Context, Lookup},
    cphash::{Post, Shared},
    direct,
    element::{LINE_LEN, Slot},
    element_ops::{drop_reference, free_element, is_plain, refer},
    message::{self, Call, SetDraft},
    modelled,
    shards::Shards,
    station::{Seat, Station},
    traffic::{ClientCycles, Traffic},
};

use window::Window;

/// Cache lines of a ring in each direction.
const RING_LINES: usize = modelled(128, 1);

/// Requests in flight at a time (CPHASH, section 6.1: any number from 512 to 8,192 served as well).
const WINDOW_LEN: usize = modelled(1_024, 4);

/// Messages after which partitions are told that something has come, so that they are served while more are being sent.
const SHOWN_AHEAD: usize = modelled(128, 2);

/// Requests whose replies are fetched, and their values asked for, before the first one is answered.
const FETCHED_AHEAD: usize = modelled(16, 2);

/// Turns of waiting for a server thread after which a client serves the partition itself, if nobody does: some two microseconds.
/// A client that has less to do than its server thread takes over partitions in this way until both have as much.
/// In a model it relies on server threads that look for messages.
const PATIENCE: u32 = modelled(32, u32::MAX as usize) as u32;

/// Requests for which it pays to sort them by partition.
const BATCH_MIN: usize = 8;

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
    /// By partition; none until the first messages are sent.
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
    batch: Batch,
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
        Self {
            lanes: Box::default(),
            shared: Arc::clone(shared),
            client,
            hashes: Vec::with_capacity(WINDOW_LEN),
            sent: Vec::with_capacity(WINDOW_LEN),
            calls: Vec::with_capacity(WINDOW_LEN),
            fetched: 0,
            replies: Vec::with_capacity(FETCHED_AHEAD),
            answered: 0,
            draft: SetDraft::new(),
            batch: Batch::new(client, shared.stations.len()),
            cycles: ClientCycles::default(),
            in_hand: None,
            stalled: None,
        }
    }

    /// Takes a seat at every station: their rings are 16 KiB for each, which who sends no messages does without.
    #[cold]
    fn open_lanes(&mut self) {
        let client = self.client;
        let lane = |post: &Post| {
            let (requests, served) = ring(RING_LINES);
            let (answered, replies) = ring(RING_LINES);
            post.station.lock().seats.push(Seat::new(client, served, answered));
            Lane { requests, replies, is_unshown: false, owed: 0 }
        };
        self.lanes = self.shared.stations.iter().map(lane).collect();
    }

    /// Asks for the buckets of keys, and for the elements that those lead to.
    pub(crate) fn prefetch<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        let common = &self.shared.common;
        self.hashes.clear();
        self.hashes.extend(keys.map(|key| common.hash(key)));
        self.hashes.iter().for_each(|hash| common.prefetch_bucket(*hash));
        self.hashes.iter().for_each(|hash| common.prefetch_element(*hash));
    }

    /// Carries out requests on partitions that are held one at a time.
    pub(crate) fn carry_out_on_the_spot<S: Sink>(&mut self, now: Time, requests: &[Request<'_>], sink: &mut S) {
        if requests.len() < BATCH_MIN {
            direct::carry_out(&self.shared, &mut self.hashes, now, requests, sink);
        } else {
            self.batch.carry_out(&self.shared, now, requests, sink);
        }
    }

    /// Carries out requests by messages, a window of them at a time.
    pub(crate) fn carry_out<S: Sink>(&mut self, now: Time, requests: &[Request<'_>], sink: &mut S) {
        if self.lanes.is_empty() {
            self.open_lanes();
        }
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
            self.at(partition, |station, cx, client| station.release(cx, client, owed));
        }
    }

    /// Does something at a station that is held meanwhile.
    fn at<R>(&self, partition: usize, work: impl FnOnce(&mut Station, &Context<'_>, usize) -> R) -> R {
        let mut held = self.shared.hold(partition);
        // SAFETY: the partition is held.
        let cx = unsafe { self.shared.common.context(self.shared.common.now()) };
        work(&mut held.0, &cx, self.client)
    }

    /// Takes a reference more to an element that this client has one to.
    fn refer(&self, partition: usize, slot: Slot) {
        self.at(partition, |_, cx, _| refer(cx, slot));
    }

    /// Lets the client be served on at a partition where it was stalled.
    fn resume_at(&mut self, partition: usize) {
        self.at(partition, |station, _, client| station.resume(client));
        self.stalled = None;
        self.ring_bell(partition);
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
            self.at(partition, |station, cx, _| drop_reference(cx, &mut station.heap, slot));
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
                        self.at(partition, |station, cx, _| free_element(cx, &mut station.heap, slot));
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
