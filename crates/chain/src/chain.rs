//! A chain: what is asked about one key while its item is on the way from or to the store. Pure: its driver reads, writes and answers.
//!
//! ```text
//!            advance                on_read
//! waiting ------------> Next::Read ---------> base known --+
//!    ^                                                     | advance: all that waits is applied, one after the other
//!    | came meanwhile                                      v
//!    +---- on_written <---- Next::Write: only what has come of them all is written ---- or Next::Rest: nothing has changed
//! ```
//! Always true: what is asked takes effect in the order in which it came; an answer that tells of a change, or was read behind one,
//! leaves when the change is written and not before; if it could not be written, those who changed something are told so, and
//! those who only read are asked again, but for those who saw that an item was over, where that is written; `base` is what the store has, unless it is unknown, as it is again when nobody can say
//! whether a write took place.

use std::{collections::VecDeque, sync::Arc};

use guira_item::{
    Answer, Change, Current, Death, Expiry, Get, Hit, NewValue, Operation, Store, StoreMode, Time, apply,
    store::{Generation, StoreError},
};
use serde::{Deserialize, Serialize};

/// An operation that owns its value.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct Owned {
    /// With an empty value.
    operation: Operation<'static>,
    value: Box<[u8]>,
    /// How used the item was before the engine was asked for it, which counted as a use.
    pub use_before: Option<UseBefore>,
}

/// How used an item was.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct UseBefore {
    fetched: bool,
    idle_s: u32,
}

impl UseBefore {
    /// As a hit tells it.
    pub fn of(hit: &Hit) -> Self {
        Self { fetched: hit.fetched, idle_s: hit.idle_s }
    }
}

impl Owned {
    /// A copy.
    ///
    /// # Panics
    /// For [`Operation::Restore`], which no client can ask for.
    pub fn of(operation: &Operation<'_>) -> Self {
        let (operation, value) = match *operation {
            Operation::Store(store) => (Operation::Store(Store { value: &[], ..store }), store.value.into()),
            Operation::Get(get) => (Operation::Get(get), Box::default()),
            Operation::Delete(delete) => (Operation::Delete(delete), Box::default()),
            Operation::Arithmetic(arithmetic) => (Operation::Arithmetic(arithmetic), Box::default()),
            Operation::Touch(expiry) => (Operation::Touch(expiry), Box::default()),
            Operation::Restore(_) => unreachable!("clients cannot put anything back"),
        };
        Self { operation, value, use_before: None }
    }

    /// It, with its value.
    pub fn get(&self) -> Operation<'_> {
        match self.operation {
            Operation::Store(store) => Operation::Store(Store { value: &self.value, ..store }),
            other => other,
        }
    }

    /// Whether what it does and answers is the same whatever is there.
    fn is_blind(&self) -> bool {
        matches!(self.operation, Operation::Store(Store { mode: StoreMode::Set, cas: None, .. }))
    }
}

/// An item as the store has it, in the server's time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Item {
    /// Client flags.
    pub flags: u32,
    /// Version, as the store has it.
    pub version: u64,
    /// When it ends.
    pub expiry: Expiry,
    /// The generation it was stored in.
    pub generation: Generation,
    /// Is marked stale.
    pub stale: bool,
    /// A client has been told that it won.
    pub win_sent: bool,
    /// Has been read since it was taken from the store.
    pub fetched: bool,
    /// Seconds since it was last used, as far as known.
    pub idle_s: u32,
    /// The bytes.
    pub value: Arc<[u8]>,
}

impl Item {
    fn current(&self, setting: &Setting<'_>) -> Current<'_> {
        Current {
            flags: self.flags,
            cas: setting.shown(self.version),
            expiry: self.expiry,
            value_len: self.value.len(),
            value: Some(&self.value),
            fetched: self.fetched,
            stale: self.stale,
            win_sent: self.win_sent,
            idle_s: self.idle_s,
            class: 0,
            total_len: setting.key_len + self.value.len(),
        }
    }
}

/// What the store has under the key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Base {
    /// Not known yet.
    Unknown,
    /// Nothing, or nothing that is live.
    Absent(Option<Death>),
    /// This.
    Present(Item),
}

/// Bytes of new values from which on a round is written though more waits: answers to reads between them keep each.
const ROUND_LEN_MAX: usize = 4 << 20;

/// What is answered.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// A read has found something; with its value if that was wanted.
    Hit(Hit, Option<Arc<[u8]>>),
    /// Anything else; and why what lay there was not live, if something did.
    Answer(Answer, Option<Death>),
}

impl Reply {
    /// What a failure of the store is to who has asked.
    pub fn failed(error: &StoreError) -> Self {
        Self::Answer(Answer::Failed(error.failure()), None)
    }

