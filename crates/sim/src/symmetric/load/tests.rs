use std::num::NonZero;

use super::*;
use crate::load::{aims::verdicts, kept};

fn tiny() -> LoadScenario {
    LoadScenario {
        nodes: 3,
        keys: 1_000_000,
        cached: 1_000,
        key_scale: 200,
        scale: 100,
        offer: Offer::Outstanding(32),
        settle: Span::from_ms(5),
        measure: Span::from_ms(20),
        ..LoadScenario::default()
    }
}

#[test]
fn every_request_is_answered_and_every_key_that_is_to_be_hot_is() {
    for variant in Variant::ALL {
        let scenario = LoadScenario { variant, write_share: 0.05, ..tiny() };
        let report = measure(&scenario);
        assert!(report.answered > 1_000, "{variant:?}: {report:?}");
        assert_eq!((report.wrong_answers, report.requests), (0, report.requests_answered), "{variant:?}");
        assert_eq!(report.hot_keys as u64, scenario.simulated_keys().1);
        assert_eq!(report, measure(&scenario), "the same scenario is the same run");
    }
}

#[test]
fn the_hit_ratio_is_the_papers_with_fewer_keys() {
    let scenario = LoadScenario::default();
    let (keys, hot) = scenario.simulated_keys();
    assert_eq!(keys, 1_250_000);
    let share = skew(keys, 0.99).share_of_hottest(hot);
    assert!((share - scenario.hit_share()).abs() < 1e-3 && (0.62..0.64).contains(&share), "{hot}: {share}");
    let report = measure(&tiny());
    assert!((report.hit_share - tiny().hit_share()).abs() < 0.03, "{report:?}");
}

#[test]
fn a_network_that_is_full_carries_what_the_equations_have() {
    for (variant, write_share) in [(Variant::Lin, 0.0), (Variant::Lin, 0.03), (Variant::Sc, 0.03)] {
        let scenario = LoadScenario { variant, write_share, offer: Offer::Outstanding(128), ..tiny() };
        let row = Row::run("writes", &scenario);
        let (sent, planned) = (row.bytes_a_request(), row.planned_bytes().expect("a plan"));
        assert!((sent / planned - 1.0).abs() < 0.05, "{variant:?} {write_share}: {sent} {planned}");
        let served = row.report.answered_per_s / row.planned_per_s().expect("a plan");
        assert!((0.9..1.03).contains(&served), "{variant:?} {write_share}: {served}");
    }
}

#[test]
fn what_is_written_of_our_messages_is_what_they_have() {
    let planned = guira_plan::MessageLens::OF_GUIRA;
    let of = |variant| measure(&LoadScenario { variant, write_share: 0.05, nodes: 9, ..tiny() }).traffic.lens();
    let (sc, lin) = (of(Variant::Sc), of(Variant::Lin));
    let pairs = [(lin.remote, planned.remote), (sc.update, planned.update), (lin.lin_write, planned.lin_write)];
    for (seen, written) in pairs {
        assert!((seen / written - 1.0).abs() < 0.05, "{seen}, and {written} is written");
    }
}

#[test]
fn messages_that_share_packets_take_less_of_the_network() {
    let of = |coalesces| {
        let scenario = LoadScenario {
            coalesces,
            bytes_per_s: LoadScenario::LINK_BYTES_PER_S,
            packets_per_s: LoadScenario::PACKETS_PER_S,
            offer: Offer::Outstanding(256),
            ..tiny()
        };
        measure(&scenario)
    };
    let (alone, shared) = (of(false), of(true));
    let messages = alone.traffic.messages.iter().sum::<u64>() as f64;
    // Some wait for the link when measuring begins, and when it ends.
    assert!((alone.traffic.packets as f64 / messages - 1.0).abs() < 0.05, "{alone:?}");
    assert!(shared.traffic.packets * 2 < shared.traffic.messages.iter().sum::<u64>(), "{shared:?}");
    assert!(shared.answered_per_s > 1.5 * alone.answered_per_s);
}

#[test]
fn every_experiment_runs_is_kept_and_drawn_again() {
    let base = LoadScenario { measure: Span::from_ms(4), settle: Span::from_ms(2), cached: 200, ..tiny() };
    let folder = tempfile::tempdir().expect("a folder");
    let mut all = Vec::new();
    for experiment in experiments::experiments() {
        let mut rows = Vec::new();
        experiments::run(experiment, &base, 1, NonZero::new(2).expect("two"), |row| rows.push(row));
        for row in &rows {
            assert_eq!(row.report.wrong_answers, 0, "{row:?}");
            assert_eq!(row.report.requests, row.report.requests_answered, "{row:?}");
        }
        kept::keep(folder.path(), experiment.0, &rows).expect("writes");
        all.extend(rows);
    }
    let again = kept::redraw::<Row>(folder.path()).expect("draws");
    let traffic = |rows: &[Row]| rows.iter().map(|row| row.report.traffic.clone()).collect::<Vec<_>>();
    assert_eq!(traffic(&again), traffic(&all));
    assert!(folder.path().join("writes-bytes.svg").exists());
    assert_eq!(verdicts(&all).len(), aims::AIMS.len(), "every aim is judged");
}
