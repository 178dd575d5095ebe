//! The paper's experiments (SwitchKV, section 4), each a function from a scenario to rows: the same at length and, in tests, tiny.
//!
//! What an experiment varies it varies around the scenario it is given, whose default is the paper's.

use std::{collections::BTreeSet, num::NonZero};

use guira_item::Span;
use guira_switched::{CacheMode, backend::Reports};

use super::{Asked, Change, LoadScenario, Offer, Pattern, Row, RuleOrder, Writes};

/// An experiment: its name, and what runs it around a scenario.
pub type Experiment = (&'static str, fn(&LoadScenario) -> Vec<Row>);

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
        ("hot-out", hot_out),
        ("random", random),
        ("change-rates", change_rates),
    ]
}

/// An experiment with so many seeds, from the scenario's on.
pub fn repeated(experiment: fn(&LoadScenario) -> Vec<Row>, base: &LoadScenario, seeds: u64) -> Vec<Row> {
    let of_seed = |number| experiment(&LoadScenario { seed: base.seed.wrapping_add(number), ..base.clone() });
    (0..seeds).flat_map(of_seed).collect()
}

const EXPONENTS: [f64; 4] = [0.0, 0.9, 0.95, 0.99];
const CACHED: [CacheMode; 3] = [CacheMode::Switched, CacheMode::LookAside, CacheMode::LookThrough];

/// Figures 9 and 10: what each backend does, and throughput, with and without a cache, by skew.
pub fn skew(base: &LoadScenario) -> Vec<Row> {
    let mut rows = Vec::new();
    for exponent in EXPONENTS {
        for cache_mode in CACHED.into_iter().chain([CacheMode::None]) {
            rows.push(Row::run("skew", &LoadScenario { cache_mode, exponent, ..base.clone() }));
        }
    }
    rows
}

/// Figure 11: throughput by the size of the cache, from a hundredth to ten times the scenario's.
pub fn cache_size(base: &LoadScenario) -> Vec<Row> {
    let sizes = [1, 3, 10, 30, 100, 300, 1_000].map(|per_cent| (base.cache_items * per_cent / 100).max(1));
    // A switch of 400 rules a second takes minutes for the largest; that is not what is measured.
    let rules_per_s = base.rules_per_s.max(2_000);
    let scenario = |cache_items| LoadScenario { cache_items, rules_per_s, ..base.clone() };
    sizes.into_iter().map(|cache_items| Row::run("cache-size", &scenario(cache_items))).collect()
}

/// Figure 12: throughput by the share of writes, of any key or of popular ones.
pub fn writes(base: &LoadScenario) -> Vec<Row> {
    let mut rows = Vec::new();
    for by_popularity in [false, true] {
        for share in [0.0, 0.1, 0.2, 0.5, 1.0] {
            let writes = Some(Writes { share, by_popularity });
            rows.push(Row::run("writes", &LoadScenario { writes, ..base.clone() }));
        }
    }
    rows
}

/// A run at some rates, for latencies: short, and not scaled, as they are not.
fn at_rates(experiment: &'static str, base: &LoadScenario, shares: &[f64]) -> Vec<Row> {
    let mut rows = Vec::new();
    for cache_mode in CACHED {
        for share in shares {
            let offer = Offer::PerSecond(f64::from(base.backends) * base.backend_per_s * share);
            let (settle, measure) = (Span::from_ms(20), Span::from_ms(30));
            rows.push(Row::run(
                experiment,
                &LoadScenario { cache_mode, offer, settle, measure, scale: 1.0, ..base.clone() },
            ));
        }
    }
    rows
}

/// Figure 13a: latency by rate, where only what is cached is asked for.
pub fn latency_hits(base: &LoadScenario) -> Vec<Row> {
    let asked = Asked::Hottest(base.cache_items as u64);
    at_rates("latency-hits", &LoadScenario { asked, ..base.clone() }, &[0.1, 0.5, 0.9, 1.05])
}

/// Figure 13b: latency by rate, where nothing is cached and keys are asked for alike.
pub fn latency_misses(base: &LoadScenario) -> Vec<Row> {
    let scenario = LoadScenario { exponent: 0.0, cache_items: 0, warms: false, ..base.clone() };
    at_rates("latency-misses", &scenario, &[0.1, 0.5, 0.75, 0.9])
}

