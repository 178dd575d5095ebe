//! Where answers go: the protocol's side of a batch.
//!
//! Always true: indexes arrive in ascending order, each request's answer exactly once; a read hit of a small value is
//! `reserve` (repeated if the engine's optimistic read failed) and then `commit`.

use crate::{Answer, Expiry, Hit};

/// Free bytes in front of and behind a reserved value, so that an engine may copy in whole aligned words.
pub const VALUE_SLACK_LEN: usize = 8;

/// A large value that stays as it is for as long as the handle lives, even when the item is replaced or evicted.
pub trait PinnedValue: Send {
    /// Length in bytes.
    fn len(&self) -> usize;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The longest contiguous run of the value that starts at byte `offset`; empty only at the end.
    fn piece(&self, offset: usize) -> &[u8];
}

/// An item in memory, as far as statistics and logs tell of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footprint {
    /// Its slab class.
    pub class: u32,
    /// Length of its value in bytes.
    pub value_len: usize,
    /// When it ends.
    pub expiry: Expiry,
}

/// What a change found, and what it came with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Footprints {
    /// The item that was there.
    pub before: Option<Footprint>,
    /// The item that was stored or, if the answer says that it was not, would have been.
    pub after: Option<Footprint>,
}

/// Why an item that lies in memory is not there for clients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Death {
    /// Its time was over.
    Expired,
    /// It was stored before a `flush_all`, whether or not its time was over as well.
    Flushed,
}

/// Takes the answers of one batch.
pub trait Sink {
    /// Room for the value of a hit: `VALUE_SLACK_LEN + hit.value_len + VALUE_SLACK_LEN` bytes, the value's place being in
    /// the middle. The engine may overwrite all of it. Called again for the same index if the read has to be repeated, then
    /// with a `hit` that may differ.
    fn reserve(&mut self, index: usize, hit: &Hit) -> &mut [u8];

    /// The bytes reserved for `index` are a consistent value; `hit` is the one `reserve` was last called with, up to
    /// fields that do not change the length of the answer.
    fn commit(&mut self, index: usize, hit: &Hit);

    /// A hit whose value is sent from where it lies.
    fn pinned(&mut self, index: usize, hit: &Hit, value: Box<dyn PinnedValue>);

    /// A hit of which only the metadata is wanted ([`Get::value`](crate::Get::value) is false).
    fn metadata(&mut self, index: usize, hit: &Hit);

    /// Any other answer.
    fn answer(&mut self, index: usize, answer: Answer);

    /// The answer to `index` comes next, and its key's item lay in memory, dead. A call of its own, so that answers about
    /// items that are there carry nothing for it.
    fn found_dead(&mut self, _index: usize, _death: Death) {}

    /// An answer from an engine that knows about the items; to a sink that does not ask it is like any other.
    fn answer_change(&mut self, index: usize, answer: Answer, _items: &Footprints) {
        self.answer(index, answer);
    }
}
