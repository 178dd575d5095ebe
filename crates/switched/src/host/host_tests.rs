//! A whole cluster over sockets and threads, asked as a server asks it.

#[path = "cache_tests.rs"]
mod cache;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use guira_chain::Reply;
use guira_item::{
    Answer, Arithmetic, ArithmeticMode, CasRule, Clock, Delete, Expiry, Failure, Get, Hit, Key, Operation, PinnedValue,
    Request, Service, Sink, Span, Store as StoreOperation, StoreMode, Ticket, Time, VALUE_SLACK_LEN,
    store::{Done, Found, Part, Record, Scan, Store, StoreState, StoreStats, Visit, Write, Written},
};
use guira_persist::{Fault, MemoryStore};

use super::{
    CallerBounds, GatewayService, GatewayWorker,
    local::{LocalCluster, LocalConfig, LocalStatus},
};
use crate::{ITEM_LEN_MAX, backend::HotConfig};

/// Long enough for a busy machine: it ends a test that would fail anyway.
const PATIENCE: Duration = Duration::from_secs(60);

/// The server's time in all tests: a quarter of an hour after its start.
const NOW: Time = Time(1_000);

const GET: Operation<'static> = Operation::Get(Get::PLAIN);
const TELL: Operation<'static> = Operation::Get(Get { value: false, tells: true, ..Get::PLAIN });
const DELETE: Operation<'static> = Operation::Delete(Delete { cas: None, invalidate: None });
const DELETED: Said = Said::Other(Answer::Deleted);
const MISS: Said = Said::Other(Answer::Miss);
const TOUCHED: Said = Said::Other(Answer::Touched);

/// What a client is told.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Said {
    Value(Hit, Vec<u8>),
    Other(Answer),
}

impl Said {
    fn value(self) -> Vec<u8> {
        match self {
            Self::Value(_, value) => value,
            other @ Self::Other(_) => panic!("a value was wanted: {other:?}"),
        }
    }

    fn hit(self) -> Hit {
        match self {
            Self::Value(hit, _) => hit,
            other @ Self::Other(_) => panic!("a hit was wanted: {other:?}"),
        }
    }

    fn is_stored(&self) -> bool {
        matches!(self, Self::Other(Answer::Stored { .. }))
    }
}

/// Takes the answers to a batch.
#[derive(Default)]
struct Ear {
    said: Vec<Said>,
    room: Vec<u8>,
}

impl Ear {
    fn hear(&mut self, index: usize, said: Said) {
        assert_eq!(index, self.said.len(), "in order");
        self.said.push(said);
    }
}

impl Sink for Ear {
    fn reserve(&mut self, _: usize, hit: &Hit) -> &mut [u8] {
        self.room.resize(VALUE_SLACK_LEN + hit.value_len + VALUE_SLACK_LEN, 0);
        &mut self.room
    }

    fn commit(&mut self, index: usize, hit: &Hit) {
        let value = self.room[VALUE_SLACK_LEN..][..hit.value_len].to_vec();
        self.hear(index, Said::Value(*hit, value));
    }

    fn pinned(&mut self, _: usize, _: &Hit, _: Box<dyn PinnedValue>) {
        unreachable!("a gateway pins nothing");
    }

    fn metadata(&mut self, index: usize, hit: &Hit) {
        self.hear(index, Said::Value(*hit, Vec::new()));
    }

    fn answer(&mut self, index: usize, answer: Answer) {
        self.hear(index, Said::Other(answer));
    }
}

/// One thread of a server.
struct Client<'s> {
    service: &'s GatewayService,
    worker: GatewayWorker,
    woken: Receiver<()>,
    last_ticket: u64,
}

impl<'s> Client<'s> {
    fn of(service: &'s GatewayService) -> Self {
        let (wake, woken) = channel();
        let wake = Arc::new(move || wake.send(()).unwrap_or_default());
        let worker = service.worker(wake);
        Self { service, worker, woken, last_ticket: 0 }
    }

    /// Asks for a batch, and waits for no answer; those that were given at once.
    fn submit(&mut self, requests: &[Request<'_>]) -> (Ticket, Ear) {
        self.last_ticket += 1;
        let (ticket, mut ear) = (Ticket(self.last_ticket), Ear::default());
        let answered = self.service.submit(&mut self.worker, NOW, ticket, requests, &mut ear);
        assert_eq!(answered, ear.said.len());
        (ticket, ear)
    }

    /// Waits for the rest of a batch, the only one that is open.
    fn wait(&mut self, ticket: Ticket, ear: &mut Ear) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(ready) = self.service.next_ready(&mut self.worker) {
                assert_eq!(ready, ticket);
                self.service.deliver(&mut self.worker, ticket, ear);
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            self.woken.recv_timeout(left).expect("an answer in time");
        }
    }

