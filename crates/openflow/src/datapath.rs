//! A switch of ours on one connection to a controller: what it is asked it does, and answers, in that order. The other end of [`Switch`](crate::Switch).
//!
//! ```text
//! incoming ---[ heard | not heard yet ] ---> flows, and what looks packets up
//!                          ^                   |
//!                          \--- goes on while there is room ---  outgoing
//! ```
//! Always true: what is refused is answered with an error, and all else is done; who asks for more than it reads is not heard until it has read that; flows
//! stay when the connection breaks.

use std::mem;

use guira_item::{Moment, Span};

use crate::{
    Answer, Asked, Broken, Command, DatapathId, FlowKey, FlowMod, FlowTable, Lookups, Malformed, Port, Refusal, Role,
    Said, Selection, SwitchSettings, TableId, Xid,
    answer::{PORTS_MAX, put_flows},
    keep_alive::KeepAlive,
    message::{ALL_TABLES, VERSION, kind},
    message_len,
    wire::Reader,
};

/// With so many bytes unsent nothing more is heard or said: with one more answer it is less than 256 KiB.
const UNSENT_ENOUGH: usize = 128 << 10;

/// Having looked at so many flows, others have their turn: some tens of milliseconds.
const LOOKED_AT_ENOUGH: usize = 1 << 18;

/// Bytes of a controller's packets that it is sent until it says otherwise, by the standard.
const MISS_SEND_LEN: u16 = 128;

/// A controller that has not said what it is, one that is the only one to change flows, and one that may not.
const EQUAL: u32 = 1;
const MASTER: u32 = 2;
const SLAVE: u32 = 3;

/// How a controller is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatapathConfig {
    /// Who we are.
    pub datapath: DatapathId,
    /// After so long a silence a controller is asked whether it is there.
    pub ask_after: Span,
    /// After so long a silence the connection is given up.
    pub give_up_after: Span,
}

impl DatapathConfig {
    /// That of a switch with this number.
    pub fn new(datapath: DatapathId) -> Self {
        Self { datapath, ask_after: Span::from_s(2), give_up_after: Span::from_s(6) }
    }
}

/// A switch of ours.
#[derive(Debug)]
pub struct Datapath {
    config: DatapathConfig,
    keep_alive: KeepAlive,
    is_greeted: bool,
    settings: SwitchSettings,
    role: u32,
    /// Flows that are being said.
    reading: Option<Reading>,
    incoming: Vec<u8>,
    /// Bytes of it that were heard.
    heard_len: usize,
    outgoing: Vec<u8>,
    last_xid: Xid,
}

#[derive(Debug)]
struct Reading {
    xid: Xid,
    which: Selection,
    /// The last one that was said.
    behind: Option<FlowKey>,
}

impl Datapath {
    /// One that has just called.
    pub fn new(now: Moment, config: DatapathConfig) -> Self {
        let mut datapath = Self {
            config,
            keep_alive: KeepAlive::new(now, config.ask_after, config.give_up_after),
            is_greeted: false,
            settings: SwitchSettings { flags: 0, miss_send_len: MISS_SEND_LEN },
            role: EQUAL,
            reading: None,
            incoming: Vec::new(),
            heard_len: 0,
            outgoing: Vec::new(),
            last_xid: Xid(0),
        };
        datapath.say(Said::Hello);
        datapath
    }

    /// Whether all that has come was heard, and there may be more.
    pub fn may_hear(&self) -> bool {
        let unheard = self.unheard();
        self.reading.is_none() && !message_len(unheard).is_ok_and(|len| len.is_some_and(|len| unheard.len() >= len))
    }

    /// What the controller says, in any pieces: so much more may be kept unheard.
    ///
    /// # Errors
    /// The connection is of no use any more.
    ///
    /// # Panics
    /// It [may not be heard](Self::may_hear) now.
    pub fn hear<L: Lookups>(&mut self, now: Moment, bytes: &[u8], flows: &mut FlowTable<L>) -> Result<(), Broken> {
        assert!(self.may_hear(), "what has come before is not heard yet");
        self.keep_alive.heard(now);
        self.incoming.drain(..mem::take(&mut self.heard_len));
        self.incoming.extend_from_slice(bytes);
        self.go_on(flows)
    }

