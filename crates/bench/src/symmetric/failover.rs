//! One of five nodes is killed while clients ask all of them: who waits, for which keys, and how long.
//!
//! Keys are of four kinds, and each kind has clients of its own, so that those who wait for one kind keep nobody from asking for another:
//! ```text
//! hot, only read            every node has it, and nothing of it is under way
//! cold, home elsewhere      its home is alive
//! hot, written              a write is under way, which waits for the dead node's lease
//! cold, home killed         its home is dead
//! ```
//! Always true: a wait is counted from when a key was first asked for, also when an answer was an error and it was asked for again; who asks the node that is killed is left out, before and after.

mod asker;
mod waits;

use std::panic::resume_unwind;
use std::sync::mpsc::{self, Sender};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use guira_loadgen::driver::Moment;
use guira_loadgen::interactive::{self, PlayPlan};
use guira_loadgen::progress::Progress;
use guira_loadgen::protocol::Protocol;
use guira_loadgen::workload::Workload;
use guira_symmetric::slot_of;

use super::bench::{Bench, SMALL_LEN};
use super::nodes::Nodes;
use crate::error::BenchError;
use crate::metric::{self, Metric};
use crate::report::{Aim, ExperimentReport};
use crate::server::bench::failed;
use crate::timeline::{Stretches, Timeline, WHOLE};

use asker::Asker;
use waits::{Wait, Waits};

pub(super) const NAME: &str = "failover";

/// Nodes beyond those of the other experiments: five, as in the issue.
const NODES_MORE: u16 = 2;

/// Hot keys of either kind.
const HOT_OF_A_KIND: u64 = 32;

/// Clients of each kind at each node.
const CLIENTS: usize = 2;

/// How often hot keys are chosen: in less, chance makes a cold key as hot as those that are asked for a dozen times a second at a node.
const EPOCH: Duration = Duration::from_secs(1);

/// Two of four kinds are hot, and all are asked for alike: less than this share of the requests for what is hot says that some of these are not.
const HOT_SHARE_MIN: f64 = 0.49;

/// Looked at, while keys come to be hot, before that is given up.
const LOOKS_MAX: usize = 12;

/// A kind of keys, with clients of its own.
#[derive(Clone, Debug)]
struct Kind {
    /// Name in the report.
    peer: &'static str,
    keys: Vec<u64>,
    is_written: bool,
}

/// Names of kinds. What is aimed at is said of these.
const HOT_READ: &str = "hot, only read";
const COLD_ELSEWHERE: &str = "cold, home elsewhere";
const HOT_WRITTEN: &str = "hot, written";
const COLD_KILLED: &str = "cold, home killed";

/// Nobody waits for a lease: half of one is beyond what two cores that are busy make anybody wait, and below what waiting for a lease takes.
const NO_PAUSE: f64 = 0.5;
/// The lease of the killed node with the drift bound, and what a new view and being told again take.
const PAUSE_MAX: f64 = 2.5;

const AIMS: [(&str, f64); 4] =
    [(HOT_READ, NO_PAUSE), (COLD_ELSEWHERE, NO_PAUSE), (HOT_WRITTEN, PAUSE_MAX), (COLD_KILLED, PAUSE_MAX)];

