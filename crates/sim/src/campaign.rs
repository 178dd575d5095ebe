//! A campaign: many runs of a scenario, one seed each, on all processors; some are done twice.
//!
//! Always true: what it says depends on the scenario, the first seed and the number of runs, however many threads there are.

use std::{num::NonZero, ops::ControlFlow};

use guira_item::Span;

use crate::in_order::in_order;
use crate::simulation::{Failure, Simulation, Together};

/// A quarter of a cluster-hour: a failure is small enough to look at, and the seeds are many.
pub const RUN: Span = Span::from_s(900);

/// One run in so many is done once more, and has to be the same.
const AGAIN_ONE_IN: u64 = 100;

/// What came of all runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary<R> {
    /// All runs together; the trace is of all of theirs.
    pub report: R,
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
pub fn campaign<S: Simulation>(
    scenario: &S,
    first: u64,
    runs: u64,
    threads: NonZero<usize>,
) -> Result<Summary<S::Report>, Failed> {
    let mut summary: Summary<S::Report> = Summary { runs, repeated: runs.div_ceil(AGAIN_ONE_IN), ..Summary::default() };
    let one = |at: usize| one(scenario, first + at as u64, (at as u64).is_multiple_of(AGAIN_ONE_IN));
    let ended = in_order(runs as usize, threads, one, |done| match done {
        Ok(report) => {
            summary.report.add(&report);
            ControlFlow::Continue(())
        }
        Err(failed) => ControlFlow::Break(failed),
    });
    match ended {
        ControlFlow::Continue(()) => Ok(summary),
        ControlFlow::Break(failed) => Err(failed),
    }
}

fn one<S: Simulation>(scenario: &S, seed: u64, again: bool) -> Result<S::Report, Failed> {
    let done = || scenario.run(seed, RUN).map_err(|failure| Failed { seed, failure: Some(failure) });
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
    use crate::{scenario::Scenario, simulation::run};

    const TWO: NonZero<usize> = NonZero::new(2).unwrap();

    #[test]
    fn threads_change_nothing() {
        let scenario = Scenario::default();
        let alone = campaign(&scenario, 7, 2, NonZero::<usize>::MIN).expect("all is well");
        assert_eq!(campaign(&scenario, 7, 2, TWO), Ok(alone));
        assert_eq!((alone.runs, alone.repeated), (2, 1));
        assert_ne!(campaign(&scenario, 8, 2, TWO).map(|summary| summary.report.trace), Ok(alone.report.trace));
    }

    #[test]
    fn a_failure_names_its_seed() {
        let scenario = Scenario { mutant: Some(Mutant::R3), ..Scenario::default() };
        let failed = campaign(&scenario, 20, 4, TWO).expect_err("it was put in");
        assert_eq!(run(&scenario, failed.seed, RUN).err(), failed.failure);
    }
}
