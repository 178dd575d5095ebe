//! Who has the partition of key A, and who is to: what the coordinator keeps, and what of it each member has heard.
//!
//! Always true: the map changes by commits alone, one at a time; a commit takes place, or does not, at any time after it was asked for, also when who
//! has asked is no more; its answer comes only to the life that has asked.

use std::sync::Arc;

use guira_cluster::Incarnation;
use guira_routing::{NodeId, PartitionId, PartitionMap};
use guira_switched::{Commit, Committed, Mutant, Revision, Shares};
use serde::Serialize;

use crate::switched::members::BACKENDS;

/// A map, as far as maps differ: who has the partition of key A. All others are the last backend's.
type Map = Arc<PartitionMap>;

/// What is known of the map, by who owns the partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Known {
    owner: NodeId,
    revision: u64,
    wanted: NodeId,
}

/// A commit that is under way.
#[derive(Clone, Debug, Serialize)]
struct Asked {
    by: NodeId,
    life: u64,
    to: NodeId,
    to_life: Incarnation,
}

/// What came of one, on its way to who has asked.
#[derive(Clone, Debug, Serialize)]
struct Answer {
    to: NodeId,
    /// The map's number; `None`: it did not take place.
    as_of: Option<u64>,
}

/// The coordinator.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Coordinator {
    /// By owner, in the order of [`BACKENDS`].
    #[serde(skip)]
    maps: Vec<(NodeId, Map)>,
    now: Known,
    asked: Vec<Asked>,
    answers: Vec<Answer>,
}

impl Coordinator {
    /// The first backend has the partition, and so it is to be.
    pub(crate) fn new(backends: usize, partition: PartitionId) -> Self {
        let backends = &BACKENDS[..backends];
        let last = backends.last().expect("there is one");
        let all = PartitionMap::over(&[*last]).expect("one is not too many");
        let maps = backends.iter().map(|owner| (*owner, Arc::new(all.with_owner([partition], *owner)))).collect();
        let now = Known { owner: backends[0], revision: 0, wanted: backends[0] };
        Self { maps, now, asked: Vec::new(), answers: Vec::new() }
    }

    /// What is so now.
    pub(crate) fn now(&self) -> Known {
        self.now
    }

    /// It, as members are told it.
    pub(crate) fn shares(&self) -> Shares {
        let Known { owner, revision, wanted } = self.now;
        Shares { map: self.map(owner), revision: Revision(revision), wanted: self.map(wanted) }
    }

    fn map(&self, owner: NodeId) -> Map {
        let (_, map) = self.maps.iter().find(|(of, _)| *of == owner).expect("one of the backends");
        Arc::clone(map)
    }

    /// The partition is to be another backend's.
    pub(crate) fn turn(&mut self) {
        let others = self.maps.iter().map(|(owner, _)| *owner).find(|other| *other != self.now.wanted);
        self.now.wanted = others.expect("there are two");
    }

    /// The map is what it is to be.
    pub(crate) fn is_as_wanted(&self) -> bool {
        self.now.owner == self.now.wanted
    }

    /// How often it has gone to another backend.
    pub(crate) fn moved(&self) -> u64 {
        self.now.revision
    }

    /// A backend, in that life, wants something in the map.
    pub(crate) fn take(&mut self, by: NodeId, life: u64, commit: &Commit) {
        self.asked.push(Asked { by, life, to: commit.to, to_life: commit.to_life });
    }

    /// Commits that are under way.
    pub(crate) fn asked(&self) -> usize {
        self.asked.len()
    }

    /// A commit takes place, if it may (of lives that are over none does) and is not refused. `life_of` tells the present lives of backends.
    pub(crate) fn commit(
        &mut self,
        at: usize,
        is_refused: bool,
        mutant: Option<Mutant>,
        life_of: impl Fn(NodeId) -> (u64, Incarnation),
    ) {
        let Asked { by, life, to, to_life } = self.asked.remove(at);
        let is_its_life = life_of(by).0 == life;
        let is_right = (is_its_life || mutant == Some(Mutant::MoveLife))
            && (life_of(to).1 == to_life || mutant == Some(Mutant::MoveTakerLife))
            && self.now.owner == by;
        let takes_place = is_right && !is_refused;
        if takes_place {
            self.now = Known { owner: to, revision: self.now.revision + 1, ..self.now };
        }
        if is_its_life {
            self.answers.push(Answer { to: by, as_of: takes_place.then_some(self.now.revision) });
        }
    }

    /// Answers that are under way.
    pub(crate) fn answers(&self) -> usize {
        self.answers.len()
    }

    /// An answer comes.
    pub(crate) fn answer(&mut self, at: usize) -> (NodeId, Committed) {
        let Answer { to, as_of } = self.answers.remove(at);
        (to, as_of.map_or(Committed::Not, |revision| Committed::As(Revision(revision))))
    }

    /// A backend has died: nothing that was on its way to it comes any more.
    pub(crate) fn forget(&mut self, backend: NodeId) {
        self.answers.retain(|answer| answer.to != backend);
    }

    /// A commit, for who reads a trace.
    pub(crate) fn tell_asked(&self, at: usize) -> String {
        let Asked { by, life, to, .. } = &self.asked[at];
        format!("backend {} in its life {life} has given the partition to backend {}", by.0, to.0)
    }
}

impl Known {
    /// Gateways and cache nodes go by the map alone.
    pub(crate) fn has_the_map_of(&self, other: &Self) -> bool {
        self.revision == other.revision
    }
}
