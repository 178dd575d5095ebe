//! What came of an operation.

use std::sync::Arc;

use guira_chain::Reply;
use guira_item::{Answer, Request};

use crate::Error;

/// The version of an item: each change of its value gives it a higher one. 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version(pub u64);

/// An item as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Its bytes.
    pub value: Arc<[u8]>,
    /// The flags that it was stored with.
    pub flags: u32,
    /// Its version, for [`Client::compare_and_set`](crate::Client::compare_and_set).
    pub version: Version,
}

/// What came of an operation of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was read.
    Found(Item),
    /// There is nothing under the key.
    NotFound,
    /// The value is stored, with this version.
    Stored(Version),
    /// There was an item and none was to be, or the other way round (add, replace, append, prepend).
    NotStored,
    /// The item has another version.
    Changed,
    /// The item is gone.
    Deleted,
    /// The item ends when it was told to.
    Touched,
    /// The number, after the change.
    Number(u64),
}

/// What came of a [`Client::compare_and_set`](crate::Client::compare_and_set).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compared {
    /// The value is stored, with this version.
    Stored(Version),
    /// The item has another version.
    Changed,
    /// There is no item.
    NotFound,
}

impl Outcome {
    /// What a reply to a request means.
    pub(crate) fn of(reply: Reply, request: &Request<'_>, item_len_max: usize) -> Result<Self, Error> {
        let answer = match reply {
            Reply::Hit(hit, value) => {
                let value = value.unwrap_or_default();
                return Ok(Self::Found(Item { value, flags: hit.flags, version: Version(hit.cas) }));
            }
            Reply::Answer(answer, _) => answer,
        };
        match answer {
            Answer::Miss | Answer::NotFound => Ok(Self::NotFound),
            Answer::Stored { cas } => Ok(Self::Stored(Version(cas))),
            Answer::NotStored => Ok(Self::NotStored),
            Answer::Exists => Ok(Self::Changed),
            Answer::Deleted => Ok(Self::Deleted),
            Answer::Touched => Ok(Self::Touched),
            Answer::Number { value, .. } => Ok(Self::Number(value)),
            Answer::NonNumeric => Err(Error::NotANumber),
            Answer::TooLarge => {
                let len = request.key.as_bytes().len() + request.operation.value_len();
                Err(Error::TooLarge { len, max: item_len_max })
            }
            Answer::OutOfMemory => Err(Error::Refused),
            Answer::Failed(why) => Err(why.into()),
            // Nobody has asked for it.
            Answer::Invalidated => Err(Error::Unknown),
        }
    }

    // What follows is for operations of one kind each. An answer that does not fit says nothing about what has happened.

    pub(crate) fn item(self) -> Result<Option<Item>, Error> {
        match self {
            Self::Found(item) => Ok(Some(item)),
            Self::NotFound => Ok(None),
            _ => Err(Error::Unknown),
        }
    }

    pub(crate) fn stored(self) -> Result<Option<Version>, Error> {
        match self {
            Self::Stored(version) => Ok(Some(version)),
            Self::NotStored => Ok(None),
            _ => Err(Error::Unknown),
        }
    }

    pub(crate) fn compared(self) -> Result<Compared, Error> {
        match self {
            Self::Stored(version) => Ok(Compared::Stored(version)),
            Self::Changed => Ok(Compared::Changed),
            Self::NotFound => Ok(Compared::NotFound),
            _ => Err(Error::Unknown),
        }
    }

    pub(crate) fn number(self) -> Result<Option<u64>, Error> {
        match self {
            Self::Number(number) => Ok(Some(number)),
            Self::NotFound => Ok(None),
            _ => Err(Error::Unknown),
        }
    }

    pub(crate) fn was_there(self) -> Result<bool, Error> {
        match self {
            Self::Deleted | Self::Touched => Ok(true),
            Self::NotFound => Ok(false),
            _ => Err(Error::Unknown),
        }
    }
}
