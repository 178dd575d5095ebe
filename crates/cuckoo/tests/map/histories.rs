//! Short histories of a few threads on one or two keys, each of which must be one that could have come about one operation after
//! the other.

mod checker;

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use checker::{Event, Operation, Outcome, is_linearizable};
use guira_cuckoo::{Auto, Boxed, Builder, Change, CuckooMap, RandomState, Storage, Ways, Width};

/// What a thread asks for in one history.
const OPERATIONS: std::ops::RangeInclusive<u64> = 4..=6;

/// The keys of history `h` are `h * STRIDE` and the next; keys that others use to disturb have their top bit set.
const STRIDE: u64 = 4;

/// Threads meet here before each history, so that they begin at once.
#[derive(Default)]
struct Meeting {
    arrived: AtomicUsize,
}

impl Meeting {
    /// Waits until all `threads` have come for the `round`th time.
    fn wait(&self, threads: usize, round: usize) {
        // AcqRel: pairs with each other; what all did in the round before has been done.
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let mut turns = 0u32;
        // Acquire: as above.
        while self.arrived.load(Ordering::Acquire) < threads * (round + 1) {
            turns += 1;
            if turns.is_multiple_of(1000) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
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

type Map<L, const WAYS: usize> = CuckooMap<u64, u64, RandomState, L, WAYS>;

fn operation(numbers: &mut Numbers, value: u64) -> Operation {
    match numbers.next(11) {
        0..3 => Operation::Get,
        3 | 4 => Operation::Insert(value),
        5 => Operation::InsertIfAbsent(value),
        6 => Operation::Remove,
        7 => Operation::RemoveIf(value),
        8 => Operation::Update(1 << 40),
        9 => Operation::Add(1 << 50),
        _ => Operation::Toggle(value),
    }
}

/// The outcome is not what it is about.
fn ignore<T>(_: T) {}

fn carry_out<L: Storage<u64, u64>, const WAYS: usize>(map: &Map<L, WAYS>, key: u64, operation: Operation) -> Outcome
where
    Ways<WAYS>: Width,
{
    match operation {
        Operation::Get => Outcome::Value(map.get(&key)),
        Operation::Insert(value) => Outcome::Value(map.insert(key, value)),
        Operation::InsertIfAbsent(value) => Outcome::Done(map.insert_if_absent(key, value).expect("room")),
        Operation::Remove => Outcome::Value(map.remove(&key)),
        Operation::RemoveIf(value) => Outcome::Done(map.remove_if(&key, |_, there| *there == value)),
        Operation::Update(more) => Outcome::Value(map.update(&key, |there| there + more)),
        Operation::Add(more) => {
            let mut before = None;
            map.compute(key, |there| {
                before = there.copied();
                Change::Put(there.unwrap_or(&0) + more)
            });
            Outcome::Value(before)
        }
        Operation::Toggle(value) => {
            let mut before = None;
            map.compute(key, |there| {
                before = there.copied();
                if there.is_some() { Change::Remove } else { Change::Put(value) }
            });
            Outcome::Value(before)
        }
    }
}

/// One thread's part of a history.
fn take_part<L: Storage<u64, u64>, const WAYS: usize>(
    map: &Map<L, WAYS>,
    clock: &AtomicU64,
    numbers: &mut Numbers,
    history: usize,
    thread: usize,
    events: &mut Vec<Event>,
) where
    Ways<WAYS>: Width,
{
    // SeqCst: the clock is the order in which things are asked and answered.
    let now = || clock.fetch_add(1, Ordering::SeqCst);
    let keys = 1 + history % 2;
    let key_of = |key: usize| history as u64 * STRIDE + key as u64;
    for at in 0..*OPERATIONS.start() + numbers.next(OPERATIONS.end() - OPERATIONS.start() + 1) {
        if numbers.next(12) == 0 {
            // Both at once, each somewhere in the meantime.
            let asked = now();
            let seen = map.get_many(&[key_of(0), key_of(1)]);
            let answered = now();
            let event = |(key, value)| Event {
                key,
                operation: Operation::Get,
                outcome: Outcome::Value(value),
                asked,
                answered,
            };
            events.extend(seen.into_iter().enumerate().map(event));
            continue;
        }
        let key = numbers.next(keys as u64) as usize;
        // Some of the values are equal, so that `RemoveIf` finds what it looks for.
        let value = if numbers.next(3) == 0 { 1 } else { (thread as u64 + 1) * 100 + at };
        let operation = operation(numbers, value);
        let asked = now();
        let outcome = carry_out(map, key_of(key), operation);
        events.push(Event { key, operation, outcome, asked, answered: now() });
    }
}

/// What goes on beside the histories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Beside {
    Nothing,
    /// Keys come: the map grows, and the keys of the histories are moved.
    Growth,
    /// Keys come and go in a map that is as full as it gets: the keys of the histories are displaced.
    Displacement,
}

/// So many histories, in maps that serve `a_map` of them each.
fn histories<L: Storage<u64, u64>, const WAYS: usize>(threads: usize, beside: Beside, maps: usize, a_map: usize)
where
    Ways<WAYS>: Width,
{
    for turn in 0..maps {
        let builder = match beside {
            Beside::Displacement => Builder::new().capacity(1000).fixed(),
            _ => Builder::new(),
        };
        let map: Map<L, WAYS> = builder.stripes(16 << (turn % 4)).build().expect("memory");
        let (clock, meeting, over) = (AtomicU64::new(0), Meeting::default(), AtomicBool::new(false));
        let recorded: Vec<Mutex<Vec<Event>>> = (0..a_map).map(|_| Mutex::default()).collect();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (map, clock, meeting, over, recorded) = (&map, &clock, &meeting, &over, &recorded);
                scope.spawn(move || {
                    let mut numbers = Numbers((turn * threads + thread) as u64);
                    for (history, record) in recorded.iter().enumerate() {
                        let mut events = Vec::new();
                        meeting.wait(threads, history);
                        if beside == Beside::Displacement && history > 0 {
                            // Nobody is at the last one's any more: room for this one's.
                            (0..2).for_each(|key| ignore(map.delete(&((history as u64 - 1) * STRIDE + key))));
                        }
                        take_part(map, clock, &mut numbers, history, thread, &mut events);
                        record.lock().expect("nobody panics with it").append(&mut events);
                    }
                    over.store(true, Ordering::Relaxed);
                });
            }
            if beside != Beside::Nothing {
                scope.spawn(|| disturb(&map, beside, &over));
            }
        });
        for (at, record) in recorded.into_iter().enumerate() {
            let mut history = record.into_inner().expect("nobody panicked with it");
            history.sort_by_key(|event| event.asked);
            assert!(is_linearizable(&history), "history {at} of map {turn} beside {beside:?}:\n{history:#?}");
        }
    }
}

