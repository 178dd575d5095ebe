//! A station: a partition with its heap and the rings of all its clients. Whoever has it serves what clients have sent: the server
//! thread it is assigned to as a rule, and a client that would otherwise wait for a server that sleeps.
//!
//! Always true: a message is served once, in its ring's order; one is taken only if there is room for its reply, so that a client
//! that does not fetch its replies is served no further, and nothing is lost.

use guira_sync::{
    prefetch, prefetch_to_write,
    ring::{Consumer, Producer},
};

use crate::{
    context::{Context, Lookup, Outcome, Shortage},
    element::Slot,
    element_ops::{drop_reference, refer},
    group::Group,
    heap::Heap,
    message::{self, Call},
    partition::Partition,
};

/// Words of a ring whose cache lines are asked for at a time: two lines of messages.
const PIPELINE_LEN: usize = 16;

/// Times that pages are emptied for one message; more are emptied while nobody has the station.
const ROOM_TRIES: usize = 4;

/// What a client has at a station.
pub(crate) struct Seat {
    pub client: usize,
    pub requests: Consumer,
    pub replies: Producer,
    /// The client has to do something before it is served on.
    pub is_stalled: bool,
}

/// Ends the process if messages are not served to the end: a panic there is a bug, it has been told, and whoever waits for a
/// reply would wait for ever.
struct EndsWithAll;

impl Drop for EndsWithAll {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// A partition and those it is there for.
pub(crate) struct Station {
    pub number: usize,
    pub partition: Partition,
    pub heap: Heap,
    pub seats: Vec<Seat>,
    /// What was read since the order of use was last brought up to date, by hash key.
    used: Vec<(Slot, u64)>,
}

impl Station {
    pub fn new(number: usize, seed: u64) -> Self {
        let (partition, heap) = (Partition::new(number, seed), Heap::new(number as u16));
        Self { number, partition, heap, seats: Vec::new(), used: Vec::with_capacity(PIPELINE_LEN) }
    }

    /// The partition as a group of its own.
    pub fn with_group<R>(&mut self, work: impl FnOnce(&mut Group<'_>) -> R) -> R {
        let Self { number, partition, heap, .. } = self;
        work(&mut Group { heap, partitions: &mut [partition], first: *number })
    }

    /// Serves what has come so far; returns how many messages that was.
    pub fn serve(&mut self, cx: &Context<'_>) -> usize {
        let all_or_nothing = EndsWithAll;
        let mut seats = std::mem::take(&mut self.seats);
        let mut served = 0;
        let mut someone_left = false;
        for seat in &mut seats {
            match self.serve_seat(cx, seat) {
                0 => someone_left |= seat.requests.is_abandoned(),
                some => served += some,
            }
        }
        if someone_left {
            seats.retain_mut(|seat| !seat.requests.is_abandoned());
        }
        self.seats = seats;
        std::mem::forget(all_or_nothing);
        served
    }

    fn serve_seat(&mut self, cx: &Context<'_>, seat: &mut Seat) -> usize {
        let mut served = 0;
        // What is there now and not what comes meanwhile: others wait too.
        let may_begin = !seat.is_stalled && seat.replies.has_room(1);
        let mut left = if may_begin { seat.requests.available() } else { 0 };
        while left > 0 {
            let batch = left.min(PIPELINE_LEN);
            self.prefetch(cx, seat, batch);
            let end = left - batch;
            let mut may_go_on = true;
            while left > end && may_go_on {
                left = left.saturating_sub(self.serve_message(cx, seat));
                served += 1;
                may_go_on = !seat.is_stalled && seat.replies.has_room(1);
            }
            for (slot, hash) in self.used.drain(..) {
                self.partition.bump(cx, slot, hash);
            }
            if !may_go_on {
                break;
            }
        }
        seat.replies.flush();
        served
    }

    /// Asks for what the next words of a ring will need. A second word is taken for a first one here, and asks for something that
    /// nobody needs.
    #[inline]
    fn prefetch(&self, cx: &Context<'_>, seat: &Seat, words: usize) {
        let memory = cx.chunks.memory;
        let hash_of = |ahead: usize| match message::open(seat.requests.peek(ahead)?) {
            (message::LOOKUP | message::INSERT, hash) => Some(hash),
            (message::CALL, _) => seat.requests.peek(ahead + 1),
            (_, slot) => {
                prefetch_to_write(memory.address(Slot(slot as u32)));
                None
            }
        };
        for ahead in 0..words {
            if let Some(hash) = hash_of(ahead) {
                prefetch(memory.buckets.address(self.number, hash));
            }
        }
        for ahead in 0..words {
            if let Some(hash) = hash_of(ahead)
                && let Some(slot) = memory.buckets.hint(self.number, hash)
            {
                prefetch_to_write(memory.address(slot));
            }
        }
    }

    /// Serves the next message, which is there; returns its words.
    #[inline]
    fn serve_message(&mut self, cx: &Context<'_>, seat: &mut Seat) -> usize {
        let first = seat.requests.take().expect("a message is there");
        let mut second = || seat.requests.take().expect("messages are shown whole");
        let (kind, content) = message::open(first);
        match kind {
            message::LOOKUP => {
                let lookup = self.partition.lookup(cx, &mut self.heap, content);
                if let Lookup::Hit(slot) = lookup {
                    refer(cx, slot);
                    self.partition.note_read(cx, slot);
                    self.used.push((slot, content));
                }
                reply(seat, message::lookup_reply(lookup));
                1
            }
            message::DECREF => {
                drop_reference(cx, &mut self.heap, Slot(content as u32));
                1
            }
            message::INSERT => {
                let (key_len, value_len) = message::open_lens(second());
                reply(seat, message::insert_reply(self.insert(cx, key_len, value_len)));
                2
            }
            message::CALL => {
                let hash = second();
                // SAFETY: the word came from a client that waits for the reply.
                let call = unsafe { Call::of(first) };
                seat.is_stalled = !self.call(cx, call, hash);
                reply(seat, if seat.is_stalled { message::STALLED } else { message::DONE });
                2
            }
            _ => unreachable!("no client says {first:#x}"),
        }
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

    /// Carries out a call; false if there is no memory for it. What is found for its value has a reference then.
    fn call(&mut self, cx: &Context<'_>, call: &Call, hash: u64) -> bool {
        let mut filled = call.filled.take();
        // SAFETY: the client waits.
        let request = unsafe { call.request() };
        let mut answered = self.partition.execute(cx, &mut self.heap, hash, request, &mut filled);
        for _ in 0..ROOM_TRIES {
            let Err(shortage) = answered else { break };
            if !self.make_room(cx, shortage) {
                break;
            }
            answered = self.partition.execute(cx, &mut self.heap, hash, request, &mut filled);
        }
        if let Ok((_, Outcome::Hit(_, slot))) = &answered {
            refer(cx, *slot);
        }
        let is_done = answered.is_ok();
        call.answer.set(Some(answered));
        is_done
    }
}

#[inline]
fn reply(seat: &mut Seat, word: u64) {
    seat.replies.put([word]).expect("there was room for the reply");
}
