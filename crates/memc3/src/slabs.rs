//! Slab memory: size classes, each a set of pages cut into chunks, each with its own eviction policy.
//!
//! ```text
//! page:   policy's nodes (8 bytes a chunk, if it keeps any) ...   chunk 0 | chunk 1 | ... | chunk n-1
//! free chunk:   word 0 = 0   word 1 = number of the next free chunk of the page
//! ```
//! Always true: a page belongs to one class, or to none; its description changes only under its class's lock; a chunk that
//! is not an item's has a header that says so; chunks from `fresh` on have never been handed out since the page was cut.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering},
    },
};

use guira_arena::{Arena, PAGE_LEN, PageId, Place, Words};
use guira_item::{ClassStats, OrderCursor, Time};
use guira_sync::{
    order::{Held, Rank},
    reuse,
};

use crate::{
    config::{Config, Eviction},
    item::Header,
    large,
    page_set::PageSet,
    policy::{self, Ordered, Policy},
    size_classes::{ClassId, SizeClasses},
};

/// No class: the page is in the pool, or the index's.
const NO_CLASS: u8 = u8::MAX;

/// Pages looked at for the oldest, or the freest, of a class: the oldest of sixteen is older than nine tenths of all in four cases
/// of five, and another class's items must be twice as old to be worth a page.
const PAGES_SAMPLED: usize = 16;

/// End of a page's list of free chunks.
const NO_CHUNK: u16 = u16::MAX;

/// What is known about a page. Written under the lock of its class, but for when it was swept or touched and whether something in it
/// expires, which only guide; others look, and verify what they act on.
#[derive(Debug)]
struct Page {
    class: AtomicU8,
    /// 1 while the page is being emptied: its free chunks are not handed out any more.
    draining: AtomicU8,
    /// First free chunk that has been used before.
    free: AtomicU16,
    /// Free chunks that have been used before.
    free_len: AtomicU16,
    /// Chunks from here on have not been used.
    fresh: AtomicU16,
    /// 1 if an item with an expiry has been stored in the page since it was cut.
    expiring: AtomicU8,
    /// When the eviction hand last left the page, or when it was cut, as [`Time::since_s`] understands it.
    swept_at_s: AtomicU32,
    /// The same in turns of any hand, or when an item was last stored in the page, or a large one in it sent.
    swept_turn: AtomicU64,
    /// Where the page stands in its class's sets.
    seat: Seat,
}

/// Where a page stands in each set that it is in.
#[derive(Debug, Default)]
struct Seat {
    pages: AtomicU32,
    partial: AtomicU32,
    empty: AtomicU32,
}

impl Page {
    fn new() -> Self {
        Self {
            class: AtomicU8::new(NO_CLASS),
            draining: AtomicU8::new(0),
            free: AtomicU16::new(NO_CHUNK),
            free_len: AtomicU16::new(0),
            fresh: AtomicU16::new(0),
            expiring: AtomicU8::new(0),
            swept_at_s: AtomicU32::new(0),
            swept_turn: AtomicU64::new(0),
            seat: Seat::default(),
        }
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed) != 0
    }

    /// Whether no chunk is in use.
    fn is_empty(&self) -> bool {
        self.free_len.load(Ordering::Relaxed) == self.fresh.load(Ordering::Relaxed)
    }
}

/// A size class.
#[derive(Debug)]
pub(crate) struct Class {
    id: ClassId,
    pages: PageSet<Page>,
    /// Pages with a free chunk, none of them draining.
    partial: PageSet<Page>,
    /// Those of them without a chunk in use.
    empty: PageSet<Page>,
    /// Pages that are being emptied.
    draining: usize,
    used_chunks: u64,
    /// Free chunks, but for those of pages that are being emptied.
    free_chunks: usize,
    policy: Box<dyn Policy>,
    /// Items evicted since the class last asked whether another one could do better without a page.
    pub evicted_since_review: usize,
    pub stats: ClassStats,
}

/// All classes.
#[derive(Debug)]
pub(crate) struct Slabs {
    pub sizes: SizeClasses,
    classes: Box<[Mutex<Class>]>,
    /// Pages of each class, for those who need not lock one that has none.
    pages_held: Box<[AtomicU32]>,
    pages: Box<[Page]>,
    node_len: usize,
    /// Pages that hands have passed, over all classes: the clock by which ages are compared.
    turns: AtomicU64,
    /// Seconds of the last operation, for what has no time of its own.
    now_s: AtomicU32,
    pub pages_moved: AtomicU64,
}

