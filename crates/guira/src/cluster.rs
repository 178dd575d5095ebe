//! `guira cluster`: a whole cluster on this machine, each member a process of its own, or all in one; and who is in one that a coordinator keeps (`coordinated`).
//!
//! ```text
//! FOLDER/cluster.toml    who the members are (for `guira node --coordinator static:`)
//!        cluster.sock    through which the cluster is asked and taken down
//!        node-N.sock     through which member N is asked
//!        node-N.life     the number of its life
//!        backend-N/      its items
//!        switch/         of the Open vSwitch that routes, if one does
//! ```

mod coordinated;
mod network;
mod running;
mod table;

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder},
    io::{self, Read, Write as _},
    iter,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    num::NonZero,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    time::Duration,
};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use guira_cluster::{LineSocket, ask_line};
use guira_openflow::RulesOfKeys;
use guira_persist::{Durability, Limit};
use guira_server::{CaughtSignals, allow_open_files};
use guira_switched::{
    BackendRole, CacheMode, ITEM_LEN_MAX, ITEM_LEN_MIN, Member, ReportsName, Role, Router, StaticFile,
    backend::HotConfig,
};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::{
    node::{self, ROUTER},
    rest::RestArguments,
    serve::start_log,
    size::size_bytes,
    with_parent::end_with,
};
use network::{Headers, Hosts, Shape};
use running::{END_WITHIN, How, RunningMembers};
use table::{Row, table};

const CONTROLLER: u16 = 1;
/// A router's number, which is no member.
const ROUTER_ID: u16 = 2;
const FIRST_CACHE: u16 = 100;
const FIRST_BACKEND: u16 = 1_000;
const GATEWAY: u16 = 10_000;

/// As many as there are to compare, with room for some twice.
const GATEWAYS_MAX: usize = 16;

/// How often members are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long an answer of a process is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What to do with a cluster.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Start one, and keep it up until this process is ended
    Up(Box<Up>),
    /// Tell how its members are
    Status(At),
    /// Take it down
    Down(At),
    /// Make one whose members etcd keeps
    Create(coordinated::Create),
    /// Add members to one that etcd keeps
    Add(coordinated::Add),
    /// Remove members from one that etcd keeps
    Remove(coordinated::Remove),
    /// Tell who is in one that etcd keeps, who of them is alive, and how many partitions backends have
    Members(coordinated::Members),
}

/// Which cluster.
#[derive(clap::Args, Debug)]
struct At {
    /// The folder it was started in
    #[arg(long, default_value = "guira-cluster")]
    folder: PathBuf,
}

