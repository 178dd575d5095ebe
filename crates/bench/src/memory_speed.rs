//! The physical limit: how many random cache lines a second threads can read, one after the other and many at a time.

use std::sync::atomic::Ordering::Relaxed;

use guira_bench_memory::{Pages, Words};

use crate::{
    crew::{self, Rate},
    error::BenchError,
    in_process::{Bench, no_memory},
    peers::key::Draw,
};

/// Words in a cache line.
const LINE_WORDS: usize = 8;
/// Reads between two looks at the clock.
const TURN: usize = 16 * Lines::AT_ONCE;

/// Memory far larger than the caches.
pub(crate) struct Lines(Words);

impl Lines {
    /// Lines asked for at a time.
    pub const AT_ONCE: usize = 64;

    pub fn new(bench: &Bench) -> Result<Self, BenchError> {
        let bytes = bench.extent.scaled(1 << 29, 1 << 22);
        Words::new(bytes / size_of::<u64>(), Pages::Huge).map(Self).map_err(no_memory)
    }

    fn lines(&self) -> usize {
        self.0.len() / LINE_WORDS
    }

    /// Each address depends on what was read before.
    pub fn dependent(&self, bench: &Bench, threads: usize) -> Result<Rate, BenchError> {
        let worker = |thread: usize| {
            let (mut draw, mut seen) = (Draw::new(thread as u64), 0);
            move || {
                for _ in 0..TURN {
                    // The words are zero, which only we know.
                    let line = (draw.below(self.lines()) + seen as usize) % self.lines();
                    seen = self.0[line * LINE_WORDS].load(Relaxed);
                }
                TURN as u64
            }
        };
        crew::run(&bench.cores[..threads], bench.measure, (0..threads).map(worker).collect())
    }

    /// The lines that `draws` name, asked for in batches: a SET writes a word of its line, a GET reads it. What threads lose to
    /// each other here is the price of sharing lines at all.
    pub fn shared(&self, bench: &Bench, threads: usize, draws: &[u32], write: u32) -> Result<Rate, BenchError> {
        let turns = draws.len() / TURN;
        let worker = |thread: usize| {
            let mut turn = thread * turns / threads;
            move || {
                turn = (turn + 1) % turns;
                let mut sum = 0;
                for batch in draws[turn * TURN..(turn + 1) * TURN].chunks(Self::AT_ONCE) {
                    let word = |draw: &u32| &self.0[(draw & !write) as usize % self.lines() * LINE_WORDS];
                    batch.iter().for_each(|draw| guira_cuckoo::prefetch(word(draw)));
                    for draw in batch {
                        match draw & write {
                            0 => sum += word(draw).load(Relaxed),
                            _ => word(draw).store(u64::from(*draw), Relaxed),
                        }
                    }
                }
                std::hint::black_box(sum);
                TURN as u64
            }
        };
        crew::run(&bench.cores[..threads], bench.measure, (0..threads).map(worker).collect())
    }

    /// Addresses known ahead, asked for in batches.
    pub fn prefetched(&self, bench: &Bench, threads: usize) -> Result<Rate, BenchError> {
        let worker = |thread: usize| {
            let mut draw = Draw::new(thread as u64 + 1000);
            move || {
                let mut sum = 0;
                for _ in 0..TURN / Self::AT_ONCE {
                    let lines: [usize; Self::AT_ONCE] = std::array::from_fn(|_| {
                        let line = draw.below(self.lines()) * LINE_WORDS;
                        guira_cuckoo::prefetch(&self.0[line]);
                        line
                    });
                    sum += lines.iter().map(|line| self.0[*line].load(Relaxed)).sum::<u64>();
                }
                std::hint::black_box(sum);
                TURN as u64
            }
        };
        crew::run(&bench.cores[..threads], bench.measure, (0..threads).map(worker).collect())
    }
}
