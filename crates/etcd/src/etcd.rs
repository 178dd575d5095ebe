//! A cluster in etcd: it is made, read and changed.
//!
//! ```text
//! change:  read view (revision N) -> change it -> is it a cluster? -> put it, if its revision is N still
//!                ^                                                        |
//!                +----------- somebody else was faster -------------------+
//! ```
//! Always true: what is answered to a read was so after the read began; a put whose answer is lost is put again, on the same condition, which holds for
//! one of the two at most.

use std::fmt;

use etcd_client::{Client, Compare, CompareOp, GetOptions, GetResponse, KeyValue, Txn, TxnOp, TxnOpResponse};
use guira_cluster::Epoch;
use guira_switched::{Member, StaticFile};
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};

use crate::{
    Alive, EtcdError, FollowOptions, Follower, Following, Place, Told, View, changes,
    follow::follow,
    link::{Failure, Link, OPERATION},
    view::Keys,
};

/// How often a change is tried, if others are faster: each time one of them has made a change.
const TRIES_MAX: u32 = 16;

/// Changes between one whose answer was lost and now, at most, for it to be found.
const CHANGES_SINCE_MAX: usize = 64;

/// A cluster in etcd. Its operations block, each for a bounded time: they may not be called on a thread that runs a runtime of tokio.
pub struct Etcd {
    place: Place,
    keys: Keys,
    runtime: Runtime,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("place", &self.place).finish_non_exhaustive()
    }
}

/// What a view was when it was read, for a change to hold on to: both zero if there was none.
#[derive(Clone, Copy)]
struct AsOf {
    revision: i64,
    /// How often the key was put since it is there.
    version: i64,
}

impl Etcd {
    /// Looks whether etcd answers there, whatever is in it.
    ///
    /// # Errors
    /// [`EtcdError::Unreachable`], [`EtcdError::Denied`], [`EtcdError::Io`].
    pub fn connect(place: &Place) -> Result<Self, EtcdError> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(EtcdError::Io)?;
        let etcd = Self { place: place.clone(), keys: Keys::of(place), runtime };
        etcd.within(async |asking| asking.get(None).await)?;
        Ok(etcd)
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    fn within<T>(&self, operation: impl AsyncFnOnce(&mut Asking<'_>) -> Result<T, EtcdError>) -> Result<T, EtcdError> {
        let link = Link::to(&self.place);
        self.runtime.block_on(async {
            let mut asking = Asking { link, keys: &self.keys, until: Instant::now() + OPERATION };
            operation(&mut asking).await
        })
    }

    /// Makes the cluster. Its secret is not put into etcd.
    ///
    /// # Errors
    /// [`EtcdError`]; [`EtcdError::Exists`] if there is one of this name, [`EtcdError::OtherName`] if the file has another name than the place.
    pub fn create(&self, file: &StaticFile) -> Result<Epoch, EtcdError> {
        file.check()?;
        self.keys.check_name(file)?;
        let text = file.print_without_secret()?;
        let nothing = AsOf { revision: 0, version: 0 };
        let put = self.within(async |asking| match asking.get(None).await? {
            Some(_) => Ok(None),
            None => asking.put(nothing, &text).await,
        });
        put?.ok_or_else(|| EtcdError::Exists(self.place.name().to_owned()))
    }

    /// Reads it: as it is, or later.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn read(&self, secret: &str) -> Result<View, EtcdError> {
        let (as_of, text) = self.within(async |asking| asking.view().await)?;
        Ok(View { epoch: epoch(as_of.revision), file: self.keys.read(&text, secret)? })
    }

    /// Changes it: `change` is called with the cluster as it is, and again if others have changed that meanwhile. What it is then has no secret.
    ///
    /// # Errors
    /// [`EtcdError`]; [`EtcdError::Change`] with what `change` says, or if others would be the backends or the controller.
    pub fn change(&self, mut change: impl FnMut(&mut StaticFile) -> Result<(), String>) -> Result<View, EtcdError> {
        self.within(async |asking| {
            for _ in 0..TRIES_MAX {
                let (as_of, text) = asking.view().await?;
                let before = self.keys.read_without_secret(&text)?;
                let mut file = before.clone();
                change(&mut file).map_err(EtcdError::Change)?;
                // It is not put there; that one is there is checked.
                file.secret.clone_from(&before.secret);
                file.check()?;
                self.keys.check_name(&file)?;
                changes::check(&before, &file).map_err(EtcdError::Change)?;
                let text = file.print_without_secret()?;
                if let Some(epoch) = asking.put(as_of, &text).await? {
                    return Ok(View { epoch, file: StaticFile { secret: String::new(), ..file } });
                }
            }
            Err(EtcdError::ChangedMeanwhile { tries: TRIES_MAX })
        })
    }

    /// These come: cache nodes and gateways.
    ///
    /// # Errors
    /// [`EtcdError`]; [`EtcdError::Change`] if one of them cannot.
    pub fn add(&self, members: &[Member]) -> Result<View, EtcdError> {
        self.change(|file| changes::add(file, members))
    }

    /// These go: cache nodes, whose backends go to those that are left, and gateways.
    ///
    /// # Errors
    /// [`EtcdError`]; [`EtcdError::Change`] if one of them cannot.
    pub fn remove(&self, ids: &[u16]) -> Result<View, EtcdError> {
        self.change(|file| changes::remove(file, ids))
    }

