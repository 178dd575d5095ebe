//! A map that is being measured, wherever it lives: in this process, or in one of its own.
//!
//! Always true: each subject is made, measured and dropped before the next one is made. In a process of its own it begins
//! with an empty heap and takes all its memory with it, so that no contender inherits another one's.

use super::{
    BenchError,
    concurrent_map::ConcurrentMap,
    entry::Value,
    phase::{Garbled, Outcome, Phase},
    play::play,
};
use crate::crew::Rate;
use crate::process_usage;

/// What map to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening<'a> {
    pub contender: &'a str,
    pub value_bytes: usize,
    /// Room for so many keys; none: it grows.
    pub room: Option<usize>,
}

impl std::fmt::Display for Opening<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "open {} {} {}", self.contender, self.value_bytes, self.room.unwrap_or(0))
    }
}

impl<'a> Opening<'a> {
    /// Reads its line.
    pub fn parse(line: &'a str) -> Result<Self, Garbled> {
        let words: Vec<&str> = line.split(' ').collect();
        let ["open", contender, value_bytes, room] = words[..] else { return Err(Garbled) };
        let number = |word: &str| word.parse().map_err(|_| Garbled);
        let room = Some(number(room)?).filter(|room| *room > 0);
        Ok(Self { contender, value_bytes: number(value_bytes)?, room })
    }
}

/// A map under measurement.
pub(super) trait Subject {
    /// Lets a crew work on it.
    ///
    /// # Errors
    /// [`BenchError`]: the process ended or talks nonsense, a core cannot be had. Wrong answers are an outcome.
    fn play(&mut self, phase: &Phase) -> Result<Outcome, BenchError>;

    /// Resident memory of its process.
    fn resident_bytes(&self) -> Result<u64, BenchError>;

    /// Plays a phase that has a speed.
    fn rate(&mut self, phase: &Phase) -> Result<Rate, BenchError> {
        match self.play(phase)? {
            Outcome::Spent { operations, elapsed, cpu } => {
                let (operations, threads) = (operations as f64, phase.cores.len() as f64);
                let per_cpu_s = operations * threads / cpu.as_secs_f64();
                Ok(Rate { per_s: operations / elapsed.as_secs_f64(), per_cpu_s })
            }
            other => Err(unexpected(phase, &other)),
        }
    }
}

/// The error for an outcome that is not of the phase's kind, or says that the map is wrong.
pub(super) fn unexpected(phase: &Phase, outcome: &Outcome) -> BenchError {
    BenchError::Invalid(format!("'{phase}' came to '{outcome}'"))
}

/// A map in this process.
struct Here<V, M> {
    map: M,
    value: std::marker::PhantomData<fn() -> V>,
}

impl<V: Value, M: ConcurrentMap<V>> Subject for Here<V, M> {
    fn play(&mut self, phase: &Phase) -> Result<Outcome, BenchError> {
        play(&self.map, phase)
    }

    fn resident_bytes(&self) -> Result<u64, BenchError> {
        Ok(process_usage::of(std::process::id())?.rss_bytes)
    }
}

/// A map of this process behind the trait.
pub(super) fn here<V: Value, M: ConcurrentMap<V> + 'static>(room: Option<usize>) -> Box<dyn Subject> {
    let map = room.map_or_else(M::growing, M::with_room_for);
    Box::new(Here { map, value: std::marker::PhantomData })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_survives_as_a_line() {
        for room in [None, Some(1000)] {
            let opening = Opening { contender: "tbb", value_bytes: 64, room };
            assert_eq!(Opening::parse(&opening.to_string()), Ok(opening));
        }
        for line in ["", "open", "open tbb 8", "open tbb x 1", "close tbb 8 1", "open tbb 8 1 2"] {
            assert_eq!(Opening::parse(line), Err(Garbled), "{line}");
        }
    }
}
