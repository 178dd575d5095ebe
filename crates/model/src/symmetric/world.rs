//! A state: replicas as they are, messages, clients, shards, and who is there; and what can happen in it.
//!
//! Always true:
//! - what was sent stays: it may come at any time, again, or never. So loss, doubling and any order are in it without being counted, and what is told
//!   again changes nothing;
//! - time stands still, and all that is waited for is due when a node's time passes: only a lease has an end;
//! - a view without a former member is made when that has no lease any more, which is the driver's part (R2); a shard outlives its node, and is served
//!   by the home of the last view, at once.

mod asking;
mod dead;
mod views;

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use guira_consistency::{
    Config, Envelope, Epoch, Happened, Key, Kind, Mutant, Outbox, Replica, RequestId, Sequence, Session, Timestamp,
    Version, View, Window, WriteBack, Writer,
};
use guira_item::{Moment, Span};
use guira_routing::NodeId;

use crate::symmetric::{
    orders::{Begun, Orders, Text, Told, held, value},
    printed::{Printed, print},
    scenario::{Begins, Scenario},
};

/// Where versions begin: they wrap around in every model.
const FIRST_AT: Timestamp = Timestamp { version: u32::MAX - 1, writer: Writer(0) };

/// Bytes of an item at most.
const ITEM_LEN_MAX: usize = 240;

/// As far below all that was before does a shard begin that is lost: nobody knows what there was.
const BELOW: u32 = 8;

/// What a client wants, at most: so operations have numbers.
const WANTS_MAX: usize = 16;

pub fn key(number: usize) -> Key {
    Key::from(&[b'a' + number as u8][..])
}

pub fn node_id(node: usize) -> NodeId {
    NodeId(node as u16)
}

/// A message under way.
#[derive(Clone, Hash, Debug)]
pub struct Sent {
    pub from: usize,
    pub to: usize,
    pub envelope: Envelope,
}

/// A node that is there.
#[derive(Clone, Debug)]
pub struct Node {
    pub replica: Arc<Replica>,
    /// Leases that it has outlived: its clock.
    pub now: u8,
}

/// How far a client is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum At {
    /// It asks next, or is done.
    Idle,
    /// It waits for this node.
    Waits(usize),
    /// It is to ask this node instead; again, if it may have been carried out.
    Onward { node: usize, is_again: bool },
    /// Its node is gone.
    Over,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClientState {
    pub next: usize,
    pub at: At,
    /// The node that it is a client of.
    pub node: usize,
    /// What it has read last of each key, and what that is known by if something was there.
    pub read: Vec<Option<(Option<u64>, Text)>>,
    /// The newest that it has seen of each.
    pub floor: Vec<Option<Timestamp>>,
}

/// What a home has of a key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shard {
    pub version: Version,
    pub done: Window,
}

/// What can happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    Comes(usize),
    Passes(usize),
    Asks(usize),
    Dies(usize),
    Lapses(usize),
    /// Members change: without those that are gone, or with this one.
    Changes(Option<usize>),
    Hears(usize),
    Promotes(usize),
    Evicts(usize),
    WritesBack(usize),
}

/// A state.
#[derive(Clone, Debug)]
pub struct World {
    pub nodes: Vec<Option<Node>>,
    pub net: BTreeSet<Arc<Printed<Sent>>>,
    pub view: View,
    pub lives: u16,
    pub clients: Vec<ClientState>,
    pub shards: Vec<Shard>,
    pub write_backs: BTreeSet<Printed<(usize, WriteBack)>>,
    pub orders: Vec<Orders>,
    /// Of each key the newest that was ever served: in Lin by any node, in SC by each.
    pub floors: Vec<Vec<Timestamp>>,
    /// SC: all that was ever served of each key, by which node. What only a node had that is gone is lost, as nobody waits for anybody.
    pub served: Vec<BTreeSet<Printed<(usize, Version)>>>,
    /// Crashes, lapses, views, joins, promotions, evictions, waits so far.
    pub counts: [u8; 7],
    /// What should not be.
    pub wrong: Option<&'static str>,
    /// All that clients have done, where that is looked at in the end and not in each state; with the time: acts so far.
    pub log: Vec<Logged>,
    pub time: u64,
}

/// What a client has done.
#[derive(Clone, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "only random ways, which are tests, look at it in the end"))]
pub struct Logged {
    pub number: u8,
    pub key: usize,
    pub begun: Begun,
    pub invoked: u64,
    pub told: Option<(u64, Told)>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, to: &mut H) {
        for node in &self.nodes {
            node.as_ref().map(|node| (&node.replica, node.now)).hash(to);
        }
        (&self.net, &self.view, self.lives, &self.clients, &self.shards, &self.write_backs).hash(to);
        (&self.orders, &self.floors, &self.served, self.counts, self.wrong).hash(to);
    }
}

