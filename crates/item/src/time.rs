//! Time as the commands see it: whole seconds since shortly before the server started, as memcached counts.
//!
//! Always true: an [`Expiry`] of 0 is "never"; every [`Time`] a clock hands out is at least 2, so that expiry 1 is "already
//! over".

/// Seconds since two seconds before the server started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Time(pub u32);

impl Time {
    /// So many seconds earlier, 68 years at most. That may be before the server started: the number wraps around then, and only
    /// [`Time::since_s`] understands it.
    #[must_use]
    pub const fn minus_s(self, seconds: u32) -> Self {
        Self(self.0.wrapping_sub(if seconds > i32::MAX as u32 { i32::MAX as u32 } else { seconds }))
    }

    /// Seconds since `earlier`; 0 if that is later, since not every thread sees a second begin at the same moment.
    #[inline]
    pub const fn since_s(self, earlier: Self) -> u32 {
        let seconds = self.0.wrapping_sub(earlier.0);
        if seconds > i32::MAX as u32 { 0 } else { seconds }
    }
}

/// The second from which on an item is gone; 0 means never. 30 bits: 34 years of uptime.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Expiry(u32);

/// Longest expiry time in seconds that counts from now; a larger one is a Unix time (protocol.txt, "Expiration times").
const RELATIVE_EXPTIME_MAX_S: i64 = 60 * 60 * 24 * 30;

impl Expiry {
    /// The item stays until it is evicted or deleted.
    pub const NEVER: Self = Self(0);
    /// The item is over before it begins (a negative time from the client).
    pub const AT_ONCE: Self = Self(1);
    /// The last second that fits.
    pub const MAX: Self = Self((1 << 30) - 1);

    /// The expiry at second `at` of the server's time, within 1 to [`Expiry::MAX`].
    pub fn at(at: Time) -> Self {
        Self(at.0.clamp(1, Self::MAX.0))
    }

    /// From the stored number; the inverse of [`Expiry::to_raw`].
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// 0 for never, otherwise the second of the server's time.
    pub const fn to_raw(self) -> u32 {
        self.0
    }

    /// Whether an item with this expiry is gone at `now`.
    #[inline]
    pub const fn is_past(self, now: Time) -> bool {
        self.0 != 0 && self.0 <= now.0
    }

    /// Seconds left at `now`; `None` for never, 0 when past.
    pub const fn remaining_s(self, now: Time) -> Option<u32> {
        if self.0 == 0 { None } else { Some(self.0.saturating_sub(now.0)) }
    }
}

/// Ties the server's time to Unix time. Pure: the driver passes in what it read from the system's clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started_unix_s: u64,
}

impl Clock {
    /// A clock for a server started at `unix_s` (seconds since 1970).
    pub const fn starting_at(unix_s: u64) -> Self {
        Self { started_unix_s: unix_s.saturating_sub(2) }
    }

    /// The server's time, `elapsed_s` seconds after the start by a clock that never steps.
    pub fn time(&self, elapsed_s: u64) -> Time {
        Time(u32::try_from(elapsed_s.saturating_add(2)).unwrap_or(u32::MAX))
    }

    /// Seconds since 1970 of `time`.
    pub const fn to_unix_s(&self, time: Time) -> u64 {
        self.started_unix_s + time.0 as u64
    }

    /// The second that is `unix_s` since 1970: the first one if that was before, the last one that can be said if it is behind that.
    pub fn from_unix_s(&self, unix_s: u64) -> Time {
        Time(u32::try_from(unix_s.saturating_sub(self.started_unix_s)).unwrap_or(u32::MAX))
    }

    /// The same second as another clock counts it. What is over by this clock's first second, or was before the other's, is over by the
    /// other's too; never is never.
    pub fn carry(&self, expiry: Expiry, to: &Self) -> Expiry {
        match expiry {
            Expiry::NEVER | Expiry::AT_ONCE => expiry,
            Expiry(at) => Expiry::at(to.from_unix_s(self.to_unix_s(Time(at)))),
        }
    }

    /// What a client's `exptime` means at `now`: 0 never, negative at once, up to 30 days from now, larger a Unix time.
    pub fn expiry(&self, exptime: i64, now: Time) -> Expiry {
        match exptime {
            0 => Expiry::NEVER,
            i64::MIN..=-1 => Expiry::AT_ONCE,
            1..=RELATIVE_EXPTIME_MAX_S => Expiry::at(Time(now.0.saturating_add(exptime as u32))),
            unix_s => Expiry::at(self.from_unix_s(unix_s as u64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_count_from_before_the_server_started() {
        let now = Time(500);
        for idle_s in [0, 1, 499, 500, 501, 1_000_000_000] {
            assert_eq!(now.since_s(now.minus_s(idle_s)), idle_s);
            assert_eq!(Time(510).since_s(now.minus_s(idle_s)), idle_s + 10);
        }
        assert_eq!(now.since_s(now.minus_s(u32::MAX)), i32::MAX as u32);
        assert_eq!(now.since_s(Time(501)), 0);
    }

    #[test]
    fn an_expiry_is_the_same_second_by_another_clock() {
        let (early, late) = (Clock::starting_at(1_000_000_000), Clock::starting_at(1_000_000_500));
        let (now, late_now) = (early.time(600), late.time(100));
        assert_eq!(early.to_unix_s(now), late.to_unix_s(late_now));
        for expiry in [Expiry::NEVER, Expiry::AT_ONCE] {
            assert_eq!((early.carry(expiry, &late), late.carry(expiry, &early)), (expiry, expiry));
        }
        for at in [590, 602, 603, 2_000_000] {
            let expiry = Expiry::at(Time(at));
            let carried = early.carry(expiry, &late);
            assert_eq!(carried.remaining_s(late_now), expiry.remaining_s(now));
            assert_eq!(carried.is_past(late_now), expiry.is_past(now));
            assert_eq!(late.carry(carried, &early), expiry, "and back");
        }
        assert!(early.carry(Expiry::at(Time(3)), &late).is_past(late.time(0)), "before the other clock began");
        assert_eq!(late.carry(Expiry::MAX, &early), Expiry::MAX, "as late as can be said");
    }

    #[test]
    fn exptimes_mean_what_memcached_says() {
        let clock = Clock::starting_at(1_000_000_000);
        let now = clock.time(10);
        assert_eq!(now, Time(12));
        assert_eq!(clock.expiry(0, now), Expiry::NEVER);
        assert!(clock.expiry(-1, now).is_past(now));
        assert!(clock.expiry(-1, clock.time(0)).is_past(clock.time(0)));
        let soon = clock.expiry(5, now);
        assert!(!soon.is_past(Time(16)) && soon.is_past(Time(17)));
        assert_eq!(soon.remaining_s(now), Some(5));
        let unix = clock.expiry(1_000_000_020, now);
        assert_eq!(unix.remaining_s(now), Some(10));
        assert!(clock.expiry(RELATIVE_EXPTIME_MAX_S + 1, now).is_past(now), "a Unix time in 1970");
        assert_eq!(clock.expiry(i64::MAX, now), Expiry::MAX);
        assert_eq!(clock.to_unix_s(now), 1_000_000_010);
    }
}
