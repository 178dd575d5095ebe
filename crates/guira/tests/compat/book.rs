//! What many clients of a server that is killed did to a few keys, and whether it can have been so: nothing that was acknowledged
//! is lost, nothing comes from nowhere, nothing is older than what was seen.
//!
//! Always true: what a client was not told may have happened until it knew that nobody would tell it, and not later.

use std::{
    collections::BTreeMap,
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    process::id,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use guira_history::{Event, Model, check};
use rustix::process::Signal;

use crate::{
    condition::wait_for,
    connection::{Connection, Heard, show},
    server::Server,
};

/// Clients at a time.
pub const CLIENTS: usize = 8;
/// Keys of theirs, so few that they meet.
pub const KEYS: usize = 6;

/// Steps of the search for an order, for each act of a key.
pub const STEPS_AN_ACT: u64 = 10_000;

/// Between a refusal and a client's next request: it hurries nobody who cannot serve it.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);

/// What is under a key: which write it is from, and its version, if anybody was told.
pub type Held = Option<(u64, Option<u64>)>;

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

/// Bytes of a value of theirs, and a few, at most.
const VALUE_LEN_MAX: u64 = 700;

/// Bits of a time in a book that count ticks, behind those of the position.
const TICK_BITS: u32 = 24;

/// What all clients did to each key.
pub struct Book {
    /// Where something else is that only goes on.
    position: Box<dyn Fn() -> u64 + Send + Sync>,
    value_len_max: u64,
    clock: AtomicU64,
    values: AtomicU64,
    /// Answers, for each key.
    acts: [AtomicU64; KEYS],
    /// By key.
    pub histories: Vec<Mutex<Vec<Event<Act>>>>,
    may_refuse: bool,
    /// What a client was told nobody knows of may still happen.
    happens_later: bool,
    refusals: AtomicU64,
}

impl Book {
    /// Of a server that answers as long as it lives.
    pub fn new() -> Self {
        Self::beside(VALUE_LEN_MAX, || 0)
    }

    /// A book whose times tell where something else was then, such as a journal; with values of so many bytes and a few at most.
    pub fn beside(value_len_max: u64, position: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self {
            position: Box::new(position),
            value_len_max,
            clock: AtomicU64::new(0),
            values: AtomicU64::new(1),
            acts: Default::default(),
            histories: (0..KEYS).map(|_| Mutex::default()).collect(),
            may_refuse: false,
            happens_later: false,
            refusals: AtomicU64::new(0),
        }
    }

    /// Of one whose store goes away now and then: it may say so.
    #[cfg(feature = "cassandra")]
    pub fn with_refusals() -> Self {
        Self { may_refuse: true, ..Self::new() }
    }

    /// Of a cluster, whose members may go away.
    pub fn of_a_cluster() -> Self {
        Self { may_refuse: true, happens_later: true, ..Self::new() }
    }

    /// What has not happened by now never will.
    pub fn nothing_is_under_way(&self) {
        let over = self.tick();
        for history in &self.histories {
            let mut history = history.lock().expect("no panic with it");
            history.iter_mut().filter(|event| event.returned.is_none()).for_each(|event| event.returned = Some(over));
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

    /// Answers so far.
    pub fn acts(&self) -> u64 {
        self.acts.iter().map(|acts| acts.load(SeqCst)).sum()
    }

    /// Writes something down.
    pub fn note(&self, key: usize, event: Event<Act>) {
        self.acts[key].fetch_add(u64::from(event.is_certain), SeqCst);
        self.histories[key].lock().expect("no panic with it").push(event);
    }

    /// Clients work on the server while something goes on; then it is killed.
    pub fn fill(&self, server: &mut Server, seed: u64, meanwhile: impl FnOnce()) {
        let outcome = thread::scope(|scope| {
            for client in 0..CLIENTS {
                let connection = server.connect();
                scope.spawn(move || work_until_killed(connection, self, 1 + seed * 100 + client as u64));
            }
            // Nobody waits for clients whose server would live on.
            let outcome = catch_unwind(AssertUnwindSafe(meanwhile));
            server.process().signal(Signal::KILL);
            outcome
        });
        server.process().wait();
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
        self.nothing_is_under_way();
    }

    /// Waits until clients have been answered so often more.
    pub fn wait_for_acts(&self, more: u64) {
        let until = self.acts() + more;
        wait_for("clients are at work", || (self.acts() >= until).then_some(()));
    }

    /// Waits until clients have been answered so often more about each key.
    #[cfg(feature = "cassandra")]
    pub fn wait_for_acts_with_each_key(&self, more: u64) {
        for (key, acts) in self.acts.iter().enumerate() {
            let until = acts.load(SeqCst) + more;
            wait_for(&format!("clients are at work with key{key}"), || (acts.load(SeqCst) >= until).then_some(()));
        }
    }

    /// Refusals so far.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(SeqCst)
    }

    /// Waits until clients have been refused so often more.
    pub fn wait_for_refusals(&self, more: u64) {
        let until = self.refusals() + more;
        wait_for("clients are refused", || (self.refusals() >= until).then_some(()));
    }

    /// Looks at what is left, and panics unless everything can have been so.
    pub fn check(&self, server: &Server) {
        let mut client = server.connect();
        for key in 0..self.histories.len() {
            let history = read_at_last(self, &mut client, key);
            check_key(&Item, key, &history);
        }
    }
}

/// Panics unless all that was seen of a key can have been so; then it is kept in a file, for whoever looks for the reason.
pub fn check_key(model: &impl Model<Act = Act>, key: usize, history: &[Event<Act>]) {
    check(model, history, STEPS_AN_ACT * history.len() as u64).unwrap_or_else(|violation| {
        // One for each test: they run beside each other, each in a thread of its name.
        let test = thread::current().name().unwrap_or("test").replace("::", "-");
        let file = env::temp_dir().join(format!("guira-violated-history-{}-{test}-key{key}", id()));
        let kept = match fs::write(&file, format!("{history:#?}")) {
            Ok(()) => format!("all in {}", file.display()),
            Err(error) => format!("not kept in {}: {error}", file.display()),
        };
        panic!("key{key}: {violation:?} of {} acts, {kept}", history.len())
    });
}

/// Reads a key, and returns all that was seen of it.
pub fn read_at_last(book: &Book, client: &mut Connection, key: usize) -> Vec<Event<Act>> {
    let invoked = book.tick();
    let answer = String::from_utf8(client.ask(format!("mg key{key} c v\r\nmn\r\n").as_bytes(), b"MN\r\n"));
    let act = told(Act::Get(None), &answer.expect("text"));
    book.note(key, Event { invoked, returned: Some(book.tick()), is_certain: true, act });
    book.histories[key].lock().expect("no panic with it").clone()
}

/// The version in an answer such as `HD c17`, or `VALUE key0 0 9 17`.
fn version_in(text: &str) -> u64 {
    let last = || text.strip_prefix("VALUE ")?.rsplit(' ').next()?.parse().ok();
    let found = text.split([' ', '\r']).find_map(|word| word.strip_prefix('c')?.parse().ok()).or_else(last);
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
        // A cache node of a cluster answers this too; who wins, touches and vivification are the backend's.
        (5, _) => (Act::Get(None), format!("mg key{key} c v\r\n")),
        _ => (Act::Get(None), format!("gets key{key}\r\n")),
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
        // EN, or END.
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
        // A value has a line of its own, and a classic answer one more.
        Act::Get(_) if heard.starts_with("VALUE ") => heard.matches("\r\n").count() == 3,
        Act::Get(_) if heard.starts_with("VA") => heard.matches("\r\n").count() == 2,
        _ => heard.ends_with("\r\n"),
    }
}

/// Whether a refusal leaves open what has happened; `None` if it is none.
fn refusal(answer: &str) -> Option<bool> {
    match answer.strip_prefix("SERVER_ERROR ")? {
        "the operation failed, nothing was changed\r\n"
        | "busy, nothing was changed\r\n"
        | "who has this key has not answered in time, nothing was changed\r\n" => Some(false),
        "the outcome is unknown, the operation may have taken place\r\n" => Some(true),
        other => panic!("refused with {other:?}"),
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
        let is_read = matches!(act, Act::Get(_));
        let invoked = book.tick();
        connection.send(text.as_bytes());
        let mut heard = String::new();
        while !end_of(act, &heard) {
            match connection.hear(b"\r\n") {
                Heard::Answer(more) => heard += std::str::from_utf8(&more).expect("text"),
                Heard::Closed(_) => {
                    // Whether it took place is not known; that it never will from now on is, once the process has gone.
                    if !is_read {
                        book.note(key, Event { invoked, returned: None, is_certain: false, act });
                    }
                    return;
                }
                Heard::Nothing(more) => panic!("the client hangs after {}", show(&more)),
            }
        }
        if let Some(unknown) = refusal(&heard) {
            assert!(book.may_refuse, "{heard:?} to {act:?}");
            // What has not taken place by now never will, for anybody who asks from now on.
            if unknown && !is_read {
                let returned = (!book.happens_later).then(|| book.tick());
                book.note(key, Event { invoked, returned, is_certain: false, act });
            }
            book.refusals.fetch_add(1, SeqCst);
            thread::park_timeout(REFUSED_PAUSE);
            continue;
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
