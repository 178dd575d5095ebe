//! One connection sending turns of a script in order and measuring their answers.
//!
//! Always true: `answered <= sent`, both count turns since the lane began, and the bytes on the wire are exactly
//! the script's from the first turn up to `sent` (the last turn perhaps in part).

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use mio::net::TcpStream;

use crate::error::LoadError;
use crate::protocol::Answered;
use crate::script::Script;

/// Bytes read at once: large enough for several multiget answers, small enough to stay in the second-level cache.
pub const READ_LEN_BYTES: usize = 128 * 1024;

/// Sums over the answers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it all")]
pub struct Tally {
    pub turns: u64,
    pub hits: u64,
    pub misses: u64,
    pub done: u64,
    pub refused: u64,
    pub errors: u64,
    pub bytes_in: u64,
}

impl Tally {
    /// Adds one answer.
    #[inline]
    pub fn count(&mut self, answered: Answered) {
        self.turns += 1;
        self.hits += u64::from(answered.hits);
        self.misses += u64::from(answered.misses);
        self.done += u64::from(answered.done);
        self.refused += u64::from(answered.refused);
        self.errors += u64::from(answered.errors);
        self.bytes_in += answered.len_bytes as u64;
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &Self) {
        self.turns += other.turns;
        self.hits += other.hits;
        self.misses += other.misses;
        self.done += other.done;
        self.refused += other.refused;
        self.errors += other.errors;
        self.bytes_in += other.bytes_in;
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            turns: self.turns - before.turns,
            hits: self.hits - before.hits,
            misses: self.misses - before.misses,
            done: self.done - before.done,
            refused: self.refused - before.refused,
            errors: self.errors - before.errors,
            bytes_in: self.bytes_in - before.bytes_in,
        }
    }

    /// Keys asked for or written.
    pub fn keys(&self) -> u64 {
        self.hits + self.misses + self.done + self.refused + self.errors
    }
}

/// One connection and its place in the script.
pub struct Lane {
    stream: TcpStream,
    script: Arc<Script>,
    first: u64,
    sent: u64,
    sending_from: usize,
    answered: u64,
    tail: Vec<u8>,
}

impl Lane {
    /// Connects to `address`; the lane's first turn is the script's turn `first`.
    pub fn connect(address: SocketAddr, script: Arc<Script>, first: u64) -> Result<Self, LoadError> {
        let failed = |source| LoadError::Network { doing: "connecting to the server", source };
        let stream = std::net::TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_nonblocking(true).map_err(failed)?;
        let sending_from = script.start_of(first);
        let stream = TcpStream::from_std(stream);
        Ok(Self { stream, script, first, sent: 0, sending_from, answered: 0, tail: Vec::new() })
    }

    /// The socket, to be registered.
    pub fn stream_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Turns whose answers have come in.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Sends turns up to (not including) number `until`, as far as the socket takes them.
    pub fn send(&mut self, until: u64) -> Result<(), LoadError> {
        while self.sent < until {
            let (bytes, next) = self.script.slice(self.sending_from, self.first + self.sent, self.first + until);
            if !bytes.is_empty() {
                match self.stream.write(bytes) {
                    Ok(written) if written == bytes.len() => {}
                    Ok(written) => {
                        // `sent` may stay behind the cut: the next slice begins at the byte, not at the turn.
                        self.sending_from += written;
                        continue;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(source) => return Err(LoadError::Network { doing: "sending requests", source }),
                }
            }
            self.sent = next - self.first;
            self.sending_from = self.script.start_of(next);
        }
        Ok(())
    }

    /// Reads what has come in and counts complete answers, up to turn number `until`.
    pub fn receive(&mut self, buffer: &mut Vec<u8>, until: u64, tally: &mut Tally) -> Result<(), LoadError> {
        loop {
            let kept = self.tail.len();
            if buffer.len() < kept + READ_LEN_BYTES {
                buffer.resize(kept + READ_LEN_BYTES, 0);
            }
            buffer[..kept].copy_from_slice(&self.tail);
            let read = match self.stream.read(&mut buffer[kept..]) {
                Ok(0) => return Err(LoadError::Gone("answers were outstanding")),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(source) => return Err(LoadError::Network { doing: "reading answers", source }),
            };
            let drained = read < buffer.len() - kept;
            self.take_answers(&buffer[..kept + read], until, tally)?;
            if drained {
                return Ok(());
            }
        }
    }

    /// Passes turns that have no part for this shard.
    pub fn skip_empty(&mut self, until: u64) {
        while self.answered < until {
            let turn = self.script.turn(self.first + self.answered);
            if turn.lines > 0 || turn.get_keys > 0 {
                return;
            }
            self.answered += 1;
        }
    }

    fn take_answers(&mut self, mut bytes: &[u8], until: u64, tally: &mut Tally) -> Result<(), LoadError> {
        let (protocol, shape) = (self.script.protocol(), self.script.shape());
        self.skip_empty(until);
        while self.answered < until {
            let turn = self.script.turn(self.first + self.answered);
            let Some(answered) = protocol.measure(bytes, turn, shape)? else { break };
            tally.count(answered);
            bytes = &bytes[answered.len_bytes..];
            self.answered += 1;
            self.skip_empty(until);
        }
        if self.answered == until && !bytes.is_empty() {
            return Err(LoadError::garbled(bytes));
        }
        self.tail.clear();
        self.tail.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_and_subtract() {
        let mut tally = Tally::default();
        tally.count(Answered { len_bytes: 10, hits: 3, misses: 1, done: 2, refused: 1, errors: 1 });
        let before = tally;
        tally.count(Answered { len_bytes: 5, hits: 1, ..Answered::default() });
        assert_eq!(tally.since(&before).hits, 1);
        assert_eq!(before.keys(), 8);
        let mut sum = before;
        sum.add(&tally.since(&before));
        assert_eq!(sum, tally);
    }
}
