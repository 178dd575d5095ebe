//! Gives out views: who is a member, in which life, and whose each shard is; and leases, without which nobody serves.
//!
//! ```text
//! node --- Here: in this life, in that epoch, with what --------> Views
//!      <-- Told: the view; a lease of it; that all who matter have it --
//!                                        a view is kept (on disk) before anybody is told
//! ```
//! A node that falls silent, or hears nothing, is a member until its last lease is over by this clock, drift included (R2); so is a life that another one of its node follows. One
//! that comes is a member at once: who has not heard of it has no hot write of the others pass it by, since they wait for him; and who comes to be home of a shard waits until
//! nobody has a lease of a view before.
//!
//! There is one such process at a time, which is for whoever starts it to see to.
//!
//! Always true:
//! - no view without a life is given out while that life has a lease, in whatever epoch;
//! - a lease is granted to members of the view, and of the one that is being kept, in the same life;
//! - epochs go up, whatever is started again or lost; no two members have the same number, and who becomes a member anew has another than before;
//! - a shard's home is a member that is whole, and changes only if it has gone or the shard's own node has all;
//! - nothing of a shard is lost by a view in which its own node comes to be its home: it has said in the view before, and of that, that it has all.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt,
};

use guira_cluster::{Drift, Incarnation};
use guira_consistency::{Epoch, View, Writer};
use guira_item::{Moment, Span};
use guira_routing::NodeId;
use serde::{Deserialize, Serialize};

/// Epochs that nodes may have heard of: beyond are none.
const EPOCH_MAX: Epoch = Epoch(1 << 62);

/// What nodes there are, and how leases are granted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ViewsConfig {
    /// The nodes that may be members; each has a shard, in this order.
    pub nodes: Vec<NodeId>,
    /// How long a lease lasts.
    pub lease: Span,
    /// How far clocks drift apart.
    pub drift: Drift,
    /// How long the last members that are whole are waited for when they are silent: without them everything begins anew, with nothing.
    pub last_copy_waits: Span,
    /// A fault put in on purpose, for the tests of the checkers.
    pub mutant: Option<ViewsMutant>,
}

impl ViewsConfig {
    /// Nodes at most: numbers of lives are many more, so that one comes again late.
    pub const NODES_MAX: usize = 1_024;
}

/// Faults that have to be found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ViewsMutant {
    /// Who falls silent is taken for gone before his lease is over.
    GoneEarly,
    /// A lease lasts as long here as there, whatever clocks do.
    NoDrift,
    /// A life that another follows is taken for gone at once.
    LifeReplaced,
    /// Who has begun again grants as if no lease had been granted before.
    LeasesForgotten,
    /// Leases are granted to who will be no member any more.
    GrantsTheGone,
    /// Who comes to be home of a shard is it at once.
    HomeAtOnce,
    /// A view is given out before it is kept.
    ToldUnkept,
    /// A member that comes back in the same life has the number that it had.
    NumberKept,
    /// What a node had of its shard in a view before counts.
    ShardOfBefore,
    /// A shard whose home is gone is said to be what it was.
    LostUntold,
}

impl ViewsMutant {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::GoneEarly,
        Self::NoDrift,
        Self::LifeReplaced,
        Self::LeasesForgotten,
        Self::GrantsTheGone,
        Self::HomeAtOnce,
        Self::ToldUnkept,
        Self::NumberKept,
        Self::ShardOfBefore,
        Self::LostUntold,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::GoneEarly => "gone-early",
            Self::NoDrift => "no-drift",
            Self::LifeReplaced => "life-replaced",
            Self::LeasesForgotten => "leases-forgotten",
            Self::GrantsTheGone => "grants-the-gone",
            Self::HomeAtOnce => "home-at-once",
            Self::ToldUnkept => "told-unkept",
            Self::NumberKept => "number-kept",
            Self::ShardOfBefore => "shard-of-before",
            Self::LostUntold => "lost-untold",
        }
    }
}

