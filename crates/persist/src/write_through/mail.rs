//! How other threads bring a worker what it waits for: what the store has done, and answers.
//!
//! Always true: a reply reaches the worker whose client asked, or nobody if nobody waits any more; mail to a worker that has ended goes to
//! one that has not.

use std::sync::{Arc, PoisonError, RwLock};

use guira_chain::{Place, Reply};
use guira_item::{
    Wake,
    store::{Found, StoreError, Written},
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
    Read(Box<[u8]>, Result<Found, StoreError>),
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
pub(super) type Mailbox = guira_chain::Mailbox<Mail>;

/// The mailboxes of all workers.
#[derive(Default, Debug)]
pub(super) struct PostOffice(RwLock<Vec<Arc<Mailbox>>>);

impl PostOffice {
    pub(super) fn open(&self, wake: Wake) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::new(wake));
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&mailbox));
        mailbox
    }

    /// A worker ends; what it has not seen to goes to another.
    pub(super) fn close(&self, mailbox: &Arc<Mailbox>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, mailbox));
        for letter in mailbox.close() {
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
