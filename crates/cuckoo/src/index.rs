//! The index: optimistic reads, locked changes, insertion with displacement.
//!
//! Always true: whoever holds any stripe holds the layout still, because the layout changes only under all of them; a read
//! is believed only if the stripe of the bucket it came from and the layout are unchanged since before the read.

use std::sync::Mutex;

use guira_sync::{
    PairGuard, Stripes,
    atomic::{AtomicU32, Ordering},
};

use crate::{
    bucket::{BUCKET_SLOTS, Bucket},
    layout::{Directories, Layout, SEGMENT_BUCKETS, SEGMENT_BYTES, SEGMENT_SLOTS, Segment, SegmentSource},
    path::{self, Move},
    probe::{Probe, alternate},
};

/// Optimistic attempts before a read takes the lock like a writer: many more than writers that come and go can spoil, so
/// only a reader that is out of luck for microseconds on end pays.
const ATTEMPTS_MAX: u32 = 256;

/// Displacement searches in a row, each spoilt by another writer, before a segment counts as full.
const SEARCHES_MAX: u32 = 64;

/// A concurrent cuckoo index from hashes to 32-bit payloads, and a `D` for each stripe in which the caller counts what it
/// counts under the lock. See the crate's documentation.
#[derive(Debug)]
pub struct Index<S, D = ()> {
    pub(crate) stripes: Stripes<StripeData<D>>,
    pub(crate) directories: Directories,
    /// Held by whoever grows the index.
    pub(crate) growing: Mutex<()>,
    pub(crate) source: S,
}

/// What stands beside a stripe's word.
#[derive(Debug, Default)]
pub(crate) struct StripeData<D> {
    /// Keys whose first bucket has this number, in all segments; changed under the stripe.
    len: AtomicU32,
    data: D,
}

/// There is no room for a key: its segment is as full as it gets. Growing helps, or removing one of the keys that
/// [`Locked::neighbours`] names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Where a key lies, for as long as the [`Locked`] that said so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    bucket: u16,
    slot: u8,
}

impl<S: SegmentSource, D: Default> Index<S, D> {
    /// An index of `segments` segments that may grow to `segments_max`.
    ///
    /// # Errors
    /// [`Full`] if the source has no memory for that many.
    pub fn new(source: S, segments: usize, segments_max: usize) -> Result<Self, Full> {
        let directories = Directories::new(segments_max.max(segments));
        let segments = segments.clamp(1, directories.segments_max());
        let index = Self { stripes: Stripes::new(SEGMENT_BUCKETS), directories, growing: Mutex::new(()), source };
        for at in 0..segments {
            let segment = index.allocate_segment().ok_or(Full)?;
            index.directories.set_segment(0, at, segment);
        }
        index.directories.publish(Layout { directory: 0, current: segments, next: 0, done: 0 });
        Ok(index)
    }

    pub(crate) fn allocate_segment(&self) -> Option<*mut Segment> {
        let segment = self.source.allocate()?.as_ptr();
        // SAFETY: the source hands out memory for a whole segment that stays mapped (contract of `SegmentSource`), of atomics
        // for which every bit pattern is valid; it is not in a directory yet, so nobody else writes to it.
        for bucket in unsafe { &*segment } {
            bucket.clear();
        }
        Some(segment)
    }

    /// The memory source.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Keys in the index; exact when nobody is writing.
    pub fn len(&self) -> usize {
        self.stripes.all_data().map(|stripe| stripe.len.load(Ordering::Relaxed) as usize).sum()
    }

    /// The caller's data of the stripe of a key, [`Probe::stripe`]. It is held by whoever holds the key's [`Locked`].
    #[inline]
    pub fn stripe_data(&self, stripe: usize) -> &D {
        &self.stripes.data(stripe).data
    }

    /// Whether there is no key; exact when nobody is writing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Segments held now.
    pub fn segments(&self) -> usize {
        let layout = self.layout();
        let passed = (layout.done * layout.current).checked_div(layout.next).unwrap_or(0);
        layout.current + layout.done - passed
    }

