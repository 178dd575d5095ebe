//! What one operation asks of etcd.
//!
//! Always true: a put whose answer is lost is put again, on the same conditions, which hold for one of the two at most.

use etcd_client::{Client, Compare, CompareOp, GetOptions, GetResponse, KeyValue, Txn, TxnOp, TxnOpResponse};
use guira_cluster::{Epoch, Incarnation};
use guira_routing::NodeId;
use guira_switched::Revision;
use tokio::time::Instant;

use crate::{
    Alive, EtcdError, View,
    link::{Failure, Link},
    view::{Keys, NO_SECRET},
};

/// Changes between one whose answer was lost and now, at most, for it to be found.
const CHANGES_SINCE_MAX: usize = 64;

/// How often it is tried to begin a life, if others change the key meanwhile.
const TRIES_MAX: usize = 16;

/// What a view was when it was read, for a change to hold on to: both zero if there was none.
#[derive(Clone, Copy)]
pub(crate) struct AsOf {
    revision: i64,
    /// How often the key was put since it is there.
    version: i64,
}

impl AsOf {
    pub(crate) fn of(view: Option<&KeyValue>) -> Self {
        view.map_or(Self { revision: 0, version: 0 }, |view| Self {
            revision: view.mod_revision(),
            version: view.version(),
        })
    }
}

/// What is put if things are as they were.
pub(crate) struct Put<'p> {
    /// The view that was there.
    pub(crate) as_of: AsOf,
    /// The view that is to be.
    pub(crate) text: &'p str,
    /// The revision of the map, if it matters; zero if there was none.
    pub(crate) map_was: Option<i64>,
    /// The map that is to be, if it is to be another one.
    pub(crate) map: Option<&'p [u8]>,
    /// Whose life matters, and its revision; zero if it has begun none.
    pub(crate) life_was: Option<(NodeId, i64)>,
}

/// What is in etcd of a cluster, at one revision.
pub(crate) struct Found {
    pub(crate) view: Option<KeyValue>,
    pub(crate) map: Option<KeyValue>,
}

impl Found {
    /// What was got of the view, and then of the map.
    fn of(gets: &mut impl Iterator<Item = Vec<KeyValue>>) -> Self {
        let mut next = || gets.next().and_then(|mut kvs| kvs.pop());
        Self { view: next(), map: next() }
    }

    /// What somebody with the secret reads of it.
    pub(crate) fn read(&self, keys: &Keys, secret: &str) -> Result<View, EtcdError> {
        let view = self.view.as_ref().ok_or_else(|| EtcdError::NoCluster(keys.name().to_owned()))?;
        let file = keys.read(view.value(), secret)?;
        let map = self.map.as_ref().ok_or_else(|| EtcdError::NoMap { key: keys.partitions() })?;
        let owners = keys.read_map(map.value())?;
        keys.check_owners(&file, &owners)?;
        Ok(View { epoch: epoch(view.mod_revision()), file, map: owners.into(), revision: revision(map.mod_revision()) })
    }

    /// What somebody reads of it who has no need of the secret.
    pub(crate) fn read_without_secret(&self, keys: &Keys) -> Result<View, EtcdError> {
        self.read(keys, NO_SECRET)
    }
}

pub(crate) fn epoch(revision: i64) -> Epoch {
    Epoch(revision.cast_unsigned())
}

pub(crate) fn revision(revision: i64) -> Revision {
    Revision(revision.cast_unsigned())
}

/// One operation.
pub(crate) struct Asking<'e> {
    pub(crate) link: Link,
    pub(crate) keys: &'e Keys,
    /// It takes so long at most.
    pub(crate) until: Instant,
}

