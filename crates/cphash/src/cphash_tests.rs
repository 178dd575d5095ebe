//! What every engine has to pass, and what only messages can get wrong.

use std::panic::{AssertUnwindSafe, catch_unwind};

use guira_engine_suite::{
    Setup, Subject,
    caller::{Answers, NOW, Reply, store},
    engine_suite,
};
use guira_item::{
    Answer, Death, Engine, Expiry, Footprints, Get, Hit, Key, Operation, PinnedValue, Request, Sink, Store, StoreMode,
    Time, VALUE_SLACK_LEN,
};

use crate::{Config, Cphash, CphashWorker, Eviction};

fn policy(name: &str) -> Eviction {
    [Eviction::Lru, Eviction::Random].into_iter().find(|policy| policy.name() == name).expect("a policy")
}

fn subject(setup: &Setup, server_threads: usize, server_threads_fixed: bool) -> Cphash {
    let (eviction, evictions_enabled) = (policy(setup.eviction), setup.evictions_enabled);
    let (partitions, server_threads, hash_seed) = (Some(4), Some(server_threads), 7);
    let config = Config { eviction, evictions_enabled, hash_seed, ..Config::new(setup.memory_limit) };
    Cphash::new(Config { partitions, server_threads, server_threads_fixed, ..config }).expect("memory")
}

/// Batches go by message if the server thread is awake.
mod by_load {
    use super::*;

    engine_suite!(Subject {
        policies: &["lru", "random"],
        make: |setup: &Setup| subject(setup, 1, false),
        bytes_per_item_max: |_| 145.0,
        header_len: 80,
        check_busy: |_, _| {},
        check_empty: |_, _| {},
    });
}

mod by_messages {
    use super::*;

    engine_suite!(Subject {
        policies: &["lru", "random"],
        make: |setup: &Setup| subject(setup, 1, true),
        bytes_per_item_max: |_| 145.0,
        header_len: 80,
        check_busy: |_, _| {},
        check_empty: |_, _| {},
    });
}

/// Clients carry batches out partition by partition.
mod without_server_threads {
    use super::*;

    engine_suite!(Subject {
        policies: &["lru", "random"],
        make: |setup: &Setup| subject(setup, 0, false),
        bytes_per_item_max: |_| 145.0,
        header_len: 80,
        check_busy: |_, _| {},
        check_empty: |_, _| {},
    });
}

/// How batches are carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// By clients, partition by partition.
    ByPartition,
    /// By message to so many server threads; clients serve each other if there is none.
    ByMessage(usize),
}

use Way::{ByMessage, ByPartition};

const WAYS: [Way; 3] = [ByPartition, ByMessage(0), ByMessage(1)];

fn engine(way: Way) -> Cphash {
    engine_with(way, 4, 8)
}

fn engine_with(way: Way, partitions: usize, megabytes: usize) -> Cphash {
    let (threads, server_threads_fixed) = match way {
        ByPartition => (0, false),
        ByMessage(threads) => (threads, true),
    };
    let (partitions, server_threads) = (Some(partitions), Some(threads));
    let config = Config { partitions, server_threads, server_threads_fixed, ..Config::new(megabytes << 20) };
    Cphash::new(Config { hash_seed: 7, ..config }).expect("memory")
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key{number:08}")).collect()
}

fn requests<'a>(names: &'a [String], mut operation: impl FnMut(usize) -> Operation<'a>) -> Vec<Request<'a>> {
    let request = |(number, name): (usize, &'a String)| Request {
        key: Key::new(name.as_bytes()).expect("a key"),
        operation: operation(number),
    };
    names.iter().enumerate().map(request).collect()
}

/// Nothing holds a chunk any more once everything is gone: no reference was forgotten.
pub(crate) fn assert_nothing_is_referenced(engine: &Cphash, worker: &mut CphashWorker) {
    engine.flush_all(NOW, NOW);
    while engine.maintain(worker, NOW) {}
    let stats = engine.stats();
    let used: u64 = stats.classes.iter().map(|class| class.used_chunks).sum();
    assert_eq!((stats.curr_items, stats.bytes, used), (0, 0, 0), "{stats:?}");
}