/// Two that have the same number do the same from here on.
impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.print() == other.print()
    }
}

impl World {
    /// Its number.
    pub fn print(&self) -> u64 {
        print(self)
    }

    pub fn first(scenario: &Scenario) -> Self {
        let members = (0..scenario.nodes).map(|node| (node_id(node), Writer(node as u16))).collect();
        let homes = (0..scenario.keys).map(node_id).collect();
        let (homes_since, homes_before) = (vec![Epoch(1); scenario.keys], vec![Epoch(1); scenario.keys]);
        let view = View { epoch: Epoch(1), members, homes, homes_since, homes_before };
        let version = Version {
            at: FIRST_AT,
            base: FIRST_AT,
            kind: Kind::Plain,
            value: Some(value(b"0", FIRST_AT.cas_unique())),
            by: None,
        };
        let shard = Shard { version, done: Window::default() };
        let client = |client: &crate::symmetric::scenario::Client| ClientState {
            next: 0,
            at: At::Idle,
            node: client.node,
            read: vec![None; scenario.keys],
            floor: vec![None; scenario.keys],
        };
        let mut world = Self {
            nodes: Vec::new(),
            net: BTreeSet::new(),
            view,
            lives: scenario.nodes as u16,
            clients: scenario.clients.iter().map(client).collect(),
            shards: vec![shard; scenario.keys],
            write_backs: BTreeSet::new(),
            orders: vec![Orders::new(held(b"0")); scenario.keys],
            floors: vec![vec![FIRST_AT; scenario.nodes]; scenario.keys],
            served: vec![BTreeSet::new(); scenario.keys],
            counts: [0; 7],
            wrong: None,
            log: Vec::new(),
            time: 0,
        };
        for node in 0..scenario.nodes {
            world.nodes.push(Some(Node { replica: Arc::new(replica(scenario, node, true)), now: 0 }));
            world.hear(scenario, node);
        }
        if scenario.begins == Begins::Hot {
            for key in 0..scenario.keys {
                world.promote(scenario, key);
            }
            world.deliver_all(scenario);
            world.net.clear();
        }
        world.look(scenario);
        world
    }

