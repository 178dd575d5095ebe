//! What all experiments share: who is compared, how many keys, and where the contenders' processes come from.

use std::path::PathBuf;

use super::{
    BenchError, ExperimentReport, Options,
    contender::{CONTENDERS, Contender, ELIDED_SUFFIX, NO_MAP, OF_EXPERIMENTS, Users},
    cxx::CxxProgram,
    metric,
    peers::guira_map::GuiraElided,
};
use crate::crew::Rate;
use crate::in_process::Bench;

/// How full a map counts as full, percent of the keys that it has room for.
pub(super) const FULL_PERCENT: u64 = 95;

/// The settings of a run.
pub(super) struct MapBench {
    pub run: Bench,
    /// Keys that a map has room for.
    pub room: u64,
    contenders: Vec<Contender>,
    /// What the experiments compare that do not compare those.
    own: Vec<Contender>,
    /// Guira's binary, which plays Rust's contenders; none: this process does.
    pub program: Option<PathBuf>,
    pub cxx: Option<CxxProgram>,
    pub huge_pages: bool,
    /// What a reader must know of the contenders.
    pub notes: Vec<String>,
}

impl MapBench {
    /// For the experiments called `names`.
    pub fn new(options: &Options, names: &[&str]) -> Result<Self, BenchError> {
        let run = Bench::new(options.threads, &options.extent)?;
        let room = options.keys.unwrap_or(run.extent.scaled(1 << 24, 1 << 12));
        if !(1 << 10..1 << 32).contains(&room) {
            return Err(BenchError::Setting("--keys must be 1024 at least, and below 4294967296".into()));
        }
        let own = OF_EXPERIMENTS.into_iter().filter(|(name, _)| names.contains(name));
        let (with_own, own): (Vec<&str>, Vec<&[Contender]>) = own.unzip();
        let (mut contenders, mut own) = (chosen(&options.peers)?, own.concat());
        if names.iter().all(|name| with_own.contains(name)) {
            contenders.clear();
        }
        let mut notes = vec![
            "all of Rust's maps hash with rapidhash but those called -siphash, C++'s with a 128-bit product of like cost; seeded \
             at random"
                .into(),
        ];
        let mut cxx = None;
        if contenders.iter().chain(&own).any(Contender::is_cxx) {
            match CxxProgram::build() {
                Ok(program) => {
                    notes.push(format!("C++'s maps: {}", program.version()));
                    cxx = Some(program);
                }
                Err(why) => {
                    contenders.retain(|contender| !contender.is_cxx());
                    own.retain(|contender| !contender.is_cxx());
                    notes.push(format!("without C++'s maps: {why}"));
                }
            }
        }
        let elides = |contender: &Contender| contender.name.ends_with(ELIDED_SUFFIX);
        if contenders.iter().chain(&own).any(elides) && !GuiraElided::is_there() {
            contenders.retain(|contender| !elides(contender));
            own.retain(|contender| !elides(contender));
            notes.push("without elided locks: this processor has no transactions (RTM) that commit".into());
        }
        let program = match options.in_this_process {
            true => None,
            false => Some(
                std::env::current_exe()
                    .map_err(|source| BenchError::System { doing: "looking for our own binary", source })?,
            ),
        };
        Ok(Self { run, room, contenders, own, program, cxx, huge_pages: options.huge_pages, notes })
    }

    /// Names of the contenders, and what they are.
    pub fn contenders(&self) -> Vec<(String, String)> {
        let mut known: Vec<(String, String)> = Vec::new();
        for contender in self.contenders.iter().chain(&self.own) {
            if known.iter().all(|(name, _)| name != contender.name) {
                known.push((contender.name.into(), contender.is.into()));
            }
        }
        known
    }

    /// Whether batches are worth a comparison: with what the other maps do one key at a time, having nothing better.
    pub fn any_has_batches(&self) -> bool {
        self.contenders.iter().any(|contender| contender.has_batches)
    }

    /// Keys in a map of the run's room that is so full.
    pub fn keys_at(&self, percent: u64) -> u64 {
        self.room * percent / 100
    }

    /// Keys with what they take as pairs of eight bytes each, which says how far from the caches they are.
    pub fn in_words(keys: u64) -> String {
        format!("{keys} ({} MiB of pairs)", (keys * 16) >> 20)
    }

    /// The cores of so many threads.
    pub fn cores(&self, threads: usize) -> &[usize] {
        &self.run.cores[..threads]
    }

    /// Calls `measure` for each map in turn, round by round.
    pub fn alternate(
        &self,
        rounds: usize,
        measure: impl FnMut(&Contender) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        self.alternate_among(&self.contenders, rounds, measure)
    }

    /// The same with an experiment's own.
    pub fn alternate_among(
        &self,
        contenders: &[Contender],
        rounds: usize,
        mut measure: impl FnMut(&Contender) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let is_there = |contender: &&Contender| !contender.is_cxx() || self.cxx.is_some();
        for _ in 0..rounds {
            for contender in contenders.iter().filter(is_there).filter(|contender| contender.name != NO_MAP) {
                measure(contender).map_err(|error| BenchError::Invalid(format!("{}: {error}", contender.name)))?;
            }
        }
        Ok(())
    }

    /// One thread, and as many as there are.
    pub fn one_and_all(&self) -> Vec<usize> {
        let mut counts = vec![1, self.run.cores.len()];
        counts.dedup();
        counts
    }

    /// The thread counts that `contender` can be measured with.
    pub fn thread_counts(&self, contender: &Contender) -> Vec<usize> {
        match contender.users {
            Users::Many => self.run.thread_counts(),
            Users::One => vec![1],
        }
    }

    /// The most of them.
    pub fn threads_max(&self, contender: &Contender) -> usize {
        match contender.users {
            Users::Many => self.run.cores.len(),
            Users::One => 1,
        }
    }
}

/// Adds a round's speed.
pub(super) fn record(report: &mut ExperimentReport, variant: &str, name: &str, rate: Rate) {
    report.record(variant, name, metric::OPERATIONS, rate.per_s);
    report.record(variant, name, metric::PER_CPU, rate.per_cpu_s);
}

fn chosen(names: &[String]) -> Result<Vec<Contender>, BenchError> {
    if names.is_empty() {
        return Ok(CONTENDERS.to_vec());
    }
    let named = |name: &String| {
        CONTENDERS.into_iter().find(|known| known.name == name).ok_or_else(|| {
            let names: Vec<&str> = CONTENDERS.iter().map(|contender| contender.name).collect();
            BenchError::Setting(format!("there is no map '{name}'; choose from {}", names.join(", ")))
        })
    };
    names.iter().map(named).collect()
}