#[test]
fn references_come_back_from_a_million_operations() {
    for way in WAYS.into_iter().chain([ByMessage(2)]) {
        let engine = engine(way);
        let (names, large) = (names(2_000), vec![7; 40_000]);
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let (engine, names, large) = (&engine, &names, &large);
                scope.spawn(move || {
                    let mut worker = engine.worker();
                    let mut random = thread + 1;
                    for _ in 0..84 {
                        let mut next = || {
                            random ^= random << 13;
                            random ^= random >> 7;
                            random ^= random << 17;
                            random >> 8
                        };
                        let draws: Vec<u64> = names.iter().map(|_| next()).collect();
                        let requests = requests(names, |number| match draws[number] % 100 {
                            0 => store(StoreMode::Set, large),
                            1..=30 => store(StoreMode::Set, &large[..(draws[number] >> 8) as usize % 3_000]),
                            _ => Operation::Get(Get::PLAIN),
                        });
                        let mut answers = Answers::default();
                        engine.execute(&mut worker, NOW, &requests, &mut answers);
                        assert_eq!(answers.list.len(), names.len());
                    }
                });
            }
        });
        assert_nothing_is_referenced(&engine, &mut engine.worker());
    }
}

/// More messages than a ring holds, to one partition.
#[test]
fn a_full_ring_is_waited_for_and_loses_nothing() {
    for way in WAYS {
        let engine = engine(way);
        let mut worker = engine.worker();
        let names: Vec<String> = vec!["the same key".into(); 20_000];
        let values: Vec<String> = (0..names.len()).map(|number| number.to_string()).collect();
        let mut answers = Answers::default();
        let all = requests(&names, |number| match number % 2 {
            0 => store(StoreMode::Set, values[number].as_bytes()),
            _ => Operation::Get(Get::PLAIN),
        });
        engine.execute(&mut worker, NOW, &all, &mut answers);
        for (number, reply) in answers.list.iter().enumerate() {
            match reply {
                Reply::Other(Answer::Stored { .. }) => assert_eq!(number % 2, 0),
                Reply::Hit(_, value) => assert_eq!(value, values[number - 1].as_bytes()),
                other => panic!("{number}: {other:?}"),
            }
        }
    }
}

/// A sink that gives up in the middle of a batch.
struct GivesUp {
    after: usize,
    room: Vec<u8>,
}

impl GivesUp {
    fn count(&mut self) {
        assert!(self.after > 0, "gives up");
        self.after -= 1;
    }
}

impl Sink for GivesUp {
    fn reserve(&mut self, _: usize, hit: &Hit) -> &mut [u8] {
        self.count();
        self.room.resize(hit.value_len + 2 * guira_item::VALUE_SLACK_LEN, 0);
        &mut self.room
    }

    fn commit(&mut self, _: usize, _: &Hit) {}

    fn pinned(&mut self, _: usize, _: &Hit, _: Box<dyn PinnedValue>) {
        self.count();
    }

    fn metadata(&mut self, _: usize, _: &Hit) {}

    fn answer(&mut self, _: usize, _: Answer) {
        self.count();
    }
}

#[test]
fn a_client_that_dies_in_the_middle_of_a_batch_gives_its_references_back() {
    for way in WAYS {
        let engine = engine(way);
        let (names, value) = (names(600), vec![3; 2_000]);
        let mut answers = Answers::default();
        let sets = requests(&names, |number| store(StoreMode::Set, &value[..number * 3]));
        engine.execute(&mut engine.worker(), NOW, &sets, &mut answers);
        for after in (0..600).step_by(37) {
            let mut worker = engine.worker();
            let mixed = requests(&names, |number| match number % 5 {
                0 => store(StoreMode::Set, &value),
                _ => Operation::Get(Get::PLAIN),
            });
            let mut sink = GivesUp { after, room: Vec::new() };
            let ended = catch_unwind(AssertUnwindSafe(|| engine.execute(&mut worker, NOW, &mixed, &mut sink)));
            assert!(ended.is_err(), "it gives up");
        }
        assert_nothing_is_referenced(&engine, &mut engine.worker());
    }
}

#[test]
fn memory_goes_to_the_partition_that_needs_it() {
    let engine = engine(ByPartition);
    let mut worker = engine.worker();
    let mut store_all = |names: &[String]| {
        for names in names.chunks(500) {
            let sets = requests(names, |_| store(StoreMode::Set, &[1; 32]));
            engine.execute(&mut worker, NOW, &sets, &mut Answers::default());
            engine.maintain(&mut engine.worker(), NOW);
        }
    };
    store_all(&names(100_000));
    let before = engine.pages();
    // Keys of one partition alone, more than all of the memory holds.
    let wanted: Vec<String> =
        names(400_000).into_iter().filter(|name| engine.partition(name.as_bytes()) == 0).collect();
    store_all(&wanted);
    let after = engine.pages();
    assert!(after[0] > 2 * before[0], "{before:?} -> {after:?}");
    assert!(after.iter().sum::<usize>() <= before.iter().sum::<usize>() + 1, "{before:?} -> {after:?}");
}

