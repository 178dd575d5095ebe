//! CPSERVER's protocol through the same connections: rounds, late answers, silence, last orders; and where its port is bound.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use guira_cpwire::{HashKey, MISS, push_insert, push_lookup, size_field};
use guira_item::Immediate;
use guira_server::{ListenAddress, Listeners, Settings};

use crate::support::client::Client;
use crate::support::later::Later;
use crate::support::reference::Reference;
use crate::support::{settings, start, start_with, wait_until, warnings};

fn cp_settings() -> Settings {
    Settings { cp_port: Some(0), threads: 1, ..settings() }
}

/// An INSERT of `value`, and a LOOKUP that finds it.
fn insert_and_lookup(number: u64, value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let key = HashKey::from_low_bits(number);
    let mut asked = Vec::new();
    push_insert(&mut asked, key, value);
    push_lookup(&mut asked, key);
    (asked, [size_field(value.len()).as_slice(), value].concat())
}

#[test]
fn late_answers_keep_the_order() {
    for at_once in [0, 1, 3] {
        let (service, gate) = Later::new(at_once);
        let submitted = Arc::clone(&service.submitted);
        let server = start_with(cp_settings(), service);
        let mut clients: Vec<Client<TcpStream>> = (0..20).map(|_| Client::connect_cp(&server)).collect();
        let conversation = |number: u64| {
            let parts = (0..4).map(|part| insert_and_lookup(number << 8 | part, format!("{number} {part}").as_bytes()));
            let (asked, answers): (Vec<_>, Vec<_>) = parts.unzip();
            (asked.concat(), answers.concat())
        };
        for (client, number) in clients.iter_mut().zip(0..) {
            client.say(conversation(number).0);
        }
        wait_until("all have asked", || submitted.load(SeqCst) >= 20);
        gate.open();
        for (client, number) in clients.iter_mut().zip(0..) {
            client.expect(conversation(number).1);
        }
    }
}

#[test]
fn clients_of_both_protocols_share_a_round() {
    let reference = Arc::new(Reference::default());
    let server = start_with(Settings { connections_max: 200, ..cp_settings() }, Immediate(Arc::clone(&reference)));
    let mut binary: Vec<_> = (0..40).map(|_| Client::connect_cp(&server)).collect();
    let mut text: Vec<_> = (0..40).map(|_| Client::connect(&server)).collect();
    let mut lookup = Vec::new();
    push_lookup(&mut lookup, HashKey::from_low_bits(1000));
    binary.iter_mut().for_each(|client| client.ask(&lookup, MISS));
    text.iter_mut().for_each(|client| client.ask("mn\r\n", "MN\r\n"));

    // While the worker is kept from reading, everything is said, so that it is there at once.
    let held = reference.gate.lock().expect("nobody panicked at the gate");
    let before = reference.at_gate.load(SeqCst);
    let mut keeper = Client::connect(&server);
    keeper.say("get gate\r\n");
    wait_until("the worker stands at the gate", || reference.at_gate.load(SeqCst) > before);
    for ((binary, text), number) in binary.iter_mut().zip(&mut text).zip(0..) {
        binary.say(insert_and_lookup(number, format!("value {number:02}").as_bytes()).0);
        text.say(format!("set {:015x} 0 0 3\r\n{number:03}\r\nget {:015x}\r\n", number + 500, number + 500));
    }
    drop(held);
    keeper.expect("END\r\n");
    for ((binary, text), number) in binary.iter_mut().zip(&mut text).zip(0..) {
        binary.expect(insert_and_lookup(number, format!("value {number:02}").as_bytes()).1);
        text.expect(format!("STORED\r\nVALUE {:015x} 0 3\r\n{number:03}\r\nEND\r\n", number + 500));
        text.ask(format!("get {number:015x}\r\n"), format!("VALUE {number:015x} 0 8\r\nvalue {number:02}\r\nEND\r\n"));
    }
}

