//! The network: loses, doubles and delays datagrams, so that they overtake each other; between two nodes it is slow or cut, in one direction or
//! both.

use std::collections::{BTreeMap, BTreeSet};

use guira_item::Span;
use guira_routing::NodeId;
use rand::{RngExt, rngs::Xoshiro256PlusPlus};

/// How bad it is: shares of datagrams in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Weather {
    pub(crate) lost: u32,
    pub(crate) doubled: u32,
    /// Delayed by anything up to `LATE_MAX`.
    pub(crate) late: u32,
}

/// As long as a datagram may be under way.
pub(crate) const LATE_MAX: Span = Span::from_s(4);

impl Weather {
    pub(crate) const CLEAR: Self = Self { lost: 0, doubled: 0, late: 0 };
    pub(crate) const USUAL: Self = Self { lost: 5, doubled: 10, late: 5 };
    pub(crate) const STORM: Self = Self { lost: 250, doubled: 150, late: 150 };
}

/// How somebody is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CutOff {
    BothWays,
    /// It hears others.
    IsNotHeard,
    /// It is heard.
    HearsNothing,
}

impl CutOff {
    pub(crate) fn any(rng: &mut Xoshiro256PlusPlus) -> Self {
        [Self::BothWays, Self::IsNotHeard, Self::HearsNothing][rng.random_range(0..3)]
    }
}

/// Who cannot hear whom, and the weather.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) weather: Weather,
    cuts: BTreeSet<(NodeId, NodeId)>,
    /// How much longer than usual it takes.
    slow: BTreeMap<(NodeId, NodeId), Span>,
}

impl Network {
    pub(crate) fn new(weather: Weather) -> Self {
        Self { weather, cuts: BTreeSet::new(), slow: BTreeMap::new() }
    }

    pub(crate) fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cuts.insert((from, to));
    }

    /// Somebody is cut off from these.
    pub(crate) fn cut_off(&mut self, name: NodeId, from: &[NodeId], way: CutOff) {
        for other in from.iter().copied() {
            if way != CutOff::HearsNothing {
                self.cut(name, other);
            }
            if way != CutOff::IsNotHeard {
                self.cut(other, name);
            }
        }
    }

    pub(crate) fn slow_down(&mut self, from: NodeId, to: NodeId, by: Span) {
        self.slow.insert((from, to), by);
    }

    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
        self.slow.clear();
    }

    /// After how long a datagram arrives, and perhaps again.
    pub(crate) fn fates(&self, from: NodeId, to: NodeId, rng: &mut Xoshiro256PlusPlus) -> [Option<Span>; 2] {
        let Weather { lost, doubled, late } = self.weather;
        let by = self.slow.get(&(from, to)).copied().unwrap_or_default();
        let mut fate = || {
            let usual = Span::from_us(20 + rng.random_range(0..100)) + by;
            let is_late = rng.random_range(0..1_000) < late;
            if is_late { Span::from_ns(rng.random_range(0..LATE_MAX.ns())) } else { usual }
        };
        let (first, second) = (fate(), fate());
        if self.cuts.contains(&(from, to)) || rng.random_range(0..1_000) < lost {
            return [None, None];
        }
        [Some(first), (rng.random_range(0..1_000) < doubled).then_some(second)]
    }
}
