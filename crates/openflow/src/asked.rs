//! What a switch is asked by a controller (OpenFlow Switch Specification 1.3.5, section 7.3): the other end of [`Said`](crate::Said).
//!
//! Always true: what is read fills the length that was said; what cannot be done is read as such, so that it can be refused by what it is.

use crate::{
    Actions, Cookie, Malformed, Masked, Match, Port, Refusal, Selection, TableId, Xid,
    message::{ANY_GROUP, NO_BUFFER, command, kind, multipart, open, speaks_ours},
    wire::Reader,
};

const SEND_REMOVED: u16 = 1;
const CHECK_OVERLAP: u16 = 2;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked<'m> {
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
    /// Who are you?
    Features,
    /// What becomes of packets that come to the controller?
    Config,
    /// What is to become of them.
    SetConfig(SwitchSettings),
    /// Flows are to change.
    Flow(FlowMod),
    /// Say when all before this is done.
    Barrier,
    /// What are you?
    Description,
    /// Which flows are there?
    Flows {
        /// In which table.
        table: TableId,
        /// Which of them; `None`: it says more than we can.
        which: Option<Selection>,
    },
    /// How much is in the tables?
    Tables,
    /// What can the tables do?
    TableFeatures,
    /// What has gone through a port, or through any?
    Ports(Port),
    /// Which ports are there?
    PortsDescribed,
    /// What is the sender to you?
    Role(Role),
    /// A multipart request that we do not know, of that kind, or one of several messages.
    OtherMultipart(u16),
    /// Something that we do not know, of that kind.
    Other(u8),
}

/// What becomes of packets that come to a controller, and of fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwitchSettings {
    /// Zero: fragments are as other packets.
    pub flags: u16,
    /// Bytes of a packet that a controller is sent.
    pub miss_send_len: u16,
}

/// What a controller is to a switch, or wants to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Role {
    /// As it was (0), one of equals (1), the master (2), or a slave (3).
    pub role: u32,
    /// Which election has made it a master.
    pub generation: u64,
}

/// What is to be done with flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// One is to be there, in the place of one with its key.
    Add,
    /// The selected ones are to do something else.
    Modify,
    /// One is.
    ModifyStrict,
    /// The selected ones are not to be there.
    Delete,
    /// One is not.
    DeleteStrict,
}

/// Flows are to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowMod {
    /// How; `None`: in a way that we do not know.
    pub command: Option<Command>,
    /// In which table.
    pub table: TableId,
    /// The priority of one that is added, and of which one is meant.
    pub priority: u16,
    /// Of one that is added.
    pub cookie: Cookie,
    /// Which flows; of one that is added, which packets. `None`: it says more than we can.
    pub which: Option<Selection>,
    /// What becomes of packets; `None`: more than we can do.
    pub actions: Option<Actions>,
    /// It goes by itself, after some time.
    pub is_temporary: bool,
    /// It is of a packet that the switch is to have kept.
    pub has_buffer: bool,
    /// The controller wants to be told when it goes.
    pub tells_removal: bool,
    /// It is not to be added if another of its priority takes some of its packets.
    pub checks_overlap: bool,
}

impl<'m> Asked<'m> {
    /// Reads a whole message.
    ///
    /// # Errors
    /// [`Malformed`]: it is not as long as it says, or something in it is not, or it is of another version and no hello.
    pub fn take(message: &'m [u8]) -> Result<(Xid, Self), Malformed> {
        let (version, kind, xid, mut reader) = open(message)?;
        let asked = match kind {
            kind::HELLO => Self::Hello { speaks_ours: speaks_ours(version, reader)? },
            kind::ERROR => Self::Error(Refusal { kind: reader.u16()?, code: reader.u16()? }),
            kind::ECHO_REQUEST => Self::EchoRequest(reader.rest()),
            kind::ECHO_REPLY => Self::EchoReply,
            kind::FEATURES_REQUEST => Self::Features,
            kind::GET_CONFIG_REQUEST => Self::Config,
            kind::SET_CONFIG => Self::SetConfig(SwitchSettings { flags: reader.u16()?, miss_send_len: reader.u16()? }),
            kind::FLOW_MOD => Self::Flow(flow_mod(reader)?),
            kind::MULTIPART_REQUEST => multipart(reader)?,
            kind::BARRIER_REQUEST => Self::Barrier,
            kind::ROLE_REQUEST => {
                let role = reader.u32()?;
                reader.skip(4)?;
                Self::Role(Role { role, generation: reader.u64()? })
            }
            other => Self::Other(other),
        };
        Ok((xid, asked))
    }
}

fn flow_mod(mut reader: Reader<'_>) -> Result<FlowMod, Malformed> {
    let (cookie, mask) = (reader.array()?, reader.array()?);
    let (table, command) = (TableId(reader.u8()?), reader.u8()?);
    let is_temporary = reader.u32()? != 0;
    let priority = reader.u16()?;
    let has_buffer = reader.u32()? != NO_BUFFER;
    let (port, group) = (Port(reader.u32()?), reader.u32()?);
    let flags = reader.u16()?;
    reader.skip(2)?;
    let matched = Match::take(&mut reader)?;
    let command = match command {
        command::ADD => Some(Command::Add),
        command::MODIFY => Some(Command::Modify),
        command::MODIFY_STRICT => Some(Command::ModifyStrict),
        command::DELETE => Some(Command::Delete),
        command::DELETE_STRICT => Some(Command::DeleteStrict),
        _ => None,
    };
    Ok(FlowMod {
        command,
        table,
        priority,
        cookie: Cookie(u64::from_be_bytes(cookie)),
        which: selection(Masked::new(cookie, mask), port, group, matched),
        actions: Actions::take(reader)?,
        is_temporary,
        has_buffer,
        tells_removal: flags & SEND_REMOVED != 0,
        checks_overlap: flags & CHECK_OVERLAP != 0,
    })
}

fn selection(cookies: Masked<8>, port: Port, group: u32, matched: Option<Match>) -> Option<Selection> {
    let to = (port != Port::ANY).then_some(port);
    let matched = matched?.without_idle_fields();
    Some(Selection { cookies, matched, to, to_group: group != ANY_GROUP })
}

fn multipart<'m>(mut reader: Reader<'m>) -> Result<Asked<'m>, Malformed> {
    let (kind, flags) = (reader.u16()?, reader.u16()?);
    reader.skip(4)?;
    if flags & multipart::MORE != 0 {
        return Ok(Asked::OtherMultipart(kind));
    }
    Ok(match kind {
        multipart::DESCRIPTION => Asked::Description,
        multipart::FLOWS => {
            let table = TableId(reader.u8()?);
            reader.skip(3)?;
            let (port, group) = (Port(reader.u32()?), reader.u32()?);
            reader.skip(4)?;
            let cookies = Masked::new(reader.array()?, reader.array()?);
            let matched = Match::take(&mut reader)?;
            Asked::Flows { table, which: selection(cookies, port, group, matched) }
        }
        multipart::TABLES => Asked::Tables,
        // With more it is what they are to be able to do.
        multipart::TABLE_FEATURES if reader.is_empty() => Asked::TableFeatures,
        multipart::PORTS => Asked::Ports(Port(reader.u32()?)),
        multipart::PORTS_DESCRIBED => Asked::PortsDescribed,
        other => Asked::OtherMultipart(other),
    })
}
