//! Clients that read one key at a time, by a popularity that may change on the way, and check every value.
//!
//! Always true: all readers of a run share one popularity, and each draw is of it as it is at that moment.

use std::cell::RefCell;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use crate::changing::{ChangingKeys, Pattern};
use crate::error::LoadError;
use crate::interactive::{Next, Player};
use crate::payload::value_is_intact;
use crate::protocol::{Answered, KeyList, Protocol, Turn};
use crate::workload::Workload;

/// A change of popularity.
#[derive(Clone, Copy, Debug)]
pub struct ChangeAt {
    /// When, nanoseconds from the start of the run.
    pub at_ns: u64,
    /// How.
    pub pattern: Pattern,
    /// So many keys.
    pub keys: usize,
}

/// What readers have seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Answers with an item, in each stretch of time from the start of the run.
    pub hits: Vec<u64>,
    /// Answers that said that there is no such item.
    pub missing: u64,
    /// Answers with another value than the key's.
    pub wrong: u64,
    /// Answers that were errors.
    pub failed: u64,
}

/// What the readers of a run share.
#[derive(Debug)]
pub struct Reading {
    workload: Workload,
    protocol: Protocol,
    keys: ChangingKeys,
    rng: Xoshiro256PlusPlus,
    stretch_ns: u64,
    change: Option<ChangeAt>,
    seen: Seen,
}

impl Reading {
    /// Keys and values of `workload`, read by the popularity of `keys`; answers are counted by stretches of `stretch_ns`.
    pub fn new(workload: &Workload, protocol: Protocol, keys: ChangingKeys, stretch_ns: u64, seed: u64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (workload, stretch_ns) = (workload.clone(), stretch_ns.max(1));
        Self { workload, protocol, keys, rng, stretch_ns, change: None, seen: Seen::default() }
    }

    /// The same, with a change on the way or none.
    #[must_use]
    pub fn with_change(self, change: Option<ChangeAt>) -> Self {
        Self { change, ..self }
    }

    /// What was seen, and the popularity as it is in the end.
    pub fn end(self) -> (Seen, ChangingKeys) {
        (self.seen, self.keys)
    }

    fn draw(&mut self, now_ns: u64) -> u64 {
        if let Some(change) = self.change.take_if(|change| change.at_ns <= now_ns) {
            self.keys.change(change.pattern, change.keys, &mut self.rng);
        }
        let rank = self.keys.draw(&mut self.rng);
        self.keys.key(rank)
    }

    fn count_hit(&mut self, now_ns: u64) {
        let at = (now_ns / self.stretch_ns) as usize;
        if self.seen.hits.len() <= at {
            self.seen.hits.resize(at + 1, 0);
        }
        self.seen.hits[at] += 1;
    }
}

/// One reader.
#[derive(Debug)]
pub struct Reader<'r> {
    shared: &'r RefCell<Reading>,
    asked: KeyList,
    has_hit: bool,
    scratch: Vec<u8>,
}

impl<'r> Reader<'r> {
    /// One of those who share `reading`.
    pub fn of(reading: &'r RefCell<Reading>) -> Self {
        Self { shared: reading, asked: KeyList::default(), has_hit: false, scratch: Vec::new() }
    }
}

