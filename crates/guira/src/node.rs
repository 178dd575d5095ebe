//! `guira node`: one member of a cluster, as its coordinator says it is.

mod backend;
#[cfg(feature = "cassandra")]
mod cassandra;
mod clients;
mod dropped;
mod kept;
mod router;
#[cfg(feature = "cassandra")]
mod standby;
mod switches;
mod symmetric;
mod told;

use std::{
    ffi::OsStr,
    fmt, fs, io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, OnceLock,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use guira_cluster::{LineSocket, Members, Sealer, Transport};
use guira_etcd::{Following, View};
use guira_persist::rocks::DESCRIPTORS_MIN;
use guira_routing::NodeId;
use guira_server::{CaughtSignals, TooFewFiles, allow_open_files};
use guira_switched::{
    Life, Member, Role, Shares, StaticFile,
    host::{CacheHost, ControllerHost, GatewayHost, MemberHost, NetworkConfig},
};
use guira_symmetric::SymmetricFile;
use rustix::process::{Resource, getrlimit};
use serde_json::Value;

use crate::{
    coordinator::{Coordinator, EtcdArguments, read_secret},
    rest::RestArguments,
    serve::start_log,
    with_parent::end_with,
};
use backend::FILES_OF_A_STORE;
use clients::{Clients, files_of_clients, listening_at};
use kept::Kept;
pub(crate) use router::RouterArguments;
use switches::tell_of_switches;

/// How often a member looks whether its core still runs.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What is said of a core that has panicked.
const ENDED_BY_ITSELF: &str = "it has ended by itself; please report the lines above";

/// Threads of a gateway that serve clients, if nothing else is said.
pub(crate) const THREADS: usize = 2;

/// Connections of a gateway at a time, if nothing else is said.
pub(crate) const CONN_LIMIT: usize = 1024;

/// What is no member's role.
pub(crate) const ROUTER: &str = "router";

/// Which member.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Where it stands who is in the cluster: `static:FILE` or `etcd:HOST:PORT,...[/NAME]`
    #[arg(long)]
    coordinator: Coordinator,
    #[command(flatten)]
    etcd: EtcdArguments,
    /// A file with what members know each other by, which is not in etcd
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// The member's number; a router's is the one by which the controller tells it from others
    #[arg(long)]
    id: u16,
    /// What it is, to be sure that the coordinator says so too; a router is no member, and is one by this
    #[arg(long, value_parser = ["controller", "cache", "backend", "gateway", "coordinator", "node", ROUTER])]
    role: Option<String>,
    /// Threads that serve clients, of a gateway or a symmetric cluster's node
    #[arg(short, long, default_value_t = THREADS)]
    threads: usize,
    /// Connections at a time, of a gateway or such a node
    #[arg(short, long, default_value_t = CONN_LIMIT)]
    conn_limit: usize,
    /// A socket on which it tells how it is
    #[arg(long)]
    status_socket: Option<PathBuf>,
    /// Where the number of the member's life is kept: without it, one whose clock was set back since it last ran is not let in by others
    #[arg(long)]
    life_file: Option<PathBuf>,
    /// Of a backend: removes, while it serves, what its store has of keys that are others' by now, as a life that was killed in a move may have left. Give it
    /// once, and not after etcd was made anew or put back from a copy: what is removed may be nowhere else then
    #[arg(long)]
    cleanup: bool,
    #[command(flatten)]
    rest: RestArguments,
    #[command(flatten)]
    router: RouterArguments,
    /// Where Prometheus may scrape a gateway, or such a node, under /metrics: an address and a port (default: off)
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// The process that has started this one: it ends with that
    #[arg(long, hide = true, value_name = "PID")]
    with_parent: Option<i32>,
}

impl Arguments {
    /// Of a member that a file names, one of several that the same process has started.
    pub(crate) fn in_company(file: PathBuf, id: u16, role: &str, threads: usize, status_socket: PathBuf) -> Self {
        Self {
            coordinator: Coordinator::Static(file),
            etcd: EtcdArguments::default(),
            secret_file: None,
            id,
            role: Some(role.to_owned()),
            threads,
            conn_limit: CONN_LIMIT,
            status_socket: Some(status_socket),
            life_file: None,
            cleanup: false,
            rest: RestArguments::default(),
            router: RouterArguments::default(),
            metrics: None,
            with_parent: None,
        }
    }

