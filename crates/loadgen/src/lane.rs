//! One connection sending turns of a script in order and measuring their answers.
//!
//! Always true: `answered <= sent`, both count turns since the lane began, and the bytes on the wire are exactly
//! the script's from the first turn up to `sent` (the last turn perhaps in part).

use std::net::SocketAddr;
use std::sync::Arc;

use mio::Poll;

use crate::connection::Connection;
use crate::error::LoadError;
use crate::script::Script;
use crate::tally::Tally;

/// One connection and its place in the script.
pub struct Lane {
    connection: Connection,
    script: Arc<Script>,
    first: u64,
    sent: u64,
    sending_from: usize,
    answered: u64,
}

impl Lane {
    /// Connects to `address`; the lane's first turn is the script's turn `first`.
    pub fn connect(address: SocketAddr, script: Arc<Script>, first: u64) -> Result<Self, LoadError> {
        let connection = Connection::connect(address)?;
        let sending_from = script.start_of(first);
        Ok(Self { connection, script, first, sent: 0, sending_from, answered: 0 })
    }

    /// Asks `poll` for the connection's events, under the number `token`.
    pub fn register(&mut self, poll: &Poll, token: usize) -> Result<(), LoadError> {
        self.connection.register(poll, token)
    }

    /// Turns whose answers have come in.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Sends turns up to (not including) number `until`, as far as the socket takes them.
    pub fn send(&mut self, until: u64) -> Result<(), LoadError> {
        while self.sent < until {
            let (bytes, next) = self.script.slice(self.sending_from, self.first + self.sent, self.first + until);
            let written = self.connection.write(bytes)?;
            if written < bytes.len() {
                // `sent` may stay behind the cut: the next slice begins at the byte, not at the turn.
                self.sending_from += written;
                return Ok(());
            }
            self.sent = next - self.first;
            self.sending_from = self.script.start_of(next);
        }
        Ok(())
    }

    /// Reads what has come in and counts complete answers, up to turn number `until`.
    pub fn receive(&mut self, buffer: &mut Vec<u8>, until: u64, tally: &mut Tally) -> Result<(), LoadError> {
        while let Some(filled) = self.connection.read(buffer)? {
            let left = self.take_answers(&buffer[..filled.len], until, tally)?;
            self.connection.keep(left);
            if filled.is_last {
                break;
            }
        }
        Ok(())
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

    /// Counts the complete answers in `bytes`; returns what is left of them.
    fn take_answers<'b>(&mut self, mut bytes: &'b [u8], until: u64, tally: &mut Tally) -> Result<&'b [u8], LoadError> {
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
        Ok(bytes)
    }
}
