//! A station: a partition with its heap and the rings of all its clients. Whoever has it serves what clients have sent: the server
//! thread it is assigned to as a rule, and a client that would otherwise wait for a server that sleeps.
//!
//! Always true: a message is served once, in its ring's order; one is taken only if there is room for its reply, so that a client
//! that does not fetch its replies is served no further, and nothing is lost.

use std::collections::VecDeque;

use guira_item::{Expiry, Key, Operation, Request, Store, StoreMode};
use guira_sync::{
    cycles, prefetch, prefetch_to_write,
    ring::{Consumer, Producer},
};

use crate::{
    context::{Context, Lookup, Outcome, Shortage},
    element::Slot,
    element_ops::{drop_reference, refer},
    group::Group,
    heap::Heap,
    message::{self, Answered, CONTENT_LEN_MAX, Call, SetAnswer, SetHead, Stalled},
    partition::Partition,
};

/// Messages in each stage of the pipeline: while some are served, the memory brings what the next ones need.
const STAGE_LEN: usize = 8;

/// Stages before a message is served.
const STAGES: usize = 3;

/// Words of reply to a message, at most.
const REPLY_WORDS: usize = 2;

/// Times that pages are emptied for one message; more are emptied while nobody has the station.
const ROOM_TRIES: usize = 4;

/// What a client has at a station.
pub(crate) struct Seat {
    pub client: usize,
    pub requests: Consumer,
    pub replies: Producer,
    /// The client has to do something before it is served on.
    pub is_stalled: bool,
    /// References that lookups have given the client, in their order, and that it has not given back: those of two windows at most.
    handed: VecDeque<Slot>,
}

impl Seat {
    pub fn new(client: usize, requests: Consumer, replies: Producer) -> Self {
        Self { client, requests, replies, is_stalled: false, handed: VecDeque::new() }
    }

    /// The first so many references have been given back: all of them are not needed any more, in whatever order the client's
    /// releases come here.
    fn release(&mut self, cx: &Context<'_>, heap: &mut Heap, count: usize) {
        for number in 0..count {
            if let Some(ahead) = self.handed.get(STAGE_LEN) {
                prefetch_to_write(cx.chunks.memory.address(*ahead));
            }
            let slot = self.handed.pop_front();
            let slot = slot.unwrap_or_else(|| panic!("a client gives back {count} references and had {number}"));
            drop_reference(cx, heap, slot);
        }
    }
}

/// Ends the process if messages are not served to the end: a panic there is a bug, it has been told, and whoever waits for a
/// reply would wait for ever.
struct EndsWithAll;

impl Drop for EndsWithAll {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// A partition and those it is there for. What most operations need comes first, with the lock.
#[repr(C)]
pub(crate) struct Station {
    pub partition: Partition,
    pub heap: Heap,
    pub number: usize,
    pub seats: Vec<Seat>,
    /// Key and value of a Set.
    content: Box<[u8]>,
    served: Served,
}

/// What has been served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Served {
    /// Messages: lookups, inserts, sets, calls, and references given back.
    pub messages: u64,
    /// Turns in which there was something to serve: a client's messages of one partition.
    pub turns: u64,
    /// Time spent on them, by [`guira_sync::cycles`].
    pub cycles: u64,
}

impl std::ops::AddAssign for Served {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.turns += other.turns;
        self.cycles += other.cycles;
    }
}

/// How far a stage of the pipeline is ahead of what is served.
#[derive(Clone, Copy, Default)]
struct Ahead {
    messages: usize,
    words: usize,
}

impl Ahead {
    #[inline]
    fn served(&mut self, words: usize) {
        self.messages = self.messages.saturating_sub(1);
        self.words = self.words.saturating_sub(words);
    }
}

impl Station {
    pub fn new(number: usize, seed: u64) -> Self {
        let (partition, heap) = (Partition::new(number, seed), Heap::new(number as u16));
        let (seats, content, served) = (Vec::new(), vec![0; CONTENT_LEN_MAX].into(), Served::default());
        Self { partition, heap, number, seats, content, served }
    }

    /// What server threads have served so far.
    pub fn served(&self) -> Served {
        self.served
    }

    /// Counts what a server thread has served.
    pub fn count(&mut self, served: Served) {
        self.served += served;
    }

