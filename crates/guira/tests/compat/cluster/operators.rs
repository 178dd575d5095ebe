//! What operators ask of a cluster that is up, and have it do, through the controller's REST API.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use guira_cluster::ask_line;
use guira_switched::StaticFile;
use serde_json::{Value, json};

use super::{Cluster, guira};
use crate::{
    condition::{DEADLINE, wait_for},
    server::{Program, free_port, free_ports},
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

/// What a gateway tells Prometheus; `None` while it does not.
fn scrape(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.starts_with("HTTP/1.1 200 ").then_some(text)
}

#[test]
fn prometheus_is_told_of_the_cluster_by_each_gateway() {
    let first = free_ports(2);
    let metrics = format!("127.0.0.1:{first}");
    let members = ["--backends", "2", "--store", "memory", "--cache-mode", "switched,none"];
    for one_process in [&[][..], &["--one-process"]] {
        let cluster = Cluster::up(&[&members[..], &["--metrics", &metrics], one_process].concat());
        assert_eq!(cluster.connect().ask(b"set key 0 0 5\r\nvalue\r\n", b"\r\n"), b"STORED\r\n");
        for port in [first, first + 1] {
            wait_for("both backends are heard of, and what they have", || {
                let told = scrape(port)?;
                let has = |line: &str| told.lines().any(|got| got == line || got == format!("{line}.0"));
                (has("guira_cluster_backends_heard 2") && has("memcached_current_items 1")).then_some(())
            });
        }
        cluster.down();
    }

    let folder = tempfile::tempdir().expect("a folder");
    let up = |metrics: &str| {
        let port = free_port().to_string();
        let two = ["up", "--cache-mode", "switched,none", "--port", &port, "--metrics", metrics];
        said_in_a_line(&mut guira(&two, folder.path()))
    };
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let taken = taken.local_addr().expect("its number").to_string();
    assert!(up(&taken).contains(&format!("cannot listen on {taken}")));
    for none in ["127.0.0.1:0", "127.0.0.1:65535"] {
        assert!(up(none).contains(&format!("--metrics {none}: write a port from 1 on")));
    }
    let cluster = Cluster::up(&["--backends", "1", "--store", "memory"]);
    let view = format!("static:{}", cluster.folder.path().join("cluster").join("cluster.toml").display());
    let node = |id: &str, metrics: &str| {
        let mut command = Command::new(Program::Guira.path());
        said_in_a_line(command.args(["node", "--coordinator", &view, "--id", id, "--metrics", metrics]))
    };
    assert!(node("1000", &metrics).contains("member 1000 is a backend, only a gateway has them"));
    assert!(node("10000", "127.0.0.1:0").contains("--metrics 127.0.0.1:0: write a port from 1 on"));
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

#[test]
fn what_a_member_drops_is_told_by_its_status() {
    let cluster = Cluster::up(&["--backends", "1", "--store", "memory"]);
    let folder = cluster.folder.path().join("cluster");
    let file = fs::read_to_string(folder.join("cluster.toml")).expect("a file");
    let file = StaticFile::parse(&file).expect("it is one of ours");
    let backend = file.members.iter().find(|member| member.id == 1_000).expect("the backend");
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    for datagram in [&b"short"[..], &[0; 200], &[0xff; 200]] {
        stranger.send_to(datagram, backend.address).expect("it is sent");
    }
    wait_for("the backend has dropped all three", || {
        let told = ask_line(&folder.join("node-1000.sock"), "status", DEADLINE).ok()?;
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let drops = &told["drops"];
        // Others may send to a port that was another's.
        let has_all = number(&drops["too_short"]) >= 1 && number(&drops["of_another_version"]) >= 2;
        (has_all && number(&told["dropped"]) >= 3).then_some(())
    });
    cluster.down();
}
