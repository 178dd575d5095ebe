//! The server's watch: read once per turn of an event loop, handed to everything below.
//!
//! Always true: it never goes back, whatever happens to the system's wall clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use guira_item::{Clock, Time};

/// When the server started, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    started: Instant,
    clock: Clock,
}

/// One reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Seconds, as commands count them.
    pub(crate) time: Time,
    /// Milliseconds since the start.
    pub(crate) elapsed_ms: u64,
}

impl Watch {
    /// Starts it.
    pub fn start() -> Self {
        Self { started: Instant::now(), clock: Clock::starting_at(wall_clock().as_secs()) }
    }

    #[inline]
    pub(crate) fn read(&self) -> Reading {
        let elapsed = self.started.elapsed();
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        Reading { time: self.clock.time(elapsed.as_secs()), elapsed_ms }
    }

    /// Ties its time to Unix time.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The same by what the wall clock says now: it may have been set since the start.
    pub fn clock_by_now(&self) -> Clock {
        // To the fraction of a second, or it would say one thing now and another half a second later.
        Clock::starting_at(wall_clock().saturating_sub(self.started.elapsed()).as_secs())
    }

    /// The time, as commands count it.
    pub fn now(&self) -> Time {
        self.read().time
    }

    /// Seconds since the server started.
    pub(crate) fn uptime_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// Since 1970, by the wall clock: for lines that people read.
    pub(crate) fn unix(&self) -> Duration {
        wall_clock()
    }
}

#[expect(clippy::disallowed_methods, reason = "the server is a driver: this is where its time comes in")]
fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
