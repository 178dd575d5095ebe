//! What a program has stored, and until when.

use std::time::Duration;

use guira_item::{Expiry, Time};

/// When an item ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expires {
    /// It stays until it is deleted.
    #[default]
    Never,
    /// After so long, counted in whole seconds as memcached counts: what is begun of a second is rounded up, and the second that it is now is
    /// the first. So it ends up to a second early. Nothing at all is over at once; what would last beyond 2058 ends then.
    In(Duration),
}

impl Expires {
    /// The second of the cluster's time at which it ends.
    pub(crate) fn expiry(self, now: Time) -> Expiry {
        match self {
            Self::Never => Expiry::NEVER,
            Self::In(Duration::ZERO) => Expiry::AT_ONCE,
            Self::In(time) => {
                let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
                Expiry::at(Time(now.0.saturating_add(u32::try_from(seconds).unwrap_or(u32::MAX))))
            }
        }
    }
}

/// A value that is to be stored: its bytes, the program's flags, and when it ends. Bytes alone are one with no flags that never ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value<'v> {
    pub(crate) bytes: &'v [u8],
    pub(crate) flags: u32,
    pub(crate) expires: Expires,
}

impl<'v> Value<'v> {
    /// These bytes.
    pub fn of<B: AsRef<[u8]> + ?Sized>(bytes: &'v B) -> Self {
        Self { bytes: bytes.as_ref(), flags: 0, expires: Expires::Never }
    }

    /// With flags that come back with the value: what they mean is the program's affair.
    #[must_use]
    pub fn with_flags(self, flags: u32) -> Self {
        Self { flags, ..self }
    }

    /// Which ends after so long: see [`Expires::In`].
    #[must_use]
    pub fn ending_in(self, time: Duration) -> Self {
        Self { expires: Expires::In(time), ..self }
    }
}

impl<'v, B: AsRef<[u8]> + ?Sized> From<&'v B> for Value<'v> {
    fn from(bytes: &'v B) -> Self {
        Self::of(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_begun_of_a_second_counts() {
        let now = Time(1_000);
        let at = |time| Expires::In(time).expiry(now);
        assert_eq!(Expires::Never.expiry(now), Expiry::NEVER);
        assert!(at(Duration::ZERO).is_past(now));
        assert_eq!(at(Duration::from_nanos(1)), Expiry::at(Time(1_001)));
        assert_eq!(at(Duration::from_secs(5)), Expiry::at(Time(1_005)));
        assert_eq!(at(Duration::from_millis(5_001)), Expiry::at(Time(1_006)));
        assert_eq!(at(Duration::MAX), Expiry::MAX);
    }
}
