//! Which flows switches are to have, and how that has changed: for those who follow it.
//!
//! ```text
//! versions   first ............... last
//! changes        [ ][ ][ ] ... [ ]         each makes of one version the next; of so many only the last are kept
//! ```
//! Always true: who reads all flows, page by page, and then heeds all changes since the version of the first page, has what is wanted, whatever has changed between
//! two pages; who has missed changes is told so.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound::{Excluded, Unbounded},
};

use crate::{Actions, DatapathId, FlowKey, Malformed};

/// Changes that are kept: what a table with room for 10,000 keys changes by in ten seconds, some times over.
const CHANGES_MAX: usize = 1 << 16;

/// How often something was changed, from somewhere on: one life of a controller hardly ever begins where another has been.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub u64);

/// A flow, and which switches it is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowAt {
    /// Of one switch; `None`: of all. What one has of its own has none of the keys that all have.
    pub switch: Option<DatapathId>,
    /// The flow.
    pub key: FlowKey,
}

/// Of all switches.
impl From<FlowKey> for FlowAt {
    fn from(key: FlowKey) -> Self {
        Self { switch: None, key }
    }
}

impl FlowAt {
    const OF_ALL: u8 = 0;
    const OF_ONE: u8 = 1;

    /// Of which switch, and the key's bytes: no two have the same.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = match self.switch {
            None => vec![Self::OF_ALL],
            Some(DatapathId(switch)) => [&[Self::OF_ONE], &switch.to_be_bytes()[..]].concat(),
        };
        bytes.extend(self.key.to_bytes());
        bytes
    }

    /// The flow of these bytes.
    ///
    /// # Errors
    /// [`Malformed`]: they are none's.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let (kind, rest) = bytes.split_first().ok_or(Malformed)?;
        let (switch, key) = match *kind {
            Self::OF_ALL => (None, rest),
            Self::OF_ONE => {
                let (switch, key) = rest.split_first_chunk().ok_or(Malformed)?;
                (Some(DatapathId(u64::from_be_bytes(*switch))), key)
            }
            _ => return Err(Malformed),
        };
        Ok(Self { switch, key: FlowKey::from_bytes(key)? })
    }
}

/// A flow, and what is to become of its packets; `None`: it is not to be there any more.
pub type FlowChange = (FlowAt, Option<Actions>);

/// Some of the flows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedFlows {
    /// When they were so.
    pub version: Version,
    /// Whether a switch is to have no others of hashes: until a controller that has begun knows what is cached, those are left that an earlier one has made.
    pub is_whole: bool,
    /// Which, and what becomes of their packets.
    pub flows: Vec<(FlowAt, Actions)>,
}

/// What has changed of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedChanges {
    /// Which version that leads to.
    pub version: Version,
    /// As of [`WantedFlows`].
    pub is_whole: bool,
    /// In this order.
    pub changes: Vec<FlowChange>,
}

/// The flows.
#[derive(Debug)]
pub(crate) struct Wanted {
    flows: BTreeMap<FlowAt, Actions>,
    changes: VecDeque<FlowChange>,
    version: Version,
    is_whole: bool,
}

impl Wanted {
    /// None, at first. The version is to be another than any that an earlier life has told.
    pub(crate) fn new(version: Version, is_whole: bool) -> Self {
        Self { flows: BTreeMap::new(), changes: VecDeque::new(), version, is_whole }
    }

    /// There are to be no others from now on.
    pub(crate) fn be_whole(&mut self) {
        self.is_whole = true;
    }

    /// A flow is to do this, or (`None`) not to be there, from now on.
    pub(crate) fn change(&mut self, flow: FlowAt, actions: Option<Actions>) {
        let before = match actions {
            Some(actions) => self.flows.insert(flow, actions),
            None => self.flows.remove(&flow),
        };
        let all_have_it = self.flows.contains_key(&FlowAt::from(flow.key));
        debug_assert!(flow.switch.is_none() || !all_have_it, "one switch's and all switches' flow: {flow:?}");
        if before == actions {
            return;
        }
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back((flow, actions));
        self.version.0 += 1;
    }

    /// Those of one switch, or those of all.
    pub(crate) fn of(&self, switch: Option<DatapathId>) -> impl Iterator<Item = (FlowKey, Actions)> {
        let first = FlowAt { switch, key: FlowKey::default() };
        let its = self.flows.range(first..).take_while(move |(flow, _)| flow.switch == switch);
        its.map(|(flow, actions)| (flow.key, *actions))
    }

    /// The flows behind one, in their order: as many as there are, or `len_max`.
    pub(crate) fn after(&self, flow: Option<FlowAt>, len_max: usize) -> WantedFlows {
        let behind = (flow.map_or(Unbounded, Excluded), Unbounded);
        let flows = self.flows.range(behind).take(len_max).map(|(flow, actions)| (*flow, *actions));
        WantedFlows { version: self.version, is_whole: self.is_whole, flows: flows.collect() }
    }

