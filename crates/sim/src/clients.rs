//! Clients: each asks one thing at a time, of one gateway, and writes down what it asked, when, and what it was told.

use std::collections::{BTreeMap, BTreeSet};

use guira_chain::Reply;
use guira_history::{Event, Model};
use guira_item::{
    Answer, Arithmetic, ArithmeticMode, CasRule, Delete, Expiry, Failure, Get, Invalidate, Moment, Operation, Span,
    Store, StoreMode, Time,
};
use guira_switched::AskId;
use rand::{RngExt, rngs::Xoshiro256PlusPlus};

use crate::{
    chance::around,
    register::{Act, Compared, FlushNumber, Marks, Register, Seen, State},
};

/// A key's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct KeyNumber(pub(crate) usize);

impl KeyNumber {
    pub(crate) fn name(self) -> Vec<u8> {
        format!("key-{}", self.0).into_bytes()
    }

    /// Whether its items may end.
    pub(crate) fn is_mortal(self) -> bool {
        self.0.is_multiple_of(4)
    }

    /// Whether its values are long, where some are.
    fn is_long(self) -> bool {
        !self.0.is_multiple_of(2)
    }
}

/// What a client waits for.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    client: usize,
    /// One event of one key, or, of a flush, of all.
    key: Option<KeyNumber>,
    at: usize,
}

/// All clients and what they saw.
#[derive(Debug)]
pub(crate) struct Clients {
    /// By key.
    histories: Vec<Vec<Option<Event<Act>>>>,
    waiting: BTreeMap<AskId, Waiting>,
    /// What nobody knows of, with when it has happened or never will.
    unknown: BTreeSet<(Moment, Option<KeyNumber>, usize)>,
    /// What is to be gone some time.
    to_come: BTreeMap<FlushNumber, ToCome>,
    last_seen: Vec<u64>,
    next_ask: u64,
    next_value: u64,
    /// Counts invocations and returns.
    time: u64,
    /// Bytes of the values of every other key, if they are not short.
    value_len: usize,
    /// By so long after its client was given up nothing of a request is under way any more, however late its datagrams are, and whoever pauses.
    happens_within: Span,
    /// Some of what is to be gone is to be gone later.
    flushes_later: bool,
    /// See [`State::writer_bits`].
    writer_bits: u32,
    pub(crate) tally: Tally,
}

/// So many `flush_all`s are to come at once, at most: one can have the place of another, and there are not too many orders of them to look at.
const TO_COME_MAX: usize = 2;

/// A `flush_all` that is to come.
#[derive(Clone, Copy, Debug)]
struct ToCome {
    /// Where its time coming is told of in all histories, once that may be.
    at: Option<usize>,
    outcome: Outcome,
}

/// What is known of it.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Waiting,
    Certain,
    /// It has been heard of by then, or never will be.
    UnknownUntil(Moment),
}

/// What it is usually.
const HAPPENS_WITHIN: Span = Span::from_s(30);

/// What came of what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Operations.
    pub asked: u64,
    /// That were answered.
    pub answered: u64,
    /// That failed, for certain.
    pub failed: u64,
    /// Of which nobody knows.
    pub unknown: u64,
    /// Times that what was to be gone some time was, or was no more to be.
    pub came_due: u64,
}

impl Tally {
    /// Whether something has failed, or may have, since it was as before.
    pub(crate) fn has_more_failures(&self, before: Self) -> bool {
        self.failed > before.failed || self.unknown > before.unknown
    }

    /// Adds another run's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.answered += other.answered;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.came_due += other.came_due;
    }
}

/// What a client asks.
pub(crate) enum Wish {
    Operation {
        key: KeyNumber,
        operation: Operation<'static>,
        value: Vec<u8>,
    },
    /// All that is there is to be gone.
    Flush,
    /// All that is there then, and what that is called.
    FlushLater(FlushNumber, Time),
}

impl Wish {
    /// To read a key.
    pub(crate) fn read(key: KeyNumber) -> Self {
        Self::Operation { key, operation: Operation::Get(Get::PLAIN), value: Vec::new() }
    }

    /// The operation, with its value.
    pub(crate) fn operation<'a>(operation: &Operation<'static>, value: &'a [u8]) -> Operation<'a> {
        match operation {
            Operation::Store(store) => Operation::Store(Store { value, ..*store }),
            other => *other,
        }
    }
}

