//! A cluster as a file says it is: who its members are and where, and what all of them go by. It never changes while it runs, unless the file is in etcd.
//!
//! ```toml
//! cluster = "guira"              # keeps clusters with one secret apart
//! secret = "at least 16 bytes"   # what members know each other by
//! lease_ms = 1000
//! item_len_max = 1048576         # bytes of key and value together, up to 16 MiB
//! reported = 5                   # keys that a backend reports each second, up to 40
//! sample_one_in = 1              # of whose queries it counts one in so many for that
//!
//! [[member]]
//! id = 1
//! role = "controller"
//! address = "10.0.0.1:7000"      # UDP and TCP, from member to member
//!
//! [[member]]
//! id = 100
//! role = "cache"
//! address = "10.0.0.2:7000"
//! threads = 4                    # as many numbers and ports, from these on
//!
//! [[member]]
//! id = 1000
//! role = "backend"
//! address = "10.0.0.3:7000"
//! cache = 100                    # who may cache its keys
//! store = "rocksdb:/var/lib/guira"   # or memory, or cassandra:HOST[:PORT],.../KEYSPACE, one for each backend
//!
//! [[member]]
//! id = 10000
//! role = "gateway"
//! address = "10.0.0.4:7000"
//! listen = "0.0.0.0:11211"       # memcached's protocol, over TCP
//! cache_mode = "switched"        # or look-aside, look-through, none
//! ```
//! Where the network routes, and not gateways (`docs/design/0035`):
//! ```toml
//! [network]
//! router = "openflow"
//! encoding = "ipv6=fd5e:a1c0::/32"   # each member's address is the one that this gives its number
//! gets_port = 7100                   # of UDP, on the hosts of cache nodes and backends: one of these on a host
//! switches = "10.0.0.1:6653"         # where switches call the controller
//!
//! [[member]]
//! id = 1000
//! role = "backend"
//! address = "[fd5e:a1c0:0:3e8::1]:7000"
//! mac = "02:00:00:00:03:e8"          # its interface's
//! switch_port = 7                    # which leads there; without it the switch finds it by the address
//! ```
//! Always true of one that was read: there is one controller, and a backend and a gateway at least; numbers and addresses are each used once;
//! a backend's cache node is one; who stands by for a backend has its store, and none of its keys.

mod caches;
mod error;
mod homes;
mod joined;
mod member;
mod network;
mod standbys;

use std::{collections::BTreeMap, fmt};

use guira_cluster::{
    CommonSettings, Epoch, FileError, Life, LinkBounds, Members, Secret, check_addresses, check_bounds,
    clients_values_len_max, read_file,
};
use guira_item::{Span, store::Part};
use guira_routing::{HashSeed, KeyHash, NodeId, PartitionId, PartitionMap, RuleBudget, RuleChoices};
use serde::{Deserialize, Serialize};

use crate::{
    CacheMode, Drift, ITEM_LEN_DEFAULT, Shares, View,
    backend::{BackendConfig, GivingConfig, HotConfig, REPORTED_MAX, Reports},
    controller::ControllerConfig,
    gateway::{GatewayConfig, HedgeConfig, PENDING_MAX},
    values_len_max,
};
pub use error::StaticFileError;
pub use joined::{JoinedError, JoinedSwitch, Link};
pub use member::{BackendRole, Member, Role};
pub use network::{Network, NetworkError, Plug, Router};
pub use standbys::StandbyError;

/// The epoch of a view that never changes.
const EPOCH: Epoch = Epoch(1);

/// How long an answer is waited for before it is asked again, until it is known how long answers take.
const RESEND_AFTER_MS: u64 = 20;

