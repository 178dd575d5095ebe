//! Where a shard's items are.
//!
//! Always true: an item that was put is what is got, or nothing, if it had to make room or is over.

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    ops::{Bound, Range},
};

use guira_consistency::{Key, Value};
use guira_item::Time;
use serde::{Deserialize, Serialize};

/// Where a walk through items stands, which only these can read; one begins with the default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place(pub Box<[u8]>);

/// Who looks into a shard (ccKVS, EuroSys 2018, section 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShardAccess {
    /// Any thread of its node reads it while one writes (the paper's concurrent read, concurrent write).
    #[default]
    Crcw,
    /// The one thread whose it is, for comparison (exclusive read, exclusive write).
    Erew,
}

/// Items of a shard, one thread's to change.
pub trait Items {
    /// Through which other threads read them.
    type Shared: SharedItems;

    /// For other threads, if they can read them.
    fn shared(&self) -> Option<Self::Shared>;

    /// What a key has. What is over may be there still.
    fn get(&mut self, key: &Key, now: Time) -> Option<Value>;

    /// Has a key have this, or nothing. Whether it does: there may be no room.
    fn put(&mut self, key: &Key, value: Option<Value>, now: Time) -> bool;

    /// What a key has, whether or not that is over by anybody's clock; nothing is removed or counted as used by it.
    fn peek(&mut self, key: &Key) -> Option<Value>;

    /// Goes through some of what is there: adds such keys to `found`, and says where to go on; `None`: it has been through.
    ///
    /// What is there from the first step to the last, and is not put meanwhile, is found, unless items had to make room: then it may be missed as if it were one of those.
    fn walk(&mut self, from: &Place, wants: &dyn Fn(&[u8]) -> bool, found: &mut Vec<Key>) -> Option<Place>;

    /// Removes all items but those with such keys.
    fn retain(&mut self, now: Time, keeps: &dyn Fn(&[u8]) -> bool);

    /// How many there are, about.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of keys and values, about.
    fn bytes(&self) -> usize;

    /// Bytes that there is room for.
    fn bytes_max(&self) -> usize;

    /// Items that have made room for others.
    fn evicted(&self) -> u64;

    /// A slice of what is done beside: whether more of it waits.
    fn maintain(&mut self, now: Time) -> bool;
}

/// Items that any thread reads, while one changes them.
pub trait SharedItems: Clone + Send + Sync + 'static {
    /// What a thread needs for it.
    type Reads: Send;

    /// For one thread.
    fn reads(&self) -> Self::Reads;

    /// What a key had at one moment of this call; the value is appended.
    fn read(&self, reads: &mut Self::Reads, key: &[u8], now: Time, values: &mut Vec<u8>) -> SharedRead;
}

/// What a key has, to a thread that changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SharedRead {
    /// A value.
    Hit {
        /// The client's flags.
        flags: u32,
        /// What clients know it by.
        cas: u64,
        /// Where its bytes are, of those that were appended.
        value: Range<usize>,
    },
    /// Nothing.
    Nothing,
    /// What is over, by this clock: it is to be removed before anybody is told so.
    Over,
}

/// Items that are one thread's.
#[derive(Clone, Copy, Debug)]
pub enum NotShared {}

impl SharedItems for NotShared {
    type Reads = Infallible;

    fn reads(&self) -> Infallible {
        match *self {}
    }

    fn read(&self, _: &mut Infallible, _: &[u8], _: Time, _: &mut Vec<u8>) -> SharedRead {
        match *self {}
    }
}
/// Keys that a walk through a map looks at, at a time: few, so that a test's walk takes more than one step.
const WALK_LIMIT: usize = 4;

/// Items in a map, those put first going first when there is no room: for tests, and for who embeds a node.
#[derive(Clone, Debug, Default)]
pub struct MemoryItems {
    items: BTreeMap<Key, Value>,
    /// Keys as they were put; some are gone.
    order: VecDeque<Key>,
    bytes: usize,
    bytes_max: usize,
    evicted: u64,
}

impl MemoryItems {
    /// At most so many bytes of keys and values.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(value) = self.items.remove(key) {
            self.bytes -= key.len() + value.bytes.len();
        }
    }
}

impl Items for MemoryItems {
    type Shared = NotShared;

    fn shared(&self) -> Option<NotShared> {
        None
    }

    fn get(&mut self, key: &Key, _: Time) -> Option<Value> {
        self.items.get(key).cloned()
    }

    fn put(&mut self, key: &Key, value: Option<Value>, _: Time) -> bool {
        let was_there = self.items.contains_key(key);
        self.remove(key);
        let Some(value) = value else { return true };
        let len = key.len() + value.bytes.len();
        if len > self.bytes_max {
            return false;
        }
        while self.bytes + len > self.bytes_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.evicted += u64::from(self.items.contains_key(&oldest));
            self.remove(&oldest);
        }
        self.bytes += len;
        self.items.insert(key.clone(), value);
        if !was_there {
            self.order.push_back(key.clone());
        }
        // What was removed and came again is there twice.
        if self.order.len() > 2 * self.items.len() + 16 {
            let items = &self.items;
            let mut seen = std::collections::BTreeSet::new();
            self.order.retain(|key| items.contains_key(key) && seen.insert(key.clone()));
        }
        true
    }

    fn peek(&mut self, key: &Key) -> Option<Value> {
        self.items.get(key).cloned()
    }

    fn walk(&mut self, from: &Place, wants: &dyn Fn(&[u8]) -> bool, found: &mut Vec<Key>) -> Option<Place> {
        // The place is the last key that was looked at: no key is empty.
        let behind = self.items.range((Bound::Excluded(Key::from(&from.0[..])), Bound::Unbounded));
        let keys: Vec<&Key> = behind.map(|(key, _)| key).take(WALK_LIMIT).collect();
        found.extend(keys.iter().filter(|key| wants(key)).map(|key| Key::clone(key)));
        keys.last().map(|last| Place(last[..].into()))
    }

    fn retain(&mut self, _: Time, keeps: &dyn Fn(&[u8]) -> bool) {
        self.items.retain(|key, _| keeps(key));
        self.bytes = self.items.iter().map(|(key, value)| key.len() + value.bytes.len()).sum();
    }

    fn len(&self) -> usize {
        self.items.len()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    fn evicted(&self) -> u64 {
        self.evicted
    }

    fn maintain(&mut self, _: Time) -> bool {
        false
    }
}
