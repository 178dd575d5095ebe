//! A store that no server has, opened for looking at it.
//!
//! Always true: nothing in its folder is changed; while it is open no server can open it (but for a copy that never was served,
//! which has no lock yet).

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU32},
};

use guira_item::{
    Key,
    store::{Record, StoreState},
};
use rocksdb::{ColumnFamilyDescriptor, DB, DBRecoveryMode, Options, ReadOptions};
use rustix::{
    fs::{FlockOperation, fcntl_lock},
    io::Errno,
};

use super::{
    RocksOptions, UnixNow,
    keys::{PARTITIONS, key_in},
    log_tail, one_line,
    open::{OpenError, is_store, read_state, settings, told, torn_told},
    state,
};
use crate::{Durability, hash_partition, record};

/// Memory for what is read: blocks pass through once.
const MEMORY_BYTES: usize = 32 << 20;

/// What is read ahead of a scan, in bytes: what makes a disk that seeks read mostly.
const READ_AHEAD_BYTES: usize = 2 << 20;

/// Defects that are told one by one.
pub const DEFECTS_TOLD_MAX: usize = 10;

/// A store that no server has.
pub struct StoppedStore {
    db: DB,
    path: PathBuf,
    state: StoreState,
    unix_now: UnixNow,
    /// Held as long as the store is looked at. Closing any handle of that file in this process would give it up.
    _lock: Option<File>,
}

impl std::fmt::Debug for StoppedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoppedStore").field("path", &self.path).field("state", &self.state).finish_non_exhaustive()
    }
}

/// What there is, as far as it is known without reading it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// The format of the store.
    pub format: u32,
    /// Records, about, dead ones included.
    pub records: u64,
    /// Bytes of all files of items.
    pub file_bytes: u64,
    /// Bytes of logs: what was written last, and is in no such file yet.
    pub log_bytes: u64,
    /// Files of each level, from 0.
    pub files_by_level: Vec<u64>,
}

/// What reading everything has found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Findings {
    /// Items that clients can have.
    pub live: u64,
    /// Records that have expired.
    pub expired: u64,
    /// Records that a `flush_all` has taken.
    pub flushed: u64,
    /// Bytes of the values of live items.
    pub live_value_bytes: u64,
    /// What is wrong: how often.
    pub defects: u64,
    /// The first [`DEFECTS_TOLD_MAX`] of that, a line each.
    pub told: Vec<String>,
    /// What is wrong with a log, if something is: bits have rotted, or a power cut took what was not synced. Servers go on with what
    /// is before that place, so it is no defect.
    pub log_damage: Option<String>,
}

impl Findings {
    /// Records that could be read.
    pub fn records(&self) -> u64 {
        self.live + self.expired + self.flushed
    }

    fn add_defect(&mut self, line: impl FnOnce() -> String) {
        self.defects += 1;
        if self.told.len() < DEFECTS_TOLD_MAX {
            self.told.push(line());
        }
    }
}