/// As long as a client waits before it asks again, at random, if so many together ask so often.
pub(crate) fn thinks_for(clients: usize, operations_per_s: u64, rng: &mut Xoshiro256PlusPlus) -> Span {
    around(rng, Span::from_ns(1_000_000_000 * clients as u64 / operations_per_s))
}

const SET: Store<'static> =
    Store { mode: StoreMode::Set, flags: 0, expiry: Expiry::NEVER, cas: None, vivify: None, value: &[] };

/// Seconds after which other keys are the hottest.
const HOT_FOR_S: u32 = 20;

/// They begin a little more than such a part of all keys behind those that were.
const HOTTEST_APART: usize = 3;

impl Clients {
    pub(crate) fn new(keys: usize, value_len: usize) -> Self {
        Self {
            histories: vec![Vec::new(); keys],
            waiting: BTreeMap::new(),
            unknown: BTreeSet::new(),
            to_come: BTreeMap::new(),
            last_seen: vec![0; keys],
            next_ask: 0,
            next_value: 0,
            time: 0,
            value_len,
            happens_within: HAPPENS_WITHIN,
            flushes_later: true,
            writer_bits: 0,
            tally: Tally::default(),
        }
    }

    /// These, of a cluster in which so many lowest bits of versions tell writers apart.
    pub(crate) fn with_writer_bits(self, writer_bits: u32) -> Self {
        Self { writer_bits, ..self }
    }

    /// What there is of each key at first.
    pub(crate) fn first_states(&self) -> Vec<State> {
        vec![State { writer_bits: self.writer_bits, ..State::default() }; self.keys()]
    }

    /// These, who take everything away at once or not at all, of a cluster in which what nobody waits for happens within so long.
    pub(crate) fn wanting_all_at_once(self, happens_within: Span) -> Self {
        Self { happens_within, flushes_later: false, ..self }
    }

    fn keys(&self) -> usize {
        self.histories.len()
    }

    /// A client asks something: a half of all changes something.
    pub(crate) fn wish(
        &mut self,
        client: usize,
        cluster_time: Time,
        flushes_per_mille: u32,
        rng: &mut Xoshiro256PlusPlus,
    ) -> (AskId, Wish) {
        // Some keys are asked for more than others, and after a while others are.
        let coldness = rng.random_range(0..self.keys()).min(rng.random_range(0..self.keys()));
        let shift = (cluster_time.0 / HOT_FOR_S) as usize * (self.keys() / HOTTEST_APART + 1);
        let key = KeyNumber((coldness + shift) % self.keys());
        self.next_value += 1_000;
        let value = self.next_value;
        let never = self.last_seen[key.0];
        // A number with so many spaces behind it that it is no number to who adds one.
        let len = if key.is_long() { self.value_len } else { 0 };
        let (act, operation) = match rng.random_range(0..1_000) {
            drawn if drawn < flushes_per_mille && rng.random_bool(0.5) && self.may_flush_later() => {
                // Behind the next second: it is not due before it was asked for.
                let at = Time(cluster_time.0 + rng.random_range(2..5));
                return self.flush_later(client, at);
            }
            drawn if drawn < flushes_per_mille => return (self.flush(client), Wish::Flush),
            0..700 if rng.random_range(0..700) < 500 => {
                // As `mg` asks, or `get`.
                if rng.random_bool(0.2) {
                    (Act::Contend(None), Operation::Get(Get { wins: true, tells: true, ..Get::PLAIN }))
                } else {
                    (Act::Get(None), Operation::Get(Get::PLAIN))
                }
            }
            0..700 => {
                let is_mortal = key.is_mortal() && rng.random_bool(0.5);
                let ends = Expiry::at(Time(cluster_time.0 + rng.random_range(1..4)));
                let expiry = if is_mortal { ends } else { Expiry::NEVER };
                (Act::Set { value, is_mortal, version: None }, Operation::Store(Store { expiry, ..SET }))
            }
            700..760 => (Act::Add { value, told: None }, Operation::Store(Store { mode: StoreMode::Add, ..SET })),
            760..840 => {
                let expected = never.max(1);
                let cas = Some(CasRule { expected, or_stale: false });
                (Act::Cas { expected, value, told: None }, Operation::Store(Store { cas, ..SET }))
            }
            840..920 if len == 0 => {
                let mode = ArithmeticMode::Increment;
                let increment = Arithmetic { mode, delta: 1, cas: None, touch: None, create: None };
                (Act::Increment(None), Operation::Arithmetic(increment))
            }
            920..960 => {
                let invalidate = Some(Invalidate { touch: None });
                (Act::Invalidate(None), Operation::Delete(Delete { cas: None, invalidate }))
            }
            _ => (Act::Delete(None), Operation::Delete(Delete { cas: None, invalidate: None })),
        };
        let id = self.begin(client, Some(key), act);
        (id, Wish::Operation { key, operation, value: format!("{value:<len$}").into_bytes() })
    }

