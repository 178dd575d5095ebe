//! Figure 7: the best throughput of an index at any number of threads, over the share of writes.

use super::{BenchError, ExperimentReport, crew::Rate, in_process::Bench, index_threads::Contenders, metric};

pub(super) const NAME: &str = "insert-share";

const WRITE_PERCENTS: [u32; 6] = [0, 10, 25, 50, 75, 100];

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let contenders = Contenders::new(bench)?;
    let words = format!("{}; the best of 1 to {} threads", contenders.workload(), bench.cores.len());
    let mut report = ExperimentReport::new(NAME, "Best throughput over the share of writes (MemC3's Figure 7)", words)
        .over("writes (% of operations)");
    for _ in 0..bench.rounds {
        for percent in WRITE_PERCENTS {
            for (name, index) in &contenders.all {
                let mut best = (Rate::default(), 0);
                for count in bench.thread_counts() {
                    let rate = contenders.measure(bench, &**index, percent, count)?;
                    if rate.per_s > best.0.per_s {
                        best = (rate, count);
                    }
                }
                let variant = format!("{percent} % writes");
                report.record(&variant, name, metric::OPERATIONS, best.0.per_s);
                report.record(&variant, name, metric::PER_CPU, best.0.per_cpu_s);
                report.record(&variant, name, metric::BEST_THREADS, best.1 as f64);
            }
        }
    }
    Ok(report)
}