/// What a node has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Has {
    /// Nothing yet.
    Nothing,
    /// All hot keys: it is whole.
    HotKeys,
    /// And its shard, with what was written in that by others: it is home of it in the view in which it says so, or the home serves nothing of it any more.
    Shard,
}

/// What a node says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Here {
    /// Its life.
    pub life: Incarnation,
    /// Its number as a member, by the view that it has; `None`: it has none, or is none.
    pub writer: Option<Writer>,
    /// The epoch of that view.
    pub epoch: Epoch,
    /// When it said so, by its clock.
    pub asked: Moment,
    /// What it has.
    pub has: Has,
}

/// What a member is told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Told {
    /// As it has said.
    pub life: Incarnation,
    /// As it has said; the beginning of time if it has not been asked.
    pub asked: Moment,
    /// Who is there.
    pub view: View,
    /// In which epoch this life was a member when everything began: there was no view before, or nobody was left who had all. Its members had all there was, which is nothing,
    /// whatever they had before.
    pub began: Option<Epoch>,
    /// It has a lease of that view's epoch, from `asked` on.
    pub grants: bool,
    /// How long that is, as who gives it counts it.
    pub lease: Span,
    /// Nobody has a lease of a view before.
    pub is_settled: bool,
    /// Which shard is its own.
    pub own_shard: usize,
    /// See [`Given::kept_since`].
    pub kept_since: Vec<Epoch>,
}

/// A view, and what is to be known of it by who begins again.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Given {
    /// Of which nodes.
    pub nodes: Vec<NodeId>,
    /// The view.
    pub view: View,
    /// The life of each member.
    pub lives: BTreeMap<NodeId, Incarnation>,
    /// The last number that was given to a life.
    pub last_writer: u16,
    /// In which epoch everything began, last.
    pub began: Epoch,
    /// The members of that view that are left, in the same lives.
    pub founders: BTreeSet<NodeId>,
    /// The members that are whole, as far as was known.
    pub whole: BTreeSet<NodeId>,
    /// Since which epoch nothing of each shard has been lost: each home since then has had what the one before had. Beside `homes_since`, since for hot keys that are
    /// on their way in or out another home is another one, whatever it has.
    pub kept_since: Vec<Epoch>,
    /// No lease is longer: who begins again may have been told to give shorter ones.
    pub lease: Span,
}

/// What has happened.
#[derive(Clone, Copy, Debug)]
pub enum ViewsHappened {
    /// A node says that it is there.
    Here(NodeId, Here),
    /// What was to be kept is on disk, up to the view of this epoch.
    Kept(Epoch),
    /// Time has passed: at [`Views::wake_at`], at the latest.
    Tick,
}

/// What a step wants done, in this order.
#[derive(Clone, Debug, Default)]
pub struct ViewsOutbox {
    /// To be kept, so that it is there whatever happens; then it is said that it is.
    pub keep: Option<Given>,
    /// To be told.
    pub sends: Vec<(NodeId, Told)>,
}

/// Why views cannot be given out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ViewsError {
    /// There is no node, or one is there twice, or there are too many.
    Nodes(usize),
    /// What was kept is of other nodes, whose shards those would be.
    OtherNodes(Vec<NodeId>),
}

impl fmt::Display for ViewsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(len) => write!(f, "{len} nodes: from 1 to {}, each once", ViewsConfig::NODES_MAX),
            Self::OtherNodes(nodes) => write!(f, "what was kept is of other nodes, or in another order: {nodes:?}"),
        }
    }
}

impl Error for ViewsError {}

/// Times in a lease that it is looked who is there, if there is nothing else to wait for.
const LOOKS_A_LEASE: u64 = 4;

/// A member, as far as is known.
#[derive(Clone, Copy, Debug)]
struct Known {
    heard_at: Moment,
    /// No lease that it was granted lasts longer.
    leased_until: Moment,
    /// The last view that it is known to have.
    epoch: Epoch,
    has: Has,
}

