//! The symmetric cluster under everything that can go wrong, and the checkers under every fault that they have to find out.

use guira_consistency::Mutant as HotKeys;
use guira_item::Span;
use guira_sim::{
    Failure, run,
    symmetric::{Mutant, Report, SCENARIOS, Scenario},
};
use guira_symmetric::{FlowMutant as Flow, HomecomingMutant as Homecoming, ShownMutant as Shown, ViewsMutant as Views};

/// Three rounds.
const RUN: Span = Span::from_s(900);

/// Seeds in one of which each fault shows, mostly in one of the first.
const SEEDS_MAX: u64 = 60;

fn named(name: &str) -> Scenario {
    Scenario::named(name).expect("it is listed")
}

fn simulate(scenario: &Scenario, seed: u64) -> Report {
    run(scenario, seed, RUN).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"))
}

#[test]
fn all_answers_are_linearizable_whatever_goes_wrong() {
    let (mut elsewhere, mut begun_anew) = (0, 0);
    for name in SCENARIOS {
        for seed in 1..3 {
            let scenario = named(name);
            let report = simulate(&scenario, seed);
            let Report { tally, counts, flow, .. } = report;
            assert!(tally.answered > 40_000 && tally.unknown > 5, "{name}: {report:?}");
            // Else hardly anything was served.
            assert!(tally.failed * 2 < tally.answered, "{name}: {report:?}");
            let hot = [counts.hot_reads, counts.hot_writes, counts.promotions, counts.evictions];
            let is_hot = scenario.hot.len_max > 0;
            assert!(if is_hot { hot.iter().all(|number| *number > 20) } else { hot == [0; 4] }, "{name}: {report:?}");
            assert!(counts.forwarded > 1_000 && counts.at_home > 200 && counts.resent > 5, "{name}: {report:?}");
            assert!(flow.requests_waited > 20 && flow.beyond == 0, "{name}: {report:?}");
            let is_short = flow.messages_waited > 200 && flow.asked > 20;
            assert!(is_short || !is_hot, "{name}: {report:?}");
            assert!(counts.homecomings > 20 && counts.pages > counts.homecomings, "{name}: {report:?}");
            (elsewhere, begun_anew) =
                (elsewhere + counts.elsewhere, begun_anew + counts.copies.saturating_sub(counts.homecomings));
            assert!(report.views > 20 && report.may_be_lost > 20 && report.faults > 50, "{name}: {report:?}");
        }
    }
    // Else copies are never broken off, and nobody asks while a shard moves.
    assert!(elsewhere > 20 && begun_anew > 20, "{elsewhere} asked elsewhere, {begun_anew} copies begun anew");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let scenario = named("symmetric");
    assert_eq!(simulate(&scenario, 5), simulate(&scenario, 5));
    assert_ne!(simulate(&scenario, 5).trace, simulate(&scenario, 6).trace);
}

/// Faults that show here within some runs, and where they do soonest. Others need what hardly ever comes about by chance, or what a simulated cluster does not do (SC): the
/// models of `guira-consistency` and the tests of `Views` find each of all.
const SHOWS: [(Mutant, &str); 31] = [
    (Mutant::HotKeys(HotKeys::AckForgotten), "symmetric-hot"),
    (Mutant::HotKeys(HotKeys::TieIgnored), "symmetric-hot"),
    (Mutant::HotKeys(HotKeys::ValidateAny), "symmetric-hot"),
    (Mutant::HotKeys(HotKeys::ReplayFresh), "symmetric-hot"),
    (Mutant::HotKeys(HotKeys::ModifyByTwo), "symmetric-hot"),
    (Mutant::HotKeys(HotKeys::ModifyNotAborted), "symmetric-hot"),
    (Mutant::HotKeys(HotKeys::ModifyTwice), "symmetric-hot"),
    (Mutant::HotKeys(HotKeys::OldEpoch), "symmetric-hot"),
    (Mutant::HotKeys(HotKeys::AcksKept), "symmetric-hot"),
    (Mutant::HotKeys(HotKeys::PastLease), "symmetric-hot"),
    (Mutant::HotKeys(HotKeys::JoinerDeaf), "symmetric-stormy"),
    (Mutant::HotKeys(HotKeys::WriteBackEarly), "symmetric-hot"),
    (Mutant::HotKeys(HotKeys::LeavingDeaf), "symmetric-hot"),
    (Mutant::HotKeys(HotKeys::UnconfirmedServes), "symmetric-hot"),
    (Mutant::HotKeys(HotKeys::Unburied), "symmetric-hot"),
    (Mutant::Views(Views::GoneEarly), "symmetric-stormy"),
    (Mutant::Views(Views::GrantsTheGone), "symmetric-stormy"),
    (Mutant::Views(Views::ToldUnkept), "symmetric-stormy"),
    (Mutant::Shown(Shown::ServesInvalid), "symmetric-hot"),
    (Mutant::Shown(Shown::LeaseUnseen), "symmetric-hot"),
    (Mutant::Shown(Shown::HomesKept), "symmetric-homes"),
    (Mutant::Flow(Flow::LossLeaks), "symmetric-hot"),
    (Mutant::Flow(Flow::NeverAsks), "symmetric-hot"),
    (Mutant::Flow(Flow::FormerCounts), "symmetric-stormy"),
    (Mutant::Flow(Flow::RequestLeaks), "symmetric-cold"),
    (Mutant::Homecoming(Homecoming::PageIsAll), "symmetric-cold"),
    (Mutant::Homecoming(Homecoming::WriteUntold), "symmetric-cold"),
    (Mutant::Homecoming(Homecoming::Unsealed), "symmetric-cold"),
    (Mutant::Homecoming(Homecoming::OldCopy), "symmetric-homes"),
    (Mutant::Homecoming(Homecoming::SettledForgotten), "symmetric-cold"),
    (Mutant::Homecoming(Homecoming::OldSeal), "symmetric-homes"),
];

#[test]
fn faults_that_are_put_in_are_found_out() {
    for (mutant, name) in SHOWS {
        let scenario = Scenario { mutant: Some(mutant), ..named(name) };
        let is_found = |seed| matches!(run(&scenario, seed, RUN), Err(Failure::History { .. } | Failure::Stuck(_)));
        assert!((0..SEEDS_MAX).any(is_found), "{} was not found out", mutant.name());
    }
}
