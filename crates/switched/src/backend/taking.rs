//! Partitions that another backend gives to this one.
//!
//! ```text
//! Idle -> Begun ----------> Clearing ---------> Fencing --------> Receiving ---> Filling -----> Syncing ------> Full -> (it is decided) Idle
//!          Begin: its map     what is left        what may come     Ready: records  Seal: all is   all is to be    Stored
//!          is waited for      of them is removed  yet, too          are written     to be stored   on disk
//! ```
//! Always true: what is written here is served only once the map says that it is this backend's; no `flush_all` that somebody waits for takes place while that
//! may have been put and is not decided here. It is once the map that is seen names somebody else than the giver, or the giver says so. Whoever takes something has
//! the same `flush_all` to come as its giver, from `Begun` on: what the one has done the other does not do to it again. So that one comes, whoever has what.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use guira_cluster::{CLOCK, Frame, Link, Opening, SessionId};
use guira_item::{Key, Moment};
use guira_routing::{NodeId, PartitionId};
use serde::Serialize;

use super::Backend;
use crate::{Body, Message, Mutant, Outbox, Revision, StoreCall, told};

/// Versions of what is taken, at most: so high that there is none in an age, and low enough that there is room above.
const VERSION_MAX: u64 = u64::MAX / 2;

/// What is taken.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Taking {
    taken: Option<Taken>,
    /// The last session that each giver has begun.
    last_openings: BTreeMap<NodeId, Opening>,
    /// What was full when its session ended, by who was giving it, with that session's opening: it may have been given.
    doubtful: BTreeMap<NodeId, (Opening, BTreeSet<PartitionId>)>,
    /// How often the store was asked to fence something off, and has not yet said so.
    fences: usize,
    /// And to have all on disk.
    syncs: usize,
}

#[derive(Clone, Debug, Serialize)]
struct Taken {
    giver: NodeId,
    session: SessionId,
    link: Link<Body>,
    /// Until when it is gone by, if the giver says nothing.
    lease_until: Moment,
    partitions: BTreeSet<PartitionId>,
    /// The giver's map.
    revision: Revision,
    /// The giver's `flush_all` that is to come.
    flush_at_unix_s: u64,
    /// No item of theirs has had a version above this one.
    last_version: u64,
    stage: Stage,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
enum Stage {
    Idle,
    /// A map as late as the giver's is waited for: it may say that something earlier was given, too. And that the giver's `flush_all` to come is this
    /// backend's.
    Begun,
    /// What is left of these partitions is removed.
    Clearing,
    /// What may come of them yet is fenced off: of writes of unknown outcome, and of who had the store before.
    Fencing,
    /// What comes is written.
    Receiving {
        /// The giver is to hear when there is room for more.
        is_marked: bool,
    },
    /// All has come.
    Filling,
    /// All is stored.
    Syncing,
    /// All is on disk.
    Full,
}

impl Taking {
    /// Whether a flush that somebody waits for has to wait.
    pub(super) fn holds_flushes(&self) -> bool {
        !self.doubtful.is_empty() || self.taken.as_ref().is_some_and(|taken| taken.stage == Stage::Full)
    }

    /// The highest version of what is being taken.
    pub(super) fn last_version(&self) -> u64 {
        self.taken.as_ref().map_or(0, |taken| taken.last_version)
    }

    /// Whether a partition is being taken, or may have been: what is left of it was removed for that, or is being.
    pub(super) fn takes(&self, partition: PartitionId) -> bool {
        let is_begun = |taken: &&Taken| !matches!(taken.stage, Stage::Idle | Stage::Begun);
        let taken = self.taken.iter().filter(is_begun).map(|taken| &taken.partitions);
        let mut all = taken.chain(self.doubtful.values().map(|(_, partitions)| partitions));
        all.any(|partitions| partitions.contains(&partition))
    }

    pub(super) fn wake_at(&self) -> Option<Moment> {
        let taken = self.taken.as_ref()?;
        taken.link.wake_at().into_iter().chain([taken.lease_until]).min()
    }
}

impl Backend {
    /// A giver begins a session.
    pub(super) fn on_giver_open(&mut self, now: Moment, from: NodeId, opening: Opening, at: Moment, out: &mut Outbox) {
        let is_busy = self.start.is_some() || self.state_work.holds_moves();
        let another = self.taking.taken.as_ref().is_some_and(|taken| taken.giver != from);
        if is_busy || another {
            // It comes again.
            return;
        }
        let session = SessionId { incarnation: self.config.incarnation, opening };
        let last = self.taking.last_openings.get(&from).copied().unwrap_or_default();
        let lease = self.config.lease;
        let until = now + self.config.drift.granter(lease);
        match &mut self.taking.taken {
            Some(taken) if taken.session == session => taken.lease_until = until,
            // It has come late.
            Some(taken) if opening <= last && taken.giver == from => return,
            _ if opening <= last => {
                out.send(from, &Message::Void { incarnation: self.config.incarnation, up_to: last });
                return;
            }
            _ => {
                self.end_taken(|_| true);
                self.taking.last_openings.insert(from, opening);
                self.taking.taken = Some(Taken {
                    giver: from,
                    session,
                    link: Link::new(self.config.link),
                    lease_until: until,
                    partitions: BTreeSet::new(),
                    revision: Revision::default(),
                    flush_at_unix_s: 0,
                    last_version: 0,
                    stage: Stage::Idle,
                });
            }
        }
        out.send(from, &Message::Opened { session, at, lease });
    }