/// Gives out views.
#[derive(Clone, Debug)]
pub struct Views {
    config: ViewsConfig,
    given: Given,
    given_at: Moment,
    /// The next one, which is not on disk yet.
    keeping: Option<Given>,
    known: BTreeMap<NodeId, Known>,
    /// Lives that are to be members, and are not yet; and when they were heard of last.
    coming: BTreeMap<NodeId, (Incarnation, Moment)>,
    /// The last epoch that anybody has heard of: beyond what was kept if that was lost.
    heard_of: Epoch,
    /// When the first view is given out, if none was before: who is there by then is in it.
    first_at: Moment,
    looked_at: Moment,
}

impl Views {
    /// One that begins, with what was kept last, if anything was.
    ///
    /// # Errors
    /// [`ViewsError`].
    pub fn new(now: Moment, config: ViewsConfig, kept: Option<Given>) -> Result<Self, ViewsError> {
        let nodes: BTreeSet<NodeId> = config.nodes.iter().copied().collect();
        if !(1..=ViewsConfig::NODES_MAX).contains(&nodes.len()) || nodes.len() != config.nodes.len() {
            return Err(ViewsError::Nodes(config.nodes.len()));
        }
        let nothing = || Given { nodes: config.nodes.clone(), ..Given::default() };
        let given = kept.unwrap_or_else(nothing);
        if given.nodes != config.nodes {
            return Err(ViewsError::OtherNodes(given.nodes));
        }
        let mut views = Self {
            first_at: now + config.drift.granter(config.lease),
            heard_of: given.view.epoch,
            config,
            given,
            given_at: now,
            looked_at: now,
            keeping: None,
            known: BTreeMap::new(),
            coming: BTreeMap::new(),
        };
        // What was granted before is not known: as much as could have been.
        let longest = views.config.drift.granter(views.given.lease.max(views.config.lease));
        let leased_until = if views.does(ViewsMutant::LeasesForgotten) { now } else { now + longest };
        let known = |node: &NodeId| {
            let has = if views.given.whole.contains(node) { Has::HotKeys } else { Has::Nothing };
            let has = if views.own_home(&views.given, *node) == Some(*node) { Has::Shard } else { has };
            (*node, Known { heard_at: now, leased_until, epoch: Epoch::default(), has })
        };
        views.known = views.given.lives.keys().map(known).collect();
        Ok(views)
    }

    fn does(&self, mutant: ViewsMutant) -> bool {
        self.config.mutant == Some(mutant)
    }

    /// How long a lease may last by this clock.
    fn granted(&self) -> Span {
        if self.does(ViewsMutant::NoDrift) { self.lease() } else { self.config.drift.granter(self.lease()) }
    }

    /// How long a lease is: none longer than what is on disk says.
    fn lease(&self) -> Span {
        let kept = Some(self.given.lease).filter(|_| self.given.view.epoch != Epoch::default());
        kept.map_or(self.config.lease, |kept| kept.min(self.config.lease))
    }

    /// The home of a node's own shard.
    fn own_home(&self, given: &Given, node: NodeId) -> Option<NodeId> {
        let own = self.config.nodes.iter().position(|own| *own == node)?;
        given.view.homes.get(own).copied()
    }

    /// The view that was given out last.
    pub fn view(&self) -> &View {
        &self.given.view
    }

    /// The members that are whole, as far as is known.
    pub fn whole(&self) -> Vec<NodeId> {
        let is_whole = |node: &NodeId| self.known.get(node).is_some_and(|known| known.has >= Has::HotKeys);
        self.given.lives.keys().copied().filter(is_whole).collect()
    }

    /// When time will have made a difference, at the earliest.
    pub fn wake_at(&self) -> Moment {
        let ends = self.known.values().map(|known| known.leased_until.max(known.heard_at + self.granted()));
        let ahead = ends.chain([self.first_at]).filter(|end| *end > self.looked_at).min();
        // Who has been silent for long, and is waited for all the same, is looked at now and then.
        ahead.unwrap_or(self.looked_at + self.config.lease.part(LOOKS_A_LEASE))
    }

