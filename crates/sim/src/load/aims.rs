//! What is aimed at, beside what was measured, of either cluster.
//!
//! Always true: an aim that was not measured has no verdict; one that was, of several seeds, is judged by their median.

use std::fmt;

use guira_loadgen::plot::{Spread, short};
use guira_switched::{CacheMode, backend::Reports};

use super::{LoadReport, Row, RuleOrder, kept::Kept};

/// The most that may be lost for a latency to count.
pub(super) const LOST_MAX: f64 = 0.01;

/// Changed keys a second from which on they are as many as are cached (section 4.4).
const ALL_CHANGE_PER_S: f64 = 10_000.0;

/// A number that is aimed at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// An aim, and how near the rows of one seed come.
pub struct Aim<R> {
    pub(crate) experiment: &'static str,
    pub(crate) what: &'static str,
    pub(crate) bound: Bound,
    pub(crate) unit: &'static str,
    pub(crate) measured: fn(&[&R]) -> Option<f64>,
}

impl<R> fmt::Debug for Aim<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aim").field("experiment", &self.experiment).field("what", &self.what).finish_non_exhaustive()
    }
}

pub(super) static AIMS: [Aim<Row>; 13] = [
    Aim {
        experiment: "skew",
        what: "throughput switched over without a cache, zipf 0.99",
        bound: Bound::AtLeast(7.0),
        unit: "times",
        measured: |rows| largest(hottest_skew(rows).filter_map(|row| row.times(CacheMode::None, rows))),
    },
    Aim {
        experiment: "skew",
        what: "throughput switched, beside the sum of what backends can do and hits, at worst",
        bound: Bound::AtLeast(90.0),
        unit: "%",
        measured: |rows| smallest(switched(rows).map(share_of_sum)).map(per_cent),
    },
    Aim {
        experiment: "latency",
        what: "mean latency of look-aside over switched, at best, where both answer",
        bound: Bound::AtLeast(3.0),
        unit: "times",
        measured: |rows| largest(switched(rows).filter_map(|row| times_faster(row, rows, |report| report.mean_us))),
    },
    Aim {
        experiment: "latency",
        what: "p99 latency of look-aside over switched, at best, where both answer",
        bound: Bound::AtLeast(3.0),
        unit: "times",
        measured: |rows| largest(switched(rows).filter_map(|row| times_faster(row, rows, |report| report.p99_us))),
    },
    Aim {
        experiment: "scaling",
        what: "throughput switched over look-aside with as many cache nodes, at best",
        bound: Bound::AtLeast(5.0),
        unit: "times",
        measured: |rows| largest(switched(rows).filter_map(|row| row.times(CacheMode::LookAside, rows))),
    },
    Aim {
        experiment: "scaling",
        what: "throughput a backend, beside that of the smallest cluster, at worst",
        bound: Bound::AtLeast(90.0),
        unit: "%",
        measured: |rows| linearity(rows).map(per_cent),
    },
    Aim {
        experiment: "hot-in",
        what: "throughput back at 90 % after 200 keys have become hot",
        bound: Bound::AtMost(0.5),
        unit: "s",
        measured: |rows| largest(both(rows).filter_map(Row::back_after_s)),
    },
    Aim {
        experiment: "rule-buffer",
        what: "throughput back at 90 % after 600 keys have become hot, deletions delayed",
        bound: Bound::AtMost(1.5),
        unit: "s",
        measured: |rows| {
            largest(both(rows).filter(|row| row.rule_deletion_delay_s > 0.0).filter_map(Row::back_after_s))
        },
    },
    Aim {
        experiment: "rule-buffer",
        what: "600 keys that have become hot all have rules, deletions delayed",
        bound: Bound::AtMost(1.5),
        unit: "s",
        measured: |rows| {
            largest(both(rows).filter(|row| row.rule_deletion_delay_s > 0.0).filter_map(Row::all_routed_after_s))
        },
    },
    Aim {
        experiment: "hot-out",
        what: "throughput lost where the 200 hottest keys become cold every second",
        bound: Bound::AtMost(5.0),
        unit: "%",
        measured: |rows| largest(both(rows).filter_map(Row::cost_of_changes)).map(per_cent),
    },
    Aim {
        experiment: "random",
        what: "throughput lost where 200 of the cache's keys change every second",
        bound: Bound::AtMost(5.0),
        unit: "%",
        measured: |rows| largest(both(rows).filter_map(Row::cost_of_changes)).map(per_cent),
    },
    Aim {
        experiment: "change-rates",
        what: "throughput switched over without a cache, 10,000 changed keys a second and more, at worst",
        bound: Bound::AtLeast(3.0),
        unit: "times",
        measured: |rows| {
            let all_change = |row: &&Row| row.changes_per_s() >= ALL_CHANGE_PER_S;
            smallest(ours(rows).filter(all_change).filter_map(|row| row.times(CacheMode::None, rows)))
        },
    },
    Aim {
        experiment: "change-rates",
        what: "the same, however many keys change, at worst",
        bound: Bound::AtLeast(3.0),
        unit: "times",
        measured: |rows| smallest(ours(rows).filter_map(|row| row.times(CacheMode::None, rows))),
    },
];

/// What came of an aim.
#[derive(Debug)]
pub struct Verdict<R: 'static> {
    aim: &'static Aim<R>,
    measured: Spread,
    seeds: usize,
}

impl<R> Verdict<R> {
    /// Whether the median is as it is meant to be.
    pub fn is_met(&self) -> bool {
        match self.aim.bound {
            Bound::AtLeast(bound) => self.measured.median >= bound,
            Bound::AtMost(bound) => self.measured.median <= bound,
        }
    }
}

