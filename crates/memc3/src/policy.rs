//! Which item of a size class goes when memory is full: one small trait, five policies.
//!
//! Always true: a policy is called with its class's lock held; it only suggests. The caller verifies that a victim is still
//! what it was, so a policy may name a chunk that was freed meanwhile, or name one twice. A large item, whose head lies in one
//! class and whose pieces lie in others, is known in each of them: by its head, and by the piece at which it is judged.

pub(crate) mod clock;
mod list;
mod lru;
mod random;
mod s3fifo;
mod sieve;

use guira_arena::{Place, Words};
use guira_item::{OrderCursor, Standing};

use crate::{config::Eviction, item::Header, large, slabs::ClassMemory};

/// Which item goes.
pub(crate) trait Policy: Send + std::fmt::Debug {
    /// An item was stored in `chunk`, which had none, or its judged piece. Only called if [`node_len`] says that the policy keeps
    /// nodes.
    fn stored(&mut self, memory: &ClassMemory<'_>, chunk: Place) {
        let _ = (memory, chunk);
    }

    /// An item was put back in `chunk`, as it had been shown by [`Policy::in_order`], or its judged piece; in the same order. Only
    /// called if the policy keeps nodes.
    fn restored(&mut self, memory: &ClassMemory<'_>, chunk: Place, is_spared: bool) {
        let _ = is_spared;
        self.stored(memory, chunk);
    }

    /// `chunk` has no item any more. Only called if the policy keeps nodes.
    fn removed(&mut self, memory: &ClassMemory<'_>, chunk: Place) {
        let _ = (memory, chunk);
    }

    /// The item in `from` lies in `to` now. Whoever stored it may not have come to tell of it yet. Only called if the policy
    /// keeps nodes.
    fn moved(&mut self, memory: &ClassMemory<'_>, from: Place, to: Place) {
        let _ = (memory, from, to);
    }

    /// The item in `chunk`, or whose judged piece that is, was read. Only called if [`notes_uses`].
    fn used(&mut self, memory: &ClassMemory<'_>, chunk: Place) {
        let _ = (memory, chunk);
    }

    /// Appends up to `wanted` items that should go, each by its chunk or its head's, the first one first.
    fn victims(&mut self, memory: &ClassMemory<'_>, wanted: usize, victims: &mut Vec<Place>);

    /// Appends the items of up to `limit` chunks, from `from` on, in the order in which they would go if nobody used any of them; where
    /// the next ones are, if there are any.
    fn in_order(
        &self,
        memory: &ClassMemory<'_>,
        from: OrderCursor,
        limit: usize,
        found: &mut Vec<Ordered>,
    ) -> Option<OrderCursor>;

    /// Page `index` of the class is taken from it, and the last one takes its number.
    fn page_left(&mut self, index: usize) {
        let _ = index;
    }

    /// How many chunks the policy has nodes of.
    #[cfg(test)]
    fn nodes(&self) -> usize {
        0
    }
}

/// An item in its order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ordered {
    pub item: Place,
    pub standing: Standing,
}

impl Ordered {
    /// The item that is judged in a chunk, and aged there: each is in one chunk of all.
    fn at(memory: &ClassMemory<'_>, chunk: Place, standing: Standing) -> Option<Self> {
        let judged = Judged::at(memory, chunk).filter(|judged| judged.is_aged_here)?;
        Some(Self { item: judged.item, standing })
    }
}

/// The item in a chunk, or whose judged piece that is.
struct Judged<'a> {
    /// Its place, or its head's.
    item: Place,
    head: Words<'a>,
    /// Its mark of use is this hand's to clear.
    is_aged_here: bool,
}

impl<'a> Judged<'a> {
    /// `None` if the chunk has neither.
    fn at(memory: &ClassMemory<'a>, chunk: Place) -> Option<Self> {
        let words = memory.words(chunk)?;
        // Its pieces are freed before the head is, and this one cannot be while the class is locked; that it says whose it is follows
        // from how it became one (`large.rs`).
        let judged = match large::judged_owner(words) {
            Some(item) => Self { item, head: memory.words(item)?, is_aged_here: large::is_aged_at(words) },
            None => Self { item: chunk, head: words, is_aged_here: !Header::of(words).is_large() },
        };
        Header::of(judged.head).is_item().then_some(judged)
    }

    /// Whether it should go: it was not read since its hand last came by, or `in_any_case` and the mark was this hand's to clear.
    fn goes(&self, in_any_case: bool) -> bool {
        let is_recent = Header::of(self.head).is_recent();
        if is_recent && self.is_aged_here {
            Header::age(self.head);
        }
        !is_recent || (in_any_case && self.is_aged_here)
    }
}

/// Chunks judged in one call, at most: after so many that were all read lately the next ones go all the same, so that nobody
/// waits for a hand that goes round a whole cache.
const JUDGED_MAX: usize = 4_096;

/// Chunks of a list of so many that are judged in one call, at most: in two rounds every mark that is the list's to clear has been
/// seen cleared.
fn judged_max(nodes: usize, wanted: usize) -> usize {
    (2 * nodes).min(JUDGED_MAX) + wanted
}

/// Bytes of list node that a policy keeps for every chunk.
pub(crate) fn node_len(eviction: Eviction) -> usize {
    match eviction {
        Eviction::Clock | Eviction::Random => 0,
        Eviction::S3Fifo | Eviction::Sieve | Eviction::Lru => list::NODE_LEN,
    }
}

/// Whether a policy must hear of every read, not only of the first one after the hand came by.
pub(crate) fn notes_uses(eviction: Eviction) -> bool {
    eviction == Eviction::Lru
}

/// A policy for one class.
pub(crate) fn new(eviction: Eviction) -> Box<dyn Policy> {
    match eviction {
        Eviction::Clock => Box::<clock::Clock>::default(),
        Eviction::S3Fifo => Box::<s3fifo::S3Fifo>::default(),
        Eviction::Sieve => Box::<sieve::Sieve>::default(),
        Eviction::Lru => Box::<lru::Lru>::default(),
        Eviction::Random => Box::<random::Random>::default(),
    }
}
