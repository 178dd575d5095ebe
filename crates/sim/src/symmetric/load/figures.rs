//! The paper's figures (EuroSys 2018, section 8), of rows: medians over seeds, and what the paper's text and its equations say beside them.
//!
//! Always true: a figure is made of the rows of one experiment, and of them alone, so that kept rows draw it again.

use std::path::{Path, PathBuf};

use guira_loadgen::{
    error::LoadError,
    plot::{Line, LineChart, Sheet},
};
use guira_plan::MessageLens;

use super::{Row, Variant, experiments::experiments};
use crate::load::{
    aims::Aim,
    figures::{line, only, panel, published_by},
    kept::Kept,
};

/// Whose the published figures are.
const PAPER: &str = "ccKVS paper";

const ANSWERED: &str = "requests answered (1/s)";

/// A figure: the name of its files, whose rows it is of, and how it is drawn.
struct Figure {
    name: &'static str,
    experiment: &'static str,
    chart: fn(&[&Row]) -> LineChart,
}

const FIGURES: [Figure; 6] = [
    Figure { name: "skew", experiment: "skew", chart: skew },
    Figure { name: "writes", experiment: "writes", chart: writes },
    Figure { name: "writes-bytes", experiment: "writes", chart: bytes },
    Figure { name: "value-sizes", experiment: "value-sizes", chart: value_sizes },
    Figure { name: "latency", experiment: "latency", chart: latency },
    Figure { name: "nodes", experiment: "nodes", chart: nodes },
];

