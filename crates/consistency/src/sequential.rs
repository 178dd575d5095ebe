//! SC: a write takes place where it is asked for, and is told to all; nobody waits (ccKVS's SC, EuroSys'18, section 5.2, after Burckhardt).
//!
//! A read-modify-write takes Lin's round. It needs that nobody can write on top of something older than what it goes by: in Lin what is valid is with
//! all members; here it is made sure of first, by a round about what is newest (*settled*). While the round of a read-modify-write is on its way
//! nobody serves the key who has heard of it. Only who has asked for it finishes it while he is there: so he knows what became of it.
//!
//! Always true:
//! - a member tells its newest write until all have acknowledged it or something newer is here, whose writer does the same; what a departed member has
//!   written everybody tells who has it;
//! - a read-modify-write is on top of something settled, so whatever is written beside it is newer, since that goes two versions up.

use guira_item::Moment;
use guira_routing::NodeId;

use crate::{
    Key, Message, Mutant, Outbox, Timestamp,
    entry::{Entry, Round, Stage, Told},
    ground::Ground,
};

impl Entry {
    /// Whether something may be made of what is newest; if not, that is seen to.
    pub(crate) fn may_modify(&mut self, ground: &mut Ground, key: &Key, now: Moment, out: &mut Outbox) -> bool {
        if ground.has(Mutant::ModifyUnsettled) {
            return true;
        }
        if !self.is_settled && self.round.is_none() {
            let round = Round::about(self.newest.clone(), ground, now);
            let settles = !ground.has(Mutant::SettledByAny);
            self.begin(ground, key, now, Round { is_update: true, settles, ..round }, out);
            self.is_settled |= self.round.is_none();
        }
        self.is_settled && self.round.is_none()
    }

    /// Somebody else has written.
    pub(crate) fn on_update(
        &mut self,
        ground: &mut Ground,
        key: &Key,
        now: Moment,
        told: Told,
        settles: bool,
        out: &mut Outbox,
    ) {
        let Told { from, generation, version, done } = told;
        if generation < self.generation {
            ground.counts.ignored += 1;
            return;
        }
        if self.stage == Stage::Unconfirmed {
            self.stage = Stage::Hot;
        }
        self.done.merge(&done);
        let at = version.at;
        let of = if self.stage == Stage::Hot { self.of } else { generation };
        if self.is_behind(ground, of, at) {
            self.of = of;
            self.take(ground, now, version, true, out);
        } else if at == self.newest.at {
            self.is_valid = true;
        } else if settles {
            self.tell_newest(ground, key, from, out);
            return;
        }
        ground.send(from, Message::Ack { key: key.clone(), generation, at }, out);
        self.go_on(ground, key, now, out);
    }

    /// Asks the writer of what is newest, which is not valid here, what became of it.
    pub(crate) fn question(&mut self, ground: &Ground, key: &Key, now: Moment, out: &mut Outbox) {
        self.since = now;
        let at = self.newest.at;

        if let Some((writer, _)) = ground.view.members.iter().find(|(_, writer)| **writer == at.writer) {
            ground.send(*writer, Message::Question { key: key.clone(), at }, out);
        }
    }

    /// Somebody asks what has become of a write.
    pub(crate) fn on_question(&self, ground: &Ground, key: &Key, from: NodeId, at: Timestamp, out: &mut Outbox) {
        if self.is_valid && !ground.is_newer(at, self.newest.at) {
            self.tell_newest(ground, key, from, out);
        }
    }

    /// Tells all what a departed member has written (R12).
    pub(crate) fn tell_departed(&mut self, ground: &mut Ground, key: &Key, now: Moment, out: &mut Outbox) {
        if ground.has(Mutant::DepartedUntold) {
            return;
        }
        let round = Round::about(self.newest.clone(), ground, now);
        self.begin(ground, key, now, Round { is_update: true, ..round }, out);
    }
}
