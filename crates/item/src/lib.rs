//! What Guira stores, what its commands mean, and the traits behind which everything that answers stands.
//!
//! - [`Key`], [`Time`], [`Expiry`], [`Moment`]: the small types every layer speaks.
//! - [`Request`], [`Operation`], [`Answer`], [`Hit`]: what is asked of one item and what comes back.
//! - [`apply()`]: the pure function that gives every operation its meaning once, for all engines and stores.
//! - [`Rank`], [`Standing`]: which of an engine's items would go before which.
//! - [`Engine`] (in memory, answers at once) and [`Service`] (a batch of requests in, answers in order, at once or
//!   later), and the [`Sink`] into which answers go.
//! - [`store::Store`]: keeps items where they outlive the process, completes later.
//!
//! Always true: nothing here does I/O, allocates per request, or knows a wire format.
#![forbid(unsafe_code)]

mod apply;
mod engine;
mod key;
mod moment;
mod operation;
mod order;
mod service;
mod single;
mod sink;
pub mod store;
mod time;

pub use apply::{Change, Current, Decimal, NewValue, apply};
pub use engine::{
    ClassStats, ClusterStats, Engine, EngineStats, EvictionLog, ItemInfo, Loan, MemoryLimitError, MessageStats,
    OwnNumber, PartitionStats, ReassignError, ScanCursor,
};
pub use key::{KEY_LEN_MAX, Key, KeyError};
pub use moment::{Moment, Span};
pub use operation::{
    Answer, Arithmetic, ArithmeticMode, CasRule, Delete, Failure, Get, Hit, Invalidate, Operation, Request, Restore,
    Store, StoreMode,
};
pub use order::{OrderCursor, Rank, Standing};
pub use service::{Immediate, Service, Ticket, Wake};
pub use single::{Single, gathered};
pub use sink::{Death, Footprint, Footprints, PinnedValue, Sink, VALUE_SLACK_LEN};
pub use time::{Clock, Expiry, Time};
