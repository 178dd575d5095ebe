//! A whole switched cluster in one process, over 127.0.0.1, for tests.

use std::{
    collections::VecDeque,
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZero,
    ops::Range,
    sync::Arc,
};

use guira_cluster::{DriverError, Epoch, Members, Sealer, Transport};
use guira_item::{Span, store::Store};
use guira_routing::NodeId;

use super::{
    BackendHost, BackendStatus, CacheHost, CacheStatus, Caller, CallerBounds, ClockNow, ControllerHost,
    ControllerStatus, Ended, GatewayHost, GatewayService, GatewayStatus, MemberHost, PartStatus, ServiceConfig,
};
use crate::{
    CacheMode, ITEM_LEN_DEFAULT, Life, Member, Role, StaticFile,
    backend::{BackendConfig, HotConfig},
    cache_node::CacheConfig,
};

const CONTROLLER: NodeId = NodeId(1);

fn a_life() -> Life {
    Life::begin(None).expect("without a file it only looks at clocks")
}

/// The numbers that nodes of each kind may have.
const CACHES: Range<u16> = 100..1_000;
const BACKENDS: Range<u16> = 1_000..10_000;
const GATEWAYS: Range<u16> = 10_000..20_000;

/// Any port of this machine's own address.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What a cluster in one process is to be.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// Backends, each with a store.
    pub backends: usize,
    /// Cache nodes; a backend's keys are cached at one of them.
    pub caches: usize,
    /// Threads of each.
    pub cache_threads: NonZero<u16>,
    /// Gateways, each with a thread: as many as the server has.
    pub gateways: usize,
    /// Members that are gateways elsewhere in this process: [`LocalCluster::next_client`].
    pub clients: usize,
    /// How long a lease is: so long a change waits at most for a cache node that has fallen silent.
    pub lease: Span,
    /// Items of a cache node at most.
    pub items_max: usize,
    /// Bytes of a cache node's keys and values at most.
    pub bytes_max: usize,
    /// How hot keys are found.
    pub hot: HotConfig,
    /// Bytes of a key and a value together beyond which an item is refused.
    pub item_len_max: usize,
    /// How long a client waits for an answer at most.
    pub answer_within: Span,
    /// See [`ServiceConfig::values_len_max`].
    pub values_len_max: usize,
}

impl Default for LocalConfig {
    fn default() -> Self {
        Self {
            backends: 2,
            caches: 1,
            cache_threads: NonZero::<u16>::MIN,
            gateways: 1,
            clients: 0,
            lease: Span::from_s(1),
            items_max: 10_000,
            bytes_max: 64 << 20,
            hot: HotConfig::default(),
            item_len_max: ITEM_LEN_DEFAULT,
            answer_within: Span::from_s(5),
            values_len_max: 256 << 20,
        }
    }
}

/// How all of a cluster are; `None` for who has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalStatus {
    /// The controller.
    pub controller: Option<ControllerStatus>,
    /// The cache nodes.
    pub caches: Vec<Option<CacheStatus>>,
    /// The backends.
    pub backends: Vec<Option<BackendStatus>>,
    /// The gateways.
    pub gateways: Vec<Option<GatewayStatus>>,
}

/// A cluster in one process. Dropped, it is stopped.
pub struct LocalCluster<S: Store> {
    config: LocalConfig,
    file: StaticFile,
    epoch: Epoch,
    /// Of clients that are nowhere yet.
    clients: VecDeque<(NodeId, Transport)>,
    // In the order in which they end.
    gateways: Vec<GatewayHost>,
    caches: Vec<Option<CacheHost>>,
    controller: Option<ControllerHost>,
    backends: Vec<Option<BackendHost<S>>>,
}

impl<S: Store> fmt::Debug for LocalCluster<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalCluster").field("config", &self.config).finish_non_exhaustive()
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

fn nodes(of: impl Iterator<Item = u16>, len: usize) -> io::Result<Vec<NodeId>> {
    let nodes: Vec<NodeId> = of.take(len).map(NodeId).collect();
    if nodes.len() < len { Err(invalid("more nodes than there are numbers for")) } else { Ok(nodes) }
}