#[derive(clap::Args, Debug)]
struct Up {
    /// How hot keys are kept from being a load
    #[arg(long, default_value = "switched", value_parser = ["switched", "symmetric"])]
    topology: String,
    /// Backends, which have the items
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    backends: u16,
    /// Cache nodes, which have copies of the hottest
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=256))]
    caches: u16,
    /// Threads of each cache node, each with its part of the copies
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(Member::CACHE_THREADS_MAX)))]
    cache_threads: u16,
    /// Where clients find it
    #[arg(short, long, default_value = "127.0.0.1")]
    listen: IpAddr,
    /// The TCP port for clients
    #[arg(short, long, default_value_t = 11211, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// What brings reads of hot keys to cache nodes: the gateway; or a switch of its own (Open vSwitch), or an eBPF program on links (XDP), with a network
    /// namespace for each cache node and backend, which takes root's rights
    #[arg(long, default_value = "gateway", value_parser = ["gateway", "openflow", "xdp"])]
    router: String,
    /// How reads say what they ask for, to a switch or a program: in IPv6 addresses, or in MAC addresses as in the paper
    #[arg(long, value_parser = ["ipv6", "mac"])]
    encoding: Option<String>,
    /// Switches of --router openflow, in a ring, to which hosts are dealt out
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=8))]
    switches: u16,
    /// Which of several switches have the rules of hot keys: all of them all (replicated), or each those of the backends that are plugged into it (parted)
    #[arg(long, default_value_t, value_parser = PossibleValuesParser::new(RulesOfKeys::ALL.map(RulesOfKeys::name)).try_map(|name| name.parse::<RulesOfKeys>()))]
    rules: RulesOfKeys,
    /// Threads that serve clients
    #[arg(short, long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Where items last: rocksdb (in the folder) or memory
    #[arg(long, default_value = "rocksdb", value_parser = ["rocksdb", "memory"])]
    store: String,
    /// When a change counts as stored: always, interval:MS or os
    #[arg(long, default_value = "always")]
    durability: String,
    /// Operations a second of each backend's store, at most
    #[arg(long)]
    store_limit: Option<u64>,
    /// The largest item, in bytes or with k or m, up to 16m
    #[arg(short = 'I', long, default_value = "1m")]
    max_item_size: String,
    /// Requests a second that each backend takes, at most: for experiments
    #[arg(long, value_name = "PER_SECOND")]
    request_limit: Option<NonZero<u32>>,
    /// Items of a cache node, at most, shared out over its threads
    #[arg(long, default_value_t = 10_000)]
    items_max: usize,
    /// Megabytes of keys and values of a cache node, at most, shared out over its threads
    #[arg(long, default_value_t = 64)]
    cache_megabytes: usize,
    /// What backends tell of hot keys
    #[arg(long, default_value = "both", value_parser = ["every-query", "periodic", "instant", "both", "none"])]
    reports: String,
    /// Keys that a backend reports each second, the hottest that are not cached
    #[arg(long, default_value_t = HotConfig::default().reported, value_name = "N")]
    reported: usize,
    /// Of a backend's queries one in so many is counted for that
    #[arg(long, default_value_t = HotConfig::default().sample_one_in, value_name = "N")]
    sample_one_in: u32,
    /// Who is asked first for what is only read, to compare: switched, look-aside, look-through or none; of several each is a gateway's, on the
    /// ports from --port on
    #[arg(long, default_value = "switched", value_delimiter = ',', value_name = "MODE,...")]
    cache_mode: Vec<CacheMode>,
    /// Queries a second of a backend below which no key of it bursts
    #[arg(long, default_value_t = 100.0)]
    burst_load_min: f64,
    /// How long a lease is, in milliseconds: so long a change waits at most for a cache node that has fallen silent
    #[arg(long, default_value_t = 1_000)]
    lease_ms: u64,
    /// Milliseconds, up to 19, that a cache node is waited for before a read is asked of its backend as well, of one read in twenty at most; 0: it is not
    #[arg(long, default_value_t = 0, value_name = "MS", value_parser = clap::value_parser!(u64).range(..=19))]
    hedge_after_ms: u64,
    #[command(flatten)]
    rest: RestArguments,
    /// Where Prometheus may scrape the gateway, under /metrics: an address and a port; of several gateways each is on the next port (default: off)
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// All members in one process: one that fails is started again, but what kills the process ends all
    #[arg(long)]
    one_process: bool,
    /// Each backend runs under this command, a profiler for instance
    #[arg(long, hide = true, value_name = "COMMAND", conflicts_with = "one_process")]
    backend_under: Option<String>,
    /// The process that has started this one: it ends with that
    #[arg(long, hide = true, value_name = "PID")]
    with_parent: Option<i32>,
    #[command(flatten)]
    at: At,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), String> {
    match arguments.what {
        What::Up(up) => up.run(),
        What::Status(at) => at.status(),
        What::Down(at) => at.down(),
        What::Create(create) => create.run(),
        What::Add(add) => add.run(),
        What::Remove(remove) => remove.run(),
        What::Members(members) => members.run(),
    }
}

impl At {
    fn file(&self) -> PathBuf {
        self.folder.join("cluster.toml")
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("cluster.sock")
    }

    fn node_socket(&self, id: u16) -> PathBuf {
        self.folder.join(format!("node-{id}.sock"))
    }

    fn life_file(&self, id: u16) -> PathBuf {
        self.folder.join(format!("node-{id}.life"))
    }

