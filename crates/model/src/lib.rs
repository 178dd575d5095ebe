//! Exhaustive checks of both clusters, by the cores that serve, in every order of what can happen to them within bounds.
//!
//! Always true: no protocol is written down here a second time; what is checked is what serves.
#![forbid(unsafe_code)]

mod all;
mod bounds;
mod explore;
pub mod switched;
pub mod symmetric;

pub use all::{Checked, Mutant, Topology, models, names};
pub use bounds::Bounds;
pub use explore::{Found, Report};
