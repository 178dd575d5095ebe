//! Reads and changes of items: each waits for its turn at its key and for room, and is carried out or refused.
//!
//! Always true: operations of a key are carried out one at a time, in the order in which they entered; one that has waited too long is
//! refused and never asked of Cassandra.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use guira_item::store::{Condition, Done, Found, Generation, StoreError, StoreErrorKind, Written};
use guira_row::{End, Fits, Goal};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};

use super::{Inside, driving::Bounds, not_a_record, row_ttl::item_ttl_s, tables::Content};
use crate::record;

/// How long after it was submitted an operation is given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);

/// Rows with a write that is, or was, in doubt, and that nobody was told of since. With so many nothing is written until some are, by reads.
const DOUBTS_MAX: usize = 1 << 16;

/// What waits for its turn at a key.
pub(super) struct Job {
    id: u64,
    give_up_at: Instant,
    act: Act,
}

pub(super) enum Act {
    Get(Done<Found>),
    Change(Change, Done<Written>),
}

/// What is to be under a key.
pub(super) struct Change {
    pub(super) content: Option<Content>,
    pub(super) condition: Condition,
}

impl Job {
    pub(super) fn new(id: u64, act: Act) -> Self {
        Self { id, give_up_at: Instant::now() + PATIENCE, act }
    }

    pub(super) fn refuse(self, inside: &Inside, error: StoreError) {
        match self.act {
            Act::Get(done) => inside.complete(self.id, done, Err(error)),
            Act::Change(_, done) => inside.complete(self.id, done, Err(error)),
        }
    }
}

impl Inside {
    /// Has a job carried out when it is its turn.
    pub(super) fn enter(self: &Arc<Self>, key: Box<[u8]>, job: Job) {
        if let Some(job) = self.turns.enter(&key, job) {
            Handle::current().spawn(Arc::clone(self).run_turns(key, job));
        }
    }

    async fn run_turns(self: Arc<Self>, key: Box<[u8]>, first: Job) {
        let mut next = Some(first);
        while let Some(job) = next {
            match timeout_at(job.give_up_at, self.in_flight.acquire()).await {
                // It is never closed.
                Ok(_permit) if job.give_up_at > Instant::now() => self.carry_out(&key, job).await,
                _ => {
                    let told = "Cassandra was not asked: others have waited too long for it";
                    job.refuse(&self, StoreError::refused(StoreErrorKind::Unavailable, told));
                }
            }
            next = self.turns.leave(&key);
        }
    }

    async fn carry_out(&self, key: &[u8], Job { id, give_up_at, act }: Job) {
        match act {
            Act::Get(done) => {
                let outcome = self.carry_out_get(key, give_up_at).await;
                self.complete(id, done, outcome);
            }
            Act::Change(change, done) => {
                let outcome = self.carry_out_change(key, change, give_up_at).await;
                self.complete(id, done, outcome);
            }
        }
    }

    async fn carry_out_get(&self, key: &[u8], give_up_at: Instant) -> Result<Found, StoreError> {
        let (content, is_news) = match self.operate_item(key, Goal::Read, give_up_at).await? {
            End::Read { content, is_news } => (content, is_news),
            other => unreachable!("{other:?} of a read"),
        };
        let read =
            |content: &Content| record::decode(content).map(|record| record.map(Arc::from)).ok_or_else(not_a_record);
        Ok(Found { record: content.as_ref().map(read).transpose()?, is_news })
    }

    async fn carry_out_change(
        &self,
        key: &[u8],
        Change { content, condition }: Change,
        give_up_at: Instant,
    ) -> Result<Written, StoreError> {
        let fits = self.fits(condition);
        let is_full = {
            let doubts = self.items.doubts();
            // What is in doubt already is settled by this.
            doubts.len() >= DOUBTS_MAX && !doubts.contains_key(key)
        };
        if is_full {
            let told = "too many writes whose outcome is unknown";
            return Err(StoreError::refused(StoreErrorKind::Busy, told));
        }
        match self.operate_item(key, Goal::Change { content, fits }, give_up_at).await? {
            End::Changed => {
                self.counters.writes.fetch_add(1, Relaxed);
                self.counters.write_batches.fetch_add(1, Relaxed);
                Ok(Written::All)
            }
            End::NotFitting => Ok(Written::Refused { at: 0 }),
            other => unreachable!("{other:?} of a change"),
        }
    }

    async fn operate_item(
        &self,
        key: &[u8],
        goal: Goal<Content>,
        give_up_at: Instant,
    ) -> Result<End<Content>, StoreError> {
        let floor = self.floors.of(key);
        self.operate(&self.tables.items, &self.items, key, goal, Bounds { floor, give_up_at, ttl_s: item_ttl_s }).await
    }

    /// What a condition asks of a row, as of now.
    fn fits(&self, condition: Condition) -> Option<Fits<Content>> {
        let now = (self.unix_now)();
        let generation = Generation(self.generation.load(Relaxed) as u32);
        let version_of = move |content: Option<&Content>| {
            let record = content.and_then(|content| record::decode(content));
            record.filter(|record| record.is_live(now, generation)).map(|record| record.version)
        };
        match condition {
            Condition::Always => None,
            Condition::Absent => Some(Box::new(move |content| version_of(content).is_none())),
            Condition::Version(version) => Some(Box::new(move |content| version_of(content) == Some(version))),
        }
    }
}
