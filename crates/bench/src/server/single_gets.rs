//! Single GETs on 50 connections, where the kernel's TCP is the floor: closed loop for CPU time, then latency at
//! the same open-loop load for all, and an echo server as the floor of both.

use guira_loadgen::memcache_text;
use guira_loadgen::mix::Mix;
use guira_loadgen::pacing::{Arrivals, Pacing};
use guira_loadgen::protocol::FixedShape;
use guira_loadgen::workload::Workload;

use super::bench::{Bench, Contestant, QUANTILES, ROOMY_MIB};
use super::peer::{PeerKind, Setup};
use super::process::Server;
use crate::error::BenchError;
use crate::metric;
use crate::report::ExperimentReport;

const NAME: &str = "single-gets";
const CLIENTS: usize = 50;
/// Open-loop load as a share of the slowest server's closed-loop throughput.
const LOAD: f64 = 0.5;
const CLOSED: &str = "closed loop";

pub fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let workload = Workload {
        mix: Mix::get_set(1.0),
        keys_per_get: 1,
        writes_per_turn: 1,
        ..Workload::small_items(bench.extent.scaled(1_000_000, 2_000))
    };
    let words = format!(
        "16 B keys, 32 B values, zipf 0.99 over {} keys, one GET in flight on each of {CLIENTS} connections, one \
         server thread; then a Poisson open loop at {:.0} % of the slowest server's throughput",
        workload.keys,
        LOAD * 100.0
    );
    let mut report = ExperimentReport::new(NAME, "Single GETs on 50 connections", words);
    let turns = bench.extent.scaled(500_000, 2_000);
    let mut contestants = bench.contestants(NAME, &workload, turns, ROOMY_MIB)?;
    if let Some(peer) = bench.echo() {
        let shape = FixedShape { key_len_bytes: 16, value_len_bytes: 32 };
        let echo_answer_bytes = memcache_text::hit_len_bytes(shape) + "END\r\n".len();
        let setup = Setup { echo_answer_bytes, ..bench.setup(ROOMY_MIB, 1, bench.server_cores(1)) };
        let servers = vec![Server::start(peer, &setup)?];
        let scripts = bench.scripts(NAME, peer, &workload, turns, 1)?;
        contestants.push(Contestant { name: peer.name().into(), peer: peer.clone(), servers, scripts });
    }
    bench.alternate(NAME, &contestants, |contestant, _| {
        let pacing = Pacing::Closed { depth: 1 };
        let interval = bench.drive(NAME, contestant, CLIENTS, pacing, bench.generator_cores(1))?;
        interval.expect_all_answered(NAME, &contestant.name)?;
        interval.record(&mut report, CLOSED, &contestant.name, interval.outcome.turns);
        interval.record_latencies(&mut report, CLOSED, &contestant.name, &QUANTILES[..1]);
        Ok(())
    })?;
    let servers = contestants.iter().filter(|contestant| contestant.peer.kind != PeerKind::Echo);
    let throughput = servers.filter_map(|one| report.row(CLOSED, &one.name)?.median(metric::THROUGHPUT));
    let rate_per_s = throughput.fold(f64::INFINITY, f64::min) * LOAD;
    let variant = format!("{:.0}k/s open loop", rate_per_s / 1e3);
    bench.alternate(NAME, &contestants, |contestant, _| {
        let pacing = Pacing::Open { rate_per_s, arrivals: Arrivals::Poisson };
        let interval = bench.drive(NAME, contestant, CLIENTS, pacing, bench.generator_cores(1))?;
        interval.expect_all_answered(NAME, &contestant.name)?;
        let cpu = interval.server_cpu_s / interval.outcome.turns as f64 * 1e6;
        report.record(&variant, &contestant.name, metric::SERVER_CPU, cpu);
        interval.record_latencies(&mut report, &variant, &contestant.name, &QUANTILES);
        Ok(())
    })?;
    Ok(report)
}
