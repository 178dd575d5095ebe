//! Which backend has a key.
//!
//! ```text
//! hash    [ partition: 14 bits | 50 bits ]
//! owners  [ 3 | 7 | 3 | 1 | ... ]            a backend for each partition
//! ```
//! Each partition goes to the backend with the highest weight, mixed from both their numbers, of those that have not their bound yet:
//! rendezvous hashing with bounded loads.
//! Always true: every partition has an owner. Of a map over a set of backends none has more than its bound, and who owns what follows from the set alone.
//! So members that agree on the set need to agree on nothing else, unless partitions move from one such map to another, one after the other.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::{KeyHash, NodeId};

/// How many bits of a hash say which partition it is in.
const BITS: u32 = 14;

/// Partitions of a cluster. Few enough that the map stays in a core's nearest cache (32 KiB), and so many that each of a thousand backends
/// has 16 of them: it can be off its share by half a partition, 3 %, for no other reason than that partitions are whole.
pub const PARTITIONS: usize = 1 << BITS;

/// Backends at most: beyond, a backend's share would be less than 16 partitions, and too coarse to be even.
pub const BACKENDS_MAX: usize = PARTITIONS / 16;

/// A backend has no more than so many hundredths of its even share, and one partition. Closer to 100, partitions move that need not when a
/// backend comes or goes, for many are then not with their first choice; farther, the fullest backend limits all. Measured, in shares of
/// one backend that move when one comes (mean of 8, and the most):
///
/// ```text
/// backends      107           110           115           120           125
///       32   0.98  1.07    0.97  1.09    0.96  1.09    0.96  1.09    0.96  1.09
///      128   1.18  1.32    1.09  1.25    1.01  1.13    0.99  1.11    0.98  1.08
///      300   1.85  2.14    1.56  1.90    1.20  1.41    1.06  1.33    0.98  1.22
///    1,000   2.98  3.49    2.48  3.08    1.99  2.69    1.64  1.96    1.39  1.65
/// ```
const BOUND_PERCENT: u64 = 110;

// The bounds are together at least as many as there are partitions, however they are drawn: what is above a share is at least one
// partition.
const _: () = assert!((BOUND_PERCENT - 100) as usize * PARTITIONS >= 100 * BACKENDS_MAX);

/// A part of the keys, owned by one backend: below [`PARTITIONS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PartitionId(pub u16);

impl PartitionId {
    /// Each, by number.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..PARTITIONS as u16).map(Self)
    }

    /// That of a hash: its highest bits.
    pub fn of(hash: KeyHash) -> Self {
        Self((hash.0 >> (u64::BITS - BITS)) as u16)
    }
}

/// Why there is no map over some backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionError {
    /// There are none.
    NoBackends,
    /// One is there twice.
    Twice(NodeId),
    /// There are more than [`BACKENDS_MAX`].
    TooMany {
        /// So many.
        backends: usize,
    },
}

impl fmt::Display for PartitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBackends => write!(f, "no backends"),
            Self::Twice(NodeId(node)) => write!(f, "backend {node} is there twice"),
            Self::TooMany { backends } => write!(f, "{backends} backends, which is more than {BACKENDS_MAX}"),
        }
    }
}

impl std::error::Error for PartitionError {}

/// Who owns which partition.
#[derive(Clone, PartialEq, Eq)]
pub struct PartitionMap {
    /// Ascending.
    backends: Vec<NodeId>,
    /// By partition.
    owners: Vec<NodeId>,
}

impl fmt::Debug for PartitionMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionMap").field("backends", &self.backends).finish_non_exhaustive()
    }
}

