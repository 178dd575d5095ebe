//! A node's own clock: boot time, which goes on while the machine sleeps. The one place that reads it.

use guira_item::Moment;
use rustix::time::{ClockId, clock_gettime};

/// Now. Whoever heeds an event reads it after the event has come, never before (R1).
pub fn boot_now() -> Moment {
    let now = clock_gettime(ClockId::Boottime);
    // Neither is negative: it counts from the start of the machine.
    Moment::from_ns(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
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