#[test]
fn a_client_that_has_gone_leaves_no_seat() {
    let engine = engine(ByMessage(1));
    let names = names(100);
    for _ in 0..10 {
        let mut answers = Answers::default();
        let gets = requests(&names, |_| Operation::Get(Get::PLAIN));
        engine.execute(&mut engine.worker(), NOW, &gets, &mut answers);
    }
    engine.maintain(&mut engine.worker(), NOW);
    engine.stats();
    assert_eq!(engine.seats(), 0);
}

/// The same where memory is full of what other sinks still send, so that sets and calls stall.
#[test]
fn a_client_that_dies_while_it_is_stalled_is_served_again() {
    for way in WAYS {
        let engine = engine_with(way, 1, 4);
        let (names, large) = (names(100), vec![5; 60_000]);
        let fill = requests(&names, |_| store(StoreMode::Set, &large));
        let read = requests(&names, |_| Operation::Get(Get::PLAIN));
        // A set by message, one whose value is larger, and an operation.
        let mixed = requests(&names, |number| match number % 3 {
            0 => store(StoreMode::Set, &large[..800]),
            1 => store(StoreMode::Add, &large[..700]),
            _ => store(StoreMode::Set, &large[..3_000]),
        });
        for after in (0..100).step_by(9) {
            let mut worker = engine.worker();
            let mut sending = Keeps::default();
            engine.execute(&mut worker, NOW, &fill, &mut Keeps::default());
            engine.execute(&mut worker, NOW, &read, &mut sending);
            assert!(sending.pinned.len() > 40, "memory is full of what is being sent");
            let refused = engine.stats().out_of_memory;
            let mut sink = GivesUp { after, room: Vec::new() };
            let ended = catch_unwind(AssertUnwindSafe(|| engine.execute(&mut worker, NOW, &mixed, &mut sink)));
            assert!(ended.is_err(), "it gives up");
            assert!(after < 50 || engine.stats().out_of_memory > refused, "there was no memory");
            drop(sending);
            let mut sink = Keeps::default();
            engine.execute(&mut worker, NOW, &mixed, &mut sink);
            assert!(sink.stored > 60, "{} stored: it is served again", sink.stored);
        }
        assert_nothing_is_referenced(&engine, &mut engine.worker());
    }
}

/// A sink that keeps the large values until it is dropped, and how often something was stored.
#[derive(Default)]
struct Keeps {
    room: Vec<u8>,
    pinned: Vec<(usize, Box<dyn PinnedValue>)>,
    stored: usize,
}

impl Sink for Keeps {
    fn reserve(&mut self, _: usize, hit: &Hit) -> &mut [u8] {
        self.room.resize(hit.value_len + 2 * guira_item::VALUE_SLACK_LEN, 0);
        &mut self.room
    }

    fn commit(&mut self, _: usize, _: &Hit) {}

    fn pinned(&mut self, index: usize, _: &Hit, value: Box<dyn PinnedValue>) {
        self.pinned.push((index, value));
    }

    fn metadata(&mut self, _: usize, _: &Hit) {}

    fn answer(&mut self, _: usize, answer: Answer) {
        self.stored += usize::from(matches!(answer, Answer::Stored { .. }));
    }
}

/// References were given back out of order when the ring was full, and that of a value being sent was among them: its memory was
/// used again, and another item's bytes were sent.
#[test]
fn large_values_that_are_being_sent_stay_whole_when_rings_are_full() {
    let large = |number: usize| vec![number as u8 + 1; 40_000];
    // Sets of three words fill the ring up to a word or two, by how many reads come before them.
    for (way, gets) in WAYS.into_iter().flat_map(|way| (6..16).map(move |gets| (way, gets))) {
        let engine = engine_with(way, 1, 8);
        let mut worker = engine.worker();
        let names: Vec<String> = (0..1_024).map(|number| format!("k{number:06}")).collect();
        let values: Vec<Vec<u8>> =
            (0..16).map(|number| if number % 2 == 0 { large(number) } else { vec![1; 8] }).collect();
        engine.execute(
            &mut worker,
            NOW,
            &requests(&names[..16], |number| store(StoreMode::Set, &values[number])),
            &mut Keeps::default(),
        );
        let mut sink = Keeps::default();
        let mixed = requests(&names, |number| match number {
            number if number < gets => Operation::Get(Get::PLAIN),
            _ => store(StoreMode::Set, b"1"),
        });
        engine.execute(&mut worker, NOW, &mixed, &mut sink);
        assert_eq!((sink.pinned.len(), sink.stored), (gets.div_ceil(2), names.len() - gets));
        // Whatever is free is used again.
        for _ in 0..4 {
            let again = requests(&names[..16], |_| store(StoreMode::Set, &[0; 40_000]));
            engine.execute(&mut worker, NOW, &again, &mut Keeps::default());
        }
        for (index, value) in &sink.pinned {
            let is_whole = (0..value.len()).step_by(1_000).all(|offset| value.piece(offset)[0] == *index as u8 + 1);
            assert!(is_whole, "value {index} of {gets}");
        }
        drop(sink);
        assert_nothing_is_referenced(&engine, &mut worker);
    }
}