    /// A client takes everything away.
    pub(crate) fn flush(&mut self, client: usize) -> AskId {
        self.begin(client, None, Act::Flush)
    }

    /// Whether one more `flush_all` may be to come.
    fn may_flush_later(&self) -> bool {
        let is_known = |to_come: &&ToCome| !matches!(to_come.outcome, Outcome::UnknownUntil(_));
        self.flushes_later && self.to_come.values().filter(is_known).count() < TO_COME_MAX
    }

    /// A client has everything taken away at a time.
    fn flush_later(&mut self, client: usize, at: Time) -> (AskId, Wish) {
        let number = FlushNumber(self.next_ask + 1);
        self.to_come.insert(number, ToCome { at: None, outcome: Outcome::Waiting });
        (self.begin(client, None, Act::FlushLater(number)), Wish::FlushLater(number, at))
    }

    /// From now on some clock may show that the time of a `flush_all` has come.
    pub(crate) fn may_be_due(&mut self, number: FlushNumber) {
        if let Some(ToCome { at: None, outcome }) = self.to_come.get(&number) {
            self.time += 1;
            let act = if matches!(outcome, Outcome::UnknownUntil(_)) { Act::Flush } else { Act::Due(number) };
            let due = Event { invoked: self.time, returned: None, is_certain: false, act };
            let at = Some(self.push_to_all(&due));
            self.to_come.entry(number).and_modify(|to_come| to_come.at = at);
        }
    }

    /// A `flush_all` has taken place everywhere, or another in its place; whether that was waited for.
    pub(crate) fn was_due(&mut self, now: Moment, number: FlushNumber) -> bool {
        let Some(ToCome { at: Some(at), outcome }) = self.to_come.get(&number).copied() else { return true };
        let is_certain = match outcome {
            Outcome::Certain => true,
            Outcome::UnknownUntil(until) if until <= now => false,
            Outcome::Waiting | Outcome::UnknownUntil(_) => return false,
        };
        self.time += 1;
        let returned = Some(self.time);
        for event in self.histories.iter_mut().filter_map(|history| history[at].as_mut()) {
            (event.returned, event.is_certain) = (returned, is_certain);
        }
        self.tally.came_due += u64::from(is_certain);
        self.to_come.remove(&number);
        true
    }

    /// Whether a `flush_all` of which its client knows is still to come.
    pub(crate) fn awaits_flush(&self) -> bool {
        self.to_come.values().any(|to_come| matches!(to_come.outcome, Outcome::Certain))
    }

    /// A client reads a key.
    pub(crate) fn read(&mut self, client: usize, key: KeyNumber) -> AskId {
        self.begin(client, Some(key), Act::Get(None))
    }

    fn begin(&mut self, client: usize, key: Option<KeyNumber>, act: Act) -> AskId {
        self.tally.asked += 1;
        self.time += 1;
        self.next_ask += 1;
        let event = Event { invoked: self.time, returned: None, is_certain: false, act };
        let at = match key {
            Some(key) => {
                let history = &mut self.histories[key.0];
                history.push(Some(event));
                history.len() - 1
            }
            None => self.push_to_all(&event),
        };
        let id = AskId(self.next_ask);
        self.waiting.insert(id, Waiting { client, key, at });
        id
    }

    /// Something that happens to all keys, at one place of all histories: which.
    fn push_to_all(&mut self, event: &Event<Act>) -> usize {
        let longest = self.histories.iter().map(Vec::len).max().unwrap_or(0);
        for history in &mut self.histories {
            history.resize(longest, None);
            history.push(Some(event.clone()));
        }
        longest
    }

