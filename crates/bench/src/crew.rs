//! Threads on cores of their own that start together and work for as long as the clock says, or until they are done.

use std::sync::{
    Barrier,
    atomic::{AtomicBool, Ordering::Relaxed},
};
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

/// Lets every worker work on its core, or anywhere if there are no cores: a quarter of `measure` to warm up, then for `measure`. A worker
/// does a small piece of work a call and says how many operations it was.
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

/// Lets one worker work to its end on the first core, and the other do a small piece of work after the other on the second core
/// until then.
pub(crate) fn pair(
    cores: [usize; 2],
    leader: impl FnOnce() + Send,
    mut follower: impl FnMut() + Send,
) -> Result<(), BenchError> {
    let is_done = &AtomicBool::new(false);
    let leader = move || {
        // Whatever ends it ends the other too.
        let _done = SetWhenDropped(is_done);
        leader();
    };
    let follower = move || {
        while !is_done.load(Relaxed) {
            follower();
        }
    };
    let workers: [Box<dyn FnOnce() + Send + '_>; 2] = [Box::new(leader), Box::new(follower)];
    let work = |worker: Box<dyn FnOnce() + Send + '_>| {
        worker();
        Spent::default()
    };
    together(&cores, workers.into(), work).map(drop)
}

struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn together<W: Send>(
    cores: &[usize],
    workers: Vec<W>,
    work: impl Fn(W) -> Spent + Copy + Send,
) -> Result<Vec<Spent>, BenchError> {
    assert!(cores.is_empty() || workers.len() <= cores.len(), "each thread has a core of its own, or none has");
    let barrier = &Barrier::new(workers.len());
    let is_refused = &AtomicBool::new(false);
    let member = move |core: Option<usize>, worker: W| {
        let pinned = core.map(affinity::pin).transpose();
        let pinned = pinned.map_err(|source| BenchError::Invalid(source.to_string()));
        is_refused.fetch_or(pinned.is_err(), Relaxed);
        barrier.wait();
        let _pinned = pinned?;
        // Nobody waits for a worker that is not there.
        if is_refused.load(Relaxed) { Ok(Spent::default()) } else { Ok(work(worker)) }
    };
    std::thread::scope(|scope| {
        let cores = cores.iter().copied().map(Some).chain(std::iter::repeat(None));
        let threads: Vec<_> =
            workers.into_iter().zip(cores).map(|(worker, core)| scope.spawn(move || member(core, worker))).collect();
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
        let spent = for_a_while(&cores, Duration::from_millis(5), workers).expect("runs");
        assert_eq!(spent.len(), cores.len());
        let is_counted = |one: &Spent| one.operations >= 10 && one.operations.is_multiple_of(10);
        assert!(spent.iter().all(is_counted), "{spent:?}");
    }

    #[test]
    fn workers_without_cores_may_be_more_than_there_are_cores() {
        let workers: Vec<_> = (0..4 * affinity::cores().len()).map(|_| || std::hint::black_box(1)).collect();
        assert!(run(&[], Duration::from_millis(5), workers).expect("runs").per_s > 0.0);
    }

    #[test]
    fn a_pair_ends_with_its_leader() {
        let (cores, asked) = (affinity::cores(), AtomicBool::new(false));
        let leader = || {
            while !asked.load(Relaxed) {
                std::thread::yield_now();
            }
        };
        pair([cores[0], cores[cores.len() - 1]], leader, || asked.store(true, Relaxed)).expect("runs");
        assert!(asked.into_inner());
        let error = pair([cores[0], 100_000], || (), std::thread::yield_now).expect_err("no such core");
        assert!(error.to_string().contains("100000"), "{error}");
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
