//! Clients with plain sockets, and a controller that says what it was made to say.

use std::{
    io::{Read, Write},
    sync::{Mutex, mpsc},
};

use guira_item::Span;
use guira_openflow::{Actions, FlowAt, FlowChange, FlowKey, IPV6, Match, Port, Version, WantedChanges, WantedFlows};
use guira_routing::{Choices, KeyHash, NodeId, RuleBudget, RuleChoices};
use guira_switched::controller::{BackendReport, CacheReport, ControllerCounts, MoveError, PartReport, RULES_AT_ONCE};
use guira_switched::host::NoFlows;
use serde_json::{Value, json};

use super::*;
use crate::{Overview, Token};

/// Far more than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

const TOKEN: &str = "0123456789abcdef";

/// A controller with two cache nodes, of which one is silent, one backend, and some rules.
struct Fake {
    rules: u64,
    has_ended: bool,
    has_switches: bool,
    moves: Mutex<Vec<(u16, u16)>>,
    asked: Mutex<Option<mpsc::Sender<&'static str>>>,
}

impl Default for Fake {
    fn default() -> Self {
        Self { rules: 3, has_ended: false, has_switches: true, moves: Mutex::default(), asked: Mutex::default() }
    }
}

impl Fake {
    fn say<T>(&self, what: &'static str, said: T) -> Option<T> {
        if let Some(asked) = &*self.asked.lock().unwrap() {
            asked.send(what).expect("the test waits");
        }
        (!self.has_ended).then_some(said)
    }

    fn rule_at(&self, at: u64) -> (KeyHash, Choices) {
        let choices = if at == 0 { Choices::of(NodeId(100), NodeId(101)) } else { NodeId(100).into() };
        (KeyHash(at << 32), choices)
    }
}

impl Operated for Arc<Fake> {
    fn overview(&self) -> Option<Overview> {
        let counts =
            ControllerCounts { installs: 4, deletions: 1, charges: 2, refused: 5, ..ControllerCounts::default() };
        let budget = RuleBudget {
            updates_per_s: 1_000,
            table_len_max: 10_000,
            deletion_delay: Span::from_s(1),
            choices: RuleChoices::Two,
        };
        self.say("status", Overview { counts, rules: 3, waiting: (6, 7), budget })
    }

    fn caches(&self) -> Option<Vec<CacheReport>> {
        let there = CacheReport {
            cache: NodeId(100),
            load_per_s: Some(12.0),
            charge: vec![(NodeId(1_000), 11.0)],
            parts: vec![PartReport { part: NodeId(100), has_session: true, load_per_s: Some(12.0) }],
        };
        let part = PartReport { part: NodeId(101), has_session: false, load_per_s: None };
        let silent = CacheReport { cache: part.part, load_per_s: None, charge: Vec::new(), parts: vec![part] };
        self.say("caches", vec![there, silent])
    }

    fn backends(&self) -> Option<Vec<BackendReport>> {
        let (home, owner) = (NodeId(101), Some(NodeId(100)));
        let moved = BackendReport { backend: NodeId(1_000), home, owner, load_per_s: Some(11.0) };
        let alone = BackendReport { backend: NodeId(1_001), home, owner: None, load_per_s: None };
        self.say("backends", vec![moved, alone])
    }

    fn rules_after(&self, after: Option<KeyHash>, len_max: usize) -> Option<Vec<(KeyHash, Choices)>> {
        let rules = (0..self.rules).map(|at| self.rule_at(at));
        self.say("rules", rules.filter(|(hash, _)| Some(*hash) > after).take(len_max).collect())
    }

    fn rule(&self, hash: KeyHash) -> Option<Option<Choices>> {
        let mut rules = (0..self.rules).map(|at| self.rule_at(at));
        self.say("rule", rules.find(|(there, _)| *there == hash).map(|(_, choices)| choices))
    }

    fn flows_after(&self, after: Option<FlowAt>, len_max: usize) -> Option<Result<WantedFlows, NoFlows>> {
        let flows = (0..3).map(|number| (flow(number), to(number))).filter(|(flow, _)| Some(*flow) > after);
        let flows = WantedFlows { version: Version(7), is_whole: true, flows: flows.take(len_max).collect() };
        self.say("flows", self.has_switches.then_some(flows).ok_or(NoFlows::NoSwitches))
    }

