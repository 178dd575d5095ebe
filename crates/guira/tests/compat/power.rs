//! The power goes while a server with a store works: whatever a disk makes of what was not synced, nothing that counted as stored is
//! lost, nothing comes from nowhere, and the store opens.
//!
//! The server runs above a recorder (crate `guira-powercut`), clients note how far the journal was when they asked and when they were
//! answered, and at many places of the journal a folder is made as it may be after a cut there. What was asked for later has not
//! been; what was answered before has, and what comes between may have been.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use guira_history::{Event, Violation, check};
use guira_item::{
    Key,
    store::{Generation, Record, Store},
};
use guira_persist::{
    Durability,
    rocks::{OpenError, RocksOptions, RocksStore, StoppedStore, UnixNow},
};
use guira_powercut::{Act as DiskAct, Choices, Dice, Disk, Entry, Fault, Journal, Recorder, Tree};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    book::{Act, Book, CLIENTS, Item, KEYS, STEPS_AN_ACT, work_until_killed},
    condition::wait_for,
    connection::{Connection, show},
    server::{Program, Server},
};

/// Bytes of the values, at most: a few hundred fill a memtable.
const VALUE_LEN_MAX: u64 = 6_000;

/// Acts of all clients in the life of a server.
const ACTS: u64 = 1_500;

/// How often everything is flushed: once in so many acts.
const ACTS_A_FLUSH: u64 = 400;

/// A folder with a recorder below it.
struct Lab {
    place: TempDir,
    folder: PathBuf,
    recorder: Recorder,
    dice: Dice,
}

impl Lab {
    fn new(seed: u64) -> Self {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().canonicalize().expect("a path without links").join("disk");
        fs::create_dir(&folder).expect("a folder");
        let recorder = Recorder::new(&folder).expect("`make test` installs a C compiler");
        Self { place, folder, recorder, dice: Dice::new(seed) }
    }

    fn store(&self) -> String {
        format!("rocksdb:{}", self.folder.join("store").display())
    }

    /// A server before the store, as small as it can be so that memtables fill and files are merged; its clock is set.
    fn serve(&self, durability: &str, clock_s: i64) -> Server {
        let store = self.store();
        let arguments = ["-m", "80", "-t", "2", "--store-memory", "16", "--store", &store, "--durability", durability];
        Server::start_prepared(Program::Guira, &arguments, |command| self.recorder.record(command, clock_s))
    }

    /// What has been recorded since the journal had this length.
    fn entries_since(&self, start: u64) -> Vec<Entry> {
        let journal = Journal::read(&self.recorder.journal()).expect("a journal");
        journal.entries.into_iter().filter(|entry| entry.end > start).collect()
    }

    /// So many places in what was recorded: half of them anywhere, half behind what is no write to a file.
    fn cuts(&mut self, entries: &[Entry], count: usize) -> Vec<u64> {
        let turns: Vec<_> = entries.iter().filter(|entry| !matches!(entry.act, DiskAct::Write { .. })).collect();
        let any = |dice: &mut Dice, of: usize| dice.below(of as u64) as usize;
        let mut cuts: Vec<u64> = (0..count)
            .map(|number| match number % 2 {
                0 => entries[any(&mut self.dice, entries.len())].end,
                _ => turns[any(&mut self.dice, turns.len())].end,
            })
            .collect();
        cuts.sort_unstable();
        cuts
    }

    /// Cuts the power at each of `cuts`, which go up: `look` gets the folder as it is then.
    fn cut_at(&mut self, before: &Tree, entries: &[Entry], cuts: &[u64], mut look: impl FnMut(Cut<'_>)) {
        let mut disk = Disk::with(&self.folder, before);
        let mut syncs = LogSyncs::default();
        let mut left = entries.iter().peekable();
        for at in cuts {
            while let Some(entry) = left.next_if(|entry| entry.end <= *at) {
                disk.apply(entry).expect("as the process did it");
                syncs.apply(entry);
            }
            let choices = Choices::any(&mut self.dice);
            let mut tree = disk.after_cut(&choices);
            if choices.leftovers {
                // RocksDB does not come past some noise at the end of a manifest (`docs/design/0013-power-cuts.md`): there are zeros.
                let zeros = Choices { leftovers: false, names_kept: 1_000, ..choices.clone() };
                let with_zeros = disk.after_cut(&zeros);
                let manifests = tree.0.iter_mut().filter(|(path, _)| is_manifest(path));
                for (path, node) in manifests {
                    *node = with_zeros.0.get(path).unwrap_or(node).clone();
                }
            }
            let folder = self.place.path().join("after");
            tree.write_to(&folder).expect("a folder");
            look(Cut { at: *at, log_synced: syncs.until, choices: &choices, tree: &tree, folder: &folder });
            fs::remove_dir_all(&folder).expect("a folder of ours");
        }
    }

    /// What the recorder has noted is what there is.
    fn must_be_whole(&self, before: &Tree, entries: &[Entry]) {
        let mut disk = Disk::with(&self.folder, before);
        entries.iter().for_each(|entry| disk.apply(entry).expect("as the process did it"));
        let there = Tree::of_folder(&self.folder).expect("a folder");
        assert_eq!(disk.as_seen().differences(&there), Vec::<String>::new(), "the recorder has missed something");
    }

    /// The disk is as a cut has left it.
    fn go_on_from(&self, tree: &Tree) {
        fs::remove_dir_all(&self.folder).expect("a folder of ours");
        tree.write_to(&self.folder).expect("a folder");
    }
}

/// A power cut.
struct Cut<'c> {
    /// The journal's length then.
    at: u64,
    /// When the last sync of a log began that had ended: what was answered before is on disk, whatever the durability.
    log_synced: u64,
    choices: &'c Choices,
    tree: &'c Tree,
    /// What is left.
    folder: &'c Path,
}

