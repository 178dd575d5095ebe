//! Which keys are hot, by epochs: the hottest that one node's tracker has seen (ccKVS, section 4: all nodes see the same distribution, so one is enough).
//!
//! ```text
//! tracker: a 90, b 70, c 40, d 39 ...     set before: a, b, x     set after: a, b, c      c comes for x, d for nobody
//! ```
//! A change of the set costs two rounds of all nodes and a pause of the key, so a key comes for another only if it is hotter by a margin, and only so many do in an epoch.
//!
//! Always true: the set has no more keys than it may have; it is another one only under another number, and numbers go up.

use std::collections::{BTreeMap, BTreeSet};

use guira_consistency::Key;
use guira_hotkeys::HotKey;
use serde::{Deserialize, Serialize};

/// How a set is chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HotSetConfig {
    /// Keys of a set, at most.
    pub len_max: usize,
    /// Keys that come, or go, in an epoch, at most.
    pub changes_max: usize,
    /// A key comes for another if it is so many times as hot, from 1 on: what chance makes of keys that are as hot.
    pub margin: f64,
}

/// The keys that are to be hot.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HotSet {
    /// Which of the sets it is that were chosen one after the other.
    pub number: u64,
    /// Its keys.
    pub keys: BTreeSet<Key>,
}

/// Chooses sets.
#[derive(Clone, Debug)]
pub struct HotSetChooser {
    config: HotSetConfig,
    set: HotSet,
}

impl HotSetChooser {
    /// One that goes on from a set: nothing, or what another one has chosen before it.
    ///
    /// # Panics
    /// The margin is below 1, or no number.
    pub fn new(config: HotSetConfig, set: HotSet) -> Self {
        assert!(config.margin >= 1.0, "a margin of {}", config.margin);
        Self { config, set }
    }

    /// The set as it is.
    pub fn set(&self) -> &HotSet {
        &self.set
    }

