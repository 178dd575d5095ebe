//! The whole table under random schedules: threads store, remove, read, displace and grow all at once, on an index so small
//! that they meet everywhere.
//!
//! A payload names a cell: the key, and a stamp made of key and version, twice. As an engine's memory it is given back as soon
//! as its key is out of the index, written over, and then used for whatever key comes next. Each thread owns some keys and knows
//! what it last wrote; what it may ask of the others' keys is that none is seen older than it was seen before, and that one
//! that is never removed is always there.
//!
//! The schedules take every access of an atomic in one global order: what weaker orderings allow is loom's to find.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
    sync::{Arc, Mutex, atomic as uncontrolled},
};

use guira_sync::{
    atomic::{AtomicU64, Ordering},
    reuse,
};
use shuttle::{
    Config, FailurePersistence, Runner,
    rand::{Rng, RngCore, thread_rng},
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
    thread,
};

use crate::{
    Full, GrowError, Growth, Index, Probe, SEGMENT_BUCKETS, Segment, SegmentSource,
    layout::Layout,
    path::{self, Move},
    probe::alternate,
};

/// Schedules of each kind that must pass.
const SCHEDULES: usize = 50_000;

/// Schedules of each kind within which every fault must have been noticed: several times what the slowest takes.
const FAULTY_SCHEDULES: usize = 50_000;

/// Times that a schedule may take a thread from a processor that it has not given away: races need few.
const PREEMPTIONS: usize = 4;

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
/// Six of a tag's eight bits, so that keys are taken for each other until they are compared.
const HASH_BITS_UNUSED: u64 = 0xfc << 10;

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
        first & u64::from(u32::MAX)
    }
}

/// Segments from the heap; what is given back is handed out again next, as pages of an arena are.
#[derive(Default)]
struct Heap {
    #[expect(clippy::vec_box, reason = "a segment stays where it is while the vector grows")]
    all: Mutex<Vec<Box<Segment>>>,
    returned: Mutex<Vec<usize>>,
}

impl Heap {
    fn held(&self) -> usize {
        self.all.lock().expect("not poisoned").len() - self.returned.lock().expect("not poisoned").len()
    }
}

// SAFETY: every segment stays in `all` until the source is dropped, and is handed out to one holder at a time.
unsafe impl SegmentSource for Heap {
    fn allocate(&self) -> Option<NonNull<Segment>> {
        let mut all = self.all.lock().expect("not poisoned");
        let at = self.returned.lock().expect("not poisoned").pop().unwrap_or_else(|| {
            let segment: Vec<_> = (0..SEGMENT_BUCKETS).map(|_| Default::default()).collect();
            all.push(segment.try_into().expect("length"));
            all.len() - 1
        });
        Some(NonNull::from(&*all[at]))
    }

    fn release(&self, segment: NonNull<Segment>) {
        let all = self.all.lock().expect("not poisoned");
        let at = all.iter().position(|held| NonNull::from(&**held) == segment).expect("one of ours");
        self.returned.lock().expect("not poisoned").push(at);
    }
}

type Examine<'a> = &'a mut dyn FnMut(u32) -> Option<Stamp>;