    /// Bytes of its value.
    pub fn value_len(&self) -> usize {
        match self {
            Self::Hit(_, Some(value)) => value.len(),
            _ => 0,
        }
    }
}

/// What the driver has to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Read the item, then [`Chain::on_read`].
    Read,
    /// Write [`Chain::written`], then [`Chain::on_written`].
    Write,
    /// Nothing.
    Rest,
}

/// What it takes to apply operations.
pub struct Setting<'v> {
    /// The server's time.
    pub now: Time,
    /// The generation that is served.
    pub generation: Generation,
    /// Bytes of the key.
    pub key_len: usize,
    /// Bytes of key and value beyond which an item is too large.
    pub len_max: usize,
    /// The last version that was given.
    pub last_version: &'v mut u64,
    /// What comes after a version.
    pub next_version: fn(u64) -> u64,
    /// Clients are told versions; without, all are 0.
    pub versions_shown: bool,
    /// That an item is over is written before anybody is told: so it stays over, whatever the clock says later.
    pub buries: bool,
}

impl Setting<'_> {
    fn shown(&self, version: u64) -> u64 {
        if self.versions_shown { version } else { 0 }
    }
}

#[derive(Clone, Debug, Serialize)]
struct Asked<R> {
    operation: Owned,
    reply_to: R,
}

/// What was asked and applied, and waits for the write.
#[derive(Clone, Debug, Serialize)]
struct Held<R> {
    asked: Asked<R>,
    reply: Reply,
    has_changed: bool,
}

/// All that goes on about one key; replies go to an `R`.
#[derive(Clone, Debug, Serialize)]
pub struct Chain<R> {
    base: Base,
    waiting: VecDeque<Asked<R>>,
    /// When the last of them came.
    latest: Time,
    held: Vec<Held<R>>,
    /// What `base` will be once it is written.
    after: Option<Base>,
    /// Somebody has read what is there.
    is_used: bool,
    /// What is being written says that an item is over, which somebody has seen.
    is_burial: bool,
}

impl<R> Default for Chain<R> {
    /// Nothing is known, and nothing has been asked.
    fn default() -> Self {
        Self {
            base: Base::Unknown,
            waiting: VecDeque::new(),
            latest: Time::default(),
            held: Vec::new(),
            after: None,
            is_used: false,
            is_burial: false,
        }
    }
}

impl<R> Chain<R> {
    /// Asks for something more.
    pub fn push(&mut self, operation: Owned, now: Time, reply_to: R) {
        self.latest = self.latest.max(now);
        self.waiting.push_back(Asked { operation, reply_to });
    }

    /// What the store has, as far as is known.
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// Whether the item counts as used since it was taken from the engine.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// What is to be written.
    ///
    /// # Panics
    /// Other than after [`Next::Write`].
    pub fn written(&self) -> &Base {
        self.after.as_ref().expect("only asked for after Next::Write")
    }

    /// Goes on with what waits; not while it is being read or written. Who can be answered is put into `out`.
    ///
    /// # Panics
    /// While something is being written.
    pub fn advance(&mut self, setting: &mut Setting<'_>, out: &mut Vec<(R, Reply)>) -> Next {
        assert!(self.after.is_none(), "one write at a time");
        setting.now = setting.now.max(self.latest);
        let mut base = self.base.clone();
        let mut copied_len = 0;
        while copied_len < ROUND_LEN_MAX
            && let Some(asked) = self.waiting.pop_front()
        {
            if base == Base::Unknown && !asked.operation.is_blind() {
                // What came before was blind, if anything did: then the base is known.
                self.waiting.push_front(asked);
                return Next::Read;
            }
            if let Base::Present(item) = &base {
                if item.generation < setting.generation {
                    base = Base::Absent(Some(Death::Flushed));
                } else if item.expiry.is_past(setting.now) {
                    base = Base::Absent(Some(Death::Expired));
                }
            }
            if let (Some(UseBefore { fetched, idle_s }), Base::Present(item)) = (asked.operation.use_before, &mut base)
            {
                (item.fetched, item.idle_s) = (fetched, idle_s);
            }
            let (reply, changed) = step(&asked.operation.get(), &base, setting);
            let has_changed = changed.is_some();
            if let Some(changed) = changed {
                base = changed;
                copied_len += if let Base::Present(item) = &base { item.value.len() } else { 0 };
            }
            let is_use = match asked.operation.get() {
                Operation::Get(get) => get.bump,
                Operation::Touch(_) => true,
                _ => false,
            };
            if let (true, Base::Present(item)) = (is_use, &mut base) {
                // Nothing that is written.
                (item.fetched, item.idle_s, self.is_used) = (true, 0, true);
            }
            self.held.push(Held { asked, reply, has_changed });
        }
        self.is_burial = setting.buries && !self.held.is_empty() && base == Base::Absent(Some(Death::Expired));
        if self.is_burial {
            base = Base::Absent(None);
        }
        if self.is_burial || self.held.iter().any(|held| held.has_changed) {
            self.after = Some(base);
            return Next::Write;
        }
        self.base = base;
        out.extend(self.held.drain(..).map(|held| (held.asked.reply_to, held.reply)));
        Next::Rest
    }

