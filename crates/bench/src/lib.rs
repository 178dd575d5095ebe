//! Guira's experiments: each states its workload, measures Guira and its peers in one alternating run, and reports
//! ratios. [`server`] measures servers as processes, over the network; [`engine`] measures index and cache in process, beside
//! the [`peers`] that the paper compares with; [`map`] measures concurrent maps, a process each; [`store`] measures what a store
//! behind the engine costs; [`cluster`] measures a switched cluster of processes, [`symmetric`] a symmetric one; [`router`] measures what brings gets to cache nodes.
//!
//! ```text
//! run ── experiment (chosen by name) ── report (rounds to medians, ratios, JSON, table) ── figure (plots)
//! ```

#![forbid(unsafe_code)]

pub mod cluster;
mod cluster_process;
mod crew;
pub mod engine;
mod error;
mod event_count;
mod experiment;
mod figure;
mod in_process;
mod machine;
pub mod map;
mod memory_speed;
pub mod metric;
pub mod peers;
mod placement;
mod process_usage;
mod ratio_table;
pub mod report;
pub mod router;
pub mod server;
pub mod store;
pub mod symmetric;
mod timeline;
mod workplace;

pub use error::BenchError;
pub use experiment::Extent;
pub use figure::redraw;
pub use machine::Machine;
pub use placement::Placement;
