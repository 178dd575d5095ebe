//! The lease is renewed for as long as the store is open.
//!
//! Always true: a renewal counts from before it was asked for; what is not heard is asked again until the lease is over by itself.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{
    Inside,
    lease::{Claim, RENEWAL, boot_now_ns},
};

/// Between a renewal of which nothing was heard and the next.
const LEASE_PAUSE: Duration = Duration::from_millis(100);

impl Inside {
    /// Renews the lease for as long as the store is open.
    pub(super) async fn run_renewals(self: Arc<Self>, mut claim: Claim) -> Claim {
        let mut pause = RENEWAL;
        loop {
            if timeout(pause, self.closing.notified()).await.is_ok() || self.lease.is_lost() {
                return claim;
            }
            // Until it is heard, at once again.
            pause = LEASE_PAUSE;
            let asked_ns = boot_now_ns();
            match self.tables.renew(claim.epoch, claim.renewals, &claim.holder).await {
                Ok(true) => {
                    claim.renewals += 1;
                    self.lease.renewed(asked_ns, claim.lease);
                    pause = RENEWAL;
                }
                // It was not heard that an earlier one was applied; or there is another owner.
                Ok(false) => match self.tables.read_owner().await {
                    Ok(Some((_, found))) if found.epoch == claim.epoch && found.holder == claim.holder => {
                        claim.renewals = found.renewals;
                    }
                    Ok(_) => self.lose(),
                    Err(told) => tracing::warn!("the lease of the store could not be renewed ({})", told.line),
                },
                Err(told) => tracing::warn!("the lease of the store could not be renewed ({})", told.line),
            }
        }
    }
}
