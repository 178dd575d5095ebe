//! How a shard comes back to its own node: what that asks of whoever is home meanwhile, and what it is given.
//!
//! ```text
//! own node                        home                             coordinator
//!    |--- Fetch: page 1 ----------->|  what it has, by pages
//!    |<-- Page: 1, there is more ---|  what changes meanwhile it remembers, and gives again
//!    |--- Fetch: page 2 ----------->|  ...
//!    |<-- Page: n, all there is ----|  from here on it serves the shard no more in this view
//!    |--- Here: I have my shard, in this view --------------------->|  is home in the next one
//! ```
//! Always true: of what a page has told the copy is what the home has, but for what is remembered as changed; so it is all there is with the last page, as long as the view lasts.

use guira_consistency::{Epoch, Key, Value, Writer};
use serde::{Deserialize, Serialize};

/// Which copy: numbers of a node go up, for as long as its process lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct CopyNumber(pub u64);

/// Which page of a copy, from 1 on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct PageNumber(pub u64);

impl PageNumber {
    pub(crate) const FIRST: Self = Self(1);

    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A page of a copy, as it is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fetch {
    /// The view in which this is asked: in any other one it is nothing.
    pub epoch: Epoch,
    /// Who asks, as a member.
    pub writer: Writer,
    /// Of which shard.
    pub shard: usize,
    /// For which copy.
    pub copy: CopyNumber,
    /// Which page: the next one, or the last one again.
    pub page: PageNumber,
}

/// A page of a copy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Page {
    /// As it was asked for, in the view that both are in.
    pub fetch: Fetch,
    /// What keys have, or that they have nothing any more.
    pub items: Vec<(Key, Option<Value>)>,
    /// The highest version that any key of that home has had.
    pub highest: u32,
    /// What else there is.
    pub rest: Rest,
}

/// What else a home has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Rest {
    /// More.
    More,
    /// What waits for keys that come to be hot, or cease to.
    Waits,
    /// Nothing: these are all, and the home serves the shard no more in this view.
    Nothing,
    /// Everything: the copy is to begin anew.
    All,
}

/// How shards come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HomecomingConfig {
    /// Bytes of a page, about, if no item is longer.
    pub page_len_max: usize,
    /// A fault put in on purpose, for the tests of the checkers.
    pub mutant: Option<HomecomingMutant>,
}

impl HomecomingConfig {
    /// Some hundred small items a page: a fraction of a millisecond, in which nobody else is served.
    pub const USUAL: Self = Self { page_len_max: 64 << 10, mutant: None };

    pub(crate) fn has(&self, mutant: HomecomingMutant) -> bool {
        self.mutant == Some(mutant)
    }
}

/// Faults that have to be found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HomecomingMutant {
    /// A page is taken for all there is.
    PageIsAll,
    /// What is written while a copy goes on is not remembered.
    WriteUntold,
    /// A home goes on serving what it has given away.
    Unsealed,
    /// A page that comes late, or twice, is taken again.
    OldPage,
    /// What is there from a copy before is kept when one begins anew.
    OldCopy,
    /// Who has given a shard away forgets what it has settled there.
    SettledForgotten,
    /// A shard is given while some of its keys are on their way into the hot set or out of it. No simulated run has found this one yet.
    HotUnsettled,
    /// What was all there is in one view is taken for that in the next.
    OldSeal,
}

impl HomecomingMutant {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::PageIsAll,
        Self::WriteUntold,
        Self::Unsealed,
        Self::OldPage,
        Self::OldCopy,
        Self::SettledForgotten,
        Self::HotUnsettled,
        Self::OldSeal,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::PageIsAll => "page-is-all",
            Self::WriteUntold => "write-untold",
            Self::Unsealed => "unsealed",
            Self::OldPage => "old-page",
            Self::OldCopy => "old-copy",
            Self::SettledForgotten => "settled-forgotten",
            Self::HotUnsettled => "hot-unsettled",
            Self::OldSeal => "old-seal",
        }
    }
}
