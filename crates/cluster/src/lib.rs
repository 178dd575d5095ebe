//! What clusters share: sessions between two nodes, and their clocks.
//!
//! - [`Link`]: what two nodes tell each other in one session, in order and once, over datagrams; [`SessionId`] tells sessions apart.
//! - [`NodeClock`]: a node's moments and the cluster's seconds.
#![forbid(unsafe_code)]

mod clock;
mod link;

pub use clock::{CLOCK, NodeClock};
pub use link::{Frame, Incarnation, Link, LinkFull, Opening, QUEUE_LEN_MAX, Seq, SessionId};
