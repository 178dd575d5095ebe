//! The same random commands to Guira and to Debian's memcached: every answer equal, byte by byte.
//!
//! `GUIRA_DIFFERENTIAL_COMMANDS` (default 100000) says how many, `GUIRA_DIFFERENTIAL_SEED` which. A difference is shrunk to
//! the shortest stream that still shows it. At length, on an optimised binary:
//! `GUIRA_DIFFERENTIAL_COMMANDS=1000000 cargo test --release -p guira --test compat differential`.

use std::{env, net::SocketAddr};

use crate::{
    cluster::Cluster,
    command_stream::{Command, commands},
    connection::{Connection, Heard, show},
    normalise::{Fetches, Versions, normalise},
    server::{Program, Server},
};

/// Commands from one clean state; a difference is shrunk within its stream.
const STREAM_LEN: usize = 2000;
/// Commands sent at once, before answers are read: several reads' and batches' worth.
const CHUNK_LEN: usize = 64;
/// The default limit of 1 MB for an item: with `-I` below it, Debian's memcached 1.6.18 crashes at small sets.
const GUIRA: &[&str] = &[];
/// Besides: memcached's background thread holds items that are about to be bumped, and what decr writes depends on that
/// (see [`Command::waits`]).
const MEMCACHED: &[&str] = &["-o", "no_lru_maintainer"];
/// Shrinking gives up after so many streams: a difference that comes and goes would keep it busy for ever.
const SHRINK_PLAYS_MAX: usize = 400;
/// Times that a difference must be seen again on servers started anew.
const REPLAYS: usize = 2;
/// What an answer ends with when its end did not come.
const SILENCE: &str = "<and then nothing>";

/// Who answers.
#[derive(Clone, Copy)]
enum Kind {
    Server(Program, &'static [&'static str]),
    /// Backends, a cache node, and the gateway that is asked.
    Cluster,
}

enum Running {
    Server(Server),
    Cluster(Cluster),
}

impl Running {
    fn start(kind: Kind) -> Self {
        match kind {
            Kind::Server(program, arguments) => Self::Server(Server::start(program, arguments)),
            Kind::Cluster => Self::Cluster(Cluster::up(&["--backends", "3", "--store", "memory"])),
        }
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Server(server) => server.address(),
            Self::Cluster(cluster) => cluster.address(),
        }
    }
}

/// One server's side of the conversation.
struct Side {
    kind: Kind,
    running: Running,
    connection: Connection,
    fetches: Fetches,
    versions: Versions,
}

impl Side {
    fn start(kind: Kind) -> Self {
        let running = Running::start(kind);
        let connection = Connection::open(running.address());
        Self { kind, running, connection, fetches: Fetches::Kept, versions: Versions::default() }
    }

    fn of(program: Program, arguments: &'static [&'static str]) -> Self {
        Self::start(Kind::Server(program, arguments))
    }

    /// A new connection, to a new server if the old one has died; then says how.
    fn reconnect(&mut self) -> Option<String> {
        if let Ok(connection) = Connection::try_open(self.running.address()) {
            self.connection = connection;
            return None;
        }
        let status = match &mut self.running {
            Running::Server(server) => server.process().wait().to_string(),
            // It is started again: nothing ends.
            Running::Cluster(_) => "its gateway is not there".into(),
        };
        *self = Self { fetches: self.fetches, ..Self::start(self.kind) };
        Some(format!("<the server died: {status}>"))
    }

    /// Forgets all items.
    fn begin(&mut self) {
        self.reconnect();
        self.connection.expect(b"flush_all\r\n", b"OK\r\n");
        self.versions = Versions::default();
    }

    /// Sends a chunk and returns what was heard, made comparable.
    fn say(&mut self, chunk: &[Command]) -> String {
        let mut bytes = Vec::new();
        for command in chunk {
            self.versions.fill_in(&command.bytes, &mut bytes);
        }
        let closes = chunk.last().is_some_and(|command| command.closes);
        if !closes {
            bytes.extend(b"mn\r\n");
        }
        let heard = self.connection.converse(&bytes, if closes { b"" } else { b"MN\r\n" });
        let (answers, end) = match heard {
            Heard::Answer(answers) => (answers, String::new()),
            Heard::Closed(answers) => (answers, self.reconnect().unwrap_or_else(|| "<closed>".into())),
            Heard::Nothing(answers) => (answers, self.reconnect().unwrap_or_else(|| SILENCE.into())),
        };
        normalise(&answers, self.fetches, &mut self.versions).escape_ascii().to_string().replace("\\r\\n", "\n") + &end
    }

    /// What is heard of the last chunk of a stream, played from a clean state.
    fn last_answer(&mut self, commands: &[Command]) -> String {
        self.begin();
        let (mut played, mut answer) = (0, String::new());
        while played < commands.len() {
            let chunk = next_chunk(&commands[played..], CHUNK_LEN);
            answer = self.say(chunk);
            played += chunk.len();
        }
        answer
    }
}

