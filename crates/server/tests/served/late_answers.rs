//! A service may answer later: the order is kept, others are not held up, and nobody is forgotten.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use guira_server::Settings;

use crate::support::client::Client;
use crate::support::later::Later;
use crate::support::{PATIENCE, settings, start_with, wait_until};

#[test]
fn late_answers_keep_the_order() {
    for at_once in [0, 1, 3] {
        let (service, gate) = Later::new(at_once);
        let submitted = Arc::clone(&service.submitted);
        let server = start_with(Settings { threads: 1, ..settings() }, service);
        let mut clients: Vec<_> = (0..20).map(|_| Client::connect(&server)).collect();
        for (n, client) in clients.iter_mut().enumerate() {
            client.say(format!(
                "set k{n} 0 0 2\r\n{n:02}\r\nbogus\r\nget k{n} none k{n}\r\nversion\r\nincr k{n} 1\r\nget k{n}\r\nmn\r\n"
            ));
        }
        wait_until("all have asked", || submitted.load(SeqCst) >= 20);
        gate.open();
        for (n, client) in clients.iter_mut().enumerate() {
            let value = format!("VALUE k{n} 0 2\r\n{n:02}\r\n");
            client.expect(format!("STORED\r\nERROR\r\n{value}{value}END\r\nVERSION 1.6.18\r\n"));
            let next = n + 1;
            let text = format!("{next}");
            client.expect(format!("{text}\r\n"));
            let stored = if text.len() < 2 { format!("{text} ") } else { text };
            client.expect(format!("VALUE k{n} 0 2\r\n{stored}\r\nEND\r\nMN\r\n"));
        }
    }
}

#[test]
fn what_is_sent_while_answers_are_late_waits() {
    let (service, gate) = Later::new(0);
    let submitted = Arc::clone(&service.submitted);
    let server = start_with(settings(), service);
    let mut client = Client::connect(&server);
    client.say("set a 0 0 1\r\n1\r\n");
    wait_until("it has been submitted", || submitted.load(SeqCst) == 1);
    client.say("get a\r\nquit\r\n");
    gate.open();
    client.expect("STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    client.expect_closed();
}

#[test]
fn a_lost_connection_abandons_its_ticket() {
    let (service, gate) = Later::new(0);
    let (submitted, abandoned) = (Arc::clone(&service.submitted), Arc::clone(&service.abandoned));
    let server = start_with(Settings { threads: 1, ..settings() }, service);
    let mut lost = Client::connect(&server);
    lost.say("set a 0 0 1\r\n1\r\n");
    wait_until("it has been submitted", || submitted.load(SeqCst) == 1);
    // Reset, not closed: a client that only says no more may still listen.
    socket2::SockRef::from(&lost.stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(lost);
    wait_until("it has been abandoned", || abandoned.load(SeqCst) == 1);
    gate.open();
    Client::connect(&server).ask("get a\r\n", "END\r\n");
}

#[test]
fn a_graceful_stop_waits_for_late_answers() {
    let (service, gate) = Later::new(0);
    let submitted = Arc::clone(&service.submitted);
    let server = start_with(settings(), service);
    let mut client = Client::connect(&server);
    client.say("set a 0 0 1\r\n1\r\n");
    wait_until("it has been submitted", || submitted.load(SeqCst) == 1);
    server.stopper().stop_gracefully();
    gate.open();
    client.expect("STORED\r\n");
    client.expect_closed();
    server.join().unwrap();
}

#[test]
fn datagrams_too_are_answered_late() {
    let (service, gate) = Later::new(1);
    let server = start_with(Settings { udp_port: Some(0), ..settings() }, service);
    gate.open();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server.udp_addresses()[0]).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send(b"\x00\x07\0\0\0\x01\0\0set a 0 0 1\r\n1\r\nget a\r\nget b a\r\n").unwrap();
    let mut buffer = [0; 1500];
    let mut text = Vec::new();
    while text.len() < 8 + 2 * 21 {
        let len = socket.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..2], [0, 7]);
        text.extend_from_slice(&buffer[8..len]);
    }
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text, "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
}
