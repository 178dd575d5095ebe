//! The locked change: finds the item under its stripes, asks `apply` what becomes of it, and does that; memory is taken and
//! new values are copied before the lock, so that the critical section is mostly a few stores.
//!
//! Always true: no memory is taken while stripes are held; what was prepared outside is used only if it still fits what the
//! lock shows, and is given back otherwise. What must be copied under the lock is what the change keeps of the present value:
//! an append to a large value, or the first expiry of one, holds its two stripes for as long as the copy takes.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use guira_arena::{Place, Words};
use guira_cuckoo::{Full, GrowError, Place as Slot, Probe, SEGMENT_BUCKETS};
use guira_item::{
    Answer, Change, Current, Expiry, Footprint, Footprints, Get, Hit, Key, NewValue, Operation, Request, Sink, Store,
    StoreMode, Time, VALUE_SLACK_LEN, apply,
};

use crate::{
    counters::Counters,
    crawler::Grown,
    engine::{LockedKey, Shared, Worker},
    eviction::Unlinked,
    item::{self, Header, More, Writer},
    large::{Nodes, Pin},
    magazine::Station,
    size_classes::ClassId,
    slabs::Event,
};

/// Attempts of one change: each is spoilt only by another change of the same key, or of the same two buckets.
const ATTEMPTS_MAX: usize = 1_000;

/// Attempts after which a thread sleeps while it waits for another one.
const YIELDS_MAX: usize = 100;

/// Longest value in which a number is looked for, in bytes: what memcached keeps in one piece.
const NUMBER_LEN_MAX: usize = 512 << 10;

/// Displacement searches between two looks whether it is time to grow.
const SEARCHES_PER_LOOK: u32 = 32;

/// Buckets of the index that a displacement search moves first while it grows: a segment in 32 searches. At 92 % one new key in
/// five needs a search, and the remaining 8 % of a segment are a thousand keys: growth is through long before they are used up.
const BUCKETS_PER_SEARCH: usize = SEGMENT_BUCKETS / 32;

/// Steps after which whoever finishes a growth lets go of it for once, and tries again: each moves up to a segment, or gives the
/// processor away to those who are at it.
const STEPS_MAX: usize = 1 << 14;

/// How much longer a thread sleeps each time that it waits for another one, and the longest that it does.
const WAIT_STEP: Duration = Duration::from_micros(100);
const WAIT_MAX: Duration = Duration::from_millis(2);

/// The shape of an item in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    /// Class of its chunk, or of its head.
    class: ClassId,
    /// Length of its value if that lies in pieces.
    large_len: Option<usize>,
}

/// Memory for an item of some shape, taken before the lock.
struct Spare {
    shape: Shape,
    place: Place,
    pieces: Vec<Place>,
    /// Key and value are in place already: the value of a store that depends on nothing, with this second word.
    filled: Option<More>,
}

/// The item that is there.
struct Found<'a> {
    slot: Slot,
    place: Place,
    words: Words<'a>,
    header: Header,
    more: More,
    is_live: bool,
    value_len: usize,
}

/// What an item becomes.
#[derive(Clone, Copy)]
struct Next<'v> {
    value: NewValue<'v>,
    more: More,
    version: u64,
    /// It stays the same item for clients, as used as it was.
    keeps_use: bool,
    /// It had been read before it came, and lately.
    is_fetched: bool,
    is_recent: bool,
}

impl Next<'_> {
    /// `header` as it is to be in place of the item that is there: what is overwritten keeps the place in line that it had
    /// earned.
    fn header_over(&self, header: Header, found: &Found<'_>) -> Header {
        match found.is_live {
            true if self.keeps_use => header.as_used_as(found.header),
            true => header.recent(),
            false => header,
        }
    }
}

/// How one attempt ended.
enum Attempt {
    Done,
    /// Memory of this shape is needed.
    Needs(Shape),
    /// There is no slot for a new key.
    NoSlot,
}