impl<S: Store> LocalCluster<S> {
    /// Starts one whose backends have the stores that `store` gives, by number.
    ///
    /// # Errors
    /// The configuration has too few or too many of something, or the system gives no sockets or threads.
    pub fn start(config: LocalConfig, store: impl Fn(usize) -> Arc<S>) -> io::Result<Self> {
        let threads = config.cache_threads;
        let caches = nodes(CACHES.step_by(threads.get().into()), config.caches)?;
        let backends = nodes(BACKENDS, config.backends)?;
        let outer = nodes(GATEWAYS, config.gateways.saturating_add(config.clients))?;
        let (gateways, clients) = outer.split_at(config.gateways);
        if outer.is_empty() {
            return Err(invalid("a cluster without a gateway answers nobody"));
        }
        let cache_of = |backend: usize| backend.checked_rem(caches.len()).map(|at| caches[at].0);
        let backend = |(at, me): (usize, &NodeId)| (*me, Role::backend(cache_of(at)));
        let gateway = |me: &NodeId| (*me, Role::Gateway { listen: ANY_PORT, cache_mode: CacheMode::default() });
        let roles = [(CONTROLLER, Role::Controller)].into_iter();
        let roles = roles.chain(caches.iter().map(|me| (*me, Role::Cache { threads })));
        let roles = roles.chain(backends.iter().enumerate().map(backend)).chain(outer.iter().map(gateway));
        let (file, transports) = bind_all(&config, roles.collect())?;
        let mut transports = transports.into_iter();
        let mut next_transport = || transports.next().expect("one was bound for each");

        let shares = file.shares().map_err(invalid)?;

        let controller = ControllerHost::start(next_transport(), file.controller_config(a_life()))?;
        let HotConfig { segment, alpha, .. } = config.hot;
        let bytes_max = config.bytes_max / usize::from(threads.get());
        let nodes = file.caches();
        let start_cache = |node: &NodeId| {
            let part = |part| {
                let config = file.cache_config(part, &shares, a_life());
                (next_transport(), CacheConfig { bytes_max, segment, alpha, ..config })
            };
            CacheHost::start(nodes.parts_of(*node).map(part)).map(Some)
        };
        let cache_hosts = caches.iter().map(start_cache).collect::<io::Result<_>>()?;
        let start_backend = |(at, me): (usize, &NodeId)| {
            let life = a_life();
            let hot = HotConfig { seed: life.seed, ..config.hot.clone() };
            let config = BackendConfig { hot, ..file.backend_config(*me, &shares, life) };
            BackendHost::start(next_transport(), config, store(at)).map(Some)
        };
        let backend_hosts = backends.iter().enumerate().map(start_backend).collect::<io::Result<_>>()?;
        let start_gateway =
            |me: &NodeId| GatewayHost::start(next_transport(), file.gateway_config(*me, &shares, a_life()));
        let gateway_hosts = gateways.iter().map(start_gateway).collect::<io::Result<_>>()?;
        Ok(Self {
            epoch: Epoch(1),
            clients: clients.iter().copied().zip(transports).collect(),
            file,
            gateways: gateway_hosts,
            caches: cache_hosts,
            controller: Some(controller),
            backends: backend_hosts,
            config,
        })
    }

    /// Its gateways as a service of a server with this clock.
    pub fn service(&self, clock: ClockNow) -> GatewayService {
        let LocalConfig { item_len_max, values_len_max, .. } = self.config;
        let fronts = self.gateways.iter().map(GatewayHost::front);
        GatewayService::before(ServiceConfig { clock, item_len_max, values_len_max }, fronts)
    }

    /// A program before its first gateway; `None` without one.
    pub fn caller(&self, bounds: CallerBounds) -> Option<Caller> {
        self.gateways.first().map(|gateway| Caller::before(gateway.front(), bounds))
    }

    /// Changes who is in the cluster, as far as its members know; who is no longer in it goes on, as if it had not heard of it.
    ///
    /// # Errors
    /// What comes of it is no cluster, or somebody has ended.
    pub fn set_view(&mut self, change: impl FnOnce(&mut StaticFile)) -> io::Result<()> {
        let mut file = self.file.clone();
        change(&mut file);
        file.check().map_err(invalid)?;
        self.epoch = Epoch(self.epoch.0 + 1);
        let members = Arc::new(file.members_in(self.epoch).map_err(invalid)?);
        let view = file.view(file.shares().map_err(invalid)?);
        let is_there = |node: &NodeId| file.member(*node).is_some();
        let of = |kind: Range<u16>| kind.map(NodeId);
        let threads = self.config.cache_threads.get();
        let caches = of(CACHES).step_by(threads.into()).zip(&self.caches).filter(|(node, _)| is_there(node));
        let gateways = of(GATEWAYS).zip(&self.gateways).filter(|(node, _)| is_there(node));
        let told =
            caches.filter_map(|(_, host)| host.as_ref()).map(|host| host.set_view(members.clone(), view.clone()));
        let told = told.chain(gateways.map(|(_, host)| host.set_view(members.clone(), view.clone())));
        let told = told.chain(self.controller.iter().map(|host| host.set_view(members.clone(), view.clone())));
        let backends = self.backends.iter().flatten();
        let told = told.chain(backends.map(|host| host.set_view(members.clone(), view.clone())));
        told.collect::<Result<(), Ended>>().map_err(io::Error::other)?;
        self.file = file;
        Ok(())
    }

    /// What its members know of each other.
    pub fn file(&self) -> &StaticFile {
        &self.file
    }

    /// The next of the clients that are nowhere yet, with its sockets; `None` if that were all.
    pub fn next_client(&mut self) -> Option<(NodeId, Transport)> {
        self.clients.pop_front()
    }

