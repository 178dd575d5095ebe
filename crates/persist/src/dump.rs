//! The items of a store in a memory file, and of a memory file in a store.
//!
//! Always true: versions in a store are below what it has reserved, whatever file they came from; what is loaded is on disk
//! when that is told.

use std::{
    fmt,
    io::{self, Read, Seek},
    ops::ControlFlow,
    sync::{Arc, mpsc},
};

use guira_item::{
    Key, Rank,
    store::{Condition, Record, Scan, Store, StoreError, StoreState, Write, Written},
};

use crate::{
    format::{FormatError, Item, Reader, Writer},
    write_through::VERSION_LAST,
};

/// Items of a batch, and bytes of their values, from which on it is given to the store.
const BATCH_LEN: usize = 512;
const BATCH_LEN_BYTES: usize = 1 << 20;

/// Batches that are on their way to the store.
const BATCHES_MAX: usize = 8;

/// No engine or store gives a version above this one; some are reserved beyond the last that is given.
const VERSION_MAX: u64 = 1 << 38;

/// Adds an item of a store to a memory file. A store knows no order of use: all have one rank.
///
/// # Errors
/// Whatever the file is written to says.
pub fn put_record<W: io::Write>(writer: &mut Writer<W>, key: Key<'_>, record: &Record<&[u8]>) -> io::Result<()> {
    let Record { flags, expires_unix_s, version, generation: _, stale, win_sent, value } = *record;
    let (fetched, recent, spared, idle_s) = (false, false, false, 0);
    let item = Item { key, flags, expires_unix_s, version, idle_s, fetched, stale, win_sent, recent, spared, value };
    writer.put(Rank::of(0, 1), &item, value.len(), std::iter::once(value))
}

/// What was loaded into a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoadedRecords {
    /// Items that the store has now.
    pub items: u64,
    /// Items that had expired.
    pub expired: u64,
    /// Items that a flush would have taken that came due meanwhile.
    pub flushed: u64,
    /// They got new versions.
    pub has_new_versions: bool,
}

