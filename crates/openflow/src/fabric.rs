//! Several switches, the links between them, and by which port of each it is nearest to another one.
//!
//! ```text
//! host --- [1] === [2] --- host         1: port 7 leads to 2         of a fat tree some ports lead as near: a host's number
//!           |       |                   2: port 9 leads to 1         says which, so that hosts are parted among them
//!          host    host
//! ```
//! Always true: each switch is reached from each other one; each step is one nearer, so that no frame comes to a switch twice, whatever circles there are. Some of the links
//! make a tree, for what is sent to everybody.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    error::Error,
    fmt,
};

use guira_routing::NodeId;

use crate::{DatapathId, Port};

/// The links of a switch: which port leads to which other one.
type Links = BTreeMap<Port, DatapathId>;

/// The switches of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fabric {
    links: BTreeMap<DatapathId, Links>,
    /// Links on a shortest way, from the first to the second.
    distances: BTreeMap<(DatapathId, DatapathId), usize>,
    /// Of each switch the ports that lead along the tree.
    tree: BTreeSet<(DatapathId, Port)>,
}

/// What cannot be joined so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FabricError {
    /// There are too many switches, or none.
    Len(usize),
    /// A switch is there twice.
    Twice(DatapathId),
    /// A port has a number that no port has, or leads to two.
    Port(DatapathId, Port),
    /// A link leads to where no other switch is.
    NoSwitch(DatapathId, Port),
    /// Not as many links lead back from the second to the first.
    NoWayBack(DatapathId, DatapathId),
    /// No way leads from one to another.
    Apart(DatapathId, DatapathId),
}

impl fmt::Display for FabricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Len(len) => write!(f, "{len} switches: from 1 to {}", Fabric::SWITCHES_MAX),
            Self::Twice(switch) => write!(f, "switch {switch} is there twice"),
            Self::Port(switch, Port(port)) => {
                write!(
                    f,
                    "switch {switch}: port {port}: ports have numbers from 1 to {}, and lead to one place",
                    Port::MAX.0
                )
            }
            Self::NoSwitch(switch, Port(port)) => write!(f, "switch {switch}: port {port} leads to no other switch"),
            Self::NoWayBack(from, to) => {
                write!(f, "switch {to}: not as many links lead back to {from} as lead from there")
            }
            Self::Apart(from, to) => write!(f, "switch {to}: no way leads there from {from}"),
        }
    }
}

impl Error for FabricError {}

impl Fabric {
    /// Switches of a cluster, at most: as many as may call at a time.
    pub const SWITCHES_MAX: usize = 64;

    /// These switches, each with the ports that lead to others.
    ///
    /// # Errors
    /// [`FabricError`]: what cannot be.
    pub fn new(
        switches: impl IntoIterator<Item = (DatapathId, impl IntoIterator<Item = (Port, DatapathId)>)>,
    ) -> Result<Self, FabricError> {
        let mut links: BTreeMap<DatapathId, Links> = BTreeMap::new();
        for (switch, its) in switches {
            let mut ports = Links::new();
            for (port, to) in its {
                if !port.is_number() || ports.insert(port, to).is_some() {
                    return Err(FabricError::Port(switch, port));
                }
            }
            if links.insert(switch, ports).is_some() {
                return Err(FabricError::Twice(switch));
            }
        }
        if !(1..=Self::SWITCHES_MAX).contains(&links.len()) {
            return Err(FabricError::Len(links.len()));
        }
        for (switch, ports) in &links {
            for (port, to) in ports {
                let others = links.get(to).filter(|_| to != switch).ok_or(FabricError::NoSwitch(*switch, *port))?;
                let count = |links: &Links, to: &DatapathId| links.values().filter(|its| *its == to).count();
                if count(others, switch) != count(ports, to) {
                    return Err(FabricError::NoWayBack(*switch, *to));
                }
            }
        }
        let distances: BTreeMap<_, _> =
            links.keys().flat_map(|to| distances(&links, *to).map(|(from, len)| ((from, *to), len))).collect();
        let pairs = links.keys().flat_map(|from| links.keys().map(|to| (*from, *to)));
        if let Some((from, to)) = pairs.into_iter().find(|pair| !distances.contains_key(pair)) {
            return Err(FabricError::Apart(from, to));
        }
        let tree = tree(&links);
        Ok(Self { links, distances, tree })
    }

