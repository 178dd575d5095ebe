//! The switched cluster (SwitchKV): hot keys are routed to a few cache nodes, all others straight to the backend that has them, and every answer
//! is linearizable for its key.
//!
//! ```text
//! clients --> Gateway --(a rule for the hash)--> CacheNode --(not there)--> Backend --> store
//!               ^  \------(none)------------------------------------------> Backend
//!               | routes                           ^ values, updates, leases |
//!               Controller <---- rules ---- CacheNode ---- fetches, drops --/
//! ```
//! Each is a state machine, `step(now, what happened, &mut Outbox)`, without I/O, clock or randomness but what is handed in: drivers put them on
//! sockets, the simulator into virtual time.
//!
//! - [`backend`], [`cache_node`], [`controller`], [`gateway`]: the four.
//! - [`host`]: the four on sockets and threads, and a gateway as a service.
//! - [`CacheMode`]: how a gateway uses cache nodes, for comparison.
//! - [`Message`]: what they tell each other. [`Outbox`]: what a step wants done.
//! - [`StaticFile`]: a cluster as a file says it is. [`host`]: the cores on sockets and threads.
//! - [`Mutant`]: faults that the checkers have to find out.
#![forbid(unsafe_code)]

pub mod backend;
mod cache_mode;
pub mod cache_node;
pub mod controller;
pub mod gateway;
mod happened;
mod holdings;
pub mod host;
mod initiator;
mod message;
mod mutant;
mod outbox;
mod shares;
mod static_file;
mod view;

pub use cache_mode::CacheMode;
pub use guira_cluster::{Drift, LIVES_APART, Life, LifeError};
use guira_cluster::{Frame, SessionId};
pub use happened::Happened;
pub use holdings::{Done, Holdings};
pub use message::{Ask, Asker, Body, ItemCopy, KeyBytes, Loaded, Message, NoMessage, Number, Said};
pub use mutant::Mutant;
pub use outbox::{AskId, Outbox, Scan, ScanBounds, ScanNumber, Scanned, Scanning, StoreCall};
pub use shares::{Commit, Committed, Revision, Shares};
pub use static_file::{
    BackendRole, JoinedError, JoinedSwitch, Link, Member, Network, NetworkError, Plug, ReportsName, Role, Router,
    SECRET_LEN_MIN, StandbyError, StaticFile, StaticFileError, hash_of, part_of,
};
pub use view::View;

/// Bytes of a key and its value together that a cluster may be told to take: an item and what goes with it fit into a message.
pub const ITEM_LEN_MAX: usize = 16 << 20;
const _: () = assert!(ITEM_LEN_MAX + 1_024 <= guira_cluster::LONG_MESSAGE_LEN_MAX);

/// And that it has to be told at least.
pub const ITEM_LEN_MIN: usize = 1 << 10;

/// As many as a cluster takes if it is not told.
pub const ITEM_LEN_DEFAULT: usize = 1 << 20;

/// Bytes of values in one place, at most: some of the longest, and never so few that small ones would be refused.
const fn values_len_max(least: usize, items: usize, item_len_max: usize) -> usize {
    let some = items * item_len_max;
    if some > least { some } else { least }
}

/// A frame as a message of who gives partitions away.
fn given(session: SessionId, frame: Frame<&Body>) -> Message<'static> {
    let Frame { ack, seq, body } = frame;
    Message::Given { session, ack, seq, body: body.cloned() }
}

/// A frame as a message.
fn told(session: SessionId, frame: Frame<&Body>) -> Message<'static> {
    let Frame { ack, seq, body } = frame;
    Message::Told { session, ack, seq, body: body.cloned() }
}
