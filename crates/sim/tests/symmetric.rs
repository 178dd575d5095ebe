//! The symmetric cluster under everything that can go wrong, and the checkers under every fault that they have to find out.

use guira_consistency::Mutant as HotKeys;
use guira_item::Span;
use guira_sim::{
    Failure, run,
    symmetric::{Mutant, Report, SCENARIOS, Scenario},
};
use guira_symmetric::ViewsMutant as Views;

/// Three rounds.
const RUN: Span = Span::from_s(900);

/// Seeds in which each fault shows, mostly in one of the first.
const SEEDS_MAX: u64 = 100;

fn named(name: &str) -> Scenario {
    Scenario::named(name).expect("it is listed")
}

fn simulate(scenario: &Scenario, seed: u64) -> Report {
    run(scenario, seed, RUN).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"))
}

#[test]
fn all_answers_are_linearizable_whatever_goes_wrong() {
    for name in SCENARIOS {
        for seed in 1..3 {
            let scenario = named(name);
            let report = simulate(&scenario, seed);
            let Report { tally, counts, .. } = report;
            assert!(tally.answered > 40_000 && tally.unknown > 5, "{name}: {report:?}");
            // Else hardly anything was served.
            assert!(tally.failed * 2 < tally.answered, "{name}: {report:?}");
            let hot = [counts.hot_reads, counts.hot_writes, counts.promotions, counts.evictions];
            let is_hot = scenario.hot.len_max > 0;
            assert!(if is_hot { hot.iter().all(|number| *number > 20) } else { hot == [0; 4] }, "{name}: {report:?}");
            assert!(counts.forwarded > 1_000 && counts.at_home > 200 && counts.resent > 5, "{name}: {report:?}");
            assert!(report.views > 20 && report.may_be_lost > 20 && report.faults > 50, "{name}: {report:?}");
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let scenario = named("symmetric");
    assert_eq!(simulate(&scenario, 5), simulate(&scenario, 5));
    assert_ne!(simulate(&scenario, 5).trace, simulate(&scenario, 6).trace);
}

/// Faults that cannot show here: of what the nodes of a simulated cluster do not promise (SC), of a node's life that goes on while another one takes its place, of a home that comes back to what it had
/// (nobody does yet), and of the half of a thousandth by which clocks drift apart in a lease. The models of `guira-consistency` and the tests of `Views` find them.
const NOT_HERE: [Mutant; 9] = [
    Mutant::HotKeys(HotKeys::UpdateOnce),
    Mutant::HotKeys(HotKeys::DepartedUntold),
    Mutant::HotKeys(HotKeys::FloorIgnored),
    Mutant::HotKeys(HotKeys::ModifyUnsettled),
    Mutant::HotKeys(HotKeys::SettledByAny),
    Mutant::Views(Views::LifeReplaced),
    Mutant::Views(Views::LeasesForgotten),
    Mutant::Views(Views::HomeAtOnce),
    Mutant::Views(Views::NoDrift),
];

/// Where it shows soonest: those of views where nodes come and go all the time.
fn scenario_of(mutant: Mutant) -> Scenario {
    named(match mutant {
        Mutant::HotKeys(_) => "symmetric-hot",
        Mutant::Views(_) => "symmetric-stormy",
    })
}

#[test]
fn every_mutant_is_found_out() {
    for mutant in Mutant::all().filter(|mutant| !NOT_HERE.contains(mutant)) {
        let scenario = Scenario { mutant: Some(mutant), ..scenario_of(mutant) };
        let is_found = |seed| matches!(run(&scenario, seed, RUN), Err(Failure::History { .. } | Failure::Stuck(_)));
        assert!((0..SEEDS_MAX).any(is_found), "{} was not found out", mutant.name());
    }
}
