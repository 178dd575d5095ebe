//! A plain blocking connection: loads keys before a run and asks for a server's counters.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::LoadError;
use crate::protocol::{Answered, Protocol, Turn};
use crate::tally::Tally;

/// Bytes of requests written before their answers are read; below what the two sockets' buffers hold together
/// with the answers, so that neither side can block the other.
const BATCH_LEN_BYTES: usize = 32 * 1024;
/// More than any server has counters for: some ten kilobytes.
const COUNTERS_LEN_MAX_BYTES: usize = 1 << 20;
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
        let turn = Turn { lines: std::mem::take(&mut self.lines), get_keys: 0 };
        self.protocol.push_turn_end(&mut self.out, turn);
        self.stream.write_all(&self.out).map_err(|source| LoadError::Network { doing: "loading keys", source })?;
        self.out.clear();
        let answered = self.read_answer(turn)?;
        self.tally.count(answered);
        Ok(())
    }

    /// What the answers so far said.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn read_answer(&mut self, turn: Turn) -> Result<Answered, LoadError> {
        self.answers.clear();
        loop {
            if let Some(answered) = self.protocol.measure(&self.answers, turn, None)? {
                return Ok(answered);
            }
            self.read_more("answers were outstanding")?;
        }
    }

    /// Reads on behind what there is of the answers; `missing` says what the server owes.
    fn read_more(&mut self, missing: &'static str) -> Result<(), LoadError> {
        let start = self.answers.len();
        self.answers.resize(start + BATCH_LEN_BYTES, 0);
        let read = self.stream.read(&mut self.answers[start..]);
        let read = read.map_err(|source| LoadError::Network { doing: "reading answers", source })?;
        self.answers.truncate(start + read);
        if read == 0 { Err(LoadError::Gone(missing)) } else { Ok(()) }
    }

    /// The server's counters as (name, value) pairs.
    pub fn counters(&mut self) -> Result<Vec<(String, String)>, LoadError> {
        let failed = |source| LoadError::Network { doing: "asking for counters", source };
        self.stream.write_all(self.protocol.counters_request()?).map_err(failed)?;
        self.answers.clear();
        loop {
            if let Some(counters) = self.protocol.counters(&self.answers)? {
                return Ok(counters);
            }
            if self.answers.len() > COUNTERS_LEN_MAX_BYTES {
                return Err(LoadError::garbled(&self.answers));
            }
            self.read_more("counters were asked for")?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Kind;
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
    fn counters_are_read_from_both() {
        let servers: [(_, &[u8]); 2] = [
            (Protocol::MemcacheText, b"STAT evicted_keys 12\r\nEND\r\n"),
            (Protocol::Resp, b"$27\r\n# Server\r\nevicted_keys:12\r\n\r\n"),
        ];
        for (protocol, answer) in servers {
            let mut connection = Blocking::connect(answering(answer), protocol).expect("connects");
            assert_eq!(connection.counters().expect("counters"), [("evicted_keys".into(), "12".into())]);
        }
    }

    #[test]
    fn silent_writes_are_done_with_the_answer_behind_them() {
        let address = answering(&guira_cpwire::MISS);
        let mut connection = Blocking::connect(address, Protocol::Cp).expect("connects");
        connection.write_with(|out| Protocol::Cp.push_write(out, Kind::Set, b"1", b"v", 0)).expect("queued");
        connection.flush().expect("answered");
        assert_eq!((connection.tally().done, connection.tally().errors), (1, 0));
        assert!(connection.counters().expect_err("has none").to_string().contains("tells no counters"));
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
