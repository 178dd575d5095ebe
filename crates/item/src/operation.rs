//! What can be asked of one item, and what is answered: every classic and meta command in one vocabulary.

use crate::{Expiry, Key};

/// One operation on one key.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Whose item.
    pub key: Key<'a>,
    /// What is asked of it.
    pub operation: Operation<'a>,
}

/// What is asked of an item.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Operation<'a> {
    /// Read, and what may come with a read: touch, vivify, win. (get gets gat gats mg me)
    Get(Get),
    /// Write a whole value or extend one. (set add replace append prepend cas ms)
    #[cfg_attr(feature = "serde", serde(borrow))]
    Store(Store<'a>),
    /// Remove, or mark stale. (delete md)
    Delete(Delete),
    /// Add to or subtract from a decimal number. (incr decr ma)
    Arithmetic(Arithmetic),
    /// Set the expiry. (touch)
    Touch(Expiry),
    /// Put an item back that was kept elsewhere, as it was. No command of a client's.
    #[cfg_attr(feature = "serde", serde(skip))]
    Restore(Restore<'a>),
}

impl Operation<'_> {
    /// The same with every expiry as `map` makes it: for who counts time from another moment.
    #[must_use]
    pub fn map_expiries(self, map: impl Fn(Expiry) -> Expiry) -> Self {
        match self {
            Self::Get(get) => Self::Get(Get {
                touch: get.touch.map(&map),
                vivify: get.vivify.map(&map),
                recache: get.recache.map(&map),
                ..get
            }),
            Self::Store(store) => {
                Self::Store(Store { expiry: map(store.expiry), vivify: store.vivify.map(&map), ..store })
            }
            Self::Delete(delete) => {
                let invalidate = delete.invalidate.map(|invalidate| Invalidate { touch: invalidate.touch.map(&map) });
                Self::Delete(Delete { invalidate, ..delete })
            }
            Self::Arithmetic(arithmetic) => Self::Arithmetic(Arithmetic {
                touch: arithmetic.touch.map(&map),
                create: arithmetic.create.map(|(value, expiry)| (value, map(expiry))),
                ..arithmetic
            }),
            Self::Touch(expiry) => Self::Touch(map(expiry)),
            Self::Restore(restore) => Self::Restore(Restore { expiry: map(restore.expiry), ..restore }),
        }
    }

    /// Bytes of the value that comes with it.
    pub fn value_len(&self) -> usize {
        match self {
            Self::Store(store) => store.value.len(),
            Self::Restore(restore) => restore.value.len(),
            _ => 0,
        }
    }

    /// Whether it is a read that changes nothing, whatever is there.
    pub fn only_reads(&self) -> bool {
        matches!(self, Self::Get(Get { wins: false, touch: None, vivify: None, .. }))
    }

    /// Whether it is a read that a copy of the item can answer, as long as nobody wins by it.
    pub fn copy_may_answer(&self) -> bool {
        matches!(self, Self::Get(Get { touch: None, vivify: None, .. }))
    }

    /// Its name in logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Get(_) => "get",
            Self::Store(store) => match store.mode {
                StoreMode::Set => "set",
                StoreMode::Add => "add",
                StoreMode::Replace => "replace",
                StoreMode::Append => "append",
                StoreMode::Prepend => "prepend",
            },
            Self::Delete(_) => "delete",
            Self::Arithmetic(_) => "arithmetic",
            Self::Touch(_) => "touch",
            Self::Restore(_) => "restore",
        }
    }
}

/// A read. `Get::PLAIN` is the classic get.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Get {
    /// The value is wanted, not only what is known about it.
    pub value: bool,
    /// Mark the item as recently used and as fetched.
    pub bump: bool,
    /// Takes part in stale/win/recache (the meta commands): the first reader of a stale item wins.
    pub wins: bool,
    /// Set the expiry of an item that is there.
    pub touch: Option<Expiry>,
    /// Create an empty item with this expiry on a miss.
    pub vivify: Option<Expiry>,
    /// Win if the item would expire before this time.
    pub recache: Option<Expiry>,
    /// Judge `recache` by the expiry after `touch`, not before it.
    pub recache_after_touch: bool,
    /// All that is known about the item is wanted, not only what the classic get shows: flags, version, length.
    pub tells: bool,
}

impl Get {
    /// The classic get: value, bump, nothing else.
    pub const PLAIN: Self = Self {
        value: true,
        bump: true,
        wins: false,
        touch: None,
        vivify: None,
        recache: None,
        recache_after_touch: false,
        tells: false,
    };
}

/// Under which condition and how a value is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum StoreMode {
    /// Whatever is there.
    Set,
    /// Only if nothing is there.
    Add,
    /// Only if something is there.
    Replace,
    /// Behind the value that is there, keeping its flags and expiry.
    Append,
    /// Before the value that is there, keeping its flags and expiry.
    Prepend,
}

/// A condition on the version of what is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CasRule {
    /// The version the client has seen.
    pub expected: u64,
    /// If the client's version is older than the item's, store all the same and mark the result stale (ms flag I).
    pub or_stale: bool,
}

/// A write of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Store<'a> {
    /// How.
    pub mode: StoreMode,
    /// The client's flags, returned with the value. Ignored by append and prepend.
    pub flags: u32,
    /// When the item ends. Ignored by append and prepend.
    pub expiry: Expiry,
    /// Only if the version fits. With [`StoreMode::Set`]: the classic cas.
    pub cas: Option<CasRule>,
    /// Create with this expiry if append or prepend finds nothing (ms flag N).
    pub vivify: Option<Expiry>,
    /// The bytes.
    #[cfg_attr(feature = "serde", serde(with = "serde_bytes", borrow))]
    pub value: &'a [u8],
}