    fn ask_all(&mut self, requests: &[Request<'_>]) -> Vec<Said> {
        let (ticket, mut ear) = self.submit(requests);
        if ear.said.len() < requests.len() {
            self.wait(ticket, &mut ear);
        }
        assert_eq!(ear.said.len(), requests.len(), "each is answered once");
        ear.said
    }

    fn ask(&mut self, name: &str, operation: Operation<'_>) -> Said {
        self.ask_all(&[Request { key: key(name), operation }]).remove(0)
    }

    fn flush(&mut self, at: Time) -> Said {
        self.last_ticket += 1;
        let (ticket, mut ear) = (Ticket(self.last_ticket), Ear::default());
        match self.service.flush_all(&mut self.worker, at, NOW, ticket) {
            Some(answer) => Said::Other(answer),
            None => {
                self.wait(ticket, &mut ear);
                ear.said.remove(0)
            }
        }
    }
}

fn key(name: &str) -> Key<'_> {
    Key::new(name.as_bytes()).expect("a key")
}

fn store(mode: StoreMode, value: &[u8]) -> StoreOperation<'_> {
    StoreOperation { mode, flags: 7, expiry: Expiry::NEVER, cas: None, vivify: None, value }
}

fn set(value: &[u8]) -> Operation<'_> {
    Operation::Store(store(StoreMode::Set, value))
}

/// What makes keys hot soon.
fn quick() -> LocalConfig {
    let hot = HotConfig { segment: Span::from_ms(100), ..HotConfig::default() };
    LocalConfig { hot, gateways: 2, answer_within: Span::from_s(30), ..LocalConfig::default() }
}

fn start(config: LocalConfig) -> (LocalCluster<MemoryStore>, GatewayService) {
    let cluster = LocalCluster::start(config, |_| Arc::default()).expect("a cluster");
    let service = cluster.service(clock());
    (cluster, service)
}

#[expect(clippy::disallowed_methods, reason = "a server's seconds are tied to the wall clock")]
fn clock() -> super::ClockNow {
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    Arc::new(move || Clock::starting_at(unix_s - u64::from(NOW.0)))
}

fn hits(cluster: &LocalCluster<MemoryStore>, cache: usize) -> u64 {
    cluster.status().caches[cache].expect("it runs").counts.hits
}

/// Asks until the first cache node answers.
fn make_hot(cluster: &LocalCluster<MemoryStore>, client: &mut Client<'_>, name: &str) {
    make_hot_at(cluster, client, name, 0);
}

/// Asks until a cache node answers.
fn make_hot_at(cluster: &LocalCluster<MemoryStore>, client: &mut Client<'_>, name: &str, cache: usize) {
    let deadline = Instant::now() + PATIENCE;
    let before = hits(cluster, cache);
    while hits(cluster, cache) < before + 100 {
        assert!(Instant::now() < deadline, "it is not cached: {:#?}", cluster.status());
        for _ in 0..100 {
            client.ask(name, GET);
        }
    }
}

