//! What is wanted of a key (memcached's commands, as [`guira_item::apply()`] gives them their meaning), and what it makes of what is there.
//!
//! Always true: what a wish does depends on nothing but what is there, when that was written, and the time that it came with, so it can be tried again;
//! who is told that something is over is told so once it is removed: nodes' clocks differ, and nobody sees again what somebody has seen the end of.

use guira_chain::{Base, Item, Owned, Reply, Setting, step};
use guira_item::{Death, Expiry, Operation, Store, StoreMode, Time, store::Generation};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Bytes, Timestamp};

/// What a key has. How used it is nobody knows: reads are answered by all nodes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Value {
    /// The client's flags.
    pub flags: u32,
    /// What clients know this content by: a touch leaves it as it is.
    pub cas: u64,
    /// When it ends, in the cluster's seconds.
    pub expiry: Expiry,
    /// Is marked stale.
    pub stale: bool,
    /// A client has been told that it won.
    pub win_sent: bool,
    /// The bytes.
    pub bytes: Bytes,
}

/// What is wanted of a key, and when.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Wish {
    operation: Owned,
    now: Time,
}

/// What came of something that was carried out.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// What is told.
    pub reply: Reply,
    /// When that was written, of which it tells.
    pub at: Timestamp,
}

/// What a change does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    /// What is there after it.
    pub value: Option<Value>,
    /// What is told of it.
    pub answer: Answer,
}

impl Value {
    /// Whether it has ended.
    pub fn is_over(&self, now: Time) -> bool {
        self.expiry.is_past(now)
    }

    fn item(&self) -> Item {
        let Self { flags, cas, expiry, stale, win_sent, ref bytes } = *self;
        Item {
            flags,
            version: cas,
            expiry,
            generation: Generation::default(),
            stale,
            win_sent,
            fetched: false,
            idle_s: 0,
            value: bytes.clone().into(),
        }
    }
}

impl From<Item> for Value {
    fn from(Item { flags, version, expiry, stale, win_sent, value, .. }: Item) -> Self {
        Self { flags, cas: version, expiry, stale, win_sent, bytes: value.into() }
    }
}

impl Wish {
    /// This, by a clock that says `now` where it is asked.
    pub fn new(operation: Owned, now: Time) -> Self {
        Self { operation, now }
    }

    /// When it was asked, in the cluster's seconds.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Whether it is a read that changes nothing, as long as what is there is not over.
    pub fn only_reads(&self) -> bool {
        self.operation.get().only_reads()
    }

    /// Whether it is a read, whatever may come with it.
    pub(crate) fn is_get(&self) -> bool {
        matches!(self.operation.get(), Operation::Get(_))
    }

    /// Whether what it makes and tells is the same, whatever is there.
    pub(crate) fn is_blind(&self) -> bool {
        matches!(self.operation.get(), Operation::Store(Store { mode: StoreMode::Set, cas: None, .. }))
    }

    /// What it does to `value`, that was written `at`, if the write is to be `next`; of a key with so many bytes, where an item has `item_len_max` bytes
    /// of key and value at most.
    ///
    /// # Errors
    /// The answer, if nothing changes.
    pub fn apply(
        &self,
        value: Option<&Value>,
        at: Timestamp,
        next: Timestamp,
        key_len: usize,
        item_len_max: usize,
    ) -> Result<Changed, Answer> {
        let is_burial = value.is_some_and(|value| value.is_over(self.now));
        let base = match value {
            Some(value) if !is_burial => Base::Present(value.item()),
            _ => Base::Absent(is_burial.then_some(Death::Expired)),
        };
        let mut version = next.cas_unique();
        let mut setting = Setting {
            now: self.now,
            generation: Generation::default(),
            key_len,
            len_max: item_len_max,
            last_version: &mut version,
            next_version: |version| version,
            versions_shown: true,
            buries: true,
        };
        let (reply, after) = step(&self.operation.get(), &base, &mut setting);
        let changed = |value| Ok(Changed { value, answer: Answer { reply: reply.clone(), at: next } });
        match after {
            Some(Base::Present(item)) => changed(Some(item.into())),
            Some(Base::Absent(_) | Base::Unknown) => changed(None),
            None if is_burial => changed(None),
            None => Err(Answer { reply, at }),
        }
    }
}

/// An operation and the time, one after the other.
impl Serialize for Wish {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (self.operation.get(), self.now).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Wish {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (operation, now) = <(Operation<'de>, Time)>::deserialize(from)?;
        Ok(Self::new(Owned::of(&operation), now))
    }
}

#[cfg(test)]
mod tests {
    use guira_item::{
        Answer as Told, Arithmetic, ArithmeticMode, CasRule, Delete, Expiry, Get, Hit, Operation, Store, StoreMode,
    };

