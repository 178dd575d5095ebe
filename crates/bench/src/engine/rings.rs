//! Messages between two cores (CPHASH, section 3.4): rings of cache lines, which pack messages, beside the paper's first design,
//! one line for one message, and beside what the machine takes to move a line at all.
//!
//! ```text
//! exchange (asks, answers, counts) ── cache line: written in turns
//!                                  ├─ ring: a window in flight, eight messages to a line
//!                                  └─ single buffer: one message in flight, a line for each
//! ```
//! Always true: all run on the same two cores within each round; a message is a word, and so is its reply.

use std::time::Duration;

use super::{BenchError, ExperimentReport, crew, in_process::Bench, metric, report};

mod cache_line;
mod exchange;
mod ring_pair;
mod single_buffer;

use exchange::{Exchanged, Pace, exchange};
use single_buffer::ReplyPlace;

pub(super) const NAME: &str = "rings";

/// Messages in flight.
const WINDOWS: [u64; 5] = [1, 8, 64, 512, 4_096];

/// A pause in which everything that was written has long arrived, and nobody gives its core away.
const PAUSE: Duration = Duration::from_micros(5);

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let words = format!(
        "a word to another core and a word back; a window of messages at a time, until all are answered; low rate: {} us \
         between a reply and the next message; ring: a line is shown when it is full, or the window is; single \
         buffer: one message in flight whatever the window; two buffers: the reply has a line of its own; cache line: written \
         by both in turns, so that its round trip is two transfers",
        PAUSE.as_micros()
    );
    let title = "Messages between two cores (CPHASH, section 3.4)";
    let mut report = ExperimentReport::new(NAME, title, words).over("messages in flight");
    let full = WINDOWS.map(|window| (format!("full rate, {window}"), Pace::Full, window));
    let settings: Vec<_> = full.into_iter().chain([("low rate, 1".into(), Pace::Paused(PAUSE), 1)]).collect();
    for _ in 0..bench.rounds {
        let transfer_ns = exchange(bench, Pace::Full, 1, cache_line::ends())?.round_trip_ns / 2.0;
        for (variant, pace, window) in &settings {
            let mut record = |peer: &str, known: Exchanged| {
                report.record(variant, peer, metric::ROUND_TRIP_NS, known.round_trip_ns);
                report.record(variant, peer, metric::ROUND_TRIP_CYCLES, known.round_trip_cycles);
                report.record(variant, peer, metric::ROUND_TRIP_TRANSFERS, known.round_trip_ns / transfer_ns);
                report.record(variant, peer, metric::MESSAGES, known.per_s);
                report.record(variant, peer, metric::LINES_PER_MESSAGE, known.lines);
            };
            record("ring", exchange(bench, *pace, *window, ring_pair::ends(*window))?);
            record("single buffer", exchange(bench, *pace, *window, single_buffer::ends(ReplyPlace::SameLine))?);
            record("two buffers", exchange(bench, *pace, *window, single_buffer::ends(ReplyPlace::OwnLine))?);
            record("cache line", exchange(bench, *pace, *window, cache_line::ends())?);
        }
    }
    report.notes.push("a ring's indices are two lines more in each direction, which are not counted".into());
    report.notes.push("the paper: a single buffer is ahead at a low rate, rings where there are batches".into());
    Ok(report)
}
