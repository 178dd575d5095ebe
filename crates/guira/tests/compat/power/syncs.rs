//! Syncs in a journal: followed, and such as a program would have that syncs everything, or forgets to.

use std::path::Path;

use guira_powercut::{Act, Entry};

/// Follows the syncs of RocksDB's newest log: older ones are synced before it, and alone too, which says nothing of what is newer.
#[derive(Default)]
pub struct LogSyncs {
    newest: Option<i32>,
    begun: Vec<(u64, u64)>,
    pub until: u64,
}

impl LogSyncs {
    pub fn apply(&mut self, entry: &Entry) {
        match &entry.act {
            Act::Open { fd, path, creates: true, .. } if is_log(path) => self.newest = Some(*fd),
            Act::Close(fd) if self.newest == Some(*fd) => self.newest = None,
            Act::SyncBegins(sync, fd) if self.newest == Some(*fd) => self.begun.push((*sync, entry.end)),
            Act::Synced(sync) => {
                let begun = self.begun.iter().position(|(number, _)| number == sync);
                self.until = begun.map_or(self.until, |at| self.until.max(self.begun.swap_remove(at).1));
            }
            _ => {}
        }
    }
}

/// Whether it is a log of RocksDB's.
pub fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

/// The same, as if each write had been synced at once.
pub fn as_if_synced(entries: &[Entry]) -> Vec<Entry> {
    let synced = |(number, entry): (usize, &Entry)| match entry.act {
        Act::Write { fd, .. } => {
            let sync = u64::MAX - number as u64;
            let acts = [entry.act.clone(), Act::SyncBegins(sync, fd), Act::Synced(sync)];
            // Where the write ended they all have.
            acts.into_iter().zip([2, 1, 0]).map(|(act, before)| Entry { end: entry.end - before, act }).collect()
        }
        _ => vec![entry.clone()],
    };
    entries.iter().enumerate().flat_map(synced).collect()
}

/// The same, as if what has such a path had never been synced.
pub fn without_syncs(entries: &[Entry], of: impl Fn(&Path) -> bool) -> Vec<Entry> {
    let (mut open, mut dropped) = (Vec::new(), Vec::new());
    let is_kept = |entry: &&Entry| match &entry.act {
        Act::Open { fd, path, .. } => {
            open.retain(|known| known != fd);
            open.extend(of(path).then_some(*fd));
            true
        }
        Act::SyncBegins(sync, fd) if open.contains(fd) => {
            dropped.push(*sync);
            false
        }
        Act::Synced(sync) => !dropped.contains(sync),
        _ => true,
    };
    entries.iter().filter(is_kept).cloned().collect()
}
