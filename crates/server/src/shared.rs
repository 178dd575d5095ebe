//! What all threads of one server see: settings, service, counters, the mailboxes of the workers, and whether to stop.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Thread;

use guira_item::{EngineStats, Service};
use guira_memcache::Dialect;
use mio::Waker;

use crate::clock::Watch;
use crate::connections_report::RollCall;
use crate::prefixes::Prefixes;
use crate::settings::Settings;
use crate::stream::Stream;
use crate::tally::Tallies;
use crate::watchers::Watchers;

/// How the server is to end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Stop {
    /// Not at all.
    Not = 0,
    /// No new connections; what has been read is answered.
    Graceful = 1,
    /// At once.
    Now = 2,
}

/// For a worker, from another thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// A client has connected, and speaks this.
    Connected(Stream, Dialect),
    /// Add your connections to this list.
    RollCall(Arc<RollCall>),
    /// The list that a connection of yours waits for is complete.
    RollCallDone(Arc<RollCall>),
}

/// A worker's letter box. At most `connections_max` messages and a few roll calls lie in it.
#[derive(Debug)]
pub(crate) struct Mailbox {
    messages: Mutex<VecDeque<Message>>,
    pub(crate) waker: Arc<Waker>,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { messages: Mutex::default(), waker: Arc::new(waker) }
    }

    pub(crate) fn send(&self, message: Message) {
        locked(&self.messages).push_back(message);
        self.wake();
    }

    pub(crate) fn take(&self) -> Option<Message> {
        locked(&self.messages).pop_front()
    }

    pub(crate) fn wake(&self) {
        // Fails only when the process is out of kernel memory; the next event then brings the worker round.
        let _ = self.waker.wake();
    }
}

/// A lock whose holder panicked is taken all the same: what it guards here is never half-written.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Seen by all threads.
pub(crate) struct Shared<S> {
    pub(crate) settings: Settings,
    pub(crate) service: S,
    pub(crate) watch: Watch,
    pub(crate) tallies: Tallies,
    pub(crate) mailboxes: Vec<Mailbox>,
    pub(crate) watchers: Watchers,
    /// Each list of all connections that is in the making holds one.
    pub(crate) roll_calls: Arc<()>,
    pub(crate) addresses: Addresses,
    /// Bytes of unfinished commands in all connections.
    pub(crate) input_len: AtomicUsize,
    /// Bytes of unread answers in all connections.
    pub(crate) output_len: AtomicUsize,
    pub(crate) verbosity: AtomicU32,
    pub(crate) crawler_enabled: AtomicBool,
    /// `stats sizes` tells the sizes: a walk past all items, which who asks for all of `stats` should not set off.
    pub(crate) sizes_enabled: AtomicBool,
    pub(crate) prefixes: Prefixes,
    /// The acceptor waits for a connection to end.
    pub(crate) accept_paused: AtomicBool,
    pub(crate) acceptor: Option<Arc<Waker>>,
    stop: AtomicU8,
    /// Threads to wake when the server stops.
    pub(crate) sleepers: Mutex<Vec<Thread>>,
}

/// Where the server listens, for `stats` and for whoever started it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) tcp: Vec<std::net::SocketAddr>,
    pub(crate) cp: Vec<std::net::SocketAddr>,
    pub(crate) udp: Vec<std::net::SocketAddr>,
    pub(crate) metrics: Option<std::net::SocketAddr>,
    /// File descriptor and address of each listener, for `stats conns`.
    pub(crate) listening: Vec<(i32, String)>,
}

impl<S: Service> Shared<S> {
    pub(crate) fn new(
        settings: Settings,
        service: S,
        mailboxes: Vec<Mailbox>,
        acceptor: Option<Arc<Waker>>,
        addresses: Addresses,
    ) -> Self {
        Self {
            service,
            watch: settings.watch,
            tallies: Tallies::new(mailboxes.len()),
            mailboxes,
            watchers: Watchers::new(settings.watcher_queue_len_max),
            roll_calls: Arc::default(),
            addresses,
            input_len: AtomicUsize::new(0),
            output_len: AtomicUsize::new(0),
            verbosity: AtomicU32::new(settings.shown.verbosity),
            crawler_enabled: AtomicBool::new(true),
            sizes_enabled: AtomicBool::new(settings.track_sizes),
            prefixes: Prefixes::new(settings.shown.prefix_delimiter, settings.prefix_stats),
            accept_paused: AtomicBool::new(false),
            acceptor,
            stop: AtomicU8::new(Stop::Not as u8),
            sleepers: Mutex::default(),
            settings,
        }
    }

    /// How the server is to end, if it is.
    pub(crate) fn stopping(&self) -> Stop {
        // Acquire: pairs with the AcqRel in `stop`; whoever sees the wish sees what led to it.
        match self.stop.load(Ordering::Acquire) {
            0 => Stop::Not,
            1 => Stop::Graceful,
            _ => Stop::Now,
        }
    }

    /// Asks all threads to end.
    pub(crate) fn stop(&self, how: Stop) {
        // AcqRel: pairs with the Acquire in `stopping`. The stronger wish wins.
        self.stop.fetch_max(how as u8, Ordering::AcqRel);
        if let Some(acceptor) = &self.acceptor {
            let _ = acceptor.wake();
        }
        for mailbox in &self.mailboxes {
            mailbox.wake();
        }
        self.wake_janitor();
        if let Some(address) = self.addresses.metrics {
            crate::http::knock(address);
        }
    }

    /// The engine's numbers, those that add up since the last `stats reset`.
    pub(crate) fn engine_stats(&self) -> EngineStats {
        self.tallies.engine_since_reset(|| self.service.stats())
    }

    /// There may be something to clean up.
    pub(crate) fn wake_janitor(&self) {
        for thread in locked(&self.sleepers).iter() {
            thread.unpark();
        }
    }

    /// A connection has ended: a paused acceptor may go on.
    pub(crate) fn connection_ended(&self) {
        if self.accept_paused.load(Ordering::Relaxed)
            && let Some(acceptor) = &self.acceptor
        {
            let _ = acceptor.wake();
        }
    }
}
