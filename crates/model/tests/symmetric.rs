//! The smallest bounds of every model: the protocol as it is has no fault there, and each fault that is put into it is found.

use guira_consistency::Mutant;
use guira_model::{
    Bounds,
    symmetric::{Client, FINDS, MODELS, Scenario, check, models},
};

fn model(name: &str) -> Scenario {
    models(Bounds::Small).into_iter().find(|model| model.name == name).expect("it is there")
}

/// `cargo xtask model` goes through wider ones.
#[test]
fn nothing_is_wrong_within_the_smallest_bounds() {
    let models = models(Bounds::Small);
    assert!(models.iter().map(|model| model.name).eq(MODELS));
    for model in models {
        let report = check(&model, 2);
        let (states, seconds) = (report.states, report.elapsed.as_secs_f64());
        println!(
            "{}: {model}: {states} states, {} come to, {} deep, {seconds:.1} s",
            model.name, report.come_to, report.depth
        );
        assert!(report.found.is_none(), "{}: {:#?}", model.name, report.found);
        assert!(report.is_exhausted, "{} has more states", model.name);
        assert!(report.missing.is_empty(), "{} never shows that {}", model.name, report.missing.join(", "));
    }
}

#[test]
fn every_fault_has_a_model() {
    assert!(FINDS.map(|(mutant, _)| mutant).iter().eq(Mutant::ALL.iter()));
}

#[test]
fn every_fault_is_found() {
    for (mutant, name) in FINDS {
        let report = check(&Scenario { mutant: Some(mutant), settles_one_in: 4, ..model(name) }, 2);
        let acts = report.found.as_ref().map(|found| (found.promise, found.trace.len() - 1));
        println!(
            "{} by {name}: {acts:?}, {} states, {:.1} s",
            mutant.name(),
            report.states,
            report.elapsed.as_secs_f64()
        );
        assert!(acts.is_some(), "{name} does not find {}", mutant.name());
    }
}

/// As far as that can be gone through without: two writes and a read.
#[test]
fn what_is_not_told_apart_makes_no_difference() {
    let writes = model("writes");
    let clients = writes.clients.iter().map(|client| Client { wants: client.wants[..1].to_vec(), ..client.clone() });
    let few = Scenario { clients: clients.collect(), settles_one_in: 1, ..writes.clone() };
    for mutant in [None, Some(Mutant::TieIgnored), Some(Mutant::AckForgotten)] {
        let [told, apart] =
            [true, false].map(|forgets_dead| check(&Scenario { forgets_dead, mutant, ..few.clone() }, 2));
        println!("{mutant:?}: {} states, {} if all are told apart", told.states, apart.states);
        assert_eq!(told.found.is_some(), mutant.is_some());
        assert_eq!(apart.found.is_some(), mutant.is_some());
        assert!(mutant.is_some() || (told.is_exhausted && apart.is_exhausted));
        assert!(told.states <= apart.states);
    }
}

#[test]
fn bounds_do_not_shrink() {
    let [small, ci, long] = Bounds::ALL.map(|(_, bounds)| models(bounds));
    let size = |model: &Scenario| {
        let faults = model.faults;
        let counts = [
            faults.crashes,
            faults.lapses,
            faults.views,
            faults.joins,
            faults.passes,
            model.hot_set.0,
            model.hot_set.1,
        ];
        let wants = model.clients.iter().map(|client| client.wants.len()).sum();
        [model.keys, model.nodes, wants].into_iter().chain(counts.map(usize::from)).collect::<Vec<_>>()
    };
    let is_within =
        |few: &Scenario, many: &Scenario| size(few).into_iter().zip(size(many)).all(|(few, many)| few <= many);
    for ((small, ci), long) in small.iter().zip(&ci).zip(&long) {
        assert!(small.name == ci.name && ci.name == long.name);
        assert!(is_within(small, ci) && is_within(ci, long), "{}", small.name);
    }
}
