//! Turns at keys: one operation of a key at a time, in the order in which they came.
//!
//! Always true: a key has an entry while an operation of it is on its way; what is in a key's line is carried out by whoever leaves.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What waits for its turn, by key.
#[derive(Debug)]
pub(super) struct Turns<J>(Mutex<HashMap<Box<[u8]>, VecDeque<J>>>);

impl<J> Default for Turns<J> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<J> Turns<J> {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, VecDeque<J>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the job back if it is its turn; otherwise somebody else will have it when they leave.
    pub(super) fn enter(&self, key: &[u8], job: J) -> Option<J> {
        let mut lines = self.lock();
        match lines.get_mut(key) {
            Some(line) => {
                line.push_back(job);
                None
            }
            None => {
                lines.insert(key.into(), VecDeque::new());
                Some(job)
            }
        }
    }

    /// Whoever had the turn is done; the next job, if there is one.
    pub(super) fn leave(&self, key: &[u8]) -> Option<J> {
        let mut lines = self.lock();
        let next = lines.get_mut(key).expect("somebody has the turn").pop_front();
        if next.is_none() {
            lines.remove(key);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_turn_at_a_time_and_its_order() {
        let turns = Turns::default();
        assert_eq!(turns.enter(b"a", 1), Some(1));
        assert_eq!(turns.enter(b"a", 2), None);
        assert_eq!(turns.enter(b"a", 3), None);
        assert_eq!(turns.enter(b"b", 4), Some(4), "another key");
        assert_eq!((turns.leave(b"a"), turns.leave(b"a"), turns.leave(b"a")), (Some(2), Some(3), None));
        assert_eq!(turns.leave(b"b"), None);
        assert_eq!(turns.enter(b"a", 5), Some(5));
    }
}
