//! The coordinator: gives out views and leases, and says which keys are to be hot.
//!
//! ```text
//! node --- Here, every quarter of a lease ---> Views ---> Told: the view, a lease
//!      <-- AskHottest, once an epoch ---------
//!      --- Hottest --------------------------> HotSetChooser ---> HotSet, to all
//! ```
//! Every node sees the same distribution of requests (ccKVS, section 4), so one is asked. That is whichever asks for most of late: clients may all be at one.
//!
//! Always true: who promises something else than the others is never taken in; hot sets that nodes have are numbered; one that has begun anew chooses none before a node has told it theirs.

use std::collections::{BTreeMap, BTreeSet};

use guira_consistency::{Consistency, Epoch, View};
use guira_hotkeys::HotKey;
use guira_item::{Moment, Span};
use guira_routing::NodeId;

use crate::{Given, HotSetChooser, HotSetConfig, Message, Views, ViewsConfig, ViewsError, ViewsHappened, ViewsOutbox};

/// The number of a set, at most: nobody comes so far.
const NUMBER_MAX: u64 = 1 << 62;

/// What a coordinator is.
#[derive(Clone, Debug)]
pub struct CoordinatorConfig {
    /// Whose.
    pub me: NodeId,
    /// Of which nodes, and for how long leases are.
    pub views: ViewsConfig,
    /// How hot sets are chosen.
    pub hot: HotSetConfig,
    /// How often one is.
    pub epoch: Span,
    /// What is promised; the same for all.
    pub consistency: Consistency,
}

/// What has happened to a coordinator.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::large_enum_variant, reason = "it is made for one step, and not kept")]
pub enum CoordinatorHappened {
    /// A node has said something.
    Message(NodeId, Message),
    /// What was to be kept is on disk, up to the view of this epoch.
    Kept(Epoch),
    /// Time has passed: at [`Coordinator::wake_at`], at the latest.
    Tick,
}

/// What a step wants done, in this order.
#[derive(Clone, Debug, Default)]
pub struct CoordinatorOutbox {
    /// To be kept, so that it is there whatever happens; then it is said that it is.
    pub keep: Option<Given>,
    /// For nodes.
    pub sends: Vec<(NodeId, Message)>,
    /// To be told to who runs it: a node that promises something else, and is not taken in.
    pub differs: Option<(NodeId, Consistency)>,
}

impl CoordinatorOutbox {
    /// Everything is done.
    pub fn clear(&mut self) {
        let Self { keep, sends, differs } = self;
        (*keep, *differs) = (None, None);
        sends.clear();
    }
}

/// How a coordinator is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoordinatorStatus {
    /// The view that was given out last.
    pub view: View,
    /// The members of it that are whole, as far as is known.
    pub whole: Vec<NodeId>,
    /// The number of the hot set.
    pub hot_set: u64,
    /// Keys in it.
    pub hot_keys: usize,
    /// Who is asked for the hottest keys.
    pub reporter: Option<NodeId>,
    /// Nodes that are not taken in, since they promise something else.
    pub differing: usize,
}

/// A node, as it was heard of last.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// What it asks for in an epoch, in all: as its hottest keys say.
    per_s: f64,
    /// The hot set that it has.
    hot_set: u64,
}

/// A coordinator.
#[derive(Clone, Debug)]
pub struct Coordinator {
    config: CoordinatorConfig,
    views: Views,
    views_out: ViewsOutbox,
    /// `None`: it is not known which set nodes have.
    chooser: Option<HotSetChooser>,
    heard: BTreeMap<NodeId, Heard>,
    reporter: Option<NodeId>,
    /// Nodes that promise something else, which was told.
    differing: BTreeSet<NodeId>,
    /// All nodes are asked in turn, so that it is known who has most.
    asked_last: Option<NodeId>,
    asks_at: Moment,
}

impl Coordinator {
    /// One that begins, with what was kept last, if anything was.
    ///
    /// # Errors
    /// [`ViewsError`].
    pub fn new(now: Moment, config: CoordinatorConfig, kept: Option<Given>) -> Result<Self, ViewsError> {
        let views = Views::new(now, config.views.clone(), kept)?;
        let asks_at = now + config.epoch;
        Ok(Self {
            config,
            views,
            views_out: ViewsOutbox::default(),
            chooser: None,
            heard: BTreeMap::new(),
            reporter: None,
            differing: BTreeSet::new(),
            asked_last: None,
            asks_at,
        })
    }