/// What all members of a cluster go by.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StaticFile {
    /// Keeps clusters with one secret apart.
    pub cluster: String,
    /// What members know each other by.
    pub secret: String,
    /// How long a lease is: so long a change waits at most for a cache node that has fallen silent.
    pub lease_ms: u64,
    /// How long a client waits for an answer at most.
    pub answer_within_ms: u64,
    /// Milliseconds that a cache node is waited for before a read is asked of its backend as well; 0: it is not.
    #[serde(skip_serializing_if = "is_zero")]
    pub hedge_after_ms: u64,
    /// Bytes of a key and its value together, at most.
    pub item_len_max: usize,
    /// Items of a cache node, at most, shared out over its threads.
    pub items_max: usize,
    /// Megabytes of keys and values of a cache node, at most, shared out over its threads. An item that does not fit is not cached.
    pub cache_megabytes: usize,
    /// What backends tell of hot keys: `every-query`, `periodic`, `instant`, `both` or `none`.
    pub reports: ReportsName,
    /// Keys that are not cached, the hottest, that a backend reports each second, and as many cached ones beside them; up to four times as many if each of the others
    /// is a four-hundredth of its load.
    #[serde(skip_serializing_if = "is_reported_default")]
    pub reported: usize,
    /// Of a backend's queries one in so many is counted for these reports; bursts are looked for in all.
    #[serde(skip_serializing_if = "is_one")]
    pub sample_one_in: u32,
    /// Queries a second of a backend below which no key of it bursts.
    pub burst_load_min: f64,
    /// Updates of routes a second.
    pub rules_per_s: u32,
    /// How long a route may stay after its key has left the cache, while others are made.
    pub rule_deletion_delay_ms: u64,
    /// When a backend's change counts as stored: `always`, `interval:MS` or `os`.
    pub durability: String,
    /// Megabytes of memory of a backend's store.
    pub store_megabytes: usize,
    /// The network, if that routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Everybody.
    #[serde(rename = "member")]
    pub members: Vec<Member>,
    /// Who was one, where members come and go: their numbers are not others'.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<Member>,
}

/// Without its secret.
impl fmt::Debug for StaticFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, members, former, .. } = self;
        let mut shown = f.debug_struct("StaticFile");
        shown.field("cluster", cluster).field("members", members).field("former", former).finish_non_exhaustive()
    }
}

/// What is told of hot keys, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportsName {
    /// [`Reports::EveryQuery`].
    EveryQuery,
    /// [`Reports::Periodic`].
    Periodic,
    /// [`Reports::Instant`].
    Instant,
    /// [`Reports::Both`].
    #[default]
    Both,
    /// [`Reports::None`].
    None,
}

// Fields that have these values are left out: earlier builds refuse a field that they do not know.