impl Slabs {
    pub fn new(config: &Config, arena: &Arena) -> Self {
        let node_len = policy::node_len(config.eviction);
        let sizes = SizeClasses::new(config.chunk_len_min, config.growth_factor, arena.granule(), node_len);
        let classes: Box<[_]> =
            (0..sizes.len() as u8).map(|id| Mutex::new(Class::new(ClassId(id), config.eviction))).collect();
        Self {
            sizes,
            pages_held: classes.iter().map(|_| AtomicU32::new(0)).collect(),
            classes,
            pages: (0..arena.pages()).map(|_| Page::new()).collect(),
            node_len,
            turns: AtomicU64::new(0),
            now_s: AtomicU32::new(0),
            pages_moved: AtomicU64::new(0),
        }
    }

    /// Remembers the time for whatever has none of its own.
    pub fn set_now(&self, now: Time) {
        if self.now_s.load(Ordering::Relaxed) != now.0 {
            self.now_s.store(now.0, Ordering::Relaxed);
        }
    }

    /// The time last remembered.
    pub fn now(&self) -> Time {
        Time(self.now_s.load(Ordering::Relaxed))
    }

    fn page(&self, page: PageId) -> &Page {
        &self.pages[page.0 as usize]
    }

    /// Locks a class.
    pub fn lock(&self, class: ClassId) -> ClassGuard<'_> {
        let held = Held::note(Rank::Class);
        let class = self.classes[usize::from(class.0)].lock().unwrap_or_else(PoisonError::into_inner);
        ClassGuard { class, _held: held }
    }

    /// All classes' numbers.
    pub fn ids(&self) -> impl Iterator<Item = ClassId> + use<> {
        (0..self.classes.len() as u8).map(ClassId)
    }

    /// The class a page belongs to now.
    #[inline]
    pub fn class_of(&self, page: PageId) -> Option<ClassId> {
        let class = self.page(page).class.load(Ordering::Relaxed);
        (class != NO_CLASS).then_some(ClassId(class))
    }

    /// Seconds since the hand last passed the page: an upper bound of how long ago an item marked as recent was read, a lower
    /// bound for one that is not.
    #[inline]
    pub fn idle_s(&self, page: PageId, now: Time) -> u32 {
        now.since_s(Time(self.page(page).swept_at_s.load(Ordering::Relaxed)))
    }

    /// Has the page count as so long not passed by the hand: what is put back in it had been used that long ago.
    pub fn set_idle(&self, page: PageId, idle_s: u32, now: Time) {
        self.page(page).swept_at_s.store(now.minus_s(idle_s).0, Ordering::Relaxed);
    }

    /// Notes that the page has an item that expires.
    #[inline]
    pub fn set_expiring(&self, page: PageId) {
        let expiring = &self.page(page).expiring;
        if expiring.load(Ordering::Relaxed) == 0 {
            expiring.store(1, Ordering::Relaxed);
        }
    }

    /// Whether the page may have items that expire.
    pub fn is_expiring(&self, page: PageId) -> bool {
        self.page(page).expiring.load(Ordering::Relaxed) != 0
    }

    /// Where chunk `index` of a page lies.
    pub fn chunk(&self, arena: &Arena, class: ClassId, page: PageId, index: usize) -> Place {
        arena.place(page, self.sizes.chunks_offset(class) + index * self.sizes.chunk_len(class))
    }

    /// Chunks of a page that have been handed out at some time.
    fn chunks_used(&self, page: PageId) -> usize {
        usize::from(self.page(page).fresh.load(Ordering::Relaxed))
    }

    /// The same of a page that was the class's a moment ago: never more than a page of it has.
    pub fn chunks_to_visit(&self, class: ClassId, page: PageId) -> usize {
        self.chunks_used(page).min(self.sizes.chunks_per_page(class))
    }

    /// The same of a page of the class that is being emptied; none if it is not, or no longer.
    pub fn chunks_to_empty(&self, class: &Class, page: PageId) -> usize {
        let is_draining = self.class_of(page) == Some(class.id) && self.page(page).is_draining();
        if is_draining { self.chunks_used(page) } else { 0 }
    }

    fn chunk_index(&self, class: ClassId, offset: usize) -> usize {
        (offset - self.sizes.chunks_offset(class)) / self.sizes.chunk_len(class)
    }

    /// Takes a free chunk of a class.
    pub fn take(&self, arena: &Arena, class: ClassId) -> Option<Place> {
        self.take_one(arena, &mut self.lock(class))
    }

    /// Takes free chunks of a class, at most so many.
    pub fn take_batch(&self, arena: &Arena, class: ClassId, wanted: usize) -> Vec<Place> {
        let mut locked = self.lock(class);
        std::iter::from_fn(|| self.take_one(arena, &mut locked)).take(wanted).collect()
    }

    fn take_one(&self, arena: &Arena, locked: &mut Class) -> Option<Place> {
        let class = locked.id;
        let id = locked.partial.last()?;
        let page = self.page(id);
        if page.is_empty() {
            locked.empty.remove(&self.pages, id);
        }
        let free = page.free.load(Ordering::Relaxed);
        let fresh = page.fresh.load(Ordering::Relaxed);
        let index = if free == NO_CHUNK {
            page.fresh.store(fresh + 1, Ordering::Relaxed);
            fresh
        } else {
            let words = arena.words(self.chunk(arena, class, id, usize::from(free))).expect("a chunk of the arena");
            page.free.store(words.load(1) as u16, Ordering::Relaxed);
            page.free_len.fetch_sub(1, Ordering::Relaxed);
            free
        };
        locked.used_chunks += 1;
        locked.free_chunks -= 1;
        // A page that is stored to is as young as one that the hand has passed: heads of large items, for instance, lie in a
        // class that has no reason to evict.
        self.touch(id);
        if !self.has_room(page, class) {
            locked.partial.remove(&self.pages, id);
        }
        let place = self.chunk(arena, class, id, usize::from(index));
        reuse::vacate(arena.words(place).expect("a chunk of the arena").word(0));
        Some(place)
    }

    /// Gives chunks back, which nobody can find any more. Pages that are being emptied and now are go to the pool.
    pub fn free(&self, arena: &Arena, places: &[Place]) {
        let mut rest = places;
        while let Some(first) = rest.first() {
            let class = self.class_of(arena.locate(*first).0).expect("a chunk in use belongs to a class");
            let same = rest.iter().take_while(|place| self.class_of(arena.locate(**place).0) == Some(class)).count();
            let mut locked = self.lock(class);
            for place in &rest[..same] {
                self.free_one(arena, &mut locked, *place);
            }
            rest = &rest[same..];
        }
    }

    /// Makes nothing of the item in a chunk that nobody can find any more; the chunk stays in use.
    pub fn clear(&self, arena: &Arena, class: &mut Class, place: Place) {
        if self.node_len > 0 {
            class.policy.removed(&ClassMemory { slabs: self, arena, class: class.id, pages: class.pages.ids() }, place);
        }
        reuse::vacate(arena.words(place).expect("a chunk of the arena").word(0));
    }

    fn free_one(&self, arena: &Arena, class: &mut Class, place: Place) {
        self.clear(arena, class, place);
        let (id, offset) = arena.locate(place);
        let page = self.page(id);
        let words = arena.words(place).expect("a chunk of the arena");
        words.store(1, u64::from(page.free.load(Ordering::Relaxed)));
        let had_room = self.has_room(page, class.id);
        page.free.store(self.chunk_index(class.id, offset) as u16, Ordering::Relaxed);
        let free_len = page.free_len.fetch_add(1, Ordering::Relaxed) + 1;
        class.used_chunks -= 1;
        if page.is_draining() {
            if free_len == page.fresh.load(Ordering::Relaxed) {
                self.retire(arena, class, id);
            }
            return;
        }
        class.free_chunks += 1;
        if !had_room {
            class.partial.insert(&self.pages, id);
        }
        if page.is_empty() {
            class.empty.insert(&self.pages, id);
        }
    }

    fn has_room(&self, page: &Page, class: ClassId) -> bool {
        page.free.load(Ordering::Relaxed) != NO_CHUNK
            || usize::from(page.fresh.load(Ordering::Relaxed)) < self.sizes.chunks_per_page(class)
    }

    /// Cuts a page of the pool into chunks for a class.
    pub fn adopt(&self, arena: &Arena, class: ClassId, id: PageId) {
        let mut locked = self.lock(class);
        let page = self.page(id);
        if self.node_len > 0 {
            let words = arena.words(arena.place(id, 0)).expect("a page of the arena");
            (0..self.sizes.chunks_per_page(class) * self.node_len / 8).for_each(|index| words.store(index, 0));
        }
        page.draining.store(0, Ordering::Relaxed);
        page.expiring.store(0, Ordering::Relaxed);
        page.free.store(NO_CHUNK, Ordering::Relaxed);
        page.free_len.store(0, Ordering::Relaxed);
        page.fresh.store(0, Ordering::Relaxed);
        page.class.store(class.0, Ordering::Relaxed);
        self.swept(id);
        locked.pages.insert(&self.pages, id);
        locked.partial.insert(&self.pages, id);
        locked.empty.insert(&self.pages, id);
        locked.free_chunks += self.sizes.chunks_per_page(class);
        self.pages_held[usize::from(class.0)].fetch_add(1, Ordering::Relaxed);
    }

    /// Begins to empty a page: no chunk of it is handed out any more. False if it is not the class's or is being emptied.
    pub fn start_draining(&self, arena: &Arena, class: &mut Class, id: PageId) -> bool {
        let page = self.page(id);
        if self.class_of(id) != Some(class.id) || page.is_draining() {
            return false;
        }
        page.draining.store(1, Ordering::Relaxed);
        class.draining += 1;
        class.free_chunks -= self.free_chunks(page, class.id);
        if self.has_room(page, class.id) {
            class.partial.remove(&self.pages, id);
        }
        if page.is_empty() {
            class.empty.remove(&self.pages, id);
            self.retire(arena, class, id);
        }
        true
    }

    /// Whether a page is being emptied and is not yet.
    pub fn is_draining(&self, id: PageId) -> bool {
        self.class_of(id).is_some() && self.page(id).is_draining()
    }

    /// Gives a page that has been emptied to the pool.
    fn retire(&self, arena: &Arena, class: &mut Class, id: PageId) {
        let index = class.pages.remove(&self.pages, id);
        class.policy.page_left(index);
        class.draining -= 1;
        self.pages_held[usize::from(class.id.0)].fetch_sub(1, Ordering::Relaxed);
        self.page(id).class.store(NO_CLASS, Ordering::Relaxed);
        self.pages_moved.fetch_add(1, Ordering::Relaxed);
        arena.give_page(id);
    }

    /// Whether a class has pages; it may get one, or lose its last one, at any time.
    pub fn has_pages(&self, class: ClassId) -> bool {
        self.pages_held[usize::from(class.0)].load(Ordering::Relaxed) > 0
    }

    /// Whether a page is its class's only one, so that none of its items can go to another, and most of them were read since a hand,
    /// or this, last came by. If so they have been judged: their marks are cleared, and the page is young again.
    pub fn is_only_one_and_in_use(&self, arena: &Arena, class: &Class, page: PageId) -> bool {
        if class.has_several_pages() || self.class_of(page) != Some(class.id) {
            return false;
        }
        let chunks = (0..self.chunks_used(page)).map(|index| self.chunk(arena, class.id, page, index));
        let words = chunks.map(|place| arena.words(place).expect("a chunk of the arena"));
        let items = words.filter(|words| Header::of(*words).is_item());
        let recent = items.clone().filter(|words| Header::of(*words).is_recent()).count();
        if 2 * recent <= items.clone().count() {
            return false;
        }
        items.filter(|words| !Header::of(*words).is_large()).for_each(|words| {
            Header::age(words);
        });
        self.swept(page);
        true
    }

    /// Notes that an item in the page is in use, which cannot be moved to another page.
    pub fn touch(&self, page: PageId) {
        let (turn, page) = (self.turns.load(Ordering::Relaxed), self.page(page));
        if page.swept_turn.load(Ordering::Relaxed) != turn {
            page.swept_turn.store(turn, Ordering::Relaxed);
        }
    }

    /// Notes that a hand has passed a page.
    pub fn swept(&self, id: PageId) {
        let page = self.page(id);
        page.swept_at_s.store(self.now_s.load(Ordering::Relaxed), Ordering::Relaxed);
        page.swept_turn.store(self.turns.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Tells a class's policy what its items went through; for policies that keep nodes.
    pub fn tell(&self, arena: &Arena, place: Place, event: Event) {
        let Some(id) = self.class_of(arena.locate(place).0) else { return };
        let mut locked = self.lock(id);
        let class = &mut *locked;
        // The item may have gone before the class was locked, even with its page. A chunk that is one of this class and says
        // that it has an item, or the judged piece of one, has not been freed yet, and the policy will hear of it when it is.
        let (page, offset) = arena.locate(place);
        let is_chunk = self.class_of(page) == Some(id)
            && offset >= self.sizes.chunks_offset(id)
            && (offset - self.sizes.chunks_offset(id)).is_multiple_of(self.sizes.chunk_len(id))
            && self.chunk_index(id, offset) < self.chunks_used(page);
        let stands_for_an_item = |words| Header::of(words).is_item() || large::judged_owner(words).is_some();
        if !is_chunk || !arena.words(place).is_some_and(stands_for_an_item) {
            return;
        }
        let memory = ClassMemory { slabs: self, arena, class: id, pages: class.pages.ids() };
        match event {
            Event::Stored => class.policy.stored(&memory, place),
            Event::Restored { is_spared } => class.policy.restored(&memory, place, is_spared),
            // From another class's order it comes as a new one.
            Event::MovedFrom(from) if self.class_of(arena.locate(from).0) != Some(id) => {
                class.policy.stored(&memory, place);
            }
            Event::MovedFrom(from) => class.policy.moved(&memory, from, place),
            Event::Used => class.policy.used(&memory, place),
        }
    }

    /// Chunks of a class whose items should go.
    pub fn victims(&self, arena: &Arena, class: &mut Class, wanted: usize, victims: &mut Vec<Place>) {
        let memory = ClassMemory { slabs: self, arena, class: class.id, pages: class.pages.ids() };
        class.policy.victims(&memory, wanted, victims);
    }

    /// Appends what the class's policy would name, up to `limit` chunks from `from` on, the first to go first; where the next ones are,
    /// if there are any.
    pub fn in_order(
        &self,
        arena: &Arena,
        class: &Class,
        from: OrderCursor,
        limit: usize,
        found: &mut Vec<Ordered>,
    ) -> Option<OrderCursor> {
        let memory = ClassMemory { slabs: self, arena, class: class.id, pages: class.pages.ids() };
        class.policy.in_order(&memory, from, limit, found)
    }

    /// Turns since the hand of the class passed the oldest of some of its pages: how long items last there. `None` without pages.
    pub fn age_turns(&self, class: &mut Class) -> Option<(u64, PageId)> {
        let now = self.turns.load(Ordering::Relaxed);
        class
            .pages
            .sample(PAGES_SAMPLED)
            .map(|id| (self.page(id), id))
            .filter(|(page, _)| !page.is_draining())
            // One that has been touched since `now` was asked for is new, not old beyond measure.
            .map(|(page, id)| (now.saturating_sub(page.swept_turn.load(Ordering::Relaxed)), id))
            .max_by_key(|(age, _)| *age)
    }

    /// An empty page of the class, or the one with the most free chunks of some that have any, if the class has at least `pages`
    /// pages' worth of them.
    pub fn spare_page(&self, class: &mut Class, pages: usize) -> Option<PageId> {
        if class.free_chunks < pages * self.sizes.chunks_per_page(class.id) {
            return None;
        }
        let id = class.id;
        let freest = |set: &mut PageSet<Page>| {
            set.sample(PAGES_SAMPLED).max_by_key(|page| self.free_chunks(self.page(*page), id))
        };
        class.empty.last().or_else(|| freest(&mut class.partial))
    }

    /// Free chunks of a page.
    fn free_chunks(&self, page: &Page, class: ClassId) -> usize {
        self.sizes.chunks_per_page(class) - usize::from(page.fresh.load(Ordering::Relaxed))
            + usize::from(page.free_len.load(Ordering::Relaxed))
    }

    /// For how long the pages of each class have not been passed by a hand, in seconds, at most. Looks at every page, and so takes no
    /// lock.
    pub fn oldest_s(&self, now: Time) -> Vec<u32> {
        let mut oldest_s = vec![0; self.classes.len()];
        for page in &self.pages {
            if let Some(class) = oldest_s.get_mut(usize::from(page.class.load(Ordering::Relaxed))) {
                *class = (*class).max(now.since_s(Time(page.swept_at_s.load(Ordering::Relaxed))));
            }
        }
        oldest_s
    }

    /// Numbers about a class but for its age; `None` for one without pages and without counts from when it had some. `waiting`
    /// of its chunks are in magazines.
    pub fn stats(&self, class: ClassId, waiting: u64) -> Option<ClassStats> {
        let locked = self.lock(class);
        let pages = locked.pages.ids().len();
        if pages == 0 && locked.stats.evicted == 0 && locked.stats.out_of_memory == 0 {
            return None;
        }
        let chunks = self.sizes.chunks_per_page(class);
        // The magazines were counted a moment ago.
        let used_chunks = locked.used_chunks.saturating_sub(waiting);
        Some(ClassStats {
            class: class.number(),
            chunk_size: self.sizes.chunk_len(class),
            chunks_per_page: chunks,
            total_pages: pages as u64,
            used_chunks,
            free_chunks: (pages * chunks) as u64 - used_chunks,
            ..locked.stats
        })
    }
}

/// A class, locked.
#[derive(Debug)]
pub(crate) struct ClassGuard<'a> {
    class: MutexGuard<'a, Class>,
    _held: Held,
}

