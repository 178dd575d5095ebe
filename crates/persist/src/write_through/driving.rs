//! Chains are driven: by whoever asks, and by what the store has read or written for them.
//!
//! Always true: a chain is driven under its key's shard, and lies in the shard while the store has one read or one write to do for it,
//! and only then.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use guira_chain::{Base, Chain, Next, Reply, Setting};
use guira_item::{
    Answer, Engine, Key,
    store::{Found, Store, StoreError, StoreErrorKind, Written},
};

use super::{
    Shard, Worker, WriteThrough,
    generations::next_version,
    mail::{Mail, ReplyTo},
};

impl<E: Engine, S: Store> WriteThrough<E, S> {
    /// Goes on with a chain for as long as nothing has to be waited for. The caller holds the key's shard, and puts the chain back if
    /// this returns true.
    pub(super) fn drive(
        &self,
        worker: &mut Worker<E>,
        shard: &mut Shard,
        key: Key<'_>,
        chain: &mut Chain<ReplyTo>,
    ) -> bool {
        let mut read = false;
        loop {
            let versions = self.versions();
            shard.heed(versions);
            let before = shard.last_version;
            let mut setting = Setting {
                now: worker.now,
                generation: versions.generation,
                key_len: key.as_bytes().len(),
                len_max: self.config.item_len_max,
                last_version: &mut shard.last_version,
                next_version,
                versions_shown: self.config.versions_shown,
                // The wall clock says it each time.
                buries: false,
            };
            match chain.advance(&mut setting, &mut worker.out) {
                Next::Read => {
                    if let Some(base) = self.peek(worker, key) {
                        chain.on_read(base);
                    } else if let Some(base) = self.stored_now(key, worker.now) {
                        chain.on_read(base);
                        read = true;
                    } else {
                        self.read_later(worker, key);
                        return true;
                    }
                }
                Next::Write if !self.may_change(&worker.mailbox) => {
                    chain.on_written(Err(&not_settled()), &mut worker.out);
                }
                Next::Write => {
                    if shard.last_version != before {
                        self.reserve(shard.last_version);
                    }
                    self.write_later(worker, key, chain.written());
                    return true;
                }
                Next::Rest => {
                    if let Base::Present(item) = chain.base() {
                        if read {
                            self.install(worker, key, chain.base(), false);
                        } else if chain.is_used() && item.fetched {
                            self.mark_used(worker, key);
                        }
                    }
                    return false;
                }
            }
        }
    }

    fn read_later(&self, worker: &Worker<E>, key: Key<'_>) {
        let (post, mailbox) = (Arc::clone(&self.post), Arc::clone(&worker.mailbox));
        let name: Box<[u8]> = key.as_bytes().into();
        self.store.get(key, Box::new(move |found| post.post(&mailbox, Mail::Read(name, found))));
    }

    fn write_later(&self, worker: &Worker<E>, key: Key<'_>, base: &Base) {
        let (post, mailbox) = (Arc::clone(&self.post), Arc::clone(&worker.mailbox));
        let name: Box<[u8]> = key.as_bytes().into();
        let write = self.write_of(name.clone(), base, worker.now);
        let done = Box::new(move |written| post.post(&mailbox, Mail::Written(name, written)));
        self.store.write(vec![write], done);
    }

    /// Sees to all mail.
    pub(super) fn open_all(&self, worker: &mut Worker<E>) {
        let mut mail = std::mem::take(&mut worker.mail);
        worker.mailbox.take(&mut mail);
        for letter in mail.drain(..) {
            self.open(worker, letter);
        }
        worker.mail = mail;
    }

    fn open(&self, worker: &mut Worker<E>, letter: Mail) {
        match letter {
            Mail::Reply(reply_to, reply) => worker.late.put(reply_to.place, reply),
            Mail::Read(name, found) => {
                self.go_on(worker, &name, |this, worker, key, chain| this.on_read(worker, key, chain, found));
            }
            Mail::Written(name, written) => {
                self.go_on(worker, &name, |this, worker, key, chain| this.on_written(worker, key, chain, &written));
            }
            Mail::Flushed(written) => {
                let written = written.as_ref().map(expect_all);
                let mailbox = Arc::clone(&worker.mailbox);
                let replies = self.on_flush_written(written, worker.now, &mailbox);
                let reply = || written.map_or_else(Reply::failed, |()| Reply::Answer(Answer::Deleted, None));
                self.tell(worker, replies, reply);
            }
            Mail::TakenBack(written) => {
                let replies = self.on_taken_back(written.as_ref().map(expect_all));
                self.tell(worker, replies, || Reply::failed(&not_settled()));
            }
        }
    }

    fn tell(&self, worker: &mut Worker<E>, replies: Vec<ReplyTo>, reply: impl Fn() -> Reply) {
        worker.out.extend(replies.into_iter().map(|reply_to| (reply_to, reply())));
        self.distribute(worker);
    }

    /// The store has read or written an item.
    fn go_on(
        &self,
        worker: &mut Worker<E>,
        name: &[u8],
        heed: impl FnOnce(&Self, &mut Worker<E>, Key<'_>, &mut Chain<ReplyTo>),
    ) {
        let key = Key::new(name).expect("what was asked for has a key");
        let mut shard = self.shard(name);
        let (name, mut chain) = shard.chains.remove_entry(name).expect("it waits for this");
        heed(self, worker, key, &mut chain);
        if self.drive(worker, &mut shard, key, &mut chain) {
            shard.chains.insert(name, chain);
        }
        drop(shard);
        self.distribute(worker);
    }

    fn on_read(
        &self,
        worker: &mut Worker<E>,
        key: Key<'_>,
        chain: &mut Chain<ReplyTo>,
        found: Result<Found, StoreError>,
    ) {
        match found {
            Ok(found) => {
                let base = self.base_of(found.record, worker.now);
                if let Base::Present(_) = base {
                    self.install(worker, key, &base, false);
                }
                chain.on_read(base);
            }
            Err(error) => chain.on_read_failed(&error, &mut worker.out),
        }
    }

    fn on_written(
        &self,
        worker: &mut Worker<E>,
        key: Key<'_>,
        chain: &mut Chain<ReplyTo>,
        written: &Result<Written, StoreError>,
    ) {
        let written = written.as_ref().map(expect_all);
        match written {
            Ok(()) => self.install(worker, key, chain.written(), true),
            // What the engine has may be old.
            Err(error) if error.unknown => self.install(worker, key, &Base::Unknown, true),
            Err(_) => {}
        }
        chain.on_written(written, &mut worker.out);
    }

    /// Brings replies to whoever waits for them.
    fn distribute(&self, worker: &mut Worker<E>) {
        let mut out = std::mem::take(&mut worker.out);
        self.operations.fetch_sub(out.len(), Relaxed);
        for (reply_to, reply) in out.drain(..) {
            self.bring(worker, reply_to, reply);
        }
        worker.out = out;
    }

    fn bring(&self, worker: &mut Worker<E>, reply_to: ReplyTo, reply: Reply) {
        if Arc::ptr_eq(&reply_to.mailbox, &worker.mailbox) {
            worker.late.put(reply_to.place, reply);
        } else {
            let mailbox = Arc::clone(&reply_to.mailbox);
            self.post.post(&mailbox, Mail::Reply(reply_to, reply));
        }
    }
}

fn expect_all(written: &Written) {
    assert_eq!(*written, Written::All, "nothing was written under a condition");
}

/// Why nothing is changed for now.
fn not_settled() -> StoreError {
    StoreError::refused(StoreErrorKind::Unavailable, "the store has not said what became of a flush_all")
}
