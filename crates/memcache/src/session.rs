//! A connection's side of the protocol: which one it is, what it still has to pass over, whether it may talk at all, and the way
//! from bytes to requests.
//!
//! Always true: a command is carried out whole or not at all; while one is incomplete the session keeps nothing of it but
//! how far the search for its line end came.

use guira_cpwire::Malformed;
use guira_item::{ArithmeticMode, Clock, StoreMode, Time};
use memchr::memchr;

use crate::command::{Context, Line, Reading, Step};
use crate::cp::{self, After};
use crate::error_lines::{ERROR, NO_BINARY};
use crate::storage::LINE_END;
use crate::tokens::{Tokens, parse_u32, word_end, words};
use crate::{Batch, Control, Dialect, Scratch, Settings, administration, meta, mutation, retrieval, storage};

/// The longest line of a get, in bytes: as much as the largest item, which the input buffer must hold anyway.
pub const LINE_LEN_MAX: usize = 1 << 20;

/// The longest line of any other command, in bytes: memcached's read buffer.
const SHORT_LINE_LEN_MAX: usize = 16 << 10;

/// Without a line end after so many bytes only a get may go on (memcached's bound).
const UNENDED_LEN_MAX: usize = 2048;

/// Spaces that may stand before such a get.
const UNENDED_SPACES_MAX: usize = 100;

/// The longest value that is taken for a user's name and password: what fits into memcached's read buffer.
const SECRET_LEN_MAX: usize = SHORT_LINE_LEN_MAX - LINE_END.len();

/// First byte of the binary protocol.
const BINARY_MAGIC: u8 = 0x80;

/// One connection's protocol state. A clone of it, given the same bytes, makes the same batch again.
#[derive(Clone, Debug)]
pub struct Session {
    dialect: Dialect,
    stage: Stage,
    /// Bytes at the front of the next input that hold no line end.
    searched_len: usize,
    /// There is no memory to wait for the rest of a value.
    refuses_unfinished: bool,
}

/// What is left of a multiget that was too long for one batch: its line is not searched again for its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rest {
    reading: Reading,
    /// Bytes of the keys that are left.
    text_len: usize,
    /// Bytes to the end of the line and with it.
    whole_len: usize,
}

/// What the next bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The first byte of the connection.
    Fresh,
    /// A command.
    Command,
    /// A request of CPSERVER's.
    CpRequest,
    /// More keys of a multiget, up to the end of its line.
    Keys(Rest),
    /// So many bytes to be passed over.
    Swallow(u64),
    /// A set that shall authenticate.
    Unauthenticated,
    /// Its value, so long.
    Secret(usize),
}

/// How far parsing came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parsed<'a> {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// What to do once the batch has been answered.
    pub next: Next<'a>,
}

/// What to do once the batch has been answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next<'a> {
    /// Read: the command at `input[consumed..]` is not all there.
    NeedInput {
        /// It needs at least this many bytes from `consumed` on (exact for a value whose line has been read).
        total_len: usize,
    },
    /// Parse again what is left of the input: the batch is full.
    More,
    /// Carry this out, then parse what is left of the input.
    Control(Control<'a>),
    /// Send what there is and close the connection.
    Close,
    /// The same, for a client that cannot be understood any more.
    Hopeless(Malformed),
}

/// A search for a line end.
enum Search<'a> {
    Found(Line<'a>),
    Missing,
    Endless,
}

impl Session {
    /// A session of a client that has just connected, in memcached's protocol.
    pub fn new(settings: &Settings) -> Self {
        Self::speaking(Dialect::Memcached, settings)
    }

    /// A session of a client that has just connected.
    pub fn speaking(dialect: Dialect, settings: &Settings) -> Self {
        let stage = match dialect {
            Dialect::Memcached if settings.auth.is_some() => Stage::Unauthenticated,
            Dialect::Memcached => Stage::Fresh,
            Dialect::Cp => Stage::CpRequest,
        };
        Self { dialect, stage, searched_len: 0, refuses_unfinished: false }
    }