impl StoppedStore {
    /// Opens the store in a folder.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path, unix_now: UnixNow) -> Result<Self, OpenError> {
        must_be_there(path)?;
        let lock = lock(path)?;
        if let Some(torn) = log_tail::find(path).map_err(OpenError::Folder)?.first() {
            return Err(torn_told(torn));
        }
        if !is_store(path)? {
            return Err(OpenError::NoStore);
        }
        let db = open_for_reading(path, &unix_now, DBRecoveryMode::PointInTime)?;
        let state = read_state(&db)?.ok_or(OpenError::NoStore)?;
        Ok(Self { db, path: path.to_owned(), state, unix_now, _lock: lock })
    }

    /// Its state.
    pub fn state(&self) -> StoreState {
        self.state
    }

    /// What there is.
    ///
    /// # Errors
    /// What RocksDB or the system says, in one line.
    pub fn extent(&self) -> Result<Extent, String> {
        let files = self.db.live_files().map_err(|error| one_line(&error))?;
        let mut files_by_level = Vec::new();
        let mut file_bytes = 0;
        for file in files.iter().filter(|file| file.column_family_name == rocksdb::DEFAULT_COLUMN_FAMILY_NAME) {
            let level = file.level.max(0) as usize;
            files_by_level.resize(files_by_level.len().max(level + 1), 0);
            files_by_level[level] += 1;
            file_bytes += file.size as u64;
        }
        let mut log_bytes = 0;
        for entry in self.path.read_dir().map_err(|error| error.to_string())? {
            let entry = entry.map_err(|error| error.to_string())?;
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                log_bytes += entry.metadata().map_err(|error| error.to_string())?.len();
            }
        }
        let records = self.db.property_int_value("rocksdb.estimate-num-keys").ok().flatten().unwrap_or(0);
        Ok(Extent { format: state::FORMAT, records, file_bytes, log_bytes, files_by_level })
    }

    /// Reads everything; `visit` gets each live item that is sound, and may end it with an error of its own.
    ///
    /// # Errors
    /// What `visit` says; what is wrong with the store is in the findings.
    pub fn read<E>(
        &self,
        mut visit: impl FnMut(Key<'_>, &Record<&[u8]>) -> Result<(), E>,
        mut progress: impl FnMut(u64),
    ) -> Result<Findings, E> {
        let now_unix_s = (self.unix_now)();
        let mut findings = Findings { log_damage: self.log_damage(), ..Findings::default() };
        for partition in 0..PARTITIONS {
            let mut options = ReadOptions::default();
            options.fill_cache(false);
            options.set_verify_checksums(true);
            options.set_readahead_size(READ_AHEAD_BYTES);
            if let Ok(next) = u8::try_from(partition + 1) {
                options.set_iterate_upper_bound(vec![next]);
            }
            let mut iterator = self.db.raw_iterator_opt(options);
            // Of the first what has no partition, too.
            iterator.seek(if partition == 0 { Vec::new() } else { vec![partition as u8] });
            let mut last = None;
            while let Some((stored, bytes)) = iterator.item() {
                match self.sound(stored, bytes) {
                    Ok((key, record)) if record.is_live(now_unix_s, self.state.generation) => {
                        findings.live += 1;
                        findings.live_value_bytes += record.value.len() as u64;
                        visit(key, &record)?;
                    }
                    Ok((_, record)) if record.generation < self.state.generation => findings.flushed += 1,
                    Ok(_) => findings.expired += 1,
                    Err(what) => findings.add_defect(|| format!("{}: {what}", shown(stored))),
                }
                last = Some(stored.len());
                if (findings.records() + findings.defects).is_multiple_of(1_024) {
                    progress(findings.records());
                }
                iterator.next();
            }
            if let Err(error) = iterator.status() {
                let behind = if last.is_some() { "the rest of it" } else { "all of it" };
                findings.add_defect(|| format!("partition {partition}, {behind} cannot be read: {}", one_line(&error)));
            }
        }
        progress(findings.records());
        Ok(findings)
    }

    /// What is wrong with a log. Where a process was killed, it ends in the middle of a record; a damaged record, or changes behind one
    /// that is not whole, are something else.
    fn log_damage(&self) -> Option<String> {
        match open_for_reading(&self.path, &self.unix_now, DBRecoveryMode::TolerateCorruptedTailRecords) {
            Err(OpenError::Damaged(line)) => Some(line),
            Ok(all) if all.latest_sequence_number() > self.db.latest_sequence_number() => {
                Some("there are changes behind one that is not whole".into())
            }
            // Anything else is wrong with more than the log.
            _ => None,
        }
    }

    /// What is stored, if it is as it should be; otherwise what is not.
    fn sound<'a>(&self, stored: &'a [u8], bytes: &'a [u8]) -> Result<(Key<'a>, Record<&'a [u8]>), String> {
        let key = key_in(stored).ok_or("its key is none")?;
        let partition = hash_partition(key.as_bytes()).0;
        if stored.first() != Some(&partition) {
            return Err(format!("it is not in its partition, {partition}"));
        }
        let record = record::decode(bytes).ok_or("it is no item of this version of guira")?;
        let StoreState { generation, versions_reserved, .. } = self.state;
        if record.version > versions_reserved {
            return Err(format!("its version {} is above those reserved, {versions_reserved}", record.version));
        }
        if record.generation > generation {
            return Err(format!("its generation {} is above the store's, {}", record.generation.0, generation.0));
        }
        Ok((key, record))
    }
}

/// Opens what is in a folder, and changes nothing there.
fn open_for_reading(path: &Path, unix_now: &UnixNow, mode: DBRecoveryMode) -> Result<DB, OpenError> {
    let options = RocksOptions::with_memory(MEMORY_BYTES, Durability::Os, Arc::clone(unix_now));
    let (mut database, items) = settings(&options, &Arc::new(AtomicU32::new(0)));
    database.set_wal_recovery_mode(mode);
    let families = [
        ColumnFamilyDescriptor::new(rocksdb::DEFAULT_COLUMN_FAMILY_NAME, items),
        ColumnFamilyDescriptor::new(state::FAMILY, Options::default()),
    ];
    DB::open_cf_descriptors_read_only(&database, path, families, false).map_err(|error| told(&error))
}

/// A stored key as a person reads it.
fn shown(stored: &[u8]) -> String {
    format!("item {}", stored.get(1..).unwrap_or_default().escape_ascii())
}

/// Whether there may be a store in a folder, without changing anything.
pub(super) fn must_be_there(path: &Path) -> Result<(), OpenError> {
    match std::fs::metadata(path.join("CURRENT")) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.kind() == io::ErrorKind::NotADirectory => {
            Err(OpenError::NoStore)
        }
        Err(error) => Err(OpenError::Folder(error)),
    }
}

/// Keeps servers out, whose RocksDB locks the same file for itself alone.
fn lock(path: &Path) -> Result<Option<File>, OpenError> {
    lock_with(File::open(path.join("LOCK")), FlockOperation::NonBlockingLockShared)
}

/// Keeps everybody else out.
pub(super) fn lock_alone(path: &Path) -> Result<Option<File>, OpenError> {
    let file = File::options().read(true).write(true).open(path.join("LOCK"));
    lock_with(file, FlockOperation::NonBlockingLockExclusive)
}

fn lock_with(file: io::Result<File>, how: FlockOperation) -> Result<Option<File>, OpenError> {
    let file = match file {
        Ok(file) => file,
        // A copy that was never served.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::Folder(error)),
    };
    match fcntl_lock(&file, how) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::AGAIN | Errno::ACCESS) => Err(OpenError::InUse),
        Err(error) => Err(OpenError::Folder(error.into())),
    }
}

#[cfg(test)]
#[path = "stopped_tests.rs"]
mod tests;
