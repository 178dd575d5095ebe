//! A whole switched cluster in one process, over 127.0.0.1.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use guira_cluster::{DriverError, Epoch, Incarnation, Members, NodeClock, Sealer, Secret, UdpTransport, boot_now};
use guira_item::{Span, store::Store};
use guira_routing::{HashSeed, KeyHash, NodeId, PartitionMap, RuleBudget};

use super::{
    BackendHost, BackendStatus, CacheHost, CacheStatus, ClockNow, ControllerHost, ControllerStatus, GatewayHost,
    GatewayService, GatewayStatus, ServiceConfig,
};
use crate::{
    Drift,
    backend::{BackendConfig, HotConfig},
    cache_node::CacheConfig,
    controller::ControllerConfig,
    gateway::GatewayConfig,
};

const CONTROLLER: NodeId = NodeId(1);

/// The numbers that nodes of each kind may have.
const CACHES: Range<u16> = 100..1_000;
const BACKENDS: Range<u16> = 1_000..10_000;
const GATEWAYS: Range<u16> = 10_000..20_000;

/// What a table in memory takes: far more than a switch.
const UPDATES_PER_S: u32 = 100_000;
const DELETION_DELAY: Span = Span::from_s(1);

/// The share of a cache's keys that a new one has to surpass: the paper's example (section 3.2.1).
const THRESHOLD_RANK: f64 = 0.1;

/// Operations under way for one backend: as many as it keeps the answers of for one gateway.
const PENDING_MAX: usize = 1 << 12;

/// How long an answer is waited for before it is asked again: much longer than one takes that was not lost.
const RESEND_AFTER: Span = Span::from_ms(20);

/// What a cluster in one process is to be.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// Backends, each with a store.
    pub backends: usize,
    /// Cache nodes; a backend's keys are cached at one of them.
    pub caches: usize,
    /// Gateways, each with a thread: as many as the server has.
    pub gateways: usize,
    /// How long a lease is: so long a change waits at most for a cache node that has fallen silent.
    pub lease: Span,
    /// Items of a cache node at most.
    pub items_max: usize,
    /// Bytes of a cache node's keys and values at most.
    pub bytes_max: usize,
    /// How hot keys are found.
    pub hot: HotConfig,
    /// Bytes of a key and a value together beyond which an item is refused: it has to fit into a datagram.
    pub item_len_max: usize,
    /// How long a client waits for an answer at most.
    pub answer_within: Span,
    /// Bytes that the values of late answers may take.
    pub late_len_max: usize,
}

