//! The switched cluster: backends, cache nodes and gateways.

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

pub use check::check;
pub use models::{FINDS, FINDS_NOT, MODELS, models};
pub use orders::{Read, Wish};
pub use scenario::{Begins, Client, Faults, KeyNumber, Scenario};