    /// The changes that have come since a version, as many as there are, or `len_max`; `None`: not all of them are known.
    pub(crate) fn since(&self, Version(since): Version, len_max: usize) -> Option<WantedChanges> {
        let missed = usize::try_from(self.version.0.checked_sub(since)?).ok()?;
        let start = self.changes.len().checked_sub(missed)?;
        let changes: Vec<FlowChange> = self.changes.range(start..).take(len_max).copied().collect();
        let version = Version(since + changes.len() as u64);
        Some(WantedChanges { version, is_whole: self.is_whole, changes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Masked, Match, Port};

    /// Of each third one the second switch has one of its own, and of each third one the seventh.
    fn flow(number: u8) -> FlowAt {
        let eth_dst = Some(Masked::exact([2, 0, 0, 0, 0, number]));
        let switch = [None, Some(DatapathId(2)), Some(DatapathId(7))][usize::from(number % 3)];
        let matched = Match { eth_dst, ..Match::default() };
        FlowAt { switch, key: FlowKey { priority: 400, matched, ..FlowKey::default() } }
    }

    fn to(port: u8) -> Actions {
        Actions { output: Some(Port(port.into())), ..Actions::default() }
    }

    proptest! {
        #[test]
        fn whoever_reads_and_follows_has_what_is_wanted(
            changes in prop::collection::vec((0..8_u8, prop::option::of(0..3_u8)), 0..100),
            begins_after in 0..50_usize,
            page in 1..5_usize,
        ) {
            let mut wanted = Wanted::new(Version(7), true);
            let mut changes = changes.into_iter();
            let mut change_some = |wanted: &mut Wanted, len: usize| {
                changes.by_ref().take(len).for_each(|(number, port)| wanted.change(flow(number), port.map(to)));
            };
            change_some(&mut wanted, begins_after);
            let (mut flows, mut after, mut version) = (BTreeMap::new(), None, None);
            loop {
                let read = wanted.after(after, page);
                version.get_or_insert(read.version);
                let Some((last, _)) = read.flows.last() else { break };
                after = Some(*last);
                flows.extend(read.flows);
                // Between two pages.
                change_some(&mut wanted, 3);
            }
            change_some(&mut wanted, 100);
            let mut version = version.unwrap();
            loop {
                let since = wanted.since(version, page).unwrap();
                if since.changes.is_empty() {
                    break;
                }
                version = since.version;
                for (flow, actions) in since.changes {
                    match actions {
                        Some(actions) => flows.insert(flow, actions),
                        None => flows.remove(&flow),
                    };
                }
            }
            prop_assert_eq!(&flows, &wanted.flows);
            for switch in [None, Some(DatapathId(2)), Some(DatapathId(7))] {
                let its = flows.iter().filter(|(flow, _)| flow.switch == switch).map(|(flow, to)| (flow.key, *to));
                prop_assert_eq!(wanted.of(switch).collect::<Vec<_>>(), its.collect::<Vec<_>>());
            }
            prop_assert_eq!(version, wanted.after(None, 0).version);
        }
    }

    #[test]
    fn flows_come_back_and_other_bytes_are_none() {
        for flow in [flow(0), flow(1), flow(2)] {
            let mut bytes = flow.to_bytes();
            assert_eq!(FlowAt::from_bytes(&bytes), Ok(flow));
            bytes[0] = 2;
            assert_eq!(FlowAt::from_bytes(&bytes), Err(Malformed));
        }
        assert_eq!(FlowAt::from_bytes(&[]), Err(Malformed));
        assert_eq!(FlowAt::from_bytes(&[FlowAt::OF_ONE, 0, 0, 7]), Err(Malformed));
    }

    #[test]
    fn who_has_missed_too_much_or_knows_another_life_is_told_so() {
        let mut wanted = Wanted::new(Version(7), false);
        assert_eq!(wanted.since(Version(6), 1), None);
        assert_eq!(wanted.since(Version(8), 1), None);
        for at in 0..=CHANGES_MAX {
            wanted.change(flow(0), Some(to((at % 2) as u8)));
        }
        assert_eq!(wanted.since(Version(7), 1), None);
        let next = |is_whole| WantedChanges { version: Version(9), is_whole, changes: vec![(flow(0), Some(to(1)))] };
        assert_eq!(wanted.since(Version(8), 1), Some(next(false)));
        let version = wanted.after(None, 0).version;
        wanted.change(flow(0), wanted.flows[&flow(0)].into());
        wanted.change(flow(1), None);
        wanted.be_whole();
        assert_eq!(wanted.after(None, 0).version, version, "what changes nothing is no change");
        assert_eq!(wanted.since(Version(8), 1), Some(next(true)));
    }
}
