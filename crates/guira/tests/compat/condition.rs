//! Waiting for something to become true.

use std::{
    thread,
    time::{Duration, Instant},
};

/// After this long without the awaited, something is broken: far more than a loaded machine needs.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Between two looks at a condition that nothing can announce.
const PAUSE: Duration = Duration::from_millis(1);

/// Returns what `look` finds as soon as it finds it; panics, naming `what`, at the deadline.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {DEADLINE:?} in vain: {what}");
        thread::park_timeout(PAUSE);
    }
}
