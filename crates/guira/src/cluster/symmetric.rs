//! A symmetric cluster that is to be up on this machine: nodes, each a memcached server, and their coordinator.

use std::net::{Ipv4Addr, SocketAddr};

use guira_consistency::Consistency;
use guira_symmetric::{Member, Role, ShardAccess, SymmetricFile};

use super::{
    At, COORDINATOR, draw_secret,
    ports::{allow_ports, can_listen_on, free_addresses},
    running::{How, Seat},
    up::{Plan, Up},
};
use crate::{
    node::{self, ClusterFile},
    size::size_bytes,
};

/// What a symmetric cluster alone is told.
#[derive(clap::Args, Debug)]
pub(super) struct SymmetricArguments {
    /// Of a symmetric cluster: its nodes; node N is a memcached server on the Nth port from --port on
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=256))]
    nodes: u16,
    /// Of a symmetric cluster: what is promised of hot keys: lin, each answer is linearizable for its key; or sc, all agree on the order of a key's writes
    #[arg(long, default_value = "lin", value_parser = ["lin", "sc"])]
    consistency: String,
    /// Of a symmetric cluster: keys that all nodes have, the hottest; 0: none, to compare
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    hot_keys: usize,
    /// Of a symmetric cluster: who looks into a node's own items: crcw, all its threads; or erew, one, for comparison
    #[arg(long, default_value = "crcw", value_parser = ["crcw", "erew"])]
    shard: String,
    /// Of a symmetric cluster: memory of each node's items, in bytes or with k, m or g
    #[arg(long, default_value = "64m", value_name = "SIZE")]
    memory_per_node: String,
    /// Of a symmetric cluster: how often hot keys are chosen, in milliseconds
    #[arg(long, default_value_t = 1_000, value_name = "MS")]
    epoch_ms: u64,
    /// Of a symmetric cluster: each message between members has a datagram or a write of its own, to compare
    #[arg(long)]
    uncoalesced: bool,
}

impl Up {
    pub(super) fn run_symmetric(&self) -> Result<(), String> {
        self.check_symmetric()?;
        let site = self.site()?;
        let file = self.symmetric_file(&site.at)?;
        if self.one_process {
            node::allow_nodes(file.nodes().len() as u64, self.threads.into())?;
        }
        let plan = Plan {
            text: file.print().map_err(|error| error.to_string())?,
            how: self.symmetric_how(&site.at, &file),
            greeting: self.symmetric_greeting(&site.at),
        };
        site.keep_up(&plan, None).map(drop)
    }

    /// The addresses from one on: node 1's, node 2's, and so on.
    fn of_nodes(&self, first: SocketAddr) -> impl Iterator<Item = (u16, SocketAddr)> {
        (1..=self.symmetric.nodes).map(move |id| (id, SocketAddr::new(first.ip(), first.port() + (id - 1))))
    }

    fn listens(&self) -> impl Iterator<Item = (u16, SocketAddr)> {
        self.of_nodes(SocketAddr::new(self.listen, self.port))
    }

    fn node_metrics(&self) -> impl Iterator<Item = (u16, SocketAddr)> {
        self.metrics.into_iter().flat_map(|first| self.of_nodes(first))
    }

    /// What no member could start with.
    fn check_symmetric(&self) -> Result<(), String> {
        let nodes = self.symmetric.nodes;
        let has_ports = |first: u16| first.checked_add(nodes - 1).is_some();
        if !has_ports(self.port) {
            return Err(format!("--nodes {nodes}: there has to be a port for each from --port on"));
        }
        if let Some(address) = self.metrics.filter(|address| address.port() == 0 || !has_ports(address.port())) {
            return Err(format!("--metrics {address}: write a port from 1 on, and a port for each node from there on"));
        }
        can_listen_on(self.listens().chain(self.node_metrics()).map(|(_, address)| address))
    }

