//! A server with a store behind it (`--store rocksdb:PATH`), killed (SIGKILL) again and again in the middle of its work: nothing that
//! was acknowledged is lost, nothing comes from nowhere, nothing is older than what was seen.

use std::{
    collections::BTreeMap,
    env, fs,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use guira_history::{Event, Model, check};
use rustix::process::Signal;

use crate::{
    condition::wait_for,
    connection::{Connection, Heard, show},
    server::{Program, Server, free_port},
};

/// Clients at a time.
pub const CLIENTS: usize = 8;
/// Keys of theirs, so few that they meet.
pub const KEYS: usize = 6;

/// Acts of all clients together between a start and the next kill, at least and besides.
const ACTS_MIN: u64 = 60;
const ACTS_MORE: u64 = 200;

/// Steps of the search for an order, for each act of a key.
pub const STEPS_AN_ACT: u64 = 10_000;

/// Kills, unless `GUIRA_KILL_CYCLES` says how many.
const CYCLES: u64 = 20;

/// What is under a key: which write it is from, and its version, if anybody was told.
type Held = Option<(u64, Option<u64>)>;

/// What a client did, with what it was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Wrote this, and was told the version.
    Set(u64, Option<u64>),
    /// Wrote this instead of that version; was told the new version, or that it did not fit.
    Cas(u64, u64, Option<Result<u64, ()>>),
    /// Removed it; was told whether there was something.
    Delete(Option<bool>),
    /// Read this.
    Get(Option<(u64, u64)>),
}

/// What one key may go through.
pub struct Item;

impl Model for Item {
    type State = Held;
    type Act = Act;

    fn first(&self) -> Held {
        None
    }

    fn step(&self, held: &Held, act: &Act) -> Option<Held> {
        // A version that nobody was told may be any.
        let fits = |version: u64| held.is_some_and(|(_, own)| own.is_none_or(|own| own == version));
        match *act {
            Act::Set(value, version) => Some(Some((value, version))),
            Act::Cas(value, expected, None) => Some(if fits(expected) { Some((value, None)) } else { *held }),
            Act::Cas(value, expected, Some(Ok(version))) => fits(expected).then_some(Some((value, Some(version)))),
            Act::Cas(_, expected, Some(Err(()))) => {
                held.is_none_or(|(_, own)| own.is_none_or(|own| own != expected)).then_some(*held)
            }
            Act::Delete(found) => found.is_none_or(|found| found == held.is_some()).then_some(None),
            Act::Get(None) => held.is_none().then_some(None),
            Act::Get(Some((value, version))) => {
                (fits(version) && held.is_some_and(|(own, _)| own == value)).then_some(Some((value, Some(version))))
            }
        }
    }
}

/// Bits of a time in a book that count ticks, behind those of the position.
const TICK_BITS: u32 = 24;

/// What all clients did to each key.
pub struct Book {
    /// Where something else is that only goes on.
    position: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Bytes of a value, and a few; at most.
    value_len_max: u64,
    clock: AtomicU64,
    values: AtomicU64,
    /// What was done so far.
    pub acts: AtomicU64,
    /// By key.
    pub histories: Vec<Mutex<Vec<Event<Act>>>>,
}

impl Book {
    fn new() -> Self {
        Self::beside(700, || 0)
    }

    /// A book whose times tell where something else was then, such as a journal; with values of so many bytes and a few at most.
    pub fn beside(value_len_max: u64, position: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self {
            position: Box::new(position),
            value_len_max,
            clock: AtomicU64::new(0),
            values: AtomicU64::new(1),
            acts: AtomicU64::new(0),
            histories: (0..KEYS).map(|_| Mutex::default()).collect(),
        }
    }

    /// A time that is later than all before.
    pub fn tick(&self) -> u64 {
        // The position first: who comes later has no lesser one, and a greater tick.
        let position = (self.position)();
        position << TICK_BITS | self.clock.fetch_add(1, SeqCst)
    }

    /// The position at a time.
    pub fn position_at(time: u64) -> u64 {
        time >> TICK_BITS
    }

    /// Writes something down.
    pub fn note(&self, key: usize, event: Event<Act>) {
        self.histories[key].lock().expect("no panic with it").push(event);
        self.acts.fetch_add(1, SeqCst);
    }
}

/// The version in an answer such as `HD c17`.
fn version_in(text: &str) -> u64 {
    let found = text.split([' ', '\r']).find_map(|word| word.strip_prefix('c')?.parse().ok());
    found.unwrap_or_else(|| panic!("no version in {text:?}"))
}

