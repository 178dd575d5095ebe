//! Copies of a store, and stores from copies.
//!
//! ```text
//! copy     RocksDB's files, as a checkpoint makes them or as they are when nobody writes | GUIRA-BACKUP: when, `taken_unix_s N`
//! restore  copy --checked, copied, versions raised--> a store under way --synced--> PATH
//! ```
//! Always true: a copy or a store has its name only when it is whole; no version that was given after its copy was made is given
//! again, as long as the busiest shard has given [`VERSIONS_A_SECOND`] a second on average at most.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read, Write as _},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
};

use guira_item::store::{Store, StoreState, Write};

use super::{Findings, OpenError, RocksOptions, RocksStore, StoppedStore, UnixNow, under_way::UnderWay};
use crate::{Durability, write_through::VERSION_LAST};

/// Tells when a copy was made.
const TAKEN: &str = "GUIRA-BACKUP";

/// What a store has that is opened to be finished, in bytes.
const MEMORY_BYTES: usize = 32 << 20;

/// Bytes that are copied at a time.
const COPIED_AT_ONCE_BYTES: usize = 1 << 20;

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

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "the store {error}"),
            Self::IsThere(path) => {
                write!(f, "{} is there already: choose another folder, or remove it", path.display())
            }
            Self::Damaged(findings) => write!(f, "it is damaged ({} defects)", findings.defects),
            Self::Told(line) => f.write_str(line),
        }
    }
}

impl std::error::Error for BackupError {}

pub(super) fn io_failure(what: &Path) -> impl FnOnce(io::Error) -> BackupError {
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

/// What is being done, for how many records or bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Records of a copy are read.
    Check,
    /// Bytes are copied.
    Copy,
}

/// Makes a copy of a store that nobody serves, in which nothing is changed; calls `progress` with how many bytes of how many are
/// there. Where it can, files that never change are links.
///
/// # Errors
/// [`BackupError`]; [`OpenError::InUse`] among them if somebody does.
pub fn back_up(
    from: &Path,
    to: &Path,
    unix_now: UnixNow,
    progress: impl FnMut(Step, u64, u64),
) -> Result<(), BackupError> {
    // Has it for itself as long as it is copied.
    let _store = StoppedStore::open(from, Arc::clone(&unix_now)).map_err(BackupError::Store)?;
    let under_way = UnderWay::begin(to)?;
    let copy = under_way.folder();
    copy_files(from, &copy, true, progress)?;
    note_when(&copy, (unix_now)()).map_err(io_failure(to))?;
    under_way.finish(from).map_err(io_failure(to))
}

/// Notes in a copy when it was made, on disk.
pub(super) fn note_when(copy: &Path, unix_s: u64) -> io::Result<()> {
    let mut file = File::create_new(copy.join(TAKEN))?;
    file.write_all(format!("taken_unix_s {unix_s}\n").as_bytes())?;
    file.sync_all()
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

/// Copies the files of a store that nobody writes, and syncs them.
fn copy_files(
    from: &Path,
    to: &Path,
    with_links: bool,
    mut progress: impl FnMut(Step, u64, u64),
) -> Result<u64, BackupError> {
    let (mut files, mut total) = (Vec::new(), 0);
    for entry in fs::read_dir(from).map_err(io_failure(from))? {
        let entry = entry.map_err(io_failure(from))?;
        let found = entry.metadata().map_err(io_failure(&entry.path()))?;
        let name = entry.file_name();
        // Of the process that had it, and of the copy.
        let is_own = name == "LOCK" || name == TAKEN || name.as_encoded_bytes().starts_with(b"LOG");
        if found.is_file() && !is_own {
            total += found.len();
            files.push(entry.path());
        }
    }
    fs::create_dir(to).map_err(io_failure(to))?;
    let mut bytes = 0;
    for file in files {
        let target = to.join(file.file_name().expect("it was found under it"));
        let never_changes = file.extension().is_some_and(|extension| extension == "sst");
        // Another disk, another owner, or links enough.
        if with_links && never_changes && fs::hard_link(&file, &target).is_ok() {
            bytes += fs::metadata(&target).map_err(io_failure(&target))?.len();
        } else {
            copy_file(&file, &target, |copied| {
                bytes += copied;
                progress(Step::Copy, bytes, total);
            })?;
        }
    }
    progress(Step::Copy, bytes, total);
    Ok(bytes)
}

/// Copies the bytes of a file, which the system could otherwise share among both, and syncs them.
fn copy_file(from: &Path, to: &Path, mut copied: impl FnMut(u64)) -> Result<(), BackupError> {
    let mut source = File::open(from).map_err(io_failure(from))?;
    let mut target = File::create_new(to).map_err(io_failure(to))?;
    let mut some = vec![0; COPIED_AT_ONCE_BYTES];
    loop {
        let len = match source.read(&mut some) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(io_failure(from)(error)),
        };
        target.write_all(&some[..len]).map_err(io_failure(to))?;
        copied(len as u64);
    }
    let rights = source.metadata().map_err(io_failure(from))?.permissions();
    target.set_permissions(rights).and_then(|()| target.sync_all()).map_err(io_failure(to))
}

/// Makes a store of a copy; calls `progress` with how many records of about how many have been checked, and how many bytes of how
/// many have been copied.
///
/// # Errors
/// [`BackupError`]; nothing is under the name of the store then that was not there before.
pub fn restore(
    from: &Path,
    to: &Path,
    unix_now: UnixNow,
    mut progress: impl FnMut(Step, u64, u64),
) -> Result<Restored, BackupError> {
    let copy = StoppedStore::open(from, Arc::clone(&unix_now)).map_err(BackupError::Store)?;
    let under_way = UnderWay::begin(to)?;
    let records = copy.extent().map_or(0, |extent| extent.records);
    let findings = copy.read::<BackupError>(|_, _| Ok(()), |done| progress(Step::Check, done, records))?;
    if findings.defects > 0 {
        return Err(BackupError::Damaged(findings));
    }
    let taken_unix_s = taken_unix_s(from).map_err(io_failure(from))?;
    let folder = under_way.folder();
    let bytes = copy_files(from, &folder, false, progress)?;
    let (state, has_no_more_versions) = raised(copy.state(), (unix_now)().saturating_sub(taken_unix_s));
    let options = RocksOptions::with_memory(MEMORY_BYTES, Durability::Always, unix_now);
    let store = RocksStore::open(&folder, &options).map_err(BackupError::Store)?;
    let (told, outcome) = mpsc::channel();
    store.write(vec![Write::State(state)], Box::new(move |written| drop(told.send(written))));
    let written = outcome.recv().expect("what was asked for is completed");
    written.and_then(|_| store.shut()).map_err(|error| BackupError::Told(error.to_string()))?;
    drop(store);
    under_way.finish(from).map_err(io_failure(to))?;
    Ok(Restored { findings, bytes, state, has_no_more_versions })
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
