//! A node's clock: runs a little fast or slow, and not always the same.

use guira_item::{Moment, Span};

/// Parts in a whole of a clock's rate.
const WHOLE: u128 = 1_000_000;

/// What a node's clock shows, by virtual time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    virtual_from: Moment,
    local_from: Moment,
    /// Local nanoseconds in a million virtual ones.
    rate: u64,
}

impl Clock {
    pub(crate) fn new(virtual_now: Moment, local_now: Moment, rate: u64) -> Self {
        Self { virtual_from: virtual_now, local_from: local_now, rate }
    }

    pub(crate) fn local(&self, virtual_now: Moment) -> Moment {
        let elapsed = u128::from(virtual_now.since(self.virtual_from).ns()) * u128::from(self.rate) / WHOLE;
        self.local_from + Span::from_ns(elapsed as u64)
    }

    /// The first virtual moment at which it shows `local`, or later.
    pub(crate) fn virtual_at(&self, local: Moment) -> Moment {
        let elapsed = (u128::from(local.since(self.local_from).ns()) * WHOLE).div_ceil(u128::from(self.rate));
        self.virtual_from + Span::from_ns(elapsed as u64)
    }

    pub(crate) fn set_rate(&mut self, virtual_now: Moment, rate: u64) {
        *self = Self::new(virtual_now, self.local(virtual_now), rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_is_not_early() {
        for rate in [999_300, 1_000_000, 1_000_700] {
            let clock = Clock::new(Moment::from_ns(17), Moment::from_ns(5_000), rate);
            for ns in [5_000, 5_001, 123_456_789, 10_u64.pow(13)] {
                let at = clock.virtual_at(Moment::from_ns(ns));
                assert!(clock.local(at) >= Moment::from_ns(ns), "{rate} {ns}");
                assert!(clock.local(at - Span::from_ns(2)) <= Moment::from_ns(ns), "{rate} {ns}");
            }
        }
    }
}
