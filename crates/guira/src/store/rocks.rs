//! `--store rocksdb:PATH`.

use std::{path::PathBuf, sync::Arc};

use guira_item::store::{Store, StoreError};
use guira_persist::{
    Durability, Limited,
    backup_socket::BackupSocket,
    rocks::{RocksOptions, RocksStore},
};
use guira_server::Settings;
use rustix::process::{Resource, getrlimit};

use super::{Backing, Common, MIB};
use crate::{options::Options, serve::files_of_the_server};

/// The least a store can work with, in bytes: four write buffers of a megabyte, and blocks.
const MEMORY_MIN: usize = 16 * MIB;

/// The store's share of `-m` if nothing is said: the engine makes more of the rest, since it keeps items, not blocks.
const MEMORY_SHARE: usize = 4;

/// Where and how.
#[derive(Clone, Debug)]
pub(crate) struct Rocks {
    common: Common,
    path: PathBuf,
    durability: Durability,
    memory_bytes: usize,
}

impl Rocks {
    pub(super) fn of(options: &Options, common: Common, path: &str, memory_limit: usize) -> Result<Self, String> {
        let durability = options.durability.as_deref().unwrap_or("always").parse()?;
        let memory_bytes =
            options.store_memory.map_or(memory_limit / MEMORY_SHARE, |megabytes| megabytes.saturating_mul(MIB));
        if options.store_memory.is_some() && memory_bytes < MEMORY_MIN {
            return Err(format!("--store-memory {}: at least {}", memory_bytes / MIB, MEMORY_MIN / MIB));
        }
        let memory_bytes = memory_bytes.max(MEMORY_MIN);
        if memory_bytes > memory_limit / 2 {
            let needed = 2 * memory_bytes / MIB;
            return Err(format!("-m {} is too small for the store: give at least -m {needed}", memory_limit / MIB));
        }
        let path = std::path::absolute(path).map_err(|error| format!("--store {}: {error}", options.store))?;
        Ok(Self { common, path, durability, memory_bytes })
    }

    /// Bytes of `-m` that it may use.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}

impl Backing for Rocks {
    type Store = RocksStore;

    fn common(&self) -> &Common {
        &self.common
    }

    fn open(&self, settings: &Settings) -> Result<(RocksStore, String), String> {
        let Self { common: _, path, durability, memory_bytes } = self;
        let watch = settings.watch;
        let unix_now = Arc::new(move || watch.clock_by_now().to_unix_s(watch.now()));
        // The limit has been raised by then.
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let options = RocksOptions {
            descriptors: allowed.saturating_sub(files_of_the_server(settings)),
            ..RocksOptions::with_memory(*memory_bytes, *durability, unix_now)
        };
        let store = RocksStore::open(path, &options).map_err(|error| error.to_string())?;
        let mut line = format!(", durability {durability}");
        if let Some(why) = store.read_only() {
            line += &format!("; WRITES ARE REFUSED: {why}");
        }
        if let Err(why) = store.reads_at_once() {
            line += &format!("; reads of what is not in the store's own memory take longer than they need to ({why})");
        }
        if let Some(records) = store.stats().records {
            line += &format!("; about {records} items");
        }
        Ok((store, line))
    }

    fn open_socket(&self, store: &Arc<Limited<RocksStore>>) -> Option<BackupSocket> {
        match BackupSocket::open(&self.path, Arc::clone(store)) {
            Ok(socket) => Some(socket),
            // A store that can only be read, for instance.
            Err(error) => {
                tracing::warn!("no copies of the store can be had while it serves ({error})");
                None
            }
        }
    }

    fn shut(store: &RocksStore) -> Result<(), StoreError> {
        store.shut()
    }
}
