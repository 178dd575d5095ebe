//! A batch of requests carried out partition by partition: what a client does that no server thread serves. Each partition is held
//! once for all of a batch's requests to it, so that what its operations share, the ends of the order of use above all, changes
//! cores once a batch and not with every request; a partition that somebody else has comes later.
//!
//! ```text
//! sort by partition -> partition by partition: carry out, keep what came of it -> request by request: answer
//! ```
//! Always true: requests to one partition take effect in their order; answers are given in the requests' order, while no partition
//! is held; an element whose value has not been copied yet has a reference until it is, or until the batch is unwound.

use std::sync::Arc;

use guira_item::{Answer, Death, Expiry, Footprint, Footprints, Hit, Operation, Request, Sink, Time, VALUE_SLACK_LEN};
use guira_sync::prefetch_to_write;

use crate::{
    context::{Context, Lookup, Outcome},
    direct::{self, STAGE_LEN},
    element::Slot,
    element_ops::{drop_reference, is_plain, refer},
    heap::ClassId,
    partition::{Partition, after_set},
    pin::Pin,
    shards::{Held, Shards},
};

/// Requests whose outcomes are kept at a time.
const WINDOW_LEN: usize = 1_024;

/// Longest value that is copied while its partition is held, in bytes: a few cache lines. A longer one is given a reference.
const COPIED_LEN_MAX: usize = 256;

/// What came of a request; what is long is kept elsewhere.
#[derive(Clone, Copy)]
enum Done {
    /// Nothing yet: there was no memory for it, or for one before it.
    Pending,
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

/// What a thread keeps of the requests of a window.
pub(crate) struct Batch {
    /// The partition that comes first: another one for each client, so that they do not follow on each other's heels.
    first: usize,
    hashes: Vec<u64>,
    /// The requests' numbers, by partition.
    order: Vec<u16>,
    /// Where each partition's requests end in `order`.
    ends: Vec<u16>,
    done: Vec<Done>,
    /// Values, hits and answers, in no order.
    values: Vec<u8>,
    hits: Vec<(Option<Death>, Hit)>,
    answers: Vec<(Option<Death>, Answer, Footprints)>,
    /// Partitions that somebody else had.
    postponed: Vec<usize>,
}

impl Batch {
    pub fn new(client: usize, partitions: usize) -> Self {
        Self {
            first: client * (partitions / 2 + 1) % partitions,
            hashes: Vec::with_capacity(WINDOW_LEN),
            order: vec![0; WINDOW_LEN],
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
        self.ends.fill(0);
        for request in requests {
            let hash = common.hash(request.key.as_bytes());
            self.hashes.push(hash);
            self.ends[common.partition(hash)] += 1;
        }
        let mut begin = 0;
        for end in &mut self.ends {
            (*end, begin) = (begin, begin + *end);
        }
        for (number, hash) in self.hashes.iter().enumerate() {
            let at = &mut self.ends[common.partition(*hash)];
            self.order[usize::from(*at)] = number as u16;
            *at += 1;
        }
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
            let hit = Hit { flags, cas, value_len: value_len as usize, class, ..Hit::default() };
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

    /// Where a partition's requests begin and end in `order`.
    fn range(&self, partition: usize) -> (usize, usize) {
        let begin = partition.checked_sub(1).map_or(0, |before| self.ends[before]);
        (begin.into(), self.ends[partition].into())
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

impl<H: Shards + 'static> Window<'_, H> {
    /// Carries all requests out for which there is memory.
    fn carry_out(&mut self, requests: &[Request<'_>]) {
        let partitions = self.batch.ends.len();
        let first = self.batch.first;
        for partition in (first..partitions).chain(0..first) {
            prefetch_to_write(self.shards.address((partition + 1) % partitions));
            let (begin, end) = self.batch.range(partition);
            if begin == end {
                continue;
            }
            match self.shards.try_hold(partition) {
                Some(held) => self.carry_out_at(held, requests, begin, end),
                None => self.batch.postponed.push(partition),
            }
        }
        while let Some(partition) = self.batch.postponed.pop() {
            let (begin, end) = self.batch.range(partition);
            self.carry_out_at(self.shards.hold(partition), requests, begin, end);
        }
    }

    /// Carries out the requests to a partition that is held.
    fn carry_out_at(&mut self, mut held: H::Held<'_>, requests: &[Request<'_>], begin: usize, end: usize) {
        // SAFETY: the partition is held.
        let cx = unsafe { self.shards.common().context(self.now) };
        let (partition, supply) = held.parts();
        for at in begin..end {
            self.ask_ahead(&cx, partition, at, end);
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
                    // Memory may be with other partitions, of which one is held at a time: this and what comes after it wait
                    // for their turn to be answered.
                    Err(_) => return,
                },
            }
        }
    }

    /// Asks for what the next requests will need, in three stages: see [`direct::carry_out`].
    #[inline]
    fn ask_ahead(&self, cx: &Context<'_>, partition: &Partition, at: usize, end: usize) {
        let (common, batch) = (self.shards.common(), &*self.batch);
        let hash = |at: usize| batch.hashes.get(usize::from(*batch.order.get(at)?)).copied();
        let count = batch.hashes.len();
        let ahead = |stages: usize| Some(at + stages * STAGE_LEN).filter(|at| *at < count).and_then(hash);
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
            self.batch.done[number] = Done::Pending;
            let pin = Pin::new(Arc::clone(self.shards), slot, hash, first, hit.value_len);
            return sink.pinned(index, hit, Box::new(pin));
        }
        let value = memory.body(slot).value();
        sink.reserve(index, hit)[VALUE_SLACK_LEN..][..value.len()].copy_from_slice(value);
        sink.commit(index, hit);
        self.batch.done[number] = Done::Pending;
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
