//! A member that says that it is alive, is told of views, and has partitions given away.
//!
//! ```text
//! connect -> read view, map, alive/ID -> watch all -> hold a lease -> say alive ---- a view, a map, a later life --> told
//!    ^  ^                                    |                 ^  refused:  |  |
//!    |  |                                    |                 +- the tick -+  |
//!    |  +-- what was to be watched is compacted, or view and map do not fit: read anew
//!    +-- etcd is away: another host, after a pause ----------------------------+
//! ```
//! Always true: what is told (`heard`) rises; nothing is told after that the member is no longer one, or that there is a later life of it. Nobody is told of
//! the end but by a view that does not name it, or a later life: not because etcd is away, has lost a lease (`lease`), or has lost all. Beside all that, over a
//! connection of its own, what is given away is put into the map (`commits`).

mod commits;
mod heard;
mod lease;

use std::{
    cell::RefCell,
    convert::Infallible,
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use etcd_client::{Client, Event, EventType, ResponseHeader, Txn, TxnOp, WatchOptions};
use guira_cluster::Incarnation;
use guira_routing::NodeId;
use guira_switched::{Commit, Committed, Member};
use tokio::{
    runtime::Runtime,
    sync::{
        mpsc,
        oneshot::{self, Sender},
    },
    time::{MissedTickBehavior, interval_at, sleep},
};

use self::{
    commits::{Commits, Order},
    heard::{End, Heard, Unfit},
    lease::Keeping,
};
use crate::{
    View,
    asking::{Found, gets_of},
    link::{Failure, Link},
    view::Keys,
};

/// The pause before it is tried again: it doubles up to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Who follows.
pub struct Follower {
    /// The member, as it began: one that is another one in a view is not there any more.
    pub me: Member,
    /// The number of its life.
    pub life: Incarnation,
    /// The view that it has read, and its secret: the controller stays who it is in it.
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
    /// This view replaces those before it: with another file, another map, or both.
    View(Box<View>),
    /// What is there now cannot be read as a cluster, or not be followed, or nothing is there: the view before it stays.
    Unreadable(String),
    /// There is a view in which it is not a member any more, or has another address or role, or another number of threads.
    Removed,
    /// etcd has not answered for the time of a lease: why not, in a line. It is asked on.
    OutOfTouch(String),
    /// It has answered again.
    InTouch,
    /// etcd does not let it say that it is alive: why not, in a line. It hears of views, and tries again.
    Unsaid(String),
    /// It has let it.
    Said,
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
    committer: Committer,
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

    /// Through which partitions are given away in the map.
    pub fn committer(&self) -> &Committer {
        &self.committer
    }
}

/// Has partitions given away in the map, one after the other.
#[derive(Clone, Debug)]
pub struct Committer {
    /// It is not known yet what came of the last.
    is_busy: Arc<AtomicBool>,
    orders: mpsc::Sender<Order>,
}

impl Committer {
    fn new(orders: mpsc::Sender<Order>) -> Self {
        Self { is_busy: Arc::new(AtomicBool::new(false)), orders }
    }

    /// Has partitions given away in the map, for as long as it takes: `done` is called once it is known for certain what came of it, on the thread that is
    /// told of views, after a view with each map that was seen on the way. It is never called if this life, or the member, is no more, or
    /// [`Following`] is dropped.
    ///
    /// # Panics
    /// What came of the one before is not known yet: a backend gives to one at a time.
    pub fn commit(&self, commit: Commit, done: impl FnOnce(Committed) + Send + 'static) {
        let was = self.is_busy.swap(true, Ordering::Relaxed);
        assert!(!was, "two commits at a time");
        let is_busy = Arc::clone(&self.is_busy);
        let done = Box::new(move |committed| {
            is_busy.store(false, Ordering::Relaxed);
            done(committed);
        });
        // There is room, since the one before was taken out; after the last thing was told nobody takes it.
        let _ = self.orders.try_send(Order { commit, done });
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
    // There is one at a time.
    let (orders, mut ordered) = mpsc::channel(1);
    let (me, life) = (who.me(), who.life);
    let (of_commits, known) = (link.another(), Arc::clone(&shared));
    let run = move || {
        let highest = who.seen.epoch.0.max(who.seen.revision.0).cast_signed();
        let heard = RefCell::new(Heard::new(keys.clone(), who, told));
        let mut commits = Commits { link: of_commits, keys: keys.clone(), me, life, heard: &heard };
        let mut follow = Follow {
            link,
            keys,
            me,
            life,
            heard: &heard,
            highest,
            shared: known,
            lease: None,
            losses: 0,
            is_said: false,
            is_unsaid: false,
            is_read_anew: false,
            is_out_of_touch: false,
            pause: PAUSES.0,
        };
        runtime.block_on(async {
            tokio::select! {
                () = follow.run() => {}
                () = commits.run(&mut ordered) => {}
                _ = stopped => {}
            }
            follow.give_up().await;
        });
    };
    let thread = thread::Builder::new().name("guira-etcd".into()).spawn(run)?;
    Ok(Following { shared, committer: Committer::new(orders), stop: Some(stop), thread: Some(thread) })
}

/// Why it is not gone on with as before.
enum Broken {
    /// The last thing was told.
    End,
    /// etcd is away: why, in a line.
    Away(String),
    /// etcd does not do it, and may later: why, in a line.
    Refused(String),
    /// What was to be watched is not kept any more, or what was heard does not fit: what is there is read at one revision.
    Anew,
}

impl From<End> for Broken {
    fn from(_: End) -> Self {
        Self::End
    }
}

impl From<Unfit> for Broken {
    fn from(_: Unfit) -> Self {
        Self::Anew
    }
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(why) | Failure::Forbidden(why) => Self::Refused(why),
            other => Self::Away(other.why()),
        }
    }
}

