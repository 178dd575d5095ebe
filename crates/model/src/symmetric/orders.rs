//! The orders in which what clients have done with one key may have taken effect, as far as they tell states apart.
//!
//! Always true: for each order that fits all that was told there is what it leaves in the key and what the open operations that it has will be
//! told; so when there is none left, nobody can say in which order things have happened: they are not linearizable (Herlihy and Wing, 1990).

use std::collections::BTreeSet;

use guira_chain::{Owned, Reply};
use guira_consistency::{Outcome, Value, Wish};
use guira_item::{Answer, CasRule, Delete, Expiry, Get, Operation, Store, StoreMode, Time};

/// What a key has, as clients see it: a text, or nothing.
pub type Text = Option<Held>;

/// A text, and whether it ends some time: before it is late, and not before it is early.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Held {
    pub text: Vec<u8>,
    pub is_brief: bool,
}

const EARLY: Time = Time(10);
const ENDS: Time = Time(15);
const LATE: Time = Time(20);

/// What nobody knows an item by.
const NO_CAS: u64 = u64::MAX;

/// What a client wants of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Want {
    /// Read it.
    Get,
    /// Read it where it is late.
    LateGet,
    /// Make it this letter.
    Set(u8),
    /// Make it this letter, which ends some time.
    SetBriefly(u8),
    /// Remove it.
    Delete,
    /// Put this letter behind what is there.
    Append(u8),
    /// Make it this letter, if it is what this client has read last.
    Swap(u8),
    /// It is lost with its home.
    Lose,
}

/// An operation, with what its client had read before.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Begun {
    pub want: Want,
    pub read: Option<Text>,
}

/// What a client is told.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Told {
    Value(Text),
    Stored,
    Deleted,
    NotStored,
    NotFound,
    Exists,
    /// It has not taken effect, and will not.
    Failed,
    /// It may have, or may yet.
    Unknown,
}

/// What is there that was written so.
pub fn value(text: &[u8], cas: u64) -> Value {
    Value { flags: 0, cas, expiry: Expiry::NEVER, stale: false, win_sent: false, bytes: text.into() }
}

pub fn text(value: Option<&Value>) -> Text {
    value.map(|value| Held { text: value.bytes.to_vec(), is_brief: value.expiry != Expiry::NEVER })
}

pub fn held(text: &[u8]) -> Text {
    Some(Held { text: text.to_vec(), is_brief: false })
}

impl Want {
    /// Whether it only reads.
    pub fn reads(self) -> bool {
        matches!(self, Self::Get | Self::LateGet)
    }

    /// What is asked of a replica; what has been read last was known by this number.
    pub fn wish(self, read: Option<u64>) -> Wish {
        let store = |mode, letter: &u8, expiry, cas: Option<u64>| {
            let cas = cas.map(|expected| CasRule { expected, or_stale: false });
            Owned::of(&Operation::Store(Store { mode, flags: 0, expiry, cas, vivify: None, value: &[*letter] }))
        };
        let operation = match &self {
            Self::Get | Self::LateGet => Owned::of(&Operation::Get(Get { tells: true, ..Get::PLAIN })),
            Self::Set(letter) => store(StoreMode::Set, letter, Expiry::NEVER, None),
            Self::SetBriefly(letter) => store(StoreMode::Set, letter, Expiry::at(ENDS), None),
            Self::Delete => Owned::of(&Operation::Delete(Delete { cas: None, invalidate: None })),
            Self::Append(letter) => store(StoreMode::Append, letter, Expiry::NEVER, None),
            Self::Swap(letter) => store(StoreMode::Set, letter, Expiry::NEVER, Some(read.unwrap_or(NO_CAS))),
            Self::Lose => panic!("nobody asks for that"),
        };
        Wish::new(operation, if self == Self::LateGet { LATE } else { EARLY })
    }
}

impl Begun {
    /// What it makes of a key, and what is told.
    pub fn apply(&self, there: &Text) -> (Text, Told) {
        let is_brief = there.as_ref().is_some_and(|held| held.is_brief);
        match (self.want, there) {
            (Want::LateGet, _) if is_brief => (None, Told::Value(None)),
            (Want::Get | Want::LateGet, there) => (there.clone(), Told::Value(there.clone())),
            (Want::Set(letter), _) => (held(&[letter]), Told::Stored),
            (Want::SetBriefly(letter), _) => (Some(Held { text: vec![letter], is_brief: true }), Told::Stored),
            (Want::Delete, Some(_)) => (None, Told::Deleted),
            (Want::Delete | Want::Swap(_), None) => (None, Told::NotFound),
            (Want::Append(letter), Some(held)) => {
                (Some(Held { text: [&held.text[..], &[letter]].concat(), ..*held }), Told::Stored)
            }
            (Want::Append(_), None) => (None, Told::NotStored),
            (Want::Swap(letter), there) if self.read.as_ref() == Some(there) => (held(&[letter]), Told::Stored),
            (Want::Swap(_), there) => (there.clone(), Told::Exists),
            (Want::Lose, _) => (None, Told::Unknown),
        }
    }
}

