//! Lanes: what a node asks of other nodes, one thing at a time in each, numbered, so that it takes effect once however often it is told (R3).
//!
//! A lane takes one of its home's credits, and gives it back when it is closed: so an answer is what gives it back (ccKVS, EuroSys 2018, 6.3), and the end of what nobody answers.
//! What finds no credit or no lane waits, and was told to nobody.
//!
//! Always true: a lane's numbers go up for as long as the process lives; a session is a lane of a member's life, so an answer to who was another member before is to nobody;
//! of each home as many credits are taken as lanes are open to it, so none can be lost; what waits for a home goes first come first, and is bounded.

use std::collections::{BTreeMap, VecDeque};

use guira_consistency::{Epoch, RequestId, Sequence, Session, Writer};
use guira_item::{Moment, Span};
use guira_routing::NodeId;

use crate::{Asked, FlowConfig, FlowMutant, Message, Request};

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
    /// Of whom: a member in one life.
    pub(crate) home: (NodeId, Writer),
    /// How long it is waited for.
    pub(crate) until: Moment,
    told_at: Moment,
    tellings: u32,
}

impl<W> Open<W> {
    pub(crate) fn new(who: W, asked: Asked, home: (NodeId, Writer), until: Moment) -> Self {
        Self { who, asked, home, until, told_at: Moment::default(), tellings: 0 }
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
    flow: FlowConfig,
    /// Lanes that are open, by home, where there are any.
    taken: BTreeMap<(NodeId, Writer), usize>,
    /// What waits, by home, where anything does.
    waiting: BTreeMap<(NodeId, Writer), VecDeque<Open<W>>>,
    /// What has waited, since this began.
    waited: u64,
}

impl<W> Lanes<W> {
    pub(crate) fn new(me: NodeId, flow: FlowConfig) -> Self {
        Self {
            me,
            writer: Writer(0),
            epoch: Epoch::default(),
            lanes: Vec::new(),
            free: Vec::new(),
            flow,
            taken: BTreeMap::new(),
            waiting: BTreeMap::new(),
            waited: 0,
        }
    }

    /// There is another view.
    pub(crate) fn set_view(&mut self, epoch: Epoch, writer: Writer) {
        (self.epoch, self.writer) = (epoch, writer);
    }

    /// Requests under way, and those that wait.
    pub(crate) fn len(&self) -> usize {
        self.lanes.len() - self.free.len() + self.waiting.values().map(VecDeque::len).sum::<usize>()
    }

    /// Requests that have waited, since this began.
    pub(crate) fn waited(&self) -> u64 {
        self.waited
    }

    /// Takes a lane for a request; `None`: it waits for one.
    ///
    /// # Errors
    /// Too many wait: it is given back.
    pub(crate) fn open(&mut self, open: Open<W>) -> Result<Option<LaneNumber>, Box<Open<W>>> {
        let waiting = self.waiting.get(&open.home).map_or(0, VecDeque::len);
        if waiting == 0 && self.has_credit(open.home) && self.has_lane() {
            return Ok(Some(self.begin(open)));
        }
        if waiting >= self.flow.requests_wait {
            return Err(Box::new(open));
        }
        self.waited += 1;
        self.waiting.entry(open.home).or_default().push_back(open);
        Ok(None)
    }

