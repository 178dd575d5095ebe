//! Ten thousand connections at a time, each keeping the server busy with as little as it can, beside a full cache.
//!
//! Always true of the resident memory of the process: at most 1.05 times `-m` (the items, the program, and the buffers
//! that all connections share, `-m`/48 each for input and output), and for each connection its entry and the 4 KiB of
//! input or of answers that it may hold whatever the others hold. The largest crowd of `-c` connections is the operator's
//! choice, so those 4 KiB are no leak; everything beyond comes out of the shared buffers. When they are full, the cache
//! makes room for what is still arriving, and who leaves more answers unread is closed.
//!
//! memcached has no such rule: an entry and up to 16 KiB of read buffer for each connection, and answers that are not read,
//! come on top of `-m` without a bound. `GUIRA_BINARY=memcached cargo test --test compat crowd -- --nocapture` prints its
//! figures.

use std::{
    net::TcpStream,
    sync::{Mutex, PoisonError},
};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

use crate::{
    condition::wait_for,
    connection::{Connection, show},
    hostile::{Healthy, MIB},
    server::{Program, Server},
};

/// Connections that a server is to bear.
const CROWD_LEN: usize = 10_000;

/// Megabytes of cache: from here on 5 % is more than the program and the shared buffers take together.
const MEMORY_MIB: u64 = 512;

/// A connection's entry, and what the allocator adds to it and to its small buffers.
const ENTRY_LEN: u64 = 512;

/// What a connection may hold of unfinished input, or of unread answers, whatever the others hold.
const OWN_LEN: u64 = 4096;

/// Values that the deaf ask for, and their length.
const HOT: usize = 100;
const HOT_LEN: usize = 1000;

/// Held by each crowd: two together would need more open files than a system commonly allows.
static SQUARE: Mutex<()> = Mutex::new(());

/// What is sent, and what is heard then.
type Exchange = (Vec<u8>, Vec<u8>);

/// What ten thousand do.
struct Crowd {
    name: &'static str,
    /// What each sends first.
    opening: fn() -> Vec<u8>,
    /// Bytes that follow one at a time: everybody's first before anybody's second.
    drops: usize,
    /// It has the kernel take as little for it as it can be told to.
    deaf: bool,
    /// The server is stopped until everybody has sent the first thing, and finds it all at once.
    at_once: bool,
    /// Bytes the server may keep for each.
    held_len: u64,
    /// How each goes on in the end, and what it then hears; `None` if not all of them are still there.
    going_on: Option<fn() -> Exchange>,
}

/// How many connections this process may hold open besides what else it does.
fn crowd_len() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).ok();
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let allowed = limit - (limit / 4).min(1000);
    if allowed < CROWD_LEN {
        println!("{allowed} connections instead of {CROWD_LEN}: only {limit} open files are allowed (ulimit -n)");
    }
    allowed.min(CROWD_LEN)
}

/// A connection whose kernel buffers are as small as they can be, so that answers soon wait in the server.
fn connect_deaf(server: &Server) -> Connection {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    // Small segments make for a small send buffer on the other side.
    socket.set_tcp_mss(88).expect("a small segment size");
    socket.set_recv_buffer_size(1).expect("the smallest receive buffer");
    socket.connect(&server.address().into()).expect("connecting");
    Connection::from_stream(TcpStream::from(socket))
}

/// Fills the cache until something is evicted, and then a little more; the hot values come last.
fn fill(server: &Server) {
    let mut filler = server.connect();
    let value = [b'f'; HOT_LEN];
    let mut number = 0;
    let mut add = |len: usize| {
        let mut sets = Vec::new();
        for _ in 0..len {
            sets.extend(format!("set filler{number} 0 0 {HOT_LEN} noreply\r\n").as_bytes());
            sets.extend([&value[..], b"\r\n"].concat());
            number += 1;
        }
        sets.extend(b"mn\r\n");
        filler.expect(&sets, b"MN\r\n");
    };
    wait_for("the cache is full", || {
        add(10_000);
        (server.stat("evictions") > 0).then_some(())
    });
    add(20_000);
    for hot in 0..HOT {
        let set = [format!("set hot{hot:03} 0 0 {HOT_LEN}\r\n").as_bytes(), &[b'h'; HOT_LEN], b"\r\n"].concat();
        filler.expect(&set, b"STORED\r\n");
    }
}

/// Resident bytes with the cache full: before the crowd came, and the most there ever were.
struct Resident {
    before: u64,
    most: u64,
}

