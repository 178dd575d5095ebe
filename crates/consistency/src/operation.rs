//! What is asked of a key, and what becomes of it.
//!
//! Always true: what an operation does depends on nothing but what is there and when that was written, so it can be tried again.

use guira_routing::NodeId;
use serde::{Deserialize, Serialize};

use crate::{Bytes, Kind, Timestamp};

/// Digits of the largest 64-bit number.
const DECIMAL_LEN_MAX: usize = 20;

/// Names what a replica was asked, by whoever drives it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// Who asks, for as long as he numbers his requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Session(pub u64);

/// The number of a request in its session, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Sequence(pub u64);

/// A request that takes effect once, wherever it is asked (R3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RequestId {
    /// Whose: one request at a time.
    pub session: Session,
    /// Which.
    pub sequence: Sequence,
}

/// What a key has.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Value {
    /// The client's flags.
    pub flags: u32,
    /// The bytes.
    pub bytes: Bytes,
}

/// An operation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Operation {
    /// Under which it is answered.
    pub ticket: Ticket,
    /// What is wanted.
    pub wish: Wish,
    /// What it is known by, if it may be asked again.
    pub request: Option<RequestId>,
    /// It was asked before, elsewhere: nobody knows whether it has taken effect.
    pub is_again: bool,
    /// The newest that its session has seen of the key: nothing older is served to it (R12).
    pub floor: Option<Timestamp>,
}

/// What is wanted of a key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Wish {
    /// Its value.
    Get,
    /// That this is its value, whatever it was; `None`: that it has none.
    Put(Option<Value>),
    /// A change that depends on what it has.
    Modify(Modification),
}

/// A change that depends on what is there. What only tells whether something was there, as a removal does, is one too: of two at a time one has removed it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Modification {
    /// Only if it is what was written then.
    CompareAndSwap {
        /// Then.
        expected: Timestamp,
        /// What it is to be; `None`: it is to go.
        value: Option<Value>,
    },
    /// Only if nothing is there.
    Add(Value),
    /// Only if something is there.
    Replace(Value),
    /// These bytes come behind those that are there.
    Append(Bytes),
    /// These bytes come before those that are there.
    Prepend(Bytes),
    /// To a decimal number this is added, wrapping around at 2^64.
    Increment(u64),
    /// From a decimal number this is taken, down to 0.
    Decrement(u64),
    /// It goes.
    Delete,
}

/// What came of an operation that was carried out.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// What was read.
    Value {
        /// `None`: nothing is there.
        value: Option<Value>,
        /// When it was written.
        at: Timestamp,
    },
    /// The value is another now.
    Stored {
        /// Since then.
        at: Timestamp,
    },
    /// It is a number, and this one now.
    Number {
        /// Which.
        number: u64,
        /// Since then.
        at: Timestamp,
    },
    /// There was something, and is not any more.
    Deleted {
        /// Since then.
        at: Timestamp,
    },
    /// There is something, or nothing, where it should have been the other way.
    NotStored,
    /// Nothing is there.
    NotFound,
    /// It is not what was expected.
    Exists,
    /// It is not a decimal number.
    NonNumeric,
    /// It would be longer than a value may be.
    TooLarge,
}

/// What becomes of an operation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Outcome {
    /// It was carried out.
    Answer(Answer),
    /// Another node is to be asked: the key's home.
    Forward(NodeId),
    /// The key is not hot, and this is its home: the shard is to be asked, before the next step.
    Shard,
    /// Too many wait for the key. Nothing has changed.
    Busy,
    /// The node may not serve: it has no lease, or is not whole. Nothing has changed.
    NotServing,
    /// A later request of the session has been carried out; what became of this one is forgotten.
    Late,
    /// It may have taken effect, and may yet.
    Unknown,
}

/// What a change does.
pub(crate) struct Changed {
    pub(crate) value: Option<Value>,
    pub(crate) answer: Answer,
}

impl Operation {
    /// The kind of the write that it is, if it is one. What may have taken effect elsewhere is made to depend on that it has not.
    pub(crate) fn kind(&self) -> Kind {
        match self.wish {
            Wish::Put(_) if !self.is_again => Kind::Plain,
            _ => Kind::Modify,
        }
    }
}

impl Wish {
    /// What it does to `value`, that was written `at`, if the write is to be `next`.
    ///
    /// # Errors
    /// The answer, if nothing changes.
    pub(crate) fn apply(
        &self,
        value: Option<&Value>,
        at: Timestamp,
        next: Timestamp,
        len_max: usize,
    ) -> Result<Changed, Answer> {
        let (value, answer) = match self {
            Self::Get => return Err(Answer::Value { value: value.cloned(), at }),
            Self::Put(value) => (value.clone(), Answer::Stored { at: next }),
            Self::Modify(modification) => modification.apply(value, at, next)?,
        };
        if value.as_ref().is_some_and(|value| value.bytes.len() > len_max) {
            return Err(Answer::TooLarge);
        }
        Ok(Changed { value, answer })
    }
}