/// Why a memory file was not loaded, or not all of it.
#[derive(Debug)]
pub enum LoadError {
    /// The store has items.
    NotEmpty,
    /// There are no versions left for new ones.
    NoVersions,
    /// A flush is still to come in the file, or in the store, and does not belong to the other's items.
    FlushToCome,
    /// The file, behind so many items that the store may have now.
    File(FormatError, u64),
    /// The store, behind so many items that it may have now.
    Store(StoreError, u64),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loaded = |items: &u64| match items {
            0 => "nothing was loaded".to_owned(),
            items => format!("the {items} items before that were loaded"),
        };
        match self {
            Self::NotEmpty => f.write_str("has items already: choose a new folder, or replace them with --merge"),
            Self::FlushToCome => f.write_str(
                "cannot be merged while a flush_all is still to come in one of the two: load into a new folder",
            ),
            Self::NoVersions => f.write_str("has no versions left for them: load into a new folder"),
            Self::File(error, items) => write!(f, "{error}; {}", loaded(items)),
            // Several batches were on their way.
            Self::Store(error, items) => {
                write!(f, "refuses a write ({error}); it may have up to {items} items of the file")
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// Batches on their way.
struct Loading<'s, S> {
    store: &'s S,
    state: StoreState,
    outcome: mpsc::Receiver<Result<Written, StoreError>>,
    told: mpsc::Sender<Result<Written, StoreError>>,
    under_way: usize,
    loaded: LoadedRecords,
}

impl<S: Store> Loading<'_, S> {
    fn write(&mut self, batch: Vec<Write>) -> Result<(), LoadError> {
        if self.under_way == BATCHES_MAX {
            self.wait_for_one()?;
        }
        self.under_way += 1;
        let told = self.told.clone();
        self.store.write(batch, Box::new(move |written| drop(told.send(written))));
        Ok(())
    }

    fn wait_for_one(&mut self) -> Result<(), LoadError> {
        self.under_way -= 1;
        let written = self.outcome.recv().expect("what was asked for is completed");
        written.map(drop).map_err(|error| LoadError::Store(error, self.loaded.items))
    }

    /// The items of a block of the file, as batches.
    fn put(&mut self, items: &[Item<'_>], now_unix_s: u64) -> Result<(), LoadError> {
        let (mut batch, mut batch_len) = (Vec::new(), 0);
        for item in items {
            if item.expires_unix_s != 0 && item.expires_unix_s <= now_unix_s {
                self.loaded.expired += 1;
                continue;
            }
            let version = if self.loaded.has_new_versions { self.state.versions_reserved + 1 } else { item.version };
            if version > VERSION_MAX {
                return Err(LoadError::File(FormatError::Damaged { what: "a version" }, self.loaded.items));
            }
            if version > self.state.versions_reserved {
                self.state.versions_reserved = version;
                if !self.loaded.has_new_versions {
                    // Before whatever has it. New ones were reserved together.
                    batch.push(Write::State(self.state));
                }
            }
            let Item { key, flags, expires_unix_s, stale, win_sent, value, .. } = *item;
            let (generation, value) = (self.state.generation, Arc::from(value));
            batch_len += item.value.len();
            let record = Record { flags, expires_unix_s, version, generation, stale, win_sent, value };
            batch.push(Write::Put { key: key.as_bytes().into(), record, condition: Condition::Always });
            self.loaded.items += 1;
            if batch.len() >= BATCH_LEN || batch_len >= BATCH_LEN_BYTES {
                self.write(std::mem::take(&mut batch))?;
                batch_len = 0;
            }
        }
        if batch.is_empty() { Ok(()) } else { self.write(batch) }
    }
}

/// Loads a memory file into a store that nobody uses meanwhile, and syncs it; into one that has items if it `merges`: those in
/// the file replace them. In a store that never had an item they keep their versions.
///
/// # Errors
/// [`LoadError`].
pub fn load_records<S: Store, R: Read + Seek>(
    store: &S,
    from: R,
    merges: bool,
    now_unix_s: u64,
    mut progress: impl FnMut(u64),
) -> Result<LoadedRecords, LoadError> {
    let reader = Reader::open(from).map_err(|error| LoadError::File(error, 0))?;
    let (head, len, mut state) = (reader.head(), reader.len(), store.state());
    if head.last_version > VERSION_MAX {
        return Err(LoadError::File(FormatError::Damaged { what: "its versions" }, 0));
    }
    let has_items = has_items(store)?;
    if has_items && !merges {
        return Err(LoadError::NotEmpty);
    }
    let flush_due = head.flush_unix_s != 0;
    if has_items && (state.flush_at_unix_s != 0 || (flush_due && head.flush_unix_s > now_unix_s)) {
        return Err(LoadError::FlushToCome);
    }
    let has_new_versions = state.versions_reserved > 0;
    let mut loaded = LoadedRecords { has_new_versions, ..LoadedRecords::default() };
    // Clients of whatever the file was saved from have been told versions up to there.
    let last_version = head.last_version.max(state.versions_reserved);
    if !has_items {
        state.flush_at_unix_s = if flush_due && head.flush_unix_s > now_unix_s { head.flush_unix_s } else { 0 };
    }
    let (told, outcome) = mpsc::channel();
    let is_flushed = flush_due && head.flush_unix_s <= now_unix_s;
    let new_versions = if has_new_versions && !is_flushed { len } else { 0 };
    state.versions_reserved = last_version + new_versions;
    if new_versions > 0 && state.versions_reserved > VERSION_LAST {
        return Err(LoadError::NoVersions);
    }
    let mut loading = Loading { store, state, outcome, told, under_way: 0, loaded };
    loading.write(vec![Write::State(state)])?;
    if is_flushed {
        loaded.flushed = len;
    } else {
        if has_new_versions {
            loading.state.versions_reserved = last_version;
        }
        reader
            .read::<ReadError>(|items| {
                loading.put(items, now_unix_s)?;
                progress(loading.loaded.items + loading.loaded.expired);
                Ok(())
            })
            .map_err(|error| match error {
                ReadError::File(error) => LoadError::File(error, loading.loaded.items),
                ReadError::Load(error) => error,
            })?;
        loaded = loading.loaded;
    }
    while loading.under_way > 0 {
        loading.wait_for_one()?;
    }
    let (told, outcome) = mpsc::channel();
    store.flush(Box::new(move |flushed| drop(told.send(flushed))));
    let flushed = outcome.recv().expect("what was asked for is completed");
    flushed.map_err(|error| LoadError::Store(error, loaded.items))?;
    Ok(loaded)
}

/// What ends the reading of a file.
enum ReadError {
    File(FormatError),
    Load(LoadError),
}

impl From<FormatError> for ReadError {
    fn from(error: FormatError) -> Self {
        Self::File(error)
    }
}

impl From<LoadError> for ReadError {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

/// Whether a store has records, dead or alive.
fn has_items<S: Store>(store: &S) -> Result<bool, LoadError> {
    let (found, first) = mpsc::channel();
    let (told, outcome) = mpsc::channel();
    let visit = Box::new(move |_: Key<'_>, _: &Record<&[u8]>| {
        let _ = found.send(());
        ControlFlow::Break(())
    });
    store.scan(Scan::ALL, visit, Box::new(move |scanned| drop(told.send(scanned))));
    let scanned = outcome.recv().expect("what was asked for is completed");
    scanned.map_err(|error| LoadError::Store(error, 0))?;
    Ok(first.try_recv().is_ok())
}

#[cfg(test)]
#[path = "dump_tests.rs"]
mod tests;
