//! A member that says that it is alive, and is told of views.
//!
//! ```text
//! connect -> read view, alive/ID -> watch both -> hold a lease -> say alive ---- a view, a later life --> told
//!    ^  ^                               |                 ^  refused:  |  |
//!    |  |                               |                 +- the tick -+  |
//!    |  +-- what was to be watched is compacted: read anew                |
//!    +-- etcd is away: another host, after a pause -----------------------+
//! ```
//! Always true: the epochs that are told rise; a view that cannot be read, or followed, changes nothing; nothing is told after that the member is no
//! longer one, or that there is a later life of it. Nobody is told of the end but by a view that does not name it, or a later life: not because etcd is
//! away, has lost a lease, or has lost all.

use std::{
    convert::Infallible,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use etcd_client::{
    Client, Compare, CompareOp, Event, EventType, KeyValue, LeaseKeepAliveStream, LeaseKeeper, PutOptions,
    ResponseHeader, Txn, TxnOp, WatchOptions,
};
use guira_cluster::Incarnation;
use guira_routing::NodeId;
use guira_switched::Member;
use tokio::{
    runtime::Runtime,
    sync::oneshot::{self, Sender},
    time::{MissedTickBehavior, interval_at, sleep, timeout},
};

use crate::{
    Alive, View, changes,
    etcd::{epoch, gets_of},
    link::{Failure, Link},
    view::Keys,
};

/// The pause before it is tried again: it doubles up to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// How long a member that ends waits at most for its lease to be revoked: it runs out by itself.
const REVOKE_WITHIN: Duration = Duration::from_secs(1);

/// How often it is tried to say alive, if others change the key meanwhile.
const TRIES_MAX: usize = 16;

/// How many leases are lost in a row, none of which was kept, until it is paused.
const LOSSES_MAX: u32 = 2;

/// Who follows.
pub struct Follower {
    /// The member, as it began: one that is another one in a view is not there any more.
    pub me: Member,
    /// The number of its life.
    pub life: Incarnation,
    /// The view that it has read, and its secret: backends and the controller stay who they are in it.
    pub seen: View,
}

impl Follower {
    fn me(&self) -> NodeId {
        NodeId(self.me.id)
    }
}

/// How one follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FollowOptions {
    /// So long after it was heard from last a member counts as alive: whole seconds, and etcd may make it more.
    pub lease: Duration,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self { lease: Duration::from_secs(10) }
    }
}

/// What a member is told.
#[derive(Clone, PartialEq, Debug)]
pub enum Told {
    /// This view replaces those before it.
    View(View),
    /// What is there now cannot be read as a cluster, or not be followed, or nothing is there: the view before it stays.
    Unreadable(String),
    /// There is a view in which it is not a member any more, or has another address or role.
    Removed,
    /// etcd has not answered for the time of a lease: why not, in a line. It is asked on.
    OutOfTouch(String),
    /// It has answered again.
    InTouch,
    /// A later life of it has said that it is alive.
    Outlived {
        /// The number of that life.
        life: Incarnation,
    },
}

/// How it is with etcd.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Touch {
    /// Whether etcd has answered within the time of a lease.
    pub is_in_touch: bool,
    /// Leases that were lost before they were given up.
    pub leases_lost: u64,
    /// How often etcd was turned to anew, since it was away.
    pub reconnects: u64,
}

/// What both threads know.
#[derive(Debug)]
struct Shared {
    begun: Instant,
    lease: Duration,
    /// When etcd was heard from last, in milliseconds from `begun` on.
    heard_ms: AtomicU64,
    leases_lost: AtomicU64,
    reconnects: AtomicU64,
}

/// Not yet.
const NEVER: u64 = u64::MAX;