#[test]
fn every_command_does_what_it_says() {
    let (_cluster, service) = start(quick());
    let mut client = Client::of(&service);
    let number = |value| move |said| matches!(said, Said::Other(Answer::Number { value: told, .. }) if told == value);
    assert_eq!(client.ask("k", GET), MISS);
    assert!(client.ask("k", set(b"one")).is_stored());
    assert_eq!(client.ask("k", GET).value(), b"one");
    assert_eq!(client.ask("k", Operation::Store(store(StoreMode::Add, b"x"))), Said::Other(Answer::NotStored));
    assert!(client.ask("k", Operation::Store(store(StoreMode::Append, b" two"))).is_stored());
    assert!(client.ask("k", Operation::Store(store(StoreMode::Prepend, b"zero "))).is_stored());
    assert_eq!(client.ask("k", GET).value(), b"zero one two");
    let hit = client.ask("k", TELL).hit();
    assert_eq!((hit.flags, hit.value_len), (7, 12));
    for (expected, is_stored) in [(hit.cas, true), (hit.cas, false)] {
        let cas = Some(CasRule { expected, or_stale: false });
        let said = client.ask("k", Operation::Store(StoreOperation { cas, ..store(StoreMode::Set, b"cas") }));
        assert_eq!(said.is_stored(), is_stored);
        assert!(is_stored || said == Said::Other(Answer::Exists));
    }
    assert_eq!(client.ask("k", DELETE), DELETED);
    assert_eq!(client.ask("k", DELETE), Said::Other(Answer::NotFound));
    let add = Arithmetic { mode: ArithmeticMode::Increment, delta: 5, cas: None, touch: None, create: None };
    assert_eq!(client.ask("n", Operation::Arithmetic(add)), Said::Other(Answer::NotFound));
    assert!(client.ask("n", set(b"10")).is_stored());
    assert!(number(15)(client.ask("n", Operation::Arithmetic(add))));
    let subtract = Arithmetic { mode: ArithmeticMode::Decrement, delta: 20, ..add };
    assert!(number(0)(client.ask("n", Operation::Arithmetic(subtract))));
}

#[test]
fn expiries_are_the_servers_seconds_on_both_ways() {
    let (_cluster, service) = start(quick());
    let mut client = Client::of(&service);
    let expiry = Expiry::at(Time(NOW.0 + 500));
    assert!(client.ask("k", Operation::Store(StoreOperation { expiry, ..store(StoreMode::Set, b"v") })).is_stored());
    assert_eq!(client.ask("k", TELL).hit().expiry, expiry);
    let later = Expiry::at(Time(NOW.0 + 5_000));
    assert_eq!(client.ask("k", Operation::Touch(later)), TOUCHED);
    assert_eq!(client.ask("k", TELL).hit().expiry, later);
    assert_eq!(client.ask("k", Operation::Touch(Expiry::NEVER)), TOUCHED);
    assert_eq!(client.ask("k", TELL).hit().expiry, Expiry::NEVER);
    for past in [Expiry::AT_ONCE, Expiry::at(Time(NOW.0 - 5))] {
        assert!(client.ask("k", set(b"v")).is_stored());
        assert_eq!(client.ask("k", Operation::Touch(past)), TOUCHED);
        assert_eq!(client.ask("k", GET), MISS);
    }
}

#[test]
fn a_batch_is_answered_in_its_order() {
    let (_cluster, service) = start(quick());
    let mut client = Client::of(&service);
    let names: Vec<String> = (0..200).map(|at| format!("key{at}")).collect();
    let sets: Vec<Request<'_>> =
        names.iter().map(|name| Request { key: key(name), operation: set(name.as_bytes()) }).collect();
    assert!(client.ask_all(&sets).iter().all(Said::is_stored));
    // With one between them that is not there.
    let gets = names.iter().map(|name| key(name)).chain([key("none")]).chain(names.iter().map(|name| key(name)));
    let gets: Vec<Request<'_>> = gets.map(|key| Request { key, operation: GET }).collect();
    let said = client.ask_all(&gets);
    assert_eq!(said[200], MISS);
    for (at, said) in said.into_iter().enumerate().filter(|(at, _)| *at != 200) {
        assert_eq!(said.value(), names[at % 201].as_bytes());
    }
}

#[test]
fn long_values_come_whole_and_longer_ones_are_refused() {
    // In datagrams, and in streams.
    for (item_len_max, len) in [(60_000, 50_000u32), (1 << 20, 600_000)] {
        let (cluster, service) = start(LocalConfig { item_len_max, ..quick() });
        let mut client = Client::of(&service);
        let long: Vec<u8> = (0..len).map(|at| (at + at / 251) as u8).collect();
        assert!(client.ask("k", set(&long)).is_stored());
        assert_eq!(client.ask("k", GET).value(), long);
        let too_long = vec![0; item_len_max];
        assert_eq!(client.ask("k", set(&too_long)), Said::Other(Answer::TooLarge));
        let append = Operation::Store(store(StoreMode::Append, &long));
        assert_eq!(client.ask("k", append), Said::Other(Answer::TooLarge), "with what is there");
        // With one before it and one behind that are not.
        let all = [("k", GET), ("too long", set(&too_long)), ("k", TELL)];
        let said = client.ask_all(&all.map(|(name, operation)| Request { key: key(name), operation }));
        assert_eq!((said[0].clone().value(), &said[1]), (long.clone(), &Said::Other(Answer::TooLarge)));
        assert_eq!(said[2].clone().hit().value_len, long.len());
        make_hot(&cluster, &mut client, "k");
        let other: Vec<u8> = long.iter().rev().copied().collect();
        assert!(client.ask("k", set(&other)).is_stored());
        assert_eq!(client.ask("k", GET).value(), other);
    }
}