impl Crowd {
    /// Gathers in front of `program`; the healthy client is served all the while.
    fn gather(&self, program: Program, len: usize) -> Resident {
        let (connections_max, memory) = ((len + 100).to_string(), MEMORY_MIB.to_string());
        let mut server = Server::start(program, &["-c", &connections_max, "-m", &memory]);
        fill(&server);
        let mut healthy = Healthy::at(&server);
        healthy.is_served();
        let before = server.process().resident_bytes();
        let opening = (self.opening)();
        let mut members = Vec::with_capacity(len);
        for number in 0..len {
            let mut member = if self.deaf { connect_deaf(&server) } else { server.connect() };
            if !self.at_once {
                member.send(&opening);
            }
            members.push(member);
            if number % 100 == 0 {
                healthy.is_served();
            }
        }
        if self.at_once {
            wait_for("all are connected", || (server.stat("curr_connections") >= len as u64).then_some(()));
            server.process().freeze();
            members.iter_mut().for_each(|member| member.send(&opening));
            server.process().signal(Signal::CONT);
        }
        for _ in 0..self.drops {
            members.iter_mut().for_each(|member| member.send(b"x"));
            healthy.is_served();
        }
        wait_for("all are connected", || (server.stat("total_connections") >= len as u64).then_some(()));
        (0..100).for_each(|_| healthy.is_served());
        let most = server.process().peak_resident_bytes();
        // memcached refuses values of a length that it had none of when it became full.
        if let (Some(going_on), false) = (self.going_on, program.is_memcached()) {
            let connected = server.stat("curr_connections");
            assert!(connected > len as u64, "{}: only {connected} of {len} are still there", self.name);
            let (bytes, answer) = going_on();
            for member in members.iter_mut().step_by(len.div_ceil(50)) {
                member.expect(&bytes, &answer);
            }
        }
        healthy.is_served();
        server.assert_alive();
        Resident { before, most }
    }

    /// Gathers in front of `program`, and tells what that cost, if Guira keeps to the rule above.
    fn is_borne_by(&self, program: Program) -> u64 {
        let _square = SQUARE.lock().unwrap_or_else(PoisonError::into_inner);
        let len = crowd_len();
        let Resident { before, most } = self.gather(program, len);
        let allowed = MEMORY_MIB * MIB / 20 * 21 + len as u64 * (ENTRY_LEN + self.held_len);
        println!(
            "{len} {}: {program:?} of {MEMORY_MIB} MiB takes {} MiB alone and {} at most beside them, {} allowed",
            self.name,
            before / MIB,
            most / MIB,
            allowed / MIB
        );
        let is_guira = program == Program::Guira && !program.is_memcached();
        assert!(!is_guira || most <= allowed, "{}: {} MiB of {}", self.name, most / MIB, allowed / MIB);
        most.saturating_sub(before)
    }
}

#[test]
fn ten_thousand_in_the_middle_of_a_command_cost_no_more_than_in_memcached() {
    let crowd = Crowd {
        name: "halves of a command",
        opening: || b"get slow".into(),
        drops: 0,
        deaf: false,
        at_once: false,
        held_len: 0,
        going_on: Some(|| (b"\r\n".into(), b"END\r\n".into())),
    };
    let [theirs, ours] = [Program::Memcached, Program::Guira].map(|program| crowd.is_borne_by(program));
    assert!(ours <= theirs + 8 * MIB, "{} MiB for them, memcached {}", ours / MIB, theirs / MIB);
}

#[test]
fn ten_thousand_that_upload_byte_by_byte_are_borne() {
    const SENT: usize = 24;
    Crowd {
        name: "uploads byte by byte",
        opening: || b"set slow 0 0 20000\r\n".into(),
        drops: SENT,
        deaf: false,
        at_once: false,
        held_len: 0,
        going_on: Some(|| ([vec![b'x'; 20_000 - SENT], b"\r\n".to_vec()].concat(), b"STORED\r\n".into())),
    }
    .is_borne_by(Program::Guira);
}

#[test]
fn ten_thousand_that_stop_in_the_middle_of_a_value_are_borne() {
    Crowd {
        name: "values of which 4000 bytes came",
        opening: || [b"set slow 0 0 20000\r\n".as_slice(), &[b'x'; 4000]].concat(),
        drops: 0,
        deaf: false,
        at_once: false,
        held_len: OWN_LEN,
        going_on: Some(|| ([vec![b'x'; 16_000], b"\r\n".to_vec()].concat(), b"STORED\r\n".into())),
    }
    .is_borne_by(Program::Guira);
}

#[test]
fn ten_thousand_large_values_that_never_end_are_borne() {
    Crowd {
        name: "values of which 60000 bytes came",
        opening: || [b"set slow 0 0 200000\r\n".as_slice(), &[b'x'; 60_000]].concat(),
        drops: 0,
        deaf: false,
        at_once: false,
        held_len: OWN_LEN,
        going_on: None,
    }
    .is_borne_by(Program::Guira);
}

