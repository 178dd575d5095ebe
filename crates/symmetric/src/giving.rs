//! A home's side of a copy: what it has given of a shard, and what has changed since.
//!
//! Always true:
//! - what was given of a key is what the key has, or the key is remembered as changed: a miss counts as a change, since an item may have had to make room for others after it was given;
//! - a page is made once: asked for again it is the same, so what is given is taken in one order;
//! - what is remembered is bounded: what changes faster than it is asked for makes the copy begin anew.

use std::collections::{BTreeSet, VecDeque};

use guira_consistency::{Epoch, Key, Writer};
use guira_routing::NodeId;

use crate::{CopyNumber, Fetch, HomecomingConfig, HomecomingMutant, Items, Page, PageNumber, Place, Rest, slot_of};

/// Keys that have changed since they were given, at most: as many as some hundred pages have.
const CHANGED_MAX: usize = 1 << 16;

/// From so many on they are given before what was never given.
const CHANGED_MANY: usize = CHANGED_MAX / 2;

/// What has been given of a shard, to whom.
#[derive(Clone, Debug)]
pub(crate) struct Giving {
    pub(crate) shard: usize,
    pub(crate) to: (NodeId, Writer),
    copy: CopyNumber,
    /// Shards that there are.
    shards: usize,
    /// Where the walk through what was there goes on; `None`: it is over.
    place: Option<Place>,
    /// Found by it, and not yet given.
    found: VecDeque<Key>,
    changed: BTreeSet<Key>,
    last: Page,
    /// No key begins to come to be hot, or to cease to: all but what is on that way was given.
    pub(crate) is_closing: bool,
    /// All was given in this view.
    sealed_in: Option<Epoch>,
}

/// What a page that is asked for is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// The one that was given last.
    Last,
    /// The next one.
    Next,
    /// None of this copy, or a later one.
    Other,
    /// An earlier one: it comes late.
    Late,
}

impl Giving {
    /// One that has given nothing yet.
    pub(crate) fn new(to: NodeId, fetch: Fetch, shards: usize) -> Self {
        let fetch = Fetch { page: PageNumber::default(), ..fetch };
        Self {
            shard: fetch.shard,
            to: (to, fetch.writer),
            copy: fetch.copy,
            shards,
            place: Some(Place::default()),
            found: VecDeque::new(),
            changed: BTreeSet::new(),
            last: Page { fetch, items: Vec::new(), highest: 0, rest: Rest::More },
            is_closing: false,
            sealed_in: None,
        }
    }

    /// What is asked.
    pub(crate) fn asked(&self, from: NodeId, fetch: &Fetch) -> Asked {
        if self.to != (from, fetch.writer) || fetch.copy > self.copy {
            return Asked::Other;
        }
        let last = self.last.fetch.page;
        match fetch.page {
            _ if fetch.copy < self.copy => Asked::Late,
            page if page == last => Asked::Last,
            page if page == last.next() && self.sealed_in.is_none() => Asked::Next,
            _ => Asked::Late,
        }
    }

    /// The page that was given last, as it is said in a view.
    pub(crate) fn again(&self, epoch: Epoch) -> Page {
        let mut page = self.last.clone();
        page.fetch.epoch = epoch;
        page
    }

    /// Makes the next page; `is_quiet` says whether none of the shard's keys is on its way into the hot set or out of it.
    pub(crate) fn next<I: Items>(
        &mut self,
        items: &mut I,
        fetch: Fetch,
        highest: u32,
        is_quiet: &dyn Fn() -> bool,
        config: &HomecomingConfig,
    ) -> Page {
        let (shard, shards) = (self.shard, self.shards);
        let wants = |key: &[u8]| slot_of(key, shards) == Some(shard);
        // One step a page: places that are looked at are bounded, too.
        if let Some(place) = self.place.take_if(|_| self.found.is_empty()) {
            let mut found = Vec::new();
            self.place = items.walk(&place, &wants, &mut found);
            self.found = found.into();
        }
        let (mut given, mut len) = (Vec::new(), 0);
        while len < config.page_len_max {
            let found = if self.changed.len() < CHANGED_MANY { self.found.pop_front() } else { None };
            let Some(key) = found.or_else(|| self.changed_key()) else { break };
            self.changed.remove(&key);
            let value = items.peek(&key);
            len += BESIDE_LEN + key.len() + value.as_ref().map_or(0, |value| value.bytes.len());
            given.push((key, value));
        }
        let is_all = self.place.is_none() && self.found.is_empty() && self.changed.is_empty();
        self.is_closing |= is_all;
        let rest = match is_all {
            false => Rest::More,
            true if is_quiet() || config.has(HomecomingMutant::HotUnsettled) => Rest::Nothing,
            true => Rest::Waits,
        };
        self.sealed_in = (rest == Rest::Nothing).then_some(fetch.epoch);
        self.last = Page { fetch, items: given, highest, rest };
        self.last.clone()
    }

    /// What has changed, once all that was there was given; or before, if it is much.
    fn changed_key(&mut self) -> Option<Key> {
        let is_its_turn = (self.place.is_none() && self.found.is_empty()) || self.changed.len() >= CHANGED_MANY;
        if is_its_turn { self.changed.pop_first() } else { None }
    }

