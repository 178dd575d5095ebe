//! Opening a store: with settings for point reads on flash, and with one line for whatever is wrong with what is there.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use guira_item::store::StoreState;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DBRecoveryMode,
    DEFAULT_COLUMN_FAMILY_NAME, DataBlockIndexType, ErrorKind, IteratorMode, LogLevel, Options, WriteOptions,
};

use super::{
    CHORES_LEN_MAX, Counters, Inside, QUEUE_LEN_MAX, RocksOptions, RocksStore, log_tail, one_line,
    state::{self, StateError},
    tending::Undertaker,
};
use crate::{folder, queue::Queue};

/// Bits of a filter for each key: one read of a key that is not there in a hundred goes to disk (a ribbon filter takes a third less
/// memory than a Bloom filter that is as good).
const FILTER_BITS: f64 = 10.0;

/// Bytes of a block: what a flash device reads at once.
const BLOCK_LEN_BYTES: usize = 4 << 10;

/// Bytes that are handed to the device at a time while files are written, so that it is not flooded by one sync at their end.
const BYTES_PER_SYNC: u64 = 1 << 20;

/// How often, in seconds, a file that nothing else merges is merged, so that what has expired in it goes: every thirty days, as
/// RocksDB does by itself where something is thrown away.
const MERGED_EVERY_S: u64 = 30 * 24 * 60 * 60;

/// Files of items that are open at a time where not all may be: of some 32 GB.
const FILES_MAX: u64 = 512;

/// Descriptors that a store takes at least: for 512 files, and for what is opened besides while files are merged.
pub const DESCRIPTORS_MIN: u64 = FILES_MAX + 64;

/// Descriptors from which on a store has all its files open: how many it has when it is small, and for each that is there when it is opened
/// twice two, so that it may grow to twice what it is.
const ALL_OPEN_MIN: u64 = 8 << 10;
const ALL_OPEN_A_FILE: u64 = 2 * 2;

/// Descriptors with which a store of two terabytes, of 32,768 files, has them all open.
pub const DESCRIPTORS_MAX: u64 = 1 << 17;
const _: () = assert!(DESCRIPTORS_MAX == ALL_OPEN_A_FILE * (2 << 40) / (64 << 20));

/// Write buffers: the one that is written to and those that are being made into files.
const WRITE_BUFFERS: usize = 4;

/// Log files of RocksDB's own that are kept, and their length in bytes.
const INFO_LOGS: usize = 4;
const INFO_LOG_LEN_MAX_BYTES: usize = 4 << 20;

/// Why a store could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The folder cannot be made or read.
    Folder(io::Error),
    /// There is something else in the folder.
    NotOne,
    /// There is no store there, and none is to be made.
    NoStore,
    /// Another process has it.
    InUse,
    /// It was written by another version of guira.
    OtherFormat(u32),
    /// What is there is damaged.
    Damaged(String),
    /// A log has a record that RocksDB would not come past. Whoever may change the folder puts that right.
    Torn(String),
    /// RocksDB says something else.
    Rocks(String),
    /// A thread could not be started.
    Thread(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(error) => write!(f, "cannot be used as a folder ({error})"),
            Self::NotOne => f.write_str("has something else in it: choose an empty folder"),
            Self::NoStore => f.write_str("is no store"),
            Self::InUse => f.write_str("is in use by another process: stop that one, or choose another folder"),
            Self::OtherFormat(found) => {
                write!(f, "is of format {found}, and this guira reads {}: use the version that wrote it", state::FORMAT)
            }
            Self::Damaged(told) => write!(f, "is damaged ({told}): put a backup in its place"),
            Self::Torn(told) => {
                write!(f, "has a log with a place that was not written when the power went, or has rotted ({told}): ")?;
                f.write_str("start a server with it once, after a copy of the folder if in doubt")
            }
            Self::Rocks(told) => write!(f, "cannot be opened ({told})"),
            Self::Thread(error) => write!(f, "cannot be served: no thread could be started ({error})"),
        }
    }
}

impl std::error::Error for OpenError {}

/// What RocksDB says if another process, or this one, has a folder.
const IN_USE: [&[&str]; 2] =
    [&["While lock file", "Resource temporarily unavailable"], &["lock hold by current process"]];

pub(super) fn told(error: &rocksdb::Error) -> OpenError {
    let line = one_line(error);
    match error.kind() {
        // RocksDB has no kind for it. That a lock file cannot be opened, for instance because all is mounted read-only, is
        // something else.
        ErrorKind::IOError if IN_USE.iter().any(|parts| parts.iter().all(|part| line.contains(part))) => {
            OpenError::InUse
        }
        ErrorKind::Corruption => OpenError::Damaged(line),
        _ => OpenError::Rocks(line),
    }
}

