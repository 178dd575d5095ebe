//! A client: asks, and waits for the answer.
//!
//! Always true: every call ends, with an answer or an error for each operation, at the latest some time after `answer_within_ms` of the cluster's
//! file (for more operations than may be under way: after that for each part of them), or when the client is closed.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use guira_chain::Reply;
use guira_cluster::{NodeClock, Transport, boot_now, unix_now};
use guira_item::{Answer, Request, Time};
use guira_routing::NodeId;
use guira_switched::{
    StaticFile,
    host::{Caller, GatewayHost, MemberHost},
};

use crate::{
    Ask, ClientOptions, Compared, ConnectError, Error, Expires, Item, Outcome, Value, Version,
    connect::{bind, start},
};

/// A program's way to a cluster, for all of its threads: clones are the same client, which ends with the last of them or is [closed](Self::close).
///
/// # Bounds
/// 4,096 operations are under way at most, and in them 64 MiB of values to be stored, or 16 items of the longest if that is more: who asks for more
/// waits until there is room. Answers of [`batch`](Self::batch) and [`get_many`](Self::get_many) may have 256 MiB of values, or 64 items of the
/// longest, over all calls that are under way: what comes beyond that is [refused](Error::Refused), or of unknown outcome if it may have changed
/// something; so ask for fewer at a time. Who waits for room waits behind all who came before, also behind what a backend that is away has not answered.
#[derive(Clone)]
pub struct Client(Arc<Inside>);

struct Inside {
    me: NodeId,
    item_len_max: usize,
    caller: Caller,
    /// `None` once it is closed.
    host: Mutex<Option<GatewayHost>>,
}

impl Inside {
    fn host(&self) -> MutexGuard<'_, Option<GatewayHost>> {
        // It is moved out whole.
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        self.host().as_ref().is_none_or(|host| !host.runs())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("me", &self.0.me).field("is_closed", &self.0.is_closed()).finish_non_exhaustive()
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
        Self::on(bind(file, me)?, file, me, options)
    }

    /// On sockets that are bound.
    pub(crate) fn on(
        transport: Transport,
        file: &StaticFile,
        me: NodeId,
        options: &ClientOptions,
    ) -> Result<Self, ConnectError> {
        let (host, caller) = start(transport, file, me, options)?;
        let host = Mutex::new(Some(host));
        Ok(Self(Arc::new(Inside { me, item_len_max: file.item_len_max, caller, host })))
    }

    /// Ends it, for all clones of it. Who waits is answered: changes that are under way with [`Error::Unknown`], all else with
    /// [`Error::Closed`], as is what is asked from then on.
    pub fn close(&self) {
        // Taken out first: who was waiting looks whether it is there.
        let host = self.0.host().take();
        drop(host);
    }

    /// Asks for all of these at once, from this thread, and waits for the answers, which come in their order. They are carried out in no
    /// particular order: what is to come after something else belongs into a later batch.
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
        if error == Error::Refused && self.0.is_closed() { Error::Closed } else { error }
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
            Reply::Answer(Answer::Failed { unknown: false }, _) => Err(self.told(Error::Refused)),
            _ => Err(Error::Unknown),
        }
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
