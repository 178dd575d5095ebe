//! The cache nodes of a cluster, and the parts that each is made of: threads, each with items, sessions and a place of its own.
//!
//! ```text
//! cache node 100 of three parts:  100 | 101 | 102      a key's part: by a hash of its hash, another one at each node
//! ```
//! Always true: a node has the number of its first part, and the others have the numbers behind it. That no number is two parts' is for who makes a
//! cluster to see to. Hot keys that are of one part here are of different ones elsewhere (independent hashes, as in DistCache, FAST 2019). A key's part is found by a few
//! steps with 32 bits of what every header carries of its hash, so that the kernel can take them for a packet that has come ([`Steering`]).

use std::collections::BTreeMap;
use std::num::NonZero;

use crate::{HashSeed, KeyHash, NodeId};

/// How keys are dealt out to the parts of a node: by a multiplication that is the node's own (multiply-shift hashing, Dietzfelbinger et al., 1997).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steering {
    /// Makes of a hash's bits another hash, in the 16 highest of 32 bits.
    pub multiplier: u32,
    /// How many there are.
    pub parts: NonZero<u16>,
}

impl Steering {
    /// Of a hash's 64 bits those from this one on decide, 32 of them: the lowest of the 40 that every encoding of headers carries are among them.
    pub const LOWEST_BIT: u32 = 24;

    /// Whose a key with this hash is, counted from 0.
    pub fn part_of(&self, hash: KeyHash) -> u16 {
        let its = ((hash.0 >> Self::LOWEST_BIT) as u32).wrapping_mul(self.multiplier) >> 16;
        // The same share of all for each, however many there are.
        ((its * u32::from(self.parts.get())) >> 16) as u16
    }
}

/// Cache nodes, by number, and how many parts each has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CacheNodes(BTreeMap<NodeId, NonZero<u16>>);

/// One part each.
impl FromIterator<NodeId> for CacheNodes {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        nodes.into_iter().map(|node| (node, NonZero::<u16>::MIN)).collect()
    }
}

impl FromIterator<(NodeId, NonZero<u16>)> for CacheNodes {
    fn from_iter<I: IntoIterator<Item = (NodeId, NonZero<u16>)>>(nodes: I) -> Self {
        Self(nodes.into_iter().collect())
    }
}

impl CacheNodes {
    /// The nodes, by number.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + Clone + '_ {
        self.0.keys().copied()
    }

    /// The parts of all nodes, by number.
    pub fn parts(&self) -> impl Iterator<Item = NodeId> + Clone + '_ {
        self.0.iter().flat_map(|(node, parts)| numbers(*node, *parts))
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many parts there are.
    pub fn parts_len(&self) -> usize {
        self.0.values().map(|parts| usize::from(parts.get())).sum()
    }

    /// Whether a node is one of them.
    pub fn is_node(&self, node: NodeId) -> bool {
        self.0.contains_key(&node)
    }

    /// Whether it is a part of one of them.
    pub fn is_part(&self, part: NodeId) -> bool {
        self.node_of(part).is_some()
    }

    /// The node that has a part.
    pub fn node_of(&self, part: NodeId) -> Option<NodeId> {
        let (node, parts) = self.0.range(..=part).next_back()?;
        (part.0 - node.0 < parts.get()).then_some(*node)
    }

    /// The parts of a node, by number; none, if there is no such node.
    pub fn parts_of(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.0.get(&node).into_iter().flat_map(move |parts| numbers(node, *parts))
    }

    /// Which part of a node a key is of that has this hash.
    pub fn part_for(&self, node: NodeId, hash: KeyHash) -> Option<NodeId> {
        let steering = self.steering(node)?;
        Some(NodeId(node.0.wrapping_add(steering.part_of(hash))))
    }

    /// How a node's keys are dealt out to its parts.
    pub fn steering(&self, node: NodeId) -> Option<Steering> {
        let parts = *self.0.get(&node)?;
        // Odd: then no bit of what it is multiplied with is lost before the highest are taken.
        let multiplier = KeyHash::of(&node.0.to_le_bytes(), HashSeed(0)).0 as u32 | 1;
        Some(Steering { multiplier, parts })
    }

    /// Whether, of the node that has this part, a key with this hash is this part's.
    pub fn is_part_for(&self, part: NodeId, hash: KeyHash) -> bool {
        self.node_of(part).and_then(|node| self.part_for(node, hash)) == Some(part)
    }
}

fn numbers(node: NodeId, parts: NonZero<u16>) -> impl Iterator<Item = NodeId> + Clone {
    (0..parts.get()).map(move |at| NodeId(node.0.wrapping_add(at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HashSeed;

    fn nodes() -> CacheNodes {
        let parts = |parts| NonZero::new(parts).expect("not none");
        [(NodeId(100), parts(3)), (NodeId(103), parts(1)), (NodeId(200), parts(16))].into_iter().collect()
    }

    #[test]
    fn parts_are_of_the_node_before_them() {
        let nodes = nodes();
        assert_eq!((nodes.len(), nodes.parts_len(), nodes.parts().count()), (3, 20, 20));
        for (part, node) in [(100, 100), (102, 100), (103, 103), (200, 200), (215, 200)] {
            assert_eq!(nodes.node_of(NodeId(part)), Some(NodeId(node)), "{part}");
            assert!(nodes.parts_of(NodeId(node)).any(|its| its == NodeId(part)));
        }
        for nobody in [0, 99, 104, 199, 216, u16::MAX] {
            assert_eq!(nodes.node_of(NodeId(nobody)), None, "{nobody}");
        }
        assert!(nodes.is_node(NodeId(103)) && !nodes.is_node(NodeId(101)));
        assert_eq!(nodes.parts_of(NodeId(101)).count(), 0);
    }

    #[test]
    fn a_key_is_of_one_part_of_each_node_and_parts_have_like_shares() {
        let nodes = nodes();
        let hashes = || (0..16_000u32).map(|key| KeyHash::of(&key.to_le_bytes(), HashSeed(7)));
        for node in nodes.nodes() {
            let parts: Vec<NodeId> = nodes.parts_of(node).collect();
            let mean = 16_000 / parts.len();
            for part in parts {
                let its = hashes().filter(|hash| nodes.part_for(node, *hash) == Some(part)).count();
                assert!(its.abs_diff(mean) < mean / 8, "{its} keys of 16,000 are of part {part:?}");
                assert_eq!(its, hashes().filter(|hash| nodes.is_part_for(part, *hash)).count());
            }
        }
        assert_eq!(nodes.part_for(NodeId(101), KeyHash(0)), None);
    }

    #[test]
    fn keys_that_meet_in_one_node_do_not_in_another() {
        let parts = NonZero::new(4).expect("not none");
        let nodes: CacheNodes = [(NodeId(100), parts), (NodeId(200), parts)].into_iter().collect();
        let hashes = (0..4_000u32).map(|key| KeyHash::of(&key.to_le_bytes(), HashSeed(7)));
        let meet: Vec<KeyHash> =
            hashes.filter(|hash| nodes.part_for(NodeId(100), *hash) == Some(NodeId(100))).collect();
        for part in nodes.parts_of(NodeId(200)) {
            let its = meet.iter().filter(|hash| nodes.part_for(NodeId(200), **hash) == Some(part)).count();
            assert!(its.abs_diff(meet.len() / 4) < meet.len() / 16, "{its} of {} meet again in {part:?}", meet.len());
        }
    }
}
