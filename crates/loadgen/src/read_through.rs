//! A client that uses the server as a cache: what a multiget misses, it sets.
//!
//! Keys are drawn before the clock starts. A turn carries the sets for the last turn's misses, the mix's own writes
//! and the next multiget, in one write; so the order of operations on the server is fixed, and with one player the
//! miss ratio is the same in every run.

use std::sync::Arc;

use crate::encoder::Encoder;
use crate::error::LoadError;
use crate::interactive::{Next, Player};
use crate::mix::Kind;
use crate::payload::value_is_intact;
use crate::protocol::{Answered, FixedShape, KeyList, Protocol, Turn};
use crate::workload::{TurnPlan, TurnStream, Workload};

/// Marks a drawn key that is written rather than read.
const WRITE: u64 = 1 << 63;

/// Operations drawn in advance, to be read by several players.
#[derive(Clone, Debug)]
pub struct Draws {
    operations: Vec<u64>,
}

impl Draws {
    /// Draws about `count` operations of `workload`; anything but a read becomes a set.
    pub fn new(workload: &Workload, count: usize, stream: u64) -> Self {
        let mut source = TurnStream::new(workload, stream);
        let mut plan = TurnPlan::default();
        let mut operations = Vec::with_capacity(count + 256);
        while operations.len() < count {
            source.next_into(&mut plan);
            operations.extend(plan.writes.iter().map(|write| write.id | WRITE));
            operations.extend_from_slice(&plan.gets);
        }
        operations.truncate(count.max(1));
        Self { operations }
    }
}

/// One read-through client.
#[derive(Debug)]
pub struct ReadThrough {
    draws: Arc<Draws>,
    at: usize,
    left: u64,
    encoder: Encoder,
    keys_per_get: usize,
    asked: Vec<u64>,
    asked_keys: KeyList,
    /// One-line answers that come before the values.
    lines: u32,
    found: Vec<bool>,
    missing: Vec<u64>,
    verify: bool,
    scratch: Vec<u8>,
    corrupt: u64,
}

impl ReadThrough {
    /// A client that plays `operations` of the draws (`u64::MAX` for ever), from position `from` on, round and
    /// round. With `verify`, every value is checked against its key.
    pub fn new(
        workload: &Workload,
        protocol: Protocol,
        draws: Arc<Draws>,
        from: usize,
        operations: u64,
        verify: bool,
    ) -> Self {
        let at = from % draws.operations.len();
        Self {
            draws,
            at,
            left: operations,
            encoder: Encoder::new(workload, protocol, 1),
            keys_per_get: workload.keys_per_get as usize,
            asked: Vec::new(),
            asked_keys: KeyList::default(),
            lines: 0,
            found: Vec::new(),
            missing: Vec::new(),
            verify,
            scratch: Vec::new(),
            corrupt: 0,
        }
    }

    /// Values that were not what their key's value must be; always 0 without `verify`.
    pub fn corrupt(&self) -> u64 {
        self.corrupt
    }

    /// The answers' one shape, if there is one.
    pub fn shape(&self) -> Option<FixedShape> {
        self.encoder.shape(false)
    }
}

impl Player for ReadThrough {
    fn next(&mut self, _now_ns: u64, out: &mut Vec<u8>) -> Result<Next, LoadError> {
        let mut turn = Turn { lines: self.missing.len() as u32, get_keys: 0 };
        for id in std::mem::take(&mut self.missing) {
            self.encoder.push_write(out, Kind::Set, id)?;
        }
        self.asked.clear();
        self.asked_keys.clear();
        while self.asked.len() < self.keys_per_get && self.left > 0 {
            let drawn = self.draws.operations[self.at];
            self.at = if self.at + 1 == self.draws.operations.len() { 0 } else { self.at + 1 };
            self.left -= 1;
            if drawn & WRITE != 0 {
                self.encoder.push_write(out, Kind::Set, drawn & !WRITE)?;
                turn.lines += 1;
            } else {
                self.asked.push(drawn);
                self.asked_keys.push_with(|out| self.encoder.workload().push_key(out, drawn));
            }
        }
        if !self.asked.is_empty() {
            self.encoder.protocol().push_get(out, &self.asked_keys, false);
            turn.get_keys = self.asked.len() as u32;
        }
        self.lines = turn.lines;
        self.encoder.protocol().push_turn_end(out, turn);
        Ok(if turn == Turn::default() { Next::Done } else { Next::Turn(turn) })
    }

    fn answered(&mut self, bytes: &[u8], answered: Answered) -> Result<(), LoadError> {
        if answered.misses == 0 && !self.verify {
            return Ok(());
        }
        let (found, keys) = (&mut self.found, &self.asked_keys);
        found.clear();
        found.resize(self.asked.len(), false);
        let (verify, scratch, corrupt) = (self.verify, &mut self.scratch, &mut self.corrupt);
        self.encoder.protocol().for_each_value(bytes, self.lines, keys, |index, value| {
            found[index] = true;
            if verify && !value_is_intact(keys.key(index), value, scratch) {
                *corrupt += 1;
            }
        })?;
        let absent = self.asked.iter().zip(found.iter()).filter(|(_, found)| !**found);
        self.missing.extend(absent.map(|(id, _)| *id));
        // Of a key asked for twice in one turn, one set is enough.
        self.missing.sort_unstable();
        self.missing.dedup();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Mix;

    fn player(operations: u64, verify: bool) -> ReadThrough {
        let workload = Workload { keys_per_get: 3, mix: Mix::get_set(1.0), ..Workload::small_items(100) };
        let draws = Arc::new(Draws::new(&workload, 1_000, 0));
        ReadThrough::new(&workload, Protocol::MemcacheText, draws, 0, operations, verify)
    }

    #[test]
    fn what_was_missed_is_set_in_the_next_turn() {
        let mut player = player(3, false);
        let mut out = Vec::new();
        assert_eq!(player.next(0, &mut out).expect("a turn"), Next::Turn(Turn { lines: 0, get_keys: 3 }));
        let distinct: std::collections::BTreeSet<u64> = player.asked.iter().copied().collect();
        let answered = Answered { len_bytes: 5, misses: 3, ..Answered::default() };
        player.answered(b"END\r\n", answered).expect("well formed");
        out.clear();
        let sets = Turn { lines: distinct.len() as u32, get_keys: 0 };
        assert_eq!(player.next(0, &mut out).expect("a turn"), Next::Turn(sets));
        assert!(out.starts_with(b"set "));
        out.clear();
        player.answered(b"STORED\r\n", Answered { done: sets.lines, ..Answered::default() }).expect("well formed");
        assert_eq!(player.next(0, &mut out).expect("the end"), Next::Done);
    }

    #[test]
    fn a_wrong_value_is_noticed() {
        let mut player = player(3, true);
        let mut out = Vec::new();
        player.next(0, &mut out).expect("a turn");
        let key = player.asked_keys.key(0).to_vec();
        let mut good = Vec::new();
        crate::payload::push_value(&mut good, &key, 9, 32);
        for (value, corrupt) in [(good, 0), (vec![b'x'; 32], 1)] {
            let mut bytes = b"VALUE ".to_vec();
            bytes.extend_from_slice(&key);
            bytes.extend_from_slice(b" 0 32\r\n");
            bytes.extend_from_slice(&value);
            bytes.extend_from_slice(b"\r\nEND\r\n");
            let answered = Answered { len_bytes: bytes.len(), hits: 1, misses: 2, ..Answered::default() };
            player.answered(&bytes, answered).expect("well formed");
            assert_eq!(player.corrupt(), corrupt);
        }
    }
}