impl Player for Reader<'_> {
    fn next(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<Next, LoadError> {
        let reading = &mut *self.shared.borrow_mut();
        if std::mem::take(&mut self.has_hit) {
            reading.count_hit(now_ns);
        }
        let id = reading.draw(now_ns);
        self.asked.clear();
        self.asked.push_with(|key| reading.workload.push_key(key, id));
        reading.protocol.push_get(out, &self.asked, false);
        let turn = Turn { lines: 0, get_keys: 1 };
        reading.protocol.push_turn_end(out, turn);
        Ok(Next::Turn(turn))
    }

    fn answered(&mut self, bytes: &[u8], answered: Answered) -> Result<(), LoadError> {
        let reading = &mut *self.shared.borrow_mut();
        let Self { asked, has_hit, scratch, .. } = self;
        let (mut is_found, mut is_intact) = (false, false);
        if answered.errors == 0 {
            reading.protocol.for_each_value(bytes, 0, asked, |_, value| {
                is_found = true;
                is_intact = value_is_intact(asked.key(0), value, scratch);
            })?;
        }
        let seen = &mut reading.seen;
        match (answered.errors > 0, is_found, is_intact) {
            (true, _, _) => seen.failed += 1,
            (false, false, _) => seen.missing += 1,
            (false, true, false) => seen.wrong += 1,
            (false, true, true) => *has_hit = true,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::push_value;

    fn reading() -> RefCell<Reading> {
        let workload = Workload::small_items(1_000);
        let keys = ChangingKeys::new(1_000, 0.99, 1);
        RefCell::new(Reading::new(&workload, Protocol::MemcacheText, keys, 1_000, 1))
    }

    /// Plays one turn, which is answered with a value that was written for the key with its last byte made `last`.
    fn play(reader: &mut Reader<'_>, now_ns: u64, value_of: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
        let mut out = Vec::new();
        let Next::Turn(turn) = reader.next(now_ns, &mut out).expect("a turn") else { panic!("there is no end") };
        let key = out[4..out.len() - 2].to_vec();
        let mut answer = Vec::new();
        if let Some(value) = value_of(&key) {
            answer.extend_from_slice(b"VALUE ");
            answer.extend_from_slice(&key);
            answer.extend_from_slice(format!(" 0 {}\r\n", value.len()).as_bytes());
            answer.extend_from_slice(&value);
            answer.extend_from_slice(b"\r\n");
        }
        answer.extend_from_slice(b"END\r\n");
        let measured = Protocol::MemcacheText.measure(&answer, turn, None).expect("well formed").expect("whole");
        reader.answered(&answer, measured).expect("understood");
        key
    }

    #[test]
    fn right_wrong_missing_and_failed_answers_are_told_apart() {
        let reading = reading();
        let mut reader = Reader::of(&reading);
        let value = |key: &[u8]| {
            let mut value = Vec::new();
            push_value(&mut value, key, 3, 32);
            Some(value)
        };
        play(&mut reader, 0, value);
        play(&mut reader, 500, value);
        play(&mut reader, 2_500, |_| None);
        play(&mut reader, 2_600, |_| value(b"another"));
        let mut out = Vec::new();
        reader.next(2_700, &mut out).expect("a turn");
        let refused = Answered { errors: 1, ..Answered::default() };
        reader.answered(b"SERVER_ERROR busy\r\n", refused).expect("understood");
        drop(reader);
        let (seen, _) = reading.into_inner().end();
        // An answer counts when the next turn is asked for, which is when it has come.
        assert_eq!(seen, Seen { hits: vec![1, 0, 1], missing: 1, wrong: 1, failed: 1 });
    }

    #[test]
    fn popularity_changes_when_it_is_to() {
        let change = ChangeAt { at_ns: 5_000, pattern: Pattern::HotIn, keys: 1 };
        let keys = ChangingKeys::new(1_000, 10.0, 1);
        let hottest = keys.key(0);
        let workload = Workload::small_items(1_000);
        let reading =
            RefCell::new(Reading::new(&workload, Protocol::MemcacheText, keys, 1_000, 1).with_change(Some(change)));
        let mut reader = Reader::of(&reading);
        let name = |id| {
            let mut name = Vec::new();
            workload.push_key(&mut name, id);
            name
        };
        let mut most = |now_ns| {
            let asked: Vec<_> = (0..20).map(|_| play(&mut reader, now_ns, |_| None)).collect();
            asked.iter().max_by_key(|key| asked.iter().filter(|other| other == key).count()).expect("some").clone()
        };
        assert_eq!(most(4_999), name(hottest));
        let after = most(5_000);
        assert_ne!(after, name(hottest));
        drop(reader);
        assert_eq!(name(reading.into_inner().end().1.key(0)), after);
    }
}
