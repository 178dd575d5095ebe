//! What is simulated, and what comes of it.

use std::num::NonZero;

use guira_cluster::LinkBounds;
use guira_item::Span;
use guira_switched::{CacheMode, Mutant};

use crate::{
    simulation::{Failure, Simulation, Together, chained, in_rounds},
    switch::SwitchBounds,
    world::World,
};

/// A cluster, its clients, and what goes wrong.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Backends.
    pub backends: u16,
    /// Cache nodes; each has its share of the backends.
    pub caches: u16,
    /// Parts of each.
    pub cache_threads: NonZero<u16>,
    /// Cache nodes' loads are made even: some have keys of others, and backends change theirs.
    pub balances: bool,
    /// Gateways.
    pub gateways: u16,
    /// Who the gateways ask first, each the next of these, from the beginning again.
    pub cache_modes: &'static [CacheMode],
    /// What routes for each, or for all.
    pub switch: SwitchBounds,
    /// The network routes, and not each gateway: now and then some other way than it was told.
    pub network_routes: bool,
    /// Reads that a cache node has not answered for so long are hedged.
    pub hedge_after: Option<Span>,
    /// Clients, dealt out to the gateways.
    pub clients: usize,
    /// Keys, some of which are asked for more often.
    pub keys: usize,
    /// Operations of all clients together, about.
    pub operations_per_s: u64,
    /// Items that a cache node may have: all of its parts together.
    pub items_max: usize,
    /// Bytes of the values of every other key; with 0 all are short.
    pub value_len: usize,
    /// Bytes of values that may be in one place: under way, on a link, cached.
    pub values_len_max: usize,
    /// As long as a disk takes for a call.
    pub disk_takes_max: Span,
    /// So many thousandths of what disks are asked fail, whatever else goes wrong.
    pub disk_fails_per_mille: u32,
    /// Half of what goes wrong is that a disk does nothing for up to so long, if it ever does.
    pub disk_stalls_max: Span,
    /// How long a lease is.
    pub lease: Span,
    /// Something goes wrong about this often.
    pub fault_every: Span,
    /// A cache node or a gateway comes or goes about this often.
    pub members_change_every: Option<Span>,
    /// So does a backend.
    pub backends_change: bool,
    /// Each life of a backend removes what earlier ones have left of others' keys.
    pub cleans_up: bool,
    /// In the end nobody has anything of others' keys.
    pub ends_clean: bool,
    /// Backends that stand by at first. What has gone wrong with one that has keys is, some of the time, that another one takes over what it has: then it is
    /// one that stands by, if it is there.
    pub standbys: u16,
    /// All keys have one of a few hashes.
    pub hashes_collide: bool,
    /// So many thousandths of all operations take everything away.
    pub flushes_per_mille: u32,
    /// A fault put in on purpose.
    pub mutant: Option<Mutant>,
    /// After so long everything is healed, all keys are read, and the histories are checked.
    pub round: Span,
}

impl Default for Scenario {
    /// Eight nodes under a hundred operations a second, with a fault every ten seconds.
    fn default() -> Self {
        Self {
            backends: 3,
            caches: 2,
            cache_threads: NonZero::<u16>::MIN,
            balances: true,
            gateways: 2,
            cache_modes: &[CacheMode::Switched],
            switch: SwitchBounds::NONE,
            network_routes: false,
            hedge_after: None,
            clients: 8,
            keys: 20,
            operations_per_s: 100,
            items_max: 6,
            value_len: 0,
            values_len_max: 1 << 20,
            disk_takes_max: Span::from_ms(2),
            disk_fails_per_mille: 0,
            disk_stalls_max: Span::default(),
            lease: Span::from_s(1),
            fault_every: Span::from_s(10),
            members_change_every: None,
            backends_change: false,
            cleans_up: false,
            ends_clean: false,
            standbys: 0,
            hashes_collide: false,
            flushes_per_mille: 1,
            mutant: None,
            round: Span::from_s(300),
        }
    }
}

/// Scenarios by name.
pub const SCENARIOS: [&str; 19] = [
    "usual",
    "stormy",
    "busy",
    "patient",
    "colliding",
    "aside",
    "large",
    "moving",
    "moving-aside",
    "slow-switch",
    "routed",
    "threads",
    "giving",
    "giving-clean",
    "giving-busy",
    "replacing",
    "replacing-giving",
    "doubtful",
    "stalling",
];