/// All references of a batch were kept until its end: a set found nothing but what its own client had read.
#[test]
fn what_a_batch_has_read_does_not_keep_its_set_from_finding_room() {
    // Set and Insert.
    for (way, len) in WAYS.into_iter().flat_map(|way| [(way, 900), (way, 2_000)]) {
        let engine = engine_with(way, 1, 4);
        let mut worker = engine.worker();
        let (names, value) = (names(400), vec![1; 15_000]);
        engine.execute(&mut worker, NOW, &requests(&names, |_| store(StoreMode::Set, &value)), &mut Keeps::default());
        let mut sink = Keeps::default();
        let mixed = requests(&names, |number| match number {
            0..399 => Operation::Get(Get::PLAIN),
            _ => store(StoreMode::Set, &value[..len]),
        });
        engine.execute(&mut worker, NOW, &mixed, &mut sink);
        assert_eq!(sink.stored, 1);
        assert_nothing_is_referenced(&engine, &mut worker);
    }
}

/// A partition that somebody else has comes last, and answers come in order all the same, whether values are copied at once (up to
/// 256 bytes), referred to until it is their turn, or sent from where they lie.
#[test]
fn a_batch_goes_round_a_partition_that_is_held() {
    for held in 0..4 {
        // Room for all: nobody has to wait for pages of the partition that is held.
        let engine = engine_with(ByPartition, 4, 64);
        let values = [0, 1, 255, 256, 257, 5_000, 40_000].map(|len| vec![len as u8; len]);
        let names: Vec<String> = names(500).into_iter().flat_map(|name| [name.clone(), name]).collect();
        let mixed = requests(&names, |number| match (number % 2, number / 2 % 3) {
            (0, _) => store(StoreMode::Set, &values[number / 2 % 7]),
            (_, 0) => Operation::Get(Get::PLAIN),
            (_, 1) => Operation::Get(Get { wins: true, ..Get::PLAIN }),
            _ => Operation::Get(Get { value: false, ..Get::PLAIN }),
        });
        let (mut worker, mut other) = (engine.worker(), engine.worker());
        let mut is_there = |key: &str| {
            let mut answers = Answers::default();
            let get = Operation::Get(Get { value: false, ..Get::PLAIN });
            let requests = [Request { key: Key::new(key.as_bytes()).expect("a key"), operation: get }];
            engine.execute(&mut other, NOW, &requests, &mut answers);
            matches!(answers.list[..], [Reply::Hit(..)])
        };
        let station = engine.hold(held);
        let replies = std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let mut answers = Answers::default();
                engine.execute(&mut worker, NOW, &mixed, &mut answers);
                answers.list
            });
            for name in names.iter().filter(|name| engine.partition(name.as_bytes()) != held) {
                while !is_there(name) {
                    std::thread::yield_now();
                }
            }
            drop(station);
            client.join().expect("all is answered")
        });
        for (number, reply) in replies.iter().enumerate() {
            let value = &values[number / 2 % 7];
            match (number % 2, reply) {
                (0, Reply::Other(Answer::Stored { .. })) => {}
                (1, Reply::Hit(hit, _)) if number / 2 % 3 == 2 => assert_eq!(hit.value_len, value.len()),
                (1, Reply::Hit(_, bytes)) => assert!(bytes == value, "{number}: {} bytes", bytes.len()),
                _ => panic!("{number}: {reply:?}"),
            }
        }
        assert_nothing_is_referenced(&engine, &mut engine.worker());
    }
}

