//! An exchange: one thread asks, the other answers, each on a core of its own, and what that takes is counted.
//!
//! Always true: the asker has every reply before it asks for the next window, so that whoever answers may stop between two.

use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use guira_sync::{cycles, hint};

use super::{Bench, BenchError, crew, report::median};

/// Messages between two looks at the clock, or a window.
const TURN: u64 = 1_000;

/// Looks without a message after which whoever answers gives its core away, which the other end may be waiting for: more than
/// there are in a pause.
const LOOKS_MAX: u32 = 4_096;

/// The end that asks.
pub(super) trait Ask: Send {
    /// Sends so many messages, as many at a time as find room, and waits for their replies.
    fn ask(&mut self, window: u64);

    /// Lines of messages that this end has handed over.
    fn lines(&self) -> u64;
}

/// The end that answers.
pub(super) trait Answer: Send {
    /// Answers what has come; false if nothing has.
    fn answer(&mut self) -> bool;

    /// Lines of messages that this end has handed over.
    fn lines(&self) -> u64;
}

/// Looks for something until it is there.
#[inline]
pub(super) fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let mut round = 0;
    loop {
        match look() {
            Some(found) => return found,
            None => hint::spin(&mut round),
        }
    }
}

/// When the asker sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    /// The next window at once.
    Full,
    /// After so long a pause.
    Paused(Duration),
}

/// What a message took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchanged {
    /// From the first message of a window to its last reply, for each message of it: the median, which is not that of a thread
    /// that was put aside.
    pub round_trip_ns: f64,
    /// The same in ticks of [`cycles`].
    pub round_trip_cycles: f64,
    /// Messages a second, pauses included.
    pub per_s: f64,
    /// Lines of messages handed over, in both directions together, for each message.
    pub lines: f64,
}

/// Lets one end ask the other `window` messages at a time: a quarter of the run's interval to warm up, then all of it.
pub(super) fn exchange<A: Ask, B: Answer>(
    bench: &Bench,
    pace: Pace,
    window: u64,
    (asker, answerer): (A, B),
) -> Result<Exchanged, BenchError> {
    // Each has lines of its own: what the ends count would move between the cores as well.
    let (mut asker, mut answerer) = (CachePadded::new(asker), CachePadded::new(answerer));
    let ends = [bench.cores[0], bench.cores[bench.cores.len() - 1]];
    let (mut warm_up, mut counts) = (Counts::default(), Counts::default());
    let leader = || {
        warm_up = ask_for(bench.measure / 4, pace, window, &mut *asker);
        counts = ask_for(bench.measure, pace, window, &mut *asker);
    };
    let mut looks = CachePadded::new(0u32);
    let follower = || match answerer.answer() {
        true => *looks = 0,
        false if *looks < LOOKS_MAX => {
            *looks += 1;
            std::hint::spin_loop();
        }
        false => std::thread::yield_now(),
    };
    crew::pair(ends, leader, follower)?;
    let elapsed_s = counts.elapsed.as_secs_f64();
    let round_trip_cycles = median(&counts.round_trips);
    Ok(Exchanged {
        round_trip_cycles,
        round_trip_ns: round_trip_cycles * elapsed_s * 1e9 / counts.elapsed_cycles as f64,
        per_s: counts.messages as f64 / elapsed_s,
        lines: (asker.lines() + answerer.lines()) as f64 / (warm_up.messages + counts.messages) as f64,
    })
}

/// What the asker counts.
#[derive(Default)]
struct Counts {
    messages: u64,
    /// Of every turn, for each message, without the pauses.
    round_trips: Vec<f64>,
    elapsed_cycles: u64,
    elapsed: Duration,
}

fn ask_for(measure: Duration, pace: Pace, window: u64, asker: &mut impl Ask) -> Counts {
    let windows = if pace == Pace::Full { TURN.div_ceil(window) } else { 1 };
    let (begin, begin_cycles) = (Instant::now(), cycles());
    let mut counts = Counts::default();
    while counts.elapsed < measure {
        let turn = cycles();
        (0..windows).for_each(|_| asker.ask(window));
        counts.round_trips.push((cycles() - turn) as f64 / (windows * window) as f64);
        counts.messages += windows * window;
        if let Pace::Paused(pause) = pace {
            let since = Instant::now();
            while since.elapsed() < pause {
                std::hint::spin_loop();
            }
        }
        counts.elapsed = begin.elapsed();
    }
    counts.elapsed_cycles = cycles() - begin_cycles;
    counts
}
