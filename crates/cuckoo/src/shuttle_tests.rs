//! The whole table under random schedules: threads store, remove, read, displace and grow all at once, on an index so small
//! that they meet everywhere.
//!
//! A payload names a cell: the key, and a stamp made of key and version, twice. As an engine's memory it is given back as soon
//! as its key is out of the index, written over, and then used for whatever key comes next. Each thread owns some keys and knows
//! what it last wrote; what it may ask of the others' keys is that none is seen older than it was seen before, and that one
//! that is never removed is always there. A segment that is given back is somebody else's, who keeps there what looks like the
//! schedule's hot key.
//!
//! The schedules take every access of an atomic in one global order: what weaker orderings allow is loom's to find, and so is
//! what takes a thread that stands still while a growth is seen to its end.

use std::sync::{Arc, Mutex};

use guira_sync::{
    Stripes,
    atomic::{AtomicU64, Ordering},
    reuse,
    schedules::{self, Tally},
};
use shuttle::{
    rand::{Rng, RngCore, thread_rng},
    scheduler::Scheduler,
    thread,
};

use crate::{
    BUCKET_SLOTS, Full, GrowError, Growth, Index, Locked, LockedPayload, Payloads, Place, Probe, SEGMENT_BUCKETS,
    growth::Progress,
    layout::{Layout, share},
    model_heap::{Forgery, Heap},
    path::Move,
    residence::Residence,
    segment::SegmentRef,
    steady::{FoundAtHome, LongWay},
    tags::Lane,
};

mod seeded_faults;

/// Schedules of each kind that must pass.
const SCHEDULES: usize = 50_000;

const WORKERS: usize = 3;
/// Of which the first stays.
const KEYS_EACH: usize = 3;
/// Keys that nobody writes after the beginning. With the workers' that stay they fill seven of a segment's eight slots: the
/// passing ones displace them and make the index grow.
const KEYS_OF_NOBODY: usize = 3;
const KEYS: usize = WORKERS * KEYS_EACH + KEYS_OF_NOBODY;
const OPERATIONS: usize = 8;
/// One for each key, and one that each worker may be filling.
const CELLS: usize = KEYS + WORKERS;
const SEGMENTS_MAX: usize = 3;
/// Attempts to make room for a key, each of which may move no more than a bucket.
const ROOMS_MAX: usize = 2 * SEGMENTS_MAX * (SEGMENT_BUCKETS + 1);
/// Four of a tag's six bits, so that keys are taken for each other until they are compared, and share filter bits.
const HASH_BITS_UNUSED: u64 = 0xf << 22;
/// What the next owner of a segment's memory has there names a cell of its own, which says that it is the hot key's.
const FORGED_PAYLOAD: u32 = CELLS as u32;
const FORGED_VERSION: u64 = u32::MAX as u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key(usize);

impl Key {
    fn all() -> impl Iterator<Item = Self> {
        (0..KEYS).map(Self)
    }

    /// The number of a worker, or another one.
    fn owner(self) -> usize {
        if self.0 < WORKERS * KEYS_EACH { self.0 % WORKERS } else { WORKERS }
    }

    /// Never removed.
    fn stays(self) -> bool {
        self.0 < WORKERS || self.owner() == WORKERS
    }
}

/// What a reader finds behind a key: key and version once more, in two words that are always the same.
#[derive(Clone, Copy, Debug)]
struct Stamp([u64; 2]);

impl Stamp {
    fn word(key: Key, version: u64) -> u64 {
        (key.0 as u64) << 32 | version
    }

    /// The version, if the stamp is whole and the key's.
    fn version(self, key: Key) -> u64 {
        let Self([first, second]) = self;
        assert!(first == second && first >> 32 == key.0 as u64, "torn: {key:?} with {first:x} {second:x}");
        let version = first & u64::from(u32::MAX);
        assert!(version != FORGED_VERSION, "{key:?} was read from what had been given back");
        version
    }
}

