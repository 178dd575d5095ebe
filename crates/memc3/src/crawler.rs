//! Background work, in slices: the index grows, expired items are freed, a lowered memory limit is carried out; and the scan
//! that dumps look through.

use guira_arena::{PageId, Place};
use guira_cuckoo::{GrowError, Growth};
use guira_item::{ItemInfo, OrderCursor, ScanCursor, Standing, Time};

use crate::{
    counters::Counters,
    engine::{KeyCopy, Shared, Worker},
    eviction::Verdict,
    item::{Header, More},
    magazine::Station,
    policy::Ordered,
};

/// Pages looked through for expired items in one slice: 4 MiB, so that the slice is over before another thread misses
/// its core. Pages in which nothing expires cost nothing.
const CRAWLED_PAGES: usize = 64;

/// Items freed in a slice from which on the next slice follows at once: memory worth a page or two.
const FREED_TO_GO_ON: usize = 1_000;

/// While the index is this small a part of memory, it doubles; from there on it grows by quarters.
const SMALL_INDEX_PAGES: usize = 64;

/// What a step of growth came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Grown {
    /// Something was moved; more is waiting.
    Further,
    /// Nothing is left to be moved.
    Up,
    /// Other threads are at it, and nothing is left for this one: what they have claimed, or the beginning or the end of a growth.
    ByOthers,
    /// There is no memory for it, or the index is as large as it may be.
    Refused,
}

impl Shared {
    /// One slice of background work; true if there is more to do at once.
    pub(crate) fn maintain(&self, worker: &mut Worker, now: Time) -> bool {
        let station = std::sync::Arc::clone(&worker.station);
        let grown = if self.index.is_growing() {
            self.go_on_growing(usize::MAX, now, &station)
        } else if self.index.should_grow() {
            self.grow(usize::MAX, now, &station)
        } else {
            Grown::Refused
        };
        if grown != Grown::Refused {
            return true;
        }
        let (taken, limit) = self.arena.usage();
        if taken > limit && self.steal_page(None, now, &station) {
            return true;
        }
        self.crawl(worker, now)
    }

    /// A step of growth of at most so many buckets, or a segment; begins one if none is under way.
    pub(crate) fn grow(&self, buckets: usize, now: Time, station: &Station) -> Grown {
        match self.begin_growth() {
            Ok(()) => self.go_on_growing(buckets, now, station),
            Err(GrowError::Busy) => Grown::ByOthers,
            Err(_) => Grown::Refused,
        }
    }

    /// Begins a growth, unless one is under way.
    pub(crate) fn begin_growth(&self) -> Result<(), GrowError> {
        let is_small = |segments: usize| segments < self.arena.pages() / SMALL_INDEX_PAGES;
        self.index.begin_growth(|segments| segments + if is_small(segments) { segments } else { segments.div_ceil(4) })
    }

    /// A step of the growth that is under way. It takes memory from items if there is no other.
    pub(crate) fn go_on_growing(&self, buckets: usize, now: Time, station: &Station) -> Grown {
        let step = || self.index.grow_by(buckets, |payload| self.prefetch_at(payload), |payload| self.hash_of(payload));
        let outcome = match step() {
            Err(GrowError::NoMemory) if self.reserve_for_index(now, station) => step(),
            outcome => outcome,
        };
        match outcome {
            Ok(Growth::Underway) => Grown::Further,
            Ok(Growth::Complete | Growth::Idle) => Grown::Up,
            Err(GrowError::Busy) => Grown::ByOthers,
            Err(_) => Grown::Refused,
        }
    }

    /// Sets a page aside for the index's next segment, from items if there is no other; false if there is none to be had.
    fn reserve_for_index(&self, now: Time, station: &Station) -> bool {
        if self.arena.reserved_for_index() == 0 {
            let may_steal = self.config.evictions_enabled;
            if !(self.arena.has_free_page() || may_steal && self.steal_page(None, now, station)) {
                return false;
            }
            if let Some(page) = self.arena.take_page() {
                self.arena.reserve_for_index(page);
            }
        }
        true
    }

