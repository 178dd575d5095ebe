//! Results: medians over rounds, ratios to every peer, as JSON, as a table and as plots.
//!
//! ```text
//! report (date, machine, setting) ── experiment ── row (variant, peer) ── measurement (median, rounds)
//!                                              ├── ratios, made of the rows
//!                                              ├── published: what the paper itself reports
//!                                              └── notes
//! ```
//!
//! Always true: a ratio above 1 says that Guira is better, whichever way the metric points.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use guira_loadgen::plot::{Spread, short};
use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::experiment::Extent;
use crate::figure;
use crate::machine::{Machine, utc_now};
use crate::metric::{Better, Metric};
use crate::ratio_table::RatioTable;

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

/// A figure that the paper itself reports, of other machines and years.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Published {
    /// Where it belongs among the variants.
    pub variant: String,
    /// What the paper measured.
    pub peer: String,
    /// [`Metric::name`].
    pub metric: String,
    /// In the metric's unit.
    pub value: f64,
}

/// How good a peer is meant to be, whatever the variant, or in one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aim {
    pub peer: &'static str,
    pub variant: Option<&'static str>,
    pub metric: Metric,
    /// At least this where more is better, otherwise at most.
    pub bound: f64,
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
    /// The quantity in the variants' names, with its unit, if the experiment runs over one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<String>,
    /// Results.
    pub rows: Vec<Row>,
    /// Guira beside each peer.
    pub ratios: Vec<Ratio>,
    /// What the paper reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// The paper, if it is not MemC3's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<String>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

impl ExperimentReport {
    /// An empty report.
    pub fn new(name: &str, title: &str, workload: impl Into<String>) -> Self {
        Self { name: name.into(), title: title.into(), workload: workload.into(), ..Self::default() }
    }

    /// The same, running over a quantity: each variant's name ends in one, after a comma if there is more to say.
    pub fn over(self, axis: &str) -> Self {
        Self { axis: Some(axis.into()), ..self }
    }

    /// The same, beside the figures of another paper than MemC3's.
    pub fn beside(self, paper: &str) -> Self {
        Self { paper: Some(paper.into()), ..self }
    }

    /// Adds a figure of the paper's.
    pub fn publish(&mut self, variant: &str, peer: &str, metric: Metric, value: f64) {
        let (variant, peer, metric) = (variant.into(), peer.into(), metric.name.into());
        self.published.push(Published { variant, peer, metric, value });
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

    /// Says what is aimed at, and how near the measured medians come at their worst; nothing if it was not measured.
    pub(crate) fn aim(&mut self, aim: &Aim) {
        let Aim { peer, variant, metric, bound } = *aim;
        let is_meant = |row: &&Row| row.peer == peer && variant.is_none_or(|variant| row.variant == variant);
        let medians = self.rows.iter().filter(is_meant).filter_map(|row| Some((row.median(metric)?, &row.variant)));
        let (worst, limit) = match metric.better {
            Better::More => (medians.min_by(|one, other| one.0.total_cmp(&other.0)), "at least"),
            _ => (medians.max_by(|one, other| one.0.total_cmp(&other.0)), "at most"),
        };
        let Some((worst, variant)) = worst else { return };
        let is_met = if metric.better == Better::More { worst >= bound } else { worst <= bound };
        let verdict = if is_met { "met" } else { "missed" };
        let (name, unit, worst) = (metric.name, metric.unit, short(worst));
        self.notes.push(format!("aim {verdict}: {peer}, {name} {limit} {bound} {unit}; at worst {worst} ({variant})"));
    }

    /// The row of `peer` in `variant`.
    pub fn row(&self, variant: &str, peer: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.variant == variant && row.peer == peer)
    }

