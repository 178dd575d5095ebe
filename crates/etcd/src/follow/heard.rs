//! What a member has heard of its cluster, and is told of it.
//!
//! Always true: what is told of files, and of maps, rises; who owns a partition in a view that is told is a backend of it; what cannot be read, or followed,
//! changes nothing; nothing is told after the end.

use std::{mem, sync::Arc};

use etcd_client::KeyValue;
use guira_cluster::Epoch;
use guira_switched::Revision;

use super::{Follower, Told};
use crate::{
    View,
    asking::{Found, epoch, revision},
    changes,
    view::Keys,
};

/// The last thing was told.
pub(super) struct End;

/// A file and a map that came one after the other are not of one cluster: something is yet to be heard, or somebody has put it there by hand.
pub(super) struct Unfit;

/// The revisions of what was heard last.
#[derive(Clone, Copy)]
pub(super) struct AsHeard {
    view: i64,
    map: i64,
}

impl AsHeard {
    /// Whether what was found is older. A view that is missing is none of these.
    pub(super) fn is_after(self, found: &Found) -> bool {
        let revision = |found: &Option<KeyValue>| found.as_ref().map(KeyValue::mod_revision);
        revision(&found.map).is_none_or(|map| map < self.map)
            || revision(&found.view).is_some_and(|view| view < self.view)
    }
}

pub(super) struct Heard<T> {
    keys: Keys,
    pub(super) who: Follower,
    tell: T,
    /// The newest file, and the newest map, that could be read.
    newest: View,
    /// Those that were told last.
    told: (Epoch, Revision),
    /// Those of which it was told that they are not of one cluster.
    unfit: Option<(Epoch, Revision)>,
    /// The revision of the view that was heard last, be it one that could not be read.
    last_view: i64,
    /// The same of the map.
    last_map: i64,
    /// It was told that there is no view, and there was none since.
    is_missing: bool,
    /// It was told that there is no map, and there was none since.
    is_map_missing: bool,
    /// It was told that etcd is at an earlier revision than it was, since it was restored, or began anew; there was no later view since.
    has_gone_back: bool,
}

impl<T: FnMut(Told)> Heard<T> {
    pub(super) fn new(keys: Keys, who: Follower, tell: T) -> Self {
        let View { epoch, revision, .. } = who.seen;
        Self {
            keys,
            newest: who.seen.clone(),
            told: (epoch, revision),
            unfit: None,
            last_view: epoch.0.cast_signed(),
            last_map: revision.0.cast_signed(),
            who,
            tell,
            is_missing: false,
            is_map_missing: false,
            has_gone_back: false,
        }
    }

    pub(super) fn tell(&mut self, told: Told) {
        (self.tell)(told);
    }

    /// The revision of the view that was heard last.
    pub(super) fn last_view(&self) -> i64 {
        self.last_view
    }

    /// The revision that etcd has to be past for all that comes to be heard.
    fn last(&self) -> i64 {
        self.last_view.max(self.last_map)
    }

    /// What was heard last: what is read from now on is not older, unless etcd was restored, or began anew.
    pub(super) fn heard(&self) -> AsHeard {
        AsHeard { view: self.last_view, map: self.last_map }
    }

    /// etcd is at a revision below one that it was at.
    pub(super) fn gone_back(&mut self, at: i64, highest: i64) {
        if !mem::replace(&mut self.has_gone_back, true) {
            self.tell(Told::Unreadable(format!(
                "etcd is at revision {at}, and was at {highest} before: it was restored, or began anew; changes are not heard until etcd is past \
                 revision {}: start the members again once the cluster is in it",
                self.last()
            )));
        }
    }

    /// There is no view. An etcd that has lost what it had, or a slip, ends nobody.
    pub(super) fn missing(&mut self) {
        if !self.has_gone_back && !mem::replace(&mut self.is_missing, true) {
            let why =
                "the cluster is not in etcd any more; once it is there again (guira cluster create) it is followed";
            self.tell(Told::Unreadable(why.into()));
        }
    }

    /// There is no map.
    pub(super) fn map_missing(&mut self) {
        if !self.has_gone_back && !mem::replace(&mut self.is_map_missing, true) {
            let key = self.keys.partitions();
            self.tell(Told::Unreadable(format!(
                "{key} is not in etcd any more: put it as it was; owners stay who they are"
            )));
        }
    }

    /// This view is there: what is new in it is told with [`tell_newest`](Self::tell_newest).
    pub(super) fn take_view(&mut self, found: &KeyValue) -> Result<(), End> {
        if found.mod_revision() <= self.last_view {
            return Ok(());
        }
        self.last_view = found.mod_revision();
        (self.is_missing, self.has_gone_back) = (false, false);
        let Follower { me, seen, .. } = &self.who;
        match self.keys.read(found.value(), &seen.file.secret) {
            Err(error) => self.tell(Told::Unreadable(error.to_string())),
            Ok(file) if !file.member(self.who.me()).is_some_and(|member| changes::is_the_same(member, me)) => {
                self.tell(Told::Removed);
                return Err(End);
            }
            Ok(file) => match changes::check(&seen.file, &file) {
                Err(why) => self.tell(Told::Unreadable(why)),
                Ok(()) => (self.newest.epoch, self.newest.file) = (epoch(self.last_view), file),
            },
        }
        Ok(())
    }

    /// This map is there.
    pub(super) fn take_map(&mut self, found: &KeyValue) {
        if found.mod_revision() <= self.last_map {
            return;
        }
        self.last_map = found.mod_revision();
        self.is_map_missing = false;
        match self.keys.read_map(found.value()) {
            Err(error) => self.tell(Told::Unreadable(error.to_string())),
            Ok(map) => (self.newest.revision, self.newest.map) = (revision(self.last_map), Arc::new(map)),
        }
    }

    /// Tells the newest file with the newest map, unless it was told.
    pub(super) fn tell_newest(&mut self) -> Result<(), Unfit> {
        let newest = (self.newest.epoch, self.newest.revision);
        if newest == self.told {
            return Ok(());
        }
        self.keys.check_owners(&self.newest.file, &self.newest.map).map_err(|_| Unfit)?;
        self.told = newest;
        self.tell(Told::View(Box::new(self.newest.clone())));
        Ok(())
    }

    /// The same, of what was found at one revision: nothing is yet to be heard.
    pub(super) fn tell_newest_of_all(&mut self) {
        let newest = (self.newest.epoch, self.newest.revision);
        if self.tell_newest().is_err() && self.unfit.replace(newest) != Some(newest) {
            let unfit = self.keys.check_owners(&self.newest.file, &self.newest.map);
            self.tell(Told::Unreadable(unfit.map_or_else(|error| error.to_string(), |()| String::new())));
        }
    }

    /// What was found at one revision by somebody who needs the map, and is not older than what was heard: a map that was not told is told now, with the view
    /// that is there.
    pub(super) fn take_newer_map(&mut self, found: &Found) -> Result<(), End> {
        let (Some(view), Some(map)) = (&found.view, &found.map) else { return Ok(()) };
        self.take_map(map);
        if self.newest.revision > self.told.1 {
            self.take_view(view)?;
            self.tell_newest_of_all();
        }
        Ok(())
    }
}
