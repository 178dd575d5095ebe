//! Where memory comes from when there is none left: from victims of the class's policy, a batch at a time, and from other
//! classes' pages.
//!
//! Always true: an item leaves the index under its stripe before its chunk is free; whoever finds a victim verifies under the
//! stripe that it is still the item in that chunk.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use guira_arena::{PAGE_LEN, PageId, Place};
use guira_cuckoo::Probe;
use guira_item::{ItemInfo, Key, Time};

use crate::{
    config::Eviction,
    counters::Counters,
    engine::{KeyCopy, Shared},
    item::{Header, More},
    magazine::Station,
    size_classes::ClassId,
    slabs::Event,
};

/// Items evicted, or free chunks taken, at a time, at most: the buckets of the victims are asked for together, the lock of the
/// class is taken once, and the chunks serve the worker's next stores.
const BATCH_LEN: usize = 16;

/// Attempts to find memory before a store is refused: each evicts or moves a page unless others are faster.
const ATTEMPTS_MAX: usize = 64;

/// Attempts in which others may be faster to read, and so spare, or to take what a class's policy names, before another class gives
/// a page.
const SPARED_MAX: usize = 16;

/// An item that has left the index; its chunk is still to be freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unlinked {
    pub place: Place,
    pub header: Header,
}

/// Items of one class that were evicted together: their chunks, how many of them had not expired, and how many of these were
/// never read.
#[derive(Debug, Default)]
struct Batch {
    places: Vec<Place>,
    evicted: u64,
    unfetched: u64,
}

/// What to do with an item that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It goes.
    Take,
    /// It stays.
    Spare,
}

impl Shared {
    /// A chunk of a class: a free one, one of a fresh page, or one from which an item was evicted.
    pub(crate) fn allocate(&self, class: ClassId, now: Time, station: &Station) -> Option<Place> {
        for attempt in 0..ATTEMPTS_MAX {
            if let Some(place) = self.take_chunk(class, station) {
                return Some(place);
            }
            if let Some(page) = self.arena.take_page() {
                self.slabs.adopt(&self.arena, class, page);
                continue;
            }
            if !self.config.evictions_enabled {
                // No item goes, but a page that another class has to spare may come.
                if self.take_spare_page(class) {
                    continue;
                }
                break;
            }
            self.review(class, now, station);
            let named_any = self.evict_from(class, now, station);
            // What was evicted may be of no use, from a page that is being emptied.
            if let Some(place) = self.take_chunk(class, station) {
                return Some(place);
            }
            // Who was named has been read or taken in between.
            if named_any && attempt < SPARED_MAX {
                continue;
            }
            if !self.steal_page(Some(class), now, station) {
                // Pages whose chunks are in the hands of others cannot be emptied before these have gone on.
                std::thread::yield_now();
            }
        }
        None
    }

    /// A free chunk of a class: from the worker's magazine, or else from the class, and others for the magazine with it.
    fn take_chunk(&self, class: ClassId, station: &Station) -> Option<Place> {
        let place = station.magazine.take(class);
        if place.is_some() {
            return place;
        }
        // What a magazine holds for another class stays: two classes in turns would empty and fill it at every store. And where
        // no item may go for a store, it is not to be refused for what waits elsewhere.
        if !self.config.evictions_enabled || !station.magazine.is_empty() {
            return self.slabs.take(&self.arena, class);
        }
        let mut places = self.slabs.take_batch(&self.arena, class, self.batch_len(class));
        let place = places.pop();
        self.keep(class, places, station);
        place
    }

    /// Leaves free chunks of a class in the worker's magazine, but those of pages that are being emptied.
    fn keep(&self, class: ClassId, places: Vec<Place>, station: &Station) {
        let mut rest = station.magazine.fill(class, places);
        // Whoever began to empty a page before this looks into the magazine after it, or the other way round.
        rest.extend(station.magazine.recall(|place| self.slabs.is_draining(self.arena.locate(place).0)));
        self.slabs.free(&self.arena, &rest);
    }

    /// Chunks of a class that are taken or freed at a time. Of large ones it is one: the next store may not need another.
    fn batch_len(&self, class: ClassId) -> usize {
        (PAGE_LEN / 4 / self.slabs.sizes.chunk_len(class)).clamp(1, BATCH_LEN)
    }

    /// Frees what the magazines hold as far as `is_wanted`.
    pub(crate) fn recall(&self, is_wanted: impl Fn(Place) -> bool) {
        let of = |station: &Arc<Station>| station.magazine.recall(&is_wanted);
        let chunks: Vec<Place> = self.stations().iter().flat_map(of).collect();
        self.slabs.free(&self.arena, &chunks);
    }

    /// Evicts a batch from a class, for the worker's magazine; whether there was anything to evict.
    fn evict_from(&self, class: ClassId, now: Time, station: &Station) -> bool {
        let wanted = self.batch_len(class);
        let mut victims = Vec::with_capacity(wanted);
        self.slabs.victims(&self.arena, &mut self.slabs.lock(class), wanted, &mut victims);
        self.evict(&victims, Some(class), now, station);
        !victims.is_empty()
    }

