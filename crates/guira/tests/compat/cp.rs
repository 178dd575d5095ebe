//! CPSERVER's protocol on a port of its own, beside memcached's with the same items.

use std::{
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
};

use crate::{
    condition::{DEADLINE, wait_for},
    connection::{Connection, Heard, show},
    hostile::MIB,
    server::{Ended, Program, Server},
};

const LOOKUP: u64 = 1 << 60;
const INSERT: u64 = 2 << 60;

/// The longest value of an item of 1 MiB: without memcached's header, version and line end, and a key of 15 digits and its end.
const VALUE_LEN_MAX: usize = (1 << 20) - 48 - 8 - 16 - 2;

/// A server that listens for both protocols.
struct CpServer {
    server: Server,
    address: SocketAddr,
}

impl CpServer {
    /// `None` if the program under test has no such port.
    fn start(arguments: &[&str]) -> Option<Self> {
        if Program::Guira.is_memcached() {
            return None;
        }
        let all = [&["--cp-port", "-1"], arguments].concat();
        let mut server = Server::start(Program::Guira, &all);
        let address = wait_for("the port is told", || {
            let told = server.process().complaints();
            let line = told.lines().find(|line| line.contains("CPSERVER's protocol"))?;
            line.rsplit(' ').next()?.parse().ok()
        });
        Some(Self { server, address })
    }

    fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// The lines logged about clients that could not be understood.
    fn reproaches(&mut self) -> Vec<String> {
        let told = self.server.process().complaints();
        told.lines().filter(|line| line.contains("the connection is closed")).map(str::to_owned).collect()
    }
}

fn lookup(key: u64) -> [u8; 8] {
    (LOOKUP | key).to_le_bytes()
}

fn insert(key: u64, value: &[u8]) -> Vec<u8> {
    [(INSERT | key).to_le_bytes().as_slice(), &(value.len() as u32).to_le_bytes(), value].concat()
}

fn found(value: &[u8]) -> Vec<u8> {
    [(value.len() as u32).to_le_bytes().as_slice(), value].concat()
}

/// Asks, and insists on this very answer.
#[track_caller]
fn expect(connection: &mut Connection, request: &[u8], answer: &[u8]) {
    connection.send(request);
    let mut heard = vec![0; answer.len()];
    connection.stream().read_exact(&mut heard).expect("an answer");
    assert_eq!(show(&heard), show(answer), "to {:?}", show(request));
}

#[test]
fn both_protocols_see_the_same_items() {
    let Some(cp) = CpServer::start(&[]) else { return };
    let (mut binary, mut text) = (cp.connect(), cp.server.connect());
    expect(&mut binary, &lookup(0x1f), &found(b""));
    expect(&mut binary, &[insert(0x1f, b"hello"), lookup(0x1f).to_vec()].concat(), &found(b"hello"));
    text.expect(b"get 00000000000001f\r\n", b"VALUE 00000000000001f 0 5\r\nhello\r\nEND\r\n");
    text.expect(b"mg 00000000000001f t\r\n", b"HD t-1\r\n");
    text.expect(b"set fffffffffffffff 7 0 3\r\nabc\r\n", b"STORED\r\n");
    expect(&mut binary, &lookup((1 << 60) - 1), &found(b"abc"));
    text.expect(b"append fffffffffffffff 0 0 1\r\nd\r\n", b"STORED\r\n");
    expect(&mut binary, &lookup((1 << 60) - 1), &found(b"abcd"));
    text.expect(b"set 000000000000000 0 0 0\r\n\r\n", b"STORED\r\n");
    expect(&mut binary, &lookup(0), &found(b""));
    text.expect(b"delete 00000000000001f\r\n", b"DELETED\r\n");
    expect(&mut binary, &lookup(0x1f), &found(b""));
}

#[test]
fn thousands_in_a_row_are_answered_and_counted() {
    const REQUESTS: u64 = 20_000;
    let Some(cp) = CpServer::start(&[]) else { return };
    let value = |key: u64| key.to_le_bytes();
    let (mut asked, mut wanted) = (Vec::new(), Vec::new());
    for key in 0..REQUESTS {
        asked.extend(insert(key, &value(key)));
        // Of every four one is not there yet.
        let other = if key % 4 == 3 { key + 1 } else { key / 2 };
        asked.extend(lookup(other));
        wanted.extend(if other <= key { found(&value(other)) } else { found(b"") });
    }
    asked.extend(lookup(1));
    let end = found(&value(1));
    wanted.extend(&end);
    let mut connection = cp.connect();
    let mut sender = Connection::from_stream(connection.stream().try_clone().expect("a second handle"));
    std::thread::scope(|scope| {
        scope.spawn(move || sender.send(&asked));
        let mut heard = vec![0; wanted.len()];
        connection.stream().read_exact(&mut heard).expect("all answers");
        assert!(heard == wanted, "answers differ");
    });
    assert_eq!(cp.server.stat("cmd_set"), REQUESTS);
    assert_eq!(cp.server.stat("cmd_get"), REQUESTS + 1);
    assert_eq!(cp.server.stat("get_misses"), REQUESTS / 4);
    assert_eq!(cp.server.stat("get_hits"), REQUESTS - REQUESTS / 4 + 1);
}

