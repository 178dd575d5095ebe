//! Rules of a cluster in OpenFlow 1.3 switches (SwitchKV, NSDI 2016, section 3.2.3; OpenFlow Switch Specification 1.3.5).
//!
//! ```text
//! Rules ---> which flows a switch is to have: gets by hash, above those by backend
//!              |
//! Switches     one thread: switches that call, each on a connection
//!   Switch       what one is to have, and has: told in batches, read again after every silence
//!     Said, Heard  what is said and heard
//!       Match, Actions
//! ```
//! [`Switch`] is a state machine without I/O or clock: bytes and moments come in, bytes go out.
//! Always true: what a switch has is read from it and not assumed; what is to be told is bounded by the flows that it has and is to have.
#![forbid(unsafe_code)]

mod flow;
mod message;
mod rate;
mod rules;
mod switch;
mod switches;
mod wire;

use std::fmt;

pub use flow::{Actions, Cookie, FlowKey, IPV4, IPV6, Masked, Match, Port, UDP};
pub use message::{DatapathId, HEADER_LEN, Heard, IsLast, PortStats, Refusal, Said, TableStats, Xid, message_len};
pub use rules::{Place, Rules};
pub use switch::{Broken, Switch, SwitchConfig, SwitchCounts, SwitchStatus, Told};
pub use switches::{Switches, SwitchesConfig, SwitchesEnded, SwitchesTold};

/// What is no OpenFlow 1.3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what came is no OpenFlow 1.3")
    }
}

impl std::error::Error for Malformed {}