impl RocksStore {
    /// Opens the store in a folder; makes one if there is none. If it can be read but not written, for instance because the
    /// device is full or mounted read-only, it serves reads and refuses writes.
    ///
    /// # Errors
    /// [`OpenError`]; nothing in the folder was changed then that matters.
    pub fn open(path: &Path, options: &RocksOptions) -> Result<Self, OpenError> {
        if is_something_else(path)? {
            return Err(OpenError::NotOne);
        }
        let generation = Arc::new(AtomicU32::new(0));
        let (mut database, items) = settings(options, &generation);
        let has_all_open = options.descriptors >= ALL_OPEN_MIN.max(ALL_OPEN_A_FILE * files_of_items(path)?);
        if has_all_open {
            database.set_env(&guira_nowait::environment());
            database.set_max_open_files(-1);
        }
        let families = || {
            [
                ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY_NAME, items.clone()),
                ColumnFamilyDescriptor::new(state::FAMILY, Options::default()),
            ]
        };
        let read_only = OnceLock::new();
        let is_new = !path.join("CURRENT").exists();
        if !is_new && !is_store(path)? {
            return Err(OpenError::NotOne);
        }
        mend_logs(path)?;
        let db = match DB::open_cf_descriptors(&database, path, families()) {
            Ok(db) => db,
            Err(error) => match told(&error) {
                OpenError::Rocks(line) if !is_new => {
                    // Perhaps it can be read.
                    let db = DB::open_cf_descriptors_read_only(&database, path, families(), false)
                        .map_err(|_| OpenError::Rocks(line.clone()))?;
                    let line = format!("the store can only be read ({line})");
                    tracing::error!("{line}");
                    let _ = read_only.set(line.into());
                    db
                }
                other => return Err(other),
            },
        };
        let state = match read_state(&db)? {
            Some(state) => state,
            // From now on nobody takes what is written for somebody else's.
            None => begin(&db, read_only.get().is_none())?,
        };
        generation.store(state.generation.0, Relaxed);
        let inside = Inside {
            db,
            durability: options.durability,
            unix_now: Arc::clone(&options.unix_now),
            generation,
            reads: Queue::new(QUEUE_LEN_MAX),
            writes: Queue::new(QUEUE_LEN_MAX),
            chores: Queue::new(CHORES_LEN_MAX),
            read_only,
            counters: Counters::default(),
        };
        Self::start(inside, state, options.readers, has_all_open)
    }
}

fn files_of_items(path: &Path) -> Result<u64, OpenError> {
    let is_one = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|kind| kind == "sst");
    let entries = fs::read_dir(path).map_err(OpenError::Folder)?;
    Ok(entries.filter_map(Result::ok).filter(is_one).count() as u64)
}

/// Puts right what RocksDB would not come past in logs.
fn mend_logs(path: &Path) -> Result<(), OpenError> {
    let Some(first) = log_tail::find(path).map_err(OpenError::Folder)?.pop() else { return Ok(()) };
    // Not while another process writes them.
    let _lock = super::stopped::lock_alone(path).map_err(|error| match error {
        OpenError::InUse => OpenError::InUse,
        _ => torn_told(&first),
    })?;
    for torn in log_tail::find(path).map_err(OpenError::Folder)? {
        let log_tail::Impassable { log, at } = &torn;
        tracing::warn!(
            "{}, byte {at}: not written when the power went, or rotten; what is sound is kept",
            log.display()
        );
        log_tail::put_right(&torn).map_err(|_| torn_told(&torn))?;
    }
    Ok(())
}

/// Why a store with such a log is not opened by who may not change it.
pub(super) fn torn_told(torn: &log_tail::Impassable) -> OpenError {
    let name = torn.log.file_name().unwrap_or_default().to_string_lossy();
    OpenError::Torn(format!("{name}, byte {}", torn.at))
}

/// Whether a folder has something in it, and no RocksDB. What a store that was never finished has left is none.
fn is_something_else(path: &Path) -> Result<bool, OpenError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return folder::create_all(path).map(|()| false).map_err(OpenError::Folder);
        }
        Err(error) => return Err(OpenError::Folder(error)),
    };
    let names: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.file_name().into()))
        .collect::<Result<_, _>>()
        .map_err(OpenError::Folder)?;
    // A log has something in it only after there was a CURRENT: where that is lost, nothing is begun anew.
    let is_begun = |name: &Path| {
        let name = name.to_string_lossy();
        ["LOCK", "LOG", "IDENTITY"].contains(&&*name)
            || ["LOG.old.", "MANIFEST-"].iter().any(|start| name.starts_with(start))
            || name.ends_with(".dbtmp")
    };
    Ok(!names.iter().any(|name| name == Path::new("CURRENT")) && !names.iter().all(|name| is_begun(name)))
}