/// Follows the syncs of RocksDB's newest log: older ones are synced before it, and alone too, which says nothing of what is newer.
#[derive(Default)]
struct LogSyncs {
    newest: Option<i32>,
    begun: Vec<(u64, u64)>,
    until: u64,
}

impl LogSyncs {
    fn apply(&mut self, entry: &Entry) {
        match &entry.act {
            DiskAct::Open { fd, path, creates: true, .. } if is_log(path) => self.newest = Some(*fd),
            DiskAct::Close(fd) if self.newest == Some(*fd) => self.newest = None,
            DiskAct::SyncBegins(sync, fd) if self.newest == Some(*fd) => self.begun.push((*sync, entry.end)),
            DiskAct::Synced(sync) => {
                let begun = self.begun.iter().position(|(number, _)| number == sync);
                self.until = begun.map_or(self.until, |at| self.until.max(self.begun.swap_remove(at).1));
            }
            _ => {}
        }
    }
}

fn is_manifest(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"MANIFEST-"))
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

fn unix_now() -> UnixNow {
    Arc::new(|| 1)
}

/// What clients can have of a store's item.
type Found = Option<Record<Arc<[u8]>>>;

fn get(store: &RocksStore, name: &str, generation: Generation) -> Found {
    let (told, found) = mpsc::channel();
    let key = Key::new(name.as_bytes()).expect("a key");
    store.get(key, Box::new(move |found| drop(told.send(found))));
    let found = found.recv().expect("it is completed").expect("it can be read");
    found.filter(|record| record.is_live(1, generation))
}

/// Opens what a cut has left, and tells what is under the keys and up to where versions are reserved; or why not.
fn open(cut: &Cut<'_>) -> Result<(Vec<Found>, u64), String> {
    let path = cut.folder.join("store");
    match StoppedStore::open(&path, unix_now()) {
        Ok(stopped) => {
            let Ok(findings) = stopped.read::<std::convert::Infallible>(|_, _| Ok(()), |_| ());
            if findings.defects > 0 {
                return Err(format!("{:?}", findings.told));
            }
        }
        // It was begun, and there is nothing in it; or it is for whoever may change it.
        Err(OpenError::NoStore | OpenError::Torn(_)) => {}
        Err(OpenError::Rocks(line)) if line.contains("Column family not found") => {}
        Err(error) => return Err(format!("looked at, it {error}")),
    }
    let options = RocksOptions::with_memory(16 << 20, Durability::Always, unix_now());
    let store = RocksStore::open(&path, &options).map_err(|error| format!("it {error}"))?;
    if let Some(why) = store.read_only() {
        return Err(why.to_owned());
    }
    let state = store.state();
    let found = (0..KEYS).map(|key| get(&store, &format!("key{key}"), state.generation)).collect();
    store.shut().map_err(|error| error.to_string())?;
    Ok((found, state.versions_reserved))
}

/// What remains of a history if the power goes at `at` and what was answered before `certain` counts as stored.
fn remaining(history: &[Event<Act>], at: u64, certain: u64) -> Vec<Event<Act>> {
    let begun = history.iter().filter(|event| Book::position_at(event.invoked) < at);
    let kept = begun.filter_map(|event| {
        let is_answered = |until| event.returned.is_some_and(|answered| Book::position_at(answered) <= until);
        match event.act {
            // What was only seen is gone with it.
            Act::Get(_) if !is_answered(certain) => None,
            _ => {
                let returned = event.returned.filter(|_| is_answered(at));
                Some(Event { is_certain: event.is_certain && is_answered(certain), returned, ..event.clone() })
            }
        }
    });
    kept.collect()
}

