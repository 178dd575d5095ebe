//! The orders in which what clients have done with one key may have taken effect, as far as they tell states apart.
//!
//! Always true: for each order that fits all that was told there is what it leaves in the key and what the open operations that it has will be
//! told; so when there is none left, nobody can say in which order things have happened: they are not linearizable (Herlihy and Wing, 1990).

use std::collections::BTreeSet;

use guira_consistency::{Answer, Bytes, Modification, Outcome, Timestamp, Value, Wish};

/// What a key has, as clients see it: a text, or nothing.
pub type Text = Option<Vec<u8>>;

/// What a client wants of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Want {
    /// Read it.
    Get,
    /// Make it this letter.
    Set(u8),
    /// Remove it.
    Delete,
    /// Put this letter behind what is there.
    Append(u8),
    /// Make it this letter, if it is what this client has read last.
    Swap(u8),
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

pub fn value(text: &[u8]) -> Value {
    Value { flags: 0, bytes: text.into() }
}

pub fn text(value: Option<&Value>) -> Text {
    value.map(|value| value.bytes.to_vec())
}

impl Want {
    /// What is asked of a replica.
    pub fn wish(self, read_at: Option<Timestamp>) -> Wish {
        match self {
            Self::Get => Wish::Get,
            Self::Set(letter) => Wish::Put(Some(value(&[letter]))),
            Self::Delete => Wish::Modify(Modification::Delete),
            Self::Append(letter) => Wish::Modify(Modification::Append(Bytes::from(&[letter][..]))),
            Self::Swap(letter) => {
                let expected = read_at.unwrap_or(Timestamp { version: 77, writer: guira_consistency::Writer(77) });
                Wish::Modify(Modification::CompareAndSwap { expected, value: Some(value(&[letter])) })
            }
        }
    }
}

impl Begun {
    pub fn apply(&self, held: &Text) -> (Text, Told) {
        match (self.want, held) {
            (Want::Get, held) => (held.clone(), Told::Value(held.clone())),
            (Want::Set(letter), _) => (Some(vec![letter]), Told::Stored),
            (Want::Delete, Some(_)) => (None, Told::Deleted),
            (Want::Delete | Want::Swap(_), None) => (None, Told::NotFound),
            (Want::Append(letter), Some(held)) => (Some([&held[..], &[letter]].concat()), Told::Stored),
            (Want::Append(_), None) => (None, Told::NotStored),
            (Want::Swap(letter), held) if self.read.as_ref() == Some(held) => (Some(vec![letter]), Told::Stored),
            (Want::Swap(_), held) => (held.clone(), Told::Exists),
        }
    }
}

impl Told {
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Answer(answer) => match answer {
                Answer::Value { value, .. } => Self::Value(text(value.as_ref())),
                Answer::Stored { .. } => Self::Stored,
                Answer::Deleted { .. } => Self::Deleted,
                Answer::NotStored => Self::NotStored,
                Answer::NotFound => Self::NotFound,
                Answer::Exists => Self::Exists,
                other => panic!("nobody has asked for {other:?}"),
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
        let mut orders = Orders::new(Some(b"0".to_vec()));
        for (number, event) in events {
            match event {
                Ok(want) => orders.begin(*number, Begun { want: *want, read: None }),
                Err(told) => orders.end(*number, told),
            }
        }
        orders.are_possible()
    }

    fn sees(text: &[u8]) -> Result<Want, Told> {
        Err(Told::Value(Some(text.to_vec())))
    }

    #[test]
    fn what_was_seen_is_not_taken_back() {
        let begun = [(1, Ok(Want::Set(b'a'))), (2, Ok(Want::Get)), (2, sees(b"a")), (3, Ok(Want::Get))];
        assert!(possible(&[&begun[..], &[(3, sees(b"a"))]].concat()));
        assert!(!possible(&[&begun[..], &[(3, sees(b"0"))]].concat()));
    }

    #[test]
    fn what_nobody_knows_of_may_come_late_but_once() {
        let begun = [(1, Ok(Want::Append(b'a'))), (1, Err(Told::Unknown)), (2, Ok(Want::Get)), (2, sees(b"0"))];
        assert!(possible(&[&begun[..], &[(3, Ok(Want::Get)), (3, sees(b"0a"))]].concat()));
        assert!(!possible(&[&begun[..], &[(3, Ok(Want::Get)), (3, sees(b"0aa"))]].concat()));
    }
}
