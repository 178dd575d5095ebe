//! A database in virtual time that backends have one after the other, as they have a keyspace of a Cassandra (`docs/design/0014`, `0026`): the protocol is that
//! of production (`guira_row`), and what is asked of it may be lost, or come long after, when another one has it.
//!
//! Always true: one tenant is its owner, the last that has begun; those before go on under their own epoch, as long as nobody stops them.
//!
//! Simpler than a Cassandra is: nobody comes between what one operation asks; what is kept beside the rows is there at once or never; a scan shows all that
//! has come. The tests of `guira_row` and the models have what is left out.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    rc::Rc,
    sync::Arc,
};

use guira_item::store::{Found, Part, Record, StoreError, StoreErrorKind, StoreState, Write, Written};
use guira_routing::{KeyHash, PartitionId};
use guira_row::{Ask, Doubt, End, Epoch, Floors, Goal, Heard, Operation, Remembered, Row, Rules, Stamp};
use guira_switched::{StoreCall, backend::Happened};
use rand::{RngExt, rngs::Xoshiro256PlusPlus};

use crate::disk::{Failing, TOLD, fate, scanned};

type Content = Record<Arc<[u8]>>;

/// Writes that may come yet, at most: the first of more never does.
const LATE_MAX: usize = 64;

/// Times that the database is asked for one operation.
const ASKS_MAX: usize = 4;

/// A write of a row, if that has a stamp, or is absent.
#[derive(Debug)]
struct RowWrite {
    key: Box<[u8]>,
    expected: Option<Stamp>,
    row: Row<Content>,
}

/// What is in the database.
#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<Box<[u8]>, Row<Content>>,
    /// Writes of which nothing was heard, and that have not come yet.
    late: VecDeque<RowWrite>,
    state: StoreState,
    floors: Floors,
    owners: i64,
    counts: TableCounts,
}

/// Numbers about a database.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TableCounts {
    /// Writes that came after they were lost sight of.
    pub(crate) came_late: u64,
    /// Reads that were news.
    pub(crate) news: u64,
}

impl Table {
    /// Carries a write out; whether it was applied.
    fn write(&mut self, RowWrite { key, expected, row }: RowWrite) -> bool {
        let applies = self.rows.get(&key).map(|row| row.stamp) == expected;
        if applies {
            self.rows.insert(key, row);
        }
        applies
    }

    /// Now and then something comes of which nobody knew whether it would.
    fn stir(&mut self, rng: &mut Xoshiro256PlusPlus) {
        if !self.late.is_empty() && rng.random_bool(0.05) {
            let at = rng.random_range(0..self.late.len());
            let write = self.late.remove(at).expect("it is one of them");
            self.counts.came_late += u64::from(self.write(write));
        }
    }

    /// A write is lost: it has come all the same, or comes later, as likely as not, or never.
    fn lose(&mut self, write: RowWrite, rng: &mut Xoshiro256PlusPlus) {
        match rng.random_range(0..4) {
            0 => drop(self.write(write)),
            1..3 => {
                self.late.push_back(write);
                if self.late.len() > LATE_MAX {
                    self.late.pop_front();
                }
            }
            _ => {}
        }
    }
}

/// Somebody who has the database, or had it.
#[derive(Debug)]
pub(crate) struct Tenant {
    table: Rc<RefCell<Table>>,
    epoch: Epoch,
    serial: i64,
    /// Stamps of its own that rows have.
    stamps: BTreeMap<Box<[u8]>, Stamp>,
    doubts: BTreeMap<Box<[u8]>, Doubt>,
    floors: Floors,
    /// A later owner was seen.
    is_lost: bool,
}

impl Default for Tenant {
    fn default() -> Self {
        Self::of(Rc::default())
    }
}

impl Tenant {
    fn of(table: Rc<RefCell<Table>>) -> Self {
        Self {
            table,
            epoch: Epoch(0),
            serial: 0,
            stamps: BTreeMap::new(),
            doubts: BTreeMap::new(),
            floors: Floors::default(),
            is_lost: false,
        }
    }

    pub(crate) fn another(&self) -> Self {
        Self::of(Rc::clone(&self.table))
    }

