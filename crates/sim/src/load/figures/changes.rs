//! What a cluster serves while popularity changes (section 4.4, figures 15 to 19).

use guira_loadgen::changing::Pattern;
use guira_loadgen::plot::{Bar, Line, LineChart, Sheet, Spread};
use guira_switched::{CacheMode, backend::Reports};

use super::{ANSWERED, bar, bars, each, line, name_of, only, panel, published, published_bar, spread};
use crate::load::{Changing, Row, RuleOrder};

/// Guira's own first, so that it has the same colour everywhere.
const REPORTS: [(Reports, &str); 4] = [
    (Reports::Both, "reports and bursts"),
    (Reports::Instant, "bursts alone"),
    (Reports::Periodic, "reports alone"),
    (Reports::EveryQuery, "every query told"),
];

const DELETIONS_WAIT: &str = "deletions of rules wait";
const DELETIONS_DO_NOT_WAIT: &str = "deletions do not wait";

/// What is compared, by name.
type Named<'rows> = Vec<(&'rows str, Vec<&'rows Row>)>;

fn by_reports<'rows>(rows: &[&'rows Row]) -> Named<'rows> {
    let ours = only(rows, is_hottest_first);
    let mut named: Named<'rows> =
        REPORTS.map(|(reports, name)| (name, only(&ours, |row| row.reports == reports))).into();
    named.push(("reports and bursts, rules as they come", only(rows, |row| !is_hottest_first(row))));
    named
}

fn by_deletion<'rows>(rows: &[&'rows Row]) -> Named<'rows> {
    let of = |name, is_ours: bool, waits: bool| {
        let is_meant = |row: &Row| is_hottest_first(row) == is_ours && (row.rule_deletion_delay_s > 0.0) == waits;
        (name, only(rows, is_meant))
    };
    vec![
        of(DELETIONS_WAIT, true, true),
        of(DELETIONS_DO_NOT_WAIT, true, false),
        of("rules as they come, deletions wait", false, true),
        of("rules as they come, deletions do not wait", false, false),
    ]
}

fn is_hottest_first(row: &Row) -> bool {
    row.rule_order == RuleOrder::HottestFirst
}

/// Throughput over time.
fn timeline(title: &str, named: Named<'_>) -> Option<Sheet> {
    let change = named.iter().flat_map(|(_, rows)| rows).find_map(|row| row.change)?;
    let line = |(name, rows): &(&str, Vec<&Row>)| {
        // A run has as many samples as another that is as long.
        let len = rows.iter().map(|row| row.report.samples.len()).min().unwrap_or(0);
        let point = |at: usize| {
            let at_s = rows.first()?.report.samples[at].at_s;
            Some((at_s, spread(rows, |row| Some(row.report.samples[at].answered_per_s))?))
        };
        Line { name: (*name).into(), points: (0..len).filter_map(point).collect(), source: None }
    };
    let panel = panel("", named.iter().map(line).collect());
    let chart = LineChart {
        title: title.into(),
        across: format!("time (s); {}", told(&change)),
        up: ANSWERED.into(),
        panels: vec![panel],
    };
    (!chart.panels[0].lines.is_empty()).then(|| chart.sheet())
}

fn told(change: &Changing) -> String {
    let Changing { pattern, keys, first_s, every_s } = change;
    match pattern {
        Pattern::HotIn => format!("after {first_s} s {keys} cold keys become the hottest"),
        Pattern::HotOut => format!("from {first_s} s on, every {every_s} s, the {keys} hottest keys become cold"),
        Pattern::Random { of } => {
            format!("from {first_s} s on, every {every_s} s, {keys} of the {of} hottest keys change")
        }
    }
}

/// How long something takes; with what the paper says.
fn seconds(
    title: &str,
    across: &str,
    named: Named<'_>,
    seconds_of: fn(&Row) -> Option<f64>,
    paper: impl Fn(&str) -> Option<Bar>,
) -> Option<Sheet> {
    let mut all = Vec::new();
    for (name, rows) in named {
        all.extend(spread(&rows, seconds_of).map(|value| bar(name, value)));
        all.extend(paper(name).filter(|_| !rows.is_empty()));
    }
    bars(title, across, all)
}

const UNTIL_BACK: &str = "time until 90 % is back (s); as long as was looked at, if it never is";

/// Figure 15.
pub(super) fn hot_in(rows: &[&Row]) -> Option<Sheet> {
    timeline("Throughput while cold keys become hot, by what is told (figure 15)", by_reports(rows))
}

/// Beyond figure 15: a switch slower than it was said to be.
pub(super) fn slow_switch(rows: &[&Row]) -> Option<Sheet> {
    let rate = |row: &Row| row.switch_per_s.unwrap_or(f64::INFINITY);
    let names: Vec<(f64, String)> =
        each(rows, rate).into_iter().rev().map(|per_s| (per_s, format!("{per_s} rules a second made"))).collect();
    let named = names.iter().map(|(per_s, name)| (name.as_str(), only(rows, |row| rate(row) == *per_s))).collect();
    timeline("Throughput while cold keys become hot, by what the switch makes of the rules that it is told", named)
}

