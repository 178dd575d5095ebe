//! What a cluster serves while popularity stays as it is (sections 4.2 and 4.3, figures 9 to 14).

use guira_loadgen::plot::{Bar, BarChart, BarPanel, Line, LineChart, LinePanel, Role, Sheet, Spread};
use guira_switched::CacheMode;

use super::{ANSWERED, bar, bars, each, line, name_of, only, panel, published, published_bar, spread};
use crate::load::{Row, aims::LOST_MAX};

fn answered(row: &Row) -> Option<f64> {
    Some(row.report.answered_per_s)
}

fn hits(row: &Row) -> Option<f64> {
    Some(row.report.hits_per_s)
}

fn name_of_skew(exponent: f64) -> String {
    if exponent == 0.0 { "uniform".into() } else { format!("zipf {exponent}") }
}

/// Figure 9.
pub(super) fn backends(rows: &[&Row]) -> Option<Sheet> {
    // The backends of the k-th place in all seeds.
    let of_skew = |rows: &[&Row], exponent: f64| {
        let rows = only(rows, |row| row.exponent == exponent);
        let places = rows.iter().map(|row| row.report.backends_per_s.len()).min().unwrap_or(0);
        let point = |place: usize| {
            Some((place as f64 + 1.0, spread(&rows, |row| row.report.backends_per_s.get(place).copied())?))
        };
        Line { name: name_of_skew(exponent), points: (0..places).filter_map(point).collect(), source: None }
    };
    let of_mode = |mode| {
        let rows = only(rows, |row| row.cache_mode == mode);
        panel(name_of(mode), each(&rows, |row| row.exponent).into_iter().map(|skew| of_skew(&rows, skew)).collect())
    };
    let chart = LineChart {
        title: "What each backend does, by skew (figure 9)".into(),
        across: "backend, the busiest first".into(),
        up: "requests done (1/s)".into(),
        panels: [CacheMode::None, CacheMode::Switched].map(of_mode).into(),
    };
    Some(chart.sheet())
}

/// Figure 10.
pub(super) fn skew(rows: &[&Row]) -> Option<Sheet> {
    let of_mode = |rows: &[&Row], mode: CacheMode| {
        let rows = only(rows, |row| row.cache_mode == mode);
        let role = if mode == CacheMode::Switched { Role::Subject } else { Role::Peer };
        let part = spread(&rows, hits).map(|hits| hits.median);
        Some(Bar { name: name_of(mode).into(), value: spread(&rows, answered)?, part, role })
    };
    let of_skew = |exponent| {
        let rows = only(rows, |row| row.exponent == exponent);
        let modes = [CacheMode::None, CacheMode::Switched, CacheMode::LookAside, CacheMode::LookThrough];
        BarPanel {
            name: name_of_skew(exponent),
            bars: modes.into_iter().filter_map(|mode| of_mode(&rows, mode)).collect(),
        }
    };
    let chart = BarChart {
        title: "Throughput with and without a cache, by skew (figure 10)".into(),
        across: ANSWERED.into(),
        part: "of which by the cache".into(),
        panels: each(rows, |row| row.exponent).into_iter().map(of_skew).collect(),
    };
    Some(chart.sheet())
}

/// Of the switched rows, a bar for each skew, and one of the paper's for its largest.
fn by_skew(rows: &[&Row], of: impl Fn(&Row) -> Option<f64>, published: f64) -> Vec<Bar> {
    let rows = only(rows, |row| row.cache_mode == CacheMode::Switched);
    let of_skew = |skew| Some(bar(&name_of_skew(skew), spread(&only(&rows, |row| row.exponent == skew), &of)?));
    let measured = each(&rows, |row| row.exponent).into_iter().filter_map(of_skew);
    measured.chain([published_bar(&name_of_skew(0.99), Spread::exactly(published))]).collect()
}

/// Of figure 10: what the text says of it.
pub(super) fn skew_gain(rows: &[&Row]) -> Option<Sheet> {
    let of = |row: &Row| row.times(CacheMode::None, rows);
    bars("Throughput with a cache over that without, by skew (figure 10)", "times", by_skew(rows, of, 7.0))
}

/// Of figure 10: the share that the text tells in section 4.3.
pub(super) fn skew_hits(rows: &[&Row]) -> Option<Sheet> {
    let of = |row: &Row| Some(row.report.hits_per_s / row.report.answered_per_s * 100.0);
    bars("Requests that the cache answers, by skew (figure 10)", "share (%)", by_skew(rows, of, 38.0))
}

/// Figure 11.
pub(super) fn cache_size(rows: &[&Row]) -> Option<Sheet> {
    let across = |row: &Row| row.cache_items as f64;
    let backends = |row: &Row| Some(row.report.answered_per_s - row.report.hits_per_s);
    let lines = vec![
        line("all", rows, across, answered),
        line("by backends", rows, across, backends),
        line("by the cache", rows, across, hits),
    ];
    let chart = LineChart {
        title: "Throughput by the size of the cache (figure 11)".into(),
        across: "items in the cache".into(),
        up: ANSWERED.into(),
        panels: vec![panel("", lines)],
    };
    Some(chart.sheet())
}

