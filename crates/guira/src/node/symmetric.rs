//! The members of a symmetric cluster: nodes, which clients are served by, and the coordinator.

use std::{
    io,
    path::Path,
    sync::{Arc, OnceLock, Weak},
};

use guira_cluster::{Life, Sealer, Transport};
use guira_consistency::Consistency;
use guira_memc3::{Config, Memc3};
use guira_routing::NodeId;
use guira_symmetric::{
    EngineItems, Member, Role, SymmetricFile,
    host::{CoordinatorHost, Keeping, NodeHost, NodeHostStatus, ViewsFile},
};
use serde_json::{Value, json};

use super::{Arguments, CONN_LIMIT, EndedBy, Ends, THREADS, clients::Clients, dropped::with_dropped};

/// Bytes that an engine keeps of an item beside its key and its value, at most.
const HEADER_LEN_MAX: usize = 256;

/// Items of a node.
type Items = EngineItems<Memc3>;

/// Runs a member until it is ended.
pub(super) fn run(file: &SymmetricFile, arguments: &Arguments, ended_by: EndedBy) -> Result<(), String> {
    let member = member_of(file, arguments)?;
    let members = Arc::new(file.members().map_err(|error| error.to_string())?);
    let sealer = Sealer::new(&file.secret(), NodeId(member.id));
    let bound = Transport::bind(member.address, sealer, members);
    let transport = bound.map_err(|error| format!("cannot bind {}: {error}", member.address))?;
    let transport = if file.coalesced { transport } else { transport.uncoalesced() };
    match &member.role {
        Role::Coordinator { folder } => coordinator(file, folder, transport, arguments, ended_by),
        Role::Node { .. } => node(file, member, transport, arguments, ended_by),
    }
}

/// The member that is meant, if what is said of it is what it may be told.
fn member_of<'f>(file: &'f SymmetricFile, arguments: &Arguments) -> Result<&'f Member, String> {
    let id = arguments.id;
    let member = file.member(NodeId(id));
    let member = member.ok_or_else(|| format!("--id {id}: {} has no such member", arguments.coordinator))?;
    let name = member.role.name();
    if let Some(role) = arguments.role.as_ref().filter(|role| **role != name) {
        return Err(format!("--role {role}: member {id} is a {name}"));
    }
    let is_node = matches!(member.role, Role::Node { .. });
    let of_no_member = [("--rest", arguments.rest.address().is_some()), ("--cleanup", arguments.cleanup)];
    let of_nodes = [
        ("--metrics", arguments.metrics.is_some()),
        ("--threads", arguments.threads != THREADS),
        ("--conn-limit", arguments.conn_limit != CONN_LIMIT),
        ("--life-file", arguments.life_file.is_some()),
    ];
    if let Some((flag, _)) = of_no_member.iter().find(|(_, is_given)| *is_given) {
        return Err(format!("{flag}: not of a symmetric cluster's members"));
    }
    if let Some((flag, _)) = of_nodes.iter().find(|(_, is_given)| *is_given && !is_node) {
        return Err(format!("{flag}: member {id} is the coordinator, only a node has it"));
    }
    if let Some(address) = arguments.metrics.filter(|address| address.port() == 0) {
        return Err(format!("--metrics {address}: write a port from 1 on"));
    }
    Ok(member)
}

fn coordinator(
    file: &SymmetricFile,
    folder: &Path,
    transport: Transport,
    arguments: &Arguments,
    ended_by: EndedBy,
) -> Result<(), String> {
    let views = ViewsFile::open(folder).map_err(|error| format!("cannot start: {error}"))?;
    let host = CoordinatorHost::start(transport, file.coordinator_config(), views, tell_of_keeping);
    let host = Arc::new(host.map_err(|error| format!("cannot start: {error}"))?);
    let (ended, ends) = (ended_by.receiver()?, Arc::new(Ends::default()));
    arguments.serve_until(
        &ended,
        host,
        &ends,
        (),
        || None,
        |host| {
            let status = host.status()?;
            let mut told = json!({
                "epoch": status.core.view.epoch.0,
                "members": status.core.view.members.len(),
                "whole": status.core.whole.len(),
                "homes": status.core.view.homes.iter().map(|node| node.0).collect::<Vec<u16>>(),
                "hot_set": status.core.hot_set,
                "hot_keys": status.core.hot_keys,
                "differing": status.core.differing,
                "reporter": status.core.reporter.map(|node| node.0),
            });
            if let Some(why) = status.unkept {
                told["unkept"] = json!(why);
            }
            Some(with_dropped(told, &[status.wire]))
        },
    )
}