fn version_told(event: &Event<Act>) -> Option<u64> {
    match event.act {
        Act::Set(_, version) => version,
        Act::Cas(_, _, Some(Ok(version))) => Some(version),
        Act::Get(found) => found.map(|(_, version)| version),
        _ => None,
    }
}

/// Keeps what a cut has left, and tells where, and which cut it was.
fn kept_for_a_look(cut: &Cut<'_>) -> String {
    let kept = env::temp_dir().join("guira-after-a-cut");
    fs::remove_dir_all(&kept).ok();
    cut.tree.write_to(&kept).ok();
    format!("{:?} at {}, in {}", cut.choices, cut.at, kept.display())
}

/// Whether what a cut has left goes with what clients were told, if what was answered before `certain` counts as stored. What was not
/// answered before the cut, and may have been, is noted as over.
fn judge(book: &Book, cut: &Cut<'_>, certain: u64) -> Result<Vec<Vec<Event<Act>>>, String> {
    let (found, versions_reserved) = open(cut)?;
    let over = book.tick();
    let mut histories = Vec::new();
    for (key, (found, history)) in found.iter().zip(&book.histories).enumerate() {
        let mut history = remaining(&history.lock().expect("no panic with it"), cut.at, certain);
        let told = history.iter().filter(|event| event.returned.is_some()).filter_map(version_told).max();
        if told.is_some_and(|told| told > versions_reserved) {
            return Err(format!("key{key}: {told:?} was told, and versions go on from {versions_reserved}"));
        }
        history.iter_mut().filter(|event| event.returned.is_none()).for_each(|event| event.returned = Some(over));
        let seen = found.as_ref().map(|record| {
            let text = String::from_utf8_lossy(&record.value);
            let value = text.split(' ').next().and_then(|number| number.parse().ok());
            (value.unwrap_or_else(|| panic!("no number in {text:?}")), record.version)
        });
        let (invoked, returned) = (book.tick(), Some(book.tick()));
        history.push(Event { invoked, returned, is_certain: true, act: Act::Get(seen) });
        match check(&Item, &history, STEPS_AN_ACT * history.len() as u64) {
            Ok(()) => {}
            Err(violation @ Violation::Impossible { .. }) => return Err(format!("key{key}: {violation:?}")),
            Err(Violation::OutOfSteps) => panic!("key{key}: it took too long to find out"),
        }
        histories.push(history);
    }
    Ok(histories)
}

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

/// Cuts in the life of a server, unless `GUIRA_POWER_CUTS` says how many.
fn cuts_of_a_life() -> usize {
    const CUTS: usize = 30;
    env::var("GUIRA_POWER_CUTS").map_or(CUTS, |cuts| cuts.parse().expect("a number of cuts"))
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
        let cuts = lab.cuts(&entries, cuts_of_a_life());
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
    let cuts = lab.cuts(&entries, cuts_of_a_life());
    let mut synced = 0;
    lab.cut_at(&Tree::default(), &entries, &cuts, |cut| {
        synced = cut.log_synced;
        judge(&book, &cut, cut.log_synced).unwrap_or_else(|loss| panic!("{}: {loss}", kept_for_a_look(&cut)));
    });
    assert!(synced > 0, "there were syncs");
}

/// The same, as if each write had been synced at once.
fn as_if_synced(entries: &[Entry]) -> Vec<Entry> {
    let synced = |(number, entry): (usize, &Entry)| match entry.act {
        DiskAct::Write { fd, .. } => {
            let sync = u64::MAX - number as u64;
            let acts = [entry.act.clone(), DiskAct::SyncBegins(sync, fd), DiskAct::Synced(sync)];
            // Where the write ended they all have.
            acts.into_iter().zip([2, 1, 0]).map(|(act, before)| Entry { end: entry.end - before, act }).collect()
        }
        _ => vec![entry.clone()],
    };
    entries.iter().enumerate().flat_map(synced).collect()
}

/// The same, as if logs had never been synced.
fn without_log_syncs(entries: &[Entry]) -> Vec<Entry> {
    let (mut logs, mut dropped) = (Vec::new(), Vec::new());
    let is_kept = |entry: &&Entry| match &entry.act {
        DiskAct::Open { fd, path, .. } => {
            logs.retain(|log| log != fd);
            logs.extend(is_log(path).then_some(*fd));
            true
        }
        DiskAct::SyncBegins(sync, fd) if logs.contains(fd) => {
            dropped.push(*sync);
            false
        }
        DiskAct::Synced(sync) => !dropped.contains(sync),
        _ => true,
    };
    entries.iter().filter(is_kept).cloned().collect()
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
    assert!(losses(&mut lab, &book, &without_log_syncs(&entries), &cuts, false) > 0, "a store that forgets to sync");
    assert_eq!(losses(&mut lab, &book, &entries, &cuts, true), 0);
}

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

