//! The simplest engine there is: a map under one lock, with the meaning of the commands from `guira_item::apply`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use guira_item::{
    Answer, Change, Current, Death, Engine, EngineStats, EvictionLog, Expiry, Footprint, Footprints, Hit, ItemInfo,
    Loan, MemoryLimitError, Operation, OwnNumber, PinnedValue, Request, ScanCursor, Sink, Time, VALUE_SLACK_LEN, apply,
};

/// Values longer than this are handed out pinned.
const COPIED_LEN_MAX: usize = 16 << 10;

#[derive(Clone, Default)]
struct Item {
    value: Vec<u8>,
    flags: u32,
    cas: u64,
    expiry: Expiry,
    fetched: bool,
    stale: bool,
    win_sent: bool,
    stored: Time,
}

/// Holds everything until it is deleted; evicts what `evict` is called for.
#[derive(Default)]
pub struct Reference {
    items: Mutex<BTreeMap<Vec<u8>, Item>>,
    flush: Mutex<Option<Time>>,
    next_cas: AtomicU64,
    log: Mutex<Option<EvictionLog>>,
    pub maintained: AtomicU64,
    /// Whoever asks for the key `gate` waits for it.
    pub gate: Mutex<()>,
    /// Requests for the key `gate` so far.
    pub at_gate: AtomicU64,
    /// Bytes it still has to lend.
    pub lendable: Arc<AtomicU64>,
    /// The most keys that were ever announced at once.
    pub prefetched_max: AtomicU64,
}

struct Lent {
    bytes: u64,
    lendable: Arc<AtomicU64>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.lendable.fetch_add(self.bytes, SeqCst);
    }
}

struct Pinned(Vec<u8>);

impl PinnedValue for Pinned {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn piece(&self, offset: usize) -> &[u8] {
        &self.0[offset..]
    }
}

impl Reference {
    /// Removes an item as if for lack of memory.
    pub fn evict(&self, key: &[u8]) {
        let item = self.items.lock().unwrap().remove(key).unwrap();
        if let Some(log) = &*self.log.lock().unwrap() {
            log(&info(key, &item));
        }
    }

    pub fn is_logging_evictions(&self) -> bool {
        self.log.lock().unwrap().is_some()
    }

    pub fn execute_one(&self, index: usize, request: &Request<'_>, now: Time, sink: &mut impl Sink) {
        let key = request.key.as_bytes();
        if key == b"gate" {
            self.at_gate.fetch_add(1, SeqCst);
            drop(self.gate.lock().unwrap());
        }
        let mut items = self.items.lock().unwrap();
        let flush = *self.flush.lock().unwrap();
        let is_flushed = |item: &Item| flush.is_some_and(|at| at <= now && item.stored < at);
        let is_live = |item: &Item| !item.expiry.is_past(now) && !is_flushed(item);
        if let Some(dead) = items.get(key).filter(|item| !is_live(item)) {
            sink.found_dead(index, if is_flushed(dead) { Death::Flushed } else { Death::Expired });
        }
        let item = items.get(key).filter(|item| is_live(item)).cloned();
        let current = item.as_ref().map(|item| Current {
            flags: item.flags,
            cas: item.cas,
            expiry: item.expiry,
            value_len: item.value.len(),
            value: Some(&item.value),
            fetched: item.fetched,
            stale: item.stale,
            win_sent: item.win_sent,
            idle_s: 0,
            class: 1,
            total_len: key.len() + item.value.len(),
        });
        let next_cas = self.next_cas.fetch_add(1, Relaxed) + 1;
        let (change, outcome) = apply(&request.operation, current.as_ref(), now, next_cas);
        let footprint = |value_len, expiry| Footprint { class: 1, value_len, expiry };
        let before = item.as_ref().map(|item| footprint(item.value.len(), item.expiry));
        let after = match (&change, &request.operation) {
            (Change::Rewrite { value, expiry, .. }, _) => {
                Some(footprint(value.len_with(before.map_or(0, |item| item.value_len)), *expiry))
            }
            (_, Operation::Store(store)) => Some(footprint(store.value.len(), store.expiry)),
            _ => None,
        };
        match change {
            Change::Keep => {}
            Change::Remove => drop(items.remove(key)),
            Change::Rewrite { value, flags, expiry, stale, win_sent } => {
                let before = item.clone().unwrap_or_default().value;
                let value = value.bytes_with(&before);
                let item = Item { value, flags, cas: next_cas, expiry, fetched: false, stale, win_sent, stored: now };
                items.insert(key.to_vec(), item);
            }
            Change::Mark { expiry, stale, win_sent, new_version } => {
                let item = items.get_mut(key).unwrap();
                (item.expiry, item.stale, item.win_sent) = (expiry, stale, win_sent);
                if new_version {
                    item.cas = next_cas;
                }
            }
        }
        match outcome {
            Err(answer) => sink.answer_change(index, answer, &Footprints { before, after }),
            Ok(hit) => {
                let value = items.get_mut(key).map_or_else(Vec::new, |item| {
                    item.fetched = true;
                    item.value.clone()
                });
                answer_hit(index, request, &hit, value, sink);
            }
        }
    }
}

