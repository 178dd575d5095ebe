//! Counts of what answers said.

use crate::protocol::Answered;

/// Sums over the answers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it all")]
pub struct Tally {
    pub turns: u64,
    pub hits: u64,
    pub misses: u64,
    pub done: u64,
    pub refused: u64,
    pub errors: u64,
    pub bytes_in: u64,
}

impl Tally {
    /// Adds one answer.
    #[inline]
    pub fn count(&mut self, answered: Answered) {
        self.turns += 1;
        self.hits += u64::from(answered.hits);
        self.misses += u64::from(answered.misses);
        self.done += u64::from(answered.done);
        self.refused += u64::from(answered.refused);
        self.errors += u64::from(answered.errors);
        self.bytes_in += answered.len_bytes as u64;
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &Self) {
        self.turns += other.turns;
        self.hits += other.hits;
        self.misses += other.misses;
        self.done += other.done;
        self.refused += other.refused;
        self.errors += other.errors;
        self.bytes_in += other.bytes_in;
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            turns: self.turns - before.turns,
            hits: self.hits - before.hits,
            misses: self.misses - before.misses,
            done: self.done - before.done,
            refused: self.refused - before.refused,
            errors: self.errors - before.errors,
            bytes_in: self.bytes_in - before.bytes_in,
        }
    }

    /// Keys asked for or written.
    pub fn keys(&self) -> u64 {
        self.hits + self.misses + self.done + self.refused + self.errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_and_subtract() {
        let mut tally = Tally::default();
        tally.count(Answered { len_bytes: 10, hits: 3, misses: 1, done: 2, refused: 1, errors: 1 });
        let before = tally;
        tally.count(Answered { len_bytes: 5, hits: 1, ..Answered::default() });
        assert_eq!(tally.since(&before).hits, 1);
        assert_eq!(before.keys(), 8);
        let mut sum = before;
        sum.add(&tally.since(&before));
        assert_eq!(sum, tally);
    }
}
