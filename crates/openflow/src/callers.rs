//! Controllers that call a switch of ours, on this machine: operators' tools, which look at its flows and change them.
//!
//! Always true: there are so many at most; each is heard as the controller that is called, and goes alone; one at a time has a turn, and then the others have
//! theirs.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    ops::Bound::{Excluded, Unbounded},
};

use guira_cluster::boot_now;
use guira_item::{Moment, Span};
use mio::{
    Interest, Registry, Token,
    event::Event,
    net::{UnixListener, UnixStream},
};

use crate::{DatapathConfig, FlowTable, Lookups, line::Line, stream::Stream};

const LISTENER: Token = Token(1);

/// Connections at a time: a tool has one or two, for as long as it runs. Each takes less than 1 MiB.
pub(crate) const CALLERS_MAX: usize = 8;

/// After so long it is tried again to take a connection, if the system had no descriptors for one.
const PAUSE: Span = Span::from_ms(100);

#[derive(Debug)]
pub(crate) struct Callers {
    config: DatapathConfig,
    listener: UnixListener,
    /// When somebody may be there who is to be taken; `None`: nobody is.
    accept_at: Option<Moment>,
    /// By their tokens, which are never those of earlier ones.
    lines: BTreeMap<Token, Line<UnixStream>>,
    /// Who has called last.
    newest: Token,
    /// Who has had a turn last.
    last: Token,
}

impl Callers {
    /// Those who call there. Tokens from 1 on are theirs.
    pub(crate) fn new(
        listener: std::os::unix::net::UnixListener,
        config: DatapathConfig,
        registry: &Registry,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let mut listener = UnixListener::from_std(listener);
        registry.register(&mut listener, LISTENER, Interest::READABLE)?;
        let accept_at = Some(boot_now());
        Ok(Self { config, listener, accept_at, lines: BTreeMap::new(), newest: LISTENER, last: LISTENER })
    }

    /// Something has happened to one of them, or somebody calls.
    pub(crate) fn heed(&mut self, event: &Event) {
        match event.token() {
            LISTENER => self.accept_at = Some(boot_now()),
            token => {
                if let Some(line) = self.lines.get_mut(&token) {
                    line.heed(event);
                }
            }
        }
    }

    /// When one is to have a turn, or to be taken; `None`: when something happens.
    pub(crate) fn wake_at(&self) -> Option<Moment> {
        self.lines.values().map(Line::wake_at).chain(self.accept_at).min()
    }

    /// Takes one who calls, and gives one his turn.
    pub(crate) fn take_turn<L: Lookups>(&mut self, registry: &Registry, buffer: &mut [u8], flows: &mut FlowTable<L>) {
        let now = boot_now();
        let next = self.next(now);
        // One who has something to do may be about to go: who calls then is not one too many yet.
        let may_accept = next.is_none() || self.lines.len() < CALLERS_MAX;
        if may_accept && self.accept_at.is_some_and(|at| at <= now) {
            self.accept(now, registry);
        }
        if let Some(token) = next
            && let Some(line) = self.lines.get_mut(&token)
        {
            self.last = token;
            if line.take_turn(buffer, flows).is_err() {
                self.lines.remove(&token).into_iter().for_each(|line| line.end(registry));
            }
        }
    }

    /// Who has something to do, and is the next behind the last one.
    fn next(&self, now: Moment) -> Option<Token> {
        let (behind, before) = (self.lines.range((Excluded(self.last), Unbounded)), self.lines.range(..=self.last));
        behind.chain(before).find(|(_, line)| line.wake_at() <= now).map(|(token, _)| *token)
    }

    fn accept(&mut self, now: Moment, registry: &Registry) {
        match self.listener.accept() {
            Ok((stream, _)) if self.lines.len() < CALLERS_MAX => self.begin(stream, registry),
            // There are too many: it may call again.
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.accept_at = None,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // No descriptors: later.
            Err(_) => self.accept_at = Some(now + PAUSE),
        }
    }

    fn begin(&mut self, stream: UnixStream, registry: &Registry) {
        self.newest.0 += 1;
        if let Ok(stream) = Stream::begin(stream, registry, self.newest) {
            self.lines.insert(self.newest, Line::new(stream, self.config));
        }
    }
}
