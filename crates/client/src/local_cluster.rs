//! A cluster on this machine whose only gateways are clients, for tests.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use guira_cluster::{Members, Sealer, Transport};
use guira_item::Span;
use guira_persist::MemoryStore;
use guira_routing::NodeId;
use guira_switched::{
    CacheMode, Life, Member, Role, StaticFile,
    backend::{BackendConfig, HotConfig},
    cache_node::CacheConfig,
    host::{BackendHost, CacheHost, ControllerHost},
};

use crate::{Client, ClientOptions};

/// Any port of this machine's own address.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

const CONTROLLER: u16 = 1;
const CACHE: u16 = 100;
const FIRST_BACKEND: u16 = 1_000;
const FIRST_CLIENT: u16 = 10_000;

/// Members that clients may be.
const CLIENTS: u16 = 2;

/// How long a segment is: keys become hot soon.
const SEGMENT: Span = Span::from_ms(100);

/// A cluster. Dropped, it is stopped.
pub(crate) struct LocalCluster {
    pub(crate) file: StaticFile,
    /// By number.
    pub(crate) backends: Vec<BackendHost<MemoryStore>>,
    pub(crate) cache: CacheHost,
    _controller: ControllerHost,
    /// Of members that no client is yet.
    free: Vec<(NodeId, Transport)>,
}

fn a_life() -> Life {
    Life::begin(None).expect("without a file it only looks at clocks")
}

impl LocalCluster {
    /// One with a backend for each store; who waits for an answer waits for so long.
    pub(crate) fn start(answer_within_ms: u64, stores: &[Arc<MemoryStore>]) -> Self {
        let backend_ids = (FIRST_BACKEND..).take(stores.len());
        let backend =
            Role::Backend { cache: Some(CACHE), store: "memory".into(), store_limit: None, request_limit: None };
        let gateway = Role::Gateway { listen: ANY_PORT, cache_mode: CacheMode::default() };
        let mut roles = vec![(CONTROLLER, Role::Controller), (CACHE, Role::Cache)];
        roles.extend(backend_ids.map(|id| (id, backend.clone())));
        roles.extend((FIRST_CLIENT..).take(usize::from(CLIENTS)).map(|id| (id, gateway.clone())));
        let (file, mut transports) = bind_all(answer_within_ms, roles);
        let partitions = Arc::new(file.partitions().expect("there are backends"));
        let mut next_transport = || transports.remove(0).1;
        let controller = ControllerHost::start(next_transport(), file.controller_config(a_life()));
        let cache = CacheConfig { segment: SEGMENT, ..file.cache_config(NodeId(CACHE), &partitions, a_life()) };
        let cache = CacheHost::start(next_transport(), cache);
        let start = |(at, store): (u16, &Arc<MemoryStore>)| {
            let config = file.backend_config(NodeId(FIRST_BACKEND + at), a_life());
            let hot = HotConfig { segment: SEGMENT, ..config.hot };
            BackendHost::start(next_transport(), BackendConfig { hot, ..config }, Arc::clone(store))
        };
        let backends: Result<_, _> = (0..).zip(stores).map(start).collect();
        Self {
            backends: backends.expect("backends"),
            cache: cache.expect("a cache node"),
            _controller: controller.expect("a controller"),
            free: transports,
            file,
        }
    }

    /// One as it is for most tests: two backends that answer at once.
    pub(crate) fn quick() -> Self {
        Self::start(30_000, &[Arc::default(), Arc::default()])
    }

    /// A client, which is the next of the members that are free.
    pub(crate) fn client(&mut self) -> Client {
        let (me, transport) = self.free.remove(0);
        Client::on(transport, &self.file, me, &ClientOptions::default()).expect("a client")
    }

    /// Gives up the sockets of the next member that is free: which that is.
    pub(crate) fn free(&mut self) -> NodeId {
        self.free.remove(0).0
    }
}

/// A socket for each, on any port, all of which know each other.
fn bind_all(answer_within_ms: u64, roles: Vec<(u16, Role)>) -> (StaticFile, Vec<(NodeId, Transport)>) {
    let secret = "what only tests know".into();
    let mut file = StaticFile { cluster: "client".into(), secret, answer_within_ms, ..StaticFile::default() };
    let nobody = Arc::new(Members::default());
    let mut transports = Vec::new();
    for (id, role) in roles {
        let sealer = Sealer::new(&file.secret(), NodeId(id));
        let transport = Transport::bind(ANY_PORT, sealer, Arc::clone(&nobody)).expect("a port");
        file.members.push(Member { id, address: transport.local_address(), role });
        transports.push((NodeId(id), transport));
    }
    file.check().expect("a cluster");
    let members = Arc::new(file.members().expect("each has its own"));
    transports.iter_mut().for_each(|(_, transport)| transport.set_members(Arc::clone(&members)));
    (file, transports)
}
