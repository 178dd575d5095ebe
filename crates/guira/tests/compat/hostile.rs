//! Clients that lie, dawdle, leave and flood, while a well-behaved one goes on being answered.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
};

use crate::{
    condition::{DEADLINE, wait_for},
    connection::{Connection, Heard, show},
    server::{Program, Server},
};

pub const MIB: u64 = 1 << 20;

/// A well-behaved client in the middle of it all.
pub struct Healthy {
    connection: Connection,
    round: u64,
}

impl Healthy {
    pub fn at(server: &Server) -> Self {
        Self { connection: server.connect(), round: 0 }
    }

    /// Writes and reads back something new.
    pub fn is_served(&mut self) {
        self.round += 1;
        let value = format!("{:08}", self.round);
        self.connection.expect(format!("set healthy 0 0 8\r\n{value}\r\n").as_bytes(), b"STORED\r\n");
        let answer = format!("VALUE healthy 0 8\r\n{value}\r\nEND\r\n");
        self.connection.expect(b"get healthy\r\n", answer.as_bytes());
    }
}

/// What a server says to `bytes` when nothing follows them.
fn last_words(server: &Server, bytes: &[u8]) -> String {
    let mut connection = server.connect();
    connection.send(bytes);
    connection.finish_sending();
    match connection.hear_all() {
        Heard::Closed(answer) => show(&answer),
        other => format!("kept open: {other:?}"),
    }
}

