//! A symmetric cluster as a file says it is: who its members are and where, and what all of them go by. It never changes while it runs.
//!
//! ```toml
//! topology = "symmetric"
//! cluster = "guira"              # keeps clusters with one secret apart
//! secret = "at least 16 bytes"   # what members know each other by
//! consistency = "lin"            # of hot keys: linearizable, or sc
//! lease_ms = 1000                # so long nobody writes what a node has that has fallen silent
//! hot_keys = 1000                # that all nodes have, at most
//! shard = "crcw"                # each thread of a node looks into its shards; or "erew", for comparison: one thread only
//! epoch_ms = 1000                # how often these are chosen
//! sample_one_in = 1              # of whose requests one in so many is counted for that
//! item_len_max = 1048576         # bytes of key and value together, up to 16 MiB
//! answer_within_ms = 5000
//! coalesced = true               # messages to one member share datagrams and writes; false: none does, to compare
//!
//! [[member]]
//! id = 1
//! role = "node"
//! address = "10.0.0.1:7000"      # UDP and TCP, from member to member
//! listen = "0.0.0.0:11211"       # memcached's protocol, over TCP
//! memory_megabytes = 64          # of its items
//!
//! [[member]]
//! id = 10000
//! role = "coordinator"
//! address = "10.0.0.9:7000"
//! folder = "/var/lib/guira"      # where it keeps who is there
//! ```
//! Always true of one that was read: there is one coordinator, and a node at least; numbers and addresses are each used once.

use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf};

use guira_cluster::{
    CommonSettings, Drift, Epoch, FileError, ITEM_LEN_DEFAULT, LONG_MESSAGE_LEN_MAX, Life, Members, Secret,
    check_addresses, check_bounds, clients_values_len_max, read_file,
};
use guira_consistency::Consistency;
use guira_item::{KEY_LEN_MAX, Span};
use guira_routing::NodeId;
use serde::{Deserialize, Serialize};

use crate::{CoordinatorConfig, FlowConfig, HomecomingConfig, HotSetConfig, NodeConfig, ShardAccess, ViewsConfig};

/// Who may send something to whom never changes; views of the nodes that serve have epochs of their own.
const EPOCH: Epoch = Epoch(1);

/// Keys that may be hot at most: what a node says of them goes in one message, with the longest names.
const HOT_KEYS_MAX: usize = 29_000;
const _: () = assert!(hottest_len_max(HOT_KEYS_MAX) <= LONG_MESSAGE_LEN_MAX);

/// Bytes of [`Message::Hottest`](crate::Message::Hottest) at most, where so many keys may be hot: those that are, and the hottest, a quarter more and some, each with its length, and how
/// often it is asked for.
const fn hottest_len_max(hot_keys: usize) -> usize {
    let name_len_max = KEY_LEN_MAX + 2;
    hot_keys * name_len_max + (hot_keys + hot_keys / 4 + 8) * (name_len_max + size_of::<f64>()) + 64
}

/// A key comes for another if it is so many times as hot (0038).
const MARGIN: f64 = 1.25;

/// Keys that come or go in an epoch at most: each takes two rounds of all nodes.
const CHANGES_MAX: usize = 256;

/// The last who have hot keys are waited for so many leases: who stands still for a while comes back within that.
const LAST_COPY_WAITS_LEASES: u64 = 3;

/// What all members of a cluster go by.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SymmetricFile {
    /// It is this.
    pub topology: Topology,
    /// Keeps clusters with one secret apart.
    pub cluster: String,
    /// What members know each other by.
    pub secret: String,
    /// What is promised of hot keys.
    #[serde(with = "ConsistencyName")]
    pub consistency: Consistency,
    /// How long a lease is: so long nobody writes what a node has that has fallen silent.
    pub lease_ms: u64,
    /// How long a client waits for an answer at most.
    pub answer_within_ms: u64,
    /// Bytes of a key and its value together, at most.
    pub item_len_max: usize,
    /// Keys that all nodes have, at most; 0: none, to compare.
    pub hot_keys: usize,
    /// Who looks into a node's shards.
    pub shard: ShardAccess,
    /// How often these are chosen.
    pub epoch_ms: u64,
    /// Of a node's requests one in so many is counted for that.
    pub sample_one_in: u32,
    /// Whether messages to one member share datagrams and writes; otherwise each has its own, to compare.
    pub coalesced: bool,
    /// Everybody.
    #[serde(rename = "member")]
    pub members: Vec<Member>,
}

/// Which kind of cluster a file is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", try_from = "String")]
pub enum Topology {
    /// All nodes are alike.
    #[default]
    Symmetric,
}

