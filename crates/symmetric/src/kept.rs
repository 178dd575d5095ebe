//! What the coordinator keeps on disk, as bytes: who is there, as it was given out last.
//!
//! ```text
//! "guira views 2\n"   CRC-32 of what follows, little endian   the view and the rest, by postcard
//! ```
//! Always true: what was written is read back, or is no such thing.

use std::{error::Error, fmt};

use crate::Given;

const BEGINS: &[u8] = b"guira views 2\n";

/// Bytes that are no views that were kept: cut off, damaged, or something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotKept;

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not what a coordinator keeps, or damaged: remove it once no node runs that has heard of that coordinator, and all begins anew")
    }
}

impl Error for NotKept {}

impl Given {
    /// As bytes.
    ///
    /// # Panics
    /// There is no memory.
    pub fn encode(&self) -> Vec<u8> {
        let body = postcard::to_stdvec(self).expect("nothing in it cannot be written");
        [BEGINS, &crc32fast::hash(&body).to_le_bytes(), &body].concat()
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`NotKept`].
    pub fn decode(bytes: &[u8]) -> Result<Self, NotKept> {
        let rest = bytes.strip_prefix(BEGINS).ok_or(NotKept)?;
        let (sum, body) = rest.split_first_chunk().ok_or(NotKept)?;
        if crc32fast::hash(body) != u32::from_le_bytes(*sum) {
            return Err(NotKept);
        }
        match postcard::take_from_bytes(body) {
            Ok((given, [])) => Ok(given),
            _ => Err(NotKept),
        }
    }
}

#[cfg(test)]
mod tests {
    use guira_cluster::Incarnation;
    use guira_consistency::{Epoch, View, Writer};
    use guira_routing::NodeId;

    use super::*;

    #[test]
    fn what_is_kept_is_read_back_or_is_not_that() {
        let given = Given {
            nodes: vec![NodeId(1), NodeId(2)],
            view: View {
                epoch: Epoch(7),
                members: [(NodeId(1), Writer(3))].into(),
                homes: vec![NodeId(1), NodeId(1)],
                homes_since: vec![Epoch(1), Epoch(7)],
                homes_before: vec![Epoch(1), Epoch(1)],
            },
            lives: [(NodeId(1), Incarnation(1 << 60))].into(),
            last_writer: 3,
            began: Epoch(1),
            founders: [NodeId(1)].into(),
            whole: [NodeId(1)].into(),
            kept_since: vec![Epoch(1), Epoch(7)],
            lease: guira_item::Span::from_ms(700),
        };
        let bytes = given.encode();
        assert_eq!(Given::decode(&bytes), Ok(given));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert_eq!(Given::decode(&damaged), Err(NotKept), "a bit of byte {at}");
            assert_eq!(Given::decode(&bytes[..at]), Err(NotKept), "cut off at {at}");
        }
        assert_eq!(Given::decode(&[&bytes[..], b"\0"].concat()), Err(NotKept));
    }
}
