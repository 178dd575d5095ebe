//! Parts of the keys are fenced off: what was written to them before counts for nothing, whenever it comes (`guira_row`'s floors).
//!
//! Always true: floors are in the keyspace before anybody goes by them, and an owner begins with those of all before it. That nothing is under way for
//! what is fenced off is up to who asks.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock, atomic::Ordering::Relaxed},
};

use guira_item::store::{Done, Part, StoreError, StoreErrorKind};
use guira_row::{Doubt, End, Floors, Goal, Stamp};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};

use super::{CassandraError, Inside, jobs::PATIENCE};

/// The key of the floors.
const FLOORS_KEY: &[u8] = b"floors";

/// The floors of a keyspace.
pub(super) struct KeptFloors {
    /// Those that are in the keyspace.
    kept: RwLock<Floors>,
    /// Raises them, one at a time.
    turn: Mutex<()>,
    part_of: fn(&[u8]) -> Part,
}

impl KeptFloors {
    pub(super) fn new(part_of: fn(&[u8]) -> Part) -> Self {
        Self { kept: RwLock::default(), turn: Mutex::default(), part_of }
    }

    /// That of a key.
    pub(super) fn of(&self, key: &[u8]) -> Option<Stamp> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        if kept.is_empty() { None } else { kept.of((self.part_of)(key)) }
    }

    fn set(&self, floors: Floors) {
        *self.kept.write().unwrap_or_else(PoisonError::into_inner) = floors;
    }
}

impl Inside {
    /// Those of a store that is being opened.
    pub(super) async fn read_floors(&self) -> Result<(), CassandraError> {
        let found = self.operate_beside(FLOORS_KEY, Goal::Read, Instant::now() + PATIENCE).await;
        let found = found.map_err(|error| CassandraError::Failed(error.to_string()))?;
        if let End::Read { content: Some(bytes), .. } = found {
            let floors = Floors::decode(&bytes);
            self.floors.set(floors.map_err(|error| CassandraError::Failed(format!("its floors: {error}")))?);
        }
        Ok(())
    }

    /// Fences parts off, or gives that up then.
    pub(super) async fn fence(self: Arc<Self>, id: u64, parts: BTreeSet<Part>, give_up_at: Instant, done: Done<()>) {
        let outcome = self.raise_floors(&parts, give_up_at).await;
        self.complete(id, done, outcome);
    }

    async fn raise_floors(&self, parts: &BTreeSet<Part>, give_up_at: Instant) -> Result<(), StoreError> {
        let turn = timeout_at(give_up_at, self.floors.turn.lock()).await;
        let _turn = turn.map_err(|_| {
            StoreError::refused(StoreErrorKind::Unavailable, "others have fenced something off for too long")
        })?;
        let floor = Stamp { epoch: self.epoch, serial: self.serials.fetch_add(1, Relaxed) };
        let mut floors = self.floors.kept.read().unwrap_or_else(PoisonError::into_inner).clone();
        floors.raise(parts.iter().copied(), floor);
        let change = Goal::Change { content: Some(floors.encode().into()), fits: None };
        match self.operate_beside(FLOORS_KEY, change, give_up_at).await? {
            End::Changed => {}
            other => unreachable!("{other:?} of a change"),
        }
        self.floors.set(floors);
        // Whatever comes of a write whose condition is below the floor, or was sent before it, counts for nothing.
        let part_of = self.floors.part_of;
        let stays = |doubt: &Doubt| doubt.0.is_some_and(|stamp| stamp >= floor);
        self.items.doubts().retain(|key, doubt| stays(doubt) || !parts.contains(&part_of(key)));
        Ok(())
    }
}
