//! A cluster in etcd: it is made, read and changed.
//!
//! ```text
//! change:  read view and map -> change the view -> is it a cluster? -> put it, if it is still as it was, and, if a backend goes, the map
//!                ^                                                        |
//!                +----------- somebody else was faster -------------------+
//! ```
//! Always true: what is answered to a read was so after the read began; who owns partitions is in the cluster.

use std::fmt;

use etcd_client::KeyValue;
use guira_cluster::{Epoch, Incarnation};
use guira_routing::{NodeId, PartitionMap};
use guira_switched::{Member, Revision, StaticFile, StaticFileError};
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};

use crate::{
    Access, Alive, EtcdError, FollowOptions, Follower, Following, Known, Place, Removal, Share, Told, View,
    asking::{AsOf, Asking, Put},
    changes,
    follow::follow,
    link::{Link, OPERATION},
    view::{Keys, strangers},
};

/// How often a change is tried, if others are faster: each time one of them has made a change.
const TRIES_MAX: u32 = 16;

/// A cluster in etcd. Its operations block, each for a bounded time: they may not be called on a thread that runs a runtime of tokio.
pub struct Etcd {
    place: Place,
    access: Access,
    keys: Keys,
    runtime: Runtime,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Etcd {
    /// Looks whether etcd answers there, whatever is in it.
    ///
    /// # Errors
    /// [`EtcdError::Access`], [`EtcdError::Unreachable`], [`EtcdError::Denied`], [`EtcdError::Refused`], [`EtcdError::Io`].
    pub fn connect(place: &Place, access: &Access) -> Result<Self, EtcdError> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(EtcdError::Io)?;
        // Of a member that runs they may be amiss for a while.
        runtime.block_on(access.check(&place.hosts()[0])).map_err(EtcdError::Access)?;
        let etcd = Self { place: place.clone(), access: access.clone(), keys: Keys::of(place), runtime };
        match etcd.within(async |asking| asking.get(None).await) {
            Ok(_) => Ok(etcd),
            Err(EtcdError::Unreachable { hosts, why }) => {
                Err(EtcdError::Unreachable { hosts, why: access.with_advice(why) })
            }
            Err(error) => Err(error),
        }
    }

    /// The same once more, for another thread.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn another(&self) -> Result<Self, EtcdError> {
        Self::connect(&self.place, &self.access)
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    fn within<T>(&self, operation: impl AsyncFnOnce(&mut Asking<'_>) -> Result<T, EtcdError>) -> Result<T, EtcdError> {
        let link = Link::to(&self.place, &self.access);
        self.runtime.block_on(async {
            let mut asking = Asking { link, keys: &self.keys, until: Instant::now() + OPERATION };
            operation(&mut asking).await
        })
    }

    /// Makes the cluster. Its secret is not put into etcd. Its backends own like parts of the keys, unless it was there before: what is owned by any of
    /// them then stays theirs.
    ///
    /// # Errors
    /// [`EtcdError`]; [`EtcdError::Exists`] if there is one of this name, [`EtcdError::OtherName`] if the file has another name than the place,
    /// [`EtcdError::Earlier`] if somebody else owns partitions of it.
    pub fn create(&self, file: &StaticFile) -> Result<Epoch, EtcdError> {
        file.check()?;
        self.keys.check_name(file)?;
        let text = file.print_without_secret()?;
        let over_all = file.partitions()?.encode();
        self.within(async |asking| {
            for _ in 0..TRIES_MAX {
                let found = asking.found().await?;
                if found.view.is_some() {
                    return Err(EtcdError::Exists(self.place.name().to_owned()));
                }
                let (map_was, map) = match &found.map {
                    None => (0, Some(&over_all[..])),
                    Some(map) => {
                        let (name, key) = (self.place.name().to_owned(), self.keys.partitions());
                        let owners = strangers(file, &self.keys.read_map(map.value())?);
                        if !owners.is_empty() {
                            return Err(EtcdError::Earlier { name, key, owners });
                        }
                        (map.mod_revision(), None)
                    }
                };
                let put = Put { as_of: AsOf::of(None), text: &text, map_was: Some(map_was), map, life_was: None };
                if let Some(epoch) = asking.put(&put).await? {
                    return Ok(epoch);
                }
            }
            Err(EtcdError::ChangedMeanwhile { tries: TRIES_MAX })
        })
    }

    /// Reads it: as it is, or later.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn read(&self, secret: &str) -> Result<View, EtcdError> {
        let found = self.within(async |asking| asking.found().await)?;
        found.read(&self.keys, secret)
    }

    /// Begins a backend's life, and reads the cluster after that: nothing that an earlier life has asked for takes place any more, and what is read has all
    /// that did. To be called before the backend serves, and once it has its store: who stands by for it holds on to that.
    ///
    /// # Errors
    /// [`EtcdError`]; [`EtcdError::Outlived`] if a later life has begun.
    pub fn begin_life(&self, me: NodeId, life: Incarnation, secret: &str) -> Result<View, EtcdError> {
        let found = self.within(async |asking| {
            asking.begin_life(me, life).await?;
            asking.found().await
        });
        found?.read(&self.keys, secret)
    }

    /// Changes it: `change` is called with the cluster as it is, and again if others have changed that meanwhile. What it is then has no secret.
    ///
    /// # Errors
    /// [`EtcdError`]; [`EtcdError::Change`] with what `change` says, or if another would be the controller; [`EtcdError::Strangers`] if who owns partitions
    /// would be no backend.
    pub fn change(&self, mut change: impl FnMut(&mut StaticFile) -> Result<(), String>) -> Result<View, EtcdError> {
        self.change_by_map(|file, _| change(file)).map(|(view, ())| view)
    }

