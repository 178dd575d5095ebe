//! The order of locks, asserted in debug builds: a thread that takes a lock says its rank, and holds nothing that must not be
//! held with it. The order itself is written down in ARCHITECTURE.md.

/// What kind of lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rank {
    /// A size class of the slabs: taken while holding nothing, or a table's growth.
    Class = 0,
    /// The pool of pages: taken while holding at most a class, or a table's growth.
    Pool = 1,
    /// Version stripes: taken while holding nothing, or a table's growth.
    Stripes = 2,
    /// The growth of a table: taken while holding nothing.
    Growth = 3,
}

/// A lock of some rank is held until this is dropped.
#[derive(Debug)]
pub struct Held {
    #[cfg(all(debug_assertions, not(any(loom, shuttle))))]
    rank: Rank,
}

#[cfg(all(debug_assertions, not(any(loom, shuttle))))]
thread_local! {
    static HELD: std::cell::Cell<[bool; 4]> = const { std::cell::Cell::new([false; 4]) };
}

impl Held {
    /// Notes that the thread takes a lock of this rank.
    ///
    /// # Panics
    /// In debug builds, if it holds a lock that must not be held with it.
    #[inline]
    pub fn note(rank: Rank) -> Self {
        #[cfg(all(debug_assertions, not(any(loom, shuttle))))]
        {
            let mut held = HELD.get();
            let [class, pool, stripes, _growth] = held;
            let allowed = match rank {
                Rank::Growth => held == [false; 4],
                Rank::Class | Rank::Stripes => !class && !pool && !stripes,
                Rank::Pool => !pool && !stripes,
            };
            assert!(allowed, "lock order: {rank:?} while holding class, pool, stripes, growth: {held:?}");
            held[rank as usize] = true;
            HELD.set(held);
            Self { rank }
        }
        #[cfg(not(all(debug_assertions, not(any(loom, shuttle)))))]
        {
            let _ = rank;
            Self {}
        }
    }
}

#[cfg(all(debug_assertions, not(any(loom, shuttle))))]
impl Drop for Held {
    fn drop(&mut self) {
        let mut held = HELD.get();
        held[self.rank as usize] = false;
        HELD.set(held);
    }
}

#[cfg(all(test, debug_assertions, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_pool_may_be_locked_inside_a_class_and_nothing_inside_stripes() {
        let class = Held::note(Rank::Class);
        drop(Held::note(Rank::Pool));
        assert!(std::panic::catch_unwind(|| Held::note(Rank::Stripes)).is_err());
        drop(class);
        let _stripes = Held::note(Rank::Stripes);
        for rank in [Rank::Class, Rank::Pool, Rank::Stripes, Rank::Growth] {
            assert!(std::panic::catch_unwind(|| Held::note(rank)).is_err(), "{rank:?}");
        }
    }

    #[test]
    fn growth_is_locked_before_everything_else() {
        let growth = Held::note(Rank::Growth);
        drop(Held::note(Rank::Pool));
        drop(Held::note(Rank::Stripes));
        assert!(std::panic::catch_unwind(|| Held::note(Rank::Growth)).is_err());
        drop(growth);
        for rank in [Rank::Class, Rank::Pool, Rank::Stripes] {
            let _held = Held::note(rank);
            assert!(std::panic::catch_unwind(|| Held::note(Rank::Growth)).is_err(), "{rank:?}");
        }
    }
}