impl Default for LocalConfig {
    fn default() -> Self {
        Self {
            backends: 2,
            caches: 1,
            gateways: 1,
            lease: Span::from_s(1),
            items_max: 10_000,
            bytes_max: 64 << 20,
            hot: HotConfig::default(),
            item_len_max: 60 << 10,
            answer_within: Span::from_s(5),
            late_len_max: 256 << 20,
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
#[derive(Debug)]
pub struct LocalCluster<S: Store> {
    config: LocalConfig,
    // In the order in which they end.
    gateways: Vec<GatewayHost>,
    caches: Vec<Option<CacheHost>>,
    controller: Option<ControllerHost>,
    backends: Vec<BackendHost<S>>,
}

/// All hashes of this process are of one seed for now: who chooses keys that collide harms nobody else here.
fn hash_of(key: &[u8]) -> KeyHash {
    KeyHash::of(key, HashSeed(0x6775_6972_6121))
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

fn nodes(of: Range<u16>, len: usize) -> io::Result<Vec<NodeId>> {
    let nodes: Vec<NodeId> = of.take(len).map(NodeId).collect();
    if nodes.len() < len { Err(invalid("more nodes than there are numbers for")) } else { Ok(nodes) }
}

#[expect(clippy::disallowed_methods, reason = "hosts are drivers: this is where a cluster's seconds come in")]
fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl<S: Store> LocalCluster<S> {
    /// Starts one whose backends have the stores that `store` gives, by number.
    ///
    /// # Errors
    /// The configuration has too few or too many of something, or the system gives no sockets or threads.
    pub fn start(config: LocalConfig, store: impl Fn(usize) -> Arc<S>) -> io::Result<Self> {
        let caches = nodes(CACHES, config.caches)?;
        let backends = nodes(BACKENDS, config.backends)?;
        let gateways = nodes(GATEWAYS, config.gateways)?;
        if gateways.is_empty() {
            return Err(invalid("a cluster without a gateway answers nobody"));
        }
        let partitions = Arc::new(PartitionMap::over(&backends).map_err(invalid)?);
        let all = [CONTROLLER].iter().chain(&caches).chain(&backends).chain(&gateways);
        let mut transports = bind_all(all.copied())?.into_iter();
        let mut next_transport = || transports.next().expect("one was bound for each");

        let unix = unix_now();
        let incarnation = Incarnation(u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX));
        let (clock, drift) = (NodeClock::set(boot_now(), unix), Drift::default());
        let rules_max = config.items_max.saturating_mul(config.caches.max(1));
        let buffer = RuleBudget { updates_per_s: UPDATES_PER_S, table_len_max: 0, deletion_delay: DELETION_DELAY };
        let budget = RuleBudget { table_len_max: buffer.buffer_len().saturating_add(rules_max), ..buffer };

        let controller = ControllerHost::start(
            next_transport(),
            ControllerConfig {
                me: CONTROLLER,
                incarnation,
                caches: caches.clone(),
                gateways: gateways.clone(),
                budget,
                lease: config.lease,
            },
        )?;
        let cache_of = |backend: usize| backend.checked_rem(caches.len()).map(|at| caches[at]);
        let start_cache = |me: NodeId| {
            let own = backends.iter().enumerate().filter(|(at, _)| cache_of(*at) == Some(me));
            let config = CacheConfig {
                me,
                incarnation,
                backends: own.map(|(_, backend)| *backend).collect(),
                controller: CONTROLLER,
                partitions: Arc::clone(&partitions),
                hash_of,
                items_max: config.items_max,
                bytes_max: config.bytes_max,
                drift,
                clock,
                segment: config.hot.segment,
                alpha: config.hot.alpha,
                threshold_rank: THRESHOLD_RANK,
                seed: rand::random(),
                mutant: None,
            };
            CacheHost::start(next_transport(), config).map(Some)
        };
        let cache_hosts = caches.iter().copied().map(start_cache).collect::<io::Result<_>>()?;
        let start_backend = |(at, me): (usize, &NodeId)| {
            let config = BackendConfig {
                me: *me,
                incarnation,
                caches: cache_of(at).into_iter().collect(),
                gateways: gateways.clone(),
                lease: config.lease,
                drift,
                clock,
                item_len_max: config.item_len_max,
                hot: HotConfig { seed: rand::random(), ..config.hot.clone() },
                mutant: None,
            };
            BackendHost::start(next_transport(), config, store(at))
        };
        let backend_hosts = backends.iter().enumerate().map(start_backend).collect::<io::Result<_>>()?;
        let start_gateway = |me: &NodeId| {
            let config = GatewayConfig {
                me: *me,
                incarnation,
                partitions: Arc::clone(&partitions),
                hash_of,
                controller: CONTROLLER,
                routes_max: budget.table_len_max,
                drift,
                resend_after: RESEND_AFTER,
                answer_within: config.answer_within,
                pending_max: PENDING_MAX,
                seed: rand::random(),
            };
            GatewayHost::start(next_transport(), config)
        };
        let gateway_hosts = gateways.iter().map(start_gateway).collect::<io::Result<_>>()?;
        Ok(Self {
            gateways: gateway_hosts,
            caches: cache_hosts,
            controller: Some(controller),
            backends: backend_hosts,
            config,
        })
    }

    /// Its gateways as a service of a server with this clock.
    pub fn service(&self, clock: ClockNow) -> GatewayService {
        let LocalConfig { item_len_max, late_len_max, .. } = self.config;
        let gateways = self.gateways.iter().map(GatewayHost::poster).collect();
        GatewayService::new(ServiceConfig { clock, item_len_max, late_len_max }, gateways)
    }

    /// How all are.
    pub fn status(&self) -> LocalStatus {
        LocalStatus {
            controller: self.controller.as_ref().and_then(ControllerHost::status),
            caches: self.caches.iter().map(|cache| cache.as_ref().and_then(CacheHost::status)).collect(),
            backends: self.backends.iter().map(BackendHost::status).collect(),
            gateways: self.gateways.iter().map(GatewayHost::status).collect(),
        }
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
        self.caches.get_mut(cache).and_then(Option::take).map_or(Ok(()), CacheHost::stop)
    }

    /// Stops the controller: rules stay as they are until who holds them forgets them.
    ///
    /// # Errors
    /// It had ended by itself.
    pub fn stop_controller(&mut self) -> Result<(), DriverError> {
        self.controller.take().map_or(Ok(()), ControllerHost::stop)
    }

    /// Stops all, the gateways first: who waits is told that nobody can say what has become of it.
    ///
    /// # Errors
    /// One of them had ended by itself: the first.
    pub fn stop(self) -> Result<(), DriverError> {
        let Self { config: _, gateways, caches, controller, backends } = self;
        let ends = gateways.into_iter().map(GatewayHost::stop);
        let ends = ends.chain(caches.into_iter().flatten().map(CacheHost::stop));
        let ends = ends.chain(controller.map(ControllerHost::stop));
        let ends = ends.chain(backends.into_iter().map(BackendHost::stop));
        // All are stopped, whatever the first has to say.
        ends.fold(Ok(()), Result::and)
    }
}

/// A socket for each, on any port, all of which know each other.
fn bind_all(nodes: impl Iterator<Item = NodeId> + Clone) -> io::Result<Vec<UdpTransport>> {
    let secret = Secret::derive("local", &rand::random::<[u8; 32]>());
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let nobody = Arc::new(Members::default());
    let mut transports = nodes
        .clone()
        .map(|node| UdpTransport::bind(any_port, Sealer::new(&secret, node), Arc::clone(&nobody)))
        .collect::<io::Result<Vec<_>>>()?;
    let addresses = transports.iter().map(UdpTransport::local_address);
    let members = Arc::new(Members::new(Epoch(1), nodes.zip(addresses)).map_err(invalid)?);
    transports.iter_mut().for_each(|transport| transport.set_members(Arc::clone(&members)));
    Ok(transports)
}