    /// Who is in it, and which of them are alive, at one moment.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn members(&self) -> Result<Vec<(Member, Option<Alive>)>, EtcdError> {
        let (text, alive) = self.within(async |asking| asking.view_and_alive().await)?;
        let file = self.keys.read_without_secret(&text)?;
        let alive_of = |member: &Member| {
            let said = alive.iter().find(|kv| self.keys.member(kv.key()).is_some_and(|id| id.0 == member.id));
            said.and_then(|kv| Alive::read(kv.value()))
        };
        Ok(file.members.iter().map(|member| (member.clone(), alive_of(member))).collect())
    }

    /// Says that a member is alive, and tells it of each view after the one that it has seen, on a thread of its own, for as long as what it returns is
    /// kept. Views are told in order and none twice. Who is told may take his time, but not a lease's; and nobody drops [`Following`] there.
    ///
    /// # Errors
    /// [`EtcdError::Io`]. That etcd is away is no error: it is tried again.
    pub fn follow(
        self,
        who: Follower,
        options: FollowOptions,
        told: impl FnMut(Told) + Send + 'static,
    ) -> Result<Following, EtcdError> {
        follow(self.runtime, Link::to(&self.place), self.keys, who, options, told).map_err(EtcdError::Io)
    }
}

pub(crate) fn epoch(revision: i64) -> Epoch {
    Epoch(revision.cast_unsigned())
}

/// What one operation asks.
struct Asking<'e> {
    link: Link,
    keys: &'e Keys,
    until: Instant,
}

impl Asking<'_> {
    fn told(&self, failure: Failure) -> EtcdError {
        failure.into_error(&self.link)
    }

    /// The key of the view: as it was at a revision, or as it is.
    async fn get(&mut self, revision: Option<i64>) -> Result<Option<KeyValue>, EtcdError> {
        let get = async |mut client: Client| {
            let options = revision.map(|revision| GetOptions::new().with_revision(revision));
            client.get(self.keys.view(), options).await
        };
        let answer = self.link.ask(self.until, get).await;
        answer.map(|mut answer| answer.take_kvs().pop()).map_err(|failure| self.told(failure))
    }

    async fn view(&mut self) -> Result<(AsOf, Vec<u8>), EtcdError> {
        let found = self.get(None).await?.ok_or_else(|| EtcdError::NoCluster(self.keys.name().to_owned()))?;
        Ok((AsOf { revision: found.mod_revision(), version: found.version() }, found.value().to_vec()))
    }

    async fn view_and_alive(&mut self) -> Result<(Vec<u8>, Vec<KeyValue>), EtcdError> {
        let gets = async |mut client: Client| {
            let alive = TxnOp::get(self.keys.all_alive(), Some(GetOptions::new().with_prefix()));
            client.txn(Txn::new().and_then([TxnOp::get(self.keys.view(), None), alive])).await
        };
        let answer = self.link.ask(self.until, gets).await;
        let mut gets = gets_of(&answer.map_err(|failure| self.told(failure))?.op_responses());
        let alive = gets.pop().unwrap_or_default();
        let view = gets.pop().unwrap_or_default().pop();
        let view = view.ok_or_else(|| EtcdError::NoCluster(self.keys.name().to_owned()))?;
        Ok((view.value().to_vec(), alive))
    }

    /// Puts a view, if the one that is there is still the one it was; `None` if it is not.
    async fn put(&mut self, as_of: AsOf, text: &str) -> Result<Option<Epoch>, EtcdError> {
        let mut pauses = self.link.pauses(self.until);
        // Of an earlier attempt it is not known whether it was done.
        let mut is_doubtful = false;
        loop {
            let put = async |mut client: Client| {
                let key = self.keys.view();
                let is_the_same = Compare::mod_revision(key.clone(), CompareOp::Equal, as_of.revision);
                client.txn(Txn::new().when([is_the_same]).and_then([TxnOp::put(key, text, None)])).await
            };
            match self.link.once(put).await {
                Ok(answer) if answer.succeeded() => {
                    return Ok(answer.header().map(|header| epoch(header.revision())));
                }
                Ok(_) if !is_doubtful => return Ok(None),
                Ok(_) => return self.first_after(as_of, text).await,
                Err(Failure::Away(why)) => {
                    is_doubtful = true;
                    if !pauses.pause(&mut self.link).await {
                        return Err(EtcdError::Unknown(why));
                    }
                }
                Err(failure) if is_doubtful => return Err(EtcdError::Unknown(failure.why())),
                Err(failure) => return Err(self.told(failure)),
            }
        }
    }

    /// Whether the first that was put after `as_of` is `text`: then that was done, whoever has put what since. Should somebody else have put the very
    /// same, it is as if it were this.
    async fn first_after(&mut self, as_of: AsOf, text: &str) -> Result<Option<Epoch>, EtcdError> {
        let unknown = |why: &str| EtcdError::Unknown(why.to_owned());
        let mut revision = None;
        for _ in 0..CHANGES_SINCE_MAX {
            // What is compacted is not known any more.
            let found = self.get(revision).await.map_err(|error| unknown(&error.to_string()))?;
            let found = found.ok_or_else(|| unknown("the cluster is not there any more"))?;
            if found.version() == as_of.version + 1 {
                return Ok((found.value() == text.as_bytes()).then(|| epoch(found.mod_revision())));
            }
            revision = Some(found.mod_revision() - 1);
        }
        Err(unknown("others have changed the cluster since"))
    }
}

/// What the gets of a transaction have found, in their order.
pub(crate) fn gets_of(responses: &[TxnOpResponse]) -> Vec<Vec<KeyValue>> {
    let found = |response: &TxnOpResponse| match response {
        TxnOpResponse::Get(get) => Some(GetResponse::kvs(get).to_vec()),
        _ => None,
    };
    responses.iter().filter_map(found).collect()
}
