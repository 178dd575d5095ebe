//! Guira's own index behind the peers' trait, over the same items.

use std::io;
use std::sync::Arc;

use guira_bench_memory::{HeapSegments, Pages};
use guira_cuckoo::{Index, Probe, SEGMENT_SLOTS};

use super::{
    IndexFull, PointerIndex,
    key::{self, Key},
    records::{Compare, Records},
};

/// The index; a payload is an item's number.
#[derive(Debug)]
pub struct GuiraIndex {
    index: Index<HeapSegments>,
    records: Arc<Records>,
}

impl GuiraIndex {
    /// An empty index with room for `items` items at nine tenths full.
    ///
    /// # Errors
    /// The operating system's, if it has no memory.
    pub fn new(records: Arc<Records>, items: usize, pages: Pages) -> io::Result<Self> {
        Ok(Self { index: empty((items * 10 / 9).div_ceil(SEGMENT_SLOTS), pages)?, records })
    }

    fn is(&self, payload: u32, key: &Key) -> bool {
        self.records.key_is(payload, key, Compare::Words)
    }
}

/// A bare index of so many segments, which does not grow.
///
/// # Errors
/// The operating system's, if it has no memory.
pub fn empty(segments: usize, pages: Pages) -> io::Result<Index<HeapSegments>> {
    let source = HeapSegments::new(segments, pages)?;
    Ok(Index::new(source, segments, segments).expect("the source has as many segments as are asked for"))
}

/// Adds a key that is not there.
///
/// # Errors
/// [`IndexFull`]
#[inline]
pub fn insert(index: &Index<HeapSegments>, probe: &Probe, payload: u32) -> Result<(), IndexFull> {
    loop {
        if index.lock_to_insert(probe, |_| false).0.insert(payload).is_ok() {
            return Ok(());
        }
        index.make_room(probe).map_err(|_| IndexFull)?;
    }
}

impl PointerIndex for GuiraIndex {
    #[inline]
    fn contains(&self, key: &Key) -> bool {
        self.index.read(&Probe::new(key::hash(key)), |payload| self.is(payload, key).then_some(())).is_some()
    }

    fn insert(&self, item: u32) -> Result<(), IndexFull> {
        insert(&self.index, &Probe::new(key::hash(&self.records.key(item))), item)
    }

    fn remove(&self, item: u32) {
        let mut locked = self.index.lock(&Probe::new(key::hash(&self.records.key(item))));
        if let Some(place) = locked.find(|payload| payload == item) {
            locked.remove(place);
        }
    }
}
