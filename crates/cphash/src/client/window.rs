//! A window of requests whose messages are under way: each is answered in order, from its reply.
//!
//! Always true: what a reply has brought is in hand, or owed back, before anything that may unwind is done with it; what a window
//! has not come to when it is dropped is given up in order.

use std::sync::Arc;

use guira_item::{Answer, Footprint, Footprints, Hit, Operation, Request, Sink, Time, VALUE_SLACK_LEN};
use guira_sync::cycles;

use super::{Sent, Worker};
use crate::{
    context::{Lookup, Outcome, Shape, Shortage},
    direct,
    element::{Parts, Slot},
    element_ops::refer,
    message::{self, Call, Stalled},
    pin::Pin,
    shards::Shards,
};

/// A window of requests in flight; what is left of it when it is dropped is given up in order.
pub(super) struct Window<'w> {
    pub worker: &'w mut Worker,
    pub now: Time,
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        self.worker.settle();
    }
}

impl Window<'_> {
    /// Answers the first `sent` of `requests`, whose messages are under way.
    pub fn answer<S: Sink>(&mut self, requests: &[Request<'_>], hashes: &[u64], index: usize, sink: &mut S) {
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
                let shape = settings.shape(key.len(), value_len);
                let class = shape.map_or(0, |shape| shape.class.number());
                let hit = Hit { flags: body.flags(), cas, value_len, class, ..Hit::default() };
                if shape.is_none_or(|shape| shape.in_pieces) {
                    // A reference of its own, since the first one goes back with the window.
                    self.worker.refer(partition, slot);
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
                let shortage = shape.map(|Shape { class, .. }| Shortage { class, pages: 1 });
                self.carry_out_stalled(shortage, request, hash, partition, index, sink);
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
            Err(shortage) => self.carry_out_stalled(Some(shortage), request, hash, partition, index, sink),
        }
    }

    fn answer_outcome<S: Sink>(&mut self, outcome: Outcome, hash: u64, partition: usize, index: usize, sink: &mut S) {
        match outcome {
            Outcome::Hit(hit, slot) => self.deliver(slot, hash, partition, &hit, index, sink),
            Outcome::Metadata(hit) => sink.metadata(index, &hit),
            Outcome::Answer(answer, items) => sink.answer_change(index, answer, &items),
        }
    }

    /// Carries out what has stalled, with room made for it anywhere: memory may be with other partitions, of which one is held at a
    /// time.
    fn carry_out_stalled<S: Sink>(
        &mut self,
        shortage: Option<Shortage>,
        request: &Request<'_>,
        hash: u64,
        partition: usize,
        index: usize,
        sink: &mut S,
    ) {
        self.worker.stalled = Some(partition);
        self.worker.release_all_at_once();
        if let Some(shortage) = shortage {
            self.worker.shared.make_room(partition, self.now, shortage);
        }
        self.carry_out(None, request, hash, partition, index, sink);
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