#[test]
fn many_long_values_at_once_are_all_answered() {
    let (cluster, service) = start(quick());
    let mut client = Client::of(&service);
    let names: Vec<String> = (0..100).map(|at| format!("key{at}")).collect();
    // As many of the longer ones as one backend may have under way.
    for (len, count) in [(50_000, 100), (1 << 19, 60)] {
        let value = vec![5; len];
        for operation in [set(&value), GET] {
            let requests: Vec<_> = names[..count].iter().map(|name| Request { key: key(name), operation }).collect();
            let said = client.ask_all(&requests);
            assert!(said.iter().all(|said| !matches!(said, Said::Other(Answer::Failed(_)))));
        }
    }
    let long: u64 = cluster.status().backends.iter().flatten().map(|backend| backend.wire.transport.long_in).sum();
    assert!(long >= 60);
}

#[test]
fn what_does_not_fit_beside_what_is_under_way_is_refused_and_fits_later() {
    let held = Arc::new(MemoryStore::holding());
    let config = LocalConfig { backends: 1, caches: 0, ..quick() };
    let cluster = LocalCluster::start(config, |_| Arc::clone(&held)).expect("a cluster");
    let service = cluster.service(clock());
    let mut client = Client::of(&service);
    until(|| held.held().1 == 1);
    held.complete_write(Fault::None);
    let value = vec![5; 1_000_000];
    let names: Vec<String> = (0..100).map(|at| format!("key{at}")).collect();
    let requests: Vec<_> = names.iter().map(|name| Request { key: key(name), operation: set(&value) }).collect();
    let refused = || cluster.status().gateways.iter().flatten().map(|gateway| gateway.counts.refused).sum::<u64>();
    let said = thread::scope(|scope| {
        let asks = scope.spawn(|| client.ask_all(&requests));
        // 64 MiB are 67 of them.
        until(|| refused() == 33);
        until(|| {
            match held.held() {
                (0, 0) => thread::yield_now(),
                (0, _) => held.complete_write(Fault::None),
                (_, _) => held.complete_read(0, Fault::None),
            }
            asks.is_finished()
        });
        asks.join().expect("all are answered")
    });
    assert!(said[..67].iter().all(Said::is_stored));
    assert!(said[67..].iter().all(|said| *said == Said::Other(Answer::Failed(Failure::Busy))));
}

#[test]
fn a_key_that_is_asked_for_often_is_cached_and_a_change_of_it_is_seen_at_once() {
    let (cluster, service) = start(quick());
    let (mut writer, mut reader) = (Client::of(&service), Client::of(&service));
    assert!(writer.ask("hot", set(b"0")).is_stored());
    make_hot(&cluster, &mut reader, "hot");
    for round in 1..=300u32 {
        let value = round.to_string();
        assert!(writer.ask("hot", set(value.as_bytes())).is_stored());
        for _ in 0..3 {
            assert_eq!(reader.ask("hot", GET).value(), value.as_bytes());
        }
    }
    let status = cluster.status();
    let cache = status.caches[0].expect("it runs");
    assert!(cache.counts.updated >= 1 && cache.items >= 1, "{status:#?}");
    assert!(status.controller.expect("it runs").rules >= 1);
    assert!(status.gateways.iter().flatten().any(|gateway| gateway.routes >= 1 && gateway.counts.to_caches > 0));
    assert!(status.backends.iter().flatten().all(|backend| backend.serves && backend.wire.undecodable == 0));
    assert_eq!(&*cluster.hottest(0, 1)[0].0, b"hot");
    assert_eq!(writer.ask("hot", DELETE), DELETED);
    assert_eq!(reader.ask("hot", GET), MISS);
    assert!(cluster.stop().is_ok());
}

