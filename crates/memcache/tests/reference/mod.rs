//! A tiny server for the tests: a map, `guira_item::apply`, and a session, so that whole conversations can be held.
//!
//! It is as unkind to the sink as the contract allows: it writes over all the slack around a value, repeats reads, and
//! sends some values pinned.
#![allow(dead_code, reason = "every test uses its part of it")]

use std::collections::HashMap;
use std::io::IoSlice;

use guira_item::{
    Change, Clock, Current, Expiry, Get, Hit, Operation, PinnedValue, Request, Sink, Time, VALUE_SLACK_LEN, apply,
};
use guira_memcache::{
    AuthFile, Batch, Control, Counters, Credentials, Next, Output, Scratch, Session, Settings, Stats,
};

/// Values from this length on are pinned.
const PINNED_LEN_MIN: usize = 40;

/// Unix time of the tests' start, and the time ever since.
pub const STARTED_UNIX_S: u64 = 1_700_000_000;
pub const NOW: Time = Time(1000);

#[derive(Clone, Debug)]
struct Item {
    value: Vec<u8>,
    flags: u32,
    cas: u64,
    expiry: Expiry,
    fetched: bool,
    stale: bool,
    win_sent: bool,
}

/// A map with memcached's operations.
#[derive(Default)]
pub struct Map {
    items: HashMap<Vec<u8>, Item>,
    last_cas: u64,
    reads: usize,
    pub cas_disabled: bool,
}

struct Pinned(Vec<u8>);

impl PinnedValue for Pinned {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn piece(&self, offset: usize) -> &[u8] {
        &self.0[offset..self.0.len().min((offset / 16 + 1) * 16)]
    }
}

impl Map {
    pub fn execute(&mut self, requests: &[Request<'_>], first: usize, sink: &mut impl Sink) {
        for (index, request) in requests.iter().enumerate() {
            self.one(request, first + index, sink);
        }
    }

    fn one(&mut self, request: &Request<'_>, index: usize, sink: &mut impl Sink) {
        let key = request.key.as_bytes();
        self.items.retain(|_, item| !item.expiry.is_past(NOW));
        let here = self.items.get(key).cloned();
        let current = here.as_ref().map(|item| Current {
            flags: item.flags,
            cas: item.cas,
            expiry: item.expiry,
            value_len: item.value.len(),
            value: Some(&item.value),
            fetched: item.fetched,
            stale: item.stale,
            win_sent: item.win_sent,
            idle_s: 0,
            class: 1,
            total_len: self.total_len(key, item),
        });
        let next_cas = if self.cas_disabled { 0 } else { self.last_cas + 1 };
        let (change, answer) = apply(&request.operation, current.as_ref(), NOW, next_cas);
        let before = here.clone().map(|item| item.value).unwrap_or_default();
        match change {
            Change::Keep => {}
            Change::Remove => {
                self.items.remove(key);
            }
            Change::Rewrite { value, flags, expiry, stale, win_sent } => {
                self.last_cas += 1;
                let value = value.bytes_with(&before);
                let item = Item { value, flags, cas: next_cas, expiry, fetched: false, stale, win_sent };
                self.items.insert(key.to_vec(), item);
            }
            Change::Mark { expiry, stale, win_sent, new_version } => {
                let item = self.items.get_mut(key).expect("marked");
                (item.expiry, item.stale, item.win_sent) = (expiry, stale, win_sent);
                if new_version {
                    self.last_cas += 1;
                    item.cas = next_cas;
                }
            }
        }
        match (answer, &request.operation) {
            (Err(answer), _) => sink.answer(index, answer),
            (Ok(hit), Operation::Get(get)) => self.hit(key, index, get, &hit, sink),
            (Ok(_), operation) => unreachable!("a hit on {operation:?}"),
        }
    }

    fn hit(&mut self, key: &[u8], index: usize, get: &Get, hit: &Hit, sink: &mut impl Sink) {
        let item = self.items.get_mut(key).expect("hit");
        item.fetched |= get.bump;
        if !get.value {
            sink.metadata(index, hit);
            return;
        }
        if item.value.len() >= PINNED_LEN_MIN {
            sink.pinned(index, hit, Box::new(Pinned(item.value.clone())));
            return;
        }
        self.reads += 1;
        for repeat in 0..=self.reads % 3 {
            // A first try that saw something else is thrown away.
            let seen =
                if repeat == 0 && self.reads % 3 == 2 { Hit { flags: 12345, value_len: 21, ..*hit } } else { *hit };
            let room = sink.reserve(index, &seen);
            assert_eq!(room.len(), seen.value_len + 2 * VALUE_SLACK_LEN);
            room.fill(b'#');
        }
        let room = sink.reserve(index, hit);
        room.fill(b'*');
        room[VALUE_SLACK_LEN..VALUE_SLACK_LEN + item.value.len()].copy_from_slice(&item.value);
        sink.commit(index, hit);
    }

    fn total_len(&self, key: &[u8], item: &Item) -> usize {
        let cas_len = if self.cas_disabled { 0 } else { 8 };
        48 + cas_len + key.len() + 1 + if item.flags == 0 { 0 } else { 4 } + item.value.len() + 2
    }
}

/// A server for one connection.
pub struct Server {
    pub settings: Settings,
    session: Session,
    map: Map,
    scratch: Scratch,
    received: Vec<u8>,
    pub counters: Counters,
    pub sent: Vec<u8>,
    pub closed: bool,
    pub requests: usize,
    /// Answer batches in two parts, split here (modulo their length).
    pub answer_split: Option<usize>,
}

impl Server {
    pub fn new(settings: Settings) -> Self {
        let map = Map { cas_disabled: !settings.cas_enabled, ..Map::default() };
        Self {
            session: Session::new(&settings),
            settings,
            map,
            scratch: Scratch::new(),
            received: Vec::new(),
            counters: Counters::default(),
            sent: Vec::new(),
            closed: false,
            requests: 0,
            answer_split: None,
        }
    }

