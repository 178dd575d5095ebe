//! Exhaustive checks of the replicas that serve, in every order of what can happen to them within bounds.
//!
//! Always true: no protocol is written down here a second time; what is checked is what serves.

mod check;
mod orders;
mod printed;
mod promises;
mod random;
mod scenario;
mod scenarios;
mod world;

use check::check;
use guira_consistency::Mutant;
use scenario::Scenario;
use scenarios::scenarios;

fn run(name: &str) {
    let scenario = scenarios().into_iter().find(|scenario| scenario.name == name).expect("it is there");
    let report = check(&scenario, 2);
    println!(
        "{name}: {}: {scenario}: {} states, {} come to, {} deep, {:.1} s",
        scenario.about,
        report.states,
        report.come_to,
        report.depth,
        report.elapsed.as_secs_f64()
    );
    assert!(report.found.is_none(), "{name}: {:#?}", report.found);
    assert!(report.is_exhausted, "{name} has more states");
    assert!(report.missing.is_empty(), "{name} never shows that {}", report.missing.join(", "));
}

macro_rules! models {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            run($name);
        })*
    };
}

models! {
    writes: "writes", modifies: "modifies", finished: "finished", swaps: "swaps", crashes: "crashes",
    crashed_modifies: "crashed-modifies", leases: "leases", returns: "returns", home_returns: "home-returns",
    promotes: "promotes", evicts: "evicts", turns: "turns", promotion_crashes: "promotion-crashes",
    eviction_crashes: "eviction-crashes", forgetting_crashes: "forgetting-crashes", forgetting_returns: "forgetting-returns", homes_crash: "homes-crash", ends: "ends", sc_ends: "sc-ends", two_keys: "two-keys", joins_and_promotes: "joins-and-promotes", joins_and_evicts: "joins-and-evicts", again: "again",
    again_modifies: "again-modifies", sc_writes: "sc-writes", sc_modifies: "sc-modifies", sc_modify: "sc-modify", sc_crashes: "sc-crashes",
    sc_crashed_modifies: "sc-crashed-modifies", sc_returns: "sc-returns", sc_sessions: "sc-sessions",
    sc_turns: "sc-turns",
}

/// Which model finds which fault.
const FINDS: [(Mutant, &str); 31] = [
    (Mutant::AckForgotten, "writes"),
    (Mutant::TieIgnored, "writes"),
    (Mutant::ValidateAny, "writes"),
    (Mutant::ReplayFresh, "crashes"),
    (Mutant::ModifyByTwo, "modifies"),
    (Mutant::ModifyNotAborted, "modifies"),
    (Mutant::ModifyTwice, "finished"),
    (Mutant::OldEpoch, "returns"),
    (Mutant::AcksKept, "returns"),
    (Mutant::PastLease, "leases"),
    (Mutant::WriterReturns, "returns"),
    (Mutant::JoinerEarly, "home-returns"),
    (Mutant::JoinerDeaf, "returns"),
    (Mutant::JoinerRevives, "forgetting-returns"),
    (Mutant::JoinerLeaves, "joins-and-evicts"),
    (Mutant::WriteBackEarly, "evicts"),
    (Mutant::EvictDrops, "eviction-crashes"),
    (Mutant::LeavingDeaf, "evicts"),
    (Mutant::PromotesTwice, "turns"),
    (Mutant::AckOfEarlier, "turns"),
    (Mutant::UnconfirmedServes, "promotes"),
    (Mutant::SuccessorIdle, "promotion-crashes"),
    (Mutant::ForgottenByNobody, "forgetting-crashes"),
    (Mutant::DoubtIgnored, "homes-crash"),
    (Mutant::Unburied, "ends"),
    (Mutant::AgainPlain, "again"),
    (Mutant::UpdateOnce, "sc-writes"),
    (Mutant::DepartedUntold, "sc-crashes"),
    (Mutant::FloorIgnored, "sc-sessions"),
    (Mutant::ModifyUnsettled, "sc-modify"),
    (Mutant::SettledByAny, "sc-modify"),
];

#[test]
fn every_fault_is_found() {
    let mut is_found = true;
    for (mutant, name) in FINDS {
        let scenario = scenarios().into_iter().find(|scenario| scenario.name == name).expect("it is there");
        let report = check(&Scenario { mutant: Some(mutant), settles_one_in: 4, ..scenario }, 2);
        let found = report.found.as_ref().map(|(promise, trace)| (promise, trace.len() - 1));
        println!(
            "{} by {name}: {found:?}, {} states, {:.1} s",
            mutant.name(),
            report.states,
            report.elapsed.as_secs_f64()
        );
        is_found &= found.is_some();
    }
    assert!(is_found, "a fault is not found");
}

#[test]
fn every_fault_has_a_model() {
    assert!(FINDS.map(|(mutant, _)| mutant).iter().eq(Mutant::ALL.iter()));
}

/// As far as that can be gone through without: two writes and a read.
#[test]
fn what_is_not_told_apart_makes_no_difference() {
    let all = scenarios();
    let writes = all.iter().find(|scenario| scenario.name == "writes").expect("it is there");
    let clients =
        writes.clients.iter().map(|client| scenario::Client { wants: client.wants[..1].to_vec(), ..client.clone() });
    let few = Scenario { clients: clients.collect(), settles_one_in: 1, ..writes.clone() };
    for mutant in [None, Some(Mutant::TieIgnored), Some(Mutant::AckForgotten)] {
        let [told, apart] =
            [true, false].map(|forgets_dead| check(&Scenario { forgets_dead, mutant, ..few.clone() }, 2));
        println!("{mutant:?}: {} states, {} if all are told apart", told.states, apart.states);
        assert!(told.is_exhausted && apart.is_exhausted && told.states <= apart.states);
        assert_eq!(told.found.is_some(), apart.found.is_some());
        assert_eq!(told.found.is_some(), mutant.is_some());
    }
}
