//! The engine's copy of an item: looked at, told that it was used, put there, taken out.
//!
//! Always true: a copy is put there by whoever holds the key's shard, and belongs to the generation that is served; what cannot be put
//! there is taken out, so that the engine has what the store has or nothing.

use std::sync::PoisonError;

use guira_chain::{Base, Item};
use guira_item::{Answer, Delete, Engine, Get, Key, Operation, Request, Restore, Single, store::Store};

use super::{Worker, WriteThrough};

impl<E: Engine, S: Store> WriteThrough<E, S> {
    /// What the engine has under a key, if it can be relied on.
    pub(super) fn peek(&self, worker: &mut Worker<E>, key: Key<'_>) -> Option<Base> {
        let mut sink = Single::default();
        // Before the item: should a generation begin meanwhile, the item belongs to the one before.
        let generation = self.versions().generation;
        let operation = Operation::Get(Get { bump: false, tells: true, ..Get::PLAIN });
        self.engine.execute(&mut worker.engine, worker.now, &[Request { key, operation }], &mut sink);
        // An engine that shows no versions has the store asked.
        let (hit, value) = sink.found.filter(|(hit, _)| hit.cas != 0)?;
        Some(Base::Present(Item {
            flags: hit.flags,
            version: hit.cas,
            expiry: hit.expiry,
            generation,
            stale: hit.stale,
            win_sent: hit.win_sent,
            fetched: hit.fetched,
            idle_s: hit.idle_s,
            value,
        }))
    }

    /// Tells the engine that an item was read.
    pub(super) fn mark_used(&self, worker: &mut Worker<E>, key: Key<'_>) {
        let operation = Operation::Get(Get { value: false, ..Get::PLAIN });
        self.engine.execute(&mut worker.engine, worker.now, &[Request { key, operation }], &mut Single::default());
    }

    /// Has the engine hold what the store has. The caller holds the key's shard.
    pub(super) fn install(&self, worker: &mut Worker<E>, key: Key<'_>, base: &Base, replaces: bool) {
        let versions = self.generation.read().unwrap_or_else(PoisonError::into_inner);
        let is_in = match base {
            Base::Present(item) if item.generation >= versions.generation => self.put(worker, key, item, replaces),
            _ => false,
        };
        if !is_in {
            let operation = Operation::Delete(Delete { cas: None, invalidate: None });
            self.engine.execute(&mut worker.engine, worker.now, &[Request { key, operation }], &mut Single::default());
        }
    }

    /// Whether the engine has the item then.
    fn put(&self, worker: &mut Worker<E>, key: Key<'_>, item: &Item, replaces: bool) -> bool {
        let Item { flags, version, expiry, stale, win_sent, fetched, idle_s, .. } = *item;
        let value = &item.value;
        let (recent, spared) = (false, false);
        let restore =
            Restore { replaces, flags, expiry, version, fetched, stale, win_sent, idle_s, recent, spared, value };
        let mut sink = Single::default();
        let request = Request { key, operation: Operation::Restore(restore) };
        self.engine.execute(&mut worker.engine, worker.now, &[request], &mut sink);
        match sink.answer {
            Some(Answer::Stored { cas }) => cas == version || cas == 0,
            // Somebody's read had put it there.
            Some(Answer::NotStored) => true,
            // Too large for the engine, or no memory: it is served from the store.
            _ => false,
        }
    }
}