impl Modification {
    fn apply(&self, value: Option<&Value>, at: Timestamp, next: Timestamp) -> Result<(Option<Value>, Answer), Answer> {
        let stored = |value: Value| Ok((Some(value), Answer::Stored { at: next }));
        match (self, value) {
            (Self::CompareAndSwap { .. } | Self::Delete | Self::Increment(_) | Self::Decrement(_), None) => {
                Err(Answer::NotFound)
            }
            (Self::CompareAndSwap { expected, .. }, Some(_)) if *expected != at => Err(Answer::Exists),
            (Self::CompareAndSwap { value: Some(value), .. }, Some(_)) => stored(value.clone()),
            (Self::CompareAndSwap { value: None, .. } | Self::Delete, Some(_)) => {
                Ok((None, Answer::Deleted { at: next }))
            }
            (Self::Add(_), Some(_)) | (Self::Replace(_) | Self::Append(_) | Self::Prepend(_), None) => {
                Err(Answer::NotStored)
            }
            (Self::Add(new), None) | (Self::Replace(new), Some(_)) => stored(new.clone()),
            (Self::Append(bytes), Some(value)) => {
                stored(Value { flags: value.flags, bytes: [&value.bytes[..], bytes].concat().into() })
            }
            (Self::Prepend(bytes), Some(value)) => {
                stored(Value { flags: value.flags, bytes: [bytes, &value.bytes[..]].concat().into() })
            }
            (Self::Increment(by), Some(value)) => counted(value, next, |number| number.wrapping_add(*by)),
            (Self::Decrement(by), Some(value)) => counted(value, next, |number| number.saturating_sub(*by)),
        }
    }
}

/// The number that is made of the one that is there.
fn counted(value: &Value, at: Timestamp, count: impl Fn(u64) -> u64) -> Result<(Option<Value>, Answer), Answer> {
    let digits = value.bytes.trim_ascii_end();
    let is_decimal = !digits.is_empty() && digits.len() <= DECIMAL_LEN_MAX && digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(digits).ok().filter(|_| is_decimal).and_then(|digits| digits.parse().ok());
    let number = count(number.ok_or(Answer::NonNumeric)?);
    let bytes = Bytes::from(number.to_string().into_bytes());
    Ok((Some(Value { flags: value.flags, bytes }), Answer::Number { number, at }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Writer;

    const AT: Timestamp = Timestamp { version: 4, writer: Writer(1) };
    const NEXT: Timestamp = Timestamp { version: 5, writer: Writer(2) };

    fn value(text: &str) -> Value {
        Value { flags: 3, bytes: text.as_bytes().into() }
    }

    fn after(modification: Modification, there: Option<&str>) -> Result<Option<Value>, Answer> {
        let there = there.map(value);
        Wish::Modify(modification).apply(there.as_ref(), AT, NEXT, 6).map(|changed| changed.value)
    }

    #[test]
    fn what_a_modification_makes_depends_on_what_is_there() {
        use Modification as M;
        let bytes = |text: &str| Bytes::from(text.as_bytes());
        assert_eq!(after(M::Append(bytes("c")), Some("ab")), Ok(Some(value("abc"))));
        assert_eq!(after(M::Prepend(bytes("c")), Some("ab")), Ok(Some(value("cab"))));
        assert_eq!(after(M::Append(bytes("defg")), Some("abc")), Err(Answer::TooLarge));
        assert_eq!(after(M::Append(bytes("c")), None), Err(Answer::NotStored));
        assert_eq!(after(M::Add(value("x")), Some("ab")), Err(Answer::NotStored));
        assert_eq!(after(M::Add(value("x")), None), Ok(Some(value("x"))));
        assert_eq!(after(M::Replace(value("x")), None), Err(Answer::NotStored));
        assert_eq!(after(M::Delete, Some("ab")), Ok(None));
        assert_eq!(after(M::Delete, None), Err(Answer::NotFound));
        let swap = |expected| M::CompareAndSwap { expected, value: Some(value("x")) };
        assert_eq!(after(swap(AT), Some("ab")), Ok(Some(value("x"))));
        assert_eq!(after(swap(NEXT), Some("ab")), Err(Answer::Exists));
        assert_eq!(after(swap(AT), None), Err(Answer::NotFound));
    }

    #[test]
    fn numbers_are_counted_as_memcached_does() {
        use Modification as M;
        assert_eq!(after(M::Increment(2), Some("9")), Ok(Some(value("11"))));
        assert_eq!(after(M::Increment(2), Some("9  ")), Ok(Some(value("11"))));
        assert_eq!(after(M::Decrement(12), Some("9")), Ok(Some(value("0"))));
        for other in ["", "a", "-1", "+1", "1.", "123456789012345678901"] {
            assert_eq!(after(M::Increment(1), Some(other)), Err(Answer::NonNumeric), "{other}");
        }
    }
}
