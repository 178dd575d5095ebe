//! The power goes while a store is copied, restored, dumped or loaded: what has its final name is whole, what was told to be done is
//! there, the source is what it was, and whoever runs the command again has what he wanted.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
};

use guira_persist::rocks::OpenError;
use guira_powercut::{Act, Choices, Entry, Tree};

use super::{
    contents::Contents,
    lab::{Cut, Lab, cuts_or, kept_for_a_look, stop},
    syncs::{is_log, without_syncs},
};
use crate::{
    condition::wait_for,
    server::{Ended, Process, Program, Server},
};

/// Items of a store: some of them in tables, some in a log.
const ITEMS: usize = 500;

/// Places of a journal at which the power is cut, besides those where names are given.
const CUTS: usize = 24;

/// Cuts at the same place, with other choices.
const CUTS_THERE: usize = 4;

/// What is made.
const TO: &str = "to";

fn value_of(key: usize) -> Vec<u8> {
    // Incompressible enough to take blocks.
    (0..key * 7 % 3_000).flat_map(|at| ((key * 2_654_435_761 + at * 40_503) as u32).to_le_bytes()).collect()
}

fn fill(server: &Server) {
    let mut client = server.connect();
    client.expect(b"set flushed 0 0 1\r\nx\r\n", b"STORED\r\n");
    client.expect(b"flush_all\r\n", b"OK\r\n");
    for key in 0..ITEMS {
        let value = value_of(key);
        let head = format!("ms key{key} {} F{key} T{}\r\n", value.len(), key % 2 * 50_000);
        client.expect(&[head.as_bytes(), &value, b"\r\n"].concat(), b"HD\r\n");
    }
    client.expect(b"md key9 I\r\n", b"HD\r\n");
}

/// The store of a lab with items in it, all of it on disk; what it has.
fn filled(lab: &Lab) -> Contents {
    let store = lab.store();
    let arguments = ["-m", "80", "--store-memory", "16", "--store", &store, "--durability", "os"];
    let server = Server::start(Program::Guira, &arguments);
    fill(&server);
    stop(server);
    let (contents, _) = Contents::of_store(&lab.folder.join("store")).expect("a store");
    assert_eq!(contents.0.len(), ITEMS);
    contents
}

fn run(mut command: Command, arguments: &[String]) -> Ended {
    command.arg("store").args(arguments).stdin(Stdio::null());
    Process::start(command).end()
}

/// Runs `guira store`, not recorded.
fn tool(arguments: &[String]) -> Ended {
    run(Command::new(Program::Guira.path()), arguments)
}

#[track_caller]
fn must_do(ended: &Ended) {
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
}

/// A command that names what it makes when it is whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Making {
    Backup,
    Restore,
    Dump,
}

impl Making {
    /// What it is made of.
    fn source(self) -> &'static str {
        if self == Self::Restore { "copy" } else { "store" }
    }

    fn arguments(self, folder: &Path) -> Vec<String> {
        let text = |name: &str| folder.join(name).to_str().expect("a path in text").to_owned();
        let store = |name: &str| format!("rocksdb:{}", text(name));
        match self {
            Self::Backup => vec!["backup".into(), store(self.source()), text(TO)],
            Self::Restore => vec!["restore".into(), text(self.source()), store(TO)],
            Self::Dump => vec!["dump".into(), store(self.source()), text(TO)],
        }
    }

    /// What is under the final name in this folder, if there is something.
    fn made(self, folder: &Path) -> Result<Option<Contents>, String> {
        let to = folder.join(TO);
        if self == Self::Dump {
            return Contents::of_file(&to).map_err(|error| error.to_string());
        }
        if !to.exists() {
            return Ok(None);
        }
        let (contents, state) = Contents::of_store(&to).map_err(|error| format!("it {error}"))?;
        let (_, before) = Contents::of_store(&folder.join(self.source())).map_err(|error| error.to_string())?;
        if self == Self::Restore && state.versions_reserved < before.versions_reserved + (1 << 24) {
            return Err(format!("versions go on from {}", state.versions_reserved));
        }
        Ok(Some(contents))
    }
}

/// How many cuts have left what.
#[derive(Default, Debug)]
struct Tally {
    /// Nothing was begun.
    nothing: usize,
    /// It had not its name yet.
    under_way: usize,
    /// It had its name, and nobody had been told.
    named: usize,
    /// It had been told to be there.
    told: usize,
    losses: Vec<String>,
}

/// A loss in a line; one that nobody expects is kept.
fn loss_told(loss: &str, cut: &Cut<'_>, is_unexpected: bool) -> String {
    if is_unexpected { format!("{loss}: {}", kept_for_a_look(cut)) } else { loss.to_owned() }
}

