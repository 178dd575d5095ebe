//! The Space-Saving counter (Metwally, Agrawal and El Abbadi, 2005) in the form of SwitchKV's Figure 5 and Algorithm 1.
//!
//! ```text
//! lowest                              highest
//! [count 1] <-> [count 4] <-> [count 5]          buckets: keys that were seen equally often
//!   a b c         d             e f
//!   oldest first
//! ```
//! Always true: buckets ascend, no two have the same count, none is empty; the keys of a bucket stand in the order in which they came to
//! it; the counts of all keys add up to the queries seen; a key's count is at least how often it was seen, and above it by no
//! more than its `over`, which is no more than the queries seen over the keys that there is room for.

use crate::key_slots::{HashedKey, KeySlots, Slot};

/// What is known of how often a key was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    /// Not more often than this.
    pub at_most: u64,
    /// By so much this may be too much: what the key had whose place it took.
    pub over: u64,
}

impl Count {
    /// Not less often than this.
    pub fn at_least(self) -> u64 {
        self.at_most - self.over
    }
}

/// A place in a list of nodes or of buckets, or its end.
type Link = Option<u32>;

/// A key's place in its bucket.
#[derive(Clone, Copy, Debug)]
struct Node {
    bucket: u32,
    older: Link,
    newer: Link,
    over: u64,
}

/// Keys that were seen equally often.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    count: u64,
    oldest: Link,
    newest: Link,
    lower: Link,
    higher: Link,
}

/// Counts how often keys are seen, for as many as there is room for: the most frequent ones are among them.
#[derive(Clone, Debug)]
pub struct SpaceSaving {
    keys: KeySlots,
    /// By slot.
    nodes: Vec<Node>,
    buckets: Vec<Bucket>,
    free: Vec<u32>,
    lowest: Link,
    highest: Link,
    seen: u64,
}

impl SpaceSaving {
    /// A counter for `len_max` keys, which hash by `seed`.
    ///
    /// # Panics
    /// `len_max` is 0 or beyond 2^32.
    pub fn new(len_max: usize, seed: u64) -> Self {
        Self {
            keys: KeySlots::new(len_max, seed),
            nodes: Vec::new(),
            buckets: Vec::new(),
            free: Vec::new(),
            lowest: None,
            highest: None,
            seen: 0,
        }
    }

    /// Counts a query. O(1).
    pub fn see(&mut self, key: &[u8]) {
        self.see_hashed(self.keys.hash(key));
    }

    /// The same of a key that was hashed by this counter's seed.
    pub fn see_hashed(&mut self, key: HashedKey<'_>) {
        self.seen += 1;
        let (found, key) = (self.keys.find_hashed(key), key.bytes());
        match found {
            Ok(slot) => self.increment(slot.index() as u32),
            Err(absent) if !self.keys.is_full() => {
                let slot = self.keys.insert(absent, key);
                self.begin(slot);
            }
            Err(absent) => {
                let (slot, count) = self.least();
                self.keys.replace(slot, absent, key);
                self.nodes[slot.index()].over = count;
                self.increment(slot.index() as u32);
            }
        }
    }

    /// Queries since it was made or cleared.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// How often a key was seen; `None` if it is not tracked: then no more often than the least of those that are.
    pub fn count(&self, key: &[u8]) -> Option<Count> {
        self.keys.find(key).ok().map(|slot| self.count_at(slot.index() as u32))
    }

    /// The keys that are tracked, those seen most often first, and of equals the latest.
    pub fn descending(&self) -> impl Iterator<Item = (&[u8], Count)> {
        let newest_of = |bucket: Link| bucket.and_then(|bucket| self.buckets[bucket as usize].newest);
        let mut next = newest_of(self.highest);
        std::iter::from_fn(move || {
            let at = next?;
            let node = &self.nodes[at as usize];
            next = node.older.or_else(|| newest_of(self.buckets[node.bucket as usize].lower));
            Some((self.keys.key(Slot::at(at)), self.count_at(at)))
        })
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.buckets.clear();
        self.free.clear();
        (self.lowest, self.highest, self.seen) = (None, None, 0);
    }

