//! `watch`: log lines for those who look on, one bounded queue a watcher.
//!
//! Always true: nobody waits for a watcher; a line that finds its queue full is dropped and counted. While nobody watches,
//! the cost is one relaxed load a batch.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use guira_item::{
    Answer, Death, EvictionLog, Footprint, Footprints, Hit, ItemInfo, Operation, PinnedValue, Request, Service, Sink,
    Store, StoreMode, Time,
};
use guira_memcache::{Output, WatchSet};
use mio::Waker;

use crate::clock::Watch as ServerWatch;
use crate::prefixes::Prefixes;
use crate::shared::locked;
use crate::tally::Rare;

/// What can be watched, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Topic {
    Fetchers = 1,
    Mutations = 2,
    Evictions = 4,
    Connections = 8,
}

const ITEM_TOPICS: u8 = Topic::Fetchers as u8 | Topic::Mutations as u8;

fn topics(set: WatchSet) -> u8 {
    [
        (set.fetchers, Topic::Fetchers),
        (set.mutations, Topic::Mutations),
        (set.evictions, Topic::Evictions),
        (set.connevents, Topic::Connections),
    ]
    .into_iter()
    .filter(|(wanted, _)| *wanted)
    .fold(0, |bits, (_, topic)| bits | topic as u8)
}

/// A connection that looks on.
pub(crate) struct Watcher {
    topics: u8,
    queue: Mutex<Vec<u8>>,
    /// The owner has been woken for what lies in the queue.
    woken: AtomicBool,
    waker: Arc<Waker>,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watcher({:#b})", self.topics)
    }
}

impl Watcher {
    /// Moves the waiting lines to the way out.
    pub(crate) fn take_lines(&self, output: &mut Output, rare: &Rare) {
        self.woken.store(false, Relaxed);
        let mut queue = locked(&self.queue);
        let lines = memchr::memchr_iter(b'\n', &queue).count();
        rare.watcher_lines_sent.fetch_add(lines as u64, Relaxed);
        output.push(&queue);
        queue.clear();
    }
}

/// All watchers of a server.
#[derive(Debug)]
pub(crate) struct Watchers {
    list: Arc<Mutex<Vec<Arc<Watcher>>>>,
    /// Held while the service's eviction log is switched; taken before `list`.
    switching: Mutex<()>,
    /// What anyone watches.
    topics: AtomicU8,
    line_number: Arc<AtomicU64>,
    skipped: Arc<AtomicU64>,
    queue_len_max: usize,
}

impl Watchers {
    pub(crate) fn new(queue_len_max: usize) -> Self {
        Self {
            list: Arc::default(),
            switching: Mutex::default(),
            topics: AtomicU8::new(0),
            line_number: Arc::default(),
            skipped: Arc::default(),
            queue_len_max,
        }
    }

    /// Whether anyone watches what batches do.
    #[inline]
    pub(crate) fn wants_items(&self) -> bool {
        self.topics.load(Relaxed) & ITEM_TOPICS != 0
    }

    pub(crate) fn wants(&self, topic: Topic) -> bool {
        self.topics.load(Relaxed) & topic as u8 != 0
    }

    pub(crate) fn count(&self) -> usize {
        locked(&self.list).len()
    }

    /// Lines dropped because a watcher was slow.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.load(Relaxed)
    }

    pub(crate) fn reset_skipped(&self) {
        self.skipped.store(0, Relaxed);
    }

    pub(crate) fn add(
        &self,
        service: &impl Service,
        set: WatchSet,
        waker: Arc<Waker>,
        clock: ServerWatch,
    ) -> Arc<Watcher> {
        let topics = topics(set);
        let watcher = Arc::new(Watcher { topics, queue: Mutex::default(), woken: AtomicBool::new(false), waker });
        self.change(service, clock, |list| list.push(Arc::clone(&watcher)));
        watcher
    }

    pub(crate) fn remove(&self, service: &impl Service, watcher: &Arc<Watcher>, clock: ServerWatch) {
        self.change(service, clock, |list| list.retain(|other| !Arc::ptr_eq(other, watcher)));
    }

