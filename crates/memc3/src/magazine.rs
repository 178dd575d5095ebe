//! Free chunks that wait for a worker's next stores, taken a batch at a time: threads that store at the same time meet over the
//! lock of a size class, and the lines that it protects, once a batch and not at every item (Bonwick and Adams, USENIX ATC'01).
//!
//! Always true: a chunk in a magazine holds no item and counts as used in its class; all chunks of a magazine are of one class,
//! and no more than one batch. Whoever empties a page takes its chunks out of all magazines ([`Magazine::recall`]), and whoever
//! fills a magazine looks afterwards whether a page is being emptied, so that none stays. Where no item may be evicted for a
//! store, nothing waits in magazines.

use std::sync::{Mutex, MutexGuard, PoisonError};

use guira_sync::reuse;

use guira_arena::Place;

use crate::{counters::Counters, size_classes::ClassId};

/// What is a worker's own, and others look into.
#[derive(Debug, Default)]
pub(crate) struct Station {
    pub counters: Counters,
    pub magazine: Magazine,
}

/// Free chunks of one class. Its lock is the worker's but for those who count chunks or empty a page, and is held while no other
/// lock of the engine is taken.
#[derive(Debug, Default)]
pub(crate) struct Magazine {
    chunks: Mutex<Chunks>,
}

#[derive(Debug, Default)]
struct Chunks {
    class: Option<ClassId>,
    places: Vec<Place>,
}

impl Magazine {
    fn lock(&self) -> MutexGuard<'_, Chunks> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A chunk of a class, if there is one.
    pub fn take(&self, class: ClassId) -> Option<Place> {
        let mut chunks = self.lock();
        let place = if chunks.class == Some(class) { chunks.places.pop() } else { None };
        if place.is_some() {
            // A worker may go from thread to thread, and a station from worker to worker.
            reuse::before_reuse();
        }
        place
    }

    /// Puts chunks of a class in; what is left over in exchange is to be freed: the chunks of another class, or these, if others
    /// of the class are there already.
    #[must_use]
    pub fn fill(&self, class: ClassId, places: Vec<Place>) -> Vec<Place> {
        let mut chunks = self.lock();
        if places.is_empty() || (chunks.class == Some(class) && !chunks.places.is_empty()) {
            return places;
        }
        chunks.class = Some(class);
        std::mem::replace(&mut chunks.places, places)
    }

    /// Takes out the chunks that are in a page, say; they are to be freed.
    #[must_use]
    pub fn recall(&self, is_wanted: impl Fn(Place) -> bool) -> Vec<Place> {
        self.lock().places.extract_if(.., |place| is_wanted(*place)).collect()
    }

    /// Whether nothing is here.
    pub fn is_empty(&self) -> bool {
        self.lock().places.is_empty()
    }

    /// How many chunks are here, and of which class.
    pub fn held(&self) -> Option<(ClassId, usize)> {
        let chunks = self.lock();
        chunks.class.map(|class| (class, chunks.places.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: ClassId = ClassId(3);
    const OTHER: ClassId = ClassId(4);

    #[test]
    fn a_magazine_serves_one_class_and_hands_back_what_it_does_not_keep() {
        let magazine = Magazine::default();
        assert_eq!(magazine.take(CLASS), None);
        assert_eq!(magazine.fill(CLASS, vec![Place(1), Place(2)]), []);
        assert_eq!(magazine.held(), Some((CLASS, 2)));
        assert_eq!(magazine.take(OTHER), None);
        assert_eq!(magazine.take(CLASS), Some(Place(2)));
        assert_eq!(magazine.fill(CLASS, vec![Place(3)]), [Place(3)], "there is one already");
        assert_eq!(magazine.fill(OTHER, vec![]), []);
        assert_eq!(magazine.held(), Some((CLASS, 1)), "nothing came in exchange");
        assert_eq!(magazine.fill(OTHER, vec![Place(4), Place(5)]), [Place(1)], "the other class's");
        assert_eq!(magazine.held(), Some((OTHER, 2)));
        assert_eq!(magazine.recall(|place| place.0 == 4), [Place(4)]);
        assert_eq!(magazine.take(OTHER), Some(Place(5)));
        assert_eq!(magazine.take(OTHER), None);
    }
}