    /// Time has passed, or something was sent. What has come by now is to be heard before, and what can be sent is to be.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn tick<L: Lookups>(&mut self, now: Moment, flows: &mut FlowTable<L>) -> Result<(), Broken> {
        if self.may_hear() {
            if self.keep_alive.is_to_ask(now)? {
                self.say(Said::EchoRequest);
            }
        } else if !self.may_say() && now >= self.keep_alive.give_up_at() {
            return Err(Broken::Deaf);
        }
        self.go_on(flows)
    }

    /// When it is to be ticked.
    pub fn wake_at(&self) -> Moment {
        match (self.may_hear(), self.may_say()) {
            (true, _) => self.keep_alive.wake_at(),
            // At once.
            (false, true) => Moment::from_ns(0),
            (false, false) => self.keep_alive.give_up_at(),
        }
    }

    /// What is to be sent.
    pub fn outgoing(&self) -> &[u8] {
        &self.outgoing
    }

    /// So many bytes of it were.
    pub fn sent(&mut self, now: Moment, len: usize) {
        if len > 0 && !self.may_hear() {
            // That it reads is all that can be known of it meanwhile.
            self.keep_alive.heard(now);
        }
        self.outgoing.drain(..len.min(self.outgoing.len()));
    }

    fn unheard(&self) -> &[u8] {
        &self.incoming[self.heard_len..]
    }

    fn may_say(&self) -> bool {
        self.outgoing.len() < UNSENT_ENOUGH
    }

    fn say(&mut self, said: Said<'_>) {
        self.last_xid = Xid(self.last_xid.0.wrapping_add(1));
        said.put(self.last_xid, &mut self.outgoing);
    }

    /// Says and hears what comes next, while there is room for what is said.
    fn go_on<L: Lookups>(&mut self, flows: &mut FlowTable<L>) -> Result<(), Broken> {
        let incoming = mem::take(&mut self.incoming);
        let heard = self.go_on_with(&incoming, flows);
        self.incoming = incoming;
        heard
    }

    fn go_on_with<L: Lookups>(&mut self, incoming: &[u8], flows: &mut FlowTable<L>) -> Result<(), Broken> {
        let mut looked_at = 0;
        while self.may_say() && looked_at < LOOKED_AT_ENOUGH {
            if let Some(reading) = self.reading.take() {
                looked_at += self.go_on_reading(reading, flows);
                continue;
            }
            let rest = &incoming[self.heard_len..];
            let Some(message) = message_len(rest)?.and_then(|len| rest.get(..len)) else { break };
            self.heard_len += message.len();
            looked_at += self.heed(message, flows)?;
        }
        Ok(())
    }

    /// Says the next part of flows; how many it has looked at.
    fn go_on_reading<L: Lookups>(&mut self, reading: Reading, flows: &FlowTable<L>) -> usize {
        let Reading { xid, which, behind } = reading;
        let mut looked_at = 0;
        let selected = flows
            .flows(behind)
            .inspect(|_| looked_at += 1)
            .filter(|(key, cookie, actions)| which.takes(key, *cookie, actions));
        let behind = put_flows(xid, &mut self.outgoing, selected);
        self.reading = behind.is_some().then_some(Reading { xid, which, behind });
        looked_at
    }

    /// Does what a message says; how many flows it has looked at.
    fn heed<L: Lookups>(&mut self, message: &[u8], flows: &mut FlowTable<L>) -> Result<usize, Broken> {
        let done = match Asked::take(message) {
            Ok((xid, asked)) => {
                self.greet(&asked)?;
                self.answer(xid, asked, flows)
            }
            Err(Malformed) if !self.is_greeted => return Err(Broken::Malformed),
            Err(Malformed) if message[0] != VERSION => Err(Refusal::BAD_VERSION),
            Err(Malformed) => Err(Refusal::BAD_LEN),
        };
        // An error is not answered: that could go on for ever.
        if let Err(refusal) = done
            && message[1] != kind::ERROR
        {
            Answer::Error(refusal, message).put(xid(message), &mut self.outgoing);
        }
        Ok(done.unwrap_or(1))
    }

    /// Whether the controller has said hello.
    pub(crate) fn is_greeted(&self) -> bool {
        self.is_greeted
    }

    /// A hello comes first.
    fn greet(&mut self, asked: &Asked<'_>) -> Result<(), Broken> {
        match asked {
            _ if self.is_greeted => Ok(()),
            Asked::Hello { speaks_ours: true } => {
                self.is_greeted = true;
                Ok(())
            }
            Asked::Hello { speaks_ours: false } => {
                self.say(Said::HelloFailed);
                Err(Broken::Version)
            }
            // Of "hello failed".
            Asked::Error(Refusal { kind: 0, .. }) => Err(Broken::Version),
            _ => Err(Broken::OutOfTurn),
        }
    }

    fn answer<L: Lookups>(&mut self, xid: Xid, asked: Asked<'_>, flows: &mut FlowTable<L>) -> Result<usize, Refusal> {
        let mut looked_at = 1;
        let into = &mut self.outgoing;
        match asked {
            Asked::Hello { .. } | Asked::Error(_) | Asked::EchoReply => {}
            Asked::EchoRequest(data) => Said::EchoReply(data).put(xid, into),
            Asked::Features => Answer::Features(self.config.datapath).put(xid, into),
            Asked::Config => Answer::Config(self.settings).put(xid, into),
            Asked::SetConfig(settings) if settings.flags == 0 => self.settings = settings,
            Asked::SetConfig(_) => return Err(Refusal::BAD_CONFIG_FLAGS),
            Asked::Flow(asked) => {
                if matches!(asked.command, Some(Command::Modify | Command::Delete)) {
                    looked_at += flows.len();
                }
                change(&asked, flows)?;
            }
            Asked::Barrier => Answer::Barrier.put(xid, into),
            Asked::Description => Answer::Description.put(xid, into),
            Asked::Flows { table: TableId::FIRST | ALL_TABLES, which } => {
                let which = which.ok_or(Refusal::BAD_FIELD)?;
                self.reading = Some(Reading { xid, which, behind: None });
            }
            Asked::Flows { .. } => return Err(Refusal::NO_SUCH_TABLE),
            Asked::Tables => Answer::Table(flows.stats()).put(xid, into),
            Asked::TableFeatures => Answer::TableFeatures { flows_max: flows.flows_max() }.put(xid, into),
            Asked::Ports(asked) => {
                let mut ports = flows.lookups().ports();
                if asked != Port::ANY {
                    ports.retain(|port| port.stats.port == asked);
                    if ports.is_empty() {
                        return Err(Refusal::NO_SUCH_PORT);
                    }
                }
                ports.truncate(PORTS_MAX);
                Answer::Ports(&ports).put(xid, into);
            }
            Asked::PortsDescribed => {
                let mut ports = flows.lookups().ports();
                ports.truncate(PORTS_MAX);
                Answer::PortsDescribed(&ports).put(xid, into);
            }
            Asked::Role(Role { role, generation }) => {
                match role {
                    0 => {}
                    EQUAL | MASTER => self.role = role,
                    SLAVE => return Err(Refusal::UNSUPPORTED_ROLE),
                    _ => return Err(Refusal::BAD_ROLE),
                }
                Answer::Role(Role { role: self.role, generation }).put(xid, into);
            }
            Asked::OtherMultipart(_) => return Err(Refusal::BAD_MULTIPART),
            Asked::Other(_) => return Err(Refusal::BAD_KIND),
        }
        Ok(looked_at)
    }
}

