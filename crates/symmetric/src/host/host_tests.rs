//! Two nodes and a coordinator on sockets of this machine: what one is told the other has, also when somebody was started again.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use guira_chain::Reply;
use guira_cluster::{CLOCK, Life, MemberHost, Members, Sealer, Transport, unix_now};
use guira_front::{Caller, CallerBounds, Front};
use guira_item::{Answer, Expiry, Get, Key, Operation, Request, Store, StoreMode, Time};

use guira_routing::NodeId;

use super::*;
use crate::{Member, MemoryItems, Role, SymmetricFile};

const PATIENCE: Duration = Duration::from_secs(20);

const BOUNDS: CallerBounds = CallerBounds { operations_max: 100, asked_len_max: 8 << 20, kept_len_max: 8 << 20 };

const COORDINATOR: NodeId = NodeId(10_000);

type Items = MemoryItems;

/// A cluster, whose file has the ports that its sockets were given.
struct Cluster {
    file: SymmetricFile,
    coordinator: Option<CoordinatorHost>,
    nodes: Vec<NodeHost<Items>>,
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

fn transport(file: &SymmetricFile, node: NodeId) -> Transport {
    let address = file.member(node).expect("a member").address;
    let members = Arc::new(file.members().expect("members"));
    Transport::bind(address, Sealer::new(&file.secret(), node), members).expect("a socket")
}

/// Nothing is said of how views are kept.
fn never(told: Keeping<'_>) {
    panic!("{told:?}");
}

impl Cluster {
    fn start(folder: &Path, node_count: u16) -> Self {
        Self::start_with(folder, node_count, true)
    }

    /// The same; messages between members share datagrams, or do not.
    fn start_with(folder: &Path, node_count: u16, coalesced: bool) -> Self {
        let listen = ([127, 0, 0, 1], 1).into();
        let node = |id| (id, Role::Node { listen, memory_megabytes: 8 });
        let roles = (1..=node_count).map(node).chain([(COORDINATOR.0, Role::Coordinator { folder: folder.into() })]);
        let mut file = SymmetricFile {
            secret: "a secret of this test".into(),
            lease_ms: 500,
            epoch_ms: 100,
            hot_keys: 8,
            coalesced,
            ..SymmetricFile::default()
        };
        // Each is bound to any port, and all are told of each other then.
        let mut bound = Vec::new();
        for (id, role) in roles {
            let sealer = Sealer::new(&file.secret(), NodeId(id));
            let any = ([127, 0, 0, 1], 0).into();
            let transport = Transport::bind(any, sealer, Arc::new(Members::default())).expect("a socket");
            let transport = if coalesced { transport } else { transport.uncoalesced() };
            file.members.push(Member { id, address: transport.local_address(), role });
            bound.push(transport);
        }
        file.check().expect("a cluster");
        let members = Arc::new(file.members().expect("members"));
        bound.iter_mut().for_each(|transport| transport.set_members(Arc::clone(&members)));
        let views = ViewsFile::open(folder).expect("nobody has it");
        let coordinator =
            CoordinatorHost::start(bound.pop().expect("the last"), file.coordinator_config(), views, never);
        let life = || Life::begin(None).expect("it only looks at clocks");
        let start = |transport: Transport| {
            let config = file.node_config(transport.node(), life());
            NodeHost::start(transport, config, MemoryItems::new(8 << 20)).expect("a thread")
        };
        let nodes = bound.into_iter().map(start).collect();
        let cluster = Self { coordinator: Some(coordinator.expect("a thread")), nodes, file };
        cluster.wait_until_all_serve();
        cluster
    }

    fn wait_until_all_serve(&self) {
        let serves = |node: &NodeHost<Items>| {
            let core = node.status().expect("it runs").core;
            core.has_lease && core.is_whole && core.members == self.nodes.len() && core.shards == 1
        };
        wait_for("all serve", || self.nodes.iter().all(serves));
    }

