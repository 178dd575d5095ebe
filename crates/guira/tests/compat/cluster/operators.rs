//! What operators ask of a cluster that is up, and have it do, through the controller's REST API.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use serde_json::{Value, json};

use super::{Cluster, guira};
use crate::{
    condition::{DEADLINE, wait_for},
    server::{Program, free_port},
};

const TOKEN: &str = "not-much-of-a-token";

/// Where it is asked, and with what.
struct Operator<'t> {
    address: SocketAddr,
    token: &'t str,
}

impl Operator<'_> {
    /// `None` while nobody listens.
    fn try_ask(&self, what: &str, body: &str) -> Option<(u16, Value)> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        let (token, len) = (self.token, body.len());
        let head = format!("{what} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Length: {len}\r\n\r\n");
        stream.write_all((head + body).as_bytes()).expect("it is read");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Some((status, serde_json::from_str(body).expect("JSON")))
    }

    fn ask(&self, what: &str, body: &str) -> (u16, Value) {
        self.try_ask(what, body).expect("it listens")
    }

    /// The charges of the two cache nodes, once both are there.
    fn charges(&self) -> Option<[Vec<u64>; 2]> {
        let (_, said) = self.try_ask("GET /v1/caches", "")?;
        let caches = said["caches"].as_array().expect("cache nodes");
        let charge_of = |cache: &Value| -> Vec<u64> {
            let backends = cache["backends"].as_array().expect("backends");
            backends.iter().map(|backend| backend["id"].as_u64().expect("a number")).collect()
        };
        let are_there = caches.iter().all(|cache| cache["has_session"] == true);
        let charges: Vec<_> = caches.iter().map(charge_of).collect();
        are_there.then(|| charges.try_into().expect("two of them"))
    }
}

#[test]
fn an_operator_moves_a_backend_while_clients_are_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let (token, port) = (folder.path().join("token"), free_port().to_string());
    fs::write(&token, TOKEN).expect("written");
    let rest = ["--rest", &format!("127.0.0.1:{port}"), "--rest-token", token.to_str().expect("text")];
    // Nobody is taken for silent, however long the machine is busy elsewhere.
    let members = ["--backends", "4", "--caches", "2", "--store", "memory", "--lease-ms", "10000"];
    let cluster = Cluster::up(&[&members[..], &rest].concat());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().expect("a port")));
    let operator = Operator { address, token: TOKEN };
    wait_for("all are in the charge of their homes", || {
        (operator.charges()? == [[1_000, 1_002], [1_001, 1_003]]).then_some(())
    });
    assert_eq!(Operator { token: "another", ..operator }.ask("GET /v1/status", "").0, 401);

    let (is_over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let mut client = cluster.connect();
        let (is_over, answers) = (&is_over, &answers);
        let over = Over(is_over);
        scope.spawn(move || {
            for number in 0u64.. {
                let (key, value) = (number % 20, format!("{number:08}"));
                let stored = client.ask(format!("set key{key} 0 0 8\r\n{value}\r\n").as_bytes(), b"\r\n");
                assert_eq!(stored, b"STORED\r\n");
                for _ in 0..4 {
                    let seen = client.ask(format!("get key{key}\r\n").as_bytes(), b"END\r\n");
                    assert_eq!(String::from_utf8_lossy(&seen), format!("VALUE key{key} 0 8\r\n{value}\r\nEND\r\n"));
                    answers.fetch_add(1, Relaxed);
                }
                if is_over.load(Relaxed) {
                    return;
                }
            }
        });
        let some_more = || {
            let before = answers.load(Relaxed);
            wait_for("clients are answered", || (answers.load(Relaxed) > before + 100).then_some(()));
        };
        some_more();
        wait_for("the cache nodes do as they are told", || {
            // Once more is no change, unless loads were so uneven for so long that it was moved again.
            let moved = operator.ask("PUT /v1/backends/1000/cache", r#"{"cache": 101}"#);
            assert_eq!(moved, (202, json!({"backend": 1_000, "cache": 101})));
            let (_, backends) = operator.ask("GET /v1/backends", "");
            let first = &backends["backends"][0];
            assert_eq!((&first["id"], &first["home"]), (&json!(1_000), &json!(100)));
            let [home, other] = operator.charges()?;
            let is_there = first["owner"] == json!(101) && !home.contains(&1_000) && other.contains(&1_000);
            is_there.then_some(())
        });
        some_more();
        wait_for("there is a rule for one of the keys", || {
            let (_, said) = operator.ask("GET /v1/rules?limit=1", "");
            let rule = said["rules"].as_array().expect("rules").first()?.clone();
            let hash = rule["hash"].as_str().expect("a hash");
            // Unless it has gone meanwhile.
            let (status, said) = operator.ask(&format!("GET /v1/rules/{hash}"), "");
            (status == 200 && said["hash"] == rule["hash"]).then_some(())
        });
        drop(over);
    });
    assert_eq!(operator.ask("PUT /v1/backends/999/cache", r#"{"cache": 101}"#).0, 404);
    let (status, said) = operator.ask("GET /v1/status", "");
    assert!(status == 200 && said["installs"].as_u64() > Some(0) && said["charges"].as_u64() > Some(0), "{said}");

    let view = format!("static:{}", cluster.folder.path().join("cluster").join("cluster.toml").display());
    let node = |id: &str, rest: &str| {
        let mut command = Command::new(Program::Guira.path());
        said_in_a_line(command.args(["node", "--coordinator", &view, "--id", id, "--rest", rest]))
    };
    assert!(node("100", "127.0.0.1:0").contains("--rest 127.0.0.1:0: member 100 is a cache, only a controller has it"));
    assert!(node("1", &address.to_string()).contains("cannot listen there"));
    cluster.down();
}

/// Says that it is over, also where a test fails.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn said_in_a_line(command: &mut Command) -> String {
    let said = command.output().expect("it is run");
    assert!(!said.status.success());
    let text = String::from_utf8(said.stderr).expect("text");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn an_api_that_cannot_be_is_said_in_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let up = |arguments: &[&str]| {
        let port = free_port().to_string();
        said_in_a_line(&mut guira(&[&["up", "--port", &port], arguments].concat(), folder.path()))
    };
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let taken = taken.local_addr().expect("its number").to_string();
    assert!(up(&["--rest", &taken]).contains(&format!("--rest {taken}: cannot listen there")));
    assert!(
        up(&["--rest", "0.0.0.0:0"]).contains("can be reached from elsewhere, and needs a token: give --rest-token")
    );
    assert!(up(&["--rest", "127.0.0.1:0"]).contains("write a port from 1 on"));
    assert!(up(&["--rest", "8080"]).contains("write an address and a port"));
    assert!(up(&["--rest-token", "/nowhere"]).contains("--rest"));
    let token = folder.path().join("token");
    let rest = ["--rest", "127.0.0.1:0", "--rest-token", token.to_str().expect("text")];
    assert!(up(&rest).contains("No such file"));
    fs::write(&token, "short").expect("written");
    assert!(up(&rest).contains("a token is one line of 16 to 256"));
}
