//! Threads on cores of their own that start together and work for as long as the clock says, or until they are done.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use guira_loadgen::affinity;
use rustix::time::{ClockId, clock_gettime};

use crate::error::BenchError;

/// What a crew achieved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    /// Operations per second.
    pub per_s: f64,
    /// Operations per second of CPU time, summed over the threads.
    pub per_cpu_s: f64,
}

/// What one thread did, and what it took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub operations: u64,
    pub elapsed: Duration,
    pub cpu: Duration,
}

impl Spent {
    fn since(begin: Instant, begin_cpu: Duration, operations: u64) -> Self {
        let cpu = cpu_time().saturating_sub(begin_cpu).max(Duration::from_nanos(1));
        Self { operations, elapsed: begin.elapsed().max(Duration::from_nanos(1)), cpu }
    }
}

/// CPU time of the calling thread: what single-threaded work is timed by, so that what else the machine does stays out.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// How long workers work to be measured for `measure`: a quarter of it to warm up, then all of it.
pub(crate) fn whole(measure: Duration) -> Duration {
    measure / 4 + measure
}

/// Lets every worker work on its core: a quarter of `measure` to warm up, then for `measure`. A worker does a small piece of
/// work a call and says how many operations it was.
pub(crate) fn run<W>(cores: &[usize], measure: Duration, workers: Vec<W>) -> Result<Rate, BenchError>
where
    W: FnMut() -> u64 + Send,
{
    let sum = |sum: Rate, one: Spent| Rate {
        per_s: sum.per_s + one.operations as f64 / one.elapsed.as_secs_f64(),
        per_cpu_s: sum.per_cpu_s + one.operations as f64 / one.cpu.as_secs_f64(),
    };
    Ok(for_a_while(cores, measure, workers)?.into_iter().fold(Rate::default(), sum))
}

/// The same, thread by thread.
pub(crate) fn for_a_while<W>(cores: &[usize], measure: Duration, workers: Vec<W>) -> Result<Vec<Spent>, BenchError>
where
    W: FnMut() -> u64 + Send,
{
    together(cores, workers, |mut worker| {
        let begin = Instant::now();
        while begin.elapsed() < measure / 4 {
            worker();
        }
        let (begin, begin_cpu, mut operations) = (Instant::now(), cpu_time(), 0);
        loop {
            operations += worker();
            if begin.elapsed() >= measure {
                return Spent::since(begin, begin_cpu, operations);
            }
        }
    })
}

/// Lets every worker do all its work on its core; it says how many operations that was.
pub(crate) fn to_the_end<W>(cores: &[usize], workers: Vec<W>) -> Result<Vec<Spent>, BenchError>
where
    W: FnOnce() -> u64 + Send,
{
    together(cores, workers, |worker| {
        let (begin, begin_cpu) = (Instant::now(), cpu_time());
        let operations = worker();
        Spent::since(begin, begin_cpu, operations)
    })
}

fn together<W: Send>(
    cores: &[usize],
    workers: Vec<W>,
    work: impl Fn(W) -> Spent + Copy + Send,
) -> Result<Vec<Spent>, BenchError> {
    assert!(workers.len() <= cores.len(), "each thread has a core of its own");
    let barrier = &Barrier::new(workers.len());
    let member = move |core: usize, worker: W| {
        let pinned = affinity::pin(core);
        barrier.wait();
        let _pinned = pinned.map_err(|source| BenchError::Invalid(source.to_string()))?;
        Ok(work(worker))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            cores.iter().zip(workers).map(|(core, worker)| scope.spawn(move || member(*core, worker))).collect();
        let spent = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(spent).collect()
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

    #[test]
    fn work_with_an_end_is_done_once_each() {
        let cores = affinity::cores();
        let workers: Vec<_> = (0..cores.len() as u64).map(|number| move || number + 1).collect();
        let spent = to_the_end(&cores, workers).expect("runs");
        let operations: Vec<u64> = spent.iter().map(|one| one.operations).collect();
        assert_eq!(operations, (1..=cores.len() as u64).collect::<Vec<_>>());
    }
}
