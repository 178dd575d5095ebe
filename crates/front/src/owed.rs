//! What a core owes a server's worker, or a thread of a program.
//!
//! Always true: what is owed is answered once, by whoever has it last: if that ends without an answer, with a failure.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use guira_chain::{Place, Reply};
use guira_item::{Answer, Failure};

/// Where a worker, or such a thread, gets its answers.
pub(crate) type Mailbox = guira_chain::Mailbox<(Place, Reply)>;

/// Bytes of a value that is to be stored, counted until that is answered.
#[derive(Debug)]
pub(crate) struct Weight {
    sum: Arc<AtomicUsize>,
    len: usize,
}

impl Weight {
    /// Of a value, if it fits into `max` with all others in `sum`; the first always does.
    pub(crate) fn new(sum: &Arc<AtomicUsize>, len: usize, max: usize) -> Option<Self> {
        let before = sum.fetch_add(len, Relaxed);
        // Dropped, it is taken off again.
        let weight = Self { sum: Arc::clone(sum), len };
        (len == 0 || before == 0 || before + len <= max).then_some(weight)
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.len, Relaxed);
    }
}

/// An answer that somebody waits for.
#[derive(Debug)]
pub(crate) struct Owed {
    mailbox: Arc<Mailbox>,
    place: Place,
    /// If it ends without an answer, nobody can say whether what was asked took place.
    may_take_place: bool,
    is_answered: bool,
    /// Of what was asked, if it is not counted elsewhere.
    _weight: Option<Weight>,
}

impl Owed {
    pub(crate) fn new(mailbox: &Arc<Mailbox>, place: Place, weight: Option<Weight>) -> Self {
        Self { mailbox: Arc::clone(mailbox), place, may_take_place: false, is_answered: false, _weight: weight }
    }

    /// Where it is waited for.
    #[cfg(test)]
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// It is asked for from here on.
    pub(crate) fn begin(&mut self, changes: bool) {
        self.may_take_place = changes;
    }

    pub(crate) fn answer(mut self, reply: Reply) {
        self.is_answered = true;
        self.post(reply);
    }

    fn post(&self, reply: Reply) {
        // Of a worker that has ended nobody waits for it.
        let _ = self.mailbox.post((self.place, reply));
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if !self.is_answered {
            let failed = Answer::Failed(Failure::Refused.or_unknown(self.may_take_place));
            self.post(Reply::Answer(failed, None));
        }
    }
}
