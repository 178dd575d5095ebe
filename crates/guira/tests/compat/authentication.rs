//! The file of `-Y`, while the server runs: SIGHUP has it read again.

use std::{fs, io::Read, path::Path};

use rustix::process::Signal;

use crate::{
    condition::wait_for,
    connection::Connection,
    server::{Program, Server},
};

/// Whether ann is let in with this password; the connection, if she is.
fn ann(server: &Server, password: &str) -> Option<Connection> {
    let mut connection = server.connect();
    let token = format!("ann {password}");
    let answer = connection.ask(format!("set auth 0 0 {}\r\n{token}\r\n", token.len()).as_bytes(), b"\r\n");
    match answer.as_slice() {
        b"STORED\r\n" => Some(connection),
        b"CLIENT_ERROR authentication failure\r\n" => None,
        other => panic!("to a password: {}", other.escape_ascii()),
    }
}

fn start(file: &Path, text: &str) -> Server {
    fs::write(file, text).expect("an auth file");
    let mut server = Server::start(Program::Guira, &["-Y", file.to_str().expect("a path in UTF-8")]);
    ready(&mut server);
    server
}

/// Waits for its greeting: from there on it takes signals.
fn ready(server: &mut Server) {
    if Program::Guira.is_memcached() {
        server.connect().ask(b"mn\r\n", b"\r\n");
    } else {
        wait_for("it is ready", || server.process().complaints().contains("try:").then_some(()));
    }
}

#[test]
fn a_changed_password_holds_from_the_signal_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    let mut server = start(&file, "ann:before\nbob:builder\n");
    let mut inside = ann(&server, "before").expect("the right password");
    fs::write(&file, "bob:builder\nann:after\n").unwrap();
    assert!(ann(&server, "after").is_none(), "nobody has asked for the new file");
    server.process().signal(Signal::HUP);
    let mut new = wait_for("the new password is accepted", || ann(&server, "after"));
    assert!(ann(&server, "before").is_none(), "the old password is still accepted");
    // Whoever is inside stays inside.
    inside.expect(b"set k 0 0 1\r\nx\r\n", b"STORED\r\n");
    new.expect(b"get k\r\n", b"VALUE k 0 1\r\nx\r\nEND\r\n");
    server.assert_alive();
}

#[test]
fn a_file_that_cannot_be_used_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    let mut server = start(&file, "ann:before\n");
    let breakages: [fn(&Path); 3] = [
        |file| fs::write(file, "ann:after\nno colon here\n").unwrap(),
        |file| fs::write(file, "").unwrap(),
        |file| fs::remove_file(file).unwrap(),
    ];
    for (number, breakage) in breakages.iter().enumerate() {
        breakage(&file);
        server.process().signal(Signal::HUP);
        if !Program::Guira.is_memcached() {
            // memcached does not say anything, so there is nothing to wait for.
            let told = || {
                let complaints = server.process().complaints();
                (complaints.lines().filter(|line| line.contains("SIGHUP")).count() > number).then_some(complaints)
            };
            let complaints = wait_for("a line about the file", told);
            let last = complaints.lines().rfind(|line| line.contains("SIGHUP")).unwrap_or_default();
            assert!(last.contains(file.to_str().unwrap()), "{last:?} does not name the file");
        }
        assert!(ann(&server, "before").is_some() && ann(&server, "after").is_none(), "after breakage {number}");
    }
    fs::write(&file, "ann:after\n").unwrap();
    server.process().signal(Signal::HUP);
    wait_for("the new password is accepted", || ann(&server, "after"));
    assert!(ann(&server, "before").is_none(), "the old password is still accepted");
}

#[test]
fn without_a_file_the_signal_changes_nothing() {
    let mut server = Server::start(Program::Guira, &[]);
    ready(&mut server);
    server.process().signal(Signal::HUP);
    server.process().signal(Signal::TERM);
    // It ends by the second signal, and well.
    assert!(server.process().wait().success(), "{}", server.process().complaints());
}

/// A batch that is answered in several goes is parsed several times; were its password checked each time, a file that
/// changed in between would turn the rest of the answers into refusals.
#[test]
fn a_password_counts_when_it_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    let mut server = start(&file, "ann:before\n");
    let value = vec![b'v'; 100_000];
    let set = [b"set large 0 0 100000\r\n".as_slice(), &value, b"\r\n"].concat();
    ann(&server, "before").expect("the right password").expect(&set, b"STORED\r\n");
    let mut slow = server.connect();
    // More than are answered at once, and more than the sockets hold.
    let gets = 400;
    slow.send(&[b"set auth 0 0 10\r\nann before\r\n".to_vec(), b"get large\r\n".repeat(gets)].concat());
    let mut hear = |len: usize| {
        let mut heard = vec![0; len];
        slow.stream().read_exact(&mut heard).expect("answers");
        heard
    };
    assert_eq!(hear(8), b"STORED\r\n");
    fs::write(&file, "ann:after\n").unwrap();
    server.process().signal(Signal::HUP);
    wait_for("the new password is accepted", || ann(&server, "after"));
    let answer = [b"VALUE large 0 100000\r\n".as_slice(), &value, b"\r\nEND\r\n"].concat();
    for number in 0..gets {
        let heard = hear(answer.len());
        assert!(heard == answer, "answer {number} begins with {}", heard[..100].escape_ascii());
    }
}