/// How a table does what faults are seeded into.
#[derive(Clone, Copy)]
struct Ways {
    read: fn(&Index<Heap>, &Probe, Examine<'_>) -> Option<Stamp>,
    make_room: fn(&Index<Heap>, &Probe) -> Result<(), Full>,
    /// A cell is given back only when its key is out of the index.
    frees_last: bool,
}

const SOUND: Ways =
    Ways { read: |index, probe, examine| index.read(probe, examine), make_room: Index::make_room, frees_last: true };

/// What the schedules of one run have gone through, in all.
#[derive(Default)]
struct Coverage {
    schedules: uncontrolled::AtomicUsize,
    rooms_made: uncontrolled::AtomicUsize,
    segments_grown: uncontrolled::AtomicUsize,
    removals: uncontrolled::AtomicUsize,
    reads_repeated: uncontrolled::AtomicUsize,
}

fn count(counter: &uncontrolled::AtomicUsize) {
    counter.fetch_add(1, uncontrolled::Ordering::Relaxed);
}

fn counted(counter: &uncontrolled::AtomicUsize) -> usize {
    counter.load(uncontrolled::Ordering::Relaxed)
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

/// The index, what its payloads name, and how it is used.
struct Table {
    index: Index<Heap>,
    cells: [Cell; CELLS],
    free: Mutex<Vec<u32>>,
    /// Every schedule has its own hash, so that keys collide otherwise.
    salt: u64,
    hot: Key,
    ways: Ways,
    coverage: Arc<Coverage>,
}

impl Table {
    fn new(ways: Ways, coverage: Arc<Coverage>) -> Self {
        Self {
            index: Index::new(Heap::default(), 1, SEGMENTS_MAX).expect("memory"),
            cells: Default::default(),
            free: Mutex::new((0..CELLS as u32).collect()),
            salt: thread_rng().next_u64(),
            hot: Key(thread_rng().gen_range(0..KEYS)),
            ways,
            coverage,
        }
    }

    /// SplitMix64's finaliser.
    fn hash(&self, key: Key) -> u64 {
        let mut z = (key.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.salt;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) & !HASH_BITS_UNUSED
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
            count(&self.coverage.reads_repeated);
        }
        seen.map(|stamp| stamp.version(key))
    }

    /// Gives a key a new version; false if there is no room for it. `is_there` is what its owner knows.
    fn store(&self, key: Key, version: u64, is_there: bool) -> bool {
        let probe = self.probe(key);
        let payload = self.fill(key, version);
        for _ in 0..2 * SEGMENTS_MAX {
            let mut locked = self.index.lock(&probe);
            let place = locked.find(|payload| self.is(payload, key));
            assert_eq!(place.is_some(), is_there, "{key:?}: what its owner finds under the lock");
            if let Some(place) = place {
                let old = locked.payload(place);
                if !self.ways.frees_last {
                    self.free(old);
                }
                locked.replace(place, payload);
                drop(locked);
                if self.ways.frees_last {
                    self.free(old);
                }
                return true;
            }
            if locked.insert(payload).is_ok() {
                return true;
            }
            drop(locked);
            if (self.ways.make_room)(&self.index, &probe).is_ok() {
                count(&self.coverage.rooms_made);
            } else if !self.grow() {
                break;
            }
        }
        self.free(payload);
        false
    }

    /// Writes over a key where it lies.
    fn overwrite(&self, key: Key, version: u64) {
        let (mut locked, place) = self.index.lock_and_find(&self.probe(key), |payload| self.is(payload, key));
        let place = place.expect("its owner knows that it is there");
        locked.start_writing();
        self.cell(locked.payload(place)).set_stamp(key, version);
    }

    /// Takes out a key that is there.
    fn remove(&self, key: Key) {
        let (mut locked, place) = self.index.lock_and_find(&self.probe(key), |payload| self.is(payload, key));
        let place = place.expect("its owner knows that it is there");
        let payload = locked.payload(place);
        locked.remove(place);
        drop(locked);
        self.free(payload);
        count(&self.coverage.removals);
    }

    /// One step of growth, a new one if none is under way; false if there is none to be had.
    fn grow(&self) -> bool {
        match self.index.begin_growth(self.index.segments() + 1) {
            Err(GrowError::AtMaximum) => return false,
            Ok(()) | Err(GrowError::Busy) => {}
            Err(error) => panic!("{error:?}"),
        }
        match self.index.grow_step(|_| (), |payload| self.hash(self.cell(payload).key())) {
            Ok(Growth::Underway | Growth::Complete) => {
                count(&self.coverage.segments_grown);
                true
            }
            Ok(Growth::Idle) => true,
            Err(GrowError::Busy) => {
                thread::yield_now();
                true
            }
            // Too many keys share two buckets, which with two slots each they may.
            Err(GrowError::Unplaced) => false,
            Err(error) => panic!("{error:?}"),
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
        assert_eq!(self.index.source().held(), self.index.segments(), "segments were lost");
    }
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
                17..=28 => self.read(any),
                29..=38 => drop((self.table.ways.make_room)(&self.table.index, &self.table.probe(any))),
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
        assert!(seen.is_some() || !key.stays(), "missed {key:?}, which is always there");
        if let Some(version) = seen {
            assert!(version >= known, "{key:?} went back from version {known} to {version}");
            self.versions[key.0] = version;
        }
    }
}

/// One schedule.
fn schedule(ways: Ways, coverage: &Arc<Coverage>) {
    count(&coverage.schedules);
    let table = Arc::new(Table::new(ways, Arc::clone(coverage)));
    let staying = Key::all().filter(|key| key.stays());
    // Under one hash in many thousands not even these have room.
    if !staying.into_iter().all(|key| table.store(key, 1, false)) {
        return;
    }
    let known = std::array::from_fn(|key| u64::from(Key(key).stays()));
    let there = std::array::from_fn(|key| Key(key).stays());
    let threads: Vec<_> = (0..WORKERS)
        .map(|me| {
            let worker = Worker { table: Arc::clone(&table), me, versions: known, there };
            thread::spawn(move || worker.work())
        })
        .collect();
    let mut contents: [Option<u64>; KEYS] = std::array::from_fn(|key| Key(key).stays().then_some(1));
    for thread in threads {
        let worker = thread.join().expect("worker");
        for key in Key::all().filter(|key| key.owner() == worker.me) {
            contents[key.0] = worker.there[key.0].then_some(worker.versions[key.0]);
        }
    }
    table.check(&contents);
}

fn run(scheduler: impl Scheduler + 'static, ways: Ways, persistence: FailurePersistence, coverage: &Arc<Coverage>) {
    let mut config = Config::new();
    // About orderings, which are loom's.
    config.silence_warnings = true;
    config.failure_persistence = persistence;
    let coverage = Arc::clone(coverage);
    Runner::new(scheduler, config).run(move || schedule(ways, &coverage));
}

/// Runs the table as it is, and sees to it that its threads have met.
fn passes(scheduler: impl Scheduler + 'static) {
    let coverage = Arc::default();
    run(scheduler, SOUND, FailurePersistence::Print, &coverage);
    let Coverage { schedules, rooms_made, segments_grown, removals, reads_repeated } = &*coverage;
    assert_eq!(counted(schedules), SCHEDULES);
    for (counter, name) in [
        (rooms_made, "displacements"),
        (segments_grown, "segments grown"),
        (removals, "removals"),
        (reads_repeated, "reads repeated"),
    ] {
        println!("{name}: {}", counted(counter));
        assert!(counted(counter) > SCHEDULES / 100, "only {} {name}", counted(counter));
    }
}

#[test]
fn shuttle_every_key_is_found_as_it_was_left_under_random_schedules() {
    passes(RandomScheduler::new(SCHEDULES));
}

/// A thread that stands still while others finish whole operations: random choices at every step hardly ever do that.
#[test]
fn shuttle_every_key_is_found_as_it_was_left_under_few_preemptions() {
    passes(PctScheduler::new(PREEMPTIONS, SCHEDULES));
}

/// The models must be able to fail: tables with one fault each, and what it must be noticed by.
#[test]
fn shuttle_seeded_faults_are_noticed() {
    let faults = [
        ("a read that is not validated", Ways { read: read_unvalidated, ..SOUND }),
        ("a read that does not ask whether the index grew", Ways { read: read_without_layout, ..SOUND }),
        ("displacement from the near end", Ways { make_room: displace_near_end_first, ..SOUND }),
        ("displacement that tells no reader", Ways { make_room: displace_unmarked, ..SOUND }),
        ("a cell that is given back too early", Ways { frees_last: false, ..SOUND }),
    ];
    for (fault, ways) in faults {
        notices(RandomScheduler::new_from_seed(1, FAULTY_SCHEDULES), fault, ways);
        notices(PctScheduler::new_from_seed(1, PREEMPTIONS, FAULTY_SCHEDULES), fault, ways);
    }
}

fn notices(scheduler: impl Scheduler + 'static, fault: &str, ways: Ways) {
    let coverage = Arc::default();
    let outcome = catch_unwind(AssertUnwindSafe(|| run(scheduler, ways, FailurePersistence::None, &coverage)));
    let failure = outcome.expect_err(fault);
    let message = failure.downcast_ref::<String>().map(String::as_str).or(failure.downcast_ref::<&str>().copied());
    println!("{fault}: noticed in schedule {}: {message:?}", counted(&coverage.schedules));
}

fn segment<'a>(index: &'a Index<Heap>, word: u64, probe: &Probe) -> &'a Segment {
    let (directory, at) = Layout::place_of_word(word, probe.position);
    // SAFETY: a segment of a layout that was in force, which the source keeps as long as the index lives.
    unsafe { &*index.directories.segment(directory, at) }
}