    /// What can happen next.
    pub fn acts(&self, scenario: &Scenario, acts: &mut Vec<Act>) {
        for (at, sent) in self.net.iter().enumerate() {
            // To who is gone, or has no use for it, nothing comes.
            if let Some(node) = &self.nodes[sent.to]
                && (node.replica.epoch() <= sent.envelope.epoch || scenario.mutant == Some(Mutant::OldEpoch))
            {
                acts.push(Act::Comes(at));
            }
        }
        let [crashes, lapses, views, joins, promotions, evictions, passes] = self.counts;
        for (at, node) in self.nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            if passes < scenario.faults.passes {
                acts.push(Act::Passes(at));
            }
            if at >= scenario.faulty_from && crashes < scenario.faults.crashes {
                acts.push(Act::Dies(at));
            }
            if at >= scenario.faulty_from && lapses < scenario.faults.lapses && node.now == 0 {
                acts.push(Act::Lapses(at));
            }
            if node.replica.epoch() < self.view.epoch {
                acts.push(Act::Hears(at));
            }
        }
        for (at, client) in self.clients.iter().enumerate() {
            let may_begin = client.at == At::Idle && client.next < scenario.clients[at].wants.len();
            if may_begin || matches!(client.at, At::Onward { .. }) {
                acts.push(Act::Asks(at));
            }
        }
        if views < scenario.faults.views {
            if self.without_gone().is_some() {
                acts.push(Act::Changes(None));
            }
            if joins < scenario.faults.joins {
                let is_out = |node: &usize| self.nodes[*node].is_none() || !self.is_member(*node);
                acts.extend((0..scenario.nodes).filter(is_out).map(|node| Act::Changes(Some(node))));
            }
        }
        for key_number in 0..scenario.keys {
            let Some(home) = self.home(key_number) else { continue };
            if promotions < scenario.hot_set.0 && home.replica.can_promote(&key(key_number)) {
                acts.push(Act::Promotes(key_number));
            }
            let is_hot = home.replica.seen(&key(key_number), self.clock(home)).is_some();
            if evictions < scenario.hot_set.1 && is_hot {
                acts.push(Act::Evicts(key_number));
            }
        }
        acts.extend((0..self.write_backs.len()).map(Act::WritesBack));
    }

    pub fn after(&self, scenario: &Scenario, act: &Act) -> Self {
        let mut world = self.clone();
        world.act(scenario, act);
        world.look(scenario);
        if scenario.forgets_dead {
            world.forget_dead(scenario);
        }
        world
    }

    pub fn act(&mut self, scenario: &Scenario, act: &Act) {
        self.time += u64::from(scenario.logs);
        match *act {
            Act::Comes(at) => {
                let sent = self.net.iter().nth(at).cloned().expect("it is under way");
                self.come(scenario, &sent);
            }
            Act::Passes(node) => {
                self.counts[6] = self.counts[6].saturating_add(1);
                self.step(scenario, node, Happened::Tick);
            }
            Act::Asks(client) => self.ask(scenario, client),
            Act::Dies(node) => {
                self.counts[0] += 1;
                self.die(scenario, node);
            }
            Act::Lapses(node) => {
                self.counts[1] += 1;
                self.nodes[node].as_mut().expect("it is there").now = 1;
            }
            Act::Changes(joins) => self.change(scenario, joins),
            Act::Hears(node) => self.hear(scenario, node),
            Act::Promotes(key) => {
                self.counts[4] += 1;
                self.promote(scenario, key);
            }
            Act::Evicts(key_number) => {
                self.counts[5] += 1;
                let home = self.home_node(key_number).expect("it is there");
                self.step(scenario, home, Happened::Evict(key(key_number)));
            }
            Act::WritesBack(at) => {
                let due = self.write_backs.iter().nth(at).cloned().expect("it is under way");
                self.write_backs.remove(&due);
                let (node, write) = &*due;
                self.write_back(scenario, *node, write.clone());
            }
        }
    }

    pub fn come(&mut self, scenario: &Scenario, sent: &Sent) {
        let happened = Happened::Message(node_id(sent.from), sent.envelope.clone());
        self.step(scenario, sent.to, happened);
    }

    pub fn clock(&self, node: &Node) -> Moment {
        Moment::from_ns(u64::from(node.now))
    }

    pub fn promote(&mut self, scenario: &Scenario, key_number: usize) {
        let Shard { version, done } = self.shards[key_number].clone();
        let home = self.home_node(key_number).expect("it is there");
        self.step(scenario, home, Happened::Promote(key(key_number), Box::new(version), done));
    }

    pub fn write_back(&mut self, scenario: &Scenario, node: usize, write: WriteBack) {
        let key_number = usize::from(write.key[0] - b'a');
        // A shard that was taken over hears nothing from who had it.
        if self.view.home_of(key_number as u64) != Some(node_id(node)) {
            return;
        }
        let at = write.version.at;
        let shard = &mut self.shards[key_number];
        let is_kept = if scenario.shards_die { write.is_doubtful } else { !at.is_newer_than(shard.version.at) };
        if !is_kept {
            *shard = Shard { version: write.version, done: write.done };
        }
        self.step(scenario, node, Happened::WrittenBack(write.key, at));
    }

    pub fn step(&mut self, scenario: &Scenario, node: usize, happened: Happened<'_>) {
        let Some(it) = &mut self.nodes[node] else { return };
        let mut out = Outbox::default();
        let now = Moment::from_ns(u64::from(it.now));
        Arc::make_mut(&mut it.replica).step(now, happened, &mut out);
        for (to, envelope) in out.sends {
            let to = usize::from(to.0);
            self.net.insert(Arc::new(Printed::new(Sent { from: node, to, envelope })));
        }
        self.write_backs.extend(out.write_backs.into_iter().map(|write| Printed::new((node, write))));
        for (ticket, outcome) in out.answers {
            let (client, want) = (ticket.0 as usize / WANTS_MAX, ticket.0 as usize % WANTS_MAX);
            // What was asked before the client's node began another life, nobody waits for any more.
            if self.clients[client].next == want {
                self.tell(scenario, client, node, &outcome);
            }
        }
    }

    /// All that is under way comes, and what comes of it, until nothing more does.
    pub fn deliver_all(&mut self, scenario: &Scenario) {
        let mut come: BTreeSet<Arc<Printed<Sent>>> = BTreeSet::new();
        while let Some(sent) = self.net.iter().find(|sent| !come.contains(*sent)).cloned() {
            self.come(scenario, &sent);
            come.insert(sent);
        }
    }
}

pub fn number(client: usize, want: usize) -> u8 {
    (client * WANTS_MAX + want) as u8
}

/// What a request is known by.
fn request(client: usize, want: usize) -> RequestId {
    let session = Session { node: node_id(client), life: 0, lane: 0 };
    RequestId { session, sequence: Sequence(want as u64 + 1) }
}

fn replica(scenario: &Scenario, node: usize, is_whole: bool) -> Replica {
    let config = Config {
        me: node_id(node),
        consistency: scenario.consistency,
        hash_of: |key| u64::from(key[0] - b'a'),
        tell_again_after: Span::from_ns(0),
        replay_after: Span::from_ns(0),
        waiting_max: 8,
        item_len_max: ITEM_LEN_MAX,
        keys_max: 4,
        page_len_max: 1,
        mutant: scenario.mutant,
    };
    Replica::new(config, is_whole)
}
