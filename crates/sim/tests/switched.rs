//! The switched cluster under everything that can go wrong, and the checkers under every fault that they have to find out.

use guira_item::Span;
use guira_sim::{Failure, RUN, Report, SCENARIOS, Scenario, SwitchBounds, run};
use guira_switched::Mutant;

fn named(name: &str) -> Scenario {
    Scenario::named(name).expect("it is listed")
}

fn simulate(scenario: &Scenario, seed: u64) -> Report {
    run(scenario, seed, RUN).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"))
}

#[test]
fn all_answers_are_linearizable_whatever_goes_wrong() {
    let (mut charges, mut away) = (0, 0);
    for name in SCENARIOS {
        for seed in 1..3 {
            let scenario = named(name);
            let report = simulate(&scenario, seed);
            assert!(report.cache_hits > 1_000 && report.cache_updates > 100, "{name}: {report:?}");
            let change = scenario.members_change_every.is_some();
            assert!((report.given > 200 && report.moved > 50) == scenario.backends_change, "{name}: {report:?}");
            assert!((report.taken_over > 10) == (scenario.standbys > 0), "{name}: {report:?}");
            assert!((report.members_changed > 100) == change, "{name}: {report:?}");
            // Two cache nodes are in charge of a backend, as long as one has not heard that another is.
            assert!((report.two_phased > 20) == (scenario.balances || change), "{name}: {report:?}");
            let slow = scenario.switch != SwitchBounds::NONE;
            let rules = [report.rules_waited, report.rules_replaced, report.rules_refused];
            assert!(if slow { rules.iter().all(|number| *number > 50) } else { rules == [0; 3] }, "{name}: {report:?}");
            let hedges = scenario.hedge_after.is_some();
            assert!(if hedges { report.hedged > 50 } else { report.hedged == 0 }, "{name}: {report:?}");
            charges += report.charges;
            away += report.away;
            assert!((report.came_due > 5) == (scenario.flushes_per_mille > 0), "{name}: {report:?}");
            let stalls = scenario.disk_stalls_max > Span::default();
            assert!(!stalls || report.late_states > 5, "{name}: {report:?}");
            let is_doubtful = scenario.disk_fails_per_mille > 0;
            assert!(!is_doubtful || report.came_late > 10 && report.news > 500, "{name}: {report:?}");
        }
    }
    assert!(charges > 20, "{charges} changes of who is in charge");
    assert!(away > 100, "{away} requests refused at once");
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(simulate(&named("usual"), 5), simulate(&named("usual"), 5));
    assert_ne!(simulate(&named("usual"), 5).trace, simulate(&named("usual"), 6).trace);
}

/// Faults that take a rare moment, of moves and of hedges: models find them (`docs/design/0021`), but for [`Mutant::MoveTakerLife`], which takes a `flush_all` in such
/// a moment and is found by nobody; that etcd keeps its rule is tested there.
const RARE: [Mutant; 13] = [
    Mutant::HedgeWin,
    Mutant::MoveAnswer,
    Mutant::MoveLife,
    Mutant::MoveTakerLife,
    Mutant::MoveDrain,
    Mutant::MoveUncache,
    Mutant::MoveCount,
    Mutant::MoveChange,
    Mutant::MoveNews,
    Mutant::MoveClear,
    Mutant::MoveFence,
    Mutant::MoveVersions,
    Mutant::MoveFlushTaken,
];

/// What a life leaves that is killed in a move is there until somebody removes it.
#[test]
fn what_nobody_removes_is_noticed() {
    let scenario = Scenario { cleans_up: false, ..named("giving-clean") };
    let is_left =
        |seed| matches!(run(&scenario, seed, RUN), Err(Failure::Stuck(told)) if told.contains("keys of others"));
    assert!((0..100).any(is_left));
}

#[test]
fn every_mutant_is_found_out() {
    for mutant in Mutant::ALL.into_iter().filter(|mutant| !RARE.contains(mutant)) {
        let scenario = named(match mutant {
            Mutant::MoveGate | Mutant::MoveFlush | Mutant::MoveFlushAt => "giving",
            Mutant::R2Begin | Mutant::TakesEarly => "replacing",
            // The more members begin anew, the more clocks are set back.
            Mutant::R1Bury => "stormy",
            Mutant::R8 => "colliding",
            Mutant::R2View => "moving",
            _ => "usual",
        });
        let scenario = Scenario { mutant: Some(mutant), ..scenario };
        let is_found = (0..100).any(|seed| matches!(run(&scenario, seed, RUN), Err(Failure::History { .. })));
        assert!(is_found, "{} was not found out", mutant.name());
    }
}
