//! CPHASH's microbenchmark (PPoPP'12, section 6): lookups and inserts of 8-byte keys and values, drawn at random from a
//! working set, in batches; the partitioned engines beside the shared cuckoo table, on the same cores.
//!
//! ```text
//! sweeps (a table) ── sweep (one parameter, in steps) ─┬─ load (all parameters) ── contender (an engine) ── caller
//! breakdown (where the time goes, under a few loads) ──┘                                                   (a thread)
//! ```
//! Always true: all contenders have the same keys, draws and cores: LOCKHASH, memc3 and dashmap have a thread that asks
//! on each core, CPHASH has clients on some of them and server threads on the others.

use super::{BenchError, EventCount, ExperimentReport, contender, crew, in_process::Bench, metric, report::Aim};

pub(super) mod breakdown;
mod caller;
mod contenders;
mod load;
mod parameters;
mod sweep;
mod sweeps;

pub use parameters::Parameters;
pub(super) use sweeps::{BATCHES, CAPACITIES, CORES, INSERT_RATIOS, PARTITIONS, SERVER_THREADS, WORKING_SETS};