type IsIt<'a> = &'a mut dyn FnMut(u32) -> bool;
type Examine<'a> = &'a mut dyn FnMut(u32) -> Option<Stamp>;

/// How a table does what faults are seeded into.
#[derive(Clone, Copy)]
struct Ways {
    read: fn(&Index<Heap>, &Probe, Examine<'_>) -> Option<Stamp>,
    make_room: fn(&Index<Heap>, &Probe) -> Result<(), Full>,
    displace: fn(&Index<Heap>, u64, SegmentRef<'_, Payloads>, &Move) -> bool,
    remove: fn(&Index<Heap>, &Probe, &mut LockedPayload<'_, Heap>, Place),
    /// The short way of a write.
    lock_at_home: for<'a> fn(&'a Index<Heap>, &Probe, IsIt<'_>) -> Result<FoundAtHome<'a, Payloads, Heap, ()>, LongWay>,
    /// Frees a slot where growth is.
    make_room_in_growth: fn(&Table, &Probe) -> bool,
    /// Grows by so many buckets.
    grow: fn(&Table, usize) -> Result<Growth, GrowError>,
    /// A cell is given back only when its key is out of the index.
    frees_last: bool,
}

const SOUND: Ways = Ways {
    read: |index, probe, examine| index.read(probe, examine),
    make_room: Index::make_room,
    displace: |index, word, segment, step| index.displace(word, segment, step),
    remove: |_, _, locked, place| locked.remove(place),
    lock_at_home: |index, probe, is_it| index.lock_at_home_to_insert(probe, is_it),
    make_room_in_growth: Table::make_room_in_growth_soundly,
    grow: Table::grow_soundly,
    frees_last: true,
};

/// What the schedules of one run have gone through, in all.
#[derive(Default)]
struct Coverage {
    short_inserts: Tally,
    short_inserts_wide: Tally,
    rooms_made: Tally,
    rooms_made_in_growth: Tally,
    displacements: Tally,
    keys_grown: Tally,
    growths: Tally,
    rebuilds: Tally,
    segments_used_again: Tally,
    removals: Tally,
    removals_away: Tally,
    reads_repeated: Tally,
}

#[derive(Default)]
struct Cell {
    /// The key's number and one, or zero.
    header: AtomicU64,
    stamp: [AtomicU64; 2],
}

impl Cell {
    fn is(&self, key: Key) -> bool {
        self.header.load(Ordering::Relaxed) == key.0 as u64 + 1
    }

    /// The key that is there.
    fn key(&self) -> Key {
        Key(self.header.load(Ordering::Relaxed) as usize - 1)
    }

    fn fill(&self, key: Key, version: u64) {
        self.set_stamp(key, version);
        self.header.store(key.0 as u64 + 1, Ordering::Relaxed);
    }

    /// Leaves nothing of what was there.
    fn clear(&self) {
        reuse::vacate(&self.header);
        self.stamp.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
    }

    fn set_stamp(&self, key: Key, version: u64) {
        self.stamp.iter().for_each(|word| word.store(Stamp::word(key, version), Ordering::Relaxed));
    }

    fn stamp(&self) -> Stamp {
        Stamp(std::array::from_fn(|word| self.stamp[word].load(Ordering::Relaxed)))
    }
}

/// SplitMix64's finaliser.
fn hash(key: Key, salt: u64) -> u64 {
    let mut z = (key.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) & !HASH_BITS_UNUSED
}

/// The index, what its payloads name, and how it is used.
struct Table {
    index: Index<Heap>,
    /// The last one is the forged one.
    cells: [Cell; CELLS + 1],
    free: Mutex<Vec<u32>>,
    /// Every schedule has its own hash, so that keys collide otherwise.
    salt: u64,
    hot: Key,
    ways: Ways,
    coverage: Arc<Coverage>,
}

impl Table {
    /// A table that begins as one small segment, or as one full-sized one.
    fn new(is_small: bool, ways: Ways, coverage: Arc<Coverage>) -> Self {
        let (salt, hot) = (thread_rng().next_u64(), Key(thread_rng().gen_range(0..KEYS)));
        let tag = Probe::new(hash(hot, salt)).tag();
        let lane = |_| if thread_rng().gen_bool(0.5) { Lane::home(tag) } else { Lane::away(tag) };
        let forgery = Forgery { lanes: (0..BUCKET_SLOTS).map(lane).collect(), payload: FORGED_PAYLOAD };
        let (layout, stripes) =
            if is_small { (Layout::small(0, 1), 2) } else { (Layout::steady(0, 1), SEGMENT_BUCKETS) };
        let heap = Heap::with_forgery(forgery);
        let table = Self {
            index: Index::with_layout(heap, layout, SEGMENTS_MAX, SEGMENTS_MAX, Stripes::new(stripes)).expect("memory"),
            cells: Default::default(),
            free: Mutex::new((0..CELLS as u32).collect()),
            salt,
            hot,
            ways,
            coverage,
        };
        table.cell(FORGED_PAYLOAD).fill(hot, FORGED_VERSION);
        table
    }

    fn hash(&self, key: Key) -> u64 {
        hash(key, self.salt)
    }

    fn probe(&self, key: Key) -> Probe {
        Probe::new(self.hash(key))
    }

    fn cell(&self, payload: u32) -> &Cell {
        &self.cells[payload as usize]
    }

    fn is(&self, payload: u32, key: Key) -> bool {
        self.cell(payload).is(key)
    }

    /// A cell that nobody can find yet.
    fn fill(&self, key: Key, version: u64) -> u32 {
        let payload = self.free.lock().expect("not poisoned").pop().expect("a cell for each writer");
        self.cell(payload).fill(key, version);
        payload
    }

    fn free(&self, payload: u32) {
        self.cell(payload).clear();
        self.free.lock().expect("not poisoned").push(payload);
    }

    /// The version of a key, by an optimistic read.
    fn read(&self, key: Key) -> Option<u64> {
        let mut sightings = 0;
        let seen = (self.ways.read)(&self.index, &self.probe(key), &mut |payload| {
            self.is(payload, key).then(|| {
                sightings += 1;
                self.cell(payload).stamp()
            })
        });
        if sightings > 1 {
            self.coverage.reads_repeated.count();
        }
        seen.map(|stamp| stamp.version(key))
    }

    /// Gives a key a new version; false if there is no room for it. `is_there` is what its owner knows.
    fn store(&self, key: Key, version: u64, is_there: bool) -> bool {
        let probe = self.probe(key);
        let payload = self.fill(key, version);
        for _ in 0..ROOMS_MAX {
            if thread_rng().gen_bool(0.5) && self.store_at_home(key, payload, is_there) {
                return true;
            }
            let (locked, place) = self.index.lock_to_insert(&probe, |payload| self.is(payload, key));
            assert_eq!(place.is_some(), is_there, "{key:?}: what its owner finds under the lock");
            if self.store_locked(locked, place, payload) {
                return true;
            }
            if (self.ways.make_room)(&self.index, &probe).is_ok() {
                self.coverage.rooms_made.count();
            } else if (self.ways.make_room_in_growth)(self, &probe) {
                self.coverage.rooms_made_in_growth.count();
            } else if !self.grow() {
                break;
            }
        }
        self.free(payload);
        false
    }

    /// The short way of storing, which may come to nothing.
    fn store_at_home(&self, key: Key, payload: u32, is_there: bool) -> bool {
        let found = (self.ways.lock_at_home)(&self.index, &self.probe(key), &mut |payload| self.is(payload, key));
        let Ok((locked, place)) = found else { return false };
        assert_eq!(place.is_some(), is_there, "{key:?}: what its owner finds at home");
        let is_widened = locked.holds_both();
        let is_stored = self.store_locked(locked, place, payload);
        if is_stored && !is_there {
            (if is_widened { &self.coverage.short_inserts_wide } else { &self.coverage.short_inserts }).count();
        }
        is_stored
    }

    /// Stores what is locked; false if there is no room.
    fn store_locked<'a>(
        &'a self,
        mut locked: Locked<'a, Payloads, Heap, (), impl Residence<'a, Payloads>>,
        place: Option<Place>,
        payload: u32,
    ) -> bool {
        let Some(place) = place else { return locked.insert(payload).is_ok() };
        let old = locked.content(place);
        if !self.ways.frees_last {
            self.free(old);
        }
        locked.replace(place, payload);
        drop(locked);
        if self.ways.frees_last {
            self.free(old);
        }
        true
    }

    /// Writes over a key where it lies.
    fn overwrite(&self, key: Key, version: u64) {
        let (mut locked, place) = self.index.lock_and_find(&self.probe(key), |payload| self.is(payload, key));
        let place = place.expect("its owner knows that it is there");
        locked.start_writing();
        self.cell(locked.content(place)).set_stamp(key, version);
    }

    /// Takes out a key that is there.
    fn remove(&self, key: Key) {
        let (mut locked, place) = self.index.lock_and_find(&self.probe(key), |payload| self.is(payload, key));
        let place = place.expect("its owner knows that it is there");
        let payload = locked.content(place);
        let is_away = segment_away(&self.index, &self.probe(key), payload).is_some();
        (self.ways.remove)(&self.index, &self.probe(key), &mut locked, place);
        drop(locked);
        self.free(payload);
        (if is_away { &self.coverage.removals_away } else { &self.coverage.removals }).count();
    }

    /// Sends a key to its other bucket, if it is there and finds room.
    fn displace(&self, key: Key) {
        let probe = self.probe(key);
        let Ok((word, segment)) = roomy_segment(&self.index, &probe) else { return };
        let mask = segment.bucket_mask();
        let homes = [(probe.first(mask), Lane::home(probe.tag())), (probe.second(mask), Lane::away(probe.tag()))];
        let step = homes.into_iter().find_map(|(bucket, lane)| {
            let slot = segment.tags(bucket).matching(lane).find(|slot| self.is(segment.content(bucket, *slot), key))?;
            Some(Move { bucket: bucket as u16, slot: slot as u8, lane })
        });
        if step.is_some_and(|step| (self.ways.displace)(&self.index, word, segment, &step)) {
            self.coverage.displacements.count();
        }
    }

    /// A little growth or a step of it, a new one if none is under way; false if there is none to be had.
    fn grow(&self) -> bool {
        if self.index.layout().small_bits.is_some() {
            return self.rebuild();
        }
        match self.index.begin_growth(|segments| segments + 1) {
            Err(GrowError::AtMaximum) => return false,
            Ok(()) | Err(GrowError::Busy) => {}
            Err(error) => panic!("{error:?}"),
        }
        let buckets = [1, 1, 2, usize::MAX][thread_rng().gen_range(0..4)];
        match (self.ways.grow)(self, buckets) {
            Ok(Growth::Underway | Growth::Idle) => true,
            Ok(Growth::Complete) => {
                self.coverage.growths.count();
                true
            }
            Err(GrowError::Busy) => {
                thread::yield_now();
                true
            }
            // Too many keys share two buckets, which with two slots each they may.
            Err(GrowError::Unplaced) => false,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn grow_soundly(&self, buckets: usize) -> Result<Growth, GrowError> {
        self.index.grow_by(buckets, |_| (), |payload| self.hash_of(payload))
    }

    fn make_room_in_growth_soundly(&self, probe: &Probe) -> bool {
        self.index.make_room_in_growth(probe, |_| (), |payload| self.hash_of(payload)).is_ok()
    }

    /// The hash of a key that growth looks at.
    fn hash_of(&self, payload: u32) -> u64 {
        let hash = self.hash(self.cell(payload).key());
        let layout = self.index.layout();
        if share(Probe::new(hash).position(), layout.next) == layout.done {
            self.coverage.keys_grown.count();
        }
        hash
    }

    fn rebuild(&self) -> bool {
        let rebuilt = self.index.rebuild(Layout::steady(0, 1), |payload| self.hash(self.cell(payload).key()));
        if rebuilt.is_ok() {
            self.coverage.rebuilds.count();
        }
        rebuilt.is_ok()
    }

    /// Segments of a growth that is not settled, which go back with its next step.
    fn unsettled(&self) -> usize {
        match &*self.index.growing.lock().expect("not poisoned") {
            Progress::Settling { passed, .. } => passed.len(),
            _ => 0,
        }
    }

    /// Nobody is at work: everything is where it belongs, once, and nothing else is there.
    fn check(&self, contents: &[Option<u64>; KEYS]) {
        for key in Key::all() {
            assert_eq!(self.read(key), contents[key.0], "{key:?} in the end");
            let locked = self.index.lock(&self.probe(key));
            let places = locked.neighbours().filter(|payload| self.is(*payload, key)).count();
            assert_eq!(places, usize::from(contents[key.0].is_some()), "places of {key:?}");
        }
        let there = contents.iter().flatten().count();
        assert_eq!(self.index.len(), there);
        assert_eq!(self.free.lock().expect("not poisoned").len(), CELLS - there, "cells were lost");
        assert_eq!(self.index.source().held(), self.index.segments() + self.unsettled(), "segments were lost");
        let used_again = self.index.source().used_again();
        self.coverage.segments_used_again.add(used_again);
    }
}

/// The segment in which a key is away; the caller holds its stripes.
fn segment_away<'a>(index: &'a Index<Heap>, probe: &Probe, payload: u32) -> Option<SegmentRef<'a, Payloads>> {
    let homes = index.homes(index.directories.word(), probe.position()).expect("in force");
    homes.each().find(|segment| {
        let second = probe.second(segment.bucket_mask());
        segment.tags(second).matching(Lane::away(probe.tag())).any(|slot| segment.content(second, slot) == payload)
    })
}

/// As production chooses it.
fn roomy_segment<'a>(index: &'a Index<Heap>, probe: &Probe) -> Result<(u64, SegmentRef<'a, Payloads>), Full> {
    let word = index.directories.word();
    let (layout, homes) = (Layout::of_word(word), index.homes(word, probe.position()).ok_or(Full)?);
    let is_emptying = homes.to.is_none() && layout.is_emptying(layout.whereabouts(probe.position()).from);
    if is_emptying { Err(Full) } else { Ok((word, homes.newest())) }
}

/// A thread and what it knows.
struct Worker {
    table: Arc<Table>,
    me: usize,
    /// Versions seen last, and of its own keys those written last.
    versions: [u64; KEYS],
    /// Its own keys that it has stored, and those that stay.
    there: [bool; KEYS],
}

impl Worker {
    fn work(mut self) -> Self {
        for _ in 0..OPERATIONS {
            let mut rng = thread_rng();
            // Every other time it is the schedule's hot key that a thread goes for, so that they meet at one.
            let hot = self.table.hot;
            let any = if rng.gen_bool(0.5) { hot } else { Key(rng.gen_range(0..KEYS)) };
            let own = Key(rng.gen_range(0..KEYS_EACH) * WORKERS + self.me);
            let own = if any == hot && hot.owner() == self.me { hot } else { own };
            match rng.gen_range(0..40) {
                0..=9 => self.store(own),
                10..=15 if own.stays() => self.overwrite(own),
                10..=15 => self.remove(own),
                16 => self.read(own),
                17..=26 => self.read(any),
                27..=30 => drop((self.table.ways.make_room)(&self.table.index, &self.table.probe(any))),
                31..=34 => self.table.displace(any),
                _ => drop(self.table.grow()),
            }
        }
        self
    }

