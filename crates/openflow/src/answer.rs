//! What a switch answers a controller (OpenFlow Switch Specification 1.3.5, section 7.3): the other end of [`Heard`](crate::Heard).
//!
//! Always true: an answer is one message, but for flows, which are said in as many as it takes; what is not counted is said to be all ones.

use crate::{
    Actions, Cookie, DatapathId, FlowKey, PortStatus, Refusal, Role, SwitchSettings, TableId, TableStats, Xid,
    flow::put_properties,
    message::{PORT_STATS_LEN, kind, multipart, put, put_multipart},
};

/// Ports that are told of at most: as many as a message holds, and more than a host has.
pub(crate) const PORTS_MAX: usize = 512;
const _: () = assert!(PORTS_MAX * PORT_STATS_LEN < (u16::MAX as usize) - 64);

/// With a flow behind so many bytes a message is full: the longest flow is shorter than what is left.
const FLOWS_LEN: usize = 60_000;

/// Of a message that is refused, so much is sent back.
const REFUSED_LEN: usize = 64;

const NOT_COUNTED: u64 = u64::MAX;

/// Flows, tables and ports are counted, as far as they are.
const CAPABILITIES: u32 = 0b111;

/// Of a port: packets can go through it.
const LIVE: u32 = 4;

const DESCRIPTION_LEN: usize = 256;
const SERIAL_NUMBER_LEN: usize = 32;
const PORT_NAME_LEN: usize = 16;
const TABLE_NAME_LEN: usize = 32;

/// What is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    /// This message was refused.
    Error(Refusal, &'a [u8]),
    /// Who it is.
    Features(DatapathId),
    /// What becomes of packets that come to the controller.
    Config(SwitchSettings),
    /// All before is done.
    Barrier,
    /// What it is.
    Description,
    /// How much is in its table.
    Table(TableStats),
    /// What its table can do, and how many flows may be in it.
    TableFeatures {
        /// So many.
        flows_max: usize,
    },
    /// What has gone through ports.
    Ports(&'a [PortStatus]),
    /// Which ports there are.
    PortsDescribed(&'a [PortStatus]),
    /// What the controller is.
    Role(Role),
}

impl Answer<'_> {
    /// Appends it to `into`.
    ///
    /// # Panics
    /// There are more ports than a message holds: 512.
    pub fn put(&self, xid: Xid, into: &mut Vec<u8>) {
        put(self.kind(), xid, into, |into| match self {
            Self::Error(refusal, message) => {
                into.extend(refusal.kind.to_be_bytes());
                into.extend(refusal.code.to_be_bytes());
                into.extend(&message[..message.len().min(REFUSED_LEN)]);
            }
            Self::Features(datapath) => {
                into.extend(datapath.0.to_be_bytes());
                // It keeps no packets, and has one table; this is its main connection.
                into.extend([0, 0, 0, 0, 1, 0, 0, 0]);
                into.extend(CAPABILITIES.to_be_bytes());
                into.extend([0; 4]);
            }
            Self::Config(settings) => {
                into.extend(settings.flags.to_be_bytes());
                into.extend(settings.miss_send_len.to_be_bytes());
            }
            Self::Barrier => {}
            Self::Description => {
                put_multipart(into, multipart::DESCRIPTION);
                // Who has made it, its hardware, its software, its serial number and itself.
                put_text(into, "Guira", DESCRIPTION_LEN);
                put_text(into, "", DESCRIPTION_LEN);
                put_text(into, env!("CARGO_PKG_VERSION"), DESCRIPTION_LEN);
                put_text(into, "", SERIAL_NUMBER_LEN);
                put_text(into, "", DESCRIPTION_LEN);
            }
            Self::Table(stats) => {
                put_multipart(into, multipart::TABLES);
                into.extend([stats.table, 0, 0, 0]);
                into.extend(stats.flows.to_be_bytes());
                into.extend(stats.lookups.to_be_bytes());
                into.extend(stats.matches.to_be_bytes());
            }
            Self::TableFeatures { flows_max } => {
                put_multipart(into, multipart::TABLE_FEATURES);
                let start = into.len();
                into.extend([0, 0, TableId::FIRST.0, 0, 0, 0, 0, 0]);
                put_text(into, "flows", TABLE_NAME_LEN);
                // No metadata, and nothing to configure.
                into.extend([0; 20]);
                into.extend(u32::try_from(*flows_max).unwrap_or(u32::MAX).to_be_bytes());
                put_properties(into);
                let len = (into.len() - start) as u16;
                into[start..start + 2].copy_from_slice(&len.to_be_bytes());
            }
            Self::Ports(ports) => {
                put_multipart(into, multipart::PORTS);
                ports.iter().for_each(|port| put_port_stats(into, port));
            }
            Self::PortsDescribed(ports) => {
                put_multipart(into, multipart::PORTS_DESCRIBED);
                ports.iter().for_each(|port| put_port(into, port));
            }
            Self::Role(role) => {
                into.extend(role.role.to_be_bytes());
                into.extend([0; 4]);
                into.extend(role.generation.to_be_bytes());
            }
        });
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Error(..) => kind::ERROR,
            Self::Features(_) => kind::FEATURES_REPLY,
            Self::Config(_) => kind::GET_CONFIG_REPLY,
            Self::Barrier => kind::BARRIER_REPLY,
            Self::Description
            | Self::Table(_)
            | Self::TableFeatures { .. }
            | Self::Ports(_)
            | Self::PortsDescribed(_) => kind::MULTIPART_REPLY,
            Self::Role(_) => kind::ROLE_REPLY,
        }
    }
}

