//! Large values that many clients send at the same time.

use crate::condition::wait_for;
use crate::connection::{Connection, Heard};
use crate::hostile::MIB;
use crate::server::{Program, Server};

/// Megabytes the server may use.
const LIMIT_MIB: u64 = 192;

/// What unfinished commands may take beside that before the engine lends memory for them: 8 MiB and two of the largest items.
const BESIDE_MIB: u64 = 10;

const CLIENTS: usize = 80;
const VALUE_LEN: usize = 900_000;

/// Small values that fill the cache before, more of them than fit.
const FILLING: u64 = 400_000;
const FILLING_LEN: usize = 1_000;

fn value(client: usize) -> Vec<u8> {
    (0..VALUE_LEN).map(|at| (at * 31 + client * 7 + at / 1000) as u8).collect()
}

/// Uploads used to share a few megabytes, and whoever passed that was closed. Now the cache makes room, as it does in
/// memcached, and its limit holds all the same.
#[test]
fn many_clients_upload_at_once_and_memory_stays_within_its_limit() {
    let mut server = Server::start(Program::Guira, &["-m", &LIMIT_MIB.to_string()]);
    let mut filler = server.connect();
    for batch in 0..FILLING / 1000 {
        let mut sets = Vec::new();
        for item in 0..1000 {
            sets.extend_from_slice(format!("set f{batch}_{item} 0 0 {FILLING_LEN} noreply\r\n").as_bytes());
            sets.extend_from_slice(&[b'f'; FILLING_LEN]);
            sets.extend_from_slice(b"\r\n");
        }
        filler.send(&sets);
    }
    assert_eq!(filler.ask(b"mn\r\n", b"MN\r\n"), b"MN\r\n");
    assert!(server.stat("evictions") > 0, "the cache is full");

    let before_len = server.stat("bytes_read");
    let sent_len = VALUE_LEN - 1000;
    let mut clients: Vec<Connection> = (0..CLIENTS).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("set upload{number} 5 0 {VALUE_LEN}\r\n").as_bytes());
        client.send(&value(number)[..sent_len]);
    }
    wait_for("all of it has arrived", || {
        (server.stat("bytes_read") > before_len + (CLIENTS * sent_len) as u64).then_some(())
    });
    let allowed = LIMIT_MIB * MIB * 105 / 100 + BESIDE_MIB * MIB;
    let resident = server.process().resident_bytes();
    assert!(resident <= allowed, "{} MiB of {} allowed while values arrive", resident / MIB, allowed / MIB);

    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&value(number)[sent_len..]);
        assert_eq!(client.ask(b"\r\n", b"\r\n"), b"STORED\r\n", "{number}");
    }
    let mut found = 0;
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("get upload{number}\r\n").as_bytes());
        let Heard::Answer(answer) = client.hear(b"END\r\n") else { panic!("no answer for {number}") };
        if answer != b"END\r\n" {
            let head = format!("VALUE upload{number} 5 {VALUE_LEN}\r\n").into_bytes();
            assert!(answer == [head, value(number), b"\r\nEND\r\n".to_vec()].concat(), "{number} is not what was sent");
            found += 1;
        }
    }
    assert!(found > CLIENTS / 2, "{found} of {CLIENTS} are still there");
    let resident = server.process().resident_bytes();
    assert!(resident <= allowed, "{} MiB of {} allowed afterwards", resident / MIB, allowed / MIB);
}