    fn flows_since(&self, version: Version, len_max: usize) -> Option<Result<WantedChanges, NoFlows>> {
        let changes = [(flow(1), Some(to(1))), (flow(2), None)];
        let missed = 7_u64.checked_sub(version.0).filter(|missed| *missed <= 2);
        let changes = missed.map(|missed| {
            let changes: Vec<FlowChange> = changes[2 - missed as usize..].iter().take(len_max).copied().collect();
            WantedChanges { version: Version(version.0 + changes.len() as u64), is_whole: false, changes }
        });
        let changes = changes.ok_or(NoFlows::Unknown);
        self.say("changes", if self.has_switches { changes } else { Err(NoFlows::NoSwitches) })
    }

    fn move_backend(&self, backend: NodeId, cache: NodeId) -> Option<Result<(), MoveError>> {
        let done = match (backend.0, cache.0) {
            (1_000 | 1_001, 100) => {
                self.moves.lock().unwrap().push((backend.0, cache.0));
                Ok(())
            }
            (1_000 | 1_001, 101) => Err(MoveError::SilentCache(cache)),
            (1_000 | 1_001, _) => Err(MoveError::UnknownCache(cache)),
            _ => Err(MoveError::UnknownBackend(backend)),
        };
        self.say("move", done)
    }
}

fn flow(number: u16) -> FlowAt {
    let matched = Match { eth_type: Some(IPV6), ..Match::default() };
    FlowKey { priority: 400 + number, matched, ..FlowKey::default() }.into()
}

fn to(port: u16) -> Actions {
    Actions { output: Some(Port(port.into())), ..Actions::default() }
}

struct Server {
    address: SocketAddr,
    fake: Arc<Fake>,
    rest: Rest,
}

impl Server {
    fn new(fake: Fake, token: Option<&str>, limits: Limits) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let token = token.map(|text| Token::new(text.as_bytes()).expect("a token"));
        let access = Access::new(address, token).expect("on this machine");
        let bound = Bound::bind(access, limits).expect("a free port");
        let (address, fake) = (bound.address(), Arc::new(fake));
        let rest = bound.serve(Arc::clone(&fake)).expect("a thread");
        Self { address, fake, rest }
    }

    fn plain() -> Self {
        Self::new(Fake::default(), None, Limits { patience: PATIENCE, ..Limits::default() })
    }

    fn connect(&self) -> std::net::TcpStream {
        let stream = std::net::TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream
    }

    /// The status that a request is answered with, the head, and what is in the body.
    fn send(&self, request: &str) -> (u16, String, Value) {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("it is read");
        answer_of(&mut stream)
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let (status, _, body) = self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        (status, body)
    }

    fn put(&self, path: &str, body: &str) -> (u16, Value) {
        let head = format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
        let (status, _, body) = self.send(&(head + body));
        (status, body)
    }
}

fn answer_of(stream: &mut std::net::TcpStream) -> (u16, String, Value) {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, head.to_lowercase(), serde_json::from_str(body).unwrap_or(Value::Null))
}