    fn count_at(&self, at: u32) -> Count {
        let node = &self.nodes[at as usize];
        Count { at_most: self.buckets[node.bucket as usize].count, over: node.over }
    }

    /// Who was seen least, and of equals longest ago; and how often.
    fn least(&self) -> (Slot, u64) {
        let lowest = &self.buckets[self.lowest.expect("it is full") as usize];
        (Slot::at(lowest.oldest.expect("no bucket is empty")), lowest.count)
    }

    /// A key has been seen for the first time.
    fn begin(&mut self, slot: Slot) {
        let bucket = match self.lowest {
            Some(lowest) if self.buckets[lowest as usize].count == 1 => lowest,
            lowest => self.new_bucket(1, None, lowest),
        };
        let node = Node { bucket, older: None, newer: None, over: 0 };
        match self.nodes.get_mut(slot.index()) {
            Some(used) => *used = node,
            None => self.nodes.push(node),
        }
        self.append(slot.index() as u32, bucket);
    }

    fn increment(&mut self, at: u32) {
        let bucket = self.nodes[at as usize].bucket;
        let Bucket { count, oldest, newest, higher, .. } = self.buckets[bucket as usize];
        let next = higher.filter(|higher| self.buckets[*higher as usize].count == count + 1);
        if next.is_none() && oldest == newest {
            // It is alone.
            self.buckets[bucket as usize].count += 1;
            return;
        }
        let to = next.unwrap_or_else(|| self.new_bucket(count + 1, Some(bucket), higher));
        self.detach(at);
        self.append(at, to);
    }

    fn new_bucket(&mut self, count: u64, lower: Link, higher: Link) -> u32 {
        let bucket = Bucket { count, oldest: None, newest: None, lower, higher };
        let at = match self.free.pop() {
            Some(at) => {
                self.buckets[at as usize] = bucket;
                at
            }
            None => {
                self.buckets.push(bucket);
                (self.buckets.len() - 1) as u32
            }
        };
        *self.above(lower) = Some(at);
        *self.below(higher) = Some(at);
        at
    }

    /// What points up at the bucket above `bucket`.
    fn above(&mut self, bucket: Link) -> &mut Link {
        match bucket {
            Some(bucket) => &mut self.buckets[bucket as usize].higher,
            None => &mut self.lowest,
        }
    }

    /// What points down at the bucket below `bucket`.
    fn below(&mut self, bucket: Link) -> &mut Link {
        match bucket {
            Some(bucket) => &mut self.buckets[bucket as usize].lower,
            None => &mut self.highest,
        }
    }

    /// Takes a key from its bucket, and the bucket away if it is empty then.
    fn detach(&mut self, at: u32) {
        let Node { bucket, older, newer, .. } = self.nodes[at as usize];
        match older {
            Some(older) => self.nodes[older as usize].newer = newer,
            None => self.buckets[bucket as usize].oldest = newer,
        }
        match newer {
            Some(newer) => self.nodes[newer as usize].older = older,
            None => self.buckets[bucket as usize].newest = older,
        }
        let Bucket { oldest, lower, higher, .. } = self.buckets[bucket as usize];
        if oldest.is_none() {
            *self.above(lower) = higher;
            *self.below(higher) = lower;
            self.free.push(bucket);
        }
    }

    /// Puts a key at the end of a bucket.
    fn append(&mut self, at: u32, bucket: u32) {
        let older = self.buckets[bucket as usize].newest.replace(at);
        match older {
            Some(older) => self.nodes[older as usize].newer = Some(at),
            None => self.buckets[bucket as usize].oldest = Some(at),
        }
        let node = &mut self.nodes[at as usize];
        (node.bucket, node.older, node.newer) = (bucket, older, None);
    }
}

#[cfg(test)]
#[path = "space_saving_tests.rs"]
mod tests;
