//! Who is a member, and where: a view, which is replaced as a whole.
//!
//! Always true: a node has one address and an address one node. So there are no more than node ids: 65,536.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use guira_routing::NodeId;

use crate::seal::Epoch;

/// The members of one epoch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Members {
    epoch: Epoch,
    addresses: BTreeMap<NodeId, SocketAddr>,
    nodes: BTreeMap<SocketAddr, NodeId>,
}

/// Why there is no such view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MembersError {
    /// A node is named twice.
    SameNode(NodeId),
    /// Two nodes have this address.
    SameAddress(SocketAddr),
}

impl fmt::Display for MembersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameNode(NodeId(node)) => write!(f, "node {node} is named twice"),
            Self::SameAddress(address) => write!(f, "two nodes have the address {address}"),
        }
    }
}

impl std::error::Error for MembersError {}

impl Members {
    /// Those of `epoch`.
    ///
    /// # Errors
    /// A node or an address is there twice.
    pub fn new(epoch: Epoch, members: impl IntoIterator<Item = (NodeId, SocketAddr)>) -> Result<Self, MembersError> {
        let (mut addresses, mut nodes) = (BTreeMap::new(), BTreeMap::new());
        for (node, address) in members {
            if addresses.insert(node, address).is_some() {
                return Err(MembersError::SameNode(node));
            }
            if nodes.insert(canonical(address), node).is_some() {
                return Err(MembersError::SameAddress(address));
            }
        }
        Ok(Self { epoch, addresses, nodes })
    }

    /// The view's number.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Where a member is.
    pub fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.addresses.get(&node).copied()
    }

    /// Who is at an address, however it is written: an IPv4 address may be mapped into IPv6.
    pub fn node_at(&self, address: SocketAddr) -> Option<NodeId> {
        self.nodes.get(&canonical(address)).copied()
    }

    /// Whether a node is one of them.
    pub fn is_member(&self, node: NodeId) -> bool {
        self.addresses.contains_key(&node)
    }

    /// All of them, by id.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, SocketAddr)> {
        self.addresses.iter().map(|(node, address)| (*node, *address))
    }
}

/// One form for an address: a socket for both families sees IPv4's as IPv6's, and flow labels and scopes are not part of who it is.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    #[test]
    fn members_are_found_by_node_and_by_address() {
        let both = [(NodeId(1), at("10.0.0.1:7000")), (NodeId(2), at("[fd00::2]:7000"))];
        let members = Members::new(Epoch(4), both).unwrap();
        assert_eq!(members.epoch(), Epoch(4));
        for (node, address) in both {
            assert!(members.is_member(node));
            assert_eq!((members.address(node), members.node_at(address)), (Some(address), Some(node)));
        }
        assert_eq!(members.node_at(at("[::ffff:10.0.0.1]:7000")), Some(NodeId(1)), "mapped into IPv6");
        assert_eq!((members.address(NodeId(3)), members.node_at(at("10.0.0.1:7001"))), (None, None));
        assert!(!members.is_member(NodeId(3)));
        assert!(members.iter().eq(both));
    }

    #[test]
    fn a_view_that_contradicts_itself_is_refused() {
        let view = |members: &[(u16, &str)]| {
            Members::new(Epoch(1), members.iter().map(|(node, address)| (NodeId(*node), at(address))))
        };
        assert_eq!(view(&[(1, "10.0.0.1:1"), (1, "10.0.0.1:2")]), Err(MembersError::SameNode(NodeId(1))));
        let mapped = "[::ffff:10.0.0.1]:1";
        assert_eq!(view(&[(1, "10.0.0.1:1"), (2, mapped)]), Err(MembersError::SameAddress(at(mapped))));
    }
}
