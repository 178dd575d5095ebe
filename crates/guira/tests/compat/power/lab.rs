//! A folder with a recorder below it, and what may be left of it after power cuts.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use guira_powercut::{Act, Choices, Dice, Disk, Entry, Journal, Recorder, Tree};
use rustix::process::Signal;
use tempfile::TempDir;

use super::syncs::LogSyncs;
use crate::server::{Program, Server};

/// A folder with a recorder below it.
pub struct Lab {
    place: TempDir,
    pub folder: PathBuf,
    pub recorder: Recorder,
    dice: Dice,
}

impl Lab {
    pub fn new(seed: u64) -> Self {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().canonicalize().expect("a path without links").join("disk");
        fs::create_dir(&folder).expect("a folder");
        let recorder = Recorder::new(&folder).expect("`make test` installs a C compiler");
        Self { place, folder, recorder, dice: Dice::new(seed) }
    }

    pub fn store(&self) -> String {
        format!("rocksdb:{}", self.folder.join("store").display())
    }

    /// A server before the store, as small as it can be so that memtables fill and files are merged; its clock is set.
    pub fn serve(&self, durability: &str, clock_s: i64) -> Server {
        let store = self.store();
        let arguments = ["-m", "80", "-t", "2", "--store-memory", "16", "--store", &store, "--durability", durability];
        Server::start_prepared(Program::Guira, &arguments, |command| self.recorder.record(command, clock_s))
    }

    /// What has been recorded since the journal had this length.
    pub fn entries_since(&self, start: u64) -> Vec<Entry> {
        let journal = Journal::read(&self.recorder.journal()).expect("a journal");
        journal.entries.into_iter().filter(|entry| entry.end > start).collect()
    }

    /// So many places in what was recorded: half of them anywhere, half behind what is no write to a file.
    pub fn cuts(&mut self, entries: &[Entry], count: usize) -> Vec<u64> {
        let turns: Vec<_> = entries.iter().filter(|entry| !matches!(entry.act, Act::Write { .. })).collect();
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

    /// The same places, each with any choices.
    pub fn any_at(&mut self, cuts: &[u64]) -> Vec<(u64, Choices)> {
        cuts.iter().map(|at| (*at, Choices::any(&mut self.dice))).collect()
    }

    /// Cuts the power at each of `cuts`, which go up: `look` gets the folder as it may be then.
    pub fn cut_at(&mut self, before: &Tree, entries: &[Entry], cuts: &[u64], look: impl FnMut(Cut<'_>)) {
        let cuts = self.any_at(cuts);
        self.cut_with(before, entries, &cuts, look);
    }

    /// The same with these choices.
    pub fn cut_with(&self, before: &Tree, entries: &[Entry], cuts: &[(u64, Choices)], mut look: impl FnMut(Cut<'_>)) {
        let mut disk = Disk::with(&self.folder, before);
        let mut syncs = LogSyncs::default();
        let mut left = entries.iter().peekable();
        for (at, choices) in cuts {
            while let Some(entry) = left.next_if(|entry| entry.end <= *at) {
                disk.apply(entry).expect("as the process did it");
                syncs.apply(entry);
            }
            let mut tree = disk.after_cut(choices);
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
            look(Cut { at: *at, log_synced: syncs.until, choices, tree: &tree, folder: &folder });
            fs::remove_dir_all(&folder).expect("a folder of ours");
        }
    }

    /// What the recorder has noted is what there is.
    pub fn must_be_whole(&self, before: &Tree, entries: &[Entry]) {
        let mut disk = Disk::with(&self.folder, before);
        entries.iter().for_each(|entry| disk.apply(entry).expect("as the process did it"));
        let there = Tree::of_folder(&self.folder).expect("a folder");
        assert_eq!(disk.as_seen().differences(&there), Vec::<String>::new(), "the recorder has missed something");
    }

    /// The disk is as a cut has left it.
    pub fn go_on_from(&self, tree: &Tree) {
        fs::remove_dir_all(&self.folder).expect("a folder of ours");
        tree.write_to(&self.folder).expect("a folder");
    }
}

/// An orderly end.
pub fn stop(mut server: Server) {
    server.process().signal(Signal::TERM);
    assert!(server.process().wait().success(), "{}", server.process().complaints());
}

/// A power cut.
pub struct Cut<'c> {
    /// The journal's length then.
    pub at: u64,
    /// When the last sync of a log began that had ended: what was answered before is on disk, whatever the durability.
    pub log_synced: u64,
    pub choices: &'c Choices,
    pub tree: &'c Tree,
    /// What is left.
    pub folder: &'c Path,
}
/// How often the power is cut, unless `GUIRA_POWER_CUTS` says it.
pub fn cuts_or(usual: usize) -> usize {
    env::var("GUIRA_POWER_CUTS").map_or(usual, |cuts| cuts.parse().expect("a number of cuts"))
}

/// Keeps what a cut has left, and tells where, and which cut it was.
pub fn kept_for_a_look(cut: &Cut<'_>) -> String {
    let kept = env::temp_dir().join("guira-after-a-cut");
    fs::remove_dir_all(&kept).ok();
    cut.tree.write_to(&kept).ok();
    format!("{:?} at {}, in {}", cut.choices, cut.at, kept.display())
}

fn is_manifest(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"MANIFEST-"))
}
