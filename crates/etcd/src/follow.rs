//! A member that says that it is alive, and is told of views.
//!
//! ```text
//! connect -> read view, alive/ID -> hold a lease -> say alive -> watch both ---- a view, a later life --> told
//!    ^  ^                                                          |    |
//!    |  +----- what was to be watched is compacted: read anew -----+    |
//!    +-- etcd is away: another host, after a pause ---------------------+
//! ```
//! Always true: the epochs that are told rise; a view that cannot be read changes nothing; nothing is told after that the member is no longer one, or
//! that there is a later life of it. Nobody is told of the end because etcd is away, or has lost a lease.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use etcd_client::{
    Client, Compare, CompareOp, Event, EventType, KeyValue, LeaseKeepAliveStream, LeaseKeeper, PutOptions, Txn, TxnOp,
    WatchOptions,
};
use guira_cluster::{Epoch, Incarnation};
use guira_routing::NodeId;
use tokio::{
    runtime::Runtime,
    sync::oneshot::{self, Sender},
    time::{MissedTickBehavior, interval_at, sleep, timeout},
};

use crate::{
    Alive, View,
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

/// Who follows.
pub struct Follower {
    /// The member.
    pub me: NodeId,
    /// The number of its life.
    pub life: Incarnation,
    /// The view that it has read.
    pub seen: Epoch,
    /// What members know each other by.
    pub secret: String,
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
    /// What is there now cannot be read as a cluster: the view before it stays.
    Unreadable(String),
    /// It is not a member any more.
    Removed,
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
        last: who.seen.0.cast_signed(),
        who,
        told,
        shared: Arc::clone(&shared),
        lease: None,
        is_compacted: false,
        has_gone_back: false,
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
    /// etcd is away, or does not do it.
    Away,
    /// What was to be watched is not kept any more.
    Compacted,
}

impl From<Failure> for Broken {
    fn from(_: Failure) -> Self {
        Self::Away
    }
}

impl From<etcd_client::Error> for Broken {
    fn from(_: etcd_client::Error) -> Self {
        Self::Away
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
    lease: Option<i64>,
    /// What came after `last` is not kept any more: what is there is read instead.
    is_compacted: bool,
    /// etcd is at an earlier revision than it was: it was restored, or began anew. That nothing is there says nothing then.
    has_gone_back: bool,
    pause: Duration,
}

impl<T: FnMut(Told)> Follow<T> {
    async fn run(&mut self) {
        loop {
            match self.session().await {
                Ok(()) | Err(Broken::Away) => {
                    self.shared.reconnects.fetch_add(1, Ordering::Relaxed);
                    self.link.turn();
                    sleep(self.pause).await;
                    self.pause = PAUSES.1.min(self.pause * 2);
                }
                Err(Broken::Compacted) => self.is_compacted = true,
                Err(Broken::End) => return,
            }
        }
    }

    /// One connection, until etcd has ended it.
    async fn session(&mut self) -> Result<(), Broken> {
        let (view, alive) = (self.keys.view(), self.keys.alive(self.who.me));
        let gets = [TxnOp::get(view.clone(), None), TxnOp::get(alive.clone(), None)];
        let read = async |mut client: Client| client.txn(Txn::new().and_then(gets)).await;
        let read = self.link.once(read).await?;
        self.heard();
        let revision = read.header().map_or(0, |header| header.revision());
        let mut found = gets_of(&read.op_responses()).into_iter().map(|mut kvs| kvs.pop());
        let (found, said) = (found.next().flatten(), found.next().flatten());
        let from = self.catch_up(revision, found.as_ref())?;

        let mut keeping = self.hold_lease().await?;
        self.say_alive(said).await?;
        let watch = async |mut client: Client| {
            let mut watch = client.watch(view.clone(), Some(WatchOptions::new().with_start_revision(from))).await?;
            watch.watch(alive, Some(WatchOptions::new().with_start_revision(revision + 1))).await?;
            Ok(watch)
        };
        let mut watch = self.link.once(watch).await?;
        self.heard();

        let period = self.shared.lease / 3;
        let mut tick = interval_at(tokio::time::Instant::now() + period, period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = watch.message() => {
                    let Some(message) = message? else { return Ok(()) };
                    self.heard();
                    if message.canceled() {
                        return Err(if message.compact_revision() > 0 { Broken::Compacted } else { Broken::Away });
                    }
                    for event in message.events() {
                        self.take(event, view.as_bytes(), &mut keeping).await?;
                    }
                }
                _ = tick.tick() => {
                    self.keep(&mut keeping).await?;
                    self.pause = PAUSES.0;
                }
            }
        }
    }

    fn heard(&self) {
        let heard_ms = u64::try_from(self.shared.begun.elapsed().as_millis()).unwrap_or(NEVER - 1);
        self.shared.heard_ms.store(heard_ms, Ordering::Relaxed);
    }

    fn tell(&mut self, told: Told) {
        (self.told)(told);
    }

    /// What was found at a revision. Returns the one from which the view is to be watched.
    fn catch_up(&mut self, revision: i64, found: Option<&KeyValue>) -> Result<i64, Broken> {
        let is_compacted = std::mem::take(&mut self.is_compacted);
        if revision < self.last {
            if !std::mem::replace(&mut self.has_gone_back, true) {
                self.tell(Told::Unreadable(format!(
                    "etcd is at revision {revision}, and was at {} before: it was restored, or began anew",
                    self.last
                )));
            }
            return Ok(revision + 1);
        }
        let Some(found) = found else {
            return if self.has_gone_back { Ok(revision + 1) } else { Err(self.removed()) };
        };
        if found.mod_revision() <= self.last {
            return Ok(revision + 1);
        }
        if !is_compacted {
            return Ok(self.last + 1);
        }
        // It was deleted meanwhile, and made anew.
        if found.create_revision() > self.last && !self.has_gone_back {
            return Err(self.removed());
        }
        self.take_view(found)?;
        Ok(revision + 1)
    }

    fn removed(&mut self) -> Broken {
        self.tell(Told::Removed);
        Broken::End
    }

    fn take_view(&mut self, found: &KeyValue) -> Result<(), Broken> {
        if found.mod_revision() <= self.last {
            return Ok(());
        }
        self.last = found.mod_revision();
        self.has_gone_back = false;
        match self.keys.read(found.value(), &self.who.secret) {
            Err(error) => self.tell(Told::Unreadable(error.to_string())),
            Ok(file) if file.member(self.who.me).is_none() => return Err(self.removed()),
            Ok(file) => self.tell(Told::View(View { epoch: epoch(self.last), file })),
        }
        Ok(())
    }

    async fn take(&mut self, event: &Event, view: &[u8], keeping: &mut Keeping) -> Result<(), Broken> {
        let Some(found) = event.kv() else { return Ok(()) };
        match (event.event_type(), found.key() == view) {
            (EventType::Put, true) => self.take_view(found),
            (EventType::Delete, true) if self.has_gone_back => Ok(()),
            (EventType::Delete, true) => Err(self.removed()),
            (EventType::Put, false) if Alive::read(found.value()) == Some(self.alive()) => Ok(()),
            (EventType::Put, false) => self.say_alive(Some(found.clone())).await,
            // With its lease, or by hand.
            (EventType::Delete, false) => {
                self.keep(keeping).await?;
                self.say_alive(None).await
            }
        }
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
                    self.link.once(grant).await?.id()
                }
            };
            self.lease = Some(id);
            let keep = async |mut client: Client| client.lease_keep_alive(id).await;
            match self.link.once(keep).await {
                Err(Failure::LeaseLost) => self.lost(),
                other => return Ok(other?),
            }
        }
    }

    fn lost(&mut self) {
        self.lease = None;
        self.shared.leases_lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps the lease; if it is lost, there is another one, and the member is alive under that.
    async fn keep(&mut self, keeping: &mut Keeping) -> Result<(), Broken> {
        let (keeper, kept) = keeping;
        let answer = async {
            keeper.keep_alive().await?;
            kept.message().await
        };
        let answer = self.link.wait(answer).await?.ok_or(Broken::Away)?;
        self.heard();
        if answer.ttl() > 0 {
            return Ok(());
        }
        self.lost();
        *keeping = self.hold_lease().await?;
        self.say_alive(None).await
    }

    /// Says that the member is alive, unless a later life of it does. `said` is what the key was found to be.
    async fn say_alive(&mut self, mut said: Option<KeyValue>) -> Result<(), Broken> {
        let lease = self.lease.ok_or(Broken::Away)?;
        let key = self.keys.alive(self.who.me);
        for _ in 0..TRIES_MAX {
            let mut revision = 0;
            if let Some(said) = &said {
                revision = said.mod_revision();
                match Alive::read(said.value()) {
                    Some(other) if other.life > self.who.life => {
                        self.tell(Told::Outlived { life: other.life });
                        return Err(Broken::End);
                    }
                    Some(other) if other == self.alive() && said.lease() == lease => return Ok(()),
                    // An earlier life, or an earlier lease.
                    _ => {}
                }
            }
            let is_the_same = Compare::mod_revision(key.clone(), CompareOp::Equal, revision);
            let put = TxnOp::put(key.clone(), self.alive().print(), Some(PutOptions::new().with_lease(lease)));
            let txn = Txn::new().when([is_the_same]).and_then([put]).or_else([TxnOp::get(key.clone(), None)]);
            let answer = self.link.once(async |mut client: Client| client.txn(txn).await).await?;
            self.heard();
            if answer.succeeded() {
                return Ok(());
            }
            said = gets_of(&answer.op_responses()).into_iter().flatten().next();
        }
        Err(Broken::Away)
    }

    /// The member is not alive any more.
    async fn give_up(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let revoke = self.link.once(async |mut client: Client| client.lease_revoke(lease).await);
        // In vain, it runs out.
        let _ = timeout(REVOKE_WITHIN, revoke).await;
    }
}
