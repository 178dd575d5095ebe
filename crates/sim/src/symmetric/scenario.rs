//! What is simulated.

use guira_item::Span;
use guira_symmetric::{FlowConfig, FlowMutant, HomecomingMutant, HotSetConfig, ShownMutant, ViewsMutant};

use super::{report::Report, world::World};
use crate::simulation::{Failure, Simulation, in_rounds};

/// A symmetric cluster, its clients, and what goes wrong.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Nodes.
    pub nodes: u16,
    /// Clients, dealt out to the nodes.
    pub clients: usize,
    /// Keys, some of which are asked for more often.
    pub keys: usize,
    /// Operations of all clients together, about.
    pub operations_per_s: u64,
    /// How hot keys are chosen.
    pub hot: HotSetConfig,
    /// How often they are.
    pub hot_epoch: Span,
    /// How long a lease is.
    pub lease: Span,
    /// How long the last nodes that have everything are waited for.
    pub last_copy_waits: Span,
    /// How long a node waits for an answer.
    pub answer_within: Span,
    /// How much a node may have under way to another: so little that it is waited for again and again.
    pub flow: FlowConfig,
    /// Something goes wrong about this often.
    pub fault_every: Span,
    /// How far a wall clock may be behind that was set anew. Nodes tell by their own clocks whether a hot item is over, so there is nothing they could do about it.
    pub wall_behind_max: Span,
    /// So many thousandths of all operations take everything away.
    pub flushes_per_mille: u32,
    /// A fault put in on purpose.
    pub mutant: Option<Mutant>,
    /// After so long everything is healed, all keys are read, and the histories are checked.
    pub round: Span,
}

/// A fault that has to be found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// In what keeps hot keys the same.
    HotKeys(guira_consistency::Mutant),
    /// In what gives out views and leases.
    Views(ViewsMutant),
    /// In what a node shows to its other threads.
    Shown(ShownMutant),
    /// In what keeps nodes from telling others too much.
    Flow(FlowMutant),
    /// In how shards come back to their nodes.
    Homecoming(HomecomingMutant),
}

impl Mutant {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_hot_keys = guira_consistency::Mutant::ALL.into_iter().map(Self::HotKeys);
        let of_views = ViewsMutant::ALL.into_iter().map(Self::Views);
        let of_shown = ShownMutant::ALL.into_iter().map(Self::Shown);
        let of_homecoming = HomecomingMutant::ALL.into_iter().map(Self::Homecoming);
        let of_flow = FlowMutant::ALL.into_iter().map(Self::Flow);
        of_hot_keys.chain(of_views).chain(of_shown).chain(of_flow).chain(of_homecoming)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::HotKeys(mutant) => mutant.name(),
            Self::Views(mutant) => mutant.name(),
            Self::Shown(mutant) => mutant.name(),
            Self::Flow(mutant) => mutant.name(),
            Self::Homecoming(mutant) => mutant.name(),
        }
    }

    /// The one of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|mutant| mutant.name() == name)
    }

    pub(super) fn of_hot_keys(self) -> Option<guira_consistency::Mutant> {
        if let Self::HotKeys(mutant) = self { Some(mutant) } else { None }
    }

    pub(super) fn of_shown(self) -> Option<ShownMutant> {
        if let Self::Shown(mutant) = self { Some(mutant) } else { None }
    }

    pub(super) fn of_homecoming(self) -> Option<HomecomingMutant> {
        if let Self::Homecoming(mutant) = self { Some(mutant) } else { None }
    }

    pub(super) fn of_views(self) -> Option<ViewsMutant> {
        if let Self::Views(mutant) = self { Some(mutant) } else { None }
    }

    pub(super) fn of_flow(self) -> Option<FlowMutant> {
        if let Self::Flow(mutant) = self { Some(mutant) } else { None }
    }
}

impl Default for Scenario {
    /// Five nodes under a hundred operations a second, with a fault every ten seconds.
    fn default() -> Self {
        Self {
            nodes: 5,
            clients: 10,
            keys: 20,
            operations_per_s: 100,
            hot: HotSetConfig { len_max: 6, changes_max: 2, margin: 1.25 },
            hot_epoch: Span::from_s(3),
            lease: Span::from_s(1),
            last_copy_waits: Span::from_s(8),
            answer_within: Span::from_s(3),
            flow: FlowConfig { requests: 1, requests_wait: 32, messages: 3, messages_wait: 16, mutant: None },
            fault_every: Span::from_s(10),
            wall_behind_max: Span::default(),
            flushes_per_mille: 2,
            mutant: None,
            round: Span::from_s(300),
        }
    }
}

/// Scenarios by name.
pub const SCENARIOS: [&str; 6] =
    ["symmetric", "symmetric-stormy", "symmetric-hot", "symmetric-cold", "symmetric-short", "symmetric-homes"];

impl Scenario {
    /// The one of a name.
    pub fn named(name: &str) -> Option<Self> {
        let usual = Self::default();
        match name {
            "symmetric" => Some(usual),
            // A fault every two seconds, most of them while others last.
            "symmetric-stormy" => Some(Self { fault_every: Span::from_s(2), ..usual }),
            // Few keys, all of which come and go: chance makes others the hottest every other second.
            "symmetric-hot" => {
                let hot = HotSetConfig { len_max: 4, changes_max: 2, margin: 1.0 };
                Some(Self { keys: 6, hot, hot_epoch: Span::from_s(2), ..usual })
            }
            // No hot keys.
            "symmetric-cold" => Some(Self { hot: HotSetConfig { len_max: 0, changes_max: 0, margin: 1.25 }, ..usual }),
            // Many clients at few keys, and short leases.
            "symmetric-short" => Some(Self {
                lease: Span::from_ms(300),
                last_copy_waits: Span::from_s(3),
                keys: 8,
                clients: 20,
                operations_per_s: 300,
                ..usual
            }),
            // Many clients at many keys, few of which are hot, and not for long: copies of shards take long, and much changes meanwhile.
            "symmetric-homes" => Some(Self {
                hot: HotSetConfig { len_max: 8, changes_max: 4, margin: 1.0 },
                hot_epoch: Span::from_ms(200),
                keys: 60,
                clients: 30,
                operations_per_s: 600,
                fault_every: Span::from_s(4),
                flushes_per_mille: 1,
                ..usual
            }),
            _ => None,
        }
    }
}

impl Simulation for Scenario {
    type Report = Report;

    fn run(&self, seed: u64, duration: Span) -> Result<Report, Failure> {
        in_rounds(World::new(self.clone(), seed)?, self.round, duration)
    }
}
