//! One switch on one connection: what it is to have, what it has, and what it is told so that both are the same.
//!
//! ```text
//! hello -> features -> (admitted) -> which flows are there? -> [a batch of updates, barrier] -> heard -> the next batch
//!                      ^                                                          |
//!                      \---- nothing waits, and it was long ago ------------------/
//! ```
//! A batch is done when its barrier is answered, but for what was refused by then. What a switch refuses is not wanted of it any more, and told: for want of
//! room, or because it cannot do it.
//! Always true: there is one batch, or one reading, on its way at a time, so that what is read is what all batches have made; an update that is
//! overtaken by another of its key before it was told is not told; a connection on which nothing comes for too long, or nothing is read, is broken.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, mem,
};

use guira_item::{Moment, Span};

use crate::{
    Actions, Cookie, DatapathId, FlowKey, Heard, Malformed, PortStats, Refusal, Said, TableStats, Xid,
    keep_alive::KeepAlive, message_len, rate::Rate,
};

/// What is said that a switch has not read, at most, in bytes: some batches.
const UNREAD_MAX: usize = 1 << 20;

/// When flows are read again if it is in doubt whether an update was made.
const READ_AGAIN_IN_DOUBT: Span = Span::from_s(1);

/// Keys that may wait beyond what keeps them waiting, before they are looked through.
const WAITING_IN_VAIN_MAX: usize = 1_024;

/// Ports of a switch, and tables, that are told of at most.
const STATS_MAX: usize = 4_096;

/// How a switch is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchConfig {
    /// Marks our flows: others' are left alone.
    pub cookie: Cookie,
    /// Flows of this priority that a switch has and is not to have are left to it, until [`Switch::spare_none`]: for who does not know yet which it is to
    /// have.
    pub spares: Option<u16>,
    /// Flows of this priority are told after all others that a switch lacks when it has called: it does without them.
    pub last: Option<u16>,
    /// Updates of a batch, at most: 1 to 4,096.
    pub batch_max: usize,
    /// Flows of ours that a switch may say it has, at most: with more it is not one of ours.
    pub flows_max: usize,
    /// How long after flows were read they are read again, once nothing is to be told: somebody may have changed them.
    pub read_again_after: Span,
    /// After so long a silence a switch is asked whether it is there.
    pub ask_after: Span,
    /// After so long a silence the connection is given up; and so is one on which a batch, or the next flow of a reading, takes ten times as long.
    pub give_up_after: Span,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            cookie: Cookie(0x6775_6972_6100_0001),
            spares: None,
            last: None,
            batch_max: 256,
            flows_max: 1 << 20,
            read_again_after: Span::from_s(30),
            ask_after: Span::from_s(2),
            give_up_after: Span::from_s(6),
        }
    }
}

/// Why a connection is of no use any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// What came is no OpenFlow 1.3.
    Malformed,
    /// It speaks no OpenFlow 1.3.
    Version,
    /// Something else came than what was asked for.
    OutOfTurn,
    /// Nothing has come for too long.
    Silent,
    /// What it was asked is not done for too long.
    Stuck,
    /// It does not read what it is told.
    Deaf,
    /// It has more flows of ours than there may be.
    TooManyFlows,
    /// It is a connection beside the main one, of which we make no use.
    Auxiliary,
    /// A switch of the same number has called since.
    Replaced,
    /// It is none of the switches of which it is known how they are joined.
    Unexpected,
    /// It does not say which flows it has.
    Unreadable(Refusal),
}

impl From<Malformed> for Broken {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => write!(f, "{Malformed}"),
            Self::Version => f.write_str("it speaks no OpenFlow 1.3 (ovs-vsctl set bridge NAME protocols=OpenFlow13)"),
            Self::OutOfTurn => f.write_str("it answers what it was not asked"),
            Self::Silent => f.write_str("it has fallen silent"),
            Self::Stuck => f.write_str("it does not get done what it is told"),
            Self::Deaf => f.write_str("it does not read what it is told"),
            Self::TooManyFlows => f.write_str("it has more flows with our cookie than there may be"),
            Self::Auxiliary => f.write_str("it is an auxiliary connection, and we take main ones only"),
            Self::Replaced => f.write_str("a switch of the same datapath id has called since"),
            Self::Unexpected => f.write_str("it is none of those that the cluster's file names ([[network.switch]])"),
            Self::Unreadable(Refusal { kind, code }) => {
                write!(f, "it does not say which flows it has (error {kind}.{code})")
            }
        }
    }
}