    /// Of one whose lives have numbers that are kept.
    pub(crate) fn with_life_file(self, life_file: PathBuf) -> Self {
        Self { life_file: Some(life_file), ..self }
    }

    /// A controller's.
    pub(crate) fn with_rest(self, rest: RestArguments) -> Self {
        Self { rest, ..self }
    }

    /// A gateway's.
    pub(crate) fn with_metrics(self, metrics: Option<SocketAddr>) -> Self {
        Self { metrics, ..self }
    }

    /// What a router has no use for.
    fn check_router(&self) -> Result<(), String> {
        let given = [
            ("--rest", self.rest.address().is_some()),
            ("--metrics", self.metrics.is_some()),
            ("--cleanup", self.cleanup),
            ("--life-file", self.life_file.is_some()),
            ("--threads", self.threads != THREADS),
            ("--conn-limit", self.conn_limit != CONN_LIMIT),
        ];
        given.iter().find(|(_, is_given)| *is_given).map_or(Ok(()), |(flag, _)| Err(format!("{flag}: not of a router")))
    }

    /// Gives those that it has [`in_company`](Self::in_company) to a process.
    pub(crate) fn pass_on(&self, command: &mut Command) {
        // What is left out is what a process has by itself.
        let Self {
            coordinator,
            etcd: _,
            secret_file: _,
            id,
            role,
            threads,
            conn_limit: _,
            status_socket,
            life_file,
            cleanup: _,
            rest,
            router: _,
            metrics,
            with_parent: _,
        } = self;
        let mut give = |flag: &str, value: Option<&OsStr>| {
            if let Some(value) = value {
                command.arg(flag).arg(value);
            }
        };
        give("--coordinator", Some(coordinator.to_string().as_ref()));
        give("--id", Some(id.to_string().as_ref()));
        give("--role", role.as_ref().map(OsStr::new));
        give("--threads", Some(threads.to_string().as_ref()));
        give("--status-socket", status_socket.as_ref().map(|path| path.as_os_str()));
        give("--life-file", life_file.as_ref().map(|path| path.as_os_str()));
        give("--metrics", metrics.map(|address| address.to_string()).as_ref().map(OsStr::new));
        rest.pass_on(command);
    }
}

/// What ends a member.
pub(crate) enum EndedBy {
    /// Signals to its process.
    Signals(CaughtSignals),
    /// Whoever has started it, one of several in a process; so does that he is gone.
    Starter(Receiver<()>),
}

impl EndedBy {
    /// Comes when it is to end.
    fn receiver(self) -> Result<Receiver<()>, String> {
        match self {
            Self::Signals(signals) => signals.pass_the_end().map_err(|error| format!("cannot watch signals: {error}")),
            Self::Starter(ended) => Ok(ended),
        }
    }
}

/// Runs the member until a signal ends it.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    start_log(0);
    let signals = CaughtSignals::catch().map_err(|error| format!("cannot catch signals: {error}"))?;
    if let Some(parent) = arguments.with_parent {
        end_with(parent)?;
    }
    run_until(arguments, EndedBy::Signals(signals), None)
}

