//! What the store has of partitions that are not this backend's: what is taken is written, what is left is removed.
//!
//! ```text
//! unclear partitions -> a pass: scan -> removals -> scan -> ... -> clear
//! ```
//! Always true: for a key of which something is written here there is no other work; one write of a key is under way at a time, and what is written
//! last is what was said last; a partition that is to be removed is taken only once nothing is left of it.

use std::collections::{BTreeSet, HashMap};

use guira_chain::{Item, record_of};
use guira_cluster::CLOCK;
use guira_item::{
    Key, Moment, Span,
    store::{Condition, StoreError, Write, Written},
};
use guira_routing::PartitionId;
use serde::Serialize;

use super::Backend;
use crate::{ItemCopy, Outbox, Scan, ScanNumber, Scanned, StoreCall};

/// How long after what failed there is another try.
const AGAIN_AFTER: Span = Span::from_ms(500);

/// The same for a pass, which goes through all keys: twice as long after each that fails, up to this.
const PASS_AGAIN_AFTER_MAX: Span = Span::from_s(16);

/// What is being written and what is to be written then, at most: keys of a few scans, as many bytes as wait on a link, and changes of what is given. A
/// giver that says more begins again.
const WRITING_MAX: usize = 16 * 1024;
const WRITING_LEN_MAX: usize = 64 << 20;

/// The same, for more keys to be asked for: the store has enough to do.
const WRITING_LOW: usize = 1024;
const WRITING_LEN_LOW: usize = 8 << 20;

/// Writes beside all chains.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Foreign {
    /// Keys that are being written, and what is to be written then.
    writing: HashMap<Box<[u8]>, Writing>,
    /// Bytes of values in them.
    writing_len: usize,
    /// Keys of which nobody knows what came of a write: they are read again, after which that stays.
    unsettled: BTreeSet<Box<[u8]>>,
    /// Partitions of which something may be left, and nothing is to be.
    unclear: BTreeSet<PartitionId>,
    pass: Option<Pass>,
    /// After something has failed nothing is tried again before that.
    again_at: Moment,
    /// How long after the last pass that was, if it has failed. Not part of what models compare: it is a time and nothing else.
    #[serde(skip)]
    pass_again_after: Option<Span>,
}

/// A key that is being written.
#[derive(Clone, Debug, Serialize)]
struct Writing {
    /// Bytes of the value.
    value_len: usize,
    /// What is to be written then, if anything is.
    next: Option<Option<ItemCopy>>,
}

fn value_len(item: &Option<ItemCopy>) -> usize {
    item.as_ref().map_or(0, |item| item.value.len())
}

/// Removes all there is of some partitions.
#[derive(Clone, Debug, Serialize)]
struct Pass {
    partitions: BTreeSet<PartitionId>,
    scan: PassScan,
    /// Something could not be removed.
    has_failed: bool,
}

#[derive(Clone, Debug, Serialize)]
enum PassScan {
    /// To be asked for, behind a key.
    Next(Option<Box<[u8]>>),
    /// Asked for.
    Asked(ScanNumber),
    /// All keys were found.
    Over,
}

impl Foreign {
    /// Nothing is being written.
    pub(super) fn is_written(&self) -> bool {
        self.writing.is_empty()
    }

    /// The store is so far behind that nothing more is taken.
    pub(super) fn is_full(&self) -> bool {
        self.writing.len() > WRITING_MAX || self.writing_len > WRITING_LEN_MAX
    }

    /// The store is not far behind.
    pub(super) fn has_room(&self) -> bool {
        self.writing.len() <= WRITING_LOW && self.writing_len <= WRITING_LEN_LOW
    }

    /// Has nothing left of these partitions, sooner or later.
    pub(super) fn clear(&mut self, partitions: impl IntoIterator<Item = PartitionId>) {
        self.unclear.extend(partitions);
        self.pass_again_after = None;
    }

    /// Whether nothing is left of these partitions.
    pub(super) fn is_clear(&self, partitions: &BTreeSet<PartitionId>) -> bool {
        let passing = self.pass.as_ref().map(|pass| &pass.partitions);
        self.unclear.is_disjoint(partitions) && passing.is_none_or(|passing| passing.is_disjoint(partitions))
    }

    /// Partitions of which something may be left.
    pub(super) fn unclear(&self) -> usize {
        let passing = self.pass.as_ref().map(|pass| &pass.partitions);
        passing.map_or(self.unclear.len(), |passing| self.unclear.union(passing).count())
    }

    /// What is to be written once something else was is not to be written any more.
    pub(super) fn forget_next(&mut self) {
        for writing in self.writing.values_mut() {
            self.writing_len -= writing.next.take().as_ref().map_or(0, value_len);
        }
    }

    pub(super) fn wake_at(&self) -> Option<Moment> {
        let waits =
            (self.pass.is_none() && self.is_written() && !self.unclear.is_empty()) || !self.unsettled.is_empty();
        waits.then_some(self.again_at)
    }
}

