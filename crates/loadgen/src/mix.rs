//! What is asked for: operations and their shares, with YCSB's core mixes by name.

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use crate::key_source::Popularity;

/// What one operation does, in memcached's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Read a value.
    Get,
    /// Read a value and its cas unique.
    Gets,
    /// Store unconditionally.
    Set,
    /// Store a new key (YCSB's insert).
    Insert,
    /// Store if absent.
    Add,
    /// Store if present.
    Replace,
    /// Extend at the end.
    Append,
    /// Extend at the front.
    Prepend,
    /// Store if unchanged; the generator sends a unique of 1, so it answers EXISTS or NOT_FOUND.
    Cas,
    /// Remove.
    Delete,
    /// Add 1 to a counter.
    Incr,
    /// Take 1 from a counter.
    Decr,
    /// Renew the lifetime.
    Touch,
    /// Read, then write the same key (YCSB F).
    ReadModifyWrite,
}

impl Kind {
    const NAMES: [(&'static str, Self); 14] = [
        ("get", Self::Get),
        ("gets", Self::Gets),
        ("set", Self::Set),
        ("insert", Self::Insert),
        ("add", Self::Add),
        ("replace", Self::Replace),
        ("append", Self::Append),
        ("prepend", Self::Prepend),
        ("cas", Self::Cas),
        ("delete", Self::Delete),
        ("incr", Self::Incr),
        ("decr", Self::Decr),
        ("touch", Self::Touch),
        ("rmw", Self::ReadModifyWrite),
    ];

    /// The operation of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// Its name in workload files and reports.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Whether the answer is a value (or a miss) rather than a line.
    pub fn reads(self) -> bool {
        matches!(self, Self::Get | Self::Gets)
    }

    /// Whether it needs a value that is a number.
    pub fn counts(self) -> bool {
        matches!(self, Self::Incr | Self::Decr)
    }
}

/// Operations with their shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    shares: Vec<(Kind, f64)>,
    total: f64,
}

impl Mix {
    /// A mix of these operations. Shares are positive and need not add up to 1; `None` if nothing is left.
    pub fn new(shares: impl IntoIterator<Item = (Kind, f64)>) -> Option<Self> {
        let shares: Vec<_> = shares.into_iter().filter(|(_, share)| share.is_finite() && *share > 0.0).collect();
        let total = shares.iter().map(|(_, share)| share).sum();
        (!shares.is_empty()).then_some(Self { shares, total })
    }

    /// `get_share` GETs (0 to 1), the rest SETs.
    pub fn get_set(get_share: f64) -> Self {
        let get_share = get_share.clamp(0.0, 1.0);
        Self { shares: vec![(Kind::Get, get_share), (Kind::Set, 1.0 - get_share)], total: 1.0 }
    }

    /// YCSB's core workload `letter` (A, B, C, D or F) and the popularity that belongs to it
    /// (Cooper et al., SoCC 2010, table 2). E scans, which memcached cannot.
    pub fn ycsb(letter: char) -> Option<(Self, Popularity)> {
        let zipf = Popularity::Zipf { exponent: 0.99 };
        let (shares, popularity) = match letter.to_ascii_uppercase() {
            'A' => (vec![(Kind::Get, 0.5), (Kind::Set, 0.5)], zipf),
            'B' => (vec![(Kind::Get, 0.95), (Kind::Set, 0.05)], zipf),
            'C' => (vec![(Kind::Get, 1.0)], zipf),
            'D' => (vec![(Kind::Get, 0.95), (Kind::Insert, 0.05)], Popularity::Latest { exponent: 0.99 }),
            'F' => (vec![(Kind::Get, 0.5), (Kind::ReadModifyWrite, 0.5)], zipf),
            _ => return None,
        };
        Some((Self { shares, total: 1.0 }, popularity))
    }

    /// One operation.
    #[inline]
    pub fn draw(&self, rng: &mut impl Rng) -> Kind {
        let mut rest = rng.random::<f64>() * self.total;
        for (kind, share) in &self.shares {
            rest -= share;
            if rest < 0.0 {
                return *kind;
            }
        }
        self.shares[self.shares.len() - 1].0
    }

    /// The share of `kind`, 0 to 1.
    pub fn share(&self, kind: Kind) -> f64 {
        self.shares.iter().filter(|(known, _)| *known == kind).map(|(_, share)| share / self.total).sum()
    }

    /// The operations in it.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        self.shares.iter().map(|(kind, _)| *kind)
    }
}

impl std::fmt::Display for Mix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut gap = "";
        for (kind, share) in self.shares.iter().filter(|(_, share)| *share > 0.0) {
            write!(f, "{gap}{:.0} % {}", share / self.total * 100.0, kind.name())?;
            gap = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    #[test]
    fn shares_come_out_as_asked() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let mix = Mix::get_set(0.95);
        let sets = (0..100_000).filter(|_| mix.draw(&mut rng) == Kind::Set).count();
        assert!((4_750..5_250).contains(&sets), "{sets}");
    }

    #[test]
    fn ycsb_mixes_exist_without_scans() {
        for letter in ['A', 'b', 'C', 'D', 'F'] {
            assert!(Mix::ycsb(letter).is_some(), "{letter}");
        }
        assert!(Mix::ycsb('E').is_none());
        assert_eq!(Mix::ycsb('B').map(|(mix, _)| mix.to_string()), Some("95 % get, 5 % set".into()));
    }

    #[test]
    fn names_go_both_ways() {
        for (name, kind) in Kind::NAMES {
            assert_eq!(Kind::named(name), Some(kind));
            assert_eq!(kind.name(), name);
        }
    }

    #[test]
    fn an_empty_mix_is_refused() {
        assert!(Mix::new([(Kind::Get, 0.0)]).is_none());
    }
}