    /// A key may have something else than it had. Whether the copy can go on.
    pub(crate) fn note(&mut self, key: &Key) -> bool {
        if slot_of(key, self.shards) == Some(self.shard) {
            self.changed.insert(key.clone());
        }
        self.changed.len() <= CHANGED_MAX
    }

    /// There is another view: what was all in the one before is not in this one, in which it may change.
    pub(crate) fn unseal(&mut self) {
        self.sealed_in = None;
        if self.last.rest == Rest::Nothing {
            self.last.rest = Rest::More;
        }
    }

    /// All was given: it is not served.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed_in.is_some()
    }
}

/// Bytes of an item in a page beside its key and its value, about.
const BESIDE_LEN: usize = 32;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use guira_consistency::Value;
    use guira_item::{Expiry, Time};

    use super::*;
    use crate::MemoryItems;

    const NOW: Time = Time(1);
    const OWN: NodeId = NodeId(7);

    fn key(number: usize) -> Key {
        Key::from(format!("key{number}").as_bytes())
    }

    fn value(text: &str) -> Value {
        let (flags, expiry) = (0, Expiry::NEVER);
        Value { flags, cas: 1, expiry, stale: false, win_sent: false, bytes: text.as_bytes().into() }
    }

    fn fetch(copy: u64, page: u64) -> Fetch {
        let (copy, page) = (CopyNumber(copy), PageNumber(page));
        Fetch { epoch: Epoch(3), writer: Writer(2), shard: 0, copy, page }
    }

    fn config() -> HomecomingConfig {
        HomecomingConfig { page_len_max: 100, ..HomecomingConfig::USUAL }
    }

    /// Takes pages until there is nothing more, while a key is written after each.
    fn copy(giving: &mut Giving, items: &mut MemoryItems, is_quiet: bool) -> (BTreeMap<Key, Option<Value>>, Page) {
        let mut copied = BTreeMap::new();
        for number in 1.. {
            assert_eq!(giving.asked(OWN, &fetch(1, number)), Asked::Next);
            let page = giving.next(items, fetch(1, number), 9, &|| is_quiet, &config());
            assert_eq!(giving.asked(OWN, &fetch(1, number)), Asked::Last);
            assert!(giving.again(Epoch(3)) == page);
            copied.extend(page.items.iter().cloned());
            if page.rest != Rest::More {
                return (copied, page);
            }
            if number < 20 {
                let (written, gone) = (key(number as usize), key(30 + number as usize));
                items.put(&written, Some(value("newer")), NOW);
                items.put(&gone, None, NOW);
                assert!(giving.note(&written) && giving.note(&gone));
            }
        }
        unreachable!()
    }

    #[test]
    fn what_was_given_is_what_is_there_whatever_changes_meanwhile() {
        let mut items = MemoryItems::new(10_000);
        (0..60).for_each(|number| assert!(items.put(&key(number), Some(value("first")), NOW)));
        let mut giving = Giving::new(OWN, fetch(1, 1), 1);
        let (copied, last) = copy(&mut giving, &mut items, true);
        assert_eq!((last.rest, giving.is_sealed(), giving.is_closing), (Rest::Nothing, true, true));
        for (key, value) in copied {
            assert_eq!(items.peek(&key), value, "{key:?}");
        }
        assert_eq!(
            giving.asked(OWN, &Fetch { page: last.fetch.page.next(), ..last.fetch }),
            Asked::Late,
            "all is given"
        );
        // In another view it goes on, and what was all is said not to be.
        giving.unseal();
        assert_eq!((giving.is_sealed(), giving.again(Epoch(4)).rest), (false, Rest::More));
    }

    #[test]
    fn all_is_given_only_when_no_key_is_on_its_way() {
        let mut items = MemoryItems::new(10_000);
        let mut giving = Giving::new(OWN, fetch(1, 1), 1);
        let (_, last) = copy(&mut giving, &mut items, false);
        assert_eq!((last.rest, giving.is_sealed(), giving.is_closing), (Rest::Waits, false, true));
    }

    #[test]
    fn what_comes_late_or_is_of_another_copy_is_known() {
        let mut giving = Giving::new(OWN, fetch(2, 1), 1);
        assert_eq!(giving.asked(OWN, &fetch(1, 1)), Asked::Late);
        assert_eq!(giving.asked(OWN, &fetch(3, 1)), Asked::Other);
        assert_eq!(giving.asked(OWN, &Fetch { writer: Writer(9), ..fetch(2, 1) }), Asked::Other);
        giving.next(&mut MemoryItems::new(10), fetch(2, 1), 0, &|| false, &config());
        giving.next(&mut MemoryItems::new(10), fetch(2, 2), 0, &|| false, &config());
        assert_eq!(giving.asked(OWN, &fetch(2, 1)), Asked::Late);
        assert_eq!(giving.asked(OWN, &fetch(2, 4)), Asked::Late, "none has asked for the one before");
    }

    #[test]
    fn what_changes_too_fast_cannot_be_given() {
        let mut giving = Giving::new(OWN, fetch(1, 1), 1);
        assert!((0..CHANGED_MAX).all(|number| giving.note(&key(number))));
        assert!(!giving.note(&key(CHANGED_MAX)));
    }
}