/// Whether all that was in `source` is what it was.
fn source_is_unchanged(before: &Tree, after: &Tree, source: &str) -> Result<(), String> {
    let of_source = |tree: &Tree| {
        let own = tree.0.iter().filter(|(path, _)| path.starts_with(source));
        Tree(own.map(|(path, node)| (path.clone(), node.clone())).collect())
    };
    let differences = of_source(before).differences(&of_source(after));
    if differences.is_empty() { Ok(()) } else { Err(format!("the source has changed: {differences:?}")) }
}

fn is_begun(tree: &Tree) -> bool {
    tree.0.keys().any(|path| path.starts_with("to.next"))
}

/// Something that was made above the recorder.
struct Made {
    making: Making,
    /// What was there before.
    before: Tree,
    /// What is to be in it.
    contents: Contents,
    /// The journal's length when it was told to be there.
    ended: u64,
}

impl Made {
    /// Cuts the power, and judges what is left. With `goes_on` the same command is run again then.
    fn cut(&self, lab: &Lab, entries: &[Entry], cuts: &[(u64, Choices)], goes_on: bool) -> Tally {
        let Self { making, before, contents, ended } = self;
        let mut tally = Tally::default();
        lab.cut_with(before, entries, cuts, |cut| {
            let mut judge = || {
                source_is_unchanged(before, cut.tree, making.source())?;
                let made = making.made(cut.folder)?;
                match &made {
                    Some(made) if made != contents => return Err(format!("{} of its items", made.0.len())),
                    None if cut.at >= *ended => return Err("it was told to be there".to_owned()),
                    None if is_begun(cut.tree) => tally.under_way += 1,
                    None => tally.nothing += 1,
                    Some(_) if cut.at < *ended => tally.named += 1,
                    Some(_) => tally.told += 1,
                }
                if goes_on {
                    let again = tool(&making.arguments(cut.folder));
                    match made {
                        None if !again.status.success() => return Err(format!("again: {}", again.stderr)),
                        Some(_) if !again.stderr.contains("is there already") => {
                            return Err(format!("again, although it is there: {}{}", again.stdout, again.stderr));
                        }
                        _ => {}
                    }
                    if making.made(cut.folder)?.as_ref() != Some(contents) {
                        return Err("again, it has not all items".into());
                    }
                    if made.is_none() && cut.folder.join("to.next").exists() {
                        return Err("something was left behind".into());
                    }
                }
                Ok(())
            };
            if let Err(loss) = judge() {
                tally.losses.push(loss_told(&loss, &cut, goes_on));
            }
        });
        tally
    }
}

/// Where the power is cut: anywhere, where the name is given, and behind the end.
fn places(lab: &mut Lab, entries: &[Entry], ended: u64) -> Vec<(u64, Choices)> {
    let to = lab.folder.join(TO);
    let named = entries.iter().position(|entry| matches!(&entry.act, Act::Rename(_, new) if *new == to));
    let named = named.expect("it was given its name");
    let mut cuts = lab.cuts(entries, cuts_or(CUTS));
    for entry in [entries[named - 1].end, entries[named].end, ended] {
        cuts.extend([entry; CUTS_THERE]);
    }
    let mut cuts = lab.any_at(&cuts);
    cuts.extend(
        [entries[named].end, ended]
            .into_iter()
            .flat_map(|at| [Choices::all_kept(), Choices::none_kept()].map(|choices| (at, choices))),
    );
    cuts.sort_by_key(|(at, _)| *at);
    cuts
}

fn a_power_cut_leaves_it_whole_or_not_there(seed: u64, making: Making) {
    if Program::Guira.is_memcached() {
        return;
    }
    let mut lab = Lab::new(seed);
    let contents = filled(&lab);
    if making == Making::Restore {
        let copy = lab.folder.join("copy").display().to_string();
        must_do(&tool(&["backup".into(), lab.store(), copy]));
    }
    let before = Tree::of_folder(&lab.folder).expect("a folder");
    let mut command = Command::new(Program::Guira.path());
    lab.recorder.record(&mut command, 0);
    must_do(&run(command, &making.arguments(&lab.folder)));
    let ended = lab.recorder.now();
    let entries = lab.entries_since(0);
    lab.must_be_whole(&before, &entries);
    let cuts = places(&mut lab, &entries, ended);
    let made = Made { making, before, contents, ended };
    let tally = made.cut(&lab, &entries, &cuts, true);
    assert_eq!(tally.losses, Vec::<String>::new(), "{making:?}");
    assert!(tally.under_way > 0 && tally.named > 0 && tally.told > 0, "{making:?}: {tally:?}");
    // One that does not sync what it writes, or not its name, is found out.
    let top = lab.folder.clone();
    for forgets in [&(|path: &Path| path != top) as &dyn Fn(&Path) -> bool, &|path| path == top] {
        let tally = made.cut(&lab, &without_syncs(&entries, forgets), &cuts, false);
        assert!(!tally.losses.is_empty(), "{making:?}: {tally:?}");
    }
}