    /// Slots in all segments.
    pub fn capacity(&self) -> usize {
        self.segments() * SEGMENT_SLOTS
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> usize {
        self.segments() * SEGMENT_BYTES
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout::of_word(self.directories.word())
    }

    /// The segment in which `position` lies under the layout `word`; `None` if that layout is long gone.
    #[inline]
    fn segment_at(&self, word: u64, position: u32) -> Option<&Segment> {
        let (directory, at) = Layout::place_of_word(word, position);
        let segment = self.directories.segment(directory, at);
        // SAFETY: a directory holds null or what the source handed out, which stays mapped as long as the source, a field of
        // `self`, lives; a segment consists of atomics, for which every bit pattern is valid.
        unsafe { segment.as_ref() }
    }

    #[inline]
    fn word_is_unchanged(&self, word: u64) -> bool {
        // Ordered behind the reads it validates by the Acquire fence in `Stripes::is_unchanged`.
        self.directories.word_relaxed() == word
    }

    /// Asks for both buckets of a key ahead of their use.
    #[inline]
    pub fn prefetch(&self, probe: &Probe) {
        if let Some(segment) = self.segment_at(self.directories.word(), probe.position) {
            path::prefetch(&segment[usize::from(probe.first)]);
            path::prefetch(&segment[usize::from(probe.second)]);
        }
    }

    /// A payload that is likely to be the key's, of those that `likely` accepts, to be asked for ahead of its use. Only a
    /// hint: it may be out of date or another key's.
    #[inline]
    pub fn hint(&self, probe: &Probe, mut likely: impl FnMut(u32) -> bool) -> Option<u32> {
        let segment = self.segment_at(self.directories.word(), probe.position)?;
        [probe.first, probe.second].into_iter().find_map(|number| {
            let bucket = &segment[usize::from(number)];
            bucket.matching(probe.tag).map(|slot| bucket.payload(slot)).find(|payload| likely(*payload))
        })
    }

    /// Reads without writing a shared word. `examine` is called with the payload of every slot whose tag fits and says
    /// `Some` if it is the key's. What it returns is given back only if the bucket did not change meanwhile; otherwise it is
    /// dropped and all is repeated, so `examine` must put up with payloads of other keys and with memory that changes. A
    /// reader that writers disturb again and again takes the lock.
    #[inline]
    pub fn read<R>(&self, probe: &Probe, mut examine: impl FnMut(u32) -> Option<R>) -> Option<R> {
        self.read_unlocked(probe, &mut examine).unwrap_or_else(|Contended| {
            let locked = self.lock(probe);
            let mut found = None;
            let _place = locked.find(|payload| {
                found = examine(payload);
                found.is_some()
            });
            found
        })
    }

    /// The same, for a caller who has a way of its own to go on when writers disturb it again and again.
    ///
    /// # Errors
    /// [`Contended`] after several hundred attempts in vain.
    #[inline]
    pub fn read_unlocked<R>(
        &self,
        probe: &Probe,
        mut examine: impl FnMut(u32) -> Option<R>,
    ) -> Result<Option<R>, Contended> {
        let (first, second) = (usize::from(probe.first), usize::from(probe.second));
        for _ in 0..ATTEMPTS_MAX {
            let word = self.directories.word();
            let Some(segment) = self.segment_at(word, probe.position) else { continue };
            let valid = |number, version| self.stripes.is_unchanged(number, version) && self.word_is_unchanged(word);
            let first_version = self.stripes.begin(first);
            let (mut number, mut version) = (first, first_version);
            // One loop rather than the same twice: `examine`, which is most of the work, is then compiled in place.
            loop {
                let bucket = &segment[number];
                if let Some(found) = bucket.matching(probe.tag).find_map(|slot| examine(bucket.payload(slot))) {
                    if valid(number, version) {
                        return Ok(Some(found));
                    }
                    break;
                }
                if number == second {
                    // A key that moves from the second bucket to the first behind our back changes the first one's version.
                    if valid(first, first_version) && valid(second, version) {
                        return Ok(None);
                    }
                    break;
                }
                (number, version) = (second, self.stripes.begin(second));
            }
        }
        Err(Contended)
    }

    /// Locks the two buckets of a key: nobody else changes either, or the layout, until the result is dropped.
    #[inline]
    pub fn lock(&self, probe: &Probe) -> Locked<'_, S, D> {
        self.lock_buckets(probe, probe.second)
    }

