//! States of the store are written through a gate: what comes after one waits for it.
//!
//! ```text
//! state  -> wanted -> written, one after the other; the last that was given is enough
//! change -> held while one is wanted -> its turn, once all are written; refused if one cannot be
//! ```
//! Always true: no change that was given behind a state reaches Cassandra before it; a state that could not be written is wanted still, as
//! far as somebody goes by it already, and what comes next has it tried once more.

use std::sync::{Arc, MutexGuard, PoisonError, atomic::Ordering::Relaxed};

use guira_item::store::{Done, StoreError, StoreErrorKind, StoreState, Written};
use guira_row::{End, Goal};
use tokio::{runtime::Handle, time::Instant};

use super::{
    CassandraError, Inside,
    jobs::{Job, PATIENCE},
    tables::Content,
};
use crate::state::{self, StateError};

/// The key of the state.
const STATE_KEY: &[u8] = b"state";

/// States wait here, and what was submitted after one.
#[derive(Default)]
pub(super) struct Gate {
    /// What is to be written: the last that was given, and one that could not be.
    wanted: Option<StoreState>,
    /// The last that is there for certain.
    written: StoreState,
    /// Who waits for it.
    dones: Vec<(u64, Done<Written>)>,
    is_running: bool,
    held: Vec<(Box<[u8]>, Job)>,
}

impl Gate {
    /// A state could not be written: what has waited for it, unless a later one is tried now.
    fn want_again(&mut self, state: StoreState) -> Option<Vec<(Box<[u8]>, Job)>> {
        if self.wanted.is_some() {
            return None;
        }
        // Whoever has reserved versions goes by them already. Who has asked for a flush is told that it failed.
        self.wanted = Some(StoreState { versions_reserved: state.versions_reserved, ..self.written });
        self.is_running = false;
        Some(std::mem::take(&mut self.held))
    }
}

impl Inside {
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a store that is being opened.
    pub(super) async fn read_state(&self) -> Result<StoreState, CassandraError> {
        let found = self.operate_state(Goal::Read).await;
        let state = match found.map_err(|error| CassandraError::Failed(error.to_string()))? {
            End::Read { content: Some(bytes), .. } => state::decode(&bytes).map_err(|error| match error {
                StateError::OtherFormat(format) => CassandraError::OtherFormat(format),
                StateError::Damaged => CassandraError::Damaged,
            })?,
            _ => StoreState::default(),
        };
        self.set_written(state);
        Ok(state)
    }

    /// Has a state written, on the runtime that this is called on.
    pub(super) fn write_state(self: &Arc<Self>, id: u64, state: StoreState, done: Done<Written>) {
        let mut gate = self.gate();
        gate.wanted = Some(state);
        gate.dones.push((id, done));
        self.start_gate(&mut gate);
    }

    /// Has a job carried out when it is its turn, after the states that were given before.
    pub(super) fn enter_behind_states(self: &Arc<Self>, key: Box<[u8]>, job: Job) {
        let mut gate = self.gate();
        if gate.is_running || gate.wanted.is_some() {
            gate.held.push((key, job));
            self.start_gate(&mut gate);
        } else {
            self.enter(key, job);
        }
    }

    fn start_gate(self: &Arc<Self>, gate: &mut Gate) {
        if !std::mem::replace(&mut gate.is_running, true) {
            Handle::current().spawn(Arc::clone(self).run_gate());
        }
    }

    /// Writes the states that are wanted, one after the other, then lets go what has waited for them.
    async fn run_gate(self: Arc<Self>) {
        loop {
            let (state, dones) = {
                let mut gate = self.gate();
                let Some(state) = gate.wanted.take() else {
                    gate.is_running = false;
                    for (key, job) in std::mem::take(&mut gate.held) {
                        self.enter(key, job);
                    }
                    return;
                };
                (state, std::mem::take(&mut gate.dones))
            };
            let goal = Goal::Change { content: Some(state::encode(&state).into()), fits: None };
            let end = self.operate_state(goal).await;
            let outcome = end.map(|_| {
                self.set_written(state);
                Written::All
            });
            let held = outcome.is_err().then(|| self.gate().want_again(state)).flatten();
            for (id, done) in dones {
                self.complete(id, done, outcome.clone());
            }
            let Some(held) = held else { continue };
            for (_, job) in held {
                let told = "what has to be written before cannot be";
                job.refuse(&self, StoreError::refused(StoreErrorKind::Unavailable, told));
            }
            return;
        }
    }

    fn set_written(&self, state: StoreState) {
        self.gate().written = state;
        self.generation.store(state.generation.0.into(), Relaxed);
    }

    async fn operate_state(&self, goal: Goal<Content>) -> Result<End<Content>, StoreError> {
        self.operate_beside(STATE_KEY, goal, Instant::now() + PATIENCE).await
    }
}