/// Whether the RocksDB in a folder is a store's, or may become one. Only looks: opening it would already change it.
pub(super) fn is_store(path: &Path) -> Result<bool, OpenError> {
    if let Some(log_tail::Impassable { log, at }) = log_tail::find_in_manifest(path).map_err(OpenError::Folder)? {
        let name = log.file_name().unwrap_or_default().to_string_lossy();
        return Err(OpenError::Damaged(format!("{name}, byte {at}")));
    }
    let families = DB::list_cf(&Options::default(), path).map_err(|error| told(&error))?;
    if families.iter().any(|name| name == state::FAMILY) {
        return Ok(true);
    }
    // The making of a store may have been cut short before it had its family.
    let has_others = families.iter().any(|name| name != DEFAULT_COLUMN_FAMILY_NAME);
    Ok(!has_others
        && DB::open_for_read_only(&Options::default(), path, false)
            .and_then(|db| is_empty(&db))
            .map_err(|error| told(&error))?)
}

fn is_empty(db: &DB) -> Result<bool, rocksdb::Error> {
    db.iterator(IteratorMode::Start).next().transpose().map(|first| first.is_none())
}

/// The state of a database, if it has one.
pub(super) fn read_state(db: &DB) -> Result<Option<StoreState>, OpenError> {
    let bytes = db.get_pinned_cf(family(db), state::KEY).map_err(|error| told(&error))?;
    bytes.map(|bytes| state::decode(&bytes)).transpose().map_err(|error| match error {
        StateError::OtherFormat(format) => OpenError::OtherFormat(format),
        StateError::Damaged => OpenError::Damaged("its state".into()),
    })
}

/// Gives a database without a state the first one.
fn begin(db: &DB, is_writable: bool) -> Result<StoreState, OpenError> {
    if !is_empty(db).map_err(|error| told(&error))? {
        return Err(OpenError::NotOne);
    }
    let state = StoreState::default();
    if is_writable {
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        db.put_cf_opt(family(db), state::KEY, state::encode(&state), &synced).map_err(|error| told(&error))?;
    }
    Ok(state)
}

fn family(db: &DB) -> &ColumnFamily {
    db.cf_handle(state::FAMILY).expect("it was opened with it")
}

/// RocksDB's settings for the database, and for the items in it.
pub(super) fn settings(options: &RocksOptions, generation: &Arc<AtomicU32>) -> (Options, Options) {
    let mut database = Options::default();
    database.create_if_missing(true);
    database.create_missing_column_families(true);
    database.set_db_write_buffer_size(options.write_buffer_bytes);
    // What was synced is there after a power cut, and of what was not the front part; where the rest is torn it ends.
    database.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    // A log that had been synced and is missing is noticed.
    database.set_track_and_verify_wals_in_manifest(true);
    // The state is so small that it keeps the log it was written to for ever: not beyond what memtables need, so that a start after a
    // kill reads no more than that.
    database.set_max_total_wal_size(options.write_buffer_bytes as u64);
    database.set_bytes_per_sync(BYTES_PER_SYNC);
    database.set_wal_bytes_per_sync(BYTES_PER_SYNC);
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    database.set_max_background_jobs(cores.clamp(2, 8) as i32);
    database.set_max_open_files(FILES_MAX as i32);
    // What a read held last is freed by a thread of RocksDB's.
    database.set_avoid_unnecessary_blocking_io(true);
    // From some twenty files it knows about how many records there are.
    database.set_skip_stats_update_on_db_open(false);
    database.set_log_level(LogLevel::Warn);
    database.set_keep_log_file_num(INFO_LOGS);
    database.set_max_log_file_size(INFO_LOG_LEN_MAX_BYTES);

    let mut items = Options::default();
    items.set_write_buffer_size((options.write_buffer_bytes / WRITE_BUFFERS).max(1 << 20));
    items.set_max_write_buffer_number(WRITE_BUFFERS as i32);
    items.set_level_compaction_dynamic_level_bytes(true);
    // What is young is merged soon; what is old is worth the work.
    items.set_compression_type(DBCompressionType::None);
    items.set_bottommost_compression_type(DBCompressionType::Lz4);
    items.set_periodic_compaction_seconds(MERGED_EVERY_S);
    items.set_memtable_whole_key_filtering(true);
    items.set_memtable_prefix_bloom_ratio(0.02);
    items.set_compaction_filter_factory(Undertaker {
        unix_now: Arc::clone(&options.unix_now),
        generation: Arc::clone(generation),
    });
    let mut blocks = BlockBasedOptions::default();
    // Whose readers wait for no lock. Its table is made for blocks of this length: one that grows is reserved as a whole, which a limit on
    // address space, or memory that is locked, does not go with.
    blocks.set_block_cache(&Cache::new_hyper_clock_cache(options.cache_bytes, BLOCK_LEN_BYTES));
    blocks.set_block_size(BLOCK_LEN_BYTES);
    blocks.set_ribbon_filter(FILTER_BITS);
    blocks.set_whole_key_filtering(true);
    // So that all memory is in one account; what finds the blocks stays somewhat longer than they do.
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    blocks.set_data_block_hash_ratio(0.75);
    blocks.set_format_version(5);
    items.set_block_based_table_factory(&blocks);
    (database, items)
}