impl Shared {
    /// Carries out any operation.
    pub(crate) fn change<S: Sink>(
        self: &Arc<Self>,
        worker: &mut Worker,
        now: Time,
        probe: &Probe,
        request: &Request<'_>,
        index: usize,
        sink: &mut S,
    ) {
        let mut spare =
            self.foreseen_shape(probe, request).and_then(|shape| self.spare(shape, request, now, worker).ok());
        let mut short_of = None;
        for attempt in 0..ATTEMPTS_MAX {
            match self.attempt(worker, now, probe, request, &mut spare, index, sink) {
                Attempt::Done => {
                    self.give_back(spare);
                    return;
                }
                Attempt::Needs(shape) => {
                    short_of = Some(shape.class);
                    self.give_back(spare.take());
                    match self.spare(shape, request, now, worker) {
                        Ok(found) => spare = Some(found),
                        Err(class) => {
                            short_of = Some(class);
                            break;
                        }
                    }
                }
                Attempt::NoSlot => {
                    short_of = None;
                    if self.make_slot(probe, attempt, now, &worker.station).is_err() {
                        break;
                    }
                }
            }
        }
        self.give_back(spare);
        self.count_out_of_memory(short_of, &worker.station.counters);
        if let Operation::Get(get) = &request.operation
            && get.touch.is_some()
        {
            // There is no memory to note the new expiry in; what is there can be read all the same.
            let get = Get { touch: None, recache: None, vivify: None, ..*get };
            self.get(worker, now, probe, request, &get, index, sink);
            return;
        }
        self.fail_for_memory(probe, request, &worker.station.counters);
        sink.answer(index, Answer::OutOfMemory);
    }

    /// Counts an operation that found no memory of a class, or no slot.
    fn count_out_of_memory(&self, class: Option<ClassId>, counters: &Counters) {
        counters.out_of_memory(1);
        if let Some(class) = class {
            self.slabs.lock(class).stats.out_of_memory += 1;
        }
    }

    /// memcached lets go of what a set that found no memory would have replaced, so that no stale value stays.
    fn fail_for_memory(&self, probe: &Probe, request: &Request<'_>, counters: &Counters) {
        if !matches!(request.operation, Operation::Store(Store { mode: StoreMode::Set, cas: None, .. })) {
            return;
        }
        let mut locked = self.index.lock(probe);
        if let Some(found) = self.find(&locked, probe, request.key, Time(0)) {
            locked.remove(found.slot);
            drop(locked);
            self.free_item(Unlinked { place: found.place, header: found.header }, counters);
        }
    }

    /// The memory that a store will need, if that can be told before the lock and is not there already.
    fn foreseen_shape(&self, probe: &Probe, request: &Request<'_>) -> Option<Shape> {
        let Operation::Store(store) = &request.operation else { return None };
        if !matches!(store.mode, StoreMode::Set | StoreMode::Add | StoreMode::Replace) {
            return None;
        }
        let shape = self.shape(request.key, store.value.len(), fresh_more(store))?;
        let there = self.index.read(probe, |payload| {
            let (place, _, header) = self.item_of_key(payload, probe, request.key)?;
            Some((self.slabs.class_of(self.arena.locate(place).0), header.is_large()))
        });
        let fits = |(class, is_large): (Option<ClassId>, bool)| {
            class == Some(shape.class) && !is_large && shape.large_len.is_none()
        };
        let wanted = match store.mode {
            StoreMode::Add => there.is_none(),
            StoreMode::Replace => there.is_some_and(|there| !fits(there)),
            _ => !there.is_some_and(fits),
        };
        wanted.then_some(shape)
    }

    /// The shape of an item; `None` if it is larger than the largest.
    fn shape(&self, key: Key<'_>, value_len: usize, more: More) -> Option<Shape> {
        let key_len = key.as_bytes().len();
        let len = item::item_len(key_len, value_len, more);
        // The second word does not count: no item becomes too large by being touched.
        if len - more.len() > self.config.item_len_max {
            return None;
        }
        if value_len <= item::VALUE_LEN_MAX
            && let Some(class) = self.slabs.sizes.fitting(len)
        {
            return Some(Shape { class, large_len: None });
        }
        let class = self.slabs.sizes.fitting(item::large_head_len(key_len, more))?;
        Some(Shape { class, large_len: Some(value_len) })
    }