    /// How many there are.
    #[expect(clippy::len_without_is_empty, reason = "there is one at least")]
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// The switches.
    pub fn switches(&self) -> impl Iterator<Item = DatapathId> {
        self.links.keys().copied()
    }

    /// Whether a switch is one of them.
    pub fn has(&self, switch: DatapathId) -> bool {
        self.links.contains_key(&switch)
    }

    /// Whether a port leads to another switch.
    pub fn is_link(&self, switch: DatapathId, port: Port) -> bool {
        self.links.get(&switch).is_some_and(|ports| ports.contains_key(&port))
    }

    /// The ports of a switch that lead to others.
    pub fn links(&self, switch: DatapathId) -> impl Iterator<Item = Port> {
        self.links.get(&switch).into_iter().flat_map(|ports| ports.keys().copied())
    }

    /// Whether what comes to a switch by a port has come along the tree. Of links between the same two each end is said for itself: what is sent by all of them is taken once.
    pub fn is_in_tree(&self, switch: DatapathId, port: Port) -> bool {
        self.tree.contains(&(switch, port))
    }

    /// The port of a switch by which frames to a host of another one leave it; `None`: it is the same switch, or one of them is none of these.
    pub fn way(&self, from: DatapathId, to: DatapathId, host: NodeId) -> Option<Port> {
        let nearer = self.distances.get(&(from, to))?.checked_sub(1)?;
        let leads_there =
            |(port, next): (&Port, &DatapathId)| (self.distances.get(&(*next, to)) == Some(&nearer)).then_some(*port);
        let ports: Vec<Port> = self.links.get(&from)?.iter().filter_map(leads_there).collect();
        // Each switch chooses by numbers of its own: else all that comes to one has been chosen alike, and leaves by one port.
        let mixed = (u64::from(host.0) ^ from.0.rotate_left(32)).wrapping_mul(MIXER) >> 32;
        ports.get(mixed as usize % ports.len().max(1)).copied()
    }
}

/// Multiplies numbers that are near each other apart: 2^64 by the golden ratio.
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A tree of links, from the first switch on: of each switch the port to the one by which it was reached first, and of that one its port.
fn tree(links: &BTreeMap<DatapathId, Links>) -> BTreeSet<(DatapathId, Port)> {
    let port = |from: &DatapathId, to: &DatapathId| {
        let (port, _) = links.get(from)?.iter().find(|(_, its)| *its == to)?;
        Some((*from, *port))
    };
    let Some(root) = links.keys().next() else { return BTreeSet::new() };
    let (mut reached, mut next) = (BTreeSet::from([*root]), VecDeque::from([*root]));
    let mut tree = BTreeSet::new();
    while let Some(at) = next.pop_front() {
        for neighbour in links.get(&at).into_iter().flat_map(Links::values) {
            if reached.insert(*neighbour) {
                next.push_back(*neighbour);
                tree.extend([port(&at, neighbour), port(neighbour, &at)].into_iter().flatten());
            }
        }
    }
    tree
}

