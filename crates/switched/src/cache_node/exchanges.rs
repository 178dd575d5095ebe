//! Exchanges: keys that reports want in the place of others, once a cache node is full, and how many a second may have it. The hottest come first.
//!
//! Reports come in bundles, of one backend after another. Were they let through as they come, as long as there is leave, those of the backends that are heard
//! last would get none, however hot their keys are. So leave is hardly saved up, and what has none yet waits for it here. Leave keeps keys from changing places that are as
//! good as each other; what is many times hotter than it has to be has leave that is yet to come.
//!
//! Always true: a key waits once, with what was reported of it last; no load is negative or infinite, so that their bits are in their order; no more
//! than `WAITING_MAX` wait, and none is colder than one that had to go for it.

use std::collections::{BTreeMap, BTreeSet};

use guira_item::{Moment, Span};
use guira_routing::NodeId;
use serde::Serialize;

use crate::KeyBytes;

/// Keys that wait at most, the hottest: what goes for them is reported again, if it stays hot.
const WAITING_MAX: usize = 1_024;

/// How much leave is saved up: what a timer that comes late would lose.
const LATE: Span = Span::from_ms(10);

/// How many times the threshold makes a key hot. Where a segment has some visits of each key, chance makes none seem so that is only as good as those which are cached; where it
/// has fewer, [`AHEAD`] is what bounds that.
const HOT_OVER_THRESHOLD: f64 = 4.0;

/// How much leave that is yet to come may be taken by what is hot.
const AHEAD: Span = Span::from_s(1);

/// What is reported of a key.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Reported {
    /// The backend that reports it.
    pub(super) source: NodeId,
    /// Queries a second, above 0 and finite.
    pub(super) per_s: f32,
    /// When it did.
    pub(super) at: Moment,
}

/// The keys that wait, and the leave there is.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Exchanges {
    per_s: f64,
    /// Exchanges that may be made, as of `at`.
    leave: f64,
    at: Moment,
    /// The load from which on a key is hot.
    hot_per_s: f32,
    waiting: BTreeMap<KeyBytes, Reported>,
    /// The same by the bits of their loads.
    #[serde(skip)]
    by_load: BTreeSet<(u32, KeyBytes)>,
}

impl Exchanges {
    /// So many a second may be made from `now` on, none of them before.
    pub(super) fn new(per_s: f64, now: Moment) -> Self {
        Self {
            per_s,
            leave: 0.0,
            at: now,
            hot_per_s: f32::INFINITY,
            waiting: BTreeMap::new(),
            by_load: BTreeSet::new(),
        }
    }

    /// So many a second may be made.
    pub(super) fn set_rate(&mut self, now: Moment, per_s: f64) {
        self.accrue(now);
        self.per_s = per_s;
        // Nobody waits for longer than what was taken ahead of time would take at this rate.
        self.leave = self.leave.max(-per_s * AHEAD.as_s());
    }

    /// Whether no key waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// From this load on a key is worth a place; 0: any is, and none is hotter than it has to be.
    pub(super) fn set_threshold(&mut self, per_s: f64) {
        self.hot_per_s = if per_s > 0.0 { (per_s * HOT_OVER_THRESHOLD) as f32 } else { f32::INFINITY };
    }

    /// A key is wanted. If too many are, the coldest is not.
    pub(super) fn want(&mut self, key: KeyBytes, reported: Reported) {
        self.take(&key);
        self.by_load.insert((reported.per_s.to_bits(), key.clone()));
        self.waiting.insert(key, reported);
        if self.waiting.len() > WAITING_MAX
            && let Some((_, coldest)) = self.by_load.pop_first()
        {
            self.waiting.remove(&coldest);
        }
    }

    /// Takes out the hottest key, if there is leave at `now`, or none is needed.
    pub(super) fn next(&mut self, now: Moment, is_free: bool) -> Option<(KeyBytes, Reported)> {
        self.accrue(now);
        if !is_free && self.leave + self.ahead() < 1.0 {
            return None;
        }
        let (_, key) = self.by_load.pop_last()?;
        let reported = self.waiting.remove(&key)?;
        Some((key, reported))
    }

    /// An exchange is made.
    pub(super) fn spend(&mut self) {
        self.leave -= 1.0;
    }