impl Asking<'_> {
    fn told(&self, failure: Failure) -> EtcdError {
        failure.into_error(&self.link)
    }

    /// The key of the view: as it was at a revision, or as it is.
    pub(crate) async fn get(&mut self, revision: Option<i64>) -> Result<Option<KeyValue>, EtcdError> {
        let get = async |mut client: Client| {
            let options = revision.map(|revision| GetOptions::new().with_revision(revision));
            client.get(self.keys.view(), options).await
        };
        let answer = self.link.ask(self.until, get).await;
        answer.map(|mut answer| answer.take_kvs().pop()).map_err(|failure| self.told(failure))
    }

    async fn gets(&mut self, gets: Vec<TxnOp>) -> Result<Vec<Vec<KeyValue>>, EtcdError> {
        let ask = async |mut client: Client| client.txn(Txn::new().and_then(gets.clone())).await;
        let answer = self.link.ask(self.until, ask).await;
        Ok(gets_of(&answer.map_err(|failure| self.told(failure))?.op_responses()))
    }

    /// What is there.
    pub(crate) async fn found(&mut self) -> Result<Found, EtcdError> {
        let gets = vec![TxnOp::get(self.keys.view(), None), TxnOp::get(self.keys.partitions(), None)];
        Ok(Found::of(&mut self.gets(gets).await?.into_iter()))
    }

    /// What is there, and the revision of a member's life; zero if it has begun none.
    pub(crate) async fn found_and_life(&mut self, of: NodeId) -> Result<(Found, i64), EtcdError> {
        let keys = [self.keys.view(), self.keys.partitions(), self.keys.life(of)];
        let mut gets = self.gets(keys.map(|key| TxnOp::get(key, None)).into()).await?.into_iter();
        let found = Found::of(&mut gets);
        let life = gets.next().unwrap_or_default().pop();
        Ok((found, life.map_or(0, |life| life.mod_revision())))
    }

    /// What is there, and who is alive.
    pub(crate) async fn found_and_alive(&mut self) -> Result<(Found, Vec<KeyValue>), EtcdError> {
        let alive = TxnOp::get(self.keys.all_alive(), Some(GetOptions::new().with_prefix()));
        let gets = vec![TxnOp::get(self.keys.view(), None), TxnOp::get(self.keys.partitions(), None), alive];
        let mut gets = self.gets(gets).await?.into_iter();
        let found = Found::of(&mut gets);
        Ok((found, gets.next().unwrap_or_default()))
    }

    /// Says that a life has begun, unless a later one has.
    pub(crate) async fn begin_life(&mut self, me: NodeId, life: Incarnation) -> Result<(), EtcdError> {
        let key = self.keys.life(me);
        let mut pauses = self.link.pauses(self.until);
        for _ in 0..TRIES_MAX {
            let begun = self.gets(vec![TxnOp::get(key.clone(), None)]).await?.pop().and_then(|mut kvs| kvs.pop());
            match begun.as_ref().and_then(|begun| Alive::read(begun.value())) {
                Some(other) if other.life > life => {
                    return Err(EtcdError::Outlived { member: me, life, later: other.life });
                }
                Some(other) if other.life == life => return Ok(()),
                _ => {}
            }
            // Nothing, or an earlier life: if the answer is lost, it is looked whether it is this one now.
            let was =
                Compare::mod_revision(key.clone(), CompareOp::Equal, begun.as_ref().map_or(0, KeyValue::mod_revision));
            let txn = Txn::new().when([was]).and_then([TxnOp::put(key.clone(), Alive { life }.print(), None)]);
            match self.link.once(async |mut client: Client| client.txn(txn).await).await {
                Ok(answer) if answer.succeeded() => return Ok(()),
                Ok(_) => {}
                Err(Failure::Away(why)) => {
                    if !pauses.pause(&mut self.link).await {
                        return Err(self.told(Failure::Away(why)));
                    }
                }
                Err(failure) => return Err(self.told(failure)),
            }
        }
        Err(EtcdError::ChangedMeanwhile { tries: TRIES_MAX as u32 })
    }

    /// Puts a view, if things are as they were; `None` if they are not.
    pub(crate) async fn put(&mut self, put: &Put<'_>) -> Result<Option<Epoch>, EtcdError> {
        let (view, map) = (self.keys.view(), self.keys.partitions());
        let is_the_same = |key: &String, revision| Compare::mod_revision(key.clone(), CompareOp::Equal, revision);
        let mut when = vec![is_the_same(&view, put.as_of.revision)];
        when.extend(put.map_was.map(|revision| is_the_same(&map, revision)));
        when.extend(put.life_was.map(|(of, revision)| is_the_same(&self.keys.life(of), revision)));
        let mut puts = vec![TxnOp::put(view, put.text, None)];
        puts.extend(put.map.map(|bytes| TxnOp::put(map, bytes, None)));
        let txn = Txn::new().when(when).and_then(puts);
        let mut pauses = self.link.pauses(self.until);
        // Of an earlier attempt it is not known whether it was done.
        let mut is_doubtful = false;
        loop {
            match self.link.once(async |mut client: Client| client.txn(txn.clone()).await).await {
                Ok(answer) if answer.succeeded() => {
                    return Ok(answer.header().map(|header| epoch(header.revision())));
                }
                Ok(_) if !is_doubtful => return Ok(None),
                Ok(_) => return self.first_after(put.as_of, put.text).await,
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
    /// same, it is as if it were this. Nothing was, and will be, if the view is as it was: then the map is not, or the life, and never will be again.
    async fn first_after(&mut self, as_of: AsOf, text: &str) -> Result<Option<Epoch>, EtcdError> {
        let unknown = |why: &str| EtcdError::Unknown(why.to_owned());
        let mut revision = None;
        for _ in 0..CHANGES_SINCE_MAX {
            // What is compacted is not known any more.
            let found = self.get(revision).await.map_err(|error| unknown(&error.to_string()))?;
            if AsOf::of(found.as_ref()).revision == as_of.revision {
                return Ok(None);
            }
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
