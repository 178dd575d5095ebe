//! How this node's own shard comes back to it, and how it gives those of others back that it is home of meanwhile.
//!
//! Always true: what it gives away it serves no more in that view, and lets no key of it come to be hot or cease to; what it takes it serves only once a view names it home that has lost
//! nothing of the shard since.

use guira_consistency::{Envelope, Epoch, Message as Protocol, Replica};
use guira_item::Moment;
use guira_routing::NodeId;

use super::{Node, NodeOutbox, TELL_AGAIN_AFTER, TICK, slot_of};
use crate::{
    CopyNumber, Fetch, HomecomingMutant, Items, Message, Page, Place, Rest,
    taking::{Source, Taking},
};

/// What of a node is on its way.
#[derive(Clone, Debug, Default)]
pub(super) struct Homecoming {
    /// Its own shard.
    taking: Option<Taking>,
    last_copy: CopyNumber,
    /// What is here of shards that others are home of is removed, from here on.
    sweep: Option<Place>,
}

impl Homecoming {
    /// What is copied is worth nothing.
    pub(super) fn clear(&mut self) {
        self.taking = None;
    }

    /// Items that have been copied, if a copy goes on.
    pub(super) fn copied(&self) -> Option<u64> {
        self.taking.as_ref().map(|taking| taking.items)
    }

    /// Which shard that is.
    pub(super) fn copied_shard(&self) -> Option<usize> {
        self.taking.as_ref().map(|taking| taking.shard)
    }

    /// All of its own shard is here, in the view that is.
    pub(super) fn has_all(&self) -> bool {
        self.taking.as_ref().is_some_and(Taking::is_all)
    }
}

impl<I: Items> Node<I> {
    /// Whether it answers for what is cold in a shard.
    pub(super) fn answers_for(&self, shard: usize) -> bool {
        self.holder.is_home_of(shard) && !self.shard.is_sealed(shard)
    }

    /// Whether a key may begin to come to be hot, or to cease to, as far as copies go.
    pub(super) fn is_open(&self, key: &[u8]) -> bool {
        slot_of(key, self.holder.view().homes.len()).is_some_and(|shard| !self.shard.is_closing(shard))
    }

    /// Whose its own shard is, if that is another's.
    fn source(&self) -> Option<(usize, Source)> {
        let (view, own) = (self.holder.view(), self.holder.own_shard()?);
        let home = view.homes.get(own).and_then(|home| view.member(*home))?;
        let is_away = home.0 != self.config.me && self.replica.is_whole();
        is_away.then(|| (own, Source { home, since: self.holder.home_since(own) }))
    }

    /// Whether there is something to be done beside.
    pub(super) fn is_coming_home(&self) -> bool {
        self.homecoming.sweep.is_some() || self.source().is_some()
    }

    /// Does what is to be done now: asks for the next page, or for one again.
    pub(super) fn come_home(&mut self, now: Moment, out: &mut NodeOutbox) {
        let Some((shard, source)) = self.source() else {
            self.homecoming.taking = None;
            return;
        };
        if self.homecoming.taking.as_ref().is_none_or(|taking| taking.source != source) {
            self.begin_copy(now, shard, source);
        }
        let is_sealed = self.homecoming.taking.as_ref().is_some_and(|taking| taking.is_sealed() && !taking.is_all());
        let is_quiet = is_sealed && is_quiet(&self.replica, shard, self.holder.view().homes.len());
        let (epoch, writer) = (self.holder.view().epoch, self.writer());
        let Some(taking) = &mut self.homecoming.taking else { return };
        if is_quiet {
            taking.settle();
        }
        if let Some(fetch) = taking.ask(now, epoch, writer, TELL_AGAIN_AFTER) {
            out.sends.push((source.home.0, Message::Fetch(fetch)));
        }
    }

    /// Begins a copy, with nothing.
    fn begin_copy(&mut self, now: Moment, shard: usize, source: Source) {
        let had_some = !self.had_of.insert(shard);
        if had_some && !self.config.homecoming.has(HomecomingMutant::OldCopy) {
            let shards = self.holder.view().homes.len();
            self.shard.keep(self.time(now), &|key| slot_of(key, shards) != Some(shard));
        }
        self.homecoming.last_copy = CopyNumber(self.homecoming.last_copy.0 + 1);
        let kept_since = self.holder.kept_since(shard);
        self.homecoming.taking = Some(Taking::new(now, shard, source, kept_since, self.homecoming.last_copy));
        self.counts.copies += 1;
    }

