//! Plays a phase on a map of this process: the loops whose time is taken.
//!
//! Always true: every answer is looked at, a wrong one fails the phase; lookups do not wait for each other, so that the
//! processor may overlap them as it does in a program that looks up one key at a time.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use guira_loadgen::latency::Latencies;

use super::{
    concurrent_map::ConcurrentMap,
    entry::{Draw, Value, key},
    phase::{Outcome, Phase, Work},
};
use crate::crew::{self, Spent};
use crate::error::BenchError;

/// Keys made at a time, and asked for at a time where a map takes several.
pub(super) const BATCH: usize = 64;
/// Batches between two looks at the clock.
const TURN_BATCHES: usize = 16;
/// Replacements made under one guard.
const REPLACEMENTS: u64 = 16;

/// Lets the phase's crew work.
///
/// # Errors
/// [`BenchError`]: a core that cannot be had.
pub(super) fn play<V: Value, M: ConcurrentMap<V>>(map: &M, phase: &Phase) -> Result<Outcome, BenchError> {
    if phase.work == Work::Slots {
        return Ok(Outcome::Slots(map.slots().unwrap_or(0) as u64));
    }
    let wrong = AtomicU64::new(0);
    let latencies = Mutex::new(Latencies::default());
    let threads = phase.cores.len() as u64;
    let crew = (0..threads).map(|thread| Worker { map, phase, thread, wrong: &wrong, value: std::marker::PhantomData });
    let spent = match phase.work {
        Work::Fill | Work::Replace | Work::TimedFill => {
            let latencies = &latencies;
            crew::to_the_end(&phase.cores, crew.map(|worker| move || worker.until_done(latencies)).collect())
        }
        Work::Update => crew::for_a_while(&phase.cores, phase.measure, crew.map(Worker::updates).collect()),
        Work::Hits | Work::Misses if phase.batched => {
            crew::for_a_while(&phase.cores, phase.measure, crew.map(Worker::batched_lookups).collect())
        }
        Work::Hits | Work::Misses | Work::Slots => {
            crew::for_a_while(&phase.cores, phase.measure, crew.map(Worker::lookups).collect())
        }
    };
    let spent = spent?;
    Ok(match (wrong.into_inner(), phase.work) {
        (0, Work::TimedFill) => {
            let latencies = latencies.into_inner().unwrap_or_else(PoisonError::into_inner);
            Outcome::Latencies([0.5, 0.99, 0.9999, 1.0].map(|quantile| (latencies.quantile_us(quantile) * 1e3) as u64))
        }
        (0, _) => sum(&spent),
        (wrong, _) => Outcome::Wrong(format!("{wrong} answers or batches of them during '{phase}'")),
    })
}

fn sum(spent: &[Spent]) -> Outcome {
    let elapsed = spent.iter().map(|one| one.elapsed).max().unwrap_or(Duration::ZERO);
    let (operations, cpu) = (spent.iter().map(|one| one.operations).sum(), spent.iter().map(|one| one.cpu).sum());
    Outcome::Spent { operations, elapsed, cpu }
}

/// One thread of a crew.
struct Worker<'a, V, M> {
    map: &'a M,
    phase: &'a Phase,
    thread: u64,
    wrong: &'a AtomicU64,
    value: std::marker::PhantomData<fn() -> V>,
}

impl<'a, V: Value, M: ConcurrentMap<V>> Worker<'a, V, M> {
    fn threads(&self) -> u64 {
        self.phase.cores.len() as u64
    }

    /// How many of `count` are this thread's.
    fn share(&self, count: u64) -> u64 {
        (count + self.threads() - 1 - self.thread) / self.threads()
    }

    /// The thread's own number `at` among those from `first` on: the threads take them in turn.
    fn own(&self, first: u64, at: u64) -> u64 {
        first + at * self.threads() + self.thread
    }

    fn draw(&self) -> Draw {
        Draw::new(self.phase.numbers.end ^ self.thread << 48)
    }

    /// Notes wrong answers, if `difference` says that there were any.
    fn check(&self, difference: u64) {
        if difference != 0 {
            self.wrong.fetch_add(1, Relaxed);
        }
    }

    /// 0 if the map holds the key's value.
    #[inline]
    fn look_up(&self, key: u64, guard: &M::Guard<'_>) -> u64 {
        self.map.get(key, guard).map_or(1, |value| value.difference(key))
    }

    /// The thread's own numbers of the phase, a batch of keys at a time, with the place of the batch among them.
    fn own_batches(&self, mut each: impl FnMut(u64, &[u64])) -> u64 {
        let Range { start, end } = self.phase.numbers;
        let own = self.share(end - start);
        let mut keys = [0; BATCH];
        for first in (0..own).step_by(BATCH) {
            let batch = &mut keys[..BATCH.min((own - first) as usize)];
            (first..).zip(batch.iter_mut()).for_each(|(at, place)| *place = key(self.own(start, at)));
            each(first, batch);
        }
        own
    }

    fn until_done(self, latencies: &Mutex<Latencies>) -> u64 {
        match self.phase.work {
            Work::TimedFill => self.timed_fill(latencies),
            Work::Replace => self.replace(),
            _ if self.phase.batched => self.fill_in_batches(),
            _ => self.fill(),
        }
    }