impl PartitionMap {
    /// The map over these backends, in whatever order. Mixes a weight for each partition and backend: some 50 ms for a thousand backends.
    pub fn over(backends: &[NodeId]) -> Result<Self, PartitionError> {
        if backends.len() > BACKENDS_MAX {
            return Err(PartitionError::TooMany { backends: backends.len() });
        }
        let mut backends = backends.to_vec();
        backends.sort_unstable();
        if let Some(two) = backends.windows(2).find(|two| two[0] == two[1]) {
            return Err(PartitionError::Twice(two[0]));
        }
        if backends.is_empty() {
            return Err(PartitionError::NoBackends);
        }
        // Those that have room yet, and for how many.
        let mut open: Vec<(NodeId, u64)> = backends.iter().map(|node| (*node, bound(*node, backends.len()))).collect();
        let owners = (0..PARTITIONS as u64).map(|partition| {
            let weights = open.iter().enumerate().map(|(at, (node, _))| (weight(partition, *node), *node, at));
            let (_, owner, at) = weights.max().expect("one has room");
            open[at].1 -= 1;
            if open[at].1 == 0 {
                open.swap_remove(at);
            }
            owner
        });
        let owners = owners.collect();
        Ok(Self { backends, owners })
    }

    /// The same, but for some partitions, which this one owns.
    #[must_use]
    pub fn with_owner(&self, partitions: impl IntoIterator<Item = PartitionId>, owner: NodeId) -> Self {
        let mut owners = self.owners.clone();
        partitions.into_iter().for_each(|partition| owners[usize::from(partition.0)] = owner);
        Self::of(owners)
    }

    /// The same, with other names for its backends: each as `name` says.
    #[must_use]
    pub fn renamed(&self, name: impl Fn(NodeId) -> NodeId) -> Self {
        Self::of(self.owners.iter().map(|owner| name(*owner)).collect())
    }

    fn of(owners: Vec<NodeId>) -> Self {
        let backends: BTreeSet<NodeId> = owners.iter().copied().collect();
        Self { backends: backends.into_iter().collect(), owners }
    }

    /// It as bytes: the owners of all partitions, one after the other, little endian.
    pub fn encode(&self) -> Vec<u8> {
        self.owners.iter().flat_map(|owner| owner.0.to_le_bytes()).collect()
    }

    /// The map that these bytes are; `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (owners, rest) = bytes.as_chunks::<2>();
        let is_one = owners.len() == PARTITIONS && rest.is_empty();
        is_one.then(|| Self::of(owners.iter().map(|owner| NodeId(u16::from_le_bytes(*owner))).collect()))
    }

    /// The partition of a hash: its highest bits.
    pub fn partition(&self, hash: KeyHash) -> PartitionId {
        PartitionId::of(hash)
    }

    /// Who owns a partition, if it is one: not all numbers that others name are.
    pub fn owner_if_any(&self, partition: PartitionId) -> Option<NodeId> {
        self.owners.get(usize::from(partition.0)).copied()
    }

    /// Who owns a partition.
    ///
    /// # Panics
    /// There is no such partition.
    pub fn owner(&self, partition: PartitionId) -> NodeId {
        self.owners[usize::from(partition.0)]
    }

    /// Who owns the partition of a hash.
    pub fn owner_of(&self, hash: KeyHash) -> NodeId {
        self.owner(self.partition(hash))
    }

    /// All backends, ascending: those that it is over, or those that own something.
    pub fn backends(&self) -> &[NodeId] {
        &self.backends
    }

    /// What a backend owns, ascending; nothing if it is not one. Looks at every partition.
    pub fn partitions_of(&self, node: NodeId) -> impl Iterator<Item = PartitionId> {
        let owners = self.owners.iter().zip(0..);
        owners.filter(move |(owner, _)| **owner == node).map(|(_, partition)| PartitionId(partition))
    }

    /// The partitions that have one owner here and another in `other`, ascending. Two maps are the same in most of them most of the time: many are
    /// compared at once.
    pub fn differing_from<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = PartitionId> + 'a {
        const AT_ONCE: usize = 256;
        // It never ends early, so that it vectorises.
        let differ = |here: &[NodeId], there: &[NodeId]| {
            here.iter().zip(there).fold(0, |bits, (here, there)| bits | (here.0 ^ there.0)) != 0
        };
        let chunks = self.owners.chunks(AT_ONCE).zip(other.owners.chunks(AT_ONCE)).zip((0..).step_by(AT_ONCE));
        chunks.filter(move |((here, there), _)| differ(here, there)).flat_map(|((here, there), first)| {
            let pairs = here.iter().zip(there).zip(first..);
            pairs.filter(|((here, there), _)| here != there).map(|(_, partition)| PartitionId(partition))
        })
    }
}

