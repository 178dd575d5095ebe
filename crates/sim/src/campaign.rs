//! A campaign: many runs of a scenario, one seed each, on all processors; some are done twice.
//!
//! Always true: what it says depends on the scenario, the first seed and the number of runs, however many threads there are.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use std::thread;

use guira_item::Span;

use crate::scenario::{Failure, Report, Scenario, run};

/// A quarter of a cluster-hour: a failure is small enough to look at, and the seeds are many.
pub const RUN: Span = Span::from_s(900);

/// One run in so many is done once more, and has to be the same.
const AGAIN_ONE_IN: u64 = 100;

/// What came of all runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// All runs together; the trace is of all of theirs.
    pub report: Report,
    /// Runs.
    pub runs: u64,
    /// That were done twice.
    pub repeated: u64,
}

/// Why a campaign ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// The seed that shows it again.
    pub seed: u64,
    /// What it shows; nothing if it was another run the second time.
    pub failure: Option<Failure>,
}

/// Runs `scenario` with the seeds from `first` on, `runs` of them, by `threads` threads.
///
/// # Errors
/// [`Failed`]: the one with the lowest seed.
pub fn campaign(scenario: &Scenario, first: u64, runs: u64, threads: usize) -> Result<Summary, Failed> {
    let next = AtomicU64::new(0);
    // The first that has failed so far: those before it are still to be done.
    let failed_at = AtomicU64::new(runs);
    let reports: Mutex<Vec<(u64, Report)>> = Mutex::default();
    let failures: Mutex<Vec<Failed>> = Mutex::default();
    let locked = "nobody panics while holding it";
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    if at >= failed_at.load(Relaxed) {
                        return;
                    }
                    match one(scenario, first + at, at.is_multiple_of(AGAIN_ONE_IN)) {
                        Ok(report) => reports.lock().expect(locked).push((at, report)),
                        Err(failed) => {
                            failed_at.fetch_min(at, Relaxed);
                            failures.lock().expect(locked).push(failed);
                        }
                    }
                }
            });
        }
    });
    if let Some(failed) = failures.into_inner().expect(locked).into_iter().min_by_key(|failed| failed.seed) {
        return Err(failed);
    }
    let mut reports = reports.into_inner().expect(locked);
    reports.sort_unstable_by_key(|(at, _)| *at);
    let mut summary = Summary { runs, repeated: runs.div_ceil(AGAIN_ONE_IN), ..Summary::default() };
    reports.iter().for_each(|(_, report)| summary.report.add(report));
    Ok(summary)
}

fn one(scenario: &Scenario, seed: u64, again: bool) -> Result<Report, Failed> {
    let done = || run(scenario, seed, RUN).map_err(|failure| Failed { seed, failure: Some(failure) });
    let report = done()?;
    if again && done()? != report {
        return Err(Failed { seed, failure: None });
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use guira_switched::Mutant;

    use super::*;

    #[test]
    fn threads_change_nothing() {
        let scenario = Scenario::default();
        let alone = campaign(&scenario, 7, 2, 1).expect("all is well");
        assert_eq!(campaign(&scenario, 7, 2, 2), Ok(alone));
        assert_eq!((alone.runs, alone.repeated), (2, 1));
        assert_ne!(campaign(&scenario, 8, 2, 2).map(|summary| summary.report.trace), Ok(alone.report.trace));
    }

    #[test]
    fn a_failure_names_its_seed() {
        let scenario = Scenario { mutant: Some(Mutant::R3), ..Scenario::default() };
        let failed = campaign(&scenario, 20, 4, 2).expect_err("it was put in");
        assert_eq!(run(&scenario, failed.seed, RUN).err(), failed.failure);
    }
}
