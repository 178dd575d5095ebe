//! What clusters share: peers' datagrams, sessions between two nodes, and their clocks.
//!
//! ```text
//! Link                 what two nodes tell each other in one session: in order, and once
//! Transport            one node's way to the others
//!   UdpTransport         its socket for datagrams: many a system call
//!     Outgoing             what waits to be sent, bounded
//!     Bundle, messages     several messages in one datagram
//!   GetSocket            gets that the network routes: where they come
//!   Streams              what does not fit into a datagram, over TCP
//!     Caller, StreamReader how a stream begins, and what its bytes are
//!   Sealer               who sent it, to whom, in which epoch, and a keyed hash over all of it
//! Members              who is in the view, and where
//! write_whole          a file that is there whole or not at all
//! FileError, read_file what the files of all clusters have in common
//! LineSocket           how a member on this machine is asked how it is
//!   SocketFile           where, and that nobody else answers there
//! Life                 what a member begins with
//! NodeClock            a node's moments and the cluster's seconds
//! Drift                how far two members' moments drift apart, and what that takes from a lease
//! Core, DriverHandle   a state machine on its sockets, with a thread of its own; boot_now
//!   Host, Machine        the same by a cluster's protocol, with what other threads tell it and look at
//! ```
//! Always true: what a receiver is shown comes from a member of its own view, from that member's address, and is what
//! the member sent to it, in whatever epoch (what is of another one is counted: views come sooner here than there, and what is fenced off by a number says so
//! itself). Messages may be lost, repeated and overtaken: sessions are above this. Nothing is allocated for a datagram, and for a
//! stream only what a greeting takes, before it is known to be one of ours.
#![forbid(unsafe_code)]

mod bundle;
mod clock;
mod clocks;
mod cluster_file;
mod counts;
mod drift;
mod driver;
mod gets;
mod host;
mod life;
mod line_socket;
mod link;
mod members;
mod outgoing;
mod refusal;
mod seal;
mod socket_file;
mod stream;
mod transport;
mod udp;
mod whole_file;

pub use bundle::{BODY_LEN_MAX, Bundle, MESSAGE_LEN_MAX, Malformed, messages};
pub use clock::{CLOCK, NodeClock};
pub use clocks::{boot_now, unix_now};
pub use cluster_file::{
    CommonSettings, FileError, ITEM_LEN_DEFAULT, ITEM_LEN_MAX, ITEM_LEN_MIN, SECRET_LEN_MIN, check_addresses,
    check_bounds, clients_values_len_max, read_file, values_len_max,
};
pub use counts::Counts;
pub use drift::Drift;
pub use driver::{Core, DriverError, DriverHandle, Poster};
pub use gets::{GetWay, GetsOf};
pub use host::{Ended, Host, HostOf, Local, Machine, MemberHost, Protocol, Wire, look_by};
pub use life::{LIVES_APART, Life, LifeError};
pub use line_socket::{LineSocket, ask_line};
pub use link::{
    Frame, Incarnation, Link, LinkBounds, LinkFull, Opening, QUEUE_LEN_MAX, Seq, SessionId, Weigh, long_wait,
};
pub use members::{Members, MembersError};
pub use seal::{DATAGRAM_LEN_MAX, Epoch, HEADER_LEN, Opened, Rejection, Sealer, Secret};
pub use socket_file::SocketFile;
pub use stream::{
    Caller, GREETING_LEN, Greeting, LONG_MESSAGE_LEN_MAX, Long, NoGreeting, Nonce, Step, StreamError, StreamReader,
    long_frame,
};
pub use transport::Transport;
pub use udp::UdpTransport;
pub use whole_file::write_whole;
