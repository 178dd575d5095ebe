//! get, gets, gat, gats: the hot path. One pass over the keys, a request each, built in place.
//!
//! A key that is too long fails the whole command, as in memcached, and none of its keys is asked for (memcached has read,
//! and for gat touched, those before it). Unlike memcached, answers to commands pipelined before it are kept.

use guira_item::{Get, KEY_LEN_MAX, Key, Operation, Request};

use crate::batch::{BATCH_LEN_MAX, Plan};
use crate::command::{Context, Line, Reading, Step};
use crate::error_lines::{BAD_EXPTIME, BAD_FORMAT, END, ERROR};
use crate::tokens::{parse_i32, word_end};

/// get and gets; the keys start at `from` in the line.
#[inline]
pub(crate) fn get<'a>(context: &mut Context<'_, 'a>, line: Line<'a>, from: usize, with_cas: bool) -> Step<'a> {
    first_keys(context, line, from, Reading { with_cas, touch: None })
}

/// gat and gats: as get, with an exptime before the keys.
pub(crate) fn get_and_touch<'a>(
    context: &mut Context<'_, 'a>,
    line: Line<'a>,
    from: usize,
    with_cas: bool,
) -> Step<'a> {
    let start = skip_spaces(line.text, from);
    let end = word_end(line.text, start);
    let exptime = &line.text[start..end];
    if exptime.is_empty() {
        context.batch.say(ERROR);
        return Step::Line;
    }
    let Some(exptime) = parse_i32(exptime) else {
        context.batch.say(BAD_EXPTIME);
        return Step::Line;
    };
    let touch = Some(context.expiry(exptime));
    if skip_spaces(line.text, end) == line.text.len() {
        context.batch.say(END);
        return Step::Line;
    }
    first_keys(context, line, end, Reading { with_cas, touch })
}

/// Asks for the keys of a line from `from` on, or for none if there is one among them, in this batch or a later one, that is too
/// long.
#[inline]
fn first_keys<'a>(context: &mut Context<'_, 'a>, line: Line<'a>, from: usize, reading: Reading) -> Step<'a> {
    let first = context.batch.requests.len();
    let step = keys(context, line.text, from, reading);
    if let Step::Keys { consumed, .. } = step
        && line.text[consumed..].split(|byte| *byte == b' ').any(|word| word.len() > KEY_LEN_MAX)
    {
        return refuse(context, first);
    }
    step
}

/// Goes on with the keys of a line whose first ones were in batches before.
pub(crate) fn more_keys<'a>(context: &mut Context<'_, 'a>, line: Line<'a>, reading: Reading) -> Step<'a> {
    keys(context, line.text, 0, reading)
}

/// Asks for the keys in `text` from `from` on, until the line or the batch's room ends.
#[inline]
fn keys<'a>(context: &mut Context<'_, 'a>, text: &'a [u8], from: usize, reading: Reading) -> Step<'a> {
    let batch = &mut *context.batch;
    let first = batch.requests.len();
    let room = BATCH_LEN_MAX - (first + batch.literals.len());
    let operation = Operation::Get(Get { touch: reading.touch, ..Get::PLAIN });
    let plan = Plan::Value { with_cas: reading.with_cas, touches: reading.touch.is_some(), ends: false };
    let mut at = from;
    let mut asked = 0;
    loop {
        at = skip_spaces(text, at);
        if at == text.len() {
            break;
        }
        let end = word_end(text, at);
        let Ok(key) = Key::new(&text[at..end]) else { return refuse(context, first) };
        if asked == room {
            return Step::Keys { consumed: at, reading };
        }
        batch.requests.push(Request { key, operation });
        batch.plans.push(plan);
        asked += 1;
        at = end;
    }
    match batch.plans.last_mut() {
        Some(Plan::Value { ends, .. }) if asked > 0 => *ends = true,
        _ => batch.say(ERROR),
    }
    Step::Line
}

#[cold]
fn refuse<'a>(context: &mut Context<'_, 'a>, first: usize) -> Step<'a> {
    context.batch.take_back(first);
    context.batch.say(BAD_FORMAT);
    Step::Line
}

#[inline]
fn skip_spaces(text: &[u8], from: usize) -> usize {
    let mut at = from;
    while text.get(at) == Some(&b' ') {
        at += 1;
    }
    at
}