/// Runs the member until it is ended; if it has a store, that may have so many files open, or as many as the process may.
pub(crate) fn run_until(arguments: &Arguments, ended_by: EndedBy, store_files: Option<u64>) -> Result<(), String> {
    let coordinator = &arguments.coordinator;
    let (file, kept) = match (coordinator, &arguments.secret_file) {
        (Coordinator::Static(_), _) if arguments.etcd.are_given() => {
            return Err(format!("--coordinator {coordinator}: --etcd-... are of a cluster that is in etcd"));
        }
        (Coordinator::Static(path), None) => match ClusterFile::read(path)? {
            ClusterFile::Switched(file) => (*file, None),
            ClusterFile::Symmetric(_) if arguments.role.as_deref() == Some(ROUTER) => {
                return Err(format!("--role {ROUTER}: in {coordinator} nothing is routed"));
            }
            ClusterFile::Symmetric(file) => {
                if let Some(flag) = arguments.router.given() {
                    return Err(format!("{flag}: a router's (--role router)"));
                }
                return symmetric::run(&file, arguments, ended_by);
            }
        },
        (Coordinator::Static(_), Some(_)) => {
            return Err("--secret-file: the secret is in the file of --coordinator".into());
        }
        (Coordinator::Etcd(_), None) => {
            return Err(format!("--coordinator {coordinator}: give --secret-file FILE, too"));
        }
        (Coordinator::Etcd(place), Some(path)) => {
            let secret = read_secret(path)?;
            let etcd = arguments.etcd.connect(place)?;
            let view = etcd.read(&secret).map_err(|error| error.to_string())?;
            (view.file.clone(), Some(Kept { etcd, view }))
        }
    };
    if arguments.role.as_deref() == Some(ROUTER) {
        arguments.check_router()?;
        if file.member(NodeId(arguments.id)).is_some() {
            return Err(format!("--id {}: that is a member's; a router has a number of its own", arguments.id));
        }
        let status_socket = arguments.status_socket.as_deref();
        return router::run(&file, arguments.id, &arguments.router, status_socket, ended_by);
    }
    if let Some(flag) = arguments.router.given() {
        return Err(format!("{flag}: a router's (--role router)"));
    }
    let me = NodeId(arguments.id);
    let member = file.member(me).ok_or_else(|| {
        let was_one = file.former.iter().any(|former| former.id == me.0);
        let again = if was_one {
            " any more (guira cluster add has it back; with standby_of, if another has its place now)"
        } else {
            ""
        };
        format!("--id {}: {coordinator} has no such member{again}", me.0)
    })?;
    if let Some(role) = arguments.role.as_ref().filter(|role| **role != member.role.name()) {
        return Err(format!("--role {role}: member {} is a {}", me.0, member.role.name()));
    }
    if let Some(address) = arguments.rest.address().filter(|_| member.role != Role::Controller) {
        return Err(format!("--rest {address}: member {} is a {}, only a controller has it", me.0, member.role.name()));
    }
    if arguments.cleanup && member.role.as_backend().is_none() {
        return Err(format!("--cleanup: member {} is a {}, only a backend has keys", me.0, member.role.name()));
    }
    if arguments.cleanup && kept.is_none() {
        return Err(format!("--cleanup: in {coordinator} no key ever goes to another backend"));
    }
    if let Some(address) = arguments.metrics.filter(|_| !matches!(member.role, Role::Gateway { .. })) {
        return Err(format!(
            "--metrics {address}: member {} is a {}, only a gateway has them",
            me.0,
            member.role.name()
        ));
    }
    if let Some(address) = arguments.metrics.filter(|address| address.port() == 0) {
        return Err(format!("--metrics {address}: write a port from 1 on"));
    }
    Start { file: &file, member, arguments, store_files }.run(kept, ended_by)
}

/// A cluster's file.
pub(crate) enum ClusterFile {
    Switched(Box<StaticFile>),
    Symmetric(Box<SymmetricFile>),
}

impl ClusterFile {
    /// Reads one, of whichever kind it says that it is.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let wrong = |told: &dyn fmt::Display| format!("{}: {told}", path.display());
        let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
        if SymmetricFile::is_named(&text) {
            return SymmetricFile::parse(&text).map(|file| Self::Symmetric(file.into())).map_err(|error| wrong(&error));
        }
        StaticFile::parse(&text).map(|file| Self::Switched(file.into())).map_err(|error| wrong(&error))
    }
}

/// Reads a switched cluster's file.
pub(crate) fn read(path: &Path) -> Result<StaticFile, String> {
    match ClusterFile::read(path)? {
        ClusterFile::Switched(file) => Ok(*file),
        ClusterFile::Symmetric(_) => {
            Err(format!("{}: a symmetric cluster's, and a switched one's is wanted", path.display()))
        }
    }
}

