//! What the paper has (EuroSys 2018, section 8), and what is aimed at beside it.

use guira_plan::Consistency;

use super::{Row, Variant};
use crate::load::aims::{Aim, Bound, largest, per_cent, smallest};

/// Facebook's share of writes, and others that the paper has.
const FEW: f64 = 0.002;
const ONE: f64 = 0.01;
const FIVE: f64 = 0.05;

pub(super) static AIMS: [Aim<Row>; 12] = [
    Aim {
        experiment: "skew",
        what: "reads alone, beside what equations 1 to 7 give at the hit ratio that was seen, at worst",
        bound: Bound::AtLeast(0.95),
        unit: "times",
        measured: |rows| smallest(of(rows, Variant::Lin, 0.0).filter_map(beside_plan)),
    },
    Aim {
        experiment: "writes",
        what: "1 % writes, Lin over no cache",
        bound: Bound::AtLeast(2.58),
        unit: "times",
        measured: |rows| smallest(of(rows, Variant::Lin, ONE).filter_map(|row| row.times(Variant::Base, rows))),
    },
    Aim {
        experiment: "writes",
        what: "1 % writes, SC over no cache",
        bound: Bound::AtLeast(2.97),
        unit: "times",
        measured: |rows| smallest(of(rows, Variant::Sc, ONE).filter_map(|row| row.times(Variant::Base, rows))),
    },
    Aim {
        experiment: "writes",
        what: "1 % writes, Lin over no cache and all keys asked for as often (paper: 2.31)",
        bound: Bound::AtLeast(2.31),
        unit: "times",
        measured: |rows| smallest(of(rows, Variant::Lin, ONE).filter_map(|row| row.times(Variant::Uniform, rows))),
    },
    Aim {
        experiment: "writes",
        what: "1 % writes, SC over no cache and all keys asked for as often (paper: 2.66)",
        bound: Bound::AtLeast(2.66),
        unit: "times",
        measured: |rows| smallest(of(rows, Variant::Sc, ONE).filter_map(|row| row.times(Variant::Uniform, rows))),
    },
    Aim {
        experiment: "writes",
        what: "0.2 % writes, Lin, less than reads alone",
        bound: Bound::AtMost(3.0),
        unit: "%",
        measured: |rows| less_than_reads(rows, Variant::Lin),
    },
    Aim {
        experiment: "writes",
        what: "0.2 % writes, SC, less than reads alone",
        bound: Bound::AtMost(3.0),
        unit: "%",
        measured: |rows| less_than_reads(rows, Variant::Sc),
    },
    Aim {
        experiment: "writes",
        what: "5 % writes, Lin over no cache",
        bound: Bound::AtLeast(1.0),
        unit: "times",
        measured: |rows| smallest(of(rows, Variant::Lin, FIVE).filter_map(|row| row.times(Variant::Base, rows))),
    },
    Aim {
        experiment: "writes",
        what: "bytes that a request takes of the network, off what the equations have, at worst",
        bound: Bound::AtMost(5.0),
        unit: "%",
        measured: |rows| largest(rows.iter().filter_map(|row| off_plan(row))).map(per_cent),
    },
    Aim {
        experiment: "writes",
        what: "writes at which a cache no longer pays, SC, nine nodes, by our messages (paper's equations: 15.1)",
        bound: Bound::AtLeast(15.1),
        unit: "%",
        measured: |rows| even(rows, Variant::Sc, Consistency::Sc).map(per_cent),
    },
    Aim {
        experiment: "writes",
        what: "writes at which a cache no longer pays, Lin, nine nodes, by our messages (paper's equations: 6.9)",
        bound: Bound::AtLeast(6.9),
        unit: "%",
        measured: |rows| even(rows, Variant::Lin, Consistency::Lin).map(per_cent),
    },
    Aim {
        experiment: "full-size",
        what: "throughput with fewer keys of the same hit ratio, off that with all of them",
        bound: Bound::AtMost(3.0),
        unit: "%",
        measured: |rows| {
            let all = rows.iter().max_by_key(|row| row.simulated_keys)?.report.answered_per_s;
            largest(rows.iter().map(|row| (row.report.answered_per_s / all - 1.0).abs())).map(per_cent)
        },
    },
];

fn of<'rows>(rows: &[&'rows Row], variant: Variant, write_share: f64) -> impl Iterator<Item = &'rows Row> {
    rows.iter().copied().filter(move |row| row.variant == variant && row.write_share == write_share)
}

fn beside_plan(row: &Row) -> Option<f64> {
    Some(row.report.answered_per_s / row.planned_per_s()?)
}

fn off_plan(row: &Row) -> Option<f64> {
    Some((row.bytes_a_request() / row.planned_bytes()? - 1.0).abs())
}

fn less_than_reads(rows: &[&Row], variant: Variant) -> Option<f64> {
    let reads = of(rows, variant, 0.0).next()?.report.answered_per_s;
    largest(of(rows, variant, FEW).map(|row| 1.0 - row.report.answered_per_s / reads)).map(per_cent)
}

fn even(rows: &[&Row], variant: Variant, consistency: Consistency) -> Option<f64> {
    let row = of(rows, variant, ONE).next()?;
    row.deployment(row.report.traffic.lens())?.break_even_write_share(consistency)
}
