//! When a value was written, as all nodes agree on it: a version, and whose write it is.
//!
//! Always true:
//! - no two writes of a key have the same timestamp: a writer gives a version once, and no two lives of a node are the same [`Writer`];
//! - of two that are compared neither is 2^31 versions or more behind the other, so versions may wrap around (RFC 1982). Who holds a copy acknowledges
//!   every write of its key, so copies are one write apart; what is on its way is refused in any other epoch, and within one it would have to be
//!   older than 2^30 writes of one key, which take a round of all nodes each: an hour at 300,000 a second, and no datagram lives that long.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// A member's life: the view names it, and gives no number again while anything that bears it may be around. With 65,536 of them that is the
/// 65,536th life after it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Writer(pub u16);

/// How a write depends on what was there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// It does not.
    Plain,
    /// It was made of it (read-modify-write), so nothing may come between.
    Modify,
}

/// When a value was written.
///
/// `PartialEq` and `Ord` are those of its parts, for sets. Which of two is newer says [`Timestamp::is_newer_than`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Timestamp {
    /// Goes up with each write, and wraps around.
    pub version: u32,
    /// Whose write it is: of two with one version the higher is the newer.
    pub writer: Writer,
}

impl Timestamp {
    /// Whether it is newer than another of the same key.
    pub fn is_newer_than(self, other: Self) -> bool {
        match self.version_order(other) {
            Ordering::Less => false,
            Ordering::Equal => self.writer > other.writer,
            Ordering::Greater => true,
        }
    }

    /// The order of the versions alone (serial number arithmetic).
    pub fn version_order(self, other: Self) -> Ordering {
        (self.version.wrapping_sub(other.version) as i32).cmp(&0)
    }

    /// That of a write on top of this one. A plain write goes two versions up and a read-modify-write one, so that of two on top of the same
    /// the plain write is the newer (Hermes, ASPLOS'20, section 3.6).
    #[must_use]
    pub fn next(self, kind: Kind, writer: Writer) -> Self {
        let by = match kind {
            Kind::Plain => 2,
            Kind::Modify => 1,
        };
        Self { version: self.version.wrapping_add(by), writer }
    }

    /// What clients know by it that was written then ("cas unique"): no two writes of a key have the same, and none has 0, which is no version.
    pub fn cas_unique(self) -> u64 {
        (u64::from(self.version) << 16 | u64::from(self.writer.0)) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(version: u32, writer: u16) -> Timestamp {
        Timestamp { version, writer: Writer(writer) }
    }

    #[test]
    fn the_version_decides_and_then_the_writer() {
        assert!(at(3, 1).is_newer_than(at(2, 9)));
        assert!(at(3, 2).is_newer_than(at(3, 1)));
        assert!(!at(3, 1).is_newer_than(at(3, 1)));
        assert!(!at(3, 1).is_newer_than(at(3, 2)));
    }

    #[test]
    fn versions_wrap_around() {
        let last = at(u32::MAX, 7);
        let next = last.next(Kind::Modify, Writer(1));
        assert_eq!(next, at(0, 1));
        assert!(next.is_newer_than(last) && !last.is_newer_than(next));
        assert_eq!(last.next(Kind::Plain, Writer(1)), at(1, 1));
        let half = 1 << 31;
        for start in [0, 1, half - 1, half, u32::MAX - 1, u32::MAX] {
            let (old, new) = (at(start, 5), at(start.wrapping_add(half - 1), 0));
            assert!(new.is_newer_than(old) && !old.is_newer_than(new), "{start}");
        }
    }

    #[test]
    fn of_two_on_top_of_the_same_the_plain_write_is_the_newer() {
        for base in [at(4, 3), at(u32::MAX, 3), at(u32::MAX - 1, 3)] {
            let (plain, modify) = (base.next(Kind::Plain, Writer(0)), base.next(Kind::Modify, Writer(9)));
            assert!(plain.is_newer_than(modify) && modify.is_newer_than(base));
        }
    }

    #[test]
    fn clients_know_it_by_a_number_of_its_own() {
        let all = [at(0, 0), at(0, 1), at(0, u16::MAX), at(1, 0), at(u32::MAX, u16::MAX)].map(Timestamp::cas_unique);
        assert!(all[0] > 0 && all.windows(2).all(|two| two[0] < two[1]));
    }
}
