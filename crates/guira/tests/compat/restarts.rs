//! What is there after a stop or a kill, whatever store is behind the server.

use rustix::process::Signal;

use crate::{
    condition::wait_for,
    connection::Connection,
    server::{Program, Server},
};

/// Starts the server with each of these arguments in turn, and stops it (SIGTERM): what the first one stored is there, as it was.
pub fn what_was_stored_is_there_with_flags_times_and_versions(starts: &[&[&str]]) {
    let look = |client: &mut Connection| {
        let answer = client.ask(b"mg a f t c v\r\nmg n v\r\nmg gone v\r\nmn\r\n", b"MN\r\n");
        let text = String::from_utf8(answer).expect("text");
        // Seconds go by.
        text.split(' ').filter(|word| !word.starts_with("t4")).collect::<Vec<_>>().join(" ")
    };
    let mut before = None;
    for arguments in starts {
        let mut server = Server::start(Program::Guira, arguments);
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

/// The same after `flush_all`, and after one that is still to come when the server is killed.
pub fn a_flush_outlives_the_process_and_so_does_one_that_is_to_come(arguments: &[&str]) {
    let mut server = Server::start(Program::Guira, arguments);
    let mut client = server.connect();
    client.expect(b"set a 0 0 1\r\na\r\n", b"STORED\r\n");
    client.expect(b"flush_all\r\n", b"OK\r\n");
    client.expect(b"set b 0 0 1\r\nb\r\n", b"STORED\r\n");
    server.process().signal(Signal::KILL);
    server.process().wait();
    let mut server = Server::start(Program::Guira, arguments);
    let mut client = server.connect();
    client.expect(b"get a b\r\n", b"VALUE b 0 1\r\nb\r\nEND\r\n");
    client.expect(b"flush_all 1\r\n", b"OK\r\n");
    server.process().signal(Signal::KILL);
    server.process().wait();
    let server = Server::start(Program::Guira, arguments);
    let mut client = server.connect();
    wait_for("the flush comes", || (client.ask(b"get b\r\n", b"END\r\n") == b"END\r\n").then_some(()));
    client.expect(b"set c 0 0 1\r\nc\r\n", b"STORED\r\n");
    client.expect(b"get c\r\n", b"VALUE c 0 1\r\nc\r\nEND\r\n");
}
