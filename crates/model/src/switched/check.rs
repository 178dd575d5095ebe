//! What is promised in every state of a model, and what it has to show.

use stateright::{Model, Property};

use crate::{
    Report,
    explore::{Search, explore},
    switched::{
        act::Act,
        scenario::{Begins, Scenario},
        world::World,
    },
};

const LINEARIZABLE: &str = "every answer is linearizable for its key";
const STANDS: &str = "no core finds itself where it cannot be";
const ENDS: &str = "everything is answered, has come, and has moved where it is to be, once faults stop";
const HITS: &str = "a cache node answers";
const HEDGED: &str = "a read is hedged";
const MOVED: &str = "what is to move has moved as often as it may";
const DONE: &str = "all clients are done";

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
        Some(last.after(&self.scenario, act))
    }

    fn within_boundary(&self, state: &World) -> bool {
        state.is_within(&self.scenario)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            // With a fault put in it is looked for what clients are told of it.
            Property::always(STANDS, |model: &Self, state: &World| {
                !state.has_failed || model.scenario.mutant.is_some()
            }),
            Property::always(LINEARIZABLE, |_, state: &World| state.are_possible()),
            Property::always(ENDS, |model: &Self, state: &World| {
                !state.print().is_multiple_of(model.scenario.settles_one_in) || state.settles_after(&model.scenario)
            }),
            Property::sometimes(HITS, |model: &Self, state: &World| state.hits() > model.first.hits()),
            Property::sometimes(HEDGED, |model: &Self, state: &World| state.hedged() > model.first.hedged()),
            Property::sometimes(MOVED, |model: &Self, state: &World| state.moved() == u64::from(model.scenario.moves)),
            Property::sometimes(DONE, |model: &Self, state: &World| state.all_are_done(&model.scenario)),
        ]
    }
}

/// Goes through all states of a model, with so many threads.
pub fn check(scenario: &Scenario, threads: usize) -> Report {
    let model = Checked { first: World::first(scenario), scenario: scenario.clone() };
    // What is not cached at first need not be so later.
    let hits = (scenario.begins != Begins::Empty && scenario.caches > 0).then_some(HITS);
    let hedged = scenario.hedges.then_some(HEDGED);
    let shown: Vec<&str> = [MOVED, DONE].into_iter().chain(hits).chain(hedged).collect();
    let search = Search { promises: &[STANDS, LINEARIZABLE, ENDS], shown: &shown, ways_max: None, threads };
    explore(model, &search, |steps| {
        let mut trace: Vec<String> = Vec::new();
        for (state, act) in &steps {
            if let (Some(line), true) = (trace.last_mut(), !state.told.is_empty()) {
                *line += &format!(" -- {state}");
            }
            trace.extend(act.map(|act| state.tell(scenario, act)));
        }
        trace
    })
}

#[cfg(test)]
mod tests {
    use stateright::Checker;

    use super::*;
    use crate::{Bounds, switched::models};

    /// If two states that are taken for one could go different ways, how many there are would depend on which of them was come to first: that was so
    /// when it was left out of a gateway's number which of its requests is due first.
    #[test]
    fn a_model_has_as_many_states_whichever_way_it_is_gone_through() {
        let is_large =
            |model: &Scenario| ["drops", "moved-copies", "move-deaths", "returns", "late-copies"].contains(&model.name);
        for scenario in models(Bounds::Small).into_iter().filter(|model| !is_large(model)) {
            let scenario = Scenario { settles_one_in: u64::MAX, ..scenario };
            let checked = || Checked { first: World::first(&scenario), scenario: scenario.clone() };
            let breadth_first = checked().checker().spawn_bfs().join().unique_state_count();
            let depth_first = checked().checker().spawn_dfs().join().unique_state_count();
            assert_eq!(breadth_first, depth_first, "{}", scenario.name);
        }
    }
}