impl Told {
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Answer(answer) => match &answer.reply {
                Reply::Hit(hit, bytes) => {
                    let text = bytes.as_ref().expect("values are asked for").to_vec();
                    Self::Value(Some(Held { text, is_brief: hit.expiry != Expiry::NEVER }))
                }
                Reply::Answer(answer, _) => match answer {
                    Answer::Miss => Self::Value(None),
                    Answer::Stored { .. } => Self::Stored,
                    Answer::Deleted => Self::Deleted,
                    Answer::NotStored => Self::NotStored,
                    Answer::NotFound => Self::NotFound,
                    Answer::Exists => Self::Exists,
                    other => panic!("nobody has asked for {other:?}"),
                },
            },
            Outcome::Busy | Outcome::NotServing => Self::Failed,
            Outcome::Unknown | Outcome::Late => Self::Unknown,
            Outcome::Forward(_) | Outcome::Shard => panic!("that is not told to clients"),
        }
    }
}

/// What some orders come to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Leaves {
    held: Text,
    /// Of the open operations those that have taken effect, by number, with what they will be told.
    taken: Vec<(u8, Told)>,
}

/// All orders of one key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Orders {
    open: Vec<(u8, Begun)>,
    leaves: BTreeSet<Leaves>,
}

impl Orders {
    /// Nothing was done, and this is there.
    pub fn new(held: Text) -> Self {
        Self { open: Vec::new(), leaves: BTreeSet::from([Leaves { held, taken: Vec::new() }]) }
    }

    /// An operation has begun.
    pub fn begin(&mut self, number: u8, begun: Begun) {
        self.open.push((number, begun));
        self.open.sort_unstable();
        let mut new: Vec<Leaves> = self.leaves.iter().cloned().collect();
        while let Some(leaves) = new.pop() {
            for (number, begun) in &self.open {
                let Err(at) = leaves.taken.binary_search_by_key(number, |(number, _)| *number) else { continue };
                let (held, told) = begun.apply(&leaves.held);
                let mut taken = leaves.taken.clone();
                taken.insert(at, (*number, told));
                let after = Leaves { held, taken };
                if self.leaves.insert(after.clone()) {
                    new.push(after);
                }
            }
        }
    }

    /// A client was told what became of an operation.
    pub fn end(&mut self, number: u8, told: &Told) {
        if *told == Told::Unknown {
            return;
        }
        self.open.retain(|(other, _)| *other != number);
        let leaves = std::mem::take(&mut self.leaves);
        self.leaves = leaves
            .into_iter()
            .filter_map(|mut leaves| {
                let at = leaves.taken.binary_search_by_key(&number, |(number, _)| *number).ok();
                let would_be = at.map(|at| leaves.taken.remove(at).1);
                let fits = if *told == Told::Failed { would_be.is_none() } else { would_be.as_ref() == Some(told) };
                fits.then_some(leaves)
            })
            .collect();
    }

    /// There is one.
    pub fn are_possible(&self) -> bool {
        !self.leaves.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn possible(events: &[(u8, Result<Want, Told>)]) -> bool {
        let mut orders = Orders::new(held(b"0"));
        for (number, event) in events {
            match event {
                Ok(want) => orders.begin(*number, Begun { want: *want, read: None }),
                Err(told) => orders.end(*number, told),
            }
        }
        orders.are_possible()
    }

    fn sees(text: &[u8]) -> Result<Want, Told> {
        Err(Told::Value(held(text)))
    }

    #[test]
    fn what_was_seen_is_not_taken_back() {
        let begun = [(1, Ok(Want::Set(b'a'))), (2, Ok(Want::Get)), (2, sees(b"a")), (3, Ok(Want::Get))];
        assert!(possible(&[&begun[..], &[(3, sees(b"a"))]].concat()));
        assert!(!possible(&[&begun[..], &[(3, sees(b"0"))]].concat()));
    }

    #[test]
    fn what_has_ended_for_one_has_for_all() {
        let begun = [(1, Ok(Want::SetBriefly(b'a'))), (1, Err(Told::Stored)), (2, Ok(Want::Get))];
        let brief = || Err(Told::Value(Some(Held { text: b"a".to_vec(), is_brief: true })));
        let late = [(3, Ok(Want::LateGet)), (3, Err(Told::Value(None)))];
        assert!(possible(&[&begun[..], &[(2, brief())], &late].concat()));
        assert!(!possible(&[&begun[..], &late, &[(4, Ok(Want::Get)), (4, brief())]].concat()));
    }

    #[test]
    fn what_nobody_knows_of_may_come_late_but_once() {
        let begun = [(1, Ok(Want::Append(b'a'))), (1, Err(Told::Unknown)), (2, Ok(Want::Get)), (2, sees(b"0"))];
        assert!(possible(&[&begun[..], &[(3, Ok(Want::Get)), (3, sees(b"0a"))]].concat()));
        assert!(!possible(&[&begun[..], &[(3, Ok(Want::Get)), (3, sees(b"0aa"))]].concat()));
    }
}
