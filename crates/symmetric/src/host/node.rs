//! A node on its socket, with those who wait for its answers.
//!
//! Always true: a flush that is to come is told to be done when it is asked for, and takes place then or as soon after as it can, if this life lasts so long; a later one takes its
//! place.

use std::{convert::Infallible, fmt, io, sync::Arc};

use guira_chain::Reply;
use guira_cluster::{Host, HostOf, Local, Machine, NodeClock, Poster, Transport, Wire, boot_now, look_by};
use guira_front::{Ask, AskNumber, Desk, Front, FrontService, Wanted};
use guira_item::{Answer, EngineStats, Moment, Span, Time};
use guira_routing::NodeId;

use super::{Symmetric, numbers::own_numbers};
use crate::{
    AskId, DirectReads, Items, Message, Node, NodeConfig, NodeHappened, NodeOutbox, NodeStatus, ShardAccess,
    direct::{DirectParts, Picked, TellsPicked},
};

/// A [`Node`] on its host.
pub struct NodeHost<I: Items + Send + 'static> {
    host: Host<NodeMachine<I>>,
    direct: DirectParts<I::Shared>,
}

/// Through which a node is asked.
pub struct NodeFront<I: Items + Send + 'static> {
    poster: Poster<Local<NodeMachine<I>>>,
    direct: DirectParts<I::Shared>,
}

/// What a node is told by other threads of its process.
pub enum NodeTold {
    /// Somebody wants something.
    Wanted(Wanted),
    /// These keys are among those that other threads have answered for.
    Picked(Picked),
}

/// A node as a server's service.
pub type NodeService<I> = FrontService<NodeFront<I>>;

/// What a flush that was to come has as its number: nobody waits for it, and desks begin behind it.
const FLUSH_TO_COME: AskId = AskId(0);

/// A flush that was to come and may not have taken place is asked for again after so long.
const FLUSH_AGAIN_AFTER: Span = Span::from_s(1);

/// A node, and what it owes.
pub struct NodeMachine<I> {
    stepped: Stepped<I>,
    desk: Desk,
}

/// A node, and what it wants done.
struct Stepped<I> {
    node: Node<I>,
    clock: NodeClock,
    to_flush: ToFlush,
    out: NodeOutbox,
    /// Of a message that is being written.
    bytes: Vec<u8>,
}

/// That everything is to be gone at some time, until it is.
#[derive(Default)]
struct ToFlush {
    /// When.
    at: Option<Moment>,
    /// The core is asked for the flush of this time, and has not answered.
    asked_for: Option<Moment>,
    /// A flush at once, which was wanted later: it takes its place if it takes place.
    instead: Option<AskId>,
}

impl ToFlush {
    /// When the core is to be asked.
    fn due_at(&self) -> Option<Moment> {
        self.at.filter(|_| self.asked_for.is_none())
    }

    /// Takes the place of what was to come.
    fn set(&mut self, at: Moment) {
        (self.at, self.instead) = (Some(at), None);
    }

    /// Whether the core is to be asked now.
    fn begin(&mut self, now: Moment) -> bool {
        let is_due = self.due_at().is_some_and(|at| at <= now);
        if is_due {
            self.asked_for = self.at;
        }
        is_due
    }

    /// The core has answered what it was asked.
    fn hear(&mut self, now: Moment, id: AskId, reply: &Reply) {
        let is_done = matches!(reply, Reply::Answer(Answer::Deleted, _));
        if id == FLUSH_TO_COME {
            // If it was for another time, that one is to come yet.
            if self.asked_for.take() == self.at {
                self.at = (!is_done).then(|| now + FLUSH_AGAIN_AFTER);
            }
        } else if self.instead.take_if(|instead| *instead == id).is_some() && is_done {
            self.at = None;
        }
    }
}

/// How a node is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeHostStatus {
    /// The core.
    pub core: NodeStatus,
    /// Requests that are under way, and those that wait for one of them.
    pub pending: usize,
    /// The socket's numbers.
    pub wire: Wire,
}

