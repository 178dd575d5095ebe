//! The power goes while a server saves its items (`-e`), loads them or serves: a file is whole or refused, and once something was
//! answered no file comes back that has what was true before.

use std::{fs, path::Path};

use guira_powercut::{Act, Entry, Tree};
use rustix::process::Signal;

use super::{
    contents::Contents,
    lab::{Lab, cuts_or, kept_for_a_look, stop},
    syncs::without_syncs,
};
use crate::server::{Program, Server, free_port};

const ITEMS: usize = 300;

/// Lives of a server; each begins with what the one before has saved.
const LIVES: u64 = 3;

/// Places of the journal at which the power is cut, besides those where a life begins or ends.
const CUTS: usize = 40;

/// Cuts at the same place, with other choices.
const CUTS_THERE: usize = 4;

const FILE: &str = "items";
const NEXT: &str = "items.next";

fn path_in(folder: &Path) -> String {
    folder.join(FILE).to_str().expect("a path in text").to_owned()
}

fn start(lab: &Lab) -> Server {
    let path = path_in(&lab.folder);
    Server::start_prepared(Program::Guira, &["-e", &path], |command| lab.recorder.record(command, 0))
}

/// Moments of a life, as lengths of the journal, and what it has left.
struct Life {
    started: u64,
    /// Something had been answered.
    answered: u64,
    /// It was about to be told to stop.
    stopped: u64,
    ended: u64,
    saved: Contents,
}

fn live(lab: &Lab, number: u64) -> Life {
    let started = lab.recorder.now();
    let mut server = start(lab);
    let mut client = server.connect();
    client.expect(b"mn\r\n", b"MN\r\n");
    let answered = lab.recorder.now();
    let told = server.process().complaints();
    let expected = if number == 0 { "no file yet".to_owned() } else { format!("{ITEMS} items are back") };
    assert!(told.contains(&expected), "{told}");
    for key in 0..ITEMS {
        let value = format!("{number} {key} ").repeat(key * 7 % 900);
        client.expect(format!("set key{key} {key} 0 {}\r\n{value}\r\n", value.len()).as_bytes(), b"STORED\r\n");
    }
    drop(client);
    let stopped = lab.recorder.now();
    stop(server);
    let ended = lab.recorder.now();
    let saved = Contents::of_file(&lab.folder.join(FILE)).expect("a memory file").expect("it was saved");
    assert_eq!(saved.0.len(), ITEMS);
    Life { started, answered, stopped, ended, saved }
}

/// What may be under the name of the file if the power goes at a place: what this life has saved, and whether it may be nothing.
struct Promise<'l> {
    saved: Option<&'l Contents>,
    may_be_nothing: bool,
}

fn promised(lives: &[Life], at: u64) -> Promise<'_> {
    let number = lives.iter().rposition(|life| life.started <= at).expect("the first begins with the journal");
    let life = &lives[number];
    let before = number.checked_sub(1).map(|before| &lives[before].saved);
    let (saved, may_be_nothing) = match at {
        at if at >= life.ended => (Some(&life.saved), false),
        at if at > life.stopped => (Some(&life.saved), true),
        at if at >= life.answered => (None, true),
        // Until it is removed.
        at => (before, at > life.started || before.is_none()),
    };
    Promise { saved, may_be_nothing }
}

/// How many cuts have left what.
#[derive(Default, Debug)]
struct Tally {
    nothing: usize,
    whole: usize,
    /// Some of the next file, and not the file.
    under_way: usize,
    /// An old file would have come back.
    removed: usize,
    /// Something under the name of the file that is none.
    torn: usize,
    /// What was there and should not have been, or the other way round.
    losses: Vec<String>,
}

/// What a server says that is started with what a cut has left; it is to serve so many items.
fn serves(folder: &Path, items: usize) -> Result<(), String> {
    let mut server = Server::start(Program::Guira, &["-e", &path_in(folder)]);
    server.connect().expect(b"mn\r\n", b"MN\r\n");
    let told = server.process().complaints();
    let expected = if items == 0 { "no file yet".to_owned() } else { format!("{items} items are back") };
    match told.contains(&expected) && server.stat("curr_items") == items as u64 && !folder.join(FILE).exists() {
        true => Ok(()),
        false => Err(told),
    }
}

/// A server that is started with what is no whole file says so in a line, and serves nothing.
fn is_refused(folder: &Path) -> bool {
    let path = path_in(folder);
    let before = fs::read(&path).expect("a file");
    let ended = Program::Guira.ends(&["-l", "127.0.0.1", "-p", &free_port().to_string(), "-e", &path]);
    let line = ended.stderr.lines().last().unwrap_or_default();
    let is_told = line.contains("is cut short or damaged") || line.contains("is no memory file of guira's");
    ended.status.code() == Some(1) && is_told && fs::read(&path).is_ok_and(|after| after == before)
}