    /// Its client knows that a `flush_all` is to come, or is not.
    fn know(&mut self, act: Act, is_to_come: bool) {
        let Act::FlushLater(number) = act else { return };
        let Some(to_come) = self.to_come.get_mut(&number) else { return };
        to_come.outcome = Outcome::Certain;
        if !is_to_come {
            if let Some(at) = to_come.at {
                self.histories.iter_mut().for_each(|history| history[at] = None);
            }
            self.to_come.remove(&number);
        }
    }

    /// Nobody will know of what is there at this place of these histories.
    fn never_know(&mut self, now: Moment, key: Option<KeyNumber>, at: usize) {
        let until = now + self.happens_within;
        self.unknown.insert((until, key, at));
        self.tally.unknown += 1;
        for key in self.keys_of(key) {
            let Some(Some(event)) = self.histories[key].get_mut(at) else { continue };
            let Act::FlushLater(number) = event.act else { continue };
            event.act = Act::NotLater;
            let Some(to_come) = self.to_come.get_mut(&number) else { continue };
            to_come.outcome = Outcome::UnknownUntil(until);
            if let Some(due) = to_come.at.and_then(|at| self.histories[key][at].as_mut()) {
                due.act = Act::Flush;
            }
        }
    }

    /// An answer; which client goes on, if somebody waits for it.
    ///
    /// # Errors
    /// An answer that cannot be one.
    pub(crate) fn answer(&mut self, now: Moment, id: AskId, reply: &Reply) -> Result<Option<usize>, String> {
        self.settle_unknown(now);
        let Some(Waiting { client, key, at }) = self.waiting.remove(&id) else { return Ok(None) };
        self.time += 1;
        self.tally.answered += 1;
        if matches!(reply, Reply::Answer(Answer::Failed(Failure::Unknown), _)) {
            self.never_know(now, key, at);
            return Ok(Some(client));
        }
        for key in self.keys_of(key) {
            let entry = self.histories[key].get_mut(at).and_then(Option::as_mut).expect("it was asked");
            let asked = entry.act;
            match told(&entry.act, reply)? {
                Told::Act(act) => {
                    if let Act::Get(Some(Seen { version, .. })) = act {
                        self.last_seen[key] = version;
                    }
                    (entry.act, entry.returned, entry.is_certain) = (act, Some(self.time), true);
                    self.know(asked, true);
                }
                Told::Nothing => {
                    self.tally.failed += 1;
                    self.histories[key][at] = None;
                    self.know(asked, false);
                }
            }
        }
        Ok(Some(client))
    }

    fn keys_of(&self, key: Option<KeyNumber>) -> std::ops::Range<usize> {
        match key {
            Some(key) => key.0..key.0 + 1,
            None => 0..self.keys(),
        }
    }

    /// What nobody knows of has happened by now, or never will.
    fn settle_unknown(&mut self, now: Moment) {
        while let Some((_, key, at)) = self.unknown.first().copied().filter(|(until, ..)| *until <= now) {
            self.unknown.pop_first();
            self.time += 1;
            let time = self.time;
            for key in self.keys_of(key) {
                // Those of an earlier round are gone.
                if let Some(Some(event)) = self.histories[key].get_mut(at) {
                    event.returned = event.returned.or(Some(time));
                }
            }
        }
    }

