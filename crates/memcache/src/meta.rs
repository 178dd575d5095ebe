//! The meta commands: mg, ms, md, ma, me.

use guira_item::{Arithmetic, ArithmeticMode, CasRule, Delete, Get, Invalidate, Key, Operation, Store, StoreMode};

use crate::batch::{MetaCommand, MetaPlan};
use crate::command::{Context, Line, Step};
use crate::error_lines::{BAD_CHUNK, BAD_FORMAT, ERROR, OPAQUE_TOO_LONG, OUT_OF_MEMORY_STORING, TOO_LARGE};
use crate::meta_flags::{MetaFlags, WORDS_MAX};
use crate::storage::{LINE_END, Value, is_too_large, parse_len, remove, value};
use crate::tokens::{Tokens, word_end};

const TOO_MANY_FLAGS_MG: &[u8] = b"CLIENT_ERROR options flags are too long\r\n";
const TOO_MANY_FLAGS: &[u8] = b"CLIENT_ERROR options flags too long\r\n";
const BAD_FLAG: &[u8] = b"CLIENT_ERROR invalid or duplicate flag\r\n";
const BAD_STORE_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ms M token\r\n";
const BAD_ARITHMETIC_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ma M token\r\n";

/// `mg <key> <flags>*`
pub(crate) fn get<'a>(context: &mut Context<'_, 'a>, line: Line<'a>) -> Step<'a> {
    let words = Tokens::new(line.text);
    let Some(key) = key(context, &words, TOO_MANY_FLAGS_MG) else { return Step::Line };
    let flags = match MetaFlags::parse(context, key, words.from(2)) {
        Ok(flags) => flags,
        Err(text) => return refuse(context, text),
    };
    let operation = Operation::Get(Get {
        // An answer that will be an error hands out neither value nor win.
        value: flags.value && !flags.opaque_is_too_long,
        bump: !flags.no_bump,
        wins: !flags.opaque_is_too_long,
        touch: flags.touch,
        vivify: flags.creation(),
        recache: flags.recache,
        recache_after_touch: flags.recache_after_touch,
        tells: true,
    });
    let command = MetaCommand::Get { touches: flags.touch.is_some() };
    ask(context, line, 2, &flags, operation, command);
    Step::Line
}

/// `ms <key> <datalen> <flags>*`, then the value.
pub(crate) fn set<'a>(context: &mut Context<'_, 'a>, line: Line<'a>) -> Step<'a> {
    let words = Tokens::new(line.text);
    if words.len() < 2 {
        return refuse(context, ERROR);
    }
    let Ok(key) = Key::new(words.get(1)) else { return refuse(context, BAD_FORMAT) };
    if words.len() == 2 {
        return refuse(context, BAD_FORMAT);
    }
    if words.len() > WORDS_MAX {
        return refuse(context, TOO_MANY_FLAGS);
    }
    let Some(value_len) = parse_len(words.get(2)) else { return refuse(context, BAD_FORMAT) };
    let pass_over = Step::Swallow((value_len + LINE_END.len()) as u64);
    let (flags, mode) = match set_flags(context, key, &words) {
        Ok(parsed) => parsed,
        Err(text) => {
            context.batch.say(text);
            return pass_over;
        }
    };
    if is_too_large(context.settings, flags.key, flags.client_flags, value_len) {
        remove(context, flags.key);
        context.batch.count(|counters| &mut counters.store_too_large);
        context.batch.say(TOO_LARGE);
        return pass_over;
    }
    let value = match value(line, value_len) {
        Value::Missing { .. } if context.refuses_unfinished => {
            if mode == StoreMode::Set {
                remove(context, flags.key);
            }
            context.batch.count(|counters| &mut counters.store_no_memory);
            context.batch.say(OUT_OF_MEMORY_STORING);
            return pass_over;
        }
        Value::Missing { total_len } => return Step::Need(total_len),
        Value::Unterminated { total_len } => {
            context.batch.count(|counters| &mut counters.cmd_set);
            context.batch.say(BAD_CHUNK);
            return Step::Data(total_len);
        }
        Value::Whole(value) => value,
    };
    let extends = matches!(mode, StoreMode::Append | StoreMode::Prepend);
    let cas = flags.cas.map(|expected| CasRule { expected, or_stale: flags.invalidate && !extends });
    let cas = match mode {
        StoreMode::Add => None,
        StoreMode::Append | StoreMode::Prepend => cas.filter(|rule| rule.expected != 0),
        StoreMode::Set | StoreMode::Replace => cas,
    };
    let expiry = flags.touch.unwrap_or_default();
    let operation = Operation::Store(Store { mode, flags: flags.client_flags, expiry, cas, vivify: None, value });
    let command = MetaCommand::Set { with_cas: cas.is_some() && !extends, extends };
    ask(context, line, 3, &flags, operation, command);
    Step::Data(line.whole_len + value_len + LINE_END.len())
}