    /// Changes the list, and switches the service's eviction log with it: not under the list's lock, since the service
    /// may hold a lock of its own while it reports an eviction.
    fn change(&self, service: &impl Service, clock: ServerWatch, change: impl FnOnce(&mut Vec<Arc<Watcher>>)) {
        let _switching = locked(&self.switching);
        let wanted = {
            let mut list = locked(&self.list);
            change(&mut list);
            list.iter().fold(0, |bits, watcher| bits | watcher.topics)
        };
        let before = self.topics.swap(wanted, Relaxed);
        let evictions = Topic::Evictions as u8;
        if (before ^ wanted) & evictions != 0 {
            service.log_evictions((wanted & evictions != 0).then(|| self.eviction_log(clock)));
        }
    }

    fn eviction_log(&self, clock: ServerWatch) -> EvictionLog {
        let list = Arc::clone(&self.list);
        let (line_number, skipped) = (Arc::clone(&self.line_number), Arc::clone(&self.skipped));
        let queue_len_max = self.queue_len_max;
        Arc::new(move |item: &ItemInfo<'_>| {
            let now = clock.read().time;
            let fetch = if item.fetched { "yes" } else { "no" };
            let ttl = item.expiry.remaining_s(now).map_or(-1, i64::from);
            let head = line_head(&line_number, &clock);
            let line = format!(
                "{head}type=eviction key={} fetch={fetch} ttl={ttl} la={} clsid={} size={}\n",
                UriText(item.key),
                item.idle_s,
                item.class,
                item.value_len,
            );
            post(&list, Topic::Evictions, line.as_bytes(), queue_len_max, &skipped);
        })
    }

    /// `type=conn_new ...`, `type=conn_close ...`.
    pub(crate) fn connection_event(&self, clock: &ServerWatch, text: fmt::Arguments<'_>) {
        self.post(clock, Topic::Connections, text);
    }

    fn post(&self, clock: &ServerWatch, topic: Topic, text: fmt::Arguments<'_>) {
        let line = format!("{}{text}\n", line_head(&self.line_number, clock));
        post(&self.list, topic, line.as_bytes(), self.queue_len_max, &self.skipped);
    }
}

fn line_head(line_number: &AtomicU64, clock: &ServerWatch) -> String {
    let unix = clock.unix();
    let gid = line_number.fetch_add(1, Relaxed) + 1;
    format!("ts={}.{} gid={gid} ", unix.as_secs(), unix.subsec_micros())
}

fn post(list: &Mutex<Vec<Arc<Watcher>>>, topic: Topic, line: &[u8], queue_len_max: usize, skipped: &AtomicU64) {
    for watcher in locked(list).iter().filter(|watcher| watcher.topics & topic as u8 != 0) {
        let mut queue = locked(&watcher.queue);
        if queue.len() + line.len() > queue_len_max {
            skipped.fetch_add(1, Relaxed);
            continue;
        }
        queue.extend_from_slice(line);
        if !watcher.woken.swap(true, Relaxed) {
            let _ = watcher.waker.wake();
        }
    }
}

/// A key as dumps and logs write it: what could be mistaken for syntax as `%NN`.
pub(crate) struct UriText<'a>(pub(crate) &'a [u8]);

impl fmt::Display for UriText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    f.write_char(char::from(*byte))?
                }
                other => write!(f, "%{other:02X}")?,
            }
        }
        Ok(())
    }
}

/// Passes answers on, tells the watchers about them and counts them by prefix.
pub(crate) struct Observed<'s, 'b, T> {
    inner: &'s mut T,
    requests: &'s [Request<'b>],
    now: Time,
    fd: i32,
    watchers: &'s Watchers,
    prefixes: &'s Prefixes,
    clock: ServerWatch,
    lines: u64,
    /// How the item ended that the next answer did not find.
    death: Option<Death>,
}