/// One client writes a key a few hundred times, while another reads it.
fn write_while_it_is_read(service: &GatewayService, client: &mut Client<'_>) {
    let (told, hear) = channel::<u64>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut writer = Client::of(service);
            for round in 1..=500u64 {
                assert!(writer.ask("hot", set(round.to_string().as_bytes())).is_stored());
                told.send(round).expect("somebody reads");
            }
        });
        let (mut last, mut written) = (0, 0);
        while let Ok(round) = hear.recv_timeout(PATIENCE) {
            written = hear.try_iter().last().unwrap_or(round).max(written);
            let read: u64 = String::from_utf8(client.ask("hot", GET).value()).unwrap().parse().unwrap();
            assert!(read >= last && read >= written, "{read} after {last}, and {written} was answered");
            last = read;
        }
        assert_eq!(written, 500);
    });
}

#[test]
fn readers_of_a_cached_key_never_go_back_in_time() {
    let (cluster, service) = start(quick());
    let mut client = Client::of(&service);
    assert!(client.ask("hot", set(b"0")).is_stored());
    make_hot(&cluster, &mut client, "hot");
    write_while_it_is_read(&service, &mut client);
}

#[test]
fn a_key_that_is_too_much_for_one_cache_node_is_had_by_two_and_stays_one_key() {
    let (cluster, service) = start(LocalConfig { backends: 1, caches: 2, ..quick() });
    let mut client = Client::of(&service);
    assert!(client.ask("hot", set(b"0")).is_stored());
    let deadline = Instant::now() + PATIENCE;
    let answer = |status: &LocalStatus| status.caches.iter().all(|cache| cache.is_some_and(|it| it.counts.hits > 100));
    while !answer(&cluster.status()) {
        assert!(Instant::now() < deadline, "two do not have it: {:#?}", cluster.status());
        (0..100).for_each(|_| drop(client.ask("hot", GET)));
    }
    write_while_it_is_read(&service, &mut client);
    let counts = cluster.status().backends[0].expect("it runs").counts;
    assert!(counts.spreads > 0 && counts.two_phased > 0, "{counts:?}");
}

#[test]
fn a_flush_takes_everything_away_from_caches_as_well() {
    let (cluster, service) = start(quick());
    let (mut client, mut other) = (Client::of(&service), Client::of(&service));
    for name in ["hot", "a", "b", "c", "d"] {
        assert!(client.ask(name, set(b"v")).is_stored());
    }
    make_hot(&cluster, &mut client, "hot");
    assert_eq!(client.flush(NOW), DELETED);
    for name in ["hot", "a", "b", "c", "d"] {
        assert_eq!((client.ask(name, GET), other.ask(name, GET)), (MISS, MISS));
    }
    assert!(client.ask("hot", set(b"again")).is_stored());
    assert_eq!(other.ask("hot", GET).value(), b"again");
}

/// The server's clock stands still here; the cluster's goes on.
#[test]
fn a_flush_that_is_to_come_takes_what_is_there_then_once_its_time_comes() {
    let (cluster, service) = start(quick());
    let (mut client, mut other) = (Client::of(&service), Client::of(&service));
    for name in ["hot", "a", "b"] {
        assert!(client.ask(name, set(b"v")).is_stored());
    }
    make_hot(&cluster, &mut client, "hot");
    assert_eq!(client.flush(Time(NOW.0 + 1_000)), DELETED);
    assert!(client.ask("c", set(b"v")).is_stored());
    for name in ["hot", "a", "b", "c"] {
        assert_eq!((client.ask(name, GET).value(), other.ask(name, GET).value()), (b"v".to_vec(), b"v".to_vec()));
    }
    // What was wanted last counts.
    assert_eq!(client.flush(Time(NOW.0 + 2)), DELETED);
    until(|| ["hot", "a", "b", "c"].into_iter().all(|name| other.ask(name, GET) == MISS));
    assert!(client.ask("hot", set(b"again")).is_stored());
    assert_eq!(other.ask("hot", GET).value(), b"again");
    // And nothing is to come once all was taken away.
    let is_to_come =
        || cluster.status().backends.iter().any(|backend| backend.expect("it runs").flush_to_come.is_some());
    assert_eq!(client.flush(Time(NOW.0 + 1_000)), DELETED);
    assert!(is_to_come());
    assert_eq!(client.flush(NOW), DELETED);
    assert!(!is_to_come());
}

