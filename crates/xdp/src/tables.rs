//! The program's maps, and which flows of a switch become what in them.
//!
//! Always true: a flow that is made is looked up by the program as a switch would look it up; every other is refused.

use std::{collections::BTreeSet, fmt};

use aya::{
    Ebpf,
    maps::{Array, HashMap, MapData, MapError, PerCpuArray},
};
use guira_openflow::{Actions, FlowKey, Port, Refusal, RuleOf, Rules};
use guira_routing::{Encoding, HeaderHash, MacAddress, NodeId};

use crate::place::{NOWHERE, Way};

/// Kinds of places of nodes.
const MEMBER: u32 = 0;
const GET: u32 = 1;

/// Numbers that a node may have.
const NODES: u32 = 1 << 16;

/// What the program looks a hash up by: `struct get`.
type GetKey = [u32; 3];

/// What has become of frames since the program is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Gets that went by their hash.
    pub by_hash: u64,
    /// Gets that went to their backend.
    pub by_backend: u64,
    /// What had the address of a get, and was dropped: of a backend that is not there, of another protocol or port, a fragment, or cut off.
    pub of_nobody: u64,
    /// What went to a member.
    pub to_member: u64,
    /// What came to this host, as without the program.
    pub of_others: u64,
}

/// Their number, in the program's order.
const COUNTS: usize = 5;

impl Counts {
    /// All frames.
    pub fn all(&self) -> u64 {
        self.matched().saturating_add(self.of_nobody).saturating_add(self.of_others)
    }

    /// Frames for which there was a rule.
    pub fn matched(&self) -> u64 {
        self.by_hash.saturating_add(self.by_backend).saturating_add(self.to_member)
    }
}

/// Links that a place may name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ports {
    /// Those of a box between hosts, by number.
    Between(BTreeSet<Port>),
    /// A host's own, with its address: what is the host's comes up, all else goes back where it came from.
    Own(MacAddress),
}

/// The maps.
pub(crate) struct Tables {
    rules: Rules,
    encoding: Encoding,
    ports: Ports,
    hashes: HashMap<MapData, GetKey, u64>,
    nodes: Array<MapData, u64>,
    counts: PerCpuArray<MapData, u64>,
    sent: PerCpuArray<MapData, u64>,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").field("rules", &self.rules).field("ports", &self.ports).finish_non_exhaustive()
    }
}

/// A place in a map.
enum Slot {
    Hash(GetKey),
    Node(u32),
    /// What the program does of itself.
    Fixed,
}

impl Tables {
    /// Those of a program that is loaded, each of which is taken out of it; `None`: it is another.
    pub(crate) fn of(
        program: &mut Ebpf,
        rules: Rules,
        encoding: Encoding,
        ports: Ports,
    ) -> Option<Result<Self, MapError>> {
        let mut map = |name| program.take_map(name);
        let (hashes, nodes, counts, sent) = (map("hashes")?, map("nodes")?, map("counts")?, map("sent")?);
        let tables = || {
            let (hashes, nodes) = (HashMap::try_from(hashes)?, Array::try_from(nodes)?);
            let (counts, sent) = (PerCpuArray::try_from(counts)?, PerCpuArray::try_from(sent)?);
            Ok(Self { rules, encoding, ports, hashes, nodes, counts, sent })
        };
        Some(tables())
    }

    /// What has become of frames, on all links.
    ///
    /// # Errors
    /// The kernel does not say.
    pub(crate) fn counts(&self) -> Result<Counts, MapError> {
        let mut counts = [0_u64; COUNTS];
        for (index, count) in (0..).zip(&mut counts) {
            *count = self.counts.get(&index, 0)?.iter().sum();
        }
        let [by_hash, by_backend, of_nobody, to_member, of_others] = counts;
        Ok(Counts { by_hash, by_backend, of_nobody, to_member, of_others })
    }

