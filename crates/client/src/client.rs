//! A client: asks, and waits for the answer.
//!
//! Always true: every call ends, with an answer or an error for each operation, at the latest some time after `answer_within_ms` of the cluster's
//! file (for more operations than may be under way: after that for each part of them; for several of one key of which some may change it: for as long as each is
//! answered within that), or when the client is closed.

use std::{fmt, sync::Arc, time::Duration};
#[cfg(feature = "etcd")]
use std::{
    panic::resume_unwind,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use guira_chain::Reply;
use guira_cluster::{NodeClock, Transport, boot_now, unix_now};
use guira_item::{Answer, Request, Time};
use guira_routing::NodeId;
use guira_switched::{Life, Shares, StaticFile, host::Caller};

#[cfg(feature = "etcd")]
use crate::kept::{Access, Follow, Following, Place, Touch};
use crate::{
    Ask, ClientOptions, Closing, Compared, ConnectError, Error, Expires, Item, Outcome, Value, Version,
    connect::{begin_life, bind, start},
    running::Running,
};

/// A program's way to a cluster, for all of its threads: clones are the same client, which ends with the last of them or is [closed](Self::close).
///
/// # Bounds
/// 4,096 operations are under way at most, and in them 64 MiB of values to be stored, or 16 items of the longest if that is more: who asks for more
/// waits until there is room. Answers of [`batch`](Self::batch) and [`get_many`](Self::get_many) may have 256 MiB of values, or 64 items of the
/// longest, over all calls that are under way: what comes beyond that [fails](Error::Busy), or of unknown outcome if it may have changed
/// something; so ask for fewer at a time. Who waits for room waits behind all who came before, also behind what a backend that is away has not answered.
#[derive(Clone)]
pub struct Client(Arc<Inside>);

struct Inside {
    me: NodeId,
    item_len_max: usize,
    caller: Caller,
    /// For as long as this is kept it is told who comes and goes, by etcd.
    #[cfg(feature = "etcd")]
    following: Mutex<Option<Following>>,
    running: Arc<Running>,
}

impl Inside {
    fn start(
        transport: Transport,
        file: &StaticFile,
        shares: &Shares,
        me: NodeId,
        life: Life,
    ) -> Result<Self, ConnectError> {
        let (host, caller) = start(transport, file, shares, me, life)?;
        Ok(Self {
            me,
            item_len_max: file.item_len_max,
            caller,
            #[cfg(feature = "etcd")]
            following: Mutex::new(None),
            running: Arc::new(Running::new(host)),
        })
    }

    #[cfg(feature = "etcd")]
    fn following(&self) -> MutexGuard<'_, Option<Following>> {
        // It is moved out whole.
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("me", &self.0.me)
            .field("is_closed", &self.0.running.is_closed())
            .finish_non_exhaustive()
    }
}

/// The cluster's second, by the wall clock as it is now.
fn cluster_now() -> Time {
    let now = boot_now();
    NodeClock::set(now, unix_now()).time(now)
}