impl TryFrom<String> for Topology {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name.as_str() {
            "symmetric" => Ok(Self::Symmetric),
            _ => Err(format!("topology {name:?}: there is \"symmetric\"; a switched cluster's file has none")),
        }
    }
}

/// A [`Consistency`], as a file has it.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Consistency", rename_all = "kebab-case")]
enum ConsistencyName {
    Lin,
    Sc,
}

/// One member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Its number.
    pub id: u16,
    /// Where it is for other members.
    pub address: SocketAddr,
    /// What it is.
    #[serde(flatten)]
    pub role: Role,
}

/// What a member is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Role {
    /// Says who is there, and which keys are to be hot.
    Coordinator {
        /// Where it keeps who is there.
        folder: PathBuf,
    },
    /// Has a shard, and all hot keys, and speaks with clients.
    Node {
        /// Where clients find it.
        listen: SocketAddr,
        /// Megabytes of its items.
        #[serde(default = "memory_default")]
        memory_megabytes: usize,
    },
}

fn memory_default() -> usize {
    64
}

impl Role {
    /// Its name, as the file has it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Coordinator { .. } => "coordinator",
            Self::Node { .. } => "node",
        }
    }
}

/// Without its secret.
impl fmt::Debug for SymmetricFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, members, .. } = self;
        f.debug_struct("SymmetricFile").field("cluster", cluster).field("members", members).finish_non_exhaustive()
    }
}

impl Default for SymmetricFile {
    fn default() -> Self {
        Self {
            topology: Topology::Symmetric,
            cluster: "guira".into(),
            secret: String::new(),
            consistency: Consistency::Lin,
            lease_ms: 1_000,
            answer_within_ms: 5_000,
            item_len_max: ITEM_LEN_DEFAULT,
            hot_keys: 1_000,
            shard: ShardAccess::Crcw,
            epoch_ms: 1_000,
            sample_one_in: 1,
            coalesced: true,
            members: Vec::new(),
        }
    }
}

/// What is wrong with a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SymmetricFileError {
    /// It is no cluster's.
    File(FileError),
    /// Not one coordinator.
    Coordinators(usize),
    /// Too few nodes, or too many.
    Nodes(usize),
    /// This node has too little memory for an item of the longest, or more than there is.
    Memory(u16),
    /// Nobody knows where clients find this node.
    Listen(u16),
}

impl fmt::Display for SymmetricFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Coordinators(count) => write!(f, "{count} members are the coordinator: one has to be"),
            Self::Nodes(count) => {
                write!(f, "{count} members are nodes: from 1 to {} have to be", ViewsConfig::NODES_MAX)
            }
            Self::Listen(id) => write!(f, "member {id}: listen: write a port from 1 on"),
            Self::Memory(id) => {
                write!(f, "member {id}: memory_megabytes: from 8, and four times item_len_max, to 1048576")
            }
        }
    }
}

impl std::error::Error for SymmetricFileError {}

impl From<FileError> for SymmetricFileError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl SymmetricFile {
    /// Whether a text is such a file, right or wrong: it says of which topology it is, as no other does.
    pub fn is_named(text: &str) -> bool {
        #[derive(Deserialize)]
        struct Named {
            #[serde(rename = "topology")]
            _topology: toml::Value,
        }
        toml::from_str::<Named>(text).is_ok()
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`SymmetricFileError`].
    pub fn parse(text: &str) -> Result<Self, SymmetricFileError> {
        let file: Self = read_file(text)?;
        file.check()?;
        Ok(file)
    }

    /// Whether it is a cluster.
    ///
    /// # Errors
    /// [`SymmetricFileError`].
    pub fn check(&self) -> Result<(), SymmetricFileError> {
        let Self { secret, lease_ms, answer_within_ms, item_len_max, .. } = self;
        let (lease_ms, answer_within_ms, item_len_max) = (*lease_ms, *answer_within_ms, *item_len_max);
        CommonSettings { secret, lease_ms, answer_within_ms, item_len_max }.check()?;
        check_bounds([
            (self.hot_keys <= HOT_KEYS_MAX, "hot_keys: up to 29000"),
            ((100..=60_000).contains(&self.epoch_ms), "epoch_ms: from 100 to 60000"),
            ((1..=1_000).contains(&self.sample_one_in), "sample_one_in: from 1 to 1000"),
        ])?;
        let (nodes, coordinators) = (self.nodes().len(), self.members.len() - self.nodes().len());
        if coordinators != 1 {
            return Err(SymmetricFileError::Coordinators(coordinators));
        }
        if !(1..=ViewsConfig::NODES_MAX).contains(&nodes) {
            return Err(SymmetricFileError::Nodes(nodes));
        }
        check_addresses(self.members.iter().map(|member| (member.id, member.address)))?;
        self.members()?;
        let has_no_port = |role: &Role| matches!(role, Role::Node { listen, .. } if listen.port() == 0);
        if let Some(member) = self.members.iter().find(|member| has_no_port(&member.role)) {
            return Err(SymmetricFileError::Listen(member.id));
        }
        let least = 8.max(4 * item_len_max.div_ceil(1 << 20));
        let has_memory = |role: &Role| match role {
            Role::Node { memory_megabytes, .. } => (least..=1 << 20).contains(memory_megabytes),
            Role::Coordinator { .. } => true,
        };
        let wrong = self.members.iter().find(|member| !has_memory(&member.role));
        wrong.map_or(Ok(()), |member| Err(SymmetricFileError::Memory(member.id)))
    }

