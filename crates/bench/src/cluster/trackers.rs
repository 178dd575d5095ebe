//! What finding hot keys costs a backend, in instructions, as valgrind's callgrind counts them; the kernel's own do not count.
//!
//! Two things are counted apart. What trackers take for a read: a backend's core alone answers the same reads with them and without, and all else is
//! the same, but for how maps are seeded ([`super::core_reads`]). What a backend takes for a read: its process, with RocksDB, sockets and threads, of which
//! how many datagrams come together differs from run to run, by more than trackers cost.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use guira_loadgen::progress::Progress;
use guira_switched::CacheMode;

use super::bench::{Bench, Run};
use crate::error::BenchError;
use crate::metric;
use crate::report::{Aim, ExperimentReport};
use crate::server::peer::Peer;

pub(super) const NAME: &str = "trackers";

const EXPONENT: f64 = 0.99;

/// Each is two runs of a cluster and four of its core, all under valgrind.
const ROUNDS_MAX: usize = 3;

const AIM: Aim = Aim { peer: "guira", variant: None, metric: metric::TRACKERS, bound: 0.03 };

/// What counts.
pub(super) fn valgrind() -> Result<PathBuf, BenchError> {
    let valgrind = Peer::find_program("valgrind");
    if valgrind.is_file() {
        return Ok(valgrind);
    }
    let remedy = "install it with `apt-get install valgrind`";
    Err(BenchError::PeerMissing { peer: "valgrind", program: valgrind, remedy })
}

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let valgrind = valgrind()?;
    let bench = bench.alone("alone", bench.extent.scaled(20_000, 200), 64);
    let words = format!(
        "{}, zipf {EXPONENT} over {} items; one backend with RocksDB, without a limit and without a cache node, under callgrind; what trackers take of \
         that is what they add to the same reads of its core alone, as many a second by its clock as the process answers; instructions for each read are those of a longer run less \
         those of a shorter one",
        bench.words(),
        bench.keys
    );
    let mut report = ExperimentReport::new(NAME, "What trackers cost a backend", words);
    let callgrind = Callgrind { valgrind, file: bench.workplace.place("callgrind.out") };
    // Its store has a log to read and files to write when it was just filled: that is not to be in one of two runs that are compared.
    process_reads(&bench, &callgrind, Duration::from_secs_f64(bench.extent.scaled(2.0, 0.2)))?;
    let rounds = bench.rounds.min(ROUNDS_MAX);
    let progress = Progress::new(NAME, rounds as u64);
    for round in 0..rounds {
        progress.at(round as u64);
        let count = |seconds: f64| process_reads(&bench, &callgrind, Duration::from_secs_f64(seconds));
        let (short, long) = (count(bench.extent.scaled(2.0, 0.2))?, count(bench.extent.scaled(12.0, 1.0))?);
        let each = long.each_beyond(&short)?;
        // So many share what trackers do once a second.
        let core = |flags: &[&str]| core_read(&bench, &callgrind, long.per_s, flags);
        let added = core(&["--trackers"])? - core(&[])?;
        report.record("", "trackers", metric::INSTRUCTIONS, added);
        report.record("", "guira", metric::INSTRUCTIONS, each);
        report.record("", "guira", metric::TRACKERS, added / each);
    }
    report.aim(&AIM);
    Ok(report)
}

/// Runs programs, and counts.
struct Callgrind {
    valgrind: PathBuf,
    /// What it writes.
    file: PathBuf,
}

/// What a process has done in its life.
struct Counted {
    instructions: u64,
    reads: u64,
    /// Reads a second, while it was asked.
    per_s: u32,
}

impl Counted {
    /// Instructions for each read that it has more than a shorter run.
    fn each_beyond(&self, shorter: &Self) -> Result<f64, BenchError> {
        let reads = self.reads.checked_sub(shorter.reads).filter(|reads| *reads > 0);
        let reads = reads.ok_or_else(|| BenchError::Invalid("the longer run had not more reads".into()))?;
        Ok((self.instructions as f64 - shorter.instructions as f64) / reads as f64)
    }
}

impl Callgrind {
    /// What is put before a command, in words.
    fn command(&self) -> [String; 3] {
        let file = format!("--callgrind-out-file={}", self.file.display());
        [self.valgrind.display().to_string(), "--tool=callgrind".into(), file]
    }

    /// Forgets a run before.
    fn begin(&self) {
        let _ = std::fs::remove_file(&self.file);
    }

    fn instructions(&self) -> Result<u64, BenchError> {
        instructions_in(&self.file)
    }
}

/// Instructions of the core alone for a read.
fn core_read(bench: &Bench, callgrind: &Callgrind, per_s: u32, flags: &[&str]) -> Result<f64, BenchError> {
    let count = |reads: u64| {
        callgrind.begin();
        let [program, tool, file] = callgrind.command();
        let mut command = Command::new(program);
        command.args([tool, file]).arg(&bench.program).args(["bench", "core-reads"]).args(flags);
        for (flag, value) in [
            ("--reads", reads.to_string()),
            ("--keys", bench.keys.to_string()),
            ("--exponent", EXPONENT.to_string()),
            ("--per-s", per_s.to_string()),
        ] {
            command.args([flag, &value]);
        }
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|source| BenchError::System { doing: "starting valgrind", source })?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            // Those are valgrind's own.
            let reason = told.lines().rev().find(|line| !line.starts_with("==")).unwrap_or_default().to_owned();
            return Err(BenchError::PeerFailed { peer: "a backend's core under valgrind", reason });
        }
        Ok(Counted { instructions: callgrind.instructions()?, reads, per_s })
    };
    let (short, long) = (bench.extent.scaled(20_000, 1_000), bench.extent.scaled(220_000, 11_000));
    count(long)?.each_beyond(&count(short)?)
}

/// What the process of a backend does for so long.
fn process_reads(bench: &Bench, callgrind: &Callgrind, span: Duration) -> Result<Counted, BenchError> {
    callgrind.begin();
    let flags = ["--caches", "0", "--backend-under", &callgrind.command().join(" ")];
    let cluster = bench.up(&[CacheMode::None], &flags)?;
    let run = Run {
        mode: CacheMode::None,
        warm_up: Duration::ZERO,
        measure: span,
        samples: false,
        stretch: span,
        change: None,
    };
    let read = bench.read(NAME, &cluster, bench.zipf(EXPONENT), &run, || Ok(()))?;
    read.interval.expect_all_answered(NAME, "guira")?;
    let per_s = read.interval.outcome.keys_per_s().round().max(1.0) as u32;
    let reads = cluster.sample()?.operations.iter().sum();
    cluster.down()?;
    Ok(Counted { instructions: callgrind.instructions()?, reads, per_s })
}

/// The instructions that callgrind has counted, in all.
fn instructions_in(file: &Path) -> Result<u64, BenchError> {
    let text = std::fs::read_to_string(file).map_err(|source| BenchError::Output { path: file.into(), source })?;
    let total = text.lines().rev().find_map(|line| line.strip_prefix("totals:")?.trim().parse().ok());
    total.ok_or_else(|| BenchError::Invalid("callgrind has not told how many instructions there were".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_what_callgrind_says_at_the_end() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "events: Ir\nfn=(1)\n16 400\n\ntotals: 123456\n").expect("written");
        assert_eq!(instructions_in(file.path()).expect("a total"), 123_456);
        std::fs::write(file.path(), "events: Ir\n").expect("written");
        assert!(instructions_in(file.path()).is_err());
    }
}
