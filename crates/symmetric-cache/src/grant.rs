//! Until when a node serves, and of which shards it is home.
//!
//! Always true: while the stamp stays the same the node is the same member, home of the same shards, and its lease is only made longer.

use guira_item::Moment;
use guira_sync::atomic::{AtomicU64, Ordering, fence};

const CHANGING: u64 = 1;

/// The lease and the homes.
#[derive(Debug)]
pub(crate) struct Grant {
    stamp: AtomicU64,
    until_ns: AtomicU64,
    shards: AtomicU64,
    /// A bit each.
    homes: Box<[AtomicU64]>,
}

/// What was granted, as it was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Granted {
    stamp: u64,
    pub(crate) until: Moment,
}

impl Grant {
    /// None.
    pub(crate) fn new(shards_max: usize) -> Self {
        let homes = (0..shards_max.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { stamp: AtomicU64::new(0), until_ns: AtomicU64::new(0), shards: AtomicU64::new(0), homes }
    }

    /// What a reader begins with. While it is being changed nothing is granted.
    #[inline]
    pub(crate) fn seen(&self) -> Granted {
        // Acquire: pairs with the Release store in `set`.
        let stamp = self.stamp.load(Ordering::Acquire);
        let is_changing = stamp & CHANGING != 0;
        let until_ns = if is_changing { 0 } else { self.until_ns.load(Ordering::Relaxed) };
        Granted { stamp, until: Moment::from_ns(until_ns) }
    }

    /// Whether it is granted still, of all that was read since it was seen. The caller has put an Acquire fence between, which pairs with the Release fence in `close`.
    #[inline]
    pub(crate) fn is_still(&self, granted: Granted) -> bool {
        self.stamp.load(Ordering::Relaxed) == granted.stamp
    }

    /// Whether the node answers for what is cold of a hash, if all is granted still.
    #[inline]
    pub(crate) fn is_home_of(&self, hash: u64) -> bool {
        let Some(shard) = hash.checked_rem(self.shards.load(Ordering::Relaxed)) else { return false };
        let homes = self.homes.get((shard / 64) as usize);
        homes.is_some_and(|homes| homes.load(Ordering::Relaxed) >> (shard % 64) & 1 != 0)
    }

    /// The writer's: nothing is granted until [`set`](Self::set). What is done after it is seen by nobody for whom something is granted still.
    pub(crate) fn close(&self) {
        let stamp = self.stamp.load(Ordering::Relaxed);
        self.stamp.store(stamp | CHANGING, Ordering::Relaxed);
        // Release: pairs with readers' Acquire fences.
        fence(Ordering::Release);
    }

    /// The writer's, after [`close`](Self::close).
    pub(crate) fn set(&self, until: Moment, shards: usize, is_home_of: impl Fn(usize) -> bool) {
        self.until_ns.store(until.ns(), Ordering::Relaxed);
        self.shards.store(shards as u64, Ordering::Relaxed);
        for (number, homes) in self.homes.iter().enumerate() {
            let is_home = |shard: usize| shard < shards && is_home_of(shard);
            let bit = |bit: usize| u64::from(is_home(number * 64 + bit)) << bit;
            homes.store((0..64).map(bit).sum(), Ordering::Relaxed);
        }
        let stamp = self.stamp.load(Ordering::Relaxed);
        // Release: pairs with the Acquire load in `seen`; what was done before is seen by who is granted something.
        self.stamp.store((stamp | CHANGING).wrapping_add(1), Ordering::Release);
    }

    /// The writer's: the same lease goes on.
    pub(crate) fn renew(&self, until: Moment) {
        self.until_ns.store(until.ns(), Ordering::Relaxed);
    }
}