    /// Heeds what has happened; `now` was read after it had (R1).
    pub fn step(&mut self, now: Moment, happened: ViewsHappened, out: &mut ViewsOutbox) {
        match happened {
            ViewsHappened::Here(node, here) => self.on_here(now, node, here, out),
            ViewsHappened::Kept(epoch) => {
                if let Some(kept) = self.keeping.take_if(|keeping| keeping.view.epoch <= epoch) {
                    self.on_kept(now, kept, out);
                }
            }
            ViewsHappened::Tick => {}
        }
        self.looked_at = now;
        self.look_around(now, out);
    }

    fn on_here(&mut self, now: Moment, node: NodeId, here: Here, out: &mut ViewsOutbox) {
        if !self.config.nodes.contains(&node) || here.epoch > EPOCH_MAX {
            return;
        }
        self.heard_of = self.heard_of.max(here.epoch);
        let life = self.given.lives.get(&node).copied();
        if life.is_none_or(|life| here.life > life) {
            let coming = self.coming.entry(node).or_insert((here.life, now));
            *coming = (*coming).max((here.life, now));
        }
        if life == Some(here.life) {
            let told = self.on_member(now, node, here);
            out.sends.push((node, told));
        }
    }

    fn on_member(&mut self, now: Moment, node: NodeId, here: Here) -> Told {
        let lasts = self.granted();
        let epoch = self.given.view.epoch;
        let stays = self.keeping.as_ref().is_none_or(|next| next.lives.get(&node) == Some(&here.life));
        // Who is told of a view and does not come to have it hears nothing: others wait for him in vain.
        let hears = here.epoch == epoch || now.since(self.given_at) < lasts;
        let is_followed = self.coming.contains_key(&node);
        let grants = (stays && hears && !is_followed) || self.does(ViewsMutant::GrantsTheGone);
        let shard_of_before = self.does(ViewsMutant::ShardOfBefore);
        let is_it = here.writer == self.given.view.members.get(&node).copied();
        if let Some(known) = self.known.get_mut(&node) {
            if hears {
                known.heard_at = now;
            }
            if is_it {
                // In another view its home may have changed it.
                let is_of_before = here.epoch != epoch && !shard_of_before;
                known.has = known.has.max(if is_of_before { here.has.min(Has::HotKeys) } else { here.has });
                known.epoch = known.epoch.max(here.epoch);
            }
            if grants {
                known.leased_until = known.leased_until.max(now + lasts);
            }
        }
        let is_settled = self.is_settled(now);
        Told { asked: here.asked, grants, is_settled, ..self.told(node, here.life) }
    }

    fn told(&self, node: NodeId, life: Incarnation) -> Told {
        let given = &self.given;
        let began = given.founders.contains(&node).then_some(given.began);
        let (view, kept_since) = (given.view.clone(), given.kept_since.clone());
        let own_shard = self.config.nodes.iter().position(|own| *own == node).unwrap_or(usize::MAX);
        let (asked, lease) = (Moment::default(), self.lease());
        Told { life, asked, view, began, grants: false, lease, is_settled: false, own_shard, kept_since }
    }

    /// Whether nobody has a lease of a view before.
    fn is_settled(&self, now: Moment) -> bool {
        let epoch = self.given.view.epoch;
        let is_over = |known: &Known| known.epoch == epoch || now >= known.leased_until;
        self.known.values().all(is_over) || self.does(ViewsMutant::HomeAtOnce)
    }

