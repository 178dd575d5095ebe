//! The power goes while a server with a store works: whatever a disk makes of what was not synced, nothing that counted as stored is
//! lost, nothing comes from nowhere, and the store opens.
//!
//! The server runs above a recorder (crate `guira-powercut`), clients note how far the journal was when they asked and when they were
//! answered, and at many places of the journal a folder is made as it may be after a cut there. What was asked for later has not
//! been; what was answered before has, and what comes between may have been.

mod clocks;
mod contents;
mod copies;
mod faults;
mod judge;
mod lab;
mod memory_file;
mod syncs;

use std::{fs, thread};

use guira_history::Event;
use guira_powercut::{Entry, Recorder, Tree};
use rustix::process::Signal;

use self::{
    judge::{judge, open},
    lab::{Lab, cuts_or, kept_for_a_look},
    syncs::{as_if_synced, is_log, without_syncs},
};
use crate::{
    book::{Act, Book, CLIENTS, KEYS, work_until_killed},
    condition::wait_for,
    server::{Program, Server},
};

/// Bytes of the values, at most: a few hundred fill a memtable.
const VALUE_LEN_MAX: u64 = 6_000;

/// Acts of all clients in the life of a server.
const ACTS: u64 = 1_500;

/// Cuts in the life of a server.
const CUTS_OF_A_LIFE: usize = 30;

/// How often everything is flushed: once in so many acts.
const ACTS_A_FLUSH: u64 = 400;

/// The life of a server under load, from its start to its stop.
fn live(book: &Book, mut server: Server, seed: u64, flushes: bool) {
    let acts = || book.acts();
    let until = acts() + ACTS;
    thread::scope(|scope| {
        for client in 0..CLIENTS as u64 {
            let connection = server.connect();
            scope.spawn(move || work_until_killed(connection, book, 1 + seed * 100 + client));
        }
        let mut connection = server.connect();
        while acts() < until {
            let next = if flushes { until.min(acts() + ACTS_A_FLUSH) } else { until };
            wait_for("clients are at work", || (acts() >= next).then_some(()));
            if flushes {
                let invoked = book.tick();
                connection.expect(b"flush_all\r\n", b"OK\r\n");
                let returned = Some(book.tick());
                for key in 0..KEYS {
                    book.note(key, Event { invoked, returned, is_certain: true, act: Act::Delete(None) });
                }
            }
        }
        server.process().signal(Signal::TERM);
    });
    assert!(server.process().wait().success(), "{}", server.process().complaints());
    let over = book.tick();
    for history in &book.histories {
        let mut history = history.lock().expect("no panic with it");
        history.iter_mut().filter(|event| event.returned.is_none()).for_each(|event| event.returned = Some(over));
    }
}

fn book_beside(recorder: &Recorder) -> Book {
    let journal = recorder.journal();
    Book::beside(VALUE_LEN_MAX, move || fs::metadata(&journal).map_or(0, |journal| journal.len()))
}

/// The first life of a store: what was recorded, and what clients say.
fn recorded(lab: &Lab, durability: &str) -> (Book, Vec<Entry>) {
    let book = book_beside(&lab.recorder);
    live(&book, lab.serve(durability, 0), 1, false);
    let entries = lab.entries_since(0);
    lab.must_be_whole(&Tree::default(), &entries);
    (book, entries)
}

#[test]
fn after_a_power_cut_every_acknowledged_write_is_there_and_nothing_older() {
    const LIVES: u64 = 4;
    if Program::Guira.is_memcached() {
        return;
    }
    let mut lab = Lab::new(1);
    let book = book_beside(&lab.recorder);
    let mut before = Tree::default();
    for life in 0..LIVES {
        let start = lab.recorder.now();
        live(&book, lab.serve("always", 0), life, true);
        let entries = lab.entries_since(start);
        lab.must_be_whole(&before, &entries);
        let cuts = lab.cuts(&entries, cuts_or(CUTS_OF_A_LIFE));
        // The next life goes on from one of them, in the middle of this one.
        let (chosen, mut number, mut next) = (cuts.len() / 2, 0, None);
        lab.cut_at(&before, &entries, &cuts, |cut| {
            let histories = judge(&book, &cut, cut.at)
                .unwrap_or_else(|loss| panic!("life {life}, {}: {loss}", kept_for_a_look(&cut)));
            if number == chosen {
                next = Some((cut.tree.clone(), histories));
            }
            number += 1;
        });
        let (tree, histories) = next.expect("one of them");
        lab.go_on_from(&tree);
        before = tree;
        for (history, remaining) in book.histories.iter().zip(histories) {
            *history.lock().expect("no panic with it") = remaining;
        }
    }
}

#[test]
fn with_an_interval_what_was_answered_before_the_last_sync_is_there() {
    if Program::Guira.is_memcached() {
        return;
    }
    let mut lab = Lab::new(2);
    let (book, entries) = recorded(&lab, "interval:20");
    let cuts = lab.cuts(&entries, cuts_or(CUTS_OF_A_LIFE));
    let mut synced = 0;
    lab.cut_at(&Tree::default(), &entries, &cuts, |cut| {
        synced = cut.log_synced;
        judge(&book, &cut, cut.log_synced).unwrap_or_else(|loss| panic!("{}: {loss}", kept_for_a_look(&cut)));
    });
    assert!(synced > 0, "there were syncs");
}

/// Cuts after which something is missing, or too old, of all that was answered; with `opens` a store that cannot be opened is none of them.
fn losses(lab: &mut Lab, book: &Book, entries: &[Entry], cuts: &[u64], opens: bool) -> usize {
    let mut losses = 0;
    lab.cut_at(&Tree::default(), entries, cuts, |cut| {
        // What is lost is told from a store that cannot be opened.
        if opens {
            open(&cut).unwrap_or_else(|why| panic!("{why}: {}", kept_for_a_look(&cut)));
        }
        if let Err(loss) = judge(book, &cut, cut.at) {
            // What is shown if the test fails.
            println!("cut at {}, {:?}: {loss}", cut.at, cut.choices);
            losses += 1;
        }
    });
    losses
}

/// A store that does not sync is found out, and a recorder that tells of more syncs than there were would be.
#[test]
fn what_was_answered_and_not_synced_is_seen_to_be_lost() {
    const CUTS: usize = 12;
    if Program::Guira.is_memcached() {
        return;
    }
    let mut lab = Lab::new(3);
    let (book, entries) = recorded(&lab, "os");
    let cuts = lab.cuts(&entries, CUTS);
    assert!(losses(&mut lab, &book, &entries, &cuts, true) > 0, "os promises nothing of the kind");
    assert_eq!(losses(&mut lab, &book, &as_if_synced(&entries), &cuts, true), 0);
    let mut lab = Lab::new(4);
    let (book, entries) = recorded(&lab, "always");
    let cuts = lab.cuts(&entries, CUTS);
    // RocksDB itself may find that a log is shorter than it was told.
    assert!(
        losses(&mut lab, &book, &without_syncs(&entries, is_log), &cuts, false) > 0,
        "a store that forgets to sync"
    );
    assert_eq!(losses(&mut lab, &book, &entries, &cuts, true), 0);
}
