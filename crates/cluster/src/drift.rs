//! How far two clocks drift apart, and what that takes from a lease.

use guira_item::Span;

/// The bound on the difference in speed of two members' clocks, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drift {
    /// Millionths.
    pub ppm: u32,
}

impl Default for Drift {
    /// One in a thousand: what a computer's clock does is a tenth of it at most, and what adjusts it may add half of it.
    fn default() -> Self {
        Self { ppm: 1_000 }
    }
}

impl Drift {
    /// How long who holds a lease may go by it, from before it asked.
    pub fn holder(self, lease: Span) -> Span {
        lease - self.of(lease)
    }

    /// How long who granted it has to wait for its end, from after it granted.
    pub fn granter(self, lease: Span) -> Span {
        lease + self.of(lease)
    }

    fn of(self, span: Span) -> Span {
        // Rounded up.
        span.times(u64::from(self.ppm)).part(1_000_000) + Span::from_ns(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_granter_waits_for_longer_than_the_holder_serves() {
        let (drift, lease) = (Drift { ppm: 500 }, Span::from_ms(1_000));
        assert_eq!(drift.holder(lease), Span::from_ns(999_499_999));
        assert_eq!(drift.granter(lease), Span::from_ns(1_000_500_001));
    }
}
