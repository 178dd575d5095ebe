//! A batch of requests carried out partition by partition: what a client does that no server thread serves. Each partition is held
//! once for all of a batch's requests to it, so that what its operations share, the ends of the order of use above all, changes
//! cores once a batch and not with every request; a partition that somebody else has comes later.
//!
//! ```text
//! sort by partition -> partition by partition: carry out, keep what came of it -> request by request: answer
//! ```
//! Always true: requests to one partition take effect in their order; answers are given in the requests' order, and what has been
//! kept is answered while no partition is held; an element whose value has not been copied yet has a reference until it is, or
//! until the batch is unwound.

use std::{ops::Range, sync::Arc};

use guira_item::{Answer, Death, Expiry, Footprint, Footprints, Hit, Operation, Request, Sink, Time, VALUE_SLACK_LEN};
use guira_sync::hint;

use crate::{
    context::{Context, Lookup, Outcome, Shortage},
    direct::{self, STAGE_LEN},
    element::Slot,
    element_ops::{drop_reference, is_plain, plain_hit, refer},
    heap::ClassId,
    partition::{Partition, after_set},
    pin::Pin,
    shards::{Held, Shards},
};

/// Requests whose outcomes are kept at a time.
const WINDOW_LEN: usize = 1_024;
const _: () = assert!(WINDOW_LEN <= u16::MAX as usize, "their numbers have 16 bits");

/// Longest value that is copied while its partition is held, in bytes: a few cache lines. A longer one is given a reference.
const COPIED_LEN_MAX: usize = 256;

/// Bytes of values written after which a partition's turn is cut short and goes on later: some ten microseconds of copying, so that
/// large values in one batch do not keep others waiting for all of them.
const HELD_LEN_MAX: usize = 64 << 10;

/// Times that room is made elsewhere in one turn, before what is left of the batch waits to be answered one by one.
const ROOM_TRIES: usize = 4;

/// What came of a request; what is long is kept elsewhere.
#[derive(Clone, Copy)]
enum Done {
    /// Nothing yet: there was no memory for it, or for one before it.
    Pending,
    /// All: its reference has been given back, or away.
    Answered,
    /// A plain read whose value has been copied to `values`, from byte `at` on.
    Read { cas: u64, flags: u32, value_len: u32, class: u32, at: u32 },
    /// A read, with its hit's number, whose value has been copied to `values`, from byte `at` on.
    Copied { hit: u32, at: u32 },
    /// A read, with its hit's number, whose element has a reference.
    Referred { hit: u32, slot: Slot },
    /// A read that wants no value, with its hit's number.
    Metadata(u32),
    /// A set of a new value in the place of the one that was there.
    Set { cas: u64, class: u32, value_len: u32, expiry: Expiry },
    /// A plain read that found nothing.
    Miss(Option<Death>),
    /// Another answer, with its number.
    Answer(u32),
}

/// A partition's turn: its requests lie together in the batch's order.
#[derive(Clone)]
struct Turn {
    partition: usize,
    /// Where those lie that have not been carried out.
    range: Range<usize>,
}

/// How a partition's turn ended.
enum Ended {
    /// All its requests are carried out.
    Done,
    /// Others may want the partition before the rest is.
    CutShort,
    /// There is no memory for the next one.
    OutOfMemory,
}

/// What a thread keeps of the requests of a window.
pub(crate) struct Batch {
    /// The partition that comes first: another one for each client, so that they do not follow on each other's heels.
    first: usize,
    hashes: Vec<u64>,
    /// The requests' numbers, by partition, from the first one on.
    order: Vec<u16>,
    /// Where each partition's requests end in `order`, from the first one on.
    ends: Vec<u16>,
    done: Vec<Done>,
    /// Values, hits and answers, in no order.
    values: Vec<u8>,
    hits: Vec<(Option<Death>, Hit)>,
    answers: Vec<(Option<Death>, Answer, Footprints)>,
    /// What comes later: turns of partitions that somebody else had, and what is left of turns that were cut short.
    postponed: Vec<Turn>,
}

impl Batch {
    pub fn new(client: usize, partitions: usize) -> Self {
        Self {
            first: client * ((partitions / 2) | 1) % partitions,
            hashes: Vec::with_capacity(WINDOW_LEN),
            order: Vec::with_capacity(WINDOW_LEN),
            ends: vec![0; partitions],
            done: Vec::with_capacity(WINDOW_LEN),
            values: Vec::new(),
            hits: Vec::new(),
            answers: Vec::new(),
            postponed: Vec::with_capacity(partitions),
        }
    }

