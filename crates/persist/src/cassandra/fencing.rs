//! Parts of the keys are fenced off: what was written to them before counts for nothing, whenever it comes (`guira_row`'s floors).
//!
//! Always true: floors are in the keyspace before anybody goes by them, and an owner begins with those of all before it; what is fenced off has nothing
//! under way, so that no operation goes by a floor that is being raised.

use std::sync::{Arc, PoisonError, RwLock, atomic::Ordering::Relaxed};

use guira_item::store::{Done, Part, StoreError};
use guira_row::{End, Floors, FloorsError, Goal, Stamp};
use tokio::sync::Mutex;

use super::{CassandraError, Inside};

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
        let found = self.operate_beside(FLOORS_KEY, Goal::Read).await;
        if let End::Read { content: Some(bytes), .. } =
            found.map_err(|error| CassandraError::Failed(error.to_string()))?
        {
            self.floors.set(Floors::decode(&bytes).map_err(|error| match error {
                FloorsError::OtherFormat(format) => CassandraError::OtherFormat(format.into()),
                FloorsError::Damaged => CassandraError::Damaged,
            })?);
        }
        Ok(())
    }

    /// Fences parts off.
    pub(super) async fn fence(self: Arc<Self>, id: u64, parts: Vec<Part>, done: Done<()>) {
        let outcome = self.raise_floors(parts).await;
        self.complete(id, done, outcome);
    }

    async fn raise_floors(&self, parts: Vec<Part>) -> Result<(), StoreError> {
        let _turn = self.floors.turn.lock().await;
        let floor = Stamp { epoch: self.epoch, serial: self.serials.fetch_add(1, Relaxed) };
        let mut floors = self.floors.kept.read().unwrap_or_else(PoisonError::into_inner).clone();
        floors.raise(parts, floor);
        let change = Goal::Change { content: Some(floors.encode().into()), fits: None };
        match self.operate_beside(FLOORS_KEY, change).await? {
            End::Changed => self.floors.set(floors),
            other => unreachable!("{other:?} of a change"),
        }
        Ok(())
    }
}