    #[inline]
    fn lock_buckets(&self, probe: &Probe, second: u16) -> Locked<'_, S, D> {
        let guard = self.stripes.lock_pair(usize::from(probe.first), usize::from(second));
        let segment =
            self.segment_at(self.directories.word(), probe.position).expect("the layout in force has its segments");
        Locked { index: self, guard, segment, probe: *probe, second }
    }

    /// Locks a key and finds it. If it lies in its first bucket, that is all that is locked: what can be done to a key that is
    /// there needs no more.
    #[inline]
    pub fn lock_and_find(
        &self,
        probe: &Probe,
        mut is_it: impl FnMut(u32) -> bool,
    ) -> (Locked<'_, S, D>, Option<Place>) {
        let locked = self.lock_buckets(probe, probe.first);
        let place = locked.find(&mut is_it);
        if place.is_some() {
            return (locked, place);
        }
        drop(locked);
        let locked = self.lock(probe);
        let place = locked.find(is_it);
        (locked, place)
    }

    /// Locks the bucket that a key was found in a moment ago, unless somebody else holds it or the key is gone from there:
    /// for changes that may as well not happen, so that who makes them never waits.
    #[inline]
    pub fn try_lock_and_find(
        &self,
        probe: &Probe,
        mut is_it: impl FnMut(u32) -> bool,
    ) -> Option<(Locked<'_, S, D>, Place)> {
        [probe.first, probe.second].into_iter().find_map(|second| {
            let guard = self.stripes.try_lock_pair(usize::from(probe.first), usize::from(second))?;
            let segment = self.segment_at(self.directories.word(), probe.position)?;
            let locked = Locked { index: self, guard, segment, probe: *probe, second };
            let place = locked.find(&mut is_it)?;
            Some((locked, place))
        })
    }

    /// Calls `change` while the stripe is held: no key whose first bucket has this number changes meanwhile.
    pub fn with_stripe<R>(&self, stripe: usize, change: impl FnOnce() -> R) -> R {
        let _guard = self.stripes.lock_pair(stripe, stripe);
        change()
    }

    /// Calls `work` while every stripe is held: nobody changes any key meanwhile, and readers go on.
    pub fn with_all_stripes<R>(&self, work: impl FnOnce() -> R) -> R {
        let _all = self.stripes.lock_all();
        work()
    }

    /// Frees a slot in one of the key's buckets by displacement; another writer may take it again.
    ///
    /// # Errors
    /// [`Full`] if no short chain of displacements frees one.
    pub fn make_room(&self, probe: &Probe) -> Result<(), Full> {
        for _ in 0..SEARCHES_MAX {
            let word = self.directories.word();
            let segment = self.segment_at(word, probe.position).ok_or(Full)?;
            let path = path::search(segment, probe).ok_or(Full)?;
            if path.moves().iter().all(|step| self.displace(word, segment, step)) {
                return Ok(());
            }
        }
        Err(Full)
    }

    /// Carries out one move, if everything still is as it was when the path was found.
    fn displace(&self, word: u64, segment: &Segment, step: &Move) -> bool {
        let to = alternate(step.bucket, step.tag);
        let mut guard = self.stripes.lock_pair(usize::from(step.bucket), usize::from(to));
        self.directories.word() == word
            && move_item(&segment[usize::from(step.bucket)], &segment[usize::from(to)], step, || guard.start_writing())
    }

    #[cfg(all(test, loom))]
    pub(crate) fn displace_for_test(&self, step: &Move) -> bool {
        let word = self.directories.word();
        self.displace(word, self.segment_at(word, 0).expect("in force"), step)
    }

    #[inline]
    fn count(&self, stripe: usize, change: impl FnOnce(u32) -> u32) {
        let len = &self.stripes.data(stripe).len;
        len.store(change(len.load(Ordering::Relaxed)), Ordering::Relaxed);
    }
}

