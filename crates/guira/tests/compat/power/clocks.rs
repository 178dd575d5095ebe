//! Clocks that are set while nobody serves: nothing is lost, and times end by the clock.

use super::lab::{Lab, stop};
use crate::{connection::Connection, server::Program};

const DAY_S: i64 = 86_400;

/// The number behind this flag in the answer to a meta command; `None` for a miss.
fn flag(connection: &mut Connection, request: &str, flag: char) -> Option<i64> {
    let answer = connection.ask(format!("{request}\r\n").as_bytes(), b"\r\n");
    let text = String::from_utf8(answer).expect("text");
    let number = text.split([' ', '\r']).find_map(|word| word.strip_prefix(flag)?.parse().ok());
    assert!(number.is_some() || text == "EN\r\n", "{request}: {text}");
    number
}

#[test]
fn a_restart_with_another_clock_loses_nothing_and_times_end_by_the_clock() {
    if Program::Guira.is_memcached() {
        return;
    }
    let lab = Lab::new(20);
    let ttl = |connection: &mut Connection, key: &str| flag(connection, &format!("mg {key} t"), 't');
    let set = |connection: &mut Connection, key: &str, ttl_s: i64| {
        let answer = connection.ask(format!("ms {key} 1 c T{ttl_s}\r\nx\r\n").as_bytes(), b"\r\n");
        let text = String::from_utf8(answer).expect("text");
        let version = text.trim_end().strip_prefix("HD c").and_then(|version| version.parse::<i64>().ok());
        version.unwrap_or_else(|| panic!("{text}"))
    };
    let is_about =
        |found: Option<i64>, expected: i64| found.is_some_and(|found| (expected - 600..=expected).contains(&found));
    let server = lab.serve("always", 0);
    let mut client = server.connect();
    let first = [("short", 5_000), ("long", 50_000), ("for ever", 0)].map(|(key, ttl_s)| {
        let key = key.replace(' ', "-");
        (set(&mut client, &key, ttl_s), key)
    });
    stop(server);
    // Forward.
    let server = lab.serve("always", 10_000);
    let mut client = server.connect();
    assert_eq!(ttl(&mut client, "short"), None, "its time has come");
    let found = ttl(&mut client, "long");
    assert!(is_about(found, 40_000), "{found:?}");
    assert_eq!(flag(&mut client, "mg for-ever t c", 'c'), Some(first[2].0), "as it was");
    let second = set(&mut client, "later", 5_000);
    let again = set(&mut client, "long", 50_000);
    assert!(again > first[1].0, "{again} after {first:?}");
    stop(server);
    // And back, a day before all of it.
    let server = lab.serve("always", -DAY_S);
    let mut client = server.connect();
    let found = ttl(&mut client, "long");
    assert!(is_about(found, 50_000 + 10_000 + DAY_S), "{found:?}");
    let found = ttl(&mut client, "later");
    assert!(is_about(found, 5_000 + 10_000 + DAY_S), "{found:?}");
    assert_eq!(flag(&mut client, "mg for-ever t c", 'c'), Some(first[2].0), "as it was");
    for (key, before) in [("long", again), ("later", second), ("for-ever", first[2].0)] {
        let version = set(&mut client, key, 0);
        assert!(version > before, "{key}: {version} after {before}");
    }
    stop(server);
    let server = lab.serve("always", 0);
    let mut client = server.connect();
    for key in ["long", "later", "for-ever"] {
        assert_eq!(ttl(&mut client, key), Some(-1), "{key}: has no end by now");
    }
    stop(server);
}

#[test]
fn a_flush_that_is_to_come_comes_by_the_clock_and_once() {
    if Program::Guira.is_memcached() {
        return;
    }
    let lab = Lab::new(21);
    let server = lab.serve("always", 0);
    let mut client = server.connect();
    client.expect(b"set old 0 0 1\r\nx\r\n", b"STORED\r\n");
    client.expect(b"flush_all 5000\r\n", b"OK\r\n");
    stop(server);
    let server = lab.serve("always", -DAY_S);
    server.connect().expect(b"get old\r\n", b"VALUE old 0 1\r\nx\r\nEND\r\n");
    stop(server);
    // It is due while nobody serves.
    let server = lab.serve("always", 10_000);
    let mut client = server.connect();
    client.expect(b"get old\r\n", b"END\r\n");
    client.expect(b"set new 0 0 1\r\ny\r\n", b"STORED\r\n");
    stop(server);
    for clock_s in [0, 10_000, -DAY_S] {
        let server = lab.serve("always", clock_s);
        server.connect().expect(b"get old new\r\n", b"VALUE new 0 1\r\ny\r\nEND\r\n");
        stop(server);
    }
}