    /// What the client speaks.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// There is no memory for what comes next: if the next call of `parse` meets a value that is not all there, it refuses the
    /// store, and the rest of the value is passed over as it comes.
    pub fn refuse_unfinished(&mut self) {
        self.refuses_unfinished = true;
    }

    /// Parses as many whole commands as `input` holds and `batch`, which is empty, has room for. `input` begins where the
    /// last call's `consumed` ended.
    pub fn parse<'a>(
        &mut self,
        settings: &Settings,
        clock: &Clock,
        now: Time,
        input: &'a [u8],
        scratch: &'a Scratch,
        batch: &mut Batch<'a>,
    ) -> Parsed<'a> {
        let refuses_unfinished = std::mem::take(&mut self.refuses_unfinished);
        let mut context = Context { settings, clock, now, scratch, batch, refuses_unfinished };
        let mut consumed = 0;
        loop {
            if context.batch.is_full() {
                return Parsed { consumed, next: Next::More };
            }
            let (step_len, next) = self.step(&mut context, &input[consumed..]);
            consumed += step_len;
            if let Some(next) = next {
                return Parsed { consumed, next };
            }
        }
    }

    /// Takes the next thing from `input`: the bytes done with, and how to go on if not with the next thing.
    #[inline]
    fn step<'a>(&mut self, context: &mut Context<'_, 'a>, input: &'a [u8]) -> (usize, Option<Next<'a>>) {
        match self.stage {
            Stage::Command => {}
            Stage::CpRequest => return self.cp_request(context, input),
            Stage::Keys(rest) => {
                let Some(line) = input.get(..rest.whole_len) else { return need(rest.whole_len) };
                let line = Line { text: &line[..rest.text_len], whole_len: rest.whole_len, input };
                let step = retrieval::more_keys(context, line, rest.reading);
                return self.after(step, line);
            }
            Stage::Fresh => match input.first() {
                None => return need(1),
                Some(&BINARY_MAGIC) => {
                    context.batch.say(NO_BINARY);
                    return (0, Some(Next::Close));
                }
                Some(_) => self.stage = Stage::Command,
            },
            Stage::Swallow(len) => return self.swallow(len, input),
            Stage::Unauthenticated => return self.authentication(context, input),
            Stage::Secret(len) => return self.secret(context, len, input),
        }
        let line = match self.search(input) {
            Search::Found(line) => line,
            Search::Missing => return need(input.len() + 1),
            Search::Endless => return (0, Some(Next::Close)),
        };
        self.after(command(context, line), line)
    }

    #[inline]
    fn cp_request<'a>(&mut self, context: &mut Context<'_, 'a>, input: &'a [u8]) -> (usize, Option<Next<'a>>) {
        match cp::step(context, input) {
            After::Next(len) => (len, None),
            After::Need(total_len) => need(total_len),
            After::PassOver { header_len, value_len } => {
                self.stage = Stage::Swallow(value_len as u64);
                (header_len, None)
            }
            After::Malformed(malformed) => (0, Some(Next::Hopeless(malformed))),
        }
    }

    /// How to go on after a line.
    #[inline]
    fn after<'a>(&mut self, step: Step<'a>, line: Line<'a>) -> (usize, Option<Next<'a>>) {
        self.stage = Stage::Command;
        match step {
            Step::Line => (line.whole_len, None),
            Step::Data(len) => (len, None),
            Step::Need(len) => need(len),
            Step::Swallow(len) => {
                self.stage = Stage::Swallow(len);
                (line.whole_len, None)
            }
            Step::Keys { consumed, reading } => {
                let (text_len, whole_len) = (line.text.len() - consumed, line.whole_len - consumed);
                self.stage = Stage::Keys(Rest { reading, text_len, whole_len });
                (consumed, Some(Next::More))
            }
            Step::Control(control) => (line.whole_len, Some(Next::Control(control))),
            Step::Close => (line.whole_len, Some(Next::Close)),
        }
    }

    /// The line at the front of `input`.
    #[inline]
    fn search<'a>(&mut self, input: &'a [u8]) -> Search<'a> {
        let searched_len = std::mem::take(&mut self.searched_len).min(input.len());
        let Some(found) = memchr(b'\n', &input[searched_len..]) else {
            if input.len() > UNENDED_LEN_MAX && (!is_long_get(input) || input.len() > LINE_LEN_MAX) {
                return Search::Endless;
            }
            self.searched_len = input.len();
            return Search::Missing;
        };
        let end = searched_len + found;
        if end > SHORT_LINE_LEN_MAX && (!is_long_get(input) || end > LINE_LEN_MAX) {
            return Search::Endless;
        }
        // A line of nothing but a carriage return keeps it.
        let text = match &input[..end] {
            [text @ .., b'\r'] if !text.is_empty() => text,
            text => text,
        };
        let text = match memchr(0, text) {
            Some(nul) => &text[..nul],
            None => text,
        };
        Search::Found(Line { text, whole_len: end + 1, input })
    }

    fn swallow<'a>(&mut self, len: u64, input: &[u8]) -> (usize, Option<Next<'a>>) {
        let swallowed = usize::try_from(len).unwrap_or(usize::MAX).min(input.len());
        let left = len - swallowed as u64;
        if left == 0 {
            self.stage = match self.dialect {
                Dialect::Memcached => Stage::Command,
                Dialect::Cp => Stage::CpRequest,
            };
            return (swallowed, None);
        }
        self.stage = Stage::Swallow(left);
        (swallowed, Some(Next::NeedInput { total_len: 1 }))
    }

    /// `set <anything> <anything> <anything> <length>`; whatever else is refused.
    fn authentication<'a>(&mut self, context: &mut Context<'_, 'a>, input: &'a [u8]) -> (usize, Option<Next<'a>>) {
        if input.len() < LINE_END.len() {
            return need(LINE_END.len());
        }
        let searched_len = std::mem::take(&mut self.searched_len).min(input.len());
        let Some(found) = memchr(b'\n', &input[searched_len..]) else {
            if input.len() > UNENDED_LEN_MAX {
                return (0, Some(Next::Close));
            }
            self.searched_len = input.len();
            return need(input.len() + 1);
        };
        let line_len = searched_len + found + 1;
        let text = &input[..line_len - 1];
        let words = Tokens::new(&text[..memchr(0, text).unwrap_or(text.len())]);
        match parse_u32(words.get(4)) {
            Some(len) if words.get(0) == b"set" => {
                let len = len as usize;
                if len > SECRET_LEN_MAX {
                    return (line_len, Some(Next::Close));
                }
                self.stage = Stage::Secret(len);
            }
            _ => context.batch.say(b"CLIENT_ERROR unauthenticated\r\n"),
        }
        (line_len, None)
    }

    /// `<user> <password>`
    fn secret<'a>(&mut self, context: &mut Context<'_, 'a>, len: usize, input: &[u8]) -> (usize, Option<Next<'a>>) {
        let total_len = len + LINE_END.len();
        let Some(value) = input.get(..total_len) else { return need(total_len) };
        self.stage = Stage::Unauthenticated;
        let Some(text) = value.strip_suffix(LINE_END) else {
            context.batch.say(b"CLIENT_ERROR bad command line termination\r\n");
            return (total_len, None);
        };
        let mut words = words(&text[..memchr(0, text).unwrap_or(text.len())]);
        let (Some(user), Some(password)) = (words.next(), words.next()) else {
            context.batch.say(b"CLIENT_ERROR bad authentication token format\r\n");
            return (total_len, None);
        };
        context.batch.count(|counters| &mut counters.auth_cmds);
        if context.settings.auth.as_ref().is_none_or(|auth| auth.check(user, password)) {
            self.stage = Stage::Command;
            context.batch.say(b"STORED\r\n");
            // Ends a batch that holds no request yet, and so is answered at once: no batch depends on credentials that may
            // be others when it is made again.
            return (total_len, Some(Next::More));
        } else {
            context.batch.count(|counters| &mut counters.auth_errors);
            context.batch.say(b"CLIENT_ERROR authentication failure\r\n");
        }
        (total_len, None)
    }
}

