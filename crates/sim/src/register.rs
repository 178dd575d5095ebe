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
    /// Its marks, if they are known.
    pub marks: Option<Marks>,
    /// No version has been above this one.
    pub highest: u64,
    /// What is to be gone some time, as it was wanted last.
    pub to_come: Option<FlushNumber>,
    /// Lowest bits of a version that tell writers apart: of two writes that were under way at once, and whose versions differ in no others, either may have come first.
    pub writer_bits: u32,
}

/// Tells one `flush_all` that is to come from another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlushNumber(pub u64);

/// Marks of an item.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Marks {
    /// It was invalidated.
    pub stale: bool,
    /// Somebody was told that he won.
    pub win_sent: bool,
}

impl Marks {
    /// Whether the next who may wins.
    fn can_be_won(self) -> bool {
        self.stale && !self.win_sent
    }
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
    /// Read so that it could win: saw this with these marks and won or not, or that there is nothing.
    Contend(Option<Option<(Seen, Marks, bool)>>),
    /// Marked as stale what is there: there was something, or nothing.
    Invalidate(Option<bool>),
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
    /// Everything is gone, and is not to be later.
    Flush,
    /// Everything is to be gone some time, and not when that was wanted before.
    FlushLater(FlushNumber),
    /// The time has come, if that is what was wanted last.
    Due(FlushNumber),
    /// Nothing is to be gone later. Of a [`Act::FlushLater`] of which nobody knows this is all that it may have done at once, and then it may have been a
    /// [`Act::Flush`]: so all of them do the same, which makes histories shorter to check.
    NotLater,
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
        version.is_none_or(|version| self.may_come(version)).then_some(Self {
            item: Some((value, version)),
            is_mortal,
            marks: Some(Marks::default()),
            highest: version.map_or(self.highest, |version| version.max(self.highest)),
            ..self
        })
    }

    /// Whether a write may come under this version.
    fn may_come(self, version: u64) -> bool {
        if self.writer_bits == 0 {
            return version > self.highest;
        }
        version >> self.writer_bits >= self.highest >> self.writer_bits
    }

    /// What was seen is what is there.
    fn seen(self, seen: Seen) -> Option<Self> {
        let (value, version) = self.item?;
        let highest = self.highest.max(seen.version);
        let fits =
            value == seen.value && version.map_or(self.may_come(seen.version), |version| version == seen.version);
        fits.then_some(Self { item: Some((value, Some(seen.version))), highest, ..self })
    }

    /// The marks once the value is that number: one that is longer is a new item.
    fn marks_with(self, value: u64) -> Option<Marks> {
        let (before, _) = self.item?;
        if value.checked_ilog10() > before.checked_ilog10() { Some(Marks::default()) } else { self.marks }
    }

    fn invalidated(self) -> Option<Self> {
        let (value, _) = self.item?;
        let marks = Some(Marks { stale: true, win_sent: false });
        Some(Self { item: Some((value, None)), marks, ..self })
    }

    fn gone(self) -> Self {
        Self { item: None, is_mortal: false, marks: None, ..self }
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
            Act::Get(Some(seen)) => state.seen(seen),
            Act::Contend(Some(None)) => state.is_gone(),
            Act::Contend(Some(Some((seen, marks, won)))) => {
                let fits = state.marks.is_none_or(|known| known == marks) && won == marks.can_be_won();
                let marks = Some(Marks { win_sent: marks.win_sent || won, ..marks });
                state.seen(seen).filter(|_| fits).map(|state| State { marks, ..state })
            }
            // Here it has won, if it could.
            Act::Contend(None) => {
                let marks = state.marks.map(|marks| Marks { win_sent: marks.win_sent || marks.stale, ..marks });
                Some(State { marks, ..state })
            }
            Act::Invalidate(Some(false)) => state.is_gone(),
            Act::Invalidate(Some(true)) => state.invalidated(),
            Act::Invalidate(None) => Some(state.invalidated().unwrap_or(state)),
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
                    let stored = state.stored(value + 1, Some(seen.version), state.is_mortal)?;
                    Some(State { marks: state.marks_with(value + 1), ..stored })
                }
                None => {
                    let (value, _) = state.item?;
                    let stored = state.stored(value + 1, None, state.is_mortal)?;
                    Some(State { marks: state.marks_with(value + 1), ..stored })
                }
            },
            Act::Delete(Some(false)) => state.is_gone(),
            Act::Delete(Some(true)) => state.item.map(|_| state.gone()),
            Act::Delete(None) => Some(state.gone()),
            Act::Flush => Some(State { to_come: None, ..state.gone() }),
            Act::NotLater => Some(State { to_come: None, ..state }),
            Act::FlushLater(number) => Some(State { to_come: Some(number), ..state }),
            Act::Due(number) if state.to_come == Some(number) => Some(State { to_come: None, ..state.gone() }),
            Act::Due(_) => Some(state),
        }
    }

    fn floor(&self, state: &State) -> u64 {
        match state.item {
            _ if state.writer_bits > 0 => state.highest >> state.writer_bits,
            Some((_, Some(version))) => 2 * version + 1,
            // What comes has a version above all that were there.
            Some((_, None)) | None => 2 * (state.highest + 1),
        }
    }

    fn rank(&self, act: &Act) -> Option<u64> {
        let (version, is_read) = match act {
            Act::Get(seen) => ((*seen)?.version, true),
            Act::Contend(told) => ((*told)??.0.version, true),
            Act::Set { version, .. } => ((*version)?, false),
            Act::Add { told, .. } => ((*told)??, false),
            Act::Cas { told: Some(Compared::Stored(version)), .. } => (*version, false),
            Act::Increment(told) => ((*told)??.version, false),
            Act::Cas { .. } | Act::Invalidate(_) | Act::Delete(_) => return None,
            Act::Flush | Act::FlushLater(_) | Act::Due(_) | Act::NotLater => return None,
        };
        // Of writes whose versions are as high the one that was read may be overwritten by the other, whichever that is.
        if self.first.writer_bits > 0 {
            return Some(version >> self.first.writer_bits);
        }
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
    fn what_is_to_be_gone_later_is_gone_once_and_as_it_was_wanted_last() {
        let (one, two) = (FlushNumber(1), FlushNumber(2));
        let set = |value, version| Act::Set { value, is_mortal: false, version: Some(version) };
        let get = |value, version| Act::Get(Some(Seen { value, version }));
        let wanted = [set(1, 1), Act::FlushLater(one), get(1, 1)];
        let then = |acts: &[Act]| run(&[&wanted, acts].concat()).is_some();
        assert!(then(&[Act::Due(one), Act::Get(None), set(2, 2), Act::Due(one), get(2, 2)]));
        assert!(!then(&[Act::Due(one), get(1, 1)]));
        assert!(then(&[Act::FlushLater(two), Act::Due(one), get(1, 1), Act::Due(two), Act::Get(None)]));
        for cancels in [Act::Flush, Act::NotLater] {
            let stored = [cancels, set(2, 2), Act::Due(one), get(2, 2)];
            assert!(then(&stored), "there is nothing to come any more");
        }
    }

    #[test]
    fn a_mortal_item_goes_once() {
        let mortal = Act::Set { value: 1, is_mortal: true, version: Some(1) };
        let get = Act::Get(Some(Seen { value: 1, version: 1 }));
        assert!(run(&[mortal, get, Act::Get(None)]).is_some());
        assert!(run(&[mortal, Act::Get(None), get]).is_none());
    }

    #[test]
    fn of_versions_that_only_writers_tell_apart_either_may_be_the_first() {
        let set = |value, version| Act::Set { value, is_mortal: false, version: Some(version) };
        let fits = |writer_bits, acts: &[Act]| {
            let register = Register { first: State { writer_bits, ..State::default() } };
            acts.iter().try_fold(register.first(), |state, act| register.step(&state, act)).is_some()
        };
        let tied = [set(1, 0x1_0007), set(2, 0x1_0003), Act::Get(Some(Seen { value: 2, version: 0x1_0003 }))];
        assert!(fits(16, &tied) && !fits(0, &tied));
        assert!(!fits(16, &[set(1, 0x2_0003), set(2, 0x1_0007)]), "an older one is older");
    }

    #[test]
    fn a_version_that_was_not_told_is_the_first_that_is_seen() {
        let set = Act::Set { value: 1, is_mortal: false, version: None };
        let get = |version| Act::Get(Some(Seen { value: 1, version }));
        assert!(run(&[set, get(3), get(3)]).is_some());
        assert!(run(&[set, get(3), get(4)]).is_none());
    }

    #[test]
    fn one_reader_of_a_stale_item_wins() {
        let set = Act::Set { value: 1, is_mortal: false, version: Some(1) };
        let stale = |win_sent| Marks { stale: true, win_sent };
        let contend = |version, marks, won| Act::Contend(Some(Some((Seen { value: 1, version }, marks, won))));
        let acts =
            [set, contend(1, Marks::default(), false), Act::Invalidate(Some(true)), contend(2, stale(false), true)];
        let won = run(&acts).expect("so it is");
        let step = |act| Register::default().step(&won, &act);
        assert!(step(contend(2, stale(true), false)).is_some());
        assert!(step(contend(2, stale(false), true)).is_none(), "two cannot win");
        assert!(run(&[set, Act::Invalidate(Some(true)), contend(2, stale(true), false)]).is_none(), "nobody has won");
        let unknown = [set, Act::Invalidate(Some(true)), Act::Contend(None), contend(2, stale(true), false)];
        assert!(run(&unknown).is_some(), "one that nobody was told of");
        assert!(
            run(&[set, Act::Invalidate(Some(true)), contend(1, stale(false), true)]).is_none(),
            "it has a new version"
        );
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
