//! What a controller says to a switch, and hears from it (OpenFlow Switch Specification 1.3.5, section 7).
//!
//! ```text
//! 0         1      2        4     8
//! [version ][kind ][length ][xid ][body ...]        network byte order; the length is the whole message's
//! ```
//! Always true: what is read fills the length that was said; what we have no use for is read as [`Heard::Other`] and not looked into.

use crate::{Actions, Cookie, DatapathId, FlowKey, Malformed, Match, Port, TableId, wire::Reader};

/// OpenFlow 1.3.
pub(crate) const VERSION: u8 = 4;

/// Bytes before a body.
pub const HEADER_LEN: usize = 8;

/// Names a request, and its answers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Xid(pub u32);

pub(crate) mod kind {
    pub(crate) const HELLO: u8 = 0;
    pub(crate) const ERROR: u8 = 1;
    pub(crate) const ECHO_REQUEST: u8 = 2;
    pub(crate) const ECHO_REPLY: u8 = 3;
    pub(crate) const FEATURES_REQUEST: u8 = 5;
    pub(crate) const FEATURES_REPLY: u8 = 6;
    pub(crate) const GET_CONFIG_REQUEST: u8 = 7;
    pub(crate) const GET_CONFIG_REPLY: u8 = 8;
    pub(crate) const SET_CONFIG: u8 = 9;
    pub(crate) const FLOW_MOD: u8 = 14;
    pub(crate) const MULTIPART_REQUEST: u8 = 18;
    pub(crate) const MULTIPART_REPLY: u8 = 19;
    pub(crate) const BARRIER_REQUEST: u8 = 20;
    pub(crate) const BARRIER_REPLY: u8 = 21;
    pub(crate) const ROLE_REQUEST: u8 = 24;
    pub(crate) const ROLE_REPLY: u8 = 25;
}

pub(crate) mod multipart {
    pub(crate) const DESCRIPTION: u16 = 0;
    pub(crate) const FLOWS: u16 = 1;
    pub(crate) const TABLES: u16 = 3;
    pub(crate) const PORTS: u16 = 4;
    pub(crate) const TABLE_FEATURES: u16 = 12;
    pub(crate) const PORTS_DESCRIBED: u16 = 13;
    pub(crate) const MORE: u16 = 1;
}

/// What a flow mod does.
pub(crate) mod command {
    pub(crate) const ADD: u8 = 0;
    pub(crate) const MODIFY: u8 = 1;
    pub(crate) const MODIFY_STRICT: u8 = 2;
    pub(crate) const DELETE: u8 = 3;
    pub(crate) const DELETE_STRICT: u8 = 4;
}

/// Of a hello: the versions that the sender speaks, as bits.
const VERSION_BITMAP: u16 = 1;
pub(crate) const NO_BUFFER: u32 = u32::MAX;
pub(crate) const ANY_GROUP: u32 = u32::MAX;
pub(crate) const ALL_TABLES: TableId = TableId(u8::MAX);
pub(crate) const PORT_STATS_LEN: usize = 112;
const TABLE_STATS_LEN: usize = 24;
const FLOW_STATS_HEAD_LEN: usize = 48;

/// What we say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said<'m> {
    /// We speak 1.3.
    Hello,
    /// We speak nothing that the other end does.
    HelloFailed,
    /// Are you there?
    EchoRequest,
    /// We are; with what was sent.
    EchoReply(&'m [u8]),
    /// Who are you?
    FeaturesRequest,
    /// A flow is to be there, in the place of one with its key.
    Add(Cookie, FlowKey, Actions),
    /// The flow with this key is not to be there.
    Delete(Cookie, FlowKey),
    /// No flow of this owner is to be there.
    DeleteAll(Cookie),
    /// Say when all before this is done.
    Barrier,
    /// Which flows are there of this owner?
    AskFlows(Cookie),
    /// How much is in the tables?
    AskTables,
    /// What has gone through the ports?
    AskPorts,
}

/// What we hear.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard<'m> {
    /// Whether it speaks 1.3, too.
    Hello {
        /// Whether it does.
        speaks_ours: bool,
    },
    /// What was said under the message's number was refused.
    Error(Refusal),
    /// Are you there? To be sent back.
    EchoRequest(&'m [u8]),
    /// It is there.
    EchoReply,
    /// This is a switch.
    Features {
        /// Its number.
        datapath: DatapathId,
        /// Whether this is the connection on which it is told, and not one beside that (auxiliary).
        is_main: bool,
    },
    /// All before is done.
    Barrier,
    /// Flows of ours; `None` for one in a form that we do not use.
    Flows(Vec<Option<(FlowKey, Actions)>>, IsLast),
    /// Tables.
    Tables(Vec<TableStats>, IsLast),
    /// Ports.
    Ports(Vec<PortStats>, IsLast),
    /// What is of no use to us, of that kind.
    Other(u8),
}