#[test]
fn a_cache_node_that_is_gone_costs_time_and_no_answer() {
    let (mut cluster, service) = start(quick());
    let mut client = Client::of(&service);
    assert!(client.ask("hot", set(b"v")).is_stored());
    make_hot(&cluster, &mut client, "hot");
    assert!(cluster.stop_cache(0).is_ok());
    for _ in 0..300 {
        assert_eq!(client.ask("hot", GET).value(), b"v");
    }
    // Not before its lease has run out.
    assert!(client.ask("hot", set(b"new")).is_stored());
    assert_eq!(client.ask("hot", GET).value(), b"new");
    assert_eq!(cluster.status().caches, [None]);
}

#[test]
fn without_a_controller_or_a_cache_node_all_goes_to_the_backends() {
    let (mut cluster, service) = start(LocalConfig { caches: 0, backends: 3, ..quick() });
    assert!(cluster.stop_controller().is_ok());
    let mut client = Client::of(&service);
    assert!(client.ask("k", set(b"v")).is_stored());
    assert_eq!(client.ask("k", GET).value(), b"v");
}

#[test]
fn who_waits_when_a_cluster_is_stopped_is_told_so() {
    let config = LocalConfig { backends: 1, ..quick() };
    let held = Arc::new(MemoryStore::holding());
    let cluster = LocalCluster::start(config, |_| Arc::clone(&held)).expect("a cluster");
    let service = cluster.service(clock());
    let mut client = Client::of(&service);
    // It reserves versions first.
    until(|| held.held().1 == 1);
    held.complete_write(Fault::None);
    let asked = [("k", set(b"v")), ("r", GET), ("k", set(b"behind"))];
    let (ticket, mut ear) = client.submit(&asked.map(|(name, operation)| Request { key: key(name), operation }));
    until(|| held.held() == (1, 1));
    assert!(cluster.stop().is_ok());
    client.wait(ticket, &mut ear);
    let failed = |unknown| Said::Other(Answer::Failed(Failure::Refused.or_unknown(unknown)));
    assert_eq!(ear.said, [failed(true), failed(false), failed(false)], "what is behind was not asked for");
    // What was asked comes too late for anybody.
    held.complete_write(Fault::None);
    assert_eq!((client.ask("k", GET), client.ask("k", set(b"v"))), (failed(false), failed(false)));
    assert_eq!(client.flush(NOW), failed(false));
}

#[test]
fn a_batch_that_nobody_waits_for_is_forgotten() {
    let (_cluster, service) = start(quick());
    let mut client = Client::of(&service);
    let (ticket, _) = client.submit(&[Request { key: key("k"), operation: set(b"v") }]);
    service.abandon(&mut client.worker, ticket);
    let mut other = Client::of(&service);
    drop(client);
    assert!(other.ask("other", set(b"v")).is_stored());
}

/// The first cache node is not told that it has gone: it serves what it may, and no more.
#[test]
fn a_cache_node_that_has_gone_is_waited_for_and_one_that_is_back_serves() {
    let lease = Span::from_ms(500);
    let config = LocalConfig { backends: 1, caches: 2, gateways: 1, lease, ..quick() };
    let (mut cluster, service) = start(config);
    let mut client = Client::of(&service);
    assert!(client.ask("hot", set(b"0")).is_stored());
    make_hot(&cluster, &mut client, "hot");
    let whole = cluster.file().clone();
    let cached = |cluster: &LocalCluster<MemoryStore>| cluster.status().backends[0].expect("it runs").cached_keys;
    let waits = |cluster: &LocalCluster<MemoryStore>| cluster.status().backends[0].expect("it runs").counts.lease_waits;
    for round in 1..4u32 {
        cluster
            .set_view(|file| {
                file.members.retain(|member| member.id != 100);
                file.spread_homes();
            })
            .expect("they run");
        let before = waits(&cluster);
        let value = round.to_string().into_bytes();
        assert!(client.ask("hot", set(&value)).is_stored());
        assert_eq!(client.ask("hot", GET).value(), value);
        assert_eq!(waits(&cluster), before + 1, "the lease of who has gone");
        // The other one is in charge of the backend now.
        make_hot_at(&cluster, &mut client, "hot", 1);
        cluster.set_view(|file| *file = whole.clone()).expect("they run");
        make_hot(&cluster, &mut client, "hot");
        assert!(cached(&cluster) > 0);
        assert_eq!(client.ask("hot", GET).value(), value);
    }
}