impl<I: Items + Send + 'static> NodeHost<I> {
    /// Starts it on a socket whose members are set.
    ///
    /// # Errors
    /// The system gives no thread, or no descriptors.
    pub fn start(transport: Transport, config: NodeConfig, items: I) -> io::Result<Self> {
        let (name, answer_within) = (format!("guira-n{}", config.me.0), config.answer_within);
        let (clock, seed, sample_one_in) = (config.life.clock, config.life.seed, config.sample_one_in);
        let shard = items.shared().filter(|_| config.shard_access == ShardAccess::Crcw);
        let node = Node::new(boot_now(), config, items);
        let (reader, counts) = (node.reader(), Arc::default());
        let direct = DirectParts { reader, shard, clock, sample_one_in, seed, counts };
        let (to_flush, out) = (ToFlush::default(), NodeOutbox::default());
        let stepped = Stepped { node, clock, to_flush, out, bytes: Vec::new() };
        let host = Host::start(&name, transport, |_| NodeMachine { stepped, desk: Desk::new(answer_within) })?;
        Ok(Self { host, direct })
    }

    /// How it is; `None` if it has ended.
    pub fn status(&self) -> Option<NodeHostStatus> {
        self.front().status()
    }

    /// Through which it is asked.
    pub fn front(&self) -> NodeFront<I> {
        NodeFront { poster: self.host.poster(), direct: self.direct.clone() }
    }
}

impl<I: Items + Send + 'static> fmt::Debug for NodeHost<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeHost").field("host", &self.host).finish_non_exhaustive()
    }
}

impl<I: Items + Send + 'static> HostOf for NodeHost<I> {
    type Machine = NodeMachine<I>;

    fn host(&self) -> &Host<NodeMachine<I>> {
        &self.host
    }

    fn into_host(self) -> Host<NodeMachine<I>> {
        self.host
    }
}

impl<I: Items + Send + 'static> Clone for NodeFront<I> {
    fn clone(&self) -> Self {
        Self { poster: self.poster.clone(), direct: self.direct.clone() }
    }
}

impl<I: Items + Send + 'static> fmt::Debug for NodeFront<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeFront")
    }
}

impl<I: Items + Send + 'static> NodeFront<I> {
    fn status(&self) -> Option<NodeHostStatus> {
        let seen = look_by(&self.poster, |NodeMachine { stepped, desk }, wire| {
            let core = stepped.node.status(boot_now());
            let pending = core.pending + desk.behind();
            NodeHostStatus { core, pending, wire }
        });
        seen.map(|mut status| {
            self.direct.counts.add_to(&mut status.core.counts);
            status
        })
    }
}

impl<I: Items + Send + 'static> Front for NodeFront<I> {
    type Direct = DirectReads<I::Shared, PickedTo<I>>;

    fn direct(&self) -> Self::Direct {
        DirectReads::new(&self.direct, PickedTo(self.poster.clone()))
    }

    fn tell(&self, wanted: Wanted) {
        drop(self.poster.post(Local::Told(NodeTold::Wanted(wanted))));
    }

    /// What each node has of its shards, and counts; waits for its thread, which waits for nobody.
    fn stats(fronts: &[Self]) -> EngineStats {
        let all: Vec<NodeHostStatus> = fronts.iter().filter_map(Self::status).collect();
        let sum = |of: fn(&NodeStatus) -> usize| all.iter().map(|status| of(&status.core) as u64).sum();
        EngineStats {
            engine: "symmetric",
            eviction: "clock",
            curr_items: sum(|core| core.items),
            bytes: sum(|core| core.bytes),
            limit_maxbytes: sum(|core| core.bytes_max),
            evictions: all.iter().map(|status| status.core.evicted).sum(),
            own: own_numbers(&all),
            ..EngineStats::default()
        }
    }
}

/// Where keys that were picked are counted.
pub struct PickedTo<I: Items + Send + 'static>(Poster<Local<NodeMachine<I>>>);

impl<I: Items + Send + 'static> TellsPicked for PickedTo<I> {
    fn tell(&self, picked: Picked) {
        drop(self.0.post(Local::Told(NodeTold::Picked(picked))));
    }
}

impl<I: Items> Stepped<I> {
    /// Has the core heed something, and sends what it says.
    fn step(&mut self, now: Moment, happened: NodeHappened<'_>, transport: &mut Transport) {
        self.node.step(now, happened, &mut self.out);
        for (to, message) in self.out.sends.drain(..) {
            self.bytes.clear();
            message.encode(&mut self.bytes);
            transport.send(to, &self.bytes);
        }
    }

    /// Asks the core.
    fn ask(&mut self, now: Moment, ask: Ask<'_>, answers: &mut Vec<(AskNumber, Reply)>, transport: &mut Transport) {
        match ask {
            Ask::Key(AskNumber(id), key, operation) => {
                self.step(now, NodeHappened::Ask(AskId(id), key, operation), transport);
            }
            Ask::Flush(number, at) => self.flush(now, number, at, transport),
            Ask::Send => return transport.flush(),
        }
        answers.extend(self.answers(now));
    }