fn set_flags<'a>(
    context: &Context<'_, 'a>,
    key: Key<'a>,
    words: &Tokens<'a>,
) -> Result<(MetaFlags<'a>, StoreMode), &'static [u8]> {
    let flags = MetaFlags::parse(context, key, words.from(3))?;
    let mode = match flags.mode {
        None | Some(b'S') => StoreMode::Set,
        Some(b'E') => StoreMode::Add,
        Some(b'A') => StoreMode::Append,
        Some(b'P') => StoreMode::Prepend,
        Some(b'R') => StoreMode::Replace,
        Some(_) => return Err(BAD_STORE_MODE),
    };
    if flags.opaque_is_too_long { Err(OPAQUE_TOO_LONG) } else { Ok((flags, mode)) }
}

/// `md <key> <flags>*`
pub(crate) fn delete<'a>(context: &mut Context<'_, 'a>, line: Line<'a>) -> Step<'a> {
    let words = Tokens::new(line.text);
    let Some(key) = key(context, &words, TOO_MANY_FLAGS) else { return Step::Line };
    let Ok(flags) = MetaFlags::parse(context, key, words.from(2)) else { return refuse(context, BAD_FLAG) };
    if flags.opaque_is_too_long {
        return refuse(context, OPAQUE_TOO_LONG);
    }
    let invalidate = flags.invalidate.then_some(Invalidate { touch: flags.touch });
    let operation = Operation::Delete(Delete { cas: flags.cas, invalidate });
    ask(context, line, 2, &flags, operation, MetaCommand::Delete);
    Step::Line
}

/// `ma <key> <flags>*`
pub(crate) fn arithmetic<'a>(context: &mut Context<'_, 'a>, line: Line<'a>) -> Step<'a> {
    let words = Tokens::new(line.text);
    let Some(key) = key(context, &words, TOO_MANY_FLAGS) else { return Step::Line };
    let Ok(flags) = MetaFlags::parse(context, key, words.from(2)) else { return refuse(context, BAD_FLAG) };
    let mode = match flags.mode {
        None | Some(b'I' | b'+') => ArithmeticMode::Increment,
        Some(b'D' | b'-') => ArithmeticMode::Decrement,
        Some(_) => return refuse(context, BAD_ARITHMETIC_MODE),
    };
    let operation = Operation::Arithmetic(Arithmetic {
        mode,
        delta: flags.delta,
        cas: flags.cas.filter(|expected| *expected != 0),
        touch: flags.touch,
        create: flags.creation().map(|expiry| (flags.initial, expiry)),
    });
    let up = mode == ArithmeticMode::Increment;
    ask(context, line, 2, &flags, operation, MetaCommand::Arithmetic { up, value: flags.value });
    Step::Line
}

/// `me <key> [b]`
pub(crate) fn debug<'a>(context: &mut Context<'_, 'a>, line: Line<'a>) -> Step<'a> {
    let words = Tokens::new(line.text);
    let base64 = words.get(2) == b"b";
    let key = Key::new(words.get(1)).ok();
    let key = if base64 { key.and_then(|key| context.scratch.decode(key.as_bytes())) } else { key };
    let Some(key) = key else { return refuse(context, BAD_FORMAT) };
    let operation = Operation::Get(Get { value: false, bump: false, ..Get::PLAIN });
    let plan = MetaPlan { command: MetaCommand::Debug, flags: b"", quiet: false, base64 };
    context.batch.ask_meta(key, operation, plan);
    Step::Line
}

/// The key as written; `None` if an error has been said.
fn key<'a>(context: &mut Context<'_, 'a>, words: &Tokens<'a>, too_many: &'static [u8]) -> Option<Key<'a>> {
    let text = match Key::new(words.get(1)) {
        Ok(key) if words.len() <= WORDS_MAX => return Some(key),
        Ok(_) => too_many,
        Err(_) if words.len() < 2 => ERROR,
        Err(_) => BAD_FORMAT,
    };
    context.batch.say(text);
    None
}

/// Asks; the flags to be repeated in the answer stand behind `words_before` words.
fn ask<'a>(
    context: &mut Context<'_, 'a>,
    line: Line<'a>,
    words_before: usize,
    flags: &MetaFlags<'a>,
    operation: Operation<'a>,
    command: MetaCommand,
) {
    let mut at = 0;
    for _ in 0..words_before {
        while line.text.get(at) == Some(&b' ') {
            at += 1;
        }
        at = word_end(line.text, at);
    }
    let plan = MetaPlan { command, flags: &line.text[at..], quiet: flags.quiet, base64: flags.base64 };
    context.batch.ask_meta(flags.key, operation, plan);
}

fn refuse<'a>(context: &mut Context<'_, 'a>, text: &'static [u8]) -> Step<'a> {
    context.batch.say(text);
    Step::Line
}