impl std::error::Error for Broken {}

/// What is told of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// Who it is; nothing is asked of it before it is [admitted](Switch::admit).
    Known(DatapathId),
    /// What it had was read: so many flows of ours, of which so many are not as they are to be or missing.
    Read {
        /// Flows that it had.
        flows: usize,
        /// Those that are told anew, or taken back.
        differing: usize,
    },
    /// It does not take a flow, which is not wanted of it any more.
    Refused(FlowKey, Refusal),
    /// It takes about so many updates a second, as was seen when there were enough; not said again until that has become another number by an eighth.
    Takes {
        /// Updates a second, at least one.
        updates_per_s: u32,
    },
    /// It has come to have all that it is to have, as far as it was told and read; not said again until something is to be told anew.
    Settled,
}

/// Numbers about a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwitchCounts {
    /// Flows that it was told to have.
    pub adds: u64,
    /// Flows that it was told not to have.
    pub deletions: u64,
    /// Batches of them.
    pub batches: u64,
    /// Flows that it has refused.
    pub refused: u64,
    /// Times that its flows were read.
    pub readings: u64,
    /// Flows that were found otherwise than they were last told, or missing, or too many.
    pub differing: u64,
    /// Errors about what is no flow, and messages that mean nothing here.
    pub ignored: u64,
}

/// How a switch is.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SwitchStatus {
    /// Who it is, once it has said so.
    pub datapath: Option<DatapathId>,
    /// Flows that it is to have.
    pub wanted: usize,
    /// Flows that it has.
    pub made: usize,
    /// Flows that are still to be told, or taken back.
    pub waiting: usize,
    /// Updates a second that it was seen to take.
    pub updates_per_s: Option<f64>,
    /// Numbers.
    pub counts: SwitchCounts,
    /// Its tables that have something in them.
    pub tables: Vec<TableStats>,
    /// Its ports.
    pub ports: Vec<PortStats>,
}

/// A switch.
#[derive(Debug)]
pub struct Switch {
    config: SwitchConfig,
    stage: Stage,
    datapath: Option<DatapathId>,
    wanted: BTreeMap<FlowKey, Actions>,
    made: BTreeMap<FlowKey, Actions>,
    /// Keys of which what is wanted may differ from what is there, in the order in which that came up; each is once in both, or in none.
    waiting: VecDeque<FlowKey>,
    is_waiting: BTreeSet<FlowKey>,
    is_settled: bool,
    /// It has refused to take a flow away, or has said too late what it refuses: it may have what is not wanted.
    is_in_doubt: bool,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    last_xid: Xid,
    keep_alive: KeepAlive,
    read_at: Moment,
    rate: Rate,
    /// What was told of that last.
    told_per_s: u32,
    counts: SwitchCounts,
    tables: Vec<TableStats>,
    ports: Vec<PortStats>,
}

/// What is waited for.
#[derive(Debug)]
enum Stage {
    Hello { since: Moment },
    Features { since: Moment },
    Known { since: Moment },
    Flows(Reading),
    Tables(Reading),
    Ports(Reading),
    Batch(Batch),
    Nothing,
}

#[derive(Debug)]
struct Reading {
    xid: Xid,
    since: Moment,
    flows: BTreeMap<FlowKey, Actions>,
    /// Flows that were said, the same ones again included.
    said: usize,
    /// Flows of ours that we could not have made.
    foreign: usize,
}

#[derive(Debug)]
struct Batch {
    since: Moment,
    /// Of the first update; the others' follow.
    first: Xid,
    /// What is to be there once it is done, and whether it was refused.
    updates: Vec<(FlowKey, Option<Actions>, Option<Refusal>)>,
    barrier: Xid,
}