    /// And waits until no node has a lease.
    fn stop_coordinator(&mut self) {
        self.coordinator.take().expect("it is there").stop().expect("it ran");
        let has_lease = |node: &NodeHost<Items>| node.status().expect("it runs").core.has_lease;
        wait_for("leases are over", || !self.nodes.iter().any(has_lease));
    }

    fn start_coordinator(&mut self, folder: &Path) {
        self.start_coordinator_that_tells(folder, never);
    }

    fn start_coordinator_that_tells(&mut self, folder: &Path, told: impl FnMut(Keeping<'_>) + Send + 'static) {
        let transport = transport(&self.file, COORDINATOR);
        let views = ViewsFile::open(folder).expect("nobody has it any more");
        let again = CoordinatorHost::start(transport, self.file.coordinator_config(), views, told);
        self.coordinator = Some(again.expect("a thread"));
    }

    fn caller(&self, node: usize) -> Caller<NodeFront<Items>> {
        Caller::before(self.nodes[node].front(), BOUNDS)
    }

    fn stop(self) {
        self.nodes.into_iter().for_each(|node| node.stop().expect("it ran"));
        self.coordinator.into_iter().for_each(|coordinator| coordinator.stop().expect("it ran"));
    }
}

fn set(key: &str, value: &[u8], caller: &Caller<NodeFront<Items>>) {
    let operation = Operation::Store(Store {
        mode: StoreMode::Set,
        flags: 0,
        expiry: Expiry::NEVER,
        cas: None,
        vivify: None,
        value,
    });
    let told = caller.ask(&[Request { key: Key::new(key.as_bytes()).expect("a key"), operation }]);
    assert!(matches!(told[..], [Reply::Answer(Answer::Stored { .. }, _)]), "{told:?}");
}

fn get(key: &str, caller: &Caller<NodeFront<Items>>) -> Option<Vec<u8>> {
    let key = Key::new(key.as_bytes()).expect("a key");
    match &caller.ask(&[Request { key, operation: Operation::Get(Get::PLAIN) }])[..] {
        [Reply::Hit(_, Some(value))] => Some(value.to_vec()),
        [Reply::Answer(Answer::Miss, _)] => None,
        told => panic!("{told:?}"),
    }
}

#[test]
fn what_one_node_is_told_the_other_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = Cluster::start(folder.path(), 2);
    let [one, other] = [0, 1].map(|node| cluster.caller(node));
    for at in 0..50 {
        set(&format!("key {at}").replace(' ', "-"), format!("value {at}").as_bytes(), &one);
    }
    for at in 0..50 {
        let key = format!("key-{at}");
        assert_eq!(get(&key, &other), Some(format!("value {at}").into_bytes()), "{key}");
    }
    // Beyond a datagram.
    let long = vec![7; 300_000];
    (0..4).for_each(|at| set(&format!("long-{at}"), &long, &other));
    (0..4).for_each(|at| assert!(get(&format!("long-{at}"), &one) == Some(long.clone()), "long-{at}"));
    let status = |node: usize| cluster.nodes[node].status().expect("it runs").core;
    assert!(status(0).counts.forwarded > 0 && status(1).counts.for_others > 0);
    cluster.stop();
}

#[test]
fn what_is_asked_for_most_comes_to_be_hot_everywhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = Cluster::start(folder.path(), 2);
    let [one, other] = [0, 1].map(|node| cluster.caller(node));
    set("hot", b"first", &one);
    wait_for("it is hot at both", || {
        (0..50).for_each(|_| assert!(get("hot", &one).is_some() && get("hot", &other).is_some()));
        let hot_reads = |node: &NodeHost<Items>| node.status().expect("it runs").core.counts.hot_reads;
        cluster.nodes.iter().all(|node| hot_reads(node) > 0)
    });
    set("hot", b"second", &other);
    assert_eq!(get("hot", &one).as_deref(), Some(&b"second"[..]));
    let coordinator = cluster.coordinator.as_ref().and_then(CoordinatorHost::status).expect("it runs").core;
    assert!(coordinator.hot_keys >= 1 && coordinator.whole.len() == 2, "{coordinator:?}");
    cluster.stop();
}