/// How long things take.
#[derive(Clone, Copy, Debug)]
struct Times {
    lease: Duration,
    stretches: Stretches,
    /// From one request of a client to its next.
    every: Duration,
}

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let nodes = bench.nodes + NODES_MORE;
    let times = Times {
        lease: Duration::from_millis(bench.extent.scaled(1_000, 400)),
        stretches: Stretches {
            before: Duration::from_millis(bench.extent.scaled(4_000, 400)),
            after: Duration::from_millis(bench.extent.scaled(8_000, 2_000)),
            each: Duration::from_millis(bench.extent.scaled(250, 100)),
        },
        every: Duration::from_millis(4),
    };
    let words = format!(
        "{nodes} nodes with leases of {} ms, {} items with values of {SMALL_LEN} B; at each node {CLIENTS} clients for each kind of keys, each of which asks for one every {} ms; {HOT_OF_A_KIND} \
         keys are hot and only read, as many are hot and read and written, all others are cold and read; then one node is killed (-9), which is started again at once, with nothing; its clients \
         are left out; p999 is after that, and beside that of the time before",
        times.lease.as_millis(),
        bench.keys,
        times.every.as_millis()
    );
    let mut report = ExperimentReport::new(NAME, "A node is killed", words).over("seconds since then");
    let kinds = kinds(&bench.load(0.0, SMALL_LEN).workload(), nodes.into());
    let progress = Progress::new(NAME, bench.rounds as u64);
    for round in 0..bench.rounds {
        progress.at(round as u64);
        let (lease_ms, hot_keys) = (times.lease.as_millis().to_string(), (2 * HOT_OF_A_KIND).to_string());
        let flags = ["--hot-keys", &hot_keys, "--lease-ms", &lease_ms, "--threads", "1"].map(str::to_owned);
        let cluster = Nodes::up(&bench.setup(nodes, EPOCH, flags))?;
        bench.fill(NAME, &cluster, SMALL_LEN)?;
        warm(bench, &cluster, &kinds, times)?;
        let waits = play(bench, &cluster, &kinds, times, true)?;
        for (kind, waits) in kinds.iter().zip(&waits) {
            record(&mut report, kind, waits, times);
        }
        cluster.down()?;
    }
    for (peer, bound) in AIMS {
        report.aim(&Aim { peer, variant: Some(WHOLE), metric: metric::LONGEST_PAUSE, bound });
    }
    Ok(report)
}

/// Which keys are of which kind, where the last node is the one that is killed.
fn kinds(workload: &Workload, nodes: usize) -> [Kind; 4] {
    let is_of_killed = |id: &u64| {
        let mut key = Vec::new();
        workload.push_key(&mut key, *id);
        slot_of(&key, nodes) == Some(nodes - 1)
    };
    let (killed, elsewhere): (Vec<u64>, Vec<u64>) = (2 * HOT_OF_A_KIND..workload.keys).partition(is_of_killed);
    [
        // Their homes are any, the killed node as well.
        Kind { peer: HOT_READ, keys: (0..HOT_OF_A_KIND).collect(), is_written: false },
        Kind { peer: COLD_ELSEWHERE, keys: elsewhere, is_written: false },
        Kind { peer: HOT_WRITTEN, keys: (HOT_OF_A_KIND..2 * HOT_OF_A_KIND).collect(), is_written: true },
        Kind { peer: COLD_KILLED, keys: killed, is_written: false },
    ]
}

/// Asks until the keys of the two kinds that are to be hot are, which are asked for far more often than any other: other keys take places until then.
fn warm(bench: &Bench, cluster: &Nodes, kinds: &[Kind; 4], times: Times) -> Result<(), BenchError> {
    let look = Stretches { before: Duration::ZERO, after: EPOCH * 3 / 2, ..times.stretches };
    let mut share = 0.0;
    for _ in 0..LOOKS_MAX {
        let before = cluster.sample()?;
        play(bench, cluster, kinds, Times { stretches: look, ..times }, false)?;
        let counted = cluster.sample()?.since(&before)?;
        share = counted.of_asked(counted.hits + counted.hot_writes);
        if share >= HOT_SHARE_MIN {
            return Ok(());
        }
    }
    Err(BenchError::Invalid(format!(
        "{NAME}: half of the requests are for keys that are to be hot, and {share:.2} for keys that are"
    )))
}