impl Switch {
    /// One that has just called. It is to have these flows, in the end.
    ///
    /// # Panics
    /// [`SwitchConfig::batch_max`] is none, or so long that a batch is more than a switch is left to read.
    pub fn new(now: Moment, config: SwitchConfig, wanted: BTreeMap<FlowKey, Actions>) -> Self {
        assert!((1..=4_096).contains(&config.batch_max), "batches of {}", config.batch_max);
        let mut switch = Self {
            config,
            stage: Stage::Hello { since: now },
            datapath: None,
            wanted,
            made: BTreeMap::new(),
            waiting: VecDeque::new(),
            is_waiting: BTreeSet::new(),
            is_settled: false,
            is_in_doubt: false,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            last_xid: Xid(0),
            keep_alive: KeepAlive::new(now, config.ask_after, config.give_up_after),
            read_at: now,
            rate: Rate::default(),
            told_per_s: 0,
            counts: SwitchCounts::default(),
            tables: Vec::new(),
            ports: Vec::new(),
        };
        switch.say(Said::Hello);
        switch
    }

    /// It is one of those that are spoken to, now that it is known; these flows, too, it is to have in the end.
    pub fn admit(&mut self, now: Moment, own: impl IntoIterator<Item = (FlowKey, Actions)>) {
        if let Stage::Known { .. } = self.stage {
            self.wanted.extend(own);
            let reading = self.read(now, Said::AskFlows(self.config.cookie));
            self.stage = Stage::Flows(reading);
        }
    }

    /// A flow is to be there, or to do something else than it did: told at the next [`tick`](Self::tick), or as soon as what is under way is done.
    pub fn want(&mut self, key: FlowKey, actions: Actions) {
        if self.wanted.insert(key, actions) != Some(actions) {
            self.look_at(key);
        }
    }

    /// A flow is not to be there. See [`want`](Self::want).
    pub fn unwant(&mut self, key: FlowKey) {
        if self.wanted.remove(&key).is_some() {
            self.look_at(key);
        }
    }

    /// It is to have no flows from now on but those that are wanted.
    pub fn spare_none(&mut self) {
        if let Some(priority) = self.config.spares.take() {
            let spared = self.made.keys().filter(|key| key.priority == priority && !self.wanted.contains_key(key));
            let spared: Vec<FlowKey> = spared.copied().collect();
            spared.into_iter().for_each(|key| self.look_at(key));
        }
    }

