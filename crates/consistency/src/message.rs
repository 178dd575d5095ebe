//! What replicas tell each other.
//!
//! ```text
//! writer --- Invalidate --> all       all --- Ack --> writer       writer --- Validate --> all
//! home ----- Invalidate, that creates the entry --> all            (a promotion: the same round)
//! home ----- Evict --> all            all --- Holding --> home
//! home ----- Forget --> all           all --- Forgotten --> home
//! writer --- Update --> all           all --- Ack --> writer       any --- Question --> writer     (SC)
//! joiner --- Fetch --> one            one --- Fetched --> joiner
//! ```
//! Always true: each may be lost, come twice, or come in any order; what is waited for is told again.

use serde::{Deserialize, Serialize};

use crate::{Epoch, Generation, Key, Timestamp, Version, version::Window};

/// A message, and the epoch in which it was told.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// In any other one it means nothing.
    pub epoch: Epoch,
    /// What is told.
    pub message: Message,
}

/// One message.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A write is under way: nobody is to serve what was there before.
    Invalidate {
        /// Of which key.
        key: Key,
        /// In which of its times in the hot set.
        generation: Generation,
        /// The write.
        version: Version,
        /// What the key remembers of requests.
        done: Window,
        /// The key becomes hot by it: a promotion.
        creates: bool,
    },
    /// Who says this has nothing older any more, and will tell whoever joins so.
    Ack {
        /// Of which key.
        key: Key,
        /// As it was told: one of an earlier time in the hot set says nothing of who has an entry now.
        generation: Generation,
        /// Than this.
        at: Timestamp,
    },
    /// All have acknowledged it: it may be served.
    Validate {
        /// Of which key.
        key: Key,
        /// In which of its times in the hot set: it may come to be hot again with nothing written since.
        generation: Generation,
        /// What.
        at: Timestamp,
    },
    /// A write has taken place that nobody had to wait for (SC).
    Update {
        /// Of which key.
        key: Key,
        /// In which of its times in the hot set.
        generation: Generation,
        /// The write.
        version: Version,
        /// What the key remembers of requests.
        done: Window,
        /// Something is to be made of it: who has something newer says so and does not acknowledge it.
        settles: bool,
    },
    /// What has become of a write that is not valid where this is asked (SC)? Told by an update, when it is over.
    Question {
        /// Of which key.
        key: Key,
        /// Which.
        at: Timestamp,
    },
    /// The key is to be hot no more: finish what you are writing, serve it no longer, and say what you have.
    Evict {
        /// Which.
        key: Key,
        /// Which of its times in the hot set is over.
        generation: Generation,
    },
    /// What who says this has of a key that it does not serve, or not yet; to its home.
    Holding {
        /// Which.
        key: Key,
        /// In which of its times in the hot set.
        generation: Generation,
        /// From which of them that is which it has.
        of: Generation,
        /// What it has; `None`: nothing.
        version: Option<Version>,
        /// What it remembers of requests.
        done: Window,
        /// It serves it no more; otherwise not yet.
        is_leaving: bool,
        /// There may have been a home meanwhile that has known nothing of it.
        is_doubtful: bool,
    },
    /// The home has all there is of the key in its shard: forget it.
    Forget {
        /// Which.
        key: Key,
        /// Up to this of its times in the hot set.
        generation: Generation,
    },
    /// Who says this has nothing of it any more.
    Forgotten {
        /// Of which key.
        key: Key,
        /// Up to which of its times in the hot set.
        generation: Generation,
    },
    /// Somebody joins who has nothing.
    Fetch {
        /// The number of his question.
        number: u32,
        /// He has what is up to this key.
        after: Option<Key>,
    },
    /// Some of what there is, by key.
    Fetched {
        /// As he asked.
        number: u32,
        /// So much.
        page: Vec<Copied>,
        /// There is more behind the last one.
        has_more: bool,
    },
}

impl Message {
    /// The keys that it is about.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let (key, page) = match self {
            Self::Invalidate { key, .. }
            | Self::Ack { key, .. }
            | Self::Validate { key, .. }
            | Self::Update { key, .. }
            | Self::Question { key, .. }
            | Self::Evict { key, .. }
            | Self::Holding { key, .. }
            | Self::Forget { key, .. }
            | Self::Forgotten { key, .. } => (Some(key), &[][..]),
            Self::Fetch { after, .. } => (after.as_ref(), &[][..]),
            Self::Fetched { page, .. } => (None, &page[..]),
        };
        key.into_iter().chain(page.iter().map(|copied| &copied.key))
    }

    /// Bytes of the values in it.
    pub fn values_len(&self) -> usize {
        let len = |version: &Version| version.value.as_ref().map_or(0, |value| value.bytes.len());
        match self {
            Self::Invalidate { version, .. } | Self::Update { version, .. } => len(version),
            Self::Holding { version, .. } => version.as_ref().map_or(0, len),
            Self::Fetched { page, .. } => page.iter().map(|copied| len(&copied.version)).sum(),
            _ => 0,
        }
    }
}

/// A hot key, as a member has it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Copied {
    /// Which.
    pub key: Key,
    /// In which of its times in the hot set.
    pub generation: Generation,
    /// From which of them what was written last is.
    pub of: Generation,
    /// What was written last.
    pub version: Version,
    /// What it remembers of requests.
    pub done: Window,
    /// That may be served.
    pub is_valid: bool,
    /// Its promotion is over.
    pub is_hot: bool,
    /// It is on its way out.
    pub is_leaving: bool,
    /// There may have been a home meanwhile that has known nothing of it.
    pub is_doubtful: bool,
}