#[test]
fn one_byte_at_a_time_is_understood() {
    let Some(cp) = CpServer::start(&[]) else { return };
    let mut connection = cp.connect();
    for byte in [insert(9, b"slowly"), lookup(9).to_vec()].concat() {
        connection.send(&[byte]);
    }
    expect(&mut connection, &[], &found(b"slowly"));
}

#[test]
fn the_longest_value_is_kept_and_a_longer_one_refused() {
    let Some(mut cp) = CpServer::start(&[]) else { return };
    let value: Vec<u8> = (0..VALUE_LEN_MAX).map(|at| (at * 31 + at / 1000) as u8).collect();
    let mut connection = cp.connect();
    expect(&mut connection, &[insert(1, &value), lookup(1).to_vec()].concat(), &found(&value));
    connection.send(&insert(2, &vec![0; VALUE_LEN_MAX + 1]));
    assert_eq!(connection.hear_all(), Heard::Closed(Vec::new()));
    let told = format!("sent an INSERT of {} bytes, where {VALUE_LEN_MAX} are the most", VALUE_LEN_MAX + 1);
    wait_for("it is logged", || cp.reproaches().iter().any(|line| line.contains(&told)).then_some(()));
    expect(&mut cp.connect(), &lookup(2), &found(b""));
}

#[test]
fn nonsense_closes_the_connection_and_is_logged_once() {
    for (nonsense, about) in [
        ((3u64 << 60).to_le_bytes().to_vec(), "kind 3"),
        (b"get a\r\n\n".to_vec(), "kind 0"),
        (insert(1, b""), "size 0"),
        ([(INSERT | 1).to_le_bytes().as_slice(), &u32::MAX.to_le_bytes()].concat(), "4294967295 bytes"),
    ] {
        // A worker logs one such line a second.
        let Some(mut cp) = CpServer::start(&[]) else { return };
        let mut watcher = cp.server.connect();
        watcher.send(b"watch connevents\r\n");
        // Lines about others may come at once.
        let Heard::Answer(seen) = watcher.hear(b"\n") else { panic!("nothing to watch") };
        assert!(seen.starts_with(b"OK\r\n"), "{}", show(&seen));
        let mut connection = cp.connect();
        let peer = connection.stream().local_addr().expect("our address");
        // What came before is answered, what comes behind is not.
        connection.send(&[insert(7, b"before"), lookup(7).to_vec(), nonsense].concat());
        assert_eq!(connection.hear_all(), Heard::Closed(found(b"before")), "{about}");
        let lines = wait_for("it is logged", || Some(cp.reproaches()).filter(|lines| !lines.is_empty()));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(&peer.to_string()) && lines[0].contains(about), "{lines:?}");
        assert_eq!(cp.server.stat("cp_malformed"), 1);
        let closed = format!("rport={} transport=tcp reason=error", peer.port());
        let mut seen = String::new();
        while !seen.contains(&closed) {
            match watcher.hear(b"\n") {
                Heard::Answer(lines) => seen += &String::from_utf8_lossy(&lines),
                other => panic!("{other:?} after {seen}"),
            }
        }
        cp.server.assert_alive();
    }
}

#[test]
fn half_a_request_and_its_end_leave_nothing_behind() {
    let Some(mut cp) = CpServer::start(&[]) else { return };
    let buffered = cp.server.stat("read_buf_bytes");
    let whole = insert(7, &[b'x'; 500_000]);
    for len in [1, 7, 8, 11, 12, 13, 100_000, whole.len() - 1] {
        let mut connection = cp.connect();
        connection.send(&whole[..len]);
        connection.finish_sending();
        assert_eq!(connection.hear_all(), Heard::Closed(Vec::new()), "after {len} bytes");
    }
    wait_for("they are gone", || (cp.server.stat("curr_connections") <= 2).then_some(()));
    wait_for("their bytes are gone", || (cp.server.stat("read_buf_bytes") == buffered).then_some(()));
    expect(&mut cp.connect(), &lookup(7), &found(b""));
    assert!(cp.reproaches().is_empty());
}

/// Beyond what lies beside `-m` the engine lends memory for what is still arriving.
#[test]
fn large_values_that_arrive_together_find_memory() {
    const CLIENTS: u64 = 24;
    const VALUE_LEN: usize = 500_000;
    let Some(cp) = CpServer::start(&["-o", "read_buf_mem_limit=1"]) else { return };
    let value = |key: u64| vec![b'a' + key as u8; VALUE_LEN];
    let mut clients: Vec<Connection> = (0..CLIENTS).map(|_| cp.connect()).collect();
    for (key, client) in (0..).zip(&mut clients) {
        client.send(&insert(key, &value(key))[..VALUE_LEN - 10]);
    }
    for (key, client) in (0..).zip(&mut clients) {
        let rest = [&insert(key, &value(key))[VALUE_LEN - 10..], &lookup(key)].concat();
        expect(client, &rest, &found(&value(key)));
    }
}