#[test]
fn bad_input_is_answered_as_memcached_answers_it() {
    let inputs: &[(&str, &[u8])] = &[
        ("nothing", b""),
        ("half a command", b"get k"),
        ("half a line of a set", b"set k 0 0 5"),
        ("half a value", b"set k 0 0 5\r\nab"),
        ("a value without its end", b"set k 0 0 5\r\nabcde"),
        ("half the end of a value", b"set k 0 0 5\r\nabcde\r"),
        ("a value that is too long", b"set k 0 0 5\r\nabcdefgh\r\nget k\r\n"),
        ("a value that is too short", b"set k 0 0 5\r\nabc\r\nget k\r\n"),
        ("pipelined, then half-closed", b"set k 0 0 1\r\nx\r\nget k\r\nget k\r\nincr k 1\r\ndelete k\r\nget k\r\n"),
        ("a large item half sent", b"set k 0 0 1000000\r\nabc"),
        ("2^31 - 2", b"set k 0 0 2147483646\r\nabc\r\nget k\r\n"),
        ("2^31 - 1", b"set k 0 0 2147483647\r\nabc\r\nget k\r\n"),
        ("2^31", b"set k 0 0 2147483648\r\nabc\r\nget k\r\n"),
        ("2^32 - 1", b"set k 0 0 4294967295\r\nabc\r\nget k\r\n"),
        ("2^32", b"set k 0 0 4294967296\r\nabc\r\nget k\r\n"),
        ("2^32 + 3", b"set k 0 0 4294967299\r\nabc\r\nget k\r\n"),
        ("2^40 + 3", b"set k 0 0 1099511627779\r\nabc\r\nget k\r\n"),
        ("2^63 - 1", b"set k 0 0 9223372036854775807\r\nabc\r\nget k\r\n"),
        ("2^63", b"set k 0 0 9223372036854775808\r\nabc\r\nget k\r\n"),
        ("2^64 - 1", b"set k 0 0 18446744073709551615\r\nabc\r\nget k\r\n"),
        ("2^64", b"set k 0 0 18446744073709551616\r\nabc\r\nget k\r\n"),
        ("10^30", b"set k 0 0 1000000000000000000000000000000\r\nabc\r\nget k\r\n"),
        ("a negative length", b"set k 0 0 -1\r\nabc\r\nget k\r\n"),
        ("ms, 2^31", b"ms k 2147483648\r\nabc\r\nmg k v\r\n"),
        ("ms, 2^64 - 1", b"ms k 18446744073709551615\r\nabc\r\nmg k v\r\n"),
        ("ms, a negative length", b"ms k -1\r\nabc\r\nmg k v\r\n"),
        ("ms, a bad flag and its value", b"ms k 3 Tx\r\nabc\r\nmg k v\r\n"),
        ("cas without a version", b"cas k 0 0 3\r\nabc\r\nget k\r\n"),
        ("incr of a negative number", b"set k 0 0 2\r\n-1\r\nincr k 1\r\nget k\r\n"),
        ("incr of a fraction", b"set k 0 0 3\r\n1.5\r\nincr k 1\r\nget k\r\n"),
        ("a bare newline", b"\n"),
        ("many newlines", b"\n\n\r\n\r\n\n"),
        ("a carriage return", b"\r"),
        ("zeros", &[0; 64]),
        ("a control character in a key", b"get a\x01b\r\nget a\x7fb\r\n"),
        ("a request of another protocol", b"*1\r\n$4\r\nPING\r\n"),
        ("a request for a page", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("a page is posted", b"POST / HTTP/1.1\r\n\r\n"),
        ("a key of 251 bytes", &[b"get ".as_slice(), &[b'k'; 251], b"\r\n"].concat()),
        ("a set with a key of 251 bytes", &[b"set ".as_slice(), &[b'k'; 251], b" 0 0 1\r\nx\r\n"].concat()),
        ("2049 bytes without a newline", &[b'x'; 2049]),
        ("3000 bytes without a newline", &[b'x'; 3000]),
        ("a multiget of 3000 bytes, unfinished", &[b"get ".as_slice(), &b"key ".repeat(750)].concat()),
        ("quit, many times", &b"quit\r\n".repeat(1000)),
        ("quit behind a get", b"get k\r\nquit\r\nget k\r\n"),
        ("unknown commands", &b"hello\r\n".repeat(500)),
    ];
    let mut guira = Server::start(Program::Guira, &[]);
    let memcached = Server::start(Program::Memcached, &[]);
    let mut healthy = Healthy::at(&guira);
    let mut differences = String::new();
    for (name, bytes) in inputs {
        for server in [&guira, &memcached] {
            server.connect().ask(b"flush_all\r\n", b"\r\n");
        }
        let [ours, theirs] = [&guira, &memcached].map(|server| last_words(server, bytes));
        if ours != theirs {
            differences += &format!("{name}:\n  guira     {ours}\n  memcached {theirs}\n");
        }
        healthy.is_served();
        guira.assert_alive();
    }
    assert!(differences.is_empty(), "answers differ:\n{differences}");
}

/// memcached says so only after the value has come, which may be never.
#[test]
fn a_value_over_the_limit_is_refused_before_it_comes() {
    if Program::Guira.is_memcached() {
        return;
    }
    let server = Server::start(Program::Guira, &[]);
    for request in ["set k 0 0 2147483645", "append k 0 0 2147483645", "ms k 2147483645", "set k 0 0 1048577"] {
        let words = last_words(&server, format!("{request}\r\nabc\r\nget k\r\n").as_bytes());
        assert_eq!(words, "SERVER_ERROR object too large for cache\\r\\n", "{request}");
    }
}

#[test]
fn announced_lengths_allocate_nothing() {
    let mut server = Server::start(Program::Guira, &[]);
    let mut healthy = Healthy::at(&server);
    healthy.is_served();
    let before = server.process().resident_bytes();
    let mut liars = Vec::new();
    for number in 0..500 {
        let mut liar = server.connect();
        let len = if number % 2 == 0 { 2_000_000_000 } else { 1_000_000 };
        liar.send(format!("set liar{number} 0 0 {len}\r\nonly this").as_bytes());
        liars.push(liar);
    }
    healthy.is_served();
    let grown = server.process().resident_bytes().saturating_sub(before);
    // 250 of them are within the limit of an item: memory for those may be set aside, inside `-m`.
    assert!(grown < 80 * MIB, "{} MiB for announcements", grown / MIB);
}

#[test]
fn endless_lines_are_cut_off() {
    let mut server = Server::start(Program::Guira, &[]);
    let mut healthy = Healthy::at(&server);
    healthy.is_served();
    let before = server.process().resident_bytes();
    for beginning in ["", "set ", "get ", "gets ", "mg ", "set k 0 0 ", "stats "] {
        let mut endless = server.connect();
        endless.send(beginning.as_bytes());
        let piece = [b'x'; 64 * 1024];
        // Until the server has enough of it, or has taken 64 MB.
        for _ in 0..1024 {
            if endless.stream().write_all(&piece).is_err() {
                break;
            }
        }
        healthy.is_served();
        let grown = server.process().resident_bytes().saturating_sub(before);
        if Program::Guira.is_memcached() && beginning.starts_with("get") {
            // memcached lets a multiget grow for ever.
            return;
        }
        assert!(grown < 32 * MIB, "{} MiB for an endless line beginning {beginning:?}", grown / MIB);
    }
    server.assert_alive();
}

/// Each of any number of watchers had a queue of 256 KiB, and each line went to all of them.
#[test]
fn watchers_beyond_the_limit_are_refused() {
    for program in [Program::Memcached, Program::Guira] {
        let server = Server::start(program, &[]);
        let mut watchers: Vec<Connection> = (0..24).map(|_| server.connect()).collect();
        for (number, watcher) in watchers.iter_mut().enumerate() {
            let expected: &[u8] =
                if number < 20 { b"OK\r\n" } else { b"WATCHER_TOO_MANY log watcher limit reached\r\n" };
            watcher.expect(b"watch fetchers\r\n", expected);
        }
        // Who was refused goes on, and may watch once somebody else has left.
        let mut refused = watchers.pop().expect("the last one");
        refused.expect(b"get nothing\r\n", b"END\r\n");
        drop(watchers);
        wait_for("there is room for a watcher", || {
            (refused.ask(b"watch fetchers\r\n", b"\r\n") == b"OK\r\n").then_some(())
        });
    }
}

#[test]
fn one_byte_at_a_time_is_served_in_the_end() {
    let server = Server::start(Program::Guira, &[]);
    let mut healthy = Healthy::at(&server);
    let mut slow: Vec<Connection> = (0..64).map(|_| server.connect()).collect();
    let request = |number: usize| {
        format!("set slow{number:02} 0 0 5\r\nhello\r\nget slow{number:02}\r\nmg slow{number:02} v\r\n")
    };
    for place in 0..request(0).len() {
        for (number, connection) in slow.iter_mut().enumerate() {
            connection.send(&request(number).as_bytes()[place..=place]);
        }
        healthy.is_served();
    }
    for (number, connection) in slow.iter_mut().enumerate() {
        let expected = format!("STORED\r\nVALUE slow{number:02} 0 5\r\nhello\r\nEND\r\nVA 5\r\nhello\r\n");
        let heard = connection.hear(b"VA 5\r\nhello\r\n");
        assert_eq!(heard, Heard::Answer(expected.into_bytes()));
    }
}

/// Whoever announces half a megabyte, sends half of that and leaves gives back the memory that held it. How many leave at
/// once, and how many of them are refused, is the machine's affair: options bound what they hold meanwhile.
#[test]
fn who_leaves_in_the_middle_leaves_nothing_behind() {
    const MEMORY_MIB: u64 = 16;
    const INPUT_MIB: u64 = 4;
    const VALUE_LEN: usize = 500_000;
    const LEAVERS: usize = 800;
    let options = ["-m".to_owned(), MEMORY_MIB.to_string(), "-o".to_owned(), format!("read_buf_mem_limit={INPUT_MIB}")];
    let mut server = Server::start(Program::Guira, &options.each_ref().map(String::as_str));
    let mut healthy = Healthy::at(&server);
    healthy.is_served();
    let (buffered, resident) = (server.stat("read_buf_bytes"), server.process().resident_bytes());
    let half = vec![b'x'; VALUE_LEN / 2];
    let announce = |server: &Server, key: String| {
        let mut client = server.connect();
        client.send(format!("set {key} 0 0 {VALUE_LEN}\r\n").as_bytes());
        client.send(&half);
        client
    };
    (0..LEAVERS).for_each(|number| drop(announce(&server, format!("left{number}"))));
    healthy.is_served();
    wait_for("all have come", || (server.stat("total_connections") > LEAVERS as u64).then_some(()));
    wait_for("the leavers are gone", || (server.stat("curr_connections") <= 4).then_some(()));
    wait_for("their bytes are gone", || (server.stat("read_buf_bytes") == buffered).then_some(()));
    let grown = server.process().resident_bytes().saturating_sub(resident);
    let allowed = (MEMORY_MIB + INPUT_MIB + 12) * MIB;
    assert!(grown < allowed, "{} MiB behind those who left, {} allowed", grown / MIB, allowed / MIB);
    healthy.connection.expect(b"get left0 left500 left799\r\n", b"END\r\n");

    // Those who stay find the buffers' memory, and what `-m` lends beside it.
    let mut stayers: Vec<Connection> = (0..24).map(|number| announce(&server, format!("stayed{number}"))).collect();
    healthy.is_served();
    for stayer in &mut stayers {
        stayer.send(&half);
        stayer.expect(b"\r\n", b"STORED\r\n");
    }
}

#[test]
fn garbage_disturbs_nobody() {
    let mut server = Server::start(Program::Guira, &[]);
    let mut healthy = Healthy::at(&server);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..500 {
        let mut garbage = Vec::new();
        while garbage.len() < 4000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            garbage.extend(state.to_le_bytes());
        }
        let mut vandal = server.connect();
        vandal.send(&garbage);
        vandal.finish_sending();
        assert!(matches!(vandal.hear_all(), Heard::Closed(_)), "garbage and its end close the connection");
        healthy.is_served();
    }
    server.assert_alive();
}