    /// Carries out requests and answers them.
    pub fn carry_out<H: Shards + 'static, S: Sink>(
        &mut self,
        shards: &Arc<H>,
        now: Time,
        requests: &[Request<'_>],
        sink: &mut S,
    ) {
        for (number, requests) in requests.chunks(WINDOW_LEN).enumerate() {
            self.sort(&**shards, requests);
            let mut window = Window { batch: self, shards, now, answered: 0 };
            window.carry_out(requests);
            window.answer(requests, number * WINDOW_LEN, sink);
        }
    }

    /// Sorts requests by partition: by counting, since partitions are few.
    fn sort<H: Shards>(&mut self, shards: &H, requests: &[Request<'_>]) {
        let common = shards.common();
        self.hashes.clear();
        self.hashes.extend(requests.iter().map(|request| common.hash(request.key.as_bytes())));
        self.order.resize(requests.len(), 0);
        let (first, mask) = (self.first, self.ends.len() - 1);
        let turn = |hash: &u64| common.partition(*hash).wrapping_sub(first) & mask;
        self.ends.fill(0);
        self.hashes.iter().for_each(|hash| self.ends[turn(hash)] += 1);
        let mut begin = 0;
        for end in &mut self.ends {
            (*end, begin) = (begin, begin + *end);
        }
        for (number, hash) in self.hashes.iter().enumerate() {
            let at = &mut self.ends[turn(hash)];
            self.order[usize::from(*at)] = number as u16;
            *at += 1;
        }
        self.postponed.clear();
        self.values.clear();
        self.done.clear();
        self.done.resize(requests.len(), Done::Pending);
        self.hits.clear();
        self.answers.clear();
    }

    /// Keeps what a plain read finds until it is its turn.
    #[inline]
    fn read(&mut self, cx: &Context<'_>, number: usize, slot: Slot) {
        let header = cx.chunks.header(slot);
        let (cas, flags) = (cx.settings.shown(header.version.get()), header.flags.get());
        let (value_len, class) = (header.value_len.get(), ClassId(header.class.get()).number());
        if let Some(at) = self.copy(cx, slot) {
            self.done[number] = Done::Read { cas, flags, value_len, class, at };
        } else {
            let hit = plain_hit(cx, slot);
            self.keep(cx, number, None, Outcome::Hit(hit, slot));
        }
    }

    /// Keeps what came of any other operation until it is its turn.
    fn keep(&mut self, cx: &Context<'_>, number: usize, death: Option<Death>, outcome: Outcome) {
        let hit = self.hits.len() as u32;
        self.done[number] = match outcome {
            Outcome::Hit(found, slot) => {
                self.hits.push((death, found));
                let copied = self.copy(cx, slot).map(|at| Done::Copied { hit, at });
                copied.unwrap_or_else(|| {
                    refer(cx, slot);
                    Done::Referred { hit, slot }
                })
            }
            Outcome::Metadata(found) => {
                self.hits.push((death, found));
                Done::Metadata(hit)
            }
            Outcome::Answer(answer, items) => {
                self.answers.push((death, answer, items));
                Done::Answer(self.answers.len() as u32 - 1)
            }
        };
    }

    /// Copies a short value; returns where it begins in `values`.
    #[inline]
    fn copy(&mut self, cx: &Context<'_>, slot: Slot) -> Option<u32> {
        let header = cx.chunks.header(slot);
        if header.value_len.get() as usize > COPIED_LEN_MAX || header.is_large() {
            return None;
        }
        let at = self.values.len() as u32;
        self.values.extend_from_slice(cx.chunks.memory.body(slot).value());
        Some(at)
    }

    /// One of the turns, of which there are as many as partitions.
    fn turn(&self, number: usize) -> Turn {
        let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        Turn { partition: (self.first + number) & (self.ends.len() - 1), range: begin.into()..self.ends[number].into() }
    }

    /// The hash key at a place in the order.
    #[inline]
    fn hash_at(&self, at: usize) -> Option<u64> {
        self.order.get(at).map(|number| self.hashes[usize::from(*number)])
    }
}

/// A window of requests; the references that are left when it is dropped are given back.
struct Window<'w, H: Shards> {
    batch: &'w mut Batch,
    shards: &'w Arc<H>,
    now: Time,
    /// Requests that have been answered.
    answered: usize,
}

impl<H: Shards> Drop for Window<'_, H> {
    fn drop(&mut self) {
        for number in self.answered..self.batch.done.len() {
            if let Done::Referred { slot, .. } = self.batch.done[number] {
                self.give_back(number, slot);
            }
        }
    }
}

