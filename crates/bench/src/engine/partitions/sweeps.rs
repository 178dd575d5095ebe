//! The sweeps: one over each of the paper's parameters.

use std::num::NonZeroUsize;

use guira_cphash::Eviction;

use super::{contenders::Contender, load::Load, sweep::Sweep};

/// Working set where another parameter is varied, 16 MB: larger than the caches of two cores, smaller than what they share.
const USUAL_BYTES: usize = 16 << 20;

/// Figures 5 and 8.
pub(in super::super) const WORKING_SETS: Sweep = Sweep {
    name: "working-sets",
    title: "Throughput over working sets (CPHASH's Figures 5 and 8)",
    axis: "working set, MB",
    remark: "the paper, 160 hardware threads: cphash does 1.6 to 2 times what lockhash does from 256 KB to 128 MB, 1.45 times \
             without LRU at 4 MB",
    contenders: &Contender::ALL,
    steps: |bench| {
        let sizes: &[usize] = bench.extent.scaled(&[1, 4, 16, 64, 128], &[1]);
        let step = |eviction: Eviction, size: &usize| {
            (format!("{}, {size} MB", eviction.name()), Load { eviction, ..Load::of(bench, size << 20) })
        };
        [Eviction::Lru, Eviction::Random]
            .into_iter()
            .flat_map(|eviction| sizes.iter().map(move |size| step(eviction, size)))
            .collect()
    },
};

/// Figure 9.
pub(in super::super) const CAPACITIES: Sweep = Sweep {
    name: "capacities",
    title: "Throughput over capacities (CPHASH's Figure 9)",
    axis: "capacity",
    remark: "the working set is 128 MB; the paper: both are faster the less there is room for, cphash ahead throughout",
    contenders: &Contender::ALL,
    steps: |bench| {
        let load = Load::of(bench, 128 << 20);
        let step = |part| (format!("1/{part} of the working set"), Load { capacity: load.keys / part, ..load });
        [8, 4, 2, 1].map(step).into()
    },
};

/// Figure 10.
pub(in super::super) const INSERT_RATIOS: Sweep = Sweep {
    name: "insert-ratios",
    title: "Throughput over shares of inserts (CPHASH's Figure 10)",
    axis: "inserts",
    remark: "the working set is 16 MB, the paper's 128 MB; there inserts cost both the more the more they are, cphash ahead \
             throughout, and without any nothing is ever found: here everything is",
    contenders: &Contender::ALL,
    steps: |bench| {
        let load = Load::of(bench, USUAL_BYTES);
        let step = |percent: i32| (format!("{percent} %"), Load { inserts: f64::from(percent) / 100.0, ..load });
        [0, 10, 30, 60, 100].map(step).into()
    },
};

/// How many requests at a time it takes for messages to pay (section 6.1).
pub(in super::super) const BATCHES: Sweep = Sweep {
    name: "batches",
    title: "Throughput over lengths of batches (CPHASH, section 6.1)",
    axis: "requests a batch",
    remark: "the working set is 16 MB; the paper: 512 to 8,192 serve alike, smaller ones have clients wait",
    contenders: &Contender::ALL,
    steps: |bench| {
        let load = Load::of(bench, USUAL_BYTES);
        let step = |len: usize| (len.to_string(), Load { batch: NonZeroUsize::new(len).expect("not zero"), ..load });
        [1, 16, 64, 256, 1_000, 4_000].map(step).into()
    },
};