/// Figure 13c: latency by rate, zipf and a cache; also at half a per cent more than a cache node serves that is asked for everything, which is then lost: the
/// paper takes for the most what loses half a per cent to one (section 4.1). 1 is what all backends can do.
pub fn latency(base: &LoadScenario) -> Vec<Row> {
    let most = 1.005 * base.cache_per_s / (f64::from(base.backends) * base.backend_per_s);
    at_rates("latency", base, &[0.1, 0.5, 0.8, 1.0, most, 1.2, 1.4])
}

/// Figure 14: throughput by the number of backends, half as fast as the scenario's, with a cache node that does as much as a hundred of
/// them; and with as many cache nodes as are needed, whose loads are made even or not. Where one cache node is the limit it has fewer items, as the
/// paper's does: of some sizes, the one that serves most.
pub fn scaling(base: &LoadScenario) -> Vec<Row> {
    let backend_per_s = base.backend_per_s / 2.0;
    let cache_per_s = backend_per_s * 100.0;
    let mut rows = Vec::new();
    for quarters in [1, 2, 4, 8, 12, 16, 24, 31] {
        let backends = base.backends * quarters / 4;
        let all_per_s = f64::from(backends) * backend_per_s;
        // What is simulated does not grow with the cluster.
        let scale = base.scale * all_per_s / (f64::from(base.backends) * base.backend_per_s);
        let scenario = LoadScenario { backends, backend_per_s, cache_per_s, scale, ..base.clone() };
        let hit_share = share_of_hottest(scenario.cache_items, &scenario);
        let hits_per_s = all_per_s * hit_share / (1.0 - hit_share);
        let caches = (hits_per_s * 1.1 / cache_per_s).ceil().max(1.0) as u16;
        rows.push(best_size(&scenario));
        if caches > 1 {
            // Loads are even after some rounds of telling them.
            let settle = scenario.settle.times(4);
            for balances in [true, false] {
                rows.push(Row::run("scaling", &LoadScenario { caches, balances, settle, ..scenario.clone() }));
            }
        }
        rows.push(Row::run("scaling", &LoadScenario { cache_mode: CacheMode::None, ..scenario.clone() }));
        // One cache node, and as many as the switched cluster has.
        for caches in BTreeSet::from([1, caches]) {
            let cache_mode = CacheMode::LookAside;
            rows.push(Row::run("scaling", &LoadScenario { cache_mode, caches, ..scenario.clone() }));
        }
    }
    rows
}

/// Beyond the paper: throughput by the threads of a cache node that does as much with all of them as with one, while these make their loads even and
/// while they do not. One that is busy for half of its time: what it loses is what a single thread has too much of.
pub fn cache_threads(base: &LoadScenario) -> Vec<Row> {
    let hit_share = share_of_hottest(base.cache_items, base);
    let hits_per_s = f64::from(base.backends) * base.backend_per_s * hit_share / (1.0 - hit_share);
    let mut rows = Vec::new();
    for threads in [1, 2, 4, 8, 16, 32] {
        let cache_threads = NonZero::new(threads).expect("one at least");
        for balances in [true, false] {
            // Loads are even after some rounds of telling them.
            let settle = base.settle.times(4);
            let scenario =
                LoadScenario { cache_threads, balances, settle, cache_per_s: 2.0 * hits_per_s, ..base.clone() };
            rows.push(Row::run("cache-threads", &scenario));
        }
    }
    rows
}