/// Whether an answer of several messages ends with this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IsLast(pub bool);

/// Why a switch has not done something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Refusal {
    /// The kind of what went wrong.
    pub kind: u16,
    /// What it was.
    pub code: u16,
}

impl Refusal {
    /// A flow could not be added, for there is no room for it.
    pub const TABLE_FULL: Self = Self { kind: 5, code: 1 };
    /// A match has a field, or bits of one, by which packets cannot be looked up.
    pub const BAD_FIELD: Self = Self { kind: 4, code: 6 };
    /// A match has a field without those that it wants.
    pub const LACKS_FIELDS: Self = Self { kind: 4, code: 9 };
    /// What is to become of packets cannot be done.
    pub const UNSUPPORTED_ACTION: Self = Self { kind: 2, code: 0 };
    /// There is no such port to which packets could go.
    pub const BAD_OUTPUT: Self = Self { kind: 2, code: 4 };
    pub(crate) const BAD_VERSION: Self = Self { kind: 1, code: 0 };
    pub(crate) const BAD_KIND: Self = Self { kind: 1, code: 1 };
    pub(crate) const BAD_MULTIPART: Self = Self { kind: 1, code: 2 };
    pub(crate) const BAD_LEN: Self = Self { kind: 1, code: 6 };
    pub(crate) const NO_SUCH_BUFFER: Self = Self { kind: 1, code: 8 };
    pub(crate) const NO_SUCH_TABLE: Self = Self { kind: 1, code: 9 };
    pub(crate) const NO_SUCH_PORT: Self = Self { kind: 1, code: 11 };
    /// Packets cannot be looked up in that table afterwards.
    pub(crate) const NO_NEXT_TABLE: Self = Self { kind: 3, code: 2 };
    pub(crate) const NO_TABLE_FOR_FLOW: Self = Self { kind: 5, code: 2 };
    pub(crate) const BAD_TIMEOUT: Self = Self { kind: 5, code: 5 };
    pub(crate) const BAD_COMMAND: Self = Self { kind: 5, code: 6 };
    pub(crate) const BAD_FLOW_FLAGS: Self = Self { kind: 5, code: 7 };
    pub(crate) const BAD_CONFIG_FLAGS: Self = Self { kind: 10, code: 0 };
    pub(crate) const UNSUPPORTED_ROLE: Self = Self { kind: 11, code: 1 };
    pub(crate) const BAD_ROLE: Self = Self { kind: 11, code: 2 };
    /// A flow could not be added, and nothing is known of why.
    pub const FLOW_UNKNOWN: Self = Self { kind: 5, code: 0 };
}

/// How much is in a table, and how often it was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableStats {
    /// Which.
    pub table: u8,
    /// Flows in it.
    pub flows: u32,
    /// Packets that were looked up.
    pub lookups: u64,
    /// Packets for which there was a flow.
    pub matches: u64,
}

/// What has gone through a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortStats {
    /// Which.
    pub port: Port,
    /// Packets in.
    pub packets_in: u64,
    /// Packets out.
    pub packets_out: u64,
    /// Packets dropped, in and out.
    pub dropped: u64,
}

