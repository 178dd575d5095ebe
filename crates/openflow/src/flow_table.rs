//! The flows of a switch of ours, over what looks packets up.
//!
//! Always true: what looks packets up has the flows that are in the table, and no others: one that it refuses is not in there, and what was there with
//! its key stays. Flows outlive the connections on which they came; there are at most so many.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
};

use guira_routing::MacAddress;

use crate::{Actions, Cookie, FlowKey, Masked, Match, Port, PortStats, Refusal, TableId, TableStats};

/// What looks packets up, and does with them as the flow of the highest priority says that takes them.
pub trait Lookups {
    /// A flow is to be there from now on, in the place of one with its key.
    ///
    /// # Errors
    /// It is of a form that cannot be looked up, or there is no room for it: all is as it was.
    fn make(&mut self, key: FlowKey, actions: Actions) -> Result<(), Refusal>;

    /// A flow that was made is not to be there any more.
    fn take_back(&mut self, key: &FlowKey);

    /// How often packets were looked up; flows are counted by the table.
    fn table(&self) -> TableStats;

    /// The ports.
    fn ports(&self) -> Vec<PortStatus>;
}

/// A port, and what has gone through it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortStatus {
    /// Its number, and what has gone through it.
    pub stats: PortStats,
    /// Its address.
    pub mac: MacAddress,
    /// Its name, of which the first 15 bytes are told.
    pub name: String,
}

/// Some of the flows, by what they have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selection {
    /// Those with such a cookie.
    pub cookies: Masked<8>,
    /// Those that take such packets, or some of them.
    pub matched: Match,
    /// Those that lead to this port; `None`: wherever they lead.
    pub to: Option<Port>,
    /// Those that lead to a group: of ours none does.
    pub to_group: bool,
}

impl Selection {
    /// The one of this priority that matches the same.
    fn key(&self, priority: u16) -> FlowKey {
        FlowKey { table: TableId::FIRST, priority, matched: self.matched }
    }

    /// Whether a flow is one of them.
    pub fn takes(&self, key: &FlowKey, cookie: Cookie, actions: &Actions) -> bool {
        let leads_there = !self.to_group && self.to.is_none_or(|to| actions.output == Some(to));
        leads_there && self.cookies.takes(cookie.0.to_be_bytes()) && self.matched.includes(&key.matched)
    }
}

/// Numbers about a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCounts {
    /// Flows that were made, or came to do something else.
    pub made: u64,
    /// Flows that were taken back.
    pub taken_back: u64,
    /// Flows that were refused.
    pub refused: u64,
}

/// The flows.
#[derive(Debug)]
pub struct FlowTable<L> {
    lookups: L,
    flows: BTreeMap<FlowKey, (Cookie, Actions)>,
    flows_max: usize,
    counts: FlowCounts,
}

impl<L: Lookups> FlowTable<L> {
    /// One that has no flows yet, and then at most so many. What looks packets up has none, either.
    pub fn new(lookups: L, flows_max: usize) -> Self {
        Self { lookups, flows: BTreeMap::new(), flows_max, counts: FlowCounts::default() }
    }

    /// What looks packets up.
    pub fn lookups(&self) -> &L {
        &self.lookups
    }

    /// Flows that are there.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether none is there.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// As many may be there.
    pub fn flows_max(&self) -> usize {
        self.flows_max
    }

    /// The flows behind that one, or all, by priority, the lowest first.
    pub fn flows(&self, behind: Option<FlowKey>) -> impl Iterator<Item = (&FlowKey, Cookie, &Actions)> {
        let from = behind.map_or(Unbounded, Excluded);
        self.flows.range((from, Unbounded)).map(|(key, (cookie, actions))| (key, *cookie, actions))
    }

    /// Numbers.
    pub fn counts(&self) -> FlowCounts {
        self.counts
    }

    /// How much is in the table, and how often it was used.
    pub fn stats(&self) -> TableStats {
        TableStats { flows: self.flows.len() as u32, ..self.lookups.table() }
    }

    /// A flow is to be there, in the place of one with its key.
    ///
    /// # Errors
    /// There are as many as there may be, or it cannot be looked up.
    pub fn add(&mut self, cookie: Cookie, key: FlowKey, actions: Actions) -> Result<(), Refusal> {
        let earlier = self.flows.get(&key).map(|(_, actions)| *actions);
        let made = match earlier {
            Some(earlier) if earlier == actions => Ok(()),
            None if self.flows.len() >= self.flows_max => Err(Refusal::TABLE_FULL),
            _ => self.lookups.make(key, actions),
        };
        match made {
            Ok(()) => {
                self.counts.made += 1;
                self.flows.insert(key, (cookie, actions));
            }
            Err(_) => self.counts.refused += 1,
        }
        made
    }

    /// Flows are to do something else: the selected ones, or, with a priority, the one of them with this priority that matches the same.
    ///
    /// # Errors
    /// One of them cannot do that, and stays as it is; all others do it.
    pub fn modify(&mut self, which: &Selection, priority: Option<u16>, actions: Actions) -> Result<(), Refusal> {
        let mut done = Ok(());
        let Self { lookups, flows, counts, .. } = self;
        let mut change = |key: &FlowKey, flow: &mut (Cookie, Actions)| {
            if flow.1 == actions || !which.takes(key, flow.0, &flow.1) {
                return;
            }
            match lookups.make(*key, actions) {
                Ok(()) => (flow.1, counts.made) = (actions, counts.made + 1),
                Err(refusal) => (done, counts.refused) = (Err(refusal), counts.refused + 1),
            }
        };
        match priority.map(|priority| which.key(priority)) {
            Some(key) => _ = flows.get_mut(&key).map(|flow| change(&key, flow)),
            None => flows.iter_mut().for_each(|(key, flow)| change(key, flow)),
        }
        done
    }

    /// Flows are not to be there any more: which, as for [`modify`](Self::modify).
    pub fn delete(&mut self, which: &Selection, priority: Option<u16>) {
        let Self { lookups, flows, counts, .. } = self;
        let mut goes = |key: &FlowKey, (cookie, actions): &(Cookie, Actions)| {
            let goes = which.takes(key, *cookie, actions);
            if goes {
                lookups.take_back(key);
                counts.taken_back += 1;
            }
            goes
        };
        match priority.map(|priority| which.key(priority)) {
            Some(key) => {
                if flows.get(&key).is_some_and(|flow| goes(&key, flow)) {
                    flows.remove(&key);
                }
            }
            None => flows.retain(|key, flow| !goes(key, flow)),
        }
    }
}