    fn ask(&self, line: &str, patience: Duration) -> Result<String, String> {
        ask_line(&self.socket(), line, patience).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                format!("the cluster in {} does not answer: it may be ending", self.folder.display())
            }
            _ => format!("no cluster is up in {}: {error}", self.folder.display()),
        })
    }

    fn down(&self) -> Result<(), String> {
        match self.ask("down", END_WITHIN * 2 + PATIENCE)?.as_str() {
            "not yet" => Err(format!("the members in {} are ending, and have not yet", self.folder.display())),
            // It may have ended before it could say so.
            _ => Ok(()),
        }
    }

    fn status(&self) -> Result<(), String> {
        let up = self.ask("status", PATIENCE)?;
        let up: BTreeMap<String, Value> = serde_json::from_str(&up).map_err(|error| error.to_string())?;
        let file = node::read(&self.file())?;
        let members = file.members.iter().map(|member| (member.role.name(), member.id));
        let is_routed = file.network.as_ref().is_some_and(|network| network.router == Router::Xdp);
        let rows = members.chain(is_routed.then_some((ROUTER, ROUTER_ID))).map(|(role, id)| {
            let told = ask_line(&self.node_socket(id), "status", PATIENCE).unwrap_or_default();
            Row { role, id, told: serde_json::from_str(&told).unwrap_or(Value::Null) }
        });
        print!("{}", table(&rows.collect::<Vec<_>>(), &up));
        Ok(())
    }
}

