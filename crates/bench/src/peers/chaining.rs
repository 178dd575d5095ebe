//! memcached's index: buckets of one pointer to a chain that runs through the items.
//!
//! Always true: a chain changes only under the lock that `Locking` names; no item is in two chains.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed};

use guira_bench_memory::{Pages, Words};
use guira_sync::Stripes;

use super::{
    IndexFull, Locking, PointerIndex, STRIPES,
    key::{self, Key},
    records::{Compare, Records},
};

/// A chaining index over items that exist.
#[derive(Debug)]
pub struct Chaining {
    heads: Words,
    records: Arc<Records>,
    compare: Compare,
    locking: Locking,
    global: Mutex<()>,
    stripes: Stripes,
}

impl Chaining {
    /// An empty index of `buckets` buckets, a power of two.
    ///
    /// # Errors
    /// The operating system's, if it has no memory.
    pub fn new(
        records: Arc<Records>,
        buckets: usize,
        pages: Pages,
        compare: Compare,
        locking: Locking,
    ) -> io::Result<Self> {
        assert!(buckets.is_power_of_two(), "a hash is masked");
        assert!(locking != Locking::Optimistic, "a chain cannot be read without a lock");
        let heads = Words::new(buckets, pages)?;
        Ok(Self { heads, records, compare, locking, global: Mutex::new(()), stripes: Stripes::new(STRIPES) })
    }

    #[inline]
    fn bucket(&self, key: &Key) -> usize {
        key::hash(key) as usize & (self.heads.len() - 1)
    }

    /// Runs `work` under the bucket's lock.
    #[inline]
    fn locked<R>(&self, bucket: usize, work: impl FnOnce() -> R) -> R {
        match self.locking {
            Locking::Global => {
                let _guard = self.global.lock().unwrap_or_else(PoisonError::into_inner);
                work()
            }
            Locking::Bucket => {
                let stripe = bucket % STRIPES;
                let _guard = self.stripes.lock_pair(stripe, stripe);
                work()
            }
            _ => work(),
        }
    }
}

impl PointerIndex for Chaining {
    #[inline]
    fn contains(&self, key: &Key) -> bool {
        let bucket = self.bucket(key);
        self.locked(bucket, || {
            let mut pointer = self.heads[bucket].load(Relaxed);
            while pointer != 0 {
                let item = (pointer - 1) as u32;
                if self.records.key_is(item, key, self.compare) {
                    return true;
                }
                pointer = self.records.next(item);
            }
            false
        })
    }

    fn insert(&self, item: u32) -> Result<(), IndexFull> {
        let bucket = self.bucket(&self.records.key(item));
        self.locked(bucket, || {
            self.records.set_next(item, self.heads[bucket].load(Relaxed));
            self.heads[bucket].store(u64::from(item) + 1, Relaxed);
        });
        Ok(())
    }

    fn remove(&self, item: u32) {
        let bucket = self.bucket(&self.records.key(item));
        self.locked(bucket, || {
            let wanted = u64::from(item) + 1;
            let mut pointer = self.heads[bucket].load(Relaxed);
            if pointer == wanted {
                self.heads[bucket].store(self.records.next(item), Relaxed);
                return;
            }
            while pointer != 0 {
                let before = (pointer - 1) as u32;
                pointer = self.records.next(before);
                if pointer == wanted {
                    self.records.set_next(before, self.records.next(item));
                    return;
                }
            }
        });
    }
}
