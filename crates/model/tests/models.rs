//! The smallest bounds of every model: the protocol as it is has no fault there, and each fault that is put into it is found.

use guira_model::{Bounds, FINDS, MODELS, check, models};
use guira_switched::Mutant;

#[test]
fn nothing_is_wrong_within_the_smallest_bounds() {
    let models = models(Bounds::Small);
    assert!(models.iter().map(|model| model.name).eq(MODELS));
    // Even its smallest bounds have a million states: the optimised binary goes through them.
    for model in models.into_iter().filter(|model| model.name != "drops") {
        let report = check(&model, 2);
        assert!(report.found.is_none(), "{}: {:#?}", model.name, report.found);
        assert!(report.missing.is_empty(), "{} never shows that {}", model.name, report.missing.join(", "));
    }
}

#[test]
fn every_fault_is_found_and_told_act_by_act() {
    assert!(FINDS.map(|(mutant, _)| mutant) == Mutant::ALL);
    for (mutant, name) in FINDS {
        let model = models(Bounds::Small).into_iter().find(|model| model.name == name).expect("it is there");
        let report = check(&guira_model::Scenario { mutant: Some(mutant), ..model }, 2);
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