    pub(super) fn on_giver_asks_lease(
        &mut self,
        now: Moment,
        from: NodeId,
        session: SessionId,
        at: Moment,
        out: &mut Outbox,
    ) {
        let until = now + self.config.drift.granter(self.config.lease);
        match self.taken(from, session) {
            Some(taken) => {
                taken.lease_until = until;
                out.send(from, &Message::Lease { session, at, lease: self.config.lease });
            }
            None => out.send(from, &Message::Gone { session }),
        }
    }

    fn taken(&mut self, giver: NodeId, session: SessionId) -> Option<&mut Taken> {
        self.taking.taken.as_mut().filter(|taken| taken.giver == giver && taken.session == session)
    }

    pub(super) fn on_giver_told(
        &mut self,
        now: Moment,
        from: NodeId,
        session: SessionId,
        frame: Frame<Body>,
        out: &mut Outbox,
    ) {
        let hash_of = self.config.hash_of;
        let Some(taken) = self.taken(from, session) else {
            out.send(from, &Message::Gone { session });
            return;
        };
        let body = taken.link.hear(now, frame);
        match (body, &taken.stage) {
            (None, _) => {}
            (Some(Body::Begin { partitions, revision, flush_at_unix_s }), Stage::Idle) => {
                taken.partitions = partitions.into_iter().collect();
                (taken.revision, taken.flush_at_unix_s, taken.stage) = (revision, flush_at_unix_s, Stage::Begun);
            }
            (Some(Body::Record(key, item)), Stage::Receiving { .. }) => {
                let is_of_them =
                    Key::new(&key.0).is_ok() && taken.partitions.contains(&PartitionId::of(hash_of(&key.0)));
                if !is_of_them || item.as_ref().is_some_and(|item| item.version > VERSION_MAX) {
                    self.counts.ignored += 1;
                    return self.drop_taken();
                }
                self.write_foreign(key.0, item, out);
                if self.foreign.is_full() {
                    self.drop_taken();
                }
            }
            (Some(Body::Mark), Stage::Receiving { .. }) => taken.stage = Stage::Receiving { is_marked: true },
            (Some(Body::Seal { last_version }), Stage::Receiving { .. }) if last_version <= VERSION_MAX => {
                (taken.stage, taken.last_version) = (Stage::Filling, last_version);
            }
            (Some(_), _) => {
                self.counts.ignored += 1;
                self.drop_taken();
            }
        }
    }

    /// Takes what is to be taken, as far as it goes now.
    pub(super) fn go_on_taking(&mut self, now: Moment, out: &mut Outbox) {
        self.end_taken(|taken| now >= taken.lease_until);
        let Some(taken) = &mut self.taking.taken else { return };
        let is_written = self.foreign.is_written();
        match &mut taken.stage {
            Stage::Begun if taken.revision <= self.config.shares.revision => {
                let (map, giver) = (&self.config.shares.map, taken.giver);
                let is_its = |partition: &PartitionId| map.owner_if_any(*partition) == Some(giver);
                if !taken.partitions.iter().all(is_its) {
                    // It goes by an earlier life, or is no giver: nothing of it was touched.
                    return self.drop_taken();
                }
                if taken.flush_at_unix_s != self.state.flush_at_unix_s
                    && self.config.mutant != Some(Mutant::MoveFlushAt)
                {
                    return self.take_flush_of_giver(now);
                }
                taken.stage = Stage::Clearing;
                let (giver, partitions) = (taken.giver, taken.partitions.clone());
                self.decide(giver);
                if self.config.mutant != Some(Mutant::MoveClear) {
                    self.foreign.clear(partitions);
                }
            }
            Stage::Clearing if is_written && self.foreign.is_clear(&taken.partitions) => {
                taken.stage = Stage::Fencing;
                self.taking.fences += 1;
                let is_left_out = self.config.mutant == Some(Mutant::MoveFence);
                let partitions = if is_left_out { BTreeSet::new() } else { taken.partitions.clone() };
                out.store.push(StoreCall::Fence(partitions));
            }
            Stage::Receiving { is_marked: true } if self.foreign.has_room() => {
                taken.stage = Stage::Receiving { is_marked: false };
                let _ = taken.link.send(Body::More);
            }
            Stage::Filling if is_written && self.state.versions_reserved > taken.last_version => {
                taken.stage = Stage::Syncing;
                self.taking.syncs += 1;
                out.store.push(StoreCall::Flush);
            }
            _ => {}
        }
        let Some(taken) = &mut self.taking.taken else { return };
        let (giver, session) = (taken.giver, taken.session);
        taken.link.emit(now, |frame| out.send(giver, &told(session, frame)));
    }