    /// Heeds what has happened; `now` was read after it had (R1).
    pub fn step(&mut self, now: Moment, happened: CoordinatorHappened, out: &mut CoordinatorOutbox) {
        match happened {
            CoordinatorHappened::Message(from, Message::Here { here, hot_set, consistency }) => {
                if self.config.views.nodes.contains(&from)
                    && self.is_alike(from, consistency, out)
                    && hot_set <= NUMBER_MAX
                {
                    self.heard.entry(from).or_default().hot_set = hot_set;
                    self.tell_views(now, ViewsHappened::Here(from, here), out);
                    self.tell_hot_set(from, out);
                }
            }
            CoordinatorHappened::Message(from, Message::Hottest { keys, set }) => {
                if self.config.views.nodes.contains(&from) {
                    self.on_hottest(from, keys, set, out);
                }
            }
            // Nothing else is meant for it.
            CoordinatorHappened::Message(..) => {}
            CoordinatorHappened::Kept(epoch) => self.tell_views(now, ViewsHappened::Kept(epoch), out),
            CoordinatorHappened::Tick => self.tell_views(now, ViewsHappened::Tick, out),
        }
        if now >= self.asks_at {
            self.asks_at = now + self.config.epoch;
            self.ask(out);
        }
    }

    /// Whether a node promises what all do; that one does not is told once.
    fn is_alike(&mut self, node: NodeId, consistency: Consistency, out: &mut CoordinatorOutbox) -> bool {
        let is_alike = consistency == self.config.consistency;
        if is_alike {
            self.differing.remove(&node);
        } else if self.differing.insert(node) {
            out.differs = Some((node, consistency));
        }
        is_alike
    }

    /// When it has to be ticked.
    pub fn wake_at(&self) -> Moment {
        self.views.wake_at().min(self.asks_at)
    }

    /// How it is.
    pub fn status(&self) -> CoordinatorStatus {
        let set = self.chooser.as_ref().map(HotSetChooser::set);
        CoordinatorStatus {
            view: self.views.view().clone(),
            whole: self.views.whole(),
            hot_set: set.map_or(0, |set| set.number),
            hot_keys: set.map_or(0, |set| set.keys.len()),
            reporter: self.reporter,
            differing: self.differing.len(),
        }
    }

    fn tell_views(&mut self, now: Moment, happened: ViewsHappened, out: &mut CoordinatorOutbox) {
        self.views.step(now, happened, &mut self.views_out);
        if let Some(keep) = self.views_out.keep.take() {
            out.keep = Some(keep);
        }
        let told = self.views_out.sends.drain(..).map(|(node, told)| (node, Message::Told(Box::new(told))));
        out.sends.extend(told);
    }

    /// Asks who has most, and one of the others in turn.
    fn ask(&mut self, out: &mut CoordinatorOutbox) {
        let members: Vec<NodeId> = self.views.view().members.keys().copied().collect();
        self.heard.retain(|node, _| members.contains(node));
        let per_s = |node: &NodeId| self.heard.get(node).map_or(0.0, |heard| heard.per_s);
        self.reporter = members.iter().copied().max_by(|a, b| per_s(a).total_cmp(&per_s(b)).then_with(|| b.cmp(a)));
        let next = members.iter().copied().find(|node| Some(*node) > self.asked_last);
        self.asked_last = next.or_else(|| members.first().copied());
        let both = [self.reporter, self.asked_last.filter(|other| Some(*other) != self.reporter)];
        out.sends.extend(both.into_iter().flatten().map(|node| (node, Message::AskHottest)));
    }

    fn on_hottest(
        &mut self,
        from: NodeId,
        keys: Vec<(guira_consistency::Key, f64)>,
        set: crate::HotSet,
        out: &mut CoordinatorOutbox,
    ) {
        let Some(heard) = self.heard.get_mut(&from) else { return };
        let is_sound = set.number <= NUMBER_MAX && keys.iter().all(|(_, per_s)| per_s.is_finite() && *per_s >= 0.0);
        if !is_sound {
            return;
        }
        heard.per_s = keys.iter().map(|(_, per_s)| per_s).sum();
        let last = self.heard.values().map(|heard| heard.hot_set).max().unwrap_or(0);
        if self.chooser.is_none() && set.number < last {
            // Another node has a later one: it is asked in its turn.
            return;
        }
        let is_behind = self.chooser.as_ref().is_none_or(|chooser| chooser.set().number < set.number);
        if is_behind {
            self.chooser = Some(HotSetChooser::new(self.config.hot, set));
        }
        if Some(from) != self.reporter {
            return;
        }
        let hottest: Vec<HotKey> = keys.into_iter().map(|(key, per_s)| HotKey { key: key[..].into(), per_s }).collect();
        if self.chooser.as_mut().is_some_and(|chooser| chooser.end_epoch(&hottest)) {
            let members: Vec<NodeId> = self.views.view().members.keys().copied().collect();
            members.into_iter().for_each(|node| self.tell_hot_set(node, out));
        }
    }

    /// Tells a node the set, if it has another.
    fn tell_hot_set(&self, node: NodeId, out: &mut CoordinatorOutbox) {
        let Some(chooser) = &self.chooser else { return };
        let has = self.heard.get(&node).map_or(0, |heard| heard.hot_set);
        if has < chooser.set().number {
            out.sends.push((node, Message::HotSet(chooser.set().clone())));
        }
    }
}
