//! Results as plots: lines where an experiment runs over a quantity (threads, occupancy, memory), bars where it does not.
//!
//! A variant's name says where it belongs: `read-only, 2 threads` is at 2, in the panel `read-only`. Where no panel would have
//! more than one line, all of them share one.

use std::path::{Path, PathBuf};

use guira_loadgen::plot::{Bar, BarChart, BarPanel, Line, LineChart, LinePanel, Role, Sheet, Spread};
use serde::Deserialize;

use crate::error::BenchError;
use crate::metric::Better;
use crate::report::{ExperimentReport, Measurement, Published};

/// What stands behind the name of a published figure, unless the report names another paper.
const SOURCE: &str = "MemC3 paper";

fn source(report: &ExperimentReport) -> &str {
    report.paper.as_deref().unwrap_or(SOURCE)
}

/// What of a kept report a plot is made of.
#[derive(Deserialize)]
struct Kept {
    experiments: Vec<ExperimentReport>,
}

/// Draws the plots of every report kept in `folder` again; returns what was written.
///
/// # Errors
/// [`BenchError::Setting`] if there is no report, or one that cannot be read; a plot that cannot be written.
pub fn redraw(folder: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let mut written = Vec::new();
    for name in ["cluster", "engine", "map", "router", "server", "store", "symmetric"] {
        let path = folder.join(name).with_extension("json");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let kept: Kept = serde_json::from_str(&text)
            .map_err(|error| BenchError::Setting(format!("{} is not a report: {error}", path.display())))?;
        written.extend(draw(folder, &kept.experiments)?);
    }
    if written.is_empty() {
        return Err(BenchError::Setting(format!(
            "there is no cluster.json, engine.json, map.json, router.json, server.json, store.json or symmetric.json in {}",
            folder.display()
        )));
    }
    Ok(written)
}

/// Draws every metric of `experiments` that can be better or worse, as SVG and PNG; returns what was written.
pub(crate) fn draw(folder: &Path, experiments: &[ExperimentReport]) -> Result<Vec<PathBuf>, BenchError> {
    let mut written = Vec::new();
    for experiment in experiments {
        for (metric, sheet) in sheets(experiment) {
            let name = format!("{}-{metric}", experiment.name);
            written.extend(sheet.save(&folder.join(&name)).map_err(|source| BenchError::Load {
                peer: name,
                experiment: "drawing plots",
                source,
            })?);
        }
    }
    Ok(written)
}

/// Something to draw: where it belongs, whose it is, how much.
struct Datum<'a> {
    variant: &'a str,
    peer: &'a str,
    value: Spread,
    is_published: bool,
}

impl<'a> Datum<'a> {
    /// The panel and the quantity that its variant names.
    fn place(&self) -> Option<(&'a str, f64)> {
        let (panel, quantity) = self.variant.rsplit_once(", ").unwrap_or(("", self.variant));
        Some((panel, quantity.split(' ').find_map(|word| word.parse().ok())?))
    }
}

/// A sheet for every metric, by name.
fn sheets(report: &ExperimentReport) -> Vec<(&str, Sheet)> {
    let measurements = report.rows.iter().flat_map(|row| &row.measurements);
    let shown = measurements.filter(|known| known.better != Better::Neither);
    let mut metrics: Vec<(&str, &str)> = Vec::new();
    shown.for_each(|known| push_new(&mut metrics, (&known.metric, &known.unit)));
    metrics.into_iter().map(|(metric, unit)| (metric, sheet(report, metric, unit))).collect()
}

fn sheet(report: &ExperimentReport, metric: &str, unit: &str) -> Sheet {
    let measured = report.rows.iter().flat_map(|row| {
        let known = row.measurements.iter().filter(|known| known.metric == metric);
        known.map(|known| Datum { variant: &row.variant, peer: &row.peer, value: spread(known), is_published: false })
    });
    let published = report.published.iter().filter(|known| known.metric == metric);
    let published = published.map(|Published { variant, peer, value, .. }| Datum {
        variant,
        peer,
        value: Spread::exactly(*value),
        is_published: true,
    });
    let data: Vec<Datum<'_>> = measured.chain(published).collect();
    let measure = match unit.starts_with(metric) {
        true => unit.to_string(),
        false => format!("{} ({unit})", metric.replace('-', " ")),
    };
    match (&report.axis, data.iter().all(|datum| datum.place().is_some())) {
        (Some(axis), true) => lines(report, axis, measure, &data).sheet(),
        _ => bars(report, measure, &data).sheet(),
    }
}