/// Appends flows, as many as one message holds; which of them was the last one, if there may be more.
pub(crate) fn put_flows<'f>(
    xid: Xid,
    into: &mut Vec<u8>,
    flows: impl Iterator<Item = (&'f FlowKey, Cookie, &'f Actions)>,
) -> Option<FlowKey> {
    let mut more_behind = None;
    put(kind::MULTIPART_REPLY, xid, into, |into| {
        let start = into.len();
        put_multipart(into, multipart::FLOWS);
        for (key, cookie, actions) in flows {
            put_flow(into, key, cookie, actions);
            if into.len() - start > FLOWS_LEN {
                into[start + 2..start + 4].copy_from_slice(&multipart::MORE.to_be_bytes());
                more_behind = Some(*key);
                break;
            }
        }
    });
    more_behind
}

fn put_flow(into: &mut Vec<u8>, key: &FlowKey, cookie: Cookie, actions: &Actions) {
    let start = into.len();
    // Its length, its table, and since when it is there, which nobody keeps.
    into.extend([0, 0, key.table.0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    into.extend(key.priority.to_be_bytes());
    // It stays; no flags.
    into.extend([0; 10]);
    into.extend(cookie.0.to_be_bytes());
    into.extend(NOT_COUNTED.to_be_bytes());
    into.extend(NOT_COUNTED.to_be_bytes());
    key.matched.put(into);
    actions.put(into);
    let len = (into.len() - start) as u16;
    into[start..start + 2].copy_from_slice(&len.to_be_bytes());
}

fn put_port_stats(into: &mut Vec<u8>, PortStatus { stats, .. }: &PortStatus) {
    into.extend(stats.port.0.to_be_bytes());
    into.extend([0; 4]);
    into.extend(stats.packets_in.to_be_bytes());
    into.extend(stats.packets_out.to_be_bytes());
    into.extend([NOT_COUNTED; 2].map(u64::to_be_bytes).as_flattened());
    // All of them are said to have been on their way in.
    into.extend(stats.dropped.to_be_bytes());
    into.extend(0_u64.to_be_bytes());
    into.extend([NOT_COUNTED; 6].map(u64::to_be_bytes).as_flattened());
    // Since when.
    into.extend([0; 8]);
}

fn put_port(into: &mut Vec<u8>, PortStatus { stats, mac, name }: &PortStatus) {
    into.extend(stats.port.0.to_be_bytes());
    into.extend([0; 4]);
    into.extend(mac.0);
    into.extend([0; 2]);
    put_text(into, name, PORT_NAME_LEN);
    into.extend([0; 4]);
    into.extend(LIVE.to_be_bytes());
    // What its link can do is not known.
    into.extend([0; 24]);
}

/// A text with zeros behind it, at least one, in so many bytes.
fn put_text(into: &mut Vec<u8>, text: &str, len: usize) {
    let end = into.len() + len;
    into.extend(&text.as_bytes()[..text.floor_char_boundary(len - 1)]);
    into.resize(end, 0);
}
