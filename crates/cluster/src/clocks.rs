//! A member's clocks: boot time, which goes on while the machine sleeps, and the wall clock, which people set. The one place that reads them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use guira_item::Moment;
use rustix::time::{ClockId, clock_gettime};

/// Now. Whoever heeds an event reads it after the event has come, never before (R1).
pub fn boot_now() -> Moment {
    let now = clock_gettime(ClockId::Boottime);
    // Neither is negative: it counts from the start of the machine.
    Moment::from_ns(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// How long it is since 1970, by the wall clock.
#[expect(clippy::disallowed_methods, reason = "drivers are where time comes in")]
pub fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on() {
        let first = boot_now();
        while boot_now() == first {}
        assert!(boot_now() > first && first > Moment::default());
    }
}
