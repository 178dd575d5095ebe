//! The sweeps: one over each of the paper's parameters.

use std::num::NonZeroUsize;

use guira_cphash::Eviction;

use super::{Aim, contenders::Contender, load::Load, metric, parameters::steps, sweep::Sweep};

/// Working set where another parameter is varied, in MB: larger than the caches of two cores, smaller than what they share.
const USUAL_MB: usize = 16;

/// Working set where threads are varied, in MB, as in the paper.
const SMALL_MB: usize = 1;

/// Working set where the room for it is varied, in MB.
const LARGE_MB: usize = 128;

/// What the paper has, to send and to receive two messages.
pub(super) const FEW_LINES: Aim =
    Aim { peer: "cphash", variant: None, metric: metric::LINES_PER_OPERATION, bound: 1.5 };

/// Figures 5 and 8.
pub(in super::super) const WORKING_SETS: Sweep = Sweep {
    name: "working-sets",
    title: "Throughput over working sets (CPHASH's Figures 5 and 8)",
    axis: "working set, MB",
    remark: "the paper, 160 hardware threads: cphash does 1.6 to 2 times what lockhash does from 256 KB to 128 MB, \
             1.45 times without LRU at 4 MB",
    working_set_mb: USUAL_MB,
    contenders: &Contender::ALL,
    aims: &[Aim { peer: "cphash", variant: None, metric: metric::OVER_LOCKHASH, bound: 1.0 }],
    steps: |bench, _| {
        let sizes = steps(bench.parameters.working_set, bench.extent.scaled(&[1, 4, 16, 64, 128], &[1]));
        let step = |eviction: Eviction, size: usize| {
            (format!("{}, {size} MB", eviction.name()), Load { eviction, ..Load::of(bench, size) })
        };
        steps(bench.parameters.eviction, &[Eviction::Lru, Eviction::Random])
            .into_iter()
            .flat_map(|eviction| sizes.iter().map(move |size| step(eviction, *size)))
            .collect()
    },
};

/// Figure 9.
pub(in super::super) const CAPACITIES: Sweep = Sweep {
    name: "capacities",
    title: "Throughput over capacities (CPHASH's Figure 9)",
    axis: "capacity",
    remark: "the paper: both are faster the less there is room for, cphash ahead throughout",
    working_set_mb: LARGE_MB,
    contenders: &Contender::ALL,
    aims: &[],
    steps: |bench, load| {
        let step = |part| (format!("1/{part} of the working set"), Load { capacity: load.keys / part, ..load });
        match bench.parameters.capacity {
            Some(percent) => vec![(format!("{percent} % of the working set"), load)],
            None => [8, 4, 2, 1].map(step).into(),
        }
    },
};

/// Figure 10.
pub(in super::super) const INSERT_RATIOS: Sweep = Sweep {
    name: "insert-ratios",
    title: "Throughput over shares of inserts (CPHASH's Figure 10)",
    axis: "inserts",
    remark: "the paper's working set is 128 MB; there inserts cost both the more the more they are, cphash \
             ahead throughout, and without any nothing is ever found: here everything is",
    working_set_mb: USUAL_MB,
    contenders: &Contender::ALL,
    aims: &[],
    steps: |bench, load| {
        let step = |percent: usize| (format!("{percent} %"), Load { inserts: percent as f64 / 100.0, ..load });
        steps(bench.parameters.inserts, &[0, 10, 30, 60, 100]).into_iter().map(step).collect()
    },
};

/// How many requests at a time it takes for messages to pay (section 6.1).
pub(in super::super) const BATCHES: Sweep = Sweep {
    name: "batches",
    title: "Throughput over lengths of batches (CPHASH, section 6.1)",
    axis: "requests a batch",
    remark: "the paper: 512 to 8,192 serve alike, smaller ones have clients wait",
    working_set_mb: USUAL_MB,
    contenders: &Contender::ALL,
    aims: &[Aim { variant: Some("1000"), ..FEW_LINES }],
    steps: |bench, load| {
        let step = |len: usize| (len.to_string(), Load { batch: NonZeroUsize::new(len).expect("not zero"), ..load });
        steps(bench.parameters.batch, &[1, 16, 64, 256, 1_000, 4_000]).into_iter().map(step).collect()
    },
};

/// How many locks it takes for threads not to meet at them (section 6.1).
pub(in super::super) const PARTITIONS: Sweep = Sweep {
    name: "partitions",
    title: "Throughput over partitions of LOCKHASH (CPHASH, section 6.1)",
    axis: "partitions",
    remark: "the paper: fewer than 4,096 contend, more gain nothing",
    working_set_mb: SMALL_MB,
    contenders: &[Contender::Lockhash],
    aims: &[],
    steps: |bench, load| {
        let step = |count: usize| (count.to_string(), Load { partitions: Some(count), ..load });
        steps(bench.parameters.partitions, &[64, 512, 4_096]).into_iter().map(step).collect()
    },
};

/// Every way to divide the cores among clients and server threads (section 6.5, and 6.2 on fewer server threads).
pub(in super::super) const SERVER_THREADS: Sweep = Sweep {
    name: "server-threads",
    title: "Throughput over server threads on the same cores (CPHASH, sections 6.2 and 6.5)",
    axis: "server threads",
    remark: "0: clients serve each other by messages; as many as cores: each has a client \
             as well; by load: that, with as many serving as are busy; lockhash has a thread on each core throughout; the paper: \
             fewer server threads than clients have the clients wait longer",
    working_set_mb: SMALL_MB,
    contenders: &[Contender::Cphash, Contender::ByLoad, Contender::Lockhash],
    aims: &[],
    steps: |bench, load| {
        let all: Vec<usize> = (0..=load.cores).collect();
        let step = |servers: usize| (servers.to_string(), Load { servers, ..load });
        steps(bench.parameters.server_threads, &all).into_iter().map(step).collect()
    },
};

/// Figures 11 and 12, by cores; which of them share a socket or a core is what `--threads` and the machine say.
pub(in super::super) const CORES: Sweep = Sweep {
    name: "cores",
    title: "Throughput over cores (CPHASH's Figures 11 and 12)",
    axis: "cores",
    remark: "on a single core cphash's two threads share it; the paper: on one socket \
             lockhash is slightly ahead, on more it falls behind, and only cphash gains by the second hardware thread \
             of each core",
    working_set_mb: SMALL_MB,
    contenders: &Contender::ALL,
    aims: &[],
    steps: |bench, load| {
        let step = |cores: usize| {
            let servers = bench.parameters.server_threads.map_or(cores.div_ceil(2), |servers| servers.min(cores));
            (format!("{cores} of {} cores", load.cores), Load { cores, servers, ..load })
        };
        bench.thread_counts().into_iter().map(step).collect()
    },
};