const DAY_S: i64 = 86_400;

fn stop(mut server: Server) {
    server.process().signal(Signal::TERM);
    assert!(server.process().wait().success(), "{}", server.process().complaints());
}

/// The number behind this flag in the answer to a meta command; `None` for a miss.
fn flag(connection: &mut Connection, request: &str, flag: char) -> Option<i64> {
    let answer = connection.ask(format!("{request}\r\n").as_bytes(), b"\r\n");
    let text = String::from_utf8(answer).expect("text");
    let number = text.split([' ', '\r']).find_map(|word| word.strip_prefix(flag)?.parse().ok());
    assert!(number.is_some() || text == "EN\r\n", "{request}: {text}");
    number
}

#[test]
fn a_restart_with_another_clock_loses_nothing_and_times_end_by_the_clock() {
    if Program::Guira.is_memcached() {
        return;
    }
    let lab = Lab::new(20);
    let ttl = |connection: &mut Connection, key: &str| flag(connection, &format!("mg {key} t"), 't');
    let set = |connection: &mut Connection, key: &str, ttl_s: i64| {
        let answer = connection.ask(format!("ms {key} 1 c T{ttl_s}\r\nx\r\n").as_bytes(), b"\r\n");
        let text = String::from_utf8(answer).expect("text");
        let version = text.trim_end().strip_prefix("HD c").and_then(|version| version.parse::<i64>().ok());
        version.unwrap_or_else(|| panic!("{text}"))
    };
    let is_about =
        |found: Option<i64>, expected: i64| found.is_some_and(|found| (expected - 600..=expected).contains(&found));
    let server = lab.serve("always", 0);
    let mut client = server.connect();
    let first = [("short", 5_000), ("long", 50_000), ("for ever", 0)].map(|(key, ttl_s)| {
        let key = key.replace(' ', "-");
        (set(&mut client, &key, ttl_s), key)
    });
    stop(server);
    // Forward.
    let server = lab.serve("always", 10_000);
    let mut client = server.connect();
    assert_eq!(ttl(&mut client, "short"), None, "its time has come");
    let found = ttl(&mut client, "long");
    assert!(is_about(found, 40_000), "{found:?}");
    assert_eq!(flag(&mut client, "mg for-ever t c", 'c'), Some(first[2].0), "as it was");
    let second = set(&mut client, "later", 5_000);
    let again = set(&mut client, "long", 50_000);
    assert!(again > first[1].0, "{again} after {first:?}");
    stop(server);
    // And back, a day before all of it.
    let server = lab.serve("always", -DAY_S);
    let mut client = server.connect();
    let found = ttl(&mut client, "long");
    assert!(is_about(found, 50_000 + 10_000 + DAY_S), "{found:?}");
    let found = ttl(&mut client, "later");
    assert!(is_about(found, 5_000 + 10_000 + DAY_S), "{found:?}");
    assert_eq!(flag(&mut client, "mg for-ever t c", 'c'), Some(first[2].0), "as it was");
    for (key, before) in [("long", again), ("later", second), ("for-ever", first[2].0)] {
        let version = set(&mut client, key, 0);
        assert!(version > before, "{key}: {version} after {before}");
    }
    stop(server);
    let server = lab.serve("always", 0);
    let mut client = server.connect();
    for key in ["long", "later", "for-ever"] {
        assert_eq!(ttl(&mut client, key), Some(-1), "{key}: has no end by now");
    }
    stop(server);
}

#[test]
fn a_flush_that_is_to_come_comes_by_the_clock_and_once() {
    if Program::Guira.is_memcached() {
        return;
    }
    let lab = Lab::new(21);
    let server = lab.serve("always", 0);
    let mut client = server.connect();
    client.expect(b"set old 0 0 1\r\nx\r\n", b"STORED\r\n");
    client.expect(b"flush_all 5000\r\n", b"OK\r\n");
    stop(server);
    let server = lab.serve("always", -DAY_S);
    server.connect().expect(b"get old\r\n", b"VALUE old 0 1\r\nx\r\nEND\r\n");
    stop(server);
    // It is due while nobody serves.
    let server = lab.serve("always", 10_000);
    let mut client = server.connect();
    client.expect(b"get old\r\n", b"END\r\n");
    client.expect(b"set new 0 0 1\r\ny\r\n", b"STORED\r\n");
    stop(server);
    for clock_s in [0, 10_000, -DAY_S] {
        let server = lab.serve("always", clock_s);
        server.connect().expect(b"get old new\r\n", b"VALUE new 0 1\r\ny\r\nEND\r\n");
        stop(server);
    }
}
