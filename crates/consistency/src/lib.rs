//! One hot key, the same on all nodes of a symmetric cluster (ccKVS, EuroSys'18): every node has it, any node reads and writes it.
//!
//! ```text
//! clients --> Replica <--- Invalidate, Ack, Validate ---> Replica <-- clients
//!               |  ^                                        |
//!     Forward, Shard  promote, evict, written back        (the same)
//!               v  |
//!             the key's home: its shard, when the key is not hot
//! ```
//! [`Replica`] is one node's side of all hot keys, a state machine without I/O, clock or randomness: `step(now, what happened, &mut Outbox)`.
//!
//! - [`Consistency::Lin`]: every answer is linearizable for its key (`writing`). [`Consistency::Sc`]: all agree on the order (`sequential`).
//! - [`View`]: who is there. Leases, views and shards are the driver's; it says when they change.
//! - Keys come and go: promotions and evictions are rounds of the same protocol (`hot_set`); so do members (`joining`).
//! - [`Mutant`]: faults that the checkers have to find out.
//!
//! The design, with what each rule is for: `docs/design/0037-one-hot-key-on-all-nodes.md`.
#![forbid(unsafe_code)]

mod bytes;
mod entries;
mod entry;
mod ground;
mod happened;
mod hot_set;
mod joining;
mod message;
mod mutant;
mod operation;
mod outbox;
mod replica;
mod sequential;
mod timestamp;
mod version;
mod view;
mod wish;
mod writing;

pub use bytes::{Bytes, Key};
pub use ground::{Config, Consistency, Counts};
pub use happened::Happened;
pub use message::{Copied, Envelope, Message};
pub use mutant::Mutant;
pub use operation::{Operation, Outcome, RequestId, Sequence, Session, Ticket};
pub use outbox::{Outbox, WriteBack};
pub use replica::{Replica, Seen};
pub use timestamp::{Kind, Timestamp, Writer};
pub use version::{Done, Version, Window};
pub use view::{Epoch, Generation, View};
pub use wish::{Answer, Changed, Value, Wish};