    /// These clients' gateway has gone: nobody will tell them.
    pub(crate) fn hang_up(&mut self, now: Moment, of: impl Fn(usize) -> bool) -> Vec<usize> {
        let gone: Vec<(AskId, usize)> =
            self.waiting.iter().filter(|(_, waiting)| of(waiting.client)).map(|(id, w)| (*id, w.client)).collect();
        gone.into_iter()
            .map(|(id, client)| {
                if let Some(Waiting { key, at, .. }) = self.waiting.remove(&id) {
                    self.never_know(now, key, at);
                }
                client
            })
            .collect()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// What a key has may be lost, from now on until then.
    pub(crate) fn may_lose(&mut self, key: KeyNumber, until: Moment) {
        self.time += 1;
        let history = &mut self.histories[key.0];
        self.unknown.insert((until, Some(key), history.len()));
        let act = Act::Delete(None);
        history.push(Some(Event { invoked: self.time, returned: None, is_certain: false, act }));
    }

    /// What there is of each key, as it was read last.
    pub(crate) fn last_states(&self) -> Vec<State> {
        let highest = |history: &[Option<Event<Act>>], before: u64| {
            let versions = history.iter().flatten().filter_map(|event| Register::default().rank(&event.act));
            versions.map(|rank| rank / 2).fold(before, u64::max)
        };
        let states = self.histories.iter().enumerate().map(|(key, history)| {
            let item = match history.last() {
                Some(Some(Event { act: Act::Get(Some(seen)), .. })) => Some((seen.value, Some(seen.version))),
                _ => None,
            };
            let is_mortal = KeyNumber(key).is_mortal();
            State {
                item,
                is_mortal,
                marks: None,
                highest: highest(history, 0),
                to_come: None,
                writer_bits: self.writer_bits,
            }
        });
        states.collect()
    }

    /// What was seen of each key since this was last asked.
    pub(crate) fn take_histories(&mut self) -> Vec<Vec<Event<Act>>> {
        self.unknown.clear();
        self.to_come.clear();
        let keys = self.keys();
        let histories = std::mem::replace(&mut self.histories, vec![Vec::new(); keys]);
        histories.into_iter().map(|history| history.into_iter().flatten().collect()).collect()
    }
}

/// What an answer says of an act.
enum Told {
    Act(Act),
    /// It did not happen.
    Nothing,
}

/// A value that is a number, whatever it is filled up with.
fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.trim_end().parse().ok()
}

fn told(asked: &Act, reply: &Reply) -> Result<Told, String> {
    let cannot = || Err(format!("{asked:?} was answered {reply:?}"));
    if let Reply::Answer(Answer::Failed(Failure::Refused | Failure::Busy | Failure::Away), _) = reply {
        return Ok(Told::Nothing);
    }
    let act = match (*asked, reply) {
        (Act::Get(_), Reply::Answer(Answer::Miss, _)) => Act::Get(None),
        (Act::Get(_), Reply::Hit(hit, Some(value))) => {
            let Some(value) = number(value) else { return cannot() };
            Act::Get(Some(Seen { value, version: hit.cas }))
        }
        (Act::Contend(_), Reply::Answer(Answer::Miss, _)) => Act::Contend(Some(None)),
        (Act::Contend(_), Reply::Hit(hit, Some(value))) => {
            let Some(value) = number(value) else { return cannot() };
            let marks = Marks { stale: hit.stale, win_sent: hit.win_sent };
            Act::Contend(Some(Some((Seen { value, version: hit.cas }, marks, hit.won))))
        }
        (Act::Invalidate(_), Reply::Answer(Answer::Invalidated, _)) => Act::Invalidate(Some(true)),
        (Act::Invalidate(_), Reply::Answer(Answer::NotFound, _)) => Act::Invalidate(Some(false)),
        (Act::Set { value, is_mortal, .. }, Reply::Answer(Answer::Stored { cas }, _)) => {
            Act::Set { value, is_mortal, version: Some(*cas) }
        }
        (Act::Add { value, .. }, Reply::Answer(Answer::Stored { cas }, _)) => {
            Act::Add { value, told: Some(Some(*cas)) }
        }
        (Act::Add { value, .. }, Reply::Answer(Answer::NotStored, _)) => Act::Add { value, told: Some(None) },
        (Act::Cas { expected, value, .. }, Reply::Answer(answer, _)) => {
            let told = match answer {
                Answer::Stored { cas } => Compared::Stored(*cas),
                Answer::Exists => Compared::Exists,
                Answer::NotFound => Compared::NotFound,
                _ => return cannot(),
            };
            Act::Cas { expected, value, told: Some(told) }
        }
        (Act::Increment(_), Reply::Answer(Answer::Number { value, cas, .. }, _)) => {
            Act::Increment(Some(Some(Seen { value: *value, version: *cas })))
        }
        (Act::Increment(_), Reply::Answer(Answer::NotFound, _)) => Act::Increment(Some(None)),
        (Act::Delete(_), Reply::Answer(Answer::Deleted, _)) => Act::Delete(Some(true)),
        (Act::Delete(_), Reply::Answer(Answer::NotFound, _)) => Act::Delete(Some(false)),
        (act @ (Act::Flush | Act::FlushLater(_)), Reply::Answer(Answer::Deleted, _)) => act,
        _ => return cannot(),
    };
    Ok(Told::Act(act))
}
