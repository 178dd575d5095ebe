//! How often something happened in this process and in the threads it starts, as the kernel counts it with the processor's help.
//!
//! Always true: what cannot be counted here, as in most virtual machines, is an error, and never a zero.

use std::io::{Error, ErrorKind, Result};

use perf_event::{Builder, Counter, events::Event};

/// A count that goes on.
pub(crate) struct EventCount(Counter);

impl EventCount {
    /// Begins to count `event` for the calling thread and the threads that it starts from now on.
    ///
    /// # Errors
    /// The kernel's, if there is no such counter here, or it may not be used.
    pub fn begin(event: impl Event) -> Result<Self> {
        let mut counter = Builder::new(event).inherit(true).build()?;
        counter.enable()?;
        Ok(Self(counter))
    }

    /// How often it has happened, in threads that have ended and in the calling one.
    ///
    /// # Errors
    /// The kernel's; or the counter was never on a processor.
    pub fn end(mut self) -> Result<u64> {
        self.0.disable()?;
        let counted = self.0.read_full()?;
        let (enabled, running) = (counted.time_enabled(), counted.time_running());
        // The kernel has counters take turns where there are too few of them.
        match (enabled, running) {
            (Some(enabled), Some(running)) if !running.is_zero() => {
                Ok((counted.count() as f64 * enabled.as_secs_f64() / running.as_secs_f64()) as u64)
            }
            _ => Err(Error::new(ErrorKind::Unsupported, "the counter was never on a processor")),
        }
    }
}

#[cfg(test)]
mod tests {
    use perf_event::events::Software;

    use super::*;

    /// An event that the kernel counts by itself, everywhere where it counts at all.
    #[test]
    fn what_threads_do_is_counted() {
        let count = match EventCount::begin(Software::PAGE_FAULTS) {
            Ok(count) => count,
            Err(error) => {
                // A container may forbid it; the benchmark says so then.
                assert!(matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported), "{error}");
                return;
            }
        };
        // More than the allocator keeps for later, so that none of it was touched before; a page is a huge one at most.
        const HUGE_PAGE_LEN: usize = 2 << 20;
        let pages = 32;
        std::thread::spawn(move || std::hint::black_box(vec![1u8; pages * HUGE_PAGE_LEN])).join().expect("no panic");
        assert!(count.end().expect("it counts") >= pages as u64);
    }
}