#[test]
fn a_copy_is_whole_or_not_there() {
    a_power_cut_leaves_it_whole_or_not_there(30, Making::Backup);
}

#[test]
fn a_store_that_is_restored_is_whole_or_not_there() {
    a_power_cut_leaves_it_whole_or_not_there(31, Making::Restore);
}

#[test]
fn a_dump_is_whole_or_not_there() {
    a_power_cut_leaves_it_whole_or_not_there(32, Making::Dump);
}

/// Takes the number out of a copy that somebody counted up meanwhile.
fn take_count(contents: &mut Contents) -> u64 {
    let count = contents.0.remove(b"count".as_slice()).expect("it was there before");
    std::str::from_utf8(&count.value).ok().and_then(|text| text.parse().ok()).expect("a number")
}

/// Without an end whoever counts would go on for ever, also where the test has failed.
struct OverAtLast<'a>(&'a AtomicBool);

impl Drop for OverAtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_copy_that_a_server_makes_is_whole_or_not_there() {
    if Program::Guira.is_memcached() {
        return;
    }
    let mut lab = Lab::new(33);
    // Which syncs nothing by itself.
    let server = lab.serve("os", 0);
    fill(&server);
    let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (mut start, mut ended, mut counted) = (0, 0, 0..=0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.connect();
            while !is_over.load(SeqCst) {
                let next = (count.load(SeqCst) + 1).to_string();
                client.expect(format!("set count 0 0 {}\r\n{next}\r\n", next.len()).as_bytes(), b"STORED\r\n");
                count.fetch_add(1, SeqCst);
            }
        });
        let _over = OverAtLast(&is_over);
        wait_for("somebody counts", || (count.load(SeqCst) > 20).then_some(()));
        start = lab.recorder.now();
        let at_least = count.load(SeqCst);
        let told = tool(&Making::Backup.arguments(&lab.folder));
        ended = lab.recorder.now();
        // One more may have been on its way.
        counted = at_least..=count.load(SeqCst) + 1;
        must_do(&told);
        assert!(told.stdout.contains("by the server that has it"), "{}", told.stdout);
    });
    stop(server);
    let (mut contents, _) = Contents::of_store(&lab.folder.join("store")).expect("a store");
    take_count(&mut contents);
    assert_eq!(contents.0.len(), ITEMS);
    let entries = lab.entries_since(0);
    lab.must_be_whole(&Tree::default(), &entries);
    let since: Vec<_> = entries.iter().filter(|entry| (start..=ended).contains(&entry.end)).cloned().collect();
    let cuts = places(&mut lab, &since, ended);
    let top = lab.folder.clone();
    let mut tallies = Vec::new();
    for forgets in [&(|_: &Path| false) as &dyn Fn(&Path) -> bool, &|path| path != top, &|path| path == top] {
        let is_sound = tallies.is_empty();
        let mut tally = Tally::default();
        lab.cut_with(&Tree::default(), &without_syncs(&entries, forgets), &cuts, |cut| {
            let to = cut.folder.join(TO);
            let mut judge = || {
                if !to.exists() {
                    if cut.at >= ended {
                        return Err("it was told to be there".to_owned());
                    }
                    *(if is_begun(cut.tree) { &mut tally.under_way } else { &mut tally.nothing }) += 1;
                    return Ok(());
                }
                let (mut made, _) = Contents::of_store(&to).map_err(|error| format!("it {error}"))?;
                let count = take_count(&mut made);
                if !counted.contains(&count) {
                    return Err(format!("{count} was counted in it, not {counted:?}"));
                }
                if made != contents {
                    return Err(format!("{} of its items", made.0.len()));
                }
                *(if cut.at < ended { &mut tally.named } else { &mut tally.told }) += 1;
                Ok(())
            };
            if let Err(loss) = judge() {
                tally.losses.push(loss_told(&loss, &cut, is_sound));
            }
        });
        tallies.push(tally);
    }
    let [sound, no_bytes, no_name] = &tallies[..] else { unreachable!("three of them") };
    assert_eq!(sound.losses, Vec::<String>::new());
    assert!(sound.under_way > 0 && sound.named > 0 && sound.told > 0, "{sound:?}");
    assert!(!no_bytes.losses.is_empty() && !no_name.losses.is_empty(), "{tallies:?}");
}

/// What a cut has left of a load.
#[derive(Default, Debug)]
struct Loads {
    /// No store that could be looked at.
    none: usize,
    /// Some of the items.
    partial: usize,
    /// All of them, before anybody was told.
    whole: usize,
    told: usize,
    /// What was refused when it was loaded again, since there was something.
    merged: usize,
    losses: Vec<String>,
}

