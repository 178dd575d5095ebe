//! A shard's items in an engine (`memc3`): packed, bounded, evicted by its policy.
//!
//! The engine is not asked to carry anything out: what a write makes of an item is said by whoever has the key ([`Items`]), and what clients know an item by has more bits than an
//! engine's versions. So it stands before the value: eight bytes, little endian.
//!
//! Always true: one thread changes it, others read ([`SharedEngine`]) what it had at one moment, never half of a change; expiries are in the cluster's seconds, by which the engine is told the time, too.

use std::{fmt, ops::Range, sync::Arc};

use guira_consistency::{Key, Value};
use guira_item::{
    Answer, Death, Delete, Engine, Get, Hit, Operation, PinnedValue, Request, Restore, ScanCursor, Single, Sink, Time,
    VALUE_SLACK_LEN, gathered,
};

use crate::{Items, Place, SharedItems, SharedRead};

/// Bytes of what clients know an item by.
const CAS_LEN: usize = size_of::<u64>();

/// When nothing is over: what is by one clock is not yet by another.
const NEVER_OVER: Time = Time(0);

/// Places of the engine that are looked at at a time.
const SCAN_LIMIT: usize = 4_096;

/// Items in an engine.
pub struct EngineItems<E: Engine> {
    engine: Arc<E>,
    worker: E::Worker,
    sink: Single,
}

impl<E: Engine> fmt::Debug for EngineItems<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineItems").finish_non_exhaustive()
    }
}

impl<E: Engine> EngineItems<E> {
    /// Bytes that an item takes beside its key and its value: an engine's longest item is to be so much longer.
    pub const BESIDE_LEN: usize = CAS_LEN;

    /// In an engine that nobody else changes.
    pub fn new(engine: E) -> Self {
        let worker = engine.worker();
        Self { engine: Arc::new(engine), worker, sink: Single::default() }
    }

    fn remove(&mut self, key: &[u8], now: Time) {
        self.execute(key, Operation::Delete(Delete { cas: None, invalidate: None }), now);
    }

    /// What a read has found.
    fn found(&mut self) -> Option<Value> {
        let (hit, bytes) = self.sink.found.take()?;
        let (cas, bytes) = bytes.split_first_chunk()?;
        let Hit { flags, expiry, stale, win_sent, .. } = hit;
        Some(Value { flags, cas: u64::from_le_bytes(*cas), expiry, stale, win_sent, bytes: bytes.into() })
    }

    fn execute(&mut self, key: &[u8], operation: Operation<'_>, now: Time) {
        self.sink.clear();
        // Keys have been looked at by whoever takes them from clients or other nodes; of another length there is nothing.
        if let Ok(key) = guira_item::Key::new(key) {
            self.engine.execute(&mut self.worker, now, &[Request { key, operation }], &mut self.sink);
        }
    }
}

/// The items for other threads.
pub struct SharedEngine<E>(Arc<E>);

impl<E> Clone for SharedEngine<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E> fmt::Debug for SharedEngine<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedEngine")
    }
}

impl<E: Engine> SharedItems for SharedEngine<E> {
    type Reads = E::Worker;

    fn reads(&self) -> E::Worker {
        self.0.worker()
    }

    fn read(&self, worker: &mut E::Worker, key: &[u8], now: Time, values: &mut Vec<u8>) -> SharedRead {
        let Ok(key) = guira_item::Key::new(key) else { return SharedRead::Nothing };
        let begin = values.len();
        let mut sink = Appended { values, found: None, is_over: false };
        let operation = Operation::Get(Get { tells: true, ..Get::PLAIN });
        self.0.execute(worker, now, &[Request { key, operation }], &mut sink);
        let Appended { found, is_over, .. } = sink;
        let cas = found.as_ref().and_then(|(_, value)| values[value.clone()].first_chunk());
        let read = match (&found, cas) {
            (Some((flags, value)), Some(cas)) => {
                let (flags, cas) = (*flags, u64::from_le_bytes(*cas));
                SharedRead::Hit { flags, cas, value: value.start + CAS_LEN..value.end }
            }
            _ if is_over => SharedRead::Over,
            _ => SharedRead::Nothing,
        };
        if !matches!(read, SharedRead::Hit { .. }) {
            values.truncate(begin);
        }
        read
    }
}