    /// Looks through the next pages that have items with an expiry; true if there was enough to free that it should go on.
    fn crawl(&self, worker: &mut Worker, now: Time) -> bool {
        let pages = self.arena.pages() as u32;
        let (mut looked_through, mut freed) = (0, 0);
        while looked_through < CRAWLED_PAGES {
            if let Some(dead) = self.sweep.take(|page| self.crawl_page(page, now, &worker.station.counters)) {
                looked_through += 1;
                freed += dead;
            }
            if worker.crawl_page >= pages {
                worker.crawl_page = 0;
                return self.sweep.has_pages();
            }
            let page = PageId(worker.crawl_page);
            worker.crawl_page += 1;
            if self.slabs.is_draining(page)
                && let Some(class) = self.slabs.class_of(page)
            {
                // An item that was being stored when the page was emptied is in it still.
                self.empty_page(class, page, now, &worker.station);
            }
            if self.slabs.is_expiring(page) {
                looked_through += 1;
                freed += self.crawl_page(page, now, &worker.station.counters);
            }
        }
        freed > FREED_TO_GO_ON || self.sweep.has_pages()
    }

    /// Frees the expired items of a page; returns how many.
    fn crawl_page(&self, page: PageId, now: Time, counters: &Counters) -> usize {
        let Some(class) = self.slabs.class_of(page) else { return 0 };
        let mut freed = 0;
        for index in 0..self.slabs.chunks_to_visit(class, page) {
            let place = self.slabs.chunk(&self.arena, class, page, index);
            let Some(words) = self.arena.words(place) else { return freed };
            let header = Header::of(words);
            if !header.is_item() {
                continue;
            }
            counters.crawler_checked(1);
            // Without a flush only items with an expiry die, which have a second word: most are passed by their header alone.
            if !self.is_flushed() && (!header.has_more() || !More::of(header, words).expiry.is_past(now)) {
                continue;
            }
            let verdict = |_: Header, is_live| if is_live { Verdict::Spare } else { Verdict::Take };
            if let Some((unlinked, _)) = self.unlink(place, now, verdict) {
                freed += 1;
                counters.crawler_reclaimed(1);
                counters.reclaimed(1);
                counters.expired_unfetched(u64::from(!unlinked.header.is_fetched()));
                self.free_item(unlinked, counters);
            }
        }
        freed
    }

    /// See [`guira_item::Engine::scan`]. The cursor is a page and a chunk.
    pub(crate) fn scan(
        &self,
        cursor: ScanCursor,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>),
    ) -> Option<ScanCursor> {
        let mut page = PageId((cursor.0 >> 32) as u32);
        let mut index = cursor.0 as u32 as usize;
        let mut looked = 0;
        while (page.0 as usize) < self.arena.pages() {
            if let Some(class) = self.slabs.class_of(page) {
                while index < self.slabs.chunks_to_visit(class, page) {
                    if looked == limit {
                        return Some(ScanCursor(u64::from(page.0) << 32 | index as u64));
                    }
                    looked += 1;
                    self.visit(self.slabs.chunk(&self.arena, class, page, index), now, visit);
                    index += 1;
                }
            } else {
                looked = (looked + 1).min(limit);
            }
            page.0 += 1;
            index = 0;
        }
        None
    }

    /// See [`guira_item::Engine::scan_in_order`]. An order is a class's; a large item is shown in the one in which it is aged.
    pub(crate) fn scan_in_order(
        &self,
        cursor: OrderCursor,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>, Standing),
    ) -> Option<OrderCursor> {
        let mut from = cursor;
        for class in self.slabs.ids().skip(cursor.order as usize).filter(|class| self.slabs.has_pages(*class)) {
            if u32::from(class.0) != from.order {
                from = OrderCursor::of(class.0.into());
            }
            let mut found = Vec::new();
            let next = self.slabs.in_order(&self.arena, &self.slabs.lock(class), from, limit, &mut found);
            for Ordered { item, standing } in found {
                self.visit(item, now, &mut |info| visit(info, standing));
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// Shows the item at `place`, if there is one, under its stripe.
    fn visit(&self, place: Place, now: Time, visit: &mut dyn FnMut(&ItemInfo<'_>)) {
        let mut shown = |probe: &guira_cuckoo::Probe, header: Header, key: &[u8]| {
            if self.is_live(probe, header, More::of(header, self.words(place)), now) {
                visit(&self.info(place, header, key, now));
            }
        };
        let Some(words) = self.arena.words(place) else { return };
        let mut key = KeyCopy::default();
        let header = Header::of(words);
        if !header.is_item() {
            return;
        }
        let probe = self.probe(key.of(words, header));
        let payload = self.arena.payload(place, probe.spare_bits());
        let locked = self.index.lock(&probe);
        if locked.find(|candidate| candidate == payload).is_some() {
            let header = Header::of(words);
            shown(&probe, header, key.of(words, header));
        }
    }
}