    /// Evicts the items in `victims`, as far as they are still there; returns how many went. Those of the class that needs memory
    /// leave their chunks in the worker's magazine.
    fn evict(&self, victims: &[Place], needing: Option<ClassId>, now: Time, station: &Station) -> usize {
        for place in victims {
            if let Some(words) = self.arena.words(*place) {
                let mut key = KeyCopy::default();
                self.index.prefetch(&self.probe(key.of(words, Header::of(words))));
            }
        }
        let spares_recent = !matches!(self.config.eviction, Eviction::Lru | Eviction::Random) && needing.is_some();
        let verdict = |header: Header, is_live: bool| {
            if is_live && header.is_recent() && spares_recent { Verdict::Spare } else { Verdict::Take }
        };
        let counters = &station.counters;
        let mut gone = 0;
        let mut batch = Batch::default();
        for place in victims {
            let Some((unlinked, was_live)) = self.unlink(*place, now, verdict) else { continue };
            gone += 1;
            if self.keeps_nodes {
                // Policies without a hand that passes pages: a page is as old as its last victim.
                self.slabs.swept(self.arena.locate(*place).0);
            }
            self.note_eviction(unlinked, was_live, now, counters);
            let evicted = u64::from(was_live);
            let unfetched = u64::from(was_live && !unlinked.header.is_fetched());
            // An item out of the index keeps its chunk, and so its page its class, until the chunk is freed.
            let owner = self.slabs.class_of(self.arena.locate(unlinked.place).0);
            if needing.is_some() && owner == needing && !unlinked.header.is_large() {
                counters.bytes(0u64.wrapping_sub(self.total_len(unlinked.header, self.words(unlinked.place)) as u64));
                batch.places.push(unlinked.place);
                batch.evicted += evicted;
                batch.unfetched += unfetched;
                continue;
            }
            if let Some(owner) = owner {
                let mut locked = self.slabs.lock(owner);
                locked.stats.evicted += evicted;
                locked.stats.evicted_unfetched += unfetched;
            }
            self.free_item(unlinked, counters);
        }
        if let Some(class) = needing {
            {
                let mut locked = self.slabs.lock(class);
                locked.stats.evicted += batch.evicted;
                locked.stats.evicted_unfetched += batch.unfetched;
                locked.evicted_since_review += gone;
                batch.places.iter().for_each(|place| self.slabs.clear(&self.arena, &mut locked, *place));
            }
            self.keep(class, batch.places, station);
        }
        gone
    }