    /// How all are.
    pub fn status(&self) -> LocalStatus {
        LocalStatus {
            controller: self.controller.as_ref().and_then(ControllerHost::status),
            caches: self.caches.iter().map(|cache| cache.as_ref().and_then(CacheHost::status)).collect(),
            backends: self.backends.iter().map(|backend| backend.as_ref().and_then(BackendHost::status)).collect(),
            gateways: self.gateways.iter().map(GatewayHost::status).collect(),
        }
    }

    /// How the parts of a cache node are; none, if it was stopped.
    pub fn cache_parts(&self, cache: usize) -> Vec<Option<PartStatus>> {
        let cache = self.caches.get(cache).and_then(Option::as_ref);
        cache.map(|cache| cache.parts().collect()).unwrap_or_default()
    }

    /// The hottest keys of a cache node, at most `len_max`, with queries a second; nothing if it has ended.
    pub fn hottest(&self, cache: usize, len_max: usize) -> Vec<(Box<[u8]>, f64)> {
        let cache = self.caches.get(cache).and_then(Option::as_ref);
        cache.map(|cache| cache.hottest(len_max)).unwrap_or_default()
    }

    /// Stops one cache node, as if its machine had been switched off.
    ///
    /// # Errors
    /// It had ended by itself.
    pub fn stop_cache(&mut self, cache: usize) -> Result<(), DriverError> {
        self.caches.get_mut(cache).and_then(Option::take).map_or(Ok(()), MemberHost::stop)
    }

    /// Stops one backend: its store is as it was.
    ///
    /// # Errors
    /// It had ended by itself.
    pub fn stop_backend(&mut self, backend: usize) -> Result<(), DriverError> {
        self.backends.get_mut(backend).and_then(Option::take).map_or(Ok(()), MemberHost::stop)
    }

    /// Stops the controller: rules stay as they are until who holds them forgets them.
    ///
    /// # Errors
    /// It had ended by itself.
    pub fn stop_controller(&mut self) -> Result<(), DriverError> {
        self.controller.take().map_or(Ok(()), MemberHost::stop)
    }

    /// Stops all, the gateways first: who waits is told that nobody can say what has become of it.
    ///
    /// # Errors
    /// One of them had ended by itself: the first.
    pub fn stop(self) -> Result<(), DriverError> {
        let Self { config: _, file: _, epoch: _, clients: _, gateways, caches, controller, backends } = self;
        let ends = gateways.into_iter().map(MemberHost::stop);
        let ends = ends.chain(caches.into_iter().flatten().map(MemberHost::stop));
        let ends = ends.chain(controller.map(MemberHost::stop));
        let ends = ends.chain(backends.into_iter().flatten().map(MemberHost::stop));
        // All are stopped, whatever the first has to say.
        ends.fold(Ok(()), Result::and)
    }
}

/// Tries to find ports side by side.
const TRIES_MAX: usize = 100;

/// A member on any port, with a socket for each of its parts.
fn bind_member(
    NodeId(id): NodeId,
    role: &Role,
    bind: impl Fn(NodeId, SocketAddr) -> io::Result<Transport>,
) -> io::Result<(Member, Vec<Transport>)> {
    let mut tries = 0;
    loop {
        let first = bind(NodeId(id), ANY_PORT)?;
        let member = Member::new(id, first.local_address(), role.clone());
        let others = member.places().skip(1).map(|(part, address)| bind(part, address));
        match others.collect::<io::Result<Vec<_>>>() {
            // Somebody else has one of them.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < TRIES_MAX => tries += 1,
            others => return Ok((member, std::iter::once(first).chain(others?).collect())),
        }
    }
}

/// A socket for each part of each, on any port, all of which know each other; and the cluster that they are.
fn bind_all(config: &LocalConfig, roles: Vec<(NodeId, Role)>) -> io::Result<(StaticFile, Vec<Transport>)> {
    let drawn: [u8; 16] = rand::random();
    let mut file = StaticFile {
        cluster: "local".into(),
        secret: drawn.iter().map(|byte| format!("{byte:02x}")).collect(),
        lease_ms: config.lease.ns() / 1_000_000,
        answer_within_ms: config.answer_within.ns() / 1_000_000,
        item_len_max: config.item_len_max,
        items_max: config.items_max,
        ..StaticFile::default()
    };
    let secret = file.secret();
    let nobody = Arc::new(Members::default());
    let bind = |node, address| Transport::bind(address, Sealer::new(&secret, node), Arc::clone(&nobody));
    let mut transports = Vec::new();
    for (node, role) in roles {
        let (member, its) = bind_member(node, &role, bind)?;
        file.members.push(member);
        transports.extend(its);
    }
    file.check().map_err(invalid)?;
    let members = Arc::new(file.members().map_err(invalid)?);
    transports.iter_mut().for_each(|transport| transport.set_members(Arc::clone(&members)));
    Ok((file, transports))
}