impl Scenario {
    /// The one of a name.
    pub fn named(name: &str) -> Option<Self> {
        let usual = Self::default();
        match name {
            "usual" => Some(usual),
            // A fault every two seconds, most of them while others last.
            "stormy" => Some(Self { fault_every: Span::from_s(2), ..usual }),
            // Many clients at few keys, and short leases.
            "busy" => Some(Self { lease: Span::from_ms(300), keys: 6, clients: 16, operations_per_s: 300, ..usual }),
            // Long leases, slow disks.
            "patient" => Some(Self { lease: Span::from_s(4), disk_takes_max: Span::from_ms(200), ..usual }),
            // Few hashes for all keys.
            "colliding" => Some(Self { hashes_collide: true, ..usual }),
            // Gateways that ask the cache first, whether a rule says so or not.
            "aside" => {
                let cache_modes = &[CacheMode::LookAside, CacheMode::LookThrough];
                Some(Self { cache_modes, balances: false, ..usual })
            }
            // Cache nodes and gateways come and go, faults or not.
            "moving-aside" => {
                let cache_threads = NonZero::new(2)?;
                Some(Self { members_change_every: Some(Span::from_s(6)), cache_threads, ..Self::named("aside")? })
            }
            // Routed by switches that take longer for a rule than the controller believes, and have room for less; and reads are hedged.
            "slow-switch" => {
                let switch = SwitchBounds { updates_per_s: 4.0, rules_max: 6 };
                Some(Self { switch, hedge_after: Some(Span::from_ms(1)), ..Self::named("moving")? })
            }
            // Routed by one such switch for all gateways, which know no rules.
            "routed" => {
                let cache_threads = NonZero::new(2)?;
                Some(Self { network_routes: true, cache_threads, items_max: 9, ..Self::named("slow-switch")? })
            }
            // Cache nodes of several parts each, that come and go.
            "threads" => Some(Self { cache_threads: NonZero::new(3)?, items_max: 9, ..Self::named("moving")? }),
            // Backends come and go, too, and partitions with them.
            "giving" => Some(Self {
                backends_change: true,
                members_change_every: Some(Span::from_s(12)),
                flushes_per_mille: 10,
                ..usual
            }),
            // The same, and what is left is removed by who begins anew, as they often do.
            "giving-clean" => {
                Some(Self { cleans_up: true, ends_clean: true, fault_every: Span::from_s(4), ..Self::named("giving")? })
            }
            // The same, with many clients at few keys, short leases, and several cache nodes that have a key.
            "giving-busy" => Some(Self { caches: 3, ..Self::named("busy")? }.with_changes_of("giving")?),
            // Backends are dead, or only cut off or asleep, and others have what they had.
            "replacing" => Some(Self {
                standbys: 2,
                members_change_every: Some(Span::from_s(12)),
                fault_every: Span::from_s(6),
                ..usual
            }),
            // The same, while partitions move.
            "replacing-giving" => Some(Self {
                standbys: 2,
                caches: 3,
                lease: Span::from_ms(300),
                cleans_up: true,
                ..Self::named("giving")?
            }),
            // The same, before stores that lose a part of what they are asked all the time, and may do it long after.
            "doubtful" => Some(Self {
                disk_fails_per_mille: 50,
                keys: 60,
                fault_every: Span::from_s(3),
                members_change_every: Some(Span::from_s(5)),
                flushes_per_mille: 0,
                ..Self::named("replacing-giving")?
            }),
            // Partitions move and all is taken away, while disks do nothing for longer than leases are, and than a giver waits for its taker.
            "stalling" => {
                Some(Self { disk_stalls_max: Span::from_s(7), fault_every: Span::from_s(4), ..Self::named("giving")? })
            }
            "moving" => Some(Self { caches: 3, members_change_every: Some(Span::from_s(6)), ..usual }),
            // Two large values are as many as fit anywhere.
            "large" => {
                let disk_takes_max = Span::from_ms(20);
                Some(Self { value_len: 1_000, values_len_max: 2_500, clients: 16, disk_takes_max, ..usual })
            }
            _ => None,
        }
    }