impl Backend {
    /// Writes what there is of a key that is not this backend's, or that there is nothing.
    pub(super) fn write_foreign(&mut self, key: Box<[u8]>, item: Option<ItemCopy>, out: &mut Outbox) {
        self.foreign.writing_len += value_len(&item);
        if let Some(writing) = self.foreign.writing.get_mut(&key) {
            let before = writing.next.replace(item);
            self.foreign.writing_len -= before.as_ref().map_or(0, value_len);
            return;
        }
        self.foreign.writing.insert(key.clone(), Writing { value_len: value_len(&item), next: None });
        let write = self.foreign_write(key.clone(), item);
        out.store.push(StoreCall::Write(key, write));
    }

    fn foreign_write(&self, key: Box<[u8]>, item: Option<ItemCopy>) -> Write {
        let condition = Condition::Always;
        let Some(ItemCopy { flags, version, expiry, stale, win_sent, value, .. }) = item else {
            return Write::Delete { key, condition };
        };
        let generation = self.state.generation;
        let item = Item { flags, version, expiry, generation, stale, win_sent, fetched: false, idle_s: 0, value };
        Write::Put { key, record: record_of(&item, &CLOCK), condition }
    }

    /// A write of something foreign is over; whether it was one.
    pub(super) fn on_foreign_written(
        &mut self,
        key: &[u8],
        written: &Result<Written, StoreError>,
        out: &mut Outbox,
    ) -> bool {
        if !self.foreign.writing.contains_key(key) {
            return false;
        }
        if written.is_err() {
            if let Some(pass) = &mut self.foreign.pass {
                pass.has_failed = true;
            }
            self.drop_taken();
        }
        match written {
            // It may happen yet, until it is read.
            Err(error) if error.unknown => out.store.push(StoreCall::Read(key.into())),
            _ => self.go_on_writing(key, out),
        }
        true
    }

    /// Something foreign was read, so that what came of a write is settled; whether it was that.
    pub(super) fn on_foreign_read(&mut self, now: Moment, key: &[u8], is_read: bool, out: &mut Outbox) -> bool {
        if !self.foreign.writing.contains_key(key) {
            return false;
        }
        if is_read {
            self.go_on_writing(key, out);
        } else {
            self.foreign.unsettled.insert(key.into());
            self.foreign.again_at = now + AGAIN_AFTER;
        }
        true
    }

    /// What was written of a key is settled: what is to be written then is next.
    fn go_on_writing(&mut self, key: &[u8], out: &mut Outbox) {
        let Some(Writing { value_len: before, next }) = self.foreign.writing.remove(key) else { return };
        self.foreign.writing_len -= before;
        if let Some(item) = next {
            self.foreign.writing_len -= value_len(&item);
            self.write_foreign(key.into(), item, out);
        }
    }

    /// The store has named keys of which nothing is to be left.
    pub(super) fn on_scanned_to_clear(
        &mut self,
        now: Moment,
        number: ScanNumber,
        found: &Result<Scanned, StoreError>,
        out: &mut Outbox,
    ) {
        let is_asked = |pass: &&mut Pass| matches!(pass.scan, PassScan::Asked(asked) if asked == number);
        let Some(pass) = self.foreign.pass.as_mut().filter(is_asked) else { return };
        let Ok(Scanned { keys, more_after }) = found else {
            pass.has_failed = true;
            pass.scan = PassScan::Over;
            return self.go_on_clearing(now, out);
        };
        pass.scan = match more_after {
            Some(after) => PassScan::Next(Some(after.clone())),
            None => PassScan::Over,
        };
        // Whatever a map says: nothing that is owned is removed.
        for key in keys.iter().filter(|key| Key::new(key).is_ok()) {
            if !self.owns(key) {
                self.write_foreign(key.clone(), None, out);
            }
        }
    }

    /// Removes what is to be removed, as far as it goes now.
    pub(super) fn go_on_clearing(&mut self, now: Moment, out: &mut Outbox) {
        let Foreign { writing, unsettled, unclear, pass, again_at, pass_again_after, .. } = &mut self.foreign;
        if *again_at <= now {
            out.store.extend(std::mem::take(unsettled).into_iter().map(StoreCall::Read));
        }
        if !writing.is_empty() {
            return;
        }
        if let Some(over) = pass.take_if(|pass| matches!(pass.scan, PassScan::Over)) {
            let twice = pass_again_after.map_or(AGAIN_AFTER, |before| before.times(2).min(PASS_AGAIN_AFTER_MAX));
            *pass_again_after = over.has_failed.then_some(twice);
            if over.has_failed {
                unclear.extend(over.partitions);
                *again_at = now + twice;
            }
        }
        if pass.is_none() && !unclear.is_empty() && *again_at <= now {
            let partitions = std::mem::take(unclear);
            *pass = Some(Pass { partitions, scan: PassScan::Next(None), has_failed: false });
        }
        if let Some(Pass { partitions, scan, .. }) = pass
            && let PassScan::Next(after) = scan
        {
            self.last_scan = ScanNumber(self.last_scan.0 + 1);
            let (number, bounds, after) = (self.last_scan, self.config.giving.scan, after.take());
            out.store.push(StoreCall::Scan(Scan { number, partitions: partitions.clone(), after, bounds }));
            *scan = PassScan::Asked(number);
        }
    }
}