impl Said<'_> {
    /// Appends it to `into`.
    pub fn put(&self, xid: Xid, into: &mut Vec<u8>) {
        put(self.kind(), xid, into, |into| match self {
            Self::Hello => {
                into.extend(VERSION_BITMAP.to_be_bytes());
                into.extend(8_u16.to_be_bytes());
                into.extend((1_u32 << VERSION).to_be_bytes());
            }
            // Of the kind "hello failed", with the code "incompatible".
            Self::HelloFailed => into.extend([0; 4]),
            Self::EchoReply(data) => into.extend_from_slice(data),
            Self::EchoRequest | Self::FeaturesRequest | Self::Barrier => {}
            Self::Add(cookie, key, actions) => {
                put_flow_mod(into, *cookie, command::ADD, key);
                actions.put(into);
            }
            Self::Delete(cookie, key) => put_flow_mod(into, *cookie, command::DELETE_STRICT, key),
            Self::DeleteAll(cookie) => {
                // Of whatever priority: that counts only where a flow is meant exactly.
                let any = FlowKey { table: ALL_TABLES, priority: 0, matched: Match::default() };
                put_flow_mod(into, *cookie, command::DELETE, &any);
            }
            Self::AskFlows(Cookie(cookie)) => {
                put_multipart(into, multipart::FLOWS);
                into.extend([ALL_TABLES.0, 0, 0, 0]);
                into.extend(Port::ANY.0.to_be_bytes());
                into.extend(ANY_GROUP.to_be_bytes());
                into.extend([0; 4]);
                into.extend(cookie.to_be_bytes());
                into.extend(u64::MAX.to_be_bytes());
                Match::default().put(into);
            }
            Self::AskTables => put_multipart(into, multipart::TABLES),
            Self::AskPorts => {
                put_multipart(into, multipart::PORTS);
                into.extend(Port::ANY.0.to_be_bytes());
                into.extend([0; 4]);
            }
        });
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello => kind::HELLO,
            Self::HelloFailed => kind::ERROR,
            Self::EchoRequest => kind::ECHO_REQUEST,
            Self::EchoReply(_) => kind::ECHO_REPLY,
            Self::FeaturesRequest => kind::FEATURES_REQUEST,
            Self::Add(..) | Self::Delete(..) | Self::DeleteAll(_) => kind::FLOW_MOD,
            Self::Barrier => kind::BARRIER_REQUEST,
            Self::AskFlows(_) | Self::AskTables | Self::AskPorts => kind::MULTIPART_REQUEST,
        }
    }
}

/// What is deleted has our cookie: others' flows with the same key stay. But for one bit: of a cookie that is given whole Open vSwitch looks through all flows, whichever
/// is meant, which takes twice the time.
const DELETED_MASK: u64 = !1;

fn put_flow_mod(into: &mut Vec<u8>, cookie: Cookie, command: u8, key: &FlowKey) {
    into.extend(cookie.0.to_be_bytes());
    let mask = if command == command::ADD { 0 } else { DELETED_MASK };
    into.extend(mask.to_be_bytes());
    into.extend([key.table.0, command]);
    // It stays, used or not.
    into.extend([0; 4]);
    into.extend(key.priority.to_be_bytes());
    into.extend(NO_BUFFER.to_be_bytes());
    into.extend(Port::ANY.0.to_be_bytes());
    into.extend(ANY_GROUP.to_be_bytes());
    into.extend([0; 4]);
    key.matched.put(into);
}

/// Appends a message with the body that is appended.
///
/// # Panics
/// It is longer than a message can be.
pub(crate) fn put(kind: u8, xid: Xid, into: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    into.extend([VERSION, kind, 0, 0]);
    into.extend(xid.0.to_be_bytes());
    body(into);
    let len = into.len() - start;
    assert!(len <= usize::from(u16::MAX), "a message of {len} bytes");
    into[start + 2..start + 4].copy_from_slice(&(len as u16).to_be_bytes());
}

/// Opens a whole message: its version, its kind, its number, and its body.
pub(crate) fn open(message: &[u8]) -> Result<(u8, u8, Xid, Reader<'_>), Malformed> {
    if message_len(message)? != Some(message.len()) {
        return Err(Malformed);
    }
    let mut reader = Reader::new(message);
    let (version, kind) = (reader.u8()?, reader.u8()?);
    reader.skip(2)?;
    let xid = Xid(reader.u32()?);
    if version != VERSION && kind != kind::HELLO { Err(Malformed) } else { Ok((version, kind, xid, reader)) }
}

pub(crate) fn put_multipart(into: &mut Vec<u8>, kind: u16) {
    into.extend(kind.to_be_bytes());
    into.extend([0; 6]);
}

/// How long the message is that `bytes` begin with; `None` while too few are there to say.
///
/// # Errors
/// [`Malformed`]: it is shorter than its header.
pub fn message_len(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some([_, _, high, low]) = bytes.first_chunk() else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    if len < HEADER_LEN { Err(Malformed) } else { Ok(Some(len)) }
}

