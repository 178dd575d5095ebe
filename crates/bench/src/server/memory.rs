//! How many small items fit: fill until the server evicts (or takes no more), count, compare with the promise.

use guira_loadgen::blocking::Blocking;
use guira_loadgen::encoder::Encoder;
use guira_loadgen::mix::Kind;
use guira_loadgen::progress::Progress;
use guira_loadgen::workload::Workload;

use super::bench::{Bench, failed};
use super::peer::Peer;
use crate::error::BenchError;
use crate::metric;
use crate::report::ExperimentReport;

const NAME: &str = "memory";
/// Smallest memory an item of 48 bytes could take; a fill that finds room for more items is given up.
const ITEM_MIN_BYTES: u64 = 40;
/// Share of the fill that is added after the first eviction, to find the most items ever held.
const OVERFILL: u64 = 20;

pub fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let words = "16 B keys, 32 B values, distinct keys set until the server evicts; one fill a limit (it is \
                 deterministic); rss counts huge pages";
    let mut report = ExperimentReport::new(NAME, "Items that fit into -m", words).over("memory limit, -m (MiB)");
    for limit_mib in bench.extent.scaled(vec![1024, 600, 1500], vec![16]) {
        for peer in bench.peers() {
            let (items, rss_bytes) = fill(bench, peer, limit_mib)?;
            let (variant, name) = (format!("-m {limit_mib}"), peer.name());
            let limit_bytes = (limit_mib << 20) as f64;
            report.record(&variant, name, metric::ITEMS, items as f64);
            report.record(&variant, name, metric::BYTES_PER_ITEM, limit_bytes / items as f64);
            report.record(&variant, name, metric::RSS, rss_bytes as f64 / f64::from(1 << 20));
            report.record(&variant, name, metric::RSS_OVER_LIMIT, rss_bytes as f64 / limit_bytes);
        }
    }
    Ok(report)
}

/// The most items held, and the resident memory at the end, bytes.
fn fill(bench: &Bench, peer: &Peer, limit_mib: u64) -> Result<(u64, u64), BenchError> {
    let server = bench.start(peer, limit_mib)?;
    let keys_max = (limit_mib << 20) / ITEM_MIN_BYTES;
    let mut encoder = Encoder::new(&Workload::small_items(keys_max), peer.protocol(), 1);
    let fail = || failed(NAME, peer.name());
    let mut connection = Blocking::connect(server.address(), peer.protocol()).map_err(fail())?;
    let progress = Progress::new(&format!("{NAME} -m {limit_mib} {}", peer.name()), keys_max);
    let between = (keys_max / 500).max(1_000);
    let (mut most, mut stop_at) = (0, keys_max);
    let mut id = 0;
    while id < stop_at {
        connection.write_with(|out| encoder.push_write(out, Kind::Set, id)).map_err(fail())?;
        id += 1;
        if id % between != 0 {
            continue;
        }
        progress.at(id);
        connection.flush().map_err(fail())?;
        let counters = server.counters().map_err(fail())?;
        let grew = counters.items() > most;
        most = most.max(counters.items());
        let full = counters.evictions() > 0 || connection.tally().errors > 0 || !grew;
        if full && stop_at == keys_max {
            stop_at = id + id / OVERFILL;
        }
    }
    Ok((most, server.usage()?.rss_bytes))
}