    /// Has everything gone at a time of the cluster's.
    fn flush(&mut self, now: Moment, AskNumber(id): AskNumber, at: Time, transport: &mut Transport) {
        if at <= self.clock.time(now) {
            self.to_flush.instead = self.to_flush.at.map(|_| AskId(id));
            self.step(now, NodeHappened::Flush(AskId(id)), transport);
        } else {
            self.to_flush.set(self.clock.when(at));
            self.out.answers.push((AskId(id), Reply::Answer(Answer::Deleted, None)));
        }
    }

    /// Time has passed.
    fn tick(&mut self, now: Moment, transport: &mut Transport) {
        if self.to_flush.begin(now) {
            self.step(now, NodeHappened::Flush(FLUSH_TO_COME), transport);
        }
        self.step(now, NodeHappened::Tick, transport);
    }

    /// What the steps before have answered.
    fn answers(&mut self, now: Moment) -> impl Iterator<Item = (AskNumber, Reply)> {
        let Self { out, to_flush, .. } = self;
        out.answers.drain(..).filter_map(move |(id, reply)| {
            to_flush.hear(now, id, &reply);
            (id != FLUSH_TO_COME).then_some((AskNumber(id.0), reply))
        })
    }
}

impl<I: Items> NodeMachine<I> {
    /// Brings answers to those who wait for them, and has the node asked what that lets go on.
    fn go_on(&mut self, now: Moment, transport: &mut Transport) {
        let Self { stepped, desk } = self;
        desk.hear(stepped.answers(now));
        desk.go_on(now, |ask, answers| stepped.ask(now, ask, answers, transport));
    }
}

impl<I: Items + Send + 'static> Machine for NodeMachine<I> {
    type Protocol = Symmetric;
    type Told = NodeTold;

    fn on_message(&mut self, now: Moment, from: NodeId, message: Message, transport: &mut Transport) {
        self.stepped.step(now, NodeHappened::Message(from, message), transport);
        self.go_on(now, transport);
    }

    fn on_told(&mut self, now: Moment, told: NodeTold, transport: &mut Transport) {
        let Self { stepped, desk } = self;
        match told {
            NodeTold::Wanted(wanted) => {
                desk.want(now, wanted, |ask, answers| stepped.ask(now, ask, answers, transport));
            }
            NodeTold::Picked(picked) => stepped.step(now, NodeHappened::Seen(&picked.keys), transport),
        }
    }

    fn on_view(&mut self, _: Moment, view: &Infallible, _: &mut Transport) {
        match *view {}
    }

    fn on_tick(&mut self, now: Moment, transport: &mut Transport) {
        self.stepped.tick(now, transport);
        self.go_on(now, transport);
    }

    fn wake_at(&self, now: Moment) -> Option<Moment> {
        self.stepped.node.wake_at(now).into_iter().chain(self.stepped.to_flush.due_at()).min()
    }
}

#[cfg(test)]
mod tests {
    use guira_item::Failure;

    use super::*;

    const DONE: Reply = Reply::Answer(Answer::Deleted, None);
    const NOT_DONE: Reply = Reply::Answer(Answer::Failed(Failure::Unknown), None);

    #[test]
    fn a_flush_is_to_come_until_it_or_a_later_one_has_taken_place() {
        let at = |s| Moment::default() + Span::from_s(s);
        let mut to_flush = ToFlush::default();
        to_flush.set(at(5));
        assert!(!to_flush.begin(at(4)) && to_flush.begin(at(5)) && !to_flush.begin(at(6)), "asked for once at a time");
        to_flush.hear(at(7), FLUSH_TO_COME, &NOT_DONE);
        assert_eq!(to_flush.due_at(), Some(at(8)), "it is asked for again");

        to_flush.instead = Some(AskId(3));
        to_flush.hear(at(7), AskId(2), &DONE);
        to_flush.hear(at(7), AskId(3), &NOT_DONE);
        to_flush.hear(at(7), AskId(3), &DONE);
        assert_eq!(to_flush.due_at(), Some(at(8)), "no later one has taken place");
        assert!(to_flush.begin(at(8)));
        to_flush.set(at(9));
        to_flush.hear(at(10), FLUSH_TO_COME, &DONE);
        assert_eq!(to_flush.due_at(), Some(at(9)), "it was another that took place");

        to_flush.instead = Some(AskId(4));
        to_flush.hear(at(10), AskId(4), &DONE);
        assert_eq!(to_flush.due_at(), None);
        to_flush.set(at(11));
        assert!(to_flush.begin(at(11)));
        to_flush.hear(at(11), FLUSH_TO_COME, &DONE);
        assert_eq!((to_flush.due_at(), to_flush.begin(at(99))), (None, false));
    }
}
