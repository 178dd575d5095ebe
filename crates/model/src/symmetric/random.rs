//! Random ways through a cluster of five: no bounds as small as those of models, and no order left out on purpose.

use guira_consistency::Consistency;
use guira_history::{Event, Model, Violation, check};
use proptest::prelude::*;

use crate::symmetric::{
    orders::{
        Begun, Text, Told,
        Want::{Append, Delete, Get, Set, Swap},
        held,
    },
    scenario::{Begins, Client, Faults, Scenario},
    world::{Act, Logged, World},
};

/// Five nodes, of which some die, are cut off and come back, while two keys come and go: for random ways through it.
fn large(consistency: Consistency) -> Scenario {
    let wants = |client: usize, by: usize| {
        // Each once, and none that is there at first.
        let letter = (b'1' as usize + client * 14 + by) as u8;
        match (client + by) % 4 {
            0 => Get,
            1 => Set(letter),
            2 => Append(letter),
            _ => [Delete, Swap(letter), Get][by % 3],
        }
    };
    let client = |client: usize| Client {
        node: client % 5,
        wants: (0..14).map(|by| ((client + by / 3) % 2, wants(client, by))).collect(),
    };
    Scenario {
        name: "large",
        about: "random ways through much",
        consistency,
        nodes: 5,
        keys: 2,
        clients: (0..10).map(client).collect(),
        begins: Begins::Cold,
        hot_set: (6, 5),
        faults: Faults { crashes: 2, lapses: 1, views: 6, joins: 3, passes: u8::MAX },
        faulty_from: 0,
        asks_again: false,
        wanders: false,
        shards_die: false,
        settles_one_in: 1,
        logs: true,
        forgets_dead: true,
        ways_max: 0,
        mutant: None,
    }
}

/// A key, as clients see it.
struct Key;

/// What was done with it.
#[derive(PartialEq, Debug)]
struct Done {
    begun: Begun,
    told: Option<Told>,
}

impl Model for Key {
    type State = Text;
    type Act = Done;

    fn first(&self) -> Text {
        held(b"0")
    }

    fn step(&self, state: &Text, act: &Done) -> Option<Text> {
        let (after, told) = act.begun.apply(state);
        act.told.as_ref().is_none_or(|seen| *seen == told).then_some(after)
    }
}

/// What clients have done with a key.
fn history(world: &World, key: usize) -> Vec<Event<Done>> {
    let of_key = world.log.iter().filter(|logged| logged.key == key);
    // A read of which nobody was told what it saw says nothing.
    let is_silent = |logged: &Logged| {
        let is_unknown = !matches!(&logged.told, Some((_, told)) if *told != Told::Unknown);
        matches!(logged.told, Some((_, Told::Failed))) || (is_unknown && logged.begun.want.reads())
    };
    let happened = of_key.filter(|logged| !is_silent(logged));
    happened
        .map(|logged| {
            let told = logged.told.clone().filter(|(_, told)| *told != Told::Unknown);
            Event {
                invoked: 2 * logged.invoked,
                returned: told.as_ref().map(|(at, _)| 2 * at + 1),
                is_certain: told.is_some(),
                act: Done { begun: logged.begun.clone(), told: told.map(|(_, told)| told) },
            }
        })
        .collect()
}

/// Steps in which nearly all histories are decided.
const STEPS_MAX: u64 = 1_000_000;

/// Goes one way, and then to where everything ends.
fn go(scenario: &Scenario, choices: &[u16]) -> World {
    let mut world = World::first(scenario);
    let mut acts = Vec::new();
    for choice in choices {
        acts.clear();
        world.acts(scenario, &mut acts);
        let choice = usize::from(*choice);
        // What is rare is rarer still: there are few messages when it begins.
        let is_rare = |act: &Act| !matches!(act, Act::Comes(_) | Act::Passes(_) | Act::Asks(_) | Act::Hears(_));
        if choice % 7 != 0 {
            acts.retain(|act| !is_rare(act));
        }
        let Some(act) = acts.get((choice / 7) % acts.len().max(1)).cloned() else { continue };
        let come = if let Act::Comes(at) = act { world.net.iter().nth(at).cloned() } else { None };
        world = world.after(scenario, &act);
        if let Some(come) = come.filter(|_| choice % 5 != 0) {
            world.net.remove(&come);
        }
        if world.wrong.is_some() {
            break;
        }
    }
    world
}

fn is_right(scenario: &Scenario, choices: &[u16]) -> Result<(), TestCaseError> {
    let world = go(scenario, choices);
    prop_assert_eq!(world.wrong, None);
    prop_assert!(world.settles(scenario), "everything ends once faults stop");
    if scenario.consistency == Consistency::Lin {
        for key in 0..scenario.keys {
            match check(&Key, &history(&world, key), STEPS_MAX) {
                // It is not known whether it can have been so, which is no finding.
                Err(Violation::OutOfSteps) => return Err(TestCaseError::reject("too much was left unknown")),
                checked => prop_assert_eq!(checked, Ok(())),
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_way_is_linearizable_and_ends(choices in prop::collection::vec(any::<u16>(), 200..1500)) {
        is_right(&large(Consistency::Lin), &choices)?;
    }

    #[test]
    fn any_way_is_linearizable_where_shards_die(choices in prop::collection::vec(any::<u16>(), 200..1500)) {
        is_right(&Scenario { shards_die: true, ..large(Consistency::Lin) }, &choices)?;
    }

    #[test]
    fn sc_any_way_is_in_order_and_ends(choices in prop::collection::vec(any::<u16>(), 200..1500)) {
        is_right(&large(Consistency::Sc), &choices)?;
    }
}