    /// What the switch says, in any pieces. What is to be told of that goes into `told`.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn hear(&mut self, now: Moment, bytes: &[u8], told: &mut Vec<Told>) -> Result<(), Broken> {
        self.keep_alive.heard(now);
        self.incoming.extend_from_slice(bytes);
        let incoming = mem::take(&mut self.incoming);
        let mut rest = &incoming[..];
        while let Some(len) = message_len(rest)?
            && let Some((message, behind)) = rest.split_at_checked(len)
        {
            let (xid, heard) = Heard::take(message)?;
            self.heed(now, xid, heard, told)?;
            rest = behind;
        }
        // The rest of a message is shorter than the longest message: what is kept is bounded.
        self.incoming = rest.to_vec();
        self.go_on(now);
        self.tell_if_settled(told);
        if self.outgoing.len() > UNREAD_MAX { Err(Broken::Deaf) } else { Ok(()) }
    }

    /// Time has passed, or there is something to be told. What has come by now is to be heard before.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn tick(&mut self, now: Moment, told: &mut Vec<Told>) -> Result<(), Broken> {
        if self.keep_alive.is_to_ask(now)? {
            self.say(Said::EchoRequest);
        }
        if self.since().is_some_and(|since| now.since(since) >= self.config.give_up_after.times(10)) {
            return Err(Broken::Stuck);
        }
        self.go_on(now);
        self.tell_if_settled(told);
        Ok(())
    }

    /// When flows are to be read again, once nothing else is under way.
    fn read_again_at(&self) -> Moment {
        let after = self.config.read_again_after;
        self.read_at + if self.is_in_doubt { after.min(READ_AGAIN_IN_DOUBT) } else { after }
    }

    /// When it is to be ticked.
    pub fn wake_at(&self) -> Moment {
        let stuck = self.since().map(|since| since + self.config.give_up_after.times(10));
        let reading = matches!(self.stage, Stage::Nothing).then(|| self.read_again_at());
        stuck.into_iter().chain(reading).fold(self.keep_alive.wake_at(), Moment::min)
    }

    /// What is to be sent.
    pub fn outgoing(&self) -> &[u8] {
        &self.outgoing
    }

    /// So many bytes of it were.
    pub fn sent(&mut self, len: usize) {
        self.outgoing.drain(..len.min(self.outgoing.len()));
    }

    /// Who it is, once it has said so.
    pub fn datapath(&self) -> Option<DatapathId> {
        self.datapath
    }

    /// How it is.
    pub fn status(&self) -> SwitchStatus {
        SwitchStatus {
            datapath: self.datapath,
            wanted: self.wanted.len(),
            made: self.made.len(),
            waiting: self.is_waiting.len(),
            updates_per_s: self.rate.per_s(),
            counts: self.counts,
            tables: self.tables.clone(),
            ports: self.ports.clone(),
        }
    }

    /// Since when something is waited for.
    fn since(&self) -> Option<Moment> {
        match &self.stage {
            Stage::Hello { since } | Stage::Features { since } | Stage::Known { since } => Some(*since),
            Stage::Batch(Batch { since, .. }) => Some(*since),
            Stage::Flows(reading) | Stage::Tables(reading) | Stage::Ports(reading) => Some(reading.since),
            Stage::Nothing => None,
        }
    }

    fn say(&mut self, said: Said<'_>) -> Xid {
        self.last_xid = Xid(self.last_xid.0.wrapping_add(1));
        said.put(self.last_xid, &mut self.outgoing);
        self.last_xid
    }

    fn look_at(&mut self, key: FlowKey) {
        self.is_settled = false;
        if self.is_waiting.insert(key) {
            self.waiting.push_back(key);
            if self.waiting.len() > 2 * (self.wanted.len() + self.made.len()) + WAITING_IN_VAIN_MAX {
                self.drop_who_waits_in_vain();
            }
        }
    }

    /// What was wanted for a while, and was not told, need not be looked at.
    fn drop_who_waits_in_vain(&mut self) {
        let updates = if let Stage::Batch(Batch { updates, .. }) = &self.stage { &updates[..] } else { &[] };
        let is_told: BTreeSet<FlowKey> = updates.iter().map(|(key, ..)| *key).collect();
        let Self { wanted, made, is_waiting, .. } = self;
        self.waiting.retain(|key| {
            let is_there = wanted.contains_key(key) || made.contains_key(key) || is_told.contains(key);
            is_there || !is_waiting.remove(key)
        });
    }

    fn heed(&mut self, now: Moment, xid: Xid, heard: Heard<'_>, told: &mut Vec<Told>) -> Result<(), Broken> {
        match heard {
            Heard::EchoRequest(data) => Said::EchoReply(data).put(xid, &mut self.outgoing),
            Heard::EchoReply => {}
            Heard::Hello { speaks_ours } => match self.stage {
                Stage::Hello { .. } if speaks_ours => {
                    self.say(Said::FeaturesRequest);
                    self.stage = Stage::Features { since: now };
                }
                Stage::Hello { .. } => {
                    self.say(Said::HelloFailed);
                    return Err(Broken::Version);
                }
                _ => return Err(Broken::OutOfTurn),
            },
            Heard::Features { is_main: false, .. } => return Err(Broken::Auxiliary),
            Heard::Features { datapath, .. } => {
                let Stage::Features { .. } = self.stage else { return Err(Broken::OutOfTurn) };
                self.datapath = Some(datapath);
                told.push(Told::Known(datapath));
                self.stage = Stage::Known { since: now };
            }
            Heard::Error(refusal) => self.on_error(xid, refusal)?,
            Heard::Flows(flows, is_last) => self.on_flows(now, xid, flows, is_last.0, told)?,
            Heard::Tables(tables, is_last) => match &self.stage {
                Stage::Tables(reading) if reading.xid == xid => {
                    let room = STATS_MAX - self.tables.len();
                    self.tables.extend(tables.into_iter().filter(|table| table.flows > 0).take(room));
                    if is_last.0 {
                        self.ports.clear();
                        let reading = self.read(now, Said::AskPorts);
                        self.stage = Stage::Ports(reading);
                    }
                }
                _ => return Err(Broken::OutOfTurn),
            },
            Heard::Ports(ports, is_last) => match &self.stage {
                Stage::Ports(reading) if reading.xid == xid => {
                    let room = STATS_MAX - self.ports.len();
                    self.ports.extend(ports.into_iter().take(room));
                    if is_last.0 {
                        self.stage = Stage::Nothing;
                    }
                }
                _ => return Err(Broken::OutOfTurn),
            },
            Heard::Barrier => match mem::replace(&mut self.stage, Stage::Nothing) {
                Stage::Batch(batch) if batch.barrier == xid => self.on_batch(now, batch, told),
                _ => return Err(Broken::OutOfTurn),
            },
            Heard::Other(_) => self.counts.ignored += 1,
        }
        Ok(())
    }

    fn on_error(&mut self, xid: Xid, refusal: Refusal) -> Result<(), Broken> {
        match &mut self.stage {
            // Of "hello failed".
            Stage::Hello { .. } | Stage::Features { .. } if refusal.kind == 0 => return Err(Broken::Version),
            Stage::Flows(reading) if reading.xid == xid => return Err(Broken::Unreadable(refusal)),
            // It keeps no statistics: then there are none.
            Stage::Tables(reading) | Stage::Ports(reading) if reading.xid == xid => self.stage = Stage::Nothing,
            Stage::Batch(batch) => {
                let at = xid.0.wrapping_sub(batch.first.0) as usize;
                match batch.updates.get_mut(at) {
                    Some((_, _, refused)) => *refused = Some(refusal),
                    None => self.on_late_error(),
                }
            }
            _ => self.on_late_error(),
        }
        Ok(())
    }

    /// It may be about a batch that was taken for done.
    fn on_late_error(&mut self) {
        self.counts.ignored += 1;
        (self.is_in_doubt, self.is_settled) = (true, false);
    }

    fn on_flows(
        &mut self,
        now: Moment,
        xid: Xid,
        flows: Vec<Option<(FlowKey, Actions)>>,
        is_last: bool,
        told: &mut Vec<Told>,
    ) -> Result<(), Broken> {
        let Stage::Flows(reading) = &mut self.stage else { return Err(Broken::OutOfTurn) };
        if reading.xid != xid {
            return Err(Broken::OutOfTurn);
        }
        if !flows.is_empty() {
            // It gets on.
            reading.since = now;
        }
        reading.said += flows.len();
        if reading.said > self.config.flows_max {
            return Err(Broken::TooManyFlows);
        }
        reading.foreign += flows.iter().filter(|flow| flow.is_none()).count();
        reading.flows.extend(flows.into_iter().flatten());
        if !is_last {
            return Ok(());
        }
        let (read, foreign) = (mem::take(&mut reading.flows), reading.foreign);
        let differs = |key: &&FlowKey| read.get(key) != self.made.get(key);
        // What was lost, changed or put there by others, since it was last told or read.
        let lost =
            self.made.keys().filter(differs).count() + read.keys().filter(|key| !self.made.contains_key(key)).count();
        let flows = read.len() + foreign;
        // What we cannot say we cannot take back one by one: an earlier build's, perhaps.
        self.made = if foreign == 0 { read } else { BTreeMap::new() };
        let missing = self.wanted.iter().filter(|(key, actions)| self.made.get(key) != Some(actions));
        let mut missing: Vec<FlowKey> = missing.map(|(key, _)| *key).collect();
        // What leads to another table comes after what is there, and what is of all else after what is of some.
        missing.sort_by_key(|key| (self.config.last == Some(key.priority), Reverse(key.table), Reverse(key.priority)));
        let is_spared = |key: &&FlowKey| self.config.spares == Some(key.priority);
        let unwanted = self.made.keys().filter(|key| !self.wanted.contains_key(key) && !is_spared(key));
        // Where there is no room for both, what is not wanted goes first.
        let keys: Vec<FlowKey> = unwanted.copied().chain(missing).collect();
        let differing = keys.len() + foreign;
        self.counts.readings += 1;
        if self.counts.readings > 1 {
            self.counts.differing += lost as u64;
        }
        told.push(Told::Read { flows, differing });
        keys.into_iter().for_each(|key| self.look_at(key));
        (self.read_at, self.is_in_doubt) = (now, false);
        if foreign > 0 {
            self.say(Said::DeleteAll(self.config.cookie));
            self.send(now, Vec::new());
            return Ok(());
        }
        self.tables.clear();
        let reading = self.read(now, Said::AskTables);
        self.stage = Stage::Tables(reading);
        Ok(())
    }

    fn on_batch(&mut self, now: Moment, batch: Batch, told: &mut Vec<Told>) {
        if batch.updates.len() == self.config.batch_max {
            // There was as much to tell as could be told: it is the switch that took its time.
            self.rate.saw(batch.updates.len(), now.since(batch.since));
            self.tell_rate(told);
        }
        for (key, actions, refused) in batch.updates {
            match (actions, refused) {
                (Some(actions), None) => _ = self.made.insert(key, actions),
                (None, None) => _ = self.made.remove(&key),
                (Some(actions), Some(refusal)) => {
                    self.counts.refused += 1;
                    // It may be wanted otherwise by now, which may be taken.
                    if self.wanted.get(&key) == Some(&actions) {
                        self.wanted.remove(&key);
                        // What was there before is, still.
                        self.look_at(key);
                        told.push(Told::Refused(key, refusal));
                    }
                }
                // It is as it was, as far as anybody knows, until flows are read again.
                (None, Some(_)) => {
                    self.counts.refused += 1;
                    self.is_in_doubt = true;
                }
            }
        }
    }

    fn read(&mut self, now: Moment, ask: Said<'_>) -> Reading {
        Reading { xid: self.say(ask), since: now, flows: BTreeMap::new(), said: 0, foreign: 0 }
    }

    /// Begins what comes next, if nothing is under way.
    fn go_on(&mut self, now: Moment) {
        let Stage::Nothing = self.stage else { return };
        let is_due = now >= self.read_again_at();
        // While there is always something to be told, what was lost is found later, and not never.
        if is_due && (self.waiting.is_empty() || now.since(self.read_at) >= self.config.read_again_after.times(10)) {
            let reading = self.read(now, Said::AskFlows(self.config.cookie));
            self.stage = Stage::Flows(reading);
            return;
        }
        let mut updates = Vec::new();
        while updates.len() < self.config.batch_max
            && let Some(key) = self.waiting.pop_front()
        {
            self.is_waiting.remove(&key);
            let wanted = self.wanted.get(&key).copied();
            if wanted != self.made.get(&key).copied() {
                updates.push((key, wanted, None));
            }
        }
        if !updates.is_empty() {
            // What makes room first.
            updates.sort_by_key(|(_, actions, _)| actions.is_some());
            self.send(now, updates);
        }
    }

    fn send(&mut self, now: Moment, updates: Vec<(FlowKey, Option<Actions>, Option<Refusal>)>) {
        let first = Xid(self.last_xid.0.wrapping_add(1));
        for (key, actions, _) in &updates {
            match actions {
                Some(actions) => {
                    self.counts.adds += 1;
                    self.say(Said::Add(self.config.cookie, *key, *actions));
                }
                None => {
                    self.counts.deletions += 1;
                    self.say(Said::Delete(self.config.cookie, *key));
                }
            }
        }
        self.counts.batches += 1;
        let barrier = self.say(Said::Barrier);
        self.stage = Stage::Batch(Batch { since: now, first, updates, barrier });
    }

    fn tell_rate(&mut self, told: &mut Vec<Told>) {
        let Some(updates_per_s) = self.rate.per_s().map(|per_s| (per_s as u32).max(1)) else { return };
        if updates_per_s.abs_diff(self.told_per_s) > self.told_per_s / 8 {
            self.told_per_s = updates_per_s;
            told.push(Told::Takes { updates_per_s });
        }
    }

    fn tell_if_settled(&mut self, told: &mut Vec<Told>) {
        let has_nothing_to_do = matches!(self.stage, Stage::Nothing) && self.is_waiting.is_empty();
        if has_nothing_to_do && !self.is_in_doubt && !self.is_settled {
            self.is_settled = true;
            told.push(Told::Settled);
        }
    }
}

#[cfg(test)]
#[path = "switch_tests.rs"]
mod tests;
