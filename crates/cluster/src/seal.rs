//! What is sealed, datagrams and parts of streams: who sent it, to whom, in which epoch, and a keyed hash that nobody without the cluster's
//! secret can make.
//!
//! ```text
//! 0        1     2       4     6        14      30
//! [version][kind][from  ][to  ][epoch  ][hash  ][body ...]        little endian
//!   1             u16     u16   u64      16 B    of a datagram up to 65,477 B
//! ```
//! The hash is keyed BLAKE3, cut to 16 bytes, over everything else. So what was sealed as one kind is never taken for another. A get that the network
//! routes is sealed for its backend, and opened by whoever answers in its stead.
//!
//! Sealed is not encrypted: a body can be read by who sees it pass. All members share the secret, so a seal tells members from others, not
//! one member from another that lies. A datagram that is sent again is as good as the first: sessions number what is in a body, and see to
//! replays. A read that is played again within its session may be answered again: to the gateway that it names, at the address that the view has for that, and
//! never to where a datagram came from.

use std::fmt;

use blake3::Hasher;
use guira_routing::NodeId;
use serde::{Deserialize, Serialize};

/// The longest payload of UDP over IPv4, in bytes: 65,535 less the headers of IP (20) and UDP (8).
pub const DATAGRAM_LEN_MAX: usize = 65_507;

/// What stands before a body, in bytes.
pub const HEADER_LEN: usize = HASHED_LEN + HASH_LEN;

/// The header's part that is hashed.
const HASHED_LEN: usize = 14;
/// 128 bits: as many tries as a key of that length would take, and short beside a body.
const HASH_LEN: usize = 16;

/// The version of the layout, that of messages included: another one is refused and not misread.
const VERSION: u8 = 6;

/// What is sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A datagram: a bundle of messages.
    Datagram = 0,
    /// A stream's first words.
    Hello = 1,
    /// What is answered to them.
    Challenge = 2,
    /// What is answered to that.
    Proof = 3,
    /// A message in a stream.
    Long = 4,
    /// A datagram that the network routes by its content: a bundle of one message.
    Get = 5,
}

/// Keeps our keys apart from whatever else is derived from the same secret.
const CONTEXT: &str = "guira-cluster 2026-11-25 seal of peers' datagrams, version 1";

/// The key that all members of a cluster share.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(blake3::Hash);

impl Secret {
    /// The key of the cluster of this name: clusters with the same secret and other names do not understand each other.
    ///
    /// A fast hash makes it, so `secret` has to be random (32 bytes of `/dev/urandom`), not a password.
    pub fn derive(cluster: &str, secret: &[u8]) -> Self {
        let mut hasher = Hasher::new_derive_key(CONTEXT);
        // With its length in front, no name runs into a secret.
        hasher.update(&(cluster.len() as u64).to_le_bytes());
        hasher.update(cluster.as_bytes());
        hasher.update(secret);
        Self(hasher.finalize())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The number of a view: who is a member, and where. Views with higher numbers replace those with lower ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// What was in a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened<'d> {
    /// Who sealed it: somebody with the secret, who says so.
    pub from: NodeId,
    /// The sender's.
    pub epoch: Epoch,
    /// A bundle of messages.
    pub body: &'d [u8],
}

/// Why something sealed is not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// It has no whole header.
    TooShort,
    /// Its layout is another one, or it is nothing of ours, or of another kind.
    Version,
    /// Another node is to have it.
    NotForMe,
    /// The hash is not that of the rest under our secret.
    Forged,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "shorter than a header",
            Self::Version => "of another version",
            Self::NotForMe => "for another node",
            Self::Forged => "not sealed with the cluster's secret",
        })
    }
}

impl std::error::Error for Rejection {}

/// Seals what a node sends, and opens what is sent to it.
#[derive(Clone, Debug)]
pub struct Sealer {
    secret: Secret,
    me: NodeId,
}

impl Sealer {
    /// For the node `me`.
    pub fn new(secret: &Secret, me: NodeId) -> Self {
        Self { secret: secret.clone(), me }
    }

    /// Whom it seals for.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// Appends to `into` a datagram with this body.
    ///
    /// # Panics
    /// The datagram is longer than [`DATAGRAM_LEN_MAX`].
    pub fn seal(&self, epoch: Epoch, to: NodeId, body: &[u8], into: &mut Vec<u8>) {
        let start = into.len();
        into.reserve(HEADER_LEN + body.len());
        into.extend_from_slice(&[0; HEADER_LEN]);
        into.extend_from_slice(body);
        self.seal_in_place(Kind::Datagram, epoch, to, &mut into[start..]);
    }

