//! Exhaustive checks of the switched cluster: backends, cache nodes and gateways, the cores that serve, in every order of what can happen to
//! them within bounds.
//!
//! Always true: no protocol is written down here a second time; what is checked is what serves.
#![forbid(unsafe_code)]

mod act;
mod check;
mod coordinator;
mod disk;
mod fingerprint;
mod members;
mod models;
mod network;
mod orders;
mod scenario;
mod world;

pub use check::{Found, Report, check};
pub use models::{Bounds, FINDS, FINDS_NOT, MODELS, models};
pub use orders::{Read, Wish};
pub use scenario::{Begins, Client, Faults, KeyNumber, Scenario};
