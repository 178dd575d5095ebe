//! A server with a store behind it (`--store rocksdb:PATH`), killed (SIGKILL) again and again in the middle of its work: nothing that
//! was acknowledged is lost, nothing comes from nowhere, nothing is older than what was seen.

use std::{
    env, fs,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{
    book::Book,
    restarts,
    server::{Program, Server, free_port},
};

/// Acts of all clients together between a start and the next kill, at least and besides.
const ACTS_MIN: u64 = 60;
const ACTS_MORE: u64 = 200;

/// Kills, unless `GUIRA_KILL_CYCLES` says how many.
const CYCLES: u64 = 20;

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
        book.fill(&mut server, cycle, || book.wait_for_acts(ACTS_MIN + cycle * 7919 % ACTS_MORE));
    }
    // What is left, once more from the disk.
    book.check(&Server::start(Program::Guira, &arguments(&store, "always")));
}

#[test]
fn what_was_stored_is_there_after_a_stop_with_flags_times_and_versions() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = store_in(&folder);
    let starts = ["always", "interval:60000", "os"].map(|durability| arguments(&store, durability));
    restarts::what_was_stored_is_there_with_flags_times_and_versions(&starts.each_ref().map(|start| &start[..]));
}

#[test]
fn a_flush_outlives_the_process_and_so_does_one_that_is_to_come() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = store_in(&folder);
    restarts::a_flush_outlives_the_process_and_so_does_one_that_is_to_come(&arguments(&store, "always"));
}

#[cfg(not(feature = "cassandra"))]
#[test]
fn a_store_that_was_not_built_in_is_told_in_one_line() {
    let ended = Program::Guira.ends(&["-p", &free_port().to_string(), "-U", "0", "--store", "cassandra:127.0.0.1"]);
    let wanted = "build with --features cassandra";
    assert!(!ended.status.success() && ended.stderr.lines().count() == 1, "{}", ended.stderr);
    assert!(ended.stderr.contains(wanted), "{}", ended.stderr);
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