/// 2^31 - 3 is the longest length that is not a mistake in itself; those up to 2^64 - 1 are in `hostile`.
#[test]
fn ten_thousand_that_announce_two_gigabytes_are_borne() {
    Crowd {
        name: "values announced as 2^31 - 3 bytes",
        opening: || [b"set slow 0 0 2147483645\r\n".as_slice(), &[b'x'; 60_000]].concat(),
        drops: 0,
        deaf: false,
        at_once: false,
        held_len: 0,
        going_on: None,
    }
    .is_borne_by(Program::Guira);
}

/// A buffer that had grown for somebody else's answers stayed with the one who did not read, 64 KiB for a kilobyte that
/// waited in it, and only the kilobyte was counted: a thousand such connections took 60 MiB, ten thousand 600.
#[test]
fn who_does_not_read_a_little_holds_little() {
    const LEN: usize = 500;
    if Program::Guira.is_memcached() {
        return;
    }
    let _square = SQUARE.lock().unwrap_or_else(PoisonError::into_inner);
    // The shared buffers have room for what all may hold: a reader whose socket is full for a moment is not closed for it.
    let mut server = Server::start(Program::Guira, &["-m", "256"]);
    let mut reader = server.connect();
    let value = vec![b'v'; HOT_LEN];
    reader.expect(&[b"set hot 0 0 1000\r\n".as_slice(), &value, b"\r\n"].concat(), b"STORED\r\n");
    // As long an answer as an idle buffer keeps room for.
    let burst = format!("get {}\r\n", ["hot"; 60].join(" "));
    reader.ask(burst.as_bytes(), b"END\r\n");
    let before = server.process().resident_bytes();
    let mut deaf: Vec<Connection> = (0..LEN).map(|_| connect_deaf(&server)).collect();
    // First what their sockets hold, then what does not fit.
    for round in 0..120 {
        for connection in &mut deaf {
            if round >= 40 {
                reader.ask(burst.as_bytes(), b"END\r\n");
            }
            connection.send(b"get hot\r\n");
        }
        if server.stat("response_obj_bytes") >= (LEN * HOT_LEN / 2) as u64 {
            break;
        }
    }
    assert!(server.stat("response_obj_bytes") > 0, "everything fitted into the sockets");
    let grown = server.process().resident_bytes().saturating_sub(before);
    let allowed = LEN as u64 * (ENTRY_LEN + OWN_LEN) + 4 * MIB;
    assert!(grown <= allowed, "{} KiB of {} allowed", grown >> 10, allowed >> 10);
}

/// Who ask for a hundred kilobytes, and read none of it.
fn who_do_not_read(name: &'static str, at_once: bool) -> Crowd {
    Crowd {
        name,
        opening: || {
            let names: Vec<String> = (0..HOT).map(|hot| format!("hot{hot:03}")).collect();
            format!("get {}\r\n", names.join(" ")).into()
        },
        drops: 0,
        deaf: true,
        at_once,
        // A hundred fill the shared buffers; who comes then has all its answers to leave, and is closed.
        held_len: 0,
        going_on: None,
    }
}

#[test]
fn ten_thousand_that_ask_and_do_not_read_are_borne() {
    who_do_not_read("multigets whose answers are not read", false).is_borne_by(Program::Guira);
}

/// Who was to be closed for the answers that waited kept them until everybody whose request had come with its own had been
/// answered: some hundreds at a time when the server had been kept from its work.
#[test]
fn ten_thousand_that_ask_at_once_and_do_not_read_are_borne() {
    who_do_not_read("multigets at once whose answers are not read", true).is_borne_by(Program::Guira);
}

/// A list of all connections was made for everybody who asked, all of them at once: 3000 connections that each asked took
/// 900 MiB, and the others waited until the last list was made.
#[test]
fn lists_of_all_connections_are_made_a_few_at_a_time() {
    let _square = SQUARE.lock().unwrap_or_else(PoisonError::into_inner);
    let len = crowd_len().min(2000);
    let mut server = Server::start(Program::Guira, &["-c", &(len + 100).to_string()]);
    let mut healthy = Healthy::at(&server);
    let mut askers: Vec<Connection> = (0..len).map(|_| server.connect()).collect();
    healthy.is_served();
    let before = server.process().resident_bytes();
    askers.iter_mut().for_each(|asker| asker.send(b"stats conns\r\n"));
    healthy.is_served();
    for asker in &mut askers {
        // The connection goes on, whether there was a list for it or not.
        let heard = asker.ask(b"mn\r\n", b"MN\r\n");
        let is_list = heard.ends_with(b"\r\nEND\r\nMN\r\n");
        assert!(is_list || heard == b"SERVER_ERROR out of memory writing stats\r\nMN\r\n", "{}", show(&heard));
    }
    let grown = server.process().peak_resident_bytes().saturating_sub(before);
    assert!(grown < 32 * MIB, "{} MiB for lists of {len} connections", grown / MIB);
}
