//! Copies of a store, and stores from copies.
//!
//! ```text
//! copy     RocksDB's files, as a checkpoint makes them | GUIRA-BACKUP: when, `taken_unix_s N`
//! restore  copy --checked, copied--> PATH.next --versions raised, synced--> PATH
//! ```
//! Always true: a store has its name only when it is whole; no version that was given after its copy was made is given again,
//! as long as the busiest shard has given [`VERSIONS_A_SECOND`] a second on average at most.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
};

use guira_item::store::{Store, StoreState, Write};

use super::{Findings, OpenError, RocksOptions, RocksStore, StoppedStore, UnixNow, stopped::must_be_there};
use crate::{Durability, write_through::VERSION_LAST};

/// Tells when a copy was made.
const TAKEN: &str = "GUIRA-BACKUP";

/// What a store has that is opened to be copied or finished, in bytes.
const MEMORY_BYTES: usize = 32 << 20;

/// Versions that the busiest shard may have given a second since a copy was made.
pub const VERSIONS_A_SECOND: u64 = 1 << 12;

/// And besides: what sixteen restarts or shards reserve.
const VERSIONS_BESIDES: u64 = 1 << 24;

/// Why there is no copy, or no store from it.
#[derive(Debug)]
pub enum BackupError {
    /// The store that is copied.
    Store(OpenError),
    /// There is something where the copy or the store is to be.
    IsThere(PathBuf),
    /// The copy is damaged.
    Damaged(Findings),
    /// The system, or RocksDB, in one line.
    Told(String),
}

fn io_failure(what: &Path) -> impl FnOnce(io::Error) -> BackupError {
    move |error| BackupError::Told(format!("{}: {error}", what.display()))
}

/// What was restored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// What the check of the copy has found.
    pub findings: Findings,
    /// Bytes copied.
    pub bytes: u64,
    /// The state it has now.
    pub state: StoreState,
    /// Versions ran out: an old one may be given again.
    pub has_no_more_versions: bool,
}

/// Makes a copy of a store that nobody serves.
///
/// # Errors
/// [`BackupError`]; [`OpenError::InUse`] among them if somebody does.
pub fn back_up(from: &Path, to: &Path, unix_now: UnixNow) -> Result<(), BackupError> {
    must_be_there(from).map_err(BackupError::Store)?;
    must_be_new(to)?;
    let options = RocksOptions::with_memory(MEMORY_BYTES, Durability::Os, unix_now);
    let store = RocksStore::open(from, &options).map_err(BackupError::Store)?;
    let (told, outcome) = mpsc::channel();
    store.snapshot(to.to_owned(), Box::new(move |made| drop(told.send(made))));
    let made = outcome.recv().expect("what was asked for is completed");
    made.and_then(|()| store.shut()).map_err(|error| BackupError::Told(error.to_string()))
}

fn must_be_new(path: &Path) -> Result<(), BackupError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Err(BackupError::IsThere(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_failure(path)(error)),
    }
}

/// Notes in a copy when it was made, and sees to its being on disk.
pub(super) fn note_when(copy: &Path, unix_s: u64) -> io::Result<()> {
    let mut file = File::create_new(copy.join(TAKEN))?;
    io::Write::write_all(&mut file, format!("taken_unix_s {unix_s}\n").as_bytes())?;
    file.sync_all()?;
    File::open(copy)?.sync_all()?;
    File::open(parent(copy))?.sync_all()
}