    /// The nodes, by number: so their shards are dealt out.
    pub fn nodes(&self) -> Vec<NodeId> {
        let nodes = self.members.iter().filter(|member| matches!(member.role, Role::Node { .. }));
        let mut nodes: Vec<NodeId> = nodes.map(|member| NodeId(member.id)).collect();
        nodes.sort_unstable();
        nodes
    }

    /// The coordinator.
    pub fn coordinator(&self) -> NodeId {
        let is_it = |member: &&Member| matches!(member.role, Role::Coordinator { .. });
        self.members.iter().find(is_it).map_or(NodeId(0), |member| NodeId(member.id))
    }

    /// The member of a number.
    pub fn member(&self, node: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == node.0)
    }

    /// Everybody's place.
    ///
    /// # Errors
    /// [`FileError::Members`].
    pub fn members(&self) -> Result<Members, FileError> {
        let members = self.members.iter().map(|member| (NodeId(member.id), member.address));
        Ok(Members::new(EPOCH, members)?)
    }

    /// What members know each other by.
    pub fn secret(&self) -> Secret {
        Secret::derive(&self.cluster, self.secret.as_bytes())
    }

    /// Bytes of values of clients that a node may have under way, of each kind that it counts.
    pub fn values_len_max(&self) -> usize {
        clients_values_len_max(self.item_len_max)
    }

    /// Bytes that a node's items take at most.
    fn items_len_max(&self, me: NodeId) -> usize {
        match self.member(me).map(|member| &member.role) {
            Some(Role::Node { memory_megabytes, .. }) => memory_megabytes << 20,
            Some(Role::Coordinator { .. }) | None => 0,
        }
    }

    fn lease(&self) -> Span {
        Span::from_ms(self.lease_ms)
    }

    /// What a node is.
    pub fn node_config(&self, me: NodeId, life: Life) -> NodeConfig {
        NodeConfig {
            me,
            coordinator: self.coordinator(),
            life,
            lease: self.lease(),
            drift: Drift::default(),
            consistency: self.consistency,
            item_len_max: self.item_len_max,
            items_len_max: self.items_len_max(me),
            shard_access: self.shard,
            hot_keys_max: self.hot_keys,
            answer_within: Span::from_ms(self.answer_within_ms),
            sample_one_in: self.sample_one_in,
            flow: FlowConfig::default(),
            homecoming: HomecomingConfig::USUAL,
            mutant: None,
            shown_mutant: None,
        }
    }

    /// What the coordinator is.
    pub fn coordinator_config(&self) -> CoordinatorConfig {
        CoordinatorConfig {
            me: self.coordinator(),
            views: ViewsConfig {
                nodes: self.nodes(),
                lease: self.lease(),
                drift: Drift::default(),
                last_copy_waits: self.lease().times(LAST_COPY_WAITS_LEASES),
                mutant: None,
            },
            hot: HotSetConfig { len_max: self.hot_keys, changes_max: CHANGES_MAX, margin: MARGIN },
            epoch: Span::from_ms(self.epoch_ms),
            consistency: self.consistency,
        }
    }

    /// It as a file.
    ///
    /// # Errors
    /// [`FileError::Syntax`] if it cannot be written as one.
    pub fn print(&self) -> Result<String, FileError> {
        toml::to_string(self).map_err(|error| FileError::Syntax(error.to_string()))
    }

    /// Numbers of members by role, for those who count.
    pub fn roles(&self) -> BTreeMap<&'static str, usize> {
        let mut roles = BTreeMap::new();
        for member in &self.members {
            *roles.entry(member.role.name()).or_default() += 1;
        }
        roles
    }
}

#[cfg(test)]
mod tests {
    use guira_cluster::MembersError;

