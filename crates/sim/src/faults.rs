//! What goes wrong.

use guira_item::Span;
use guira_routing::NodeId;
use rand::RngExt;

use crate::{
    chance::between,
    network::{CutOff, Weather},
    world::World,
};

impl World {
    /// One fault, at random.
    pub(crate) fn go_wrong(&mut self) {
        let names = self.names();
        let name = names[self.rng.random_range(0..names.len())];
        if self.scenario.standbys > 0 && self.rng.random_bool(0.3) {
            return self.have_taken_over();
        }
        if self.scenario.disk_stalls_max > Span::default() && self.rng.random_bool(0.5) {
            return self.stall();
        }
        match self.rng.random_range(0..100) {
            0..25 => {
                let down_for = self.span(Span::from_ms(50), Span::from_s(5));
                let loses_clock = self.rng.random_bool(0.3);
                self.crash(name, down_for, loses_clock);
            }
            25..50 => {
                let pause = self.span(Span::from_ms(20), Span::from_s(3));
                let in_a_step = self.rng.random_bool(0.5);
                self.pause(name, pause, in_a_step);
            }
            50..70 => {
                self.cut_off(name, &names);
                let after = self.span(Span::from_ms(200), Span::from_s(6));
                self.heals_after(after);
            }
            70..85 => {
                self.network.weather = Weather::STORM;
                let after = self.span(Span::from_ms(200), Span::from_s(3));
                self.clears_after(after);
            }
            85..90 => self.fade(&names),
            90..93 => names.iter().for_each(|name| self.set_clock_rate(*name)),
            _ => {
                self.set_failing(name, 300);
                let after = self.span(Span::from_ms(100), Span::from_s(2));
                self.clears_after(after);
            }
        }
    }

    /// What one node tells another takes almost as long as a lease, and then they are cut off.
    fn fade(&mut self, names: &[NodeId]) {
        let (from, to) = (names[self.rng.random_range(0..names.len())], names[self.rng.random_range(0..names.len())]);
        let by = self.span(self.scenario.lease.part(2), self.scenario.lease);
        self.network.slow_down(from, to, by);
        let after = self.span(Span::from_ms(100), self.scenario.lease.times(2));
        self.cut_after(after, from, to);
        let after = after + self.span(Span::from_ms(200), Span::from_s(6));
        self.heals_after(after);
    }

    /// A backend's disk does nothing for a while of what it is asked from now on, and then all of it, in order; its core goes on.
    fn stall(&mut self) {
        let backends = self.view().backends.clone();
        let name = backends[self.rng.random_range(0..backends.len())];
        let stall = self.span(Span::from_ms(100), self.scenario.disk_stalls_max);
        self.stall_disk(name, stall);
    }

    /// A node is cut off: from all or from one other, both ways or one.
    fn cut_off(&mut self, name: NodeId, names: &[NodeId]) {
        let other = names[self.rng.random_range(0..names.len())];
        let from_all = self.rng.random_bool(0.5);
        let way = CutOff::any(&mut self.rng);
        self.network.cut_off(name, if from_all { names } else { std::slice::from_ref(&other) }, way);
    }

    pub(crate) fn span(&mut self, least: Span, most: Span) -> Span {
        between(&mut self.rng, least, most)
    }
}