fn is_zero(ms: &u64) -> bool {
    *ms == 0
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

fn is_reported_default(reported: &usize) -> bool {
    *reported == HotConfig::default().reported
}

impl ReportsName {
    fn reports(self) -> Reports {
        match self {
            Self::EveryQuery => Reports::EveryQuery,
            Self::Periodic => Reports::Periodic,
            Self::Instant => Reports::Instant,
            Self::Both => Reports::Both,
            Self::None => Reports::None,
        }
    }
}

impl Default for StaticFile {
    fn default() -> Self {
        Self {
            cluster: "guira".into(),
            secret: String::new(),
            lease_ms: 1_000,
            answer_within_ms: 5_000,
            hedge_after_ms: 0,
            item_len_max: ITEM_LEN_DEFAULT,
            items_max: 10_000,
            cache_megabytes: 64,
            reports: ReportsName::Both,
            reported: HotConfig::default().reported,
            sample_one_in: HotConfig::default().sample_one_in,
            burst_load_min: HotConfig::default().burst_load_min,
            rules_per_s: 100_000,
            rule_deletion_delay_ms: 1_000,
            durability: "always".into(),
            store_megabytes: 64,
            network: None,
            members: Vec::new(),
            former: Vec::new(),
        }
    }
}

/// How a key is hashed for routing: by all members alike. Who chooses keys with one hash shares a route with himself.
pub fn hash_of(key: &[u8]) -> KeyHash {
    KeyHash::of(key, HashSeed(0x6775_6972_6121))
}

/// The part of the keys in which a key is, for stores: its partition. They keep floors by it (`guira_row`): other parts need another format of those.
pub fn part_of(key: &[u8]) -> Part {
    Part(PartitionId::of(hash_of(key)).0)
}

impl StaticFile {
    /// Reads one that somebody has written: no backend is leaving, stands by, or has another's place.
    ///
    /// # Errors
    /// [`StaticFileError`].
    pub fn parse(text: &str) -> Result<Self, StaticFileError> {
        let file: Self = read_file(text)?;
        file.check()?;
        for member in &file.members {
            match member.role.as_backend() {
                Some(BackendRole { leaving: true, .. }) => return Err(StaticFileError::Leaves(member.id)),
                Some(BackendRole { standby_of, place, .. }) if standby_of.is_some() || place.is_some() => {
                    return Err(StaticFileError::StandbyInFile(member.id));
                }
                _ => {}
            }
        }
        Ok(file)
    }

    /// Reads one that was printed without its secret.
    ///
    /// # Errors
    /// [`StaticFileError`].
    pub fn parse_with_secret(text: &str, secret: String) -> Result<Self, StaticFileError> {
        let file = Self { secret, ..read_file(text)? };
        file.check()?;
        Ok(file)
    }

    /// Reads members alone: `[[member]]` tables, and nothing else.
    ///
    /// # Errors
    /// [`FileError::Syntax`].
    pub fn parse_members(text: &str) -> Result<Vec<Member>, StaticFileError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Members {
            #[serde(rename = "member")]
            members: Vec<Member>,
        }
        Ok(read_file(text).map(|Members { members }| members)?)
    }

    /// Whether it is a cluster.
    ///
    /// # Errors
    /// [`StaticFileError`].
    pub fn check(&self) -> Result<(), StaticFileError> {
        let Self { secret, lease_ms, answer_within_ms, item_len_max, .. } = self;
        let (lease_ms, answer_within_ms, item_len_max) = (*lease_ms, *answer_within_ms, *item_len_max);
        CommonSettings { secret, lease_ms, answer_within_ms, item_len_max }.check()?;
        check_bounds([
            (self.hedge_after_ms < RESEND_AFTER_MS, "hedge_after_ms: up to 19, for after 20 it is asked again anyway"),
            ((1..=10_000_000).contains(&self.items_max), "items_max: from 1 to 10000000"),
            ((1..=1 << 20).contains(&self.cache_megabytes), "cache_megabytes: from 1 to 1048576"),
            ((1..=10_000_000).contains(&self.rules_per_s), "rules_per_s: from 1 to 10000000"),
            (self.rule_deletion_delay_ms <= 60_000, "rule_deletion_delay_ms: up to 60000"),
            ((16..=1 << 20).contains(&self.store_megabytes), "store_megabytes: from 16 to 1048576"),
            ((1..=REPORTED_MAX).contains(&self.reported), "reported: from 1 to 40"),
            ((1..=1_000).contains(&self.sample_one_in), "sample_one_in: from 1 to 1000"),
            (self.burst_load_min >= 0.0, "burst_load_min: 0 or more"),
        ])?;
        let controllers = self.of(|role| matches!(role, Role::Controller)).len();
        if controllers != 1 {
            return Err(StaticFileError::Controllers(controllers));
        }
        if self.gateways().is_empty() {
            return Err(StaticFileError::Nobody("gateway"));
        }
        check_addresses(self.members.iter().map(|member| (member.id, member.address)))?;
        let has_places = |member: &Member| member.places().count() == usize::from(member.parts().get());
        let has_too_many = |member: &&Member| member.parts().get() > Member::CACHE_THREADS_MAX || !has_places(member);
        if let Some(member) = self.members.iter().find(has_too_many) {
            return Err(StaticFileError::Threads(member.id));
        }
        self.members()?;
        self.check_network().map_err(StaticFileError::Network)?;
        self.partitions()?;
        if self.staying().is_empty() {
            return Err(StaticFileError::AllLeave);
        }
        self.check_standbys()?;
        let caches = self.caches();
        for Member { id, role, .. } in &self.members {
            if let Some(cache) = role.as_backend().and_then(|backend| backend.cache)
                && !caches.is_node(NodeId(cache))
            {
                return Err(StaticFileError::NoCache { backend: *id, cache });
            }
        }
        Ok(())
    }

    fn of(&self, is_one: impl Fn(&Role) -> bool) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> =
            self.members.iter().filter(|member| is_one(&member.role)).map(|member| NodeId(member.id)).collect();
        nodes.sort_unstable();
        nodes
    }

    /// The backends, by number: without those that stand by.
    pub fn backends(&self) -> Vec<NodeId> {
        self.of(|role| role.as_backend().is_some_and(|backend| backend.standby_of.is_none()))
    }

    /// The backends that are not to give away what they have, by number.
    pub fn staying(&self) -> Vec<NodeId> {
        let stays = |backend: &BackendRole| backend.standby_of.is_none() && !backend.leaving;
        self.of(|role| role.as_backend().is_some_and(stays))
    }

    /// The gateways, by number.
    pub fn gateways(&self) -> Vec<NodeId> {
        self.of(|role| matches!(role, Role::Gateway { .. }))
    }

    /// The controller.
    pub fn controller(&self) -> NodeId {
        self.of(|role| matches!(role, Role::Controller)).first().copied().unwrap_or(NodeId(0))
    }

    /// The member of a number.
    pub fn member(&self, node: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == node.0)
    }

    /// Everybody's place.
    ///
    /// # Errors
    /// [`FileError::Members`].
    pub fn members(&self) -> Result<Members, StaticFileError> {
        self.members_in(EPOCH)
    }

    /// Everybody's place, in the view of that epoch.
    ///
    /// # Errors
    /// [`FileError::Members`].
    pub fn members_in(&self, epoch: Epoch) -> Result<Members, StaticFileError> {
        let members = Members::new(epoch, self.members.iter().flat_map(Member::places));
        members.map_err(|error| FileError::Members(error).into())
    }

    /// Who has which keys, where that never changes, or has not yet.
    ///
    /// # Errors
    /// [`StaticFileError::Partitions`].
    pub fn partitions(&self) -> Result<PartitionMap, StaticFileError> {
        self.dealt_out_to(&self.backends())
    }

    /// Who is to have which keys: those who stay.
    ///
    /// # Errors
    /// [`StaticFileError::Partitions`].
    pub fn wanted(&self) -> Result<PartitionMap, StaticFileError> {
        self.dealt_out_to(&self.staying())
    }

    /// Who has which keys, and is to have them, where that never changes.
    ///
    /// # Errors
    /// [`StaticFileError::Partitions`].
    pub fn shares(&self) -> Result<Shares, StaticFileError> {
        self.partitions().map(|map| Shares::fixed(map.into()))
    }

    /// What members know each other by.
    pub fn secret(&self) -> Secret {
        Secret::derive(&self.cluster, self.secret.as_bytes())
    }

    fn lease(&self) -> Span {
        Span::from_ms(self.lease_ms)
    }

    /// Bytes of values that a member may have under way, of each kind that it counts.
    pub fn values_len_max(&self) -> usize {
        clients_values_len_max(self.item_len_max)
    }

    fn budget(&self) -> RuleBudget {
        let deletion_delay = Span::from_ms(self.rule_deletion_delay_ms);
        // Gateways choose between two; a switch knows one.
        let choices = if self.network_routes() { RuleChoices::One } else { RuleChoices::Two };
        let empty = RuleBudget { updates_per_s: self.rules_per_s, table_len_max: 0, deletion_delay, choices };
        // Room for all that may be cached, and for what is yet to be deleted.
        let caches = self.caches();
        let items_max = |node| self.items_max_each(&caches, node).saturating_mul(caches.parts_of(node).count());
        let cached_max = caches.nodes().map(items_max).sum::<usize>().max(self.items_max);
        RuleBudget { table_len_max: empty.buffer_len().saturating_add(cached_max), ..empty }
    }

    fn hot(&self, seed: u64) -> HotConfig {
        let Self { reported, sample_one_in, burst_load_min, .. } = *self;
        let reports = self.reports.reports();
        HotConfig { reports, reported, sample_one_in, burst_load_min, seed, ..HotConfig::default() }
    }

    /// Who there is, for members that are running.
    pub fn view(&self, shares: Shares) -> View {
        View {
            caches: self.caches(),
            gateways: self.gateways(),
            backends: self.backends(),
            shares,
            cache_of: self.cache_of(),
            homes: self.homes(),
            budget: self.budget(),
            places: self.places().collect(),
            exchanges_per_s: self.exchanges_per_s(),
        }
    }

    /// What the controller is.
    pub fn controller_config(&self, life: Life) -> ControllerConfig {
        ControllerConfig {
            me: self.controller(),
            incarnation: life.incarnation,
            caches: self.caches(),
            gateways: self.gateways(),
            network_routes: self.network_routes(),
            budget: self.budget(),
            lease: self.lease(),
            homes: self.homes(),
            balance_load_min: self.burst_load_min,
        }
    }

    /// The cache nodes of backends, where these may change: a gateway that goes by them, and not by rules, would look for items in vain.
    fn homes(&self) -> BTreeMap<NodeId, NodeId> {
        let goes_by_homes = |role: &Role| {
            matches!(role, Role::Gateway { cache_mode: CacheMode::LookAside | CacheMode::LookThrough, .. })
        };
        if self.of(goes_by_homes).is_empty() { self.cache_of() } else { BTreeMap::new() }
    }

    /// What a backend is.
    pub fn backend_config(&self, me: NodeId, shares: &Shares, life: Life) -> BackendConfig {
        BackendConfig {
            me,
            incarnation: life.incarnation,
            shares: shares.clone(),
            giving: GivingConfig::default(),
            hash_of,
            caches: self.caches(),
            caches_change: false,
            gateways: self.gateways(),
            lease: self.lease(),
            drift: Drift::default(),
            clock: life.clock,
            item_len_max: self.item_len_max,
            operations_len_max: self.values_len_max(),
            link: LinkBounds::default(),
            hot: self.hot(life.seed),
            cleans_up: false,
            mutant: None,
        }
    }

    /// The cache nodes of backends that have one.
    fn cache_of(&self) -> BTreeMap<NodeId, NodeId> {
        let of = |member: &Member| {
            let backend = member.role.as_backend().filter(|backend| backend.standby_of.is_none())?;
            Some((NodeId(member.id), NodeId(backend.cache?)))
        };
        self.members.iter().filter_map(of).collect()
    }

    /// What a gateway is.
    pub fn gateway_config(&self, me: NodeId, shares: &Shares, life: Life) -> GatewayConfig {
        let cache_mode = match self.member(me).map(|member| &member.role) {
            Some(Role::Gateway { cache_mode, .. }) => *cache_mode,
            _ => CacheMode::default(),
        };
        GatewayConfig {
            me,
            incarnation: life.incarnation,
            shares: shares.clone(),
            hash_of,
            controller: self.controller(),
            routes_max: self.budget().table_len_max,
            cache_mode,
            network_routes: self.network_routes(),
            caches: self.caches(),
            cache_of: self.cache_of(),
            drift: Drift::default(),
            resend_after: Span::from_ms(RESEND_AFTER_MS),
            hedges: (self.hedge_after_ms > 0).then(|| HedgeConfig::after(Span::from_ms(self.hedge_after_ms))),
            answer_within: Span::from_ms(self.answer_within_ms),
            pending_max: PENDING_MAX,
            pending_len_max: values_len_max(64 << 20, 16, self.item_len_max),
            item_len_max: self.item_len_max,
            seed: life.seed,
            mutant: None,
        }
    }

    /// It as a file.
    ///
    /// # Errors
    /// [`FileError::Syntax`] if it cannot be written as one.
    pub fn print(&self) -> Result<String, StaticFileError> {
        toml::to_string(self).map_err(|error| FileError::Syntax(error.to_string()).into())
    }

    /// It as a file for others to read: without the secret.
    ///
    /// # Errors
    /// [`FileError::Syntax`] if it cannot be written as one.
    pub fn print_without_secret(&self) -> Result<String, StaticFileError> {
        Self { secret: String::new(), ..self.clone() }.print()
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
#[path = "static_file/static_file_tests.rs"]
mod tests;
