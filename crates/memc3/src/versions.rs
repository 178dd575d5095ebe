//! The versions ("cas unique") handed out under one stripe, and which of them a flush has swept away.
//!
//! ```text
//! last:     bit 63 ... 38: highest version of earlier rounds, in steps of 4,096, rounded up   37 ... 0: last version
//! flushed:  last version that was swept away; 0: none
//! ```
//! Versions count up, and begin again at 1 after some 2^38 stores. Always true: items of this stripe have versions up to the last
//! one, or up to the highest of earlier rounds. A flush goes on from the higher of the two, so that what is there lies below it and
//! what comes lies above; and versions begin again only when nothing is left of what was swept away. Should a sweep last longer
//! than there are versions, or a million flushes each meet a stripe that has turned again, what is stored during a sweep is lost.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::item::{VERSION_BITS, VERSION_MAX};

/// From this version on the next one is 1 again as soon as nothing is left of what a flush has swept away: a server would have to
/// store two million times a second to the keys of one stripe for half an hour before it came to the largest.
const VERSION_TURN: u64 = VERSION_MAX - (1 << 32);

/// Steps in which the highest version of earlier rounds is kept, and the number of steps that stands for the largest.
const STEP: u64 = 1 << 12;
const STEPS_MAX: u64 = VERSION_MAX / STEP;

/// Of one stripe, written by who holds it; two words, because a quarter of a cache line is what there is.
#[derive(Debug, Default)]
pub(crate) struct StripeVersions {
    // Relaxed, all of them: written under the stripe, and read beside it only by readers that validate it.
    last: AtomicU64,
    flushed: AtomicU64,
}

impl StripeVersions {
    fn last(&self) -> u64 {
        self.last.load(Relaxed) & VERSION_MAX
    }

    /// The highest version of earlier rounds, or one that is a little higher.
    fn highest(&self) -> u64 {
        match self.last.load(Relaxed) >> VERSION_BITS {
            STEPS_MAX => VERSION_MAX,
            steps => steps * STEP,
        }
    }

    /// The version after the last one; `is_swept` says whether nothing is left of what flushes have swept away.
    pub fn next(&self, is_swept: impl FnOnce() -> bool) -> u64 {
        let last = self.last();
        if last >= VERSION_MAX || (last >= VERSION_TURN && is_swept()) { 1 } else { last + 1 }
    }

    /// Notes that `version` is in use.
    pub fn put(&self, version: u64, is_swept: impl FnOnce() -> bool) {
        let (last, mut highest) = (self.last(), self.last.load(Relaxed) >> VERSION_BITS);
        if version < last {
            highest = highest.max(last.div_ceil(STEP)).min(STEPS_MAX);
        }
        // Versions have begun again below the last flush's. Until its sweep is over what is stored counts as swept away too, rather
        // than what was swept away as stored.
        if self.flushed.load(Relaxed) >= version && is_swept() {
            self.flushed.store(0, Relaxed);
        }
        self.last.store(highest << VERSION_BITS | version, Relaxed);
    }

    /// The highest version that has been handed out, or one that is a little higher.
    pub fn highest_so_far(&self) -> u64 {
        self.last().max(self.highest())
    }

    /// Notes that an item has been put back with `version`, which it had in another time: what is stored from now on has later ones.
    pub fn admit(&self, version: u64, is_swept: impl FnOnce() -> bool) {
        if version > self.last() {
            self.put(version, is_swept);
        }
    }

    /// Whether a version may be given to what is put back: it does not count as flushed, and others come after it.
    pub fn is_admissible(&self, version: u64) -> bool {
        (1..VERSION_TURN).contains(&version) && !self.is_flushed(version)
    }

    /// Sweeps away all that is there.
    pub fn flush(&self) {
        let all = self.highest_so_far();
        self.flushed.store(all, Relaxed);
        self.last.store(self.last.load(Relaxed) & !VERSION_MAX | all, Relaxed);
    }

    /// Whether an item of this version has been swept away.
    pub fn is_flushed(&self, version: u64) -> bool {
        version <= self.flushed.load(Relaxed)
    }

    /// As if there had been so many stores.
    #[cfg(test)]
    pub fn skip_to(&self, version: u64) {
        self.put(version, || false);
    }

    /// As if there had been so many stores that the next one begins again.
    #[cfg(test)]
    pub fn skip_to_turn(&self) {
        self.skip_to(VERSION_TURN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(versions: &StripeVersions, is_swept: bool) -> u64 {
        let version = versions.next(|| is_swept);
        versions.put(version, || is_swept);
        version
    }

    #[test]
    fn a_flush_parts_what_is_there_from_what_comes_in_every_round() {
        let versions = StripeVersions::default();
        // What is alive: its version.
        let mut old = vec![store(&versions, true), store(&versions, true)];
        for round in 0..3 {
            versions.skip_to_turn();
            old.push(VERSION_TURN);
            if round > 0 {
                old.push(store(&versions, true));
                assert_eq!(old.last(), Some(&1), "they have begun again");
                old.push(store(&versions, true));
            }
            versions.flush();
            assert!(old.iter().all(|version| versions.is_flushed(*version)), "round {round}");
            old = (0..10_000).map(|_| store(&versions, false)).collect();
            assert!(!old.iter().any(|version| versions.is_flushed(*version)), "round {round}");
            // The sweep is over: they begin again, and those that were stored meanwhile stay.
            old.push(store(&versions, true));
            assert_eq!(old.last(), Some(&1));
            assert!(!old.iter().any(|version| versions.is_flushed(*version)), "round {round}");
            versions.flush();
            assert!(old.iter().all(|version| versions.is_flushed(*version)), "round {round}");
            old = vec![store(&versions, false)];
            assert!(!versions.is_flushed(old[0]));
            old.push(store(&versions, true));
        }
    }

    #[test]
    fn when_versions_run_out_before_the_sweep_is_over_stores_are_lost_rather_than_found_again() {
        let versions = StripeVersions::default();
        versions.skip_to(VERSION_MAX);
        versions.flush();
        assert_eq!(store(&versions, false), 1);
        assert!(versions.is_flushed(1) && versions.is_flushed(VERSION_MAX));
        let version = store(&versions, true);
        assert!(!versions.is_flushed(version), "{version}");
    }
}
