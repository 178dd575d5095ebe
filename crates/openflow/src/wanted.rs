//! Which flows switches are to have, and how that has changed: for those who follow it.
//!
//! ```text
//! versions   first ............... last
//! changes        [ ][ ][ ] ... [ ]         each makes of one version the next; of so many only the last are kept
//! ```
//! Always true: who has read all flows at some version, or later, and then heeds all changes since, has what is wanted; to whom changes are missing he is told so.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound::{Excluded, Unbounded},
};

use crate::{Actions, FlowKey};

/// Changes that are kept: what a table with room for 10,000 keys changes by in ten seconds, some times over.
const CHANGES_MAX: usize = 1 << 16;

/// How often something was changed. One life of a controller does not begin where another one has been.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub u64);

/// A flow, and what is to become of its packets; `None`: it is not to be there any more.
pub type FlowChange = (FlowKey, Option<Actions>);

/// The flows.
#[derive(Debug)]
pub(crate) struct Wanted {
    flows: BTreeMap<FlowKey, Actions>,
    changes: VecDeque<FlowChange>,
    version: Version,
}

impl Wanted {
    /// None, at first. The version is to be higher than any of an earlier life.
    pub(crate) fn new(version: Version) -> Self {
        Self { flows: BTreeMap::new(), changes: VecDeque::new(), version }
    }

    /// A flow is to do this, or (`None`) not to be there, from now on.
    pub(crate) fn change(&mut self, key: FlowKey, actions: Option<Actions>) {
        let before = match actions {
            Some(actions) => self.flows.insert(key, actions),
            None => self.flows.remove(&key),
        };
        if before == actions {
            return;
        }
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back((key, actions));
        self.version.0 += 1;
    }

    /// All of them.
    pub(crate) fn flows(&self) -> &BTreeMap<FlowKey, Actions> {
        &self.flows
    }

    /// The version, and the flows behind a key, in their order: as many as there are, or `len_max`.
    pub(crate) fn after(&self, key: Option<FlowKey>, len_max: usize) -> (Version, Vec<(FlowKey, Actions)>) {
        let behind = (key.map_or(Unbounded, Excluded), Unbounded);
        let flows = self.flows.range(behind).take(len_max).map(|(key, actions)| (*key, *actions));
        (self.version, flows.collect())
    }

    /// Which version there is once the changes have been made that have come since another, as many as there are, or `len_max`; `None`: not all of them are known.
    pub(crate) fn since(&self, Version(since): Version, len_max: usize) -> Option<(Version, Vec<FlowChange>)> {
        let missed = usize::try_from(self.version.0.checked_sub(since)?).ok()?;
        let start = self.changes.len().checked_sub(missed)?;
        let changes: Vec<FlowChange> = self.changes.range(start..).take(len_max).copied().collect();
        Some((Version(since + changes.len() as u64), changes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Masked, Match, Port};

    fn key(number: u8) -> FlowKey {
        let eth_dst = Some(Masked::exact([2, 0, 0, 0, 0, number]));
        FlowKey { priority: 400, matched: Match { eth_dst, ..Match::default() } }
    }

    fn to(port: u8) -> Actions {
        Actions { set_eth_dst: None, output: Some(Port(port.into())) }
    }

    fn all(wanted: &Wanted, page: usize) -> BTreeMap<FlowKey, Actions> {
        let (mut read, mut after) = (BTreeMap::new(), None);
        loop {
            let (_, flows) = wanted.after(after, page);
            let Some((last, _)) = flows.last() else { return read };
            after = Some(*last);
            read.extend(flows);
        }
    }

    proptest! {
        #[test]
        fn whoever_follows_has_what_is_wanted(
            changes in prop::collection::vec((0..8_u8, prop::option::of(0..3_u8)), 0..100),
            read_after in 0..100_usize,
            page in 1..5_usize,
        ) {
            let mut wanted = Wanted::new(Version(7));
            let mut read = None;
            for (at, (number, port)) in changes.iter().enumerate() {
                if at == read_after {
                    let (version, _) = wanted.after(None, 0);
                    read = Some((version, all(&wanted, page)));
                }
                wanted.change(key(*number), port.map(to));
            }
            let (mut version, mut flows) = read.unwrap_or((Version(7), BTreeMap::new()));
            loop {
                let (next, changes) = wanted.since(version, page).unwrap();
                if changes.is_empty() {
                    break;
                }
                version = next;
                for (key, actions) in changes {
                    match actions {
                        Some(actions) => flows.insert(key, actions),
                        None => flows.remove(&key),
                    };
                }
            }
            prop_assert_eq!(&flows, wanted.flows());
            prop_assert_eq!(version, wanted.after(None, 0).0);
        }
    }

    #[test]
    fn who_has_missed_too_much_or_knows_another_life_is_told_so() {
        let mut wanted = Wanted::new(Version(7));
        assert_eq!(wanted.since(Version(6), 1), None);
        assert_eq!(wanted.since(Version(8), 1), None);
        for at in 0..=CHANGES_MAX {
            wanted.change(key(0), Some(to((at % 2) as u8)));
        }
        assert_eq!(wanted.since(Version(7), 1), None);
        assert_eq!(wanted.since(Version(8), 1), Some((Version(9), vec![(key(0), Some(to(1)))])));
        let version = wanted.after(None, 0).0;
        wanted.change(key(0), wanted.flows()[&key(0)].into());
        wanted.change(key(1), None);
        assert_eq!(wanted.after(None, 0).0, version, "what changes nothing is no change");
    }
}
