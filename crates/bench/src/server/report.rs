//! Results: medians over rounds, ratios to every peer, as JSON, as a table and as plots.
//!
//! Always true: a ratio above 1 says that Guira is better, whichever way the metric points.

use std::fmt;
use std::path::{Path, PathBuf};

use guira_loadgen::plot::{BarChart, short};
use serde::{Deserialize, Serialize};

use super::error::BenchError;
use super::machine::Machine;

/// Share of a core from which on it counts as fully used; the kernel counts in hundredths of a second.
const BUSY: f64 = 0.9;

/// Which way a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// More is better.
    More,
    /// Less is better.
    Less,
    /// It only describes; no ratio is made of it.
    Neither,
}

/// Something measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name in reports and file names.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $constant:ident: $name:literal, $unit:literal, $better:ident;)*) => {
        $($(#[$doc])* pub const $constant: Metric = Metric { name: $name, unit: $unit, better: Better::$better };)*
    };
}

metrics! {
    /// Keys asked for or written per second.
    THROUGHPUT: "throughput", "keys/s", More;
    /// The server's CPU time (user and system, all threads) per million keys.
    SERVER_CPU: "server-cpu", "CPU s/M keys", Less;
    /// Share of a core (or of several) that the server used.
    SERVER_BUSY: "server-busy", "cores", Neither;
    /// Share of a core (or of several) that the generator used.
    GENERATOR_BUSY: "generator-busy", "cores", Neither;
    /// Share of the asked keys that were found.
    HIT_RATIO: "hit-ratio", "of gets", Neither;
    /// Share of the asked keys that were not found.
    MISS_RATIO: "miss-ratio", "of gets", Less;
    /// Median latency of a turn.
    P50: "p50", "us", Neither;
    /// 99th percentile of a turn's latency.
    P99: "p99", "us", Less;
    /// 99.9th percentile of a turn's latency.
    P999: "p999", "us", Neither;
    /// Resident memory of the server.
    RSS: "rss", "MiB", Neither;
    /// Resident memory over the promise of `-m`.
    RSS_OVER_LIMIT: "rss-over-limit", "x -m", Neither;
    /// Items held when full.
    ITEMS: "items", "items", More;
    /// The memory limit divided by the items held.
    BYTES_PER_ITEM: "bytes-per-item", "B", Less;
    /// The highest rate that met the target.
    RATE: "rate", "turns/s", More;
}

/// One metric of one row over all rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// [`Metric::name`].
    pub metric: String,
    /// [`Metric::unit`].
    pub unit: String,
    /// [`Metric::better`].
    pub better: Better,
    /// Median over the rounds.
    pub median: f64,
    /// Every round, in order.
    pub rounds: Vec<f64>,
}

/// What was measured of one peer in one variant of an experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The variant (a memory limit, a thread count, ...); empty where there is only one.
    pub variant: String,
    /// The peer.
    pub peer: String,
    /// The metrics, in the order first measured.
    pub measurements: Vec<Measurement>,
}

impl Row {
    /// The median of `metric`.
    pub fn median(&self, metric: Metric) -> Option<f64> {
        self.measurements.iter().find(|known| known.metric == metric.name).map(|known| known.median)
    }
}

/// How many times better Guira is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ratio {
    /// The variant.
    pub variant: String,
    /// The metric.
    pub metric: String,
    /// The peer.
    pub over: String,
    /// Guira's median over the peer's, or the peer's over Guira's where less is better.
    pub times_better: f64,
}

/// One experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExperimentReport {
    /// Name on the command line and of its files.
    pub name: String,
    /// Heading.
    pub title: String,
    /// The workload, in words.
    pub workload: String,
    /// Results.
    pub rows: Vec<Row>,
    /// Guira beside each peer.
    pub ratios: Vec<Ratio>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

impl ExperimentReport {
    /// An empty report.
    pub fn new(name: &str, title: &str, workload: impl Into<String>) -> Self {
        Self { name: name.into(), title: title.into(), workload: workload.into(), ..Self::default() }
    }

    /// Adds one round's value.
    pub fn record(&mut self, variant: &str, peer: &str, metric: Metric, value: f64) {
        let known = self.rows.iter().position(|row| row.variant == variant && row.peer == peer);
        let row = known.unwrap_or_else(|| {
            self.rows.push(Row { variant: variant.into(), peer: peer.into(), measurements: Vec::new() });
            self.rows.len() - 1
        });
        let measurements = &mut self.rows[row].measurements;
        let known = measurements.iter().position(|known| known.metric == metric.name);
        let measurement = known.unwrap_or_else(|| {
            let (metric, unit, better) = (metric.name.to_string(), metric.unit.to_string(), metric.better);
            measurements.push(Measurement { metric, unit, better, median: value, rounds: Vec::new() });
            measurements.len() - 1
        });
        let measurement = &mut measurements[measurement];
        measurement.rounds.push(value);
        measurement.median = median(&measurement.rounds);
    }

