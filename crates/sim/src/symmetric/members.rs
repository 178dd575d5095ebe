//! Who is in a simulated cluster, and what each begins a life as.

use guira_cluster::{Drift, Life};
use guira_consistency::Consistency;
use guira_item::{Key, Moment};
use guira_routing::NodeId;
use guira_symmetric::{
    AskId, Coordinator, CoordinatorConfig, CoordinatorHappened, CoordinatorOutbox, FlowConfig, Given, HomecomingConfig,
    MemoryItems, Message, Node, NodeConfig, NodeHappened, NodeOutbox, ShardAccess, ViewsConfig,
};

use super::{coming::Input, scenario::Scenario};
use crate::{clients::Wish, simulation::Failure};

pub(super) const COORDINATOR: NodeId = NodeId(1);
const FIRST_NODE: u16 = 100;

/// Bytes of a key and its value at most.
const ITEM_LEN_MAX: usize = 1 << 20;

/// More than all items together: none makes room for another.
const ITEMS_LEN_MAX: usize = 1 << 24;

/// Two items or so: a copy of a shard takes some pages, and what is told of keys meanwhile comes between.
const PAGE_LEN_MAX: usize = 80;

/// What a member is while it is up.
pub(super) enum Core {
    Coordinator(Box<Coordinator>),
    Node(Box<Node<MemoryItems>>),
}

/// What the steps of members want done.
#[derive(Default)]
pub(super) struct Outboxes {
    pub(super) coordinator: CoordinatorOutbox,
    pub(super) node: NodeOutbox,
}

impl Scenario {
    /// All nodes.
    pub(super) fn node_names(&self) -> Vec<NodeId> {
        (FIRST_NODE..FIRST_NODE + self.nodes).map(NodeId).collect()
    }

    /// All members.
    pub(super) fn names(&self) -> Vec<NodeId> {
        [vec![COORDINATOR], self.node_names()].concat()
    }

    /// Whom a client asks.
    pub(super) fn node_of(&self, client: usize) -> NodeId {
        NodeId(FIRST_NODE + (client % usize::from(self.nodes)) as u16)
    }

    /// What a member is in a life that begins `now`, by its own clock.
    pub(super) fn core(&self, name: NodeId, now: Moment, life: Life, kept: Option<Given>) -> Result<Core, Failure> {
        if name == COORDINATOR {
            let coordinator = Coordinator::new(now, self.coordinator(), kept);
            return coordinator
                .map(|coordinator| Core::Coordinator(Box::new(coordinator)))
                .map_err(|error| Failure::Answer(error.to_string()));
        }
        let items = MemoryItems::new(ITEMS_LEN_MAX);
        Ok(Core::Node(Box::new(Node::new(now, self.node(name, life), items))))
    }

    fn coordinator(&self) -> CoordinatorConfig {
        CoordinatorConfig {
            me: COORDINATOR,
            views: ViewsConfig {
                nodes: self.node_names(),
                lease: self.lease,
                drift: Drift::default(),
                last_copy_waits: self.last_copy_waits,
                mutant: self.mutant.and_then(super::Mutant::of_views),
            },
            hot: self.hot,
            epoch: self.hot_epoch,
            consistency: Consistency::Lin,
        }
    }

    fn node(&self, me: NodeId, life: Life) -> NodeConfig {
        NodeConfig {
            me,
            coordinator: COORDINATOR,
            life,
            lease: self.lease,
            drift: Drift::default(),
            consistency: Consistency::Lin,
            item_len_max: ITEM_LEN_MAX,
            items_len_max: ITEMS_LEN_MAX,
            shard_access: ShardAccess::Crcw,
            // Some go while others come.
            hot_keys_max: self.hot.len_max + self.hot.changes_max,
            answer_within: self.answer_within,
            sample_one_in: 1,
            flow: FlowConfig { mutant: self.mutant.and_then(super::Mutant::of_flow), ..self.flow },
            homecoming: HomecomingConfig {
                page_len_max: PAGE_LEN_MAX,
                mutant: self.mutant.and_then(super::Mutant::of_homecoming),
            },
            mutant: self.mutant.and_then(super::Mutant::of_hot_keys),
            shown_mutant: self.mutant.and_then(super::Mutant::of_shown),
        }
    }
}

impl Core {
    /// When it has to be ticked.
    pub(super) fn wake_at(&self, now: Moment) -> Option<Moment> {
        match self {
            Self::Coordinator(coordinator) => Some(coordinator.wake_at()),
            Self::Node(node) => node.wake_at(now),
        }
    }

    /// Something happens to it.
    ///
    /// # Errors
    /// It was sent what is no message.
    pub(super) fn step(&mut self, now: Moment, input: Input, out: &mut Outboxes) -> Result<(), Failure> {
        match self {
            Self::Coordinator(coordinator) => {
                let happened = match input {
                    Input::Datagram(from, bytes) => CoordinatorHappened::Message(from, decoded(&bytes)?),
                    Input::Kept(epoch) => CoordinatorHappened::Kept(epoch),
                    Input::Tick => CoordinatorHappened::Tick,
                    Input::Ask(..) => unreachable!("clients ask nodes"),
                };
                coordinator.step(now, happened, &mut out.coordinator);
            }
            Self::Node(node) => match input {
                Input::Datagram(from, bytes) => {
                    node.step(now, NodeHappened::Message(from, decoded(&bytes)?), &mut out.node);
                }
                Input::Ask(id, wish) => ask(node, now, AskId(id.0), &wish, &mut out.node),
                Input::Tick => node.step(now, NodeHappened::Tick, &mut out.node),
                Input::Kept(_) => unreachable!("nodes keep nothing"),
            },
        }
        Ok(())
    }
}

fn ask(node: &mut Node<MemoryItems>, now: Moment, id: AskId, wish: &Wish, out: &mut NodeOutbox) {
    match wish {
        Wish::Operation { key, operation, value } => {
            let name = key.name();
            let key = Key::new(&name).expect("a short name");
            let operation = Wish::operation(operation, value);
            // As a thread of the node would: who can answer by himself does.
            match node.read_directly(now, &name, &operation) {
                Some(reply) => out.answers.push((id, reply)),
                None => node.step(now, NodeHappened::Ask(id, key, &guira_chain::Owned::of(&operation)), out),
            }
        }
        Wish::Flush => node.step(now, NodeHappened::Flush(id), out),
        Wish::FlushLater(..) => unreachable!("clients of this world want nothing later"),
    }
}

fn decoded(bytes: &[u8]) -> Result<Message, Failure> {
    Message::decode(bytes).map_err(|_| Failure::Answer(format!("what a member has sent cannot be read: {bytes:?}")))
}