/// What a request has to do, and what is sent for it.
fn request(book: &Book, key: usize, dice: u64, seen: Option<u64>) -> (Act, String) {
    let value = book.values.fetch_add(1, SeqCst);
    // Of many lengths; the number says which write it is.
    let text = format!("{value} {}", "x".repeat((value.wrapping_mul(7_919) % book.value_len_max) as usize));
    let set = |flags: &str| format!("ms key{key} {} {flags}\r\n{text}\r\n", text.len());
    match (dice % 8, seen) {
        (0..3, _) => (Act::Set(value, None), set("c")),
        (3, _) => (Act::Delete(None), format!("md key{key}\r\n")),
        (4, Some(version)) => (Act::Cas(value, version, None), set(&format!("c C{version}"))),
        _ => (Act::Get(None), format!("mg key{key} c v\r\n")),
    }
}

/// What a client was told.
fn told(act: Act, answer: &str) -> Act {
    let (line, rest) = answer.split_once("\r\n").expect("a line");
    match (act, &line[..2]) {
        (Act::Set(value, _), "HD") => Act::Set(value, Some(version_in(line))),
        (Act::Cas(value, expected, _), "HD") => Act::Cas(value, expected, Some(Ok(version_in(line)))),
        (Act::Cas(value, expected, _), "EX" | "NF") => Act::Cas(value, expected, Some(Err(()))),
        (Act::Delete(_), found @ ("HD" | "NF")) => Act::Delete(Some(found == "HD")),
        (Act::Get(_), "EN") => Act::Get(None),
        (Act::Get(_), "VA") => {
            let value = rest.split(' ').next().and_then(|number| number.parse().ok());
            Act::Get(Some((value.unwrap_or_else(|| panic!("no number in {rest:?}")), version_in(line))))
        }
        _ => panic!("{answer:?} to {act:?}"),
    }
}

/// The end of an answer: what a client hears last.
fn end_of(act: Act, heard: &str) -> bool {
    match act {
        // A value has a line of its own.
        Act::Get(_) if heard.starts_with("VA") => heard.matches("\r\n").count() == 2,
        _ => heard.ends_with("\r\n"),
    }
}

/// Asks and listens until the server is killed.
pub fn work_until_killed(mut connection: Connection, book: &Book, seed: u64) {
    let (mut dice, mut seen) = (seed, BTreeMap::new());
    loop {
        // Xorshift: any spread will do.
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let key = (dice >> 32) as usize % KEYS;
        let (act, text) = request(book, key, dice >> 8, seen.get(&key).copied());
        let invoked = book.tick();
        connection.send(text.as_bytes());
        let mut heard = String::new();
        while !end_of(act, &heard) {
            match connection.hear(b"\r\n") {
                Heard::Answer(more) => heard += std::str::from_utf8(&more).expect("text"),
                Heard::Closed(_) => {
                    // Whether it took place is not known; that it never will from now on is, once the process has gone.
                    if !matches!(act, Act::Get(_)) {
                        book.note(key, Event { invoked, returned: None, is_certain: false, act });
                    }
                    return;
                }
                Heard::Nothing(more) => panic!("the client hangs after {}", show(&more)),
            }
        }
        let act = told(act, &heard);
        book.note(key, Event { invoked, returned: Some(book.tick()), is_certain: true, act });
        match act {
            Act::Set(_, Some(version)) | Act::Cas(_, _, Some(Ok(version))) | Act::Get(Some((_, version))) => {
                seen.insert(key, version);
            }
            _ => {}
        }
    }
}

fn store_in(folder: &tempfile::TempDir) -> String {
    format!("rocksdb:{}", folder.path().join("store").to_str().expect("a path in text"))
}

fn arguments<'a>(store: &'a str, durability: &'a str) -> [&'a str; 8] {
    ["-m", "80", "-t", "2", "--store", store, "--durability", durability]
}

