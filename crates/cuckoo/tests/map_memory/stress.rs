//! Many threads at once, on values that tell their key: none torn, none lost, none that comes back.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use guira_cuckoo::{Auto, Boxed, Builder, Change, Changed, CuckooMap, RandomState, Storage, Ways, Width};

/// A value from which its key and its turn can be read, and whether it is whole.
trait Telling: Clone + Send + Sync {
    fn tell(key: u64, turn: u64) -> Self;
    /// The turn.
    fn check(&self, key: u64) -> u64;
}

fn sum(key: u64, turn: u64) -> u64 {
    (key ^ turn.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Telling for [u64; 3] {
    fn tell(key: u64, turn: u64) -> Self {
        [turn, sum(key, turn), key]
    }
    fn check(&self, key: u64) -> u64 {
        assert_eq!(*self, Self::tell(key, self[0]), "torn, or another key's");
        self[0]
    }
}

/// One word: the shortest of all.
impl Telling for u64 {
    fn tell(key: u64, turn: u64) -> Self {
        turn << 32 | sum(key, turn) >> 32
    }
    fn check(&self, key: u64) -> u64 {
        assert_eq!(*self, Self::tell(key, *self >> 32), "torn, or another key's");
        *self >> 32
    }
}

impl Telling for Vec<u64> {
    fn tell(key: u64, turn: u64) -> Self {
        let mut value = vec![turn, sum(key, turn), key];
        value.resize(3 + (turn % 5) as usize, turn);
        value
    }
    fn check(&self, key: u64) -> u64 {
        let turn = *self.first().expect("never empty");
        assert_eq!(*self, Self::tell(key, turn), "torn, or another key's, or freed");
        turn
    }
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        ((u128::from(mixed ^ mixed >> 32) * u128::from(below)) >> 64) as u64
    }
}

/// What its owner has last done to a key: turn, whether it is there, and whether something is under way just now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    turn: u64,
    is_there: bool,
    is_changing: bool,
}

impl Known {
    fn of(word: u64) -> Self {
        Self { turn: word >> 2, is_there: word & 2 != 0, is_changing: word & 1 != 0 }
    }

    fn word(self) -> u64 {
        self.turn << 2 | u64::from(self.is_there) << 1 | u64::from(self.is_changing)
    }
}

/// A writer at work until this is dropped, also if it panics: readers do not wait for it then.
struct AtWork<'a>(&'a AtomicUsize);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A map, and beside it what the owner of each key knows of it: key `k` belongs to writer `k % writers`.
struct Trial<V, L, const WAYS: usize>
where
    L: Storage<u64, V>,
    Ways<WAYS>: Width,
{
    map: CuckooMap<u64, V, RandomState, L, WAYS>,
    known: Box<[AtomicU64]>,
    writers: u64,
    /// Writers still at work.
    at_work: AtomicUsize,
    /// Refused for want of room.
    refused: AtomicUsize,
}