impl Up {
    fn run(&self) -> Result<(), String> {
        if self.topology == "symmetric" {
            return Err("--topology symmetric: not built yet, use switched".into());
        }
        self.check()?;
        let signals = CaughtSignals::catch().map_err(|error| format!("cannot catch signals: {error}"))?;
        if let Some(parent) = self.with_parent {
            end_with(parent)?;
        }
        let folder = &self.at.folder;
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| within(folder, &error))?;
        let folder = fs::canonicalize(folder).map_err(|error| within(folder, &error))?;
        let mode = fs::metadata(&folder).map_err(|error| within(&folder, &error))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(format!(
                "{}: others can look into it: chmod 700 it, or give another --folder",
                folder.display()
            ));
        }
        let at = At { folder };
        let (wishes, wished) = mpsc::channel();
        let members: Arc<Mutex<RunningMembers>> = Arc::default();
        let mut socket = open_socket(&at, &members, wishes.clone())?;
        // Gone before the socket is, which waits for who is being answered: whoever wants it down is let go with this.
        let wished = wished;
        let file = self.file(&at)?;
        let (mut router, hosts) = match &file.network {
            None => (None, None),
            Some(_) => network::make(&at, &file).map(|(router, hosts)| (Some(router), Some(hosts)))?,
        };
        let how = self.how(&file, hosts.as_ref())?;
        if self.one_process {
            start_log(0);
        }
        write(&at.file(), &file.print().map_err(|error| error.to_string())?)?;
        if let Some(router) = &mut router {
            router.begin()?;
        }
        let signalled = signals.pass_the_end().map_err(|error| format!("cannot watch signals: {error}"))?;
        let started = file.members.iter().try_for_each(|member| lock(&members).start(&at, member, &how));
        if let Err(told) = started {
            tell(&told);
            lock(&members).end();
            return Err("not all members could be started, so none is".into());
        }
        drop(wishes);
        self.greet(&file, &at);
        router.iter().flat_map(|router| router.hints()).for_each(|hint| tell(&hint));
        let who = loop {
            match wished.recv_timeout(LOOK_EVERY) {
                Ok(Wish::End(who)) => break who,
                Err(RecvTimeoutError::Timeout) if signalled.try_recv().is_ok() => break None,
                Err(RecvTimeoutError::Timeout) => {
                    lock(&members).look(&at, &file, &how);
                    if let Some(router) = &mut router {
                        router.look();
                        lock(&members).beside = router.process();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        lock(&members).end();
        socket.close();
        drop((router, hosts));
        // Who wanted it down is told by this end being gone.
        drop(who);
        Ok(())
    }

    fn how<'h>(&'h self, file: &StaticFile, hosts: Option<&'h Hosts>) -> Result<How<'h>, String> {
        let store_files = if self.one_process { node::allow_all(file, self.threads.into())? } else { None };
        Ok(How {
            in_one_process: self.one_process,
            store_files,
            hosts,
            threads: self.threads,
            backend_under: self.backend_under.as_deref(),
            rest: &self.rest,
            metrics: self.metrics().collect(),
        })
    }

    fn greet(&self, file: &StaticFile, at: &At) {
        let roles: Vec<String> = file.roles().iter().map(|(role, count)| format!("{count} {role}")).collect();
        let folder = at.folder.display();
        tell(&format!("a switched cluster ({}) in {folder}", roles.join(", ")));
        let metrics: BTreeMap<u16, SocketAddr> = self.metrics().collect();
        for member in &file.members {
            if let Role::Gateway { listen, cache_mode } = member.role {
                let mode = if cache_mode == CacheMode::Switched { String::new() } else { format!(" ({cache_mode})") };
                tell(&format!("memcached's clients find it at {listen}{mode}"));
                if let Some(address) = metrics.get(&member.id) {
                    tell(&format!("Prometheus finds what that counts at http://{address}/metrics"));
                }
            }
        }
        if let Some(address) = self.rest.address() {
            tell(&format!("operators find the controller's REST API at http://{address}/v1/status"));
        }
        let again = if self.one_process {
            "all members are in this process, and one that fails is started again"
        } else {
            "a member that is killed is started again"
        };
        tell(&format!("guira cluster status --folder {folder}; {again}"));
    }

    /// What no member could start with.
    fn check(&self) -> Result<(), String> {
        self.durability.parse::<Durability>().map_err(|told| format!("--durability {}: {told}", self.durability))?;
        if let Some(limit) = self.store_limit.filter(|limit| Limit::new(*limit).is_none()) {
            return Err(format!("--store-limit {limit}: from 1 to {}", Limit::MAX));
        }
        self.check_router()?;
        let (most, threads) = (FIRST_BACKEND - FIRST_CACHE, u32::from(self.caches) * u32::from(self.cache_threads));
        if threads > most.into() {
            return Err(format!("--cache-threads {}: {most} at most, of all cache nodes together", self.cache_threads));
        }
        let ports_left = usize::from(u16::MAX - self.port) + 1;
        if self.cache_mode.len() > GATEWAYS_MAX.min(ports_left) {
            return Err(format!("--cache-mode: {GATEWAYS_MAX} at most, and a port for each from --port on"));
        }
        if let Some(address) = self.metrics {
            let last = address.port().checked_add(self.cache_mode.len() as u16 - 1);
            if address.port() == 0 || last.is_none() {
                return Err(format!(
                    "--metrics {address}: write a port from 1 on, and a port for each gateway from there on"
                ));
            }
        }
        // Held meanwhile: nobody else is to be there.
        let _rest = self.rest.bind()?;
        let mut seen: Vec<SocketAddr> = Vec::new();
        for address in self.gateways().map(|(_, address, _)| address).chain(self.metrics().map(|(_, address)| address))
        {
            // One that is everywhere is there, too.
            let is_there = |other: &SocketAddr| {
                let ips = [other.ip(), address.ip()];
                other.port() == address.port() && (ips[0] == ips[1] || ips.iter().any(IpAddr::is_unspecified))
            };
            if seen.iter().any(is_there) {
                return Err(format!("cannot listen on {address} twice"));
            }
            can_listen(address).map_err(|error| format!("cannot listen on {address}: {error}"))?;
            seen.push(address);
        }
        Ok(())
    }

    fn headers(&self) -> Headers {
        if self.encoding.as_deref() == Some("mac") { Headers::Mac } else { Headers::Ipv6 }
    }

    fn check_router(&self) -> Result<(), String> {
        match (self.router.as_str(), self.encoding.as_deref()) {
            ("gateway", Some(_)) => {
                Err("--encoding: for --router openflow or xdp, where not the gateway routes".into())
            }
            ("gateway", None) => self.check_switches(),
            (router, _) if self.one_process => Err(format!(
                "--router {router}: each cache node and backend is on a host of its own, not in --one-process"
            )),
            _ => self.check_switches(),
        }
    }

    fn check_switches(&self) -> Result<(), String> {
        let is_switch = self.router == "openflow" && self.headers() == Headers::Ipv6;
        match self.switches {
            1 if self.rules == RulesOfKeys::Parted => Err("--rules parted: among several --switches, from 2 on".into()),
            2.. if !is_switch => Err("--switches: several for --router openflow and --encoding ipv6 alone".into()),
            _ => Ok(()),
        }
    }

    /// What routes, if gateways do not.
    fn shape(&self) -> Option<Shape> {
        let router = match self.router.as_str() {
            "gateway" => return None,
            "xdp" => Router::Xdp,
            _ => Router::Openflow,
        };
        Some(Shape { router, headers: self.headers(), switches: self.switches, rules: self.rules })
    }

    /// Where each gateway's metrics are, if they are anywhere.
    fn metrics(&self) -> impl Iterator<Item = (u16, SocketAddr)> {
        let gateways = (0..).take(self.cache_mode.len());
        let address = |first: SocketAddr, at| SocketAddr::new(first.ip(), first.port() + at);
        self.metrics
            .into_iter()
            .flat_map(move |first| gateways.clone().map(move |at| (GATEWAY + at, address(first, at))))
    }

    /// Numbers of the gateways, where clients find them, and whom they ask first.
    fn gateways(&self) -> impl Iterator<Item = (u16, SocketAddr, CacheMode)> {
        let address = |port| SocketAddr::new(self.listen, port);
        self.cache_mode.iter().zip(0..).map(move |(mode, at)| (GATEWAY + at, address(self.port + at), *mode))
    }

    /// The cluster as it is to be: with the secret of the one that was here before, if that had the same backends.
    fn file(&self, at: &At) -> Result<StaticFile, String> {
        let earlier = at.file().exists().then(|| node::read(&at.file())).transpose()?;
        if let Some(earlier) = &earlier
            && earlier.backends().len() != usize::from(self.backends)
        {
            return Err(format!(
                "--backends {}: {} has the items of {}, which cannot be shared out anew yet: give as many, or another --folder",
                self.backends,
                at.folder.display(),
                earlier.backends().len()
            ));
        }
        let lasts = |file: &StaticFile| {
            file.members.iter().any(|member| member.role.as_backend().is_some_and(|backend| backend.store != "memory"))
        };
        if let Some(earlier) = earlier.as_ref().filter(|earlier| lasts(earlier) != (self.store == "rocksdb")) {
            let other = if lasts(earlier) { "rocksdb" } else { "memory" };
            let folder = at.folder.display();
            return Err(format!(
                "--store {}: the cluster in {folder} is of {other}: give that, or another --folder",
                self.store
            ));
        }
        let secret = match earlier {
            Some(earlier) => earlier.secret,
            None => draw_secret().map_err(|error| format!("cannot draw a secret: {error}"))?,
        };
        let threads = NonZero::new(self.cache_threads).unwrap_or(NonZero::<u16>::MIN);
        let caches = (FIRST_CACHE..FIRST_BACKEND).step_by(threads.get().into()).take(self.caches.into());
        let backends = FIRST_BACKEND..FIRST_BACKEND + self.backends;
        let listens = self.gateways().map(|(_, address, _)| address).chain(self.rest.address());
        let listens = listens.chain(self.metrics().map(|(_, address)| address));
        let listens: Vec<u16> = listens.map(|address| address.port()).collect();
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let member = |id, role| Member::new(id, nowhere, role);
        let mut members = vec![member(CONTROLLER, Role::Controller)];
        members.extend(caches.map(|id| member(id, Role::Cache { threads })));
        let cache_of = |backend: u16| backend.checked_rem(self.caches).map(|at| FIRST_CACHE + at * threads.get());
        members.extend(backends.enumerate().map(|(number, id)| {
            let store = match self.store.as_str() {
                "memory" => "memory".to_owned(),
                _ => format!("rocksdb:{}", at.folder.join(format!("backend-{id}")).display()),
            };
            member(
                id,
                Role::Backend(BackendRole {
                    cache: cache_of(number as u16),
                    store,
                    store_limit: self.store_limit,
                    request_limit: self.request_limit,
                    ..BackendRole::default()
                }),
            )
        }));
        let gateway = |(id, listen, cache_mode)| member(id, Role::Gateway { listen, cache_mode });
        members.extend(self.gateways().map(gateway));
        let ports: u64 = members.iter().map(|member| u64::from(member.parts().get())).sum();
        let files = 2 * ports + 256;
        allow_open_files(0, files)
            .map_err(|_| format!("{ports} ports: {files} open files have to be allowed (ulimit -n)"))?;
        let network = self.shape().map(|shape| network::plan(&mut members, shape)).transpose()?;
        if network.is_none() {
            give_addresses(&mut members, &listens).map_err(|error| format!("no ports: {error}"))?;
        }
        let size = &self.max_item_size;
        let item_len_max = size_bytes(size).filter(|len| (ITEM_LEN_MIN..=ITEM_LEN_MAX).contains(len));
        let item_len_max = item_len_max.ok_or_else(|| format!("-I {size}: from 1k to 16m"))?;
        let file = StaticFile {
            secret,
            lease_ms: self.lease_ms,
            hedge_after_ms: self.hedge_after_ms,
            item_len_max,
            items_max: self.items_max,
            cache_megabytes: self.cache_megabytes,
            reports: match self.reports.as_str() {
                "every-query" => ReportsName::EveryQuery,
                "periodic" => ReportsName::Periodic,
                "instant" => ReportsName::Instant,
                "none" => ReportsName::None,
                _ => ReportsName::Both,
            },
            reported: self.reported,
            sample_one_in: self.sample_one_in,
            burst_load_min: self.burst_load_min,
            durability: self.durability.clone(),
            network,
            members,
            ..StaticFile::default()
        };
        file.check().map_err(|error| error.to_string())?;
        Ok(file)
    }
}

/// Whether one could listen there. Nobody who comes meanwhile is let in, and left alone then.
fn can_listen(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // As who is to listen there does: connections that have ended are in nobody's way.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}

fn within(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the cluster's process is asked.
enum Wish {
    /// To end; who asks waits until this is dropped.
    End(Option<Sender<()>>),
}

fn open_socket(at: &At, members: &Arc<Mutex<RunningMembers>>, wishes: Sender<Wish>) -> Result<LineSocket, String> {
    let members = Arc::clone(members);
    let answer = move |line: &str| match line {
        "status" => lock(&members).status(),
        "down" => {
            let (end, ended) = mpsc::channel();
            // Until the other end is dropped, when all have ended.
            let is_told = wishes.send(Wish::End(Some(end))).is_ok();
            match is_told.then(|| ended.recv_timeout(END_WITHIN * 2)) {
                Some(Err(RecvTimeoutError::Timeout)) => "not yet".into(),
                _ => "ended".into(),
            }
        }
        _ => String::new(),
    };
    LineSocket::open(&at.socket(), answer).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => format!("a cluster is up in {} already", at.folder.display()),
        _ => within(&at.socket(), &error),
    })
}

/// Says a line. A closed standard error is no reason to end.
fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "guira: {line}");
}