    /// From memcached's command line options.
    pub fn with_options(options: &str) -> Self {
        let mut settings = Settings::default();
        for option in options.split_whitespace() {
            match option {
                "-C" => settings.cas_enabled = false,
                "-F" => settings.flush_enabled = false,
                "-X" => settings.dump_enabled = false,
                "-W" => settings.watch_enabled = false,
                "-A" => settings.shutdown_enabled = true,
                "-Y" => settings.auth = Some(Credentials::new(AuthFile::parse(b"ann:secret\n").expect("valid"))),
                other => panic!("{other}"),
            }
        }
        Self::new(settings)
    }

    /// The client has sent `bytes`.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.closed {
            return;
        }
        self.received.extend_from_slice(bytes);
        let received = std::mem::take(&mut self.received);
        let mut at = 0;
        let clock = Clock::starting_at(STARTED_UNIX_S);
        let mut output = Output::new();
        loop {
            let rest = &received[at..];
            let snapshot = self.session.clone();
            let mut batch = Batch::new();
            let parsed = self.session.parse(&self.settings, &clock, NOW, rest, &self.scratch, &mut batch);
            assert!(parsed.consumed <= rest.len());
            assert!(batch.requests().len() <= guira_memcache::BATCH_LEN_MAX);
            self.requests += batch.requests().len();
            // The same bytes make the same batch again, which is how a server answers later.
            let mut again_session = snapshot;
            let mut again = Batch::new();
            let parsed_again = again_session.parse(&self.settings, &clock, NOW, rest, &self.scratch, &mut again);
            assert_eq!(parsed_again, parsed);
            let requests = batch.requests();
            assert_eq!(again.requests().len(), requests.len());
            let split = self.answer_split.map_or(requests.len(), |split| split % (requests.len() + 1));
            let mut replies = batch.replies(0, NOW, &mut output, &mut self.counters);
            self.map.execute(&requests[..split], 0, &mut replies);
            replies.finish();
            if split < requests.len() {
                let mut replies = again.replies(split, NOW, &mut output, &mut self.counters);
                self.map.execute(&requests[split..], split, &mut replies);
                replies.finish();
            }
            at += parsed.consumed;
            let _: Batch<'static> = batch.recycle();
            let _: Batch<'static> = again.recycle();
            match parsed.next {
                Next::NeedInput { total_len } => {
                    assert!(total_len > received.len() - at, "asks for what is there");
                    self.received = received[at..].to_vec();
                    break;
                }
                Next::More => {}
                Next::Control(control) => control_answer(control, &mut self.map, &mut output),
                Next::Close | Next::Hopeless(_) => {
                    self.closed = true;
                    break;
                }
            }
            self.scratch.reset();
        }
        self.scratch.reset();
        self.flush(&mut output);
    }

    fn flush(&mut self, output: &mut Output) {
        while !output.is_empty() {
            let mut slices = [IoSlice::new(&[]); 5];
            let filled = output.io_slices(&mut slices);
            let mut written = 0;
            for slice in &slices[..filled] {
                let len = slice.len().min(1000);
                self.sent.extend_from_slice(&slice[..len]);
                written += len;
                if len < slice.len() {
                    break;
                }
            }
            output.advance(written);
        }
    }
}

