//! The paper's experiments (SwitchKV, section 4), each a function from a scenario to points: the same at length and, in tests, tiny.
//!
//! What an experiment varies it varies around the scenario it is given, whose default is the paper's.

use std::{collections::BTreeSet, convert::Infallible, num::NonZero, ops::ControlFlow};

use guira_item::Span;
use guira_switched::{CacheMode, backend::Reports};

use super::{Asked, Change, LoadScenario, Offer, Pattern, Row, RuleOrder, Writes};
use crate::in_order::in_order;

/// A point of a figure: the scenario that is run for it; or several, of which the one that serves most is the point.
pub type Point = Vec<LoadScenario>;

/// An experiment: its name, and its points around a scenario.
pub type Experiment = (&'static str, fn(&LoadScenario) -> Vec<Point>);

/// All experiments.
pub fn experiments() -> Vec<Experiment> {
    vec![
        ("skew", skew),
        ("cache-size", cache_size),
        ("writes", writes),
        ("latency-hits", latency_hits),
        ("latency-misses", latency_misses),
        ("latency", latency),
        ("scaling", scaling),
        ("cache-threads", cache_threads),
        ("hot-in", hot_in),
        ("rule-buffer", rule_buffer),
        ("slow-switch", slow_switch),
        ("hot-out", hot_out),
        ("random", random),
        ("change-rates", change_rates),
    ]
}

/// Runs an experiment by so many threads, with so many seeds from the scenario's on, and hands out its rows in order: each as soon as those
/// before it are there.
pub fn run(
    (name, points): Experiment,
    base: &LoadScenario,
    seeds: u64,
    threads: NonZero<usize>,
    mut each: impl FnMut(Row),
) {
    let of_seed = |number| points(&LoadScenario { seed: base.seed.wrapping_add(number), ..base.clone() });
    let points: Vec<Point> = (0..seeds).flat_map(of_seed).collect();
    assert!(points.iter().all(|scenarios| !scenarios.is_empty()), "a point without a scenario");
    let scenarios: Vec<&LoadScenario> = points.iter().flatten().collect();
    let mut lens = points.iter().map(Vec::len);
    let mut of_point: Vec<Row> = Vec::new();
    let mut len = lens.next();
    let row = |at: usize| Row::run(name, scenarios[at]);
    let ControlFlow::Continue(()) = in_order(scenarios.len(), threads, row, |row| {
        of_point.push(row);
        if len == Some(of_point.len()) {
            let served = |row: &Row| row.report.answered_per_s;
            of_point.drain(..).max_by(|a, b| served(a).total_cmp(&served(b))).into_iter().for_each(&mut each);
            len = lens.next();
        }
        ControlFlow::<Infallible>::Continue(())
    });
}

const EXPONENTS: [f64; 4] = [0.0, 0.9, 0.95, 0.99];
const CACHED: [CacheMode; 3] = [CacheMode::Switched, CacheMode::LookAside, CacheMode::LookThrough];

/// Figures 9 and 10: what each backend does, and throughput, with and without a cache, by skew.
pub fn skew(base: &LoadScenario) -> Vec<Point> {
    let mut points = Vec::new();
    for exponent in EXPONENTS {
        for cache_mode in CACHED.into_iter().chain([CacheMode::None]) {
            points.push(vec![LoadScenario { cache_mode, exponent, ..base.clone() }]);
        }
    }
    points
}

/// Figure 11: throughput by the size of the cache, from a hundredth to ten times the scenario's.
pub fn cache_size(base: &LoadScenario) -> Vec<Point> {
    let sizes = [1, 3, 10, 30, 100, 300, 1_000].map(|per_cent| (base.cache_items * per_cent / 100).max(1));
    // A switch of 400 rules a second takes minutes for the largest; that is not what is measured.
    let rules_per_s = base.rules_per_s.max(2_000);
    let scenario = |cache_items| LoadScenario { cache_items, rules_per_s, ..base.clone() };
    sizes.into_iter().map(|cache_items| vec![scenario(cache_items)]).collect()
}

/// Figure 12: throughput by the share of writes, of any key or of popular ones.
pub fn writes(base: &LoadScenario) -> Vec<Point> {
    let mut points = Vec::new();
    for by_popularity in [false, true] {
        for share in [0.0, 0.1, 0.2, 0.5, 1.0] {
            let writes = Some(Writes { share, by_popularity });
            points.push(vec![LoadScenario { writes, ..base.clone() }]);
        }
    }
    points
}

/// A run at some rates, for latencies: short, and not scaled, as they are not.
fn at_rates(base: &LoadScenario, shares: &[f64]) -> Vec<Point> {
    let mut points = Vec::new();
    for cache_mode in CACHED {
        for share in shares {
            let offer = Offer::PerSecond(f64::from(base.backends) * base.backend_per_s * share);
            let (settle, measure) = (Span::from_ms(20), Span::from_ms(30));
            points.push(vec![LoadScenario { cache_mode, offer, settle, measure, scale: 1.0, ..base.clone() }]);
        }
    }
    points
}

/// Figure 13a: latency by rate, where only what is cached is asked for.
pub fn latency_hits(base: &LoadScenario) -> Vec<Point> {
    let asked = Asked::Hottest(base.cache_items as u64);
    at_rates(&LoadScenario { asked, ..base.clone() }, &[0.1, 0.5, 0.9, 1.05])
}

/// Figure 13b: latency by rate, where nothing is cached and keys are asked for alike.
pub fn latency_misses(base: &LoadScenario) -> Vec<Point> {
    let scenario = LoadScenario { exponent: 0.0, cache_items: 0, warms: false, ..base.clone() };
    at_rates(&scenario, &[0.1, 0.5, 0.75, 0.9])
}

/// Figure 13c: latency by rate, zipf and a cache; also at half a per cent more than a cache node serves that is asked for everything, which is then lost: the
/// paper takes for the most what loses half a per cent to one (section 4.1). 1 is what all backends can do.
pub fn latency(base: &LoadScenario) -> Vec<Point> {
    let most = 1.005 * base.cache_per_s / (f64::from(base.backends) * base.backend_per_s);
    at_rates(base, &[0.1, 0.5, 0.8, 1.0, most, 1.2, 1.4])
}

/// Figure 14: throughput by the number of backends, half as fast as the scenario's, with a cache node that does as much as a hundred of
/// them; and with as many cache nodes as are needed, whose loads are made even or not. Where one cache node is the limit it has fewer items, as the
/// paper's does: of some sizes, the one that serves most.
pub fn scaling(base: &LoadScenario) -> Vec<Point> {
    let backend_per_s = base.backend_per_s / 2.0;
    let cache_per_s = backend_per_s * 100.0;
    let mut points = Vec::new();
    for quarters in [1, 2, 4, 8, 12, 16, 24, 31] {
        let backends = base.backends * quarters / 4;
        let all_per_s = f64::from(backends) * backend_per_s;
        // What is simulated does not grow with the cluster.
        let scale = base.scale * all_per_s / (f64::from(base.backends) * base.backend_per_s);
        let scenario = LoadScenario { backends, backend_per_s, cache_per_s, scale, ..base.clone() };
        let hit_share = share_of_hottest(scenario.cache_items, &scenario);
        let hits_per_s = all_per_s * hit_share / (1.0 - hit_share);
        let caches = (hits_per_s * 1.1 / cache_per_s).ceil().max(1.0) as u16;
        points.push(of_best_size(&scenario));
        if caches > 1 {
            // Loads are even after some rounds of telling them.
            let settle = scenario.settle.times(4);
            for balances in [true, false] {
                points.push(vec![LoadScenario { caches, balances, settle, ..scenario.clone() }]);
            }
        }
        points.push(vec![LoadScenario { cache_mode: CacheMode::None, ..scenario.clone() }]);
        // One cache node, and as many as the switched cluster has.
        for caches in BTreeSet::from([1, caches]) {
            let cache_mode = CacheMode::LookAside;
            points.push(vec![LoadScenario { cache_mode, caches, ..scenario.clone() }]);
        }
    }
    points
}

/// Beyond the paper: throughput by the threads of a cache node that does as much with all of them as with one, while these make their loads even and
/// while they do not. One that is busy for half of its time: what it loses is what a single thread has too much of.
pub fn cache_threads(base: &LoadScenario) -> Vec<Point> {
    let hit_share = share_of_hottest(base.cache_items, base);
    let hits_per_s = f64::from(base.backends) * base.backend_per_s * hit_share / (1.0 - hit_share);
    let mut points = Vec::new();
    for threads in [1, 2, 4, 8, 16, 32] {
        let cache_threads = NonZero::new(threads).expect("one at least");
        for balances in [true, false] {
            // Loads are even after some rounds of telling them.
            let settle = base.settle.times(4);
            let scenario =
                LoadScenario { cache_threads, balances, settle, cache_per_s: 2.0 * hits_per_s, ..base.clone() };
            points.push(vec![scenario.clone()]);
        }
    }
    points
}

/// One cache node, with all items or, if those are more than it can serve, with so many that it serves most.
fn of_best_size(scenario: &LoadScenario) -> Point {
    let all_per_s = f64::from(scenario.backends) * scenario.backend_per_s;
    // A little below its limit: a cache node that loses is the first to do so. Backends that are not all at theirs leave room for more.
    let share_max = 0.97 * scenario.cache_per_s / (0.97 * scenario.cache_per_s + all_per_s);
    let least = items_of_share(share_max, scenario);
    if least >= scenario.cache_items {
        return vec![scenario.clone()];
    }
    let sizes = [1, 2, 5, 15].map(|times| (least.max(1) * times).min(scenario.cache_items));
    sizes.map(|cache_items| LoadScenario { cache_items, ..scenario.clone() }).into()
}

/// The sum of `rank^-exponent` over the first `len` ranks: exact for the first thousand, an integral beyond.
fn weight_of_hottest(len: u64, exponent: f64) -> f64 {
    const EXACT: u64 = 1_000;
    let exact: f64 = (1..=len.min(EXACT)).map(|rank| (rank as f64).powf(-exponent)).sum();
    if len <= EXACT {
        return exact;
    }
    let (from, to) = (EXACT as f64 + 0.5, len as f64 + 0.5);
    let power = 1.0 - exponent;
    let rest = if power.abs() < 1e-9 { (to / from).ln() } else { (to.powf(power) - from.powf(power)) / power };
    exact + rest
}

/// The share of requests for the so many hottest keys.
pub fn share_of_hottest(len: usize, scenario: &LoadScenario) -> f64 {
    weight_of_hottest(len as u64, scenario.exponent) / weight_of_hottest(scenario.keys, scenario.exponent)
}

/// The most keys whose share is at most that.
fn items_of_share(share: f64, scenario: &LoadScenario) -> usize {
    let (mut few, mut many) = (0, scenario.keys as usize);
    while few + 1 < many {
        let middle = few + (many - few) / 2;
        if share_of_hottest(middle, scenario) <= share {
            few = middle;
        } else {
            many = middle;
        }
    }
    few
}

/// Runs through some changes, with a sample every 100 ms. What the first seconds of load bring into the cache has come before.
fn changes(base: &LoadScenario, pattern: Pattern, keys: usize, every: Span, times: u64) -> LoadScenario {
    let first = base.measure.part(2);
    let change = Some(Change { pattern, keys, first, every });
    let (settle, measure) = (base.settle.times(2), first + every.times(times));
    LoadScenario { change, settle, measure, sample_every: Span::from_ms(100), ..base.clone() }
}

/// A fiftieth of what is cached: 200 of 10,000.
fn few(base: &LoadScenario) -> usize {
    (base.cache_items / 50).max(1)
}

/// By what backends report, and with all of it also in the paper's order of rules.
fn by_reports(scenario: &LoadScenario, reports: &[Reports]) -> Vec<Point> {
    let scenarios = reports.iter().map(|reports| LoadScenario { reports: *reports, ..scenario.clone() });
    scenarios.chain([as_they_come(scenario)]).map(|scenario| vec![scenario]).collect()
}

/// The paper's own mechanism: all reports, and rules in the order in which they come.
fn as_they_come(scenario: &LoadScenario) -> LoadScenario {
    LoadScenario { reports: Reports::Both, rule_order: RuleOrder::AsTheyCome, ..scenario.clone() }
}

/// Figure 15: 200 cold keys become the hottest; by what backends report. Once, not every ten seconds.
pub fn hot_in(base: &LoadScenario) -> Vec<Point> {
    let scenario = changes(base, Pattern::HotIn, few(base), base.measure.times(3), 1);
    by_reports(&scenario, &[Reports::EveryQuery, Reports::Periodic, Reports::Instant, Reports::Both])
}

/// Beyond the paper: as figure 15, with a switch that makes fewer rules than it was said to take. The controller goes on at the rate that it was told, and
/// what it asks for waits at the switch.
pub fn slow_switch(base: &LoadScenario) -> Vec<Point> {
    let scenario = changes(base, Pattern::HotIn, few(base), base.measure.times(3), 1);
    let rates = [1.0, 2.0, 4.0, 8.0].map(|times| f64::from(base.rules_per_s) / times);
    rates.map(|switch_per_s| vec![LoadScenario { switch_per_s, ..scenario.clone() }]).into()
}

/// Figure 18: 600 cold keys become the hottest, with and without a delay of rules' deletion; also in the paper's order of rules.
pub fn rule_buffer(base: &LoadScenario) -> Vec<Point> {
    let scenario = changes(base, Pattern::HotIn, 3 * few(base), base.measure.times(4), 1);
    let mut points = Vec::new();
    for rule_deletion_delay in [Span::from_s(2), Span::default()] {
        let scenario = LoadScenario { rule_deletion_delay, ..scenario.clone() };
        points.push(vec![scenario.clone()]);
        points.push(vec![as_they_come(&scenario)]);
    }
    points
}

/// Changes of figures 16 and 17, one a second: as long as theirs.
const CHANGES: u64 = 60;

/// Figure 16: the 200 hottest keys become cold every second.
pub fn hot_out(base: &LoadScenario) -> Vec<Point> {
    let scenario = changes(base, Pattern::HotOut, few(base), base.measure, CHANGES);
    by_reports(&scenario, &[Reports::Instant, Reports::Both])
}

/// Figure 17: 200 of the 10,000 hottest keys are replaced every second.
pub fn random(base: &LoadScenario) -> Vec<Point> {
    let scenario = changes(base, Pattern::Random { of: base.cache_items }, few(base), base.measure, CHANGES);
    by_reports(&scenario, &[Reports::Periodic, Reports::Instant, Reports::Both])
}

/// Figure 19: keys change every second, so many at once; hot-in with the paper's order of rules as well. All are measured without a cache, too.
pub fn change_rates(base: &LoadScenario) -> Vec<Point> {
    const PER_MILLE: [usize; 7] = [5, 20, 100, 200, 500, 1_000, 2_000];
    const TIMES: u64 = 12;
    let mut points = Vec::new();
    for pattern in [Pattern::HotIn, Pattern::HotOut, Pattern::Random { of: base.cache_items }] {
        for per_mille in PER_MILLE {
            let keys = (base.cache_items * per_mille / 1_000).max(1);
            // As soon as it is measured.
            let change = Some(Change { pattern, keys, first: Span::from_us(1), every: base.measure });
            let (measure, sample_every) = (base.measure.times(TIMES), base.measure);
            let scenario = LoadScenario { change, measure, sample_every, ..base.clone() };
            points.push(vec![scenario.clone()]);
            if pattern == Pattern::HotIn {
                let rule_order = RuleOrder::AsTheyCome;
                points.push(vec![LoadScenario { rule_order, ..scenario.clone() }]);
            }
            let cache_mode = CacheMode::None;
            points.push(vec![LoadScenario { cache_mode, ..scenario }]);
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::super::kept;
    use super::*;

    fn rows(experiment: Experiment, base: &LoadScenario, seeds: u64, threads: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        run(experiment, base, seeds, NonZero::new(threads).expect("one at least"), |row| rows.push(row));
        rows
    }

    fn tiny() -> LoadScenario {
        LoadScenario {
            backends: 4,
            cache_items: 50,
            keys: 1_000_000,
            scale: 200.0,
            settle: Span::from_ms(30),
            measure: Span::from_ms(60),
            ..LoadScenario::default()
        }
    }

    #[test]
    fn a_point_is_the_scenario_that_serves_most_and_threads_change_nothing() {
        let points: fn(&LoadScenario) -> Vec<Point> = |base| {
            let of =
                |backends: &[u16]| backends.iter().map(|len| LoadScenario { backends: *len, ..base.clone() }).collect();
            [&[4, 16, 8][..], &[2], &[16, 4]].map(of).into()
        };
        let alone = rows(("points", points), &tiny(), 2, 1);
        assert_eq!(
            alone.iter().map(|row| (row.seed, row.backends)).collect::<Vec<_>>(),
            [(1, 16), (1, 2), (1, 16), (2, 16), (2, 2), (2, 16)]
        );
        assert_eq!(rows(("points", points), &tiny(), 2, 3), alone);
    }

    #[test]
    fn every_experiment_runs_is_kept_and_drawn_again() {
        let tiny = tiny();
        let folder = tempfile::tempdir().expect("a folder");
        let mut all = Vec::new();
        for (name, experiment) in experiments() {
            let rows = rows((name, experiment), &tiny, 2, 2);
            for row in &rows {
                let report = &row.report;
                assert!(report.answered_per_s > 0.0, "{name}: {row:?}");
                assert_eq!(report.wrong_answers, 0, "{name}: {row:?}");
                assert_eq!(report.requests, report.requests_answered + report.requests_lost, "{name}: {row:?}");
            }
            let (first, second) = rows.split_at(rows.len() / 2);
            assert!(first.iter().all(|row| row.seed == 1) && second.iter().all(|row| row.seed == 2), "{name}");
            let written = kept::keep(folder.path(), name, &rows).expect("writes");
            // What is told of changes takes a longer run than this.
            assert!(written.len() >= 3, "{name}: rows, and a figure as SVG and PNG: {written:?}");
            all.extend(rows);
        }
        let is_plot = |path: &std::path::Path| path.extension().is_some_and(|ending| ending != "jsonl");
        let files = || std::fs::read_dir(folder.path()).expect("a folder").map(|file| file.expect("a file").path());
        let drawn: Vec<_> = files().filter(|path| is_plot(path)).collect();
        drawn.iter().for_each(|path| std::fs::remove_file(path).expect("goes"));
        assert_eq!(kept::redraw::<Row>(folder.path()).expect("draws").len(), all.len());
        assert_eq!(files().filter(|path| is_plot(path)).count(), drawn.len());
    }

    #[test]
    fn the_share_of_the_hottest_is_what_the_paper_has() {
        let share = share_of_hottest(10_000, &LoadScenario::default());
        assert!((0.37..0.40).contains(&share), "{share}");
        assert!(items_of_share(share, &LoadScenario::default()).abs_diff(10_000) <= 1);
    }
}