/// Has all clients ask all nodes; what each kind of them has waited for. If it is to be, the last node is killed in between.
fn play(
    bench: &Bench,
    cluster: &Nodes,
    kinds: &[Kind; 4],
    times: Times,
    is_killed: bool,
) -> Result<[Waits; 4], BenchError> {
    let (addresses, workload) = (cluster.addresses(), bench.load(0.0, SMALL_LEN).workload());
    let (victim, core) = (addresses.len() - 1, bench.generator_cores.first().copied());
    // One clock for all: each node's clients are a thread.
    let origin = Instant::now();
    let plan = |at: usize| PlayPlan {
        address: addresses[at],
        protocol: Protocol::MemcacheText,
        shape: None,
        warm_up: times.stretches.before,
        measure: Some(times.stretches.after),
        core,
    };
    let askers_of = |node: usize| -> Vec<Asker<'_>> {
        let client = |at: usize| {
            let kind = &kinds[at % kinds.len()];
            let seed = (node * kinds.len() * CLIENTS + at) as u64;
            Asker::new(&workload, &kind.keys, kind.is_written, times.every, origin, seed)
        };
        (0..kinds.len() * CLIENTS).map(client).collect()
    };
    let play_one = |node: usize, begun: Option<Sender<()>>| {
        let mut askers = askers_of(node);
        let outcome = interactive::play(&plan(node), &mut askers, &mut |moment| {
            if let Some(begun) = begun.as_ref().filter(|_| moment == Moment::Begin) {
                // Nobody listens where nobody is killed.
                let _ = begun.send(());
            }
        });
        let is_cut_off = is_killed && node == victim;
        match outcome {
            Ok(_) if is_cut_off => Err(BenchError::Invalid(format!("{NAME}: who was killed has answered to the end"))),
            Err(error) if !is_cut_off => Err(failed(NAME, "guira")(error)),
            _ if is_cut_off => Ok(Vec::new()),
            _ => Ok(askers.into_iter().map(Asker::end).collect::<Vec<Vec<Wait>>>()),
        }
    };
    let play_one = &play_one;
    let (played, killed_at) = std::thread::scope(|scope| {
        let (begin, begun) = mpsc::channel();
        let mut begin = Some(begin);
        // The first node's clients say when: it is not the one that is killed.
        let start = |node: usize| {
            let begin = begin.take();
            scope.spawn(move || play_one(node, begin))
        };
        let threads: Vec<_> = (0..addresses.len()).map(start).collect();
        // Killed by who keeps no client waiting meanwhile. If they have failed they say why below.
        let killed = if is_killed && begun.recv().is_ok() { cluster.kill(victim) } else { Ok(()) };
        let killed_at = origin.elapsed();
        let join = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        let played = threads.into_iter().map(join).collect::<Result<Vec<Vec<Vec<Wait>>>, BenchError>>();
        killed.and(played).map(|played| (played, killed_at))
    })?;
    let mut all = [0, 1, 2, 3].map(|_| Waits::since(killed_at));
    for (at, waits) in played.into_iter().flat_map(|askers| askers.into_iter().enumerate()) {
        all[at % kinds.len()].add(waits);
    }
    Ok(all)
}

fn record(report: &mut ExperimentReport, kind: &Kind, waits: &Waits, times: Times) {
    let peer = kind.peer;
    let timeline = Timeline::of(&waits.answered_by_stretch(times.stretches), times.stretches);
    timeline.record(report, peer);
    let mut tell = |metric: Metric, value: f64| report.record(WHOLE, peer, metric, value);
    let leases = |wait: Duration| wait.as_secs_f64() / times.lease.as_secs_f64();
    tell(metric::LONGEST_PAUSE, leases(waits.longest()));
    tell(metric::PAUSED_KEYS, waits.keys_waited_for(times.lease.mul_f64(NO_PAUSE)) as f64 / kind.keys.len() as f64);
    let (before_us, after_us) = (waits.p999_us(false), waits.p999_us(true));
    tell(metric::P999_BEFORE, before_us);
    tell(metric::P999, after_us);
    tell(metric::P999_OVER_BEFORE, after_us / before_us.max(f64::MIN_POSITIVE));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symmetric::bench::Load;

    #[test]
    fn each_key_is_of_one_kind_and_cold_ones_are_told_apart_by_their_home() {
        let workload = Load { keys: 1_000, writes: 0.0, value_len: SMALL_LEN }.workload();
        let kinds = kinds(&workload, 5);
        let mut keys: Vec<u64> = kinds.iter().flat_map(|kind| kind.keys.iter().copied()).collect();
        keys.sort_unstable();
        assert!(keys.into_iter().eq(0..1_000));
        let share = kinds[3].keys.len() as f64 / (kinds[1].keys.len() + kinds[3].keys.len()) as f64;
        assert!((0.15..0.25).contains(&share), "one of five: {share}");
    }
}
