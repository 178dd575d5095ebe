//! The circular log of the last queries (SwitchKV, section 3.2.2 and Figure 6): who has just become hot.
//!
//! ```text
//!          at
//! log   [a|b|a|c|a|...]      the keys of the last queries, by slot; the oldest is overwritten
//! counts a 3, b 1, c 1       how often each is in the log
//! ```
//! Always true: a key is in the table if and only if it is in the log, with as many visits as it has places there.

use crate::key_slots::{HashedKey, KeySlots, Slot};

/// The last so many queries.
#[derive(Clone, Debug)]
pub struct BurstLog {
    keys: KeySlots,
    /// Visits, by slot.
    visits: Vec<u32>,
    log: Vec<Slot>,
    len_max: usize,
    /// The oldest, once it is full.
    at: usize,
}

impl BurstLog {
    /// A log of the last `len_max` queries, whose keys hash by `seed`.
    ///
    /// # Panics
    /// `len_max` is 0 or beyond 2^32.
    pub fn new(len_max: usize, seed: u64) -> Self {
        Self {
            keys: KeySlots::new(len_max, seed),
            visits: Vec::new(),
            log: Vec::with_capacity(len_max),
            len_max,
            at: 0,
        }
    }

    /// Adds a query, in place of the oldest; how often its key is among the last ones, this one included. O(1).
    pub fn see(&mut self, key: &[u8]) -> u32 {
        self.see_hashed(self.keys.hash(key))
    }

    /// The same of a key that was hashed by this log's seed.
    pub fn see_hashed(&mut self, key: HashedKey<'_>) -> u32 {
        if self.log.len() == self.len_max {
            self.forget(self.log[self.at]);
        }
        let slot = match self.keys.find_hashed(key) {
            Ok(slot) => slot,
            Err(absent) => self.keys.insert(absent, key.bytes()),
        };
        if self.visits.len() == slot.index() {
            self.visits.push(0);
        }
        let visits = &mut self.visits[slot.index()];
        *visits += 1;
        if self.log.len() < self.len_max {
            self.log.push(slot);
        } else {
            self.log[self.at] = slot;
            self.at = if self.at + 1 == self.len_max { 0 } else { self.at + 1 };
        }
        *visits
    }

    /// How often a key is among the last queries.
    pub fn visits(&self, key: &[u8]) -> u32 {
        self.keys.find(key).map_or(0, |slot| self.visits[slot.index()])
    }

    /// The share of a key among the queries from the first of its own that is in the log on; 0 if there is none. A key that has just become hot has few
    /// visits there, close together: what they are among all of the log says little of it. Looks at the whole log.
    pub fn share(&self, key: &[u8]) -> f64 {
        let Ok(slot) = self.keys.find(key) else { return 0.0 };
        let oldest_first = self.log[self.at..].iter().chain(&self.log[..self.at]);
        let before = oldest_first.take_while(|other| **other != slot).count();
        f64::from(self.visits[slot.index()]) / (self.log.len() - before) as f64
    }

    fn forget(&mut self, slot: Slot) {
        let visits = &mut self.visits[slot.index()];
        *visits -= 1;
        if *visits == 0 {
            self.keys.remove(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn visits_are_those_of_the_last_queries(
            len_max in 1usize..20,
            queries in prop::collection::vec(prop::collection::vec(0u8..3, 0..3), 1..200),
        ) {
            let mut log = BurstLog::new(len_max, 9);
            let mut last: VecDeque<&[u8]> = VecDeque::new();
            for key in &queries {
                last.push_back(key);
                if last.len() > len_max {
                    last.pop_front();
                }
                let visits = |key: &[u8]| last.iter().filter(|other| **other == key).count() as u32;
                prop_assert_eq!(log.see(key), visits(key));
                for other in &queries {
                    prop_assert_eq!(log.visits(other), visits(other));
                    let since = last.iter().skip_while(|there| **there != &**other).count();
                    let share = if since == 0 { 0.0 } else { f64::from(visits(other)) / since as f64 };
                    prop_assert_eq!(log.share(other), share);
                }
            }
            prop_assert!(log.visits.len() <= len_max && log.keys.len() <= len_max);
        }
    }
}
