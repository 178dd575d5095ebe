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
/// Reads asked for at a time, as many as the engine asks for.
const BATCH: usize = 64;
/// Reads between two looks at the clock.
const TURN: usize = 16 * BATCH;

/// Memory far larger than the caches.
pub(crate) struct Lines(Words);

impl Lines {
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

    /// Addresses known ahead, asked for in batches.
    pub fn prefetched(&self, bench: &Bench, threads: usize) -> Result<Rate, BenchError> {
        let worker = |thread: usize| {
            let mut draw = Draw::new(thread as u64 + 1000);
            move || {
                let mut sum = 0;
                for _ in 0..TURN / BATCH {
                    let lines: [usize; BATCH] = std::array::from_fn(|_| {
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
