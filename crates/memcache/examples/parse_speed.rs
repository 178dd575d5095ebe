//! Nanoseconds per key of the protocol alone: multigets of 100 keys of 16 bytes answered with 32-byte values by a service
//! that does nothing, and sets of the same items.
//!
//! `cargo run --release -p guira-memcache --example parse_speed [rounds]`

use std::hint::black_box;
use std::time::Instant;

use guira_item::{Answer, Clock, Hit, Operation, Request, Sink, Time, VALUE_SLACK_LEN};
use guira_memcache::{Batch, Counters, Output, Replies, Scratch, Session, Settings};

const KEYS_PER_GET: usize = 100;
const VALUE: [u8; 32] = [b'v'; 32];
/// The best of so many counts: the others were disturbed.
const REPETITIONS: usize = 10;
const NOW: Time = Time(1000);

fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(200_000);
    let key = |index: usize| format!("key:{:012}", index * 7919 % 1_000_000_000);
    let mut multiget = String::from("get");
    let mut sets = Vec::new();
    let mut gets = String::new();
    for index in 0..KEYS_PER_GET {
        multiget += &format!(" {}", key(index));
        gets += &format!("get {}\r\n", key(index));
        sets.extend(format!("set {} 0 0 {}\r\n", key(index), VALUE.len()).bytes());
        sets.extend(VALUE);
        sets.extend(b"\r\n");
    }
    multiget += "\r\n";
    println!("{:28} {:>9} {:>9} {:>9}", "ns per key", "parse", "format", "both");
    measure("get of 100 keys, all hits", multiget.as_bytes(), rounds, answer_hit);
    measure("get of 100 keys, all misses", multiget.as_bytes(), rounds, answer_miss);
    measure("100 gets of one key, hits", gets.as_bytes(), rounds, answer_hit);
    measure("100 sets", &sets, rounds, answer_stored);
}

fn answer_hit(index: usize, _request: &Request<'_>, sink: &mut Replies<'_, '_>) {
    let hit = Hit { value_len: VALUE.len(), flags: 0, cas: 7, ..Hit::default() };
    let room = sink.reserve(index, &hit);
    room[VALUE_SLACK_LEN..VALUE_SLACK_LEN + VALUE.len()].copy_from_slice(&VALUE);
    sink.commit(index, &hit);
}

fn answer_miss(index: usize, _request: &Request<'_>, sink: &mut Replies<'_, '_>) {
    sink.answer(index, Answer::Miss);
}

fn answer_stored(index: usize, request: &Request<'_>, sink: &mut Replies<'_, '_>) {
    debug_assert!(matches!(request.operation, Operation::Store(_)));
    sink.answer(index, Answer::Stored { cas: 1 });
}

fn measure(name: &str, input: &[u8], rounds: usize, answer: impl Fn(usize, &Request<'_>, &mut Replies<'_, '_>)) {
    let settings = Settings::default();
    let clock = Clock::starting_at(1_700_000_000);
    let scratch = Scratch::new();
    let mut session = Session::new(&settings);
    let mut counters = Counters::default();
    let mut output = Output::new();
    let mut batch = Batch::new();
    let mut best_ns = [f64::INFINITY; 2];
    for (format, best_ns) in [false, true].into_iter().zip(&mut best_ns) {
        for _ in 0..REPETITIONS {
            let start = Instant::now();
            for _ in 0..rounds / REPETITIONS {
                let parsed = session.parse(&settings, &clock, NOW, black_box(input), &scratch, &mut batch);
                assert_eq!((parsed.consumed, batch.requests().len()), (input.len(), KEYS_PER_GET));
                black_box(batch.requests());
                if format {
                    let mut replies = batch.replies(0, NOW, &mut output, &mut counters);
                    for (index, request) in batch.requests().iter().enumerate() {
                        answer(index, request, &mut replies);
                    }
                    replies.finish();
                    let len = black_box(output.len());
                    output.advance(len);
                }
                batch = batch.recycle();
            }
            let ns = start.elapsed().as_nanos() as f64 / (rounds / REPETITIONS * KEYS_PER_GET) as f64;
            *best_ns = best_ns.min(ns);
        }
    }
    let [parse_ns, both_ns] = best_ns;
    println!("{name:28} {parse_ns:9.1} {:9.1} {both_ns:9.1}", both_ns - parse_ns);
}