impl Deref for ClassGuard<'_> {
    type Target = Class;

    fn deref(&self) -> &Class {
        &self.class
    }
}

impl DerefMut for ClassGuard<'_> {
    fn deref_mut(&mut self) -> &mut Class {
        &mut self.class
    }
}

/// What an item went through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Stored,
    /// Put back, after it had been spared in another time, or not.
    Restored {
        is_spared: bool,
    },
    MovedFrom(Place),
    Used,
}

impl Class {
    /// A page without a chunk in use.
    pub fn empty_page(&self) -> Option<PageId> {
        self.empty.last()
    }

    /// Whether a page is being emptied.
    pub fn has_draining(&self) -> bool {
        self.draining > 0
    }

    /// Whether there would be a page left if one was given away.
    pub fn has_several_pages(&self) -> bool {
        self.pages.ids().len() > 1
    }

    /// How many chunks the policy has nodes of.
    #[cfg(test)]
    pub fn nodes(&self) -> usize {
        self.policy.nodes()
    }

    /// As if what lies in a page had been stored a moment ago, and the policy had not been told yet.
    #[cfg(test)]
    pub fn forget_nodes(&mut self, shared: &crate::engine::Shared, page: PageId) {
        let (slabs, arena) = (&shared.slabs, &*shared.arena);
        let memory = ClassMemory { slabs, arena, class: self.id, pages: self.pages.ids() };
        (0..slabs.chunks_used(page)).for_each(|index| self.policy.removed(&memory, memory.chunk(page, index)));
    }

