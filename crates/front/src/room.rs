//! Room for what is under way: who finds none waits for it.
//!
//! Always true: what is taken is within both bounds, or is one operation alone; it comes back when what holds it is dropped; who waits is next in
//! turn after those who waited before, so that each gets some as long as what is taken comes back.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Room for operations, and for the values that come with them.
#[derive(Debug)]
pub(crate) struct Room {
    count_max: usize,
    len_max: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: Used,
    /// Whose turn it is, and whose is that of who comes next: as many as there are between them wait.
    turn: u64,
    next_turn: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Used {
    count: usize,
    /// Bytes of values.
    len: usize,
}

/// What somebody has of it.
#[derive(Debug)]
pub(crate) struct Taken<'r> {
    room: &'r Room,
    taken: Used,
}

impl Room {
    /// For so many operations, one at least, with so many bytes of values; a longer value has it all for itself.
    pub(crate) fn new(count_max: usize, len_max: usize) -> Self {
        Self { count_max: count_max.max(1), len_max, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who wait, if any do: it may be the turn of one.
    fn wake(&self, state: MutexGuard<'_, State>) {
        let some_wait = state.turn < state.next_turn;
        drop(state);
        if some_wait {
            self.changed.notify_all();
        }
    }

    /// Takes room for the first of these values, however long that has to be waited for, and for as many after it as there is room for.
    pub(crate) fn take(&self, value_lens: impl Iterator<Item = usize>) -> Taken<'_> {
        let mut value_lens = value_lens.peekable();
        let first_len = value_lens.peek().copied().unwrap_or(0);
        let mut state = self.state();
        let my_turn = state.next_turn;
        state.next_turn += 1;
        let waits = |state: &mut State| state.turn < my_turn || !self.fits(state.used, first_len);
        let mut state = self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        state.turn += 1;
        let mut taken = Used::default();
        while let Some(len) = value_lens.next_if(|len| self.fits(state.used, *len)) {
            state.used = Used { count: state.used.count + 1, len: state.used.len + len };
            taken = Used { count: taken.count + 1, len: taken.len + len };
        }
        self.wake(state);
        Taken { room: self, taken }
    }

    fn fits(&self, used: Used, len: usize) -> bool {
        used.count == 0 || (used.count < self.count_max && used.len + len <= self.len_max)
    }
}

impl Taken<'_> {
    /// For how many operations.
    pub(crate) fn count(&self) -> usize {
        self.taken.count
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.room.state();
        state.used = Used { count: state.used.count - self.taken.count, len: state.used.len - self.taken.len };
        self.room.wake(state);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        thread,
    };

    use super::*;

    #[test]
    fn as_much_is_taken_as_fits() {
        let room = Room::new(4, 100);
        let first = room.take([60, 30, 30].into_iter());
        assert_eq!(first.count(), 2);
        let second = room.take([10, 0, 0, 0].into_iter());
        assert_eq!(second.count(), 2);
        drop((first, second));
        assert_eq!(room.state().used, Used::default());
        assert_eq!(room.take([500, 0].into_iter()).count(), 1, "nothing goes beside what is too long");
        assert_eq!(room.take([].into_iter()).count(), 0);
    }

    #[test]
    fn who_finds_none_waits_for_others() {
        let room = Room::new(3, 100);
        let (under_way, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut left = 100;
                    while left > 0 {
                        let taken = room.take(std::iter::repeat_n(1, left));
                        most.fetch_max(under_way.fetch_add(taken.count(), Relaxed) + taken.count(), Relaxed);
                        left -= taken.count();
                        under_way.fetch_sub(taken.count(), Relaxed);
                    }
                });
            }
        });
        assert_eq!(room.state().used, Used::default());
        assert!((1..=3).contains(&most.load(Relaxed)));
    }

    #[test]
    fn nobody_overtakes_who_waits_for_much() {
        let room = Room::new(3, 100);
        let first = room.take([60].into_iter());
        let order = Mutex::new(Vec::new());
        let waiting = || {
            let state = room.state();
            state.next_turn - state.turn
        };
        thread::scope(|scope| {
            for (len, count) in [(90, 1), (20, 2)] {
                let (room, order) = (&room, &order);
                scope.spawn(move || {
                    let _taken = room.take([len].into_iter());
                    order.lock().expect("nobody has panicked").push(len);
                });
                while waiting() < count {
                    thread::yield_now();
                }
            }
            // The second would fit beside it.
            drop(first);
        });
        assert_eq!(order.into_inner().expect("nobody has panicked"), [90, 20]);
    }
}