#[test]
fn what_is_asked_together_goes_together_or_each_message_by_itself() {
    for coalesced in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let cluster = Cluster::start_with(folder.path(), 2, coalesced);
        let caller = cluster.caller(0);
        let names: Vec<String> = (0..60).map(|at| format!("key-{at}")).collect();
        let keys = names.iter().map(|name| Key::new(name.as_bytes()).expect("a key"));
        let requests: Vec<Request<'_>> =
            keys.map(|key| Request { key, operation: Operation::Get(Get::PLAIN) }).collect();
        assert_eq!(caller.ask(&requests).len(), 60);
        let status = cluster.nodes[0].status().expect("it runs");
        let (messages, packets) = (status.wire.transport.all_messages_out(), status.wire.transport.packets_out());
        // Some are its own; others are asked of the other node, all at once.
        assert!(status.core.sent.requests > 10, "{status:?}");
        if coalesced {
            assert!(packets + 10 <= messages, "{packets} of {messages}");
        } else {
            assert_eq!(packets, messages);
        }

        let told = NodeFront::stats(&[cluster.nodes[0].front(), cluster.nodes[1].front()]);
        assert_eq!((told.limit_maxbytes, told.evictions), (16 << 20, 0));
        let own = |name: &str| told.own.iter().find(|number| number.name == name).map(|number| number.value);
        assert!(own("symmetric_sent_requests") >= Some(status.core.sent.requests));
        assert!(own("symmetric_messages_out") >= Some(messages) && own("symmetric_credits_beyond") == Some(0));
        let names: std::collections::BTreeSet<&str> = told.own.iter().map(|number| number.name).collect();
        assert_eq!(names.len(), told.own.len(), "each once");
        cluster.stop();
    }
}

#[test]
fn a_coordinator_goes_on_from_what_it_has_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::start(folder.path(), 2);
    set("key", b"value", &cluster.caller(0));
    let epoch = |cluster: &Cluster| cluster.nodes[0].status().expect("it runs").core.epoch;
    let before = epoch(&cluster);
    cluster.coordinator.take().expect("it is there").stop().expect("it ran");
    let views = ViewsFile::open(folder.path()).expect("nobody has it any more");
    let kept = views.read().expect("kept").expect("something");
    assert_eq!(kept.view.members.len(), 2);
    drop(views);
    cluster.start_coordinator(folder.path());
    cluster.wait_until_all_serve();
    assert!(epoch(&cluster) >= before);
    assert_eq!(get("key", &cluster.caller(1)).as_deref(), Some(&b"value"[..]), "nothing begins anew");
    let mut config = cluster.file.coordinator_config();
    cluster.stop();

    config.views.nodes.push(NodeId(3));
    let refused = |config| {
        let any = Sealer::new(&guira_cluster::Secret::derive("guira", b"a secret of this test"), COORDINATOR);
        let bound = Transport::bind(([127, 0, 0, 1], 0).into(), any, Arc::default()).expect("a socket");
        let views = ViewsFile::open(folder.path()).expect("nobody has it any more");
        CoordinatorHost::start(bound, config, views, never).expect_err("it cannot be").to_string()
    };
    let told = refused(config.clone());
    assert!(told.contains("views: kept by a coordinator of the nodes 1, 2: ") && !told.contains('\n'), "{told}");

    let damaged = folder.path().join("views");
    std::fs::write(&damaged, "guira views 2\n").expect("written");
    let told = refused(config);
    assert!(told.contains("damaged"), "{told}");
    assert_eq!(std::fs::read_to_string(damaged).expect("there"), "guira views 2\n");
}

