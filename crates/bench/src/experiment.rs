//! What all benchmarks do alike: experiments in a table, chosen by name, and the flags that say how much and where to.

use std::path::PathBuf;

use clap::Args;

use crate::error::BenchError;
use crate::report::ExperimentReport;

/// An experiment of a benchmark, whose settings are a `B`.
pub(crate) struct Experiment<B> {
    pub name: &'static str,
    pub run: fn(&B) -> Result<ExperimentReport, BenchError>,
}

impl<B> Experiment<B> {
    /// The experiments called `only` in that order; all of the `table` if that is empty.
    pub fn chosen<'t>(table: &'t [Self], only: &[String]) -> Result<Vec<&'t Self>, BenchError> {
        if only.is_empty() {
            return Ok(table.iter().collect());
        }
        let named = |name: &String| {
            table.iter().find(|experiment| experiment.name == name).ok_or_else(|| {
                let names: Vec<&str> = table.iter().map(|experiment| experiment.name).collect();
                BenchError::Setting(format!("there is no experiment '{name}'; choose from {}", names.join(", ")))
            })
        };
        only.iter().map(named).collect()
    }

    /// What the flag that chooses among a `table` says of itself.
    pub fn help(table: &[Self]) -> String {
        let names: Vec<&str> = table.iter().map(|experiment| experiment.name).collect();
        format!("Experiments to run: {} [default: all]", names.join(", "))
    }
}

/// The places of so many that are compared, in the order of a round: forwards or backwards, from another one each time.
pub(crate) fn order(len: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..len).map(move |at| if round.is_multiple_of(2) { (round + at) % len } else { (round + len - at) % len })
}

/// Flags of every benchmark: how much to measure, and where the results go.
#[derive(Clone, Debug, Default, Args)]
pub struct Extent {
    /// Alternating rounds over everything compared [default: 5; 1 with --tiny]
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Shrink everything: shows that the benchmark works, measures nothing
    #[arg(long)]
    pub tiny: bool,
    /// Folder for JSON and plots
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

impl Extent {
    pub(crate) fn rounds(&self) -> Result<usize, BenchError> {
        match self.rounds {
            Some(0) => Err(BenchError::Setting("--rounds must be at least 1".into())),
            Some(rounds) => Ok(rounds),
            None => Ok(self.scaled(5, 1)),
        }
    }

    /// `full`, or `tiny` in a run that only shows that it works.
    pub(crate) fn scaled<T>(&self, full: T, tiny: T) -> T {
        if self.tiny { tiny } else { full }
    }
}

#[cfg(test)]
pub(crate) mod check {
    //! What the tiny runs of all benchmarks have to show.

    use std::path::Path;

    use serde::de::DeserializeOwned;

    use super::Experiment;
    use crate::report::{Report, Setting};

    /// Every experiment measured something, and the report was kept in `folder` and drawn.
    pub fn everything_was_measured_and_drawn<B, S: Setting + DeserializeOwned>(
        report: &Report<S>,
        table: &[Experiment<B>],
        folder: &Path,
    ) {
        assert_eq!(report.experiments.len(), table.len());
        for experiment in &report.experiments {
            let measured = experiment.rows.iter().flat_map(|row| &row.measurements);
            assert!(measured.clone().count() > 0, "{} measured nothing", experiment.name);
            for known in measured {
                assert!(known.median.is_finite(), "{}: {known:?}", experiment.name);
            }
        }
        let path = folder.join(S::NAME).with_extension("json");
        let text = std::fs::read_to_string(path).expect("JSON");
        let back: Report<S> = serde_json::from_str(&text).expect("reads back");
        assert_eq!(back.experiments.len(), report.experiments.len());
        let plots = std::fs::read_dir(folder).expect("a folder").count() - 1;
        assert!(plots >= 2 * table.len(), "{plots} plots");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_always_the_first_or_behind_the_same() {
        let rounds: Vec<Vec<usize>> = (0..4).map(|round| order(3, round).collect()).collect();
        assert_eq!(rounds, [[0, 1, 2], [1, 0, 2], [2, 0, 1], [0, 2, 1]]);
    }
}
