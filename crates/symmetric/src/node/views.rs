//! Who is there, and what it changes for what is here and under way.
//!
//! Always true: what was of a former membership is forgotten before the next one begins; a shard that comes to be this node's begins with what was copied of it, if that is all, and else
//! with nothing.

use guira_consistency::{Epoch, Happened, Outcome, Replica, Ticket};
use guira_item::Moment;

use super::{Node, NodeOutbox, asked::Who, replica_config, slot_of};
use crate::{Heard, Items, Told};

impl<I: Items> Node<I> {
    pub(super) fn on_told(&mut self, now: Moment, told: Told, out: &mut NodeOutbox) {
        let (before, until_before) = (self.homes(), self.holder.serves_until());
        let heard = self.holder.heed(told);
        if heard.is_some() {
            self.close_grant();
        }
        let (epoch, until) = (self.holder.view().epoch, self.holder.serves_until());
        match heard {
            None if until > until_before => self.step_replica(now, Happened::Lease(epoch, until), out),
            None => {}
            Some(heard) => {
                match heard {
                    Heard::GoesOn => {}
                    Heard::Joins => self.begin_anew(now, false, out),
                    Heard::Begins => self.begin_anew(now, true, out),
                }
                self.look_at_homes(now, &before);
                let view = self.holder.view().clone();
                self.lanes.set_view(epoch, self.writer());
                self.flow.set_view(epoch);
                let lives: Vec<(guira_routing::NodeId, u64)> =
                    view.members.iter().map(|(node, writer)| (*node, u64::from(writer.0))).collect();
                let is_member = |session: &guira_consistency::Session| lives.contains(&(session.node, session.life));
                // What only who is gone has written nobody waits for.
                self.floors.retain(|_, floor| view.members.values().any(|writer| *writer == floor.writer));
                self.shard.keep_sessions(is_member);
                self.serving.retain(|request| is_member(&request.session));
                self.step_replica(now, Happened::View(&view, until), out);
                self.tell_view_to_lanes(now, out);
                self.tend_hot_keys(now, out);
            }
        }
        self.show_grant();
        self.to_try.append(&mut self.parked);
    }

    /// The shards that this node answers for.
    pub(super) fn served_shards(&self) -> Vec<usize> {
        (0..self.holder.view().homes.len()).filter(|shard| self.answers_for(*shard)).collect()
    }

    /// Of which shards this node is home, and since when.
    fn homes(&self) -> Vec<(usize, Option<Epoch>)> {
        let homes = self.holder.view().homes.iter().enumerate();
        let is_here = homes.filter(|(_, home)| **home == self.config.me);
        is_here.map(|(shard, _)| (shard, self.holder.home_since(shard))).collect()
    }

    /// What it had of shards that it had not without a break is worth nothing.
    fn look_at_homes(&mut self, now: Moment, before: &[(usize, Option<Epoch>)]) {
        let (homes, arrived) = (self.homes(), self.arrive(now));
        self.go_on_giving(before, &homes);
        if homes == before {
            return;
        }
        self.shard.become_home(self.holder.view().epoch);
        let copied = self.homecoming.copied_shard();
        let was_there = |slot: usize| homes.iter().any(|home| home.0 == slot && before.contains(home));
        let stays = |slot: usize| was_there(slot) || arrived == Some(slot) || copied == Some(slot);
        // A successor has mostly never had the shard: nothing is to be looked for then, which would take longer than a lease.
        if homes.iter().any(|(slot, _)| !stays(*slot) && self.had_of.contains(slot)) {
            let shards = self.holder.view().homes.len();
            self.shard.keep(self.time(now), &|key| slot_of(key, shards).is_some_and(stays));
        }
        self.had_of.extend(homes.iter().map(|(slot, _)| *slot));
    }

    /// It is another member than it was; what it had is worth nothing, or everything begins and it has all there is.
    fn begin_anew(&mut self, now: Moment, is_first: bool, out: &mut NodeOutbox) {
        self.close_lanes(out);
        self.serving.clear();
        self.homecoming.clear();
        self.shard.clear(self.time(now), &|_| false);
        self.had_of.clear();
        self.shard.forget_requests();
        if is_first {
            self.replica = Replica::new(replica_config(&self.config), true);
            self.shown.cache.clear();
            let tickets: Vec<Ticket> = self.tickets.keys().copied().collect();
            tickets.into_iter().for_each(|ticket| self.resolve(now, ticket, Outcome::Unknown, out));
        }
        // Nobody hears of what other nodes have asked of who this was.
        self.tickets.retain(|_, pending| !matches!(pending.who, Who::Peer(..)));
    }
}