#[test]
fn who_does_not_read_is_not_read_from() {
    let mut server = Server::start(Program::Guira, &[]);
    let mut healthy = Healthy::at(&server);
    let value = vec![b'v'; 500_000];
    let set = [b"set large 0 0 500000\r\n".as_slice(), &value, b"\r\n"].concat();
    healthy.connection.expect(&set, b"STORED\r\n");
    let before = server.process().resident_bytes();
    let mut deaf = Vec::new();
    for _ in 0..16 {
        let mut connection = server.connect();
        connection.stream().set_nonblocking(true).expect("a non-blocking socket");
        ask_until_it_blocks(connection.stream());
        deaf.push(connection);
        healthy.is_served();
    }
    (0..100).for_each(|_| healthy.is_served());
    let grown = server.process().resident_bytes().saturating_sub(before);
    assert!(grown < 64 * MIB, "{} MiB kept for who does not read", grown / MIB);
    // One of them begins to listen, and gets all of it.
    let stream = deaf[0].stream();
    stream.set_nonblocking(false).expect("a blocking socket");
    stream.set_read_timeout(Some(DEADLINE)).expect("a read deadline");
    let mut heard = vec![0; 4 * (500_000 + 40)];
    stream.read_exact(&mut heard).expect("answers");
    assert!(heard.starts_with(b"VALUE large 0 500000\r\nvvv"));
    server.assert_alive();
}

/// Asks for far more than sockets hold, or until the server stops reading.
fn ask_until_it_blocks(stream: &mut TcpStream) {
    let request = b"get large\r\n".repeat(100);
    for _ in 0..1000 {
        match stream.write(&request) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("asking: {error}"),
        }
    }
}