fn answer_hit(index: usize, request: &Request<'_>, hit: &Hit, value: Vec<u8>, sink: &mut impl Sink) {
    let guira_item::Operation::Get(get) = request.operation else { return sink.answer(index, Answer::Miss) };
    if !get.value {
        sink.metadata(index, hit);
    } else if value.len() > COPIED_LEN_MAX {
        sink.pinned(index, hit, Box::new(Pinned(value)));
    } else {
        let room = sink.reserve(index, hit);
        room.fill(0xEE);
        room[VALUE_SLACK_LEN..VALUE_SLACK_LEN + value.len()].copy_from_slice(&value);
        sink.commit(index, hit);
    }
}

fn info<'a>(key: &'a [u8], item: &Item) -> ItemInfo<'a> {
    ItemInfo {
        key,
        cas: item.cas,
        flags: item.flags,
        expiry: item.expiry,
        idle_s: 0,
        recent: false,
        fetched: item.fetched,
        stale: item.stale,
        win_sent: item.win_sent,
        class: 1,
        total_len: key.len() + item.value.len(),
        value_len: item.value.len(),
    }
}

impl Engine for Reference {
    type Worker = ();

    fn worker(&self) {}

    fn execute<S: Sink>(&self, _worker: &mut (), now: Time, requests: &[Request<'_>], sink: &mut S) {
        for (index, request) in requests.iter().enumerate() {
            self.execute_one(index, request, now, sink);
        }
    }

    fn prefetch(&self, _worker: &mut (), keys: &[&[u8]]) {
        self.prefetched_max.fetch_max(keys.len() as u64, SeqCst);
    }

    fn lend(&self, _worker: &mut (), _now: Time, bytes: usize) -> Option<Loan> {
        let bytes = bytes as u64;
        self.lendable.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(bytes)).ok()?;
        Some(Box::new(Lent { bytes, lendable: Arc::clone(&self.lendable) }))
    }

    fn flush_all(&self, at: Time, now: Time) {
        if at <= now {
            self.items.lock().unwrap().clear();
        } else {
            *self.flush.lock().unwrap() = Some(at);
        }
    }

    fn flush_due(&self) -> Option<Time> {
        *self.flush.lock().unwrap()
    }

    fn stats(&self) -> EngineStats {
        let items = self.items.lock().unwrap();
        EngineStats {
            engine: "reference",
            eviction: "none",
            curr_items: items.len() as u64,
            bytes: items.iter().map(|(key, item)| key.len() + item.value.len()).sum::<usize>() as u64,
            limit_maxbytes: 64 << 20,
            own: vec![
                OwnNumber { name: "reference_asked", help: "What was asked", adds_up: true, value: 5 },
                OwnNumber { name: "reference_waits", help: "What waits", adds_up: false, value: 3 },
            ],
            classes: vec![guira_item::ClassStats {
                class: 1,
                chunk_size: 96,
                total_pages: 1,
                used_chunks: items.len() as u64,
                ..Default::default()
            }],
            ..EngineStats::default()
        }
    }

    fn scan(
        &self,
        cursor: ScanCursor,
        limit: usize,
        _now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>),
    ) -> Option<ScanCursor> {
        let items = self.items.lock().unwrap();
        let from = cursor.0 as usize;
        for (key, item) in items.iter().skip(from).take(limit) {
            visit(&info(key, item));
        }
        (from + limit < items.len()).then_some(ScanCursor((from + limit) as u64))
    }

    fn set_memory_limit(&self, bytes: usize) -> Result<(), MemoryLimitError> {
        if bytes > 64 << 20 { Err(MemoryLimitError::TooLarge { max: 64 << 20 }) } else { Ok(()) }
    }

    fn maintain(&self, _worker: &mut (), _now: Time) -> bool {
        self.maintained.fetch_add(1, Relaxed);
        false
    }

    fn last_version(&self) -> u64 {
        self.next_cas.load(Relaxed)
    }

    fn skip_versions(&self, last: u64) {
        self.next_cas.fetch_max(last, Relaxed);
    }

    fn log_evictions(&self, log: Option<EvictionLog>) {
        *self.log.lock().unwrap() = log;
    }
}
