//! A node's lease: how long it may serve, and of which shards it is home, by what those who give out views have told it.
//!
//! Always true: a lease is counted from before it was asked for, by a clock that may be slow by its bound (R1); it is of the epoch of the view that is here, and ends with that. A
//! shard is served by a home that was it before without a break, or once nobody can have a lease of a view before.

use guira_cluster::{Drift, Incarnation};
use guira_consistency::{Epoch, View};
use guira_item::{Moment, Span};
use guira_routing::NodeId;

use crate::{Has, Here, Told};

/// Times that a lease is asked for while one lasts: two that are lost in a row cost nothing.
const ASKS_A_LEASE: u64 = 4;

/// What a node's lease is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HolderConfig {
    /// Which node.
    pub me: NodeId,
    /// This life of it.
    pub life: Incarnation,
    /// How long a lease lasts, until it is told.
    pub lease: Span,
    /// How far clocks drift apart.
    pub drift: Drift,
}

/// What another view means for a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// It is a member as it was before.
    GoesOn,
    /// It is a new member, whether or not it was one before: what it had is worth nothing.
    Joins,
    /// Everything begins: it has all there is, which is nothing.
    Begins,
}

/// A node's lease.
#[derive(Clone, Debug)]
pub struct Holder {
    config: HolderConfig,
    view: View,
    /// Of each shard: that this node is its home, and nobody else can take himself for it.
    is_home: Vec<bool>,
    serves_until: Moment,
    asks_at: Moment,
    said: Option<Has>,
    lease: Span,
    own_shard: usize,
    /// Since when nothing of each shard has been lost.
    kept_since: Vec<Epoch>,
}

impl Holder {
    /// One that has none, in no view.
    pub fn new(config: HolderConfig) -> Self {
        Self {
            config,
            view: View::default(),
            is_home: Vec::new(),
            serves_until: Moment::default(),
            asks_at: Moment::default(),
            said: None,
            lease: config.lease,
            own_shard: 0,
            kept_since: Vec::new(),
        }
    }

    /// What is to be said now, if it is time; `has` is what the node has.
    pub fn ask(&mut self, now: Moment, has: Has) -> Option<Here> {
        if now < self.asks_at && self.said == Some(has) {
            return None;
        }
        self.asks_at = now + self.lease.part(ASKS_A_LEASE);
        self.said = Some(has);
        let writer = self.view.members.get(&self.config.me).copied();
        Some(Here { life: self.config.life, writer, epoch: self.view.epoch, asked: now, has })
    }

    /// Heeds what was told. What it means, if it is another view.
    pub fn heed(&mut self, told: Told) -> Option<Heard> {
        let Told { life, asked, view, began, grants, lease, is_settled, own_shard, kept_since } = told;
        // An earlier life's answer that comes late says nothing of this one.
        if life != self.config.life || view.epoch < self.view.epoch {
            return None;
        }
        let heard = (view.epoch > self.view.epoch).then(|| {
            let me = self.config.me;
            let goes_on = view.members.get(&me) == self.view.members.get(&me);
            let is_home = |at: usize| {
                let was_it = self.is_home.get(at).copied().unwrap_or(false);
                goes_on && was_it && self.view.homes_since.get(at) == view.homes_since.get(at)
            };
            self.is_home = (0..view.homes.len()).map(is_home).collect();
            let begins = began.is_some_and(|began| began > self.view.epoch);
            self.view = view;
            (self.own_shard, self.kept_since) = (own_shard, kept_since);
            self.serves_until = Moment::default();
            // It is told at once that this is here: others wait for that.
            self.said = None;
            match (goes_on, begins) {
                (true, _) => Heard::GoesOn,
                (false, true) => Heard::Begins,
                (false, false) => Heard::Joins,
            }
        });
        self.lease = lease;
        if grants {
            self.serves_until = self.serves_until.max(asked + self.config.drift.holder(lease));
        }
        if is_settled {
            self.is_home = self.view.homes.iter().map(|home| *home == self.config.me).collect();
        }
        heard
    }

    /// The view that is here.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Until when the node may serve.
    pub fn serves_until(&self) -> Moment {
        self.serves_until
    }

    /// Whether it may serve a shard, as long as it may serve.
    pub fn is_home_of(&self, shard: usize) -> bool {
        self.is_home.get(shard).copied().unwrap_or(false)
    }

    /// Since which epoch a shard has had the home that it has: one that comes to be home again has to forget what it had when it was it before.
    pub fn home_since(&self, shard: usize) -> Option<Epoch> {
        self.view.homes_since.get(shard).copied()
    }

    /// Which shard is this node's own, if there are any.
    pub fn own_shard(&self) -> Option<usize> {
        Some(self.own_shard).filter(|shard| *shard < self.view.homes.len())
    }

    /// Since which epoch nothing of a shard has been lost: each home since then has had what the one before had.
    pub fn kept_since(&self, shard: usize) -> Option<Epoch> {
        self.kept_since.get(shard).copied()
    }

    /// When it is to be asked again what is to be said, if what the node has does not change before.
    pub fn wake_at(&self) -> Moment {
        if self.said.is_none() { Moment::default() } else { self.asks_at }
    }
}