    /// The row of `peer` in `variant`.
    pub fn row(&self, variant: &str, peer: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.variant == variant && row.peer == peer)
    }

    /// Fills in the ratios from the rows.
    pub fn compare(&mut self) {
        self.ratios.clear();
        for ours in self.rows.iter().filter(|row| row.peer == "guira") {
            for theirs in self.rows.iter().filter(|row| row.variant == ours.variant && row.peer != "guira") {
                for own in ours.measurements.iter().filter(|own| own.better != Better::Neither) {
                    let Some(other) = theirs.measurements.iter().find(|other| other.metric == own.metric) else {
                        continue;
                    };
                    let times_better = match own.better {
                        Better::More => own.median / other.median,
                        _ => other.median / own.median,
                    };
                    if times_better.is_finite() {
                        let (variant, metric) = (ours.variant.clone(), own.metric.clone());
                        self.ratios.push(Ratio { variant, metric, over: theirs.peer.clone(), times_better });
                    }
                }
            }
        }
    }

    /// Notes what makes a throughput less than the server's own: a generator at its limit, or cores left idle.
    pub fn warn(&mut self) {
        for row in self.rows.iter().filter(|row| row.median(THROUGHPUT).is_some()) {
            let (Some(server), Some(generator)) = (row.median(SERVER_BUSY), row.median(GENERATOR_BUSY)) else {
                continue;
            };
            let name = format!("{} {}", row.variant, row.peer);
            if server < BUSY && generator < BUSY {
                self.notes.push(format!(
                    "{}: server {server:.2} and generator {generator:.2} cores: the machine was shared, or too little \
                     was in flight",
                    name.trim()
                ));
            } else if server < BUSY {
                self.notes.push(format!("{}: the generator was the limit; read the CPU time", name.trim()));
            }
        }
    }

    /// One chart for every metric that has a better way.
    fn charts(&self) -> Vec<(String, BarChart)> {
        let mut charts: Vec<(String, BarChart)> = Vec::new();
        let distinct = |names: Vec<&String>| {
            names.into_iter().fold(Vec::<String>::new(), |mut list, name| {
                if !list.contains(name) {
                    list.push(name.clone());
                }
                list
            })
        };
        let shown = |row: &'_ Row| row.measurements.iter().filter(|m| m.better != Better::Neither).cloned().collect();
        let measurements: Vec<Measurement> = self.rows.iter().flat_map(|row| -> Vec<_> { shown(row) }).collect();
        for metric in distinct(measurements.iter().map(|known| &known.metric).collect()) {
            let unit = measurements.iter().find(|known| known.metric == metric).map_or("", |known| &known.unit);
            let having: Vec<&Row> =
                self.rows.iter().filter(|row| row.measurements.iter().any(|known| known.metric == metric)).collect();
            let series = distinct(having.iter().map(|row| &row.peer).collect());
            let variants = distinct(having.iter().map(|row| &row.variant).collect());
            let value = |variant: &String, peer: &String| {
                let row = having.iter().find(|row| row.variant == *variant && row.peer == *peer)?;
                row.measurements.iter().find(|known| known.metric == metric).map(|known| known.median)
            };
            let groups = variants.iter().map(|variant| {
                (variant.clone(), series.iter().map(|peer| value(variant, peer).unwrap_or(f64::NAN)).collect())
            });
            let title = format!("{}: {metric}", self.title);
            let chart = BarChart { title, axis: unit.to_string(), groups: groups.collect(), series: series.clone() };
            charts.push((format!("{}-{metric}", self.name), chart));
        }
        charts
    }
}

impl fmt::Display for ExperimentReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n  {}", self.title, self.workload)?;
        let mut columns: Vec<(&str, &str)> = Vec::new();
        for known in self.rows.iter().flat_map(|row| &row.measurements) {
            if !columns.iter().any(|(metric, _)| *metric == known.metric) {
                columns.push((&known.metric, &known.unit));
            }
        }
        let first = self.rows.iter().map(|row| row.variant.len() + row.peer.len() + 2).max().unwrap_or(0).max(10);
        write!(f, "  {:first$}", "")?;
        let width = |(metric, unit): &(&str, &str)| metric.len().max(unit.len()).max(9) + 2;
        columns.iter().try_for_each(|column| write!(f, "{:>1$}", column.0, width(column)))?;
        write!(f, "\n  {:first$}", "")?;
        columns.iter().try_for_each(|column| write!(f, "{:>1$}", column.1, width(column)))?;
        writeln!(f)?;
        for row in &self.rows {
            let name = if row.variant.is_empty() { row.peer.clone() } else { format!("{}  {}", row.variant, row.peer) };
            write!(f, "  {name:first$}")?;
            for column in &columns {
                let known = row.measurements.iter().find(|known| known.metric == column.0);
                let text = known.map_or_else(|| "-".to_string(), |known| short(known.median));
                write!(f, "{text:>0$}", width(column))?;
            }
            writeln!(f)?;
        }
        for ratio in &self.ratios {
            let variant = if ratio.variant.is_empty() { String::new() } else { format!(" ({})", ratio.variant) };
            let Ratio { metric, over, times_better, .. } = ratio;
            writeln!(f, "  guira is {times_better:.2}x {over} in {metric}{variant}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  note: {note}"))
    }
}

