//! What shuttle's models have in common: schedules that must pass, in which things must have happened, and faults that some schedule
//! must notice.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use shuttle::{
    Config, FailurePersistence, Runner,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};

/// Times that a schedule may take a thread from a processor that it has not given away: races need few.
const PREEMPTIONS: usize = 4;

/// Rounds within which a fault must have been noticed: several times what the slowest takes.
const ROUNDS: u64 = 20;

/// How often something has happened, in all schedules: a count that is no part of the model.
#[derive(Debug, Default)]
pub struct Tally(AtomicUsize);

impl Tally {
    /// Once more.
    pub fn count(&self) {
        self.add(1);
    }

    /// So many times more.
    pub fn add(&self, times: usize) {
        self.0.fetch_add(times, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Random choices at every step.
pub fn random(schedules: usize) -> RandomScheduler {
    RandomScheduler::new(schedules)
}

/// Few preemptions: a thread stands still while others finish whole operations, which random choices hardly ever let it do.
pub fn few_preemptions(schedules: usize) -> PctScheduler {
    PctScheduler::new(PREEMPTIONS, schedules)
}

/// Plays a model in all of a scheduler's schedules; how many there were.
pub fn pass(scheduler: impl Scheduler + 'static, play: impl Fn() + Send + Sync + 'static) -> usize {
    let played = Arc::default();
    run(scheduler, FailurePersistence::Print, &played, play);
    played.get()
}

/// Sees to it that things have happened that often at least.
pub fn have_happened(least: usize, tallies: &[(&Tally, &str)]) {
    for (tally, what) in tallies {
        println!("{what}: {}", tally.get());
        assert!(tally.get() > least, "only {} {what}", tally.get());
    }
}

/// The schedule in which a fault is noticed.
pub fn notices(scheduler: impl Scheduler + 'static, play: impl Fn() + Send + Sync + 'static) -> Option<usize> {
    let played = Arc::default();
    let outcome = catch_unwind(AssertUnwindSafe(|| run(scheduler, FailurePersistence::None, &played, play)));
    outcome.is_err().then(|| played.get())
}

/// Sees to it that each fault is noticed, in rounds of so many schedules of each kind. Some take a thread that stands still for
/// long, others many threads that take turns.
pub fn are_noticed<F>(schedules: usize, faults: &[(&str, F)], play: impl Fn(F) + Copy + Send + Sync + 'static)
where
    F: Copy + Send + Sync + 'static,
{
    let missed: Vec<_> = faults
        .iter()
        .filter_map(|(fault, faulty)| {
            let faulty = *faulty;
            let noticed = (1..=ROUNDS).find_map(|round| {
                notices(PctScheduler::new_from_seed(round, PREEMPTIONS, schedules), move || play(faulty))
                    .map(|schedule| format!("schedule {schedule} of few preemptions in round {round}"))
                    .or_else(|| {
                        notices(RandomScheduler::new_from_seed(round, schedules), move || play(faulty))
                            .map(|schedule| format!("random schedule {schedule} in round {round}"))
                    })
            });
            println!("{fault}: noticed in {noticed:?}");
            noticed.is_none().then_some(fault)
        })
        .collect();
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

fn run(
    scheduler: impl Scheduler + 'static,
    persistence: FailurePersistence,
    played: &Arc<Tally>,
    play: impl Fn() + Send + Sync + 'static,
) {
    let mut config = Config::new();
    // About orderings, which are loom's.
    config.silence_warnings = true;
    config.failure_persistence = persistence;
    let played = Arc::clone(played);
    Runner::new(scheduler, config).run(move || {
        played.count();
        play();
    });
}
