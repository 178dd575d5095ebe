//! How a member that has nothing comes to have all there is: it acknowledges and keeps what is written from its first view on, and copies the rest
//! from one that is whole.
//!
//! Always true:
//! - of what is copied and what was written meanwhile the newer stays;
//! - no eviction ends in the view of who joins, since who joins answers none; one that has ended in the view before may have left somebody with what
//!   he has not forgotten yet: that is copied as what it is, and the home says what becomes of it.

use guira_item::Moment;
use guira_routing::NodeId;

use crate::{
    Key, Message, Mutant, Outbox,
    entries::Entries,
    entry::{Entry, Stage},
    ground::Ground,
    message::Copied,
};

/// Bytes of a key in a page beside itself and its value, about: what is remembered of requests, above all.
const BESIDE_LEN: usize = 512;

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

    /// Time has passed: somebody else is asked.
    pub(crate) fn on_tick(&mut self, ground: &Ground, now: Moment, out: &mut Outbox) {
        if now.since(self.asked_at) < ground.config.tell_again_after {
            return;
        }
        // What was copied of one need not be of another: what all have is here, and what is new is told here, too.
        let behind = ground.others().find(|member| Some(*member) > self.source);
        self.source = behind.or_else(|| ground.others().next());
        self.number += 1;
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
pub(crate) fn merge(ground: &mut Ground, entries: &mut Entries, now: Moment, copied: Copied, out: &mut Outbox) {
    let Copied { key, generation, of, version, done, is_valid, is_hot, is_leaving, is_doubtful } = copied;
    let stage = match (is_leaving && !ground.has(Mutant::JoinerRevives), is_hot || is_leaving) {
        (true, _) => Stage::Leaving,
        (false, true) => Stage::Hot,
        (false, false) => Stage::Unconfirmed,
    };
    let new = || Entry { is_doubtful: true, of, ..Entry::new(generation, version.clone(), done.clone(), stage, now) };
    let entry = entries.get_or_insert_with(&key, new);
    entry.is_doubtful &= is_doubtful;
    entry.done.merge(&done);
    // A later time in the hot set is another; within one a key goes its way and not back.
    (entry.generation, entry.stage) = (entry.generation, entry.stage).max((generation, stage));
    if entry.is_behind(ground, of, version.at) {
        entry.of = of;
        entry.take(ground, now, version, is_valid, out);
    } else if version.at == entry.newest.at && of == entry.of {
        entry.is_valid |= is_valid;
    }
}

/// What a whole member tells who joins.
pub(crate) fn page(ground: &Ground, entries: &Entries, number: u32, after: Option<Key>) -> Message {
    let mut behind = entries.behind(after);
    let copied = |(key, entry): (&Key, &Entry)| Copied {
        key: key.clone(),
        generation: entry.generation,
        of: entry.of,
        version: entry.newest.clone(),
        done: entry.done.clone(),
        is_valid: entry.is_valid,
        is_hot: entry.stage == Stage::Hot,
        is_leaving: entry.stage == Stage::Leaving,
        is_doubtful: entry.is_doubtful,
    };
    let (mut page, mut len) = (Vec::new(), 0);
    let mut next = behind.next();
    while let Some((key, entry)) = next.filter(|_| page.is_empty() || len < ground.config.page_len_max) {
        len += key.len() + entry.newest.value.as_ref().map_or(0, |value| value.bytes.len()) + BESIDE_LEN;
        page.push(copied((key, entry)));
        next = behind.next();
    }
    Message::Fetched { number, page, has_more: next.is_some() }
}
