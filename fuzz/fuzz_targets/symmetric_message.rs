//! What members of a symmetric cluster say: any bytes as messages, to a node that serves and to a coordinator. Nothing ends either, what is read of a
//! message is written as it was, and what they say can be read, also when there are hardly any credits. And what a coordinator has kept: any bytes.
#![no_main]

use std::time::Duration;

use guira_chain::Owned;
use guira_cluster::{Drift, Incarnation, Life, NodeClock, messages};
use guira_consistency::{Consistency, Epoch, View, Writer};
use guira_item::{Get, Key, Moment, Operation, Span};
use guira_routing::NodeId;
use guira_symmetric::{
    AskId, Coordinator, CoordinatorConfig, CoordinatorHappened, CoordinatorOutbox, FlowConfig, Given, HomecomingConfig,
    HotSetConfig, MemoryItems, Message, Node, NodeConfig, NodeHappened, NodeOutbox, ShardAccess, Told, ViewsConfig,
};

const COORDINATOR: NodeId = NodeId(1);
const NODE: NodeId = NodeId(2);
const OTHER: NodeId = NodeId(3);
const LEASE: Span = Span::from_s(1);
const LIFE: Incarnation = Incarnation(7);

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(given) = Given::decode(data) {
        assert_eq!(Given::decode(&given.encode()).as_ref(), Ok(&given));
    }
    let Some((timing, data)) = data.split_first() else { return };
    let mut now = Moment::from_ns(1_000_000_000);
    let (mut node, mut coordinator) = (node(now, timing % 2 == 0), coordinator(now));
    let (mut out, mut said) = (NodeOutbox::default(), CoordinatorOutbox::default());
    node.step(now, NodeHappened::Message(COORDINATOR, begins(now)), &mut out);
    for (number, bytes) in messages(data).map_while(Result::ok).enumerate() {
        let Ok(message) = Message::decode(bytes) else { continue };
        let written = encoded(&message);
        let again = Message::decode(&written).expect("what was written can be read");
        assert_eq!(encoded(&again), written);
        now = now + Span::from_ms(u64::from(*timing));
        let from = [OTHER, COORDINATOR][number % 2];
        node.step(now, NodeHappened::Message(from, message.clone()), &mut out);
        let operation = Owned::of(&Operation::Get(Get::PLAIN));
        let key = Key::new(b"a").expect("it is a key");
        node.step(now, NodeHappened::Ask(AskId(number as u64), key, &operation), &mut out);
        node.step(now, NodeHappened::Tick, &mut out);
        coordinator.step(now, CoordinatorHappened::Message([OTHER, NODE][number % 2], message), &mut said);
        if let Some(kept) = said.keep.take() {
            assert_eq!(Given::decode(&kept.encode()).as_ref(), Ok(&kept));
            coordinator.step(now, CoordinatorHappened::Kept(kept.view.epoch), &mut said);
        }
        coordinator.step(now, CoordinatorHappened::Tick, &mut said);
        let all = out.sends.iter().chain(&said.sends);
        all.for_each(|(_, message)| assert!(Message::decode(&encoded(message)).is_ok()));
        out.clear();
        said.clear();
    }
});

fn node(now: Moment, is_sequential: bool) -> Node<MemoryItems> {
    let life = Life { incarnation: LIFE, clock: NodeClock::set(now, Duration::from_secs(1_800_000_000)), seed: 1 };
    let config = NodeConfig {
        me: NODE,
        coordinator: COORDINATOR,
        life,
        lease: LEASE,
        drift: Drift::default(),
        consistency: if is_sequential { Consistency::Sc } else { Consistency::Lin },
        item_len_max: 1_000,
        items_len_max: 10_000,
        shard_access: ShardAccess::Crcw,
        hot_keys_max: 4,
        answer_within: Span::from_s(5),
        sample_one_in: 1,
        flow: FlowConfig { requests: 2, requests_wait: 2, messages: 2, messages_wait: 2, mutant: None },
        homecoming: HomecomingConfig { page_len_max: 100, mutant: None },
        mutant: None,
        shown_mutant: None,
    };
    Node::new(now, config, MemoryItems::new(10_000))
}

fn coordinator(now: Moment) -> Coordinator {
    let nodes = vec![NODE, OTHER];
    let views = ViewsConfig { nodes, lease: LEASE, drift: Drift::default(), last_copy_waits: LEASE, mutant: None };
    let hot = HotSetConfig { len_max: 4, changes_max: 2, margin: 1.25 };
    let config = CoordinatorConfig { me: COORDINATOR, views, hot, epoch: LEASE, consistency: Consistency::Lin };
    Coordinator::new(now, config, None).expect("nothing was kept")
}

/// Everything begins, with both nodes.
fn begins(asked: Moment) -> Message {
    let members = [(NODE, Writer(1)), (OTHER, Writer(2))].into();
    let since = vec![Epoch(1); 2];
    let (homes, homes_since, homes_before) = (vec![NODE, OTHER], since.clone(), since);
    let view = View { epoch: Epoch(1), members, homes, homes_since, homes_before };
    let began = Some(Epoch(1));
    let (own_shard, kept_since) = (0, vec![Epoch(1); 2]);
    let told =
        Told { life: LIFE, asked, view, began, grants: true, lease: LEASE, is_settled: true, own_shard, kept_since };
    Message::Told(Box::new(told))
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}
