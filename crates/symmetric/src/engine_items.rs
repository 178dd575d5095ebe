//! A shard's items in an engine (`memc3`): packed, bounded, evicted by its policy.
//!
//! The engine is not asked to carry anything out: what a write makes of an item is said by whoever has the key ([`Items`]), and what clients know an item by has more bits than an
//! engine's versions. So it stands before the value: eight bytes, little endian.
//!
//! Always true: one thread's; expiries are in the cluster's seconds, by which the engine is told the time, too.

use std::fmt;

use guira_consistency::{Key, Value};
use guira_item::{Answer, Delete, Engine, Get, Hit, Operation, Request, Restore, ScanCursor, Single, Time};

use crate::Items;

/// Bytes of what clients know an item by.
const CAS_LEN: usize = size_of::<u64>();

/// Places of the engine that are looked at at a time.
const SCAN_LIMIT: usize = 4_096;

/// Items in an engine.
pub struct EngineItems<E: Engine> {
    engine: E,
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

    /// In an engine that nobody else uses.
    pub fn new(engine: E) -> Self {
        let worker = engine.worker();
        Self { engine, worker, sink: Single::default() }
    }

    fn execute(&mut self, key: &[u8], operation: Operation<'_>, now: Time) {
        self.sink.clear();
        // Keys have been looked at by whoever takes them from clients or other nodes; of another length there is nothing.
        if let Ok(key) = guira_item::Key::new(key) {
            self.engine.execute(&mut self.worker, now, &[Request { key, operation }], &mut self.sink);
        }
    }
}

impl<E: Engine> Items for EngineItems<E> {
    fn get(&mut self, key: &Key, now: Time) -> Option<Value> {
        self.execute(key, Operation::Get(Get { tells: true, ..Get::PLAIN }), now);
        let (hit, bytes) = self.sink.found.take()?;
        let (cas, bytes) = bytes.split_first_chunk()?;
        let Hit { flags, expiry, stale, win_sent, .. } = hit;
        Some(Value { flags, cas: u64::from_le_bytes(*cas), expiry, stale, win_sent, bytes: bytes.into() })
    }

    fn put(&mut self, key: &Key, value: Option<Value>, now: Time) -> bool {
        let Some(Value { flags, cas, expiry, stale, win_sent, bytes }) = value else {
            self.execute(key, Operation::Delete(Delete { cas: None, invalidate: None }), now);
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
            cursor = self.engine.scan(from, SCAN_LIMIT, now, &mut |item| {
                if !keeps(item.key) {
                    goes.push(item.key.into());
                }
            });
            let remove = Operation::Delete(Delete { cas: None, invalidate: None });
            goes.iter().for_each(|key| self.execute(key, remove, now));
        }
    }

    fn len(&self) -> usize {
        self.engine.stats().curr_items as usize
    }

    fn bytes(&self) -> usize {
        self.engine.stats().bytes as usize
    }

    fn maintain(&mut self, now: Time) -> bool {
        self.engine.maintain(&mut self.worker, now)
    }
}
