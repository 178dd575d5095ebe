//! `guira health`: exit status for probes.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Whom to ask.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Server: host:port, or the path of a Unix socket
    #[arg(default_value = "127.0.0.1:11211")]
    server: String,
    /// How long to wait, in milliseconds
    #[arg(long, default_value_t = 1000)]
    timeout_ms: u64,
}

/// Asks for the version; the answer is all that is wanted.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let timeout = Duration::from_millis(arguments.timeout_ms.max(1));
    let answer = ask(&arguments.server, timeout).map_err(|error| format!("{}: {error}", arguments.server))?;
    if !answer.starts_with("VERSION ") {
        return Err(format!("{}: answered {:?}", arguments.server, answer.trim_end()));
    }
    println!("{}", answer.trim_end());
    Ok(())
}

fn ask(server: &str, timeout: Duration) -> std::io::Result<String> {
    if server.contains('/') {
        let stream = UnixStream::connect(server)?;
        stream.set_read_timeout(Some(timeout))?;
        return converse(&stream, &stream);
    }
    let mut failure = std::io::Error::new(std::io::ErrorKind::NotFound, "no such host");
    for address in server.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                return converse(&stream, &stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn converse(mut out: impl Write, incoming: impl std::io::Read) -> std::io::Result<String> {
    out.write_all(b"version\r\n")?;
    let mut line = String::new();
    BufReader::new(incoming).read_line(&mut line)?;
    Ok(line)
}
