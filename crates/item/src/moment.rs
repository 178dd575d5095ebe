//! Time as protocols between nodes see it: a node's own clock, which goes on while the machine sleeps and is set by nobody.
//!
//! Always true: two nodes' moments have nothing to do with each other; how long something takes is about the same by both, up to a bound on
//! their drift that whoever compares them has to know.

use std::ops::{Add, Sub};

/// Nanoseconds by one node's clock (Linux: boot time).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Moment(u64);

/// Nanoseconds from one moment to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Span(u64);

impl Moment {
    /// So many nanoseconds after the clock's zero.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the clock's zero.
    pub const fn ns(self) -> u64 {
        self.0
    }

    /// How long after `earlier`; 0 if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// So many nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// So many microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// So many milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// So many seconds.
    pub const fn from_s(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds.
    pub const fn ns(self) -> u64 {
        self.0
    }

    /// Seconds.
    pub fn as_s(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// So many times as long.
    #[must_use]
    pub const fn times(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// One of so many equal parts.
    #[must_use]
    pub const fn part(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl Add<Span> for Moment {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Moment {
    type Output = Self;

    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_wraps_around() {
        let moment = Moment::from_ns(5);
        assert_eq!(moment.since(Moment::from_ns(7)), Span::from_ns(0));
        assert_eq!(moment - Span::from_s(1), Moment::from_ns(0));
        assert_eq!(Moment::from_ns(u64::MAX) + Span::from_ms(1), Moment::from_ns(u64::MAX));
        assert_eq!((moment + Span::from_us(2)).since(moment), Span::from_ns(2_000));
        assert_eq!(Span::from_s(3).times(2).part(4).as_s(), 1.5);
    }
}