/// What is in the store that was loaded, which must be what the file has as far as it is there.
fn loaded(cut: &Cut<'_>, contents: &Contents) -> Result<Option<usize>, String> {
    match Contents::of_store(&cut.folder.join("store")) {
        Ok((found, _)) if found.is_part_of(contents) => Ok(Some(found.0.len())),
        Ok(_) => Err("it has what was not in the file".into()),
        // It was begun, or is for whoever may change it.
        Err(OpenError::NoStore | OpenError::Torn(_)) => Ok(None),
        Err(OpenError::Rocks(line)) if line.contains("Column family not found") => Ok(None),
        Err(error) => Err(format!("it {error}")),
    }
}

/// Loads again: all items are there then, replaced if there are some.
fn load_again(cut: &Cut<'_>, contents: &Contents) -> Result<bool, String> {
    let text = |name: &str| cut.folder.join(name).display().to_string();
    let mut arguments = vec!["load".to_owned(), format!("rocksdb:{}", text("store")), text("dump")];
    let mut again = tool(&arguments);
    let is_merged = again.stderr.contains("has items already");
    if is_merged {
        arguments.push("--merge".into());
        again = tool(&arguments);
    }
    if !again.status.success() {
        return Err(format!("again: {}", again.stderr));
    }
    let (found, _) = Contents::of_store(&cut.folder.join("store")).map_err(|error| format!("again, it {error}"))?;
    let is_all = match again.stdout.contains("under their versions") {
        true => found == *contents,
        false => found.without_versions() == contents.clone().without_versions(),
    };
    if is_all { Ok(is_merged) } else { Err("again, it has not all items".into()) }
}

/// A load that is cut short may leave some items, and says so when it is run again; one that was told to be done leaves all.
#[test]
fn what_was_told_to_be_loaded_is_there_and_what_was_cut_short_can_be_loaded_again() {
    if Program::Guira.is_memcached() {
        return;
    }
    let mut lab = Lab::new(34);
    let contents = filled(&lab);
    let dump = lab.folder.join("dump");
    must_do(&tool(&["dump".into(), lab.store(), dump.display().to_string()]));
    fs::remove_dir_all(lab.folder.join("store")).expect("a store of ours");
    let before = Tree::of_folder(&lab.folder).expect("a folder");
    let mut command = Command::new(Program::Guira.path());
    lab.recorder.record(&mut command, 0);
    must_do(&run(command, &["load".into(), lab.store(), dump.display().to_string()]));
    let ended = lab.recorder.now();
    let entries = lab.entries_since(0);
    lab.must_be_whole(&before, &entries);
    let mut cuts = lab.cuts(&entries, cuts_or(CUTS));
    let is_write = |entry: &&Entry| matches!(&entry.act, Act::Write { bytes, .. } if bytes.len() > 10_000);
    let written: Vec<_> = entries.iter().filter(is_write).map(|entry| entry.end).collect();
    cuts.extend([ended; 2 * CUTS_THERE]);
    let mut cuts = lab.any_at(&cuts);
    // So that there are some that leave all that was written until then.
    cuts.extend(written.iter().map(|at| (*at, Choices::all_kept())));
    cuts.push((ended, Choices::none_kept()));
    cuts.sort_by_key(|(at, _)| *at);
    let mut tallies = Vec::new();
    for forgets in [&(|_: &Path| false) as &dyn Fn(&Path) -> bool, &is_log] {
        let is_sound = tallies.is_empty();
        let mut tally = Loads::default();
        lab.cut_with(&before, &without_syncs(&entries, forgets), &cuts, |cut| {
            let mut judge = || {
                source_is_unchanged(&before, cut.tree, "dump")?;
                match loaded(&cut, &contents)? {
                    Some(ITEMS) if cut.at >= ended => tally.told += 1,
                    _ if cut.at >= ended => return Err("all was told to be there".to_owned()),
                    Some(ITEMS) => tally.whole += 1,
                    Some(0) | None => tally.none += 1,
                    Some(_) => tally.partial += 1,
                }
                if is_sound {
                    tally.merged += usize::from(load_again(&cut, &contents)?);
                }
                Ok(())
            };
            if let Err(loss) = judge() {
                tally.losses.push(loss_told(&loss, &cut, is_sound));
            }
        });
        tallies.push(tally);
    }
    let [sound, forgetful] = &tallies[..] else { unreachable!("two of them") };
    assert_eq!(sound.losses, Vec::<String>::new());
    assert!(sound.none > 0 && sound.partial > 0 && sound.whole > 0 && sound.told > 0, "{sound:?}");
    assert!(sound.merged >= sound.partial, "{sound:?}");
    assert!(!forgetful.losses.is_empty(), "{forgetful:?}");
}