/// How far it is to one of them from each from which it can be reached. Links lead both ways.
fn distances(links: &BTreeMap<DatapathId, Links>, to: DatapathId) -> impl Iterator<Item = (DatapathId, usize)> {
    let mut reached = BTreeMap::from([(to, 0)]);
    let mut next = VecDeque::from([(to, 0)]);
    while let Some((at, len)) = next.pop_front() {
        for neighbour in links.get(&at).into_iter().flat_map(Links::values) {
            reached.entry(*neighbour).or_insert_with(|| {
                next.push_back((*neighbour, len + 1));
                len + 1
            });
        }
    }
    reached.into_iter()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(number: usize) -> DatapathId {
        DatapathId(number as u64)
    }

    /// These links, both ways, each of a port of its own.
    fn joined(len: usize, pairs: &[(usize, usize)]) -> Result<Fabric, FabricError> {
        let mut links = vec![Vec::new(); len];
        for (a, b) in pairs {
            for (from, to) in [(*a, *b), (*b, *a)] {
                let port = Port(links[from].len() as u32 + 1);
                links[from].push((port, id(to)));
            }
        }
        Fabric::new(links.into_iter().enumerate().map(|(at, links)| (id(at), links)))
    }

    proptest! {
        #[test]
        fn each_step_is_one_nearer(len in 1..9_usize, more in prop::collection::vec((0..9_usize, 0..9_usize), 0..12), host: u16) {
            // A tree, and links that make circles of it, some of them twice.
            let tree = (1..len).map(|at| (at, at / 2));
            let more = more.into_iter().map(|(a, b)| (a % len, b % len)).filter(|(a, b)| a != b);
            let fabric = joined(len, &tree.chain(more).collect::<Vec<_>>()).unwrap();
            for (from, to) in (0..len).flat_map(|from| (0..len).map(move |to| (id(from), id(to)))) {
                let (mut at, mut seen) = (from, BTreeSet::new());
                while let Some(port) = fabric.way(at, to, NodeId(host)) {
                    prop_assert!(seen.insert(at));
                    prop_assert!(fabric.is_link(at, port));
                    at = fabric.links[&at][&port];
                }
                prop_assert_eq!(at, to);
                prop_assert_eq!(seen.len(), fabric.distances[&(from, to)]);
            }
            // Both ends of all but one switch's.
            prop_assert_eq!(fabric.tree.len(), 2 * (len - 1));
        }
    }

    #[test]
    fn of_ways_that_are_as_short_hosts_take_all() {
        // Two leaves, and three switches above both.
        let fabric = joined(5, &[(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)]).unwrap();
        let ways: BTreeSet<Option<Port>> = (0..20).map(|host| fabric.way(id(0), id(1), NodeId(10 * host))).collect();
        assert_eq!(ways, [1, 2, 3].map(|port| Some(Port(port))).into());
        assert_eq!(fabric.way(id(0), id(0), NodeId(7)), None);
        assert_eq!(fabric.way(id(0), id(9), NodeId(7)), None);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let one_way = |to| Fabric::new([(id(1), vec![(Port(7), id(to))]), (id(2), vec![])]);
        assert_eq!(one_way(2), Err(FabricError::NoWayBack(id(1), id(2))));
        assert_eq!(one_way(1), Err(FabricError::NoSwitch(id(1), Port(7))));
        assert_eq!(one_way(9), Err(FabricError::NoSwitch(id(1), Port(7))));
        let three = [(id(1), vec![(Port(7), id(2)), (Port(8), id(2))]), (id(2), vec![(Port(7), id(1))])];
        assert_eq!(Fabric::new(three), Err(FabricError::NoWayBack(id(1), id(2))));
        assert_eq!(joined(3, &[(0, 1)]), Err(FabricError::Apart(id(0), id(2))));
        let twice = Fabric::new([(id(1), vec![]), (id(1), vec![])]);
        assert_eq!(twice, Err(FabricError::Twice(id(1))));
        for ports in [vec![(Port(7), id(2)), (Port(7), id(3))], vec![(Port(0), id(2))], vec![(Port::NORMAL, id(2))]] {
            let port = ports[0].0;
            assert_eq!(Fabric::new([(id(1), ports)]), Err(FabricError::Port(id(1), port)));
        }
        assert_eq!(joined(0, &[]), Err(FabricError::Len(0)));
        let row: Vec<(usize, usize)> = (1..=Fabric::SWITCHES_MAX).map(|at| (at - 1, at)).collect();
        assert!(joined(Fabric::SWITCHES_MAX, &row[1..row.len() - 1]).is_err(), "one of the row is not there");
        assert!(joined(Fabric::SWITCHES_MAX, &row[..row.len() - 1]).is_ok());
        assert_eq!(joined(Fabric::SWITCHES_MAX + 1, &row), Err(FabricError::Len(Fabric::SWITCHES_MAX + 1)));
    }
}
