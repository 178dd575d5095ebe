//! What is asked of a row, one thing after the other, until an operation is over.
//!
//! ```text
//! a change  [read] -> write if the stamp is the one read -- applied ------> done
//!             ^                | lost: once more, under     | another stamp is there
//!             |                v the same condition         |
//!             +---------------------------------------------+
//! a read    read -> of this owner's epoch: done
//!                -> of an earlier one, below the floor, or absent: write the same once more, under a stamp of this epoch -> done
//!           and so does a change that does not fit what is there
//! ```
//! Every write of a row is a transaction under the condition that the row has the stamp, and puts a stamp that no other write has.
//! Always true, which is why nothing old is ever served, and nothing new is ever lost:
//! - of the writes that have been sent under one condition at most one is applied, and none once the stamp is another one;
//! - a row is served under a stamp of this owner's only, above the floor, so that what an earlier owner still has on its way fits nothing;
//! - a write of which nothing was heard is settled by a transaction that puts another stamp, or finds one, and never by a read: a read
//!   cannot tell what never was from what is still to come;
//! - a row whose stamp is below its floor has no content: what was written before the floor was put counts for nothing, whenever it comes;
//! - what a row has, and this owner has not known it to have, is told to be news by the first read that serves it.

use std::fmt;

/// Counts the owners of a keyspace, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Epoch(pub i64);

/// Which write a row is from. Ordered as they were given out, by an owner and by one after the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stamp {
    /// The owner that wrote it.
    pub epoch: Epoch,
    /// Above all that were given out by that owner before.
    pub serial: i64,
}

/// What is in a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row<V> {
    /// Of the write that it is from.
    pub stamp: Stamp,
    /// What is under the key; `None`: nothing, but the row has been written.
    pub content: Option<V>,
}

/// What is to be asked of the row next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask<V> {
    /// What is there, after every transaction that was applied before.
    Read,
    /// To put this if the row has that stamp, or is absent.
    Write {
        /// Its stamp; `None`: it is absent.
        expected: Option<Stamp>,
        /// What is put.
        row: Row<V>,
    },
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard<V> {
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
pub enum End<V> {
    /// This is there.
    Read {
        /// What is under the key.
        content: Option<V>,
        /// It may be from an owner before, or from a write of which nothing was heard: this owner has not served it yet.
        is_news: bool,
    },
    /// The change is there.
    Changed,
    /// The change did not fit, and is not there.
    NotFitting,
    /// The row is a later owner's.
    Fenced {
        /// The change may have been there before that.
        unknown: bool,
    },
}

/// What is left of a write of which nothing was heard: it was sent under the condition that the row had this stamp. It stays until what the row has was
/// told to somebody, though the write may be settled by then: what it has left is news.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Doubt(pub Option<Stamp>);

/// What an owner knows of a row before it asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remembered {
    /// The stamp of its epoch that the row has: one that is wrong costs a read.
    pub stamp: Option<Stamp>,
    /// What its earlier operations have left, unless it is below the floor. It has to be right.
    pub doubt: Option<Doubt>,
    /// Below this stamp the row has no content. It has to be right.
    pub floor: Option<Stamp>,
}

/// Whether what is under a key lets a change take place.
pub type Fits<V> = Box<dyn Fn(Option<&V>) -> bool + Send>;

