//! A shard that has every key there can be, and keeps nothing.
//!
//! Always true: whatever key is asked for, there is a value of the same length.

use guira_consistency::{Bytes, Key, Value};
use guira_item::{Expiry, Time};
use guira_symmetric::{Items, NotShared, Place};

/// All items.
pub(super) struct EveryKey {
    value: Bytes,
}

impl EveryKey {
    /// With values of so many bytes.
    pub(super) fn new(value_len: usize) -> Self {
        Self { value: vec![0; value_len].into() }
    }
}

impl Items for EveryKey {
    type Shared = NotShared;

    fn shared(&self) -> Option<NotShared> {
        None
    }

    fn get(&mut self, _: &Key, _: Time) -> Option<Value> {
        let bytes = self.value.clone();
        Some(Value { flags: 0, cas: 1, expiry: Expiry::NEVER, stale: false, win_sent: false, bytes })
    }

    fn peek(&mut self, key: &Key) -> Option<Value> {
        self.get(key, Time::default())
    }

    fn walk(&mut self, _: &Place, _: &dyn Fn(&[u8]) -> bool, _: &mut Vec<Key>) -> Option<Place> {
        // Nobody dies here, so nothing comes back.
        None
    }

    fn put(&mut self, _: &Key, _: Option<Value>, _: Time) -> bool {
        true
    }

    fn retain(&mut self, _: Time, _: &dyn Fn(&[u8]) -> bool) {}

    fn len(&self) -> usize {
        0
    }

    fn bytes(&self) -> usize {
        0
    }

    fn bytes_max(&self) -> usize {
        0
    }

    fn evicted(&self) -> u64 {
        0
    }

    fn maintain(&mut self, _: Time) -> bool {
        false
    }
}