/// The number of a message of whatever kind.
fn xid(message: &[u8]) -> Xid {
    let mut reader = Reader::new(message);
    Xid(reader.skip(4).and_then(|()| reader.u32()).unwrap_or(0))
}

/// Changes flows as is asked.
fn change<L: Lookups>(asked: &FlowMod, flows: &mut FlowTable<L>) -> Result<(), Refusal> {
    let command = asked.command.ok_or(Refusal::BAD_COMMAND)?;
    let deletes = matches!(command, Command::Delete | Command::DeleteStrict);
    if asked.table != TableId::FIRST && !(deletes && asked.table == ALL_TABLES) {
        return Err(Refusal::NO_TABLE_FOR_FLOW);
    }
    let which = asked.which.ok_or(Refusal::BAD_FIELD)?;
    if deletes {
        flows.delete(&which, (command == Command::DeleteStrict).then_some(asked.priority));
        return Ok(());
    }
    let actions = asked.actions.ok_or(Refusal::UNSUPPORTED_ACTION)?;
    // There is none behind it.
    if actions.next_table.is_some() {
        return Err(Refusal::NO_NEXT_TABLE);
    }
    if asked.has_buffer {
        return Err(Refusal::NO_SUCH_BUFFER);
    }
    if command != Command::Add {
        // Where they lead does not count: they are to lead elsewhere.
        let which = Selection { to: None, to_group: false, ..which };
        return flows.modify(&which, (command == Command::ModifyStrict).then_some(asked.priority), actions);
    }
    if asked.is_temporary {
        return Err(Refusal::BAD_TIMEOUT);
    }
    if asked.tells_removal || asked.checks_overlap {
        return Err(Refusal::BAD_FLOW_FLAGS);
    }
    // It is not in the table's features.
    if which.matched.in_port.is_some() {
        return Err(Refusal::BAD_FIELD);
    }
    if !which.matched.is_whole() {
        return Err(Refusal::LACKS_FIELDS);
    }
    flows.add(
        asked.cookie,
        FlowKey { table: TableId::FIRST, priority: asked.priority, matched: which.matched },
        actions,
    )
}

#[cfg(test)]
#[path = "datapath_tests.rs"]
mod tests;
