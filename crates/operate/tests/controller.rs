//! A controller on its socket with one of its two cache nodes, asked by an operator.
//!
//! Always true: what is waited for is asked for until it is so.
#![forbid(unsafe_code)]

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use guira_cluster::{Members, Sealer, Transport};
use guira_operate::{Access, Bound, Limits};
use guira_routing::NodeId;
use guira_switched::{
    CacheMode, Life, Member, Role, StaticFile,
    host::{CacheHost, ControllerHost, MemberHost},
};
use serde_json::{Value, json};

/// Far more than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Any port of this machine's own address.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

const CONTROLLER: u16 = 1;
const THERE: u16 = 100;
const SILENT: u16 = 101;

/// A cluster, and a socket for each member, in their order.
fn cluster() -> (StaticFile, Vec<Transport>) {
    let backend = |cache| Role::backend(Some(cache));
    let gateway = Role::Gateway { listen: ANY_PORT, cache_mode: CacheMode::default() };
    let roles = [
        (CONTROLLER, Role::Controller),
        (THERE, Role::CACHE),
        (SILENT, Role::CACHE),
        (1_000, backend(THERE)),
        (1_001, backend(SILENT)),
        (10_000, gateway),
    ];
    let mut file = StaticFile { secret: "not much of a secret".into(), ..StaticFile::default() };
    let secret = file.secret();
    let nobody = Arc::new(Members::default());
    let mut transports = Vec::new();
    for (id, role) in roles {
        let sealer = Sealer::new(&secret, NodeId(id));
        let transport = Transport::bind(ANY_PORT, sealer, Arc::clone(&nobody)).expect("a port");
        file.members.push(Member::new(id, transport.local_address(), role));
        transports.push(transport);
    }
    file.check().expect("a cluster");
    let members = Arc::new(file.members().expect("members"));
    transports.iter_mut().for_each(|transport| transport.set_members(Arc::clone(&members)));
    (file, transports)
}

fn life() -> Life {
    Life::begin(None).expect("without a file it only looks at clocks")
}

fn ask(address: SocketAddr, what: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let request = format!("{what} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).expect("JSON"))
}

/// Asks until it is answered so.
fn wait_for(address: SocketAddr, what: &str, body: &str, is_so: impl Fn(u16, &Value) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (status, said) = ask(address, what, body);
        if is_so(status, &said) {
            return;
        }
        assert!(Instant::now() < deadline, "{what} {body}: {status} {said}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn a_backend_of_a_silent_cache_node_goes_to_the_one_that_is_there() {
    let (file, transports) = cluster();
    let mut transports = transports.into_iter();
    let mut next = || transports.next().expect("one for each");
    let controller = ControllerHost::start(next(), file.controller_config(life())).expect("a thread");
    let controller = Arc::new(controller);
    let access = Access::new(ANY_PORT, None).expect("on this machine");
    let bound = Bound::bind(access, Limits { patience: PATIENCE, ..Limits::default() }).expect("a port");
    let address = bound.address();
    let rest = bound.serve(Arc::downgrade(&controller)).expect("a thread");

    let silent = |id| json!({"id": id, "has_session": false, "backends": []});
    assert_eq!(ask(address, "GET /v1/caches", ""), (200, json!({"caches": [silent(THERE), silent(SILENT)]})));
    let (status, said) = ask(address, "GET /v1/status", "");
    assert_eq!((status, &said["rules"], &said["waiting"]), (200, &json!(0), &json!({"installs": 0, "deletions": 0})));
    assert_eq!(ask(address, "GET /v1/rules", ""), (200, json!({"rules": []})));
    assert_eq!(ask(address, "PUT /v1/backends/1001/cache", r#"{"cache": 100}"#).0, 409);
    assert_eq!(ask(address, "PUT /v1/backends/1001/cache", r#"{"cache": 1000}"#).0, 404);
    assert_eq!(ask(address, "PUT /v1/backends/1002/cache", r#"{"cache": 100}"#).0, 404);

    let shares = file.shares().expect("backends");
    let config = file.cache_config(NodeId(THERE), &shares, life());
    let cache = CacheHost::start([(next(), config)]).expect("a thread");
    wait_for(address, "PUT /v1/backends/1001/cache", r#"{"cache": 100}"#, |status, _| status == 202);
    assert_eq!(ask(address, "PUT /v1/backends/1000/cache", r#"{"cache": 101}"#).0, 409);
    let both = json!({"caches": [
        {"id": THERE, "has_session": true, "load_per_s": 0,
            "backends": [{"id": 1_000, "load_per_s": 0}, {"id": 1_001, "load_per_s": 0}]},
        silent(SILENT),
    ]});
    wait_for(address, "GET /v1/caches", "", |_, said| *said == both);
    let owned = json!({"backends": [
        {"id": 1_000, "home": THERE, "owner": THERE, "load_per_s": 0},
        {"id": 1_001, "home": SILENT, "owner": THERE, "load_per_s": 0},
    ]});
    assert_eq!(ask(address, "GET /v1/backends", ""), (200, owned));

    cache.stop().expect("it had not ended");
    drop(controller);
    assert_eq!(ask(address, "GET /v1/status", "").0, 503);
    drop(rest);
}