    fn new(id: ClassId, eviction: Eviction) -> Self {
        Self {
            id,
            pages: PageSet::new(|page| &page.seat.pages),
            partial: PageSet::new(|page| &page.seat.partial),
            empty: PageSet::new(|page| &page.seat.empty),
            draining: 0,
            used_chunks: 0,
            free_chunks: 0,
            policy: policy::new(eviction),
            evicted_since_review: 0,
            stats: ClassStats::default(),
        }
    }
}

/// What a policy sees of its class.
#[derive(Debug)]
pub(crate) struct ClassMemory<'a> {
    slabs: &'a Slabs,
    arena: &'a Arena,
    class: ClassId,
    pages: &'a [PageId],
}

impl<'a> ClassMemory<'a> {
    /// The class's pages.
    pub fn pages(&self) -> &'a [PageId] {
        self.pages
    }

    /// Chunks of a page that have been handed out at some time; the others hold nothing.
    pub fn chunks_used(&self, page: PageId) -> usize {
        self.slabs.chunks_used(page)
    }

    /// Where a chunk lies.
    pub fn chunk(&self, page: PageId, index: usize) -> Place {
        self.slabs.chunk(self.arena, self.class, page, index)
    }

    /// What stands in a chunk.
    pub fn words(&self, place: Place) -> Option<Words<'a>> {
        self.arena.words(place)
    }

    /// The hand has passed a page.
    pub fn swept(&self, page: PageId) {
        self.slabs.swept(page);
    }

    fn node_word(&self, chunk: Place) -> &'a AtomicU64 {
        let (page, offset) = self.arena.locate(chunk);
        let index = self.slabs.chunk_index(self.class, offset);
        self.arena.words(self.arena.place(page, 0)).expect("a page of the arena").word(index)
    }

    /// The policy's node of a chunk.
    pub fn node(&self, chunk: Place) -> u64 {
        self.node_word(chunk).load(Ordering::Relaxed)
    }

    /// Sets the policy's node of a chunk.
    pub fn set_node(&self, chunk: Place, node: u64) {
        self.node_word(chunk).store(node, Ordering::Relaxed);
    }
}

const _: () = assert!(PAGE_LEN / 24 < NO_CHUNK as usize, "a chunk's number fits");