/// Ports that are tried in vain at most.
const PORTS_MISSED_MAX: usize = 1_000;

/// Gives members addresses on this machine that nobody has now, for datagrams and for streams, on other ports than the clients'.
fn give_addresses(members: &mut [Member], clients: &[u16]) -> io::Result<()> {
    // Held until all are there, so that none comes twice.
    let (mut held, mut missed) = (Vec::new(), 0);
    for member in members {
        member.address = loop {
            match hold_all(member, clients) {
                Ok((address, sockets)) => {
                    held.extend(sockets);
                    break address;
                }
                // Some are free for datagrams and not for streams, or have one behind them that is not.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && missed < PORTS_MISSED_MAX => missed += 1,
                Err(error) => return Err(error),
            }
        };
    }
    Ok(())
}

/// A port that nobody else is given meanwhile.
type Held = (UdpSocket, TcpListener);

/// Ports for a member on this machine, side by side, from the one of the address on.
fn hold_all(member: &Member, clients: &[u16]) -> io::Result<(SocketAddr, Vec<Held>)> {
    let (address, first) = hold((Ipv4Addr::LOCALHOST, 0).into(), clients)?;
    let placed = Member { address, ..member.clone() };
    let others = placed.places().skip(1).map(|(_, address)| hold(address, clients).map(|(_, held)| held));
    let held = iter::once(Ok(first)).chain(others).collect::<io::Result<Vec<_>>>()?;
    if held.len() < usize::from(member.parts().get()) {
        // Beyond the last port.
        return Err(io::ErrorKind::AddrInUse.into());
    }
    Ok((address, held))
}

fn hold(address: SocketAddr, clients: &[u16]) -> io::Result<(SocketAddr, Held)> {
    let datagrams = UdpSocket::bind(address)?;
    let address = datagrams.local_addr()?;
    if clients.contains(&address.port()) {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    Ok((address, (datagrams, TcpListener::bind(address)?)))
}

fn draw_secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes a file that only its owner can read, whole or not at all.
fn write(path: &Path, text: &str) -> Result<(), String> {
    let new = path.with_extension("new");
    let write = || {
        // One that a kill has left.
        if new.exists() {
            fs::remove_file(&new)?;
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|error: io::Error| within(path, &error))
}
