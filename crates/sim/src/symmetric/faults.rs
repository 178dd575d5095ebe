//! What goes wrong.

use guira_item::Span;
use guira_routing::NodeId;
use rand::RngExt;

use super::{coming::Coming, members::COORDINATOR, world::World};
use crate::{
    chance::between,
    network::{CutOff, Weather},
    simulation::Failure,
};

impl World {
    /// One fault, at random.
    pub(super) fn go_wrong(&mut self) -> Result<(), Failure> {
        let names = self.scenario.names();
        let name = names[self.rng.random_range(0..names.len())];
        match self.rng.random_range(0..100) {
            0..2 => return self.kill_many(&names),
            2..30 => return self.kill(name),
            30..50 => self.pause(name),
            50..70 => self.cut_off(name, &names),
            70..76 => self.cut_off_from_coordinator(),
            76..90 => {
                self.network.weather = Weather::STORM;
                let after = between(&mut self.rng, Span::from_ms(200), Span::from_s(3));
                self.come(after, Coming::Clears);
            }
            90..95 => self.fade(&names),
            _ => {
                let now = self.now;
                self.members.values_mut().for_each(|member| member.host.set_clock_rate(now, &mut self.rng));
            }
        }
        Ok(())
    }

    /// A member is killed, and begins again soon, or long after its lease.
    fn kill(&mut self, name: NodeId) -> Result<(), Failure> {
        let is_long = self.rng.random_bool(0.2);
        let (least, most) =
            if is_long { (Span::from_s(5), Span::from_s(20)) } else { (Span::from_ms(50), Span::from_s(5)) };
        let down_for = between(&mut self.rng, least, most);
        let loses_clock = self.rng.random_bool(0.3);
        self.crash(name, down_for, loses_clock)
    }

    /// All are killed, or all but a few: who has everything may be nobody.
    fn kill_many(&mut self, names: &[NodeId]) -> Result<(), Failure> {
        let share = if self.rng.random_bool(0.5) { 1.0 } else { 0.7 };
        for name in names.iter().copied() {
            if self.rng.random_bool(share) {
                self.kill(name)?;
            }
        }
        Ok(())
    }

    fn pause(&mut self, name: NodeId) {
        let pause = between(&mut self.rng, Span::from_ms(20), Span::from_s(3));
        let in_a_step = self.rng.random_bool(0.5);
        let now = self.now;
        self.member(name).host.pause(now, pause, in_a_step);
    }

    /// From all or from one other, both ways or one.
    fn cut_off(&mut self, name: NodeId, names: &[NodeId]) {
        let way = CutOff::any(&mut self.rng);
        let from = if self.rng.random_bool(0.5) { names } else { &names[self.rng.random_range(0..names.len())..][..1] };
        self.network.cut_off(name, from, way);
        self.heals_after_a_while();
    }

    /// A node does not hear the coordinator, or is not heard by it, and hears all others.
    fn cut_off_from_coordinator(&mut self) {
        let nodes = self.scenario.node_names();
        let name = nodes[self.rng.random_range(0..nodes.len())];
        let way = CutOff::any(&mut self.rng);
        self.network.cut_off(name, &[COORDINATOR], way);
        self.heals_after_a_while();
    }

    fn heals_after_a_while(&mut self) {
        let after = between(&mut self.rng, Span::from_ms(200), Span::from_s(6));
        self.come(after, Coming::Heals);
    }

    /// What one member tells another takes almost as long as a lease, and then they are cut off.
    fn fade(&mut self, names: &[NodeId]) {
        let (from, to) = (names[self.rng.random_range(0..names.len())], names[self.rng.random_range(0..names.len())]);
        let lease = self.scenario.lease;
        self.network.slow_down(from, to, between(&mut self.rng, lease.part(2), lease));
        let cuts_after = between(&mut self.rng, Span::from_ms(100), lease.times(2));
        self.come(cuts_after, Coming::Cuts(from, to));
        let heals_after = cuts_after + between(&mut self.rng, Span::from_ms(200), Span::from_s(6));
        self.come(heals_after, Coming::Heals);
    }
}
