//! The whole engine under random schedules: clients send batches while stations change hands between server threads, which fall
//! asleep and are woken, and nobody at all for a while.
//!
//! Each client stores under keys of its own and knows what it stored last; what it may ask of the others' keys is that none is seen
//! older than it was seen before. A client serves only where nobody looks (it never grows impatient), so that a message which is
//! forgotten stays forgotten. The schedules take every access of an atomic in one global order: what weaker orderings allow is
//! loom's to find, in the ring's models.

use std::{sync::Arc, time::Duration};

use guira_engine_suite::caller::{Answers, NOW, Reply, store};
use guira_item::{Answer, Engine, Get, Key, Operation, Request, StoreMode};
use guira_sync::{
    atomic::{Ordering, fence},
    schedules::{self, Tally},
};
use shuttle::{
    rand::{Rng, thread_rng},
    scheduler::Scheduler,
    thread,
};

use crate::{
    Config, Cphash,
    cphash::Shared,
    cphash_tests::assert_nothing_is_referenced,
    crew::{Crew, Look},
};

/// Schedules of each kind that must pass.
const SCHEDULES: usize = 10_000;

/// Schedules of one kind in a round that looks for a fault.
const ROUND: usize = 500;

const STATIONS: usize = 2;
const MEMBERS: usize = 2;
const CLIENTS: usize = 2;
/// Batches of a client.
const BATCHES: u8 = 3;
/// How often it is changed who serves.
const ASSIGNMENTS: usize = 4;

/// Long enough that clients copy values of that length by themselves, in two steps.
const LONG: usize = 1_100;

/// How server threads do what faults are seeded into.
#[derive(Clone, Copy)]
struct Ways {
    /// Looks at a station.
    serve: fn(&Shared, usize) -> Look,
    /// A member's life.
    work: fn(&Crew, usize, &dyn Fn(usize) -> Look),
    /// How long a member looks for work before it sleeps.
    patience: Duration,
}

const SLEEPY: Ways =
    Ways { serve: Shared::serve, work: |crew, number, serve| crew.work(number, serve), patience: Duration::ZERO };

const SLEEPLESS: Ways = Ways { patience: Duration::MAX, ..SLEEPY };

/// What the schedules of one run have gone through, in all.
#[derive(Default)]
struct Coverage {
    served: Tally,
    taken: Tally,
    by_clients: Tally,
    sleeps_ended: Tally,
}

/// A key in each station, of a client's own.
fn names(engine: &Cphash, client: usize) -> [String; STATIONS] {
    std::array::from_fn(|station| {
        let name = |number: usize| format!("{client}-{number}");
        (0..).map(name).find(|name| engine.partition(name.as_bytes()) == station).expect("hashes reach every station")
    })
}

fn value(version: u8) -> Vec<u8> {
    vec![version; if version.is_multiple_of(2) { LONG } else { 8 }]
}

/// The version that a read has found, 0 if it has found nothing.
fn version(reply: &Reply) -> u8 {
    match reply {
        Reply::Other(Answer::Miss) => 0,
        Reply::Hit(_, bytes) => {
            assert!(!bytes.is_empty() && *bytes == value(bytes[0]), "torn: {bytes:?}");
            bytes[0]
        }
        other => panic!("no answer to a read: {other:?}"),
    }
}

fn request<'a>(name: &'a str, operation: Operation<'a>) -> Request<'a> {
    Request { key: Key::new(name.as_bytes()).expect("a key"), operation }
}