fn disturb<L: Storage<u64, u64>, const WAYS: usize>(map: &Map<L, WAYS>, beside: Beside, over: &AtomicBool)
where
    Ways<WAYS>: Width,
{
    let other = |number: u64| 1 << 63 | number;
    for number in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        match beside {
            // A few segments at most.
            Beside::Growth if number < 70_000 => ignore(map.insert(other(number), number)),
            Beside::Displacement if map.len() * 100 < map.capacity() * 85 => ignore(map.upsert(other(number), number)),
            Beside::Displacement => {
                // The oldest go.
                (0..20).for_each(|key| ignore(map.delete(&other(number - number.min(800) + key))));
            }
            _ => std::thread::yield_now(),
        }
    }
}

#[test]
fn histories_of_inline_pairs_are_linearizable() {
    histories::<Auto, 8>(2, Beside::Nothing, 6, 500);
    histories::<Auto, 8>(3, Beside::Nothing, 6, 200);
    histories::<Auto, 4>(2, Beside::Growth, 20, 60);
    histories::<Auto, 8>(2, Beside::Growth, 30, 60);
    histories::<Auto, 16>(3, Beside::Growth, 10, 60);
    histories::<Auto, 8>(2, Beside::Displacement, 4, 200);
}

#[test]
fn histories_of_boxed_pairs_are_linearizable() {
    histories::<Boxed, 8>(2, Beside::Nothing, 6, 500);
    histories::<Boxed, 8>(3, Beside::Nothing, 6, 200);
    histories::<Boxed, 4>(2, Beside::Growth, 20, 60);
    histories::<Boxed, 8>(2, Beside::Growth, 30, 60);
    histories::<Boxed, 16>(3, Beside::Growth, 10, 60);
    histories::<Boxed, 8>(2, Beside::Displacement, 4, 200);
}
