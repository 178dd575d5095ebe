//! The one thread that says what is here.
//!
//! Always true: a key that is here has an entry or its bucket says that there are more; what is done before a key is taken out is seen by who finds it gone, and nothing that is done after
//! a key has come is seen by who finds it missing still.

use std::{
    collections::{HashMap, hash_map},
    sync::Arc,
};

use guira_item::Moment;

use crate::{
    At, Content, Shared,
    bucket::Entry,
    record::{self, Header},
    room::{Order, Room},
    segments::Unit,
};

/// For the thread that writes.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    keys: HashMap<Box<[u8]>, Place>,
    room: Room,
    /// Keys without an entry, by bucket.
    more: HashMap<usize, u32>,
    is_closed: bool,
}

/// Where a key is.
#[derive(Clone, Copy, Debug)]
struct Place {
    hash: u64,
    /// Of its bucket, if it found one.
    entry: Option<usize>,
    record: Option<Record>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    unit: Unit,
    order: Order,
    header: Header,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let room = Room::new(&shared.segments);
        Self { shared, keys: HashMap::new(), room, more: HashMap::new(), is_closed: true }
    }

    /// Has a key served with what it has, nothing being something; O(bytes), if it is served with something else. Where there is no room it is withheld.
    pub fn serve(&mut self, key: &[u8], hash: u64, at: At, content: Option<Content<'_>>) {
        let header = Header::new(at, true);
        self.come(key, hash);
        let Self { shared, keys, room, .. } = self;
        let Some(place) = keys.get_mut(key) else { return };
        let Some(entry) = place.entry else { return };
        let order = Order::of(record::len_of(key, content));
        match &mut place.record {
            Some(record) if record.header == header => return,
            Some(record) if record.order == order => {
                record.header = header;
                record::write(shared.segments.words_to_write(record.unit), key, header, content);
                return;
            }
            _ => {}
        }
        let unit = room.take(order);
        if let Some(unit) = unit {
            record::write(shared.segments.words_to_write(unit), key, header, content);
        }
        let bucket = shared.buckets.number(hash);
        shared.buckets.get(bucket).change(Some((entry, Entry::new(hash, unit))), self.more.contains_key(&bucket));
        let new = unit.map(|unit| Record { unit, order, header });
        if let Some(old) = std::mem::replace(&mut place.record, new) {
            room.give(old.unit, old.order);
        }
    }

    /// Has a key not served: who wants it asks. It comes to be here if it was not.
    pub fn withhold(&mut self, key: &[u8], hash: u64) {
        self.come(key, hash);
        let record = self.keys.get_mut(key).and_then(|place| place.record.as_mut());
        if let Some(record) = record {
            let header = record.header.withheld();
            if record.header != header {
                record.header = header;
                record::set_header(self.shared.segments.words_to_write(record.unit), header);
            }
        }
    }

    /// A key is here no longer: it is cold.
    pub fn remove(&mut self, key: &[u8]) {
        let Some(Place { hash, entry, record }) = self.keys.remove(key) else { return };
        let bucket = self.shared.buckets.number(hash);
        if entry.is_none()
            && let hash_map::Entry::Occupied(mut more) = self.more.entry(bucket)
        {
            *more.get_mut() -= 1;
            if *more.get() == 0 {
                more.remove();
            }
        }
        let entry = entry.map(|entry| (entry, Entry::FREE));
        self.shared.buckets.get(bucket).change(entry, self.more.contains_key(&bucket));
        if let Some(Record { unit, order, .. }) = record {
            self.room.give(unit, order);
        }
    }

    /// No key is here any longer.
    pub fn clear(&mut self) {
        let keys: Vec<Box<[u8]>> = self.keys.keys().cloned().collect();
        keys.iter().for_each(|key| self.remove(key));
    }

    /// Nothing is served from here on, until [`grant`](Self::grant): to be said before who is home of what changes, and what belongs to it.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.shared.grant.close();
    }

    /// What is here is served until then, and what is cold in those of so many shards that `is_home_of` names. A hash's shard is its remainder.
    pub fn grant(&mut self, until: Moment, shards: usize, is_home_of: impl Fn(usize) -> bool) {
        self.close();
        self.is_closed = false;
        self.shared.grant.set(until, shards, is_home_of);
    }

    /// The lease goes on, of the same member with the same shards. Nothing, if nothing is granted.
    pub fn renew(&mut self, until: Moment) {
        if !self.is_closed {
            self.shared.grant.renew(until);
        }
    }

    /// Notes a key, if it is not here yet, in its bucket.
    fn come(&mut self, key: &[u8], hash: u64) {
        if self.keys.contains_key(key) {
            return;
        }
        let number = self.shared.buckets.number(hash);
        let bucket = self.shared.buckets.get(number);
        let entry = bucket.free_entry();
        if entry.is_none() {
            *self.more.entry(number).or_default() += 1;
        }
        bucket.change(entry.map(|entry| (entry, Entry::new(hash, None))), self.more.contains_key(&number));
        self.keys.insert(key.into(), Place { hash, entry, record: None });
    }
}
