//! Which item of a size class goes when memory is full: one small trait, five policies.
//!
//! Always true: a policy is called with its class's lock held; it only suggests. The caller verifies that a victim is still
//! what it was, so a policy may name a chunk that was freed meanwhile, or name one twice.

pub(crate) mod clock;
mod list;
mod lru;
mod random;
mod s3fifo;
mod sieve;

use crate::{arena::Place, config::Eviction, slabs::ClassMemory};

/// Which item goes.
pub(crate) trait Policy: Send + std::fmt::Debug {
    /// An item was stored in `chunk`, which had none. Only called if [`node_len`] says that the policy keeps nodes.
    fn stored(&mut self, memory: &ClassMemory<'_>, chunk: Place) {
        let _ = (memory, chunk);
    }

    /// `chunk` has no item any more. Only called if the policy keeps nodes.
    fn removed(&mut self, memory: &ClassMemory<'_>, chunk: Place) {
        let _ = (memory, chunk);
    }

    /// The item in `from` lies in `to` now. Only called if the policy keeps nodes.
    fn moved(&mut self, memory: &ClassMemory<'_>, from: Place, to: Place) {
        let _ = (memory, from, to);
    }

    /// The item in `chunk` was read. Only called if [`notes_uses`].
    fn used(&mut self, memory: &ClassMemory<'_>, chunk: Place) {
        let _ = (memory, chunk);
    }

    /// Appends up to `wanted` chunks whose items should go, the first one first.
    fn victims(&mut self, memory: &ClassMemory<'_>, wanted: usize, victims: &mut Vec<Place>);

    /// Page `index` of the class is taken from it, and the last one takes its number.
    fn page_left(&mut self, index: usize) {
        let _ = index;
    }
}

/// Chunks judged in one call, at most: after so many that were all read lately the next ones go all the same, so that nobody
/// waits for a hand that goes round a whole cache.
const JUDGED_MAX: usize = 4_096;

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
