//! What the coordinator keeps, and what each view that it gives out may have lost.
//!
//! Always true: what was written is there when it begins again; of what was being written when it was killed, the first few have come through. A view counts from when it is on disk: nobody
//! is told of it before, and by then nobody who is in it no more has a lease.

use std::collections::VecDeque;

use guira_cluster::Drift;
use guira_item::{Moment, Span};
use guira_routing::NodeId;
use guira_symmetric::{Given, slot_of};
use rand::{RngExt, rngs::Xoshiro256PlusPlus};

use super::{
    coming::{Coming, Input},
    members::{COORDINATOR, Core},
    world::World,
};
use crate::{chance::between, clients::KeyNumber, simulation::Failure};

/// The coordinator's disk.
#[derive(Debug, Default)]
pub(super) struct Disk {
    written: Option<Vec<u8>>,
    /// Oldest first.
    writing: VecDeque<Vec<u8>>,
    /// When the last of these is written: the next one is not before.
    free_at: Moment,
}

/// As long as a write takes, mostly; and now and then.
const TAKES_MAX: Span = Span::from_ms(10);
const SOMETIMES_TAKES_MAX: Span = Span::from_s(1);

impl Disk {
    /// What is on it.
    ///
    /// # Errors
    /// That cannot be read.
    pub(super) fn read(&self) -> Result<Option<Given>, Failure> {
        self.written.as_deref().map(decoded).transpose()
    }

    /// Takes something that is to be written, from `at` on: when it will have been.
    fn take(&mut self, given: &Given, at: Moment, rng: &mut Xoshiro256PlusPlus) -> Moment {
        let most = if rng.random_bool(0.03) { SOMETIMES_TAKES_MAX } else { TAKES_MAX };
        self.free_at = self.free_at.max(at + between(rng, Span::from_us(100), most));
        self.writing.push_back(given.encode());
        self.free_at
    }

    /// The oldest of what is being written has been: what that is.
    fn write(&mut self) -> Option<Result<Given, Failure>> {
        let bytes = self.writing.pop_front()?;
        let given = decoded(&bytes);
        self.written = Some(bytes);
        Some(given)
    }
}

fn decoded(bytes: &[u8]) -> Result<Given, Failure> {
    Given::decode(bytes).map_err(|error| Failure::Answer(error.to_string()))
}

impl World {
    /// The coordinator has something kept, `held` later.
    pub(super) fn keep(&mut self, given: &Given, held: Span) {
        let written_at = self.disk.take(given, self.now + held, &mut self.rng);
        let life = self.members[&COORDINATOR].host.life();
        self.come(written_at.since(self.now), Coming::Written(life));
    }

    /// Something is on disk; who is still in the life that wanted it hears of that.
    pub(super) fn on_written(&mut self, life: u64) -> Result<(), Failure> {
        if self.members[&COORDINATOR].host.life() != life || self.is_down(COORDINATOR) {
            return Ok(());
        }
        if let Some(given) = self.disk.write() {
            let epoch = self.give(given?);
            self.come(Span::default(), Coming::To(COORDINATOR, Some(life), Input::Kept(epoch)));
        }
        Ok(())
    }

    /// The coordinator is killed: of what it was writing, some has come through.
    pub(super) fn break_off_writing(&mut self) -> Result<(), Failure> {
        let through = self.rng.random_range(0..=self.disk.writing.len());
        for _ in 0..through {
            if let Some(given) = self.disk.write() {
                self.give(given?);
            }
        }
        self.disk.writing.clear();
        self.disk.free_at = self.now;
        Ok(())
    }

    /// There is another view: its epoch.
    fn give(&mut self, given: Given) -> guira_consistency::Epoch {
        let epoch = given.view.epoch;
        self.report.views += 1;
        for key in (0..self.scenario.keys).map(KeyNumber) {
            if self.may_have_lost(&key.name(), &given) {
                // By then no home of before serves, and none of now has begun to before all of those were over (R2): leases as those count that grant them.
                let ends = self.now + Drift::default().granter(self.scenario.lease).times(2);
                self.clients.may_lose(key, ends);
                self.report.may_be_lost += 1;
            }
        }
        self.given = given;
        epoch
    }

    /// Whether a key may be gone with its home: that is gone, and nobody who is left has it as hot.
    fn may_have_lost(&self, key: &[u8], given: &Given) -> bool {
        let Some(slot) = slot_of(key, given.view.homes.len()) else { return false };
        if given.began == given.view.epoch {
            return true;
        }
        // A home that gives its shard back to its own node loses nothing.
        let is_lost = self.given.kept_since.get(slot) != given.kept_since.get(slot);
        is_lost && !given.whole.iter().any(|name| self.has_hot(*name, key, given))
    }

    /// Whether a member is up, in the life that the view has, and has a key as hot.
    fn has_hot(&self, name: NodeId, key: &[u8], given: &Given) -> bool {
        let Some(member) = self.members.get(&name) else { return false };
        let is_it = given.lives.get(&name) == Some(&member.host.incarnation());
        is_it && matches!(&member.core, Some(Core::Node(node)) if node.is_hot(key))
    }
}

#[cfg(test)]
mod tests {
    use guira_consistency::{Epoch, View};
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn writes_come_one_after_the_other_and_the_last_that_has_come_is_there() {
        let (mut disk, mut rng) = (Disk::default(), Xoshiro256PlusPlus::seed_from_u64(1));
        assert_eq!(disk.read(), Ok(None));
        let given = |epoch| Given { view: View { epoch: Epoch(epoch), ..View::default() }, ..Given::default() };
        let times: Vec<Moment> = (1..100).map(|epoch| disk.take(&given(epoch), Moment::default(), &mut rng)).collect();
        assert!(times.is_sorted());
        assert_eq!(disk.read(), Ok(None), "none has come yet");
        for epoch in 1..100 {
            assert_eq!(disk.write(), Some(Ok(given(epoch))));
            assert_eq!(disk.read(), Ok(Some(given(epoch))));
        }
        assert_eq!(disk.write(), None);
    }
}
