//! What is asked of a row, one thing after the other, until an operation is over: the protocol between a store and what it shares with
//! stores that were its owner before, or will be. No input, no output, no clock.
//!
//! ```text
//! a change  [read] -> write if the stamp is the one read -- applied ------> done
//!             ^                | lost: once more, under     | another stamp is there
//!             |                v the same condition         |
//!             +---------------------------------------------+
//! a read    read -> of this owner's epoch: done
//!                -> of an earlier one, or absent: write the same once more, under a stamp of this epoch -> done
//!           and so does a change that does not fit what is there
//! ```
//! Every write of a row is a transaction under the condition that the row has the stamp, and puts a stamp that no other write has.
//! Always true, which is why nothing old is ever served, and nothing new is ever lost:
//! - of the writes that have been sent under one condition at most one is applied, and none once the stamp is another one;
//! - a row is served under this owner's epoch only, so that what an earlier owner still has on its way fits nothing;
//! - a write of which nothing was heard is settled by a transaction that puts another stamp, or finds one, and never by a read: a read
//!   cannot tell what never was from what is still to come.

use std::fmt;

/// Counts the owners of a keyspace, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Epoch(pub(super) i64);

/// Which write a row is from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Stamp {
    /// The owner that wrote it.
    pub(super) epoch: Epoch,
    /// Told apart from all others of that owner's.
    pub(super) serial: i64,
}

/// What is in a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row<V> {
    pub(super) stamp: Stamp,
    /// What is under the key; `None`: nothing, but the row has been written.
    pub(super) content: Option<V>,
}

/// What is to be asked of the row next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ask<V> {
    /// What is there, after every transaction that was applied before.
    Read,
    /// To put this if the row has that stamp, or is absent.
    Write { expected: Option<Stamp>, row: Row<V> },
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Heard<V> {
    /// This is there.
    Row(Option<Row<V>>),
    /// It was put.
    Applied,
    /// Another stamp is there, or none.
    NotApplied,
    /// It never reached the row, and never will.
    Refused,
    /// Nobody can say whether it was, or will be.
    Lost,
}

/// How an operation ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End<V> {
    /// This is there.
    Read(Option<V>),
    /// The change is there.
    Changed,
    /// The change did not fit, and is not there.
    NotFitting,
    /// The row is a later owner's. `unknown`: the change may have been there before that.
    Fenced { unknown: bool },
}

/// What is left of a write of which nothing was heard: it was sent under the condition that the row had this stamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Doubt(pub(super) Option<Stamp>);

/// Whether what is under a key lets a change take place.
pub(super) type Fits<V> = Box<dyn Fn(Option<&V>) -> bool + Send>;

/// What an operation is for.
pub(super) enum Goal<V> {
    /// To know what is there.
    Read,
    /// To put something, or nothing, if what is there fits.
    Change {
        /// What is under the key afterwards.
        content: Option<V>,
        /// `None`: whatever is there.
        fits: Option<Fits<V>>,
    },
}

impl<V: fmt::Debug> fmt::Debug for Goal<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read => f.write_str("Read"),
            Self::Change { content, fits } => {
                f.debug_struct("Change").field("content", content).field("conditional", &fits.is_some()).finish()
            }
        }
    }
}

/// What holds an owner from going wrong; the tests take each away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// A row of an earlier owner is written once more before it is served.
    pub(super) stamps_what_it_serves: bool,
    /// A write of which nothing was heard is settled by another, not by a read.
    pub(super) settles_by_writing: bool,
}

impl Rules {
    pub(super) const ALL: Self = Self { stamps_what_it_serves: true, settles_by_writing: true };
}

/// A write of an operation.
#[derive(Clone, Copy, Debug)]
struct Sent {
    serial: i64,
    /// Its condition.
    expected: Option<Stamp>,
    /// It is what the operation is for, not what was there.
    is_change: bool,
}

/// An operation on a row that is on its way.
#[derive(Debug)]
pub(super) struct Operation<V> {
    epoch: Epoch,
    rules: Rules,
    goal: Goal<V>,
    /// The row as it was last read, if it may still be so.
    seen: Option<Option<Row<V>>>,
    /// The stamp under which to write without having read, if one was known.
    expected: Option<Stamp>,
    /// Writes of earlier operations that are in doubt.
    doubt: Option<Doubt>,
    /// The change does not fit what was read: that is stamped, to be told.
    is_refusal: bool,
    sent: Vec<Sent>,
    /// The last of them may still be on its way.
    in_doubt: bool,
    /// The stamp of this epoch that the row was last seen or put with.
    left: Option<Stamp>,
}

/// Writes of one operation: an operation ends by its deadline long before.
const SENT_MAX: usize = 1 << 10;

impl<V: Clone> Operation<V> {
    /// An operation of the owner with `epoch`. `expected` is the stamp that the row has, if it is known; `doubt` what earlier
    /// operations have left.
    pub(super) fn new(
        epoch: Epoch,
        rules: Rules,
        goal: Goal<V>,
        expected: Option<Stamp>,
        doubt: Option<Doubt>,
    ) -> Self {
        let is_blind = matches!(goal, Goal::Change { fits: None, .. });
        let expected = expected.filter(|_| is_blind && doubt.is_none());
        let (is_refusal, sent) = (false, Vec::new());
        Self { epoch, rules, goal, seen: None, expected, doubt, is_refusal, sent, in_doubt: false, left: None }
    }

