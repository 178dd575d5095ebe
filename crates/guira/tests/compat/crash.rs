//! The server is killed (SIGKILL) in the middle of its work: clients notice, and the next server starts where it stood.
//!
//! Always true: what a client has heard until then is the beginning of the right answer.

use std::{
    os::unix::process::ExitStatusExt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use rustix::process::Signal;

use crate::{
    condition::wait_for,
    connection::{Connection, Heard, show},
    server::{Program, Server},
};

const WRITERS: usize = 8;

/// Rounds that every writer has behind it when the server is killed.
const ROUNDS_MIN: u64 = 50;

/// Writes and reads until the server is gone. A round is a small value and one that takes many packets, so that a kill
/// finds some client in the middle of a value on either way.
fn write_until_killed(mut connection: Connection, writer: usize, rounds: &AtomicU64) {
    for round in 0_u64.. {
        let (key, small) = (format!("writer{writer}"), format!("{round:020}"));
        let large = small.repeat(5000);
        let value_of = |name: &str, value: &str| format!("VALUE {name} 0 {}\r\n{value}\r\n", value.len());
        let request =
            format!("set {key} 0 0 20\r\n{small}\r\nset {key}large 0 0 100000\r\n{large}\r\nget {key} {key}large\r\n");
        let answer = format!(
            "STORED\r\nSTORED\r\n{}{}END\r\n",
            value_of(&key, &small),
            value_of(&format!("{key}large"), &large)
        );
        match connection.converse(request.as_bytes(), b"END\r\n") {
            Heard::Answer(heard) => assert!(heard == answer.as_bytes(), "a wrong answer: {}", show(&heard)),
            Heard::Closed(heard) => {
                assert!(answer.as_bytes().starts_with(&heard), "a wrong answer at the end: {}", show(&heard));
                return;
            }
            Heard::Nothing(heard) => panic!("killed, and the client hangs after {}", show(&heard)),
        }
        rounds.store(round + 1, Relaxed);
    }
}

/// Who was connected stays so, as a client would that has not noticed yet: its port is the hardest to take again.
#[test]
fn killed_while_clients_write_it_starts_again_on_the_same_port() {
    let arguments = ["-t", "2"];
    let mut server = Server::start(Program::Guira, &arguments);
    let mut silent = Vec::new();
    for life in 0..5 {
        let mut left = server.connect();
        left.expect(b"set left 0 0 4\r\nlife\r\n", b"STORED\r\n");
        silent.push(left);
        let rounds: [AtomicU64; WRITERS] = std::array::from_fn(|_| AtomicU64::new(0));
        thread::scope(|scope| {
            for (writer, rounds) in rounds.iter().enumerate() {
                let connection = server.connect();
                scope.spawn(move || write_until_killed(connection, writer, rounds));
            }
            wait_for("all of them are writing", || {
                rounds.iter().all(|rounds| rounds.load(Relaxed) >= ROUNDS_MIN).then_some(())
            });
            server.process().signal(Signal::KILL);
        });
        assert_eq!(server.process().wait().signal(), Some(Signal::KILL.as_raw()));

        let address = server.address();
        server = Server::start_at(address, Program::Guira, &arguments)
            .unwrap_or_else(|| panic!("{address} cannot be had again after kill {life}"));
        // Nothing outlives the process.
        assert_eq!(server.stat("curr_items"), 0);
        let mut client = server.connect();
        client.expect(b"get left writer0 writer0large\r\n", b"END\r\n");
        client.expect(b"set new 0 0 3\r\nnew\r\n", b"STORED\r\n");
        client.expect(b"get new\r\n", b"VALUE new 0 3\r\nnew\r\nEND\r\n");
    }
    for mut connection in silent {
        connection.send(b"get left\r\n");
        assert_eq!(connection.hear_all(), Heard::Closed(Vec::new()), "the new server knows nobody of before");
    }
}
