//! How a stream begins: both ends show that they are members now, not only that somebody was once.
//!
//! ```text
//! connector                                          acceptor
//!    |--- hello:     my nonce, and room for another ---->|
//!    |<-- challenge: your nonce, and mine ---------------|
//!    |--- proof:     your nonce, and mine -------------->|
//! ```
//! Each is sealed, and of one length, which is known before it comes.
//!
//! Always true: who cannot seal is answered nothing; who sends a hello again that was recorded is answered no more bytes than it has sent, and
//! cannot answer those, because no nonce is used twice.

use guira_routing::NodeId;

use crate::seal::{Epoch, HEADER_LEN, Kind, Opened, Rejection, Sealer};

const NONCE_LEN: usize = 16;

/// A part of a greeting, in bytes.
pub const GREETING_LEN: usize = HEADER_LEN + 2 * NONCE_LEN;

/// A part of a greeting, sealed.
pub type Greeting = [u8; GREETING_LEN];

/// A number that is used once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonce(pub [u8; NONCE_LEN]);

/// What a hello has in the place of the other nonce.
const NONE: Nonce = Nonce([0; NONCE_LEN]);

/// Nonces, each once in this life; those of other lives are others, because the seed is drawn.
#[derive(Debug)]
pub(crate) struct Nonces {
    seed: [u8; 32],
    count: u64,
}

impl Nonces {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { seed, count: 0 }
    }

    pub(crate) fn next(&mut self) -> Nonce {
        self.count += 1;
        let hash = blake3::keyed_hash(&self.seed, &self.count.to_le_bytes());
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&hash.as_bytes()[..NONCE_LEN]);
        Nonce(nonce)
    }
}

/// Why a greeting is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoGreeting {
    /// It was not sealed as one for us.
    Rejected(Rejection),
    /// It does not answer what was said.
    NotAnAnswer,
}

/// What was said in a greeting.
pub(super) struct Said {
    pub(super) from: NodeId,
    pub(super) epoch: Epoch,
    pub(super) first: Nonce,
    pub(super) second: Nonce,
}

pub(super) fn say(sealer: &Sealer, kind: Kind, epoch: Epoch, to: NodeId, first: Nonce, second: Nonce) -> Greeting {
    let mut greeting = [0; GREETING_LEN];
    greeting[HEADER_LEN..][..NONCE_LEN].copy_from_slice(&first.0);
    greeting[HEADER_LEN + NONCE_LEN..].copy_from_slice(&second.0);
    sealer.seal_in_place(kind, epoch, to, &mut greeting);
    greeting
}

pub(super) fn hear(sealer: &Sealer, kind: Kind, greeting: &[u8]) -> Result<Said, NoGreeting> {
    let Opened { from, epoch, body } = sealer.open_as(kind, greeting).map_err(NoGreeting::Rejected)?;
    let nonces =
        body.split_first_chunk().and_then(|(first, rest)| Some((*first, <[u8; NONCE_LEN]>::try_from(rest).ok()?)));
    let (first, second) = nonces.ok_or(NoGreeting::NotAnAnswer)?;
    Ok(Said { from, epoch, first: Nonce(first), second: Nonce(second) })
}

/// The end that has opened a stream, until it has shown who it is.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    to: NodeId,
    epoch: Epoch,
    nonce: Nonce,
}

impl Caller {
    /// Calls a member, with a nonce that was never used.
    pub fn new(to: NodeId, epoch: Epoch, nonce: Nonce) -> Self {
        Self { to, epoch, nonce }
    }

    /// What is said first.
    pub fn hello(&self, sealer: &Sealer) -> Greeting {
        say(sealer, Kind::Hello, self.epoch, self.to, self.nonce, NONE)
    }

    /// What is said to a challenge.
    ///
    /// # Errors
    /// It is none of the member's that was called, or is another call's.
    pub fn proof(&self, sealer: &Sealer, challenge: &Greeting) -> Result<Greeting, NoGreeting> {
        let Said { from, first, second, .. } = hear(sealer, Kind::Challenge, challenge)?;
        if from != self.to || first != self.nonce {
            return Err(NoGreeting::NotAnAnswer);
        }
        Ok(say(sealer, Kind::Proof, self.epoch, self.to, second, self.nonce))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::Secret;

    #[test]
    fn no_nonce_comes_twice() {
        let (mut one, mut other) = (Nonces::new([1; 32]), Nonces::new([2; 32]));
        let all: Vec<Nonce> = (0..100).flat_map(|_| [one.next(), other.next()]).collect();
        assert!(all.iter().enumerate().all(|(at, nonce)| !all[..at].contains(nonce)));
    }

    #[test]
    fn a_challenge_of_another_call_is_not_answered() {
        let secret = Secret::derive("test", b"secret");
        let (me, you) = (Sealer::new(&secret, NodeId(1)), Sealer::new(&secret, NodeId(2)));
        let caller = Caller::new(NodeId(2), Epoch(1), Nonce([1; 16]));
        let challenge = |from: &Sealer, kind, first| say(from, kind, Epoch(1), NodeId(1), first, Nonce([9; 16]));
        assert!(caller.proof(&me, &challenge(&you, Kind::Challenge, Nonce([1; 16]))).is_ok());
        let other_call = challenge(&you, Kind::Challenge, Nonce([2; 16]));
        assert_eq!(caller.proof(&me, &other_call), Err(NoGreeting::NotAnAnswer));
        let other_member = challenge(&Sealer::new(&secret, NodeId(3)), Kind::Challenge, Nonce([1; 16]));
        assert_eq!(caller.proof(&me, &other_member), Err(NoGreeting::NotAnAnswer));
        let other_kind = challenge(&you, Kind::Hello, Nonce([1; 16]));
        assert_eq!(caller.proof(&me, &other_kind), Err(NoGreeting::Rejected(Rejection::Version)));
    }
}
