//! delete, touch, incr, decr: one line, one key.

use guira_item::{Arithmetic, ArithmeticMode, Delete, Key, Operation};

use crate::batch::Plan;
use crate::command::{Context, Line, Step};
use crate::error_lines::{BAD_DELETE, BAD_DELTA, BAD_EXPTIME, BAD_FORMAT, ERROR};
use crate::tokens::{Tokens, parse_i32, parse_u64};

/// `delete <key> [0] [noreply]`; the 0 is a delay from old times.
pub(crate) fn delete<'a>(context: &mut Context<'_, 'a>, line: Line<'a>) -> Step<'a> {
    let words = Tokens::new(line.text);
    let noreply = words.len() > 2 && words.noreply();
    let has_delay = words.get(2) == b"0";
    let refusal = match words.len() {
        2 => None,
        3 if has_delay || noreply => None,
        4 if has_delay && noreply => None,
        3 | 4 => Some(BAD_DELETE),
        _ => Some(ERROR),
    };
    match (refusal, Key::new(words.get(1))) {
        (Some(text), _) => context.batch.say_unless(noreply && text != ERROR, text),
        (None, Err(_)) => context.batch.say_unless(noreply, BAD_FORMAT),
        (None, Ok(key)) => {
            let operation = Operation::Delete(Delete { cas: None, invalidate: None });
            context.batch.ask(key, operation, Plan::Delete { noreply });
        }
    }
    Step::Line
}

/// `touch <key> <exptime> [noreply]`.
pub(crate) fn touch<'a>(context: &mut Context<'_, 'a>, line: Line<'a>) -> Step<'a> {
    let Some((words, key, noreply)) = key_and_number(context, line) else { return Step::Line };
    match parse_i32(words.get(2)) {
        None => context.batch.say_unless(noreply, BAD_EXPTIME),
        Some(exptime) => {
            let operation = Operation::Touch(context.expiry(exptime));
            context.batch.ask(key, operation, Plan::Touch { noreply });
        }
    }
    Step::Line
}

/// `incr <key> <delta> [noreply]` and decr.
pub(crate) fn arithmetic<'a>(context: &mut Context<'_, 'a>, line: Line<'a>, mode: ArithmeticMode) -> Step<'a> {
    let Some((words, key, noreply)) = key_and_number(context, line) else { return Step::Line };
    match parse_u64(words.get(2)) {
        None => context.batch.say_unless(noreply, BAD_DELTA),
        Some(delta) => {
            let operation = Operation::Arithmetic(Arithmetic { mode, delta, cas: None, touch: None, create: None });
            let up = mode == ArithmeticMode::Increment;
            context.batch.ask(key, operation, Plan::Arithmetic { up, noreply });
        }
    }
    Step::Line
}

/// The words of `<command> <key> <number> [noreply]`; `None` if an error has been said.
fn key_and_number<'a>(context: &mut Context<'_, 'a>, line: Line<'a>) -> Option<(Tokens<'a>, Key<'a>, bool)> {
    let words = Tokens::new(line.text);
    if words.len() != 3 && words.len() != 4 {
        context.batch.say(ERROR);
        return None;
    }
    let noreply = words.noreply();
    match Key::new(words.get(1)) {
        Ok(key) => Some((words, key, noreply)),
        Err(_) => {
            context.batch.say_unless(noreply, BAD_FORMAT);
            None
        }
    }
}
