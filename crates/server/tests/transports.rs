//! Ways in beside plain TCP: several addresses, Unix socket, UDP, the metrics port.

mod support;

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use guira_server::{ListenAddress, ListenError, Listeners, Settings};
use support::client::Client;
use support::{PATIENCE, settings, start};

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
    ] {
        let found = text.lines().any(|got| got == line || got == format!("{line}.0"));
        assert!(found, "{line} is missing in\n{text}");
    }
    assert!(scrape("/nowhere").starts_with("HTTP/1.1 404"));
}
