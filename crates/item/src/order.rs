//! The order in which an engine's items would be evicted: shown by one engine, kept, and taken over by another.
//!
//! An engine has an order of its own for each class of sizes, or for each partition. A [`Rank`] makes them comparable: the part of
//! an order that would go before the item does.

use crate::{ItemInfo, ScanCursor};

/// Where an item stands in its order: the lowest goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Rank(u8);

impl Rank {
    /// How many there are.
    pub const COUNT: usize = 128;

    /// The rank of an item before which `before` of `all` go.
    pub fn of(before: u64, all: u64) -> Self {
        let rank = u128::from(before) * Self::COUNT as u128 / u128::from(all.max(1));
        Self(rank.min(Self::COUNT as u128 - 1) as u8)
    }

    /// The rank of what was used so long ago, where nothing else is known: by the second at first, then in steps of a quarter of a
    /// doubling.
    pub fn of_idle(idle_s: u32) -> Self {
        let log = idle_s.max(1).ilog2();
        let age = if log < 2 { idle_s } else { 4 * (log - 1) + ((idle_s >> (log - 2)) & 3) };
        Self((Self::COUNT as u32 - 1 - age) as u8)
    }

    /// By its number, if there is such a one.
    pub fn numbered(number: u8) -> Option<Self> {
        (usize::from(number) < Self::COUNT).then_some(Self(number))
    }

    /// Its number, below [`Rank::COUNT`].
    pub fn number(self) -> u8 {
        self.0
    }
}

/// How an item stands with the policy that decides about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Where it stands in its order.
    pub rank: Rank,
    /// Its turn has come, and it was spared: it lies behind the hand (sieve) or in the main queue (s3fifo).
    pub is_spared: bool,
}

impl Standing {
    /// Of an item of which only is known when it was used.
    pub fn by_age(item: &ItemInfo<'_>) -> Self {
        Self { rank: Rank::of_idle(item.idle_s), is_spared: false }
    }
}

/// Where a scan in order stands; start with the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OrderCursor {
    /// Number of the order.
    pub order: u32,
    /// The next item in it, by whatever the engine knows it; 0: the first.
    pub at: u64,
    /// Items of the order that came before.
    pub before: u64,
}

impl OrderCursor {
    /// The beginning of an order.
    pub fn of(order: u32) -> Self {
        Self { order, ..Self::default() }
    }

    /// Where a scan in no order stands.
    pub fn unordered(ScanCursor(at): ScanCursor) -> Self {
        Self { at, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_go_from_the_first_to_the_last_of_any_number() {
        for all in [1, 2, 100, 128, 129, 5_000, u64::MAX] {
            let ranks: Vec<u8> =
                (0..all.min(5_000)).map(|before| Rank::of(before * (all / all.min(5_000)), all).number()).collect();
            assert!(ranks.is_sorted());
            assert_eq!(ranks[0], 0);
            assert_eq!(Rank::of(all - 1, all).number(), if all < 128 { (128 * (all - 1) / all) as u8 } else { 127 });
        }
        assert_eq!(Rank::of(7, 0).number(), 127);
        assert_eq!((Rank::numbered(127), Rank::numbered(128)), (Some(Rank(127)), None));
    }

    #[test]
    fn what_was_used_longer_ago_goes_first() {
        let all =
            (0..2_000).chain((11..32).flat_map(|log| (0..8).map(move |eighth| (1 << log) + eighth * (1 << (log - 3)))));
        let ranks: Vec<u8> = all.chain([u32::MAX]).map(|idle_s| Rank::of_idle(idle_s).number()).collect();
        assert!(ranks.windows(2).all(|pair| pair[0] == pair[1] || pair[0] == pair[1] + 1), "none is left out");
        assert_eq!((ranks[0], ranks.last()), (127, Some(&4)));
        assert!((0..8).all(|idle_s| Rank::of_idle(idle_s).number() == 127 - idle_s as u8));
    }
}