impl Kept for Row {
    fn experiments() -> Vec<&'static str> {
        experiments().iter().map(|(name, _)| *name).collect()
    }

    fn aims() -> &'static [Aim<Self>] {
        &super::aims::AIMS
    }

    fn experiment(&self) -> &str {
        &self.experiment
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn draw(folder: &Path, rows: &[Self]) -> Result<Vec<PathBuf>, LoadError> {
        let mut written = Vec::new();
        for Figure { name, experiment, chart } in &FIGURES {
            let rows: Vec<&Row> = rows.iter().filter(|row| row.experiment == *experiment).collect();
            if !rows.is_empty() {
                let sheet: Sheet = chart(&rows).sheet();
                written.extend(sheet.save(&folder.join(name))?);
            }
        }
        Ok(written)
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as lines take it")]
fn answered(row: &Row) -> Option<f64> {
    Some(row.report.answered_per_s)
}

fn of(rows: &[&Row], variant: Variant, across: fn(&Row) -> f64, up: fn(&Row) -> Option<f64>) -> Line {
    line(variant.name(), &only(rows, |row| row.variant == variant), across, up)
}

fn chart(title: &str, across: &str, up: &str, lines: Vec<Line>) -> LineChart {
    LineChart { title: title.into(), across: across.into(), up: up.into(), panels: vec![panel("", lines)] }
}

/// Figure 8. The uniform keys are drawn at 0, where their skew is.
fn skew(rows: &[&Row]) -> LineChart {
    let lines = vec![
        of(rows, Variant::Lin, |row| row.exponent, answered),
        of(rows, Variant::Base, |row| row.exponent, answered),
        of(rows, Variant::Uniform, |row| row.exponent, answered),
        published_by(PAPER, "cached", &[(0.99, 690e6)]),
        published_by(PAPER, "base", &[(0.99, 215e6)]),
        published_by(PAPER, "uniform", &[(0.0, 240e6)]),
    ];
    chart("Reads alone, by skew (figure 8)", "exponent of zipf", ANSWERED, lines)
}

fn write_per_cent(row: &Row) -> f64 {
    100.0 * row.write_share
}

/// Figure 10.
fn writes(rows: &[&Row]) -> LineChart {
    let of = |variant| of(rows, variant, write_per_cent, answered);
    let mut lines: Vec<Line> = [Variant::Sc, Variant::Lin, Variant::Base, Variant::Uniform].map(of).into();
    lines.push(published_by(PAPER, "sc", &[(0.0, 690e6), (1.0, 639e6)]));
    lines.push(published_by(PAPER, "lin", &[(0.0, 690e6), (1.0, 554e6)]));
    lines.push(published_by(PAPER, "base", &[(0.0, 215e6)]));
    chart("By the share of writes, zipf 0.99 (figure 10)", "writes (%)", ANSWERED, lines)
}

/// Figure 11, and the equations beside it.
fn bytes(rows: &[&Row]) -> LineChart {
    let of_variant = |variant: Variant| {
        let rows = only(rows, |row| row.variant == variant);
        let planned = |row: &Row, lens: MessageLens| {
            let plan = row.deployment(lens)?;
            let consistency =
                if variant == Variant::Sc { guira_plan::Consistency::Sc } else { guira_plan::Consistency::Lin };
            Some(plan.bytes_of_misses() + plan.bytes_of_consistency(consistency))
        };
        let lines = vec![
            line("sent", &rows, write_per_cent, |row| Some(row.bytes_a_request())),
            line("equations, our messages", &rows, write_per_cent, |row| planned(row, row.report.traffic.lens())),
            line("equations, the paper's messages", &rows, write_per_cent, |row| {
                planned(row, MessageLens::OF_THE_PAPER)
            }),
        ];
        panel(variant.name(), lines)
    };
    LineChart {
        title: "What a request takes of the network (figure 11)".into(),
        across: "writes (%)".into(),
        up: "bytes a request".into(),
        panels: [Variant::Sc, Variant::Lin].map(of_variant).into(),
    }
}

/// Figures 12 and 13b.
fn value_sizes(rows: &[&Row]) -> LineChart {
    let len = |row: &Row| row.value_len as f64;
    let of_packets = |(name, coalesces): (&str, bool)| {
        let of = |name: &str, variant, write_share| {
            let is_meant =
                |row: &Row| row.coalesces == coalesces && row.variant == variant && row.write_share == write_share;
            line(name, &only(rows, is_meant), len, answered)
        };
        let lines = vec![
            of("base", Variant::Base, 0.0),
            of("reads alone", Variant::Lin, 0.0),
            of("sc, 1 % writes", Variant::Sc, 0.01),
            of("lin, 1 % writes", Variant::Lin, 0.01),
        ];
        panel(name, lines)
    };
    LineChart {
        title: "By the length of values (figures 12 and 13b)".into(),
        across: "bytes of a value".into(),
        up: ANSWERED.into(),
        panels: [("a packet a message", false), ("packets shared", true)].map(of_packets).into(),
    }
}

/// Figure 13c.
fn latency(rows: &[&Row]) -> LineChart {
    let of_up = |(name, up): (&str, fn(&Row) -> Option<f64>)| {
        let of = |name: &str, variant, write_share| {
            let rows = only(rows, |row| row.variant == variant && row.write_share == write_share);
            line(name, &rows, |row| row.offered_per_s.unwrap_or(0.0), up)
        };
        let lines = vec![
            of("reads alone", Variant::Lin, 0.0),
            of("sc, 1 % writes", Variant::Sc, 0.01),
            of("lin, 1 % writes", Variant::Lin, 0.01),
        ];
        panel(name, lines)
    };
    let mean: fn(&Row) -> Option<f64> = |row| Some(row.report.mean_us);
    let p95: fn(&Row) -> Option<f64> = |row| Some(row.report.p95_us);
    LineChart {
        title: "Latency by load, packets shared (figure 13c)".into(),
        across: "requests asked (1/s)".into(),
        up: "latency (us)".into(),
        panels: [("mean", mean), ("95 of 100 within", p95)].map(of_up).into(),
    }
}

/// Figure 14.
fn nodes(rows: &[&Row]) -> LineChart {
    let nodes = |row: &Row| f64::from(row.nodes);
    let of = |variant| of(rows, variant, nodes, answered);
    let mut lines: Vec<Line> = [Variant::Sc, Variant::Lin, Variant::Uniform].map(of).into();
    let cached = only(rows, |row| row.variant.is_cached());
    for (name, variant) in [("sc, by equations", Variant::Sc), ("lin, by equations", Variant::Lin)] {
        lines.push(line(name, &only(&cached, |row| row.variant == variant), nodes, Row::planned_per_s));
    }
    lines.push(published_by(PAPER, "sc", &[(9.0, 639e6)]));
    lines.push(published_by(PAPER, "lin", &[(9.0, 554e6)]));
    chart("By nodes, 1 % writes, zipf 0.99 (figure 14)", "nodes", ANSWERED, lines)
}