/// A member that is told of views for as long as this is kept. Dropped, it gives up its lease.
#[derive(Debug)]
pub struct Following {
    shared: Arc<Shared>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Following {
    /// How it is with etcd.
    pub fn touch(&self) -> Touch {
        Touch {
            is_in_touch: self.is_in_touch(),
            leases_lost: self.shared.leases_lost.load(Ordering::Relaxed),
            reconnects: self.shared.reconnects.load(Ordering::Relaxed),
        }
    }

    /// Whether etcd has answered within the time of a lease.
    pub fn is_in_touch(&self) -> bool {
        let heard_ms = self.shared.heard_ms.load(Ordering::Relaxed);
        heard_ms != NEVER
            && self.shared.begun.elapsed() <= Duration::from_millis(heard_ms).saturating_add(self.shared.lease)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.stop.take();
        // A panic has been told about already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Begins to follow.
pub(crate) fn follow(
    runtime: Runtime,
    link: Link,
    keys: Keys,
    who: Follower,
    options: FollowOptions,
    told: impl FnMut(Told) + Send + 'static,
) -> io::Result<Following> {
    let shared = Arc::new(Shared {
        begun: Instant::now(),
        lease: options.lease,
        heard_ms: AtomicU64::new(NEVER),
        leases_lost: AtomicU64::new(0),
        reconnects: AtomicU64::new(0),
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let mut follow = Follow {
        link,
        keys,
        last: who.seen.epoch.0.cast_signed(),
        highest: who.seen.epoch.0.cast_signed(),
        who,
        told,
        shared: Arc::clone(&shared),
        lease: None,
        losses: 0,
        is_said: false,
        is_compacted: false,
        is_missing: false,
        has_gone_back: false,
        is_out_of_touch: false,
        pause: PAUSES.0,
    };
    let run = move || {
        runtime.block_on(async {
            tokio::select! {
                () = follow.run() => {}
                _ = stopped => {}
            }
            follow.give_up().await;
        });
    };
    let thread = thread::Builder::new().name("guira-etcd".into()).spawn(run)?;
    Ok(Following { shared, stop: Some(stop), thread: Some(thread) })
}

/// Why it is not gone on with as before.
enum Broken {
    /// The last thing was told.
    End,
    /// etcd is away: why, in a line.
    Away(String),
    /// etcd does not do it, and may later: why, in a line.
    Refused(String),
    /// What was to be watched is not kept any more.
    Compacted,
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(why) => Self::Refused(why),
            other => Self::Away(other.why()),
        }
    }
}

impl From<etcd_client::Error> for Broken {
    fn from(error: etcd_client::Error) -> Self {
        Failure::from(error).into()
    }
}

/// That etcd does not let a member say that it is alive, as one that has no space left, is no reason not to hear of views: it is tried with the tick.
fn unless_refused(said: Result<(), Broken>) -> Result<(), Broken> {
    match said {
        Err(Broken::Refused(_)) => Ok(()),
        other => other,
    }
}

/// What a lease is kept alive with.
type Keeping = (LeaseKeeper, LeaseKeepAliveStream);

struct Follow<T> {
    link: Link,
    keys: Keys,
    who: Follower,
    told: T,
    shared: Arc<Shared>,
    /// The revision of the view that was told last, be it one that could not be read.
    last: i64,
    /// The highest revision that etcd has said it is at.
    highest: i64,
    lease: Option<i64>,
    /// Leases that were lost since one was kept last.
    losses: u32,
    /// The member has said that it is alive, under that lease.
    is_said: bool,
    /// What came after `last` is not kept any more: what is there is read instead.
    is_compacted: bool,
    /// It was told that there is no view, and there was none since.
    is_missing: bool,
    /// It was told that etcd is at an earlier revision than it was, since it was restored, or began anew; there was no later view since.
    has_gone_back: bool,
    is_out_of_touch: bool,
    pause: Duration,
}

impl<T: FnMut(Told)> Follow<T> {
    async fn run(&mut self) {
        loop {
            let Err(broken) = self.session().await;
            match broken {
                Broken::Away(why) | Broken::Refused(why) => {
                    self.away(why);
                    self.shared.reconnects.fetch_add(1, Ordering::Relaxed);
                    self.link.turn();
                    sleep(self.pause).await;
                    self.pause = PAUSES.1.min(self.pause * 2);
                }
                Broken::Compacted => self.is_compacted = true,
                Broken::End => return,
            }
        }
    }

    /// One connection, until etcd has ended it.
    async fn session(&mut self) -> Result<Infallible, Broken> {
        let (view, alive) = (self.keys.view(), self.keys.alive(self.who.me()));
        let gets = [TxnOp::get(view.clone(), None), TxnOp::get(alive.clone(), None)];
        let read = async |mut client: Client| client.txn(Txn::new().and_then(gets)).await;
        let read = self.link.once(read).await?;
        // Not the revision yet: it is looked whether it has gone back.
        self.heard(None);
        let revision = read.header().map_or(0, ResponseHeader::revision);
        let mut found = gets_of(&read.op_responses()).into_iter().map(|mut kvs| kvs.pop());
        let (found, said) = (found.next().flatten(), found.next().flatten());
        let from = self.catch_up(revision, found.as_ref())?;

        let watch = async |mut client: Client| {
            let mut watch = client.watch(view.clone(), Some(WatchOptions::new().with_start_revision(from))).await?;
            watch.watch(alive, Some(WatchOptions::new().with_start_revision(revision + 1))).await?;
            Ok(watch)
        };
        let mut watch = self.link.once(watch).await?;
        self.heard(None);
        self.is_said = false;
        let mut keeping = None;
        unless_refused(self.begin_to_keep(&mut keeping, said).await)?;

        let period = self.shared.lease / 3;
        let mut tick = interval_at(tokio::time::Instant::now() + period, period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = watch.message() => {
                    let ended = || Broken::Away("it has ended the watch".into());
                    let message = message?.ok_or_else(ended)?;
                    self.heard(message.header());
                    if message.canceled() {
                        let is_compacted = message.compact_revision() > 0;
                        return Err(if is_compacted { Broken::Compacted } else { ended() });
                    }
                    for event in message.events() {
                        unless_refused(self.take(event, view.as_bytes(), &mut keeping).await)?;
                    }
                }
                _ = tick.tick() => {
                    unless_refused(self.keep(&mut keeping).await)?;
                    self.pause = PAUSES.0;
                }
            }
        }
    }

    /// etcd has answered, and said at which revision it is.
    fn heard(&mut self, header: Option<&ResponseHeader>) {
        let heard_ms = u64::try_from(self.shared.begun.elapsed().as_millis()).unwrap_or(NEVER - 1);
        self.shared.heard_ms.store(heard_ms, Ordering::Relaxed);
        self.highest = self.highest.max(header.map_or(0, ResponseHeader::revision));
        if std::mem::take(&mut self.is_out_of_touch) {
            self.tell(Told::InTouch);
        }
    }

    /// etcd has not answered, or not done it.
    fn away(&mut self, why: String) {
        let heard_ms = match self.shared.heard_ms.load(Ordering::Relaxed) {
            NEVER => 0,
            heard_ms => heard_ms,
        };
        let silent = self.shared.begun.elapsed().saturating_sub(Duration::from_millis(heard_ms));
        if silent > self.shared.lease && !std::mem::replace(&mut self.is_out_of_touch, true) {
            self.tell(Told::OutOfTouch(why));
        }
    }

    fn tell(&mut self, told: Told) {
        (self.told)(told);
    }

    /// What was found at a revision. Returns the one from which the view is to be watched.
    fn catch_up(&mut self, revision: i64, found: Option<&KeyValue>) -> Result<i64, Broken> {
        let is_compacted = std::mem::take(&mut self.is_compacted);
        let highest = std::mem::replace(&mut self.highest, revision);
        if revision < highest && !std::mem::replace(&mut self.has_gone_back, true) {
            self.tell(Told::Unreadable(format!(
                "etcd is at revision {revision}, and was at {highest} before: it was restored, or began anew; changes are not heard until etcd is past \
                 revision {}: start the members again once the cluster is in it",
                self.last
            )));
        }
        match found {
            None => self.missing(),
            Some(found) if found.mod_revision() <= self.last => {}
            Some(found) if is_compacted => self.take_view(found)?,
            Some(_) => return Ok(self.last + 1),
        }
        Ok(revision + 1)
    }

    /// There is no view. An etcd that has lost what it had, or a slip, ends nobody.
    fn missing(&mut self) {
        if !self.has_gone_back && !std::mem::replace(&mut self.is_missing, true) {
            let why =
                "the cluster is not in etcd any more; once it is there again (guira cluster create) it is followed";
            self.tell(Told::Unreadable(why.into()));
        }
    }

    fn take_view(&mut self, found: &KeyValue) -> Result<(), Broken> {
        if found.mod_revision() <= self.last {
            return Ok(());
        }
        self.last = found.mod_revision();
        (self.is_missing, self.has_gone_back) = (false, false);
        let Follower { me, seen, .. } = &self.who;
        let told = match self.keys.read(found.value(), &seen.file.secret) {
            Err(error) => Told::Unreadable(error.to_string()),
            Ok(file) if !file.member(self.who.me()).is_some_and(|member| changes::is_the_same(member, me)) => {
                self.tell(Told::Removed);
                return Err(Broken::End);
            }
            Ok(file) => match changes::check(&seen.file, &file) {
                Err(why) => Told::Unreadable(why),
                Ok(()) => Told::View(View { epoch: epoch(self.last), file }),
            },
        };
        self.tell(told);
        Ok(())
    }

    async fn take(&mut self, event: &Event, view: &[u8], keeping: &mut Option<Keeping>) -> Result<(), Broken> {
        let Some(found) = event.kv() else { return Ok(()) };
        match (event.event_type(), found.key() == view) {
            (EventType::Put, true) => self.take_view(found)?,
            (EventType::Delete, true) => self.missing(),
            (EventType::Put, false) if Alive::read(found.value()) == Some(self.alive()) => {}
            (EventType::Put, false) => {
                self.is_said = false;
                self.say_alive(Some(found.clone())).await?;
            }
            // With its lease, or by hand.
            (EventType::Delete, false) => {
                self.is_said = false;
                self.keep(keeping).await?;
            }
        }
        Ok(())
    }

    fn alive(&self) -> Alive {
        Alive { life: self.who.life }
    }

    /// A lease that is there: the one of before, or a new one.
    async fn hold_lease(&mut self) -> Result<Keeping, Broken> {
        loop {
            let id = match self.lease {
                Some(id) => id,
                None => {
                    let lease_s = self.shared.lease.as_millis().div_ceil(1_000).max(1) as i64;
                    let grant = async |mut client: Client| client.lease_grant(lease_s, None).await;
                    let granted = self.link.once(grant).await?;
                    self.heard(granted.header());
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

    fn lost(&mut self) -> Result<(), Broken> {
        (self.lease, self.is_said) = (None, false);
        self.shared.leases_lost.fetch_add(1, Ordering::Relaxed);
        self.losses += 1;
        if self.losses < LOSSES_MAX { Ok(()) } else { Err(Broken::Away("it loses one lease after the other".into())) }
    }

    /// Holds a lease, and says that the member is alive under it.
    async fn begin_to_keep(&mut self, keeping: &mut Option<Keeping>, said: Option<KeyValue>) -> Result<(), Broken> {
        // Also of who gets no lease there may be a later life.
        self.look_for_later(said.as_ref())?;
        *keeping = Some(self.hold_lease().await?);
        self.say_alive(said).await
    }

    /// Keeps the lease; if it is lost, or there is none yet, there is another one, and the member is alive under that.
    async fn keep(&mut self, keeping: &mut Option<Keeping>) -> Result<(), Broken> {
        let Some((keeper, kept)) = keeping else { return self.begin_to_keep(keeping, None).await };
        let answer = async {
            keeper.keep_alive().await?;
            kept.message().await
        };
        let answer = self.link.wait(answer).await?;
        let answer = answer.ok_or_else(|| Broken::Away("it does not keep the lease any more".into()))?;
        self.heard(answer.header());
        if answer.ttl() > 0 {
            self.losses = 0;
            return if self.is_said { Ok(()) } else { self.say_alive(None).await };
        }
        *keeping = None;
        self.lost()?;
        self.begin_to_keep(keeping, None).await
    }

    fn look_for_later(&mut self, said: Option<&KeyValue>) -> Result<(), Broken> {
        match said.and_then(|said| Alive::read(said.value())) {
            Some(other) if other.life > self.who.life => {
                self.tell(Told::Outlived { life: other.life });
                Err(Broken::End)
            }
            _ => Ok(()),
        }
    }

    /// Says that the member is alive, unless a later life of it does, or there is no lease yet. `said` is what the key was found to be.
    async fn say_alive(&mut self, mut said: Option<KeyValue>) -> Result<(), Broken> {
        let key = self.keys.alive(self.who.me());
        for _ in 0..TRIES_MAX {
            self.look_for_later(said.as_ref())?;
            let Some(lease) = self.lease else { return Ok(()) };
            let is_mine = |said: &KeyValue| Alive::read(said.value()) == Some(self.alive()) && said.lease() == lease;
            if said.as_ref().is_some_and(is_mine) {
                self.is_said = true;
                return Ok(());
            }
            // Nothing, an earlier life, or an earlier lease.
            let revision = said.as_ref().map_or(0, KeyValue::mod_revision);
            let is_the_same = Compare::mod_revision(key.clone(), CompareOp::Equal, revision);
            let put = TxnOp::put(key.clone(), self.alive().print(), Some(PutOptions::new().with_lease(lease)));
            let txn = Txn::new().when([is_the_same]).and_then([put]).or_else([TxnOp::get(key.clone(), None)]);
            let answer = self.link.once(async |mut client: Client| client.txn(txn).await).await?;
            self.heard(answer.header());
            if answer.succeeded() {
                self.is_said = true;
                return Ok(());
            }
            said = gets_of(&answer.op_responses()).into_iter().flatten().next();
        }
        Err(Broken::Away("others say of this member that it is alive, again and again".into()))
    }

    /// The member is not alive any more.
    async fn give_up(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let revoke = self.link.once(async |mut client: Client| client.lease_revoke(lease).await);
        // In vain, it runs out.
        let _ = timeout(REVOKE_WITHIN, revoke).await;
    }
}