impl<'w, H: Shards + 'static> Window<'w, H> {
    /// Carries all requests out for which there is memory.
    fn carry_out(&mut self, requests: &[Request<'_>]) {
        let (common, batch) = (self.shards.common(), &*self.batch);
        let ahead = |stages: usize| (0..stages * STAGE_LEN).filter_map(|at| batch.hash_at(at));
        ahead(3).for_each(|hash| common.prefetch_bucket(hash));
        ahead(2).for_each(|hash| common.prefetch_element(hash));
        for number in 0..self.batch.ends.len() {
            self.ask_for_partition(number + 1);
            let mut turn = self.batch.turn(number);
            if turn.range.is_empty() {
                continue;
            }
            match self.try_turn(requests, &mut turn) {
                Some(Ended::Done) => {}
                Some(Ended::OutOfMemory) => return,
                Some(Ended::CutShort) | None => self.batch.postponed.push(turn),
            }
        }
        // Whichever of the others is free first comes first.
        let (mut next, mut round) = (0, 0);
        while let Some(mut turn) = self.batch.postponed.get(next).cloned() {
            match self.try_turn(requests, &mut turn) {
                Some(Ended::Done) => {
                    self.batch.postponed.swap_remove(next);
                    round = 0;
                }
                Some(Ended::OutOfMemory) => return,
                Some(Ended::CutShort) => {
                    self.batch.postponed[next] = turn;
                    (next, round) = (next + 1, 0);
                }
                None => next += 1,
            }
            if next >= self.batch.postponed.len() {
                next = 0;
                hint::spin(&mut round);
            }
        }
    }

    /// Carries out requests of a turn, if nobody else has the partition; takes those that it has carried out from the turn's range.
    /// Without memory this batch may have references to what keeps it from finding some, and takes no more: all that is left waits
    /// to be answered.
    fn try_turn(&mut self, requests: &[Request<'_>], turn: &mut Turn) -> Option<Ended> {
        let shards = &**self.shards;
        let mut held = shards.try_hold(turn.partition)?;
        for tries in 0..=ROOM_TRIES {
            let Some(shortage) = self.carry_out_at(held, requests, &mut turn.range) else {
                return Some(if turn.range.is_empty() { Ended::Done } else { Ended::CutShort });
            };
            // Memory may be with other partitions, of which one is held at a time.
            if tries == ROOM_TRIES || !shards.make_room(shards.group_of(turn.partition), self.now, shortage) {
                break;
            }
            held = shards.hold(turn.partition);
        }
        Some(Ended::OutOfMemory)
    }

    /// Asks for the partition whose turn comes next, if there is anything to do there.
    fn ask_for_partition(&self, number: usize) {
        if number < self.batch.ends.len() {
            let turn = self.batch.turn(number);
            if !turn.range.is_empty() {
                direct::prefetch_partition(&**self.shards, turn.partition);
            }
        }
    }

    /// Carries out requests to a partition that is held, until that is long enough or there is no memory; takes those that it has
    /// carried out from `range`.
    fn carry_out_at(
        &mut self,
        mut held: H::Held<'_>,
        requests: &[Request<'_>],
        range: &mut Range<usize>,
    ) -> Option<Shortage> {
        // SAFETY: the partition is held.
        let cx = unsafe { self.shards.common().context(self.now) };
        let (partition, supply) = held.parts();
        let behind = range.clone().take(STAGE_LEN).filter_map(|at| self.batch.hash_at(at));
        behind.for_each(|hash| partition.prefetch_behind_first(&cx, hash));
        let written = partition.written();
        while range.start < range.end && partition.written() - written < HELD_LEN_MAX as u64 {
            let at = range.start;
            self.ask_ahead(&cx, partition, at, range.end);
            let number = usize::from(self.batch.order[at]);
            let (request, hash) = (&requests[number], self.batch.hashes[number]);
            // Each outcome is written where it belongs at once: one that is put together first and moved then is read before it
            // has left the core's store buffer, behind all that this thread has written and the memory does not have yet.
            match &request.operation {
                Operation::Get(get) if is_plain(get) => match partition.lookup(&cx, supply, hash) {
                    Lookup::Hit(slot) if cx.chunks.memory.body(slot).key() == request.key.as_bytes() => {
                        if get.bump {
                            partition.use_element(&cx, slot);
                        }
                        self.batch.read(&cx, number, slot);
                    }
                    Lookup::Hit(_) => self.batch.done[number] = Done::Miss(None),
                    Lookup::Miss(death) => self.batch.done[number] = Done::Miss(death),
                },
                Operation::Store(store)
                    if let Some((cas, before)) = partition.set_in_place(&cx, hash, request.key.as_bytes(), store) =>
                {
                    let Footprint { class, value_len, expiry } = before;
                    self.batch.done[number] = Done::Set { cas, class, value_len: value_len as u32, expiry };
                }
                _ => match partition.execute(&cx, supply, hash, request, &mut None) {
                    Ok((death, outcome)) => self.batch.keep(&cx, number, death, outcome),
                    Err(shortage) => return Some(shortage),
                },
            }
            range.start += 1;
        }
        None
    }

    /// Asks for what the next requests will need, in three stages: see [`direct::carry_out`].
    #[inline]
    fn ask_ahead(&self, cx: &Context<'_>, partition: &Partition, at: usize, end: usize) {
        let (common, batch) = (self.shards.common(), &*self.batch);
        let ahead = |stages: usize| batch.hash_at(at + stages * STAGE_LEN);
        ahead(3).inspect(|hash| common.prefetch_bucket(*hash));
        ahead(2).inspect(|hash| common.prefetch_element(*hash));
        if at + STAGE_LEN < end {
            ahead(1).inspect(|hash| partition.prefetch_behind_first(cx, *hash));
        }
    }

    /// Answers all requests in their order, carrying out what has not been.
    fn answer<S: Sink>(&mut self, requests: &[Request<'_>], index: usize, sink: &mut S) {
        for (number, request) in requests.iter().enumerate() {
            let index = index + number;
            match self.batch.done[number] {
                Done::Read { cas, flags, value_len, class, at } => {
                    let hit = Hit { flags, cas, value_len: value_len as usize, class, ..Hit::default() };
                    self.answer_copied(&hit, at, index, sink);
                }
                Done::Set { cas, class, value_len, expiry } => {
                    let Operation::Store(store) = &request.operation else { unreachable!("a set is a store") };
                    let before = Some(Footprint { class, value_len: value_len as usize, expiry });
                    let items = Footprints { before, after: Some(after_set(store, class)) };
                    sink.answer_change(index, Answer::Stored { cas }, &items);
                }
                Done::Miss(death) => {
                    if let Some(death) = death {
                        sink.found_dead(index, death);
                    }
                    sink.answer(index, Answer::Miss);
                }
                Done::Answer(answer) => {
                    let (death, answer, items) = &self.batch.answers[answer as usize];
                    if let Some(death) = death {
                        sink.found_dead(index, *death);
                    }
                    sink.answer_change(index, *answer, items);
                }
                Done::Copied { hit, at } => {
                    let hit = self.hit(hit, index, sink);
                    self.answer_copied(&hit, at, index, sink);
                }
                Done::Referred { hit, slot } => {
                    let hit = self.hit(hit, index, sink);
                    self.answer_referred(number, &hit, slot, index, sink);
                }
                Done::Metadata(hit) => {
                    let hit = self.hit(hit, index, sink);
                    sink.metadata(index, &hit);
                }
                Done::Answered => unreachable!("each request is answered once"),
                Done::Pending => {
                    direct::carry_out_one(self.shards, self.now, self.batch.hashes[number], request, index, sink);
                }
            }
            self.answered = number + 1;
        }
    }

    /// What a read found; what lay there dead is told of.
    fn hit<S: Sink>(&self, hit: u32, index: usize, sink: &mut S) -> Hit {
        let (death, hit) = self.batch.hits[hit as usize];
        if let Some(death) = death {
            sink.found_dead(index, death);
        }
        hit
    }

    #[inline]
    fn answer_copied<S: Sink>(&self, hit: &Hit, at: u32, index: usize, sink: &mut S) {
        let value = &self.batch.values[at as usize..][..hit.value_len];
        sink.reserve(index, hit)[VALUE_SLACK_LEN..][..value.len()].copy_from_slice(value);
        sink.commit(index, hit);
    }

    /// Answers a read whose element has a reference, and gives that back, or to whoever sends the value.
    fn answer_referred<S: Sink>(&mut self, number: usize, hit: &Hit, slot: Slot, index: usize, sink: &mut S) {
        let (memory, hash) = (&self.shards.common().memory, self.batch.hashes[number]);
        let first = memory.first_piece(slot);
        if first != Slot::NONE {
            // Whoever sends the value has the reference now.
            self.batch.done[number] = Done::Answered;
            let pin = Pin::new(Arc::clone(self.shards), slot, hash, first, hit.value_len);
            return sink.pinned(index, hit, Box::new(pin));
        }
        let value = memory.body(slot).value();
        sink.reserve(index, hit)[VALUE_SLACK_LEN..][..value.len()].copy_from_slice(value);
        sink.commit(index, hit);
        self.batch.done[number] = Done::Answered;
        self.give_back(number, slot);
    }
}

impl<H: Shards> Window<'_, H> {
    /// Gives the reference of a request's element back.
    fn give_back(&self, number: usize, slot: Slot) {
        let common = self.shards.common();
        let mut held = self.shards.hold(common.partition(self.batch.hashes[number]));
        let (_, supply) = held.parts();
        // SAFETY: the partition is held.
        drop_reference(&unsafe { common.context(self.now) }, supply, slot);
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