    fn on_kept(&mut self, now: Moment, kept: Given, out: &mut ViewsOutbox) {
        let begins = kept.began == kept.view.epoch;
        let shard_of_before = self.does(ViewsMutant::ShardOfBefore);
        let is_same = |node: &NodeId| self.given.view.members.get(node) == kept.view.members.get(node);
        let new = Known {
            heard_at: now,
            leased_until: now,
            epoch: Epoch::default(),
            has: if begins { Has::Shard } else { Has::Nothing },
        };
        let known = |node: &NodeId| {
            let before = self.known.get(node).copied().filter(|_| self.given.lives.get(node) == kept.lives.get(node));
            // A lease of the membership before is one of this life, still.
            let known = before.map_or(new, |known| if is_same(node) { known } else { Known { has: new.has, ..known } });
            let has_shard = begins || self.own_home(&kept, *node) == Some(*node) || shard_of_before;
            (*node, Known { has: if has_shard { known.has } else { known.has.min(Has::HotKeys) }, ..known })
        };
        self.known = kept.lives.keys().map(known).collect();
        self.coming.retain(|node, (life, _)| kept.lives.get(node).is_none_or(|kept| *life > *kept));
        (self.given, self.given_at) = (kept, now);
        let told = |(node, life): (&NodeId, &Incarnation)| (*node, self.told(*node, *life));
        out.sends.extend(self.given.lives.iter().map(told));
    }

    /// Makes the next view, if there is to be another one and none is being kept.
    fn look_around(&mut self, now: Moment, out: &mut ViewsOutbox) {
        let granted = self.granted();
        self.coming.retain(|_, (_, heard_at)| now.since(*heard_at) < granted);
        if self.keeping.is_some() || (self.given.view.epoch == Epoch::default() && now < self.first_at) {
            return;
        }
        let mut next = self.given.clone();
        next.lease = self.config.lease;
        next.lives = self.lives(now);
        let stays = |node: &NodeId| self.given.lives.get(node).is_some_and(|life| next.lives.get(node) == Some(life));
        let has = |node: &NodeId| self.known.get(node).filter(|_| stays(node)).map_or(Has::Nothing, |known| known.has);
        let is_whole = |node: &NodeId| has(node) >= Has::HotKeys;
        let begins = !next.lives.is_empty() && !next.lives.keys().any(is_whole);
        next.view.members.retain(|node, _| stays(node) && !begins);
        for (node, life) in &next.lives {
            let number = if self.does(ViewsMutant::NumberKept) {
                life.0 as u16
            } else {
                next_writer(&next.view, next.last_writer)
            };
            if let Some(writer) = (!next.view.members.contains_key(node)).then_some(number) {
                next.last_writer = writer;
                next.view.members.insert(*node, Writer(writer));
            }
        }
        next.view.homes = if begins { self.homes(&next, |_| Has::Shard) } else { self.homes(&next, has) };
        if next.view == self.given.view && next.lives == self.given.lives {
            return;
        }
        next.view.epoch = Epoch(self.given.view.epoch.max(self.heard_of).0 + 1);
        let epoch = next.view.epoch;
        if begins {
            (next.began, next.founders) = (epoch, next.lives.keys().copied().collect());
        } else {
            next.founders.retain(|node| stays(node));
        }
        next.whole = next.lives.keys().copied().filter(|node| begins || is_whole(node)).collect();
        // What is not known is as late as can be.
        let last = |epochs: &[Epoch], at: usize| epochs.get(at).copied().unwrap_or(epoch);
        let since = |(at, home): (usize, &NodeId)| {
            let View { homes, homes_since, homes_before, .. } = &self.given.view;
            let is_same = !begins && stays(home) && homes.get(at) == Some(home);
            if is_same { (last(homes_since, at), last(homes_before, at)) } else { (epoch, last(homes_since, at)) }
        };
        (next.view.homes_since, next.view.homes_before) = next.view.homes.iter().enumerate().map(since).unzip();
        let kept_since = |(at, home): (usize, &NodeId)| {
            let is_same = stays(home) && self.given.view.homes.get(at) == Some(home);
            let comes_back = self.config.nodes.get(at) == Some(home) && has(home) == Has::Shard;
            let is_kept = !begins && (is_same || comes_back || self.does(ViewsMutant::LostUntold));
            if is_kept { last(&self.given.kept_since, at) } else { epoch }
        };
        next.kept_since = next.view.homes.iter().enumerate().map(kept_since).collect();
        out.keep = Some(next.clone());
        if self.does(ViewsMutant::ToldUnkept) {
            self.on_kept(now, next, out);
        } else {
            self.keeping = Some(next);
        }
    }

