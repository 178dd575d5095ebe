//! An operation that a program asks for.
//!
//! Always true: it means what its [`Operation`] means everywhere; how long an item is to last counts from when it is asked for, not from when the
//! [`Ask`] was made.

use guira_item::{Arithmetic, ArithmeticMode, CasRule, Delete, Get, Key, Operation, Request, Store, StoreMode, Time};

use crate::{Error, Expires, Value, Version};

/// An operation, to be asked together with others ([`Client::batch`](crate::Client::batch)). What each does is told at the method of
/// [`Client`](crate::Client) that has its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask<'a> {
    key: &'a [u8],
    what: What<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What<'a> {
    Get,
    GetAndTouch(Expires),
    Store(StoreMode, Option<Version>, Value<'a>),
    Delete,
    Arithmetic(ArithmeticMode, u64),
    Touch(Expires),
}

impl<'a> Ask<'a> {
    fn of<K: AsRef<[u8]> + ?Sized>(key: &'a K, what: What<'a>) -> Self {
        Self { key: key.as_ref(), what }
    }

    /// Reads an item.
    pub fn get<K: AsRef<[u8]> + ?Sized>(key: &'a K) -> Self {
        Self::of(key, What::Get)
    }

    /// Reads an item, and has it end then.
    pub fn get_and_touch<K: AsRef<[u8]> + ?Sized>(key: &'a K, expires: Expires) -> Self {
        Self::of(key, What::GetAndTouch(expires))
    }

    /// Stores a value.
    pub fn set<K: AsRef<[u8]> + ?Sized>(key: &'a K, value: impl Into<Value<'a>>) -> Self {
        Self::of(key, What::Store(StoreMode::Set, None, value.into()))
    }

    /// Stores a value if there is none.
    pub fn add<K: AsRef<[u8]> + ?Sized>(key: &'a K, value: impl Into<Value<'a>>) -> Self {
        Self::of(key, What::Store(StoreMode::Add, None, value.into()))
    }

    /// Stores a value if there is one.
    pub fn replace<K: AsRef<[u8]> + ?Sized>(key: &'a K, value: impl Into<Value<'a>>) -> Self {
        Self::of(key, What::Store(StoreMode::Replace, None, value.into()))
    }

    /// Puts bytes behind the value that is there.
    pub fn append<K: AsRef<[u8]> + ?Sized, B: AsRef<[u8]> + ?Sized>(key: &'a K, bytes: &'a B) -> Self {
        Self::of(key, What::Store(StoreMode::Append, None, Value::of(bytes)))
    }

    /// Puts bytes before the value that is there.
    pub fn prepend<K: AsRef<[u8]> + ?Sized, B: AsRef<[u8]> + ?Sized>(key: &'a K, bytes: &'a B) -> Self {
        Self::of(key, What::Store(StoreMode::Prepend, None, Value::of(bytes)))
    }

    /// Stores a value if what is there has this version.
    pub fn compare_and_set<K: AsRef<[u8]> + ?Sized>(key: &'a K, version: Version, value: impl Into<Value<'a>>) -> Self {
        Self::of(key, What::Store(StoreMode::Set, Some(version), value.into()))
    }

    /// Removes an item.
    pub fn delete<K: AsRef<[u8]> + ?Sized>(key: &'a K) -> Self {
        Self::of(key, What::Delete)
    }

    /// Adds to a number.
    pub fn increment<K: AsRef<[u8]> + ?Sized>(key: &'a K, delta: u64) -> Self {
        Self::of(key, What::Arithmetic(ArithmeticMode::Increment, delta))
    }

    /// Subtracts from a number.
    pub fn decrement<K: AsRef<[u8]> + ?Sized>(key: &'a K, delta: u64) -> Self {
        Self::of(key, What::Arithmetic(ArithmeticMode::Decrement, delta))
    }

    /// Has an item end then.
    pub fn touch<K: AsRef<[u8]> + ?Sized>(key: &'a K, expires: Expires) -> Self {
        Self::of(key, What::Touch(expires))
    }

    /// It at `now`, in the cluster's seconds, or why it cannot be asked.
    pub(crate) fn request(&self, now: Time, item_len_max: usize) -> Result<Request<'a>, Error> {
        let key = Key::new(self.key).map_err(Error::KeyInvalid)?;
        let operation = self.what.operation(now);
        let len = self.key.len() + operation.value_len();
        if len > item_len_max {
            return Err(Error::TooLarge { len, max: item_len_max });
        }
        Ok(Request { key, operation })
    }
}

impl<'a> What<'a> {
    fn operation(self, now: Time) -> Operation<'a> {
        match self {
            Self::Get => Operation::Get(Get::PLAIN),
            Self::GetAndTouch(expires) => Operation::Get(Get { touch: Some(expires.expiry(now)), ..Get::PLAIN }),
            Self::Store(mode, version, Value { bytes, flags, expires }) => {
                let cas = version.map(|Version(expected)| CasRule { expected, or_stale: false });
                let expiry = expires.expiry(now);
                Operation::Store(Store { mode, flags, expiry, cas, vivify: None, value: bytes })
            }
            Self::Delete => Operation::Delete(Delete { cas: None, invalidate: None }),
            Self::Arithmetic(mode, delta) => {
                Operation::Arithmetic(Arithmetic { mode, delta, cas: None, touch: None, create: None })
            }
            Self::Touch(expires) => Operation::Touch(expires.expiry(now)),
        }
    }
}
