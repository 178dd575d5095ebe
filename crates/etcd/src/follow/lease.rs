//! A member says that it is alive, under a lease that it keeps.
//!
//! Always true: it says so under a lease of its own, and not if a later life of it does; that it cannot changes nothing else.

use std::{mem, sync::atomic::Ordering, time::Duration};

use etcd_client::{Client, Compare, CompareOp, KeyValue, LeaseKeepAliveStream, LeaseKeeper, PutOptions, Txn, TxnOp};
use tokio::time::timeout;

use super::{Broken, Follow, Told};
use crate::{Alive, asking::gets_of, link::Failure};

/// How long a member that ends waits at most for its lease to be revoked: it runs out by itself.
const REVOKE_WITHIN: Duration = Duration::from_secs(1);

/// How often it is tried to say alive, if others change the key meanwhile.
const TRIES_MAX: usize = 16;

/// How many leases are lost in a row, none of which was kept, until it is paused.
const LOSSES_MAX: u32 = 2;

/// What a lease is kept alive with.
pub(super) type Keeping = (LeaseKeeper, LeaseKeepAliveStream);

impl<T: FnMut(Told)> Follow<'_, T> {
    /// That etcd does not let a member say that it is alive, as one that has no space left, or to whom it may not, is no reason not to hear of views: it is
    /// tried with the tick.
    pub(super) fn unless_refused(&mut self, said: Result<(), Broken>) -> Result<(), Broken> {
        match said {
            Err(Broken::Refused(why)) => {
                if !mem::replace(&mut self.is_unsaid, true) {
                    self.tell(Told::Unsaid(why));
                }
                Ok(())
            }
            other => other,
        }
    }

    /// What has become of the key that says so.
    pub(super) async fn take_alive(
        &mut self,
        found: &KeyValue,
        is_put: bool,
        keeping: &mut Option<Keeping>,
    ) -> Result<(), Broken> {
        if is_put && Alive::read(found.value()) == Some(self.alive()) {
            return Ok(());
        }
        self.is_said = false;
        // With its lease, or by hand.
        if is_put { self.say_alive(Some(found.clone())).await } else { self.keep(keeping).await }
    }

    pub(super) fn alive(&self) -> Alive {
        Alive { life: self.life }
    }

    /// A lease that is there: the one of before, or a new one.
    pub(super) async fn hold_lease(&mut self) -> Result<Keeping, Broken> {
        loop {
            let id = match self.lease {
                Some(id) => id,
                None => {
                    let lease_s = self.shared.lease.as_millis().div_ceil(1_000).max(1) as i64;
                    let grant = async |mut client: Client| client.lease_grant(lease_s, None).await;
                    let granted = self.link.once(grant).await?;
                    self.has_answered(granted.header());
                    granted.id()
                }
            };
            self.lease = Some(id);
            let keep = async |mut client: Client| client.lease_keep_alive(id).await;
            match self.link.once(keep).await {
                Err(Failure::LeaseLost) => self.lost()?,
                other => return Ok(other?),
            }
        }
    }

    pub(super) fn lost(&mut self) -> Result<(), Broken> {
        (self.lease, self.is_said) = (None, false);
        self.shared.leases_lost.fetch_add(1, Ordering::Relaxed);
        self.losses += 1;
        if self.losses < LOSSES_MAX { Ok(()) } else { Err(Broken::Away("it loses one lease after the other".into())) }
    }

    /// Holds a lease, and says that the member is alive under it.
    pub(super) async fn begin_to_keep(
        &mut self,
        keeping: &mut Option<Keeping>,
        said: Option<KeyValue>,
    ) -> Result<(), Broken> {
        // Also of who gets no lease there may be a later life.
        self.look_for_later(said.as_ref())?;
        *keeping = Some(self.hold_lease().await?);
        self.say_alive(said).await
    }

    /// Keeps the lease; if it is lost, or there is none yet, there is another one, and the member is alive under that.
    pub(super) async fn keep(&mut self, keeping: &mut Option<Keeping>) -> Result<(), Broken> {
        let Some((keeper, kept)) = keeping else { return self.begin_to_keep(keeping, None).await };
        let answer = async {
            keeper.keep_alive().await?;
            kept.message().await
        };
        let answer = self.link.wait(answer).await?;
        let answer = answer.ok_or_else(|| Broken::Away("it does not keep the lease any more".into()))?;
        self.has_answered(answer.header());
        if answer.ttl() > 0 {
            self.losses = 0;
            return if self.is_said { Ok(()) } else { self.say_alive(None).await };
        }
        *keeping = None;
        self.lost()?;
        self.begin_to_keep(keeping, None).await
    }

    pub(super) fn look_for_later(&mut self, said: Option<&KeyValue>) -> Result<(), Broken> {
        match said.and_then(|said| Alive::read(said.value())) {
            Some(other) if other.life > self.life => {
                self.tell(Told::Outlived { life: other.life });
                Err(Broken::End)
            }
            _ => Ok(()),
        }
    }

    fn has_said(&mut self) {
        self.is_said = true;
        if mem::take(&mut self.is_unsaid) {
            self.tell(Told::Said);
        }
    }

    /// Says that the member is alive, unless a later life of it does, or there is no lease yet. `said` is what the key was found to be.
    pub(super) async fn say_alive(&mut self, mut said: Option<KeyValue>) -> Result<(), Broken> {
        let key = self.keys.alive(self.me);
        for _ in 0..TRIES_MAX {
            self.look_for_later(said.as_ref())?;
            let Some(lease) = self.lease else { return Ok(()) };
            let is_mine = |said: &KeyValue| Alive::read(said.value()) == Some(self.alive()) && said.lease() == lease;
            if said.as_ref().is_some_and(is_mine) {
                self.has_said();
                return Ok(());
            }
            // Nothing, an earlier life, or an earlier lease.
            let revision = said.as_ref().map_or(0, KeyValue::mod_revision);
            let is_the_same = Compare::mod_revision(key.clone(), CompareOp::Equal, revision);
            let put = TxnOp::put(key.clone(), self.alive().print(), Some(PutOptions::new().with_lease(lease)));
            let txn = Txn::new().when([is_the_same]).and_then([put]).or_else([TxnOp::get(key.clone(), None)]);
            let answer = self.link.once(async |mut client: Client| client.txn(txn).await).await?;
            self.has_answered(answer.header());
            if answer.succeeded() {
                self.has_said();
                return Ok(());
            }
            said = gets_of(&answer.op_responses()).into_iter().flatten().next();
        }
        Err(Broken::Away("others say of this member that it is alive, again and again".into()))
    }

    /// The member is not alive any more.
    pub(super) async fn give_up(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let revoke = async {
            let revoke = async |mut client: Client| client.lease_revoke(lease).await;
            // Over a connection that has been there for long it may not be known any more who asks.
            if self.link.once(revoke).await.is_err() {
                self.link.renew();
                let _ = self.link.once(revoke).await;
            }
        };
        // In vain, it runs out.
        let _ = timeout(REVOKE_WITHIN, revoke).await;
    }
}
