//! Requests made before the clock starts: a ring of encoded turns that connections send from, in place.
//!
//! Turns lie one behind the other, so several pipelined turns are one slice and one write:
//! ```text
//! bytes:  [ set k v · get a b c | get d e f | set .. · get .. | ... ]      turns wrap around at the end
//!          `-- turn 0 ends here -^            ^-- turn 1 ends here
//! ```

use crate::encoder::Encoder;
use crate::error::LoadError;
use crate::protocol::{FixedShape, Protocol, Turn};
use crate::workload::{TurnPlan, TurnStream, Workload};

/// Encoded turns for one server.
#[derive(Clone, Debug)]
pub struct Script {
    protocol: Protocol,
    shape: Option<FixedShape>,
    bytes: Vec<u8>,
    ends: Vec<u64>,
    turns: Vec<Turn>,
}

impl Script {
    /// Draws `turns` turns (at least 1) of `workload` and encodes them for `shards` servers: one script a shard,
    /// all with the same number of turns, where turn `i` of all of them together is turn `i` of the workload.
    pub fn build(
        workload: &Workload,
        protocol: Protocol,
        turns: usize,
        shards: usize,
        stream: u64,
    ) -> Result<Vec<Self>, LoadError> {
        workload.check()?;
        let mut encoder = Encoder::new(workload, protocol, shards);
        let mut source = TurnStream::new(workload, stream);
        let mut plan = TurnPlan::default();
        let with_cas = workload.mix.kinds().any(|kind| kind == crate::mix::Kind::Gets);
        let empty = Self { protocol, shape: encoder.shape(with_cas), bytes: vec![], ends: vec![], turns: vec![] };
        let mut scripts = vec![empty; shards];
        for _ in 0..turns.max(1) {
            source.next_into(&mut plan);
            for (shard, script) in scripts.iter_mut().enumerate() {
                let turn = encoder.push_turn(&mut script.bytes, &plan, shard)?;
                script.turns.push(turn);
                script.ends.push(script.bytes.len() as u64);
            }
        }
        Ok(scripts)
    }

    /// The protocol the bytes are in.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The answers' one shape, if there is one.
    pub fn shape(&self) -> Option<FixedShape> {
        self.shape
    }

    /// Number of turns in the ring.
    pub fn len(&self) -> u64 {
        self.turns.len() as u64
    }

    /// Never: a script has at least one turn.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// What answers turn `index` gets (modulo the ring).
    #[inline]
    pub fn turn(&self, index: u64) -> Turn {
        self.turns[(index % self.len()) as usize]
    }

    /// Where turn `index` (modulo the ring) begins, bytes from the start.
    #[inline]
    pub fn start_of(&self, index: u64) -> usize {
        match index % self.len() {
            0 => 0,
            slot => self.ends[slot as usize - 1] as usize,
        }
    }

    /// The bytes from position `from` up to the end of turn `last - 1`, but not past the ring's end; and the turn
    /// after the last one in the slice. `from` lies in turn `first`, and `first < last`.
    #[inline]
    pub fn slice(&self, from: usize, first: u64, last: u64) -> (&[u8], u64) {
        let wrap = first - first % self.len() + self.len();
        let last = last.min(wrap);
        (&self.bytes[from..self.ends[((last - 1) % self.len()) as usize] as usize], last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_of_turns_wraps_around() {
        let workload = Workload { keys_per_get: 2, ..Workload::small_items(100) };
        let scripts = Script::build(&workload, Protocol::MemcacheText, 5, 1, 0).expect("builds");
        let script = &scripts[0];
        assert_eq!(script.len(), 5);
        let (whole, next) = script.slice(0, 0, 100);
        assert_eq!((whole.len(), next), (script.bytes.len(), 5));
        let (third, next) = script.slice(script.start_of(7), 7, 8);
        assert_eq!(next, 8);
        assert_eq!(third, &script.bytes[script.ends[1] as usize..script.ends[2] as usize]);
        assert_eq!(script.turn(12), script.turn(2));
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let workload = Workload::small_items(1_000);
        let build = |stream| Script::build(&workload, Protocol::MemcacheText, 10, 1, stream).expect("builds");
        assert_eq!(build(1)[0].bytes, build(1)[0].bytes);
        assert_ne!(build(1)[0].bytes, build(2)[0].bytes);
    }
}