/// Why a member is to end that nobody has stopped.
#[derive(Default)]
struct Ends(OnceLock<Result<(), String>>);

impl Ends {
    fn end(&self, why: Result<(), String>) {
        // The first reason is the one.
        let _ = self.0.set(why);
    }

    /// Whether it is to end.
    fn are_told(&self) -> bool {
        self.0.get().is_some()
    }

    fn why(&self) -> Result<(), String> {
        self.0.get().cloned().unwrap_or(Ok(()))
    }
}

/// Files that each part of a member may have open: sockets, what wakes them, and a stream each way with each member for values beyond a datagram; as many
/// members may come. Few of these streams are there at a time: with less it may do as well.
fn files_of_parts(parts: u64, members: usize) -> u64 {
    256 + parts * (16 + 4 * members as u64)
}

/// Files that a member may have open, beside those of its store, in a cluster of so many; with so many threads that serve clients.
fn files_of(member: &Member, members: usize, threads: usize) -> u64 {
    let listening = match member.role {
        Role::Gateway { listen, .. } => files_of_clients(&listening_at(listen, threads, CONN_LIMIT)),
        Role::Backend(_) | Role::Cache { .. } | Role::Controller => 0,
    };
    files_of_parts(member.parts().get().into(), members) + listening
}

/// Allows what all members of a file may have open in one process, or as much of it as may be; how much of that each store may have. With less, values beyond a
/// datagram may have to wait, as in processes of their own, but not stores.
pub(crate) fn allow_all(file: &StaticFile, threads: usize) -> Result<Option<u64>, String> {
    let beside = |parts: usize| -> u64 { file.members.iter().map(|member| files_of(member, parts, threads)).sum() };
    let parts = file.members.iter().map(|member| usize::from(member.parts().get())).sum();
    let is_on_disk = |member: &&Member| member.role.as_backend().is_some_and(|backend| backend.store != "memory");
    let stores = file.members.iter().filter(is_on_disk).count() as u64;
    if let Err(TooFewFiles { allowed, .. }) = allow_open_files(0, beside(parts) + stores * FILES_OF_A_STORE) {
        // Without a stream to anybody.
        let needed = beside(0) + stores * DESCRIPTORS_MIN;
        if allowed < needed {
            return Err(format!(
                "--one-process: {needed} files have to be open, and {allowed} are allowed (ulimit -n)"
            ));
        }
        // What is allowed is.
        let _ = allow_open_files(0, allowed);
    }
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    Ok(most.saturating_sub(beside(parts)).checked_div(stores).map(|of_a_store| of_a_store.max(DESCRIPTORS_MIN)))
}

/// Allows what so many nodes of a symmetric cluster may have open in one process, with so many threads each that serve clients.
pub(crate) fn allow_nodes(nodes: u64, threads: usize) -> Result<(), String> {
    let any = SocketAddr::from(([127, 0, 0, 1], 1));
    let clients = files_of_clients(&listening_at(any, threads, CONN_LIMIT));
    let needed = (nodes + 1) * files_of_parts(1, nodes as usize + 1) + nodes * clients;
    allow_open_files(0, needed).map(drop).map_err(|error| format!("--one-process: {error}"))
}

/// Stops a host that nobody else has any more.
fn stopped<H: MemberHost>(host: Arc<H>) -> Result<(), String> {
    // Whoever is told of a view has it for a moment: then it stops when that is over.
    Arc::into_inner(host).map_or(Ok(()), |host| host.stop().map_err(|error| error.to_string()))
}

/// Allows what parts of a cache node may have open.
fn allow_streams(parts: u64, members: &Members) {
    let needed = files_of_parts(parts, members.iter().count());
    if let Err(TooFewFiles { allowed, .. }) = allow_open_files(0, needed) {
        eprintln!(
            "guira: {parts} threads may have {needed} files open, and {allowed} are allowed (ulimit -n): then values beyond a datagram may have to wait"
        );
        // What is allowed is.
        let _ = allow_open_files(0, allowed);
    }
}

/// A life whose sockets are bound.
struct Begun {
    transport: Transport,
    life: Life,
}

