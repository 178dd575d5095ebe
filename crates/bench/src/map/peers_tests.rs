//! Every contender of this process, each phase: right answers, alone and by all cores; and a map that is wrong is noticed.

use std::time::Duration;

use guira_loadgen::affinity::cores;

use super::super::{
    concurrent_map::ConcurrentMap,
    contender::{CONTENDERS, NO_MAP, OF_EXPERIMENTS},
    entry::Value,
    factors,
    phase::{ABSENT, Outcome, Phase, Work},
    subject::{Opening, Subject, here},
};

const KEYS: u64 = 5_000;
const A_WHILE: Duration = Duration::from_millis(2);

fn play(subject: &mut dyn Subject, phase: &Phase) -> Outcome {
    subject.play(phase).expect("a core")
}

fn assert_right(name: &str, subject: &mut dyn Subject, phase: &Phase, expected: Option<u64>) {
    match play(subject, phase) {
        Outcome::Spent { operations, .. } => {
            assert!(operations > 0 && expected.is_none_or(|expected| expected == operations), "{name}: {phase}");
        }
        other => panic!("{name}: '{phase}' came to '{other}'"),
    }
}

/// All phases in an order that leaves other keys than there were at first.
fn is_right(name: &str, subject: &mut dyn Subject, cores: &[usize], batched: bool) {
    let phase = |work, numbers| Phase { batched, ..Phase::new(work, numbers, cores).lasting(A_WHILE) };
    assert_right(name, subject, &Phase::new(Work::Fill, 0..1_000, cores).with_lookups(9), Some(10_000));
    assert_right(name, subject, &phase(Work::Fill, 1_000..KEYS), Some(KEYS - 1_000));
    assert_right(name, subject, &phase(Work::Hits, 0..KEYS), None);
    assert_right(name, subject, &phase(Work::Misses, ABSENT..ABSENT + KEYS), None);
    assert_right(name, subject, &Phase::new(Work::Replace, 0..KEYS, cores).replacing(999).with_lookups(1), Some(3_996));
    assert_right(name, subject, &phase(Work::Misses, 0..999), None);
    assert_right(name, subject, &phase(Work::Hits, 999..KEYS + 999), None);
    assert_right(name, subject, &phase(Work::Update, 999..KEYS + 999).with_lookups(9), None);
    assert_right(name, subject, &phase(Work::Hits, 999..KEYS + 999), None);
}

#[test]
fn every_map_gives_right_answers() {
    for contender in CONTENDERS.iter().filter(|known| !known.is_cxx() && known.name != NO_MAP) {
        for room in [None, Some(KEYS as usize * 2)] {
            for value_bytes in contender.value_bytes {
                let opening = Opening { contender: contender.name, value_bytes: *value_bytes, room };
                let mut subject = contender.here(&opening).expect("it is in this process");
                is_right(contender.name, &mut *subject, &cores(), contender.has_batches);
            }
            let opening = Opening { contender: contender.name, value_bytes: 8, room };
            let mut subject = contender.here(&opening).expect("it is in this process");
            is_right(contender.name, &mut *subject, &cores()[..1], !contender.has_batches);
        }
    }
}

#[test]
fn what_one_experiment_compares_gives_right_answers() {
    let own = OF_EXPERIMENTS.into_iter().flat_map(|(_, contenders)| contenders);
    for contender in own.filter(|known| !known.is_cxx()) {
        let opening = Opening { contender: contender.name, value_bytes: 8, room: Some(KEYS as usize * 2) };
        assert_eq!(Opening::parse(&opening.to_string()), Ok(opening));
        for cores in [&cores()[..], &cores()[..1]] {
            is_right(contender.name, &mut *contender.here(&opening).expect("it is in this process"), cores, false);
        }
    }
}

