//! The floor: a server that answers every request line with the same bytes, on one thread with epoll.
//!
//! What it costs is what the kernel's TCP, one read and one write a request cost; no server with the same loop can
//! be cheaper. It keeps no data and understands nothing: a line break is a request.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use clap::Args;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::error::BenchError;

const LISTENER: Token = Token(usize::MAX);
/// Answer bytes that may wait for a slow reader before its connection is closed.
const WAITING_MAX_BYTES: usize = 1 << 20;

/// `guira bench echo-server`: hidden, started by the benchmark itself.
#[derive(Clone, Debug, Args)]
pub struct EchoArgs {
    /// Port on the loopback address
    #[arg(long)]
    pub port: u16,
    /// Bytes in an answer
    #[arg(long, default_value_t = 68)]
    pub answer_bytes: usize,
}

/// Serves until it is killed.
pub fn echo_server_main(args: &EchoArgs) -> Result<(), BenchError> {
    let failed = |source| BenchError::System { doing: "serving as echo", source };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let listener = TcpListener::bind(address).map_err(failed)?;
    serve(listener, args.answer_bytes, &mut || true).map_err(failed)
}

/// An answer of `len_bytes`: hits of 16-byte keys and 32-byte values, as many as fit, then their end. The generator
/// takes 68 bytes for one hit and 6305 for a hundred.
fn answer(len_bytes: usize) -> Vec<u8> {
    const HIT: &[u8] = b"VALUE 0000000000000000 0 32\r\n................................\r\n";
    let mut answer: Vec<u8> = HIT.iter().copied().cycle().take(len_bytes.saturating_sub(5)).collect();
    answer.extend_from_slice(b"END\r\n");
    answer
}

fn serve(mut listener: TcpListener, answer_bytes: usize, go_on: &mut dyn FnMut() -> bool) -> std::io::Result<()> {
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let answer = answer(answer_bytes);
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = Events::with_capacity(1024);
    let mut buffer = vec![0; 64 * 1024];
    while go_on() {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        }
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    let token = Token(connections.len());
                    poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
                    connections.push(Some(Connection { stream, waiting: Vec::new() }));
                }
                continue;
            }
            let slot = &mut connections[event.token().0];
            if slot.as_mut().is_some_and(|connection| !connection.turn(&mut buffer, &answer)) {
                *slot = None;
            }
        }
    }
    Ok(())
}

struct Connection {
    stream: TcpStream,
    waiting: Vec<u8>,
}

impl Connection {
    /// Answers what has come in; false once the connection is over.
    fn turn(&mut self, buffer: &mut [u8], answer: &[u8]) -> bool {
        loop {
            if !self.flush() {
                return false;
            }
            let read = match self.stream.read(buffer) {
                Ok(0) => return false,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            };
            for _ in buffer[..read].iter().filter(|byte| **byte == b'\n') {
                self.waiting.extend_from_slice(answer);
            }
            if self.waiting.len() > WAITING_MAX_BYTES {
                return false;
            }
            if read < buffer.len() {
                return self.flush();
            }
        }
    }

    fn flush(&mut self) -> bool {
        let mut written = 0;
        while written < self.waiting.len() {
            match self.stream.write(&self.waiting[written..]) {
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        self.waiting.drain(..written);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guira_loadgen::memcache_text;
    use guira_loadgen::protocol::{FixedShape, Turn};

    #[test]
    fn every_line_gets_an_answer_the_generator_takes_for_a_hit() {
        let listener = TcpListener::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || serve(listener, 68, &mut || true));
        let mut client = std::net::TcpStream::connect(address).expect("connects");
        client.write_all(b"get a\r\nget b\r\n").expect("sends");
        let mut bytes = [0; 136];
        client.read_exact(&mut bytes).expect("two answers");
        let shape = FixedShape { key_len_bytes: 16, value_len_bytes: 32 };
        assert_eq!(memcache_text::hit_len_bytes(shape) + 5, 68);
        let turn = Turn { lines: 0, get_keys: 1 };
        let answered = memcache_text::measure(&bytes, turn, Some(shape)).expect("well formed").expect("complete");
        assert_eq!((answered.hits, answered.len_bytes), (1, 68));
    }
}
