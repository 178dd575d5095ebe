//! CPSERVER's requests as requests of memcached: LOOKUP is a get, INSERT a set that nobody is told about.
//!
//! Always true: the item of a hash key is the one under the key of its 15 hexadecimal digits, with flags 0 and no end, so that
//! both protocols see the same items; an INSERT for which there is no memory leaves nothing under its key.

use guira_cpwire::{HashKey, INSERT_HEADER_LEN, NAME_LEN, Request, Step, Unfinished};
use guira_item::{Expiry, Get, Key, Operation, Store, StoreMode};

use crate::batch::Plan;
use crate::command::Context;
use crate::{Scratch, Settings, storage};

/// How to go on behind a request.
pub(crate) enum After {
    /// So many bytes are done with.
    Next(usize),
    /// Nothing has been done: it is at least so many bytes.
    Need(usize),
    /// An INSERT is refused: its header is `header_len` bytes, and `value_len` behind it are to be passed over.
    PassOver { header_len: usize, value_len: usize },
    /// What comes cannot be understood.
    Malformed(guira_cpwire::Malformed),
}

/// Takes the request at the front of `input`.
#[inline]
pub(crate) fn step<'a>(context: &mut Context<'_, 'a>, input: &'a [u8]) -> After {
    match guira_cpwire::step(input, value_len_max(context.settings)) {
        Step::Whole { request, len } => {
            ask(context, request);
            After::Next(len)
        }
        Step::Unfinished(Unfinished::Value { key, value_len }) if context.refuses_unfinished => {
            storage::remove(context, name(context.scratch, key));
            context.batch.count(|counters| &mut counters.store_no_memory);
            After::PassOver { header_len: INSERT_HEADER_LEN, value_len }
        }
        Step::Unfinished(Unfinished::Value { value_len, .. }) => After::Need(INSERT_HEADER_LEN + value_len),
        Step::Unfinished(Unfinished::Header { total_len }) => After::Need(total_len),
        Step::Malformed(malformed) => After::Malformed(malformed),
    }
}

/// The longest value that memcached's protocol would let under such a key, bytes.
fn value_len_max(settings: &Settings) -> usize {
    settings.item_len_max.saturating_sub(storage::overhead_len(settings, NAME_LEN, 0))
}

fn name<'a>(scratch: &'a Scratch, key: HashKey) -> Key<'a> {
    const { assert!(NAME_LEN > 0 && NAME_LEN <= guira_item::KEY_LEN_MAX) };
    let Ok(key) = Key::new(scratch.keep(key.name())) else { unreachable!("the length was checked") };
    key
}

#[inline]
fn ask<'a>(context: &mut Context<'_, 'a>, request: Request<'a>) {
    match request {
        Request::Lookup(key) => {
            context.batch.ask(name(context.scratch, key), Operation::Get(Get::PLAIN), Plan::Lookup);
        }
        Request::Insert { key, value } => {
            let store = Store { mode: StoreMode::Set, flags: 0, expiry: Expiry::NEVER, cas: None, vivify: None, value };
            let plan = Plan::Store { with_cas: false, extends: false, noreply: true };
            context.batch.ask(name(context.scratch, key), Operation::Store(store), plan);
        }
    }
}