    /// Nothing came of one.
    pub(super) fn give_back(&mut self) {
        self.leave += 1.0;
    }

    /// What these backends have reported is not wanted any more.
    pub(super) fn forget(&mut self, backends: &BTreeSet<NodeId>) {
        self.retain(|reported| !backends.contains(&reported.source));
    }

    /// Nor is what was reported before `since`.
    pub(super) fn forget_before(&mut self, since: Moment) {
        self.retain(|reported| reported.at >= since);
    }

    /// When there is leave for the next that waits.
    pub(super) fn wake_at(&self) -> Option<Moment> {
        if self.waiting.is_empty() || self.per_s <= 0.0 {
            return None;
        }
        let missing_s = (1.0 - self.leave - self.ahead()).max(0.0) / self.per_s;
        // A cast of what is too large is the largest; one more, so that it has come by then.
        Some(self.at + Span::from_ns(((missing_s * 1e9) as u64).saturating_add(1)))
    }

    /// How much leave that is yet to come the hottest may take.
    fn ahead(&self) -> f64 {
        let is_hot = self.by_load.last().is_some_and(|(bits, _)| f32::from_bits(*bits) >= self.hot_per_s);
        if is_hot { self.per_s * AHEAD.as_s() } else { 0.0 }
    }

    fn accrue(&mut self, now: Moment) {
        let came = now.since(self.at).as_s() * self.per_s;
        // At least one, however slow the switch is.
        self.leave = (self.leave + came).min(1.0 + self.per_s * LATE.as_s());
        self.at = self.at.max(now);
    }

    fn take(&mut self, key: &KeyBytes) {
        if let Some((key, reported)) = self.waiting.remove_entry(key) {
            self.by_load.remove(&(reported.per_s.to_bits(), key));
        }
    }

