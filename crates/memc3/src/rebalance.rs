//! Memory between classes: a page goes from the class whose items last longest to the one that needs memory.
//!
//! A class's age is how many pages all hands together have passed since its own hand passed, or a store went to, its oldest
//! page: how long an item lasts there, in units of work, so that it says the same at any speed. A class that nobody stores to
//! grows old by itself and gives its pages to those that are in use: memory is never stuck in the wrong class. What is read there
//! all the same moves to other pages of the class as its pages go; the pages of large items, which do not move, are young when
//! these are sent, and so is a class's last page if most of its items are found read.

use guira_item::{ReassignError, Time};

use guira_arena::PageId;

use crate::{engine::Shared, magazine::Station, size_classes::ClassId};

/// A class takes a page from another whose items last so many times longer than its own: the pages move before the
/// difference costs many hits, and do not go back and forth.
const AGE_RATIO: u64 = 2;

/// Free pages' worth of chunks from which on a class gives some away whatever its age (memcached's automover: two).
const SPARE_PAGES: usize = 2;

/// Pages tried for one that can be emptied at once; the others follow when the values in them have been sent.
const PAGES_TRIED_MAX: usize = 8;

/// Pages that are spared for their use before one goes all the same.
const PAGES_SPARED_MAX: usize = 4;

impl Shared {
    /// Every page's worth of evictions a class asks whether another class's page would serve better.
    pub(crate) fn review(&self, class: ClassId, now: Time, station: &Station) {
        let own_age = {
            let mut locked = self.slabs.lock(class);
            if locked.evicted_since_review < self.slabs.sizes.chunks_per_page(class) {
                return;
            }
            locked.evicted_since_review = 0;
            self.slabs.age_turns(&mut locked).map_or(0, |(age, _)| age)
        };
        let enough = own_age.saturating_mul(AGE_RATIO).saturating_add(AGE_RATIO);
        if let Some((donor, page)) = self.donor(Some(class), enough) {
            self.drain(donor, page, true, now, station);
        }
    }

    /// Frees a page for the pool, whoever has to give it. `wanting` gives one of its own only if nobody else can.
    pub(crate) fn steal_page(&self, wanting: Option<ClassId>, now: Time, station: &Station) -> bool {
        for tried in 0..PAGES_TRIED_MAX {
            let Some((donor, page)) = self.donor(wanting, 0).or_else(|| self.donor(None, 0)) else { return false };
            if self.drain(donor, page, tried < PAGES_SPARED_MAX, now, station) {
                return true;
            }
        }
        false
    }

    /// Takes a page of chunks that another class does not need, evicting nothing; true if it reached the pool.
    pub(crate) fn take_spare_page(&self, wanting: ClassId) -> bool {
        let may_give = |class: &ClassId| *class != wanting && self.slabs.has_pages(*class);
        self.slabs.ids().filter(may_give).any(|class| self.give_empty_page(class))
    }

    /// Gives a page of the class that has no item, if there is one, to the pool.
    fn give_empty_page(&self, class: ClassId) -> bool {
        let mut locked = self.slabs.lock(class);
        let empty = locked.empty_page();
        empty.is_some_and(|page| self.slabs.start_draining(&self.arena, &mut locked, page))
    }

    /// Moves a page as an operator says, classes by the numbers users see: 0 is the pool, no `from` is any class. A page that
    /// cannot be emptied at once goes to the pool when the values in it have been sent.
    pub(crate) fn reassign(
        &self,
        from: Option<u32>,
        to: u32,
        now: Time,
        station: &Station,
    ) -> Result<(), ReassignError> {
        let class_of = |number: u32| match self.slabs.ids().find(|class| class.number() == number) {
            None if number > 0 => Err(ReassignError::BadClass),
            class => Ok(class),
        };
        let to = class_of(to)?;
        // What waits in magazines is spare for this.
        self.recall(|_| true);
        let taken = match from {
            Some(number) => class_of(number)?.map(|from| self.page_to_give(from).map(|(_, page)| (from, page))),
            None => {
                let others = self.slabs.ids().filter(|class| Some(*class) != to);
                let offers = others.filter_map(|class| self.page_to_give(class).ok().map(|offer| (offer, class)));
                let ((_, page), class) = offers.max_by_key(|((age, _), _)| *age).ok_or(ReassignError::BadClass)?;
                Some(Ok((class, page)))
            }
        };
        let is_in_pool = match taken {
            Some(taken) => {
                let (class, page) = taken?;
                // Where no item may go, the page may have got one since it was found empty.
                if self.config.evictions_enabled {
                    self.drain(class, page, false, now, station)
                } else if self.give_empty_page(class) {
                    true
                } else {
                    return Err(ReassignError::NoSpare);
                }
            }
            None if self.arena.has_free_page() => true,
            None => return Err(ReassignError::NoSpare),
        };
        if let Some(to) = to.filter(|_| is_in_pool)
            && let Some(page) = self.arena.take_page()
        {
            self.slabs.adopt(&self.arena, to, page);
        }
        Ok(())
    }

    /// The page that a class would give of two or more, and its age in turns.
    fn page_to_give(&self, class: ClassId) -> Result<(u64, PageId), ReassignError> {
        let mut locked = self.slabs.lock(class);
        let (age, oldest) = self.slabs.age_turns(&mut locked).ok_or(ReassignError::NoSpare)?;
        if locked.has_draining() {
            return Err(ReassignError::Busy);
        }
        let page = match locked.empty_page() {
            Some(page) => page,
            None if self.config.evictions_enabled => self.slabs.spare_page(&mut locked, 1).unwrap_or(oldest),
            None => return Err(ReassignError::NoSpare),
        };
        if locked.has_several_pages() { Ok((age, page)) } else { Err(ReassignError::NoSpare) }
    }

    /// The class and page to take: one with pages to spare, or else the one whose oldest page is oldest, above `age_min`.
    fn donor(&self, except: Option<ClassId>, age_min: u64) -> Option<(ClassId, PageId)> {
        let mut oldest: Option<(u64, ClassId, PageId)> = None;
        for class in self.slabs.ids().filter(|class| Some(*class) != except && self.slabs.has_pages(*class)) {
            let mut locked = self.slabs.lock(class);
            if let Some(page) = self.slabs.spare_page(&mut locked, SPARE_PAGES) {
                return Some((class, page));
            }
            let Some((age, page)) = self.slabs.age_turns(&mut locked) else { continue };
            if age >= age_min && oldest.is_none_or(|(most, ..)| age > most) {
                oldest = Some((age, class, page));
            }
        }
        oldest.map(|(_, class, page)| (class, page))
    }

    /// Empties a page, unless `spares_use` and it is all that its class has and in use; true if it reached the pool.
    fn drain(&self, class: ClassId, page: PageId, spares_use: bool, now: Time, station: &Station) -> bool {
        let started = {
            let mut locked = self.slabs.lock(class);
            if spares_use && self.slabs.is_only_one_and_in_use(&self.arena, &locked, page) {
                return false;
            }
            self.slabs.start_draining(&self.arena, &mut locked, page)
        };
        if started && self.slabs.is_draining(page) {
            self.empty_page(class, page, now, station);
        }
        started && !self.slabs.is_draining(page)
    }
}