/// Stores and reads its own keys, and reads the other client's, in each batch; whether it has served messages itself.
fn send_batches(engine: &Cphash, client: usize) -> bool {
    let mut worker = engine.worker();
    let (own, others) = (names(engine, client), names(engine, 1 - client));
    let mut seen = [0; STATIONS];
    for version_now in 1..=BATCHES {
        let value = value(version_now);
        let requests: Vec<_> = (0..STATIONS)
            .flat_map(|station| {
                [
                    request(&own[station], Operation::Get(Get::PLAIN)),
                    request(&own[station], store(StoreMode::Set, &value)),
                    request(&own[station], Operation::Get(Get::PLAIN)),
                    request(&others[station], Operation::Get(Get::PLAIN)),
                ]
            })
            .collect();
        let mut answers = Answers::default();
        engine.execute(&mut worker, NOW, &requests, &mut answers);
        for (station, replies) in answers.list.chunks(4).enumerate() {
            let [before, stored, after, other] = replies else { panic!("{} answers", answers.list.len()) };
            assert!(matches!(stored, Reply::Other(Answer::Stored { .. })), "{stored:?}");
            assert_eq!((version(before), version(after)), (version_now - 1, version_now));
            assert!(version(other) >= seen[station], "older than before");
            seen[station] = version(other);
        }
        assert_eq!(answers.list.len(), requests.len());
    }
    worker.cycles().serve > 0
}

fn play(ways: Ways, coverage: &Arc<Coverage>) {
    // In a crew that is not fixed, batches go by message only while somebody looks for messages.
    let server_threads_fixed = thread_rng().gen_range(0..4) > 0;
    let (partitions, server_threads, hash_seed) = (Some(STATIONS), Some(MEMBERS), 7);
    let config = Config { partitions, server_threads, server_threads_fixed, hash_seed, ..Config::new(1 << 20) };
    let engine = Cphash::without_threads(config, ways.patience);
    let members = [0, 1].map(|number| {
        let (shared, coverage) = (Arc::clone(engine.shared()), Arc::clone(coverage));
        thread::spawn(move || {
            let serve = |station: usize| {
                let look = (ways.serve)(&shared, station);
                match look {
                    Look::Served => coverage.served.count(),
                    Look::Taken => coverage.taken.count(),
                    Look::Nothing => {}
                }
                look
            };
            (ways.work)(&shared.crew, number, &serve);
        })
    });
    let clients = [0, 1].map(|number| {
        let engine = engine.clone();
        let coverage = Arc::clone(coverage);
        thread::spawn(move || {
            let has_served = send_batches(&engine, number);
            coverage.by_clients.add(has_served.into());
        })
    });
    let crew = &engine.shared().crew;
    for _ in 0..ASSIGNMENTS {
        let wanted = thread_rng().gen_range(0..=MEMBERS);
        coverage.sleeps_ended.add(wanted.saturating_sub(crew.awake_of(wanted)));
        crew.assign(wanted);
        thread::yield_now();
    }
    clients.into_iter().for_each(|client| client.join().expect("its answers are right"));
    crew.stop();
    members.into_iter().for_each(|member| member.join().expect("ends"));
    assert_nothing_is_referenced(&engine, &mut engine.worker());
}

fn passes(ways: Ways, scheduler: impl Scheduler + 'static) {
    let coverage: Arc<Coverage> = Arc::default();
    let counted = Arc::clone(&coverage);
    assert_eq!(schedules::pass(scheduler, move || play(ways, &counted)), SCHEDULES);
    let least = SCHEDULES / 100;
    schedules::have_happened(
        least,
        &[
            (&coverage.served, "turns of server threads"),
            (&coverage.taken, "stations at which a server thread found somebody else"),
            (&coverage.by_clients, "clients that have served messages themselves"),
        ],
    );
    if ways.patience.is_zero() {
        schedules::have_happened(least, &[(&coverage.sleeps_ended, "sleeps that an assignment ended")]);
    }
}

#[test]
fn shuttle_stations_change_hands_between_threads_that_sleep() {
    passes(SLEEPY, schedules::random(SCHEDULES));
    passes(SLEEPY, schedules::few_preemptions(SCHEDULES));
}