    /// Writes the header of what has room for it before its body.
    pub(crate) fn seal_in_place(&self, kind: Kind, epoch: Epoch, to: NodeId, sealed: &mut [u8]) {
        let is_long = matches!(kind, Kind::Datagram | Kind::Get) && sealed.len() > DATAGRAM_LEN_MAX;
        assert!(!is_long, "a datagram of {} bytes", sealed.len());
        let (header, body) = sealed.split_at_mut(HEADER_LEN);
        let (hashed, hash) = header.split_at_mut(HASHED_LEN);
        hashed[..2].copy_from_slice(&[VERSION, kind as u8]);
        hashed[2..4].copy_from_slice(&self.me.0.to_le_bytes());
        hashed[4..6].copy_from_slice(&to.0.to_le_bytes());
        hashed[6..].copy_from_slice(&epoch.0.to_le_bytes());
        hash.copy_from_slice(&self.hash(hashed, body).as_bytes()[..HASH_LEN]);
    }

    /// What is in a datagram to this node, which is checked in the order of what it costs. Allocates nothing.
    ///
    /// # Errors
    /// It is none, or not for this node, or not sealed with our secret.
    pub fn open<'d>(&self, datagram: &'d [u8]) -> Result<Opened<'d>, Rejection> {
        self.open_as(Kind::Datagram, datagram)
    }

    /// What is in something sealed of a kind. See [`Sealer::open`].
    pub(crate) fn open_as<'d>(&self, kind: Kind, sealed: &'d [u8]) -> Result<Opened<'d>, Rejection> {
        self.open_for(self.me, kind, sealed)
    }

    /// What is in something sealed of a kind for a node, which need not be this one.
    pub(crate) fn open_for<'d>(&self, to: NodeId, kind: Kind, sealed: &'d [u8]) -> Result<Opened<'d>, Rejection> {
        let (header, body) = sealed.split_first_chunk::<HEADER_LEN>().ok_or(Rejection::TooShort)?;
        let [v0, v1, f0, f1, t0, t1, e0, e1, e2, e3, e4, e5, e6, e7, told @ ..] = *header;
        if [v0, v1] != [VERSION, kind as u8] {
            return Err(Rejection::Version);
        }
        if NodeId(u16::from_le_bytes([t0, t1])) != to {
            return Err(Rejection::NotForMe);
        }
        let hash = self.hash(&header[..HASHED_LEN], body);
        // `blake3::Hash` compares all 32 bytes in constant time; those that were not sent are the same on both sides.
        let mut whole = *hash.as_bytes();
        whole[..HASH_LEN].copy_from_slice(&told);
        if hash != blake3::Hash::from_bytes(whole) {
            return Err(Rejection::Forged);
        }
        let from = NodeId(u16::from_le_bytes([f0, f1]));
        let epoch = Epoch(u64::from_le_bytes([e0, e1, e2, e3, e4, e5, e6, e7]));
        Ok(Opened { from, epoch, body })
    }

    fn hash(&self, hashed: &[u8], body: &[u8]) -> blake3::Hash {
        let mut hasher = Hasher::new_keyed(self.secret.0.as_bytes());
        hasher.update(hashed);
        hasher.update(body);
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(7);
    const YOU: NodeId = NodeId(0x1234);
    const BODY: &[u8] =
        b"a body of some length, which is long enough to fill more than one block of the hash, 64 bytes";

    fn secret() -> Secret {
        Secret::derive("birds", b"a secret that is random")
    }

    fn sealed(body: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::new();
        Sealer::new(&secret(), ME).seal(Epoch(3), YOU, body, &mut datagram);
        datagram
    }

    #[test]
    fn what_is_sealed_is_opened_by_the_receiver() {
        for len in [0, 1, BODY.len()] {
            let datagram = sealed(&BODY[..len]);
            assert_eq!(datagram.len(), HEADER_LEN + len);
            let opened = Sealer::new(&secret(), YOU).open(&datagram);
            assert_eq!(opened, Ok(Opened { from: ME, epoch: Epoch(3), body: &BODY[..len] }));
        }
    }

    #[test]
    fn a_body_is_read_where_it_is() {
        let datagram = sealed(BODY);
        let opened = Sealer::new(&secret(), YOU).open(&datagram).unwrap();
        assert!(std::ptr::eq(opened.body, &datagram[HEADER_LEN..]), "not copied");
    }

    #[test]
    fn datagrams_are_sealed_one_behind_the_other() {
        let mut both = sealed(b"one");
        let first_len = both.len();
        Sealer::new(&secret(), ME).seal(Epoch(3), YOU, b"two", &mut both);
        assert_eq!((&both[..first_len], &both[first_len..]), (&sealed(b"one")[..], &sealed(b"two")[..]));
    }

    #[test]
    fn the_layout_is_the_one_that_is_drawn() {
        let datagram = sealed(b"body");
        assert_eq!(datagram[..HASHED_LEN], [VERSION, 0, 7, 0, 0x34, 0x12, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(datagram[HEADER_LEN..], *b"body");
        let key = Secret::derive("birds", b"a secret that is random").0;
        let hash = blake3::keyed_hash(key.as_bytes(), &[&datagram[..HASHED_LEN], b"body"].concat());
        assert_eq!(datagram[HASHED_LEN..HEADER_LEN], hash.as_bytes()[..HASH_LEN]);
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let receiver = Sealer::new(&secret(), YOU);
        let mut datagram = sealed(BODY);
        for at in 0..datagram.len() {
            let expected = match at {
                0 | 1 => Rejection::Version,
                4 | 5 => Rejection::NotForMe,
                _ => Rejection::Forged,
            };
            for bit in 0..8 {
                datagram[at] ^= 1 << bit;
                assert_eq!(receiver.open(&datagram), Err(expected), "bit {bit} of byte {at}");
                datagram[at] ^= 1 << bit;
            }
        }
        assert!(receiver.open(&datagram).is_ok());
    }

    #[test]
    fn a_datagram_of_another_length_is_noticed() {
        let receiver = Sealer::new(&secret(), YOU);
        let mut datagram = sealed(BODY);
        for len in 0..datagram.len() {
            let expected = if len < HEADER_LEN { Rejection::TooShort } else { Rejection::Forged };
            assert_eq!(receiver.open(&datagram[..len]), Err(expected), "cut to {len}");
        }
        datagram.push(0);
        assert_eq!(receiver.open(&datagram), Err(Rejection::Forged));
    }

    #[test]
    fn other_secrets_clusters_and_receivers_open_nothing() {
        let datagram = sealed(BODY);
        for (cluster, secret) in
            [("birds", "another secret"), ("bees", "a secret that is random"), ("bird", "sa secret")]
        {
            let secret = Secret::derive(cluster, secret.as_bytes());
            assert_eq!(Sealer::new(&secret, YOU).open(&datagram), Err(Rejection::Forged));
        }
        assert_eq!(Sealer::new(&secret(), NodeId(8)).open(&datagram), Err(Rejection::NotForMe));
    }

    #[test]
    fn another_senders_seal_is_another_one() {
        let mut theirs = Vec::new();
        Sealer::new(&secret(), NodeId(8)).seal(Epoch(3), YOU, BODY, &mut theirs);
        let mut mine = sealed(BODY);
        mine[2..4].copy_from_slice(&theirs[2..4]);
        assert_eq!(Sealer::new(&secret(), YOU).open(&mine), Err(Rejection::Forged));
    }

    #[test]
    fn what_is_of_one_kind_is_not_of_another() {
        let kinds = [Kind::Datagram, Kind::Hello, Kind::Challenge, Kind::Proof, Kind::Long, Kind::Get];
        let (sender, receiver) = (Sealer::new(&secret(), ME), Sealer::new(&secret(), YOU));
        for kind in kinds {
            let mut sealed = [&[0; HEADER_LEN], BODY].concat();
            sender.seal_in_place(kind, Epoch(3), YOU, &mut sealed);
            for other in kinds {
                let expected = if other == kind { Ok(BODY) } else { Err(Rejection::Version) };
                assert_eq!(receiver.open_as(other, &sealed).map(|opened| opened.body), expected);
                sealed[1] = other as u8;
                let expected = if other == kind { Ok(BODY) } else { Err(Rejection::Forged) };
                assert_eq!(receiver.open_as(other, &sealed).map(|opened| opened.body), expected);
                sealed[1] = kind as u8;
            }
        }
    }

    #[test]
    fn who_answers_for_another_opens_what_is_sealed_for_that_one() {
        let mut sealed = [&[0; HEADER_LEN], BODY].concat();
        Sealer::new(&secret(), ME).seal_in_place(Kind::Get, Epoch(3), YOU, &mut sealed);
        let somebody = Sealer::new(&secret(), NodeId(8));
        assert_eq!(somebody.open_for(YOU, Kind::Get, &sealed), Ok(Opened { from: ME, epoch: Epoch(3), body: BODY }));
        assert_eq!(somebody.open_for(ME, Kind::Get, &sealed), Err(Rejection::NotForMe));
        assert_eq!(somebody.open_as(Kind::Get, &sealed), Err(Rejection::NotForMe));
    }

    #[test]
    fn no_secret_is_printed() {
        let secret = secret();
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert_eq!(format!("{:?}", Sealer::new(&secret, ME)), "Sealer { secret: Secret(..), me: NodeId(7) }");
    }
}