/// Batches are carried out by clients until it is worth while to wake a server thread, and go by message then.
#[test]
fn a_server_thread_is_woken_when_there_is_much_to_do() {
    let (partitions, server_threads) = (Some(4), Some(1));
    let config = Config { partitions, server_threads, hash_seed: 7, ..Config::new(8 << 20) };
    let engine = Cphash::new(config).expect("memory");
    let (mut worker, names) = (engine.worker(), names(1_000));
    let gets = requests(&names, |_| Operation::Get(Get::PLAIN));
    while engine.is_looking() {
        std::thread::yield_now();
    }
    engine.execute(&mut worker, NOW, &gets, &mut Answers::default());
    assert_eq!(worker.traffic().request_words, 0, "the server thread sleeps");
    while worker.traffic().request_words == 0 {
        let mut answers = Answers::default();
        engine.execute(&mut worker, NOW, &gets, &mut answers);
        assert_eq!(answers.list.len(), names.len());
    }
    let before = worker.traffic().request_words;
    engine.execute(&mut worker, NOW, &gets[..63], &mut Answers::default());
    assert_eq!(worker.traffic().request_words, before, "so few fill no lines");
}

/// All that a sink is told, in words.
#[derive(Default)]
struct Minutes {
    lines: Vec<String>,
    room: Vec<u8>,
}

impl Minutes {
    fn value(&mut self, index: usize, hit: &Hit, value: &[u8]) {
        self.lines.push(format!("{index} {hit:?} {} bytes {:?}", value.len(), value.first()));
    }
}

impl Sink for Minutes {
    fn reserve(&mut self, _: usize, hit: &Hit) -> &mut [u8] {
        self.room.resize(hit.value_len + 2 * VALUE_SLACK_LEN, 0);
        &mut self.room
    }

    fn commit(&mut self, index: usize, hit: &Hit) {
        let room = std::mem::take(&mut self.room);
        self.value(index, hit, &room[VALUE_SLACK_LEN..][..hit.value_len]);
    }

    fn pinned(&mut self, index: usize, hit: &Hit, value: Box<dyn PinnedValue>) {
        assert_eq!(value.len(), hit.value_len);
        self.value(index, hit, value.piece(0));
    }

    fn metadata(&mut self, index: usize, hit: &Hit) {
        self.lines.push(format!("{index} {hit:?}"));
    }

    fn answer(&mut self, index: usize, answer: Answer) {
        self.lines.push(format!("{index} {answer:?}"));
    }

    fn found_dead(&mut self, index: usize, death: Death) {
        self.lines.push(format!("{index} was dead: {death:?}"));
    }

    fn answer_change(&mut self, index: usize, answer: Answer, items: &Footprints) {
        self.lines.push(format!("{index} {answer:?} {items:?}"));
    }
}

/// What sinks are told does not depend on whether requests come together, deaths and what changes found included.
#[test]
fn a_batch_comes_to_what_its_requests_come_to_one_by_one() {
    let names: Vec<String> = names(40).into_iter().cycle().take(1_500).collect();
    let value = vec![b'7'; 70_000];
    for way in WAYS {
        let (together, apart) = (engine_with(way, 4, 64), engine_with(way, 4, 64));
        let (mut worker, mut other) = (together.worker(), apart.worker());
        let mut random = 1u64;
        for second in 0..20 {
            let now = Time(NOW.0 + second);
            if second % 7 == 6 {
                together.flush_all(now, now);
                apart.flush_all(now, now);
            }
            let mixed = requests(&names, |_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let len = [1, 8, 255, 256, 257, 1_023, 1_024, 3_000, 70_000][(random >> 24) as usize % 9];
                let ends = |operation| match operation {
                    Operation::Store(store) if random & 1 << 40 == 0 => {
                        Operation::Store(Store { expiry: Expiry::at(Time(now.0 + 2)), ..store })
                    }
                    other => other,
                };
                match (random >> 8) % 12 {
                    0..=3 => ends(store(StoreMode::Set, &value[..len])),
                    4 => ends(store(StoreMode::Add, &value[..len])),
                    5 => ends(store(StoreMode::Append, &value[..len.min(300)])),
                    6 => Operation::Get(Get { wins: true, ..Get::PLAIN }),
                    7 => Operation::Get(Get { value: false, ..Get::PLAIN }),
                    _ => Operation::Get(Get::PLAIN),
                }
            });
            let (mut all, mut each) = (Minutes::default(), Minutes::default());
            together.execute(&mut worker, now, &mixed, &mut all);
            for (number, request) in mixed.iter().enumerate() {
                let from = each.lines.len();
                apart.execute(&mut other, now, std::slice::from_ref(request), &mut each);
                for line in &mut each.lines[from..] {
                    *line = format!("{number}{}", &line[1..]);
                }
            }
            for (together, apart) in all.lines.iter().zip(&each.lines) {
                assert_eq!(together, apart, "{way:?}");
            }
            assert_eq!(all.lines.len(), each.lines.len());
        }
        let messages = worker.traffic().request_words;
        assert_eq!(messages > 0, way != ByPartition, "{way:?}: {messages} words");
    }
}