#[test]
fn a_store_that_takes_its_time_is_waited_for() {
    let config = LocalConfig { backends: 1, caches: 0, ..quick() };
    let held = Arc::new(MemoryStore::holding());
    let cluster = LocalCluster::start(config, |_| Arc::clone(&held)).expect("a cluster");
    let service = cluster.service(clock());
    thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let mut client = Client::of(&service);
            assert!(client.ask("k", set(b"v")).is_stored());
            client.ask("k", GET).value()
        });
        while !asks.is_finished() {
            match held.held() {
                (0, 0) => thread::yield_now(),
                (0, _) => held.complete_write(Fault::None),
                (_, _) => held.complete_read(0, Fault::None),
            }
        }
        assert_eq!(asks.join().expect("it is answered"), b"v");
    });
}

/// A store that reads slowly at first, and later at once.
struct Waking {
    slow: MemoryStore,
    is_awake: AtomicBool,
}

impl Store for Waking {
    fn state(&self) -> StoreState {
        self.slow.state()
    }

    fn get_now<T>(&self, _: Key<'_>, read: impl FnOnce(Option<Record<&[u8]>>) -> T) -> Option<T> {
        self.is_awake.load(Relaxed).then(|| read(None))
    }

    fn get(&self, key: Key<'_>, done: Done<Found>) {
        self.slow.get(key, done);
    }

    fn write(&self, batch: Vec<Write>, done: Done<Written>) {
        self.slow.write(batch, done);
    }

    fn flush(&self, done: Done<()>) {
        self.slow.flush(done);
    }

    fn fence(&self, parts: Vec<Part>, done: Done<()>) {
        self.slow.fence(parts, done);
    }

    fn scan(&self, what: Scan, visit: Visit, done: Done<()>) {
        self.slow.scan(what, visit, done);
    }

    fn snapshot(&self, to: PathBuf, done: Done<()>) {
        self.slow.snapshot(to, done);
    }

    fn stats(&self) -> StoreStats {
        self.slow.stats()
    }
}

/// Each read that ended let one key in that waited; one that the store then had at once let no other in, so that the rest waited for ever.
#[test]
fn keys_that_wait_for_a_store_are_read_when_it_has_them_at_once() {
    const READING_MAX: usize = (256 << 20) / ITEM_LEN_MAX;
    let store = Arc::new(Waking { slow: MemoryStore::holding(), is_awake: AtomicBool::new(false) });
    let config = LocalConfig { backends: 1, caches: 0, item_len_max: ITEM_LEN_MAX, ..quick() };
    let cluster = LocalCluster::start(config, |_| Arc::clone(&store)).expect("a cluster");
    let service = cluster.service(clock());
    let mut client = Client::of(&service);
    until(|| store.slow.held().1 == 1);
    store.slow.complete_write(Fault::None);
    let names: Vec<String> = (0..5 * READING_MAX).map(|at| format!("key{at}")).collect();
    let gets: Vec<_> = names.iter().map(|name| Request { key: key(name), operation: GET }).collect();
    let (ticket, mut ear) = client.submit(&gets);
    let asked = || cluster.status().backends[0].expect("it runs").counts.operations;
    until(|| asked() == names.len() as u64);
    assert_eq!(store.slow.held().0, READING_MAX);
    store.is_awake.store(true, Relaxed);
    (0..READING_MAX).for_each(|_| store.slow.complete_read(0, Fault::None));
    client.wait(ticket, &mut ear);
    assert!(ear.said.iter().all(|said| *said == MISS), "none was given up");
}

#[test]
fn a_program_asks_more_than_there_is_room_for_and_keeps_no_more_than_it_may() {
    let (cluster, _) = start(quick());
    let caller =
        cluster.caller(CallerBounds { operations_max: 7, asked_len_max: 40, kept_len_max: 100 }).expect("a gateway");
    let names: Vec<String> = (0..50).map(|at| format!("key{at}")).collect();
    let requests = |operation| names.iter().map(|name| Request { key: key(name), operation }).collect::<Vec<_>>();
    let stored = |reply: &Reply| matches!(reply, Reply::Answer(Answer::Stored { .. }, _));
    assert!(caller.ask(&requests(set(b"0123456789"))).iter().all(stored));
    for _ in 0..2 {
        let replies = caller.ask(&requests(GET));
        assert_eq!(replies.len(), names.len());
        let found = replies.iter().filter(|reply| reply.value_len() == 10).count();
        let failed = |reply: &&Reply| matches!(reply, Reply::Answer(Answer::Failed(Failure::Busy), _));
        assert_eq!((found, replies.iter().filter(failed).count()), (10, 40), "what was kept is given back");
    }
    assert!(matches!(caller.flush_all(Time::default()), Reply::Answer(Answer::Deleted, _)));
    assert!(caller.ask(&requests(GET)).iter().all(|reply| matches!(reply, Reply::Answer(Answer::Miss, _))));
    assert!(caller.ask(&[]).is_empty());
    assert_eq!(cluster.status().gateways[0].expect("it runs").counts.refused, 0);
    assert!(cluster.stop().is_ok());
    let refused = |reply: &Reply| matches!(reply, Reply::Answer(Answer::Failed(Failure::Refused), _));
    assert!(caller.ask(&requests(set(b"late"))).iter().all(refused));
    assert!(refused(&caller.flush_all(Time::default())));
}