impl From<etcd_client::Error> for Broken {
    fn from(error: etcd_client::Error) -> Self {
        Failure::from(error).into()
    }
}

struct Follow<'f, T> {
    link: Link,
    keys: Keys,
    me: NodeId,
    life: Incarnation,
    heard: &'f RefCell<Heard<T>>,
    shared: Arc<Shared>,
    /// The highest revision that etcd has said it is at.
    highest: i64,
    lease: Option<i64>,
    /// Leases that were lost since one was kept last.
    losses: u32,
    /// The member has said that it is alive, under that lease.
    is_said: bool,
    /// It was told that it may not say so.
    is_unsaid: bool,
    /// Views after the last one are not waited for: what is there is taken.
    is_read_anew: bool,
    is_out_of_touch: bool,
    pause: Duration,
}

impl<T: FnMut(Told)> Follow<'_, T> {
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
                Broken::Anew => self.is_read_anew = true,
                Broken::End => return,
            }
        }
    }

    /// One connection, until etcd has ended it.
    async fn session(&mut self) -> Result<Infallible, Broken> {
        let [view, map, alive] = [self.keys.view(), self.keys.partitions(), self.keys.alive(self.me)];
        let gets = [&view, &map, &alive].map(|key| TxnOp::get(key.clone(), None));
        let read = async |mut client: Client| client.txn(Txn::new().and_then(gets)).await;
        let read = self.link.once(read).await?;
        // Not the revision yet: it is looked whether it has gone back.
        self.has_answered(None);
        let revision = read.header().map_or(0, ResponseHeader::revision);
        let mut found = gets_of(&read.op_responses()).into_iter().map(|mut kvs| kvs.pop());
        let mut found = || found.next().flatten();
        let (found, said) = (Found { view: found(), map: found() }, found());
        let view_from = self.catch_up(revision, &found)?;

        let watch = async |mut client: Client| {
            let from = |revision| Some(WatchOptions::new().with_start_revision(revision));
            let mut watch = client.watch(view, from(view_from)).await?;
            watch.watch(map, from(revision + 1)).await?;
            watch.watch(alive, from(revision + 1)).await?;
            Ok(watch)
        };
        let mut watch = self.link.once(watch).await?;
        self.has_answered(None);
        self.is_said = false;
        let mut keeping = None;
        let begun = self.begin_to_keep(&mut keeping, said).await;
        self.unless_refused(begun)?;

        let period = self.shared.lease / 3;
        let mut tick = interval_at(tokio::time::Instant::now() + period, period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = watch.message() => {
                    let ended = || Broken::Away("it has ended the watch".into());
                    let message = message?.ok_or_else(ended)?;
                    self.has_answered(message.header());
                    if message.canceled() {
                        let is_compacted = message.compact_revision() > 0;
                        return Err(if is_compacted { Broken::Anew } else { ended() });
                    }
                    for event in message.events() {
                        let taken = self.take(event, &mut keeping).await;
                        self.unless_refused(taken)?;
                    }
                }
                _ = tick.tick() => {
                    let kept = self.keep(&mut keeping).await;
                    self.unless_refused(kept)?;
                    self.pause = PAUSES.0;
                }
            }
        }
    }

    /// etcd has answered, and said at which revision it is.
    fn has_answered(&mut self, header: Option<&ResponseHeader>) {
        let heard_ms = u64::try_from(self.shared.begun.elapsed().as_millis()).unwrap_or(NEVER - 1);
        self.shared.heard_ms.store(heard_ms, Ordering::Relaxed);
        self.highest = self.highest.max(header.map_or(0, ResponseHeader::revision));
        if mem::take(&mut self.is_out_of_touch) {
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
        if silent > self.shared.lease && !mem::replace(&mut self.is_out_of_touch, true) {
            self.tell(Told::OutOfTouch(why));
        }
    }

    fn tell(&mut self, told: Told) {
        self.heard.borrow_mut().tell(told);
    }

    /// What was found at a revision. Returns the one from which the view is to be watched.
    fn catch_up(&mut self, revision: i64, found: &Found) -> Result<i64, Broken> {
        let mut heard = self.heard.borrow_mut();
        let is_read_anew = mem::take(&mut self.is_read_anew);
        let highest = mem::replace(&mut self.highest, revision);
        if revision < highest {
            heard.gone_back(revision, highest);
        }
        match (&found.view, &found.map) {
            (_, Some(map)) => heard.take_map(map),
            (Some(_), None) => heard.map_missing(),
            (None, None) => {}
        }
        let last_view = heard.last_view();
        match &found.view {
            None => heard.missing(),
            Some(view) if is_read_anew => heard.take_view(view)?,
            // Each that came since is told.
            Some(view) if view.mod_revision() > last_view => return Ok(last_view + 1),
            Some(_) => {}
        }
        heard.tell_newest_of_all();
        Ok(revision + 1)
    }

    async fn take(&mut self, event: &Event, keeping: &mut Option<Keeping>) -> Result<(), Broken> {
        let Some(found) = event.kv() else { return Ok(()) };
        let is_put = event.event_type() == EventType::Put;
        if found.key() == self.keys.alive(self.me).as_bytes() {
            return self.take_alive(found, is_put, keeping).await;
        }
        let mut heard = self.heard.borrow_mut();
        match (found.key() == self.keys.view().as_bytes(), is_put) {
            (true, true) => heard.take_view(found)?,
            (true, false) => heard.missing(),
            (false, true) => heard.take_map(found),
            (false, false) => heard.map_missing(),
        }
        Ok(heard.tell_newest()?)
    }
}
