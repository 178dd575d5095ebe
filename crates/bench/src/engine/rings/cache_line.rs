//! What the machine itself takes: one cache line that two cores write in turns, each after it has read what the other wrote.
//!
//! Always true: the first end writes odd numbers and the second the even ones after them, so that a round trip moves the line
//! twice.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use guira_sync::atomic::{AtomicU64, Ordering};

use super::exchange::{Answer, Ask, wait_for};

/// An end of the line.
pub(super) struct End {
    line: Arc<CachePadded<AtomicU64>>,
    written: u64,
}

/// Both ends of a line.
pub(super) fn ends() -> (End, End) {
    let line = Arc::<CachePadded<AtomicU64>>::default();
    (End { line: Arc::clone(&line), written: 0 }, End { line, written: 0 })
}

impl Ask for End {
    fn ask(&mut self, window: u64) {
        for _ in 0..window {
            let number = 2 * self.written + 1;
            self.line.store(number, Ordering::Relaxed);
            self.written += 1;
            wait_for(|| (self.line.load(Ordering::Relaxed) != number).then_some(()));
        }
    }

    fn lines(&self) -> u64 {
        self.written
    }
}

impl Answer for End {
    fn answer(&mut self) -> bool {
        let number = 2 * self.written + 1;
        let has_come = self.line.load(Ordering::Relaxed) == number;
        if has_come {
            self.line.store(number + 1, Ordering::Relaxed);
            self.written += 1;
        }
        has_come
    }

    fn lines(&self) -> u64 {
        self.written
    }
}