    /// Takes memory of a shape, and fills it if the value is known.
    fn spare(&self, shape: Shape, request: &Request<'_>, now: Time, worker: &mut Worker) -> Result<Spare, ClassId> {
        let place = self.allocate(shape.class, now, &worker.station).ok_or(shape.class)?;
        let mut spare = Spare { shape, place, pieces: Vec::new(), filled: None };
        if let Some(value_len) = shape.large_len {
            match self.allocate_pieces(value_len, now, &worker.station) {
                Ok(pieces) => spare.pieces = pieces,
                Err(class) => {
                    self.give_back(Some(spare));
                    return Err(class);
                }
            }
        }
        if let Operation::Store(store) = &request.operation
            && matches!(store.mode, StoreMode::Set | StoreMode::Add | StoreMode::Replace)
        {
            let more = fresh_more(store);
            if self.shape(request.key, store.value.len(), more) == Some(shape) {
                self.fill(&spare, request.key, more, &[store.value]);
                spare.filled = Some(more);
            }
        }
        Ok(spare)
    }

    fn give_back(&self, spare: Option<Spare>) {
        if let Some(Spare { place, pieces, .. }) = spare {
            // A piece that was filled says so in its header, but nobody can find it.
            self.slabs.free(&self.arena, &pieces);
            self.slabs.free(&self.arena, &[place]);
        }
    }

    /// Writes the second word, if the item has one.
    fn write_more(&self, place: Place, more: More) {
        if more.is_needed() {
            self.words(place).store(1, more.word());
        }
        if more.expiry != Expiry::NEVER {
            self.slabs.set_expiring(self.arena.locate(place).0);
        }
    }

    /// Writes everything but word 0, which makes it an item.
    fn fill(&self, spare: &Spare, key: Key<'_>, more: More, value: &[&[u8]]) {
        let words = self.words(spare.place);
        let key = key.as_bytes();
        self.write_more(spare.place, more);
        let mut writer = Writer::new(words, 8 + more.len());
        writer.put(key);
        if spare.shape.large_len.is_none() {
            value.iter().for_each(|part| writer.put(part));
            writer.finish();
        } else {
            writer.finish();
            self.fill_pieces(spare.place, Header::new_large(key.len(), more, 0), &spare.pieces, value);
        }
    }

