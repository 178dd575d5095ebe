//! A client that asks for a key, some time apart, and asks for the same one again until it has an answer that is no error.
//!
//! Always true: it has one request on its way; every key that it has asked for is in its waits, or is the last one.

use std::time::{Duration, Instant};

use guira_loadgen::error::LoadError;
use guira_loadgen::interactive::{Next, Player};
use guira_loadgen::mix::Kind;
use guira_loadgen::protocol::{Answered, KeyList, Protocol, Turn};
use guira_loadgen::workload::Workload;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::waits::Wait;

/// After an error a key is asked for again after so long: an error that comes at once would keep the core busy.
const AGAIN_AFTER: Duration = Duration::from_millis(2);

/// See the head of the file.
pub(super) struct Asker<'k> {
    workload: &'k Workload,
    keys: &'k [u64],
    /// Every other request is a write.
    is_writer: bool,
    every: Duration,
    origin: Instant,
    rng: Xoshiro256PlusPlus,
    /// What it has asked for and has no answer to.
    asked: Option<Asked>,
    asks: u64,
    /// When it asks next, by the clock of the run.
    next_ns: u64,
    waits: Vec<Wait>,
    buffers: Buffers,
}

#[derive(Clone, Copy)]
struct Asked {
    id: u64,
    /// Since when, from the origin.
    since: Duration,
    is_write: bool,
}

#[derive(Default)]
struct Buffers {
    keys: KeyList,
    value: Vec<u8>,
}

impl<'k> Asker<'k> {
    /// One of those who ask for some keys, and write them as well or not; times are told from `origin` on.
    pub fn new(
        workload: &'k Workload,
        keys: &'k [u64],
        is_writer: bool,
        every: Duration,
        origin: Instant,
        seed: u64,
    ) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        // Clients do not all ask at once.
        let next_ns = rng.random_range(0..=every.as_nanos() as u64);
        let (waits, buffers) = (Vec::new(), Buffers::default());
        Self { workload, keys, is_writer, every, origin, rng, asked: None, asks: 0, next_ns, waits, buffers }
    }

    /// What it has waited for; with what it waits for still.
    pub fn end(mut self) -> Vec<Wait> {
        if let Some(Asked { id, since, .. }) = self.asked {
            self.waits.push(Wait { id, since, until: self.origin.elapsed(), is_answered: false });
        }
        self.waits
    }

    fn push(&mut self, asked: Asked, out: &mut Vec<u8>) -> Result<Turn, LoadError> {
        let Buffers { keys, value } = &mut self.buffers;
        keys.clear();
        keys.push_with(|key| self.workload.push_key(key, asked.id));
        let protocol = Protocol::MemcacheText;
        if !asked.is_write {
            protocol.push_get(out, keys, false);
            return Ok(Turn { lines: 0, get_keys: 1 });
        }
        value.clear();
        self.workload.push_value(value, keys.key(0), asked.id, self.asks as u32);
        protocol.push_write(out, Kind::Set, keys.key(0), value, 0)?;
        Ok(Turn { lines: 1, get_keys: 0 })
    }
}

impl Player for Asker<'_> {
    fn next(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<Next, LoadError> {
        if now_ns < self.next_ns {
            return Ok(Next::NotBefore(self.next_ns));
        }
        let asked = self.asked.unwrap_or_else(|| {
            let id = self.keys[self.rng.random_range(0..self.keys.len())];
            self.asks += 1;
            Asked { id, since: self.origin.elapsed(), is_write: self.is_writer && self.asks.is_multiple_of(2) }
        });
        self.asked = Some(asked);
        self.next_ns = now_ns + self.every.as_nanos() as u64;
        self.push(asked, out).map(Next::Turn)
    }

    fn answered(&mut self, _: &[u8], answered: Answered) -> Result<(), LoadError> {
        if answered.errors > 0 {
            // Behind when it was asked, which is behind us by what the answer took.
            self.next_ns = self.next_ns.saturating_sub(self.every.saturating_sub(AGAIN_AFTER).as_nanos() as u64);
            return Ok(());
        }
        if let Some(Asked { id, since, .. }) = self.asked.take() {
            self.waits.push(Wait { id, since, until: self.origin.elapsed(), is_answered: true });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_no_answer_and_the_same_key_is_asked_for_again() {
        let workload = Workload::small_items(1_000);
        let keys: Vec<u64> = (0..1_000).collect();
        let every = Duration::from_millis(4);
        let mut asker = Asker::new(&workload, &keys, true, every, Instant::now(), 1);
        let Ok(Next::NotBefore(first_ns)) = asker.next(0, &mut Vec::new()) else { panic!("not at once") };
        let ask = |asker: &mut Asker<'_>, now_ns| {
            let mut out = Vec::new();
            match asker.next(now_ns, &mut out).expect("it can be asked") {
                Next::Turn(turn) => (String::from_utf8(out).expect("text"), turn.lines),
                other => panic!("{other:?}"),
            }
        };
        let (read, lines) = ask(&mut asker, first_ns);
        assert!(read.starts_with("get ") && lines == 0, "{read}");
        let error = Answered { errors: 1, ..Answered::default() };
        asker.answered(b"SERVER_ERROR\r\n", error).expect("understood");
        assert_eq!(asker.next(first_ns + 1, &mut Vec::new()).expect("asked"), Next::NotBefore(first_ns + 2_000_000));
        assert_eq!(ask(&mut asker, first_ns + 2_000_000).0, read);
        asker.answered(b"END\r\n", Answered { misses: 1, ..Answered::default() }).expect("understood");
        let (write, lines) = ask(&mut asker, first_ns + 6_000_000);
        assert!(write.starts_with("set ") && lines == 1, "{write}");
        let waits = asker.end();
        assert_eq!(waits.iter().map(|wait| wait.is_answered).collect::<Vec<_>>(), [true, false]);
        assert!(waits[0].since <= waits[0].until);
    }
}
