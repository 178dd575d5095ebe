//! Guira's experiments: each states its workload, measures Guira and its peers in one alternating run, and reports
//! ratios. [`server`] measures servers as processes, over the network.

#![forbid(unsafe_code)]

pub mod server;