impl<V: Telling, L: Storage<u64, V>, const WAYS: usize> Trial<V, L, WAYS>
where
    Ways<WAYS>: Width,
{
    fn new(builder: Builder, keys: u64, writers: u64) -> Self {
        Self {
            map: builder.build().expect("memory"),
            known: (0..keys).map(|_| AtomicU64::new(0)).collect(),
            writers,
            at_work: AtomicUsize::new(writers as usize),
            refused: AtomicUsize::new(0),
        }
    }

    fn known(&self, key: u64) -> Known {
        // Acquire: pairs with the Release in `know`; whatever the owner said has been done.
        Known::of(self.known[key as usize].load(Ordering::Acquire))
    }

    /// Says so. Only the owner of the key does.
    fn know(&self, key: u64, known: Known) {
        // Release: pairs with the Acquire in `known`.
        self.known[key as usize].store(known.word(), Ordering::Release);
    }

    /// Something happens to a key of the writer's own, whose outcome it knows beforehand.
    fn change(&self, key: u64, what: u64) {
        let before = self.known(key);
        let turn = before.turn + 1;
        // SeqCst fence: whoever sees what is done to the key below knows that something is under way.
        self.know(key, Known { is_changing: true, ..before });
        std::sync::atomic::fence(Ordering::SeqCst);
        let old = before.is_there.then_some(before.turn);
        let new = V::tell(key, turn);
        let told = |value: Option<V>| value.map(|value| value.check(key));
        let mut is_there = true;
        let mut has_changed = true;
        match what {
            0..4 => match self.map.try_insert(key, new) {
                Ok(replaced) => assert_eq!(told(replaced), old),
                Err(full) => has_changed = self.refused(full.value.check(key), turn),
            },
            4 => match self.map.upsert(key, new) {
                Ok(is_new) => assert_eq!(is_new, old.is_none()),
                Err(full) => has_changed = self.refused(full.value.check(key), turn),
            },
            5 => {
                assert_eq!(told(self.map.update(&key, |seen| V::tell(key, seen.check(key) + 1))), old.map(|_| turn));
                has_changed = old.is_some();
            }
            6 => {
                let outcome = self.map.try_compute(key, |seen| {
                    assert_eq!(seen.map(|seen| seen.check(key)), old);
                    Change::Put(new.clone())
                });
                match outcome {
                    Ok(changed) => {
                        assert_eq!(changed, if old.is_some() { Changed::Updated } else { Changed::Inserted })
                    }
                    Err(full) => has_changed = self.refused(full.value.check(key), turn),
                }
            }
            7 => match self.map.insert_if_absent(key, new) {
                Ok(is_new) => {
                    assert_eq!(is_new, old.is_none());
                    has_changed = is_new;
                }
                Err(full) => has_changed = self.refused(full.value.check(key), turn),
            },
            8 => {
                assert_eq!(
                    self.map.remove_if(&key, |_, seen| seen.check(key) % 2 == 0),
                    old.is_some_and(|old| old % 2 == 0)
                );
                is_there = false;
                has_changed = old.is_some_and(|old| old % 2 == 0);
            }
            _ => {
                assert_eq!(told(self.map.remove(&key)), old);
                is_there = false;
            }
        }
        let after = if has_changed { Known { turn, is_there, is_changing: false } } else { before };
        self.know(key, after);
        assert_eq!(told(self.map.get(&key)), after.is_there.then_some(after.turn), "what its owner has done to {key}");
    }

    /// There was no room: nothing has changed.
    fn refused(&self, given_back: u64, turn: u64) -> bool {
        assert_eq!(given_back, turn, "the value comes back");
        assert!(self.map.is_fixed(), "a map that grows has room");
        self.refused.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn write(&self, writer: u64, operations: u64) {
        let _at_work = AtWork(&self.at_work);
        let mut numbers = Numbers(writer);
        let own = self.known.len() as u64 / self.writers;
        for operation in 0..operations {
            // The keys come into play little by little.
            let range = (own * (operation + 1) * 2 / operations).clamp(1, own);
            let key = numbers.next(range) * self.writers + writer;
            self.change(key, numbers.next(11));
        }
    }

    /// What a reader has seen of a key fits what was known before and after.
    fn judge(&self, key: u64, before: Known, seen: Option<u64>) {
        // Acquire: as in `known`; and what was seen has been seen before.
        std::sync::atomic::fence(Ordering::SeqCst);
        let after = self.known(key);
        if before == after && !before.is_changing {
            assert_eq!(seen, before.is_there.then_some(before.turn), "{key} is {before:?}");
        }
        if let Some(turn) = seen {
            assert!(
                turn >= before.turn && turn <= after.turn + 1,
                "{key} of turn {turn} between {before:?} and {after:?}"
            );
        }
    }

    fn read(&self, reader: u64) {
        let mut numbers = Numbers(reader << 32);
        let keys = self.known.len() as u64;
        while self.at_work.load(Ordering::Relaxed) > 0 {
            for _ in 0..50 {
                let key = numbers.next(keys);
                let before = self.known(key);
                let seen = self.map.get_with(&key, |value| value.check(key));
                self.judge(key, before, seen);
            }
            let wanted: Vec<u64> = (0..80).map(|_| numbers.next(keys)).collect();
            let before: Vec<Known> = wanted.iter().map(|key| self.known(*key)).collect();
            let seen = self.map.get_many(&wanted);
            for ((key, before), seen) in wanted.iter().zip(before).zip(seen) {
                self.judge(*key, before, seen.map(|value| value.check(*key)));
            }
        }
    }

    fn run(&self, readers: u64, operations: u64) {
        std::thread::scope(|scope| {
            (0..self.writers).for_each(|writer| drop(scope.spawn(move || self.write(writer, operations))));
            (0..readers).for_each(|reader| drop(scope.spawn(move || self.read(reader + 1))));
        });
        let mut len = 0;
        for key in 0..self.known.len() as u64 {
            let known = self.known(key);
            len += usize::from(known.is_there);
            let there = self.map.get(&key).map(|value| value.check(key));
            assert_eq!(there, known.is_there.then_some(known.turn), "{key} in the end");
        }
        assert_eq!(self.map.len(), len);
    }
}

/// Threads on all cores, and some more, so that one sleeps in the middle of what it is doing now and then.
fn threads() -> u64 {
    std::thread::available_parallelism().map_or(4, |cores| cores.get() as u64).clamp(4, 32)
}

fn stress_growth<V: Telling, L: Storage<u64, V>, const WAYS: usize>(keys: u64, operations: u64, stripes: usize)
where
    Ways<WAYS>: Width,
{
    let writers = threads() / 2 + 1;
    let trial = Trial::<V, L, WAYS>::new(Builder::new().stripes(stripes), keys, writers);
    trial.run(threads() / 2, operations / writers);
    assert_eq!(trial.refused.into_inner(), 0);
    assert!(trial.map.len() as u64 > keys / 3);
}

#[test]
fn inline_pairs_stay_whole_while_the_map_grows() {
    stress_growth::<[u64; 3], Auto, 4>(60_000, 300_000, 2048);
    stress_growth::<[u64; 3], Auto, 8>(100_000, 400_000, 2048);
    stress_growth::<u64, Auto, 8>(100_000, 400_000, 16);
    stress_growth::<u64, Auto, 16>(150_000, 400_000, 2048);
}

#[test]
fn boxed_pairs_stay_whole_while_the_map_grows() {
    stress_growth::<Vec<u64>, Auto, 4>(60_000, 200_000, 2048);
    stress_growth::<Vec<u64>, Auto, 8>(80_000, 200_000, 16);
    stress_growth::<u64, Boxed, 8>(100_000, 300_000, 2048);
}

#[test]
fn a_few_keys_that_everybody_wants_stay_whole() {
    stress_growth::<[u64; 3], Auto, 8>(12, 200_000, 16);
    stress_growth::<Vec<u64>, Auto, 8>(12, 200_000, 16);
}

/// Many young maps, each rebuilt a few times.
#[test]
fn pairs_stay_whole_while_small_tables_are_rebuilt() {
    for _ in 0..30 {
        stress_growth::<[u64; 3], Auto, 8>(2000, 5000, 64);
        stress_growth::<Vec<u64>, Auto, 4>(1000, 4000, 16);
    }
}

/// As full as it gets: each writer removes and inserts keys of its own, and most inserts displace others.
fn stress_displacement<V: Telling, L: Storage<u64, V>, const WAYS: usize>(operations: u64)
where
    Ways<WAYS>: Width,
{
    let writers = threads() / 2 + 1;
    let segment = (4096 * WAYS) as u64;
    // Four ways fill less.
    let percent = if WAYS == 4 { 92 } else { 95 };
    let slots = segment * percent / 100;
    // Half of the operations remove, so there are about twice as many keys as are there at a time.
    let trial = Trial::<V, L, WAYS>::new(Builder::new().capacity(slots as usize).fixed(), segment * 2, writers);
    let fill = (0..slots).take_while(|key| {
        trial.know(*key, Known { turn: 1, is_there: true, is_changing: false });
        trial.map.upsert(*key, V::tell(*key, 1)).is_ok()
    });
    let filled = fill.count() as u64;
    assert!(filled * 100 >= segment * (percent - 2), "{} of {}", trial.map.len(), trial.map.capacity());
    if filled < slots {
        trial.know(filled, Known { turn: 0, is_there: false, is_changing: false });
    }
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let trial = &trial;
            scope.spawn(move || {
                let _at_work = AtWork(&trial.at_work);
                let mut numbers = Numbers(writer);
                let mut own: [Vec<u64>; 2] = [Vec::new(), Vec::new()];
                for key in (writer..segment * 2 / writers * writers).step_by(writers as usize) {
                    own[usize::from(trial.known(key).is_there)].push(key);
                }
                for _ in 0..operations / writers / 2 {
                    // One goes, another one comes.
                    let at = numbers.next(own[1].len() as u64) as usize;
                    let gone = own[1].swap_remove(at);
                    trial.change(gone, 10);
                    own[0].push(gone);
                    let at = numbers.next(own[0].len() as u64) as usize;
                    let come = own[0][at];
                    trial.change(come, numbers.next(5));
                    if trial.known(come).is_there {
                        own[0].swap_remove(at);
                        own[1].push(come);
                    }
                }
            });
        }
        (0..threads() / 2).for_each(|reader| {
            let trial = &trial;
            scope.spawn(move || trial.read(reader + 1));
        });
    });
    let there = (0..segment * 2).filter(|key| trial.known(*key).is_there).count();
    assert_eq!(trial.map.len(), there);
    assert!(
        trial.map.len() * 100 >= trial.map.capacity() * (percent as usize - 5),
        "{} of {}",
        trial.map.len(),
        trial.map.capacity()
    );
    for key in 0..segment * 2 {
        let known = trial.known(key);
        let seen = trial.map.get(&key).map(|value| value.check(key));
        assert_eq!(seen, known.is_there.then_some(known.turn), "{key} in the end");
    }
}

#[test]
fn inline_pairs_stay_whole_while_they_are_displaced() {
    stress_displacement::<[u64; 3], Auto, 4>(300_000);
    stress_displacement::<u64, Auto, 8>(400_000);
    stress_displacement::<[u64; 3], Auto, 16>(300_000);
}

#[test]
fn boxed_pairs_stay_whole_while_they_are_displaced() {
    stress_displacement::<Vec<u64>, Auto, 4>(200_000);
    stress_displacement::<u64, Boxed, 8>(300_000);
}