    /// It is the owner from now on.
    pub(crate) fn open(&mut self) -> StoreState {
        *self = self.another();
        let mut table = self.table.borrow_mut();
        table.owners += 1;
        (self.epoch, self.floors) = (Epoch(table.owners), table.floors.clone());
        table.state
    }

    /// What has been counted since this was last asked.
    pub(crate) fn take_counts(&self) -> TableCounts {
        std::mem::take(&mut self.table.borrow_mut().counts)
    }

    fn next_serial(&mut self) -> i64 {
        self.serial += 1;
        self.serial
    }

    fn is_owner(&self) -> bool {
        self.epoch == Epoch(self.table.borrow().owners)
    }

    fn begin(&self, key: &[u8], goal: Goal<Content>, hash_of: fn(&[u8]) -> KeyHash) -> Operation<Content> {
        let (stamp, doubt) = (self.stamps.get(key).copied(), self.doubts.get(key).copied());
        let remembered = Remembered { stamp, doubt, floor: self.floors.of(part_of(key, hash_of)) };
        Operation::new(self.epoch, Rules::ALL, goal, remembered)
    }

    /// Carries out an operation, or gives it up.
    fn operate(
        &mut self,
        key: &[u8],
        goal: Goal<Content>,
        failing: Failing,
        rng: &mut Xoshiro256PlusPlus,
        hash_of: fn(&[u8]) -> KeyHash,
    ) -> Result<End<Content>, StoreError> {
        if self.is_lost {
            return Err(fenced(false));
        }
        let mut operation = self.begin(key, goal, hash_of);
        let mut end = None;
        for _ in 0..ASKS_MAX {
            let ask = operation.ask(self.next_serial());
            let heard = self.hear(key, ask, failing, rng);
            let is_given_up = heard == Heard::Lost && rng.random_bool(0.5);
            end = operation.on(heard);
            if end.is_some() || is_given_up {
                break;
            }
        }
        set(&mut self.stamps, key, operation.stamp_left());
        set(&mut self.doubts, key, operation.doubt_left());
        match end {
            Some(End::Fenced { unknown }) => {
                self.is_lost = true;
                Err(fenced(unknown))
            }
            Some(end) => Ok(end),
            None => {
                let unknown = operation.may_have_changed();
                Err(StoreError { unknown, ..StoreError::refused(StoreErrorKind::Unavailable, TOLD) })
            }
        }
    }

    fn hear(
        &mut self,
        key: &[u8],
        ask: Ask<Content>,
        failing: Failing,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Heard<Content> {
        let mut table = self.table.borrow_mut();
        let fails = rng.random_range(0..1_000) < failing.per_mille;
        match ask {
            Ask::Read if fails => Heard::Lost,
            Ask::Read => Heard::Row(table.rows.get(key).cloned()),
            Ask::Write { .. } if fails && rng.random_bool(0.2) => Heard::Refused,
            Ask::Write { expected, row } if fails => {
                table.lose(RowWrite { key: key.into(), expected, row }, rng);
                Heard::Lost
            }
            Ask::Write { expected, row } => match table.write(RowWrite { key: key.into(), expected, row }) {
                true => Heard::Applied,
                false => Heard::NotApplied,
            },
        }
    }

    /// Completes a call.
    pub(crate) fn complete(
        &mut self,
        call: StoreCall,
        failing: Failing,
        rng: &mut Xoshiro256PlusPlus,
        hash_of: fn(&[u8]) -> KeyHash,
    ) -> Happened<'static> {
        self.table.borrow_mut().stir(rng);
        match call {
            StoreCall::Read(key) => {
                let read = self.operate(&key, Goal::Read, failing, rng, hash_of).map(|end| match end {
                    End::Read { content, is_news } => Found { record: content, is_news },
                    other => unreachable!("{other:?} of a read"),
                });
                let is_news = read.as_ref().is_ok_and(|found| found.is_news);
                self.table.borrow_mut().counts.news += u64::from(is_news);
                Happened::Read(key, read)
            }
            StoreCall::Write(key, write) => {
                let changed = self.operate(&key, change(write), failing, rng, hash_of);
                Happened::Written(key, changed.map(|_| Written::All))
            }
            StoreCall::Scan(scan) => {
                let (error, _) = fate(failing, rng);
                let number = scan.number;
                let from = scan.from();
                let table = self.table.borrow();
                let rows = table.rows.range::<[u8], _>((Bound::Included(&from[..]), Bound::Unbounded));
                let counts = |key: &[u8], row: &Row<Content>| {
                    self.floors.of(part_of(key, hash_of)).is_none_or(|floor| row.stamp >= floor)
                };
                let rows = rows.filter(|(key, row)| counts(key, row));
                let records = rows.filter_map(|(key, row)| Some((&**key, row.content.as_ref()?)));
                let found = scanned(records, scan, hash_of);
                Happened::Scanned(number, error.map_or(Ok(found), Err))
            }
            StoreCall::Fence(partitions) => {
                let floor = Stamp { epoch: self.epoch, serial: self.next_serial() };
                let mut floors = self.floors.clone();
                floors.raise(partitions.iter().copied().map(part), floor);
                Happened::Fenced(self.keep(failing, rng, |table| table.floors = floors.clone()).inspect(|()| {
                    self.floors = floors;
                    let stays = |doubt: &Doubt| doubt.0.is_some_and(|stamp| stamp >= floor);
                    self.doubts
                        .retain(|key, doubt| stays(doubt) || !partitions.contains(&PartitionId::of(hash_of(key))));
                }))
            }
            StoreCall::Flush => Happened::Flushed(fate(failing, rng).0.map_or(Ok(()), Err)),
            StoreCall::State(state) => {
                let kept = self.keep(failing, rng, |table| table.state = state);
                Happened::StateWritten(kept.map(|()| Written::All))
            }
        }
    }

