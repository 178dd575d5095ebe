//! A workload of the user's own: by flags, YCSB's letter, a row of a table, or a trace; closed or open loop, or the
//! highest rate that meets a target.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use guira_loadgen::key_source::Popularity;
use guira_loadgen::mix::Mix;
use guira_loadgen::pacing::{Arrivals, Pacing};
use guira_loadgen::rate_search::{Goal, search};
use guira_loadgen::read_through::{Draws, ReadThrough};
use guira_loadgen::replay::{Replay, ReplayPace};
use guira_loadgen::size::Sizes;
use guira_loadgen::trace::Trace;
use guira_loadgen::workload::Workload;
use guira_loadgen::workload_table;

use super::bench::{Bench, Contestant, Interval, QUANTILES, failed};
use crate::error::BenchError;
use crate::metric;
use crate::report::ExperimentReport;

const NAME: &str = "workload";

/// Flags that describe a workload.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "A workload of your own (--ycsb, --workload-file, --trace or --get-share asks for it)")]
pub struct CustomOptions {
    /// YCSB's core workload: A, B, C, D or F
    #[arg(long, value_name = "LETTER", conflicts_with_all = ["workload_file", "trace", "get_share"])]
    pub ycsb: Option<char>,
    /// Table of workload statistics (CSV), one row of which is --cluster
    #[arg(long, value_name = "FILE", requires = "cluster", conflicts_with_all = ["trace", "get_share"])]
    pub workload_file: Option<PathBuf>,
    /// Row of the workload file
    #[arg(long, value_name = "N", requires = "workload_file")]
    pub cluster: Option<u32>,
    /// Trace to replay (CSV: timestamp,key,key_size,value_size,client_id,operation,ttl)
    #[arg(long, value_name = "FILE", conflicts_with = "get_share")]
    pub trace: Option<PathBuf>,
    /// Replay at recorded times, this many times as fast [default: as fast as answers come]
    #[arg(long, value_name = "FACTOR", requires = "trace")]
    pub speed: Option<f64>,
    /// Requests of the trace to replay
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    pub requests: u64,
    /// Share of GETs, 0 to 1; the rest are SETs
    #[arg(long, value_name = "SHARE")]
    pub get_share: Option<f64>,
    /// Distinct keys
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub keys: u64,
    /// Zipf exponent; 0 is uniform [default: 0.99, or the table's]
    #[arg(long, value_name = "EXPONENT")]
    pub zipf: Option<f64>,
    /// Key length, bytes: 16, 16-64 or 16:0.9,40:0.1 [default: 16, or the table's]
    #[arg(long, value_name = "SIZES")]
    pub key_size: Option<Sizes>,
    /// Value length, bytes, likewise [default: 32, or the table's]
    #[arg(long, value_name = "SIZES")]
    pub value_size: Option<Sizes>,
    /// Keys in one get request
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub multiget: u32,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub connections: usize,
    /// Closed loop: requests in flight on each connection
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub depth: u32,
    /// Open loop: requests a second, latency counted from the intended time
    #[arg(long, value_name = "PER_SECOND", conflicts_with = "target")]
    pub rate: Option<f64>,
    /// Open loop: spacing, poisson or even
    #[arg(long, value_name = "SPACING", default_value = "poisson")]
    pub arrivals: Arrivals,
    /// Find the highest rate that meets this: p99=1ms, errors=0.1%, misses=5%
    #[arg(long, value_name = "TARGET")]
    pub target: Option<Goal>,
    /// Set what a get misses, from an empty server
    #[arg(long, conflicts_with_all = ["rate", "target"])]
    pub read_through: bool,
    /// Check every value against its key (read-through)
    #[arg(long, requires = "read_through")]
    pub verify: bool,
    /// Memory limit of the servers, MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub memory: u64,
}

impl Default for CustomOptions {
    fn default() -> Self {
        Self {
            ycsb: None,
            workload_file: None,
            cluster: None,
            trace: None,
            speed: None,
            requests: u64::MAX,
            get_share: None,
            keys: 1_000_000,
            zipf: None,
            key_size: None,
            value_size: None,
            multiget: 1,
            connections: 50,
            depth: 1,
            rate: None,
            arrivals: Arrivals::Poisson,
            target: None,
            read_through: false,
            verify: false,
            memory: 1024,
        }
    }
}

impl CustomOptions {
    /// Whether a workload was described.
    pub fn is_given(&self) -> bool {
        self.ycsb.is_some() || self.workload_file.is_some() || self.trace.is_some() || self.get_share.is_some()
    }

    /// The workload it describes.
    fn workload(&self) -> Result<Workload, BenchError> {
        let setting = |text: String| BenchError::Setting(text);
        let mut workload = match (&self.workload_file, self.cluster, self.ycsb) {
            (Some(path), Some(number), _) => {
                workload_table::cluster(path, number).map_err(failed(NAME, "generator"))?.workload(self.keys)
            }
            (_, _, Some(letter)) => {
                let known = Mix::ycsb(letter);
                let (mix, popularity) =
                    known.ok_or_else(|| setting(format!("YCSB '{letter}': choose A, B, C, D or F (E scans)")))?;
                Workload { mix, popularity, ..Workload::small_items(self.keys) }
            }
            _ => Workload { mix: Mix::get_set(self.get_share.unwrap_or(0.95)), ..Workload::small_items(self.keys) },
        };
        if let Some(exponent) = self.zipf {
            if !(0.0..=10.0).contains(&exponent) {
                return Err(setting(format!("--zipf {exponent}: choose 0 to 10")));
            }
            workload.popularity = Popularity::Zipf { exponent };
        }
        workload.key_size = self.key_size.clone().unwrap_or(workload.key_size);
        workload.value_size = self.value_size.clone().unwrap_or(workload.value_size);
        workload.keys_per_get = self.multiget;
        workload.writes_per_turn = self.multiget;
        workload.check().map_err(failed(NAME, "generator"))?;
        Ok(workload)
    }

