//! One sync, or one write, that fails while clients write: what was acknowledged is there, and nothing is acknowledged that is not.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
};

use guira_item::store::Generation;
use guira_persist::{
    Durability,
    rocks::{RocksOptions, RocksStore},
};
use guira_powercut::{Fault, Tree};
use rustix::process::Signal;

use super::{
    VALUE_LEN_MAX,
    judge::{get, unix_now},
    lab::Lab,
};
use crate::{
    book::CLIENTS,
    condition::wait_for,
    connection::{Connection, show},
    server::{Program, Server},
};

/// Writes one number after the other under a key of its own until it is refused, or `is_over`; tells what was answered with `STORED`, and when,
/// and the first refusal.
fn count_until_refused(
    server: &Server,
    lab: &Lab,
    client: usize,
    is_over: &AtomicBool,
    stored: &AtomicU64,
) -> (Vec<(u64, u64)>, Option<String>) {
    let mut connection = server.connect();
    let mut acknowledged = Vec::new();
    let filling = "x".repeat(VALUE_LEN_MAX as usize);
    for number in 1.. {
        let value = format!("{number} {filling}");
        let request = format!("set client{client} 0 0 {}\r\n{value}\r\n", value.len());
        match connection.ask(request.as_bytes(), b"\r\n") {
            answer if answer == b"STORED\r\n" => acknowledged.push((number, lab.recorder.now())),
            answer => return (acknowledged, Some(String::from_utf8(answer).expect("text"))),
        }
        stored.fetch_add(1, SeqCst);
        if is_over.load(SeqCst) {
            break;
        }
    }
    (acknowledged, None)
}

fn number_in(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).expect("text");
    let number = text.split(' ').next().and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no number in {text:?}"))
}

fn number_at(connection: &mut Connection, client: usize) -> u64 {
    let answer = connection.ask(format!("get client{client}\r\n").as_bytes(), b"END\r\n");
    let line = answer.iter().position(|byte| *byte == b'\n').expect("a line");
    if answer.len() == line + 1 { 0 } else { number_in(&answer[line + 1..]) }
}

/// Has something fail, once, while clients write; what must come of it: reads go on, a restart has what was acknowledged, and so has
/// the disk after a power cut.
fn fail_once(seed: u64, fault: Fault<'_>, must_refuse: bool) {
    const CUTS: usize = 12;
    let mut lab = Lab::new(seed);
    let mut server = lab.serve("always", 0);
    let (is_over, stored) = (AtomicBool::new(false), AtomicU64::new(0));
    let told: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (server, lab, is_over, stored) = (&server, &lab, &is_over, &stored);
                scope.spawn(move || count_until_refused(server, lab, client, is_over, stored))
            })
            .collect();
        wait_for("clients are at work", || (stored.load(SeqCst) > 200).then_some(()));
        lab.recorder.inject(fault).expect("a file");
        wait_for("the fault", || lab.recorder.has_failed().then_some(()));
        let then = stored.load(SeqCst);
        // RocksDB may get over it, but not where clients wait for it.
        let is_enough = || clients.iter().all(|client| client.is_finished()) || stored.load(SeqCst) > then + 200;
        wait_for("the fault is felt, or is none", || is_enough().then_some(()));
        is_over.store(true, SeqCst);
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    let refused = told.iter().filter_map(|(_, refusal)| refusal.as_deref());
    let refusals: Vec<&str> = refused.collect();
    assert!(refusals.len() == CLIENTS || (refusals.is_empty() && !must_refuse), "{fault:?}: {refusals:?}");
    assert!(refusals.iter().all(|line| line.starts_with("SERVER_ERROR ")), "{refusals:?}");
    let last = |client: usize| told[client].0.last().map_or(0, |(number, _)| *number);
    // The one that was refused may be there: nobody said that it is not.
    let is_there = |client, number| (last(client)..=last(client) + 1).contains(&number);
    let mut connection = server.connect();
    for client in 0..CLIENTS {
        let number = number_at(&mut connection, client);
        assert!(is_there(client, number), "client{client}: {number} is read, {} was stored", last(client));
    }
    if !refusals.is_empty() {
        for change in ["set other 0 0 1\r\nx\r\n", "delete client0\r\n", "incr client1 1\r\n", "flush_all\r\n"] {
            let answer = connection.ask(change.as_bytes(), b"\r\n");
            assert!(answer.starts_with(b"SERVER_ERROR "), "{change:?}: {}", show(&answer));
        }
        let complaints = server.process().complaints();
        let lines = complaints.lines().filter(|line| line.contains("no writes until the store is restarted"));
        assert_eq!(lines.count(), 1, "{complaints}");
    }
    server.process().signal(Signal::TERM);
    server.process().wait();
    let entries = lab.entries_since(0);
    let mut cuts = lab.cuts(&entries, CUTS);
    cuts.push(entries.last().expect("a journal").end);
    lab.cut_at(&Tree::default(), &entries, &cuts, |cut| {
        let options = RocksOptions::with_memory(16 << 20, Durability::Always, unix_now());
        let store = RocksStore::open(&cut.folder.join("store"), &options).expect("opens");
        for (client, (acknowledged, _)) in told.iter().enumerate() {
            let before =
                acknowledged.iter().take_while(|(_, at)| *at <= cut.at).last().map_or(0, |(number, _)| *number);
            let found = get(&store, &format!("client{client}"), Generation(0));
            let number = found.map_or(0, |record| number_in(&record.value));
            let at_most = last(client) + 1;
            assert!((before..=at_most).contains(&number), "{fault:?}, {:?}: {number} after {before}", cut.choices);
        }
    });
    let server = lab.serve("always", 0);
    let mut connection = server.connect();
    for client in 0..CLIENTS {
        assert!(is_there(client, number_at(&mut connection, client)), "client{client} after a restart");
    }
    connection.expect(b"set other 0 0 1\r\nx\r\n", b"STORED\r\n");
}

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

#[test]
fn a_sync_that_fails_once_ends_writing_until_a_restart() {
    if !Program::Guira.is_memcached() {
        fail_once(10, Fault { operation: "sync", errno: EIO, suffix: ".log" }, true);
    }
}

#[test]
fn a_write_that_fails_once_ends_writing_until_a_restart() {
    if !Program::Guira.is_memcached() {
        fail_once(11, Fault { operation: "write", errno: ENOSPC, suffix: ".log" }, true);
    }
}

#[test]
fn a_table_that_could_not_be_written_loses_nothing() {
    if !Program::Guira.is_memcached() {
        fail_once(12, Fault { operation: "sync", errno: EIO, suffix: ".sst" }, false);
        fail_once(13, Fault { operation: "write", errno: ENOSPC, suffix: ".sst" }, false);
    }
}
