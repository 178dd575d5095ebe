//! How a member that has nothing comes to have all there is: it acknowledges and keeps what is written from its first view on, and copies the rest
//! from one that is whole.
//!
//! Always true:
//! - of what is copied and what was written meanwhile the newer stays;
//! - no eviction ends in the view of who joins, since who joins answers none; one that has ended in the view before may have left somebody with what
//!   he has not forgotten yet: that is copied as what it is, and the home says what becomes of it.

use std::collections::BTreeMap;
use std::ops::Bound;

use guira_item::Moment;
use guira_routing::NodeId;

use crate::{
    Key, Message, Mutant, Outbox,
    entry::{Entry, Stage},
    ground::Ground,
    message::Copied,
};

/// Copying, while it lasts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Joining {
    /// Who is asked: whichever member is next when one does not answer.
    source: Option<NodeId>,
    /// The number of the question.
    number: u32,
    /// All up to this key is here.
    after: Option<Key>,
    asked_at: Moment,
}

impl Joining {
    /// Begins, in a view; with a number that no question before had.
    pub(crate) fn begin(before: Option<&Self>, ground: &Ground, now: Moment, out: &mut Outbox) -> Self {
        let number = before.map_or(1, |before| before.number + 1);
        let joining = Self { source: ground.others().next(), number, after: None, asked_at: now };
        joining.ask(ground, out);
        joining
    }

    fn ask(&self, ground: &Ground, out: &mut Outbox) {
        if let Some(source) = self.source {
            let message = Message::Fetch { number: self.number, after: self.after.clone() };
            ground.send(source, message, out);
        }
    }

    /// Time has passed: somebody else is asked, from the beginning.
    pub(crate) fn on_tick(&mut self, ground: &Ground, now: Moment, out: &mut Outbox) {
        if now.since(self.asked_at) < ground.config.tell_again_after {
            return;
        }
        let behind = ground.others().find(|member| Some(*member) > self.source);
        let source = behind.or_else(|| ground.others().next());
        if source != self.source {
            *self = Self { source, number: self.number + 1, after: None, asked_at: now };
        }
        self.asked_at = now;
        self.ask(ground, out);
    }

    /// Whether this is the answer that is waited for.
    pub(crate) fn waits_for(&self, from: NodeId, number: u32) -> bool {
        number == self.number && Some(from) == self.source
    }

    /// Asks for what is behind a key.
    pub(crate) fn go_on(&mut self, ground: &Ground, after: Option<Key>, now: Moment, out: &mut Outbox) {
        self.number += 1;
        self.after = after;
        self.asked_at = now;
        self.ask(ground, out);
    }
}

/// Takes what is newer of what was copied.
pub(crate) fn merge(
    ground: &mut Ground,
    entries: &mut BTreeMap<Key, Entry>,
    now: Moment,
    copied: Copied,
    out: &mut Outbox,
) {
    let Copied { key, generation, version, done, is_valid, is_hot, is_leaving, is_doubtful } = copied;
    let stage = match (is_leaving && !ground.has(Mutant::JoinerRevives), is_hot || is_leaving) {
        (true, _) => Stage::Leaving,
        (false, true) => Stage::Hot,
        (false, false) => Stage::Unconfirmed,
    };
    let new = || Entry { is_doubtful: true, ..Entry::new(generation, version.clone(), done.clone(), stage, now) };
    let entry = entries.entry(key).or_insert_with(new);
    entry.is_doubtful &= is_doubtful;
    entry.done.merge(&done);
    // A later time in the hot set is another; within one a key goes its way and not back.
    (entry.generation, entry.stage) = (entry.generation, entry.stage).max((generation, stage));
    if ground.is_newer(version.at, entry.newest.at) {
        entry.take(ground, now, version, is_valid, out);
    } else if version.at == entry.newest.at {
        entry.is_valid |= is_valid;
    }
}

/// What a whole member tells who joins.
pub(crate) fn page(ground: &Ground, entries: &BTreeMap<Key, Entry>, number: u32, after: Option<Key>) -> Message {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut behind = entries.range::<Key, _>((from, Bound::Unbounded));
    let copied = |(key, entry): (&Key, &Entry)| Copied {
        key: key.clone(),
        generation: entry.generation,
        version: entry.newest.clone(),
        done: entry.done.clone(),
        is_valid: entry.is_valid,
        is_hot: entry.stage == Stage::Hot,
        is_leaving: entry.stage == Stage::Leaving,
        is_doubtful: entry.is_doubtful,
    };
    let page = behind.by_ref().take(ground.config.page_max.max(1)).map(copied).collect();
    Message::Fetched { number, page, has_more: behind.next().is_some() }
}
