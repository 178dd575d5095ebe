//! What finding hot keys costs a backend: the instructions that its process carries out for a read, with trackers and without, as valgrind's
//! callgrind counts them. The kernel's own do not count.

use std::path::Path;
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

/// What backends tell of hot keys, and how that is called in the report.
const REPORTS: [(&str, &str); 2] = [("both", "guira"), ("none", "no trackers")];

/// Counts hardly differ from round to round.
const ROUNDS_MAX: usize = 3;

const AIM: Aim = Aim { peer: "guira", variant: None, metric: metric::TRACKERS, bound: 0.03 };

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let valgrind = Peer::find_program("valgrind");
    if !valgrind.is_file() {
        let remedy = "install it with `apt-get install valgrind`";
        return Err(BenchError::PeerMissing { peer: "valgrind", program: valgrind, remedy });
    }
    let bench = bench.alone(bench.extent.scaled(20_000, 200), 64);
    let words = format!(
        "{}, zipf {EXPONENT} over {} items; one backend with RocksDB, without a limit and without a cache node, under callgrind; instructions for each \
         read are those of a longer run less those of a shorter one",
        bench.words(),
        bench.keys
    );
    let mut report = ExperimentReport::new(NAME, "What trackers cost a backend", words);
    let counted = bench.workplace.place("callgrind.out");
    let under = format!("{} --tool=callgrind --callgrind-out-file={}", valgrind.display(), counted.display());
    let rounds = bench.rounds.min(ROUNDS_MAX);
    let progress = Progress::new(NAME, rounds as u64);
    for round in 0..rounds {
        progress.at(round as u64);
        let mut each = [0.0; REPORTS.len()];
        for ((reports, peer), each) in REPORTS.into_iter().zip(&mut each) {
            let count = |seconds: f64| count(&bench, reports, &under, &counted, Duration::from_secs_f64(seconds));
            let (short, long) = (count(bench.extent.scaled(2.0, 0.2))?, count(bench.extent.scaled(12.0, 1.0))?);
            let reads = long.reads.checked_sub(short.reads).filter(|reads| *reads > 0);
            let reads = reads.ok_or_else(|| BenchError::Invalid("the longer run had not more reads".into()))?;
            *each = (long.instructions as f64 - short.instructions as f64) / reads as f64;
            report.record("", peer, metric::INSTRUCTIONS, *each);
        }
        report.record("", "guira", metric::TRACKERS, (each[0] - each[1]) / each[0]);
    }
    report.aim(&AIM);
    Ok(report)
}

/// What a backend has done in its life.
struct Counted {
    instructions: u64,
    reads: u64,
}

fn count(bench: &Bench, reports: &str, under: &str, file: &Path, span: Duration) -> Result<Counted, BenchError> {
    // One of a run before.
    let _ = std::fs::remove_file(file);
    let flags = ["--caches", "0", "--reports", reports, "--backend-under", under];
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
    read.interval.expect_all_answered(NAME, reports)?;
    let reads = cluster.sample()?.operations.iter().sum();
    cluster.down()?;
    Ok(Counted { instructions: instructions_in(file)?, reads })
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