/// Figure 12.
pub(super) fn writes(rows: &[&Row]) -> Option<Sheet> {
    let of = |up: fn(&Row) -> Option<f64>| {
        let kinds = [(false, "writes of any key"), (true, "writes of popular keys")];
        let line_of = |(by_popularity, name)| {
            let rows = only(rows, |row| row.writes_by_popularity == by_popularity);
            line(name, &rows, |row| row.write_share * 100.0, up)
        };
        kinds.map(line_of).into()
    };
    let chart = LineChart {
        title: "Throughput by the share of writes (figure 12)".into(),
        across: "writes (%)".into(),
        up: ANSWERED.into(),
        panels: vec![panel("all", of(answered)), panel("of which by the cache", of(hits))],
    };
    Some(chart.sheet())
}

/// Figure 13a.
pub(super) fn latency_hits(rows: &[&Row]) -> Option<Sheet> {
    by_rate("Latency of what is cached, by rate (figure 13a)", rows)
}

/// Figure 13b.
pub(super) fn latency_misses(rows: &[&Row]) -> Option<Sheet> {
    by_rate("Latency of what is not cached, by rate (figure 13b)", rows)
}

/// Figure 13c.
pub(super) fn latency(rows: &[&Row]) -> Option<Sheet> {
    by_rate("Latency of a skewed load with a cache, by rate (figure 13c)", rows)
}

/// Latencies of each mode; without the rates that it does not answer.
fn by_rate(title: &str, rows: &[&Row]) -> Option<Sheet> {
    let rows = only(rows, |row| row.report.lost <= LOST_MAX);
    let of = |up: fn(&Row) -> Option<f64>| {
        let line_of = |mode| {
            let rows = only(&rows, |row| row.cache_mode == mode);
            line(name_of(mode), &rows, |row| row.offered_per_s.unwrap_or_default(), up)
        };
        [CacheMode::Switched, CacheMode::LookAside, CacheMode::LookThrough].map(line_of).into()
    };
    let panels: Vec<LinePanel> = vec![
        panel("mean", of(|row| Some(row.report.mean_us))),
        panel("99 of 100 within", of(|row| Some(row.report.p99_us))),
    ];
    let chart = LineChart {
        title: title.into(),
        across: "requests asked (1/s), as far as 99 of 100 are answered".into(),
        up: "latency (us)".into(),
        panels,
    };
    (!rows.is_empty()).then(|| chart.sheet())
}

/// Figure 14, by a number of each row's: of switched clusters with one cache node, and with as many as are needed.
fn by_backends(rows: &[&Row], up: impl Fn(&Row) -> Option<f64>) -> Vec<Line> {
    let caches_max = |backends| rows.iter().filter(|row| row.backends == backends).map(|row| row.caches).max();
    let is_switched = |row: &Row| row.cache_mode == CacheMode::Switched;
    let looks_aside = |row: &Row| row.cache_mode == CacheMode::LookAside;
    let enough = |row: &Row| is_switched(row) && Some(row.caches) == caches_max(row.backends);
    // Alone it has nobody to share with.
    let shares = |row: &Row| row.balances || row.caches == 1;
    let lines = [
        ("switched, as many cache nodes as are needed", only(rows, |row| enough(row) && shares(row))),
        ("the same, loads not made even", only(rows, |row| enough(row) && !shares(row))),
        ("switched, one cache node", only(rows, |row| is_switched(row) && row.caches == 1)),
        ("look-aside, as many as that", only(rows, |row| looks_aside(row) && row.caches > 1)),
        ("look-aside, one cache node", only(rows, |row| looks_aside(row) && row.caches == 1)),
        (name_of(CacheMode::None), only(rows, |row| row.cache_mode == CacheMode::None)),
    ];
    lines.into_iter().map(|(name, rows)| line(name, &rows, |row| f64::from(row.backends), &up)).collect()
}

/// Figure 14.
pub(super) fn scaling(rows: &[&Row]) -> Option<Sheet> {
    let mut lines = by_backends(rows, answered);
    // "bottlenecked quickly by the cache capacity when the number of backend nodes increases to 64": what the cache does then.
    lines.push(published("look-aside, one cache node", &[(64.0, 5e6)]));
    let chart = LineChart {
        title: "Throughput by the number of backends (figure 14)".into(),
        across: "backends".into(),
        up: ANSWERED.into(),
        panels: vec![panel("", lines)],
    };
    Some(chart.sheet())
}

/// Of figure 14: whether it is linear.
pub(super) fn scaling_each(rows: &[&Row]) -> Option<Sheet> {
    let mut lines = by_backends(rows, |row| Some(row.report.answered_per_s / f64::from(row.backends)));
    // Far below.
    lines.retain(|line| line.name != name_of(CacheMode::None));
    let chart = LineChart {
        title: "Throughput for each backend, by their number (figure 14)".into(),
        across: "backends".into(),
        up: "requests answered for each backend (1/s)".into(),
        panels: vec![panel("", lines)],
    };
    Some(chart.sheet())
}

/// Beyond the paper.
pub(super) fn cache_threads(rows: &[&Row]) -> Option<Sheet> {
    let of = |balances, name| {
        let rows = only(rows, |row| row.balances == balances);
        line(name, &rows, |row| f64::from(row.cache_threads), answered)
    };
    let chart = LineChart {
        title: "Throughput by the threads of a cache node that does as much with all of them".into(),
        across: "threads".into(),
        up: ANSWERED.into(),
        panels: vec![panel("", vec![of(true, "loads made even"), of(false, "loads not made even")])],
    };
    Some(chart.sheet())
}
