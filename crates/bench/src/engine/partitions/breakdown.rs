//! Where the time of an operation goes (CPHASH's Figures 6 and 7), by the processor's own clock and by what messages
//! count.
//!
//! Always true: an operation's cycles are those of the thread that asks for it, waiting included, as the paper has
//! them.

use std::time::Instant;

use guira_sync::cycles;
use perf_event::events::Hardware;

use super::{
    Aim, Bench, BenchError, EventCount, ExperimentReport,
    contenders::{Achieved, Contender, Flow, Stages},
    crew,
    load::Load,
    metric,
    sweeps::FEW_LINES,
};

pub(in super::super) const NAME: &str = "breakdown";

/// Working set, 1 MB, as in the paper.
const WORKING_SET_BYTES: usize = 1 << 20;

const MIXED: &str = "30 % inserts";
/// All find what they ask for. Lines of requests hold them, a word each, and little else: when a window ends, one word
/// for each partition gives back what was found.
const LOOKUPS: &str = "lookups";
/// Nothing is stored, so that lookups are all that lines of requests hold: nothing found has to be given back.
const IN_VAIN: &str = "lookups in vain";

/// A full line of lookups has eight.
const DENSE: Aim = Aim { peer: "cphash", variant: Some(LOOKUPS), metric: metric::WORDS_PER_LINE, bound: 7.0 };

const SERVING: &str = "cphash server, serving";

pub(in super::super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let load = Load::usual(bench, WORKING_SET_BYTES);
    let lookups = Load { inserts: 0.0, ..load };
    let mixes = [(MIXED, load), (LOOKUPS, lookups), (IN_VAIN, Load { stored: 0, ..lookups })];
    let words = "8 B keys and values, uniform, 1 MB of values; batches of 1,000, LRU; cycles of the thread that asks, \
                 waiting included; lines and words of messages of cphash's clients; lookups: all are hits, and lines \
                 of requests hold them and a word for each partition and batch; lookups in vain: nothing is stored, \
                 so that no reference has to be given back";
    let title = "Where the time of an operation goes (CPHASH's Figures 6 and 7)";
    let mut report = ExperimentReport::new(NAME, title, words).beside("CPHASH paper");
    let mut uncounted = None;
    for _ in 0..bench.rounds {
        for (mix, load) in &mixes {
            let draws = load.draws(bench);
            for contender in [Contender::Cphash, Contender::NoServers, Contender::Lockhash] {
                let misses = EventCount::begin(Hardware::CACHE_MISSES);
                let (begin, begin_cycles) = (Instant::now(), cycles());
                let Achieved { rate, askers, flow } = contender.measure(bench, load, &draws)?;
                match misses.and_then(EventCount::end) {
                    Ok(misses) => {
                        let operations = rate.per_s * crew::whole(bench.measure).as_secs_f64();
                        let each = misses as f64 / operations;
                        report.record(mix, contender.name(), metric::MISSES_PER_OPERATION, each);
                    }
                    Err(error) => uncounted = Some(error),
                }
                let cycles_per_s = (cycles() - begin_cycles) as f64 / begin.elapsed().as_secs_f64();
                let spent = askers as f64 * cycles_per_s / rate.per_s;
                report.record(mix, contender.name(), metric::CYCLES_PER_OPERATION, spent);
                if let Some(flow) = flow {
                    report.record(mix, contender.name(), metric::LINES_PER_OPERATION, flow.lines_per_operation());
                    report.record(mix, contender.name(), metric::WORDS_PER_LINE, flow.words_per_line());
                    record_stages(&mut report, mix, &flow);
                }
            }
        }
    }
    report.publish(MIXED, "cphash", metric::CYCLES_PER_OPERATION, 1_126.0);
    report.publish(MIXED, SERVING, metric::CYCLES_PER_MESSAGE, 336.0);
    report.publish(MIXED, SERVING, metric::CYCLES_PER_OPERATION, 672.0);
    report.publish(MIXED, "lockhash", metric::CYCLES_PER_OPERATION, 3_664.0);
    report.publish(MIXED, "cphash", metric::LINES_PER_OPERATION, 1.5);
    report.notes.push("cphash, serving: what a client serves itself when no server thread comes".into());
    if let Some(error) = uncounted {
        report.notes.push(format!(
            "cache misses are not counted: this machine does not have the processor's counters ({error})"
        ));
    }
    report.aim(&DENSE);
    report.aim(&Aim { variant: Some(MIXED), ..FEW_LINES });
    Ok(report)
}

/// Cycles of both ends for each operation, stage by stage.
fn record_stages(report: &mut ExperimentReport, mix: &str, flow: &Flow) {
    let Stages { client, server } = flow.stages();
    for (stage, cycles) in [
        ("cphash, sending", client.send),
        ("cphash, receiving", client.receive),
        ("cphash, serving", client.serve),
        ("cphash, accessing data", client.access),
        (SERVING, server.serve),
        ("cphash server, idle", server.idle),
    ] {
        report.record(mix, stage, metric::CYCLES_PER_OPERATION, cycles);
    }
    if let Some(cycles) = flow.cycles_per_message() {
        report.record(mix, SERVING, metric::CYCLES_PER_MESSAGE, cycles);
    }
    report.record(mix, SERVING, metric::MESSAGES_PER_OPERATION, flow.messages_per_operation());
    report.record(mix, SERVING, metric::BUSY, server.serve / (server.serve + server.idle));
}