/// One cache node, with all items or, if those are more than it can serve, with so many that it serves most.
fn best_size(scenario: &LoadScenario) -> Row {
    let all_per_s = f64::from(scenario.backends) * scenario.backend_per_s;
    // A little below its limit: a cache node that loses is the first to do so. Backends that are not all at theirs leave room for more.
    let share_max = 0.97 * scenario.cache_per_s / (0.97 * scenario.cache_per_s + all_per_s);
    let least = items_of_share(share_max, scenario);
    if least >= scenario.cache_items {
        return Row::run("scaling", scenario);
    }
    let sizes = [1, 2, 5, 15].map(|times| (least.max(1) * times).min(scenario.cache_items));
    let run = |cache_items| Row::run("scaling", &LoadScenario { cache_items, ..scenario.clone() });
    let rows = sizes.map(run).into_iter();
    let served = |row: &Row| row.report.answered_per_s;
    rows.max_by(|a, b| served(a).total_cmp(&served(b))).expect("there are some sizes")
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
fn by_reports(experiment: &str, scenario: &LoadScenario, reports: &[Reports]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for reports in reports {
        rows.push(Row::run(experiment, &LoadScenario { reports: *reports, ..scenario.clone() }));
    }
    rows.push(Row::run(experiment, &as_they_come(scenario)));
    rows
}

/// The paper's own mechanism: all reports, and rules in the order in which they come.
fn as_they_come(scenario: &LoadScenario) -> LoadScenario {
    LoadScenario { reports: Reports::Both, rule_order: RuleOrder::AsTheyCome, ..scenario.clone() }
}

/// Figure 15: 200 cold keys become the hottest; by what backends report. Once, not every ten seconds.
pub fn hot_in(base: &LoadScenario) -> Vec<Row> {
    let scenario = changes(base, Pattern::HotIn, few(base), base.measure.times(3), 1);
    by_reports("hot-in", &scenario, &[Reports::EveryQuery, Reports::Periodic, Reports::Instant, Reports::Both])
}

/// Figure 18: 600 cold keys become the hottest, with and without a delay of rules' deletion; also in the paper's order of rules.
pub fn rule_buffer(base: &LoadScenario) -> Vec<Row> {
    let scenario = changes(base, Pattern::HotIn, 3 * few(base), base.measure.times(4), 1);
    let mut rows = Vec::new();
    for rule_deletion_delay in [Span::from_s(2), Span::default()] {
        let scenario = LoadScenario { rule_deletion_delay, ..scenario.clone() };
        rows.push(Row::run("rule-buffer", &scenario));
        rows.push(Row::run("rule-buffer", &as_they_come(&scenario)));
    }
    rows
}

/// Changes of figures 16 and 17, one a second: as long as theirs.
const CHANGES: u64 = 60;

/// Figure 16: the 200 hottest keys become cold every second.
pub fn hot_out(base: &LoadScenario) -> Vec<Row> {
    let scenario = changes(base, Pattern::HotOut, few(base), base.measure, CHANGES);
    by_reports("hot-out", &scenario, &[Reports::Instant, Reports::Both])
}

/// Figure 17: 200 of the 10,000 hottest keys are replaced every second.
pub fn random(base: &LoadScenario) -> Vec<Row> {
    let scenario = changes(base, Pattern::Random { of: base.cache_items }, few(base), base.measure, CHANGES);
    by_reports("random", &scenario, &[Reports::Periodic, Reports::Instant, Reports::Both])
}

/// Figure 19: keys change every second, so many at once; hot-in with the paper's order of rules as well. All are measured without a cache, too.
pub fn change_rates(base: &LoadScenario) -> Vec<Row> {
    const PER_MILLE: [usize; 7] = [5, 20, 100, 200, 500, 1_000, 2_000];
    const TIMES: u64 = 12;
    let mut rows = Vec::new();
    for pattern in [Pattern::HotIn, Pattern::HotOut, Pattern::Random { of: base.cache_items }] {
        for per_mille in PER_MILLE {
            let keys = (base.cache_items * per_mille / 1_000).max(1);
            // As soon as it is measured.
            let change = Some(Change { pattern, keys, first: Span::from_us(1), every: base.measure });
            let (measure, sample_every) = (base.measure.times(TIMES), base.measure);
            let scenario = LoadScenario { change, measure, sample_every, ..base.clone() };
            rows.push(Row::run("change-rates", &scenario));
            if pattern == Pattern::HotIn {
                let rule_order = RuleOrder::AsTheyCome;
                rows.push(Row::run("change-rates", &LoadScenario { rule_order, ..scenario.clone() }));
            }
            let cache_mode = CacheMode::None;
            rows.push(Row::run("change-rates", &LoadScenario { cache_mode, ..scenario }));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::kept;
    use super::*;

    #[test]
    fn every_experiment_runs_is_kept_and_drawn_again() {
        let tiny = LoadScenario {
            backends: 4,
            cache_items: 50,
            keys: 1_000_000,
            scale: 200.0,
            settle: Span::from_ms(30),
            measure: Span::from_ms(60),
            ..LoadScenario::default()
        };
        let folder = tempfile::tempdir().expect("a folder");
        let mut all = Vec::new();
        for (name, experiment) in experiments() {
            let rows = repeated(experiment, &tiny, 2);
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
        assert_eq!(kept::redraw(folder.path()).expect("draws").len(), all.len());
        assert_eq!(files().filter(|path| is_plot(path)).count(), drawn.len());
    }

    #[test]
    fn the_share_of_the_hottest_is_what_the_paper_has() {
        let share = share_of_hottest(10_000, &LoadScenario::default());
        assert!((0.37..0.40).contains(&share), "{share}");
        assert!(items_of_share(share, &LoadScenario::default()).abs_diff(10_000) <= 1);
    }
}
