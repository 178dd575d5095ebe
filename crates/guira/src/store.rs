//! `--store`: which store stands behind the engine, what it may use, and how it is opened.

#[cfg(feature = "cassandra")]
mod cassandra;
mod rocks;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use guira_item::{
    Engine,
    store::{Store, StoreError},
};
use guira_persist::{
    Limit, Limited, Loaded, MemoryFile, MemoryFileError, Saved, WriteThrough, WriteThroughConfig,
    backup_socket::BackupSocket,
    rocks::{DESCRIPTORS_MAX, DESCRIPTORS_MIN},
};
use guira_server::{Listeners, Server, Settings, Watch};
use rustix::process::{Resource, getrlimit};

use crate::{engine::Ready, options::Options, serve::files_of_the_server};

#[cfg(feature = "cassandra")]
pub(crate) use cassandra::Cassandra;
pub(crate) use rocks::Rocks;

const MIB: usize = 1 << 20;

/// What `--store` says.
#[derive(Clone, Debug)]
pub(crate) enum Chosen {
    /// Items last as long as the process.
    Memory,
    /// They last in a RocksDB.
    Rocks(Rocks),
    /// They last in a Cassandra.
    #[cfg(feature = "cassandra")]
    Cassandra(Cassandra),
}

/// Files that what `--store` says may have open: as many as the system allows beside those of the server, within what is of use.
pub(crate) fn descriptors(options: &Options, settings: &Settings) -> u64 {
    match options.store.split_once(':') {
        Some(("rocksdb", _)) => {
            let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
            allowed.saturating_sub(files_of_the_server(settings)).clamp(DESCRIPTORS_MIN, DESCRIPTORS_MAX)
        }
        Some(_) => DESCRIPTORS_MIN,
        None => 0,
    }
}

/// What is said of every store.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    /// As the user wrote it.
    shown: String,
    limit: Option<Limit>,
}

/// A store that can stand behind an engine.
pub(crate) trait Backing {
    /// What it is once it is open.
    type Store: Store;

    /// What is said of every store.
    fn common(&self) -> &Common;

    /// Opens it; and what the user is to know of it. An error goes on from the name of the store.
    fn open(&self, settings: &Settings) -> Result<(Self::Store, String), String>;

    /// Opens a way to ask for copies while it serves, if it has one.
    fn open_socket(&self, store: &Arc<Limited<Self::Store>>) -> Option<BackupSocket>;

    /// Closes it.
    fn shut(store: &Self::Store) -> Result<(), StoreError>;
}

impl Chosen {
    pub(crate) fn of(options: &Options, memory_limit: usize) -> Result<Self, String> {
        let (kind, place) = options.store.split_once(':').unwrap_or((&options.store, ""));
        match (kind, place) {
            ("memory", "") => return Self::memory(options),
            ("rocksdb", "") => return Err("--store rocksdb: write where, rocksdb:PATH".into()),
            ("cassandra", "") => {
                return Err("--store cassandra: write where, cassandra:HOST[:PORT],...[/KEYSPACE]".into());
            }
            ("rocksdb" | "cassandra", _) => {}
            _ => {
                let names = "memory, rocksdb:PATH or cassandra:HOSTS";
                return Err(format!("--store {}: no such store, use {names}", options.store));
            }
        }
        if options.memory_file.is_some() {
            return Err("-e does not go with --store: the store keeps the items".into());
        }
        if options.disable_evictions {
            return Err("-M does not go with --store: what memory has no room for is in the store".into());
        }
        let limit = options.store_limit.map(|limit| {
            Limit::new(limit).ok_or_else(|| format!("--store-limit {limit}: write from 1 to {}", Limit::MAX))
        });
        let common = Common { shown: options.store.clone(), limit: limit.transpose()? };
        if kind == "rocksdb" {
            return Ok(Self::Rocks(Rocks::of(options, common, place, memory_limit)?));
        }
        #[cfg(feature = "cassandra")]
        return Ok(Self::Cassandra(Cassandra::of(options, common, place)?));
        #[cfg(not(feature = "cassandra"))]
        Err(format!("--store {}: this guira was built without it, build with --features cassandra", common.shown))
    }

    /// What is said about a store has nothing to be about.
    fn memory(options: &Options) -> Result<Self, String> {
        if let Some(durability) = &options.durability {
            return Err(format!("--durability {durability}: nothing lasts with --store memory, choose another"));
        }
        if let Some(megabytes) = options.store_memory {
            return Err(format!("--store-memory {megabytes}: there is no store, choose one with --store"));
        }
        if let Some(limit) = options.store_limit {
            return Err(format!("--store-limit {limit}: there is no store, choose one with --store"));
        }
        Ok(Self::Memory)
    }

    /// Bytes of `-m` that are the store's.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Memory => 0,
            Self::Rocks(rocks) => rocks.memory_bytes(),
            #[cfg(feature = "cassandra")]
            Self::Cassandra(_) => 0,
        }
    }
}

/// An engine with a store behind it.
pub(crate) struct Behind<E: Engine, B: Backing> {
    engine: Arc<E>,
    backing: B,
    item_len_max: usize,
    /// Once it is open.
    open: Option<(Arc<Limited<B::Store>>, WriteThroughConfig)>,
    /// Through which copies are asked for, while it serves.
    socket: Mutex<Option<BackupSocket>>,
}

impl<E: Engine, B: Backing> Behind<E, B> {
    pub(crate) fn new(engine: Arc<E>, backing: B, item_len_max: usize) -> Self {
        Self { engine, backing, item_len_max, open: None, socket: Mutex::default() }
    }
}

impl<E: Engine, B: Backing> Ready for Behind<E, B> {
    fn open(&mut self, settings: &Settings) -> Result<Option<String>, String> {
        let Common { shown, limit } = self.backing.common();
        let begun = Instant::now();
        let watch = settings.watch;
        let (store, told) = self.backing.open(settings).map_err(|error| format!("--store {shown} {error}"))?;
        let config = WriteThroughConfig {
            clock: Arc::new(move || watch.clock_by_now()),
            item_len_max: self.item_len_max,
            late_len_max: settings.output_len_max,
            versions_shown: settings.protocol.cas_enabled,
        };
        let took_ms = begun.elapsed().as_millis();
        let mut line = format!("--store {shown}: open after {took_ms} ms{told}");
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
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = self.backing.open_socket(store);
        let service = WriteThrough::new(Arc::clone(&self.engine), Arc::clone(store), config.clone());
        Server::start(settings, listeners, service)
    }

    fn close(&self) -> Result<(), String> {
        let Some((store, _)) = &self.open else { return Ok(()) };
        drop(self.socket.lock().unwrap_or_else(PoisonError::into_inner).take());
        store.shut();
        let shown = &self.backing.common().shown;
        B::shut(store.store()).map_err(|error| format!("--store {shown} was not closed as it should be: {error}"))
    }

    fn save(&self, _: MemoryFile, _: &Watch) -> Result<Saved, MemoryFileError> {
        unreachable!("-e does not go with --store");
    }
}
