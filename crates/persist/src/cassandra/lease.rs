//! Who may serve a keyspace: one server at a time, for as long as it renews its lease.
//!
//! Time is boot time, which goes on while a machine is suspended. A lease is counted at the holder from before it asked, and it stops
//! serving at 60 % of it; at whoever waits for it to end from after the last renewal was seen, and 110 % of it must go by. So clocks may
//! differ in speed by far more than clocks do.
//! Always true: of two servers, the one that waited has its lease when the other serves no more; a renewal that is still on its way fits
//! nothing once the next owner is there.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

use guira_row::Epoch;

/// How long a lease is: a Cassandra that does not answer for six seconds (60 % of it) ends the serving until it does, and a server that
/// was killed is followed after eleven.
pub(super) const LEASE: Duration = Duration::from_secs(10);

/// How often it is renewed.
pub(super) const RENEWAL: Duration = Duration::from_secs(2);

/// Boot time in nanoseconds.
pub(super) fn boot_now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    // Boot time has no sign, and ends in 584 years.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What is known of a keyspace's owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    /// Counts the owners.
    pub(super) epoch: Epoch,
    /// Counts what the owner has said since.
    pub(super) renewals: i64,
    /// Who it is; empty once it has given the keyspace up.
    pub(super) holder: String,
    /// How long its lease is.
    pub(super) lease: Duration,
}

/// Whether somebody else's keyspace may be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It may, if the claim is still the one that was seen.
    Free,
    /// Not yet.
    Wait,
    /// Its owner lives.
    Held,
}

/// Watches an owner from whom nothing is heard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watcher {
    /// What was seen first, and when.
    seen: Option<(Epoch, i64, u64)>,
}

impl Watcher {
    /// Judges a claim that was read; `now_ns` is boot time after it was.
    pub(super) fn judge(&mut self, claim: Option<&Claim>, now_ns: u64) -> Verdict {
        let Some(Claim { epoch, renewals, holder, lease }) = claim else { return Verdict::Free };
        if holder.is_empty() {
            return Verdict::Free;
        }
        match self.seen {
            None => {
                self.seen = Some((*epoch, *renewals, now_ns));
                Verdict::Wait
            }
            Some((seen_epoch, seen_renewals, _)) if (seen_epoch, seen_renewals) != (*epoch, *renewals) => Verdict::Held,
            Some((.., since_ns)) => {
                let wait_ns = as_ns(*lease) / 10 * 11;
                if now_ns.saturating_sub(since_ns) >= wait_ns { Verdict::Free } else { Verdict::Wait }
            }
        }
    }
}

fn as_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What the owner goes by, read before every batch of requests.
#[derive(Debug, Default)]
pub(super) struct Lease {
    serves_until_ns: AtomicU64,
    is_lost: AtomicBool,
}

impl Lease {
    /// The owner was heard to be the owner still; `asked_ns` is boot time before it asked.
    pub(super) fn renewed(&self, asked_ns: u64, lease: Duration) {
        self.serves_until_ns.fetch_max(asked_ns + as_ns(lease) / 10 * 6, Relaxed);
    }

    /// Another is the owner: for good.
    pub(super) fn lose(&self) {
        self.is_lost.store(true, Relaxed);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Relaxed)
    }

    /// Whether what was read from the store earlier may be served to somebody who has asked before `now_ns`.
    pub(super) fn may_serve(&self, now_ns: u64) -> bool {
        now_ns < self.serves_until_ns.load(Relaxed) && !self.is_lost()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(epoch: i64, renewals: i64, holder: &str) -> Claim {
        Claim { epoch: Epoch(epoch), renewals, holder: holder.into(), lease: Duration::from_secs(10) }
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn what_nobody_has_is_free_and_what_somebody_has_for_as_long_as_nothing_is_heard() {
        assert_eq!(Watcher::default().judge(None, 0), Verdict::Free);
        assert_eq!(Watcher::default().judge(Some(&claim(4, 9, "")), 0), Verdict::Free);
        let mut watcher = Watcher::default();
        assert_eq!(watcher.judge(Some(&claim(4, 9, "a")), 100 * S), Verdict::Wait);
        assert_eq!(watcher.judge(Some(&claim(4, 9, "a")), 110 * S), Verdict::Wait, "drift");
        assert_eq!(watcher.judge(Some(&claim(4, 9, "a")), 111 * S), Verdict::Free);
        assert_eq!(watcher.judge(Some(&claim(4, 10, "a")), 111 * S), Verdict::Held);
        assert_eq!(watcher.judge(Some(&claim(5, 0, "b")), 200 * S), Verdict::Held, "another has come");
    }

    /// A holder whose renewals take any time, and one that waits, with clocks that differ by 4 %.
    #[test]
    fn two_never_serve_at_once() {
        let mut dice = 88_172_645_463_325_252_u64;
        let mut below = |bound: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % bound
        };
        let mut taken = 0;
        for _ in 0..20_000 {
            // Boot time of the holder and of the watcher, at a moment of true time in milliseconds.
            let (fast, late_ms) = (below(2) == 0, below(1_000_000));
            let at_holder = |ms: u64| (ms * if fast { 104 } else { 100 }) / 100 * 1_000_000;
            let at_watcher = |ms: u64| ((ms + late_ms) * if fast { 100 } else { 104 }) / 100 * 1_000_000;
            let lease = Lease::default();
            let (mut watcher, mut renewals) = (Watcher::default(), 1);
            lease.renewed(at_holder(0), LEASE);
            let mut renewal: Option<(u64, u64, u64)> = None;
            let begins_ms = below(5_000);
            for ms in (begins_ms..60_000).step_by(100) {
                // A renewal is asked for, takes effect and is heard of, each at its time, if ever.
                if let Some((asked_ms, applied_ms, heard_ms)) = renewal {
                    if ms >= applied_ms && ms < applied_ms + 100 {
                        renewals += 1;
                    }
                    if ms >= heard_ms {
                        lease.renewed(at_holder(asked_ms), LEASE);
                        renewal = None;
                    }
                } else if below(20) == 0 {
                    let applied_ms = ms + 100 + below(8_000);
                    renewal = Some((ms, applied_ms, applied_ms + below(8_000)));
                }
                match watcher.judge(Some(&claim(1, renewals, "a")), at_watcher(ms)) {
                    Verdict::Held => watcher = Watcher::default(),
                    Verdict::Wait => {}
                    Verdict::Free => {
                        taken += 1;
                        // What is on its way fits nothing any more: it is heard to be refused.
                        assert!(!lease.may_serve(at_holder(ms)), "both serve");
                        break;
                    }
                }
            }
        }
        assert!(taken > 1_000, "{taken} times somebody took over");
    }

    #[test]
    fn a_lease_that_was_lost_is_not_renewed() {
        let lease = Lease::default();
        assert!(!lease.may_serve(0), "nobody has asked for it");
        lease.renewed(S, Duration::from_secs(10));
        assert!(lease.may_serve(7 * S - 1) && !lease.may_serve(7 * S));
        lease.lose();
        lease.renewed(100 * S, Duration::from_secs(10));
        assert!(!lease.may_serve(2 * S));
    }
}