#[test]
fn killed_again_and_again_it_has_every_acknowledged_write_and_nothing_older() {
    let cycles = env::var("GUIRA_KILL_CYCLES").map_or(CYCLES, |cycles| cycles.parse().expect("a number of kills"));
    let (folder, book) = (tempfile::tempdir().expect("a folder"), Book::new());
    let store = store_in(&folder);
    for cycle in 0..cycles {
        // All of them survive the process.
        let durability = ["always", "interval:20", "os"][cycle as usize % 3];
        let mut server = Server::start(Program::Guira, &arguments(&store, durability));
        let until = book.acts.load(SeqCst) + ACTS_MIN + cycle * 7919 % ACTS_MORE;
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (connection, book) = (server.connect(), &book);
                scope.spawn(move || work_until_killed(connection, book, 1 + cycle * 100 + client as u64));
            }
            wait_for("clients are at work", || (book.acts.load(SeqCst) >= until).then_some(()));
            server.process().signal(Signal::KILL);
        });
        server.process().wait();
        let over = book.tick();
        for history in &book.histories {
            let mut history = history.lock().expect("no panic with it");
            history.iter_mut().filter(|event| event.returned.is_none()).for_each(|event| event.returned = Some(over));
        }
    }
    // What is left, once more from the disk.
    let server = Server::start(Program::Guira, &arguments(&store, "always"));
    let mut client = server.connect();
    for (key, history) in book.histories.iter().enumerate() {
        let mut history = history.lock().expect("no panic with it");
        let invoked = book.tick();
        let answer = String::from_utf8(client.ask(format!("mg key{key} c v\r\nmn\r\n").as_bytes(), b"MN\r\n"));
        let act = told(Act::Get(None), &answer.expect("text"));
        history.push(Event { invoked, returned: Some(book.tick()), is_certain: true, act });
        let steps_max = STEPS_AN_ACT * history.len() as u64;
        check(&Item, &history, steps_max).unwrap_or_else(|violation| {
            let file = env::temp_dir().join("guira-violated-history");
            fs::write(&file, format!("{history:#?}")).ok();
            panic!("key{key}: {violation:?} of {} acts, all in {}", history.len(), file.display())
        });
    }
}

/// The checker above would notice.
#[test]
fn a_lost_an_old_and_an_invented_value_are_found_out() {
    let event = |invoked, act| Event { invoked, returned: Some(invoked + 1), is_certain: true, act };
    let killed = |invoked, act| Event { invoked, returned: Some(invoked + 1), is_certain: false, act };
    let first = [event(0, Act::Set(1, Some(1))), event(2, Act::Set(2, Some(2))), killed(4, Act::Set(3, None))];
    let is_found = |act| {
        let history: Vec<_> = first.iter().cloned().chain([event(10, act)]).collect();
        check(&Item, &history, 1_000).is_err()
    };
    assert!(!is_found(Act::Get(Some((2, 2)))) && !is_found(Act::Get(Some((3, 9)))));
    assert!(is_found(Act::Get(None)), "lost");
    assert!(is_found(Act::Get(Some((1, 1)))), "old");
    assert!(is_found(Act::Get(Some((4, 4)))), "from nowhere");
    assert!(is_found(Act::Get(Some((2, 7)))), "with another version");
    assert!(is_found(Act::Delete(Some(false))));
}

#[test]
fn what_was_stored_is_there_after_a_stop_with_flags_times_and_versions() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = store_in(&folder);
    let look = |client: &mut Connection| {
        let answer = client.ask(b"mg a f t c v\r\nmg n v\r\nmg gone v\r\nmn\r\n", b"MN\r\n");
        let text = String::from_utf8(answer).expect("text");
        // Seconds go by.
        text.split(' ').filter(|word| !word.starts_with("t4")).collect::<Vec<_>>().join(" ")
    };
    let mut before = None;
    for durability in ["always", "interval:60000", "os"] {
        let mut server = Server::start(Program::Guira, &arguments(&store, durability));
        let mut client = server.connect();
        match &before {
            None => {
                client.expect(b"set a 5 4999 3\r\nabc\r\n", b"STORED\r\n");
                client.expect(b"append a 0 0 3\r\ndef\r\n", b"STORED\r\n");
                client.expect(b"set n 0 0 1\r\n5\r\n", b"STORED\r\n");
                client.expect(b"incr n 2\r\n", b"7\r\n");
                client.expect(b"set gone 0 0 1\r\nx\r\n", b"STORED\r\n");
                client.expect(b"delete gone\r\n", b"DELETED\r\n");
                let now = look(&mut client);
                assert!(now.contains("abcdef") && now.contains("f5") && now.ends_with("EN\r\nMN\r\n"), "{now}");
                before = Some(now);
            }
            Some(before) => assert_eq!(&look(&mut client), before),
        }
        server.process().signal(Signal::TERM);
        assert!(server.process().wait().success());
    }
}

