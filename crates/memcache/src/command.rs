//! What every command's parser gets and what it says about how to go on.

use guira_item::{Clock, Expiry, Time};

use crate::{Batch, Control, Scratch, Settings};

/// What parsing depends on besides the bytes, and where its results go.
pub(crate) struct Context<'p, 'a> {
    pub(crate) settings: &'p Settings,
    pub(crate) clock: &'p Clock,
    pub(crate) now: Time,
    pub(crate) scratch: &'a Scratch,
    pub(crate) batch: &'p mut Batch<'a>,
    /// A value that is not all there is refused for lack of memory.
    pub(crate) refuses_unfinished: bool,
}

impl Context<'_, '_> {
    pub(crate) fn expiry(&self, exptime: i32) -> Expiry {
        self.clock.expiry(i64::from(exptime), self.now)
    }
}

/// A whole command line, and what stands around it.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    /// From the command's name on, without the line end and what follows a NUL.
    pub(crate) text: &'a [u8],
    /// Its length with everything that belongs to it: where the value starts, if there is one.
    pub(crate) whole_len: usize,
    /// The input from the line's start on, as far as it has come.
    pub(crate) input: &'a [u8],
}

/// How to go on behind a command.
pub(crate) enum Step<'a> {
    /// The line is done with.
    Line,
    /// The line and a value are done with: so many bytes.
    Data(usize),
    /// Nothing has been done: line and value are so many bytes.
    Need(usize),
    /// The line is done with, and so many bytes behind it are to be passed over.
    Swallow(u64),
    /// The batch is full in the middle of a multiget.
    Keys {
        /// Bytes done with.
        consumed: usize,
        /// What is asked for each key that follows.
        reading: Reading,
    },
    /// The line is done with, the server goes on.
    Control(Control<'a>),
    /// Close the connection.
    Close,
}

/// What a multiget asks for each key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reading {
    /// gets, gats.
    pub(crate) with_cas: bool,
    /// gat, gats.
    pub(crate) touch: Option<Expiry>,
}