#[test]
fn each_step_of_the_dissertation_fills_its_table() {
    for contender in factors::CONTENDERS {
        let opening = Opening { contender: contender.name, value_bytes: 8, room: Some(50_000) };
        let mut subject = contender.here(&opening).expect("it is in this process");
        assert_right(contender.name, &mut *subject, &Phase::new(Work::Fill, 0..47_500, &cores()), Some(47_500));
        assert_right(contender.name, &mut *subject, &Phase::new(Work::Hits, 0..47_500, &cores()), None);
        let Outcome::Slots(slots) = play(&mut *subject, &Phase::new(Work::Slots, 0..0, &cores())) else {
            panic!("slots")
        };
        if slots < 51_000 {
            let too_many = play(&mut *subject, &Phase::new(Work::Fill, 47_500..51_000, &cores()));
            assert!(matches!(too_many, Outcome::Wrong(_)), "{}: {too_many}", contender.name);
        }
    }
}

#[test]
fn the_time_of_every_insert_is_taken() {
    for contender in CONTENDERS.iter().filter(|known| !known.is_cxx()) {
        let opening = Opening { contender: contender.name, value_bytes: 8, room: None };
        let mut subject = contender.here(&opening).expect("it is in this process");
        let outcome = play(&mut *subject, &Phase::new(Work::TimedFill, 0..KEYS, &cores()));
        let Outcome::Latencies(latencies) = outcome else { panic!("{}: {outcome}", contender.name) };
        assert!(latencies.is_sorted() && latencies[3] > 0, "{latencies:?}");
        let slots = play(&mut *subject, &Phase::new(Work::Slots, 0..0, &cores()));
        assert!(matches!(slots, Outcome::Slots(slots) if slots == 0 || slots >= KEYS), "{}: {slots}", contender.name);
    }
}

/// Errs once in a thousand keys: loses them (`l`), has another value (`v`), or cannot write them (`f`). Holds any other key.
struct Liar<const WHAT: u8>;

fn is_chosen(key: u64) -> bool {
    key.is_multiple_of(1_000)
}

impl<V: Value, const WHAT: u8> ConcurrentMap<V> for Liar<WHAT> {
    type Guard<'map> = ();

    fn with_room_for(_: usize) -> Self {
        Self
    }

    fn growing() -> Self {
        Self
    }

    fn guard(&self) {}

    fn get(&self, key: u64, (): &()) -> Option<V> {
        match WHAT {
            b'l' if is_chosen(key) => None,
            b'v' if is_chosen(key) => Some(V::of(!key)),
            _ => Some(V::of(key)),
        }
    }

    fn insert(&self, key: u64, _: V, (): &()) -> bool {
        WHAT != b'f' || !is_chosen(key)
    }

    fn remove(&self, key: u64, (): &()) -> bool {
        WHAT != b'f' || !is_chosen(key)
    }

    fn update(&self, key: u64, (): &()) -> bool {
        WHAT != b'f' || !is_chosen(key)
    }
}

#[test]
fn a_map_that_is_wrong_is_noticed() {
    let cores = cores();
    let phase = |work| Phase::new(work, 0..50_000, &cores).lasting(Duration::from_millis(20));
    let fill = phase(Work::Fill);
    let is_noticed = |mut subject: Box<dyn Subject>, phase: &Phase| {
        let outcome = play(&mut *subject, phase);
        assert!(matches!(outcome, Outcome::Wrong(_)), "{phase}: {outcome}");
    };
    for phase in [fill.clone().with_lookups(1), phase(Work::Update).with_lookups(9), phase(Work::Hits)] {
        is_noticed(here::<[u64; 1], Liar<b'l'>>(None), &phase);
        is_noticed(here::<[u64; 2], Liar<b'v'>>(None), &phase);
    }
    for phase in [fill.clone(), fill.in_batches(), phase(Work::Update), phase(Work::Replace).replacing(20_000)] {
        is_noticed(here::<[u64; 1], Liar<b'f'>>(None), &phase);
    }
    for batched in [false, true] {
        is_noticed(here::<[u64; 1], Liar<b'v'>>(None), &Phase { batched, ..phase(Work::Misses) });
        is_noticed(here::<[u64; 1], Liar<b'v'>>(None), &Phase { batched, ..phase(Work::Hits) });
    }
}
