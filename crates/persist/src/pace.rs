//! How fast operations may begin: so many a second, one after the other, however long the time between two of them is.
//!
//! ```text
//! owed   what has begun, in operations; goes down with time, `limit` a second, to 0
//! a turn is free while `owed` is at most what time pays for in `SLACK_NS`
//! ```
//! Always true: in any stretch of t seconds at most `limit * (t + SLACK)` operations begin, and those of one turn. What nobody
//! has asked for is not saved up.

/// How far operations may begin before their time: by so much a thread that sleeps until then wakes too late on a machine that
/// has other things to do (a tick of the system's scheduler), so that all of the limit can be had; and no more than this comes
/// at once.
pub(crate) const SLACK_NS: u64 = 4_000_000;

const SECOND_NS: u128 = 1_000_000_000;

/// Operations a second, from 1 to [`Limit::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit(u32);

impl Limit {
    /// More than any store on one machine does: beyond, a limit is a mistake.
    pub const MAX: u32 = 100_000_000;

    /// So many; `None` if that is 0 or too many.
    pub fn new(operations_a_second: u64) -> Option<Self> {
        let number = u32::try_from(operations_a_second).ok()?;
        (1..=Self::MAX).contains(&number).then_some(Self(number))
    }

    /// Operations a second.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// Counts what has begun. Times are nanoseconds since any moment, and do not go back.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    limit: Limit,
    /// When all that has begun will have been paid for, in nanoseconds times `limit`, so that no fraction is lost.
    paid_at: u128,
}

impl Pace {
    pub(crate) fn new(limit: Limit) -> Self {
        Self { limit, paid_at: 0 }
    }

    fn scaled(&self, ns: u64) -> u128 {
        u128::from(ns) * u128::from(self.limit.0)
    }

    /// Lets so many operations begin at once, or says at which time to ask again, which is later than `now_ns`. One turn may be
    /// of more operations than the slack: those behind it pay for it.
    pub(crate) fn begin(&mut self, now_ns: u64, operations: u64) -> Result<(), u64> {
        let (now, slack) = (self.scaled(now_ns), self.scaled(SLACK_NS));
        if self.paid_at > now + slack {
            let ask_at = (self.paid_at - slack).div_ceil(u128::from(self.limit.0));
            return Err(u64::try_from(ask_at).unwrap_or(u64::MAX));
        }
        self.paid_at = self.paid_at.max(now) + u128::from(operations) * SECOND_NS;
        Ok(())
    }

    /// So many of those that could have begun have not.
    pub(crate) fn give_back(&mut self, operations: u64) {
        self.paid_at = self.paid_at.saturating_sub(u128::from(operations) * SECOND_NS);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit(operations_a_second: u32) -> Limit {
        Limit::new(operations_a_second.into()).expect("sound")
    }

    #[test]
    fn a_limit_is_at_least_one_and_no_mistake() {
        assert!(
            Limit::new(0).is_none() && Limit::new(u64::from(Limit::MAX) + 1).is_none() && Limit::new(1 << 32).is_none()
        );
        assert_eq!(Limit::new(Limit::MAX.into()).map(Limit::get), Some(Limit::MAX));
        assert_eq!(Limit::new(1).map(Limit::get), Some(1));
    }

    #[test]
    fn the_slack_comes_at_once_and_the_rest_in_its_time() {
        let mut pace = Pace::new(limit(100_000));
        let mut begun = 0;
        let ask_at = loop {
            match pace.begin(0, 1) {
                Ok(()) => begun += 1,
                Err(ask_at) => break ask_at,
            }
        };
        assert_eq!((begun, ask_at), (401, 10_000));
        assert_eq!((pace.begin(9_999, 1), pace.begin(10_000, 1)), (Err(10_000), Ok(())));
        assert_eq!(pace.begin(10_000, 1), Err(20_000));
        // An hour in which nobody asks is worth no more.
        let later = 3_600_000_000_000;
        assert_eq!((0..1_000).filter(|_| pace.begin(later, 1).is_ok()).count(), 401);
    }

    #[test]
    fn a_large_turn_is_paid_for_by_those_behind_it_and_what_is_given_back_by_nobody() {
        let mut pace = Pace::new(limit(1_000));
        assert_eq!(pace.begin(0, 500), Ok(()));
        assert_eq!(pace.begin(0, 1), Err(496_000_000));
        pace.give_back(500);
        assert_eq!((pace.begin(0, 1), pace.begin(0, 0)), (Ok(()), Ok(())));
    }

    proptest! {
        /// However it is asked, in no stretch of time more begins than it may; and whoever comes when told is let in.
        #[test]
        fn no_stretch_of_time_has_more_than_it_may(
            number in prop_oneof![1..10_u32, 1_000..200_000_u32, 1..=Limit::MAX],
            asked in prop::collection::vec((0..5_000_000_u64, 1..20_u64, any::<bool>(), any::<bool>()), 1..200),
        ) {
            let mut pace = Pace::new(limit(number));
            let (mut now_ns, mut turns) = (0, Vec::new());
            for (pause_ns, operations, comes_again, gives_back) in asked {
                now_ns += pause_ns;
                let begun = match pace.begin(now_ns, operations) {
                    Err(ask_at) if comes_again => {
                        prop_assert!(ask_at > now_ns);
                        now_ns = ask_at;
                        prop_assert_eq!(pace.begin(now_ns, operations), Ok(()));
                        true
                    }
                    begun => begun.is_ok(),
                };
                if begun && gives_back {
                    pace.give_back(operations);
                } else if begun {
                    turns.push((now_ns, operations));
                }
            }
            for first in 0..turns.len() {
                let mut sum = 0;
                for &(at_ns, operations) in &turns[first..] {
                    // What began before the last turn of the stretch had been paid for but for the slack.
                    let time_ns = u128::from(at_ns - turns[first].0 + SLACK_NS);
                    prop_assert!(sum * SECOND_NS <= time_ns * u128::from(number));
                    sum += u128::from(operations);
                }
            }
        }
    }
}
