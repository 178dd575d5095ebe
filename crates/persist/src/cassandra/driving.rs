//! An operation on a row (`guira_row`) is driven: Cassandra is asked what it says until it is over, or given up.
//!
//! Always true: the stamp and the doubt that it leaves are remembered before whoever waits is told.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use guira_item::store::{StoreError, StoreErrorKind};
use guira_row::{Ask, End, Goal, Heard, Operation, Remembered, Rules, Stamp};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    Inside, fenced,
    known::Known,
    tables::{Content, RowTable},
};

/// The least that is left for an answer, when what there is has nearly gone.
const REQUEST_MIN: Duration = Duration::from_millis(200);

/// Pauses after something was not heard, from the first on.
const PAUSE: Duration = Duration::from_millis(20);
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What an operation keeps to.
pub(super) struct Bounds {
    /// Below this stamp the row has no content.
    pub(super) floor: Option<Stamp>,
    /// Then it is given up.
    pub(super) give_up_at: Instant,
    /// How long Cassandra keeps the row, in seconds, with that content, at a Unix time in seconds; 0: for ever.
    pub(super) ttl_s: fn(Option<&[u8]>, u64) -> i32,
}

impl Inside {
    /// Asks a row of what the store keeps beside the items, which stays for ever.
    pub(super) async fn operate_beside(
        &self,
        key: &[u8],
        goal: Goal<Content>,
        give_up_at: Instant,
    ) -> Result<End<Content>, StoreError> {
        let bounds = Bounds { floor: None, give_up_at, ttl_s: |_, _| 0 };
        self.operate(&self.tables.state, &self.states, key, goal, bounds).await
    }

    /// Asks a row until an operation is over.
    pub(super) async fn operate(
        &self,
        table: &RowTable,
        known: &Known,
        key: &[u8],
        goal: Goal<Content>,
        Bounds { floor, give_up_at, ttl_s }: Bounds,
    ) -> Result<End<Content>, StoreError> {
        let doubt = known.doubts().get(key).copied();
        let remembered = Remembered { stamp: known.stamp(key, self.epoch), doubt, floor };
        let mut operation = Operation::new(self.epoch, Rules::ALL, goal, remembered);
        let (mut pause, mut last_told, mut others) = (PAUSE, None, 0);
        let end = loop {
            let ask = operation.ask(self.serials.fetch_add(1, Relaxed));
            let ttl_s = match &ask {
                Ask::Read => 0,
                Ask::Write { row, .. } => ttl_s(row.content.as_deref(), (self.unix_now)()),
            };
            let answer_by = give_up_at.max(Instant::now() + REQUEST_MIN);
            let asked = timeout_at(answer_by, self.tables.ask(table, key, ask, ttl_s)).await;
            let (heard, told) = asked.unwrap_or_else(|_| (Heard::Lost, Some("no answer in time".into())));
            others += u32::from(heard == Heard::NotApplied);
            let is_over = operation.on(heard);
            if is_over.is_some() || Instant::now() >= give_up_at {
                break is_over;
            }
            let is_stuck = told.is_some() || others > 1;
            last_told = told.or(last_told);
            if is_stuck {
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        };
        known.set_stamp(key, operation.stamp_left());
        match operation.doubt_left() {
            Some(doubt) => known.doubts().insert(key.into(), doubt),
            None => known.doubts().remove(key),
        };
        match end {
            Some(End::Fenced { unknown }) => {
                self.lose();
                Err(fenced(unknown))
            }
            Some(end) => Ok(end),
            None => {
                let told = last_told.unwrap_or_else(|| "others change the row all the time".into());
                let unknown = operation.may_have_changed();
                Err(StoreError { unknown, ..StoreError::refused(StoreErrorKind::Unavailable, told) })
            }
        }
    }

    /// Another server is the owner.
    pub(super) fn lose(&self) {
        if !self.lease.is_lost() {
            self.lease.lose();
            tracing::error!("another server has taken over the store: nothing is served any more, stop this one");
        }
    }
}
