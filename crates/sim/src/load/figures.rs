//! The paper's figures (SwitchKV, section 4), of rows: medians over seeds, and what the paper's text says beside them.
//!
//! Always true: a figure is made of the rows of one experiment, and of them alone, so that kept rows draw it again.

mod changes;
mod steady;

use std::path::{Path, PathBuf};

use guira_loadgen::{
    error::LoadError,
    plot::{Bar, BarChart, BarPanel, Line, LinePanel, Role, Sheet, Spread},
};
use guira_switched::CacheMode;

use super::Row;

/// Whose the published figures are.
const PAPER: &str = "SwitchKV paper";

/// What most of them show.
const ANSWERED: &str = "requests answered (1/s)";

/// A figure: the name of its files, whose rows it is of, and how it is drawn; `None`: those rows do not tell.
struct Figure {
    name: &'static str,
    experiment: &'static str,
    sheet: fn(&[&Row]) -> Option<Sheet>,
}

const FIGURES: [Figure; 22] = [
    Figure { name: "skew-backends", experiment: "skew", sheet: steady::backends },
    Figure { name: "skew", experiment: "skew", sheet: steady::skew },
    Figure { name: "skew-gain", experiment: "skew", sheet: steady::skew_gain },
    Figure { name: "skew-hits", experiment: "skew", sheet: steady::skew_hits },
    Figure { name: "cache-size", experiment: "cache-size", sheet: steady::cache_size },
    Figure { name: "writes", experiment: "writes", sheet: steady::writes },
    Figure { name: "latency-hits", experiment: "latency-hits", sheet: steady::latency_hits },
    Figure { name: "latency-misses", experiment: "latency-misses", sheet: steady::latency_misses },
    Figure { name: "latency", experiment: "latency", sheet: steady::latency },
    Figure { name: "scaling", experiment: "scaling", sheet: steady::scaling },
    Figure { name: "scaling-each", experiment: "scaling", sheet: steady::scaling_each },
    Figure { name: "cache-threads", experiment: "cache-threads", sheet: steady::cache_threads },
    Figure { name: "hot-in", experiment: "hot-in", sheet: changes::hot_in },
    Figure { name: "hot-in-back", experiment: "hot-in", sheet: changes::hot_in_back },
    Figure { name: "slow-switch", experiment: "slow-switch", sheet: changes::slow_switch },
    Figure { name: "hot-out", experiment: "hot-out", sheet: changes::hot_out },
    Figure { name: "random", experiment: "random", sheet: changes::random },
    Figure { name: "rule-buffer", experiment: "rule-buffer", sheet: changes::rule_buffer },
    Figure { name: "rule-buffer-back", experiment: "rule-buffer", sheet: changes::rule_buffer_back },
    Figure { name: "rule-buffer-rules", experiment: "rule-buffer", sheet: changes::rule_buffer_rules },
    Figure { name: "change-rates", experiment: "change-rates", sheet: changes::rates },
    Figure { name: "change-rates-gain", experiment: "change-rates", sheet: changes::rates_gain },
];

/// Draws every figure that some rows tell of, as SVG and PNG; returns what was written.
///
/// # Errors
/// [`LoadError::Plot`] if a file cannot be written.
pub fn draw(folder: &Path, rows: &[Row]) -> Result<Vec<PathBuf>, LoadError> {
    let mut written = Vec::new();
    for Figure { name, experiment, sheet } in &FIGURES {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.experiment == *experiment).collect();
        if rows.is_empty() {
            continue;
        }
        if let Some(sheet) = sheet(&rows) {
            written.extend(sheet.save(&folder.join(name))?);
        }
    }
    Ok(written)
}

/// What a plot calls a mode.
fn name_of(mode: CacheMode) -> &'static str {
    if mode == CacheMode::None { "no cache" } else { mode.name() }
}

/// The rows of which something is true.
pub(crate) fn only<'rows, R>(rows: &[&'rows R], is_meant: impl Fn(&R) -> bool) -> Vec<&'rows R> {
    rows.iter().copied().filter(|row| is_meant(row)).collect()
}

/// What the rows have of something, each once, from the least to the most.
pub(crate) fn each<R>(rows: &[&R], of: impl Fn(&R) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = rows.iter().map(|row| of(row)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// Over the rows, which are those of some seeds.
pub(crate) fn spread<R>(rows: &[&R], of: impl Fn(&R) -> Option<f64>) -> Option<Spread> {
    let values: Vec<f64> = rows.iter().filter_map(|row| of(row)).collect();
    (!values.is_empty()).then(|| Spread::of(&values))
}

/// A line through the rows, and a point where they agree on `across`.
pub(crate) fn line<R>(name: &str, rows: &[&R], across: impl Fn(&R) -> f64, up: impl Fn(&R) -> Option<f64>) -> Line {
    let point = |at: f64| Some((at, spread(&only(rows, |row| across(row) == at), &up)?));
    let points = each(rows, &across).into_iter().filter_map(point).collect();
    Line { name: name.into(), points, source: None }
}

/// What the paper says of something.
fn published(name: &str, points: &[(f64, f64)]) -> Line {
    published_by(PAPER, name, points)
}

/// What somebody else says of something.
pub(crate) fn published_by(whose: &str, name: &str, points: &[(f64, f64)]) -> Line {
    let points = points.iter().map(|(at, value)| (*at, Spread::exactly(*value))).collect();
    Line { name: name.into(), points, source: Some(whose.into()) }
}

/// A panel of the lines that have points.
pub(crate) fn panel(name: &str, lines: Vec<Line>) -> LinePanel {
    LinePanel { name: name.into(), lines: lines.into_iter().filter(|line| !line.points.is_empty()).collect() }
}

/// A bar of what was measured.
fn bar(name: &str, value: Spread) -> Bar {
    Bar { name: name.into(), value, part: None, role: Role::Subject }
}

/// A bar of the paper's.
fn published_bar(name: &str, value: Spread) -> Bar {
    Bar { name: format!("{name} ({PAPER})"), value, part: None, role: Role::Published }
}

/// A chart of bars in one panel, if there are any of our own.
fn bars(title: &str, across: &str, bars: Vec<Bar>) -> Option<Sheet> {
    let is_measured = bars.iter().any(|bar| bar.role != Role::Published);
    let panels = vec![BarPanel { name: String::new(), bars }];
    let chart = BarChart { title: title.into(), across: across.into(), panels, ..BarChart::default() };
    is_measured.then(|| chart.sheet())
}