    /// Keeps something beside the rows, which is the owner's alone from when it began.
    fn keep(
        &self,
        failing: Failing,
        rng: &mut Xoshiro256PlusPlus,
        keep: impl FnOnce(&mut Table),
    ) -> Result<(), StoreError> {
        if !self.is_owner() {
            return Err(fenced(false));
        }
        let (error, happens) = fate(failing, rng);
        if happens {
            keep(&mut self.table.borrow_mut());
        }
        error.map_or(Ok(()), Err)
    }

    /// Of what was under way some has come, some comes later, and some never; nothing that was to come after a state does without it.
    pub(crate) fn crash(
        &mut self,
        calls: impl Iterator<Item = StoreCall>,
        rng: &mut Xoshiro256PlusPlus,
        hash_of: fn(&[u8]) -> KeyHash,
    ) {
        for call in calls {
            let (key, goal) = match call {
                StoreCall::Read(key) => (key, Goal::Read),
                StoreCall::Write(key, write) => (key, change(write)),
                StoreCall::State(state) => {
                    if !self.is_owner() || rng.random_bool(0.5) {
                        return;
                    }
                    self.table.borrow_mut().state = state;
                    continue;
                }
                StoreCall::Scan(_) | StoreCall::Fence(_) | StoreCall::Flush => continue,
            };
            let mut operation = self.begin(&key, goal, hash_of);
            let mut table = self.table.borrow_mut();
            let mut asked = operation.ask(self.serial + 1);
            if asked == Ask::Read {
                if operation.on(Heard::Row(table.rows.get(&key).cloned())).is_some() {
                    continue;
                }
                asked = operation.ask(self.serial + 2);
            }
            self.serial += 2;
            if let Ask::Write { expected, row } = asked {
                table.lose(RowWrite { key, expected, row }, rng);
            }
        }
    }
}

fn change(write: Write) -> Goal<Content> {
    let content = match write {
        Write::Put { record, .. } => Some(record),
        Write::Delete { .. } => None,
        Write::State(_) => unreachable!("it is kept beside the rows"),
    };
    Goal::Change { content, fits: None }
}

fn fenced(unknown: bool) -> StoreError {
    StoreError { unknown, ..StoreError::refused(StoreErrorKind::ReadOnly, TOLD) }
}

fn part(partition: PartitionId) -> Part {
    Part(partition.0)
}

fn part_of(key: &[u8], hash_of: fn(&[u8]) -> KeyHash) -> Part {
    part(PartitionId::of(hash_of(key)))
}

fn set<V>(map: &mut BTreeMap<Box<[u8]>, V>, key: &[u8], value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key.into(), value)),
        None => drop(map.remove(key)),
    }
}