/// Waits for what another thread brings about.
fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
}

/// A client that does not wait for answers reads what it has written before: also where the read goes to a cache node, and the change to a backend.
#[test]
fn what_a_client_asks_of_a_key_at_once_is_done_in_order() {
    let store = Arc::new(MemoryStore::default());
    let cluster =
        LocalCluster::start(LocalConfig { backends: 1, ..quick() }, |_| Arc::clone(&store)).expect("a cluster");
    let service = cluster.service(clock());
    let mut client = Client::of(&service);
    until(|| client.ask("hot", set(b"v")).is_stored());
    make_hot(&cluster, &mut client, "hot");
    let hits = || cluster.status().caches[0].as_ref().expect("it runs").counts.hits;
    let before = hits();
    let mut last = *b"last";
    assert!(client.ask("hot", set(&last)).is_stored());
    for number in (0..600u32).step_by(2) {
        let (one, other) = (number.to_le_bytes(), (number + 1).to_le_bytes());
        let operations = [GET, set(&one), GET, set(&other), GET];
        let (ticket, mut ear) = client.submit(&operations.map(|operation| Request { key: key("hot"), operation }));
        client.wait(ticket, &mut ear);
        let [Said::Value(_, a), first, Said::Value(_, b), second, Said::Value(_, c)] = &ear.said[..] else {
            panic!("{:?}", ear.said)
        };
        assert!(first.is_stored() && second.is_stored(), "{:?}", ear.said);
        assert_eq!([&a[..], b, c], [last, one, other]);
        last = other;
    }
    assert_eq!(cluster.status().gateways[0].expect("it runs").pending, 0);
    assert!(hits() > before, "a cache node answers some");
}

/// What cache nodes have of it they serve for as long as their leases last, which are not renewed.
#[test]
fn a_backend_whose_store_may_be_anothers_says_nothing() {
    let (lease, answer_within) = (Span::from_ms(300), Span::from_ms(500));
    let store = Arc::new(MemoryStore::default());
    let config = LocalConfig { backends: 1, lease, answer_within, ..quick() };
    let cluster = LocalCluster::start(config, |_| Arc::clone(&store)).expect("a cluster");
    let service = cluster.service(clock());
    let mut client = Client::of(&service);
    until(|| client.ask("hot", set(b"v")).is_stored());
    make_hot(&cluster, &mut client, "hot");
    let backend = || cluster.status().backends[0].expect("it runs");
    assert_eq!((backend().serves, backend().withheld), (true, 0));
    store.set_anothers(true);
    let unknown = Said::Other(Answer::Failed(Failure::Unknown));
    assert_eq!(client.ask("other", set(b"w")), unknown, "it may have come before");
    let is_refused = |said: &Said| matches!(said, Said::Other(Answer::Failed(_)));
    until(|| is_refused(&client.ask("hot", GET)));
    for _ in 0..3 {
        assert!(is_refused(&client.ask("hot", GET)) && is_refused(&client.ask("other", GET)));
    }
    assert!(!backend().serves && backend().withheld > 0);
    // Nobody waits for it any longer.
    let away = || cluster.status().gateways.iter().flatten().map(|gateway| gateway.counts.away).sum::<u64>();
    until(|| is_refused(&client.ask("other", set(b"w"))) && away() > 0);
    assert_eq!(client.ask("other", set(b"w")), Said::Other(Answer::Failed(Failure::Away)));
    store.set_anothers(false);
    until(|| client.ask("hot", set(b"x")).is_stored());
    make_hot(&cluster, &mut client, "hot");
    assert_eq!(client.ask("hot", GET).value(), b"x");
}
