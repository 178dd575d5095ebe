//! Lanes: what a node asks of other nodes, one thing at a time in each, numbered, so that it takes effect once however often it is told (R3).
//!
//! Always true: a lane's numbers go up for as long as the process lives; a session is a lane of a member's life, so an answer to who was another member before is to nobody.

use guira_consistency::{Epoch, RequestId, Sequence, Session, Writer};
use guira_item::{Moment, Span};
use guira_routing::NodeId;

use crate::{Asked, Message, Request};

/// Requests under way at a time: more than all connections of a server have.
const LANES_MAX: u16 = 8_192;

/// Which lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct LaneNumber(u16);

/// Something that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Open<W> {
    /// Who waits for it.
    pub(crate) who: W,
    /// What is asked.
    pub(crate) asked: Asked,
    /// Of whom.
    pub(crate) home: NodeId,
    /// How long it is waited for.
    pub(crate) until: Moment,
    /// It may have reached a home.
    pub(crate) was_told: bool,
    /// And that was another one than this.
    pub(crate) is_again: bool,
    told_at: Moment,
}

impl<W> Open<W> {
    pub(crate) fn new(who: W, asked: Asked, home: NodeId, until: Moment) -> Self {
        Self { who, asked, home, until, was_told: false, is_again: false, told_at: Moment::default() }
    }
}

#[derive(Clone, Debug)]
struct Lane<W> {
    sequence: u64,
    open: Option<Open<W>>,
}

/// All lanes of a node.
#[derive(Clone, Debug)]
pub(crate) struct Lanes<W> {
    me: NodeId,
    writer: Writer,
    epoch: Epoch,
    lanes: Vec<Lane<W>>,
    /// The one that was used last is used first: keys remember some sessions only.
    free: Vec<u16>,
}

impl<W> Lanes<W> {
    pub(crate) fn new(me: NodeId) -> Self {
        Self { me, writer: Writer(0), epoch: Epoch::default(), lanes: Vec::new(), free: Vec::new() }
    }

    /// There is another view.
    pub(crate) fn set_view(&mut self, epoch: Epoch, writer: Writer) {
        (self.epoch, self.writer) = (epoch, writer);
    }

    /// Requests under way.
    pub(crate) fn len(&self) -> usize {
        self.lanes.len() - self.free.len()
    }