fn tell_of_keeping(keeping: Keeping<'_>) {
    match keeping {
        Keeping::Fails(why) => {
            eprintln!("guira: who is there cannot be kept, so it stays as it is, and is tried again: {why}");
        }
        Keeping::Differs(node, consistency) => {
            let name = if consistency == Consistency::Sc { "sc" } else { "lin" };
            let node = node.0;
            eprintln!(
                "guira: node {node} is not taken in: consistency is \"{name}\" there and not here; give all members one file"
            );
        }
        Keeping::GoesOn => eprintln!("guira: who is there is kept again"),
    }
}

fn node(
    file: &SymmetricFile,
    member: &Member,
    transport: Transport,
    arguments: &Arguments,
    ended_by: EndedBy,
) -> Result<(), String> {
    let Role::Node { listen, memory_megabytes } = member.role else { return Err("no node".into()) };
    let clients = Clients::at(listen, arguments, file.item_len_max, file.values_len_max())?;
    let items = items(memory_megabytes, file.item_len_max)?;
    let begun: Arc<OnceLock<Weak<NodeHost<Items>>>> = Arc::default();
    let looked_at = Arc::clone(&begun);
    let socket = arguments.socket(move || looked_at.get()?.upgrade()?.status().map(|status| told_of(&status)))?;
    // Once all its sockets are bound: then nobody else is this member, and none that cannot serve costs the others a view.
    let life = Life::begin(arguments.life_file.as_deref()).map_err(|error| format!("--life-file: {error}"))?;
    let host = NodeHost::start(transport, file.node_config(NodeId(member.id), life), items);
    let host = host.map_err(|error: io::Error| format!("cannot start: {error}"))?;
    let front = host.front();
    clients.serve(host, front, ended_by, |host, _| {
        // Nobody else sets it.
        let _ = begun.set(Arc::downgrade(host));
        Ok(socket)
    })
}

/// Where a node has its items: so many megabytes, and items of such a length fit in.
fn items(memory_megabytes: usize, item_len_max: usize) -> Result<Items, String> {
    let item_len_max = item_len_max + Items::BESIDE_LEN + HEADER_LEN_MAX;
    let engine = Memc3::new(Config { item_len_max, ..Config::new(memory_megabytes << 20) });
    engine.map(EngineItems::new).map_err(|error| format!("memory_megabytes {memory_megabytes}: {error}"))
}

fn told_of(status: &NodeHostStatus) -> Value {
    let (core, counts) = (&status.core, status.core.counts);
    let (sent, flow) = (core.sent, core.flow);
    let told = json!({
        "epoch": core.epoch.0,
        "members": core.members,
        "has_lease": core.has_lease,
        "whole": core.is_whole,
        "shards": core.shards,
        "copied": core.copied,
        "items": core.items,
        "bytes": core.bytes,
        "hot_keys": core.hot_keys,
        "hits": counts.hot_reads,
        "hot_writes": counts.hot_writes,
        "at_home": counts.at_home,
        "forwarded": counts.forwarded,
        "for_others": counts.for_others,
        "resent": counts.resent,
        "pending": status.pending,
        "messages_out": status.wire.transport.all_messages_out(),
        "packets_out": status.wire.transport.packets_out(),
        "sent": {
            "requests": sent.requests,
            "answers": sent.answers,
            "invalidates": sent.invalidates,
            "acks": sent.acks,
            "validates": sent.validates,
            "updates": sent.updates,
            "questions": sent.questions,
            "evictions": sent.evictions,
            "joining": sent.joining,
            "pages": sent.pages,
            "credits": sent.credits,
            "to_coordinator": sent.to_coordinator,
        },
        "credits": {
            "requests_waited": flow.requests_waited,
            "messages_waited": flow.messages_waited,
            "messages_waiting": core.waiting,
            "messages_dropped": flow.messages_dropped,
            "asked": flow.asked,
            "beyond": flow.beyond,
        },
        "unheeded": {
            "refused": counts.refused,
            "busy": counts.busy,
            "away": counts.away,
            "unknown": counts.unknown,
        },
        "shard_moves": { "copies": counts.copies, "homecomings": counts.homecomings, "pages": counts.pages, "elsewhere": counts.elsewhere },
        "changes": { "promotions": counts.promotions, "evictions": counts.evictions },
    });
    with_dropped(told, &[status.wire])
}
