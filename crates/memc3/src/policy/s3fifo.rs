//! S3-FIFO (Yang et al., SOSP'23): new items pass through a small queue of a tenth of the class; those read meanwhile, and
//! those whose key was evicted from it not long ago, go to the main queue, where what was read is put back once more. One
//! bit of use instead of the paper's two.

use std::collections::VecDeque;

use super::{
    JUDGED_MAX, Judged, Ordered, Policy, judged_max,
    list::{self, List, Stretch},
};
use guira_arena::Place;
use guira_item::OrderCursor;

use crate::{
    item::{self, Header},
    slabs::ClassMemory,
};

/// The small queue's share of the class.
const SMALL_SHARE: usize = 10;

/// Keys remembered after eviction from the small queue, at most: 16 MiB of fingerprints in the largest classes.
const GHOSTS_MAX: usize = 1 << 21;

/// The queues. Which of the two a chunk is in, one bit each, is kept beside the list.
#[derive(Debug, Default)]
pub(crate) struct S3Fifo {
    small: List,
    main: List,
    /// Chunks in the main queue, a bit each by place.
    in_main: std::collections::HashSet<Place>,
    ghosts: VecDeque<u32>,
    ghost_set: std::collections::HashMap<u32, u32>,
}

impl S3Fifo {
    fn remember(&mut self, fingerprint: u32) {
        self.ghosts.push_back(fingerprint);
        *self.ghost_set.entry(fingerprint).or_default() += 1;
        while self.ghosts.len() > self.main.len().min(GHOSTS_MAX) {
            let Some(oldest) = self.ghosts.pop_front() else { return };
            if let Some(count) = self.ghost_set.get_mut(&oldest) {
                *count -= 1;
                if *count == 0 {
                    self.ghost_set.remove(&oldest);
                }
            }
        }
    }
}

/// 32 bits of the key of the item in `chunk`; two keys that share them are taken for one, which costs a little precision.
fn fingerprint(memory: &ClassMemory<'_>, chunk: Place) -> Option<u32> {
    let words = Judged::at(memory, chunk)?.head;
    let header = Header::of(words);
    let mut key = [0; 256 + 16];
    item::copy_out(words, header.key_offset(), header.key_len(), &mut key, 8);
    let hash = rapidhash::v3::rapidhash_v3(&key[8..8 + header.key_len()]);
    header.is_item().then_some(hash as u32)
}

impl Policy for S3Fifo {
    fn stored(&mut self, memory: &ClassMemory<'_>, chunk: Place) {
        self.removed(memory, chunk);
        if fingerprint(memory, chunk).is_some_and(|key| self.ghost_set.contains_key(&key)) {
            self.main.push(memory, chunk);
            self.in_main.insert(chunk);
        } else {
            self.small.push(memory, chunk);
        }
    }

    fn restored(&mut self, memory: &ClassMemory<'_>, chunk: Place, is_spared: bool) {
        if !is_spared {
            return self.stored(memory, chunk);
        }
        self.removed(memory, chunk);
        self.main.push(memory, chunk);
        self.in_main.insert(chunk);
    }

    fn removed(&mut self, memory: &ClassMemory<'_>, chunk: Place) {
        if !list::is_linked(memory, chunk) {
            return;
        }
        if self.in_main.remove(&chunk) {
            self.main.remove(memory, chunk);
        } else {
            self.small.remove(memory, chunk);
        }
    }

    fn moved(&mut self, memory: &ClassMemory<'_>, from: Place, to: Place) {
        match (list::is_linked(memory, from), list::is_linked(memory, to)) {
            (_, true) => {}
            (true, false) => {
                if self.in_main.remove(&from) {
                    self.main.replace(memory, from, to);
                    self.in_main.insert(to);
                } else {
                    self.small.replace(memory, from, to);
                }
            }
            (false, false) => self.stored(memory, to),
        }
    }

    fn victims(&mut self, memory: &ClassMemory<'_>, wanted: usize, victims: &mut Vec<Place>) {
        let all = self.small.len() + self.main.len();
        let enough = victims.len() + wanted.min(all);
        // A victim stays in its queue until it is removed; it is pushed back so that the next one is looked at.
        for judged in 0..judged_max(all, wanted) {
            if victims.len() >= enough {
                return;
            }
            let from_small = self.main.len() == 0 || self.small.len() * SMALL_SHARE > all;
            let Some(chunk) = (if from_small { self.small.oldest() } else { self.main.oldest() }) else { return };
            let found = Judged::at(memory, chunk);
            let recent = found.as_ref().is_some_and(|found| !found.goes(judged >= JUDGED_MAX));
            let victim = found.map(|found| found.item);
            self.removed(memory, chunk);
            if from_small && !recent {
                if let Some(key) = fingerprint(memory, chunk) {
                    self.remember(key);
                }
                self.small.push(memory, chunk);
                victims.extend(victim);
            } else {
                self.main.push(memory, chunk);
                self.in_main.insert(chunk);
                if !recent {
                    victims.extend(victim);
                }
            }
        }
    }

    fn in_order(
        &self,
        memory: &ClassMemory<'_>,
        from: OrderCursor,
        limit: usize,
        found: &mut Vec<Ordered>,
    ) -> Option<OrderCursor> {
        let small = Stretch { first: self.small.oldest(), end: None, is_spared: false };
        let main = Stretch { first: self.main.oldest(), end: None, is_spared: true };
        list::in_order(memory, &[small, main], self.small.len() + self.main.len(), from, limit, found)
    }

    #[cfg(test)]
    fn nodes(&self) -> usize {
        self.small.len() + self.main.len()
    }
}