/// Where two servers disagreed.
struct Difference {
    /// The commands up to and including the chunk with the difference.
    commands: Vec<Command>,
    /// Both servers' answers to that chunk.
    answers: [String; 2],
}

/// Plays a stream from a clean state.
fn play(sides: &mut [Side; 2], commands: &[Command], chunk_len: usize) -> Option<Difference> {
    for side in sides.iter_mut() {
        side.begin();
    }
    let mut played = 0;
    while played < commands.len() {
        let chunk = next_chunk(&commands[played..], chunk_len);
        let answers = sides.each_mut().map(|side| side.say(chunk));
        played += chunk.len();
        // If both fall silent, the stream has lost its step, and what follows would show nothing.
        if answers[0] != answers[1] || answers[0].ends_with(SILENCE) {
            return Some(Difference { commands: commands[..played].to_vec(), answers });
        }
    }
    None
}

/// The commands that can be sent at once: up to one that closes, or before one that waits.
fn next_chunk(commands: &[Command], len_max: usize) -> &[Command] {
    let mut len = 1;
    while len < commands.len().min(len_max) && !commands[len - 1].closes && !commands[len].waits {
        len += 1;
    }
    &commands[..len]
}

/// Takes out pieces, large ones first, for as long as a difference remains.
fn shrink(sides: &mut [Side; 2], found: Difference) -> Difference {
    // One command a chunk reads best; some differences need the pipeline.
    let (mut smallest, chunk_len) = match play(sides, &found.commands, 1) {
        Some(alone) => (alone, 1),
        None => (found, CHUNK_LEN),
    };
    let mut plays_left = SHRINK_PLAYS_MAX;
    let mut piece_len = smallest.commands.len() / 2;
    while piece_len > 0 {
        let mut from = 0;
        while from < smallest.commands.len() && plays_left > 0 {
            plays_left -= 1;
            let mut fewer = smallest.commands.clone();
            fewer.drain(from..fewer.len().min(from + piece_len));
            match play(sides, &fewer, chunk_len) {
                Some(smaller) => smallest = smaller,
                None => from += piece_len,
            }
        }
        piece_len /= 2;
    }
    smallest
}

/// A difference, shrunk, and how to tell it.
struct Report {
    /// The shortest stream that showed it, a line a command.
    commands: Vec<String>,
    /// The stream and both answers.
    text: String,
}

/// Plays a stream, and again on servers started anew if they differ: behind a number over 2^63 memcached's incr looks for a minus
/// sign, and takes a byte of an address of its own for one, which another process does not have there.
fn play_on_any_servers(sides: &mut [Side; 2], stream: &[Command]) -> Option<Difference> {
    let mut found = play(sides, stream, CHUNK_LEN)?;
    let is_cluster = sides.iter().any(|side| matches!(side.kind, Kind::Cluster));
    if is_cluster {
        // What a cluster answers otherwise once is a fault as well; what memcached does, if another one does not, is its own.
        let mut another = Side { fetches: sides[1].fetches, ..Side::start(sides[1].kind) };
        return (another.last_answer(&found.commands) == found.answers[1]).then_some(found);
    }
    for _ in 0..REPLAYS {
        for side in sides.iter_mut() {
            *side = Side { fetches: side.fetches, ..Side::start(side.kind) };
        }
        found = play(sides, stream, CHUNK_LEN)?;
    }
    Some(found)
}

