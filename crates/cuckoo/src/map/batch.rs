//! Many reads at once, in stages: each stage goes over all keys of a batch and asks the memory for what the next stage will read.
//! So a core waits for dozens of lines at a time, not for one after the other.
//!
//! ```text
//! stage   begin            near                   far                    finish
//!         hash, stripe;    first bucket's tags;   second bucket's tags;  slot, stripe;
//!         ask for tags     ask for the slot, or   ask for the slot       answer
//!                          the second's tags
//! ```
//! Pairs on the heap have a stage before the last: the pointers have come, and the pairs are asked for. Each is then looked up as by
//! itself, which finds everything near.
//!
//! Always true: a key's stripe is asked for in its first stage and compared in its last one, so whatever the stages in between
//! have read belongs to one state; a key for which that fails is looked up by itself.

use std::{
    hash::{BuildHasher, Hash},
    mem::MaybeUninit,
};

use equivalent::Equivalent;

use super::{
    CuckooMap, Storage, Ways, Width,
    pairs::{Pairs, Words},
};
use crate::{Probe, read::Look, segment::Geometry, tags::Lane};

/// Keys of a batch: enough to keep the memory busy, few enough for their tags to stay in the first cache.
const BATCH: usize = 64;

/// A key on its way.
struct Flight<'a, 'k, G, Q: ?Sized> {
    key: &'k Q,
    hash: u64,
    /// `None` if somebody is at work on its stripe, or the table grows.
    look: Option<Look<'a, G>>,
    /// The slot that is on its way; `None`: the key is in no slot.
    slot: Option<Words<'a>>,
}

impl<'a, G: Geometry<Content<'a> = Words<'a>>, Q: ?Sized> Flight<'a, '_, G, Q> {
    #[inline(always)]
    fn go_for(&mut self, slot: Words<'a>) {
        slot.prefetch_of_many();
        self.slot = Some(slot);
    }

    /// First bucket's tags; true if the second's are needed.
    #[inline(always)]
    fn near(&mut self) -> bool {
        let Some(look) = &self.look else { return false };
        let (probe, segment) = (Probe::new(self.hash), look.segment());
        let first = probe.first(segment.bucket_mask());
        let tags = segment.tags(first);
        if let Some(slot) = tags.matching(Lane::home(probe.tag())).first() {
            self.go_for(segment.content(first, slot));
            return false;
        }
        let is_far = tags.may_be_away(probe.tag());
        if is_far {
            segment.prefetch_tags(probe.second(segment.bucket_mask()));
        }
        is_far
    }

    /// Second bucket's tags.
    #[inline(always)]
    fn far(&mut self) {
        let Some(look) = &self.look else { return };
        let (probe, segment) = (Probe::new(self.hash), look.segment());
        let second = probe.second(segment.bucket_mask());
        if let Some(slot) = segment.tags(second).matching(Lane::away(probe.tag())).first() {
            self.go_for(segment.content(second, slot));
        }
    }
}

impl<K, V, S, L, const WAYS: usize> CuckooMap<K, V, S, L, WAYS>
where
    K: Hash + Eq,
    S: BuildHasher,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    /// Copies of the values of many keys, in their order. Dozens are looked up at once, so that their memory is waited for
    /// together: in a table larger than the caches this is several times as fast as one after the other.
    ///
    /// ```
    /// let map: guira_cuckoo::CuckooMap<u32, char> = [(1, 'a'), (2, 'b')].into();
    /// assert_eq!(map.get_many(&[2, 3, 1]), [Some('b'), None, Some('a')]);
    /// let names: guira_cuckoo::CuckooMap<String, u32> = [("one".into(), 1)].into();
    /// assert_eq!(names.get_many(["one", "two"]), [Some(1), None]);
    /// ```
    pub fn get_many<'k, Q>(&self, keys: impl IntoIterator<Item = &'k Q>) -> Vec<Option<V>>
    where
        Q: Hash + Equivalent<K> + ?Sized + 'k,
        V: Clone,
    {
        let keys = keys.into_iter();
        let mut values = Vec::with_capacity(keys.size_hint().0);
        self.get_many_with(keys, |_, value| values.push(value.cloned()));
        values
    }

    /// The same, each value passed to `read` with its key's place among `keys`, in order.
    pub fn get_many_with<'k, Q>(&self, keys: impl IntoIterator<Item = &'k Q>, mut read: impl FnMut(usize, Option<&V>))
    where
        Q: Hash + Equivalent<K> + ?Sized + 'k,
    {
        let mut flights = [const { MaybeUninit::<Flight<'_, '_, Pairs<K, V, L, WAYS>, Q>>::uninit() }; BATCH];
        let mut far = [0u8; BATCH];
        let (mut keys, mut done) = (keys.into_iter(), 0);
        loop {
            let mut len = 0;
            for (flight, key) in flights.iter_mut().zip(&mut keys) {
                flight.write(self.begin(key));
                len += 1;
            }
            // Not while keys come: whoever makes them may take long.
            let _pinned = self.pin();
            // SAFETY: as many have just been written.
            let flights = unsafe { flights[..len].assume_init_mut() };
            let mut far_len = 0;
            for (at, flight) in flights.iter_mut().enumerate() {
                far[far_len] = at as u8;
                far_len += usize::from(flight.near());
            }
            far[..far_len].iter().for_each(|at| flights[usize::from(*at)].far());
            if !L::is_inline() {
                flights.iter().filter_map(|flight| flight.slot).for_each(Self::prefetch_content);
            }
            for (at, flight) in flights.iter().enumerate() {
                self.finish(flight, |value| read(done + at, value));
            }
            done += len;
            if len < BATCH {
                return;
            }
        }
    }

    #[inline(always)]
    fn begin<'k, Q: Hash + ?Sized>(&self, key: &'k Q) -> Flight<'_, 'k, Pairs<K, V, L, WAYS>, Q> {
        let hash = self.hash_of(key);
        let probe = Probe::new(hash);
        let look = self.table.begin_look(&probe);
        if let Some(look) = &look {
            let segment = look.segment();
            segment.prefetch_tags(probe.first(segment.bucket_mask()));
        }
        Flight { key, hash, look, slot: None }
    }

    #[inline(always)]
    fn finish<Q: Equivalent<K> + ?Sized>(
        &self,
        flight: &Flight<'_, '_, Pairs<K, V, L, WAYS>, Q>,
        read: impl FnOnce(Option<&V>),
    ) {
        let mut is_key = |candidate: &K| flight.key.equivalent(candidate);
        if L::is_inline()
            && let Some(look) = &flight.look
        {
            let Some(slot) = flight.slot else {
                if look.version.is_unchanged() {
                    return read(None);
                }
                return self.finish_alone(flight.hash, is_key, read);
            };
            let words = slot.copy();
            if look.version.is_unchanged()
                && let Some((_, value)) = Self::pair_if(&words, &mut is_key)
            {
                return read(Some(&value));
            }
        }
        self.finish_alone(flight.hash, is_key, read);
    }

    #[inline(never)]
    fn finish_alone(&self, hash: u64, is_key: impl FnMut(&K) -> bool, read: impl FnOnce(Option<&V>)) {
        let mut read = Some(read);
        let _found = self.find(hash, is_key, |_, value| {
            if let Some(read) = read.take() {
                read(Some(value));
            }
        });
        if let Some(read) = read {
            read(None);
        }
    }
}
