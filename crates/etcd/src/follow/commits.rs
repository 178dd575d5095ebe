//! Partitions are given away in the map, each time it being found out what came of it.
//!
//! ```text
//! order -> read view, map, both lives -> put the map, if all are as they were -> done
//!             ^    |                        |  no: others were faster
//!             |    +-- it may not be -> done|  the answer is lost: done, if the first map after the one that was read is it;
//!             +-----------------------------+  put again while that is there still
//! ```
//! Always true: one is carried out at a time; it is not said to be done, or not, while an answer that was lost may mean the other; a map that was read is
//! told before what came of it; a life after which another one has begun changes nothing, and is given nothing.

use std::{cell::RefCell, future::pending, time::Duration};

use etcd_client::{Client, Compare, CompareOp, GetOptions, KeyValue, ResponseHeader, Txn, TxnOp};
use guira_cluster::Incarnation;
use guira_routing::{NodeId, PartitionMap};
use guira_switched::{Commit, Committed};
use tokio::{sync::mpsc::Receiver, time::sleep};

use super::{
    Told,
    heard::{End, Heard},
};
use crate::{
    Alive, View,
    asking::{Found, gets_of, revision},
    link::{Failure, Link},
    view::Keys,
};

/// The pause before it is tried again: it doubles up to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// What is asked for, and who is told what came of it.
pub(super) struct Order {
    pub(super) commit: Commit,
    pub(super) done: Box<dyn FnOnce(Committed) + Send>,
}

/// What is there.
struct Read {
    found: Found,
    /// The last life of this member that has begun.
    life: Option<Incarnation>,
    /// The last life of who is to have what is given away.
    to_life: Option<Incarnation>,
}

/// A map that is to be put.
struct Put {
    /// The revision of the map that was read, and how often that key was put.
    map_was: i64,
    version_was: i64,
    /// The revision of the view that was read.
    view_was: i64,
    bytes: Vec<u8>,
}

/// Why it is not known yet.
enum Later {
    /// The last thing was told.
    End,
    /// etcd has not answered, or not done it.
    Away,
    /// Others were faster, or something is missing.
    Again,
}

impl From<End> for Later {
    fn from(_: End) -> Self {
        Self::End
    }
}

impl From<Failure> for Later {
    fn from(_: Failure) -> Self {
        Self::Away
    }
}

pub(super) struct Commits<'f, T> {
    pub(super) link: Link,
    pub(super) keys: Keys,
    pub(super) me: NodeId,
    pub(super) life: Incarnation,
    pub(super) heard: &'f RefCell<Heard<T>>,
}

