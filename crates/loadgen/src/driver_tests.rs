//! The driver against Debian's memcached and against small servers made for one failure each.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use super::*;
use crate::pacing::Arrivals;
use crate::protocol::Protocol;
use crate::workload::Workload;

/// A server that answers every line with `answer`, `connections` times.
fn canned(answer: &'static [u8], connections: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().expect("a client");
            std::thread::spawn(move || {
                let mut buffer = vec![0; 65_536];
                while let Ok(read) = stream.read(&mut buffer) {
                    let lines = buffer[..read].iter().filter(|byte| **byte == b'\n').count();
                    if read == 0 || stream.write_all(&answer.repeat(lines)).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn plan(addresses: &[SocketAddr], pacing: Pacing) -> Plan {
    let workload = Workload { mix: crate::mix::Mix::get_set(1.0), keys_per_get: 4, ..Workload::small_items(1_000) };
    let scripts = Script::build(&workload, Protocol::MemcacheText, 100, addresses.len(), 0).expect("builds");
    let targets = addresses
        .iter()
        .zip(scripts)
        .map(|(address, script)| Target { address: *address, script: Arc::new(script) })
        .collect();
    let (warm_up, measure) = (Duration::from_millis(20), Duration::from_millis(100));
    Plan { targets, reach: Reach::All, clients: 3, pacing, warm_up, measure, cores: vec![], seed: 1 }
}

#[test]
fn a_closed_loop_counts_every_answer_and_observes_both_ends() {
    let address = canned(b"END\r\n", 3);
    let mut moments = Vec::new();
    let outcome =
        run(&plan(&[address], Pacing::Closed { depth: 4 }), &mut |moment| moments.push(moment)).expect("runs");
    assert_eq!(moments, [Moment::Begin, Moment::End]);
    assert!(outcome.turns > 10);
    assert_eq!(outcome.tally.misses, outcome.turns * 4);
    assert_eq!(outcome.miss_ratio(), 1.0);
    assert_eq!(outcome.latencies.count(), outcome.turns);
    assert!(outcome.elapsed_s >= 0.1);
}

#[test]
fn where_each_server_has_all_keys_a_client_speaks_to_one() {
    // Each takes as many connections as are its own, and answers in its own way.
    let (one, other) = (canned(b"END\r\n", 2), canned(b"SERVER_ERROR no\r\n", 1));
    let mut plan = plan(&[one, other], Pacing::Closed { depth: 2 });
    let script = Script::build(
        &Workload { mix: crate::mix::Mix::get_set(1.0), ..Workload::small_items(1_000) },
        Protocol::MemcacheText,
        10,
        1,
        0,
    );
    let script = Arc::new(script.expect("builds").remove(0));
    plan.targets.iter_mut().for_each(|target| target.script = Arc::clone(&script));
    plan.reach = Reach::One;
    let outcome = run(&plan, &mut |_| ()).expect("runs");
    assert!(outcome.tally.misses > 0 && outcome.tally.errors > 0, "{:?}", outcome.tally);
    assert_eq!(outcome.latencies.count(), outcome.turns);
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let address = canned(b"END\r\n", 3);
    let pacing = Pacing::Open { rate_per_s: 2_000.0, arrivals: Arrivals::Even };
    let outcome = run(&plan(&[address], pacing), &mut |_| ()).expect("runs");
    assert!((150..=250).contains(&outcome.turns), "{} turns in 0.1 s", outcome.turns);
    assert!(!outcome.overloaded);
}

#[test]
fn a_turn_is_done_once_every_shard_has_answered() {
    let addresses = [canned(b"END\r\n", 3), canned(b"END\r\n", 3)];
    let outcome = run(&plan(&addresses, Pacing::Closed { depth: 2 }), &mut |_| ()).expect("runs");
    assert!(outcome.turns > 10);
    // Parts of turns in flight at either end of the interval may be counted on one side only.
    let asked = outcome.tally.misses as i64 - outcome.turns as i64 * 4;
    assert!(asked.abs() <= 3 * 4 * 4, "{asked} keys more than turns account for");
}

#[test]
fn a_stalled_server_is_charged_for_what_it_held_up() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let held = std::thread::spawn(move || (0..3).map(|_| listener.accept().expect("a client")).collect::<Vec<_>>());
    let pacing = Pacing::Open { rate_per_s: 1_000.0, arrivals: Arrivals::Even };
    let outcome = run(&plan(&[address], pacing), &mut |_| ()).expect("runs");
    assert_eq!(outcome.turns, 0);
    assert!(outcome.latencies.count() >= 90, "{} turns waited", outcome.latencies.count());
    assert!(outcome.latencies.quantile_us(1.0) > 90_000.0);
    drop(held.join());
}

#[test]
fn nonsense_and_hang_ups_end_the_run_with_a_line() {
    let nonsense = canned(b"WHAT?\r\n", 3);
    let error = run(&plan(&[nonsense], Pacing::Closed { depth: 1 }), &mut |_| ()).expect_err("must fail");
    assert!(error.to_string().contains("makes no sense"), "{error}");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || listener.incoming().take(3).for_each(drop));
    assert!(run(&plan(&[address], Pacing::Closed { depth: 1 }), &mut |_| ()).is_err());
}