impl<'s, 'b, T: Sink> Observed<'s, 'b, T> {
    pub(crate) fn new(
        inner: &'s mut T,
        requests: &'s [Request<'b>],
        now: Time,
        fd: i32,
        watchers: &'s Watchers,
        prefixes: &'s Prefixes,
        clock: ServerWatch,
    ) -> Self {
        Self { inner, requests, now, fd, watchers, prefixes, clock, lines: 0, death: None }
    }

    /// Log lines made.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    fn say(&mut self, topic: Topic, text: fmt::Arguments<'_>) {
        if self.watchers.wants(topic) {
            self.lines += 1;
            self.watchers.post(&self.clock, topic, text);
        }
    }

    fn count(&self, index: usize, is_hit: bool) {
        if self.prefixes.is_on() {
            let Request { key, operation } = &self.requests[index];
            self.prefixes.count(key.as_bytes(), |counts| match operation {
                Operation::Get(_) => {
                    counts.gets += 1;
                    counts.hits += u64::from(is_hit);
                }
                Operation::Store(_) => counts.sets += 1,
                Operation::Delete(_) => counts.deletes += 1,
                Operation::Arithmetic(_) | Operation::Touch(_) | Operation::Restore(_) => {}
            });
        }
    }

    fn fetched(&mut self, index: usize, hit: &Hit) {
        self.count(index, true);
        let found = Footprint { class: hit.class, value_len: hit.value_len, expiry: hit.expiry };
        // What the read itself has made was not there.
        self.looked_for(index, (!hit.created).then_some(found));
    }

    /// memcached logs whatever it looks for, whichever command it is for.
    fn looked_for(&mut self, index: usize, found: Option<Footprint>) {
        let (key, fd) = (UriText(self.requests[index].key.as_bytes()), self.fd);
        let missing = match self.death.take() {
            None => "not_found",
            Some(Death::Expired) => "expired",
            Some(Death::Flushed) => "flushed",
        };
        let (status, class, len) = found.map_or((missing, 0, 0), |item| ("found", item.class, item.value_len));
        self.say(
            Topic::Fetchers,
            format_args!("type=item_get key={key} status={status} clsid={class} cfd={fd} size={len}"),
        );
    }

    fn answered(&mut self, index: usize, answer: Answer, items: &Footprints) {
        self.count(index, false);
        self.looked_for(index, items.before);
        let (status, command) = match &self.requests[index].operation {
            Operation::Store(store) => (store_status(answer), store_command(store)),
            Operation::Arithmetic(_) if matches!(answer, Answer::Number { created: true, .. }) => {
                self.looked_for(index, None);
                ("stored", "add")
            }
            Operation::Get(_)
            | Operation::Arithmetic(_)
            | Operation::Delete(_)
            | Operation::Touch(_)
            | Operation::Restore(_) => return,
        };
        let (key, fd) = (UriText(self.requests[index].key.as_bytes()), self.fd);
        let (ttl, class, len) = items
            .after
            .map_or((0, 0, 0), |item| (item.expiry.remaining_s(self.now).unwrap_or(0), item.class, item.value_len));
        self.say(
            Topic::Mutations,
            format_args!(
                "type=item_store key={key} status={status} cmd={command} ttl={ttl} clsid={class} cfd={fd} size={len}"
            ),
        );
    }
}

fn store_status(answer: Answer) -> &'static str {
    match answer {
        Answer::Stored { .. } => "stored",
        Answer::Exists => "exists",
        Answer::NotFound => "not_found",
        Answer::TooLarge => "too_large",
        Answer::OutOfMemory => "no_memory",
        _ => "not_stored",
    }
}

fn store_command(store: &Store<'_>) -> &'static str {
    match store.mode {
        StoreMode::Set if store.cas.is_some() => "cas",
        StoreMode::Set => "set",
        StoreMode::Add => "add",
        StoreMode::Replace => "replace",
        StoreMode::Append => "append",
        StoreMode::Prepend => "prepend",
    }
}

impl<T: Sink> Sink for Observed<'_, '_, T> {
    fn reserve(&mut self, index: usize, hit: &Hit) -> &mut [u8] {
        self.inner.reserve(index, hit)
    }

    fn commit(&mut self, index: usize, hit: &Hit) {
        self.inner.commit(index, hit);
        self.fetched(index, hit);
    }

    fn pinned(&mut self, index: usize, hit: &Hit, value: Box<dyn PinnedValue>) {
        self.inner.pinned(index, hit, value);
        self.fetched(index, hit);
    }

    fn metadata(&mut self, index: usize, hit: &Hit) {
        self.inner.metadata(index, hit);
        self.fetched(index, hit);
    }

    fn found_dead(&mut self, index: usize, death: Death) {
        self.inner.found_dead(index, death);
        self.death = Some(death);
    }

    fn answer(&mut self, index: usize, answer: Answer) {
        self.answer_change(index, answer, &Footprints::default());
    }

    fn answer_change(&mut self, index: usize, answer: Answer, items: &Footprints) {
        self.inner.answer_change(index, answer, items);
        self.answered(index, answer, items);
    }
}