/// Its folder is full, say: that ended it, and with it all leases.
#[test]
fn a_view_that_cannot_be_kept_is_tried_again_and_leases_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::start(folder.path(), 2);
    cluster.stop_coordinator();
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&said);
    let hear = move |told: Keeping<'_>| heard.lock().expect("no panic").push(format!("{told:?}"));
    cluster.start_coordinator_that_tells(folder.path(), hear);
    cluster.wait_until_all_serve();
    // Nothing can be put where a folder is, not even by root.
    let views = folder.path().join("views");
    wait_for("a folder is in its place", || {
        std::fs::remove_file(&views).expect("it is there");
        std::fs::create_dir(&views).is_ok()
    });
    cluster.nodes.pop().expect("two").stop().expect("it ran");
    let unkept = |cluster: &Cluster| {
        let coordinator = cluster.coordinator.as_ref().expect("it is there");
        coordinator.status().expect("it runs").unkept
    };
    wait_for("it cannot be kept", || unkept(&cluster).is_some_and(|why| why.contains("views")));
    let core = |cluster: &Cluster| cluster.nodes[0].status().expect("it runs").core;
    let since = Instant::now();
    // Some leases, and some tries.
    wait_for("time passes", || {
        assert!(core(&cluster).members == 2 && unkept(&cluster).is_some());
        since.elapsed() > Duration::from_millis(2_500)
    });
    wait_for("it has a lease", || core(&cluster).has_lease);
    std::fs::remove_dir(&views).expect("it is empty");
    wait_for("it is kept", || core(&cluster).members == 1);
    assert_eq!(unkept(&cluster), None);
    cluster.stop();
    let said = said.lock().expect("no panic");
    assert!(said.len() == 2 && said[0].starts_with("Fails") && said[1] == "GoesOn", "once each: {said:?}");
}

#[test]
fn everything_is_gone_at_once_or_when_it_is_to_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = Cluster::start(folder.path(), 2);
    let [one, other] = [0, 1].map(|node| cluster.caller(node));
    (0..10).for_each(|at| set(&format!("key-{at}"), b"value", &one));
    assert!(matches!(other.flush_all(Time::default()), Reply::Answer(Answer::Deleted, _)));
    (0..10).for_each(|at| assert_eq!(get(&format!("key-{at}"), &one), None));

    set("key", b"value", &one);
    let now_s = unix_now().as_secs();
    assert!(matches!(other.flush_all(CLOCK.from_unix_s(now_s + 2)), Reply::Answer(Answer::Deleted, _)));
    assert!(get("key", &one).is_some(), "it is to come");
    wait_for("it is gone", || get("key", &one).is_none());
    assert!(unix_now().as_secs() >= now_s + 2);
    cluster.stop();
}

/// The core says of nearly all that fails that it does not know: one that was to come was given up for that.
#[test]
fn a_flush_that_cannot_take_place_when_it_is_to_does_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::start(folder.path(), 1);
    let caller = cluster.caller(0);
    set("key", b"value", &caller);
    let due_s = unix_now().as_secs() + 2;
    assert!(matches!(caller.flush_all(CLOCK.from_unix_s(due_s)), Reply::Answer(Answer::Deleted, _)));
    cluster.stop_coordinator();
    wait_for("it was due", || unix_now().as_secs() > due_s);
    cluster.start_coordinator(folder.path());
    cluster.wait_until_all_serve();
    wait_for("it is gone", || get("key", &caller).is_none());
    cluster.stop();
}

#[test]
fn who_waits_is_told_also_when_the_host_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::start(folder.path(), 1);
    let caller = cluster.caller(0);
    set("key", b"value", &caller);
    cluster.stop_coordinator();
    let node = cluster.nodes.pop().expect("the one");
    let ask =
        || caller.ask(&[Request { key: Key::new(b"key").expect("a key"), operation: Operation::Get(Get::PLAIN) }]);
    let told = std::thread::scope(|scope| {
        let asking = scope.spawn(ask);
        wait_for("it waits", || node.status().expect("it runs").pending == 1);
        node.stop().expect("it ran");
        asking.join().expect("no panic")
    });
    assert!(matches!(told[..], [Reply::Answer(Answer::Failed(_), None)]), "{told:?}");
    let told = ask();
    assert!(matches!(told[..], [Reply::Answer(Answer::Failed(_), None)]), "{told:?}");
}
