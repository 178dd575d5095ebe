//! What a crew of threads does to a map, as data: played in this process or, as a line of text, in another one.
//!
//! ```text
//! fill 0 1000 0 9 false 0 0,1      work, numbers from and to, count, lookups per write, batched, milliseconds, cores
//! spent 10000 812345 1623000       what came of it
//! ```
//! Keys are named by number (`entry::key`). Always true: a phase leaves the map with keys that the caller can tell from the
//! phase alone, whatever the threads do when.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

/// Numbers from here on are never inserted.
pub(super) const ABSENT: u64 = 1 << 40;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Inserts the numbers, all those below being there.
    Fill,
    /// Looks up random ones of the numbers, which are there, for a while.
    Hits,
    /// Looks up random ones of the numbers, which are not there, for a while.
    Misses,
    /// Updates random ones of the numbers, which are there, for a while.
    Update,
    /// Removes the first `count` of the numbers, which are there, and inserts as many from their end on, in turn, each an
    /// operation.
    Replace,
    /// Inserts the numbers, the time of each taken.
    TimedFill,
    /// Asks for the number of slots.
    Slots,
}

const WORKS: [(&str, Work); 7] = [
    ("fill", Work::Fill),
    ("hits", Work::Hits),
    ("misses", Work::Misses),
    ("update", Work::Update),
    ("replace", Work::Replace),
    ("timed-fill", Work::TimedFill),
    ("slots", Work::Slots),
];

/// Work for a crew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    pub work: Work,
    pub numbers: Range<u64>,
    pub count: u64,
    /// Lookups of keys that are there after each write.
    pub lookups: u64,
    /// Many keys a call.
    pub batched: bool,
    /// How long to work, where there is no end.
    pub measure: Duration,
    /// A thread on each.
    pub cores: Vec<usize>,
}

impl Phase {
    /// One key at a time, writes alone.
    pub fn new(work: Work, numbers: Range<u64>, cores: &[usize]) -> Self {
        let (cores, measure) = (cores.to_vec(), Duration::ZERO);
        Self { work, numbers, count: 0, lookups: 0, batched: false, measure, cores }
    }

    /// The same, with so many lookups after each write.
    pub fn with_lookups(self, lookups: u64) -> Self {
        Self { lookups, ..self }
    }

    /// The same, many keys a call.
    pub fn in_batches(self) -> Self {
        Self { batched: true, ..self }
    }

    /// The same for so long, in whole milliseconds.
    pub fn lasting(self, measure: Duration) -> Self {
        Self { measure, ..self }
    }

    /// The same, replacing so many.
    pub fn replacing(self, count: u64) -> Self {
        Self { count, ..self }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { work, numbers: Range { start, end }, count, lookups, batched, measure, cores } = self;
        let name = WORKS.iter().find(|(_, known)| known == work).map_or("", |(name, _)| name);
        let cores = cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        write!(f, "{name} {start} {end} {count} {lookups} {batched} {} {cores}", measure.as_millis())
    }
}

/// A line is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Garbled;

fn read<T: FromStr>(word: &str) -> Result<T, Garbled> {
    word.parse().map_err(|_| Garbled)
}

impl FromStr for Phase {
    type Err = Garbled;

    fn from_str(line: &str) -> Result<Self, Garbled> {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, start, end, count, lookups, batched, measure_ms, cores] = words[..] else { return Err(Garbled) };
        let (_, work) = WORKS.iter().find(|(known, _)| *known == name).ok_or(Garbled)?;
        Ok(Self {
            work: *work,
            numbers: read(start)?..read(end)?,
            count: read(count)?,
            lookups: read(lookups)?,
            batched: read(batched)?,
            measure: Duration::from_millis(read(measure_ms)?),
            cores: cores.split(',').map(read).collect::<Result<_, _>>()?,
        })
    }
}

/// What came of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Operations, time of the slowest thread, CPU time of all threads.
    Spent { operations: u64, elapsed: Duration, cpu: Duration },
    /// Median, 99th and 99.99th percentile and maximum of the times of inserts, nanoseconds.
    Latencies([u64; 4]),
    /// 0 where it makes no sense.
    Slots(u64),
    /// The map gave wrong answers, or none.
    Wrong(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spent { operations, elapsed, cpu } => {
                write!(f, "spent {operations} {} {}", elapsed.as_nanos(), cpu.as_nanos())
            }
            Self::Latencies([p50, p99, p9999, longest]) => write!(f, "latencies {p50} {p99} {p9999} {longest}"),
            Self::Slots(slots) => write!(f, "slots {slots}"),
            Self::Wrong(what) => write!(f, "wrong {what}"),
        }
    }
}

impl FromStr for Outcome {
    type Err = Garbled;

    fn from_str(line: &str) -> Result<Self, Garbled> {
        let (kind, rest) = line.split_once(' ').ok_or(Garbled)?;
        if kind == "wrong" {
            return Ok(Self::Wrong(rest.to_string()));
        }
        let numbers: Vec<u64> = rest.split(' ').map(read).collect::<Result<_, _>>()?;
        match (kind, &numbers[..]) {
            ("spent", [operations, elapsed, cpu]) if *elapsed > 0 && *cpu > 0 => {
                let (elapsed, cpu) = (Duration::from_nanos(*elapsed), Duration::from_nanos(*cpu));
                Ok(Self::Spent { operations: *operations, elapsed, cpu })
            }
            ("latencies", numbers) => Ok(Self::Latencies(numbers.try_into().map_err(|_| Garbled)?)),
            ("slots", [slots]) => Ok(Self::Slots(*slots)),
            _ => Err(Garbled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_and_outcomes_survive_as_lines() {
        let phases = [
            Phase::new(Work::Fill, 5..1000, &[0, 1]).with_lookups(9),
            Phase::new(Work::Hits, 0..9, &[3]).in_batches().lasting(Duration::from_millis(300)),
            Phase::new(Work::Replace, 0..9, &[0]).replacing(4),
        ];
        for phase in phases {
            assert_eq!(phase.to_string().parse(), Ok(phase));
        }
        let spent = Outcome::Spent { operations: 7, elapsed: Duration::from_nanos(8), cpu: Duration::from_nanos(9) };
        for outcome in [spent, Outcome::Latencies([1, 2, 3, 4]), Outcome::Slots(5), Outcome::Wrong("a b".into())] {
            assert_eq!(outcome.to_string().parse(), Ok(outcome));
        }
    }

    #[test]
    fn garbage_is_refused() {
        for line in
            ["", "spent", "spent 1 2", "spent 1 0 1", "spent 1 2 3 4", "spent 1 2 x", "spent  1 2 3", "latencies 1"]
        {
            assert_eq!(line.parse::<Outcome>(), Err(Garbled), "{line}");
        }
        for line in [
            "",
            "fill",
            "fill 0 1 2 3 no 4 0",
            "burn 0 1 2 3 true 4 0",
            "fill 0 1 2 3 true 4 0 5",
            "fill 0 1 2 3 true 4 ",
        ] {
            assert_eq!(line.parse::<Phase>(), Err(Garbled), "{line}");
        }
    }
}