/// Cuts the power, and judges what is left; with `starts` a server is started with it.
fn cut_lives(lab: &mut Lab, lives: &[Life], entries: &[Entry], cuts: &[u64], starts: bool) -> Tally {
    let mut tally = Tally::default();
    lab.cut_at(&Tree::default(), entries, cuts, |cut| {
        let Promise { saved, may_be_nothing } = promised(lives, cut.at);
        let mut judge = || {
            let found = match Contents::of_file(&cut.folder.join(FILE)) {
                Ok(found) => found,
                Err(error) => {
                    tally.torn += 1;
                    assert!(is_refused(cut.folder), "half a file is taken for one: {}", kept_for_a_look(&cut));
                    return Err(error.to_string());
                }
            };
            match &found {
                None if !may_be_nothing => return Err("it was saved".to_owned()),
                Some(found) if saved != Some(found) => return Err("it has what is no longer true".to_owned()),
                Some(_) => tally.whole += 1,
                None if cut.tree.file(NEXT).is_some_and(|next| !next.is_empty()) => tally.under_way += 1,
                None if cut.at > lives[0].ended && saved.is_none() => tally.removed += 1,
                None => tally.nothing += 1,
            }
            if starts { serves(cut.folder, found.map_or(0, |found| found.0.len())) } else { Ok(()) }
        };
        if let Err(loss) = judge() {
            // One that nobody expects is kept.
            let kept = if starts { kept_for_a_look(&cut) } else { String::new() };
            tally.losses.push(format!("{loss}: {kept}"));
        }
    });
    tally
}

#[test]
fn a_memory_file_is_whole_or_not_there_and_none_comes_back_once_something_was_answered() {
    if Program::Guira.is_memcached() {
        return;
    }
    let mut lab = Lab::new(40);
    let lives: Vec<_> = (0..LIVES).map(|number| live(&lab, number)).collect();
    let entries = lab.entries_since(0);
    lab.must_be_whole(&Tree::default(), &entries);
    let mut cuts = lab.cuts(&entries, cuts_or(CUTS));
    for Life { answered, stopped, ended, .. } in &lives {
        cuts.extend([*answered, *stopped, *ended].map(|at| [at; CUTS_THERE]).as_flattened());
    }
    cuts.sort_unstable();
    let tally = cut_lives(&mut lab, &lives, &entries, &cuts, true);
    assert_eq!((&tally.losses, tally.torn), (&Vec::new(), 0));
    assert!(tally.whole > 0 && tally.under_way > 0 && tally.removed > 0 && tally.nothing > 0, "{tally:?}");
    // One that does not sync what it has written has half a file under the name, which no server takes for one.
    let tally = cut_lives(&mut lab, &lives, &without_syncs(&entries, |path| path.ends_with(NEXT)), &cuts, false);
    assert!(tally.torn > 0, "{tally:?}");
    // And one that does not sync the names finds an old file after it has answered, or none after it has saved one.
    let top = lab.folder.clone();
    let tally = cut_lives(&mut lab, &lives, &without_syncs(&entries, |path| path == top), &cuts, false);
    for loss in ["no longer true", "it was saved"] {
        assert!(tally.losses.iter().any(|told| told.starts_with("it") && told.contains(loss)), "{loss}: {tally:?}");
    }
}

/// A server removed the file and was killed before that was on disk; the next one found none, and answered. Then the power went, and
/// the file was back, older than what had been answered.
#[test]
fn a_file_that_was_removed_by_one_that_was_killed_does_not_come_back_either() {
    if Program::Guira.is_memcached() {
        return;
    }
    let mut lab = Lab::new(41);
    live(&lab, 0);
    let killed = lab.recorder.now();
    let mut server = start(&lab);
    server.connect().expect(b"mn\r\n", b"MN\r\n");
    server.process().signal(Signal::KILL);
    server.process().wait();
    let next = lab.recorder.now();
    let server = start(&lab);
    server.connect().expect(b"set key0 0 0 3\r\nnew\r\n", b"STORED\r\n");
    let answered = lab.recorder.now();
    drop(server);
    // As if it had been killed when it had removed the file.
    let entries = lab.entries_since(0);
    let file = lab.folder.join(FILE);
    let removes = |entry: &&Entry| entry.end > killed && entry.act == Act::Remove(file.clone());
    let removed = entries.iter().find(removes).expect("it was removed").end;
    assert!(removed < next);
    let of_killed: Vec<_> = entries.into_iter().filter(|entry| entry.end <= removed || entry.end > next).collect();
    let (mut back, mut gone) = (0, 0);
    for at in [removed, answered] {
        lab.cut_at(&Tree::default(), &of_killed, &[at; 5 * CUTS_THERE], |cut| {
            let is_back = cut.tree.file(FILE).is_some();
            assert!(!(is_back && at == answered), "it is back: {}", kept_for_a_look(&cut));
            *(if is_back { &mut back } else { &mut gone }) += 1;
        });
    }
    assert!(back > 0 && gone > 5 * CUTS_THERE, "{back} and {gone}");
}