/// A member that is to start.
struct Start<'s> {
    file: &'s StaticFile,
    member: &'s Member,
    arguments: &'s Arguments,
    /// Files that a store may have open, where others of this process have some too.
    store_files: Option<u64>,
}

impl Start<'_> {
    fn me(&self) -> NodeId {
        NodeId(self.member.id)
    }

    /// Begins a life: once its sockets are bound, since then nobody else is this member.
    fn life(&self) -> Result<Life, String> {
        Life::begin(self.arguments.life_file.as_deref()).map_err(|error| format!("--life-file: {error}"))
    }

    /// Binds the sockets, and begins a life.
    fn begin(&self, kept: Option<&Kept>) -> Result<Begun, String> {
        Ok(Begun { transport: self.transport(kept)?, life: self.life()? })
    }

    /// Who has which keys.
    fn shares(&self, kept: Option<&Kept>) -> Result<Shares, String> {
        kept.map_or_else(|| self.file.shares().map_err(|error| error.to_string()), |kept| Ok(kept.view.shares()))
    }

    /// Everybody's place.
    fn members(&self, kept: Option<&Kept>) -> Result<Arc<Members>, String> {
        let members = match kept {
            Some(Kept { view: View { file, epoch, .. }, .. }) => file.members_in(*epoch),
            None => self.file.members(),
        };
        members.map(Arc::new).map_err(|error| error.to_string())
    }

    fn transport(&self, kept: Option<&Kept>) -> Result<Transport, String> {
        self.bind(self.me(), self.member.address, &self.members(kept)?)
    }

    /// Binds the sockets of the member, or of a part of it.
    fn bind(&self, part: NodeId, address: SocketAddr, members: &Arc<Members>) -> Result<Transport, String> {
        let sealer = Sealer::new(&self.file.secret(), part);
        let transport = Transport::bind(address, sealer, Arc::clone(members));
        let transport = transport.map_err(|error| format!("cannot bind {address}: {error}"))?;
        let in_network = self.file.in_network(self.member, transport);
        in_network.map_err(|error| format!("cannot bind the port of gets ([network] gets_port): {error}"))
    }

    fn run(&self, kept: Option<Kept>, ended_by: EndedBy) -> Result<(), String> {
        let cannot = |error: io::Error| format!("cannot start: {error}");
        let shares = self.shares(kept.as_ref())?;
        match &self.member.role {
            Role::Controller => {
                let rest = self.arguments.rest.bind()?;
                if self.arguments.rest.is_overheard() {
                    eprintln!("guira: --rest: whoever can listen on the way there learns the token");
                }
                let (transport, life) = (self.transport(kept.as_ref())?, self.life()?);
                let config = self.file.controller_config(life);
                let host = match self.switches()? {
                    None => ControllerHost::start(transport, config),
                    Some(network) => {
                        ControllerHost::start_with_network(transport, config, network, &self.file.view(shares))
                    }
                };
                let host = Arc::new(host.map_err(cannot)?);
                let _rest = rest.map(|bound| bound.serve(Arc::downgrade(&host))).transpose().map_err(cannot)?;
                self.serve(&ended_by.receiver()?, host, (kept, life), told::controller)
            }
            Role::Cache { .. } => {
                let members = self.members(kept.as_ref())?;
                allow_streams(self.member.parts().get().into(), &members);
                let bound = self.member.places().map(|(part, at)| Ok((part, self.bind(part, at, &members)?)));
                let bound = bound.collect::<Result<Vec<_>, String>>()?;
                let life = self.life()?;
                let parts = bound.into_iter().map(|(part, bound)| (bound, self.file.cache_config(part, &shares, life)));
                let host = CacheHost::start(parts).map_err(cannot)?;
                self.serve(&ended_by.receiver()?, host, (kept, life), told::cache)
            }
            Role::Backend(role) => self.backend(role, kept, &ended_by.receiver()?),
            Role::Gateway { listen, .. } => self.gateway(*listen, kept, ended_by),
        }
    }

    /// Where switches call, if the network routes.
    fn switches(&self) -> Result<Option<NetworkConfig>, String> {
        let Some((rules, address)) = self.file.switch_rules() else { return Ok(None) };
        let listener = TcpListener::bind(address);
        let listener = listener.map_err(|error| format!("cannot bind {address} ([network] switches): {error}"))?;
        let fabric = self.file.fabric();
        Ok(Some(NetworkConfig { rules, fabric, listener, told: Box::new(tell_of_switches) }))
    }

    fn gateway(&self, listen: SocketAddr, kept: Option<Kept>, ended_by: EndedBy) -> Result<(), String> {
        let (item_len_max, values_len_max) = (self.file.item_len_max, self.file.values_len_max());
        let clients = Clients::at(listen, self.arguments, item_len_max, values_len_max)?;
        let shares = self.shares(kept.as_ref())?;
        let (transport, life) = (self.transport(kept.as_ref())?, self.life()?);
        let config = self.file.gateway_config(self.me(), &shares, life);
        let host = GatewayHost::start(transport, config).map_err(|error| format!("cannot start: {error}"))?;
        let front = host.front();
        clients.serve(host, front, ended_by, |host, ends| {
            let looked_at = Arc::downgrade(host);
            let socket =
                self.arguments.socket(move || looked_at.upgrade()?.status().map(|status| told::gateway(&status)))?;
            let following = kept.map(|kept| kept.follow(self.member, life, host, ends)).transpose()?;
            Ok((socket, following))
        })
    }

    /// Serves until a signal comes, or the member is to end.
    fn serve<H: MemberHost<View = guira_switched::View>>(
        &self,
        ended: &Receiver<()>,
        host: impl Into<Arc<H>>,
        kept: (Option<Kept>, Life),
        status: impl Fn(&H) -> Option<Value> + Send + 'static,
    ) -> Result<(), String> {
        self.serve_with(ended, host, kept, |_, _| {}, || None, status)
    }

    /// The same; `begun` is called once it follows who is there, and `why` says again and again why it is to end, if it is.
    fn serve_with<H: MemberHost<View = guira_switched::View>>(
        &self,
        ended: &Receiver<()>,
        host: impl Into<Arc<H>>,
        (kept, life): (Option<Kept>, Life),
        begun: impl FnOnce(&Arc<H>, &Following),
        why: impl Fn() -> Option<String>,
        status: impl Fn(&H) -> Option<Value> + Send + 'static,
    ) -> Result<(), String> {
        let host = host.into();
        let ends = Arc::new(Ends::default());
        let following = kept.map(|kept| kept.follow(self.member, life, &host, &ends)).transpose()?;
        if let Some(following) = &following {
            begun(&host, following);
        }
        self.arguments.serve_until(ended, host, &ends, following, why, status)
    }
}