/// A sink for one read, which appends the value.
struct Appended<'v> {
    values: &'v mut Vec<u8>,
    found: Option<(u32, Range<usize>)>,
    is_over: bool,
}

impl Sink for Appended<'_> {
    fn reserve(&mut self, _: usize, hit: &Hit) -> &mut [u8] {
        // A read that is repeated takes other room.
        let begin = self.values.len();
        self.values.resize(begin + VALUE_SLACK_LEN + hit.value_len + VALUE_SLACK_LEN, 0);
        &mut self.values[begin..]
    }

    fn commit(&mut self, _: usize, hit: &Hit) {
        let end = self.values.len() - VALUE_SLACK_LEN;
        self.found = Some((hit.flags, end - hit.value_len..end));
    }

    fn pinned(&mut self, _: usize, hit: &Hit, value: Box<dyn PinnedValue>) {
        let begin = self.values.len();
        self.values.extend_from_slice(&gathered(&*value));
        self.found = Some((hit.flags, begin..self.values.len()));
    }

    fn metadata(&mut self, _: usize, _: &Hit) {}

    fn answer(&mut self, _: usize, _: Answer) {}

    fn found_dead(&mut self, _: usize, _: Death) {
        self.is_over = true;
    }
}

impl<E: Engine> Items for EngineItems<E> {
    type Shared = SharedEngine<E>;

    fn shared(&self) -> Option<SharedEngine<E>> {
        Some(SharedEngine(Arc::clone(&self.engine)))
    }

    fn get(&mut self, key: &Key, now: Time) -> Option<Value> {
        self.execute(key, Operation::Get(Get { tells: true, ..Get::PLAIN }), now);
        if self.sink.death.is_some() {
            // It stays over, whoever asks next by whichever clock.
            self.remove(key, now);
        }
        self.found()
    }

    fn peek(&mut self, key: &Key) -> Option<Value> {
        self.execute(key, Operation::Get(Get { bump: false, ..Get::PLAIN }), NEVER_OVER);
        self.found()
    }

    /// By the engine's own places. It moves items from one to another only when it needs memory for others, and evicts for it.
    fn walk(&mut self, from: &Place, wants: &dyn Fn(&[u8]) -> bool, found: &mut Vec<Key>) -> Option<Place> {
        let cursor = from.0.first_chunk().map_or(ScanCursor::default(), |at| ScanCursor(u64::from_le_bytes(*at)));
        let next = self.engine.scan(cursor, SCAN_LIMIT, NEVER_OVER, &mut |item| {
            if wants(item.key) {
                found.push(item.key.into());
            }
        });
        next.map(|ScanCursor(at)| Place(at.to_le_bytes().into()))
    }

    fn put(&mut self, key: &Key, value: Option<Value>, now: Time) -> bool {
        let Some(Value { flags, cas, expiry, stale, win_sent, bytes }) = value else {
            self.remove(key, now);
            return true;
        };
        let value = [&cas.to_le_bytes()[..], &bytes].concat();
        let restore = Restore {
            replaces: true,
            flags,
            expiry,
            version: 0,
            fetched: false,
            stale,
            win_sent,
            idle_s: 0,
            recent: false,
            spared: false,
            value: &value,
        };
        self.execute(key, Operation::Restore(restore), now);
        matches!(self.sink.answer, Some(Answer::Stored { .. }))
    }

    fn retain(&mut self, now: Time, keeps: &dyn Fn(&[u8]) -> bool) {
        let mut cursor = Some(ScanCursor::default());
        while let Some(from) = cursor {
            let mut goes: Vec<Box<[u8]>> = Vec::new();
            cursor = self.engine.scan(from, SCAN_LIMIT, NEVER_OVER, &mut |item| {
                if !keeps(item.key) {
                    goes.push(item.key.into());
                }
            });
            goes.iter().for_each(|key| self.remove(key, now));
        }
    }

    fn len(&self) -> usize {
        self.engine.stats().curr_items as usize
    }

    fn bytes(&self) -> usize {
        self.engine.stats().bytes as usize
    }

    fn bytes_max(&self) -> usize {
        self.engine.stats().limit_maxbytes as usize
    }

    fn evicted(&self) -> u64 {
        self.engine.stats().evictions
    }