    /// The cluster as it is to be: with the secret of the one that was here before.
    fn symmetric_file(&self, at: &At) -> Result<SymmetricFile, String> {
        let secret = match at.file().exists().then(|| ClusterFile::read(&at.file())).transpose()? {
            None => draw_secret().map_err(|error| format!("cannot draw a secret: {error}"))?,
            Some(earlier) => self.secret_of(earlier, at)?,
        };
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let memory = &self.symmetric.memory_per_node;
        let bytes = size_bytes(memory).filter(|bytes| bytes % (1 << 20) == 0);
        let memory_megabytes =
            bytes.ok_or_else(|| format!("--memory-per-node {memory}: write so many megabytes, 64m"))? >> 20;
        let node = |(id, listen)| Member { id, address: nobody, role: Role::Node { listen, memory_megabytes } };
        let mut members: Vec<Member> = self.listens().map(node).collect();
        members.push(Member {
            id: COORDINATOR,
            address: nobody,
            role: Role::Coordinator { folder: at.folder.clone() },
        });
        allow_ports(members.len() as u64)?;
        let clients: Vec<u16> = self.listens().chain(self.node_metrics()).map(|(_, address)| address.port()).collect();
        let free = free_addresses(members.iter().map(|_| 1), &clients).map_err(|error| format!("no ports: {error}"))?;
        members.iter_mut().zip(free).for_each(|(member, address)| member.address = address);
        let file = SymmetricFile {
            secret,
            consistency: if self.symmetric.consistency == "sc" { Consistency::Sc } else { Consistency::Lin },
            lease_ms: self.lease_ms,
            item_len_max: self.item_len_max()?,
            hot_keys: self.symmetric.hot_keys,
            shard: if self.symmetric.shard == "erew" { ShardAccess::Erew } else { ShardAccess::Crcw },
            epoch_ms: self.symmetric.epoch_ms,
            sample_one_in: self.sample_one_in,
            coalesced: !self.symmetric.uncoalesced,
            members,
            ..SymmetricFile::default()
        };
        file.check().map_err(|error| error.to_string())?;
        Ok(file)
    }

    /// The secret of the cluster that was here before, if this one can follow it.
    fn secret_of(&self, earlier: ClusterFile, at: &At) -> Result<String, String> {
        let folder = at.folder.display();
        match earlier {
            ClusterFile::Switched(_) => {
                Err(format!("--topology symmetric: a switched cluster was in {folder}: give another --folder"))
            }
            ClusterFile::Symmetric(earlier) if earlier.nodes().len() != usize::from(self.symmetric.nodes) => {
                Err(format!(
                    "--nodes {}: a cluster of {} was in {folder}: give as many, or another --folder",
                    self.symmetric.nodes,
                    earlier.nodes().len()
                ))
            }
            ClusterFile::Symmetric(earlier) => Ok(earlier.secret),
        }
    }

    fn symmetric_how(&self, at: &At, file: &SymmetricFile) -> How<'static> {
        let metrics: Vec<(u16, SocketAddr)> = self.node_metrics().collect();
        let seat = |member: &Member| {
            let (id, role) = (member.id, member.role.name());
            let is_node = matches!(member.role, Role::Node { .. });
            let arguments = if is_node {
                let address = metrics.iter().find(|(of, _)| *of == id).map(|(_, address)| *address);
                at.arguments(id, role, self.threads).with_life_file(at.life_file(id)).with_metrics(address)
            } else {
                at.arguments(id, role, node::THREADS as u16)
            };
            Seat { id, role, arguments, under: None, ends_first: is_node, is_waited_for: !is_node }
        };
        let seats = file.members.iter().map(seat).collect();
        How { in_one_process: self.one_process, store_files: None, hosts: None, seats }
    }

    fn symmetric_greeting(&self, at: &At) -> Vec<String> {
        let (nodes, folder) = (self.symmetric.nodes, at.folder.display());
        let (consistency, hot_keys) = (&self.symmetric.consistency, self.symmetric.hot_keys);
        let mut lines =
            vec![format!("a symmetric cluster ({nodes} nodes, {consistency}, {hot_keys} hot keys) in {folder}")];
        lines.extend(self.listens().map(|(id, listen)| format!("memcached's clients find node {id} at {listen}")));
        lines.extend(
            self.node_metrics()
                .map(|(id, address)| format!("Prometheus finds what node {id} counts at http://{address}/metrics")),
        );
        lines.push(format!("guira cluster status --folder {folder}; {}", self.what_of_members()));
        lines
    }
}
