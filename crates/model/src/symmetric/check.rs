//! What is promised in every state of a model, and what it has to show.

use stateright::{Model, Property};

use crate::{
    Report,
    explore::{Search, explore},
    symmetric::{
        scenario::Scenario,
        world::{Act, World},
    },
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

/// Goes through all states of a model, with so many threads.
pub fn check(scenario: &Scenario, threads: usize) -> Report {
    let model = Checked { first: World::first(scenario), scenario: scenario.clone() };
    let search = Search {
        promises: &[SERVED, LINEARIZABLE, ENDS],
        shown: &[DONE, HAPPENED],
        ways_max: Some(scenario.ways_max),
        threads,
    };
    explore(model, &search, |steps| {
        let trace = steps.iter().filter_map(|(state, act)| {
            let act = act.as_ref()?;
            Some(match act {
                Act::Comes(at) => format!("comes {:?}", state.net.iter().nth(*at)),
                other => format!("{other:?}"),
            })
        });
        let last = steps.last().map(|(state, _)| format!("{:?} {:#?}", state.wrong, state.clients));
        trace.chain(last).collect()
    })
}
