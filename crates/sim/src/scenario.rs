//! What is simulated, and what comes of it.

use std::fmt;

use guira_history::{Violation, check};
use guira_item::Span;
use guira_switched::Mutant;

use crate::{
    register::{Register, State},
    world::World,
};

/// A cluster, its clients, and what goes wrong.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Backends.
    pub backends: u16,
    /// Cache nodes; each has its share of the backends.
    pub caches: u16,
    /// Gateways.
    pub gateways: u16,
    /// Clients, dealt out to the gateways.
    pub clients: usize,
    /// Keys, some of which are asked for more often.
    pub keys: usize,
    /// Operations of all clients together, about.
    pub operations_per_s: u64,
    /// Items that a cache node may have.
    pub items_max: usize,
    /// How long a lease is.
    pub lease: Span,
    /// Something goes wrong about this often.
    pub fault_every: Span,
    /// All keys have one of a few hashes.
    pub hashes_collide: bool,
    /// A thousandth of all operations takes everything away.
    pub flushes: bool,
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
            gateways: 2,
            clients: 8,
            keys: 20,
            operations_per_s: 100,
            items_max: 6,
            lease: Span::from_s(1),
            fault_every: Span::from_s(10),
            hashes_collide: false,
            flushes: true,
            mutant: None,
            round: Span::from_s(300),
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
    /// Changes that waited for a lease to run out.
    pub lease_waits: u64,
    /// Faults.
    pub faults: u64,
}

/// Why a run is not as it should be. The same scenario and seed show it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A key's history is not linearizable.
    History {
        /// The key's number.
        key: usize,
        /// From the beginning of the run.
        round: u64,
        /// What was found.
        violation: Violation,
        /// What was seen about there.
        excerpt: String,
    },
    /// An answer that cannot be one.
    Answer(String),
    /// Everything was healed, and still nothing went on.
    Stuck(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::History { key, round, violation, excerpt } => {
                write!(f, "key {key}, round {round}: {violation:?}\n{excerpt}")
            }
            Self::Answer(told) => f.write_str(told),
            Self::Stuck(told) => write!(f, "nothing goes on: {told}"),
        }
    }
}

impl std::error::Error for Failure {}

/// Steps that the checker may take for one key and round: a history of a thousand events takes some thousands, unless it is bad.
const STEPS_MAX: u64 = 5_000_000;

/// Runs a scenario for so long of virtual time.
///
/// # Errors
/// [`Failure`].
pub fn run(scenario: &Scenario, seed: u64, duration: Span) -> Result<Report, Failure> {
    let mut world = World::new(scenario.clone(), seed);
    let mut first = vec![State::default(); scenario.keys];
    let rounds = duration.ns().div_ceil(scenario.round.ns());
    for round in 0..rounds {
        world.run_for(scenario.round)?;
        let last = world.settle()?;
        for (key, history) in world.take_histories().into_iter().enumerate() {
            let register = Register { first: first[key] };
            check(&register, &history, STEPS_MAX).map_err(|violation| {
                let at = if let Violation::Impossible { at, .. } = violation { at } else { 0 };
                let from = at.saturating_sub(12);
                let lines: Vec<String> = history.iter().enumerate().skip(from).take(24).map(line).collect();
                Failure::History { key, round, violation, excerpt: lines.join("\n") }
            })?;
        }
        first = last;
    }
    Ok(world.report())
}

fn line((at, event): (usize, &guira_history::Event<crate::Act>)) -> String {
    let returned = event.returned.map_or_else(|| "never".to_owned(), |returned| returned.to_string());
    format!("  {at}: {} to {returned}: {:?}", event.invoked, event.act)
}
