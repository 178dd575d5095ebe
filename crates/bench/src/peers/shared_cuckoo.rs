//! MemC3's cuckoo index for many threads: four slots a bucket, two paths, and the steps by which the paper arrives at it,
//! without or with tags, with bucket locks or with versions that readers only look at (sections 3.1 and 3.2).
//!
//! ```text
//! word 0                        1 .. 4
//!      tag x 4, 4 bytes unused  pointer x 4
//! ```
//! Always true: one writer at a time; a bucket changes under its stripe, which counts its versions; moves run from the free
//! end backwards, so an item is in at least one of its two buckets throughout.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed};

use guira_bench_memory::{Pages, Words};
use guira_sync::Stripes;

use super::{
    IndexFull, Locking, PointerIndex, STRIPES,
    key::{self, Key},
    paper_cuckoo::{alternate, tag_and_bucket},
    random_walk::{Buckets, Displace, Slot, WAYS, Walk},
    records::{Compare, Records},
};

const BUCKET_WORDS: usize = 5;

/// The index.
#[derive(Debug)]
pub struct SharedCuckoo {
    words: Words,
    mask: usize,
    records: Arc<Records>,
    uses_tags: bool,
    locking: Locking,
    stripes: Stripes,
    /// Held by the writer.
    walk: Mutex<Walk>,
}

impl SharedCuckoo {
    /// An empty index of `buckets` buckets, a power of two.
    ///
    /// # Errors
    /// The operating system's, if it has no memory.
    pub fn new(
        records: Arc<Records>,
        buckets: usize,
        pages: Pages,
        uses_tags: bool,
        locking: Locking,
    ) -> io::Result<Self> {
        assert!(buckets.is_power_of_two(), "a hash is masked");
        assert!(locking != Locking::Global, "the writers' mutex keeps no reader out");
        let words = Words::new(buckets * BUCKET_WORDS, pages)?;
        let (stripes, walk) = (Stripes::new(STRIPES), Mutex::new(Walk::new(2)));
        Ok(Self { words, mask: buckets - 1, records, uses_tags, locking, stripes, walk })
    }

    #[inline]
    fn places(&self, key: &Key) -> (u8, [usize; 2]) {
        let (tag, bucket) = tag_and_bucket(key::hash(key));
        let first = bucket & self.mask;
        (tag, [first, alternate(first, tag, self.mask)])
    }

    #[inline]
    fn tag(&self, slot: Slot) -> u8 {
        self.words[slot.bucket * BUCKET_WORDS].load(Relaxed).to_le_bytes()[slot.way]
    }

    #[inline]
    fn pointer(&self, slot: Slot) -> u64 {
        self.words[slot.bucket * BUCKET_WORDS + 1 + slot.way].load(Relaxed)
    }

    #[inline]
    fn put(&self, slot: Slot, tag: u8, pointer: u64) {
        self.words[slot.bucket * BUCKET_WORDS + 1 + slot.way].store(pointer, Relaxed);
        self.set_tag(slot, tag);
    }

    #[inline]
    fn set_tag(&self, slot: Slot, tag: u8) {
        let word = &self.words[slot.bucket * BUCKET_WORDS];
        let others = word.load(Relaxed) & !(0xff << (slot.way * 8));
        word.store(others | u64::from(tag) << (slot.way * 8), Relaxed);
    }

    #[inline]
    fn search(&self, tag: u8, places: [usize; 2], key: &Key) -> Option<Slot> {
        for bucket in places {
            let tags = self.words[bucket * BUCKET_WORDS].load(Relaxed).to_le_bytes();
            for (way, own) in tags.into_iter().take(WAYS).enumerate() {
                if own != tag && (self.uses_tags || own == 0) {
                    continue;
                }
                let slot = Slot { bucket, way };
                let pointer = self.pointer(slot);
                if pointer != 0 && self.records.key_is((pointer - 1) as u32, key, Compare::Words) {
                    return Some(slot);
                }
            }
        }
        None
    }
}

/// The writer's view.
struct Writing<'a>(&'a SharedCuckoo);

impl Buckets for Writing<'_> {
    const WAYS: usize = WAYS;

    fn free(&self, bucket: usize) -> Option<usize> {
        let tags = self.0.words[bucket * BUCKET_WORDS].load(Relaxed).to_le_bytes();
        tags.iter().take(WAYS).position(|tag| *tag == 0)
    }

    fn other(&self, slot: Slot) -> Option<usize> {
        let tag = self.0.tag(slot);
        (tag != 0).then(|| alternate(slot.bucket, tag, self.0.mask))
    }
}

impl Displace for Writing<'_> {
    fn displace(&mut self, from: Slot, to: Slot) {
        let mut guard = self.0.stripes.lock_pair(from.bucket % STRIPES, to.bucket % STRIPES);
        guard.start_writing();
        self.0.put(to, self.0.tag(from), self.0.pointer(from));
        self.0.set_tag(from, 0);
    }
}

impl PointerIndex for SharedCuckoo {
    #[inline]
    fn contains(&self, key: &Key) -> bool {
        let (tag, places) = self.places(key);
        let [first, second] = places.map(|bucket| bucket % STRIPES);
        match self.locking {
            Locking::Optimistic => loop {
                let versions = [self.stripes.begin(first), self.stripes.begin(second)];
                let found = self.search(tag, places, key).is_some();
                if versions.iter().all(|version| version.is_unchanged()) {
                    return found;
                }
            },
            Locking::Bucket => {
                let _guard = self.stripes.lock_pair(first, second);
                self.search(tag, places, key).is_some()
            }
            _ => self.search(tag, places, key).is_some(),
        }
    }

    fn insert(&self, item: u32) -> Result<(), IndexFull> {
        let (tag, roots) = self.places(&self.records.key(item));
        let mut walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = Writing(self);
        let free = roots.into_iter().find_map(|bucket| Some(Slot { bucket, way: table.free(bucket)? }));
        let slot = match free {
            Some(slot) => slot,
            None => walk.make_room(&mut table, roots)?.0,
        };
        let mut guard = self.stripes.lock_pair(slot.bucket % STRIPES, slot.bucket % STRIPES);
        guard.start_writing();
        self.put(slot, tag, u64::from(item) + 1);
        Ok(())
    }

    fn remove(&self, item: u32) {
        let key = self.records.key(item);
        let (tag, places) = self.places(&key);
        let _walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = self.search(tag, places, &key) {
            let mut guard = self.stripes.lock_pair(slot.bucket % STRIPES, slot.bucket % STRIPES);
            guard.start_writing();
            self.set_tag(slot, 0);
        }
    }
}
