//! Goes through all states of a model, and tells what was found.

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::{
    scenario::Scenario,
    world::{Act, World},
};

const SERVED: &str = "what is served is one, and never gets older";
const LINEARIZABLE: &str = "every answer is linearizable for its key";
const ENDS: &str = "everything ends once faults stop";
const DONE: &str = "all clients are done";
const HAPPENED: &str = "everything has happened that may";

struct Checked {
    scenario: Scenario,
    first: World,
}

impl Model for Checked {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        vec![self.first.clone()]
    }

    fn actions(&self, state: &World, acts: &mut Vec<Act>) {
        state.acts(&self.scenario, acts);
    }

    fn next_state(&self, last: &World, act: Act) -> Option<World> {
        Some(last.after(&self.scenario, &act))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SERVED, |_, state: &World| state.wrong.is_none()),
            Property::always(LINEARIZABLE, |model: &Self, state: &World| state.are_possible(&model.scenario)),
            Property::always(ENDS, |model: &Self, state: &World| {
                !state.print().is_multiple_of(model.scenario.settles_one_in) || state.settles(&model.scenario)
            }),
            Property::sometimes(DONE, |model: &Self, state: &World| {
                let wants = model.scenario.clients.iter().map(|client| client.wants.len());
                state.clients.iter().map(|client| client.next).eq(wants)
            }),
            Property::sometimes(HAPPENED, |model: &Self, state: &World| {
                let Scenario { faults, hot_set, .. } = &model.scenario;
                let all =
                    [faults.crashes, faults.lapses, faults.views, faults.joins, hot_set.0, hot_set.1, faults.passes];
                state.counts == all
            }),
        ]
    }
}

/// What came of going through a model.
#[derive(Debug)]
pub struct Report {
    pub states: usize,
    pub come_to: usize,
    pub depth: usize,
    pub elapsed: Duration,
    /// All states were gone through.
    pub is_exhausted: bool,
    /// What is not as it should be, and the acts that lead there.
    pub found: Option<(&'static str, Vec<String>)>,
    /// What never came about though it should: then a model that shows nothing wrong shows nothing.
    pub missing: Vec<&'static str>,
}

/// Goes through all states of a model, with so many threads; stops at the first that should not be.
pub fn check(scenario: &Scenario, threads: usize) -> Report {
    let started = Instant::now();
    let model = Checked { first: World::first(scenario), scenario: scenario.clone() };
    let checker = model
        .checker()
        .threads(threads)
        .target_state_count(scenario.states_max)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let mut discoveries = checker.discoveries();
    let failed =
        [SERVED, LINEARIZABLE, ENDS].into_iter().find_map(|promise| Some((promise, discoveries.remove(promise)?)));
    let found = failed.map(|(promise, path)| {
        let steps = path.into_vec();
        let trace = steps.iter().filter_map(|(state, act)| {
            let act = act.as_ref()?;
            Some(match act {
                Act::Comes(at) => format!("comes {:?}", state.net.iter().nth(*at)),
                other => format!("{other:?}"),
            })
        });
        let last = steps.last().map(|(state, _)| format!("{:?} {:#?}", state.wrong, state.clients));
        (promise, trace.chain(last).collect())
    });
    let missing = [DONE, HAPPENED].into_iter().filter(|name| !discoveries.contains_key(name)).collect();
    Report {
        states: checker.unique_state_count(),
        come_to: checker.state_count(),
        depth: checker.max_depth(),
        elapsed: started.elapsed(),
        is_exhausted: checker.state_count() < scenario.states_max,
        found,
        missing,
    }
}
