//! An item as a store has it: from a record, in the server's time, and back.
//!
//! Always true: what belongs to a flushed generation or has expired by the wall clock is absent here, whatever lies in the store.

use std::sync::Arc;

use guira_item::{
    Clock, Death, Expiry, Time,
    store::{Generation, Record},
};

use crate::{Base, Item};

/// A record as the server has it at `now`, while the store's generation is `generation`; `clock` ties the server's time to the wall clock.
pub fn base_of(record: Option<Record<Arc<[u8]>>>, generation: Generation, clock: &Clock, now: Time) -> Base {
    let Some(record) = record else { return Base::Absent(None) };
    if record.generation < generation {
        return Base::Absent(Some(Death::Flushed));
    }
    if !record.is_live(clock.to_unix_s(now), generation) {
        return Base::Absent(Some(Death::Expired));
    }
    let Record { flags, expires_unix_s, version, generation, stale, win_sent, value } = record;
    let expiry = match expires_unix_s {
        0 => Expiry::NEVER,
        unix_s => {
            let left_s = u32::try_from(unix_s - clock.to_unix_s(now)).unwrap_or(u32::MAX);
            Expiry::at(Time(left_s.saturating_add(now.0)))
        }
    };
    Base::Present(Item { flags, version, expiry, generation, stale, win_sent, fetched: false, idle_s: 0, value })
}

/// What the store keeps of an item.
pub fn record_of(item: &Item, clock: &Clock) -> Record<Arc<[u8]>> {
    let expires_unix_s = match item.expiry {
        Expiry::NEVER => 0,
        expiry => clock.to_unix_s(Time(expiry.to_raw())),
    };
    let Item { flags, version, generation, stale, win_sent, .. } = *item;
    Record { flags, expires_unix_s, version, generation, stale, win_sent, value: Arc::clone(&item.value) }
}