impl<T: FnMut(Told)> Commits<'_, T> {
    /// Until the last thing was told.
    pub(super) async fn run(&mut self, orders: &mut Receiver<Order>) {
        while let Some(Order { commit, done }) = orders.recv().await {
            match self.carry_out(&commit).await {
                Ok(committed) => done(committed),
                Err(End) => return,
            }
        }
        pending().await
    }

    async fn carry_out(&mut self, commit: &Commit) -> Result<Committed, End> {
        // Of this one it is not known whether it was done.
        let mut doubt = None;
        let mut pause = PAUSES.0;
        loop {
            match self.attempt(commit, &mut doubt).await {
                Ok(committed) => return Ok(committed),
                Err(Later::End) => return Err(End),
                Err(Later::Away) => self.link.turn(),
                Err(Later::Again) => {}
            }
            sleep(pause).await;
            pause = PAUSES.1.min(pause * 2);
        }
    }

    async fn attempt(&mut self, commit: &Commit, doubt: &mut Option<Put>) -> Result<Committed, Later> {
        let heard = self.heard.borrow().heard();
        let Read { found, life, to_life } = self.read(commit.to).await?;
        let are_alive = life == Some(self.life) && to_life == Some(commit.to_life);
        if let Some(life) = life.filter(|life| *life > self.life) {
            self.heard.borrow_mut().tell(Told::Outlived { life });
            return Err(Later::End);
        }
        if heard.is_after(&found) {
            // Somebody has deleted the map, or etcd was restored: nothing is put, and nothing is known of what was.
            return if doubt.is_some() { Err(Later::Again) } else { Ok(Committed::Not) };
        }
        if self.heard.borrow().heard().is_after(&found) {
            return Err(Later::Again);
        }
        self.heard.borrow_mut().take_newer_map(&found)?;
        if let Some(tried) = doubt {
            let view_is = found.view.as_ref().map_or(0, KeyValue::mod_revision);
            match &found.map {
                Some(map) if map.mod_revision() > tried.map_was => {
                    let Some(first) = self.first_after(tried, map).await? else {
                        return self.by_the_newest(commit, map);
                    };
                    if first.value() == tried.bytes {
                        return Ok(Committed::As(revision(first.mod_revision())));
                    }
                }
                // It was not done, and will not be: there is another view, or life.
                Some(map) if map.mod_revision() == tried.map_was && (view_is != tried.view_was || !are_alive) => {}
                Some(map) if map.mod_revision() == tried.map_was => return self.put(commit, doubt, None).await,
                // It is older than the one that was read for it.
                _ => return Err(Later::Again),
            }
            *doubt = None;
        }
        match found.read_without_secret(&self.keys) {
            Ok(view) if are_alive && self.may_be(commit, &view) => {
                let put = Put {
                    map_was: view.revision.0.cast_signed(),
                    version_was: found.map.as_ref().map_or(0, KeyValue::version),
                    view_was: view.epoch.0.cast_signed(),
                    bytes: view.map.with_owner(commit.partitions.iter().copied(), commit.to).encode(),
                };
                self.put(commit, doubt, Some(put)).await
            }
            _ => Ok(Committed::Not),
        }
    }

    /// Whether a view is one in which this member may give that away to that one.
    fn may_be(&self, commit: &Commit, view: &View) -> bool {
        let is_mine = commit.partitions.iter().all(|partition| view.map.owner(*partition) == self.me);
        is_mine && view.file.staying().contains(&commit.to)
    }

    /// View, map, and the last lives that have begun of this member and of another one, at one revision.
    async fn read(&mut self, to: NodeId) -> Result<Read, Failure> {
        let keys = [self.keys.view(), self.keys.partitions(), self.keys.life(self.me), self.keys.life(to)];
        let txn = Txn::new().and_then(keys.map(|key| TxnOp::get(key, None)));
        let answer = self.link.once(async |mut client: Client| client.txn(txn).await).await?;
        let mut gets = gets_of(&answer.op_responses()).into_iter().map(|mut kvs| kvs.pop());
        let found = Found { view: gets.next().flatten(), map: gets.next().flatten() };
        let mut lives = gets.map(|kv| Alive::read(kv?.value()).map(|begun| begun.life));
        Ok(Read { found, life: lives.next().flatten(), to_life: lives.next().flatten() })
    }

    /// Puts a map that was not tried yet, or that of which it is not known.
    async fn put(&mut self, commit: &Commit, doubt: &mut Option<Put>, new: Option<Put>) -> Result<Committed, Later> {
        let is_doubtful = doubt.is_some();
        let Some(put) = new.or_else(|| doubt.take()) else { return Err(Later::Again) };
        let map = self.keys.partitions();
        let is_in = |member: NodeId, life: Incarnation| {
            Compare::value(self.keys.life(member), CompareOp::Equal, Alive { life }.print())
        };
        let when = [
            Compare::mod_revision(map.clone(), CompareOp::Equal, put.map_was),
            Compare::mod_revision(self.keys.view(), CompareOp::Equal, put.view_was),
            is_in(self.me, self.life),
            is_in(commit.to, commit.to_life),
        ];
        let txn = Txn::new().when(when).and_then([TxnOp::put(map, put.bytes.clone(), None)]);
        let answer = self.link.once(async |mut client: Client| client.txn(txn).await).await;
        let is_done = answer.as_ref().is_ok_and(|answer| answer.succeeded());
        match answer {
            Ok(answer) if is_done => match answer.header().map(ResponseHeader::revision) {
                Some(at) => return Ok(Committed::As(revision(at))),
                None => *doubt = Some(put),
            },
            // What was not tried before is not done.
            Ok(_) if !is_doubtful => {}
            Err(Failure::Refused(_) | Failure::Forbidden(_) | Failure::LeaseLost) if !is_doubtful => {
                return Ok(Committed::Not);
            }
            Err(Failure::Denied(_)) if !is_doubtful => {
                // The next one goes over a connection over which it may be known who asks.
                self.link.renew();
                return Ok(Committed::Not);
            }
            Ok(_) => *doubt = Some(put),
            Err(failure) => {
                *doubt = Some(put);
                return Err(failure.into());
            }
        }
        Err(Later::Again)
    }

    /// The first map that was put after the one that was read for `tried`, if that is kept; `newest` is the newest.
    async fn first_after(&mut self, tried: &Put, newest: &KeyValue) -> Result<Option<KeyValue>, Failure> {
        let mut found = newest.clone();
        // If it was deleted meanwhile, versions began anew.
        while found.create_revision() <= tried.map_was {
            if found.version() == tried.version_was + 1 {
                return Ok(Some(found));
            }
            let options = GetOptions::new().with_revision(found.mod_revision() - 1);
            let key = self.keys.partitions();
            match self.link.once(async |mut client: Client| client.get(key, Some(options)).await).await {
                Ok(mut earlier) => match earlier.take_kvs().pop() {
                    Some(earlier) => found = earlier,
                    None => return Ok(None),
                },
                Err(Failure::Refused(why)) if why.contains("compacted") => return Ok(None),
                Err(failure) => return Err(failure),
            }
        }
        Ok(None)
    }

    /// What is not known any more does not matter: what is this member's is, and what is not was given away.
    fn by_the_newest(&self, commit: &Commit, newest: &KeyValue) -> Result<Committed, Later> {
        let map = PartitionMap::decode(newest.value()).ok_or(Later::Again)?;
        let is_mine = commit.partitions.iter().all(|partition| map.owner(*partition) == self.me);
        Ok(if is_mine { Committed::Not } else { Committed::As(revision(newest.mod_revision())) })
    }
}
