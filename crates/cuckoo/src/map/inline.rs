//! Writes of pairs that lie in slots: on the short way as a rule ([`Table::lock_at_home`](crate::Table)), and on the long way where
//! that ends.
//!
//! Always true: what is done to a pair that is locked is the same on both ways; only which locks say that it is locked differs. The
//! short way is there only while the table does not grow, so it is the long way that helps growth along.

use std::hash::{BuildHasher, Hash};

use super::{
    CuckooMap, NoRoom, Storage, TableFull, Ways, Width,
    pairs::{Pairs, SlotWords, Words},
    write::{Change, Changed, Found, LockedPair, When},
};
use crate::{Probe, locked::Place, residence::Residence, steady::LongWay, table::Full};

/// Why a pair has not been stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NotPlaced {
    /// It takes the long way.
    LongWay,
    /// Its key is new, and there is no room for it.
    NoRoom(NoRoom),
}

impl From<LongWay> for NotPlaced {
    fn from(LongWay: LongWay) -> Self {
        Self::LongWay
    }
}

impl<K, V, S, L, const WAYS: usize> CuckooMap<K, V, S, L, WAYS>
where
    K: Hash + Eq,
    S: BuildHasher,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    #[inline(always)]
    pub(super) fn store_inline<R>(
        &self,
        hash: u64,
        key: K,
        value: V,
        when: When,
        see: impl FnOnce(&V) -> R,
    ) -> Result<Found<R>, TableFull<K, V>> {
        let mut words = Self::packed(&key, &value);
        let content = words.as_content();
        let placed = self.place_at_home(hash, &key, content, when);
        match placed.or_else(|unplaced| self.place_patiently(hash, &key, content, when, unplaced)) {
            Ok(Found::Nothing) => Ok(Found::Nothing),
            Ok(Found::Replaced(old)) => Ok(Found::Replaced(see(&old))),
            Ok(Found::Left(there)) => Ok(Found::Left(see(&there))),
            Err(Full) => Err(TableFull { key, value }),
        }
    }

    /// The short way of storing.
    #[inline(always)]
    fn place_at_home(&self, hash: u64, key: &K, content: Words<'_>, when: When) -> Result<Found<V>, NotPlaced> {
        let mut met = 0;
        let (locked, place) = self.table.lock_at_home_to_insert(&Self::probe(hash), |content| {
            met += 1;
            Self::inline_key(content) == *key
        })?;
        self.place(locked, place, hash, content, when, met).map_err(NotPlaced::NoRoom)
    }

    /// The long way of storing: beside other writers, and until there is room.
    #[inline(never)]
    fn place_patiently(
        &self,
        hash: u64,
        key: &K,
        content: Words<'_>,
        when: When,
        unplaced: NotPlaced,
    ) -> Result<Found<V>, Full> {
        let probe = Self::probe(hash);
        if let NotPlaced::NoRoom(missing) = unplaced {
            self.make_room(&probe, missing)?;
            if let Ok(found) = self.place_at_home(hash, key, content, when) {
                return Ok(found);
            }
        }
        loop {
            let mut met = 0;
            let (locked, place) = self.table.lock_to_insert(&probe, |content| {
                met += 1;
                Self::inline_key(content) == *key
            });
            match self.place(locked, place, hash, content, when, met) {
                Ok(found) => {
                    self.after_change();
                    return Ok(found);
                }
                Err(missing) => self.make_room(&probe, missing)?,
            }
        }
    }

    /// Stores a pair whose key lies at `place`, or nowhere: then it has been compared with `met` keys, as for `add`.
    #[inline(always)]
    fn place<'a>(
        &self,
        mut locked: LockedPair<'a, K, V, L, WAYS, impl Residence<'a, Pairs<K, V, L, WAYS>>>,
        place: Option<Place>,
        hash: u64,
        content: Words<'_>,
        when: When,
        met: usize,
    ) -> Result<Found<V>, NoRoom> {
        let Some(place) = place else {
            self.add(&mut locked, hash, content, met)?;
            let keys_of_stripe = locked.keys_of_stripe();
            drop(locked);
            self.after_insert(hash, keys_of_stripe);
            return Ok(Found::Nothing);
        };
        // SAFETY: a slot of an inline map holds a pair, which nobody else changes while its stripe is held.
        let old: V = unsafe { locked.content(place).copy::<K, V>().value() };
        if when == When::IfAbsent {
            return Ok(Found::Left(old));
        }
        locked.replace(place, content);
        Ok(Found::Replaced(old))
    }

    #[inline(always)]
    pub(super) fn take_inline<R>(
        &self,
        hash: u64,
        mut is_it: impl FnMut(&K, &V) -> bool,
        see: impl FnOnce(&K, &V) -> R,
    ) -> Option<R> {
        let probe = Self::probe(hash);
        let mut is_it = |content: Words<'_>| {
            let words = content.copy();
            // SAFETY: a slot of an inline map holds a pair, which nobody else changes while its stripe is held.
            unsafe { is_it(&words.key(), &words.value()) }
        };
        let words = match self.table.lock_at_home(&probe, &mut is_it) {
            Ok((locked, place)) => Self::take_out(locked, place?),
            Err(LongWay) => self.take_out_patiently(&probe, &mut is_it)?,
        };
        // SAFETY: the words of a pair.
        Some(unsafe { see(&words.key(), &words.value()) })
    }

    /// The long way of taking out.
    #[inline(never)]
    fn take_out_patiently(&self, probe: &Probe, is_it: &mut impl FnMut(Words<'_>) -> bool) -> Option<SlotWords<K, V>> {
        let (locked, place) = self.table.lock_and_find(probe, is_it);
        let words = Self::take_out(locked, place?);
        self.after_change();
        Some(words)
    }

    #[inline(always)]
    fn take_out<'a>(
        mut locked: LockedPair<'a, K, V, L, WAYS, impl Residence<'a, Pairs<K, V, L, WAYS>>>,
        place: Place,
    ) -> SlotWords<K, V> {
        let words = locked.content(place).copy();
        locked.remove(place);
        words
    }

    #[inline(always)]
    pub(super) fn modify_inline(
        &self,
        hash: u64,
        mut is_key: impl FnMut(&K) -> bool,
        mut decide: impl FnMut(&V) -> Change<V>,
    ) -> bool {
        let probe = Self::probe(hash);
        let mut is_it = |content: Words<'_>| is_key(&Self::inline_key(content));
        let changed = match self.table.lock_at_home(&probe, &mut is_it) {
            Ok((locked, place)) => place.map(|place| Self::change(locked, place, |value| decide(value))),
            Err(LongWay) => self.change_patiently(&probe, &mut is_it, &mut decide),
        };
        changed.is_some()
    }

    /// The long way of changing.
    #[inline(never)]
    fn change_patiently(
        &self,
        probe: &Probe,
        is_it: &mut impl FnMut(Words<'_>) -> bool,
        decide: &mut impl FnMut(&V) -> Change<V>,
    ) -> Option<Changed> {
        let (locked, place) = self.table.lock_and_find(probe, is_it);
        let changed = Self::change(locked, place?, decide);
        self.after_change();
        Some(changed)
    }

    /// Carries out what `decide` says of a pair.
    #[inline(always)]
    fn change<'a>(
        mut locked: LockedPair<'a, K, V, L, WAYS, impl Residence<'a, Pairs<K, V, L, WAYS>>>,
        place: Place,
        decide: impl FnOnce(&V) -> Change<V>,
    ) -> Changed {
        let words = locked.content(place).copy();
        // SAFETY: a slot of an inline map holds a pair, which nobody else changes while its stripe is held.
        let (key, value) = unsafe { (words.key(), words.value()) };
        match decide(&value) {
            Change::Keep => Changed::Kept,
            Change::Remove => {
                locked.remove(place);
                Changed::Removed
            }
            Change::Put(value) => {
                locked.replace(place, Self::packed(&key, &value).as_content());
                Changed::Updated
            }
        }
    }

    #[inline(always)]
    pub(super) fn compute_inline(
        &self,
        hash: u64,
        key: K,
        decide: &mut impl FnMut(Option<&V>) -> Change<V>,
    ) -> Result<Changed, TableFull<K, V>> {
        let probe = Self::probe(hash);
        let mut met = 0;
        let found = self.table.lock_at_home_to_insert(&probe, |content| {
            met += 1;
            Self::inline_key(content) == key
        });
        if let Ok((locked, place)) = found
            && let Ok(changed) = self.compute_at(locked, place, hash, &key, decide, met)
        {
            return Ok(changed);
        }
        loop {
            let mut met = 0;
            let (locked, place) = self.table.lock_to_insert(&probe, |content| {
                met += 1;
                Self::inline_key(content) == key
            });
            match self.compute_at(locked, place, hash, &key, decide, met) {
                Ok(changed) => {
                    self.after_change();
                    return Ok(changed);
                }
                Err((value, missing)) => {
                    if let Err(Full) = self.make_room(&probe, missing) {
                        return Err(TableFull { key, value });
                    }
                }
            }
        }
    }

    /// Carries out what `decide` says of a pair that lies at `place`, or nowhere; `met` as for `place`.
    ///
    /// # Errors
    /// The value, if there is no room for it.
    #[inline(always)]
    fn compute_at<'a>(
        &self,
        mut locked: LockedPair<'a, K, V, L, WAYS, impl Residence<'a, Pairs<K, V, L, WAYS>>>,
        place: Option<Place>,
        hash: u64,
        key: &K,
        decide: &mut impl FnMut(Option<&V>) -> Change<V>,
        met: usize,
    ) -> Result<Changed, (V, NoRoom)> {
        if let Some(place) = place {
            return Ok(Self::change(locked, place, |value| decide(Some(value))));
        }
        let Change::Put(value) = decide(None) else { return Ok(Changed::Kept) };
        let mut words = Self::packed(key, &value);
        if let Err(missing) = self.add(&mut locked, hash, words.as_content(), met) {
            return Err((value, missing));
        }
        let keys_of_stripe = locked.keys_of_stripe();
        drop(locked);
        self.after_insert(hash, keys_of_stripe);
        Ok(Changed::Inserted)
    }

    /// A pair on its way into a slot.
    #[inline(always)]
    pub(super) fn packed(key: &K, value: &V) -> SlotWords<K, V> {
        assert!(L::is_inline());
        // SAFETY: only plain types are kept inline (`Storage`).
        unsafe { SlotWords::pack(key, value) }
    }

    /// The key of an inline pair whose stripe is held.
    #[inline(always)]
    fn inline_key(content: Words<'_>) -> K {
        // SAFETY: a slot of an inline map holds a pair, which nobody else changes while its stripe is held.
        unsafe { content.copy::<K, V>().key() }
    }
}
