//! A controller on its connection, whose turn it is from time to time.
//!
//! Always true: what has come is not read on while what was said is not read; a turn is bounded, and is wanted as long as there is something to do.

use std::io::{self, Read, Write};

use guira_cluster::boot_now;
use guira_item::Moment;
use mio::{
    Registry,
    event::{Event, Source},
};

use crate::{Broken, Datapath, DatapathConfig, FlowTable, Lookups, stream::Stream};

/// Why a controller has gone.
#[derive(Debug)]
pub enum Gone {
    /// It has hung up.
    Closed,
    /// The connection is of no use any more.
    Broken(Broken),
    /// The system says so.
    Failed(io::Error),
}

impl From<Broken> for Gone {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl From<io::Error> for Gone {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

#[derive(Debug)]
pub(crate) struct Line<S> {
    stream: Stream<S>,
    datapath: Datapath,
}

impl<S: Read + Write + Source> Line<S> {
    /// One that is there from now on.
    pub(crate) fn new(stream: Stream<S>, config: DatapathConfig) -> Self {
        Self { stream, datapath: Datapath::new(boot_now(), config) }
    }

    /// Whether it has said hello.
    pub(crate) fn is_greeted(&self) -> bool {
        self.datapath.is_greeted()
    }

    /// Something has happened to it.
    pub(crate) fn heed(&mut self, event: &Event) {
        self.stream.heed(event);
    }

    /// When it is to have a turn.
    pub(crate) fn wake_at(&self) -> Moment {
        let reads = self.stream.may_read() && self.datapath.may_hear();
        let writes = self.stream.may_write() && !self.datapath.outgoing().is_empty();
        if reads || writes { Moment::from_ns(0) } else { self.datapath.wake_at() }
    }

    /// Does what is said: reads once, and writes what can be.
    ///
    /// # Errors
    /// The controller has gone.
    pub(crate) fn take_turn<L: Lookups>(&mut self, buffer: &mut [u8], flows: &mut FlowTable<L>) -> Result<(), Gone> {
        self.write()?;
        if self.datapath.may_hear()
            && let Some(len) = self.stream.read(buffer)?
        {
            if len == 0 {
                return Err(Gone::Closed);
            }
            self.datapath.hear(boot_now(), &buffer[..len], flows)?;
        }
        self.datapath.tick(boot_now(), flows)?;
        self.write()
    }

    /// Hangs up on one that has gone.
    pub(crate) fn end(mut self, registry: &Registry) {
        // What is said in the end may be why; nobody waits for it.
        let _ = self.write();
        self.stream.end(registry);
    }

    fn write(&mut self) -> Result<(), Gone> {
        loop {
            match self.stream.write(self.datapath.outgoing())? {
                0 => return Ok(()),
                len => self.datapath.sent(boot_now(), len),
            }
        }
    }
}