/// Of figure 15: what the text says of it.
pub(super) fn hot_in_back(rows: &[&Row]) -> Option<Sheet> {
    let paper = |name: &str| {
        let value = Spread { low: 1.0, median: 1.5, high: 2.0 };
        (name == "reports alone").then(|| published_bar("reports alone", value))
    };
    let title = "How long cold keys that become hot are felt (figure 15)";
    seconds(title, UNTIL_BACK, by_reports(rows), Row::back_after_s, paper)
}

/// Figure 16.
pub(super) fn hot_out(rows: &[&Row]) -> Option<Sheet> {
    timeline("Throughput while hot keys become cold, by what is told (figure 16)", by_reports(rows))
}

/// Figure 17.
pub(super) fn random(rows: &[&Row]) -> Option<Sheet> {
    timeline("Throughput while some of the hottest keys change, by what is told (figure 17)", by_reports(rows))
}

/// Figure 18.
pub(super) fn rule_buffer(rows: &[&Row]) -> Option<Sheet> {
    timeline("Throughput while many cold keys become hot, by when rules are deleted (figure 18)", by_deletion(rows))
}

/// Of figure 18: how long it is felt.
pub(super) fn rule_buffer_back(rows: &[&Row]) -> Option<Sheet> {
    let title = "How long many keys that become hot are felt (figure 18)";
    seconds(title, UNTIL_BACK, by_deletion(rows), Row::back_after_s, |_| None)
}

/// Of figure 18: what the text says of it, which is when all rules are there.
pub(super) fn rule_buffer_rules(rows: &[&Row]) -> Option<Sheet> {
    let paper = |name: &str| {
        let s = [(DELETIONS_WAIT, 1.5), (DELETIONS_DO_NOT_WAIT, 3.0)].into_iter().find(|(of, _)| *of == name)?.1;
        Some(published_bar(name, Spread::exactly(s)))
    };
    let across = "time until all keys that became hot have rules (s); as long as was looked at, if that never is";
    let title = "How long it takes until many keys that become hot have rules (figure 18)";
    seconds(title, across, by_deletion(rows), Row::all_routed_after_s, paper)
}

const HOTTEST_FIRST: &str = "hottest rules first";
const AS_THEY_COME: &str = "rules as they come";

/// Figure 19, by a number of each row's: a panel's name and lines for each pattern.
fn by_rate(rows: &[&Row], up: impl Fn(&Row) -> Option<f64>) -> Vec<(String, Vec<Line>)> {
    let lines = |rows: &[&Row]| {
        let ordered = |order| only(rows, |row| row.cache_mode == CacheMode::Switched && row.rule_order == order);
        let named = [
            (HOTTEST_FIRST, ordered(RuleOrder::HottestFirst)),
            (AS_THEY_COME, ordered(RuleOrder::AsTheyCome)),
            (name_of(CacheMode::None), only(rows, |row| row.cache_mode == CacheMode::None)),
        ];
        named.into_iter().map(|(name, rows)| line(name, &rows, Row::changes_per_s, &up)).collect()
    };
    let of_pattern = |name: &str| {
        let rows = only(rows, |row| row.change.is_some_and(|change| name_of_pattern(change.pattern) == name));
        // Patterns may have been measured at different ones.
        let scale = rows.first()?.scale;
        Some((format!("{name} (scale {scale})"), lines(&rows)))
    };
    ["hot-in", "hot-out", "random"].into_iter().filter_map(of_pattern).collect()
}

fn name_of_pattern(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::HotIn => "hot-in",
        Pattern::HotOut => "hot-out",
        Pattern::Random { .. } => "random",
    }
}

const KEYS_PER_S: &str = "keys that change (1/s)";

/// Figure 19.
pub(super) fn rates(rows: &[&Row]) -> Option<Sheet> {
    let of = by_rate(rows, |row| Some(row.lasting_per_s()));
    let chart = LineChart {
        title: "Throughput by how fast popularity changes (figure 19)".into(),
        across: KEYS_PER_S.into(),
        up: "requests answered, later half of the run (1/s)".into(),
        panels: of.into_iter().map(|(name, lines)| panel(&name, lines)).collect(),
    };
    Some(chart.sheet())
}

/// Of figure 19: what the text says of it.
pub(super) fn rates_gain(rows: &[&Row]) -> Option<Sheet> {
    let of_switched =
        |row: &Row| (row.cache_mode == CacheMode::Switched).then(|| row.times(CacheMode::None, rows)).flatten();
    let with_paper = |(name, mut lines): (String, Vec<Line>)| {
        lines.push(published(AS_THEY_COME, &[(10_000.0, 3.0)]));
        panel(&name, lines)
    };
    let chart = LineChart {
        title: "Throughput over that without a cache, by how fast popularity changes (figure 19)".into(),
        across: KEYS_PER_S.into(),
        up: "times, later half of the run".into(),
        panels: by_rate(rows, of_switched).into_iter().map(with_paper).collect(),
    };
    Some(chart.sheet())
}