    fn maintain(&mut self, now: Time) -> bool {
        self.engine.maintain(&mut self.worker, now)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use guira_item::Expiry;
    use guira_memc3::{Config, Memc3};

    use super::*;
    use crate::MemoryItems;

    const NOW: Time = Time(100);

    fn items() -> EngineItems<Memc3> {
        EngineItems::new(Memc3::new(Config { hash_seed: 7, ..Config::new(4 << 20) }).unwrap())
    }

    fn key(number: usize) -> Key {
        Key::from(format!("key{number}").as_bytes())
    }

    fn value(number: usize) -> Value {
        let (cas, expiry) = (u64::MAX - number as u64, Expiry::at(Time(1_000)));
        Value {
            flags: number as u32,
            cas,
            expiry,
            stale: number.is_multiple_of(2),
            win_sent: number.is_multiple_of(3),
            bytes: vec![7; number * 10].into(),
        }
    }

    #[test]
    fn what_was_put_is_what_is_got() {
        let (mut items, mut model) = (items(), MemoryItems::new(1 << 20));
        for number in 0..300 {
            let value = (number % 7 != 0).then(|| value(number));
            assert!(items.put(&key(number % 200), value.clone(), NOW) && model.put(&key(number % 200), value, NOW));
        }
        (0..200).for_each(|number| assert_eq!(items.get(&key(number), NOW), model.get(&key(number), NOW), "{number}"));
        assert_eq!(items.len(), model.len());
        let keeps = |key: &[u8]| key.ends_with(b"3");
        items.retain(NOW, &keeps);
        model.retain(NOW, &keeps);
        (0..200).for_each(|number| assert_eq!(items.get(&key(number), NOW), model.get(&key(number), NOW), "{number}"));
        assert_eq!(items.len(), model.len());
    }

    #[test]
    fn a_walk_finds_what_is_there_throughout_and_a_peek_what_is_over() {
        let (mut items, mut model) = (items(), MemoryItems::new(1 << 20));
        let all: BTreeSet<Key> = (0..9_000).map(key).collect();
        let wants = |key: &[u8]| !key.ends_with(b"3");
        for key in &all {
            assert!(items.put(key, Some(value(0)), NOW) && model.put(key, Some(value(0)), NOW));
        }
        fn walk(items: &mut impl Items, wants: &dyn Fn(&[u8]) -> bool) -> BTreeSet<Key> {
            let (mut found, mut next, mut steps) = (Vec::new(), Some(Place::default()), 0);
            while let Some(from) = next {
                next = items.walk(&from, wants, &mut found);
                // What is written meanwhile does not disturb it.
                assert!(items.put(&key(steps), Some(value(1)), NOW) && items.put(&key(9_000 + steps), None, NOW));
                steps += 1;
            }
            assert!(steps > 2);
            BTreeSet::from_iter(found)
        }
        let wanted: BTreeSet<Key> = all.iter().filter(|key| wants(key)).cloned().collect();
        assert!(walk(&mut items, &wants).is_superset(&wanted));
        assert_eq!(walk(&mut model, &wants), wanted);
        assert_eq!(items.peek(&key(8_000)), Some(value(0)), "by no clock over");
        assert_eq!((items.get(&key(8_000), Time(1_000)), items.peek(&key(8_000))), (None, None));
    }

    #[test]
    fn what_was_over_once_is_over_by_any_clock() {
        let mut items = items();
        assert!(items.put(&key(1), Some(value(1)), NOW));
        assert_eq!(items.get(&key(1), Time(999)), Some(value(1)));
        assert_eq!(items.get(&key(1), Time(1_000)), None);
        assert_eq!(items.get(&key(1), Time(999)), None);
    }

    #[test]
    fn what_is_over_by_one_clock_is_removed_for_all() {
        let mut items = items();
        assert!(items.put(&key(1), Some(value(1)), NOW));
        items.retain(Time(1_000), &|_| false);
        assert_eq!(items.get(&key(1), Time(999)), None);
    }

    #[test]
    fn what_finds_no_room_is_refused() {
        let mut items = items();
        let long = Value { bytes: vec![7; 2 << 20].into(), ..value(1) };
        assert!(!items.put(&key(1), Some(long), NOW));
    }
}
