//! Rules of a cluster in OpenFlow 1.3 switches (SwitchKV, NSDI 2016, section 3.2.3; OpenFlow Switch Specification 1.3.5).
//!
//! ```text
//! Rules ---> which flows a switch is to have: gets by hash, above those by backend; Fabric: by which way, where there are several
//!              |
//! Switches     one thread: switches that call, each on a connection
//!   Switch       what one is to have, and has: told in batches, read again after every silence
//!     Said, Heard  what is said and heard
//!       Match, Actions
//!     Asked, Answer  the same at the other end
//!   Datapath     a switch of ours on a connection to whatever controller: what it is asked it does, in that order
//!     FlowTable  its flows, which outlive connections, over what looks packets up (Lookups)
//! obey         one thread: a controller that is called, and called again, and those that call
//! ```
//! [`Switch`] and [`Datapath`] are state machines without I/O or clock: bytes and moments come in, bytes go out.
//! Always true: what a switch has is read from it and not assumed; what is to be told is bounded by the flows that it has and is to have.
#![forbid(unsafe_code)]

mod answer;
mod asked;
mod callers;
mod controller;
mod datapath;
mod datapath_id;
mod fabric;
mod flow;
mod flow_table;
mod keep_alive;
mod line;
mod message;
mod rate;
mod rules;
mod rules_of_keys;
mod stream;
mod switch;
mod switches;
mod wanted;
mod wire;

use std::fmt;

pub use answer::Answer;
pub use asked::{Asked, Command, FlowMod, Role, SwitchSettings};
pub use controller::{ControllerTold, Controllers, obey};
pub use datapath::{Datapath, DatapathConfig};
pub use datapath_id::{DatapathId, NoDatapathId};
pub use fabric::{Fabric, FabricError};
pub use flow::{Actions, Cookie, FlowKey, IPV4, IPV6, Masked, Match, Port, TableId, UDP};
pub use flow_table::{FlowCounts, FlowTable, Lookups, PortStatus, Selection};
pub use line::Gone;
pub use message::{HEADER_LEN, Heard, IsLast, PortStats, Refusal, Said, TableStats, Xid, message_len};
pub use rules::{Place, RuleOf, Rules};
pub use rules_of_keys::{NoRulesOfKeys, RulesOfKeys};
pub use switch::{Broken, Switch, SwitchConfig, SwitchCounts, SwitchStatus, Told};
pub use switches::{Switches, SwitchesConfig, SwitchesEnded, SwitchesTold};
pub use wanted::{FlowAt, FlowChange, Version, WantedChanges, WantedFlows};

/// What is no OpenFlow 1.3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what came is no OpenFlow 1.3")
    }
}

impl std::error::Error for Malformed {}