impl<R> fmt::Display for Verdict<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { aim: Aim { what, bound, unit, .. }, measured: Spread { low, median, high }, seeds } = self;
        let verdict = if self.is_met() { "met" } else { "missed" };
        let bound = match bound {
            Bound::AtLeast(bound) => format!("at least {bound}"),
            Bound::AtMost(bound) => format!("at most {bound}"),
        };
        write!(f, "aim {verdict}: {what}: {bound} {unit}; measured {}", short(*median))?;
        if *seeds > 1 {
            write!(f, " ({} to {}, {seeds} seeds)", short(*low), short(*high))?;
        }
        Ok(())
    }
}

/// What came of the aims that some rows tell of.
pub fn verdicts<R: Kept>(rows: &[R]) -> Vec<Verdict<R>> {
    let mut seeds: Vec<u64> = rows.iter().map(Kept::seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let judged = |aim: &'static Aim<R>| {
        let of_seed = |seed: &u64| {
            let is_meant = |row: &&R| row.seed() == *seed && row.experiment() == aim.experiment;
            (aim.measured)(&rows.iter().filter(is_meant).collect::<Vec<_>>())
        };
        let measured: Vec<f64> = seeds.iter().filter_map(of_seed).collect();
        (!measured.is_empty()).then(|| Verdict { aim, measured: Spread::of(&measured), seeds: measured.len() })
    };
    R::aims().iter().filter_map(judged).collect()
}

pub(crate) fn smallest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.min_by(f64::total_cmp)
}

pub(crate) fn largest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.max_by(f64::total_cmp)
}

pub(crate) fn per_cent(share: f64) -> f64 {
    share * 100.0
}

fn switched<'rows>(rows: &[&'rows Row]) -> impl Iterator<Item = &'rows Row> {
    rows.iter().copied().filter(|row| row.cache_mode == CacheMode::Switched)
}

fn ours<'rows>(rows: &[&'rows Row]) -> impl Iterator<Item = &'rows Row> {
    switched(rows).filter(|row| row.rule_order == RuleOrder::HottestFirst)
}

fn both<'rows>(rows: &[&'rows Row]) -> impl Iterator<Item = &'rows Row> {
    ours(rows).filter(|row| row.reports == Reports::Both)
}

fn hottest_skew<'rows>(rows: &[&'rows Row]) -> impl Iterator<Item = &'rows Row> {
    switched(rows).filter(|row| row.exponent == 0.99)
}

fn share_of_sum(row: &Row) -> f64 {
    row.report.answered_per_s / (f64::from(row.backends) * row.backend_per_s + row.report.hits_per_s)
}

fn times_faster(row: &Row, rows: &[&Row], latency: fn(&LoadReport) -> f64) -> Option<f64> {
    let other = row.beside(CacheMode::LookAside, rows)?;
    let is_answered = row.report.lost <= LOST_MAX && other.report.lost <= LOST_MAX;
    is_answered.then(|| latency(&other.report) / latency(&row.report))
}

/// Of clusters with as many cache nodes as are needed.
fn linearity(rows: &[&Row]) -> Option<f64> {
    let each = |row: &Row| row.report.answered_per_s / f64::from(row.backends);
    let best = |backends: u16| largest(switched(rows).filter(|row| row.backends == backends).map(each));
    let fewest = switched(rows).map(|row| row.backends).min().and_then(best)?;
    smallest(switched(rows).filter_map(|row| best(row.backends)).map(|best| best / fewest))
}

#[cfg(test)]
mod tests {
    use super::super::row::example;
    use super::*;

    fn told(rows: &[Row]) -> Vec<String> {
        verdicts(rows).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_aim_is_judged_by_the_median_of_its_seeds() {
        let of_seed = |(seed, per_s): (u64, f64)| {
            let ours = Row { seed, ..example::answering("skew", per_s) };
            let theirs = Row { cache_mode: CacheMode::None, seed, ..example::answering("skew", 1.0) };
            [ours, theirs]
        };
        let rows: Vec<Row> = [(1, 8.0), (2, 6.0), (3, 7.5)].into_iter().flat_map(of_seed).collect();
        let first = "aim met: throughput switched over without a cache, zipf 0.99: at least 7 times; measured 7.50 \
                     (6.00 to 8.00, 3 seeds)";
        assert_eq!(told(&rows)[0], first);
        assert!(told(&rows[2..4])[0].starts_with("aim missed"), "{:?}", told(&rows[2..4]));
    }

    #[test]
    fn what_was_not_measured_has_no_verdict() {
        assert!(told(&[]).is_empty());
        assert!(told(&[example::answering("hot-in", 1.0)]).is_empty(), "nothing changed");
        let told = told(&[example::changing("hot-in", &[100.0, 100.0, 20.0, 95.0, 99.0])]);
        assert_eq!(
            told,
            ["aim met: throughput back at 90 % after 200 keys have become hot: at most 0.5 s; measured 0.2000"]
        );
    }

    #[test]
    fn scaling_is_linear_where_each_backend_does_what_it_does_in_the_smallest_cluster() {
        let of = |backends, per_s| Row { backends, ..example::answering("scaling", per_s) };
        let rows = [of(2, 8.0), of(4, 16.0), of(8, 20.0), of(8, 30.4)];
        assert_eq!(linearity(&rows.iter().collect::<Vec<_>>()), Some(0.95));
    }
}
