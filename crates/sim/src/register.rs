//! What can happen to the item of one key, for the checker of histories.
//!
//! Always true: versions of one key grow, over deletes and restarts too; an item that ends may be gone at any moment, and once it was seen to be
//! gone it does not come back.

use guira_history::Model;

/// What is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct State {
    /// Its value and its version, if that was told.
    pub item: Option<(u64, Option<u64>)>,
    /// It ends some time.
    pub is_mortal: bool,
    /// No version has been above this one.
    pub highest: u64,
}

/// What was seen of an item.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seen {
    /// Its value.
    pub value: u64,
    /// Its version.
    pub version: u64,
}

/// What somebody did, and was told; what they were not told is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Read, and saw this, or that there is nothing.
    Get(Option<Seen>),
    /// Stored a value, under this version, whatever was there.
    Set {
        /// The value.
        value: u64,
        /// It ends some time.
        is_mortal: bool,
        /// Its version.
        version: Option<u64>,
    },
    /// Stored a value if there was nothing: there was (`Some(None)`), or there was not, and this is its version.
    Add {
        /// The value.
        value: u64,
        /// What was told.
        told: Option<Option<u64>>,
    },
    /// Stored a value if the version was this one.
    Cas {
        /// The version it had seen.
        expected: u64,
        /// The value.
        value: u64,
        /// What was told.
        told: Option<Compared>,
    },
    /// Added one: the sum, or there was nothing.
    Increment(Option<Option<Seen>>),
    /// Removed: there was something, or nothing.
    Delete(Option<bool>),
    /// Everything is gone.
    Flush,
}

/// What came of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compared {
    /// Stored under this version.
    Stored(u64),
    /// There is another version.
    Exists,
    /// There is nothing.
    NotFound,
}

/// The item of one key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Register {
    /// What is there at first.
    pub first: State,
}

impl State {
    fn stored(self, value: u64, version: Option<u64>, is_mortal: bool) -> Option<Self> {
        let highest = version.unwrap_or(self.highest);
        (version.is_none() || highest > self.highest).then_some(Self {
            item: Some((value, version)),
            is_mortal,
            highest,
        })
    }

    fn gone(self) -> Self {
        Self { item: None, is_mortal: false, highest: self.highest }
    }

    /// That there is nothing can be seen now.
    fn is_gone(self) -> Option<Self> {
        (self.item.is_none() || self.is_mortal).then(|| self.gone())
    }
}

impl Model for Register {
    type State = State;
    type Act = Act;

    fn first(&self) -> State {
        self.first
    }

    fn step(&self, state: &State, act: &Act) -> Option<State> {
        let state = *state;
        match *act {
            Act::Get(None) => state.is_gone(),
            Act::Get(Some(seen)) => {
                let (value, version) = state.item?;
                let highest = state.highest.max(seen.version);
                let fits = value == seen.value
                    && version.map_or(seen.version > state.highest, |version| version == seen.version);
                fits.then_some(State { item: Some((value, Some(seen.version))), highest, ..state })
            }
            Act::Set { value, is_mortal, version } => state.stored(value, version, is_mortal),
            // One of which nothing is known may also not have happened: here it has.
            Act::Add { value, told: None } => state.is_gone()?.stored(value, None, false),
            Act::Add { told: Some(None), .. } => state.item.map(|_| state),
            Act::Add { value, told: Some(version) } => state.is_gone()?.stored(value, version, false),
            Act::Cas { expected, value, told } => match told {
                Some(Compared::NotFound) => state.is_gone(),
                Some(Compared::Exists) => state.item.filter(|(_, version)| *version != Some(expected)).map(|_| state),
                Some(Compared::Stored(version)) => {
                    state.item.filter(|(_, version)| version.is_none_or(|version| version == expected))?;
                    state.stored(value, Some(version), false)
                }
                None => {
                    state.item.filter(|(_, version)| version.is_none_or(|version| version == expected))?;
                    state.stored(value, None, false)
                }
            },
            Act::Increment(told) => match told {
                Some(None) => state.is_gone(),
                Some(Some(seen)) => {
                    let (value, _) = state.item.filter(|(value, _)| value + 1 == seen.value)?;
                    state.stored(value + 1, Some(seen.version), state.is_mortal)
                }
                None => {
                    let (value, _) = state.item?;
                    state.stored(value + 1, None, state.is_mortal)
                }
            },
            Act::Delete(Some(false)) => state.is_gone(),
            Act::Delete(Some(true)) => state.item.map(|_| state.gone()),
            Act::Delete(None) | Act::Flush => Some(state.gone()),
        }
    }

    fn floor(&self, state: &State) -> u64 {
        match state.item {
            Some((_, Some(version))) => 2 * version + 1,
            // What comes has a version above all that were there.
            Some((_, None)) | None => 2 * (state.highest + 1),
        }
    }

    fn rank(&self, act: &Act) -> Option<u64> {
        let (version, is_read) = match act {
            Act::Get(seen) => ((*seen)?.version, true),
            Act::Set { version, .. } => ((*version)?, false),
            Act::Add { told, .. } => ((*told)??, false),
            Act::Cas { told: Some(Compared::Stored(version)), .. } => (*version, false),
            Act::Increment(told) => ((*told)??.version, false),
            Act::Cas { .. } | Act::Delete(_) | Act::Flush => return None,
        };
        Some(2 * version + u64::from(is_read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(acts: &[Act]) -> Option<State> {
        let register = Register::default();
        acts.iter().try_fold(register.first(), |state, act| register.step(&state, act))
    }

    #[test]
    fn what_was_stored_is_seen_and_nothing_older() {
        let set = |value, version| Act::Set { value, is_mortal: false, version: Some(version) };
        let get = |value, version| Act::Get(Some(Seen { value, version }));
        assert!(run(&[set(1, 1), get(1, 1), set(2, 2), get(2, 2)]).is_some());
        assert!(run(&[set(1, 1), set(2, 2), get(1, 1)]).is_none());
        assert!(run(&[set(1, 1), Act::Get(None)]).is_none());
        assert!(run(&[set(1, 2), Act::Delete(Some(true)), set(2, 1)]).is_none(), "versions grow over deletes");
        assert!(run(&[set(1, 1), Act::Flush, Act::Get(None)]).is_some());
    }

    #[test]
    fn a_mortal_item_goes_once() {
        let mortal = Act::Set { value: 1, is_mortal: true, version: Some(1) };
        let get = Act::Get(Some(Seen { value: 1, version: 1 }));
        assert!(run(&[mortal, get, Act::Get(None)]).is_some());
        assert!(run(&[mortal, Act::Get(None), get]).is_none());
    }

    #[test]
    fn a_version_that_was_not_told_is_the_first_that_is_seen() {
        let set = Act::Set { value: 1, is_mortal: false, version: None };
        let get = |version| Act::Get(Some(Seen { value: 1, version }));
        assert!(run(&[set, get(3), get(3)]).is_some());
        assert!(run(&[set, get(3), get(4)]).is_none());
    }

    #[test]
    fn who_adds_one_sees_the_sum() {
        let set = Act::Set { value: 7, is_mortal: false, version: Some(1) };
        let add = |value, version| Act::Increment(Some(Some(Seen { value, version })));
        assert!(run(&[set, add(8, 2), add(9, 3)]).is_some());
        assert!(run(&[set, add(8, 2), add(10, 3)]).is_none());
        assert!(run(&[set, Act::Increment(None), add(9, 3)]).is_some(), "one that nobody was told of");
    }
}