/// A whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// When it began, UTC.
    pub date: String,
    /// Where it ran.
    pub machine: Machine,
    /// Cores of the servers.
    pub server_cores: Vec<usize>,
    /// Cores of the generator.
    pub generator_cores: Vec<usize>,
    /// Rounds of every measurement.
    pub rounds: usize,
    /// Length of a measured interval, seconds.
    pub measure_s: f64,
    /// Peers and their versions.
    pub peers: Vec<(String, String)>,
    /// Results.
    pub experiments: Vec<ExperimentReport>,
}

impl Report {
    /// Experiment `name`.
    pub fn experiment(&self, name: &str) -> Option<&ExperimentReport> {
        self.experiments.iter().find(|experiment| experiment.name == name)
    }

    /// Writes `server.json` and one SVG and PNG a chart into `folder`; returns what was written.
    pub fn save(&self, folder: &Path) -> Result<Vec<PathBuf>, BenchError> {
        save(folder, "server.json", self, &self.experiments)
    }
}

/// Writes `report` as `file` and one SVG and PNG for every chart of its `experiments` into `folder`; returns what was
/// written.
pub(crate) fn save(
    folder: &Path,
    file: &str,
    report: &impl Serialize,
    experiments: &[ExperimentReport],
) -> Result<Vec<PathBuf>, BenchError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| BenchError::Output { path, source }
    };
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let path = folder.join(file);
    let json = serde_json::to_string_pretty(report)
        .map_err(|error| BenchError::Output { path: path.clone(), source: error.into() })?;
    std::fs::write(&path, json + "\n").map_err(failed(&path))?;
    let mut written = vec![path];
    for (name, chart) in experiments.iter().flat_map(ExperimentReport::charts) {
        let drawn = chart.save(&folder.join(&name)).map_err(|source| BenchError::Load {
            peer: name,
            experiment: "drawing plots",
            source,
        })?;
        written.extend(drawn);
    }
    Ok(written)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  {}", self.date, self.machine)?;
        let peers: Vec<String> = self.peers.iter().map(|(name, version)| format!("{name} ({version})")).collect();
        writeln!(
            f,
            "{}; servers on cores {:?}, generator on {:?}; medians of {} rounds of {} s",
            peers.join(", "),
            self.server_cores,
            self.generator_cores,
            self.rounds,
            self.measure_s
        )?;
        self.experiments.iter().try_for_each(|experiment| write!(f, "\n{experiment}"))
    }
}

/// The median of `values` (the mean of the two in the middle); NaN if there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ExperimentReport {
        let mut report = ExperimentReport::new("multiget", "Multiget", "16 B keys");
        for (peer, keys, cpu) in [("guira", 8e6, 0.1), ("memcached", 1.6e6, 0.6)] {
            for round in 0..5 {
                report.record("", peer, THROUGHPUT, keys + f64::from(round));
                report.record("", peer, SERVER_CPU, cpu);
                report.record("", peer, HIT_RATIO, 1.0);
            }
        }
        report.compare();
        report
    }

    #[test]
    fn medians_need_no_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_ratio_above_one_is_always_guiras_favour() {
        let report = sample();
        assert_eq!(report.ratios.len(), 2, "hit ratio only describes");
        assert!((report.ratios[0].times_better - 5.0).abs() < 0.01);
        assert!((report.ratios[1].times_better - 6.0).abs() < 0.01);
    }

    #[test]
    fn a_throughput_that_is_not_the_servers_is_noted() {
        for (server, generator, notes, word) in
            [(1.0, 0.4, 0, ""), (0.5, 1.0, 1, "limit"), (0.5, 0.4, 1, "shared"), (1.0, 1.0, 0, "")]
        {
            let mut report = sample();
            report.record("", "guira", SERVER_BUSY, server);
            report.record("", "guira", GENERATOR_BUSY, generator);
            report.warn();
            assert_eq!(report.notes.len(), notes);
            assert!(report.notes.iter().all(|note| note.contains(word)), "{:?}", report.notes);
        }
    }

    #[test]
    fn a_report_is_saved_with_its_plots_and_reads_as_a_table() {
        let folder = tempfile::tempdir().expect("a folder");
        let report = Report {
            date: "2026-11-20T12:00:00Z".into(),
            machine: Machine::here(),
            server_cores: vec![0],
            generator_cores: vec![1],
            rounds: 5,
            measure_s: 2.0,
            peers: vec![("guira".into(), "0.1.0".into())],
            experiments: vec![sample()],
        };
        let written = report.save(folder.path()).expect("saves");
        assert_eq!(written.len(), 5, "JSON, and two plots as SVG and PNG: {written:?}");
        let json = std::fs::read_to_string(&written[0]).expect("JSON");
        let back: Report = serde_json::from_str(&json).expect("reads back");
        assert_eq!(back.experiment("multiget").expect("there").rows.len(), 2);
        assert!(report.to_string().contains("guira is 5.00x memcached in throughput"), "{report}");
    }
}
