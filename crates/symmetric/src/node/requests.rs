//! What is asked of other nodes' keys, and what other nodes ask of this one's.
//!
//! Always true: what is asked of a home is carried out there under the view by which it is that, and once. A home that has given its shard away, and is there still, says what became of it:
//! what it has carried out it remembers, and what it has not it never will, so that the one that is home now may be asked, as for something new.

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
            Ok(Some(lane)) => self.tell_lane(now, lane, out),
            Ok(None) => {}
            Err(open) => self.end(*open, Replied::Busy, out),
        }
    }

    /// What waits for a credit, and has one now.
    pub(super) fn open_waiting(&mut self, now: Moment, out: &mut NodeOutbox) {
        while let Some(lane) = self.lanes.open_next() {
            self.tell_lane(now, lane, out);
        }
    }

    /// What waits was told to nobody: it is tried anew.
    fn try_waiting(&mut self, out: &mut NodeOutbox) {
        let waiting: Vec<Open<Who>> = self.lanes.take_waiting().collect();
        for open in waiting {
            match open {
                Open { who, asked: Asked::Key(key, wish), until, .. } => {
                    self.to_try.push_back(Pending { who, key, wish, until });
                }
                Open { asked: Asked::Flush, .. } => self.end(open, Replied::Unknown, out),
            }
        }
    }

    fn tell_lane(&mut self, now: Moment, lane: LaneNumber, out: &mut NodeOutbox) {
        out.sends.extend(self.lanes.tell(lane, now));
    }

    /// What is under way is told again to who was told: as long as that is there, in the same life, it says what became of it. If it is gone, with that,
    /// nobody knows. A read is begun anew if another one is home.
    fn tell_lane_again(&mut self, now: Moment, lane: LaneNumber, out: &mut NodeOutbox) {
        let Some(Open { asked: Asked::Key(key, wish), home, .. }) = self.lanes.get(lane) else {
            self.tell_lane(now, lane, out);
            return;
        };
        let view = self.holder.view();
        let is_home = view.home_of(super::hash_of(key)) == Some(home.0);
        if view.member(home.0) == Some(*home) && (is_home || !wish.only_reads()) {
            self.tell_lane(now, lane, out);
        } else if !wish.only_reads() {
            self.close_lane(lane, Replied::Unknown, out);
        } else {
            self.begin_anew_elsewhere(lane, out);
        }
    }

    /// What was not carried out by who was told is asked as if it was new.
    fn begin_anew_elsewhere(&mut self, lane: LaneNumber, out: &mut NodeOutbox) {
        match self.lanes.close(lane) {
            Some(Open { who, asked: Asked::Key(key, wish), until, .. }) => {
                self.to_try.push_back(Pending { who, key, wish, until });
            }
            Some(open) => self.end(open, Replied::Unknown, out),
            None => {}
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
                self.answer(id, only_reads, told, out);
            }
            Who::Flush(number) => self.on_flushed_home(number, &told, out),
            Who::Peer(..) => {}
        }
    }

    /// A home has answered.
    pub(super) fn on_replied(
        &mut self,
        now: Moment,
        from: NodeId,
        request: RequestId,
        told: Replied,
        out: &mut NodeOutbox,
    ) {
        let Some(lane) = self.lanes.waits_for(request) else { return };
        if self.lanes.get(lane).is_none_or(|open| open.home.0 != from) {
            return;
        }
        match told {
            // It is told again in a while.
            Replied::NotServing => return,
            Replied::Elsewhere => {
                self.counts.elsewhere += 1;
                return self.begin_anew_elsewhere(lane, out);
            }
            _ => {}
        }
        if let (Replied::Answer(answer), Some(Open { asked: Asked::Key(key, _), .. })) = (&told, self.lanes.get(lane)) {
            let (key, at) = (key.clone(), answer.at);
            self.note_floor(now, &key, at);
        }
        self.close_lane(lane, told, out);
    }

    /// Another node asks for something.
    pub(super) fn on_request(&mut self, now: Moment, from: NodeId, told: Request, out: &mut NodeOutbox) {
        let Request { epoch, request, asked } = told;
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
                self.try_here(now, Pending { who, key, wish, until }, out);
            }
            Asked::Flush => self.begin_flush(now, who, out),
        }
    }

    /// What nobody has answered is told again.
    pub(super) fn tell_lanes_again(&mut self, now: Moment, out: &mut NodeOutbox) {
        for lane in self.lanes.unanswered(now, TELL_AGAIN_AFTER) {
            self.counts.resent += 1;
            self.tell_lane_again(now, lane, out);
        }
    }

    /// In another view requests are told again, to who is still home.
    pub(super) fn tell_view_to_lanes(&mut self, now: Moment, out: &mut NodeOutbox) {
        self.try_waiting(out);
        for lane in self.lanes.numbers() {
            if matches!(self.lanes.get(lane), Some(Open { asked: Asked::Flush, .. })) {
                // What it was home of may be another's by now.
                self.close_lane(lane, Replied::Unknown, out);
            } else {
                self.tell_lane_again(now, lane, out);
            }
        }
    }

    /// This node is another member than it was: what it has asked for is nobody's any more.
    pub(super) fn close_lanes(&mut self, out: &mut NodeOutbox) {
        self.try_waiting(out);
        for lane in self.lanes.numbers() {
            self.close_lane(lane, Replied::Unknown, out);
        }
    }

    pub(super) fn end_overdue_lanes(&mut self, now: Moment, out: &mut NodeOutbox) {
        for lane in self.lanes.overdue(now) {
            self.close_lane(lane, Replied::Unknown, out);
        }
        for open in self.lanes.take_overdue(now) {
            self.end(open, Replied::NotServing, out);
        }
    }
}