    /// Takes a lane for a request.
    ///
    /// # Errors
    /// There is none: it is given back.
    pub(crate) fn open(&mut self, open: Open<W>) -> Result<LaneNumber, Box<Open<W>>> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.lanes.len() < usize::from(LANES_MAX) => {
                self.lanes.push(Lane { sequence: 0, open: None });
                self.lanes.len() as u16 - 1
            }
            None => return Err(Box::new(open)),
        };
        let lane = &mut self.lanes[usize::from(number)];
        lane.sequence += 1;
        lane.open = Some(open);
        Ok(LaneNumber(number))
    }

    /// What is under way in a lane.
    pub(crate) fn get_mut(&mut self, LaneNumber(number): LaneNumber) -> Option<&mut Open<W>> {
        self.lanes.get_mut(usize::from(number))?.open.as_mut()
    }

    /// By which name it is known.
    pub(crate) fn request(&self, LaneNumber(number): LaneNumber) -> RequestId {
        let session = Session { node: self.me, life: u64::from(self.writer.0), lane: number };
        RequestId { session, sequence: Sequence(self.lanes[usize::from(number)].sequence) }
    }

    /// Which lane an answer is for, if it is waited for.
    pub(crate) fn waits_for(&self, request: RequestId) -> Option<LaneNumber> {
        let number = LaneNumber(request.session.lane);
        let lane = self.lanes.get(usize::from(number.0))?;
        (lane.open.is_some() && self.request(number) == request).then_some(number)
    }

    /// It is over: who waited for it.
    pub(crate) fn close(&mut self, LaneNumber(number): LaneNumber) -> Option<Open<W>> {
        let open = self.lanes.get_mut(usize::from(number))?.open.take();
        if open.is_some() {
            self.free.push(number);
        }
        open
    }

    /// All that is under way.
    pub(crate) fn numbers(&self) -> Vec<LaneNumber> {
        let is_open = |number: &u16| self.lanes[usize::from(*number)].open.is_some();
        (0..self.lanes.len() as u16).filter(is_open).map(LaneNumber).collect()
    }

    /// Those that are to be told again, since nobody has answered.
    pub(crate) fn unanswered(&self, now: Moment, after: Span) -> Vec<LaneNumber> {
        let is_due = |open: &Open<W>| now.since(open.told_at) >= after;
        let is_open = |number: &u16| self.lanes[usize::from(*number)].open.as_ref().is_some_and(is_due);
        (0..self.lanes.len() as u16).filter(is_open).map(LaneNumber).collect()
    }

    /// Those that are waited for no longer.
    pub(crate) fn overdue(&self, now: Moment) -> Vec<LaneNumber> {
        let is_due = |open: &Open<W>| now >= open.until;
        let is_open = |number: &u16| self.lanes[usize::from(*number)].open.as_ref().is_some_and(is_due);
        (0..self.lanes.len() as u16).filter(is_open).map(LaneNumber).collect()
    }

    /// Looked after now.
    pub(crate) fn look_after(&mut self, number: LaneNumber, now: Moment) {
        if let Some(open) = self.get_mut(number) {
            open.told_at = now;
        }
    }

    /// What its home is told.
    pub(crate) fn tell(&mut self, number: LaneNumber, now: Moment) -> Option<(NodeId, Message)> {
        let (epoch, request) = (self.epoch, self.request(number));
        let open = self.get_mut(number)?;
        (open.told_at, open.was_told) = (now, true);
        let told = Request { epoch, request, is_again: open.is_again, asked: open.asked.clone() };
        Some((open.home, Message::Request(told)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(who: u8) -> Open<u8> {
        Open::new(who, Asked::Flush, NodeId(2), Moment::from_ns(1_000))
    }

    #[test]
    fn an_answer_is_for_who_has_asked_and_nobody_later() {
        let mut lanes = Lanes::new(NodeId(1));
        lanes.set_view(Epoch(3), Writer(5));
        let (first, second) = (lanes.open(open(1)).unwrap(), lanes.open(open(2)).unwrap());
        let asked = lanes.request(first);
        assert_ne!(asked, lanes.request(second));
        assert_eq!(lanes.waits_for(asked), Some(first));
        assert_eq!(lanes.close(first).map(|open| open.who), Some(1));
        assert_eq!((lanes.waits_for(asked), lanes.len()), (None, 1));
        let again = lanes.open(open(3)).unwrap();
        assert_eq!((again, lanes.waits_for(asked)), (first, None), "one lane, another number");
        lanes.set_view(Epoch(4), Writer(6));
        assert_ne!(lanes.request(second).session.life, asked.session.life, "another member's");
    }

    #[test]
    fn the_lane_that_was_used_last_is_used_first_and_there_are_so_many() {
        let mut lanes = Lanes::new(NodeId(1));
        let all: Vec<LaneNumber> = (0..LANES_MAX).map(|_| lanes.open(open(0)).unwrap()).collect();
        assert_eq!(lanes.open(open(9)).map_err(|open| open.who), Err(9));
        lanes.close(all[7]);
        lanes.close(all[3]);
        assert!(lanes.close(all[3]).is_none(), "it was closed");
        assert_eq!(lanes.open(open(0)).unwrap(), all[3]);
        assert_eq!(lanes.open(open(0)).unwrap(), all[7]);
    }

    #[test]
    fn what_nobody_answers_is_told_again_until_its_time_is_over() {
        let mut lanes = Lanes::new(NodeId(1));
        let lane = lanes.open(open(1)).unwrap();
        let at = Moment::from_ns;
        let (home, message) = lanes.tell(lane, at(100)).unwrap();
        assert!(home == NodeId(2) && matches!(message, Message::Request(Request { is_again: false, .. })));
        assert!(lanes.unanswered(at(149), Span::from_ns(50)).is_empty());
        assert_eq!(lanes.unanswered(at(150), Span::from_ns(50)), [lane]);
        assert!(lanes.overdue(at(999)).is_empty());
        assert_eq!(lanes.overdue(at(1_000)), [lane]);
    }
}
