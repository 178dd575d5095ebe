//! The memcached text protocols (classic and meta), and CPSERVER's as another [`Dialect`] about the same items, without I/O:
//! bytes in, requests out; answers in, bytes out.
//!
//! - [`Session::parse`] turns what a connection has sent into a [`Batch`]: requests for a
//!   [`Service`](guira_item::Service) and, between them, lines whose text is already known.
//! - [`Batch::replies`] is the [`Sink`](guira_item::Sink) for the answers: it writes them into an [`Output`] as
//!   memcached 1.6.18 would, byte for byte, and counts them in [`Counters`].
//! - What is not about single keys comes out as a [`Control`] for the server to carry out.
//! - [`udp`] unwraps requests from datagrams and wraps answers into them.
//!
//! Always true: parsing is a pure function of the session, the settings, the time and the bytes, so a batch can be made
//! again from the same bytes and a clone of the session; nothing is allocated in proportion to a length a client
//! announces; the length of a batch is bounded.
#![forbid(unsafe_code)]

mod administration;
mod auth;
mod base64;
mod batch;
mod class_set;
mod command;
mod control;
mod counters;
mod cp;
mod dialect;
mod error_lines;
mod foresight;
pub mod grammar;
mod meta;
mod meta_flags;
mod meta_reply;
mod mutation;
mod output;
mod replies;
mod retrieval;
mod scratch;
mod session;
mod settings;
mod storage;
mod text;
mod tokens;
pub mod udp;

pub use auth::{AuthFile, AuthFileError, Credentials};
pub use batch::{BATCH_LEN_MAX, Batch};
pub use class_set::ClassSet;
pub use control::{Control, Crawler, Stats, WatchSet};
pub use counters::{ClassCounter, ClassCounters, Counters};
pub use dialect::Dialect;
pub use foresight::Guess;
pub use guira_cpwire::Malformed;
pub use output::Output;
pub use replies::{Replies, failure};
pub use scratch::Scratch;
pub use session::{LINE_LEN_MAX, Next, Parsed, Session};
pub use settings::Settings;