    /// The key's item. The caller holds its stripes.
    fn find<'s>(&'s self, locked: &LockedKey<'_>, probe: &Probe, key: Key<'_>, now: Time) -> Option<Found<'s>> {
        let mut found = None;
        let slot = locked.find(|payload| {
            found = self.item_of_key(payload, probe, key);
            found.is_some()
        })?;
        let (place, words, header) = found?;
        let more = More::of(header, words);
        let value_len = self.value_len(header, words);
        Some(Found { slot, place, words, header, more, is_live: self.is_live(probe, header, more, now), value_len })
    }

    /// One attempt, from lock to answer.
    #[expect(clippy::too_many_arguments, reason = "the parts of one request and what was prepared for it")]
    fn attempt<S: Sink>(
        self: &Arc<Self>,
        worker: &mut Worker,
        now: Time,
        probe: &Probe,
        request: &Request<'_>,
        spare: &mut Option<Spare>,
        index: usize,
        sink: &mut S,
    ) -> Attempt {
        let is_it = |payload| self.item_of_key(payload, probe, request.key).is_some();
        // Memory that was taken beforehand is for a key that is probably new.
        let (mut locked, _) = if spare.is_some() {
            self.index.lock_to_insert(probe, is_it)
        } else {
            self.index.lock_and_find(probe, is_it)
        };
        let found = self.find(&locked, probe, request.key, now);
        let live = found.as_ref().filter(|found| found.is_live);
        let mut number = Vec::new();
        if let (Operation::Arithmetic(_), Some(found)) = (&request.operation, live)
            && found.value_len <= NUMBER_LEN_MAX
        {
            number = self.value_of(found);
        }
        let current = live.map(|found| {
            let hit = self.hit(found.place, found.header, found.more, found.value_len, 0, now);
            Current {
                flags: found.more.flags,
                cas: self.shown(found.header.version()),
                expiry: found.more.expiry,
                value_len: found.value_len,
                value: (found.value_len <= NUMBER_LEN_MAX).then_some(&number[..]),
                fetched: found.header.is_fetched(),
                stale: found.more.stale,
                win_sent: found.more.win_sent,
                idle_s: hit.idle_s,
                class: hit.class,
                total_len: self.total_len(found.header, found.words),
            }
        });
        let version = self.version_of(probe, &request.operation);
        let (change, answer) = apply(&request.operation, current.as_ref(), now, self.shown(version));
        let items = self.footprints(request, current.as_ref(), &change);
        let dead = found.as_ref().filter(|found| !found.is_live);
        let death = dead.map(|found| self.death(probe, found.header));
        let mut old = None;
        let mut is_stored = false;
        let mut moved_from = None;
        match change {
            Change::Keep => {
                if let Some(found) = found.as_ref().filter(|found| !found.is_live) {
                    locked.remove(found.slot);
                    old = Some((found.place, found.header));
                }
            }
            Change::Remove => {
                if let Some(found) = &found {
                    locked.remove(found.slot);
                    old = Some((found.place, found.header));
                }
            }
            Change::Mark { expiry, stale, win_sent, new_version } => {
                let found = found.as_ref().expect("only what is there is marked");
                let more = More { flags: found.more.flags, expiry, stale, win_sent };
                let version = if new_version { version } else { found.header.version() };
                if found.header.has_more() {
                    locked.start_writing();
                    found.words.store(1, more.word());
                    if more.expiry != Expiry::NEVER {
                        self.slabs.set_expiring(self.arena.locate(found.place).0);
                    }
                    found.words.store(0, found.header.with_version(version).0);
                } else if more.is_needed() {
                    // The item has no room for a second word: it moves to a chunk that has.
                    let value = NewValue::Append(&[]);
                    let next = Next { value, more, version, keeps_use: true, is_fetched: false, is_recent: false };
                    match self.rewrite(worker, &mut locked, probe, request, Some(found), spare, &next) {
                        Ok(replaced) => old = replaced,
                        Err(Attempt::Done) => unreachable!("a mark makes no item too large: `shape` does not count it"),
                        Err(attempt) => return attempt,
                    }
                    moved_from = old.map(|(place, _)| place);
                } else if new_version {
                    locked.start_writing();
                    found.words.store(0, found.header.with_version(version).0);
                }
                if new_version {
                    self.use_version(probe, version);
                }
            }
            Change::Rewrite { value, flags, expiry, stale, win_sent } => {
                let more = More { flags, expiry, stale, win_sent };
                // A number that keeps its length is changed in place for clients too: it stays as used as it was.
                let keeps_use = matches!(&value, NewValue::Number(number)
                    if found.as_ref().is_some_and(|found| number.padded_len() == found.value_len));
                let restored = match &request.operation {
                    Operation::Restore(restored) => Some(restored),
                    _ => None,
                };
                let is_fetched = restored.is_some_and(|restored| restored.fetched);
                let is_recent = restored.is_some_and(|restored| restored.recent);
                let next = Next { value, more, version, keeps_use, is_fetched, is_recent };
                match self.rewrite(worker, &mut locked, probe, request, found.as_ref(), spare, &next) {
                    Ok(replaced) => old = replaced,
                    Err(Attempt::Done) => {
                        // Larger than the largest item.
                        drop(locked);
                        if let Some(death) = death {
                            sink.found_dead(index, death);
                        }
                        sink.answer(index, Answer::TooLarge);
                        return Attempt::Done;
                    }
                    Err(attempt) => return attempt,
                }
                if let Some(restored) = restored {
                    self.admit_version(probe, version);
                    if let Some(stored) = self.find(&locked, probe, request.key, now) {
                        self.slabs.set_idle(self.arena.locate(stored.place).0, restored.idle_s, now);
                    }
                } else {
                    self.use_version(probe, version);
                }
                worker.station.counters.total_items(1);
                is_stored = true;
            }
        }
        let mut stored = Nodes::default();
        if self.keeps_nodes
            && (is_stored || moved_from.is_some())
            && let Some(found) = self.find(&locked, probe, request.key, now)
        {
            stored = self.nodes_of(found.place, found.header);
        }
        let mut used = Nodes::default();
        if let Some(death) = death {
            sink.found_dead(index, death);
        }
        match answer {
            Err(answer) => {
                // A touch is a use.
                if let (Operation::Touch(_), Some(found)) = (&request.operation, &found)
                    && answer == Answer::Touched
                    && let Some(found) = self.find(&locked, probe, request.key, now).filter(|_| found.is_live)
                {
                    found.words.store(0, Header::of(found.words).used().0);
                    if self.notes_uses {
                        used = self.nodes_of(found.place, found.header);
                    }
                }
                drop(locked);
                sink.answer_change(index, answer, &items);
            }
            Ok(hit) => used = self.answer_read(locked, probe, request, hit, now, index, sink),
        }
        for place in stored.into_iter().flatten() {
            // Each class has an order of its own: to another class the item comes as a new one.
            let class_of = |place: Place| self.slabs.class_of(self.arena.locate(place).0);
            let moved_from = moved_from.filter(|from| class_of(*from) == class_of(place));
            let event = match (&request.operation, moved_from) {
                (Operation::Restore(restored), _) => Event::Restored { is_spared: restored.spared },
                (_, Some(from)) => Event::MovedFrom(from),
                (_, None) => Event::Stored,
            };
            self.slabs.tell(&self.arena, place, event);
        }
        used.into_iter().flatten().for_each(|place| self.slabs.tell(&self.arena, place, Event::Used));
        if let Some((place, header)) = old {
            self.free_item(Unlinked { place, header }, &worker.station.counters);
        }
        Attempt::Done
    }

    /// What is told about the items of a change.
    fn footprints(&self, request: &Request<'_>, current: Option<&Current<'_>>, change: &Change<'_>) -> Footprints {
        let before =
            current.map(|item| Footprint { class: item.class, value_len: item.value_len, expiry: item.expiry });
        let come = match (change, &request.operation) {
            (Change::Rewrite { value, flags, expiry, stale, win_sent }, _) => {
                let more = More { flags: *flags, expiry: *expiry, stale: *stale, win_sent: *win_sent };
                Some((value.len_with(before.map_or(0, |item| item.value_len)), more))
            }
            (_, Operation::Store(store)) => Some((store.value.len(), fresh_more(store))),
            _ => None,
        };
        let after = come.and_then(|(value_len, more)| {
            let class = self.shape(request.key, value_len, more)?.class.number();
            Some(Footprint { class, value_len, expiry: more.expiry })
        });
        Footprints { before, after }
    }

    /// Notes the use of an item that was read under the lock and delivers it: what is sent is copied or pinned before the lock
    /// is given up, and told after it. Returns what has been used, if the policy must hear of it.
    #[expect(clippy::too_many_arguments, reason = "the parts of one answer")]
    fn answer_read<S: Sink>(
        self: &Arc<Self>,
        locked: LockedKey<'_>,
        probe: &Probe,
        request: &Request<'_>,
        hit: Hit,
        now: Time,
        index: usize,
        sink: &mut S,
    ) -> Nodes {
        let Operation::Get(get) = &request.operation else { unreachable!("only a read is answered by a hit") };
        let found = self.find(&locked, probe, request.key, now).expect("the item that was hit is locked");
        let total_len = self.total_len(found.header, found.words);
        let class = self.hit(found.place, found.header, found.more, 0, 0, now).class;
        let hit = Hit { total_len, class, ..hit };
        let mut used = Nodes::default();
        if get.bump {
            found.words.store(0, found.header.used().0);
            if self.notes_uses {
                used = self.nodes_of(found.place, found.header);
            }
        }
        if !get.value {
            drop(locked);
            sink.metadata(index, &hit);
        } else if found.header.is_large() {
            let pin = Pin::new(self, found.place);
            drop(locked);
            sink.pinned(index, &hit, Box::new(pin));
        } else {
            let value = found.header.key_offset() + found.header.key_len();
            item::copy_out(found.words, value, hit.value_len, sink.reserve(index, &hit), VALUE_SLACK_LEN);
            drop(locked);
            sink.commit(index, &hit);
        }
        used
    }

    /// Gives the key a new value. `Ok` with what it replaced, if that is to be freed; `Err(Done)` if it is too large.
    #[expect(clippy::too_many_arguments, reason = "what is there, what shall be there, and the memory for it")]
    fn rewrite(
        &self,
        worker: &mut Worker,
        locked: &mut LockedKey<'_>,
        probe: &Probe,
        request: &Request<'_>,
        found: Option<&Found<'_>>,
        spare: &mut Option<Spare>,
        next: &Next<'_>,
    ) -> Result<Option<(Place, Header)>, Attempt> {
        let Next { value, more, version, .. } = *next;
        let current_len = found.filter(|found| found.is_live).map_or(0, |found| found.value_len);
        let value_len = value.len_with(current_len);
        let key_len = request.key.as_bytes().len();
        let Some(shape) = self.shape(request.key, value_len, more) else { return Err(Attempt::Done) };
        let header = match shape.large_len {
            None => Header::new(key_len, value_len, more, version),
            Some(_) => Header::new_large(key_len, more, version),
        };
        let header = if next.is_fetched { header.fetched() } else { header };
        let header = if next.is_recent { header.recent() } else { header };
        let new_len = header.chunk_len() + shape.large_len.unwrap_or(0);
        if let Some(found) = found
            && shape.large_len.is_none()
            && !found.header.is_large()
            && self.slabs.class_of(self.arena.locate(found.place).0) == Some(shape.class)
        {
            let old_len = self.total_len(found.header, found.words);
            self.rewrite_in_place(worker, locked, found, request.key, next, header);
            worker.station.counters.bytes((new_len as u64).wrapping_sub(old_len as u64));
            return Ok(None);
        }
        let Some(taken) = spare.take_if(|spare| spare.shape == shape) else { return Err(Attempt::Needs(shape)) };
        let is_filled = taken.filled == Some(more) && matches!(value, NewValue::Bytes(_));
        if !is_filled {
            let (before, after, pad) = parts(&value);
            let present = if matches!(value, NewValue::Append(_) | NewValue::Prepend(_)) {
                found.map(|found| self.value_of(found)).unwrap_or_default()
            } else {
                Vec::new()
            };
            let padding = vec![b' '; pad];
            self.fill(&taken, request.key, more, &[before, &present, after, &padding]);
        }
        let payload = self.arena.payload(taken.place, probe.spare_bits());
        let words = self.words(taken.place);
        match found {
            Some(found) => {
                words.store(0, next.header_over(header, found).0);
                locked.replace(found.slot, payload);
            }
            None => {
                words.store(0, header.0);
                if locked.insert(payload) == Err(Full) {
                    words.store(0, 0);
                    *spare = Some(taken);
                    return Err(Attempt::NoSlot);
                }
            }
        }
        worker.station.counters.bytes(new_len as u64);
        Ok(found.map(|found| (found.place, found.header)))
    }

    /// Writes over the item that is there, in its chunk, which is as large as the new one needs.
    fn rewrite_in_place(
        &self,
        worker: &mut Worker,
        locked: &mut LockedKey<'_>,
        found: &Found<'_>,
        key: Key<'_>,
        next: &Next<'_>,
        header: Header,
    ) {
        let Next { value, more, .. } = *next;
        let mut present = std::mem::take(&mut worker.scratch);
        present.clear();
        if found.is_live && matches!(value, NewValue::Append(_) | NewValue::Prepend(_)) {
            present.extend_from_slice(&self.value_of(found));
        }
        let (before, after, pad) = parts(&value);
        let words = found.words;
        locked.start_writing();
        self.write_more(found.place, more);
        let mut writer = Writer::new(words, 8 + more.len());
        writer.put(key.as_bytes());
        writer.put(before);
        writer.put(&present);
        writer.put(after);
        writer.fill(b' ', pad);
        writer.finish();
        words.store(0, next.header_over(header, found).0);
        worker.scratch = present;
    }

    /// A copy of the value of an item under its stripe.
    fn value_of(&self, found: &Found<'_>) -> Vec<u8> {
        let mut value = Vec::with_capacity(found.value_len + 16);
        if found.header.is_large() {
            self.copy_large(found.place, &mut value);
        } else {
            value.resize(8 + found.value_len + 8, 0);
            let offset = found.header.key_offset() + found.header.key_len();
            item::copy_out(found.words, offset, found.value_len, &mut value, 8);
            value.truncate(8 + found.value_len);
            value.drain(..8);
        }
        value
    }

    /// Begins a growth, unless one is under way, and sees it to its end, whoever is at it besides.
    ///
    /// # Errors
    /// [`GrowError::Busy`] if that waits for another thread, which may not be running; any other if there is no memory for it.
    fn finish_growth(&self, probe: &Probe, now: Time, station: &Station) -> Result<(), GrowError> {
        if !self.index.is_growing() {
            // Another thread may have finished one since room was last looked for.
            if self.index.make_room(probe).is_ok() {
                return Ok(());
            }
            self.begin_growth()?;
        }
        for _ in 0..STEPS_MAX {
            match self.go_on_growing(usize::MAX, now, station) {
                Grown::Refused => return Err(GrowError::NoMemory),
                Grown::Further => {}
                Grown::ByOthers => std::thread::yield_now(),
                Grown::Up => return Ok(()),
            }
            if !self.index.is_growing() {
                return Ok(());
            }
        }
        Err(GrowError::Busy)
    }

    /// Makes room for a new key, at an attempt of that number: by displacement, by growth, or by evicting a neighbour.
    fn make_slot(&self, probe: &Probe, attempt: usize, now: Time, station: &Station) -> Result<(), Full> {
        // Both buckets of a new key are full ever more often as the index fills, so this is the place from which growth gets
        // its steps, a little for a few new keys, even if no background thread does.
        let searches = self.slot_searches.fetch_add(1, Ordering::Relaxed);
        if self.index.is_growing() {
            self.go_on_growing(BUCKETS_PER_SEARCH, now, station);
        } else if searches.is_multiple_of(SEARCHES_PER_LOOK) && self.index.should_grow() {
            self.grow(BUCKETS_PER_SEARCH, now, station);
        }
        let stage = self.index.stage();
        if self.index.make_room(probe).is_ok() {
            return Ok(());
        }
        let (prefetch, hash) = (|payload| self.prefetch_at(payload), |payload| self.hash_of(payload));
        match self.index.make_room_in_growth(probe, prefetch, hash) {
            Ok(()) => return Ok(()),
            // Another thread is moving one of the key's buckets.
            Err(GrowError::Busy) => {
                wait_for_mover(attempt);
                return Ok(());
            }
            // What was full may have been moved since.
            Err(_) if self.index.stage() != stage => return Ok(()),
            Err(_) => {}
        }
        // The index grows long before, in the background; who comes here all the same finishes it, since a half-grown index
        // that went on filling would have segments whose keys do not fit into the next one.
        let is_refused = match self.finish_growth(probe, now, station) {
            Ok(()) => false,
            // There is memory: nothing is evicted while another thread begins to grow, for as long as that may take.
            Err(GrowError::Busy) => {
                wait_for_mover(attempt);
                return Ok(());
            }
            Err(_) => true,
        };
        let stage = self.index.stage();
        if self.index.make_room(probe).is_ok() {
            return Ok(());
        }
        // Begun anew by another thread: what is full is being emptied, or has been by now.
        if !is_refused && (self.index.is_growing() || self.index.stage() != stage) {
            return Ok(());
        }
        if (self.config.evictions_enabled && self.evict_neighbour(probe, now, station))
            // Others may have evicted all the neighbours that were found.
            || self.index.make_room(probe).is_ok()
        {
            return Ok(());
        }
        Err(Full)
    }
}

/// Lets the thread that moves a bucket, or begins a growth, go on. It may have lost its core, for milliseconds, or with the whole
/// machine for longer: all attempts together wait for some two seconds before a store is refused.
#[expect(clippy::disallowed_methods, reason = "there is no event to wait for: a claim on a bucket is two bits")]
fn wait_for_mover(attempt: usize) {
    match attempt.checked_sub(YIELDS_MAX) {
        None => std::thread::yield_now(),
        Some(sleeps) => std::thread::sleep((WAIT_STEP * (sleeps as u32 + 1)).min(WAIT_MAX)),
    }
}

/// The second word of an item that a store creates.
fn fresh_more(store: &Store<'_>) -> More {
    More { flags: store.flags, expiry: store.expiry, stale: false, win_sent: false }
}

/// Bytes before the present value, bytes after it, and spaces behind.
fn parts<'v>(value: &'v NewValue<'_>) -> (&'v [u8], &'v [u8], usize) {
    match value {
        NewValue::Bytes(bytes) | NewValue::Prepend(bytes) => (bytes, &[], 0),
        NewValue::Append(bytes) => (&[], bytes, 0),
        NewValue::Number(decimal) => (decimal.digits(), &[], decimal.padded_len() - decimal.digits().len()),
    }
}
