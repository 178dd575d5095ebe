//! What an acceptor makes of the bytes of a stream, in whatever pieces they come. Pure.
//!
//! ```text
//! [hello][proof] [len][sealed: header, message] [len][sealed: header, message] ...        len: u32, little endian, of what is sealed
//! ```
//! Always true: no byte is asked for beyond the step that is open; memory grows with what has come, never with a length that was announced;
//! a message comes from the member that has greeted.

use std::{fmt, mem};

use guira_routing::NodeId;

use super::greeting::{GREETING_LEN, Greeting, NoGreeting, Nonce, Said, hear, say};
use crate::seal::{Epoch, HEADER_LEN, Kind, Rejection, Sealer};

/// The longest message that a stream carries, in bytes: an item of 16 MiB and what is said about it.
pub const LONG_MESSAGE_LEN_MAX: usize = (16 << 20) + (64 << 10);

/// What a length takes.
const LEN_LEN: usize = size_of::<u32>();

const _: () = assert!(HEADER_LEN + LONG_MESSAGE_LEN_MAX <= u32::MAX as usize);

/// A message as it stands in a stream: its length, then what is sealed.
///
/// # Panics
/// It is longer than [`LONG_MESSAGE_LEN_MAX`].
pub fn long_frame(sealer: &Sealer, epoch: Epoch, to: NodeId, message: &[u8]) -> Vec<u8> {
    assert!(message.len() <= LONG_MESSAGE_LEN_MAX, "a message of {} bytes", message.len());
    let sealed_len = HEADER_LEN + message.len();
    let mut frame = Vec::with_capacity(LEN_LEN + sealed_len);
    frame.extend_from_slice(&(sealed_len as u32).to_le_bytes());
    frame.extend_from_slice(&[0; HEADER_LEN]);
    frame.extend_from_slice(message);
    sealer.seal_in_place(Kind::Long, epoch, to, &mut frame[LEN_LEN..]);
    frame
}

/// Where a frame's seal is.
pub(super) fn seal_of(frame: &[u8]) -> &[u8] {
    &frame[..LEN_LEN + HEADER_LEN]
}

/// A message that came through a stream.
#[derive(PartialEq, Eq, Debug)]
pub struct Long {
    /// Who has sent it.
    pub from: NodeId,
    /// The sender's.
    pub epoch: Epoch,
    sealed: Vec<u8>,
}

impl Long {
    /// Its bytes.
    pub fn message(&self) -> &[u8] {
        &self.sealed[HEADER_LEN..]
    }
}

/// What the bytes that came have brought.
#[derive(PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing yet.
    More,
    /// Somebody with the secret has said hello, now or some time ago: the challenge is what is answered.
    Hello {
        /// Who, as it says.
        from: NodeId,
        /// The sender's.
        epoch: Epoch,
        /// What is answered, if such a stream is wanted.
        challenge: Greeting,
    },
    /// It is who it says, and it is there now.
    Greeted {
        /// Who.
        from: NodeId,
    },
    /// A message.
    Message(Long),
}

/// Why a stream cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamError {
    /// It does not begin as one.
    Greeting(NoGreeting),
    /// What was to be a message is not sealed as one for us.
    Rejected(Rejection),
    /// A message of another member than the one that has greeted.
    OtherSender,
    /// A length that no message has.
    Length(u32),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Greeting(NoGreeting::Rejected(rejection)) => write!(f, "no greeting: {rejection}"),
            Self::Greeting(NoGreeting::NotAnAnswer) => f.write_str("a greeting that answers another one"),
            Self::Rejected(rejection) => write!(f, "{rejection}"),
            Self::OtherSender => f.write_str("a message of another member"),
            Self::Length(len) => write!(f, "no message takes {len} bytes"),
        }
    }
}

impl std::error::Error for StreamError {}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Hello,
    Proof { from: NodeId, theirs: Nonce },
    Length { from: NodeId },
    Message { from: NodeId, len: usize },
}