    /// What to ask next. `serial` is given to one write only.
    pub(super) fn ask(&mut self, serial: i64) -> Ask<V> {
        let (expected, content) = match (&self.seen, self.expected) {
            (Some(row), _) => (row.as_ref().map(|row| row.stamp), self.content(row.as_ref())),
            (None, Some(stamp)) => (Some(stamp), self.content(None)),
            (None, None) => return Ask::Read,
        };
        assert!(self.sent.len() < SENT_MAX, "it should have ended");
        let is_change = matches!(self.goal, Goal::Change { .. }) && !self.is_refusal;
        self.sent.push(Sent { serial, expected, is_change });
        Ask::Write { expected, row: Row { stamp: Stamp { epoch: self.epoch, serial }, content } }
    }

    fn content(&self, row: Option<&Row<V>>) -> Option<V> {
        match &self.goal {
            Goal::Change { content, .. } if !self.is_refusal => content.clone(),
            _ => row.and_then(|row| row.content.clone()),
        }
    }

    /// What was heard; `None` if the operation goes on.
    pub(super) fn on(&mut self, heard: Heard<V>) -> Option<End<V>> {
        match heard {
            Heard::Row(row) => self.on_row(row),
            Heard::Applied => {
                self.left = self.sent.last().map(|sent| Stamp { epoch: self.epoch, serial: sent.serial });
                (self.in_doubt, self.doubt) = (false, None);
                Some(self.end())
            }
            Heard::NotApplied => {
                // Whatever was sent under that condition is settled; which of it was applied is seen by the stamp.
                (self.seen, self.expected) = (None, None);
                None
            }
            Heard::Refused => None,
            Heard::Lost => {
                // A read that is lost leaves nothing.
                self.in_doubt |= self.seen.is_some() || self.expected.is_some();
                if !self.rules.settles_by_writing {
                    (self.seen, self.expected) = (None, None);
                }
                None
            }
        }
    }

    fn end(&self) -> End<V> {
        match &self.goal {
            Goal::Read => End::Read(self.seen.clone().flatten().and_then(|row| row.content)),
            Goal::Change { .. } if self.is_refusal => End::NotFitting,
            Goal::Change { .. } => End::Changed,
        }
    }

    fn on_row(&mut self, row: Option<Row<V>>) -> Option<End<V>> {
        let stamp = row.as_ref().map(|row| row.stamp);
        if let Some(Stamp { epoch, .. }) = stamp
            && epoch > self.epoch
        {
            return Some(End::Fenced { unknown: self.may_have_changed() });
        }
        let is_own = stamp.is_some_and(|stamp| {
            stamp.epoch == self.epoch && self.sent.iter().any(|sent| sent.is_change && sent.serial == stamp.serial)
        });
        // What was sent while the row had another stamp is settled: it is there, or never will be.
        self.in_doubt &= self.sent.last().is_some_and(|sent| sent.expected == stamp);
        self.doubt = self.doubt.filter(|Doubt(expected)| *expected == stamp);
        let is_of_this_epoch = stamp.is_some_and(|stamp| stamp.epoch == self.epoch);
        self.left = stamp.filter(|_| is_of_this_epoch);
        let content = row.as_ref().and_then(|row| row.content.as_ref());
        let is_stamped = is_of_this_epoch || !self.rules.stamps_what_it_serves;
        let is_settled = self.doubt.is_none() && !self.in_doubt || !self.rules.settles_by_writing;
        let is_served = is_stamped && is_settled;
        let end = match &self.goal {
            Goal::Read => is_served.then(|| End::Read(content.cloned())),
            Goal::Change { .. } if is_own => Some(End::Changed),
            // Taken for one that never was, as nobody may who has only read.
            Goal::Change { .. } if !self.rules.settles_by_writing && !self.sent.is_empty() => Some(End::NotFitting),
            Goal::Change { fits, .. } => {
                self.is_refusal = fits.as_ref().is_some_and(|fits| !fits(content));
                (self.is_refusal && is_served).then_some(End::NotFitting)
            }
        };
        self.seen = Some(row);
        end
    }

    /// Whether the change may have been applied, or may be yet, though nothing was heard of it. A read changes nothing.
    pub(super) fn may_have_changed(&self) -> bool {
        self.in_doubt && self.sent.iter().any(|sent| sent.is_change)
    }

    /// What whoever goes on with the row has to know if the operation is given up; `None` if nothing is in doubt.
    pub(super) fn doubt_left(&self) -> Option<Doubt> {
        match self.sent.last() {
            Some(sent) if self.in_doubt => Some(Doubt(sent.expected)),
            _ => self.doubt,
        }
    }

    /// The stamp that the row has after an operation that has ended well, if it is of this epoch.
    pub(super) fn stamp_left(&self) -> Option<Stamp> {
        self.left
    }
}

#[cfg(test)]
#[path = "row_tests.rs"]
mod tests;
