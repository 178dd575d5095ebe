//! The switched cluster under everything that can go wrong, and the checkers under every fault that they have to find out.

use guira_item::Span;
use guira_sim::{Report, Scenario, run};
use guira_switched::Mutant;

/// One run: long enough for some ninety faults.
const RUN: Span = Span::from_s(900);

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

fn simulate(scenario: &Scenario, seed: u64) -> Report {
    run(scenario, seed, RUN).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"))
}

#[test]
fn all_answers_are_linearizable_whatever_goes_wrong() {
    let runs = number("GUIRA_SIM_RUNS", 8);
    let first = number("GUIRA_SIM_SEED", 1);
    for seed in first..first + runs {
        let usual = Scenario::default();
        let scenario = match seed % 4 {
            0 => Scenario { hashes_collide: true, ..usual },
            1 => Scenario { fault_every: Span::from_s(3), ..usual },
            2 => Scenario { lease: Span::from_ms(300), keys: 6, clients: 16, operations_per_s: 300, ..usual },
            _ => usual,
        };
        let report = simulate(&scenario, seed);
        assert!(report.cache_hits > 1_000 && report.cache_updates > 100, "{report:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let scenario = Scenario::default();
    assert_eq!(simulate(&scenario, 5), simulate(&scenario, 5));
    assert_ne!(simulate(&scenario, 5).trace, simulate(&scenario, 6).trace);
}

#[test]
fn every_mutant_is_found_out() {
    for mutant in Mutant::ALL {
        let scenario = Scenario { mutant: Some(mutant), hashes_collide: mutant == Mutant::R8, ..Scenario::default() };
        let found = (0..40).find_map(|seed| run(&scenario, seed, RUN).err());
        assert!(found.is_some(), "{mutant:?} was not found out");
    }
}
