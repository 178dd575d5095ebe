//! How a gateway's driver brings a server's worker its answers.
//!
//! Always true: what is owed is answered once, by whoever has it last: if that ends without an answer, with a failure.

use std::{
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use guira_chain::{Place, Reply};
use guira_item::{Answer, Wake};

/// Where a worker gets its answers.
pub(super) struct Mailbox {
    /// `None` once the worker has ended.
    mail: Mutex<Option<Vec<(Place, Reply)>>>,
    wake: Wake,
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}

impl Mailbox {
    pub(super) fn new(wake: Wake) -> Self {
        Self { mail: Mutex::new(Some(Vec::new())), wake }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<(Place, Reply)>>> {
        // Mail is moved in and out whole.
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, place: Place, reply: Reply) {
        let mut mail = self.lock();
        let Some(letters) = &mut *mail else { return };
        let is_first = letters.is_empty();
        letters.push((place, reply));
        drop(mail);
        if is_first {
            (self.wake)();
        }
    }

    /// Takes what there is; `into` is empty.
    pub(super) fn take(&self, into: &mut Vec<(Place, Reply)>) {
        if let Some(letters) = &mut *self.lock() {
            mem::swap(letters, into);
        }
    }

    /// Nobody looks here any more.
    pub(super) fn close(&self) {
        *self.lock() = None;
    }
}

/// An answer that somebody waits for.
#[derive(Debug)]
pub(super) struct Owed {
    mailbox: Arc<Mailbox>,
    place: Place,
    /// If it ends without an answer, nobody can say whether what was asked took place.
    may_take_place: bool,
    is_answered: bool,
}

impl Owed {
    pub(super) fn new(mailbox: &Arc<Mailbox>, place: Place) -> Self {
        Self { mailbox: Arc::clone(mailbox), place, may_take_place: false, is_answered: false }
    }

    /// It is asked for from here on.
    pub(super) fn begin(&mut self, changes: bool) {
        self.may_take_place = changes;
    }

    pub(super) fn answer(mut self, reply: Reply) {
        self.is_answered = true;
        self.mailbox.post(self.place, reply);
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if !self.is_answered {
            let failed = Answer::Failed { unknown: self.may_take_place };
            self.mailbox.post(self.place, Reply::Answer(failed, None));
        }
    }
}