#[test]
fn an_insert_without_memory_is_dropped_and_counted() {
    const INSERTS: u64 = 100;
    let Some(cp) = CpServer::start(&["-M"]) else { return };
    let mut connection = cp.connect();
    let value = vec![b'v'; 1_000_000];
    for key in 0..INSERTS {
        connection.send(&insert(key, &value));
    }
    // There is no room for all of them; what there was room for is there.
    let mut hits = 0;
    for key in 0..INSERTS {
        connection.send(&lookup(key));
        let mut size = [0; 4];
        connection.stream().read_exact(&mut size).expect("an answer");
        let mut answer = vec![0; u32::from_le_bytes(size) as usize];
        connection.stream().read_exact(&mut answer).expect("its value");
        assert!(answer.is_empty() || answer == value);
        hits += u64::from(!answer.is_empty());
    }
    assert!(hits > 0 && hits < INSERTS, "{hits}");
    assert_eq!(cp.server.stat("store_no_memory"), INSERTS - hits);
}

#[test]
fn who_does_not_read_is_not_read_from() {
    const VALUE_LEN: usize = 500_000;
    let Some(mut cp) = CpServer::start(&[]) else { return };
    let value = vec![b'v'; VALUE_LEN];
    expect(&mut cp.connect(), &[insert(1, &value), lookup(1).to_vec()].concat(), &found(&value));
    let before = cp.server.process().resident_bytes();
    let mut deaf = cp.connect();
    deaf.stream().set_nonblocking(true).expect("a non-blocking socket");
    let request = lookup(1).repeat(1000);
    // Whole requests only: a write may take a part.
    let mut sent = 0usize;
    loop {
        match deaf.stream().write(&request[sent % 8..]) {
            Ok(len) => sent += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("asking: {error}"),
        }
    }
    expect(&mut cp.connect(), &lookup(1), &found(&value));
    let grown = cp.server.process().resident_bytes().saturating_sub(before);
    assert!(grown < 32 * MIB, "{} MiB kept for who does not read", grown / MIB);
    // It begins to listen, and gets what it asked for.
    let stream = deaf.stream();
    stream.set_nonblocking(false).expect("a blocking socket");
    stream.set_read_timeout(Some(DEADLINE)).expect("a read deadline");
    let mut heard = vec![0; VALUE_LEN + 4];
    for _ in 0..(sent / 8).min(200) {
        stream.read_exact(&mut heard).expect("an answer");
        assert!(heard == found(&value));
    }
    cp.server.assert_alive();
}

#[test]
fn a_full_server_turns_away_without_a_word() {
    let Some(cp) = CpServer::start(&["-c", "2"]) else { return };
    let mut first = cp.connect();
    expect(&mut first, &lookup(1), &found(b""));
    // Those who find a place keep it.
    let mut seated = Vec::new();
    let last_words = wait_for("there is no place", || {
        let mut next = cp.connect();
        next.send(&lookup(1));
        match next.hear(&[0; 4]) {
            Heard::Closed(words) => Some(words),
            _ => {
                seated.push(next);
                None
            }
        }
    });
    assert_eq!(show(&last_words), "");
}

#[test]
fn mistakes_about_the_port_are_told_in_one_line() {
    if Program::Guira.is_memcached() {
        return;
    }
    for (arguments, about) in [
        (vec!["--cp-port", "x"], "--cp-port x: write a port"),
        (vec!["--cp-port", "65536"], "--cp-port 65536"),
        (vec!["--cp-port", "11211"], "-p has that port"),
        (vec!["--cp-port", "5000", "-l", "127.0.0.1:5000"], "-l 127.0.0.1:5000 has that port"),
        (vec!["--cp-port", "5", "-s", "/nonexistent/socket"], "--cp-port does not go with -s"),
    ] {
        let Ended { status, stderr, .. } = Program::Guira.ends(&arguments);
        assert_eq!(status.code(), Some(1), "{arguments:?}: {stderr}");
        assert_eq!(stderr.trim_end().lines().count(), 1, "{arguments:?}: one line, not {stderr:?}");
        assert!(stderr.contains(about), "{arguments:?}: {stderr:?} says nothing about {about:?}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("its number").port().to_string();
    let Ended { stderr, .. } = Program::Guira.ends(&["-l", "127.0.0.1", "-p", "-1", "--cp-port", &port]);
    assert!(stderr.contains(&port) && stderr.contains("--cp-port") && stderr.lines().count() == 1, "{stderr}");
}
