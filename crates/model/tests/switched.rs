//! The smallest bounds of every model: the protocol as it is has no fault there, and each fault that is put into it is found.

use std::collections::BTreeSet;

use guira_model::{
    Bounds,
    switched::{FINDS, FINDS_NOT, MODELS, Scenario, check, models},
};
use guira_switched::Mutant;

/// Even their smallest bounds have hundreds of thousands of states: `cargo xtask model` goes through those of wider ones.
const LARGE: [&str; 5] = ["drops", "moved-copies", "move-deaths", "returns", "late-copies"];

#[test]
fn nothing_is_wrong_within_the_smallest_bounds() {
    let models = models(Bounds::Small);
    assert!(models.iter().map(|model| model.name).eq(MODELS));
    for model in models.into_iter().filter(|model| !LARGE.contains(&model.name)) {
        let report = check(&model, 2);
        assert!(report.found.is_none(), "{}: {:#?}", model.name, report.found);
        assert!(report.missing.is_empty(), "{} never shows that {}", model.name, report.missing.join(", "));
    }
}

#[test]
fn every_fault_is_found_or_known_not_to_be() {
    let all: Vec<Mutant> = FINDS.map(|(mutant, _)| mutant).into_iter().chain(FINDS_NOT).collect();
    assert_eq!(all.len(), Mutant::ALL.len());
    assert_eq!(BTreeSet::from_iter(all), BTreeSet::from(Mutant::ALL));
}

#[test]
fn every_fault_is_found_and_told_act_by_act() {
    for (mutant, name) in FINDS {
        let model = models(Bounds::Small).into_iter().find(|model| model.name == name).expect("it is there");
        // It is what clients are told that is to be found, and not that a core gives up once they were.
        let report = check(&Scenario { mutant: Some(mutant), settles_one_in: u64::MAX, ..model }, 2);
        let found = report.found.unwrap_or_else(|| panic!("{name} does not find {}", mutant.name()));
        assert_eq!(found.promise, "every answer is linearizable for its key", "{mutant:?}");
        assert!(found.trace.last().is_some_and(|line| line.contains("is told")), "{:#?}", found.trace);
    }
}

#[test]
fn bounds_do_not_shrink() {
    let [small, ci, long] = Bounds::ALL.map(|(_, bounds)| models(bounds));
    for ((small, ci), long) in small.iter().zip(&ci).zip(&long) {
        assert!(small.name == ci.name && ci.name == long.name);
        assert!(small.room <= ci.room && ci.room <= long.room && small.sessions_max <= long.sessions_max);
    }
}