    /// Another node asks for a page of its shard.
    pub(super) fn on_fetch(&mut self, from: NodeId, fetch: Fetch, out: &mut NodeOutbox) {
        let view = self.holder.view();
        let is_member = fetch.epoch == view.epoch && view.member(from) == Some((from, fetch.writer));
        if !is_member || !self.holder.is_home_of(fetch.shard) || from == self.config.me {
            return;
        }
        let shards = view.homes.len();
        let is_quiet = || is_quiet(&self.replica, fetch.shard, shards);
        if let Some(page) = self.shard.give(from, fetch, shards, &is_quiet) {
            self.counts.pages += 1;
            // It may be sealed by this, before anybody hears of it.
            self.show_grant();
            out.sends.push((from, Message::Page(Box::new(page))));
        }
    }

    /// A page of its own shard.
    pub(super) fn on_page(&mut self, now: Moment, from: NodeId, page: &Page, out: &mut NodeOutbox) {
        let is_of_view = page.fetch.epoch == self.holder.view().epoch && page.fetch.writer == self.writer();
        let (time, config) = (self.time(now), self.config.homecoming);
        let Some(taking) = &mut self.homecoming.taking else { return };
        if !is_of_view || !taking.waits_for(from, page, &config) {
            return;
        }
        if page.rest == Rest::All {
            self.homecoming.taking = None;
        } else {
            page.items.iter().for_each(|(key, value)| self.shard.accept(key, value.clone(), time));
            self.shard.accept_highest(page.highest);
            taking.go_on(now, page, TICK, &config);
        }
        self.come_home(now, out);
    }

    /// There is another view. What becomes of copies: whether this node is home of its own shard now, and has all of it.
    pub(super) fn arrive(&mut self, now: Moment) -> Option<usize> {
        let own = self.holder.own_shard()?;
        if self.holder.view().homes.get(own) != Some(&self.config.me) {
            if !self.config.homecoming.has(HomecomingMutant::OldSeal)
                && let Some(taking) = &mut self.homecoming.taking
            {
                taking.unseal(now);
            }
            return None;
        }
        let taking = self.homecoming.taking.take()?;
        let has_all = taking.is_all() && taking.kept_since == self.holder.kept_since(own);
        self.counts.homecomings += u64::from(has_all);
        has_all.then_some(own)
    }

    /// There is another view; before it this node was home of these shards. Copies of those that it still is home of go on.
    pub(super) fn go_on_giving(&mut self, before: &[(usize, Option<Epoch>)], homes: &[(usize, Option<Epoch>)]) {
        let view = self.holder.view();
        let stays = |shard: usize| homes.iter().any(|home| home.0 == shard && before.contains(home));
        self.shard.keep_givings(|giving| stays(giving.shard) && view.member(giving.to.0) == Some(giving.to));
        if before.iter().any(|(shard, _)| !homes.iter().any(|home| home.0 == *shard)) {
            self.homecoming.sweep = Some(Place::default());
            if self.config.homecoming.has(HomecomingMutant::SettledForgotten) {
                self.shard.forget_requests();
            }
        }
    }

    /// Removes some of what others are home of. What had to be moved meanwhile may be left: it is removed when this node comes to be home of it again.
    pub(super) fn sweep(&mut self, now: Moment) {
        let Some(from) = self.homecoming.sweep.take() else { return };
        let (view, time) = (self.holder.view(), self.time(now));
        let (me, copied) = (self.config.me, self.homecoming.copied_shard());
        let stays = |shard: usize| view.homes.get(shard) == Some(&me) || copied == Some(shard);
        let keeps = |key: &[u8]| slot_of(key, view.homes.len()).is_some_and(stays);
        self.homecoming.sweep = self.shard.sweep(time, &from, &keeps);
    }

    /// Whether what another replica says would begin what is not to begin: that a key is to go on on its way out that was given away as hot. It says so again.
    pub(super) fn is_untimely(&self, envelope: &Envelope) -> bool {
        let Protocol::Holding { key, is_leaving: true, .. } = &envelope.message else { return false };
        let shard = slot_of(key, self.holder.view().homes.len());
        self.replica.has(key) && shard.is_some_and(|shard| self.shard.is_sealed(shard))
    }
}

/// Whether none of the keys of a shard, one of so many, is on its way into the hot set or out of it, here; O(n) in all that are hot.
fn is_quiet(replica: &Replica, shard: usize, shards: usize) -> bool {
    replica.keys().all(|(key, is_hot)| is_hot || slot_of(key, shards) != Some(shard))
}