fn control_answer(control: Control<'_>, map: &mut Map, output: &mut Output) {
    let (text, noreply): (&[u8], bool) = match control {
        Control::Version => (b"VERSION 1.6.18\r\n", false),
        Control::FlushAll { noreply, .. } => {
            map.items.clear();
            (b"OK\r\n", noreply)
        }
        Control::Verbosity { noreply, .. } | Control::CacheMemlimit { noreply, .. } => (b"OK\r\n", noreply),
        Control::Stats(Stats::Reset) => (b"RESET\r\n", false),
        Control::Stats(Stats::DetailSwitch { .. }) => (b"OK\r\n", false),
        Control::Stats(Stats::Other(_)) => (b"ERROR\r\n", false),
        Control::Stats(_) => (b"END\r\n", false),
        Control::SlabsReassign { .. } => (b"BADCLASS invalid src or dst class id\r\n", false),
        Control::Crawler(_) | Control::Watch { .. } => (b"OK\r\n", false),
        Control::Shutdown { .. } => (b"", false),
    };
    if !noreply {
        output.push(text);
    }
}

/// A conversation from `conversations.txt`.
pub struct Conversation {
    pub title: String,
    pub options: String,
    pub input: Vec<u8>,
    pub output: Vec<u8>,
    pub closed: bool,
}

/// Reads the text of `conversations.txt`.
pub fn conversations(text: &str) -> Vec<Conversation> {
    let mut all: Vec<Conversation> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("= ") {
            let (title, options) = title.split_once(" ! ").unwrap_or((title, ""));
            all.push(Conversation {
                title: title.to_owned(),
                options: options.to_owned(),
                input: Vec::new(),
                output: Vec::new(),
                closed: false,
            });
        } else if let Some(current) = all.last_mut() {
            if let Some(input) = line.strip_prefix("> ") {
                current.input.extend(unescape(input));
            } else if let Some(output) = line.strip_prefix("< ") {
                current.output.extend(unescape(output));
            } else if line == "closed" {
                current.closed = true;
            }
        }
    }
    all
}

/// `\r`, `\n`, `\t`, `\\`, `\xNN`, and `{text*count}` for a repetition.
pub fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '\\' => {
                let escaped = rest.chars().next().expect("an escape");
                rest = &rest[1..];
                match escaped {
                    'r' => bytes.push(b'\r'),
                    'n' => bytes.push(b'\n'),
                    't' => bytes.push(b'\t'),
                    'x' => {
                        bytes.push(u8::from_str_radix(&rest[..2], 16).expect("two digits"));
                        rest = &rest[2..];
                    }
                    other => bytes.push(other as u8),
                }
            }
            '{' => {
                let (inside, behind) = rest.split_once('}').expect("a closing brace");
                let (what, count) = inside.rsplit_once('*').expect("text*count");
                bytes.extend(what.repeat(count.parse().expect("a count")).bytes());
                rest = behind;
            }
            other => bytes.extend(other.to_string().bytes()),
        }
    }
    bytes
}

/// One line for each line of `bytes`, escaped.
pub fn escape(bytes: &[u8]) -> Vec<String> {
    bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| {
            let text: String = line
                .iter()
                .map(|byte| match byte {
                    b'\\' => "\\\\".to_owned(),
                    b'\r' => "\\r".to_owned(),
                    b'\n' => "\\n".to_owned(),
                    b'\t' => "\\t".to_owned(),
                    b'{' => "\\x7b".to_owned(),
                    b' '..=b'~' => (*byte as char).to_string(),
                    other => format!("\\x{other:02x}"),
                })
                .collect();
            // A long run of one byte, as in the tests of limits, is written as a repetition.
            let Some(first) = text.bytes().rev().nth(4) else { return text };
            let run = text[..text.len() - 4].bytes().rev().take_while(|byte| *byte == first).count();
            if run < 100 {
                return text;
            }
            let start = text.len() - 4 - run;
            format!("{}{{{}*{run}}}\\r\\n", &text[..start], first as char)
        })
        .collect()
}