#[test]
fn a_flush_outlives_the_process_and_so_does_one_that_is_to_come() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = store_in(&folder);
    let arguments = arguments(&store, "always");
    let mut server = Server::start(Program::Guira, &arguments);
    let mut client = server.connect();
    client.expect(b"set a 0 0 1\r\na\r\n", b"STORED\r\n");
    client.expect(b"flush_all\r\n", b"OK\r\n");
    client.expect(b"set b 0 0 1\r\nb\r\n", b"STORED\r\n");
    server.process().signal(Signal::KILL);
    server.process().wait();
    let mut server = Server::start(Program::Guira, &arguments);
    let mut client = server.connect();
    client.expect(b"get a b\r\n", b"VALUE b 0 1\r\nb\r\nEND\r\n");
    client.expect(b"flush_all 1\r\n", b"OK\r\n");
    server.process().signal(Signal::KILL);
    server.process().wait();
    let server = Server::start(Program::Guira, &arguments);
    let mut client = server.connect();
    wait_for("the flush comes", || (client.ask(b"get b\r\n", b"END\r\n") == b"END\r\n").then_some(()));
    client.expect(b"set c 0 0 1\r\nc\r\n", b"STORED\r\n");
    client.expect(b"get c\r\n", b"VALUE c 0 1\r\nc\r\nEND\r\n");
}

#[test]
fn a_store_that_cannot_be_had_is_told_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = store_in(&folder);
    let server = Server::start(Program::Guira, &arguments(&store, "os"));
    let other = tempfile::tempdir().expect("a folder");
    fs::write(other.path().join("letter"), "Dear all").expect("a file");
    let not_one = format!("rocksdb:{}", other.path().display());
    let port = free_port().to_string();
    for (more, wanted) in [
        (["--store", store.as_str(), "-m", "80"], "is in use by another process"),
        (["--store", not_one.as_str(), "-m", "80"], "has something else in it"),
        (["--store", "rocksdb:/proc/nothing", "-m", "80"], "/proc/nothing"),
        (["--store", "rocksdb", "-m", "80"], "write where, rocksdb:PATH"),
        (["--store", "tape:/dev/st0", "-m", "80"], "no such store"),
        (["--store", store.as_str(), "-m", "20"], "give at least -m 32"),
        (["--store", store.as_str(), "-e", "/tmp/x"], "-e does not go with --store"),
        (["--store", store.as_str(), "--durability", "never"], "write always, interval:MS"),
        (["--durability", "os", "-m", "80"], "nothing lasts with --store memory"),
        (["--store-memory", "20", "-m", "80"], "there is no store"),
        (["--store-limit", "20", "-m", "80"], "there is no store"),
        (["--store", store.as_str(), "--store-limit", "0"], "--store-limit 0: write from 1 to 100000000"),
        (["--store", store.as_str(), "--store-limit", "100000001"], "write from 1 to 100000000"),
    ] {
        let ended = Program::Guira.ends(&[&["-p", &port, "-U", "0", "-l", "127.0.0.1"], &more[..]].concat());
        let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.contains(wanted)).collect();
        assert!(!ended.status.success() && lines.len() == 1, "{more:?}: {}", ended.stderr);
    }
    server.connect().expect(b"mn\r\n", b"MN\r\n");
}

/// Whatever the load: a limit that lets more through than it may is found out, and no machine is too slow for this.
#[test]
fn a_limited_store_answers_no_faster_than_it_may() {
    const LIMIT: u64 = 200;
    const KEYS: u64 = 100;
    let folder = tempfile::tempdir().expect("a folder");
    let store = store_in(&folder);
    let mut server = Server::start(Program::Guira, &arguments(&store, "os"));
    let mut client = server.connect();
    for key in 0..KEYS {
        client.expect(format!("set key{key} 0 0 4\r\nitem\r\n").as_bytes(), b"STORED\r\n");
    }
    server.process().signal(Signal::TERM);
    assert!(server.process().wait().success());
    let limit = LIMIT.to_string();
    let limited = [&arguments(&store, "os")[..], &["--store-limit", &limit]].concat();
    let server = Server::start(Program::Guira, &limited);
    let mut client = server.connect();
    let all: String = (0..KEYS).map(|key| format!("mg key{key} v\r\n")).collect();
    let begun = Instant::now();
    let answers = client.ask((all.clone() + "mn\r\n").as_bytes(), b"MN\r\n");
    let took = begun.elapsed();
    assert_eq!(String::from_utf8(answers).expect("text"), "VA 4\r\nitem\r\n".repeat(KEYS as usize) + "MN\r\n");
    // The first is free, and so is what comes in the slack.
    assert!(took >= Duration::from_millis(1_000 * (KEYS - 2) / LIMIT), "{took:?}");
    assert_eq!(
        (server.stat("store_limit"), server.stat("store_reads_at_once") + server.stat("store_reads_waited")),
        (LIMIT, KEYS)
    );
    assert!(server.stat("store_limit_waits") > 0);
    // What the engine has costs the store nothing.
    client.ask((all + "mn\r\n").as_bytes(), b"MN\r\n");
    assert_eq!(server.stat("store_reads_at_once") + server.stat("store_reads_waited"), KEYS);
}