fn read_unvalidated(index: &Index<Heap>, probe: &Probe, examine: Examine<'_>) -> Option<Stamp> {
    let segment = segment(index, index.directories.word(), probe);
    [probe.first, probe.second].into_iter().find_map(|number| {
        let bucket = &segment[usize::from(number)];
        bucket.matching(probe.tag).find_map(|slot| examine(bucket.payload(slot)))
    })
}

fn read_without_layout(index: &Index<Heap>, probe: &Probe, examine: Examine<'_>) -> Option<Stamp> {
    loop {
        let segment = segment(index, index.directories.word(), probe);
        let numbers = [probe.first, probe.second].map(usize::from);
        let versions = numbers.map(|number| index.stripes.begin(number));
        let found = numbers.into_iter().find_map(|number| {
            let bucket = &segment[number];
            bucket.matching(probe.tag).find_map(|slot| examine(bucket.payload(slot)))
        });
        if numbers.into_iter().zip(versions).all(|(number, version)| index.stripes.is_unchanged(number, version)) {
            return found;
        }
    }
}

/// Lifts the keys of a path out of their slots, beginning with the one that is in the way, and then sets them down.
fn displace_near_end_first(index: &Index<Heap>, probe: &Probe) -> Result<(), Full> {
    let word = index.directories.word();
    let segment = segment(index, word, probe);
    let path = path::search(segment, probe).ok_or(Full)?;
    let with_pair = |step: &Move, change: &dyn Fn()| {
        let to = alternate(step.bucket, step.tag);
        let mut guard = index.stripes.lock_pair(usize::from(step.bucket), usize::from(to));
        guard.start_writing();
        change();
    };
    for step in path.moves().iter().rev() {
        with_pair(step, &|| segment[usize::from(step.bucket)].set_tag(usize::from(step.slot), 0));
    }
    for step in path.moves() {
        with_pair(step, &|| {
            let to = &segment[usize::from(alternate(step.bucket, step.tag))];
            let Some(free) = to.free().first() else { return };
            to.set_payload(free, step.payload);
            to.set_tag(free, step.tag);
        });
    }
    Ok(())
}

/// Moves as production does, but leaves the versions as they are.
fn displace_unmarked(index: &Index<Heap>, probe: &Probe) -> Result<(), Full> {
    let word = index.directories.word();
    let segment = segment(index, word, probe);
    let path = path::search(segment, probe).ok_or(Full)?;
    for step in path.moves() {
        let to = alternate(step.bucket, step.tag);
        let _guard = index.stripes.lock_pair(usize::from(step.bucket), usize::from(to));
        let (from, to) = (&segment[usize::from(step.bucket)], &segment[usize::from(to)]);
        if index.directories.word() != word || !crate::index::move_item(from, to, step, || ()) {
            return Err(Full);
        }
    }
    Ok(())
}