fn lines(report: &ExperimentReport, axis: &str, measure: String, data: &[Datum<'_>]) -> LineChart {
    let mut places: Vec<(&str, &str, bool)> = Vec::new();
    for datum in data {
        let panel = datum.place().map_or("", |(panel, _)| panel);
        push_new(&mut places, (panel, datum.peer, datum.is_published));
    }
    // Guira comes first, so that it has the same colour everywhere.
    places.sort_by_key(|(_, peer, _)| *peer != "guira");
    let is_crowded = places.iter().any(|(panel, peer, _)| places.iter().any(|(p, q, _)| panel == p && peer != q));
    let mut panels: Vec<LinePanel> = Vec::new();
    for (panel, peer, is_published) in places {
        let belongs = |datum: &&Datum<'_>| {
            datum.peer == peer
                && datum.is_published == is_published
                && datum.place().is_some_and(|(known, _)| known == panel)
        };
        let mut points: Vec<(f64, Spread)> =
            data.iter().filter(belongs).filter_map(|datum| Some((datum.place()?.1, datum.value))).collect();
        points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let (panel, name) = match is_crowded || panel.is_empty() {
            true => (panel, peer.to_string()),
            false => ("", format!("{peer}: {panel}")),
        };
        let line = Line { name, points, source: is_published.then(|| source(report).to_string()) };
        match panels.iter_mut().find(|known| known.name == panel) {
            Some(known) => known.lines.push(line),
            None => panels.push(LinePanel { name: panel.to_string(), lines: vec![line] }),
        }
    }
    LineChart { title: report.title.clone(), across: axis.to_string(), up: measure, panels }
}

fn bars(report: &ExperimentReport, measure: String, data: &[Datum<'_>]) -> BarChart {
    let mut variants: Vec<&str> = Vec::new();
    data.iter().for_each(|datum| push_new(&mut variants, datum.variant));
    let bar = |datum: &Datum<'_>| {
        let (name, value) = (datum.peer, datum.value);
        let (name, role) = match (datum.is_published, name) {
            (true, _) => (format!("{name} ({})", source(report)), Role::Published),
            (false, "guira") => (name.to_string(), Role::Subject),
            (false, _) => (name.to_string(), Role::Peer),
        };
        Bar { name, value, part: None, role }
    };
    let panel = |variant: &str| BarPanel {
        name: variant.to_string(),
        bars: data.iter().filter(|datum| datum.variant == variant).map(bar).collect(),
    };
    let panels = variants.into_iter().map(panel).collect();
    BarChart { title: report.title.clone(), across: measure, panels, ..BarChart::default() }
}

fn spread(known: &Measurement) -> Spread {
    let fold = |start: f64, pick: fn(f64, f64) -> f64| known.rounds.iter().copied().fold(start, pick);
    Spread { low: fold(known.median, f64::min), median: known.median, high: fold(known.median, f64::max) }
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, one: T) {
    if !list.contains(&one) {
        list.push(one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{INSERT_NS, THROUGHPUT};

    fn data(variants: &[(&'static str, &'static str)]) -> Vec<Datum<'static>> {
        let value = Spread::exactly(1.0);
        variants.iter().map(|(variant, peer)| Datum { variant, peer, value, is_published: false }).collect()
    }

    fn panels(variants: &[(&'static str, &'static str)]) -> Vec<(String, Vec<String>)> {
        let report = ExperimentReport::new("threads", "Threads", "");
        let chart = lines(&report, "threads", "throughput".into(), &data(variants));
        let names = |panel: LinePanel| (panel.name, panel.lines.into_iter().map(|line| line.name).collect());
        chart.panels.into_iter().map(names).collect()
    }

    #[test]
    fn a_variant_names_panel_and_quantity() {
        let places = data(&[("10 %", ""), ("read-only, 2 threads", ""), ("-m 1024", ""), ("found", "")]);
        let places: Vec<_> = places.iter().map(Datum::place).collect();
        assert_eq!(places, [Some(("", 10.0)), Some(("read-only", 2.0)), Some(("", 1024.0)), None]);
    }

    #[test]
    fn panels_hold_what_is_compared_and_single_lines_share_one() {
        let compared =
            panels(&[("5 %, 1 thread", "chaining"), ("5 %, 1 thread", "guira"), ("5 %, 2 threads", "guira")]);
        assert_eq!(compared, [("5 %".into(), vec!["guira".into(), "chaining".into()])]);
        let alone = panels(&[("read-only, 1 thread", "guira"), ("reads, 1 thread", "memory")]);
        assert_eq!(alone, [(String::new(), vec!["guira: read-only".into(), "memory: reads".into()])]);
    }

    #[test]
    fn kept_reports_are_drawn_again() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(redraw(folder.path()).expect_err("nothing kept").to_string().contains("engine.json"));
        let mut report = ExperimentReport::new("insert-cost", "Inserts", "").over("occupancy (%)");
        report.record("94 %", "guira", INSERT_NS, 388.0);
        report.publish("95 %", "1 path", INSERT_NS, 1300.0);
        report.record("94 %", "guira", THROUGHPUT, 1e6);
        let json = serde_json::json!({ "date": "2026-11-20", "experiments": [report] }).to_string();
        std::fs::write(folder.path().join("engine.json"), json).expect("a file");
        assert_eq!(redraw(folder.path()).expect("draws").len(), 4);
        let svg = std::fs::read_to_string(folder.path().join("insert-cost-insert-time.svg")).expect("an svg");
        assert!(svg.contains("1 path (MemC3 paper)") && svg.contains("occupancy (%)"));
    }
}