/// The acceptor's side of one stream.
#[derive(Debug)]
pub struct StreamReader {
    nonce: Nonce,
    stage: Stage,
    /// What has come of the step that is open.
    came: Vec<u8>,
}

impl StreamReader {
    /// Of a stream that has just come, with a nonce that was never used.
    pub fn new(nonce: Nonce) -> Self {
        Self { nonce, stage: Stage::Hello, came: Vec::new() }
    }

    fn step_len(&self) -> usize {
        match self.stage {
            Stage::Hello | Stage::Proof { .. } => GREETING_LEN,
            Stage::Length { .. } => LEN_LEN,
            Stage::Message { len, .. } => len,
        }
    }

    /// Bytes that are still missing to the next step: one at least.
    pub fn wanted(&self) -> usize {
        self.step_len() - self.came.len()
    }

    /// How long the message is that is on its way, its header included, from when its length is known.
    pub fn announced(&self) -> Option<usize> {
        if let Stage::Message { len, .. } = self.stage { Some(len) } else { None }
    }

    /// Bytes of memory that are kept for it.
    pub fn kept_len(&self) -> usize {
        self.came.capacity()
    }

    /// Takes bytes, no more than are [`wanted`](Self::wanted).
    ///
    /// # Errors
    /// [`StreamError`], after which nothing more may be taken.
    ///
    /// # Panics
    /// They are more.
    pub fn take(&mut self, sealer: &Sealer, bytes: &[u8]) -> Result<Step, StreamError> {
        let wanted = self.wanted();
        assert!(bytes.len() <= wanted, "{} bytes where {wanted} are wanted", bytes.len());
        if self.came.capacity() - self.came.len() < bytes.len() {
            // Twice as much as there is, and never more than there will be.
            self.came.reserve_exact(self.came.len().max(bytes.len()).min(wanted));
        }
        self.came.extend_from_slice(bytes);
        if self.came.len() < self.step_len() {
            return Ok(Step::More);
        }
        let came = mem::take(&mut self.came);
        self.go_on(sealer, came)
    }

    /// All of a step is there.
    fn go_on(&mut self, sealer: &Sealer, came: Vec<u8>) -> Result<Step, StreamError> {
        match self.stage {
            Stage::Hello => {
                let Said { from, epoch, first: theirs, .. } =
                    hear(sealer, Kind::Hello, &came).map_err(StreamError::Greeting)?;
                self.stage = Stage::Proof { from, theirs };
                let challenge = say(sealer, Kind::Challenge, epoch, from, theirs, self.nonce);
                Ok(Step::Hello { from, epoch, challenge })
            }
            Stage::Proof { from, theirs } => {
                let said = hear(sealer, Kind::Proof, &came).map_err(StreamError::Greeting)?;
                if (said.from, said.first, said.second) != (from, self.nonce, theirs) {
                    return Err(StreamError::Greeting(NoGreeting::NotAnAnswer));
                }
                self.stage = Stage::Length { from };
                Ok(Step::Greeted { from })
            }
            Stage::Length { from } => {
                let len = u32::from_le_bytes(came.try_into().expect("as many bytes as a length has"));
                if !(HEADER_LEN..=HEADER_LEN + LONG_MESSAGE_LEN_MAX).contains(&(len as usize)) {
                    return Err(StreamError::Length(len));
                }
                self.stage = Stage::Message { from, len: len as usize };
                Ok(Step::More)
            }
            Stage::Message { from, .. } => {
                let opened = sealer.open_as(Kind::Long, &came).map_err(StreamError::Rejected)?;
                if opened.from != from {
                    return Err(StreamError::OtherSender);
                }
                let epoch = opened.epoch;
                self.stage = Stage::Length { from };
                Ok(Step::Message(Long { from, epoch, sealed: came }))
            }
        }
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
