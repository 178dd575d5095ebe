//! `--store`: which store stands behind the engine, what it may use, and how it is opened.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use guira_item::{Engine, store::Store};
use guira_persist::{
    Durability, Limit, Limited, Loaded, MemoryFile, MemoryFileError, Saved, WriteThrough, WriteThroughConfig,
    backup_socket::BackupSocket,
    rocks::{RocksOptions, RocksStore},
};
use guira_server::{Listeners, Server, Settings, Watch};

use crate::{engine::Ready, options::Options};

const MIB: usize = 1 << 20;

/// The least a store can work with, in bytes: four write buffers of a megabyte, and blocks.
const MEMORY_MIN: usize = 16 * MIB;

/// The store's share of `-m` if nothing is said: the engine makes more of the rest, since it keeps items, not blocks.
const MEMORY_SHARE: usize = 4;

/// What `--store` says.
#[derive(Clone, Debug)]
pub(crate) enum Chosen {
    /// Items last as long as the process.
    Memory,
    /// They last in a RocksDB.
    Rocks(Rocks),
}

/// Where and how.
#[derive(Clone, Debug)]
pub(crate) struct Rocks {
    /// As the user wrote it.
    shown: String,
    path: PathBuf,
    durability: Durability,
    memory_bytes: usize,
    limit: Option<Limit>,
}

impl Chosen {
    pub(crate) fn of(options: &Options, memory_limit: usize) -> Result<Self, String> {
        let durability = options.durability.as_deref().unwrap_or("always").parse()?;
        let kind = options.store.split_once(':').unwrap_or((&options.store, ""));
        let path = match kind {
            ("memory", "") => {
                if let Some(durability) = &options.durability {
                    return Err(format!(
                        "--durability {durability}: nothing lasts with --store memory, choose another"
                    ));
                }
                if let Some(megabytes) = options.store_memory {
                    return Err(format!("--store-memory {megabytes}: there is no store, choose one with --store"));
                }
                if let Some(limit) = options.store_limit {
                    return Err(format!("--store-limit {limit}: there is no store, choose one with --store"));
                }
                return Ok(Self::Memory);
            }
            ("rocksdb", path) if !path.is_empty() => path,
            ("rocksdb", _) => return Err("--store rocksdb: write where, rocksdb:PATH".into()),
            _ => return Err(format!("--store {}: no such store, use memory or rocksdb:PATH", options.store)),
        };
        if options.memory_file.is_some() {
            return Err("-e does not go with --store: the store keeps the items".into());
        }
        if options.disable_evictions {
            return Err("-M does not go with --store: what memory has no room for is in the store".into());
        }
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
        let limit = options.store_limit.map(|limit| {
            Limit::new(limit).ok_or_else(|| format!("--store-limit {limit}: write from 1 to {}", Limit::MAX))
        });
        let limit = limit.transpose()?;
        let path = std::path::absolute(path).map_err(|error| format!("--store {}: {error}", options.store))?;
        Ok(Self::Rocks(Rocks { shown: options.store.clone(), path, durability, memory_bytes, limit }))
    }

    /// Bytes of `-m` that are the store's.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Memory => 0,
            Self::Rocks(rocks) => rocks.memory_bytes,
        }
    }
}

/// An engine with a store behind it.
pub(crate) struct Behind<E: Engine> {
    engine: Arc<E>,
    rocks: Rocks,
    item_len_max: usize,
    /// Once it is open.
    open: Option<(Arc<Limited<RocksStore>>, WriteThroughConfig)>,
    /// Through which copies are asked for, while it serves.
    socket: Mutex<Option<BackupSocket>>,
}

impl<E: Engine> Behind<E> {
    pub(crate) fn new(engine: Arc<E>, rocks: Rocks, item_len_max: usize) -> Self {
        Self { engine, rocks, item_len_max, open: None, socket: Mutex::default() }
    }
}

impl<E: Engine> Ready for Behind<E> {
    fn open(&mut self, settings: &Settings) -> Result<Option<String>, String> {
        let Rocks { shown, path, durability, memory_bytes, limit } = &self.rocks;
        let begun = Instant::now();
        let watch = settings.watch;
        let unix_now = Arc::new(move || watch.clock_by_now().to_unix_s(watch.now()));
        let options = RocksOptions::with_memory(*memory_bytes, *durability, unix_now);
        let store = RocksStore::open(path, &options).map_err(|error| format!("--store {shown} {error}"))?;
        let config = WriteThroughConfig {
            clock: Arc::new(move || watch.clock_by_now()),
            item_len_max: self.item_len_max,
            late_len_max: settings.output_len_max,
            versions_shown: settings.protocol.cas_enabled,
        };
        let took_ms = begun.elapsed().as_millis();
        let mut line = format!("--store {shown}: open after {took_ms} ms, durability {durability}");
        if let Some(why) = store.read_only() {
            line += &format!("; WRITES ARE REFUSED: {why}");
        }
        if let Some(records) = store.stats().records {
            line += &format!("; about {records} items");
        }
        if let Some(limit) = limit {
            line += &format!("; at most {} operations a second", limit.get());
        }
        let store = Limited::new(Arc::new(store), *limit)
            .map_err(|error| format!("--store {shown} cannot be served: no thread could be started ({error})"))?;
        self.open = Some((Arc::new(store), config));
        Ok(Some(line))
    }

    fn load(&self, _: &MemoryFile, _: &Watch, _: bool) -> Result<Option<Loaded>, MemoryFileError> {
        unreachable!("-e does not go with --store");
    }

    fn start(&self, settings: Settings, listeners: Listeners) -> std::io::Result<Server> {
        let (store, config) = self.open.as_ref().expect("opened before it is started");
        match BackupSocket::open(&self.rocks.path, Arc::clone(store)) {
            Ok(socket) => *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket),
            // A store that can only be read, for instance.
            Err(error) => tracing::warn!("no copies of the store can be had while it serves ({error})"),
        }
        let service = WriteThrough::new(Arc::clone(&self.engine), Arc::clone(store), config.clone());
        Server::start(settings, listeners, service)
    }

    fn close(&self) -> Result<(), String> {
        let Some((store, _)) = &self.open else { return Ok(()) };
        drop(self.socket.lock().unwrap_or_else(PoisonError::into_inner).take());
        store.shut();
        store
            .store()
            .shut()
            .map_err(|error| format!("--store {} was not closed as it should be: {error}", self.rocks.shown))
    }

    fn save(&self, _: MemoryFile, _: &Watch) -> Result<Saved, MemoryFileError> {
        unreachable!("-e does not go with --store");
    }
}