impl<'m> Heard<'m> {
    /// Reads a whole message.
    ///
    /// # Errors
    /// [`Malformed`]: it is not as long as it says, or something in it is not, or it is of another version and no hello.
    pub fn take(message: &'m [u8]) -> Result<(Xid, Self), Malformed> {
        let (version, kind, xid, mut reader) = open(message)?;
        let heard = match kind {
            kind::HELLO => Self::Hello { speaks_ours: speaks_ours(version, reader)? },
            kind::ERROR => Self::Error(Refusal { kind: reader.u16()?, code: reader.u16()? }),
            kind::ECHO_REQUEST => Self::EchoRequest(reader.rest()),
            kind::ECHO_REPLY => Self::EchoReply,
            kind::FEATURES_REPLY => {
                let datapath = DatapathId(reader.u64()?);
                // Buffers and tables.
                reader.skip(5)?;
                Self::Features { datapath, is_main: reader.u8()? == 0 }
            }
            kind::BARRIER_REPLY => Self::Barrier,
            kind::MULTIPART_REPLY => multipart(reader)?,
            other => Self::Other(other),
        };
        Ok((xid, heard))
    }
}

/// Whether a hello's sender speaks 1.3: as it says, or, if it says no more than a version, all up to that.
pub(crate) fn speaks_ours(version: u8, mut elements: Reader<'_>) -> Result<bool, Malformed> {
    while !elements.is_empty() {
        let (kind, len) = (elements.u16()?, usize::from(elements.u16()?));
        let mut bitmaps = elements.part(len.checked_sub(4).ok_or(Malformed)?)?;
        // The last one may be without its padding.
        let padding = (len.next_multiple_of(8) - len).min(elements.rest().len());
        elements.skip(padding)?;
        if kind == VERSION_BITMAP {
            return Ok(bitmaps.u32()? & 1 << VERSION != 0);
        }
    }
    Ok(version >= VERSION)
}

fn multipart<'m>(mut reader: Reader<'m>) -> Result<Heard<'m>, Malformed> {
    let (kind, flags) = (reader.u16()?, reader.u16()?);
    reader.skip(4)?;
    let is_last = IsLast(flags & multipart::MORE == 0);
    Ok(match kind {
        multipart::FLOWS => Heard::Flows(all(reader, flow)?, is_last),
        multipart::TABLES => Heard::Tables(all(reader, table)?, is_last),
        multipart::PORTS => Heard::Ports(all(reader, port)?, is_last),
        _ => Heard::Other(kind::MULTIPART_REPLY),
    })
}

/// All there are to the end. Each takes some bytes, so there are no more than those.
fn all<'m, T>(
    mut reader: Reader<'m>,
    one: impl Fn(&mut Reader<'m>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let mut all = Vec::new();
    while !reader.is_empty() {
        all.push(one(&mut reader)?);
    }
    Ok(all)
}

fn flow(reader: &mut Reader<'_>) -> Result<Option<(FlowKey, Actions)>, Malformed> {
    let len = usize::from(Reader::new(reader.rest()).u16()?);
    if len < FLOW_STATS_HEAD_LEN {
        return Err(Malformed);
    }
    let mut flow = reader.part(len)?;
    flow.skip(2)?;
    let table = TableId(flow.u8()?);
    // Since when it is there.
    flow.skip(9)?;
    let priority = flow.u16()?;
    let timeouts = flow.u32()?;
    // Flags, padding, the cookie, which is the one that was asked for, packets and bytes.
    flow.skip(2 + 4 + 8 + 8 + 8)?;
    let matched = Match::take(&mut flow)?;
    let actions = Actions::take(flow)?;
    let found = matched.zip(actions).filter(|_| timeouts == 0);
    Ok(found.map(|(matched, actions)| (FlowKey { table, priority, matched }, actions)))
}

fn table(reader: &mut Reader<'_>) -> Result<TableStats, Malformed> {
    let mut stats = reader.part(TABLE_STATS_LEN)?;
    let table = stats.u8()?;
    stats.skip(3)?;
    Ok(TableStats { table, flows: stats.u32()?, lookups: stats.u64()?, matches: stats.u64()? })
}

fn port(reader: &mut Reader<'_>) -> Result<PortStats, Malformed> {
    let mut stats = reader.part(PORT_STATS_LEN)?;
    let port = Port(stats.u32()?);
    stats.skip(4)?;
    let (packets_in, packets_out) = (stats.u64()?, stats.u64()?);
    stats.skip(16)?;
    let dropped = stats.u64()?.saturating_add(stats.u64()?);
    Ok(PortStats { port, packets_in, packets_out, dropped })
}
