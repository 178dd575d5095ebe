//! How other threads bring a worker what it waits for: what the store has done, and answers.
//!
//! Always true: a reply reaches the worker whose client asked, or nobody if nobody waits any more; mail to a worker that has ended goes to
//! one that has not.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use guira_chain::{Place, Reply};
use guira_item::{
    Wake,
    store::{Record, StoreError, Written},
};

/// Whose answer it is.
#[derive(Clone, Debug)]
pub(super) struct ReplyTo {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) place: Place,
}

/// What another thread has for a worker.
pub(super) enum Mail {
    /// An item has been read.
    Read(Box<[u8]>, Result<Option<Record<Arc<[u8]>>>, StoreError>),
    /// A change has been written.
    Written(Box<[u8]>, Result<Written, StoreError>),
    /// The `flush_all` that was under way has been written.
    Flushed(Result<Written, StoreError>),
    /// That one which may not have been written is not to be has been written.
    TakenBack(Result<Written, StoreError>),
    /// An answer.
    Reply(ReplyTo, Reply),
}

/// Where a worker gets its mail.
pub(super) struct Mailbox {
    /// `None` once the worker has ended.
    mail: Mutex<Option<Vec<Mail>>>,
    wake: Wake,
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}

impl Mailbox {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Vec<Mail>>> {
        // Mail is moved in and out whole.
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the mail back if the worker has ended.
    fn post(&self, letter: Mail) -> Result<(), Mail> {
        let mut mail = self.lock();
        let Some(letters) = &mut *mail else { return Err(letter) };
        let is_first = letters.is_empty();
        letters.push(letter);
        drop(mail);
        if is_first {
            (self.wake)();
        }
        Ok(())
    }

    /// Takes what there is; `into` is empty.
    pub(super) fn take(&self, into: &mut Vec<Mail>) {
        if let Some(letters) = &mut *self.lock() {
            std::mem::swap(letters, into);
        }
    }
}

/// The mailboxes of all workers.
#[derive(Default, Debug)]
pub(super) struct PostOffice(RwLock<Vec<Arc<Mailbox>>>);

impl PostOffice {
    pub(super) fn open(&self, wake: Wake) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox { mail: Mutex::new(Some(Vec::new())), wake });
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&mailbox));
        mailbox
    }

    /// A worker ends; what it has not seen to goes to another.
    pub(super) fn close(&self, mailbox: &Arc<Mailbox>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, mailbox));
        let left = mailbox.lock().take();
        for letter in left.into_iter().flatten() {
            self.forward(letter);
        }
    }

    /// Brings `letter` to `to`, or to whoever is there.
    pub(super) fn post(&self, to: &Mailbox, letter: Mail) {
        if let Err(letter) = to.post(letter) {
            self.forward(letter);
        }
    }

    fn forward(&self, mut letter: Mail) {
        if let Mail::Reply(..) = letter {
            // Nobody waits for it.
            return;
        }
        for mailbox in self.0.read().unwrap_or_else(PoisonError::into_inner).iter() {
            match mailbox.post(letter) {
                Ok(()) => return,
                Err(back) => letter = back,
            }
        }
        // All have ended, and the server with them.
    }
}