impl Client {
    /// Becomes a member of a cluster: the one with this number in its file, which has to be a gateway. Nobody is waited for: what is asked before
    /// the members have met waits, and members that are away are found when they come.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(file: &StaticFile, me: NodeId, options: &ClientOptions) -> Result<Self, ConnectError> {
        file.check().map_err(ConnectError::File)?;
        let members = file.members().map_err(ConnectError::File)?;
        Self::on(bind(file, members, me)?, file, me, options)
    }

    /// On sockets that are bound.
    pub(crate) fn on(
        transport: Transport,
        file: &StaticFile,
        me: NodeId,
        options: &ClientOptions,
    ) -> Result<Self, ConnectError> {
        let shares = file.shares().map_err(ConnectError::File)?;
        Ok(Self(Arc::new(Inside::start(transport, file, &shares, me, begin_life(options)?)?)))
    }

    /// Becomes a member of a cluster that etcd keeps: the one with this number, which has to be a gateway. From then on it hears of who comes and goes,
    /// and `guira cluster members` shows that it is alive. While etcd is away it goes on as it is. Once the cluster does not name it any more it
    /// [closes](Self::closing).
    ///
    /// `secret` is what members know each other by, which is not in etcd. Etcd is asked for some seconds; members are not waited for, as in
    /// [`connect`](Self::connect).
    ///
    /// # Errors
    /// [`ConnectError`].
    #[cfg(feature = "etcd")]
    pub fn connect_by_etcd(
        place: &Place,
        access: &Access,
        secret: &str,
        me: NodeId,
        options: &ClientOptions,
    ) -> Result<Self, ConnectError> {
        let connect = || {
            let follow = Follow::read(place, access, secret, me)?;
            let view = follow.view();
            let members = view.file.members_in(view.epoch).map_err(ConnectError::File)?;
            let transport = bind(&view.file, members, me)?;
            let life = begin_life(options)?;
            let mut inside = Inside::start(transport, &view.file, &view.shares(), me, life)?;
            inside.following = Mutex::new(Some(follow.begin(life, &inside.running)?));
            Ok(Self(Arc::new(inside)))
        };
        // On a thread of its own: the caller's may be one of a runtime, on which etcd cannot be asked.
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("guira-connect".into()).spawn_scoped(scope, connect);
            thread.map_err(ConnectError::Start)?.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// How it is with etcd; `None` if that is not asked, or the client is closed.
    #[cfg(feature = "etcd")]
    pub fn etcd_touch(&self) -> Option<Touch> {
        self.0.following().as_ref().filter(|_| !self.0.running.is_closed()).map(Following::touch)
    }

    /// What is amiss with etcd, in a line: why it is away, why what is there cannot be gone by, or why it does not let the client say that it is alive; `None`
    /// if nothing is, or the client is closed.
    #[cfg(feature = "etcd")]
    pub fn etcd_trouble(&self) -> Option<String> {
        self.0.following().as_ref().filter(|_| !self.0.running.is_closed()).and_then(Following::trouble)
    }

    /// Ends it, for all clones of it. Who waits is answered: changes that are under way with [`Error::Unknown`], all else with
    /// [`Error::Closed`], as is what is asked from then on.
    pub fn close(&self) {
        self.0.running.close(Closing::Asked);
        #[cfg(feature = "etcd")]
        {
            // Taken out first: its end is waited for.
            let following = self.0.following().take();
            drop(following);
        }
    }

    /// Why it is closed; `None` while it is not.
    pub fn closing(&self) -> Option<Closing> {
        self.0.running.closing()
    }

    /// Asks for all of these at once, from this thread, and waits for the answers, which come in their order. Those for one key are
    /// carried out in their order, and otherwise in no particular one: what is to come after something else belongs into a later batch.
    ///
    /// # Errors
    /// [`Error`], for each by itself.
    pub fn batch<'a>(&self, asks: impl IntoIterator<Item = Ask<'a>>) -> Vec<Result<Outcome, Error>> {
        let Inside { item_len_max, caller, .. } = &*self.0;
        let now = cluster_now();
        let checked: Vec<_> = asks.into_iter().map(|ask| ask.request(now, *item_len_max)).collect();
        let requests: Vec<Request<'_>> = checked.iter().filter_map(|request| request.ok()).collect();
        let mut replies = caller.ask(&requests).into_iter();
        let outcome = |checked: Result<Request<'_>, Error>| {
            let request = checked?;
            let reply = replies.next().expect("there is one for each");
            Outcome::of(reply, &request, *item_len_max).map_err(|error| self.told(error))
        };
        checked.into_iter().map(outcome).collect()
    }

    /// Of a closed client: that it is closed.
    fn told(&self, error: Error) -> Error {
        if error == Error::Refused && self.0.running.is_closed() { Error::Closed } else { error }
    }

    fn one(&self, ask: Ask<'_>) -> Result<Outcome, Error> {
        self.batch([ask]).remove(0)
    }

    /// The item under a key, if there is one.
    ///
    /// # Errors
    /// [`Error`]; never [`Error::Unknown`], since nothing changes.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>, Error> {
        self.one(Ask::get(&key))?.item()
    }

    /// The items under these keys, in their order, asked for at once.
    ///
    /// # Errors
    /// [`Error`], for each by itself.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Item>, Error>> {
        self.batch(keys.iter().map(Ask::get)).into_iter().map(|outcome| outcome?.item()).collect()
    }

    /// The item under a key, if there is one, which from now on ends then.
    ///
    /// # Errors
    /// [`Error`].
    pub fn get_and_touch(&self, key: impl AsRef<[u8]>, expires: Expires) -> Result<Option<Item>, Error> {
        self.one(Ask::get_and_touch(&key, expires))?.item()
    }

    /// Stores a value, whatever is there; its version.
    ///
    /// # Errors
    /// [`Error`].
    pub fn set<'v>(&self, key: impl AsRef<[u8]>, value: impl Into<Value<'v>>) -> Result<Version, Error> {
        self.one(Ask::set(&key, value.into()))?.stored()?.ok_or(Error::Unknown)
    }

    /// Stores a value if nothing is there; its version, or `None` if something is.
    ///
    /// # Errors
    /// [`Error`].
    pub fn add<'v>(&self, key: impl AsRef<[u8]>, value: impl Into<Value<'v>>) -> Result<Option<Version>, Error> {
        self.one(Ask::add(&key, value.into()))?.stored()
    }

    /// Stores a value if something is there; its version, or `None` if nothing is.
    ///
    /// # Errors
    /// [`Error`].
    pub fn replace<'v>(&self, key: impl AsRef<[u8]>, value: impl Into<Value<'v>>) -> Result<Option<Version>, Error> {
        self.one(Ask::replace(&key, value.into()))?.stored()
    }

    /// Puts bytes behind the value that is there, which keeps its flags and its end; its version, or `None` if nothing is there.
    ///
    /// # Errors
    /// [`Error`].
    pub fn append(&self, key: impl AsRef<[u8]>, bytes: impl AsRef<[u8]>) -> Result<Option<Version>, Error> {
        self.one(Ask::append(&key, &bytes))?.stored()
    }

    /// Puts bytes before the value that is there, which keeps its flags and its end; its version, or `None` if nothing is there.
    ///
    /// # Errors
    /// [`Error`].
    pub fn prepend(&self, key: impl AsRef<[u8]>, bytes: impl AsRef<[u8]>) -> Result<Option<Version>, Error> {
        self.one(Ask::prepend(&key, &bytes))?.stored()
    }

    /// Stores a value if what is there has this version: if nobody has changed it since it was read.
    ///
    /// # Errors
    /// [`Error`].
    pub fn compare_and_set<'v>(
        &self,
        key: impl AsRef<[u8]>,
        version: Version,
        value: impl Into<Value<'v>>,
    ) -> Result<Compared, Error> {
        self.one(Ask::compare_and_set(&key, version, value.into()))?.compared()
    }

    /// Removes an item; whether there was one.
    ///
    /// # Errors
    /// [`Error`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.one(Ask::delete(&key))?.was_there()
    }

    /// Adds to the decimal number that is there, wrapping around at 2^64; what it is then, or `None` if nothing is there.
    ///
    /// # Errors
    /// [`Error`].
    pub fn increment(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.one(Ask::increment(&key, delta))?.number()
    }

    /// Subtracts from the decimal number that is there, stopping at 0; what it is then, or `None` if nothing is there. As with memcached, the
    /// text of a number that has become shorter is filled up with spaces.
    ///
    /// # Errors
    /// [`Error`].
    pub fn decrement(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.one(Ask::decrement(&key, delta))?.number()
    }

    /// Has an item end then; whether there is one.
    ///
    /// # Errors
    /// [`Error`].
    pub fn touch(&self, key: impl AsRef<[u8]>, expires: Expires) -> Result<bool, Error> {
        self.one(Ask::touch(&key, expires))?.was_there()
    }

    /// Removes all items of the cluster that are there now.
    ///
    /// # Errors
    /// [`Error`]: [`Error::Unknown`] also if some backends have done it and others have not.
    pub fn flush_all(&self) -> Result<(), Error> {
        self.flush(Time::default())
    }

    /// Has all items of the cluster removed that are there in so long, counted as [`Expires::In`] counts. Each backend does it by itself then, whoever has
    /// died meanwhile. Of several that are to come the one counts that was asked for last, and none after [`Client::flush_all`]. Each goes by its own clock: if this
    /// machine's is behind a backend's by as long as this, the backend does it at once.
    ///
    /// # Errors
    /// As [`Client::flush_all`].
    pub fn flush_all_in(&self, time: Duration) -> Result<(), Error> {
        let at = Expires::In(time).expiry(cluster_now());
        self.flush(Time(at.to_raw()))
    }

    fn flush(&self, at: Time) -> Result<(), Error> {
        match self.0.caller.flush_all(at) {
            Reply::Answer(Answer::Deleted, _) => Ok(()),
            Reply::Answer(Answer::Failed(why), _) => Err(self.told(why.into())),
            _ => Err(Error::Unknown),
        }
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
