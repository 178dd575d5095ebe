//! Jobs on several threads, whose results come in the order of the jobs.

use std::{
    collections::BTreeMap,
    num::NonZero,
    ops::ControlFlow,
    sync::{
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

/// Runs the jobs 0 to `jobs` on some threads and hands each result to `each`, in order and as soon as those before it are there. If `each`
/// breaks off, or a job panics, jobs that have begun are finished, their results are lost, and no others are begun but one a thread at most.
/// Results that are early are kept: all but one, at worst.
pub(crate) fn in_order<T: Send, B>(
    jobs: usize,
    threads: NonZero<usize>,
    run: impl Fn(usize) -> T + Sync,
    mut each: impl FnMut(T) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let next = AtomicUsize::new(0);
    let (results, done) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.get().min(jobs) {
            let (results, next, run) = (results.clone(), &next, &run);
            scope.spawn(move || {
                let _end = EndOnPanic { next, jobs };
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    if at >= jobs || results.send((at, run(at))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        let mut early = BTreeMap::new();
        let mut due = 0;
        for (at, result) in done {
            early.insert(at, result);
            while let Some(result) = early.remove(&due) {
                due += 1;
                each(result)?;
            }
        }
        ControlFlow::Continue(())
    })
}

/// Has no more jobs begun once one has panicked: nothing behind it would be handed out.
struct EndOnPanic<'n> {
    next: &'n AtomicUsize,
    jobs: usize,
}

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.next.store(self.jobs, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{panic, sync::Barrier};

    use super::*;

    const TWO: NonZero<usize> = NonZero::new(2).unwrap();

    /// More than can be done.
    const MANY: usize = 1 << 40;

    #[test]
    fn results_come_in_order_though_later_jobs_end_first() {
        // The first job ends after the third has begun, by when the other thread has handed in the second.
        let begun = Barrier::new(2);
        let run = |at: usize| {
            if at == 0 || at == 2 {
                begun.wait();
            }
            at
        };
        let mut came = Vec::new();
        let ended = in_order(9, TWO, run, |at| {
            came.push(at);
            ControlFlow::<()>::Continue(())
        });
        assert_eq!((ended, came), (ControlFlow::Continue(()), (0..9).collect()));
    }

    #[test]
    fn who_breaks_off_gets_the_first_result_that_makes_it() {
        for threads in [1, 2, 5] {
            let each = |at| if at >= 3 { ControlFlow::Break(at) } else { ControlFlow::Continue(()) };
            let threads = NonZero::new(threads).expect("one at least");
            // So many jobs that the end comes only if the others are not begun.
            assert_eq!(in_order(MANY, threads, |at| at, each), ControlFlow::Break(3));
        }
        assert_eq!(in_order(0, TWO, |at| at, ControlFlow::Break), ControlFlow::Continue(()));
    }

    #[test]
    fn a_job_that_panics_is_the_end() {
        let run = |at: usize| assert!(at != 3, "the fourth");
        let ended = panic::catch_unwind(|| in_order(MANY, TWO, run, |()| ControlFlow::<()>::Continue(())));
        assert!(ended.is_err());
    }
}