fn need<'a>(total_len: usize) -> (usize, Option<Next<'a>>) {
    (0, Some(Next::NeedInput { total_len }))
}

/// Whether an overlong line may be a get of many keys.
#[cold]
fn is_long_get(input: &[u8]) -> bool {
    let spaces = input.iter().take_while(|byte| **byte == b' ').count();
    let rest = &input[spaces..];
    spaces <= UNENDED_SPACES_MAX && (rest.starts_with(b"get ") || rest.starts_with(b"gets "))
}

/// Carries out one command line.
#[inline]
fn command<'a>(context: &mut Context<'_, 'a>, line: Line<'a>) -> Step<'a> {
    let mut start = 0;
    while line.text.get(start) == Some(&b' ') {
        start += 1;
    }
    let end = word_end(line.text, start);
    match &line.text[start..end] {
        b"get" => retrieval::get(context, line, end, false),
        b"gets" => retrieval::get(context, line, end, true),
        b"set" => storage::store(context, line, StoreMode::Set, false),
        b"mg" => meta::get(context, line),
        b"ms" => meta::set(context, line),
        word => other_command(context, line, word, end),
    }
}

fn other_command<'a>(context: &mut Context<'_, 'a>, line: Line<'a>, word: &[u8], end: usize) -> Step<'a> {
    match word {
        b"mn" => {
            context.batch.say(b"MN\r\n");
            return Step::Line;
        }
        b"md" => return meta::delete(context, line),
        b"ma" => return meta::arithmetic(context, line),
        b"me" => return meta::debug(context, line),
        b"gat" => return retrieval::get_and_touch(context, line, end, false),
        b"gats" => return retrieval::get_and_touch(context, line, end, true),
        b"bget" => return retrieval::get(context, line, end, false),
        b"add" => return storage::store(context, line, StoreMode::Add, false),
        b"replace" => return storage::store(context, line, StoreMode::Replace, false),
        b"append" => return storage::store(context, line, StoreMode::Append, false),
        b"prepend" => return storage::store(context, line, StoreMode::Prepend, false),
        b"cas" => return storage::store(context, line, StoreMode::Set, true),
        b"delete" => return mutation::delete(context, line),
        b"incr" => return mutation::arithmetic(context, line, ArithmeticMode::Increment),
        b"decr" => return mutation::arithmetic(context, line, ArithmeticMode::Decrement),
        b"touch" => return mutation::touch(context, line),
        b"version" => return Step::Control(Control::Version),
        b"quit" => return Step::Close,
        _ => {}
    }
    let words = Tokens::new(line.text);
    match word {
        b"stats" => administration::stats(context, &words),
        b"flush_all" => administration::flush_all(context, &words),
        b"verbosity" => administration::verbosity(context, &words),
        b"shutdown" => administration::shutdown(context, &words),
        b"cache_memlimit" => administration::cache_memlimit(context, &words),
        b"watch" => administration::watch(context, &words),
        b"lru_crawler" => administration::lru_crawler(context, &words),
        b"lru" => administration::lru(context, &words),
        b"slabs" => administration::slabs(context, &words),
        b"extstore" => administration::extstore(context, &words),
        b"refresh_certs" => administration::refresh_certs(context),
        _ if is_http(word, &words) => Step::Close,
        _ => {
            context.batch.say(ERROR);
            Step::Line
        }
    }
}

/// Whether memcached takes an unknown command for a web browser's and hangs up. It looks only where it knows no command
/// with the same first letter.
fn is_http(word: &[u8], words: &Tokens<'_>) -> bool {
    let is_meta = word.len() == 2 && word[0] == b'm';
    let looks = word.len() >= 2 && !is_meta && !b"gsacidt".contains(&word[0]);
    looks && words.last().starts_with(b"HTTP/")
}