    /// Takes a lane for the next that waits and may have one.
    pub(crate) fn open_next(&mut self) -> Option<LaneNumber> {
        let home = *self.waiting.keys().find(|home| self.has_lane() && self.has_credit(**home))?;
        let waiting = self.waiting.get_mut(&home)?;
        let open = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&home);
        }
        open.map(|open| self.begin(open))
    }

    /// All that waits: it waits no more.
    pub(crate) fn take_waiting(&mut self) -> impl Iterator<Item = Open<W>> {
        std::mem::take(&mut self.waiting).into_values().flatten()
    }

    /// What waits, and is waited for no longer: it does no more.
    pub(crate) fn take_overdue(&mut self, now: Moment) -> Vec<Open<W>> {
        let mut over = Vec::new();
        self.waiting.retain(|_, waiting| {
            if waiting.iter().any(|open| now >= open.until) {
                let all = std::mem::take(waiting).into_iter();
                let (late, left): (Vec<Open<W>>, Vec<Open<W>>) = all.partition(|open| now >= open.until);
                over.extend(late);
                *waiting = left.into();
            }
            !waiting.is_empty()
        });
        over
    }

    fn has_credit(&self, home: (NodeId, Writer)) -> bool {
        self.taken.get(&home).is_none_or(|taken| *taken < self.flow.requests)
    }

    fn has_lane(&self) -> bool {
        !self.free.is_empty() || self.lanes.len() < usize::from(LANES_MAX)
    }

    /// Opens a lane, which there is.
    fn begin(&mut self, open: Open<W>) -> LaneNumber {
        *self.taken.entry(open.home).or_default() += 1;
        let number = self.free.pop().unwrap_or_else(|| {
            self.lanes.push(Lane { sequence: 0, open: None });
            self.lanes.len() as u16 - 1
        });
        let lane = &mut self.lanes[usize::from(number)];
        lane.sequence += 1;
        lane.open = Some(open);
        LaneNumber(number)
    }

    /// A lane to a home is closed.
    fn give_back(&mut self, open: &Open<W>) {
        if self.flow.mutant == Some(FlowMutant::RequestLeaks) && open.tellings > 1 {
            return;
        }
        if let Some(taken) = self.taken.get_mut(&open.home) {
            *taken -= 1;
            if *taken == 0 {
                self.taken.remove(&open.home);
            }
        }
    }

    /// What is under way in a lane.
    pub(crate) fn get(&self, LaneNumber(number): LaneNumber) -> Option<&Open<W>> {
        self.lanes.get(usize::from(number))?.open.as_ref()
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
        let open = self.lanes.get_mut(usize::from(number))?.open.take()?;
        self.free.push(number);
        self.give_back(&open);
        Some(open)
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

    /// What its home is told.
    pub(crate) fn tell(&mut self, number: LaneNumber, now: Moment) -> Option<(NodeId, Message)> {
        let (epoch, request) = (self.epoch, self.request(number));
        let open = self.lanes.get_mut(usize::from(number.0))?.open.as_mut()?;
        (open.told_at, open.tellings) = (now, open.tellings + 1);
        Some((open.home.0, Message::Request(Request { epoch, request, asked: open.asked.clone() })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(who: u8) -> Open<u8> {
        Open::new(who, Asked::Flush, (NodeId(2), Writer(8)), Moment::from_ns(1_000))
    }

    fn begun(lanes: &mut Lanes<u8>, open: Open<u8>) -> LaneNumber {
        lanes.open(open).unwrap().expect("there is a credit and a lane")
    }

    #[test]
    fn an_answer_is_for_who_has_asked_and_nobody_later() {
        let mut lanes = Lanes::new(NodeId(1), FlowConfig::default());
        lanes.set_view(Epoch(3), Writer(5));
        let (first, second) = (begun(&mut lanes, open(1)), begun(&mut lanes, open(2)));
        let asked = lanes.request(first);
        assert_ne!(asked, lanes.request(second));
        assert_eq!(lanes.waits_for(asked), Some(first));
        assert_eq!(lanes.close(first).map(|open| open.who), Some(1));
        assert_eq!((lanes.waits_for(asked), lanes.len()), (None, 1));
        let again = begun(&mut lanes, open(3));
        assert_eq!((again, lanes.waits_for(asked)), (first, None), "one lane, another number");
        lanes.set_view(Epoch(4), Writer(6));
        assert_ne!(lanes.request(second).session.life, asked.session.life, "another member's");
    }

    #[test]
    fn the_lane_that_was_used_last_is_used_first_and_there_are_so_many() {
        let flow = FlowConfig { requests: usize::MAX, requests_wait: 0, ..FlowConfig::default() };
        let mut lanes = Lanes::new(NodeId(1), flow);
        let all: Vec<LaneNumber> = (0..LANES_MAX).map(|_| begun(&mut lanes, open(0))).collect();
        assert_eq!(lanes.open(open(9)).map_err(|open| open.who), Err(9));
        lanes.close(all[7]);
        lanes.close(all[3]);
        assert!(lanes.close(all[3]).is_none(), "it was closed");
        assert_eq!(begun(&mut lanes, open(0)), all[3]);
        assert_eq!(begun(&mut lanes, open(0)), all[7]);
    }

    #[test]
    fn what_nobody_answers_is_told_again_until_its_time_is_over() {
        let mut lanes = Lanes::new(NodeId(1), FlowConfig::default());
        let lane = begun(&mut lanes, open(1));
        let at = Moment::from_ns;
        let (home, message) = lanes.tell(lane, at(100)).unwrap();
        assert!(home == NodeId(2) && matches!(message, Message::Request(Request { asked: Asked::Flush, .. })));
        assert!(lanes.unanswered(at(149), Span::from_ns(50)).is_empty());
        assert_eq!(lanes.unanswered(at(150), Span::from_ns(50)), [lane]);
        assert!(lanes.overdue(at(999)).is_empty());
        assert_eq!(lanes.overdue(at(1_000)), [lane]);
    }

    #[test]
    fn what_finds_no_credit_waits_until_one_is_given_back_and_others_do_not_wait_for_it() {
        let flow = FlowConfig { requests: 2, requests_wait: 3, ..FlowConfig::default() };
        let mut lanes = Lanes::new(NodeId(1), flow);
        let (first, second) = (begun(&mut lanes, open(1)), begun(&mut lanes, open(2)));
        for who in 3..6 {
            assert_eq!(lanes.open(open(who)).unwrap(), None);
        }
        assert_eq!(lanes.open(open(6)).map_err(|open| open.who), Err(6), "there is no room");
        assert_eq!((lanes.len(), lanes.waited(), lanes.open_next()), (5, 3, None));
        let elsewhere = Open { home: (NodeId(3), Writer(9)), ..open(7) };
        let other = begun(&mut lanes, elsewhere);
        lanes.close(second);
        let third = lanes.open_next().unwrap();
        assert_eq!(lanes.open(open(8)).unwrap(), None, "others came before");
        assert_eq!((lanes.get(third).map(|open| open.who), lanes.open_next()), (Some(3), None));
        for lane in [first, third, other] {
            lanes.close(lane);
        }
        let next: Vec<LaneNumber> = std::iter::from_fn(|| lanes.open_next()).collect();
        let who: Vec<u8> = next.iter().filter_map(|lane| lanes.get(*lane)).map(|open| open.who).collect();
        assert_eq!(who, [4, 5]);
        next.into_iter().for_each(|lane| drop(lanes.close(lane)));
        assert_eq!(lanes.open_next().and_then(|lane| lanes.close(lane)).map(|open| open.who), Some(8));
        assert!(lanes.len() == 0 && lanes.taken.is_empty() && lanes.waiting.is_empty());
    }

    #[test]
    fn what_waits_is_waited_for_no_longer_than_its_time_and_no_credit_is_lost_with_what_was_told_again() {
        let flow = FlowConfig { requests: 1, ..FlowConfig::default() };
        let mut lanes = Lanes::new(NodeId(1), flow);
        let lane = begun(&mut lanes, open(1));
        let late = |who, ns| Open { until: Moment::from_ns(ns), ..open(who) };
        for (who, ns) in [(2, 50), (3, 90), (4, 40)] {
            assert_eq!(lanes.open(late(who, ns)).unwrap(), None);
        }
        let over: Vec<u8> = lanes.take_overdue(Moment::from_ns(60)).iter().map(|open| open.who).collect();
        assert_eq!(over, [2, 4]);
        for ns in [1, 2] {
            lanes.tell(lane, Moment::from_ns(ns));
        }
        lanes.close(lane);
        assert_eq!(lanes.open_next().and_then(|lane| lanes.close(lane)).map(|open| open.who), Some(3));
        begun(&mut lanes, open(5));
        lanes.open(open(6)).unwrap();
        assert_eq!(lanes.take_waiting().map(|open| open.who).collect::<Vec<_>>(), [6]);
        assert_eq!((lanes.open_next(), lanes.len()), (None, 1));
    }
}