#[test]
fn shuttle_stations_change_hands_between_threads_that_never_sleep() {
    passes(SLEEPLESS, schedules::random(SCHEDULES));
    passes(SLEEPLESS, schedules::few_preemptions(SCHEDULES));
}

/// The models must be able to fail.
#[test]
fn shuttle_seeded_faults_are_noticed() {
    let faults = [
        (
            "a bell that is silenced after the station was served",
            Ways { serve: |s, n| serve(s, n, Fault::Late), ..SLEEPLESS },
        ),
        (
            "a member that keeps to its first stations",
            Ways { work: |c, n, s| work(c, n, s, Fault::Keeps), ..SLEEPLESS },
        ),
        ("a member that sleeps and does not say so", Ways { work: |c, n, s| work(c, n, s, Fault::Secret), ..SLEEPY }),
        ("a member that sleeps through the end", Ways { work: |c, n, s| work(c, n, s, Fault::Deaf), ..SLEEPY }),
    ];
    schedules::are_noticed(ROUND, &faults, |ways| play(ways, &Arc::default()));
}

/// What faults are seeded into, without one.
#[test]
fn shuttle_the_copies_that_faults_are_seeded_into_are_sound() {
    let ways = Ways {
        serve: |shared, number| serve(shared, number, Fault::None),
        work: |c, n, s| work(c, n, s, Fault::None),
        ..SLEEPY
    };
    for ways in [ways, Ways { patience: Duration::MAX, ..ways }] {
        let is_noticed = move || play(ways, &Arc::default());
        assert_eq!(schedules::notices(schedules::random(SCHEDULES), is_noticed), None);
        assert_eq!(schedules::notices(schedules::few_preemptions(SCHEDULES), is_noticed), None);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The bell is silenced when its station has been served.
    Late,
    /// A member looks at the stations that it had at first.
    Keeps,
    /// It does not say that it sleeps, and wakes when it is decided anew who serves.
    Secret,
    /// It sleeps on when all are to end.
    Deaf,
}

/// As `Crew::work`, but for its accounts and a fault.
fn work(crew: &Crew, number: usize, serve: &dyn Fn(usize) -> Look, fault: Fault) {
    let member = crew.begin(number);
    let mine = || (0..STATIONS).filter(|station| crew.owner(*station) == Some(number));
    let first: Vec<usize> = mine().collect();
    let look = || {
        let mut found = Look::Nothing;
        let stations = if fault == Fault::Keeps { first.clone() } else { mine().collect() };
        for station in stations {
            let look = serve(station);
            found = if found == Look::Nothing { look } else { found };
        }
        found
    };
    while !crew.is_stopped() {
        if look() != Look::Nothing || !crew.patience.is_zero() {
            thread::yield_now();
            continue;
        }
        member.is_asleep.store(fault != Fault::Secret, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_needed = look() != Look::Nothing;
        let is_over = || fault != Fault::Deaf && crew.is_stopped();
        // Who does not say that it sleeps goes by what else may have happened when it is woken: a wake may be for nothing.
        let active = crew.active();
        let sleeps_on = || match fault {
            Fault::Secret => crew.active() == active,
            _ => member.is_asleep.load(Ordering::Relaxed),
        };
        while !is_needed && sleeps_on() && !is_over() {
            thread::park();
        }
        member.is_asleep.store(false, Ordering::Relaxed);
    }
}

/// As `Shared::serve`, but for its accounts; with a fault, what comes while it serves is taken for served.
fn serve(shared: &Shared, number: usize, fault: Fault) -> Look {
    let post = &shared.stations[number];
    if !post.bell.load(Ordering::Relaxed) {
        return Look::Nothing;
    }
    let Some(mut station) = post.station.try_lock() else { return Look::Taken };
    let silence = || post.bell.store(false, Ordering::Relaxed);
    if fault != Fault::Late {
        silence();
    }
    shared.serve_station(&mut station);
    if fault == Fault::Late {
        silence();
    }
    Look::Served
}
