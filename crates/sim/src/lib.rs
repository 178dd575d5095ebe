//! A deterministic simulator of clusters: the very cores that serve, in virtual time, with everything that can go wrong going wrong.
//!
//! ```text
//! World   what happens, in the order of virtual time: one seed, one history
//!   members   who there is, each a core of `guira_switched`
//!   Clock     each node's own, fast or slow and changing
//!   Network   loses, doubles, delays and cuts
//!   Switch    routes for a gateway, by rules that it has had the time to make
//!   Disk      a backend's store: late, failing, and after a crash what it had
//!   Clients   ask, and write down what they were told
//! register    what one key may do: for the histories, which must be linearizable
//! campaign    many runs, on all processors
//! symmetric   the other cluster: a world of its own, on the same clocks, network, clients and checks
//! load        how much a cluster serves: nothing goes wrong, but nodes are as fast as they are
//! ```
//! Always true: a run is a function of its scenario and its seed; nothing here reads a clock or draws from anything else.
#![forbid(unsafe_code)]

mod agenda;
mod campaign;
mod chance;
mod clients;
mod clock;
mod disk;
mod faults;
mod host;
mod in_order;
pub mod load;
mod members;
mod network;
mod register;
mod scenario;
mod simulation;
mod standbys;
mod switch;
pub mod symmetric;
mod table;
mod world;

pub use campaign::{Failed, RUN, Summary, campaign};
pub use clients::Tally;
pub use register::{Act, Register, Seen, State};
pub use scenario::{Report, SCENARIOS, Scenario};
pub use simulation::{Failure, Simulation, Together, run};
pub use switch::SwitchBounds;