    /// Logs an item that was live, and counts one that had expired or been flushed.
    fn note_eviction(&self, unlinked: Unlinked, was_live: bool, now: Time, counters: &Counters) {
        let words = self.words(unlinked.place);
        if !was_live {
            counters.reclaimed(1);
            counters.expired_unfetched(u64::from(!unlinked.header.is_fetched()));
        } else if self.is_logging.load(Ordering::Relaxed) {
            let mut key = KeyCopy::default();
            let info = self.info(unlinked.place, unlinked.header, key.of(words, unlinked.header), now);
            if let Some(log) = self.eviction_log.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
                log(&info);
            }
        }
    }

    /// What is told about an item that the caller keeps from changing.
    pub(crate) fn info<'k>(&self, place: Place, header: Header, key: &'k [u8], now: Time) -> ItemInfo<'k> {
        let words = self.words(place);
        let more = More::of(header, words);
        let page = self.arena.locate(place).0;
        ItemInfo {
            key,
            cas: self.shown(header.version()),
            flags: more.flags,
            expiry: more.expiry,
            idle_s: self.slabs.idle_s(page, now),
            fetched: header.is_fetched(),
            recent: header.is_recent(),
            stale: more.stale,
            win_sent: more.win_sent,
            class: self.slabs.class_of(page).map_or(0, ClassId::number),
            total_len: self.total_len(header, words),
            value_len: self.value_len(header, words),
        }
    }

    /// Takes the item at `place` out of the index if `verdict`, asked under its stripe and told whether the item is live at
    /// `now`, says so; returns it, and whether it was live. Bytes at `place` may change while its key is read; then no slot of
    /// the index fits, or what fits is a live item all the same.
    pub(crate) fn unlink(
        &self,
        place: Place,
        now: Time,
        verdict: impl FnOnce(Header, bool) -> Verdict,
    ) -> Option<(Unlinked, bool)> {
        let words = self.arena.words(place)?;
        let seen = Header::of(words);
        if !seen.is_item() {
            return None;
        }
        let mut key = KeyCopy::default();
        let probe = self.probe(key.of(words, seen));
        let payload = self.arena.payload(place, probe.spare_bits());
        let (mut locked, slot) = self.index.lock_and_find(&probe, |candidate| candidate == payload);
        let slot = slot?;
        let header = Header::of(words);
        let was_live = self.is_live(&probe, header, More::of(header, words), now);
        match verdict(header, was_live) {
            Verdict::Take => {
                locked.remove(slot);
                Some((Unlinked { place, header }, was_live))
            }
            Verdict::Spare => None,
        }
    }

    /// Frees the memory of an item that has left the index.
    pub(crate) fn free_item(&self, unlinked: Unlinked, counters: &Counters) {
        let len = self.total_len(unlinked.header, self.words(unlinked.place)) as u64;
        counters.bytes(0u64.wrapping_sub(len));
        if unlinked.header.is_large() {
            self.drop_reference(unlinked.place);
        } else {
            self.slabs.free(&self.arena, &[unlinked.place]);
        }
    }

    /// Removes a key's item if it is over.
    pub(crate) fn reclaim(&self, probe: &Probe, key: Key<'_>, now: Time, counters: &Counters) {
        let mut found = None;
        let (mut locked, slot) = self.index.lock_and_find(probe, |payload| {
            found = self.item_of_key(payload, probe, key);
            found.is_some()
        });
        let (Some(slot), Some((place, words, header))) = (slot, found) else { return };
        if self.is_live(probe, header, More::of(header, words), now) {
            return;
        }
        locked.remove(slot);
        drop(locked);
        counters.reclaimed(1);
        counters.expired_unfetched(u64::from(!header.is_fetched()));
        self.free_item(Unlinked { place, header }, counters);
    }

    /// Makes room in the two buckets of `probe` by evicting one of the keys in them, an unused one if there is one.
    pub(crate) fn evict_neighbour(&self, probe: &Probe, now: Time, station: &Station) -> bool {
        let mut neighbours: Vec<Place> =
            self.index.lock(probe).neighbours().map(|payload| self.arena.payload_place(payload)).collect();
        neighbours.sort_by_key(|place| Header::of(self.words(*place)).is_recent());
        neighbours.iter().any(|place| self.evict(&[*place], None, now, station) > 0)
    }

    /// Empties a page: what its policy would keep moves to other chunks of the class, the rest is evicted. The page goes to the pool
    /// with its last chunk, at once unless a value in it is being sent or written.
    pub(crate) fn empty_page(&self, class: ClassId, page: PageId, now: Time, station: &Station) {
        self.recall(|place| self.arena.locate(place).0 == page);
        // With its last chunk the page has gone, and may be another class's.
        let chunks = self.slabs.chunks_to_empty(&self.slabs.lock(class), page);
        let mut victims = Vec::new();
        for index in 0..chunks {
            let place = self.slabs.chunk(&self.arena, class, page, index);
            let words = self.words(place);
            let header = Header::of(words);
            if header.is_piece() {
                victims.push(crate::large::owner(words));
                continue;
            }
            // With CLOCK what is not marked would be the first to go anyway.
            let stays = self.keeps_nodes || header.is_recent();
            if header.is_item() && !(stays && self.relocate(class, place, now, station)) {
                victims.push(place);
            }
        }
        self.evict(&victims, None, now, station);
    }

    /// Moves an item in one chunk to another chunk of its class; false if it is large, gone, or no chunk is to be had.
    fn relocate(&self, class: ClassId, place: Place, now: Time, station: &Station) -> bool {
        let words = self.words(place);
        let seen = Header::of(words);
        if seen.is_large() || !seen.is_item() {
            return false;
        }
        let taken = self.take_chunk(class, station).or_else(|| {
            self.evict_from(class, now, station);
            self.take_chunk(class, station)
        });
        let Some(to) = taken else { return false };
        let mut key = KeyCopy::default();
        let probe = self.probe(key.of(words, seen));
        let payload = |place| self.arena.payload(place, probe.spare_bits());
        let mut locked = self.index.lock(&probe);
        let slot = locked.find(|candidate| candidate == payload(place));
        // The page may have been emptied and given to another class since it was looked at. An item that is in the index keeps
        // its page from that.
        let is_movable = |_: &guira_cuckoo::Place| {
            let header = Header::of(words);
            // What a flush has swept away stays where the sweep will find it.
            !header.is_large()
                && self.is_live(&probe, header, More::of(header, words), now)
                && self.slabs.class_of(self.arena.locate(place).0) == Some(class)
        };
        let Some(slot) = slot.filter(is_movable) else {
            drop(locked);
            self.slabs.free(&self.arena, &[to]);
            return false;
        };
        let to_words = self.words(to);
        // Word 0, which makes it an item, comes last.
        (0..self.slabs.sizes.chunk_len(class) / 8).rev().for_each(|index| to_words.store(index, words.load(index)));
        locked.replace(slot, payload(to));
        drop(locked);
        if self.slabs.is_expiring(self.arena.locate(place).0) {
            self.slabs.set_expiring(self.arena.locate(to).0);
        }
        if self.keeps_nodes {
            self.slabs.tell(&self.arena, to, Event::MovedFrom(place));
        }
        self.slabs.free(&self.arena, &[place]);
        true
    }
}
