//! A switched cluster that is to be up on this machine.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    num::NonZero,
};

use guira_openflow::RulesOfKeys;
use guira_persist::{Durability, Limit};
use guira_switched::{BackendRole, CacheMode, Member, ReportsName, Role, Router, StaticFile};

use super::{
    At, CONTROLLER, FIRST_BACKEND, FIRST_CACHE, GATEWAY, draw_secret,
    network::{self, Headers, Hosts, Shape},
    ports::{allow_ports, can_listen_on, free_addresses},
    running::{How, Seat},
    up::{Plan, Up},
};
use crate::node::{self, ClusterFile};

/// As many as there are to compare, with room for some twice.
const GATEWAYS_MAX: usize = 16;

impl Up {
    pub(super) fn run_switched(&self) -> Result<(), String> {
        self.check()?;
        let site = self.site()?;
        let at = At { folder: site.at.folder.clone() };
        let file = self.file(&at)?;
        let (mut router, hosts) = match &file.network {
            None => (None, None),
            Some(_) => network::make(&at, &file).map(|(router, hosts)| (Some(router), Some(hosts)))?,
        };
        let plan = Plan {
            text: file.print().map_err(|error| error.to_string())?,
            how: self.how(&at, &file, hosts.as_ref())?,
            greeting: self.greeting(&file, &at),
        };
        let down = site.keep_up(&plan, router.as_mut())?;
        drop(plan);
        drop((router, hosts));
        drop(down);
        Ok(())
    }

    fn how<'h>(&'h self, at: &At, file: &StaticFile, hosts: Option<&'h Hosts>) -> Result<How<'h>, String> {
        let store_files = if self.one_process { node::allow_all(file, self.threads.into())? } else { None };
        let metrics: BTreeMap<u16, SocketAddr> = self.metrics().collect();
        let seat = |member: &Member| {
            let role = &member.role;
            let arguments = at.arguments(member.id, role.name(), self.threads).with_life_file(at.life_file(member.id));
            Seat {
                id: member.id,
                role: role.name(),
                arguments: match role {
                    Role::Controller => arguments.with_rest(self.rest.clone()),
                    Role::Gateway { .. } => arguments.with_metrics(metrics.get(&member.id).copied()),
                    Role::Backend(_) | Role::Cache { .. } => arguments,
                },
                under: self.backend_under.as_deref().filter(|_| role.as_backend().is_some()),
                // So that nobody asks who is gone.
                ends_first: matches!(role, Role::Gateway { .. }),
                is_waited_for: false,
            }
        };
        let seats = file.members.iter().map(seat).collect();
        Ok(How { in_one_process: self.one_process, store_files, hosts, seats })
    }

    fn greeting(&self, file: &StaticFile, at: &At) -> Vec<String> {
        let mut lines = Vec::new();
        let roles: Vec<String> = file.roles().iter().map(|(role, count)| format!("{count} {role}")).collect();
        let folder = at.folder.display();
        lines.push(format!("a switched cluster ({}) in {folder}", roles.join(", ")));
        let metrics: BTreeMap<u16, SocketAddr> = self.metrics().collect();
        for member in &file.members {
            if let Role::Gateway { listen, cache_mode } = member.role {
                let mode = if cache_mode == CacheMode::Switched { String::new() } else { format!(" ({cache_mode})") };
                lines.push(format!("memcached's clients find it at {listen}{mode}"));
                if let Some(address) = metrics.get(&member.id) {
                    lines.push(format!("Prometheus finds what that counts at http://{address}/metrics"));
                }
            }
        }
        if let Some(address) = self.rest.address() {
            lines.push(format!("operators find the controller's REST API at http://{address}/v1/status"));
        }
        lines.push(format!("guira cluster status --folder {folder}; {}", self.what_of_members()));
        lines
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
        let gateways = self.gateways().map(|(_, address, _)| address);
        can_listen_on(gateways.chain(self.metrics().map(|(_, address)| address)))
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
        let earlier = match at.file().exists().then(|| ClusterFile::read(&at.file())).transpose()? {
            None => None,
            Some(ClusterFile::Switched(earlier)) => Some(*earlier),
            Some(ClusterFile::Symmetric(_)) => {
                return Err(format!(
                    "--topology switched: a symmetric cluster was in {}: give another --folder",
                    at.folder.display()
                ));
            }
        };
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
        allow_ports(ports)?;
        let network = self.shape().map(|shape| network::plan(&mut members, shape)).transpose()?;
        if network.is_none() {
            let free = free_addresses(members.iter().map(|member| member.parts().get()), &listens);
            let free = free.map_err(|error| format!("no ports: {error}"))?;
            members.iter_mut().zip(free).for_each(|(member, address)| member.address = address);
        }
        let item_len_max = self.item_len_max()?;
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
