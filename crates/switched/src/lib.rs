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
pub use guira_cluster::{
    Drift, FileError, ITEM_LEN_DEFAULT, ITEM_LEN_MAX, ITEM_LEN_MIN, LIVES_APART, Life, LifeError, SECRET_LEN_MIN,
};
use guira_cluster::{Frame, SessionId, values_len_max};
pub use happened::Happened;
pub use holdings::{Done, Holdings};
pub use message::{Ask, Asker, Body, ItemCopy, KeyBytes, Loaded, Message, NoMessage, Number, Said};
pub use mutant::Mutant;
pub use outbox::{AskId, Outbox, Scan, ScanBounds, ScanNumber, Scanned, Scanning, StoreCall};
pub use shares::{Commit, Committed, Revision, Shares};
pub use static_file::{
    BackendRole, JoinedError, JoinedSwitch, Link, Member, Network, NetworkError, Plug, ReportsName, Role, Router,
    StandbyError, StaticFile, StaticFileError, hash_of, part_of,
};
pub use view::View;

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
