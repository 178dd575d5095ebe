//! A router for gets by content that wants no switch (SwitchKV, NSDI 2016, section 3.1.2): an eBPF program on links of Linux, which looks up what a
//! switch would, and what tells it its rules.
//!
//! ```text
//! controller --- OpenFlow ---> FlowTable          which flows there are (guira-openflow)
//!                                |
//! Router                       Lookups            which of them the program can do
//!   route.c, on each link <--- Tables             maps: places by hash, and by node
//! ```
//! The program is in `bpf/route.c`, and is compiled when this crate is. It sees a frame before the host does, by the driver where that can, and
//! else by the kernel's generic way.
//! Always true: what is no frame of the cluster's comes to the host as it was; a rule is there for all packets that come after it was made.
#![deny(unsafe_code)]

mod place;
mod router;
mod tables;
mod trial;

pub use place::PORTS_MAX;
pub use router::{Action, Link, LinkStatus, Links, Mode, Router, RouterConfig, RouterError, check};
pub use tables::Counts;
pub use trial::{Frames, Trial, Verdict};
