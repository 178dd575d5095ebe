//! What a step wants done: messages, calls of the store, answers, and rules for the network.
//!
//! Always true: a driver does what is in it in its order before the next step, and empties it.

use std::collections::BTreeSet;

use guira_chain::Reply;
use guira_item::store::{StoreState, Write};
use guira_routing::{KeyHash, NodeId, PartitionId, RuleUpdate};
use serde::Serialize;

use crate::{Commit, Message};

/// Bytes of memory that are kept for the next step: as much as most steps say.
const KEPT_LEN_MAX: usize = 1 << 20;

/// Names what a gateway was asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct AskId(pub u64);

/// What a backend wants of its store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreCall {
    /// Read an item; told by [`Happened::Read`](crate::backend::Happened::Read).
    Read(Box<[u8]>),
    /// Write an item; told by [`Happened::Written`](crate::backend::Happened::Written).
    Write(Box<[u8]>, Write),
    /// Name the keys of some partitions; told by [`Happened::Scanned`](crate::backend::Happened::Scanned).
    Scan(Scan),
    /// Fence off what was written to these partitions before; told by [`Happened::Fenced`](crate::backend::Happened::Fenced).
    Fence(BTreeSet<PartitionId>),
    /// Have on disk what is written; told by [`Happened::Flushed`](crate::backend::Happened::Flushed).
    Flush,
    /// Write the state; told by [`Happened::StateWritten`](crate::backend::Happened::StateWritten).
    State(StoreState),
}

/// A part of all keys that a store has is to be looked through, in the store's own order, for those of some partitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    /// Its number.
    pub number: ScanNumber,
    /// Of which partitions.
    pub partitions: BTreeSet<PartitionId>,
    /// Behind this key; from the first one on without.
    pub after: Option<Box<[u8]>>,
    /// Where it ends at the latest.
    pub bounds: ScanBounds,
}

/// Tells a backend's scans apart, within its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ScanNumber(pub u64);

/// How much a scan looks through at most, so that others are not kept waiting by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanBounds {
    /// Keys, of whatever partition: at least 1.
    pub keys_max: usize,
    /// Bytes of the items that are named; one always is.
    pub bytes_max: usize,
}

impl Default for ScanBounds {
    /// A few milliseconds; what is named fits into a link several times.
    fn default() -> Self {
        Self { keys_max: 4_096, bytes_max: 8 << 20 }
    }
}

/// What a scan has found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scanned {
    /// Keys of the partitions, in the store's order.
    pub keys: Vec<Box<[u8]>>,
    /// The last key that was looked at, if there are more.
    pub more_after: Option<Box<[u8]>>,
}

/// A scan that is under way. Shared by what drives stores.
#[derive(Clone, Debug)]
pub struct Scanning {
    partitions: BTreeSet<PartitionId>,
    bounds: ScanBounds,
    looked_at: usize,
    bytes: usize,
    found: Scanned,
}

impl Scanning {
    /// Begins one.
    pub fn new(scan: Scan) -> Self {
        let Scan { partitions, bounds, .. } = scan;
        Self { partitions, bounds, looked_at: 0, bytes: 0, found: Scanned::default() }
    }

    /// Looks at the next key, with bytes of its item; whether it is to go on.
    pub fn visit(&mut self, partition: PartitionId, key: &[u8], value_len: usize) -> bool {
        self.looked_at += 1;
        if self.partitions.contains(&partition) {
            self.bytes += key.len() + value_len;
            self.found.keys.push(key.into());
        }
        let goes_on = self.looked_at < self.bounds.keys_max && self.bytes < self.bounds.bytes_max;
        if !goes_on {
            // Whether there are more is seen by the next one.
            self.found.more_after = Some(key.into());
        }
        goes_on
    }

    /// What it has found.
    pub fn end(self) -> Scanned {
        self.found
    }
}

impl Scan {
    /// The first key that it looks at, or would, in a store whose order is that of keys' bytes.
    pub fn from(&self) -> Vec<u8> {
        // The first one behind it is longer by a byte of zero.
        self.after.iter().flat_map(|after| after.iter().copied().chain([0])).collect()
    }
}

/// Who is to have a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receiver {
    Member(NodeId),
    /// A backend, or who has a copy of its key with this hash: the network says.
    OfContent(NodeId, KeyHash),
}

/// What a step wants done.
#[derive(Default, Debug)]
pub struct Outbox {
    bytes: Vec<u8>,
    /// Receivers, with where their messages end.
    sends: Vec<(Receiver, usize)>,
    /// For the network that routes, from the controller.
    pub rules: Vec<RuleUpdate>,
    /// For the store, in order.
    pub store: Vec<StoreCall>,
    /// For who has asked a gateway.
    pub answers: Vec<(AskId, Reply)>,
    /// For the coordinator.
    pub commit: Option<Commit>,
}

