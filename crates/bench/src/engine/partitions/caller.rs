//! A thread that asks an engine for batches of draws, again and again, from a place of its own on.

use std::num::NonZeroUsize;

use guira_item::{
    Answer, Engine, Expiry, Get, Hit, Key, Operation, PinnedValue, Request, Sink, Store, StoreMode, Time,
    VALUE_SLACK_LEN,
};

use super::{contender::WRITE, load::VALUE_BYTES};

/// Operations between two looks at the clock, or a batch.
pub(super) const TURN: usize = 2_000;

const NOW: Time = Time(2);

/// The batches of one thread of several, endlessly.
pub(super) fn turns(
    draws: &[u32],
    batch: NonZeroUsize,
    number: usize,
    threads: usize,
) -> impl Iterator<Item = &[u32]> + Clone {
    let batches = draws.len() / batch;
    draws.chunks(batch.get()).take(batches).cycle().skip(number * batches / threads)
}

/// A thread that calls an engine.
pub(super) struct Caller<'a, E: Engine> {
    engine: &'a E,
    pub worker: E::Worker,
    entries: Vec<[u8; 8]>,
    answers: Answers,
}

struct Answers([u8; VALUE_BYTES + 2 * VALUE_SLACK_LEN]);

impl Sink for Answers {
    #[inline]
    fn reserve(&mut self, _: usize, _: &Hit) -> &mut [u8] {
        &mut self.0
    }

    #[inline]
    fn commit(&mut self, _: usize, _: &Hit) {
        std::hint::black_box(&mut self.0);
    }

    fn pinned(&mut self, _: usize, _: &Hit, _: Box<dyn PinnedValue>) {}

    fn metadata(&mut self, _: usize, _: &Hit) {}

    #[inline]
    fn answer(&mut self, _: usize, _: Answer) {}
}

impl<'a, E: Engine> Caller<'a, E> {
    pub fn new(engine: &'a E) -> Self {
        let answers = Answers([0; VALUE_BYTES + 2 * VALUE_SLACK_LEN]);
        Self { engine, worker: engine.worker(), entries: Vec::new(), answers }
    }

    /// Stores every key once.
    pub fn fill(engine: &'a E, keys: usize) {
        let mut caller = Self::new(engine);
        let all: Vec<u32> = (0..keys as u32).map(|number| number | WRITE).collect();
        all.chunks(1_000).for_each(|batch| caller.batch(batch));
    }

    /// Asks for a turn's batches; returns how many operations that was.
    pub fn turn<'d>(&mut self, batches: &mut impl Iterator<Item = &'d [u32]>) -> u64 {
        let mut operations = 0;
        while operations < TURN {
            let batch = batches.next().expect("endless");
            self.batch(batch);
            operations += batch.len();
        }
        operations as u64
    }

    fn batch(&mut self, draws: &[u32]) {
        self.entries.clear();
        self.entries.extend(draws.iter().map(|draw| u64::from(draw & !WRITE).to_le_bytes()));
        let requests: Vec<Request<'_>> =
            draws.iter().zip(&self.entries).map(|(draw, entry)| request(*draw, entry)).collect();
        self.engine.execute(&mut self.worker, NOW, &requests, &mut self.answers);
    }
}

#[inline]
fn request(draw: u32, entry: &[u8; 8]) -> Request<'_> {
    let key = Key::new(entry).expect("eight bytes");
    if draw & WRITE == 0 {
        return Request { key, operation: Operation::Get(Get::PLAIN) };
    }
    let (mode, flags, expiry, cas, vivify) = (StoreMode::Set, 0, Expiry::NEVER, None, None);
    Request { key, operation: Operation::Store(Store { mode, flags, expiry, cas, vivify, value: entry }) }
}