    /// The item has been read.
    pub fn on_read(&mut self, found: Base) {
        debug_assert!(found != Base::Unknown && self.base == Base::Unknown);
        self.base = found;
    }

    /// The item cannot be read: nobody who waits for it can be answered.
    pub fn on_read_failed(&mut self, error: &StoreError, out: &mut Vec<(R, Reply)>) {
        out.extend(self.held.drain(..).map(|held| (held.asked.reply_to, held.reply)));
        out.extend(self.waiting.drain(..).map(|asked| (asked.reply_to, Reply::failed(error))));
    }

    /// The change has been written, or has not.
    ///
    /// # Panics
    /// Other than after [`Next::Write`].
    pub fn on_written(&mut self, outcome: Result<(), &StoreError>, out: &mut Vec<(R, Reply)>) {
        let after = self.after.take().expect("it was written");
        match outcome {
            Ok(()) => {
                self.base = after;
                out.extend(self.held.drain(..).map(|held| (held.asked.reply_to, held.reply)));
            }
            Err(error) => {
                if error.unknown {
                    self.base = Base::Unknown;
                }
                // Who has seen that an item is over cannot be told so.
                let fails = |held: &Held<R>| held.has_changed || self.is_burial;
                let (changed, read): (Vec<_>, Vec<_>) = self.held.drain(..).partition(fails);
                out.extend(changed.into_iter().map(|held| (held.asked.reply_to, Reply::failed(error))));
                // In their order, and before what came later.
                read.into_iter().rev().for_each(|held| self.waiting.push_front(held.asked));
            }
        }
    }
}

/// Applies an operation; returns the answer, and what is there afterwards if that is something else.
pub fn step(operation: &Operation<'_>, base: &Base, setting: &mut Setting<'_>) -> (Reply, Option<Base>) {
    let (item, death) = match base {
        Base::Present(item) => (Some(item), None),
        Base::Absent(death) => (None, *death),
        // Only what is blind comes here without a base.
        Base::Unknown => (None, None),
    };
    let next_version = (setting.next_version)(*setting.last_version);
    let current = item.map(|item| item.current(setting));
    let (change, answer) = apply(operation, current.as_ref(), setting.now, setting.shown(next_version));
    let old = || item.cloned().expect("what is marked is there");
    let changed = match change {
        Change::Keep => None,
        Change::Remove => Some(Base::Absent(None)),
        Change::Rewrite { value, flags, expiry, stale, win_sent } => {
            let old_value = item.map_or(&[][..], |item| &item.value);
            if setting.key_len + value.len_with(old_value.len()) > setting.len_max {
                return (Reply::Answer(Answer::TooLarge, death), None);
            }
            // A number that keeps its length is changed in place for clients: it stays as used as it was.
            let kept = item
                .filter(|item| matches!(&value, NewValue::Number(number) if number.padded_len() == item.value.len()));
            let (fetched, idle_s) = kept.map_or((false, 0), |item| (item.fetched, item.idle_s));
            let value = value.bytes_with(old_value).into();
            let (version, generation) = (next_version, setting.generation);
            *setting.last_version = next_version;
            Some(Base::Present(Item { flags, version, expiry, generation, stale, win_sent, fetched, idle_s, value }))
        }
        Change::Mark { expiry, stale, win_sent, new_version } => {
            let old = old();
            // An engine that shows no versions knows none.
            let is_fresh = new_version || old.version == 0;
            let version = if is_fresh { next_version } else { old.version };
            if is_fresh {
                *setting.last_version = next_version;
            }
            Some(Base::Present(Item { version, expiry, stale, win_sent, ..old }))
        }
    };
    let reply = match (answer, operation) {
        (Ok(hit), Operation::Get(Get { value: true, .. })) => {
            let value = match (&changed, item) {
                (Some(Base::Present(item)), _) | (None, Some(item)) => Arc::clone(&item.value),
                _ => Arc::default(),
            };
            Reply::Hit(hit, Some(value))
        }
        (Ok(hit), _) => Reply::Hit(hit, None),
        (Err(answer), _) => Reply::Answer(answer, death),
    };
    (reply, changed)
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