    /// The same, for a change that depends on who owns what. If a backend goes, that has not changed meanwhile.
    fn change_by_map<R>(
        &self,
        mut change: impl FnMut(&mut StaticFile, &PartitionMap) -> Result<R, String>,
    ) -> Result<(View, R), EtcdError> {
        self.within(async |asking| {
            for _ in 0..TRIES_MAX {
                let found = asking.found().await?;
                let before = found.read_without_secret(&self.keys)?;
                let mut file = before.file.clone();
                let what = change(&mut file, &before.map).map_err(EtcdError::Change)?;
                // It is not put there; that one is there is checked.
                file.secret.clone_from(&before.file.secret);
                file.check()?;
                self.keys.check_name(&file)?;
                changes::check(&before.file, &file).map_err(EtcdError::Change)?;
                self.keys.check_owners(&file, &before.map)?;
                let stays = file.backends();
                let goes = before.file.backends().iter().any(|backend| !stays.contains(backend));
                let map_was = found.map.as_ref().map(KeyValue::mod_revision).filter(|_| goes);
                let text = file.print_without_secret()?;
                let put = Put { as_of: AsOf::of(found.view.as_ref()), text: &text, map_was, map: None, life_was: None };
                if let Some(epoch) = asking.put(&put).await? {
                    let file = StaticFile { secret: String::new(), ..file };
                    return Ok((View { epoch, file, ..before }, what));
                }
            }
            Err(EtcdError::ChangedMeanwhile { tries: TRIES_MAX })
        })
    }

    /// These come: cache nodes, gateways and backends. A backend that is there and leaving stays.
    ///
    /// # Errors
    /// [`EtcdError`]; [`EtcdError::Change`] if one of them cannot.
    pub fn add(&self, members: &[Member]) -> Result<View, EtcdError> {
        self.change(|file| changes::add(file, members))
    }

    /// These go: cache nodes, whose backends go to those that are left, gateways, and backends that own nothing. Backends that own something are leaving from
    /// now on. Returns what has become of each.
    ///
    /// # Errors
    /// [`EtcdError`]; [`EtcdError::Change`] if one of them cannot.
    pub fn remove(&self, ids: &[u16]) -> Result<(View, Vec<Removal>), EtcdError> {
        self.change_by_map(|file, map| changes::remove(file, map, ids))
    }

    /// A standby owns all that the backend did that it stands by for, and that is no member any more; what is there then. To be called once that one serves
    /// nothing, which who has its store knows: so `me` is the standby as it was when it began to wait for that, and `has_store` tells whether it still has
    /// the store. That is asked once it is known which life of that backend was the last, and none may have begun when the place is taken: a backend
    /// begins one, which no other process of it has, once it has its store. `has_store` must not block, nor ask etcd.
    ///
    /// # Errors
    /// [`EtcdError`]; [`EtcdError::Change`] if the standby has been changed since, or is none; [`EtcdError::StoreLost`].
    pub fn take_over(&self, me: &Member, secret: &str, has_store: impl Fn() -> bool) -> Result<View, EtcdError> {
        let id = NodeId(me.id);
        // Nobody's life matters to who stands by for nobody: it is told so.
        let of = me.role.as_backend().and_then(|role| role.standby_of).map_or(id, NodeId);
        self.within(async |asking| {
            for _ in 0..TRIES_MAX {
                let (found, life) = asking.found_and_life(of).await?;
                if !has_store() {
                    return Err(EtcdError::StoreLost);
                }
                let before = found.read(&self.keys, secret)?;
                let mut file = before.file.clone();
                if file.member(id) != Some(me) {
                    let told = format!("member {} was changed, or removed, while it stood by: start it again", id.0);
                    return Err(EtcdError::Change(told));
                }
                let wrong = |why| EtcdError::NotACluster(StaticFileError::Standby { id: id.0, why });
                let owner = file.take_place(id).map_err(wrong)?;
                file.check()?;
                let map = before.map.with_owner(before.map.partitions_of(owner), id);
                self.keys.check_owners(&file, &map)?;
                let (text, bytes) = (file.print_without_secret()?, map.encode());
                let map_was = found.map.as_ref().map(KeyValue::mod_revision);
                let as_of = AsOf::of(found.view.as_ref());
                let put = Put { as_of, text: &text, map_was, map: Some(&bytes), life_was: Some((of, life)) };
                if let Some(epoch) = asking.put(&put).await? {
                    // Both were put at one revision.
                    return Ok(View { epoch, file, map: map.into(), revision: Revision(epoch.0) });
                }
            }
            Err(EtcdError::ChangedMeanwhile { tries: TRIES_MAX })
        })
    }

    /// Who is in it, and which of them are alive, at one moment.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn members(&self) -> Result<Vec<Known>, EtcdError> {
        let (found, alive) = self.within(async |asking| asking.found_and_alive().await)?;
        let View { file, map, .. } = found.read_without_secret(&self.keys)?;
        let wanted = file.wanted()?;
        let alive_of = |member: &Member| {
            let said = alive.iter().find(|kv| self.keys.member(kv.key()).is_some_and(|id| id.0 == member.id));
            said.and_then(|kv| Alive::read(kv.value()))
        };
        let share_of = |member: &Member| {
            let of = |map: &PartitionMap| map.partitions_of(NodeId(member.id)).count();
            let is_one = member.role.as_backend().is_some_and(|backend| backend.standby_of.is_none());
            is_one.then(|| Share { partitions: of(&map), wanted: of(&wanted) })
        };
        let known = |member: Member| Known { alive: alive_of(&member), share: share_of(&member), member };
        Ok(file.members.into_iter().map(known).collect())
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
        follow(self.runtime, Link::to(&self.place, &self.access), self.keys, who, options, told).map_err(EtcdError::Io)
    }
}
