//! A server before a Cassandra (`--store cassandra:HOSTS`): what was acknowledged outlives the server, and the Cassandra's own
//! death; a keyspace has one server at a time, and one that was taken for dead answers nothing old when it wakes up.
//!
//! Always true: every test has a keyspace of its own. Backends of a cluster before a Cassandra are in `cluster`.

mod cluster;

use std::{
    net::{Ipv4Addr, TcpListener},
    thread,
};

use rustix::process::Signal;

use crate::{
    book::Book,
    cassandra_nodes::{alone, shared, store},
    connection::{Connection, Heard, show},
    restarts,
    server::{Program, Server, free_port},
};

/// Kills of a server. The next one waits until what the dead one was lent is over, so these are few.
const CYCLES: u64 = 4;

/// Kills of the Cassandra under one server.
const OUTAGES: u64 = 2;

/// Answers between a start and the next kill.
const ACTS: u64 = 250;

fn arguments(store: &str) -> [&str; 4] {
    ["-t", "2", "--store", store]
}

#[test]
fn killed_again_and_again_it_has_every_acknowledged_write_and_nothing_older() {
    let _nodes = shared();
    let (store, book) = (store("kills"), Book::with_refusals());
    for cycle in 0..CYCLES {
        let mut server = Server::start(Program::Guira, &arguments(&store));
        book.fill(&mut server, cycle, || book.wait_for_acts(ACTS));
    }
    book.check(&Server::start(Program::Guira, &arguments(&store)));
}

#[test]
fn what_was_stored_is_there_after_a_stop_with_flags_times_and_versions() {
    let _nodes = shared();
    let store = store("stops");
    let plain = arguments(&store);
    let limited = [&plain[..], &["--store-limit", "100000"]].concat();
    restarts::what_was_stored_is_there_with_flags_times_and_versions(&[&plain, &limited, &plain]);
}

#[test]
fn a_flush_outlives_the_process_and_so_does_one_that_is_to_come() {
    let _nodes = shared();
    restarts::a_flush_outlives_the_process_and_so_does_one_that_is_to_come(&arguments(&store("flushes")));
}

#[test]
fn cassandra_is_killed_and_starts_again_and_nothing_acknowledged_is_lost() {
    let nodes = alone();
    let (store, book) = (store("outages"), Book::with_refusals());
    let mut server = Server::start(Program::Guira, &arguments(&store));
    book.fill(&mut server, 1, || {
        for _ in 0..OUTAGES {
            book.wait_for_acts(ACTS);
            nodes.kill(1);
            // Every client at least once, on average: nobody hangs.
            book.wait_for_refusals(16);
            nodes.restart();
        }
        book.wait_for_acts(ACTS);
    });
    book.check(&Server::start(Program::Guira, &arguments(&store)));
}

#[test]
fn a_keyspace_has_one_server_at_a_time() {
    let _nodes = shared();
    let store = store("owners");
    let mut first = Server::start(Program::Guira, &arguments(&store));
    first.connect().expect(b"set key 0 0 3\r\nold\r\n", b"STORED\r\n");
    refuses(&["--store", &store], "is in use by ");
    first.connect().expect(b"get key\r\n", b"VALUE key 0 3\r\nold\r\nEND\r\n");
    first.connect().expect(b"set key 0 0 3\r\nnew\r\n", b"STORED\r\n");
    first.process().signal(Signal::KILL);
    let second = Server::start(Program::Guira, &arguments(&store));
    second.connect().expect(b"get key\r\n", b"VALUE key 0 3\r\nnew\r\nEND\r\n");
}

/// What an owner that was taken for dead says to a request: nothing, or that it cannot.
#[track_caller]
fn assert_not_served(heard: &Heard) {
    match heard {
        Heard::Closed(heard) | Heard::Answer(heard) => {
            assert!(heard.is_empty() || heard.starts_with(b"SERVER_ERROR "), "answered {}", show(heard));
        }
        Heard::Nothing(heard) => panic!("the client hangs after {}", show(heard)),
    }
}