impl Outbox {
    /// Sends a message.
    pub fn send(&mut self, to: NodeId, message: &Message<'_>) {
        self.push(Receiver::Member(to), message);
    }

    /// Sends a read of a backend's key, that the network is to route by the key's hash.
    pub fn send_get(&mut self, backend: NodeId, hash: KeyHash, message: &Message<'_>) {
        self.push(Receiver::OfContent(backend, hash), message);
    }

    fn push(&mut self, to: Receiver, message: &Message<'_>) {
        message.encode(&mut self.bytes);
        self.sends.push((to, self.bytes.len()));
    }

    /// Nothing is sent of what was to be: as if all of it were lost on its way. For who may not say it, since another may have what it is about.
    pub fn withhold(&mut self) -> usize {
        self.bytes.clear();
        std::mem::take(&mut self.sends).len()
    }

    /// What is to be sent to members, in order.
    pub fn sends(&self) -> impl Iterator<Item = (NodeId, &[u8])> {
        self.all().filter_map(|(to, message)| match to {
            Receiver::Member(node) => Some((node, message)),
            Receiver::OfContent(..) => None,
        })
    }

    /// What is to be sent for the network to route: the backend, the key's hash and the message.
    pub fn gets(&self) -> impl Iterator<Item = (NodeId, KeyHash, &[u8])> {
        self.all().filter_map(|(to, message)| match to {
            Receiver::Member(_) => None,
            Receiver::OfContent(backend, hash) => Some((backend, hash, message)),
        })
    }

    fn all(&self) -> impl Iterator<Item = (Receiver, &[u8])> {
        let mut from = 0;
        self.sends.iter().map(move |(to, end)| {
            let message = &self.bytes[from..*end];
            from = *end;
            (*to, message)
        })
    }

    /// Everything is done.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_LEN_MAX);
        self.sends.clear();
        self.store.clear();
        self.answers.clear();
        self.rules.clear();
        self.commit = None;
    }

    /// Nothing is to be done.
    pub fn is_empty(&self) -> bool {
        let Self { bytes: _, sends, rules, store, answers, commit } = self;
        sends.is_empty() && rules.is_empty() && store.is_empty() && answers.is_empty() && commit.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: PartitionId = PartitionId(3);

    /// What scans name of these keys, with their partitions and the bytes of their values, one scan after the other.
    fn scanned(records: &[(&[u8], PartitionId, usize)], bounds: ScanBounds) -> Vec<Vec<Box<[u8]>>> {
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let scan = Scan { number: ScanNumber(1), partitions: BTreeSet::from([OURS]), after, bounds };
            let from = scan.from();
            let mut scanning = Scanning::new(scan);
            for (key, partition, value_len) in records.iter().filter(|(key, ..)| **key >= from[..]) {
                if !scanning.visit(*partition, key, *value_len) {
                    break;
                }
            }
            let Scanned { keys, more_after } = scanning.end();
            pages.push(keys);
            match more_after {
                Some(last) => after = Some(last),
                None => return pages,
            }
        }
    }

    #[test]
    fn scans_name_each_key_once_and_look_at_so_many_at_a_time() {
        let theirs = PartitionId(4);
        let records: [(&[u8], _, _); 6] = [
            (b"a", OURS, 1),
            (b"a\0", OURS, 1),
            (b"a\0\0", theirs, 1),
            (b"b", OURS, 1),
            (b"b\xff", theirs, 1),
            (b"c", OURS, 1),
        ];
        let ours: Vec<Box<[u8]>> =
            records.iter().filter(|(_, its, _)| *its == OURS).map(|(key, ..)| (*key).into()).collect();
        for keys_max in 1..9 {
            let pages = scanned(&records, ScanBounds { keys_max, bytes_max: 1 << 20 });
            assert_eq!(pages.concat(), ours, "{keys_max}");
            assert_eq!(pages.len(), records.len() / keys_max + 1, "{keys_max}");
        }
    }

    #[test]
    fn scans_name_no_more_than_fits_but_one_key_always() {
        let records: [(&[u8], _, _); 4] = [(b"a", OURS, 9), (b"b", OURS, 99), (b"c", OURS, 3), (b"d", OURS, 3)];
        let pages = scanned(&records, ScanBounds { keys_max: 100, bytes_max: 10 });
        let lens: Vec<usize> = pages.iter().map(Vec::len).collect();
        assert_eq!(lens, [1, 1, 2]);
    }
}