    /// The partition as a group of its own.
    pub fn with_group<R>(&mut self, work: impl FnOnce(&mut Group<'_>) -> R) -> R {
        let Self { number, partition, heap, .. } = self;
        work(&mut Group { heap, partitions: &mut [partition], first: *number })
    }

    /// Serves what has come so far.
    pub fn serve(&mut self, cx: &Context<'_>) -> Served {
        let all_or_nothing = EndsWithAll;
        let mut seats = std::mem::take(&mut self.seats);
        let mut served = Served::default();
        let mut someone_left = false;
        for seat in &mut seats {
            let of_seat = self.serve_seat(cx, seat);
            someone_left |= of_seat.messages == 0 && seat.requests.is_abandoned();
            served += of_seat;
        }
        if someone_left {
            seats.retain_mut(|seat| {
                let has_left = seat.requests.is_abandoned();
                if has_left {
                    debug_assert!(seat.handed.is_empty(), "a client gives back what it has before it goes");
                    seat.release(cx, &mut self.heap, seat.handed.len());
                }
                !has_left
            });
        }
        self.seats = seats;
        std::mem::forget(all_or_nothing);
        served
    }

    fn serve_seat(&mut self, cx: &Context<'_>, seat: &mut Seat) -> Served {
        // What is there now and not what comes meanwhile: others wait too.
        let may_begin = !seat.is_stalled && seat.replies.has_room(REPLY_WORDS);
        let mut left = if may_begin { seat.requests.available() } else { 0 };
        if left == 0 {
            return Served::default();
        }
        let begin = cycles();
        let mut messages = 0;
        let mut ahead = [Ahead::default(); STAGES];
        let mut may_go_on = true;
        while left > 0 && may_go_on {
            self.ask_ahead(cx, seat, &mut ahead, left);
            let words = self.serve_message(cx, seat);
            messages += 1;
            left -= words;
            ahead.iter_mut().for_each(|stage| stage.served(words));
            may_go_on = !seat.is_stalled && seat.replies.has_room(REPLY_WORDS);
        }
        seat.replies.flush();
        Served { messages, turns: 1, cycles: cycles().saturating_sub(begin) }
    }

    /// Asks for what the next messages will need: for the buckets of those three stages away, for the elements to which the buckets
    /// lead that have come meanwhile, two stages away, and for what comes behind those, one stage away. A little before each
    /// message: a core waits for a dozen lines at a time, and would stand still for more.
    #[inline]
    fn ask_ahead(&self, cx: &Context<'_>, seat: &Seat, [buckets, elements, others]: &mut [Ahead; STAGES], left: usize) {
        let memory = cx.chunks.memory;
        go_ahead(seat, buckets, 3, left, |_, hash| prefetch(memory.buckets.address(self.number, hash)));
        go_ahead(seat, elements, 2, left, |kind, hash| {
            if let Some(slot) = memory.buckets.hint(self.number, hash) {
                // Its key is left to the client by a lookup.
                if kind == message::LOOKUP {
                    prefetch_to_write(memory.address(slot));
                } else {
                    memory.prefetch_element(slot);
                }
            }
        });
        go_ahead(seat, others, 1, left, |_, hash| self.partition.prefetch_behind_first(cx, hash));
    }

    /// Serves the next message, which is there; returns its words.
    #[inline]
    fn serve_message(&mut self, cx: &Context<'_>, seat: &mut Seat) -> usize {
        let first = seat.requests.take().expect("a message is there");
        let mut next = || seat.requests.take().expect("messages are shown whole");
        let (kind, content) = message::open(first);
        match kind {
            message::LOOKUP => {
                let lookup = self.partition.lookup(cx, &mut self.heap, content);
                if let Lookup::Hit(slot) = lookup {
                    refer(cx, slot);
                    seat.handed.push_back(slot);
                    self.partition.use_element(cx, slot);
                }
                reply(seat, &[message::lookup_reply(lookup)]);
                1
            }
            message::DECREF => {
                drop_reference(cx, &mut self.heap, Slot(content as u32));
                1
            }
            message::RELEASE => {
                seat.release(cx, &mut self.heap, content as usize);
                1
            }
            message::INSERT => {
                let (key_len, value_len) = message::open_lens(next());
                reply(seat, &[message::insert_reply(self.insert(cx, key_len, value_len))]);
                2
            }
            message::SET => {
                let head = SetHead::open(next());
                let expiry = if head.expires { Expiry::from_raw(next() as u32) } else { Expiry::NEVER };
                let content_len = head.key_len + head.value_len;
                let in_words = self.content[..content_len.next_multiple_of(size_of::<u64>())].as_chunks_mut().0;
                in_words.iter_mut().for_each(|bytes| *bytes = next().to_le_bytes());
                let answer = self.set(cx, content, head, expiry);
                seat.is_stalled = answer.is_err();
                reply(seat, &message::set_reply(answer));
                head.words()
            }
            message::CALL => {
                let hash = next();
                // SAFETY: the word came from a client that waits for the reply.
                let call = unsafe { Call::of(first) };
                seat.is_stalled = !self.call(cx, call, hash);
                reply(seat, &[if seat.is_stalled { message::STALLED } else { message::DONE }]);
                2
            }
            _ => unreachable!("no client says {first:#x}"),
        }
    }

    /// Stores a value that came with its message.
    #[inline]
    fn set(&mut self, cx: &Context<'_>, hash: u64, head: SetHead, expiry: Expiry) -> SetAnswer {
        let content = std::mem::take(&mut self.content);
        let (key, value) = content[..head.key_len + head.value_len].split_at(head.key_len);
        let (mode, cas, vivify) = (StoreMode::Set, None, None);
        let store = Store { mode, flags: head.flags, expiry, cas, vivify, value };
        let request = Request { key: Key::new(key).expect("the client had a key"), operation: Operation::Store(store) };
        let executed = self.execute(cx, hash, &request, &mut None);
        self.content = content;
        let (death, outcome) = executed.map_err(|_| Stalled)?;
        let Outcome::Answer(answer, items) = outcome else { unreachable!("a set reads nothing") };
        Ok((death, answer, items.before))
    }

    /// A client gives references back at once, not by message.
    pub fn release(&mut self, cx: &Context<'_>, client: usize, count: usize) {
        let Self { seats, heap, .. } = self;
        let seat = seats.iter_mut().find(|seat| seat.client == client);
        seat.expect("a client has a seat as long as it lives").release(cx, heap, count);
    }

    /// Serves a client again that has done what stalled it.
    pub fn resume(&mut self, client: usize) {
        self.seats.iter_mut().filter(|seat| seat.client == client).for_each(|seat| seat.is_stalled = false);
    }

    /// An element for a client to fill; `None` if there is no memory here, or it would be larger than the largest.
    fn insert(&mut self, cx: &Context<'_>, key_len: usize, value_len: usize) -> Option<Slot> {
        let shape = cx.settings.shape(key_len, value_len)?;
        for _ in 0..ROOM_TRIES {
            match self.partition.allocate_element(cx, &mut self.heap, shape, value_len) {
                Ok(slot) => return Some(slot),
                Err(shortage) if self.make_room(cx, shortage) => {}
                Err(_) => return None,
            }
        }
        None
    }

    fn make_room(&mut self, cx: &Context<'_>, shortage: Shortage) -> bool {
        self.with_group(|group| group.make_room(cx, shortage)) > 0
    }

    /// Carries out an operation, with room made for it here.
    #[inline]
    fn execute(&mut self, cx: &Context<'_>, hash: u64, request: &Request<'_>, filled: &mut Option<Slot>) -> Answered {
        let mut answered = self.partition.execute(cx, &mut self.heap, hash, request, filled);
        for _ in 0..ROOM_TRIES {
            let Err(shortage) = answered else { break };
            if !self.make_room(cx, shortage) {
                break;
            }
            answered = self.partition.execute(cx, &mut self.heap, hash, request, filled);
        }
        answered
    }

    /// Carries out a call; false if there is no memory for it. What is found for its value has a reference then.
    fn call(&mut self, cx: &Context<'_>, call: &Call, hash: u64) -> bool {
        let mut filled = call.filled.take();
        // SAFETY: the client waits.
        let request = unsafe { call.request() };
        let answered = self.execute(cx, hash, request, &mut filled);
        if let Ok((_, Outcome::Hit(_, slot))) = &answered {
            refer(cx, *slot);
        }
        let is_done = answered.is_ok();
        call.answer.set(Some(answered));
        is_done
    }
}

/// Goes on to the message that is so many stages ahead, of those in the next `left` words; `ask` is called with kind and hash key
/// of those on the way that have one.
#[inline]
fn go_ahead(seat: &Seat, at: &mut Ahead, stages: usize, left: usize, ask: impl Fn(u64, u64)) {
    let word = |at: usize| seat.requests.peek(at).unwrap_or_default();
    while at.messages < stages * STAGE_LEN && at.words < left {
        let (first, second) = (word(at.words), || word(at.words + 1));
        match message::open(first) {
            (kind @ (message::LOOKUP | message::INSERT | message::SET), hash) => ask(kind, hash),
            (message::CALL, _) => ask(message::CALL, second()),
            _ => {}
        }
        at.words += message::words(first, second);
        at.messages += 1;
    }
}

#[inline]
fn reply(seat: &mut Seat, words: &[u64]) {
    seat.replies.put(words).expect("there was room for the reply");
}