    /// How many frames the program has given to a port's link to be sent.
    ///
    /// # Errors
    /// The kernel does not say.
    pub(crate) fn sent_by(&self, Port(port): Port) -> Result<u64, MapError> {
        Ok(self.sent.get(&port, 0)?.iter().sum())
    }

    /// A flow is to be there from now on.
    ///
    /// # Errors
    /// The program cannot look it up, or there is no room.
    pub(crate) fn make(&mut self, key: FlowKey, actions: Actions) -> Result<(), Refusal> {
        let slot = self.slot(&key).ok_or(Refusal::BAD_FIELD)?;
        if let Slot::Fixed = slot {
            let fixed = [self.rules.of_nobody(), self.rules.of_others()];
            return if fixed.contains(&(key, actions)) { Ok(()) } else { Err(Refusal::UNSUPPORTED_ACTION) };
        }
        let place = self.way(actions).ok_or(Refusal::BAD_OUTPUT)?.word();
        self.set(&slot, Some(place)).map_err(|error| refusal(&error))
    }

    /// A flow is not to be there any more.
    pub(crate) fn take_back(&mut self, key: &FlowKey) {
        if let Some(slot) = self.slot(key) {
            // It fails if it is not there.
            let _ = self.set(&slot, None);
        }
    }

    fn set(&mut self, slot: &Slot, place: Option<u64>) -> Result<(), MapError> {
        match (slot, place) {
            (Slot::Hash(key), Some(place)) => self.hashes.insert(key, place, 0),
            (Slot::Hash(key), None) => self.hashes.remove(key),
            (Slot::Node(index), place) => self.nodes.set(*index, place.unwrap_or(NOWHERE), 0),
            (Slot::Fixed, _) => Ok(()),
        }
    }

    fn slot(&self, key: &FlowKey) -> Option<Slot> {
        let node = |kind, NodeId(node): NodeId| Slot::Node(kind * NODES + u32::from(node));
        Some(match self.rules.of(key)? {
            RuleOf::Hash(backend, hash) => Slot::Hash(get_key(self.encoding, backend, hash)),
            RuleOf::Backend(backend) => node(GET, backend),
            RuleOf::Member(member) => node(MEMBER, member),
            RuleOf::Nobody | RuleOf::Others => Slot::Fixed,
        })
    }

    /// What the program is to do; `None`: it cannot.
    fn way(&self, actions: Actions) -> Option<Way> {
        match (&self.ports, actions.output?, actions.set_eth_dst) {
            (Ports::Own(own), Port::NORMAL, Some(mac)) if mac == *own => Some(Way::UpTo(mac)),
            (Ports::Own(_), Port::NORMAL, Some(mac)) => Some(Way::BackTo(mac)),
            (Ports::Between(ports), port, mac) if ports.contains(&port) => {
                let port = u16::try_from(port.0).ok()?;
                Some(mac.map_or(Way::Port(port), |mac| Way::PortTo(port, mac)))
            }
            _ => None,
        }
    }
}

/// What the program makes of a get's address.
fn get_key(encoding: Encoding, backend: Option<NodeId>, hash: HeaderHash) -> GetKey {
    let mut bytes = [0; size_of::<GetKey>()];
    match encoding {
        Encoding::Ipv6(plan) => {
            let address = plan.get(backend.unwrap_or(NodeId(0)), hash.lowest()).octets();
            bytes.copy_from_slice(&address[4..]);
        }
        Encoding::Mac(_) => bytes[6..].copy_from_slice(&MacAddress::of_get(hash.lowest()).0),
    }
    std::array::from_fn(|at| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at * 4 + byte])))
}

/// A map's error, as a switch says it.
fn refusal(error: &MapError) -> Refusal {
    match error {
        MapError::SyscallError(error) if error.io_error.raw_os_error() == Some(libc::E2BIG) => Refusal::TABLE_FULL,
        _ => Refusal::FLOW_UNKNOWN,
    }
}
