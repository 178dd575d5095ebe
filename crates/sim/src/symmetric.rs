//! The symmetric cluster in virtual time: nodes that all have the hot keys, and the coordinator that gives out views and leases.
//!
//! ```text
//! World   what happens, in the order of virtual time
//!   members   a coordinator and nodes, each a core of `guira_symmetric`
//!   given     what the coordinator's disk has, and which keys each new view may have lost
//!   faults    what goes wrong
//!   settling  the end of a round
//! load    how much such a cluster serves at the paper's scale
//! ```
//! Always true: as of the switched cluster, a run is a function of its scenario and its seed; cold keys are lost only with their home, which is told to the checker when it may be.

mod coming;
mod faults;
mod given;
pub mod load;
mod members;
mod report;
mod scenario;
mod settling;
mod world;

pub use report::Report;
pub use scenario::{Mutant, SCENARIOS, Scenario};