/// What an operation is for.
pub enum Goal<V> {
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
pub struct Rules {
    /// A row of an earlier owner is written once more before it is served.
    pub stamps_what_it_serves: bool,
    /// A write of which nothing was heard is settled by another, not by a read.
    pub settles_by_writing: bool,
    /// What is below a row's floor is none of its content.
    pub heeds_floors: bool,
    /// What was in doubt is news, whoever has settled it.
    pub keeps_news: bool,
}

impl Rules {
    /// All of them.
    pub const ALL: Self =
        Self { stamps_what_it_serves: true, settles_by_writing: true, heeds_floors: true, keeps_news: true };
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
pub struct Operation<V> {
    epoch: Epoch,
    rules: Rules,
    goal: Goal<V>,
    /// The row as it was last read, if it may still be so.
    seen: Option<Option<Row<V>>>,
    /// The stamp under which to write without having read, if one was known.
    expected: Option<Stamp>,
    /// Writes of earlier operations that are in doubt.
    doubt: Option<Doubt>,
    /// What was remembered of that.
    first_doubt: Option<Doubt>,
    /// It has ended.
    is_over: bool,
    /// And whoever has asked knows what the row has.
    is_told: bool,
    floor: Option<Stamp>,
    /// The change does not fit what was read: that is stamped, to be told.
    is_refusal: bool,
    sent: Vec<Sent>,
    /// The last of them may still be on its way.
    in_doubt: bool,
    /// The stamp of this epoch that the row was last seen or put with.
    left: Option<Stamp>,
}

/// Writes of one operation, at most: it ends by its deadline long before.
pub const SENT_MAX: usize = 1 << 10;

impl<V: Clone> Operation<V> {
    /// An operation of the owner with `epoch`.
    pub fn new(epoch: Epoch, rules: Rules, goal: Goal<V>, remembered: Remembered) -> Self {
        let Remembered { stamp, doubt, floor } = remembered;
        let is_blind = matches!(goal, Goal::Change { fits: None, .. });
        Self {
            epoch,
            rules,
            goal,
            seen: None,
            expected: stamp.filter(|_| is_blind && doubt.is_none()),
            doubt,
            first_doubt: doubt,
            is_over: false,
            is_told: false,
            floor: floor.filter(|_| rules.heeds_floors),
            is_refusal: false,
            sent: Vec::new(),
            in_doubt: false,
            left: None,
        }
    }

    /// What to ask next. `serial` is given to one write only, and above all that were given before.
    ///
    /// # Panics
    /// After [`SENT_MAX`] writes.
    pub fn ask(&mut self, serial: i64) -> Ask<V> {
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
    pub fn on(&mut self, heard: Heard<V>) -> Option<End<V>> {
        let end = self.hear(heard);
        self.is_over = end.is_some();
        self.is_told = matches!(end, Some(End::Read { .. } | End::Changed));
        end
    }

    fn hear(&mut self, heard: Heard<V>) -> Option<End<V>> {
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
            Heard::Refused => {
                // As if it had not been sent.
                if self.seen.is_some() || self.expected.is_some() {
                    self.sent.pop();
                }
                None
            }
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
            Goal::Read => self.read(self.seen.as_ref().and_then(|row| row.as_ref()?.content.clone())),
            Goal::Change { .. } if self.is_refusal => End::NotFitting,
            Goal::Change { .. } => End::Changed,
        }
    }

    fn read(&self, content: Option<V>) -> End<V> {
        End::Read { content, is_news: self.unheard().is_some() }
    }

    /// What the row may have though nobody was told: what was in doubt before, or was there before this owner first put its stamp.
    fn unheard(&self) -> Option<Doubt> {
        self.first_doubt.or(self.sent.first().map(|sent| Doubt(sent.expected)))
    }

    fn on_row(&mut self, mut row: Option<Row<V>>) -> Option<End<V>> {
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
        let is_below = stamp.zip(self.floor).is_some_and(|(stamp, floor)| stamp < floor);
        if let Some(row) = row.as_mut().filter(|_| is_below) {
            row.content = None;
        }
        let content = row.as_ref().and_then(|row| row.content.as_ref());
        let is_stamped = is_of_this_epoch && !is_below || !self.rules.stamps_what_it_serves;
        let is_settled = self.doubt.is_none() && !self.in_doubt || !self.rules.settles_by_writing;
        let is_served = is_stamped && is_settled;
        let end = match &self.goal {
            Goal::Read => is_served.then(|| self.read(content.cloned())),
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
    pub fn may_have_changed(&self) -> bool {
        self.in_doubt && self.sent.iter().any(|sent| sent.is_change)
    }

    /// What whoever goes on with the row has to know, once the operation has ended, or if it is given up; `None` if nothing is in doubt, and nothing news.
    pub fn doubt_left(&self) -> Option<Doubt> {
        match self.sent.last() {
            _ if self.is_told => None,
            Some(sent) if self.in_doubt => Some(Doubt(sent.expected)),
            _ if !self.rules.keeps_news => self.doubt,
            // Even if it is settled by now.
            _ => self.unheard(),
        }
    }

    /// The stamp that the row has once the operation has ended, if it is of this epoch.
    pub fn stamp_left(&self) -> Option<Stamp> {
        self.left.filter(|_| self.is_over)
    }
}

#[cfg(test)]
#[path = "operation_tests.rs"]
mod tests;