/// When a copy was made.
fn taken_unix_s(copy: &Path) -> io::Result<u64> {
    let noted = fs::read_to_string(copy.join(TAKEN)).ok();
    let noted = noted.as_deref().and_then(|text| text.trim().strip_prefix("taken_unix_s ")?.parse().ok());
    match noted {
        Some(unix_s) => Ok(unix_s),
        None => Ok(u64::try_from(fs::metadata(copy.join("CURRENT"))?.mtime()).unwrap_or(0)),
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a store of a copy; calls `progress` with how many records of about how many have been checked.
///
/// # Errors
/// [`BackupError`]; nothing is under the name of the store then that was not there before.
pub fn restore(
    from: &Path,
    to: &Path,
    unix_now: UnixNow,
    mut progress: impl FnMut(u64, u64),
) -> Result<Restored, BackupError> {
    match fs::read_dir(to).map(|mut entries| entries.next().is_none()) {
        Ok(is_empty) if is_empty => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() != io::ErrorKind::NotADirectory => return Err(io_failure(to)(error)),
        _ => return Err(BackupError::IsThere(to.to_owned())),
    }
    let mut next = to.as_os_str().to_owned();
    next.push(".next");
    let next = PathBuf::from(next);
    let copy = StoppedStore::open(from, Arc::clone(&unix_now)).map_err(BackupError::Store)?;
    let records = copy.extent().map_or(0, |extent| extent.records);
    let findings = copy.read::<BackupError>(|_, _| Ok(()), |done| progress(done, records))?;
    if findings.defects > 0 {
        return Err(BackupError::Damaged(findings));
    }
    must_be_new(&next)?;
    let restored = copy_to(from, &next, to, copy.state(), &unix_now);
    if restored.is_err() {
        // What there is of it is of no use.
        let _ = fs::remove_dir_all(&next);
    }
    let (bytes, state, has_no_more_versions) = restored?;
    Ok(Restored { findings, bytes, state, has_no_more_versions })
}

fn copy_to(
    from: &Path,
    next: &Path,
    to: &Path,
    state: StoreState,
    unix_now: &UnixNow,
) -> Result<(u64, StoreState, bool), BackupError> {
    let taken_unix_s = taken_unix_s(from).map_err(io_failure(from))?;
    fs::create_dir(next).map_err(io_failure(next))?;
    let mut bytes = 0;
    for entry in fs::read_dir(from).map_err(io_failure(from))? {
        let entry = entry.map_err(io_failure(from))?;
        let name = entry.file_name();
        let is_file = entry.file_type().map_err(io_failure(&entry.path()))?.is_file();
        let is_own = name == "LOCK" || name == TAKEN || name.as_encoded_bytes().starts_with(b"LOG");
        if is_file && !is_own {
            let target = next.join(&name);
            bytes += fs::copy(entry.path(), &target).map_err(io_failure(&target))?;
            File::open(&target).and_then(|file| file.sync_all()).map_err(io_failure(&target))?;
        }
    }
    let (state, has_no_more_versions) = raised(state, (unix_now)().saturating_sub(taken_unix_s));
    let options = RocksOptions::with_memory(MEMORY_BYTES, Durability::Always, Arc::clone(unix_now));
    let store = RocksStore::open(next, &options).map_err(BackupError::Store)?;
    let (told, outcome) = mpsc::channel();
    store.write(vec![Write::State(state)], Box::new(move |written| drop(told.send(written))));
    let written = outcome.recv().expect("what was asked for is completed");
    written.and_then(|_| store.shut()).map_err(|error| BackupError::Told(error.to_string()))?;
    drop(store);
    let named = || {
        File::open(next)?.sync_all()?;
        fs::rename(next, to)?;
        File::open(parent(to))?.sync_all()
    };
    named().map_err(io_failure(to))?;
    Ok((bytes, state, has_no_more_versions))
}

/// The state of a store whose copy is so old, and whether there are no more versions.
fn raised(state: StoreState, age_s: u64) -> (StoreState, bool) {
    let raise = age_s.saturating_mul(VERSIONS_A_SECOND).saturating_add(VERSIONS_BESIDES);
    let wanted = state.versions_reserved.saturating_add(raise);
    // Beyond the last one versions begin again by themselves.
    let versions_reserved = wanted.min(VERSION_LAST).max(state.versions_reserved);
    (StoreState { versions_reserved, ..state }, wanted > VERSION_LAST)
}

#[cfg(test)]
#[path = "backup_tests.rs"]
mod tests;
