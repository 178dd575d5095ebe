//! Where a server's worker gets what other threads have for it.
//!
//! Always true: a letter is there until it is taken, or comes back to who has sent it; a worker is woken for the first one, and for the others
//! with it.

use std::{
    fmt, mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use guira_item::Wake;

/// The letters of one worker.
pub struct Mailbox<L> {
    /// `None` once the worker has ended.
    letters: Mutex<Option<Vec<L>>>,
    wake: Wake,
}

impl<L> fmt::Debug for Mailbox<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}

impl<L> Mailbox<L> {
    /// An empty one, of a worker that `wake` wakes.
    pub fn new(wake: Wake) -> Self {
        Self { letters: Mutex::new(Some(Vec::new())), wake }
    }

    fn letters(&self) -> MutexGuard<'_, Option<Vec<L>>> {
        // They are moved in and out whole.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a letter in.
    ///
    /// # Errors
    /// The worker has ended: it is given back.
    pub fn post(&self, letter: L) -> Result<(), L> {
        let mut open = self.letters();
        let Some(letters) = &mut *open else { return Err(letter) };
        let is_first = letters.is_empty();
        letters.push(letter);
        drop(open);
        if is_first {
            (self.wake)();
        }
        Ok(())
    }

    /// Takes what there is; `into` is empty.
    pub fn take(&self, into: &mut Vec<L>) {
        if let Some(letters) = &mut *self.letters() {
            mem::swap(letters, into);
        }
    }

    /// The worker ends; what it has not taken.
    pub fn close(&self) -> Vec<L> {
        self.letters().take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use super::*;

    #[test]
    fn a_worker_is_woken_once_for_all_that_wait_and_gets_them_in_order() {
        let woken = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&woken);
        let mailbox = Mailbox::new(Arc::new(move || {
            counter.fetch_add(1, Relaxed);
        }));
        let mut taken = Vec::new();
        for round in 1..=2 {
            (0..3).for_each(|letter| mailbox.post(letter).expect("it is open"));
            taken.clear();
            mailbox.take(&mut taken);
            assert_eq!((&taken[..], woken.load(Relaxed)), (&[0, 1, 2][..], round));
        }
        mailbox.post(7).expect("it is open");
        assert_eq!(mailbox.close(), [7]);
        assert_eq!(mailbox.post(8), Err(8));
    }
}
