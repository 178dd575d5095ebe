//! A node's two times: moments, in which protocols count, and the seconds of a cluster, in which items end.
//!
//! Always true: a node's seconds follow its moments, whatever happens to its wall clock meanwhile; when an item is over is for one node to say,
//! its backend, by these.

use std::time::Duration;

use guira_item::{Clock, Expiry, Moment, Span, Time};

/// The second from which all clusters count, Unix time: 1 January 2025. Seconds fit into an [`Expiry`] until 2058.
const ZERO_UNIX_S: u64 = 1_735_689_600;

/// Ties a cluster's seconds to Unix time.
pub const CLOCK: Clock = Clock::starting_at(ZERO_UNIX_S);

const NS_PER_S: u64 = 1_000_000_000;

/// Ties a node's moments to the cluster's seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeClock {
    /// Nanoseconds from the cluster's zero to the zero of the node's moments.
    zero_ns: u64,
}

impl NodeClock {
    /// By what the wall clock says now, `unix` after 1970; before 2025 it counts as that.
    pub fn set(now: Moment, unix: Duration) -> Self {
        let since_zero = unix.saturating_sub(Duration::from_secs(CLOCK.to_unix_s(Time(0))));
        let ns = u64::try_from(since_zero.as_nanos()).unwrap_or(u64::MAX);
        Self { zero_ns: ns.saturating_sub(now.ns()) }
    }

    /// The cluster's time.
    pub fn time(&self, now: Moment) -> Time {
        Time(u32::try_from(self.ns(now) / NS_PER_S).unwrap_or(u32::MAX))
    }

    /// When the cluster's time comes to be `time`; what was before the node's moments began is their zero.
    pub fn when(&self, time: Time) -> Moment {
        Moment::from_ns((u64::from(time.0) * NS_PER_S).saturating_sub(self.zero_ns))
    }

    /// How long an item with this expiry is still there; `None`: for ever.
    pub fn left(&self, expiry: Expiry, now: Moment) -> Option<Span> {
        let end_s = u64::from(expiry.to_raw());
        (expiry != Expiry::NEVER).then(|| Span::from_ns((end_s * NS_PER_S).saturating_sub(self.ns(now))))
    }

    fn ns(&self, now: Moment) -> u64 {
        self.zero_ns.saturating_add(now.ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_follow_moments() {
        let (now, unix) = (Moment::from_ns(7_500_000_000), Duration::from_millis(ZERO_UNIX_S * 1_000 + 10_250));
        let clock = NodeClock::set(now, unix);
        assert_eq!(clock.time(now), Time(12));
        assert_eq!(CLOCK.to_unix_s(clock.time(now)), unix.as_secs());
        assert_eq!(clock.time(now + Span::from_ms(749)), Time(12));
        assert_eq!(clock.time(now + Span::from_ms(750)), Time(13));
        assert_eq!(clock.left(Expiry::at(Time(13)), now), Some(Span::from_ms(750)));
        assert_eq!(clock.left(Expiry::at(Time(12)), now), Some(Span::from_ns(0)));
        assert_eq!(clock.left(Expiry::NEVER, now), None);
        assert_eq!(clock.when(Time(13)), now + Span::from_ms(750));
        assert_eq!(clock.when(Time(0)), Moment::default());
    }
}