    use super::*;
    use crate::{HotSet, Message};

    const EXAMPLE: &str = include_str!("../../../docs/examples/symmetric.toml");

    #[test]
    fn what_is_printed_is_read_again() {
        let file = SymmetricFile::parse(EXAMPLE).expect("a cluster");
        assert_eq!((file.coordinator(), file.nodes()), (NodeId(10_000), [1, 2, 3].map(NodeId).to_vec()));
        let printed = file.print().expect("it can be written");
        assert!(SymmetricFile::is_named(&printed) && SymmetricFile::is_named(EXAMPLE));
        assert_eq!(SymmetricFile::parse(&printed), Ok(file));
        assert!(!SymmetricFile::is_named("secret = \"0123456789abcdef\""));
    }

    #[test]
    fn what_a_node_says_of_as_many_hot_keys_as_may_be_fits_into_a_message() {
        let keys = |len: usize| {
            let key = |at: usize| [&at.to_le_bytes()[..], &[b'k'; KEY_LEN_MAX - 8]].concat();
            (0..len).map(move |at| guira_consistency::Key::from(&key(at)[..]))
        };
        let hottest = keys(HOT_KEYS_MAX + HOT_KEYS_MAX / 4 + 8).map(|key| (key, f64::MAX)).collect();
        let set = HotSet { number: u64::MAX, keys: keys(HOT_KEYS_MAX).collect() };
        let mut bytes = Vec::new();
        Message::Hottest { keys: hottest, set }.encode(&mut bytes);
        assert!(bytes.len() <= hottest_len_max(HOT_KEYS_MAX), "{}", bytes.len());
    }

    #[test]
    fn what_is_no_cluster_is_said_in_a_line() {
        let with = |from: &str, to: &str| {
            assert!(EXAMPLE.contains(from), "{from}");
            EXAMPLE.replacen(from, to, 1)
        };
        for (text, says) in [
            (with("write here something of your own", "short"), "secret: at least 16 bytes"),
            (with("\"symmetric\"", "\"switched\""), "line "),
            (with("\"lin\"", "\"weak\""), "line "),
            (with("\"coordinator\"", "\"controller\""), "line "),
            (with("lease_ms = 1000", "lease_ms = 5"), "lease_ms: from 100 to 60000"),
            (with("lease_ms", "lease"), "line "),
            (with("hot_keys = 1000", "hot_keys = 29001"), "hot_keys: up to 29000"),
            (with("epoch_ms = 1000", "epoch_ms = 1"), "epoch_ms: from 100 to 60000"),
            (with("sample_one_in = 1 ", "sample_one_in = 0 "), "sample_one_in: from 1 to 1000"),
            (with("coalesced = true", "coalesced = 1"), "line "),
            (with("memory_megabytes = 64", "memory_megabytes = 7"), "member 1: memory_megabytes: from 8"),
            (with("memory_megabytes", "memory"), "line "),
            (with("0.0.0.0:11211", "0.0.0.0:0"), "member 1: listen: write a port from 1 on"),
            (with("10.0.0.2:7000", "0.0.0.0:7000"), "member 2: its address has to be the one"),
            (with("10.0.0.2:7000", "10.0.0.1:7000"), "members: two nodes have the address"),
            (with("id = 2", "id = 3"), "members: node 3 is named twice"),
            (format!("topology = \"symmetric\"\nsecret = \"{}\"", "s".repeat(16)), "0 members are the coordinator"),
        ] {
            let told = SymmetricFile::parse(&text).expect_err(says).to_string();
            assert!(told.starts_with(says) && !told.contains('\n'), "{told}");
        }
        let other = with("\"symmetric\"", "\"switched\"");
        assert!(SymmetricFile::is_named(&other));
        let told = SymmetricFile::parse(&other).expect_err("another").to_string();
        assert!(
            told.ends_with("topology \"switched\": there is \"symmetric\"; a switched cluster's file has none"),
            "{told}"
        );
        let nobody = SymmetricFile {
            secret: "s".repeat(16),
            members: vec![Member {
                id: 1,
                address: ([127, 0, 0, 1], 7_000).into(),
                role: Role::Coordinator { folder: ".".into() },
            }],
            ..SymmetricFile::default()
        };
        assert_eq!(nobody.check(), Err(SymmetricFileError::Nodes(0)));
        let twice = SymmetricFile { members: [&nobody.members[..], &nobody.members].concat(), ..nobody };
        assert_eq!(twice.check(), Err(SymmetricFileError::Coordinators(2)));
        assert_eq!(twice.members(), Err(FileError::Members(MembersError::SameNode(NodeId(1)))));
    }
}
