//! Capacity planner: what the papers' models give for a data set and a cluster, before one is built.
//!
//! ```text
//! Skew           which share of requests goes to the hottest keys (Zipf)
//! Deployment     bytes between the nodes of a symmetric cluster, and throughput, if the network is what there is least of (ccKVS, EuroSys 2018, section 8.7)
//! ```
//! Always true: these are equations, and none of them has seen a machine; what was measured is in `results/`.
#![forbid(unsafe_code)]

mod skew;
mod symmetric;

pub use skew::{Skew, SkewError};
pub use symmetric::{Consistency, Deployment, DeploymentError, MessageLens};
