//! A backend that is away.

use rustix::process::Signal;

use super::{Cluster, number, send, set};
use crate::{condition::wait_for, connection::Connection};

const KEYS: usize = 20;

/// What a change of each key is answered.
fn changes(client: &mut Connection) -> Vec<String> {
    let change = |key| client.ask(&set(&format!("key{key}"), b"value"), b"\r\n");
    (0..KEYS).map(change).map(|said| String::from_utf8(said).expect("text")).collect()
}

#[test]
fn what_is_asked_of_a_backend_that_is_away_is_refused_at_once_until_it_is_back() {
    let cluster = Cluster::up(&["--backends", "2", "--store", "memory"]);
    let mut client = cluster.connect();
    assert!(changes(&mut client).iter().all(|said| said == "STORED\r\n"));
    let stopped = cluster.signal("backend", 0, Signal::STOP);
    let said = changes(&mut client);
    let of = |line: &str| said.iter().filter(|said| *said == line).count();
    // The first has waited, and may have come.
    assert_eq!(of("SERVER_ERROR the outcome is unknown, the operation may have taken place\r\n"), 1, "{said:?}");
    let away = of("SERVER_ERROR who has this key has not answered in time, nothing was changed\r\n");
    assert!(away > 0 && of("STORED\r\n") == KEYS - 1 - away, "{said:?}");
    assert_eq!(number(&mut client, "cluster_away"), away as u64, "nobody has waited for these");
    send(stopped, Signal::CONT);
    wait_for("it is back", || changes(&mut client).iter().all(|said| said == "STORED\r\n").then_some(()));
    cluster.down();
}
