//! What one key of a cluster may go through: its versions rise, whatever happens to it and to its backend. So what was told of a version tells where it
//! belongs, and an order is found in histories with much of which nobody knows whether it took place.
//!
//! Always true: an item whose version is known has the highest there was.

use guira_history::Model;

use crate::book::{Act, Held, Item};

/// The model.
pub struct Rising;

/// What is there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    held: Held,
    /// The highest version that anybody was told.
    highest: u64,
}

/// The version that an act was told, and whether it has read it.
fn told(act: &Act) -> Option<(u64, bool)> {
    match *act {
        Act::Set(_, version) => version.map(|version| (version, false)),
        Act::Cas(_, _, Some(Ok(version))) => Some((version, false)),
        Act::Get(seen) => seen.map(|(_, version)| (version, true)),
        Act::Cas(..) | Act::Delete(_) => None,
    }
}

impl Model for Rising {
    type State = State;
    type Act = Act;

    fn first(&self) -> State {
        State { held: Item.first(), highest: 0 }
    }

    fn step(&self, state: &State, act: &Act) -> Option<State> {
        let held = Item.step(&state.held, act)?;
        let Some((version, is_read)) = told(act) else { return Some(State { held, ..*state }) };
        let is_known = is_read && state.held.is_some_and(|(_, version)| version.is_some());
        (is_known || version > state.highest).then_some(State { held, highest: version })
    }

    fn rank(&self, act: &Act) -> Option<u64> {
        told(act).map(|(version, is_read)| 2 * version + u64::from(is_read))
    }

    fn floor(&self, state: &State) -> u64 {
        match state.held {
            Some((_, Some(version))) => 2 * version + 1,
            Some((_, None)) | None => 2 * (state.highest + 1),
        }
    }
}

#[test]
fn an_older_version_is_not_told_again() {
    let is_possible =
        |acts: &[Act]| acts.iter().try_fold(Rising.first(), |state, act| Rising.step(&state, act)).is_some();
    let (set, get) =
        (|value, version| Act::Set(value, Some(version)), |value, version| Act::Get(Some((value, version))));
    assert!(is_possible(&[set(1, 1), get(1, 1), get(1, 1), set(2, 2), get(2, 2)]));
    assert!(is_possible(&[
        set(1, 1),
        Act::Set(2, None),
        get(2, 5),
        Act::Delete(Some(true)),
        Act::Get(None),
        set(3, 6)
    ]));
    assert!(!is_possible(&[set(1, 1), set(2, 2), get(1, 1)]));
    assert!(!is_possible(&[set(1, 2), Act::Delete(Some(true)), set(2, 1)]));
    assert!(!is_possible(&[set(1, 5), Act::Set(2, None), get(2, 4)]));
    assert!(!is_possible(&[set(1, 5), Act::Cas(2, 5, Some(Ok(4)))]));
}
