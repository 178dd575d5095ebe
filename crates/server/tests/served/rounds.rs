//! Rounds: clients whose requests arrive together are served together, whatever each of them says.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use guira_item::Immediate;
use guira_server::{Server, Settings};

use crate::support::client::Client;
use crate::support::reference::Reference;
use crate::support::{settings, start_with, wait_until};

/// A server of one worker; while `say` runs, that worker is kept from reading, so that everything said is there at once.
fn all_at_once(server: &Server, reference: &Reference, say: impl FnOnce()) {
    let held = reference.gate.lock().expect("nobody panicked at the gate");
    let before = reference.at_gate.load(SeqCst);
    let mut keeper = Client::connect(server);
    keeper.say("get gate\r\n");
    wait_until("the worker stands at the gate", || reference.at_gate.load(SeqCst) > before);
    say();
    drop(held);
    keeper.expect("END\r\n");
}

fn served() -> (Arc<Reference>, Server) {
    let reference = Arc::new(Reference::default());
    let settings = Settings { threads: 1, connections_max: 400, ..settings() };
    let server = start_with(settings, Immediate(Arc::clone(&reference)));
    (reference, server)
}

#[test]
fn each_client_of_a_round_gets_its_own_answers() {
    let (reference, server) = served();
    let long = vec![b'l'; 100_000];
    let mut first = Client::connect(&server);
    first.ask([b"set long 0 0 100000\r\n", long.as_slice(), b"\r\n"].concat(), "STORED\r\n");
    let long_answer = [b"VALUE long 0 100000\r\n", long.as_slice(), b"\r\nEND\r\n"].concat();

    let mut small: Vec<_> = (0..150).map(|_| Client::connect(&server)).collect();
    let mut half = Client::connect(&server);
    let mut bulky = Client::connect(&server);
    let mut quitting = Client::connect(&server);
    let mut gone = Client::connect(&server);
    let mut garbage = Client::connect(&server);
    let mut reader = Client::connect(&server);
    let mut slow = Client::connect(&server);
    let mut asking = Client::connect(&server);
    // Everybody is known to the worker.
    for client in small.iter_mut().chain([&mut half, &mut bulky, &mut quitting, &mut gone, &mut garbage]) {
        client.ask("mn\r\n", "MN\r\n");
    }
    for client in [&mut reader, &mut slow, &mut asking] {
        client.ask("mn\r\n", "MN\r\n");
    }

    let many: String = (0..400).map(|n| format!("set bulk{n} 0 0 3\r\n{n:03}\r\n")).collect();
    all_at_once(&server, &reference, || {
        for (n, client) in small.iter_mut().enumerate() {
            client.say(format!("set k{n} {n} 0 3\r\n{n:03}\r\nget k{n}\r\n"));
        }
        half.say("set half 0 0 4\r\nab");
        bulky.say(&many);
        quitting.say("get k1\r\nquit\r\n");
        gone.say("set gone 0 0 1\r\n1\r\n");
        drop(gone);
        garbage.say(b"\xff\xfe nonsense\r\nget\r\n");
        reader.say("get long\r\n");
        slow.say("get long\r\n".repeat(100));
        asking.say("version\r\nstats settings\r\n");
    });
    for (n, client) in small.iter_mut().enumerate() {
        client.expect(format!("STORED\r\nVALUE k{n} {n} 3\r\n{n:03}\r\nEND\r\n"));
    }
    // Now that they have their answers, the rounds are over.
    assert!(reference.prefetched_max.load(SeqCst) >= 50, "no round was ever held");
    half.ask("cd\r\nget half\r\n", "STORED\r\nVALUE half 0 4\r\nabcd\r\nEND\r\n");
    bulky.expect("STORED\r\n".repeat(400));
    assert!(String::from_utf8(quitting.read_all()).unwrap().ends_with("END\r\n"));
    garbage.expect("ERROR\r\nERROR\r\n");
    reader.expect(&long_answer);
    asking.expect("VERSION 1.6.18\r\n");
    assert!(asking.read_to("END\r\n").contains("STAT maxconns 400"));
    for _ in 0..100 {
        slow.expect(&long_answer);
    }
    // Twice, so that what a round leaves behind is seen by the next one.
    all_at_once(&server, &reference, || {
        for (n, client) in small.iter_mut().enumerate() {
            client.say(format!("get bulk{n} gone k{n}\r\n"));
        }
    });
    for (n, client) in small.iter_mut().enumerate() {
        let (bulk, own) = (format!("VALUE bulk{n} 0 3\r\n{n:03}\r\n"), format!("VALUE k{n} {n} 3\r\n{n:03}\r\n"));
        client.expect(format!("{bulk}VALUE gone 0 1\r\n1\r\n{own}END\r\n"));
    }
}

#[test]
fn a_counted_request_is_seen_by_whoever_has_its_answer() {
    let (reference, server) = served();
    let mut clients: Vec<_> = (0..100).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        client.ask("mn\r\n", "MN\r\n");
    }
    for round in 1..=3 {
        all_at_once(&server, &reference, || {
            for client in &mut clients {
                client.say("get none\r\n");
            }
        });
        for client in &mut clients {
            client.expect("END\r\n");
        }
        // The keeper of the gate counts too.
        assert_eq!(clients[0].stats("")["cmd_get"], (round * 101).to_string());
    }
}
