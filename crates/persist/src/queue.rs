//! A queue between whoever asks a store and the store's threads.
//!
//! Always true: what is in it came in before it was closed; it has at most as many entries as it was made for; while there is something
//! in it and a receiver sleeps, one has been woken and has not looked yet. Whoever is woken wakes the next one if there is more than
//! it takes. So a receiver that is quick does everything itself, and the others sleep; with receivers that wait for a disk all of
//! them soon have something to do.

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
    /// A receiver has been woken and has not looked yet.
    is_waking: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new(len_max: usize) -> Self {
        let inside = Mutex::new(Inside { entries: VecDeque::new(), is_closed: false, waiting: 0, is_waking: false });
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
        self.wake_one(&mut inside);
        Ok(())
    }

    fn wake_one(&self, inside: &mut Inside<T>) {
        if !inside.entries.is_empty() && inside.waiting > 0 && !inside.is_waking {
            inside.is_waking = true;
            self.changed.notify_one();
        }
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
            // Whether it is who was meant or not: it looks now.
            inside.is_waking = false;
        }
        let len = inside.entries.len().min(max);
        to.extend(inside.entries.drain(..len));
        self.wake_one(&mut inside);
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
    use std::{sync::Arc, thread, time::Duration};

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

    /// Where some wait for each other; not for ever.
    struct Meeting {
        all: usize,
        /// How many are there, and how often all were.
        there: Mutex<(usize, usize)>,
        changed: Condvar,
    }

    impl Meeting {
        fn wait(&self) {
            let mut there = self.there.lock().expect("no panic with it");
            there.0 += 1;
            if there.0 == self.all {
                *there = (0, there.1 + 1);
                self.changed.notify_all();
                return;
            }
            let meetings = there.1;
            let is_waiting = |there: &mut (usize, usize)| there.1 == meetings;
            let waited = self.changed.wait_timeout_while(there, Duration::from_secs(60), is_waiting);
            let (there, late) = waited.expect("no panic with it");
            assert!(!late.timed_out(), "only {} of {} have come", there.0, self.all);
        }
    }

    /// Each receiver keeps what it has taken until all have something, as if it waited for a disk.
    #[test]
    fn as_many_receivers_are_woken_as_there_is_work_for() {
        let meeting = Meeting { all: 5, there: Mutex::default(), changed: Condvar::new() };
        let (queue, all_busy) = (Arc::new(Queue::new(8)), Arc::new(meeting));
        let receive = |_| {
            let (queue, all_busy) = (Arc::clone(&queue), Arc::clone(&all_busy));
            thread::spawn(move || {
                let mut some = Vec::new();
                while queue.take(1, &mut some) {
                    all_busy.wait();
                    some.clear();
                }
            })
        };
        let receivers: Vec<_> = (0..4).map(receive).collect();
        for round in 0..100 {
            for number in 0..4 {
                queue.push(round + number).expect("room");
            }
            all_busy.wait();
        }
        queue.close();
        receivers.into_iter().for_each(|receiver| receiver.join().expect("no panic"));
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
