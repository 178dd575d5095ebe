//! The optimistic read: finds, compares and copies without a lock and without writing, then asks whether it was disturbed.

use std::sync::Arc;

use guira_arena::Place;
use guira_cuckoo::Probe;
use guira_item::{Answer, Death, Get, Hit, Request, Sink, Time, VALUE_SLACK_LEN};

use crate::{
    engine::{Shared, Worker},
    item::{self, Header, More},
    size_classes::ClassId,
    slabs::Event,
};

/// Bytes from the start of an item within which most items lie.
const CACHE_LINE_LEN: usize = 64;

/// What a read found.
#[derive(Clone, Copy)]
enum Found {
    /// The value is in the sink.
    Value,
    /// It was there and is over.
    Dead(Death),
    /// The key is there but the read needs the lock: a large value, or marks that this read may change.
    NeedsLock,
}

impl Shared {
    /// Asks for the item that a read of the key is likely to need.
    #[inline]
    pub(crate) fn prefetch_item(&self, probe: &Probe) {
        let likely = |payload| self.arena.checked_place(payload, probe.spare_bits()).is_some();
        let hint = self.index.hint(probe, likely);
        if let Some(words) = hint.and_then(|payload| self.arena.words(self.arena.payload_place(payload))) {
            guira_cuckoo::prefetch(words.address(0));
            guira_cuckoo::prefetch(words.address(CACHE_LINE_LEN - 8));
        }
    }

    /// Answers a read that changes nothing, or hands it to `change` if it turns out to.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "the parts of one request, kept in registers")]
    pub(crate) fn get<S: Sink>(
        self: &Arc<Self>,
        worker: &mut Worker,
        now: Time,
        probe: &Probe,
        request: &Request<'_>,
        get: &Get,
        index: usize,
        sink: &mut S,
    ) {
        // Beside what the closure returns: that is moved several times, and the moves wait for what has just been written.
        let (mut hit, mut found_header, mut found_place) = (Hit::default(), Header(0), Place(0));
        let found = self.index.read_unlocked(probe, |payload| {
            let (place, words, header) = self.item_of_key(payload, probe, request.key)?;
            let more = More::of(header, words);
            if !self.is_live(probe, header, more, now) {
                return Some(Found::Dead(self.death(probe, header)));
            }
            if header.is_large() || (get.wins && more.stale) {
                return Some(Found::NeedsLock);
            }
            let value_len = header.value_len();
            let value = header.key_offset() + header.key_len();
            // The classic commands tell nothing that would need another cache line.
            hit = if get.tells || !get.value {
                self.hit(place, header, more, value_len, header.chunk_len(), now)
            } else {
                Hit {
                    flags: more.flags,
                    cas: self.shown(header.version()),
                    value_len,
                    expiry_before: more.expiry,
                    expiry: more.expiry,
                    fetched: header.is_fetched(),
                    stale: more.stale,
                    win_sent: more.win_sent,
                    class: self.slabs.sizes.number_fitting(value + value_len),
                    ..Hit::default()
                }
            };
            if get.value {
                item::copy_out(words, value, hit.value_len, sink.reserve(index, &hit), VALUE_SLACK_LEN);
            }
            (found_header, found_place) = (header, place);
            Some(Found::Value)
        });
        match found.unwrap_or(Some(Found::NeedsLock)) {
            Some(Found::Value) => {
                if get.bump && (self.notes_uses || !found_header.is_used()) {
                    self.note_use(probe, found_place, found_header);
                }
                if get.value {
                    sink.commit(index, &hit);
                } else {
                    sink.metadata(index, &hit);
                }
            }
            None if get.vivify.is_none() => sink.answer(index, Answer::Miss),
            Some(Found::Dead(death)) if get.vivify.is_none() => {
                self.reclaim(probe, request.key, now, &worker.station.counters);
                sink.found_dead(index, death);
                sink.answer(index, Answer::Miss);
            }
            _ => self.change(worker, now, probe, request, index, sink),
        }
    }

    /// What is known about an item.
    #[inline]
    pub(crate) fn hit(
        &self,
        place: Place,
        header: Header,
        more: More,
        value_len: usize,
        total_len: usize,
        now: Time,
    ) -> Hit {
        let page = self.arena.locate(place).0;
        Hit {
            flags: more.flags,
            cas: self.shown(header.version()),
            value_len,
            expiry_before: more.expiry,
            expiry: more.expiry,
            fetched: header.is_fetched(),
            idle_s: self.slabs.idle_s(page, now),
            stale: more.stale,
            win_sent: more.win_sent,
            won: false,
            created: false,
            class: self.slabs.class_of(page).map_or(0, ClassId::number),
            total_len,
        }
    }

    /// Marks the item as read and recently used, which only the first read after the eviction hand came by has to do.
    #[cold]
    fn note_use(&self, probe: &Probe, place: Place, seen: Header) {
        if !seen.is_used() {
            // Under the stripe and still in the index: the word is this item's header and not something new in its place. Who
            // meets a writer, or the index growing, leaves the mark to the next reader rather than wait.
            let payload = self.arena.payload(place, probe.spare_bits());
            if let Some(_locked) = self.index.try_lock_and_find(probe, |candidate| candidate == payload) {
                let words = self.words(place);
                words.store(0, Header::of(words).used().0);
            }
        }
        if self.notes_uses {
            self.slabs.tell(&self.arena, place, Event::Used);
        }
    }
}