    use super::*;
    use crate::Writer;

    const AT: Timestamp = Timestamp { version: 4, writer: Writer(1) };
    const NEXT: Timestamp = Timestamp { version: 5, writer: Writer(2) };
    const EARLY: Time = Time(10);
    const LATE: Time = Time(20);

    fn value(text: &str) -> Value {
        let (cas, expiry, bytes) = (AT.cas_unique(), Expiry::NEVER, text.as_bytes().into());
        Value { flags: 3, cas, expiry, stale: false, win_sent: false, bytes }
    }

    fn store(mode: StoreMode, text: &str) -> Store<'_> {
        Store { mode, flags: 3, expiry: Expiry::NEVER, cas: None, vivify: None, value: text.as_bytes() }
    }

    fn apply(operation: Operation<'_>, there: Option<&Value>, now: Time) -> Result<Changed, Answer> {
        Wish::new(Owned::of(&operation), now).apply(there, AT, NEXT, 1, 7)
    }

    fn told(answer: &Answer) -> Option<Told> {
        match &answer.reply {
            Reply::Answer(answer, _) => Some(*answer),
            Reply::Hit(..) => None,
        }
    }

    #[test]
    fn what_is_made_is_known_by_when_it_was_written() {
        let made = apply(Operation::Store(store(StoreMode::Append, "c")), Some(&value("ab")), EARLY).unwrap();
        assert_eq!(made.value, Some(Value { cas: NEXT.cas_unique(), ..value("abc") }));
        assert_eq!(told(&made.answer), Some(Told::Stored { cas: NEXT.cas_unique() }));
        assert_eq!(made.answer.at, NEXT);
        let swap = |expected| {
            let cas = Some(CasRule { expected, or_stale: false });
            apply(Operation::Store(Store { cas, ..store(StoreMode::Set, "x") }), Some(&value("ab")), EARLY)
        };
        assert!(swap(AT.cas_unique()).is_ok());
        assert_eq!(told(&swap(NEXT.cas_unique()).unwrap_err()), Some(Told::Exists));
        let touched = apply(Operation::Touch(Expiry::at(LATE)), Some(&value("ab")), EARLY).unwrap();
        assert_eq!(touched.value, Some(Value { expiry: Expiry::at(LATE), ..value("ab") }), "the same content");
    }

    #[test]
    fn what_changes_nothing_is_told_at_once() {
        let append = Operation::Store(store(StoreMode::Append, "c"));
        assert_eq!(told(&apply(append, None, EARLY).unwrap_err()), Some(Told::NotStored));
        let long = Operation::Store(store(StoreMode::Append, "cdefg"));
        assert_eq!(told(&apply(long, Some(&value("ab")), EARLY).unwrap_err()), Some(Told::TooLarge));
        let increment = Arithmetic { mode: ArithmeticMode::Increment, delta: 1, cas: None, touch: None, create: None };
        let counted = apply(Operation::Arithmetic(increment), Some(&value("ab")), EARLY);
        assert_eq!(told(&counted.unwrap_err()), Some(Told::NonNumeric));
        let read = apply(Operation::Get(Get::PLAIN), Some(&value("ab")), EARLY).unwrap_err();
        let is_it = matches!(&read.reply, Reply::Hit(Hit { flags: 3, .. }, Some(bytes)) if **bytes == *b"ab");
        assert!(is_it && read.at == AT, "{read:?}");
    }

    #[test]
    fn who_finds_it_over_removes_it() {
        let brief = Value { expiry: Expiry::at(LATE), ..value("ab") };
        assert!(apply(Operation::Get(Get::PLAIN), Some(&brief), EARLY).is_err(), "not yet");
        let delete = Operation::Delete(Delete { cas: None, invalidate: None });
        for (operation, tells) in [(Operation::Get(Get::PLAIN), Told::Miss), (delete, Told::NotFound)] {
            let buried = apply(operation, Some(&brief), LATE).unwrap();
            assert_eq!(buried.value, None);
            assert_eq!(buried.answer, Answer { reply: Reply::Answer(tells, Some(Death::Expired)), at: NEXT });
        }
        let added = apply(Operation::Store(store(StoreMode::Add, "c")), Some(&brief), LATE).unwrap();
        assert_eq!(added.value, Some(Value { cas: NEXT.cas_unique(), ..value("c") }));
    }
}
