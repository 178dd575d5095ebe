//! The protocols the generator speaks, behind one face: requests out, answers measured.
//!
//! Always true: an answer is measured (its length and what it says) only once it is complete, and no value is
//! parsed for the clock's sake; reading values is a second, separate pass for those who want them.

use serde::{Deserialize, Serialize};

use crate::error::LoadError;
use crate::mix::Kind;
use crate::{cp, memcache_text, resp};

/// A client protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// memcached's classic text protocol.
    MemcacheText,
    /// Redis' RESP2, get and set only.
    Resp,
    /// CPSERVER's, lookup and insert only.
    Cp,
}

/// What answers a turn gets: `lines` one-line answers (none where writes are silent), then one get answer if `get_keys` is not 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Writes, whose one-line answers come first.
    pub lines: u32,
    /// Keys of the get request; 0 for none.
    pub get_keys: u32,
}

/// The one length of keys and values where there is only one: answers then have a known stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedShape {
    /// Key length, bytes.
    pub key_len_bytes: u32,
    /// Value length, bytes.
    pub value_len_bytes: u32,
}

/// What a complete answer said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Length of the answer, bytes.
    pub len_bytes: usize,
    /// Keys that were found.
    pub hits: u32,
    /// Keys that were not.
    pub misses: u32,
    /// Writes that did what they were asked.
    pub done: u32,
    /// Writes refused for what the key held (NOT_STORED, EXISTS, NOT_FOUND).
    pub refused: u32,
    /// Error lines.
    pub errors: u32,
}

/// Several keys in one buffer.
#[derive(Clone, Debug, Default)]
pub struct KeyList {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl KeyList {
    /// These keys.
    #[cfg(test)]
    pub(crate) fn of(names: &[&str]) -> Self {
        let mut list = Self::default();
        names.iter().for_each(|name| list.push_with(|out| out.extend_from_slice(name.as_bytes())));
        list
    }

    /// Forgets all keys, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds the key that `write` appends.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Key number `index`.
    pub fn key(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start as usize..self.ends[index] as usize]
    }

    /// All keys in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.key(index))
    }
}

impl Protocol {
    /// Appends one get of all `keys` (at least one).
    pub fn push_get(self, out: &mut Vec<u8>, keys: &KeyList, with_cas: bool) {
        match self {
            Self::MemcacheText => memcache_text::push_get(out, keys, with_cas),
            Self::Resp => resp::push_get(out, keys),
            Self::Cp => cp::push_get(out, keys),
        }
    }

    /// Appends what the server needs behind `turn` so that it has an answer.
    pub fn push_turn_end(self, out: &mut Vec<u8>, turn: Turn) {
        match self {
            Self::MemcacheText | Self::Resp => {}
            Self::Cp => cp::push_turn_end(out, turn),
        }
    }

    /// Appends one write. `exptime` is in the protocol's own terms: seconds, or unix time beyond 30 days.
    pub fn push_write(
        self,
        out: &mut Vec<u8>,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        exptime: u64,
    ) -> Result<(), LoadError> {
        match self {
            Self::MemcacheText => memcache_text::push_write(out, kind, key, value, exptime),
            Self::Resp => return resp::push_write(out, kind, key, value, exptime),
            Self::Cp => return cp::push_write(out, kind, key, value, exptime),
        }
        Ok(())
    }

    /// Measures the answer to `turn` at the start of `bytes`; `None` if it is not complete yet.
    #[inline]
    pub fn measure(self, bytes: &[u8], turn: Turn, shape: Option<FixedShape>) -> Result<Option<Answered>, LoadError> {
        match self {
            Self::MemcacheText => memcache_text::measure(bytes, turn, shape),
            Self::Resp => resp::measure(bytes, turn),
            Self::Cp => cp::measure(bytes, turn, shape),
        }
    }

    /// The request for the server's counters: `stats` of memcached, `INFO` of redis.
    ///
    /// # Errors
    /// The protocol has none.
    pub fn counters_request(self) -> Result<&'static [u8], LoadError> {
        match self {
            Self::MemcacheText => Ok(b"stats\r\n"),
            Self::Resp => Ok(b"*1\r\n$4\r\nINFO\r\n"),
            Self::Cp => Err(no_counters()),
        }
    }

    /// Reads the answer to it as (name, value) pairs; `None` if it is not complete yet.
    pub fn counters(self, bytes: &[u8]) -> Result<Option<Vec<(String, String)>>, LoadError> {
        match self {
            Self::MemcacheText => memcache_text::counters(bytes),
            Self::Resp => resp::counters(bytes),
            Self::Cp => Err(no_counters()),
        }
    }

    /// Calls `found` with index and value of every key found, in order, in the complete answer `bytes` to a turn
    /// that asked for `keys`.
    pub fn for_each_value(
        self,
        bytes: &[u8],
        lines: u32,
        keys: &KeyList,
        found: impl FnMut(usize, &[u8]),
    ) -> Result<(), LoadError> {
        match self {
            Self::MemcacheText => memcache_text::for_each_value(bytes, lines, keys, found),
            Self::Resp => resp::for_each_value(bytes, lines, keys, found),
            Self::Cp => cp::for_each_value(bytes, keys, found),
        }
    }
}

fn no_counters() -> LoadError {
    LoadError::Setting("CPSERVER's protocol tells no counters: ask its server over memcached's".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_list_keeps_its_keys_apart() {
        let mut list = KeyList::of(&["a", "bcd", ""]);
        assert_eq!(list.iter().collect::<Vec<_>>(), [&b"a"[..], b"bcd", b""]);
        list.clear();
        assert!(list.is_empty());
    }
}