#[test]
fn a_server_that_slept_while_another_took_over_answers_nothing_old_and_changes_nothing() {
    let _nodes = shared();
    let store = store("sleepers");
    let mut sleeper = Server::start(Program::Guira, &arguments(&store));
    sleeper.connect().expect(b"set key 0 0 3\r\nold\r\nset other 0 0 3\r\nold\r\n", b"STORED\r\nSTORED\r\n");
    // Connections for both threads, whose requests lie there when it wakes up: reads of what its engine has, and changes.
    let mut clients: Vec<Connection> = (0..8).map(|_| sleeper.connect()).collect();
    for client in &mut clients {
        client.expect(b"get key other\r\n", b"VALUE key 0 3\r\nold\r\nVALUE other 0 3\r\nold\r\nEND\r\n");
    }
    sleeper.process().freeze();
    for (at, client) in clients.iter_mut().enumerate() {
        client.send(match at % 4 {
            0 => b"get key\r\n",
            1 => b"mg key v\r\n",
            2 => b"set key 0 0 3\r\nbad\r\n".as_slice(),
            _ => b"delete other\r\n",
        });
    }
    let mut owner = Server::start(Program::Guira, &arguments(&store));
    let mut client = owner.connect();
    client.expect(b"get key\r\n", b"VALUE key 0 3\r\nold\r\nEND\r\n");
    client.expect(b"set key 0 0 3\r\nnew\r\n", b"STORED\r\n");

    sleeper.process().signal(Signal::CONT);
    for client in &mut clients {
        assert_not_served(&client.hear(b"\r\n"));
    }
    // It does not come to itself later either.
    let ask = |request: &[u8]| {
        let mut client = Connection::try_open(sleeper.address()).ok()?;
        client.send(request);
        Some(client.hear(b"\r\n"))
    };
    for _ in 0..50 {
        for request in [b"get key\r\n".as_slice(), b"mg other v\r\n", b"set key 0 0 3\r\nbad\r\n", b"touch other 1\r\n"]
        {
            if let Some(heard) = ask(request) {
                assert_not_served(&heard);
            }
        }
    }
    owner.assert_alive();
    client.expect(b"get key other\r\n", b"VALUE key 0 3\r\nnew\r\nVALUE other 0 3\r\nold\r\nEND\r\n");
    client.expect(b"set other 0 0 3\r\nnew\r\n", b"STORED\r\n");
}

/// The program ends with one line that says so.
#[track_caller]
fn refuses(arguments: &[&str], wanted: &str) {
    let port = free_port().to_string();
    let ended = Program::Guira.ends(&[&["-p", &port, "-U", "0", "-l", "127.0.0.1"], arguments].concat());
    assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {}", ended.stderr);
    assert!(ended.stderr.lines().count() == 1 && ended.stderr.contains(wanted), "{arguments:?}: {}", ended.stderr);
}

#[test]
fn a_cassandra_that_cannot_be_had_is_told_in_one_line_in_bounded_time() {
    let closed = format!("cassandra:127.0.0.1:{}", free_port());
    refuses(&["--store", &closed], &closed);
    // One that takes connections and never says a word.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let silent_store = format!("cassandra:{}", silent.local_addr().expect("its number"));
    refuses(&["--store", &silent_store], &silent_store);
    // And something that speaks another language.
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let other_store = format!("cassandra:{}", other.local_addr().expect("its number"));
    thread::spawn(move || {
        for stream in other.incoming().flatten() {
            std::io::Write::write_all(&mut &stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").ok();
        }
    });
    refuses(&["--store", &other_store], &other_store);
}

#[test]
fn what_makes_no_sense_is_told_in_one_line() {
    for (arguments, wanted) in [
        (["--store", "cassandra"].as_slice(), "cassandra:HOST"),
        (&["--store", "cassandra:"], "cassandra:HOST"),
        (&["--store", "cassandra:/guira"], "host ''"),
        (&["--store", "cassandra:127.0.0.1,"], "host ''"),
        (&["--store", "cassandra:127.0.0.1:99999"], "'127.0.0.1:99999': no such port"),
        (&["--store", "cassandra:127.0.0.1:port"], "'127.0.0.1:port': no such port"),
        (&["--store", "cassandra:127.0.0.1/"], "keyspace ''"),
        (&["--store", "cassandra:127.0.0.1/a-b"], "keyspace 'a-b'"),
        (
            &["--store", "cassandra:127.0.0.1", "--durability", "interval:5"],
            "--durability interval:5 does not go with --store cassandra",
        ),
        (
            &["--store", "cassandra:127.0.0.1", "--store-memory", "20"],
            "--store-memory 20 does not go with --store cassandra",
        ),
        (&["--store", "cassandra:127.0.0.1", "--store-limit", "0"], "--store-limit 0: write from 1 to 100000000"),
        (&["--store", "cassandra:127.0.0.1", "-e", "/tmp/x"], "-e does not go with --store"),
        (&["--store", "cassandra:127.0.0.1", "-M"], "-M does not go with --store"),
    ] {
        refuses(arguments, wanted);
    }
}
