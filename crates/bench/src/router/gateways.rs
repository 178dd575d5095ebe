//! The gateway's own router: what a gateway takes for a get that it brings to the cache node, and for one that it brings to the backend.
//!
//! Two clusters of processes, each with a gateway that goes by rules, a cache node and a backend that does all it can: in one all keys are cached, in the
//! other none is, since backends report nothing.

use std::time::Duration;

use guira_loadgen::changing::ChangingKeys;
use guira_switched::CacheMode;

use super::bench::Bench;
use crate::cluster::bench::{Bench as Clusters, Run};
use crate::cluster::processes::Processes;
use crate::error::BenchError;
use crate::metric;
use crate::report::ExperimentReport;

/// The time of a process is told in steps of so much.
const TICK_S: f64 = 0.01;

/// A get goes to a member, and its answer comes back.
const PACKETS_OF_A_GET: f64 = 2.0;

/// One of the clusters.
pub(super) struct Gateway {
    bench: Clusters,
    cluster: Processes,
    keys: ChangingKeys,
}

impl Gateway {
    /// One whose gets find their keys at the cache node.
    pub fn with_hits(bench: &Bench) -> Result<Self, BenchError> {
        let gateway = Self::up(bench, "hits", "both")?;
        gateway.bench.warm(&gateway.cluster, &gateway.keys)?;
        Ok(gateway)
    }

    /// One whose gets all go to the backend.
    pub fn with_misses(bench: &Bench) -> Result<Self, BenchError> {
        Self::up(bench, "misses", "none")
    }

    fn up(bench: &Bench, place: &'static str, reports: &str) -> Result<Self, BenchError> {
        let clusters = &bench.clusters;
        let bench = clusters.alone(place, clusters.keys, clusters.connections);
        let cluster = bench.up(&[CacheMode::Switched], &["--router", "gateway", "--reports", reports])?;
        let keys = bench.zipf(0.99);
        Ok(Self { bench, cluster, keys })
    }

    /// Packets a second of the gateway's CPU time, which are recorded with how many of the gets were hits.
    pub fn measure(
        &self,
        experiment: &'static str,
        report: &mut ExperimentReport,
        variant: &str,
    ) -> Result<f64, BenchError> {
        let measure = self.bench.measure;
        let run = Run {
            mode: CacheMode::Switched,
            warm_up: Duration::from_millis(self.bench.extent.scaled(500, 50)),
            measure,
            samples: true,
            stretch: measure,
            change: None,
        };
        let read = self.bench.read(experiment, &self.cluster, self.keys.clone(), &run, || Ok(()))?;
        read.interval.expect_all_answered(experiment, "gateway")?;
        let gets = read.interval.outcome.tally.keys() as f64;
        let gets_per_cpu_s = gets / read.counted.gateways_cpu_s.max(TICK_S);
        let packets_per_s = PACKETS_OF_A_GET * gets_per_cpu_s;
        report.record(variant, "gateway", metric::PACKETS, packets_per_s);
        report.record(variant, "gateway", metric::GETS_PER_CPU, gets_per_cpu_s);
        report.record(variant, "gateway", metric::CACHE_HITS, read.counted.hits as f64 / gets);
        Ok(packets_per_s)
    }

    /// Takes it down in order.
    pub fn down(self) -> Result<(), BenchError> {
        self.cluster.down()
    }
}
