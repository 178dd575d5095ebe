//! Threads on cores of their own that start together and work for as long as the clock says.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use guira_loadgen::affinity;
use rustix::time::{ClockId, clock_gettime};

use super::BenchError;

/// What a crew achieved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    /// Operations per second.
    pub per_s: f64,
    /// Operations per second of CPU time, summed over the threads.
    pub per_cpu_s: f64,
}

/// CPU time of the calling thread: what single-threaded work is timed by, so that what else the machine does stays out.
pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Lets every worker work on its core: a quarter of `measure` to warm up, then for `measure`. A worker does a small piece of
/// work a call and says how many operations it was.
pub(super) fn run<W>(cores: &[usize], measure: Duration, workers: Vec<W>) -> Result<Rate, BenchError>
where
    W: FnMut() -> u64 + Send,
{
    assert!(workers.len() <= cores.len(), "each thread has a core of its own");
    let barrier = &Barrier::new(workers.len());
    let work = |core: usize, mut worker: W| {
        let pinned = affinity::pin(core);
        barrier.wait();
        let _pinned =
            pinned.map_err(|source| BenchError::Load { peer: "guira".into(), experiment: "engine", source })?;
        let begin = Instant::now();
        while begin.elapsed() < measure / 4 {
            worker();
        }
        let (begin, begin_cpu, mut operations) = (Instant::now(), cpu_time(), 0);
        let elapsed = loop {
            operations += worker();
            let elapsed = begin.elapsed();
            if elapsed >= measure {
                break elapsed;
            }
        };
        let cpu = cpu_time().saturating_sub(begin_cpu).max(Duration::from_nanos(1));
        let operations = operations as f64;
        Ok(Rate { per_s: operations / elapsed.as_secs_f64(), per_cpu_s: operations / cpu.as_secs_f64() })
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            cores.iter().zip(workers).map(|(core, worker)| scope.spawn(move || work(*core, worker))).collect();
        threads.into_iter().try_fold(Rate::default(), |sum, thread| {
            let one = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok(Rate { per_s: sum.per_s + one.per_s, per_cpu_s: sum.per_cpu_s + one.per_cpu_s })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_workers_work_and_are_counted() {
        let cores = affinity::cores();
        let workers: Vec<_> = cores.iter().map(|_| || std::hint::black_box(10)).collect();
        let rate = run(&cores, Duration::from_millis(5), workers).expect("runs");
        assert!(rate.per_s > 1_000.0 && rate.per_cpu_s >= rate.per_s * 0.5, "{rate:?}");
    }
}
