//! What a connection's unfinished input costs and who bears it: a sum over all connections up to a bound, then the service,
//! which lends memory of its own.
//!
//! Always true: the sum holds exactly what the accounts have counted; what is held is counted or lent, but for bytes of the
//! last loan that are no longer needed.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use guira_item::Loan;

/// Bytes of unfinished input, and of unread answers, that every connection may hold whatever the others hold: a client whose
/// small command arrives in two parts does not pay for those who fill the server's buffers.
pub(crate) const OWN_LEN: usize = 4 << 10;

/// One connection's account.
#[derive(Default)]
pub(crate) struct InputAccount {
    /// Bytes in the sum over all connections.
    counted: usize,
    /// Bytes for which the service does without memory, and what ends that.
    lent: usize,
    loans: Vec<Loan>,
}

/// There is no memory for what is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OverBound;

impl InputAccount {
    /// Notes that `held` bytes are held now. What would take the `sum` above `max` is borrowed.
    ///
    /// # Errors
    /// [`OverBound`] if that cannot be had; the bytes are counted all the same.
    #[inline]
    pub(crate) fn hold(
        &mut self,
        held: usize,
        sum: &AtomicUsize,
        max: usize,
        lend: impl FnOnce(usize) -> Option<Loan>,
    ) -> Result<(), OverBound> {
        if held == self.counted && self.lent == 0 { Ok(()) } else { self.change(held, sum, max, lend) }
    }

    #[cold]
    fn change(
        &mut self,
        held: usize,
        sum: &AtomicUsize,
        max: usize,
        lend: impl FnOnce(usize) -> Option<Loan>,
    ) -> Result<(), OverBound> {
        if held <= OWN_LEN {
            self.lent = 0;
            self.loans = Vec::new();
        }
        let owned = held.saturating_sub(self.lent);
        let before = std::mem::replace(&mut self.counted, owned);
        if owned <= before {
            sum.fetch_sub(before - owned, Relaxed);
            return Ok(());
        }
        let all = sum.fetch_add(owned - before, Relaxed) + (owned - before);
        if owned <= OWN_LEN || all <= max {
            return Ok(());
        }
        self.loans.push(lend(owned).ok_or(OverBound)?);
        self.lent += owned;
        self.counted = 0;
        sum.fetch_sub(owned, Relaxed);
        Ok(())
    }

    /// Nothing is held any more.
    pub(crate) fn close(&mut self, sum: &AtomicUsize) {
        sum.fetch_sub(std::mem::take(&mut self.counted), Relaxed);
        self.lent = 0;
        self.loans = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Lent(Arc<AtomicUsize>, usize);

    impl Drop for Lent {
        fn drop(&mut self) {
            self.0.fetch_sub(self.1, Relaxed);
        }
    }

    /// Any sequence of lengths: the sum is what the accounts say, loans cover the rest, and at the end nothing is left.
    #[test]
    fn what_is_held_is_counted_or_lent() {
        const MAX: usize = 100_000;
        const LENDABLE: usize = 300_000;
        let (sum, lent) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let mut accounts: Vec<(InputAccount, usize)> = (0..5).map(|_| Default::default()).collect();
        let (mut state, mut borrowed, mut refused) = (7u64, 0, 0);
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (account, held) = &mut accounts[(state >> 33) as usize % 5];
            *held = match state >> 40 & 7 {
                0 => 0,
                1 | 2 => (state >> 50) as usize % OWN_LEN,
                _ => *held + (state >> 48) as usize,
            };
            let lend = |bytes: usize| {
                borrowed += 1;
                let fits = lent.load(Relaxed) + bytes <= LENDABLE;
                fits.then(|| {
                    lent.fetch_add(bytes, Relaxed);
                    Box::new(Lent(Arc::clone(&lent), bytes)) as Loan
                })
            };
            if account.hold(*held, &sum, MAX, lend).is_err() {
                refused += 1;
                *held = 0;
                account.hold(0, &sum, MAX, |_| None).expect("nothing needs no memory");
            }
            assert!(account.counted + account.lent >= *held);
            assert_eq!(sum.load(Relaxed), accounts.iter().map(|(account, _)| account.counted).sum::<usize>());
            assert_eq!(lent.load(Relaxed), accounts.iter().map(|(account, _)| account.lent).sum::<usize>());
            assert!(sum.load(Relaxed) <= MAX + 5 * OWN_LEN);
        }
        assert!(borrowed > refused && refused > 0, "{borrowed} {refused}");
        accounts.iter_mut().for_each(|(account, _)| account.close(&sum));
        assert_eq!((sum.load(Relaxed), lent.load(Relaxed)), (0, 0));
    }
}
