//! An item as the store has it: from a record, in the server's time, and back.
//!
//! Always true: what belongs to a flushed generation or has expired by the wall clock is absent here, whatever lies in the store.

use std::sync::Arc;

use guira_item::{
    Death, Engine, Expiry, Key, Time,
    store::{Condition, Record, Store, Write},
};

use super::{
    WriteThrough,
    chain::{Base, Item},
};

impl<E: Engine, S: Store> WriteThrough<E, S> {
    /// What the store has in memory under a key; `None` if it would have to wait.
    pub(super) fn stored_now(&self, key: Key<'_>, now: Time) -> Option<Base> {
        self.store.get_now(key, |record| self.base_of(record.map(|record| record.map(Arc::from)), now))
    }

    /// An item as the server has it.
    pub(super) fn base_of(&self, record: Option<Record<Arc<[u8]>>>, now: Time) -> Base {
        let Some(record) = record else { return Base::Absent(None) };
        let generation = self.versions().generation;
        if record.generation < generation {
            return Base::Absent(Some(Death::Flushed));
        }
        let clock = (self.config.clock)();
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

    /// What the store has to do so that it has `base`.
    pub(super) fn write_of(&self, key: Box<[u8]>, base: &Base, now: Time) -> Write {
        match base {
            Base::Present(item) if !item.expiry.is_past(now) => {
                Write::Put { key, record: self.record_of(item), condition: Condition::Always }
            }
            _ => Write::Delete { key, condition: Condition::Always },
        }
    }

    fn record_of(&self, item: &Item) -> Record<Arc<[u8]>> {
        let expires_unix_s = match item.expiry {
            Expiry::NEVER => 0,
            expiry => (self.config.clock)().to_unix_s(Time(expiry.to_raw())),
        };
        let Item { flags, version, generation, stale, win_sent, .. } = *item;
        Record { flags, expires_unix_s, version, generation, stale, win_sent, value: Arc::clone(&item.value) }
    }
}
