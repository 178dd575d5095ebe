//! The symmetric cluster: one hot key, or two, on all its nodes, beside their shards.

mod check;
mod models;
mod orders;
mod printed;
mod promises;
#[cfg(test)]
mod random;
mod scenario;
mod world;

pub use check::check;
pub use models::{FINDS, MODELS, models};
pub use orders::Want;
pub use scenario::{Begins, Client, Faults, Scenario};
