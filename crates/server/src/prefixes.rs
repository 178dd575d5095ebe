//! Counts by prefix of the key, up to a delimiter: what `stats detail` tells who looks for the part of an application that
//! asks for so much. Meta commands count too, which memcached leaves out.
//!
//! Always true: at most [`PREFIXES_MAX`] prefixes are counted; keys without the delimiter, and prefixes that come when there
//! are so many already, are not.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use guira_memcache::Output;

use crate::shared::locked;

/// Prefixes counted: more than a person reads, and no more memory than a few connections take.
const PREFIXES_MAX: usize = 4096;

/// What happened to the keys of one prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) gets: u64,
    pub(crate) hits: u64,
    pub(crate) sets: u64,
    pub(crate) deletes: u64,
}

/// All prefixes. Counting takes a lock that all workers share, as in memcached: it is for a while of looking.
#[derive(Debug)]
pub(crate) struct Prefixes {
    delimiter: u8,
    is_on: AtomicBool,
    counts: Mutex<BTreeMap<Box<[u8]>, Counts>>,
}

impl Prefixes {
    pub(crate) fn new(delimiter: u8, is_on: bool) -> Self {
        Self { delimiter, is_on: AtomicBool::new(is_on), counts: Mutex::default() }
    }

    /// Whether anything is counted.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Starts or ends the counting; what was counted stays.
    pub(crate) fn switch(&self, on: bool) {
        self.is_on.store(on, Relaxed);
    }

    /// Counts something that happened to `key`.
    pub(crate) fn count(&self, key: &[u8], what: impl FnOnce(&mut Counts)) {
        let Some(len) = memchr::memchr(self.delimiter, key) else { return };
        let prefix = &key[..len];
        let mut counts = locked(&self.counts);
        if let Some(counts) = counts.get_mut(prefix) {
            what(counts);
        } else if counts.len() < PREFIXES_MAX {
            what(counts.entry(prefix.into()).or_default());
        }
    }

    /// Forgets all counts.
    pub(crate) fn reset(&self) {
        locked(&self.counts).clear();
    }

    /// A line for each prefix, and an end.
    pub(crate) fn dump(&self, output: &mut Output) {
        let mut line = Vec::new();
        for (prefix, Counts { gets, hits, sets, deletes }) in locked(&self.counts).iter() {
            line.clear();
            line.extend_from_slice(b"PREFIX ");
            line.extend_from_slice(prefix);
            // Writing to a vector does not fail.
            let _ = write!(line, " get {gets} hit {hits} set {sets} del {deletes}\r\n");
            output.push(&line);
        }
        output.push(b"END\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_prefixes_are_kept_than_the_bound() {
        let prefixes = Prefixes::new(b'/', true);
        for n in 0..2 * PREFIXES_MAX {
            prefixes.count(format!("{n}/x").as_bytes(), |counts| counts.gets += 1);
            prefixes.count(b"0/y", |counts| counts.hits += 1);
            prefixes.count(b"no delimiter: none", |counts| counts.hits += 1);
        }
        let counts = locked(&prefixes.counts);
        assert_eq!(counts.len(), PREFIXES_MAX);
        let wanted = Counts { gets: 1, hits: 2 * PREFIXES_MAX as u64, ..Counts::default() };
        assert_eq!(counts[b"0".as_slice()], wanted);
    }
}