/// A line for each used to let any client flood the log.
#[test]
fn malformed_clients_are_all_counted_and_one_of_them_is_logged() {
    warnings::keep();
    let reference = Arc::new(Reference::default());
    let server = start_with(cp_settings(), Immediate(Arc::clone(&reference)));
    let mut clients = [Client::connect_cp(&server), Client::connect_cp(&server)];
    let mut lookup = Vec::new();
    push_lookup(&mut lookup, HashKey::from_low_bits(1));
    clients.iter_mut().for_each(|client| client.ask(&lookup, MISS));
    let peers = clients.each_ref().map(|client| client.stream.local_addr().unwrap().to_string());
    let mut text = Client::connect(&server);
    assert_eq!(text.stats("")["cp_malformed"], "0");

    // While the worker stands at the gate both are said, so that it reads both at one time of its watch.
    let held = reference.gate.lock().expect("nobody panicked at the gate");
    text.say("get gate\r\n");
    wait_until("the worker stands at the gate", || reference.at_gate.load(SeqCst) == 1);
    clients.iter_mut().for_each(|client| client.say([0; 8]));
    drop(held);
    text.expect("END\r\n");
    clients.iter_mut().for_each(Client::expect_closed);
    assert_eq!(text.stats("")["cp_malformed"], "2");
    let lines = warnings::with_any_of(&peers);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("kind 0") && lines[0].ends_with("the connection is closed"), "{lines:?}");
}

/// Closing over unread input resets the connection, and what the kernel had not sent by then was lost.
#[test]
fn what_came_before_a_malformed_request_is_answered_whatever_comes_behind() {
    const VALUE_LEN: usize = 256 << 10;
    // More than the sockets' buffers take.
    const LOOKUPS: usize = 128;
    let server = start(cp_settings());
    let mut client = Client::connect_cp(&server);
    let (asked, answer) = insert_and_lookup(1, &vec![b'v'; VALUE_LEN]);
    client.ask(&asked, &answer);
    let lookup = &asked[asked.len() - 8..];
    client.say([lookup.repeat(LOOKUPS).as_slice(), &[0; 8]].concat());
    // Once it answers, all of that is read, and nothing more is before the answers have left.
    client.expect(&answer[..4]);
    client.say([0; 32 << 10]);
    client.expect([&answer[4..], &answer.repeat(LOOKUPS - 1)].concat());
    client.expect_closed();
}

#[test]
fn silence_and_a_graceful_stop_end_a_connection() {
    let server = start(Settings { idle_timeout: Some(Duration::from_millis(20)), ..cp_settings() });
    let mut silent = Client::connect_cp(&server);
    silent.say([0x1f]);
    silent.expect_closed();
    drop(server);

    let (service, gate) = Later::new(0);
    let submitted = Arc::clone(&service.submitted);
    let server = start_with(cp_settings(), service);
    let mut client = Client::connect_cp(&server);
    let (asked, answer) = insert_and_lookup(1, b"last orders");
    client.say(asked);
    wait_until("it has been submitted", || submitted.load(SeqCst) == 1);
    server.stopper().stop_gracefully();
    gate.open();
    client.expect(answer);
    client.expect_closed();
}

#[test]
fn its_port_is_bound_once_on_each_host() {
    let listen = ListenAddress::parse_list("127.0.0.1:0,127.0.0.1:0,127.0.0.2:0").unwrap();
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = probe.local_addr().unwrap().port();
    let settings = Settings { listen, cp_port: Some(port), ..cp_settings() };
    let line = Listeners::bind(&settings).unwrap_err().to_string();
    assert!(line.contains(&port.to_string()) && line.contains("choose another with --cp-port"), "{line}");
    drop(probe);
    let listeners = Listeners::bind(&settings).unwrap();
    assert_eq!((listeners.tcp_addresses().len(), listeners.cp_addresses().len()), (3, 2));
    drop(listeners);
    let listen = ListenAddress::parse_list("127.0.0.1:0,0.0.0.0:0,127.0.0.2:0").unwrap();
    let covered = Listeners::bind(&Settings { listen, ..settings }).unwrap();
    assert_eq!((covered.tcp_addresses().len(), covered.cp_addresses().len()), (3, 1));
    let alone = Listeners::bind(&Settings { tcp_port: None, ..cp_settings() }).unwrap();
    assert_eq!((alone.tcp_addresses().len(), alone.cp_addresses().len()), (0, 1));
}