/// How many partitions a node may have, of so many nodes. What is over a whole number is one more for some of them and none for the others:
/// were it rounded, all bounds would step at once as backends come, and a thousand backends would move dozens of shares for the sake of
/// one.
fn bound(node: NodeId, backends: usize) -> u64 {
    const ONE: u64 = 1 << 16;
    let exact = PARTITIONS as u64 * BOUND_PERCENT * ONE / (100 * backends as u64);
    // No partition has this number, so that this is mixed for nothing else.
    let drawn = weight(u64::from(u16::MAX), node) % ONE;
    (exact + drawn) / ONE
}

/// How much a partition is drawn to a node: the finalizer of SplitMix64 over both numbers, which is one-to-one, so that no two are equally
/// drawn.
fn weight(partition: u64, NodeId(node): NodeId) -> u64 {
    let mut mixed = (u64::from(node) << 16 | partition).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(len: usize) -> Vec<NodeId> {
        (0..len as u16).map(NodeId).collect()
    }

    fn shares(map: &PartitionMap) -> Vec<usize> {
        let mut shares = vec![0; usize::from(map.backends().last().expect("one").0) + 1];
        map.owners.iter().for_each(|owner| shares[usize::from(owner.0)] += 1);
        shares
    }

    /// Partitions that have another owner in `after`: how many, and how many of them came to or went from `node`.
    fn moved(before: &PartitionMap, after: &PartitionMap, node: NodeId) -> (usize, usize) {
        let changed: Vec<_> = before.owners.iter().zip(&after.owners).filter(|(was, is)| was != is).collect();
        (changed.len(), changed.iter().filter(|(was, is)| **was == node || **is == node).count())
    }

    #[test]
    fn no_backend_has_much_more_than_its_share() {
        for len in [1, 2, 3, 5, 16, 128, 1_000, BACKENDS_MAX] {
            let map = PartitionMap::over(&nodes(len)).unwrap();
            let (shares, mean) = (shares(&map), PARTITIONS as f64 / len as f64);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(*most as f64 <= mean * 1.1 + 1.0, "{most} of {mean} with {len} backends");
            assert!(*least as f64 >= mean / 4.0, "{least} of {mean} with {len} backends");
            assert_eq!(shares.iter().sum::<usize>(), PARTITIONS);
        }
    }

    #[test]
    fn a_backend_that_comes_or_goes_moves_little_but_its_own_share() {
        // With many backends a share is few partitions: see `BOUND_PERCENT`. Between 1,001 and 1,002, the rounded bound steps.
        for (len, shares_moved_max, own_percent) in [(4, 1.3, 95), (32, 1.3, 95), (128, 1.3, 80), (1_002, 3.5, 25)] {
            let all = nodes(len);
            let before = PartitionMap::over(&all).unwrap();
            for at in [0, len / 3, len - 1] {
                let mut rest = all.clone();
                let node = rest.remove(at);
                let after = PartitionMap::over(&rest).unwrap();
                // The same two maps, whether the backend goes or comes.
                let (moved, own) = moved(&before, &after, node);
                let shares_moved = moved as f64 / PARTITIONS as f64 * len as f64;
                assert!(shares_moved <= shares_moved_max, "{shares_moved} shares, one of {len}");
                assert!(own * 100 >= moved * own_percent, "{own} of {moved}, one of {len}");
                assert_eq!(own, before.partitions_of(node).count());
                assert_eq!(after.partitions_of(node).count(), 0);
            }
        }
    }

    #[test]
    fn the_order_of_backends_does_not_matter() {
        let mut backends = nodes(100);
        let map = PartitionMap::over(&backends).unwrap();
        backends.reverse();
        backends.swap(3, 71);
        assert_eq!(PartitionMap::over(&backends), Ok(map));
    }

    /// Members of different builds must agree on who owns what.
    #[test]
    fn owners_stay_who_they_are() {
        let map = PartitionMap::over(&[NodeId(7), NodeId(1), NodeId(300)]).unwrap();
        let first: Vec<_> = (0..12).map(|partition| map.owner(PartitionId(partition)).0).collect();
        assert_eq!(first, [7, 7, 7, 7, 1, 300, 300, 1, 1, 7, 300, 300]);
    }

    #[test]
    fn a_hash_is_owned_by_the_owner_of_its_partition() {
        let map = PartitionMap::over(&nodes(9)).unwrap();
        for (hash, partition) in
            [(0, 0), (u64::MAX, PARTITIONS as u16 - 1), (1 << 50, 1), ((1 << 50) - 1, 0), (5 << 50 | 9, 5)]
        {
            assert_eq!(map.partition(KeyHash(hash)), PartitionId(partition));
            let owner = map.owner_of(KeyHash(hash));
            assert_eq!(owner, map.owner(PartitionId(partition)));
            assert!(map.partitions_of(owner).any(|other| other == PartitionId(partition)));
        }
    }

    #[test]
    fn backends_that_make_no_map_are_refused() {
        assert_eq!(PartitionMap::over(&[]), Err(PartitionError::NoBackends));
        assert_eq!(PartitionMap::over(&[NodeId(2), NodeId(1), NodeId(2)]), Err(PartitionError::Twice(NodeId(2))));
        let backends = BACKENDS_MAX + 1;
        assert_eq!(PartitionMap::over(&nodes(backends)), Err(PartitionError::TooMany { backends }));
    }

    #[test]
    fn a_map_is_read_as_it_was_written_and_nothing_else_is_one() {
        let map = PartitionMap::over(&[NodeId(1), NodeId(1_000), NodeId(65_535)]).expect("a map");
        let bytes = map.encode();
        assert_eq!(PartitionMap::decode(&bytes), Some(map));
        for other in [&[][..], &bytes[1..], &bytes[2..], &[&bytes[..], &[0, 0]].concat()] {
            assert_eq!(PartitionMap::decode(other), None, "{} bytes", other.len());
        }
    }

    #[test]
    fn partitions_that_move_are_anothers_and_no_others_are() {
        let map = PartitionMap::over(&[NodeId(1), NodeId(2)]).expect("a map");
        let moved: BTreeSet<PartitionId> = map.partitions_of(NodeId(1)).take(100).collect();
        let after = map.with_owner(moved.iter().copied(), NodeId(3));
        assert_eq!(after.backends(), [NodeId(1), NodeId(2), NodeId(3)]);
        for partition in (0..PARTITIONS as u16).map(PartitionId) {
            let owner = if moved.contains(&partition) { NodeId(3) } else { map.owner(partition) };
            assert_eq!(after.owner(partition), owner);
        }
        assert!(map.differing_from(&after).eq(moved.iter().copied()));
        assert_eq!(map.differing_from(&map.clone()).count(), 0);
        let all = map.with_owner(map.partitions_of(NodeId(1)), NodeId(2));
        assert!(
            all.differing_from(&map).eq(map.partitions_of(NodeId(1))),
            "all that another has, whole chunks of them"
        );
        assert_eq!(
            (all.backends(), all.encode()),
            (&[NodeId(2)][..], PartitionMap::over(&[NodeId(2)]).expect("a map").encode())
        );
    }

    #[test]
    fn a_backend_of_another_name_has_what_the_first_one_had() {
        let map = PartitionMap::over(&nodes(3)).expect("a map");
        let renamed = map.renamed(|node| if node == NodeId(1) { NodeId(7) } else { node });
        assert_eq!(renamed.backends(), [NodeId(0), NodeId(2), NodeId(7)]);
        let of = |map: &PartitionMap, node| map.partitions_of(NodeId(node)).collect::<Vec<_>>();
        for (before, after) in [(0, 0), (1, 7), (2, 2)] {
            assert_eq!(of(&map, before), of(&renamed, after));
        }
    }
}
