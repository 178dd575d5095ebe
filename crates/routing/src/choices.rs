//! The cache nodes that a rule leads to: one, or two of which the router takes the less loaded (the power of two choices, as in DistCache,
//! FAST 2019).
//!
//! Always true: two are not the same, and stand in order, so that two rules that lead to the same nodes are equal.

use serde::{Deserialize, Serialize};

use crate::NodeId;

/// One cache node, or two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(from = "(NodeId, Option<NodeId>)", into = "(NodeId, Option<NodeId>)")]
pub struct Choices {
    first: NodeId,
    /// After the first, if there is one.
    second: Option<NodeId>,
}

impl From<NodeId> for Choices {
    fn from(node: NodeId) -> Self {
        Self { first: node, second: None }
    }
}

/// What comes from elsewhere is put in order.
impl From<(NodeId, Option<NodeId>)> for Choices {
    fn from((one, other): (NodeId, Option<NodeId>)) -> Self {
        other.map_or(one.into(), |other| Self::of(one, other))
    }
}

impl From<Choices> for (NodeId, Option<NodeId>) {
    fn from(choices: Choices) -> Self {
        (choices.first, choices.second)
    }
}

impl Choices {
    /// How many there are at most.
    pub const MAX: usize = 2;

    /// Two, or one if they are the same.
    pub fn of(one: NodeId, other: NodeId) -> Self {
        let (first, second) = (one.min(other), one.max(other));
        Self { first, second: Some(second).filter(|second| *second != first) }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + use<> {
        [Some(self.first), self.second].into_iter().flatten()
    }

    /// Whether one of them is `node`.
    pub fn contains(&self, node: NodeId) -> bool {
        self.iter().any(|there| there == node)
    }

    /// These and `node`; `None` if there are two others.
    #[must_use]
    pub fn with(&self, node: NodeId) -> Option<Self> {
        match self.second {
            _ if self.contains(node) => Some(*self),
            None => Some(Self::of(self.first, node)),
            Some(_) => None,
        }
    }

    /// These but `node`; `None` if none is left.
    #[must_use]
    pub fn without(&self, node: NodeId) -> Option<Self> {
        let mut left = self.iter().filter(|there| *there != node);
        let first = left.next()?;
        Some(Self { first, second: left.next() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const C: NodeId = NodeId(3);

    #[test]
    fn two_are_the_same_in_any_order() {
        assert_eq!(Choices::of(A, B), Choices::of(B, A));
        assert_eq!(Choices::from((B, Some(A))), Choices::of(A, B));
        assert_eq!(Choices::of(A, A), A.into());
        assert_eq!(Choices::of(B, A).iter().collect::<Vec<_>>(), [A, B]);
    }

    #[test]
    fn nodes_come_and_go() {
        let one = Choices::from(B);
        let two = one.with(A).expect("there is room");
        assert_eq!((one.with(B), two.with(B), two.with(C)), (Some(one), Some(two), None));
        assert_eq!((two.without(A), two.without(B), two.without(C)), (Some(one), Some(A.into()), Some(two)));
        assert_eq!(one.without(B), None);
        assert!(two.contains(A) && !two.contains(C));
    }
}