    fn pacing(&self) -> Pacing {
        match self.rate {
            Some(rate_per_s) => Pacing::Open { rate_per_s, arrivals: self.arrivals },
            None => Pacing::Closed { depth: self.depth },
        }
    }
}

pub fn run(bench: &Bench, options: &CustomOptions) -> Result<ExperimentReport, BenchError> {
    if options.connections == 0 || options.connections > 10_000 {
        return Err(BenchError::Setting("choose 1 to 10000 connections".into()));
    }
    if options.rate.or(options.speed).is_some_and(|rate| !(rate > 0.0 && rate < 1e9)) {
        return Err(BenchError::Setting("--rate and --speed are above 0".into()));
    }
    match &options.trace {
        Some(path) => replay(bench, options, path),
        None => drive(bench, options),
    }
}

fn drive(bench: &Bench, options: &CustomOptions) -> Result<ExperimentReport, BenchError> {
    let workload = options.workload()?;
    let words = format!(
        "{} keys, {:?}, {}, keys {:?} B, values {:?} B, {} keys a get, {} connections, {}",
        workload.keys,
        workload.popularity,
        workload.mix,
        workload.key_size,
        workload.value_size,
        workload.keys_per_get,
        options.connections,
        if options.read_through { "read-through".to_string() } else { format!("{:?}", options.pacing()) },
    );
    let mut report = ExperimentReport::new(NAME, "A workload of your own", words);
    if options.read_through {
        read_through(bench, options, &workload, &mut report)?;
        return Ok(report);
    }
    // Some 100 MB of requests at most, so that large values do not fill the generator's memory.
    let turn_bytes = u64::from(workload.value_size.bounds().1) * u64::from(workload.writes_per_turn) / 4 + 100;
    let turns = (100_000_000 / turn_bytes).clamp(100, bench.extent.scaled(200_000, 500)) as usize;
    let contestants = bench.contestants(NAME, &workload, turns, options.memory)?;
    bench.alternate(NAME, &contestants, |contestant, _| {
        if let Some(goal) = options.target {
            let measure = |rate_per_s| {
                let pacing = Pacing::Open { rate_per_s, arrivals: options.arrivals };
                bench.measure_rate(contestant, options.connections, pacing)
            };
            let (rate_per_s, _) = search(goal, 10_000.0, measure).map_err(failed(NAME, &contestant.name))?;
            report.record("", &contestant.name, metric::RATE, rate_per_s);
            return Ok(());
        }
        let cores = bench.generator_cores(1);
        let interval = bench.drive(NAME, contestant, options.connections, options.pacing(), cores)?;
        record(&mut report, contestant, &interval);
        if interval.outcome.overloaded {
            report.notes.push(format!("{} fell behind the rate: its latencies have no bound", contestant.name));
        }
        Ok(())
    })?;
    Ok(report)
}

fn record(report: &mut ExperimentReport, contestant: &Contestant, interval: &Interval) {
    let name = &contestant.name;
    interval.record(report, "", name, interval.outcome.tally.keys());
    report.record("", name, metric::MISS_RATIO, interval.outcome.miss_ratio());
    interval.record_latencies(report, "", name, &QUANTILES);
}

fn read_through(
    bench: &Bench,
    options: &CustomOptions,
    workload: &Workload,
    report: &mut ExperimentReport,
) -> Result<(), BenchError> {
    let draws = Arc::new(Draws::new(workload, bench.extent.scaled(4_000_000, 20_000), 0));
    for _ in 0..bench.rounds {
        for peer in bench.peers() {
            let contestant = bench.empty(peer, options.memory)?;
            let player = |number: usize| {
                let draws = Arc::clone(&draws);
                ReadThrough::new(workload, peer.protocol(), draws, number * 1_000_003, u64::MAX, options.verify)
            };
            let mut players: Vec<_> = (0..options.connections).map(player).collect();
            let plan = bench.play_plan(&contestant, players[0].shape(), Some(bench.measure));
            let interval = bench.play(NAME, &contestant, &plan, &mut players)?;
            record(report, &contestant, &interval);
            let corrupt: u64 = players.iter().map(ReadThrough::corrupt).sum();
            if corrupt > 0 {
                return Err(BenchError::Invalid(format!("{}: {corrupt} values were not their keys'", peer.name())));
            }
        }
    }
    Ok(())
}

fn replay(bench: &Bench, options: &CustomOptions, path: &std::path::Path) -> Result<ExperimentReport, BenchError> {
    let words = format!("replay of {} on one connection", path.display());
    let mut report = ExperimentReport::new(NAME, "A trace", words);
    for _ in 0..bench.rounds {
        for peer in bench.peers() {
            let trace = Trace::open(path).map_err(failed(NAME, "generator"))?;
            let pace =
                ReplayPace { batch: options.multiget as usize, speed: options.speed, requests_max: options.requests };
            let contestant = bench.empty(peer, options.memory)?;
            let mut players = [Replay::new(trace, peer.protocol(), pace)];
            let plan = bench.play_plan(&contestant, None, None);
            let interval = bench.play(NAME, &contestant, &plan, &mut players)?;
            record(&mut report, &contestant, &interval);
            let (bad, messages) = players[0].bad_lines();
            if bad > 0 && report.notes.is_empty() {
                report.notes.push(format!("{bad} bad lines were left out, the first: {}", messages[0]));
            }
        }
    }
    Ok(report)
}