    fn retain(&mut self, mut stays: impl FnMut(&Reported) -> bool) {
        let Self { waiting, by_load, .. } = self;
        waiting.retain(|key, reported| {
            let stays = stays(reported);
            if !stays {
                by_load.remove(&(reported.per_s.to_bits(), key.clone()));
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const T0: Moment = Moment::from_ns(1_000_000_000);

    fn key(name: u16) -> KeyBytes {
        KeyBytes(name.to_be_bytes().into())
    }

    fn reported(per_s: f32) -> Reported {
        Reported { source: NodeId(1), per_s, at: T0 }
    }

    #[test]
    fn the_hottest_has_the_first_leave_whoever_came_first() {
        let mut exchanges = Exchanges::new(10.0, T0);
        for (name, per_s) in [(1, 5.0), (2, 50.0), (3, 20.0), (1, 30.0)] {
            exchanges.want(key(name), reported(per_s));
        }
        assert_eq!(exchanges.next(T0, false), None, "there is no leave yet");
        let mut now = T0;
        for (name, per_s) in [(2, 50.0), (1, 30.0), (3, 20.0)] {
            let wake_at = exchanges.wake_at().expect("one waits");
            assert!(wake_at.since(now) <= Span::from_us(100_001), "ten a second");
            assert_eq!(exchanges.next(Moment::from_ns(wake_at.ns() - 2_000), false), None, "not before");
            now = wake_at;
            assert_eq!(exchanges.next(now, false), Some((key(name), reported(per_s))));
            exchanges.spend();
        }
        assert_eq!((exchanges.next(now + Span::from_s(9), false), exchanges.wake_at()), (None, None));
    }

    #[test]
    fn leave_is_hardly_saved_up_and_not_needed_where_there_is_room() {
        let mut exchanges = Exchanges::new(200.0, T0);
        (0..10).for_each(|name| exchanges.want(key(name), reported(f32::from(name) + 1.0)));
        let later = T0 + Span::from_s(60);
        let mut made = 0;
        while exchanges.next(later, false).is_some() {
            exchanges.spend();
            made += 1;
        }
        assert_eq!(made, 3, "one, and those of ten milliseconds");
        assert_eq!((0..).take_while(|_| exchanges.next(later, true).is_some()).count(), 7);
    }

    #[test]
    fn what_is_much_hotter_takes_the_leave_of_the_next_second() {
        let mut exchanges = Exchanges::new(10.0, T0);
        exchanges.set_threshold(5.0);
        (0..40).for_each(|name| exchanges.want(key(name), reported(f32::from(name))));
        let mut next = |now| {
            let next = exchanges.next(now, false).map(|(key, _)| key);
            next.iter().for_each(|_| exchanges.spend());
            (next, exchanges.wake_at().expect("some wait"))
        };
        for name in (30..40).rev() {
            assert_eq!(next(T0).0, Some(key(name)));
        }
        let mut now = T0;
        for name in (20..30).rev() {
            let (none, wake_at) = next(now);
            assert_eq!(none, None, "it is spent");
            assert!(wake_at.since(now) <= Span::from_us(100_001), "ten a second come");
            now = wake_at;
            assert_eq!(next(now).0, Some(key(name)));
        }
        let (none, wake_at) = next(now);
        assert!(none.is_none() && wake_at.since(now) >= Span::from_s(1), "the others wait until that is made good");
        assert_eq!(next(wake_at).0, Some(key(19)));
    }

    #[test]
    fn what_was_taken_ahead_is_made_good_within_a_second_though_the_rate_falls() {
        let mut exchanges = Exchanges::new(100.0, T0);
        exchanges.set_threshold(1.0);
        (0..100).for_each(|name| exchanges.want(key(name), reported(50.0)));
        while exchanges.next(T0, false).is_some() {
            exchanges.spend();
        }
        exchanges.want(key(1), reported(2.0));
        exchanges.set_rate(T0, 10.0);
        let wake_at = exchanges.wake_at().expect("one waits");
        assert!(wake_at.since(T0) <= Span::from_ms(1_101), "a second's, and its own");
        exchanges.give_back();
        assert!(exchanges.wake_at() < Some(wake_at), "what came to nothing is not lost");
    }

    #[test]
    fn without_a_rate_nothing_wakes_anybody() {
        let mut exchanges = Exchanges::new(0.0, T0);
        exchanges.want(key(1), reported(1.0));
        assert_eq!((exchanges.wake_at(), exchanges.next(T0 + Span::from_s(60), false)), (None, None));
        exchanges.set_rate(T0 + Span::from_s(60), 1e-300);
        assert_eq!(exchanges.wake_at(), Some(T0 + Span::from_ns(u64::MAX)));
    }

    #[test]
    fn of_too_many_the_coldest_go() {
        let mut exchanges = Exchanges::new(1.0, T0);
        let len = WAITING_MAX as u16;
        (0..len + 10).for_each(|name| exchanges.want(key(name), reported(f32::from(name) + 1.0)));
        let mut left = std::iter::from_fn(|| exchanges.next(T0, true)).map(|(key, _)| key);
        assert!((10..len + 10).rev().all(|name| left.next() == Some(key(name))));
        assert_eq!(left.next(), None);
    }

    proptest! {
        #[test]
        fn what_waits_is_what_was_reported_last(acts in prop::collection::vec((0u8..5, 0u16..6, 1u16..9), 1..100)) {
            let mut exchanges = Exchanges::new(1.0, T0);
            let mut model: BTreeMap<KeyBytes, Reported> = BTreeMap::new();
            for (step, (act, name, number)) in acts.into_iter().enumerate() {
                let at = T0 + Span::from_ns(step as u64);
                match act {
                    0 | 1 => {
                        let reported = Reported { source: NodeId(number % 3), per_s: f32::from(number), at };
                        exchanges.want(key(name), reported);
                        model.insert(key(name), reported);
                    }
                    2 => {
                        exchanges.forget(&[NodeId(number % 3)].into());
                        model.retain(|_, reported| reported.source != NodeId(number % 3));
                    }
                    3 => {
                        let since = Moment::from_ns(at.ns().saturating_sub(number.into()));
                        exchanges.forget_before(since);
                        model.retain(|_, reported| reported.at >= since);
                    }
                    _ => {
                        let next = exchanges.next(at, true);
                        let hottest = model.iter().max_by(|a, b| a.1.per_s.total_cmp(&b.1.per_s).then(a.0.cmp(b.0)));
                        let hottest = hottest.map(|(key, reported)| (key.clone(), *reported));
                        prop_assert_eq!(&next, &hottest);
                        hottest.map(|(key, _)| model.remove(&key));
                    }
                }
                prop_assert_eq!(&exchanges.waiting, &model);
                prop_assert_eq!(exchanges.by_load.len(), model.len());
            }
        }
    }
}