    /// Fills in the ratios from the rows. Guira beside itself, with another policy or in batches, is in the rows alone.
    pub fn compare(&mut self) {
        self.ratios.clear();
        for ours in self.rows.iter().filter(|row| row.peer == "guira") {
            for theirs in self.rows.iter().filter(|row| row.variant == ours.variant && !row.peer.starts_with("guira")) {
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
        write!(f, "{}", RatioTable(&self.ratios))?;
        for Published { variant, peer, metric, value } in &self.published {
            let variant = if variant.is_empty() { String::new() } else { format!(" ({variant})") };
            writeln!(f, "  the paper: {peer} {} in {metric}{variant}", short(*value))?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  note: {note}"))
    }
}

/// What a benchmark ran under, besides the machine, in words and as fields of its report.
pub trait Setting: fmt::Display + Serialize {
    /// Name of the report's file, without its ending.
    const NAME: &'static str;
}

/// A whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report<S> {
    /// When it began, UTC.
    pub date: String,
    /// Where it ran.
    pub machine: Machine,
    /// Under what.
    #[serde(flatten)]
    pub setting: S,
    /// Rounds of every measurement.
    pub rounds: usize,
    /// Length of a measured interval, seconds.
    pub measure_s: f64,
    /// Results.
    pub experiments: Vec<ExperimentReport>,
    /// Experiments that were not possible here, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

impl<S: Setting> Report<S> {
    /// A run that begins here and now.
    pub(crate) fn begin(setting: S, rounds: usize, measure: Duration) -> Self {
        let (date, machine, measure_s) = (utc_now(), Machine::here(), measure.as_secs_f64());
        Self { date, machine, setting, rounds, measure_s, experiments: Vec::new(), left_out: Vec::new() }
    }

    /// Adds what was measured, with its ratios.
    pub(crate) fn add(&mut self, mut experiment: ExperimentReport) {
        experiment.compare();
        self.experiments.push(experiment);
    }

    /// Saves JSON and plots if a folder is given.
    pub(crate) fn keep(&self, extent: &Extent) -> Result<(), BenchError> {
        extent.out.as_ref().map_or(Ok(()), |folder| self.save(folder).map(drop))
    }

    /// Experiment `name`.
    pub fn experiment(&self, name: &str) -> Option<&ExperimentReport> {
        self.experiments.iter().find(|experiment| experiment.name == name)
    }

    /// Writes `<setting>.json` and one SVG and PNG a chart into `folder`; returns what was written.
    ///
    /// # Errors
    /// [`BenchError::Output`], or a plot that cannot be drawn.
    pub fn save(&self, folder: &Path) -> Result<Vec<PathBuf>, BenchError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| BenchError::Output { path, source }
        };
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        let path = folder.join(S::NAME).with_extension("json");
        let json = serde_json::to_string_pretty(self).map_err(|error| failed(&path)(error.into()))?;
        std::fs::write(&path, json + "\n").map_err(failed(&path))?;
        let mut written = vec![path];
        written.extend(figure::draw(folder, &self.experiments)?);
        Ok(written)
    }
}

impl<S: Setting> fmt::Display for Report<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, machine, setting, rounds, measure_s, experiments, left_out } = self;
        writeln!(f, "{date}  {machine}\n{setting}; medians of {rounds} rounds of {measure_s} s")?;
        experiments.iter().try_for_each(|experiment| write!(f, "\n{experiment}"))?;
        left_out.iter().try_for_each(|why| writeln!(f, "\nleft out, {why}"))
    }
}

/// The median of `values` (the mean of the two in the middle); NaN if there are none.
pub fn median(values: &[f64]) -> f64 {
    Spread::of(values).median
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{HIT_RATIO, SERVER_CPU, THROUGHPUT};

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
    fn an_aim_is_judged_by_its_worst_variant() {
        let mut report = ExperimentReport::new("sizes", "Sizes", "");
        for (variant, keys, cpu) in [("1 MB", 7e6, 0.1), ("2 MB", 5e6, 0.3)] {
            report.record(variant, "guira", THROUGHPUT, keys);
            report.record(variant, "guira", SERVER_CPU, cpu);
        }
        let aim = Aim { peer: "guira", variant: None, metric: THROUGHPUT, bound: 6e6 };
        report.aim(&aim);
        report.aim(&Aim { variant: Some("1 MB"), ..aim });
        report.aim(&Aim { metric: SERVER_CPU, bound: 0.3, ..aim });
        report.aim(&Aim { metric: HIT_RATIO, ..aim });
        let verdicts: Vec<&str> =
            report.notes.iter().filter_map(|note| note.split_once(':')).map(|split| split.0).collect();
        assert_eq!(verdicts, ["aim missed", "aim met", "aim met"], "{:?}", report.notes);
        assert!(report.notes[0].ends_with("(2 MB)"), "{:?}", report.notes);
    }

    #[test]
    fn a_ratio_above_one_is_always_guiras_favour() {
        let report = sample();
        assert_eq!(report.ratios.len(), 2, "hit ratio only describes");
        assert!((report.ratios[0].times_better - 5.0).abs() < 0.01);
        assert!((report.ratios[1].times_better - 6.0).abs() < 0.01);
    }

    #[derive(Serialize, Deserialize)]
    struct Anywhere {
        cores: Vec<usize>,
    }

    impl Setting for Anywhere {
        const NAME: &'static str = "anywhere";
    }

    impl fmt::Display for Anywhere {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "on cores {:?}", self.cores)
        }
    }

    #[test]
    fn a_report_is_saved_with_its_plots_and_reads_as_a_table() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut report = Report::begin(Anywhere { cores: vec![0] }, 5, Duration::from_secs(2));
        report.experiments.push(sample());
        let written = report.save(folder.path()).expect("saves");
        assert_eq!(written.len(), 5, "JSON, and two plots as SVG and PNG: {written:?}");
        let json = std::fs::read_to_string(&written[0]).expect("JSON");
        let back: Report<Anywhere> = serde_json::from_str(&json).expect("reads back");
        assert_eq!(back.experiment("multiget").expect("there").rows.len(), 2);
        assert_eq!(back.setting.cores, [0]);
        assert!(report.to_string().contains("guira's throughput, times better than  memcached\n"), "{report}");
        assert!(report.to_string().contains("5.00x"), "{report}");
    }
}
