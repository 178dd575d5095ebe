//! A workload: popularity, mix, sizes and lifetimes, and the turns of operations drawn from them.
//!
//! A *turn* is what a client sends before it waits: some writes, then at most one (multi)get. Writes ride along
//! with the multiget, as they do in the paper's evaluation (MemC3, NSDI'13, section 5.4: 95 % GET batched by 100).

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::error::LoadError;
use crate::key_source::{KeySource, Popularity};
use crate::mix::{Kind, Mix};
use crate::payload::{KEY_LEN_MAX_BYTES, VALUE_LEN_MAX_BYTES, key_len_min_bytes, push_key, push_value};
use crate::size::Sizes;

const KEY_SALT: u64 = 1;
const VALUE_SALT: u64 = 2;
const TTL_SALT: u64 = 3;
/// The value a counter starts from.
const COUNTER_START: &[u8] = b"1000000";

/// What to send, before it becomes bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// Number of distinct keys.
    pub keys: u64,
    /// Which keys are hot.
    pub popularity: Popularity,
    /// Which operations.
    pub mix: Mix,
    /// Key lengths, bytes.
    pub key_size: Sizes,
    /// Value lengths, bytes.
    pub value_size: Sizes,
    /// Lifetimes, seconds; 0 is for ever.
    pub ttl: Sizes,
    /// Keys in one get request.
    pub keys_per_get: u32,
    /// Writes sent in one turn if no get closes it first.
    pub writes_per_turn: u32,
    /// Chooses the hot keys and the draws.
    pub seed: u64,
}

impl Workload {
    /// The main workload: 16-byte keys, 32-byte values, zipf 0.99 over `keys`, 95 % GET in multigets of 100.
    pub fn small_items(keys: u64) -> Self {
        Self {
            keys,
            popularity: Popularity::Zipf { exponent: 0.99 },
            mix: Mix::get_set(0.95),
            key_size: Sizes::Fixed(16),
            value_size: Sizes::Fixed(32),
            ttl: Sizes::Fixed(0),
            keys_per_get: 100,
            writes_per_turn: 100,
            seed: 42,
        }
    }

    /// Refuses what no server could be asked, in one line.
    pub fn check(&self) -> Result<(), LoadError> {
        let (shortest, longest) = self.key_size.bounds();
        let needed = key_len_min_bytes(self.keys);
        let problem = if self.keys == 0 || self.keys > 1 << 40 {
            format!("{} keys: choose 1 to 2^40", self.keys)
        } else if (shortest as usize) < needed {
            format!("{shortest}-byte keys cannot tell {} keys apart; use {needed} bytes or more", self.keys)
        } else if longest as usize > KEY_LEN_MAX_BYTES {
            format!("{longest}-byte keys are longer than the protocol's {KEY_LEN_MAX_BYTES}")
        } else if self.value_size.bounds().1 > VALUE_LEN_MAX_BYTES {
            "values are at most 1 GiB".to_string()
        } else if self.keys_per_get == 0 || self.writes_per_turn == 0 || self.keys_per_get > 10_000 {
            "a turn has 1 to 10000 keys".to_string()
        } else {
            return Ok(());
        };
        Err(LoadError::Setting(problem))
    }

    /// The length of key `id`, bytes.
    pub fn key_len_bytes(&self, id: u64) -> usize {
        self.key_size.of(id, KEY_SALT) as usize
    }

    /// Appends key `id`.
    pub fn push_key(&self, out: &mut Vec<u8>, id: u64) {
        push_key(out, id, self.key_len_bytes(id));
    }

    /// Appends the counter that belongs to key `id`: the same key with `n` for its first byte.
    pub fn push_counter_key(&self, out: &mut Vec<u8>, id: u64) {
        let start = out.len();
        self.push_key(out, id);
        out[start] = b'n';
    }

    /// Appends the value of `key` (the key's bytes) with id `id` at `version`.
    pub fn push_value(&self, out: &mut Vec<u8>, key: &[u8], id: u64, version: u32) {
        push_value(out, key, version, self.value_size.of(id, VALUE_SALT) as usize);
    }

    /// The lifetime of key `id`, seconds; 0 is for ever.
    pub fn ttl_s(&self, id: u64) -> u32 {
        self.ttl.of(id, TTL_SALT)
    }

    /// The value that preloading gives a counter.
    pub fn counter_start(&self) -> &'static [u8] {
        COUNTER_START
    }

    /// Whether counters must be preloaded beside the keys.
    pub fn has_counters(&self) -> bool {
        self.mix.kinds().any(Kind::counts)
    }
}

/// One operation of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What to do.
    pub kind: Kind,
    /// To which key.
    pub id: u64,
}

