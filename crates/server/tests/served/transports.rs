//! Ways in beside plain TCP: several addresses, Unix socket, UDP, the metrics port.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use guira_server::{ListenAddress, ListenError, Listeners, Settings};

use crate::support::client::Client;
use crate::support::{PATIENCE, settings, start};

#[test]
fn a_taken_port_is_one_clear_line() {
    let server = start(settings());
    let port = server.tcp_addresses()[0].port();
    let error = Listeners::bind(&Settings { tcp_port: Some(port), ..settings() }).unwrap_err();
    assert!(matches!(error, ListenError::Taken { .. }));
    let line = error.to_string();
    assert!(line.contains("is taken: stop the other server or choose another with -p"), "{line}");
    let unknown = ListenAddress { host: Some("no.such.host.invalid".into()), port: None };
    let error = Listeners::bind(&Settings { listen: vec![unknown], ..settings() }).unwrap_err();
    assert!(error.to_string().contains("check -l"), "{error}");
}

#[test]
fn several_addresses_one_server() {
    let listen = ListenAddress::parse_list("127.0.0.1,127.0.0.2:0,127.0.0.3").unwrap();
    let server = start(Settings { listen, ..settings() });
    assert_eq!(server.tcp_addresses().len(), 3);
    for address in server.tcp_addresses() {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"mn\r\n").unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"MN\r\n");
    }
}

#[test]
fn a_unix_socket_has_its_mask_and_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = start(Settings { unix_socket: Some(path.clone()), unix_mask: 0o750, ..settings() });
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o750);
    let mut client: Client<UnixStream> = Client::connect_unix(&path);
    client.ask("set a 0 0 1\r\n1\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    let taken = Listeners::bind(&Settings { unix_socket: Some(path.clone()), ..settings() }).unwrap_err();
    assert!(taken.to_string().contains("another server answers there"), "{taken}");
    server.stopper().stop_now();
    server.join().unwrap();
    assert!(!path.exists());
    // One that a dead server has left behind is replaced; a file that is no socket is not.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    start(Settings { unix_socket: Some(path.clone()), ..settings() });
    std::fs::write(&path, "precious").unwrap();
    assert!(Listeners::bind(&Settings { unix_socket: Some(path.clone()), ..settings() }).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

fn udp_ask(socket: &UdpSocket, header: [u8; 8], payload: &[u8]) {
    socket.send(&[&header, payload].concat()).expect("send");
}

#[test]
fn udp_answers_in_frames() {
    let server = start(Settings { udp_port: Some(0), ..settings() });
    let mut client = Client::connect(&server);
    client.say("set v 0 0 5000\r\n");
    client.say(vec![b'v'; 5000]);
    client.ask("\r\n", "STORED\r\n");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server.udp_addresses()[0]).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // Malformed ones first: they are dropped, and hinder nothing.
    udp_ask(&socket, [0, 1, 0, 0, 0, 2, 0, 0], b"get v\r\n");
    udp_ask(&socket, [0, 2, 0, 0, 0, 1, 0, 0], b"get v");
    socket.send(b"short").unwrap();
    udp_ask(&socket, [7, 9, 0, 0, 0, 1, 0, 0], b"get v\r\n");
    let mut value = Vec::new();
    let mut buffer = [0; 2000];
    for sequence in 0..4 {
        let len = socket.recv(&mut buffer).unwrap();
        assert!(len <= 1400);
        assert_eq!(buffer[..8], [7, 9, 0, sequence, 0, 4, 0, 0]);
        value.extend_from_slice(&buffer[8..len]);
    }
    assert_eq!(value, [b"VALUE v 0 5000\r\n", &[b'v'; 5000][..], b"\r\nEND\r\n"].concat());
    for (asked, answered) in [
        ("set b 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("get b\r\nget c\r\n", "VALUE b 0 1\r\nx\r\nEND\r\nEND\r\n"),
        ("bogus\r\n", "ERROR\r\n"),
        ("watch fetchers\r\n", "ERROR\r\n"),
        ("version\r\n", "VERSION 1.6.18\r\n"),
    ] {
        udp_ask(&socket, [1, 2, 0, 0, 0, 1, 0, 0], asked.as_bytes());
        let len = socket.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..8], [1, 2, 0, 0, 0, 1, 0, 0]);
        assert_eq!(String::from_utf8_lossy(&buffer[8..len]), answered);
    }
}