    /// The giver has another `flush_all` to come, or none. Who has no keys has that from here on; what others have would be taken away by the one that was done
    /// for the giver's already, or not by the one that is to be: nothing is taken until both have the same.
    fn take_flush_of_giver(&mut self, now: Moment) {
        let has_none = self.partitions() == 0 && self.taking.doubtful.is_empty();
        // One that has come by the clock here is the giver's to do first.
        let is_to_come = |unix_s: u64| unix_s == 0 || CLOCK.from_unix_s(unix_s) > self.config.clock.time(now);
        match &self.taking.taken {
            Some(taken) if has_none && is_to_come(taken.flush_at_unix_s) => {
                self.state_work.want_time(taken.flush_at_unix_s);
            }
            _ => self.drop_taken(),
        }
    }

    /// What was written before to partitions comes to nothing, or may not.
    pub(super) fn on_taken_fenced(&mut self, is_done: bool) {
        self.taking.fences = self.taking.fences.checked_sub(1).expect("it was asked");
        if !is_done {
            self.drop_taken();
        }
        // It is not said which one it was: all have to be over.
        let is_over = self.taking.fences == 0;
        if let Some(taken) = self.taking.taken.as_mut().filter(|taken| taken.stage == Stage::Fencing && is_over) {
            taken.stage = Stage::Receiving { is_marked: false };
            // There is room on a link on which nothing was said.
            let _ = taken.link.send(Body::Ready);
        }
    }

    /// The store has on disk what it had written when it was asked, or not.
    pub(super) fn on_taken_flushed(&mut self, is_done: bool) {
        self.taking.syncs = self.taking.syncs.checked_sub(1).expect("it was asked");
        if !is_done {
            self.drop_taken();
        }
        // What an earlier attempt has asked for was asked before this one's was written.
        let is_over = self.taking.syncs == 0;
        let Some(taken) = self.taking.taken.as_mut().filter(|taken| taken.stage == Stage::Syncing && is_over) else {
            return;
        };
        self.last_version = self.last_version.max(taken.last_version);
        taken.stage = Stage::Full;
        let _ = taken.link.send(Body::Stored);
    }

    /// What a giver was giving in sessions up to an opening it gives no more; what of it was given the map with this number says.
    pub(super) fn on_release(&mut self, from: NodeId, up_to: Opening, revision: Revision, out: &mut Outbox) {
        if self.config.shares.revision < revision {
            // It comes again.
            return;
        }
        self.end_taken(|taken| taken.giver == from && taken.session.opening <= up_to);
        // What came in a later session may be given yet.
        if self.taking.doubtful.get(&from).is_some_and(|(opening, _)| *opening <= up_to) {
            self.decide(from);
        }
        out.send(from, &Message::Released { up_to });
    }

    /// What is being taken has to come again: what is there has another generation soon, or the store has not done something.
    /// What may have been given already stays.
    pub(super) fn drop_taken(&mut self) {
        self.end_taken(|taken| taken.stage != Stage::Full);
    }

    /// What is taken is taken no more: nothing is left of it here, unless it may have been given.
    fn end_taken(&mut self, ends: impl FnOnce(&Taken) -> bool) {
        let Some(taken) = self.taking.taken.take_if(|taken| ends(taken)) else { return };
        let Taken { giver, session, partitions, stage, .. } = taken;
        self.foreign.forget_next();
        match stage {
            Stage::Idle | Stage::Begun => {}
            // What was doubtful before was decided when this began.
            Stage::Full => drop(self.taking.doubtful.insert(giver, (session.opening, partitions))),
            _ => {
                let (map, me) = (&self.config.shares.map, self.config.me);
                self.foreign.clear(partitions.into_iter().filter(|partition| map.owner_if_any(*partition) != Some(me)));
            }
        }
    }

    /// The map that is here says what a giver has given of what was full, and it gives no more of that.
    fn decide(&mut self, giver: NodeId) {
        let (map, me) = (&self.config.shares.map, self.config.me);
        let (_, decided) = self.taking.doubtful.remove(&giver).unwrap_or_default();
        // What comes from another giver by now was cleared for that.
        let taking = &self.taking;
        let goes = |partition: &PartitionId| map.owner(*partition) != me && !taking.takes(*partition);
        self.foreign.clear(decided.into_iter().filter(goes));
    }

    /// By the map that is here now, what was full may be decided: all of it is given at once, and by its owner alone. What was not is nobody's to give any
    /// more, since another is in its giver's place.
    pub(super) fn see_taken(&mut self) {
        let map = Arc::clone(&self.config.shares.map);
        let is_decided = |giver: NodeId, partitions: &BTreeSet<PartitionId>| {
            partitions.iter().any(|partition| map.owner(*partition) != giver)
        };
        let is_begun = |taken: &Taken| !matches!(taken.stage, Stage::Idle | Stage::Begun);
        self.end_taken(|taken| is_begun(taken) && is_decided(taken.giver, &taken.partitions));
        let decided = self.taking.doubtful.iter().filter(|(giver, (_, partitions))| is_decided(**giver, partitions));
        for giver in decided.map(|(giver, _)| *giver).collect::<Vec<_>>() {
            self.decide(giver);
        }
    }
}
