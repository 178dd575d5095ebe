//! A queue between whoever asks a store and the store's threads.
//!
//! Always true: what is in it came in before it was closed; it has at most as many entries as it was made for.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, PoisonError},
};

/// A bounded queue of many senders and many receivers, in order.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    inside: Mutex<Inside<T>>,
    changed: Condvar,
    len_max: usize,
}

#[derive(Debug)]
struct Inside<T> {
    entries: VecDeque<T>,
    is_closed: bool,
    waiting: usize,
}

impl<T> Queue<T> {
    pub(crate) fn new(len_max: usize) -> Self {
        let inside = Mutex::new(Inside { entries: VecDeque::new(), is_closed: false, waiting: 0 });
        Self { inside, changed: Condvar::new(), len_max }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inside<T>> {
        // Entries are moved in and out whole.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry; gives it back if the queue is full or closed.
    pub(crate) fn push(&self, entry: T) -> Result<(), T> {
        self.push_within(self.len_max, entry)
    }

    /// Adds an entry however many there are; gives it back if the queue is closed. For the few that must not be refused.
    pub(crate) fn push_anyway(&self, entry: T) -> Result<(), T> {
        self.push_within(usize::MAX, entry)
    }

    fn push_within(&self, len_max: usize, entry: T) -> Result<(), T> {
        let mut inside = self.lock();
        if inside.is_closed || inside.entries.len() >= len_max {
            return Err(entry);
        }
        inside.entries.push_back(entry);
        if inside.waiting > 0 {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Waits until there is something; moves up to `max` entries from the front into `to`, which is empty. Returns false
    /// once the queue is closed and empty.
    pub(crate) fn take(&self, max: usize, to: &mut Vec<T>) -> bool {
        let mut inside = self.lock();
        while inside.entries.is_empty() {
            if inside.is_closed {
                return false;
            }
            inside.waiting += 1;
            inside = self.changed.wait(inside).unwrap_or_else(PoisonError::into_inner);
            inside.waiting -= 1;
        }
        let len = inside.entries.len().min(max);
        to.extend(inside.entries.drain(..len));
        true
    }

    /// Entries that wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether nothing more is let in.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Lets nothing more in; whoever waits goes on, and what is there is still taken.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn what_came_in_before_it_was_closed_comes_out_in_order() {
        let queue = Arc::new(Queue::new(3));
        let receiver = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let (mut all, mut some) = (Vec::new(), Vec::new());
                while queue.take(2, &mut some) {
                    assert!((1..=2).contains(&some.len()));
                    all.append(&mut some);
                }
                all
            })
        };
        for mut number in 0..1_000 {
            while let Err(back) = queue.push(number) {
                number = back;
                thread::yield_now();
            }
        }
        queue.close();
        assert_eq!(queue.push(1_000), Err(1_000));
        assert_eq!(receiver.join().expect("no panic"), (0..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn no_more_fit_than_it_was_made_for() {
        let queue = Queue::new(2);
        assert_eq!((queue.push(1), queue.push(2), queue.push(3)), (Ok(()), Ok(()), Err(3)));
        assert_eq!(queue.push_anyway(4), Ok(()));
        queue.close();
        assert_eq!(queue.push_anyway(5), Err(5));
    }
}
