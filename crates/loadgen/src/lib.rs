//! Guira's load generator: workloads, closed and open loops, honest latencies, reports' plots.
//!
//! It measures servers that speak memcached's text protocol or CPSERVER's (and redis, for comparison), and it must never be the
//! limit itself: requests are encoded before the clock starts ([`script`]), answers are measured in strides rather
//! than parsed ([`memcache_text`]), and one thread drives all connections of a core ([`driver`]). Clients that react
//! to answers (a miss followed by a set, a trace) run through [`interactive`].

#![forbid(unsafe_code)]

pub mod affinity;
mod answer_lines;
pub mod blocking;
pub mod changing;
mod connection;
pub mod cp;
pub mod driver;
pub mod encoder;
pub mod error;
pub mod interactive;
pub mod key_source;
pub mod lane;
pub mod latency;
pub mod memcache_text;
pub mod mix;
pub mod pacing;
pub mod payload;
pub mod plot;
pub mod preload;
pub mod progress;
pub mod protocol;
pub mod rate_search;
pub mod read_through;
pub mod reader;
pub mod replay;
pub mod resp;
pub mod scramble;
pub mod script;
pub mod size;
pub mod tally;
pub mod trace;
pub mod workload;
pub mod workload_table;
pub mod zipf;
