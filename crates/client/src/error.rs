//! Why an operation was not carried out, or may not have been.

use std::fmt;

use guira_item::{Failure, KEY_LEN_MAX, KeyError};

/// Why an operation was not carried out. Nothing has happened, but for [`Error::Unknown`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The key has no bytes, or too many.
    KeyInvalid(KeyError),
    /// Key and value together, with what is there if they were to be added to it, are beyond what the cluster takes (`item_len_max` of its file).
    TooLarge {
        /// Bytes of the key and the value that were given.
        len: usize,
        /// Bytes of key and value together, at most.
        max: usize,
    },
    /// What is there is not a decimal number of at most 20 digits.
    NotANumber,
    /// The cluster has not done it: the store of who has the key fails, or what is there is longer than the cluster takes. It may be asked again.
    Refused,
    /// Too much is under way, here or at who has the key; or there was no room for the answer ([`Client::batch`](crate::Client::batch)). It may be asked again a
    /// little later.
    Busy,
    /// Who has the key has not answered in time (`answer_within_ms` of the cluster's file): this, what was asked of the key before it in the same call, or
    /// anything for so long that nobody is kept waiting any more. It may be asked again.
    Away,
    /// Nobody can say whether the change took place: its backend died, or fell silent, while it was under way. Who reads the item sees what there is
    /// now; a change that is still under way may come after that.
    Unknown,
    /// The client is closed: [`Client::closing`](crate::Client::closing) says why. What was under way then may be told to be refused, or of unknown
    /// outcome.
    Closed,
}

/// Why a client is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// The program has said so.
    Asked,
    /// The cluster that etcd keeps does not name this member any more, or names it at another address, or as something else.
    Removed,
    /// Another process is this member, in a later life than this one; or the clock was set back since the last one
    /// ([`life_file`](crate::ClientOptions::life_file)).
    Outlived {
        /// The number of that life.
        later: u64,
    },
    /// Its thread has ended by itself, after telling why on the standard error: please report that.
    Panicked,
}

impl fmt::Display for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("the program has closed it"),
            Self::Removed => f.write_str("the cluster does not name this member any more"),
            Self::Outlived { later } => {
                write!(f, "another process is this member, in a later life ({later}), or the clock was set back")
            }
            Self::Panicked => f.write_str("its thread has ended by itself"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyInvalid(KeyError::Empty) => write!(f, "a key without bytes: at least 1, at most {KEY_LEN_MAX}"),
            Self::KeyInvalid(KeyError::TooLong { len }) => write!(f, "a key of {len} bytes: at most {KEY_LEN_MAX}"),
            Self::TooLarge { len, max } if len > max => {
                write!(f, "an item of {len} bytes, key and value together: at most {max}")
            }
            Self::TooLarge { len, max } => {
                write!(f, "{len} bytes, key and value together, do not fit with what is there: at most {max}")
            }
            Self::NotANumber => f.write_str("what is there is not a decimal number of at most 20 digits"),
            Self::Refused => f.write_str("refused: the cluster could not do it, nothing has happened"),
            Self::Busy => f.write_str("busy: too much is under way, nothing has happened"),
            Self::Away => f.write_str("who has this key has not answered in time, nothing has happened"),
            Self::Unknown => f.write_str("the outcome is unknown, the operation may have taken place"),
            Self::Closed => f.write_str("the client is closed, nothing has happened"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Failure> for Error {
    fn from(why: Failure) -> Self {
        match why {
            Failure::Refused => Self::Refused,
            Failure::Busy => Self::Busy,
            Failure::Away => Self::Away,
            Failure::Unknown => Self::Unknown,
        }
    }
}
