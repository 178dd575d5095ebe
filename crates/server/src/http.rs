//! A very small HTTP server for scrapes: one thread, one request a connection, everything bounded.
//!
//! Always true: it runs beside the workers and never on them; a client that dawdles is dropped after [`PATIENCE`].

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::http_request::{self, HEAD_LEN_MAX, Wanted};

/// How long a client may take for its request, and then for its answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers `GET /metrics` with what `render` writes, until `is_over`.
pub(crate) fn serve(
    listener: &TcpListener,
    content_type: &str,
    render: impl Fn(&mut String) -> bool,
    is_over: impl Fn() -> bool,
) {
    loop {
        let accepted = listener.accept();
        if is_over() {
            return;
        }
        match accepted {
            // A client that breaks off has only itself to answer to.
            Ok((stream, _)) => drop(answer(stream, content_type, &render)),
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
            // Out of file descriptors: the client's problem is smaller than the server's.
            Err(_) => std::thread::park_timeout(Duration::from_millis(100)),
        }
    }
}

/// Wakes a `serve` that waits on `address`.
pub(crate) fn knock(address: SocketAddr) {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    let _ = TcpStream::connect_timeout(&SocketAddr::new(ip, address.port()), Duration::from_millis(100));
}

fn answer(mut stream: TcpStream, content_type: &str, render: impl Fn(&mut String) -> bool) -> std::io::Result<()> {
    let request = http_request::parse(&read_head(&mut stream)?);
    let mut body = String::new();
    let (status, content_type) = match request.wanted {
        Wanted::Metrics if render(&mut body) => ("200 OK", content_type),
        Wanted::Metrics => ("500 Internal Server Error", "text/plain"),
        Wanted::Root => {
            body.push_str("Guira serves its metrics under /metrics\n");
            ("200 OK", "text/plain")
        }
        Wanted::UnknownPath => ("404 Not Found", "text/plain"),
        Wanted::OtherMethod => ("405 Method Not Allowed", "text/plain"),
    };
    let len = body.len();
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n"
    );
    if request.with_body {
        text.push_str(&body);
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(text.as_bytes())
}

fn read_head(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    let mut head = vec![0; HEAD_LEN_MAX];
    let mut len = 0;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || len == head.len() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let read_len = stream.read(&mut head[len..])?;
        len += read_len;
        if read_len == 0 || http_request::is_whole(&head[..len]) {
            head.truncate(len);
            return Ok(head);
        }
    }
}
