//! A store whose every read takes a while, and a server with one behind its engine.
//!
//! Reads take the same time each however many there are, as those of a device that is far away, not busy: so none overtakes another, and
//! one thread hands them on when their time has come.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use clap::Args;
use guira_item::{
    Key,
    store::{Done, Found, Part, Record, Scan, Store, StoreState, StoreStats, Visit, Write, Written},
};
use guira_memc3::{Config, Memc3};
use guira_persist::{MemoryStore, WriteThrough, WriteThroughConfig};
use guira_server::{ListenAddress, Listeners, Server, Settings};

use super::items::{StoredKey, load};
use crate::error::BenchError;

/// `guira bench delayed-store-server`: hidden, started by the benchmark itself.
#[derive(Clone, Debug, Args)]
pub struct DelayedArgs {
    /// Port on the loopback address
    #[arg(long)]
    pub port: u16,
    /// Memory of the engine, MiB
    #[arg(long)]
    pub memory: usize,
    /// How long a read takes, ms
    #[arg(long)]
    pub read_delay: u64,
    /// Items in the store at the start
    #[arg(long)]
    pub items: u64,
}

/// Serves until it is killed.
///
/// # Errors
/// [`BenchError`]: no memory, no port.
pub fn delayed_store_server_main(args: &DelayedArgs) -> Result<(), BenchError> {
    let failed = |source| BenchError::System { doing: "serving a slow store", source };
    let told = |error: &dyn std::error::Error| BenchError::Setting(error.to_string());
    let host = Some(Ipv4Addr::LOCALHOST.to_string());
    let settings = Settings {
        listen: vec![ListenAddress { host, port: None }],
        tcp_port: Some(args.port),
        threads: 1,
        ..Settings::default()
    };
    let engine = Memc3::new(Config::new(args.memory << 20)).map_err(|error| told(&error))?;
    let store = MemoryStore::default();
    load(&store, "filling a slow store", &StoredKey::all(args.items))?;
    let store = DelayedStore::new(store, Duration::from_millis(args.read_delay)).map_err(failed)?;
    let watch = settings.watch;
    let config = WriteThroughConfig {
        clock: Arc::new(move || watch.clock_by_now()),
        item_len_max: settings.protocol.item_len_max,
        late_len_max: settings.output_len_max,
        versions_shown: settings.protocol.cas_enabled,
    };
    let listeners = Listeners::bind(&settings).map_err(|error| told(&error))?;
    let service = WriteThrough::new(Arc::new(engine), Arc::new(store), config);
    let server = Server::start(settings, listeners, service).map_err(failed)?;
    server.join().map_err(|error| told(&error))
}

/// A read that waits for its time.
struct Waiting {
    due: Instant,
    key: Box<[u8]>,
    done: Done<Found>,
}

/// A store before a store: reads take a while, writes do not.
struct DelayedStore<S> {
    inner: Arc<S>,
    delay: Duration,
    reads: Sender<Waiting>,
}

impl<S: Store> DelayedStore<S> {
    fn new(inner: S, delay: Duration) -> std::io::Result<Self> {
        let inner = Arc::new(inner);
        let (reads, waiting) = mpsc::channel();
        let behind = Arc::clone(&inner);
        std::thread::Builder::new().name("delay".into()).spawn(move || hand_on(&*behind, &waiting))?;
        Ok(Self { inner, delay, reads })
    }
}

/// Hands reads on, each when it is due, until the store before is gone.
#[expect(clippy::disallowed_methods, reason = "taking a while is what it is for")]
fn hand_on(inner: &impl Store, waiting: &Receiver<Waiting>) {
    for Waiting { due, key, done } in waiting {
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            std::thread::sleep(left);
        }
        inner.get(Key::new(&key).expect("it was one"), done);
    }
}

impl<S: Store> Store for DelayedStore<S> {
    fn state(&self) -> StoreState {
        self.inner.state()
    }

    fn get_now<T>(&self, _: Key<'_>, _: impl FnOnce(Option<Record<&[u8]>>) -> T) -> Option<T> {
        None
    }

    fn get(&self, key: Key<'_>, done: Done<Found>) {
        let waiting = Waiting { due: Instant::now() + self.delay, key: key.as_bytes().into(), done };
        // Its thread ends after the store.
        let _ = self.reads.send(waiting);
    }

    fn write(&self, batch: Vec<Write>, done: Done<Written>) {
        self.inner.write(batch, done);
    }

    fn flush(&self, done: Done<()>) {
        self.inner.flush(done);
    }

    fn fence(&self, parts: Vec<Part>, done: Done<()>) {
        self.inner.fence(parts, done);
    }

    fn scan(&self, what: Scan, visit: Visit, done: Done<()>) {
        self.inner.scan(what, visit, done);
    }

    fn snapshot(&self, to: PathBuf, done: Done<()>) {
        self.inner.snapshot(to, done);
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::super::items::is_value;
    use super::*;

    #[test]
    fn reads_come_when_they_are_due_and_in_order() {
        let inner = MemoryStore::default();
        let keys = StoredKey::all(3);
        load(&inner, "loading", &keys).expect("loads");
        let delay = Duration::from_millis(20);
        let store = DelayedStore::new(inner, delay).expect("a thread");
        let (done, came) = mpsc::channel();
        let begin = Instant::now();
        for (number, key) in keys.iter().enumerate() {
            let key = Key::new(key.name()).expect("a key");
            assert_eq!(store.get_now(key, |_| ()), None);
            let done = done.clone();
            store.get(key, Box::new(move |found| done.send((number, found)).expect("somebody waits")));
        }
        for expected in 0..3 {
            let (number, found) = came.recv().expect("it comes");
            let record = found.expect("no failure").record.expect("an item");
            assert!(number == expected && is_value(&record.value));
            assert!(begin.elapsed() >= delay);
        }
    }
}
