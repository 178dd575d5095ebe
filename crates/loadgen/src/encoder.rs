//! Turns of a workload as request bytes, for one server or split over shards.
//!
//! A key belongs to the shard its hash names. A turn split over shards has a part for each, which may be empty.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::LoadError;
use crate::mix::Kind;
use crate::protocol::{FixedShape, KeyList, Protocol, Turn};
use crate::scramble::mix;
use crate::workload::{TurnPlan, Workload};

/// memcached reads lifetimes beyond 30 days as unix time.
const RELATIVE_TTL_MAX_S: u32 = 60 * 60 * 24 * 30;

/// Writes turns as bytes.
#[derive(Clone, Debug)]
pub struct Encoder {
    workload: Workload,
    protocol: Protocol,
    shards: usize,
    unix_time_s: u64,
    version: u32,
    keys: KeyList,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Encoder {
    /// An encoder for `workload` over `shards` servers (at least 1).
    #[expect(clippy::disallowed_methods, reason = "long lifetimes are sent as unix time")]
    pub fn new(workload: &Workload, protocol: Protocol, shards: usize) -> Self {
        let unix_time_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self {
            workload: workload.clone(),
            protocol,
            shards: shards.max(1),
            unix_time_s,
            version: 0,
            keys: KeyList::default(),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// The shard that key `id` lives on, below `shards`.
    pub fn shard_of(id: u64, shards: usize) -> usize {
        if shards == 1 { 0 } else { (mix(id ^ 0x5bd1_e995_9d1b_58d3) % shards as u64) as usize }
    }

    /// The one shape of this workload's answers, if there is one.
    pub fn shape(&self, with_cas: bool) -> Option<FixedShape> {
        let key_len_bytes = self.workload.key_size.fixed()?;
        let value_len_bytes = self.workload.value_size.fixed()?;
        (!with_cas).then_some(FixedShape { key_len_bytes, value_len_bytes })
    }

    /// Appends the part of `plan` that goes to `shard` and says what answers it gets.
    pub fn push_turn(&mut self, out: &mut Vec<u8>, plan: &TurnPlan, shard: usize) -> Result<Turn, LoadError> {
        let mut turn = Turn::default();
        let shards = self.shards;
        for write in plan.writes.iter().filter(|write| Self::shard_of(write.id, shards) == shard) {
            self.push_write(out, write.kind, write.id)?;
            turn.lines += 1;
        }
        self.keys.clear();
        for id in plan.gets.iter().filter(|id| Self::shard_of(**id, self.shards) == shard) {
            self.keys.push_with(|out| self.workload.push_key(out, *id));
        }
        if !self.keys.is_empty() {
            self.protocol.push_get(out, &self.keys, plan.with_cas);
            turn.get_keys = self.keys.len() as u32;
        }
        self.protocol.push_turn_end(out, turn);
        Ok(turn)
    }

    /// Appends one write of key `id`; each has a new version of the value.
    pub fn push_write(&mut self, out: &mut Vec<u8>, kind: Kind, id: u64) -> Result<(), LoadError> {
        self.version = self.version.wrapping_add(1);
        self.key.clear();
        self.value.clear();
        if kind.counts() {
            self.workload.push_counter_key(&mut self.key, id);
        } else {
            self.workload.push_key(&mut self.key, id);
            self.workload.push_value(&mut self.value, &self.key, id, self.version);
        }
        let exptime = self.exptime(id);
        self.protocol.push_write(out, kind, &self.key, &self.value, exptime)
    }

    /// Appends the set that creates the counter of key `id`.
    pub fn push_counter(&mut self, out: &mut Vec<u8>, id: u64) -> Result<(), LoadError> {
        self.key.clear();
        self.workload.push_counter_key(&mut self.key, id);
        self.protocol.push_write(out, Kind::Set, &self.key, self.workload.counter_start(), 0)
    }

    /// The workload it encodes.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// The protocol it encodes for.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    fn exptime(&self, id: u64) -> u64 {
        let ttl_s = self.workload.ttl_s(id);
        if ttl_s > RELATIVE_TTL_MAX_S && self.protocol == Protocol::MemcacheText {
            self.unix_time_s + u64::from(ttl_s)
        } else {
            u64::from(ttl_s)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Sizes;
    use crate::workload::Operation;

    #[test]
    fn shards_share_the_turn_without_loss() {
        let workload = Workload::small_items(1_000);
        let plan = TurnPlan {
            writes: (0..10).map(|id| Operation { kind: Kind::Set, id }).collect(),
            gets: (0..100).collect(),
            with_cas: false,
        };
        let mut encoder = Encoder::new(&workload, Protocol::MemcacheText, 3);
        let turns: Vec<Turn> =
            (0..3).map(|shard| encoder.push_turn(&mut Vec::new(), &plan, shard).expect("encodes")).collect();
        assert_eq!(turns.iter().map(|turn| turn.lines).sum::<u32>(), 10);
        assert_eq!(turns.iter().map(|turn| turn.get_keys).sum::<u32>(), 100);
        assert!(turns.iter().all(|turn| turn.get_keys > 15), "{turns:?}");
    }

    #[test]
    fn lifetimes_beyond_thirty_days_become_unix_time() {
        let workload = Workload { ttl: Sizes::Fixed(RELATIVE_TTL_MAX_S + 1), ..Workload::small_items(10) };
        let mut encoder = Encoder::new(&workload, Protocol::MemcacheText, 1);
        let mut out = Vec::new();
        encoder.push_write(&mut out, Kind::Set, 1).expect("encodes");
        let text = String::from_utf8(out).expect("text");
        let exptime: u64 = text.split(' ').nth(3).and_then(|word| word.parse().ok()).expect("an exptime");
        assert!(exptime > 1_700_000_000, "{exptime}");
    }

    #[test]
    fn counters_are_numbers_under_keys_of_their_own() {
        let mut encoder = Encoder::new(&Workload::small_items(10), Protocol::MemcacheText, 1);
        let mut out = Vec::new();
        encoder.push_counter(&mut out, 5).expect("encodes");
        encoder.push_write(&mut out, Kind::Incr, 5).expect("encodes");
        let expected = "set n000000000000005 0 0 7\r\n1000000\r\nincr n000000000000005 1\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