    fn store(&mut self, key: Key) {
        let is_there = self.there[key.0];
        if self.table.store(key, self.versions[key.0] + 1, is_there) {
            self.versions[key.0] += 1;
            self.there[key.0] = true;
        } else {
            assert!(!is_there, "a key that is there needs no room");
        }
        self.read(key);
    }

    fn overwrite(&mut self, key: Key) {
        self.versions[key.0] += 1;
        self.table.overwrite(key, self.versions[key.0]);
    }

    fn remove(&mut self, key: Key) {
        if self.there[key.0] && !key.stays() {
            self.table.remove(key);
            self.there[key.0] = false;
        }
        self.read(key);
    }

    fn read(&mut self, key: Key) {
        let seen = self.table.read(key);
        let known = self.versions[key.0];
        if key.owner() == self.me {
            assert_eq!(seen, self.there[key.0].then_some(known), "{key:?} as its owner left it");
            return;
        }
        assert!(seen.is_some() || !key.stays() || known == 0, "missed {key:?}, which is always there");
        if let Some(version) = seen {
            assert!(version >= known, "{key:?} went back from version {known} to {version}");
            self.versions[key.0] = version;
        }
    }
}

/// One schedule.
fn play(ways: Ways, coverage: &Arc<Coverage>) {
    // A small table holds no more than the workers' keys in the beginning.
    let is_small = thread_rng().gen_bool(0.125);
    let table = Arc::new(Table::new(is_small, ways, Arc::clone(coverage)));
    let is_there = |key: Key| key.stays() && !(is_small && key.owner() == WORKERS);
    // Under one hash in many thousands not even these have room.
    if !Key::all().filter(|key| is_there(*key)).all(|key| table.store(key, 1, false)) {
        return;
    }
    let known = std::array::from_fn(|key| u64::from(is_there(Key(key))));
    let there = std::array::from_fn(|key| is_there(Key(key)));
    let threads: Vec<_> = (0..WORKERS)
        .map(|me| {
            let worker = Worker { table: Arc::clone(&table), me, versions: known, there };
            thread::spawn(move || worker.work())
        })
        .collect();
    let mut contents: [Option<u64>; KEYS] = std::array::from_fn(|key| is_there(Key(key)).then_some(1));
    for thread in threads {
        let worker = thread.join().expect("worker");
        for key in Key::all().filter(|key| key.owner() == worker.me) {
            contents[key.0] = worker.there[key.0].then_some(worker.versions[key.0]);
        }
    }
    table.check(&contents);
}

/// Plays the table as it is, and sees to it that its threads have met.
fn passes(scheduler: impl Scheduler + 'static) {
    let coverage = Arc::default();
    let counted = Arc::clone(&coverage);
    assert_eq!(schedules::pass(scheduler, move || play(SOUND, &counted)), SCHEDULES);
    let Coverage { short_inserts, short_inserts_wide, .. } = &*coverage;
    let Coverage { rooms_made, rooms_made_in_growth, displacements, keys_grown, growths, rebuilds, .. } = &*coverage;
    let Coverage { segments_used_again, removals, removals_away, reads_repeated, .. } = &*coverage;
    // Schedules are random. The rarest of these, repeated reads under few preemptions, come once in a hundred.
    schedules::have_happened(
        SCHEDULES / 500,
        &[
            (short_inserts, "keys added on the short way"),
            (short_inserts_wide, "keys added on the short way with both buckets locked"),
            (rooms_made, "rooms made"),
            (rooms_made_in_growth, "rooms made where growth is"),
            (displacements, "displacements"),
            (keys_grown, "keys moved by growth"),
            (growths, "growths seen to their end"),
            (rebuilds, "small segments rebuilt"),
            (segments_used_again, "segments given back and used again"),
            (removals, "keys removed"),
            (removals_away, "away keys removed"),
            (reads_repeated, "reads repeated"),
        ],
    );
}

#[test]
fn shuttle_every_key_is_found_as_it_was_left_under_random_schedules() {
    passes(schedules::random(SCHEDULES));
}

#[test]
fn shuttle_every_key_is_found_as_it_was_left_under_few_preemptions() {
    passes(schedules::few_preemptions(SCHEDULES));
}
