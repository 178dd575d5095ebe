//! What the files of all clusters have in common: how they are read, what members know each other by, and what numbers and addresses may be.
//!
//! Always true: whoever has written something that is no cluster is told so in one line.

use std::{fmt, net::SocketAddr, ops::RangeInclusive};

use serde::de::DeserializeOwned;

use crate::{LONG_MESSAGE_LEN_MAX, MembersError};

/// Bytes of a secret, at least: 128 bits, if it was drawn.
pub const SECRET_LEN_MIN: usize = 16;

/// Bytes of a key and its value together that a cluster may be told to take: an item and what goes with it fit into a message.
pub const ITEM_LEN_MAX: usize = 16 << 20;
const _: () = assert!(ITEM_LEN_MAX + 1_024 <= LONG_MESSAGE_LEN_MAX);

/// And that it has to be told at least.
pub const ITEM_LEN_MIN: usize = 1 << 10;

/// As many as a cluster takes if it is not told.
pub const ITEM_LEN_DEFAULT: usize = 1 << 20;

/// Bounds of a lease: below, a busy machine loses it for nothing; above, a change waits for too long for who has died.
const LEASE_MS: RangeInclusive<u64> = 100..=60_000;

/// How long a client may wait for an answer.
const ANSWER_WITHIN_MS: RangeInclusive<u64> = 100..=600_000;

/// What is wrong with a file, whatever cluster it is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileError {
    /// It cannot be read as one.
    Syntax(String),
    /// The secret has fewer bytes than it should.
    Secret,
    /// A number is beyond what is of use.
    Bounds(&'static str),
    /// A number or an address is used twice.
    Members(MembersError),
    /// The address of this member is one that datagrams cannot come from.
    Nowhere(u16),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(told) => f.write_str(told),
            Self::Secret => write!(f, "secret: at least {SECRET_LEN_MIN} bytes, such as of `openssl rand -hex 16`"),
            Self::Bounds(told) => f.write_str(told),
            Self::Members(error) => write!(f, "members: {error}"),
            Self::Nowhere(id) => {
                write!(f, "member {id}: its address has to be the one, with its port, that its datagrams come from")
            }
        }
    }
}

impl std::error::Error for FileError {}

impl From<MembersError> for FileError {
    fn from(error: MembersError) -> Self {
        Self::Members(error)
    }
}

/// What the file of any cluster says.
#[derive(Clone, Copy, Debug)]
pub struct CommonSettings<'f> {
    /// What members know each other by.
    pub secret: &'f str,
    /// How long a lease is.
    pub lease_ms: u64,
    /// How long a client waits for an answer.
    pub answer_within_ms: u64,
    /// Bytes of a key and its value, at most.
    pub item_len_max: usize,
}

impl CommonSettings<'_> {
    /// Whether a cluster may be told that.
    ///
    /// # Errors
    /// [`FileError::Secret`], [`FileError::Bounds`].
    pub fn check(&self) -> Result<(), FileError> {
        if self.secret.len() < SECRET_LEN_MIN {
            return Err(FileError::Secret);
        }
        check_bounds([
            (LEASE_MS.contains(&self.lease_ms), "lease_ms: from 100 to 60000"),
            (ANSWER_WITHIN_MS.contains(&self.answer_within_ms), "answer_within_ms: from 100 to 600000"),
            ((ITEM_LEN_MIN..=ITEM_LEN_MAX).contains(&self.item_len_max), "item_len_max: from 1024 to 16777216"),
        ])
    }
}

/// What is said of the first number that is beyond its bounds.
///
/// # Errors
/// [`FileError::Bounds`].
pub fn check_bounds(bounds: impl IntoIterator<Item = (bool, &'static str)>) -> Result<(), FileError> {
    let wrong = bounds.into_iter().find(|(holds, _)| !holds);
    wrong.map_or(Ok(()), |(_, told)| Err(FileError::Bounds(told)))
}

/// Whether datagrams can come from all of these members' addresses.
///
/// # Errors
/// [`FileError::Nowhere`].
pub fn check_addresses(members: impl IntoIterator<Item = (u16, SocketAddr)>) -> Result<(), FileError> {
    let is_nowhere = |address: &SocketAddr| address.ip().is_unspecified() || address.port() == 0;
    let nowhere = members.into_iter().find(|(_, address)| is_nowhere(address));
    nowhere.map_or(Ok(()), |(id, _)| Err(FileError::Nowhere(id)))
}

/// What a text says, or in which line it does not.
///
/// # Errors
/// [`FileError::Syntax`].
pub fn read_file<T: DeserializeOwned>(text: &str) -> Result<T, FileError> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        FileError::Syntax(format!("line {line}: {}", error.message().replace('\n', ", ")))
    })
}

/// Bytes of values in one place, at most: some of the longest, and never so few that small ones would be refused.
pub const fn values_len_max(least: usize, items: usize, item_len_max: usize) -> usize {
    let some = items * item_len_max;
    if some > least { some } else { least }
}

/// Bytes of values of clients that a member may have under way, of each kind that it counts.
pub const fn clients_values_len_max(item_len_max: usize) -> usize {
    values_len_max(256 << 20, 64, item_len_max)
}