/// What a client sends before it waits.
#[derive(Clone, Debug, Default)]
pub struct TurnPlan {
    /// Operations answered by a line, in order; they are sent first.
    pub writes: Vec<Operation>,
    /// Keys of the one get request that follows; empty for none.
    pub gets: Vec<u64>,
    /// Whether the get asks for cas uniques.
    pub with_cas: bool,
}

/// Draws turns from a workload, for ever.
#[derive(Clone, Debug)]
pub struct TurnStream {
    mix: Mix,
    source: KeySource,
    rng: Xoshiro256PlusPlus,
    keys_per_get: usize,
    writes_per_turn: usize,
    carried: Option<Operation>,
}

impl TurnStream {
    /// A stream of `workload`'s turns; `stream` tells several streams of one workload apart.
    pub fn new(workload: &Workload, stream: u64) -> Self {
        Self {
            mix: workload.mix.clone(),
            source: KeySource::new(workload.popularity, workload.keys, workload.seed),
            rng: Xoshiro256PlusPlus::seed_from_u64(workload.seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            keys_per_get: workload.keys_per_get as usize,
            writes_per_turn: workload.writes_per_turn as usize,
            carried: None,
        }
    }

    /// Draws the next turn into `turn`, whose old content is dropped. With one key a get and one write a turn,
    /// every operation is a turn of its own.
    pub fn next_into(&mut self, turn: &mut TurnPlan) {
        turn.writes.clear();
        turn.gets.clear();
        turn.with_cas = false;
        let single = self.keys_per_get == 1 && self.writes_per_turn == 1;
        while turn.gets.len() < self.keys_per_get && turn.writes.len() < self.writes_per_turn {
            let operation = self.carried.take().unwrap_or_else(|| self.draw());
            match operation.kind {
                Kind::ReadModifyWrite => {
                    self.carried = Some(Operation { kind: Kind::Set, id: operation.id });
                    turn.gets.push(operation.id);
                    // The write must follow its read, so the turn ends here.
                    return;
                }
                Kind::Get | Kind::Gets => {
                    turn.with_cas |= operation.kind == Kind::Gets;
                    turn.gets.push(operation.id);
                }
                _ => turn.writes.push(operation),
            }
            if single {
                return;
            }
        }
    }

    fn draw(&mut self) -> Operation {
        let kind = self.mix.draw(&mut self.rng);
        let id = match kind {
            Kind::Insert => self.source.insert(&mut self.rng),
            _ => self.source.draw(&mut self.rng),
        };
        Operation { kind, id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_ride_along_with_the_multiget() {
        let mut stream = TurnStream::new(&Workload::small_items(1_000), 0);
        let mut turn = TurnPlan::default();
        let mut writes = 0;
        for _ in 0..1_000 {
            stream.next_into(&mut turn);
            assert_eq!(turn.gets.len(), 100);
            writes += turn.writes.len();
        }
        assert!((4_900..5_700).contains(&writes), "{writes} sets beside 100000 gets");
    }

    #[test]
    fn single_operations_come_one_a_turn() {
        let workload =
            Workload { keys_per_get: 1, writes_per_turn: 1, mix: Mix::get_set(0.5), ..Workload::small_items(100) };
        let mut stream = TurnStream::new(&workload, 0);
        let mut turn = TurnPlan::default();
        for _ in 0..100 {
            stream.next_into(&mut turn);
            assert_eq!(turn.gets.len() + turn.writes.len(), 1);
        }
    }

    #[test]
    fn a_read_modify_write_reads_first_and_writes_the_same_key() {
        let mix = Mix::new([(Kind::ReadModifyWrite, 1.0)]).expect("a mix");
        let mut stream =
            TurnStream::new(&Workload { mix, keys_per_get: 1, writes_per_turn: 1, ..Workload::small_items(100) }, 0);
        let mut turn = TurnPlan::default();
        stream.next_into(&mut turn);
        let read = turn.gets[0];
        stream.next_into(&mut turn);
        assert_eq!(turn.writes, [Operation { kind: Kind::Set, id: read }]);
    }

    #[test]
    fn senseless_settings_are_refused_in_one_line() {
        let good = Workload::small_items(1_000_000);
        assert!(good.check().is_ok());
        for bad in [
            Workload { keys: 0, ..good.clone() },
            Workload { key_size: Sizes::Fixed(2), ..good.clone() },
            Workload { key_size: Sizes::Fixed(251), ..good.clone() },
            Workload { keys_per_get: 0, ..good.clone() },
        ] {
            let line = bad.check().expect_err("must be refused").to_string();
            assert!(!line.contains('\n'), "{line}");
        }
    }
}
