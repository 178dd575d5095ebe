//! Guira's experiments: each states its workload, measures Guira and its peers in one alternating run, and reports
//! ratios. [`server`] measures servers as processes, over the network; [`engine`] measures index and cache in process, beside
//! the [`peers`] that the paper compares with.

#![forbid(unsafe_code)]

pub mod engine;
pub mod peers;
pub mod server;
