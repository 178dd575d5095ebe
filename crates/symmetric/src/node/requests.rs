//! What is asked of other nodes' keys, and what other nodes ask of this one's.
//!
//! Always true: what is asked of a home is carried out there under the view by which it is that, and once; a home that has changed is asked again, and told that another was asked before.

use guira_consistency::RequestId;
use guira_item::Moment;
use guira_routing::NodeId;

use super::{
    Node, NodeOutbox, TELL_AGAIN_AFTER,
    asked::{Pending, Who},
};
use crate::{
    Asked, Items, Message, Replied, Request,
    lanes::{LaneNumber, Open},
    shard::Known,
};

impl<I: Items> Node<I> {
    /// Asks another node for something.
    pub(super) fn open_lane(&mut self, now: Moment, open: Open<Who>, out: &mut NodeOutbox) {
        match self.lanes.open(open) {
            Ok(lane) => self.tell_lane(now, lane, out),
            Err(open) => self.end(*open, Replied::Busy, out),
        }
    }

    fn tell_lane(&mut self, now: Moment, lane: LaneNumber, out: &mut NodeOutbox) {
        out.sends.extend(self.lanes.tell(lane, now));
    }

    /// The home is another one by now.
    pub(super) fn move_lane(&mut self, now: Moment, lane: LaneNumber, home: NodeId, out: &mut NodeOutbox) {
        let request = self.lanes.request(lane);
        let Some(open) = self.lanes.get_mut(lane) else { return };
        if open.home != home {
            open.is_again |= open.was_told;
            open.home = home;
        }
        if home != self.config.me {
            self.tell_lane(now, lane, out);
            return;
        }
        let Asked::Key(key, wish) = open.asked.clone() else { return };
        let (until, is_again) = (open.until, open.is_again);
        self.lanes.look_after(lane, now);
        // It is here once at a time.
        if !self.tickets.values().any(|pending| pending.who == Who::Lane(lane)) {
            self.to_try.push_back(Pending { who: Who::Lane(lane), key, wish, until, request: Some(request), is_again });
        }
    }

    /// Who waits in a lane is told.
    pub(super) fn close_lane(&mut self, lane: LaneNumber, told: Replied, out: &mut NodeOutbox) {
        if let Some(open) = self.lanes.close(lane) {
            self.end(open, told, out);
        }
    }

    fn end(&mut self, open: Open<Who>, told: Replied, out: &mut NodeOutbox) {
        match open.who {
            Who::Client(id) => {
                let only_reads = matches!(&open.asked, Asked::Key(_, wish) if wish.only_reads());
                // The one that was asked before may have carried it out.
                let told = if told == Replied::Busy && open.is_again { Replied::Unknown } else { told };
                self.answer(id, only_reads, told, out);
            }
            Who::Flush(number) => self.on_flushed_home(number, &told, out),
            Who::Peer(..) | Who::Lane(_) => {}
        }
    }

    /// A home has answered.
    pub(super) fn on_replied(&mut self, now: Moment, request: RequestId, told: Replied, out: &mut NodeOutbox) {
        let Some(lane) = self.lanes.waits_for(request) else { return };
        if told == Replied::NotServing {
            // It is told again in a while.
            return;
        }
        if let (Replied::Answer(answer), Some(Open { asked: Asked::Key(key, _), .. })) =
            (&told, self.lanes.get_mut(lane))
        {
            let (key, at) = (key.clone(), answer.at);
            self.note_floor(&key, at);
        }
        // It may be tried here as well, if this is the home by now.
        self.tickets.retain(|_, pending| pending.who != Who::Lane(lane));
        let _ = now;
        self.close_lane(lane, told, out);
    }

    /// Another node asks for something.
    pub(super) fn on_request(&mut self, now: Moment, from: NodeId, told: Request, out: &mut NodeOutbox) {
        let Request { epoch, request, is_again, asked } = told;
        let view = self.holder.view();
        let life = view.members.get(&from).map(|writer| u64::from(writer.0));
        let is_his = request.session.node == from && life == Some(request.session.life);
        if epoch != view.epoch || !is_his {
            self.counts.refused += 1;
            out.sends.push((from, Message::Replied { request, told: Replied::NotServing }));
            return;
        }
        match self.shard.known(request) {
            Known::New => {}
            Known::Told(told) => {
                out.sends.push((from, Message::Replied { request, told }));
                return;
            }
            Known::Late => return,
        }
        if !self.serving.insert(request) {
            // It is under way, and answered when it is over.
            return;
        }
        self.counts.for_others += 1;
        let who = Who::Peer(from, request);
        match asked {
            Asked::Key(key, wish) => {
                let until = now + self.config.answer_within;
                self.try_here(now, Pending { who, key, wish, until, request: Some(request), is_again }, out);
            }
            Asked::Flush => self.begin_flush(now, who, out),
        }
    }

    /// What nobody has answered is told again.
    pub(super) fn tell_lanes_again(&mut self, now: Moment, out: &mut NodeOutbox) {
        for lane in self.lanes.unanswered(now, TELL_AGAIN_AFTER) {
            let Some(home) = self.lanes.get_mut(lane).map(|open| open.home) else { continue };
            self.counts.resent += 1;
            self.move_lane(now, lane, home, out);
        }
    }

    /// In another view requests are told again, to whoever is home.
    pub(super) fn move_lanes(&mut self, now: Moment, out: &mut NodeOutbox) {
        for lane in self.lanes.numbers() {
            let Some(open) = self.lanes.get_mut(lane) else { continue };
            let home = match &open.asked {
                Asked::Key(key, _) => self.holder.view().home_of(super::hash_of(key)),
                Asked::Flush => {
                    // What it was home of may be another's by now.
                    self.close_lane(lane, Replied::Unknown, out);
                    continue;
                }
            };
            if let Some(home) = home {
                self.move_lane(now, lane, home, out);
            }
        }
    }

    /// This node is another member than it was: what it has asked for is nobody's any more.
    pub(super) fn close_lanes(&mut self, out: &mut NodeOutbox) {
        for lane in self.lanes.numbers() {
            self.close_lane(lane, Replied::Unknown, out);
        }
    }

    pub(super) fn end_overdue_lanes(&mut self, now: Moment, out: &mut NodeOutbox) {
        for lane in self.lanes.overdue(now) {
            let was_told = self.lanes.get_mut(lane).is_some_and(|open| open.was_told);
            self.tickets.retain(|_, pending| pending.who != Who::Lane(lane));
            self.close_lane(lane, if was_told { Replied::Unknown } else { Replied::NotServing }, out);
        }
    }
}
