//! What clusters share: peers' datagrams, sessions between two nodes, and their clocks.
//!
//! ```text
//! Link                 what two nodes tell each other in one session: in order, and once
//! UdpTransport         one node's socket: many datagrams a system call
//!   Outgoing             what waits to be sent, bounded
//!   Bundle, messages     several messages in one datagram
//!   Sealer               who sent it, to whom, in which epoch, and a keyed hash over all of it
//! Members              who is in the view, and where
//! LineSocket           how a member on this machine is asked how it is
//! NodeClock            a node's moments and the cluster's seconds
//! Core, DriverHandle   a state machine on a socket, with a thread of its own; boot_now
//! ```
//! Always true: what a receiver is shown comes from a member of its own view, from that member's address, in that view's epoch, and is what
//! the member sent to it. Messages may be lost, repeated and overtaken: sessions are above this. Nothing is allocated for a datagram
//! before it is known to be one of ours.
#![forbid(unsafe_code)]

mod bundle;
mod clock;
mod clocks;
mod counts;
mod driver;
mod line_socket;
mod link;
mod members;
mod outgoing;
mod seal;
mod udp;

pub use bundle::{BODY_LEN_MAX, Bundle, MESSAGE_LEN_MAX, Malformed, messages};
pub use clock::{CLOCK, NodeClock};
pub use clocks::{boot_now, unix_now};
pub use counts::Counts;
pub use driver::{Core, DriverError, DriverHandle, Poster};
pub use line_socket::{LineSocket, ask_line};
pub use link::{Frame, Incarnation, Link, LinkFull, Opening, QUEUE_LEN_MAX, Seq, SessionId};
pub use members::{Members, MembersError};
pub use seal::{DATAGRAM_LEN_MAX, Epoch, HEADER_LEN, Opened, Rejection, Sealer, Secret};
pub use udp::UdpTransport;