/// A read was disturbed by writers each time it was tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contended;

/// The caller is the only writer to both buckets. `before` is called before the first store.
pub(crate) fn move_item(from: &Bucket, to: &Bucket, step: &Move, before: impl FnOnce()) -> bool {
    let slot = usize::from(step.slot);
    if from.tag(slot) != step.tag || from.payload(slot) != step.payload {
        return false;
    }
    let Some(free) = to.free().first() else { return false };
    before();
    to.set_payload(free, step.payload);
    to.set_tag(free, step.tag);
    from.set_tag(slot, 0);
    true
}

/// The two buckets of a key, locked.
#[derive(Debug)]
pub struct Locked<'a, S, D = ()> {
    index: &'a Index<S, D>,
    guard: PairGuard<'a, StripeData<D>>,
    segment: &'a Segment,
    probe: Probe,
    /// The second bucket that is locked: the key's, or its first one once more.
    second: u16,
}

impl<S: SegmentSource, D: Default> Locked<'_, S, D> {
    #[inline]
    fn bucket(&self, number: u16) -> &Bucket {
        &self.segment[usize::from(number)]
    }

    /// The buckets that are locked, one or two.
    #[inline]
    fn buckets(&self) -> impl Iterator<Item = u16> + use<S, D> {
        let second = (self.second != self.probe.first).then_some(self.second);
        [Some(self.probe.first), second].into_iter().flatten()
    }

    /// Where the key lies: the first slot whose tag fits and whose payload `is_it` accepts.
    #[inline]
    pub fn find(&self, mut is_it: impl FnMut(u32) -> bool) -> Option<Place> {
        for number in self.buckets() {
            let bucket = self.bucket(number);
            for slot in bucket.matching(self.probe.tag) {
                if is_it(bucket.payload(slot)) {
                    return Some(Place { bucket: number, slot: slot as u8 });
                }
            }
        }
        None
    }

    /// The payload at `place`.
    #[inline]
    pub fn payload(&self, place: Place) -> u32 {
        self.bucket(place.bucket).payload(usize::from(place.slot))
    }

    /// Makes readers of these buckets repeat their read: to be called before what a payload names is changed in place.
    #[inline]
    pub fn start_writing(&mut self) {
        self.guard.start_writing();
    }

    /// Gives the key another payload.
    #[inline]
    pub fn replace(&mut self, place: Place, payload: u32) {
        self.guard.start_writing();
        self.bucket(place.bucket).set_payload(usize::from(place.slot), payload);
    }

    /// Removes the key.
    #[inline]
    pub fn remove(&mut self, place: Place) {
        self.guard.start_writing();
        self.bucket(place.bucket).set_tag(usize::from(place.slot), 0);
        self.index.count(self.probe.stripe(), |len| len.wrapping_sub(1));
    }

    /// Adds the key, which must not be there.
    ///
    /// # Errors
    /// [`Full`] if neither bucket has a free slot; drop the lock, call [`Index::make_room`] and begin again.
    #[inline]
    pub fn insert(&mut self, payload: u32) -> Result<(), Full> {
        assert_eq!(self.second, self.probe.second, "both buckets are locked for a new key");
        let (number, slot) =
            self.buckets().find_map(|number| Some((number, self.bucket(number).free().first()?))).ok_or(Full)?;
        self.guard.start_writing();
        let bucket = self.bucket(number);
        bucket.set_payload(slot, payload);
        bucket.set_tag(slot, self.probe.tag);
        self.index.count(self.probe.stripe(), |len| len.wrapping_add(1));
        Ok(())
    }

    /// The payloads of all keys in both buckets.
    pub fn neighbours(&self) -> impl Iterator<Item = u32> + '_ {
        self.buckets().flat_map(move |number| {
            let bucket = self.bucket(number);
            (0..BUCKET_SLOTS).filter(|slot| bucket.tag(*slot) != 0).map(|slot| bucket.payload(slot))
        })
    }
}