/// The names that prometheus/memcached_exporter has for a server without extstore and proxy, each behind `memcached_`.
const EXPORTER_NAMES: &str = "\
    accepting_connections commands_total connections_listener_disabled_total connections_rejected_total connections_total \
    connections_yielded_total current_bytes current_connections current_items direct_reclaims_total item_no_memory_total \
    item_too_large_total items_evicted_total items_reclaimed_total items_total limit_bytes lru_crawler_enabled \
    lru_crawler_hot_max_factor lru_crawler_hot_percent lru_crawler_items_checked_total lru_crawler_maintainer_thread \
    lru_crawler_moves_to_cold_total lru_crawler_moves_to_warm_total lru_crawler_moves_within_lru_total \
    lru_crawler_reclaimed_total lru_crawler_sleep lru_crawler_starts_total lru_crawler_to_crawl lru_crawler_warm_max_factor \
    lru_crawler_warm_percent malloced_bytes max_connections process_system_cpu_seconds_total process_user_cpu_seconds_total \
    read_bytes_total slab_chunk_size_bytes slab_chunks_free slab_chunks_free_end slab_chunks_per_page slab_chunks_used \
    slab_cold_items slab_commands_total slab_current_chunks slab_current_items slab_current_pages slab_hot_age_seconds \
    slab_hot_items slab_items_age_seconds slab_items_crawler_reclaimed_total slab_items_evicted_nonzero_total \
    slab_items_evicted_time_seconds slab_items_evicted_total slab_items_evicted_unfetched_total \
    slab_items_expired_unfetched_total slab_items_moves_to_cold slab_items_moves_to_warm slab_items_moves_within_lru \
    slab_items_outofmemory_total slab_items_reclaimed_total slab_items_tailrepairs_total slab_lru_hits_total \
    slab_mem_requested_bytes slab_temporary_items slab_warm_age_seconds slab_warm_items time_seconds up uptime_seconds version \
    written_bytes_total";

#[test]
fn prometheus_finds_the_exporters_names() {
    let server = start(Settings { metrics: Some("127.0.0.1:0".parse().unwrap()), ..settings() });
    let mut client = Client::connect(&server);
    client.ask("set a 0 0 1\r\n1\r\nget a b\r\n", "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    let scrape = |path: &str| {
        let mut stream = TcpStream::connect(server.metrics_address().unwrap()).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let text = scrape("/metrics");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    for line in [
        "memcached_up 1",
        "memcached_version{version=\"1.6.18\"} 1",
        "memcached_commands_total{command=\"get\",status=\"hit\"} 1",
        "memcached_commands_total{command=\"get\",status=\"miss\"} 1",
        "memcached_commands_total{command=\"set\",status=\"hit\"} 1",
        "memcached_current_items 1",
        "memcached_current_connections 1",
        "memcached_limit_bytes 67108864",
        "memcached_items_evicted_total 0",
        "memcached_connections_total 1",
        "memcached_slab_chunk_size_bytes{slab=\"1\"} 96",
        "memcached_slab_items_evicted_total{slab=\"1\"} 0",
        "memcached_slab_commands_total{slab=\"1\",command=\"get\",status=\"hit\"} 1",
        "memcached_slab_commands_total{slab=\"1\",command=\"set\",status=\"hit\"} 1",
        "memcached_slab_lru_hits_total{slab=\"1\",lru=\"cold\"} 1",
        "memcached_lru_crawler_enabled 1",
        "memcached_lru_crawler_sleep 100",
        "guira_cp_malformed_total 0",
        "guira_reference_asked_total 5",
        "guira_reference_waits 3",
    ] {
        let found = text.lines().any(|got| got == line || got == format!("{line}.0"));
        assert!(found, "{line} is missing in\n{text}");
    }
    for name in EXPORTER_NAMES.split_whitespace().map(|name| format!("memcached_{name}")) {
        let is_it = |line: &str| line.strip_prefix(&name).is_some_and(|rest| rest.starts_with([' ', '{']));
        assert!(text.lines().any(is_it), "{name} is missing in\n{text}");
    }
    assert!(scrape("/nowhere").starts_with("HTTP/1.1 404"));
}
