//! An item as the store has it, in the server's time, and back.

use std::sync::Arc;

use guira_chain::{Base, base_of, record_of};
use guira_item::{
    Engine, Key, Time,
    store::{Condition, Record, Store, Write},
};

use super::WriteThrough;

impl<E: Engine, S: Store> WriteThrough<E, S> {
    /// What the store has in memory under a key; `None` if it would have to wait.
    pub(super) fn stored_now(&self, key: Key<'_>, now: Time) -> Option<Base> {
        self.store.get_now(key, |record| self.base_of(record.map(|record| record.map(Arc::from)), now))
    }

    /// An item as the server has it.
    pub(super) fn base_of(&self, record: Option<Record<Arc<[u8]>>>, now: Time) -> Base {
        base_of(record, self.versions().generation, &(self.config.clock)(), now)
    }

    /// What the store has to do so that it has `base`.
    pub(super) fn write_of(&self, key: Box<[u8]>, base: &Base, now: Time) -> Write {
        match base {
            Base::Present(item) if !item.expiry.is_past(now) => {
                let record = record_of(item, &(self.config.clock)());
                Write::Put { key, record, condition: Condition::Always }
            }
            _ => Write::Delete { key, condition: Condition::Always },
        }
    }
}