    /// With changes of members as in another one.
    fn with_changes_of(self, name: &str) -> Option<Self> {
        let Self { backends_change, members_change_every, flushes_per_mille, .. } = Self::named(name)?;
        Some(Self { backends_change, members_change_every, flushes_per_mille, ..self })
    }

    /// What may be on its way from a backend to its cache node.
    pub(crate) fn link(&self) -> LinkBounds {
        match self.value_len {
            0 => LinkBounds::default(),
            len => LinkBounds { bytes_max: self.values_len_max, alone_above: len / 2 },
        }
    }
}

/// What came of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// A hash of everything that happened: the same for the same scenario and seed.
    pub trace: u64,
    /// Events.
    pub events: u64,
    /// Operations.
    pub operations: u64,
    /// That were answered.
    pub answered: u64,
    /// That failed, for certain.
    pub failed: u64,
    /// Of which nobody knows.
    pub unknown: u64,
    /// Reads that cache nodes answered.
    pub cache_hits: u64,
    /// Items that cache nodes were told of anew.
    pub cache_updates: u64,
    /// Reads that the network has routed to a cache node.
    pub routed: u64,
    /// Updates of rules that had to wait at a switch.
    pub rules_waited: u64,
    /// Of these, that took the place of an earlier one of the same hash.
    pub rules_replaced: u64,
    /// Rules that a switch had no room for.
    pub rules_refused: u64,
    /// Changes that waited for a lease to run out.
    pub lease_waits: u64,
    /// Changes in two phases, of keys that several cache nodes had.
    pub two_phased: u64,
    /// Times that a cache node was told to be in charge of other backends than it was.
    pub charges: u64,
    /// Times that a cache node or a gateway came or went.
    pub members_changed: u64,
    /// Times that a backend gave partitions away.
    pub given: u64,
    /// Times that a backend took over what another had.
    pub taken_over: u64,
    /// Requests that were asked of another backend than at first.
    pub moved: u64,
    /// Reads that were hedged.
    pub hedged: u64,
    /// Requests that were refused, since their backend was known to be away.
    pub away: u64,
    /// Writes that came to a database long after they were lost sight of.
    pub came_late: u64,
    /// Reads that were news to who has the database.
    pub news: u64,
    /// Times that what was to be gone some time was, or was no more to be.
    pub came_due: u64,
    /// Times that a store had its state only after more than a lease: that all is taken away, mostly.
    pub late_states: u64,
    /// Faults.
    pub faults: u64,
}

impl Together for Report {
    fn add(&mut self, other: &Self) {
        self.trace = chained(self.trace, &other.trace.to_le_bytes());
        for (mine, theirs) in [
            (&mut self.events, other.events),
            (&mut self.operations, other.operations),
            (&mut self.answered, other.answered),
            (&mut self.failed, other.failed),
            (&mut self.unknown, other.unknown),
            (&mut self.cache_hits, other.cache_hits),
            (&mut self.cache_updates, other.cache_updates),
            (&mut self.routed, other.routed),
            (&mut self.rules_waited, other.rules_waited),
            (&mut self.rules_replaced, other.rules_replaced),
            (&mut self.rules_refused, other.rules_refused),
            (&mut self.lease_waits, other.lease_waits),
            (&mut self.two_phased, other.two_phased),
            (&mut self.charges, other.charges),
            (&mut self.members_changed, other.members_changed),
            (&mut self.given, other.given),
            (&mut self.taken_over, other.taken_over),
            (&mut self.moved, other.moved),
            (&mut self.hedged, other.hedged),
            (&mut self.away, other.away),
            (&mut self.came_late, other.came_late),
            (&mut self.news, other.news),
            (&mut self.came_due, other.came_due),
            (&mut self.late_states, other.late_states),
            (&mut self.faults, other.faults),
        ] {
            *mine += theirs;
        }
    }

    fn trace(&self) -> u64 {
        self.trace
    }

    fn events(&self) -> u64 {
        self.events
    }
}

impl Simulation for Scenario {
    type Report = Report;

    fn run(&self, seed: u64, duration: Span) -> Result<Report, Failure> {
        in_rounds(World::new(self.clone(), seed), self.round, duration)
    }
}