    fn fill(self) -> u64 {
        let Phase { numbers: Range { start, .. }, lookups, .. } = *self.phase;
        let mut draw = self.draw();
        let inserted = self.own_batches(|first, keys| {
            let guard = self.map.guard();
            let mut difference = 0;
            for (at, key_at) in (first..).zip(keys) {
                difference |= u64::from(!self.map.insert(*key_at, V::of(*key_at), &guard));
                for _ in 0..lookups {
                    // Those below the phase's numbers, and of these the thread's own until now.
                    let known = draw.below(start + at + 1);
                    let number = if known < start { known } else { self.own(start, known - start) };
                    difference |= self.look_up(key(number), &guard);
                }
            }
            self.check(difference);
        });
        inserted * (1 + lookups)
    }

    fn fill_in_batches(self) -> u64 {
        self.own_batches(|_, keys| {
            let guard = self.map.guard();
            self.check((self.map.insert_many(keys, &guard) != keys.len()).into());
        })
    }

    fn timed_fill(self, latencies: &Mutex<Latencies>) -> u64 {
        let mut own = Latencies::default();
        let inserted = self.own_batches(|_, keys| {
            for key in keys {
                let begin = Instant::now();
                let is_new = self.map.insert(*key, V::of(*key), &self.map.guard());
                own.record_ns(begin.elapsed().as_nanos() as u64);
                self.check((!is_new).into());
            }
        });
        latencies.lock().unwrap_or_else(PoisonError::into_inner).add(&own);
        inserted
    }

    fn replace(self) -> u64 {
        let Phase { numbers: Range { start, end }, count, lookups, .. } = *self.phase;
        let (mut draw, own) = (self.draw(), self.share(count));
        let stays = start + count;
        for first in (0..own).step_by(REPLACEMENTS as usize) {
            let guard = self.map.guard();
            let mut difference = 0;
            let mut look_around = || {
                let number = |_| stays + draw.below(end - stays);
                (0..lookups).map(number).fold(0, |sum, number| sum | self.look_up(key(number), &guard))
            };
            for at in first..own.min(first + REPLACEMENTS) {
                difference |= u64::from(!self.map.remove(key(self.own(start, at)), &guard)) | look_around();
                let added = key(self.own(end, at));
                difference |= u64::from(!self.map.insert(added, V::of(added), &guard)) | look_around();
            }
            self.check(difference);
        }
        2 * own * (1 + lookups)
    }

    /// Random keys of the phase's.
    #[inline]
    fn draw_keys(&self, draw: &mut Draw, keys: &mut [u64; BATCH]) {
        let Range { start, end } = self.phase.numbers;
        for place in keys {
            *place = key(start + draw.below(end - start));
        }
    }

    fn updates(self) -> impl FnMut() -> u64 + Send + 'a {
        let (mut draw, mut keys, lookups) = (self.draw(), [0; BATCH], self.phase.lookups);
        let group = 1 + lookups as usize;
        move || {
            for _ in 0..TURN_BATCHES {
                self.draw_keys(&mut draw, &mut keys);
                let guard = self.map.guard();
                let mut difference = 0;
                for keys in keys[..BATCH / group * group].chunks(group) {
                    difference |= u64::from(!self.map.update(keys[0], &guard));
                    difference |= keys[1..].iter().fold(0, |sum, key| sum | self.look_up(*key, &guard));
                }
                self.check(difference);
            }
            (TURN_BATCHES * (BATCH / group * group)) as u64
        }
    }

    fn lookups(self) -> impl FnMut() -> u64 + Send + 'a {
        let (mut draw, mut keys, are_there) = (self.draw(), [0; BATCH], self.phase.work == Work::Hits);
        move || {
            for _ in 0..TURN_BATCHES {
                self.draw_keys(&mut draw, &mut keys);
                let guard = self.map.guard();
                let difference = match are_there {
                    true => keys.iter().fold(0, |sum, key| sum | self.look_up(*key, &guard)),
                    false => keys.iter().fold(0, |sum, key| sum | u64::from(self.map.get(*key, &guard).is_some())),
                };
                self.check(difference);
            }
            (TURN_BATCHES * BATCH) as u64
        }
    }

    fn batched_lookups(self) -> impl FnMut() -> u64 + Send + 'a {
        let (mut draw, mut keys, are_there) = (self.draw(), [0; BATCH], self.phase.work == Work::Hits);
        let mut values = Vec::with_capacity(BATCH);
        move || {
            for _ in 0..TURN_BATCHES {
                self.draw_keys(&mut draw, &mut keys);
                let guard = self.map.guard();
                self.map.get_many(&keys, &mut values, &guard);
                let missing = u64::from(values.len() != BATCH);
                let difference = keys.iter().zip(&values).fold(missing, |sum, (key, value)| {
                    sum | match (value, are_there) {
                        (Some(value), true) => value.difference(*key),
                        (found, _) => u64::from(found.is_some() || are_there),
                    }
                });
                self.check(difference);
            }
            (TURN_BATCHES * BATCH) as u64
        }
    }
}
