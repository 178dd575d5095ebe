//! set, add, replace, append, prepend, cas: a line, then a value of the announced length and a line end.
//!
//! Always true: the length is checked before anything waits for the value. A value that is too large is passed over
//! unread, and so is one for which there is no memory; a set of one also removes what was there, as in memcached.

use guira_item::{CasRule, Delete, KEY_LEN_MAX, Key, Operation, Store, StoreMode};

use crate::Settings;
use crate::batch::Plan;
use crate::command::{Context, Line, Step};
use crate::error_lines::{BAD_CHUNK, BAD_FORMAT, ERROR, OUT_OF_MEMORY_STORING, TOO_LARGE};
use crate::tokens::{Tokens, parse_i32, parse_u32, parse_u64};

/// memcached's item header, in bytes.
const HEADER_LEN: usize = 48;

/// Bytes of a version in memcached's items.
const CAS_LEN: usize = 8;

/// Bytes of client flags other than 0 in memcached's items.
const FLAGS_LEN: usize = 4;

/// The line end behind a value.
pub(crate) const LINE_END: &[u8] = b"\r\n";

/// One of the storage commands; `with_cas` for cas.
pub(crate) fn store<'a>(context: &mut Context<'_, 'a>, line: Line<'a>, mode: StoreMode, with_cas: bool) -> Step<'a> {
    let words = Tokens::new(line.text);
    let plain_len = if with_cas { 6 } else { 5 };
    if words.len() != plain_len && words.len() != plain_len + 1 {
        context.batch.say(ERROR);
        return Step::Line;
    }
    let noreply = words.noreply();
    let numbers = (parse_u32(words.get(2)), parse_i32(words.get(3)), parse_len(words.get(4)));
    let expected = if with_cas { parse_u64(words.get(5)).map(Some) } else { Some(None) };
    let (Ok(key), (Some(flags), Some(exptime), Some(value_len)), Some(expected)) =
        (Key::new(words.get(1)), numbers, expected)
    else {
        context.batch.say_unless(noreply, BAD_FORMAT);
        return Step::Line;
    };
    if is_too_large(context.settings, key, flags, value_len) {
        if mode == StoreMode::Set && !with_cas {
            remove(context, key);
        }
        context.batch.count(|counters| &mut counters.store_too_large);
        context.batch.say_unless(noreply, TOO_LARGE);
        return Step::Swallow((value_len + LINE_END.len()) as u64);
    }
    let value = match value(line, value_len) {
        Value::Missing { .. } if context.refuses_unfinished => {
            if mode == StoreMode::Set && !with_cas {
                remove(context, key);
            }
            context.batch.count(|counters| &mut counters.store_no_memory);
            context.batch.say_unless(noreply, OUT_OF_MEMORY_STORING);
            return Step::Swallow((value_len + LINE_END.len()) as u64);
        }
        Value::Missing { total_len } => return Step::Need(total_len),
        Value::Unterminated { total_len } => {
            context.batch.count(|counters| &mut counters.cmd_set);
            context.batch.say_unless(noreply, BAD_CHUNK);
            return Step::Data(total_len);
        }
        Value::Whole(value) => value,
    };
    let operation = Operation::Store(Store {
        mode,
        flags,
        expiry: context.expiry(exptime),
        cas: expected.map(|expected| CasRule { expected, or_stale: false }),
        vivify: None,
        value,
    });
    let extends = matches!(mode, StoreMode::Append | StoreMode::Prepend);
    context.batch.ask(key, operation, Plan::Store { with_cas, extends, noreply });
    Step::Data(line.whole_len + value_len + LINE_END.len())
}

/// The length of a value as announced; `None` if negative, beyond 2^31 - 3, or no number.
pub(crate) fn parse_len(word: &[u8]) -> Option<usize> {
    const VALUE_LEN_MAX: i32 = i32::MAX - LINE_END.len() as i32;
    parse_i32(word).filter(|len| (0..=VALUE_LEN_MAX).contains(len)).map(|len| len as usize)
}

/// Whether memcached would refuse an item of this length.
pub(crate) fn is_too_large(settings: &Settings, key: Key<'_>, flags: u32, value_len: usize) -> bool {
    overhead_len(settings, key.as_bytes().len(), flags) + value_len > settings.item_len_max
}

/// What memcached counts for an item beside its value, bytes.
pub(crate) fn overhead_len(settings: &Settings, key_len: usize, flags: u32) -> usize {
    const { assert!(KEY_LEN_MAX < 1 << 10) };
    let cas_len = if settings.cas_enabled { CAS_LEN } else { 0 };
    let flags_len = if flags == 0 { 0 } else { FLAGS_LEN };
    HEADER_LEN + cas_len + key_len + 1 + flags_len + LINE_END.len()
}

/// Removes what is under `key`, saying nothing.
pub(crate) fn remove<'a>(context: &mut Context<'_, 'a>, key: Key<'a>) {
    context.batch.ask(key, Operation::Delete(Delete { cas: None, invalidate: None }), Plan::Silent);
}

/// A value behind its line.
pub(crate) enum Value<'a> {
    /// Not all there: line, value and line end are so many bytes.
    Missing { total_len: usize },
    /// All there, but no line end behind it.
    Unterminated { total_len: usize },
    /// All there.
    Whole(&'a [u8]),
}

pub(crate) fn value(line: Line<'_>, value_len: usize) -> Value<'_> {
    let end = line.whole_len + value_len;
    let total_len = end + LINE_END.len();
    match line.input.get(end..total_len) {
        None => Value::Missing { total_len },
        Some(LINE_END) => Value::Whole(&line.input[line.whole_len..end]),
        Some(_) => Value::Unterminated { total_len },
    }
}