/// The first difference in `count` commands, if there is one.
fn compare(sides: &mut [Side; 2], seed: u64, count: usize) -> Option<Report> {
    for number in 0..count.div_ceil(STREAM_LEN) {
        let stream_seed = seed.wrapping_mul(1_000_003).wrapping_add(number as u64);
        let stream = commands(stream_seed, STREAM_LEN.min(count - number * STREAM_LEN));
        let Some(found) = play_on_any_servers(sides, &stream) else { continue };
        let smallest = shrink(sides, found);
        let commands: Vec<String> = smallest.commands.iter().map(|command| show(&command.bytes)).collect();
        let [first, second] = from_where_they_differ(&smallest.answers);
        let told = commands.join("\n  ");
        let text =
            format!("seed {seed}, stream {number}; after\n  {told}\nthe answers go on\n  {first}\nand\n  {second}");
        return Some(Report { commands, text });
    }
    None
}

/// Both answers from the first line on that is not the same.
fn from_where_they_differ(answers: &[String; 2]) -> [String; 2] {
    let [first, second] = answers;
    let same = first.lines().zip(second.lines()).take_while(|(first, second)| first == second).count();
    [first, second].map(|answer| answer.lines().skip(same).take(5).map(|line| show(line.as_bytes()) + "\n  ").collect())
}

pub fn number_from_environment(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

#[test]
fn guira_answers_as_memcached_does() {
    let count = number_from_environment("GUIRA_DIFFERENTIAL_COMMANDS", 100_000);
    let seed = number_from_environment("GUIRA_DIFFERENTIAL_SEED", 1);
    let ours = if Program::Guira.is_memcached() { MEMCACHED } else { GUIRA };
    let mut sides = [Side::of(Program::Guira, ours), Side::of(Program::Memcached, MEMCACHED)];
    if let Some(difference) = compare(&mut sides, seed, count as usize) {
        panic!("Guira (first) and memcached (second) differ: {}", difference.text);
    }
}

#[test]
fn a_cluster_answers_as_memcached_does() {
    let count = number_from_environment("GUIRA_DIFFERENTIAL_CLUSTER_COMMANDS", 20_000);
    let seed = number_from_environment("GUIRA_DIFFERENTIAL_SEED", 1);
    let sides = [Side::start(Kind::Cluster), Side::of(Program::Memcached, MEMCACHED)];
    let mut sides = sides.map(|side| Side { fetches: Fetches::NotKept, ..side });
    if let Some(difference) = compare(&mut sides, seed, count as usize) {
        panic!("A cluster (first) and memcached (second) differ: {}", difference.text);
    }
    let Running::Cluster(cluster) = &sides[0].running else { unreachable!("it was started as one") };
    assert!(cluster.hits() > 0, "a cache node has answered some");
}

#[test]
fn memcached_does_not_differ_from_itself() {
    let mut sides = [(); 2].map(|()| Side::of(Program::Memcached, MEMCACHED));
    if let Some(difference) = compare(&mut sides, 2, 20_000) {
        panic!("{}", difference.text);
    }
}

/// The checker, checked: each of these is a fault it must find, and shrink to a few commands.
#[test]
fn a_seeded_fault_is_found_and_shrunk() {
    let faults: &[&[&str]] = &[&["-o", "no_lru_maintainer", "-I", "2m"], &["-o", "no_lru_maintainer", "-C"]];
    for fault in faults {
        let mut sides = [MEMCACHED, *fault].map(|arguments| Side::of(Program::Memcached, arguments));
        let difference = compare(&mut sides, 3, 20_000).expect("a fault to be found");
        let commands = difference.commands.len();
        assert!(commands <= 4, "{fault:?} was shrunk to {commands} commands only: {}", difference.text);
    }
}
