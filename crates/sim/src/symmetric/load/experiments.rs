//! The paper's experiments (ccKVS, EuroSys 2018, section 8), each a function from a scenario to scenarios: the same at length and, in tests, tiny.
//!
//! What an experiment varies it varies around the scenario it is given, whose default is the paper's.

use std::{convert::Infallible, num::NonZero, ops::ControlFlow};

use super::{LoadScenario, Offer, Row, Variant};
use crate::in_order::in_order;

/// An experiment: its name, and its scenarios around one.
pub type Experiment = (&'static str, fn(&LoadScenario) -> Vec<LoadScenario>);

/// All experiments.
pub fn experiments() -> Vec<Experiment> {
    vec![
        ("skew", skew),
        ("writes", writes),
        ("value-sizes", value_sizes),
        ("latency", latency),
        ("nodes", nodes),
        ("full-size", full_size),
    ]
}

/// Runs an experiment by so many threads, with so many seeds from the scenario's on, and hands out its rows in order: each as soon as those before it are there.
pub fn run(
    (name, scenarios): Experiment,
    base: &LoadScenario,
    seeds: u64,
    threads: NonZero<usize>,
    mut each: impl FnMut(Row),
) {
    let of_seed = |number| scenarios(&LoadScenario { seed: base.seed.wrapping_add(number), ..base.clone() });
    let scenarios: Vec<LoadScenario> = (0..seeds).flat_map(of_seed).collect();
    let row = |at: usize| Row::run(name, &scenarios[at]);
    let ControlFlow::Continue(()) = in_order(scenarios.len(), threads, row, |row| {
        each(row);
        ControlFlow::<Infallible>::Continue(())
    });
}

/// Figures 8 and 9: reads alone, by skew.
pub fn skew(base: &LoadScenario) -> Vec<LoadScenario> {
    let of = |exponent| {
        let variants = [Variant::Uniform, Variant::Base, Variant::Lin];
        variants.map(|variant| LoadScenario { variant, exponent, write_share: 0.0, ..base.clone() })
    };
    [0.9, 0.99, 1.01].into_iter().flat_map(of).collect()
}

/// Figures 10 and 11: by the share of writes.
pub fn writes(base: &LoadScenario) -> Vec<LoadScenario> {
    let of = |write_share| Variant::ALL.map(|variant| LoadScenario { variant, write_share, ..base.clone() });
    [0.0, 0.002, 0.01, 0.03, 0.05].into_iter().flat_map(of).collect()
}

/// Figures 12 and 13b: by the length of values, with packets of their own and with shared ones, in a network that is limited by bytes and by packets.
pub fn value_sizes(base: &LoadScenario) -> Vec<LoadScenario> {
    let mut scenarios = Vec::new();
    for value_len in [40, 256, 1_024] {
        for coalesces in [false, true] {
            for (variant, write_share) in
                [(Variant::Base, 0.0), (Variant::Lin, 0.0), (Variant::Sc, 0.01), (Variant::Lin, 0.01)]
            {
                scenarios.push(LoadScenario { variant, write_share, value_len, coalesces, ..by_packets(base) });
            }
        }
    }
    scenarios
}

/// The network's own limits, and not what small packets make of them; more is asked at a time, for packets to be shared. Nothing waits for 40 ms at that scale, after which it would be
/// told again.
fn by_packets(base: &LoadScenario) -> LoadScenario {
    LoadScenario {
        bytes_per_s: LoadScenario::LINK_BYTES_PER_S,
        packets_per_s: LoadScenario::PACKETS_PER_S,
        scale: base.scale.min(100),
        offer: match base.offer {
            Offer::Outstanding(len) => Offer::Outstanding(4 * len),
            offer => offer,
        },
        ..base.clone()
    }
}

/// Figure 13c: latency by load, packets shared, up to what the paper's own system did not do.
pub fn latency(base: &LoadScenario) -> Vec<LoadScenario> {
    let mut scenarios = Vec::new();
    for (variant, write_share) in [(Variant::Lin, 0.0), (Variant::Sc, 0.01), (Variant::Lin, 0.01)] {
        for per_s in [200e6, 400e6, 600e6, 800e6, 1_000e6, 1_200e6, 1_400e6] {
            let offer = Offer::PerSecond(per_s * f64::from(base.nodes) / 9.0);
            scenarios.push(LoadScenario { variant, write_share, offer, coalesces: true, ..by_packets(base) });
        }
    }
    scenarios
}

/// Figure 14: by nodes, a hundredth of requests being writes; and as many as one of five groups of a hundred has (section 9).
pub fn nodes(base: &LoadScenario) -> Vec<LoadScenario> {
    let of = |nodes| {
        let variants = [Variant::Uniform, Variant::Sc, Variant::Lin];
        variants.map(|variant| LoadScenario { variant, nodes, write_share: 0.01, ..base.clone() })
    };
    [3, 5, 7, 9, 20].into_iter().flat_map(of).collect()
}

/// All of the paper's keys, a thousandth of them promoted by the protocol: what fewer keys change.
pub fn full_size(base: &LoadScenario) -> Vec<LoadScenario> {
    let of = |key_scale| LoadScenario { variant: Variant::Lin, write_share: 0.01, key_scale, ..base.clone() };
    // A tenth of that in tests, where the scenario's keys are few already.
    vec![of(base.key_scale), of(1.max(base.key_scale / 200))]
}
