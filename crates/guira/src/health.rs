//! `guira health`: exit status for probes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The longest answer that is read, in bytes: a version is some ten.
const ANSWER_LEN_MAX: u64 = 1024;

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

fn converse(mut out: impl Write, incoming: impl Read) -> std::io::Result<String> {
    out.write_all(b"version\r\n")?;
    let mut line = String::new();
    BufReader::new(incoming.take(ANSWER_LEN_MAX)).read_line(&mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends without ever ending its line was read until memory was full.
    #[test]
    fn an_answer_without_an_end_is_not_read_for_ever() {
        let line = converse(Vec::new(), std::io::repeat(b'x')).expect("an answer");
        assert_eq!(line.len() as u64, ANSWER_LEN_MAX);
    }
}