    /// An epoch is over, in which these keys were the hottest, hottest first. Whether there is another set now.
    ///
    /// A key of the set that is not among them has no load that is known. The tracker is to keep as many keys as the set has, and some more.
    pub fn end_epoch(&mut self, hottest: &[HotKey]) -> bool {
        let loads: BTreeMap<&[u8], f64> = hottest.iter().map(|hot| (&hot.key[..], hot.per_s)).collect();
        let load = |key: &Key| loads.get(&key[..]).copied().unwrap_or(0.0);
        let mut coldest: Vec<Key> = self.set.keys.iter().cloned().collect();
        coldest.sort_by(|a, b| load(a).total_cmp(&load(b)).then_with(|| a.cmp(b)));
        // Of a set that was larger: another one's, before.
        let too_many = coldest.len().saturating_sub(self.config.len_max);
        let mut going: Vec<Key> = coldest.drain(..too_many).collect();
        let mut coldest = coldest.into_iter().peekable();
        let (mut coming, mut room) = (Vec::new(), self.config.len_max.saturating_sub(self.set.keys.len()));
        let others = hottest.iter().filter(|hot| hot.per_s > 0.0 && !self.set.keys.contains(&Key::from(&hot.key[..])));
        for hot in others.take(self.config.changes_max) {
            if room > 0 {
                room -= 1;
            } else if let Some(cold) = coldest.next_if(|cold| hot.per_s > load(cold) * self.config.margin) {
                going.push(cold);
            } else {
                break;
            }
            coming.push(Key::from(&hot.key[..]));
        }
        if coming.is_empty() && going.is_empty() {
            return false;
        }
        self.set.number += 1;
        going.iter().for_each(|key| _ = self.set.keys.remove(key));
        self.set.keys.extend(coming);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONFIG: HotSetConfig = HotSetConfig { len_max: 3, changes_max: 2, margin: 1.25 };

    fn hottest(loads: &[(&str, f64)]) -> Vec<HotKey> {
        let mut hottest: Vec<HotKey> =
            loads.iter().map(|(key, per_s)| HotKey { key: key.as_bytes().into(), per_s: *per_s }).collect();
        hottest.sort_by(|a, b| b.per_s.total_cmp(&a.per_s));
        hottest
    }

    fn keys(chooser: &HotSetChooser) -> Vec<String> {
        chooser.set().keys.iter().map(|key| String::from_utf8(key.to_vec()).unwrap()).collect()
    }

    #[test]
    fn the_hottest_come_some_at_a_time_and_stay_until_others_are_hotter_by_the_margin() {
        let mut chooser = HotSetChooser::new(CONFIG, HotSet::default());
        let loads = hottest(&[("a", 90.0), ("b", 70.0), ("x", 30.0), ("c", 0.0)]);
        assert!(chooser.end_epoch(&loads));
        assert_eq!((keys(&chooser), chooser.set().number), (vec!["a".into(), "b".into()], 1));
        assert!(chooser.end_epoch(&loads));
        assert_eq!(keys(&chooser), ["a", "b", "x"]);
        assert!(!chooser.end_epoch(&loads), "what nobody asks for does not come");
        assert!(!chooser.end_epoch(&hottest(&[("a", 90.0), ("b", 70.0), ("c", 37.0), ("x", 30.0)])));
        assert!(chooser.end_epoch(&hottest(&[("a", 90.0), ("b", 70.0), ("c", 38.0), ("d", 37.0), ("x", 30.0)])));
        assert_eq!((keys(&chooser), chooser.set().number), (vec!["a".into(), "b".into(), "c".into()], 3));
        // Two are gone from the tracker's list.
        assert!(chooser.end_epoch(&hottest(&[("d", 5.0), ("e", 4.0), ("f", 3.0), ("a", 2.0)])));
        assert_eq!(keys(&chooser), ["a", "d", "e"]);
    }

    #[test]
    fn a_set_that_is_larger_than_it_may_be_loses_its_coldest() {
        let set = HotSet { number: 7, keys: ["a", "b", "c", "d", "e"].map(|key| Key::from(key.as_bytes())).into() };
        let mut chooser = HotSetChooser::new(CONFIG, set);
        assert!(chooser.end_epoch(&hottest(&[("e", 9.0), ("a", 8.0), ("c", 7.0)])));
        assert_eq!((keys(&chooser), chooser.set().number), (vec!["a".into(), "c".into(), "e".into()], 8));
    }

    proptest! {
        #[test]
        fn whatever_was_asked_for_the_set_is_bounded_and_comes_to_be_the_hottest(
            before in prop::collection::vec(0..20_u8, 0..20),
            loads in prop::collection::btree_map(0..20_u8, 1..1_000_u32, 0..20),
            len_max in 1..6_usize,
            changes_max in 1..4_usize,
        ) {
            let config = HotSetConfig { len_max, changes_max, margin: 1.0 };
            let keys = before.into_iter().take(len_max).map(|key| Key::from(&[key][..])).collect();
            let mut chooser = HotSetChooser::new(config, HotSet { number: 1, keys });
            // No two are as hot.
            let mut hottest: Vec<HotKey> = loads.iter()
                .map(|(key, load)| HotKey { key: [*key].into(), per_s: f64::from(*load) + f64::from(*key) / 64.0 })
                .collect();
            hottest.sort_by(|a, b| b.per_s.total_cmp(&a.per_s));
            let mut epochs = 0;
            loop {
                let before = chooser.set().clone();
                let has_changed = chooser.end_epoch(&hottest);
                let (came, went) = (chooser.set().keys.difference(&before.keys).count(), before.keys.difference(&chooser.set().keys).count());
                prop_assert!(came <= changes_max && went <= changes_max && chooser.set().keys.len() <= len_max);
                prop_assert_eq!(has_changed, chooser.set().keys != before.keys);
                prop_assert_eq!(chooser.set().number, before.number + u64::from(has_changed));
                if !has_changed {
                    break;
                }
                epochs += 1;
                prop_assert!(epochs <= len_max);
            }
            let expected = hottest.iter().take(len_max).map(|hot| Key::from(&hot.key[..]));
            prop_assert!(expected.into_iter().all(|key| chooser.set().keys.contains(&key)));
        }
    }
}