impl Arguments {
    /// Serves until a signal comes, or the member is to end; `why` says again and again why it is to, if it is. `following` is there meanwhile.
    fn serve_until<H: MemberHost, K>(
        &self,
        ended: &Receiver<()>,
        host: Arc<H>,
        ends: &Arc<Ends>,
        following: K,
        why: impl Fn() -> Option<String>,
        status: impl Fn(&H) -> Option<Value> + Send + 'static,
    ) -> Result<(), String> {
        let looked_at = Arc::downgrade(&host);
        let socket = self.socket(move || looked_at.upgrade().and_then(|host| status(&host)))?;
        // A host that has ended by itself is to be started again by whoever has started this member.
        let goes_on = || {
            if let Some(why) = why() {
                ends.end(Err(why));
            }
            host.runs() && !ends.are_told()
        };
        while goes_on() && ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {}
        let ended_by_itself = !host.runs();
        drop((socket, following));
        let stopped = stopped(host);
        if ended_by_itself { Err(ENDED_BY_ITSELF.into()) } else { stopped.and(ends.why()) }
    }

    fn socket(&self, status: impl Fn() -> Option<Value> + Send + 'static) -> Result<Option<LineSocket>, String> {
        let Some(path) = &self.status_socket else { return Ok(None) };
        let answer = move |_: &str| status().map_or_else(|| "null".to_owned(), |status| status.to_string());
        let socket = LineSocket::open(path, answer).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Some(socket))
    }
}