/// A connection on which this was said is ended, without an answer: well before the client's own patience, which would be another error.
fn assert_is_hung_up_on(stream: &mut std::net::TcpStream, said: &str) {
    let mut heard = Vec::new();
    match stream.read_to_end(&mut heard) {
        Ok(_) => {}
        // What was not read makes it a reset.
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
    assert_eq!(heard, b"", "{said}");
}

/// Whether this is a refusal in one line, with these words in it.
fn is_line(body: &Value, words: &str) -> bool {
    let line = body["error"].as_str().unwrap_or_default();
    body.as_object().is_some_and(|fields| fields.len() == 1) && line.contains(words) && !line.contains('\n')
}

#[test]
fn each_question_is_answered() {
    let server = Server::plain();
    let status = json!({
        "rules": 3, "installs": 4, "deletions": 1, "charges": 2, "refused": 5, "ignored": 0,
        "waiting": {"installs": 6, "deletions": 7},
        "budget": {"updates_per_s": 1_000, "table_len_max": 10_000, "cached_max": 9_000, "deletion_delay_ms": 1_000},
    });
    assert_eq!(server.get("/v1/status"), (200, status));
    let caches = json!({"caches": [
        {"id": 100, "has_session": true, "load_per_s": 12, "backends": [{"id": 1_000, "load_per_s": 11}]},
        {"id": 101, "has_session": false, "backends": []},
    ]});
    assert_eq!(server.get("/v1/caches"), (200, caches));
    let backends = json!({"backends": [
        {"id": 1_000, "home": 101, "owner": 100, "load_per_s": 11},
        {"id": 1_001, "home": 101},
    ]});
    assert_eq!(server.get("/v1/backends"), (200, backends));
    let rule = json!({"hash": "0000000100000000", "caches": [100]});
    assert_eq!(server.get("/v1/rules/0000000100000000"), (200, rule));
    assert_eq!(
        server.put("/v1/backends/1001/cache", r#"{"cache": 100}"#),
        (202, json!({"backend": 1001, "cache": 100}))
    );
    assert_eq!(*server.fake.moves.lock().unwrap(), [(1_001, 100)]);
}

#[test]
fn rules_are_told_page_by_page() {
    let server = Server::plain();
    let first = json!({"hash": "0000000000000000", "caches": [100, 101]});
    let others = [1u64, 2].map(|at| json!({"hash": format!("{:016x}", at << 32), "caches": [100]}));
    let [second, third] = &others;
    assert_eq!(server.get("/v1/rules"), (200, json!({"rules": [first, second, third]})));
    let page = json!({"rules": [first, second], "next": "0000000100000000"});
    assert_eq!(server.get("/v1/rules?limit=2"), (200, page));
    assert_eq!(server.get("/v1/rules?limit=2&after=0000000100000000"), (200, json!({"rules": [third]})));
    assert_eq!(server.get("/v1/rules?after=ffffffffffffffff"), (200, json!({"rules": []})));
    let many = Server::new(Fake { rules: 2_500, ..Fake::default() }, None, Limits::default());
    let (mut after, mut seen) = (String::new(), 0);
    loop {
        let (status, page) = many.get(&format!("/v1/rules?limit={RULES_AT_ONCE}{after}"));
        assert_eq!(status, 200);
        seen += page["rules"].as_array().expect("rules").len();
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(seen, 2_500);
}

#[test]
fn flows_are_told_page_by_page_and_then_what_changes() {
    let server = Server::plain();
    let shown = |number: u16| {
        let actions = json!([{"type": "OUTPUT", "port": number}]);
        // Of all switches, in the first table; priority, and a match of one field.
        let id = format!("0000{:04x}0001000a80000a0286dd000000000000", 400 + number);
        json!({"id": id, "table_id": 0, "priority": 400 + number, "match": {"eth_type": 0x86dd}, "actions": actions})
    };
    let ids: Vec<String> = (0..3).map(|number| shown(number)["id"].as_str().unwrap().to_owned()).collect();
    let all = json!({"version": "7", "whole": true, "flows": [shown(0), shown(1), shown(2)]});
    assert_eq!(server.get("/v1/flows"), (200, all));
    let page = json!({"version": "7", "whole": true, "flows": [shown(0), shown(1)], "next": ids[1]});
    assert_eq!(server.get("/v1/flows?limit=2"), (200, page));
    let rest = json!({"version": "7", "whole": true, "flows": [shown(2)]});
    assert_eq!(server.get(&format!("/v1/flows?limit=2&after={}", ids[1])), (200, rest));

    let changes = |version: u64, changes: Value| {
        (200, json!({"version": version.to_string(), "whole": false, "changes": changes}))
    };
    assert_eq!(server.get("/v1/flows/changes?since=7"), changes(7, json!([])));
    let both = json!([{"make": shown(1)}, {"delete": ids[2]}]);
    assert_eq!(server.get("/v1/flows/changes?since=5"), changes(7, both));
    assert_eq!(server.get("/v1/flows/changes?since=5&limit=1"), changes(6, json!([{"make": shown(1)}])));
    for since in [4, 8] {
        let (status, body) = server.get(&format!("/v1/flows/changes?since={since}"));
        assert!(status == 410 && is_line(&body, "read /v1/flows again"), "{status} {body}");
    }
    let without = Server::new(Fake { has_switches: false, ..Fake::default() }, None, Limits::default());
    for path in ["flows", "flows/changes?since=7"] {
        let (status, body) = without.get(&format!("/v1/{path}"));
        assert!(status == 404 && is_line(&body, "gateways route"), "{status} {body}");
    }
    for (query, words) in [
        ("flows?after=12", "write the id of a flow"),
        ("flows?limit=0", "from 1 to 1000"),
        ("flows?since=7", "unknown field"),
        ("flows/changes", "missing field"),
        ("flows/changes?since=x", "invalid digit"),
        ("flows/changes?since=7&limit=1001", "from 1 to 1000"),
    ] {
        let (status, body) = server.get(&format!("/v1/{query}"));
        assert!(status == 400 && is_line(&body, words), "{query}: {status} {body}");
    }
}

#[test]
fn what_is_not_as_it_should_be_is_told_in_a_line() {
    let server = Server::plain();
    let refused = |(status, body): (u16, Value), wanted: u16, words: &str| {
        assert!(status == wanted && is_line(&body, words), "{wanted} {words}, and not {status} {body}");
    };
    let long = format!("/{}", "x".repeat(5_000));
    for path in ["/", "/v1", "/v2/status", "/v1/status/", "/v1/backends/1000", "/%00%ff", &long] {
        refused(server.get(path), 404, "nothing is at /");
    }
    for (query, words) in [
        ("limit=0", "from 1 to 1000"),
        ("limit=1001", "from 1 to 1000"),
        ("limit=-1", "limit"),
        ("limit=99999999999999999999999", "limit"),
        ("limit=", "limit"),
        ("after=12", "16 hexadecimal digits"),
        ("after=%ff%00", "16 hexadecimal digits"),
        ("before=1", "before"),
    ] {
        refused(server.get(&format!("/v1/rules?{query}")), 400, words);
    }
    refused(server.get("/v1/rules/12"), 400, "12: write 16 hexadecimal digits");
    refused(server.get("/v1/rules/%ff"), 400, "");
    refused(server.get("/v1/rules/00000000000000ff"), 404, "has no rule");
    for (path, body, status, words) in [
        ("1002", r#"{"cache": 100}"#, 404, "1002 is no backend"),
        ("70000", r#"{"cache": 100}"#, 404, "70000 is no number"),
        ("-1", r#"{"cache": 100}"#, 404, "no number"),
        ("%ff", r#"{"cache": 100}"#, 400, ""),
        ("1000", r#"{"cache": 102}"#, 404, "102 is no cache node"),
        ("1000", r#"{"cache": 101}"#, 409, "101 is silent"),
        ("1000", "", 400, "write {\"cache\": ID}"),
        ("1000", "{\"cache\":\n", 400, "write"),
        ("1000", "\u{0}", 400, "write"),
        ("1000", "{}", 422, "missing field"),
        ("1000", "[]", 422, "write"),
        ("1000", r#"{"cache": 70000}"#, 422, "70000"),
        ("1000", r#"{"cache": "100"}"#, 422, "write"),
        ("1000", r#"{"cache": 100, "why": 1}"#, 422, "why"),
    ] {
        refused(server.put(&format!("/v1/backends/{path}/cache"), body), status, words);
    }
    let deep = "[".repeat(1_000);
    refused(server.put("/v1/backends/1000/cache", &deep), 422, "write");
    refused(server.put("/v1/backends/1000/cache", &" ".repeat(1_025)), 413, "more than 1024 bytes");
    let chunks = "PUT /v1/backends/1000/cache HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (status, _, body) = server.send(&format!("{chunks}401\r\n{}\r\n0\r\n\r\n", "x".repeat(0x401)));
    refused((status, body), 413, "more than 1024 bytes");
    assert!(server.fake.moves.lock().unwrap().is_empty());
    for (method, path, allowed) in [
        ("POST", "/v1/status", "get,head"),
        ("DELETE", "/v1/rules/0000000000000000", "get,head"),
        ("GET", "/v1/backends/1000/cache", "put"),
        ("OPTIONS", "/v1/backends/1000/cache", "put"),
    ] {
        let (status, head, body) = server.send(&format!("{method} {path} HTTP/1.1\r\n\r\n"));
        refused((status, body), 405, &format!("takes no {method}"));
        assert!(head.contains(&format!("allow: {allowed}")), "{head}");
    }
    let (status, ..) = server.send("nonsense\r\n\r\n");
    assert_eq!(status, 400);
    for headers in ["many: some\r\n".repeat(1_000), format!("long: {}\r\n", "x".repeat(HEAD_LEN_MAX))] {
        assert_eq!(server.send(&format!("GET /v1/status HTTP/1.1\r\n{headers}\r\n")).0, 431);
    }
}

#[test]
fn who_does_not_know_the_token_learns_nothing() {
    let server = Server::new(Fake::default(), Some(TOKEN), Limits { patience: PATIENCE, ..Limits::default() });
    for path in ["/v1/status", "/v1/backends/1000/cache", "/nowhere"] {
        for line in ["", "Authorization: Bearer 0123456789abcdeF\r\n", "Authorization: Basic x\r\n"] {
            let (status, head, body) = server.send(&format!("GET {path} HTTP/1.1\r\n{line}\r\n"));
            assert!(status == 401 && is_line(&body, "Bearer") && head.contains("www-authenticate: bearer"), "{head}");
        }
    }
    let (body, len) = (r#"{"cache": 100}"#, 14);
    let put = format!("PUT /v1/backends/1000/cache HTTP/1.1\r\nContent-Length: {len}\r\n\r\n{body}");
    assert_eq!(server.send(&put).0, 401);
    assert_eq!(*server.fake.moves.lock().unwrap(), []);
    let known = format!("GET /v1/status HTTP/1.1\r\nHost: example.org\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    assert_eq!(server.send(&known).0, 200);
}

#[test]
fn without_a_token_a_web_page_under_a_name_of_its_own_learns_nothing() {
    let server = Server::plain();
    let (status, _, body) = server.send("GET /v1/status HTTP/1.1\r\nHost: example.org\r\n\r\n");
    assert!(status == 403 && is_line(&body, "by address"), "{status} {body}");
    let (body, head) = (r#"{"cache": 100}"#, "Host: example.org\r\nContent-Length: 14");
    let put = format!("PUT /v1/backends/1000/cache HTTP/1.1\r\n{head}\r\n\r\n{body}");
    assert_eq!(server.send(&put).0, 403);
    assert_eq!(*server.fake.moves.lock().unwrap(), []);
}

#[test]
fn a_controller_that_has_ended_answers_nothing() {
    let server = Server::new(Fake { has_ended: true, ..Fake::default() }, None, Limits::default());
    for path in ["status", "caches", "backends", "rules", "rules/0000000000000000", "flows", "flows/changes?since=7"] {
        let (status, body) = server.get(&format!("/v1/{path}"));
        assert!(status == 503 && is_line(&body, "has ended"), "{status} {body}");
    }
    assert_eq!(server.put("/v1/backends/1000/cache", r#"{"cache": 100}"#).0, 503);
}

#[test]
fn who_says_too_little_is_hung_up_on() {
    let limits = Limits { patience: Duration::from_millis(50), ..Limits::default() };
    let server = Server::new(Fake::default(), None, limits);
    let body = "PUT /v1/backends/1000/cache HTTP/1.1\r\nContent-Length: 14\r\n\r\n{\"cache\"";
    for some in ["", "GET", "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n", body] {
        let mut stream = server.connect();
        stream.write_all(some.as_bytes()).expect("it is taken");
        assert_is_hung_up_on(&mut stream, some);
    }
    assert!(server.fake.moves.lock().unwrap().is_empty());
}

#[test]
fn a_connection_takes_one_request() {
    let server = Server::plain();
    let mut stream = server.connect();
    let ask = "GET /v1/rules/0000000000000000 HTTP/1.1\r\n\r\n";
    stream.write_all(ask.as_bytes()).expect("it is read");
    stream.shutdown(std::net::Shutdown::Write).expect("shut");
    let (status, head, _) = answer_of(&mut stream);
    assert!(status == 200 && head.contains("connection: close"), "{head}");
}

#[test]
fn one_connection_too_many_waits_for_its_turn() {
    let (asked, ask) = mpsc::channel();
    let fake = Fake { asked: Mutex::new(Some(asked)), ..Fake::default() };
    let server = Server::new(fake, None, Limits { connections_max: 2, patience: PATIENCE });
    let (first, mut second, mut third) = (server.connect(), server.connect(), server.connect());
    third.write_all(b"GET /v1/caches HTTP/1.1\r\n\r\n").expect("it is taken");
    second.write_all(b"GET /v1/status HTTP/1.1\r\n\r\n").expect("it is taken");
    assert_eq!(answer_of(&mut second).0, 200);
    assert_eq!(answer_of(&mut third).0, 200);
    drop(first);
    assert_eq!([(); 2].map(|()| ask.recv_timeout(PATIENCE).expect("both were asked")), ["status", "caches"]);
}

#[test]
fn it_ends_with_its_handle_whoever_is_connected() {
    let server = Server::plain();
    let mut silent = server.connect();
    let address = server.address;
    drop(server.rest);
    assert_is_hung_up_on(&mut silent, "");
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_port_that_is_taken_is_not_bound() {
    let server = Server::plain();
    let access = Access::new(server.address, None).expect("on this machine");
    let error = Bound::bind(access, Limits::default()).expect_err("it is taken");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}