/// An item as it was.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Restore<'a> {
    /// Also if something is there, which it replaces then.
    pub replaces: bool,
    /// The client's flags.
    pub flags: u32,
    /// When it ends.
    pub expiry: Expiry,
    /// The version it had; 0, or one that the engine cannot have, gives it a new one.
    pub version: u64,
    /// Had been read.
    pub fetched: bool,
    /// Was marked stale.
    pub stale: bool,
    /// A client had been told that it won.
    pub win_sent: bool,
    /// Seconds since it was last used.
    pub idle_s: u32,
    /// Had been read since the eviction hand came by.
    pub recent: bool,
    /// Had been spared by its policy ([`Standing`](crate::Standing)).
    pub spared: bool,
    /// The bytes.
    pub value: &'a [u8],
}

/// What a marking as stale does besides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Invalidate {
    /// A new expiry, if given.
    pub touch: Option<Expiry>,
}

/// A removal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Delete {
    /// Only if the version is this.
    pub cas: Option<u64>,
    /// Mark as stale instead of removing, and give a new version (md flag I).
    pub invalidate: Option<Invalidate>,
}

/// Direction of an [`Arithmetic`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ArithmeticMode {
    /// Adds, wrapping around at 2^64.
    Increment,
    /// Subtracts, stopping at 0.
    Decrement,
}

/// A change of a decimal number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Arithmetic {
    /// Up or down.
    pub mode: ArithmeticMode,
    /// By how much.
    pub delta: u64,
    /// Only if the version is this.
    pub cas: Option<u64>,
    /// Set the expiry on success.
    pub touch: Option<Expiry>,
    /// On a miss create the number `.0` with expiry `.1` (ma flags J and N).
    pub create: Option<(u64, Expiry)>,
}

/// What is known about an item that was read; its value travels through the [`Sink`](crate::Sink).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Hit {
    /// The client's flags.
    pub flags: u32,
    /// The version ("cas unique"); 0 when versions are switched off.
    pub cas: u64,
    /// Length of the value in bytes.
    pub value_len: usize,
    /// Expiry before this operation touched it.
    pub expiry_before: Expiry,
    /// Expiry after this operation.
    pub expiry: Expiry,
    /// Had been read before this operation.
    pub fetched: bool,
    /// Seconds since it was last used, as coarsely as the engine knows.
    pub idle_s: u32,
    /// Is marked stale (X).
    pub stale: bool,
    /// Another client had already been told that it won (Z).
    pub win_sent: bool,
    /// This client wins (W).
    pub won: bool,
    /// This operation created the item (vivify).
    pub created: bool,
    /// The slab class it lies in.
    pub class: u32,
    /// All bytes it takes: header, key, value.
    pub total_len: usize,
}

impl Hit {
    /// The same with every expiry as `map` makes it.
    #[must_use]
    pub fn map_expiries(self, map: impl Fn(Expiry) -> Expiry) -> Self {
        Self { expiry_before: map(self.expiry_before), expiry: map(self.expiry), ..self }
    }
}

/// The answer to an operation that is not a hit on a read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Answer {
    /// A read found nothing.
    Miss,
    /// Stored under this version.
    Stored {
        /// The new version.
        cas: u64,
    },
    /// The condition of add, replace, append or prepend did not hold.
    NotStored,
    /// The version was another.
    Exists,
    /// There is nothing under the key.
    NotFound,
    /// Removed.
    Deleted,
    /// Marked stale.
    Invalidated,
    /// The expiry was set.
    Touched,
    /// The number after the change; also when it was created by the operation.
    Number {
        /// New value.
        value: u64,
        /// New version.
        cas: u64,
        /// Expiry before the operation touched it.
        expiry_before: Expiry,
        /// Expiry after the operation.
        expiry: Expiry,
        /// It was created by this operation.
        created: bool,
    },
    /// What is there is not a decimal number of at most 20 digits.
    NonNumeric,
    /// The result would be larger than the largest item.
    TooLarge,
    /// No memory could be had, by eviction or otherwise.
    OutOfMemory,
    /// It was not carried out, or nobody knows whether it was.
    Failed(Failure),
}

/// Why an operation was not carried out. Nothing has changed, but for [`Failure::Unknown`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Failure {
    /// Who was to do it could not, or would not: a store that fails, say.
    Refused,
    /// Too much is under way. It may be asked for again a little later.
    Busy,
    /// Who has the key has not answered in time.
    Away,
    /// Whoever was to do it has failed, or fallen silent, while it was under way: it may have taken place.
    Unknown,
}

impl Failure {
    /// This, unless the operation may have taken place all the same.
    #[must_use]
    pub fn or_unknown(self, may_have_taken_place: bool) -> Self {
        if may_have_taken_place { Self::Unknown } else { self }
    }
}

impl Answer {
    /// The same with every expiry as `map` makes it.
    #[must_use]
    pub fn map_expiries(self, map: impl Fn(Expiry) -> Expiry) -> Self {
        match self {
            Self::Number { value, cas, expiry_before, expiry, created } => {
                Self::Number { value, cas, expiry_before: map(expiry_before), expiry: map(expiry), created }
            }
            other => other,
        }
    }
}
