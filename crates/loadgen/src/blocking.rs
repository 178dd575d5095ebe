//! A plain blocking connection: loads keys before a run and asks for a server's counters.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::LoadError;
use crate::protocol::{Protocol, Turn};
use crate::tally::Tally;

/// Bytes of requests written before their answers are read; below what the two sockets' buffers hold together
/// with the answers, so that neither side can block the other.
const BATCH_LEN_BYTES: usize = 32 * 1024;
/// Silence after which a server counts as gone.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A blocking connection to a server.
pub struct Blocking {
    stream: TcpStream,
    protocol: Protocol,
    out: Vec<u8>,
    lines: u32,
    answers: Vec<u8>,
    tally: Tally,
}

impl Blocking {
    /// Connects.
    pub fn connect(address: SocketAddr, protocol: Protocol) -> Result<Self, LoadError> {
        let failed = |source| LoadError::Network { doing: "connecting to the server", source };
        let stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        let (out, answers) = (Vec::with_capacity(BATCH_LEN_BYTES * 2), Vec::new());
        Ok(Self { stream, protocol, out, lines: 0, answers, tally: Tally::default() })
    }

    /// Queues one write that `write` appends; sends the queue once it is long enough.
    pub fn write_with(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), LoadError>) -> Result<(), LoadError> {
        write(&mut self.out)?;
        self.lines += 1;
        if self.out.len() >= BATCH_LEN_BYTES { self.flush() } else { Ok(()) }
    }

    /// Sends what is queued and reads its answers.
    pub fn flush(&mut self) -> Result<(), LoadError> {
        self.stream.write_all(&self.out).map_err(|source| LoadError::Network { doing: "loading keys", source })?;
        self.out.clear();
        let turn = Turn { lines: std::mem::take(&mut self.lines), get_keys: 0 };
        let answered = self.read_answer(turn)?;
        self.tally.count(answered);
        Ok(())
    }

    /// What the answers so far said.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn read_answer(&mut self, turn: Turn) -> Result<crate::protocol::Answered, LoadError> {
        self.answers.clear();
        loop {
            if let Some(answered) = self.protocol.measure(&self.answers, turn, None)? {
                return Ok(answered);
            }
            let start = self.answers.len();
            self.answers.resize(start + BATCH_LEN_BYTES, 0);
            let read = self.stream.read(&mut self.answers[start..]);
            let read = read.map_err(|source| LoadError::Network { doing: "reading answers", source })?;
            self.answers.truncate(start + read);
            if read == 0 {
                return Err(LoadError::Gone("answers were outstanding"));
            }
        }
    }

    /// The server's counters as (name, value) pairs: `stats` of memcached, `INFO` of redis.
    pub fn counters(&mut self) -> Result<Vec<(String, String)>, LoadError> {
        let failed = |source| LoadError::Network { doing: "asking for counters", source };
        let request: &[u8] = match self.protocol {
            Protocol::MemcacheText => b"stats\r\n",
            Protocol::Resp => b"*1\r\n$4\r\nINFO\r\n",
        };
        self.stream.write_all(request).map_err(failed)?;
        let mut reader = BufReader::new(&mut self.stream);
        let mut counters = Vec::new();
        let mut line = String::new();
        let mut left = None;
        loop {
            line.clear();
            let read = reader.read_line(&mut line).map_err(failed)?;
            if read == 0 {
                return Err(LoadError::Gone("counters were asked for"));
            }
            let text = line.trim_end();
            match (self.protocol, left) {
                (Protocol::MemcacheText, _) if text == "END" => return Ok(counters),
                (Protocol::MemcacheText, _) => {
                    let mut words = text.splitn(3, ' ').skip(1);
                    if let (Some(name), Some(value)) = (words.next(), words.next()) {
                        counters.push((name.to_string(), value.to_string()));
                    }
                }
                (Protocol::Resp, None) => {
                    let bad = || LoadError::garbled(text.as_bytes());
                    left = Some(text.strip_prefix('$').and_then(|len| len.parse::<usize>().ok()).ok_or_else(bad)? + 2);
                }
                (Protocol::Resp, Some(bytes)) => {
                    if let Some((name, value)) = text.split_once(':') {
                        counters.push((name.to_string(), value.to_string()));
                    }
                    let rest = bytes.saturating_sub(read);
                    if rest == 0 {
                        return Ok(counters);
                    }
                    left = Some(rest);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answering(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer);
        });
        address
    }

    #[test]
    fn memcached_counters_are_read() {
        let address = answering(b"STAT pid 1\r\nSTAT version 1.6.18 x\r\nEND\r\n");
        let mut connection = Blocking::connect(address, Protocol::MemcacheText).expect("connects");
        let counters = connection.counters().expect("counters");
        assert_eq!(counters, [("pid".into(), "1".into()), ("version".into(), "1.6.18 x".into())]);
    }

    #[test]
    fn redis_counters_are_read() {
        let address = answering(b"$29\r\n# Server\r\nevicted_keys:12\r\nx:\r\n");
        let mut connection = Blocking::connect(address, Protocol::Resp).expect("connects");
        let counters = connection.counters().expect("counters");
        assert_eq!(counters[0], ("evicted_keys".into(), "12".into()));
    }

    #[test]
    fn refused_writes_are_counted() {
        let address = answering(b"STORED\r\nSERVER_ERROR out of memory storing object\r\n");
        let mut connection = Blocking::connect(address, Protocol::MemcacheText).expect("connects");
        for _ in 0..2 {
            connection
                .write_with(|out| {
                    out.extend_from_slice(b"set k 0 0 1\r\nv\r\n");
                    Ok(())
                })
                .expect("queued");
        }
        connection.flush().expect("answered");
        assert_eq!((connection.tally().done, connection.tally().errors), (1, 1));
    }
}