    /// Who is to be there.
    fn lives(&self, now: Moment) -> BTreeMap<NodeId, Incarnation> {
        let is_left =
            |node: &NodeId, life: Incarnation| !self.is_gone(now, *node) && !self.is_followed(now, *node, life);
        let mut lives: BTreeMap<NodeId, Incarnation> = self
            .given
            .lives
            .iter()
            .filter(|(node, life)| is_left(node, **life))
            .map(|(node, life)| (*node, *life))
            .collect();
        let is_whole = |node: &NodeId| self.known.get(node).is_some_and(|known| known.has >= Has::HotKeys);
        if !lives.keys().any(is_whole) {
            // Nobody else has what these have: they are waited for, unless they are known to be over.
            let is_last = |(node, life): &(&NodeId, &Incarnation)| {
                let heard_at = self.known.get(node).map_or(Moment::default(), |known| known.heard_at);
                let waits = now.since(heard_at) < self.config.last_copy_waits;
                is_whole(node) && waits && self.coming.get(node).is_none_or(|(coming, _)| coming <= life)
            };
            lives.extend(self.given.lives.iter().filter(is_last).map(|(node, life)| (*node, *life)));
        }
        for (node, (life, _)) in &self.coming {
            lives.entry(*node).or_insert(*life);
        }
        lives
    }

    /// Whose each shard is: its own node's, if that has it; else who has it now; else the next one behind that is whole.
    fn homes(&self, next: &Given, has: impl Fn(&NodeId) -> Has) -> Vec<NodeId> {
        let nodes = &self.config.nodes;
        let home = |(at, own): (usize, &NodeId)| {
            let is_member = |node: &NodeId| next.lives.contains_key(node);
            let is_whole = |node: &NodeId| is_member(node) && has(node) >= Has::HotKeys;
            let now = self.given.view.homes.get(at).filter(|home| is_whole(home));
            let own = Some(own).filter(|own| is_member(own) && has(own) == Has::Shard);
            let behind = || nodes[at..].iter().chain(&nodes[..at]).find(|node| is_whole(node));
            own.or(now).or_else(behind).copied()
        };
        // None of one is none of all: nobody is there.
        nodes.iter().enumerate().filter_map(home).collect()
    }

    /// Whether a member has fallen silent, and serves no more.
    fn is_gone(&self, now: Moment, node: NodeId) -> bool {
        let Some(known) = self.known.get(&node) else { return true };
        if self.does(ViewsMutant::GoneEarly) {
            return now.since(known.heard_at) >= self.config.lease.part(2);
        }
        now.since(known.heard_at) >= self.granted() && now >= known.leased_until
    }

    /// Whether another life of a member's node is to take its place, and may.
    fn is_followed(&self, now: Moment, node: NodeId, life: Incarnation) -> bool {
        let is_over = || self.known.get(&node).is_none_or(|known| now >= known.leased_until);
        let follows = self.coming.get(&node).is_some_and(|(coming, _)| *coming > life);
        follows && (is_over() || self.does(ViewsMutant::LifeReplaced))
    }
}

/// The next number that no member has; 0 is none.
fn next_writer(view: &View, last: u16) -> u16 {
    let taken: BTreeSet<u16> = view.members.values().map(|Writer(number)| *number).collect();
    let behind = (1..=u16::MAX).map(|by| last.wrapping_add(by));
    behind.into_iter().find(|number| *number != 0 && !taken.contains(number)).unwrap_or(last)
}

#[cfg(test)]
#[path = "views_tests.rs"]
mod tests;
