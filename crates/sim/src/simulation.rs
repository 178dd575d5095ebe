//! What all worlds have in common: rounds, at the end of which everything is healed and what clients saw is checked.

use std::fmt;

use guira_history::{Event, Violation, check};
use guira_item::Span;
use guira_routing::{HashSeed, KeyHash};

use crate::register::{Act, Register, State};

/// What can be simulated.
pub trait Simulation: Sync {
    /// What comes of it.
    type Report: Together;

    /// Runs it for so long of virtual time.
    ///
    /// # Errors
    /// [`Failure`].
    fn run(&self, seed: u64, duration: Span) -> Result<Self::Report, Failure>;
}

/// What comes of a run, and of several of them together.
pub trait Together: Copy + PartialEq + Default + Send {
    /// Adds another run's, behind this one.
    fn add(&mut self, other: &Self);

    /// A hash of everything that happened: the same for the same scenario and seed.
    fn trace(&self) -> u64;

    /// Events.
    fn events(&self) -> u64;
}

/// A world, in rounds.
pub(crate) trait Rounds {
    type Report;

    /// What there is of each key at first.
    fn first(&self) -> Vec<State>;

    /// Clients ask and things go wrong, for so long.
    fn run_for(&mut self, span: Span) -> Result<(), Failure>;

    /// Heals everything, and waits for what is under way: what there is of each key.
    fn settle(&mut self) -> Result<Vec<State>, Failure>;

    /// What was seen of each key since this was last asked.
    fn take_histories(&mut self) -> Vec<Vec<Event<Act>>>;

    /// What has come of it all.
    fn report(self) -> Self::Report;
}

/// A hash of what has happened so far, and then of `bytes`.
pub(crate) fn chained(trace: u64, bytes: &[u8]) -> u64 {
    KeyHash::of(bytes, HashSeed(trace)).0
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
pub fn run<S: Simulation>(scenario: &S, seed: u64, duration: Span) -> Result<S::Report, Failure> {
    scenario.run(seed, duration)
}

/// Runs a world that begins with nothing.
pub(crate) fn in_rounds<W: Rounds>(mut world: W, round: Span, duration: Span) -> Result<W::Report, Failure> {
    let mut first = world.first();
    for number in 0..duration.ns().div_ceil(round.ns()) {
        world.run_for(round)?;
        let last = world.settle()?;
        check_round(number, &first, world.take_histories())?;
        first = last;
    }
    Ok(world.report())
}

/// Whether what was seen of each key in a round can have happened, one after the other.
fn check_round(round: u64, first: &[State], histories: Vec<Vec<Event<Act>>>) -> Result<(), Failure> {
    for (key, history) in histories.into_iter().enumerate() {
        let register = Register { first: first[key] };
        check(&register, &history, STEPS_MAX).map_err(|_| {
            let (violation, excerpt) = shortest(&register, &history);
            Failure::History { key, round, violation, excerpt }
        })?;
    }
    Ok(())
}

/// The end of the shortest beginning of a history that is not linearizable, with what is wrong with it.
fn shortest(register: &Register, history: &[Event<Act>]) -> (Violation, String) {
    let times = history.iter().map(|event| event.returned.unwrap_or(event.invoked).max(event.invoked));
    let (mut least, mut most) = (0, times.max().unwrap_or(0));
    let wrong = |until| check(register, &beginning(history, until), STEPS_MAX).err();
    while least < most {
        let middle = least + (most - least) / 2;
        if wrong(middle).is_some() {
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    let violation = wrong(most).unwrap_or(Violation::OutOfSteps);
    let beginning = beginning(history, most);
    let from = beginning.len().saturating_sub(LINES);
    let lines: Vec<String> = beginning[from..].iter().map(line).collect();
    (violation, lines.join("\n"))
}

/// Events that are shown.
const LINES: usize = 24;

/// What has been seen by `until`.
fn beginning(history: &[Event<Act>], until: u64) -> Vec<Event<Act>> {
    let begun = history.iter().filter(|event| event.invoked <= until).cloned();
    begun
        .map(|event| match event.returned {
            Some(returned) if returned > until => Event { returned: None, is_certain: false, ..event },
            _ => event,
        })
        .collect()
}

fn line(event: &Event<Act>) -> String {
    let returned = event.returned.map_or_else(|| "...".to_owned(), |returned| returned.to_string());
    let doubt = if event.is_certain { "" } else { " perhaps" };
    format!("  {} to {returned}:{doubt} {:?}", event.invoked, event.act)
}
