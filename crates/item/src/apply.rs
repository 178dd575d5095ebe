//! The meaning of every operation, once: a pure function from an operation and the item that is there to what becomes of
//! the item and what is answered. Engines and stores call it under their own locks and carry out the [`Change`].
//!
//! Always true: `apply` sees only live items (expired or flushed ones are passed as `None`), and an answer that says
//! "changed" comes with a change that changes.

use crate::{
    Answer, Arithmetic, ArithmeticMode, CasRule, Delete, Expiry, Get, Hit, Operation, Restore, Store, StoreMode, Time,
};

/// Digits of the largest 64-bit number.
const DECIMAL_LEN_MAX: usize = 20;

/// What is there under a key.
#[derive(Clone, Copy, Debug)]
pub struct Current<'a> {
    /// Client flags.
    pub flags: u32,
    /// Version.
    pub cas: u64,
    /// When it ends.
    pub expiry: Expiry,
    /// Length of the value in bytes.
    pub value_len: usize,
    /// The value, if it lies in one piece; numbers always do.
    pub value: Option<&'a [u8]>,
    /// Has been read.
    pub fetched: bool,
    /// Is marked stale.
    pub stale: bool,
    /// A client has been told that it won.
    pub win_sent: bool,
    /// Seconds since last use, as far as known.
    pub idle_s: u32,
    /// Slab class.
    pub class: u32,
    /// Header, key and value in bytes.
    pub total_len: usize,
}

/// The value of a rewritten item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewValue<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// The present value followed by these bytes.
    Append(&'a [u8]),
    /// These bytes followed by the present value.
    Prepend(&'a [u8]),
    /// A number in decimal, its digits followed by spaces.
    Number(Decimal),
}

impl NewValue<'_> {
    /// Length in bytes when what is there is `current_len` bytes long.
    pub fn len_with(&self, current_len: usize) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Append(bytes) | Self::Prepend(bytes) => current_len + bytes.len(),
            Self::Number(decimal) => decimal.padded_len(),
        }
    }

    /// Its bytes when `current` is there: for models of an engine, which keep values whole. An engine writes them in place.
    pub fn bytes_with(&self, current: &[u8]) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes.to_vec(),
            Self::Append(bytes) => [current, bytes].concat(),
            Self::Prepend(bytes) => [bytes, current].concat(),
            Self::Number(decimal) => {
                let mut text = decimal.digits().to_vec();
                text.resize(decimal.padded_len(), b' ');
                text
            }
        }
    }
}

/// A number written out, followed by as many spaces as the text it replaces was longer: memcached pads rather than shorten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decimal {
    digits: [u8; DECIMAL_LEN_MAX],
    digits_len: u8,
    padded_len: usize,
}

impl Decimal {
    fn new(value: u64, len_min: usize) -> Self {
        let mut digits = [0; DECIMAL_LEN_MAX];
        let mut from = DECIMAL_LEN_MAX;
        let mut rest = value;
        loop {
            from -= 1;
            digits[from] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        digits.copy_within(from.., 0);
        let digits_len = DECIMAL_LEN_MAX - from;
        Self { digits, digits_len: digits_len as u8, padded_len: digits_len.max(len_min) }
    }

    /// How many digits a number has.
    fn len_of(value: u64) -> usize {
        value.checked_ilog10().unwrap_or(0) as usize + 1
    }

    /// The digits, 1 to 20 of them.
    pub fn digits(&self) -> &[u8] {
        &self.digits[..usize::from(self.digits_len)]
    }

    /// Length in bytes with the spaces that follow.
    pub fn padded_len(&self) -> usize {
        self.padded_len
    }
}

/// What becomes of the item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// Nothing.
    Keep,
    /// It goes.
    Remove,
    /// It is replaced, or comes into being, under the next version.
    Rewrite {
        /// The value.
        value: NewValue<'a>,
        /// Client flags.
        flags: u32,
        /// When it ends.
        expiry: Expiry,
        /// Marked stale.
        stale: bool,
        /// A win has been handed out.
        win_sent: bool,
    },
    /// Its value stays, what is known about it changes.
    Mark {
        /// When it ends.
        expiry: Expiry,
        /// Marked stale.
        stale: bool,
        /// A win has been handed out.
        win_sent: bool,
        /// It gets the next version.
        new_version: bool,
    },
}

/// The meaning of `operation` at `now` on what is there; a new version would be `next_cas`.
///
/// The second part is a [`Hit`] for a read that finds (or creates) something and an [`Answer`] otherwise.
pub fn apply<'a>(
    operation: &Operation<'a>,
    current: Option<&Current<'_>>,
    now: Time,
    next_cas: u64,
) -> (Change<'a>, Result<Hit, Answer>) {
    match operation {
        Operation::Get(get) => apply_get(get, current, next_cas),
        Operation::Store(store) => {
            let (change, answer) = apply_store(store, current, next_cas);
            (change, Err(answer))
        }
        Operation::Delete(delete) => {
            let (change, answer) = apply_delete(*delete, current);
            (change, Err(answer))
        }
        Operation::Arithmetic(arithmetic) => {
            let (change, answer) = apply_arithmetic(*arithmetic, current, next_cas);
            (change, Err(answer))
        }
        Operation::Touch(expiry) => match current {
            None => (Change::Keep, Err(Answer::NotFound)),
            Some(item) if expiry.is_past(now) && *expiry == item.expiry => (Change::Keep, Err(Answer::Touched)),
            Some(item) => (touched(item, *expiry), Err(Answer::Touched)),
        },
        Operation::Restore(restore) if current.is_some() && !restore.replaces => (Change::Keep, Err(Answer::NotStored)),
        Operation::Restore(Restore { flags, expiry, stale, win_sent, value, .. }) => {
            let (value, flags, expiry) = (NewValue::Bytes(value), *flags, *expiry);
            let change = Change::Rewrite { value, flags, expiry, stale: *stale, win_sent: *win_sent };
            (change, Err(Answer::Stored { cas: next_cas }))
        }
    }
}

fn touched<'a>(item: &Current<'_>, expiry: Expiry) -> Change<'a> {
    Change::Mark { expiry, stale: item.stale, win_sent: item.win_sent, new_version: false }
}

fn apply_get<'a>(get: &Get, current: Option<&Current<'_>>, next_cas: u64) -> (Change<'a>, Result<Hit, Answer>) {
    let Some(item) = current else {
        let Some(expiry) = get.vivify else { return (Change::Keep, Err(Answer::Miss)) };
        let change = Change::Rewrite { value: NewValue::Bytes(&[]), flags: 0, expiry, stale: false, win_sent: true };
        let hit = Hit { cas: next_cas, expiry_before: expiry, expiry, won: true, created: true, ..Hit::default() };
        return (change, Ok(hit));
    };
    let expiry = get.touch.unwrap_or(item.expiry);
    let judged = if get.recache_after_touch { expiry } else { item.expiry };
    let too_close = |deadline: Expiry| judged != Expiry::NEVER && judged.to_raw() < deadline.to_raw();
    let won = get.wins && !item.win_sent && (item.stale || get.recache.is_some_and(too_close));
    let hit = Hit {
        flags: item.flags,
        cas: item.cas,
        value_len: item.value_len,
        expiry_before: item.expiry,
        expiry,
        fetched: item.fetched,
        idle_s: item.idle_s,
        stale: item.stale,
        win_sent: item.win_sent,
        won,
        created: false,
        class: item.class,
        total_len: item.total_len,
    };
    if won || expiry != item.expiry {
        let change = Change::Mark { expiry, stale: item.stale, win_sent: item.win_sent || won, new_version: false };
        (change, Ok(hit))
    } else {
        (Change::Keep, Ok(hit))
    }
}

fn apply_store<'a>(store: &Store<'a>, current: Option<&Current<'_>>, next_cas: u64) -> (Change<'a>, Answer) {
    let fresh = |expiry| Change::Rewrite {
        value: NewValue::Bytes(store.value),
        flags: store.flags,
        expiry,
        stale: false,
        win_sent: false,
    };
    let stored = Answer::Stored { cas: next_cas };
    let Some(item) = current else {
        return match store.mode {
            StoreMode::Set | StoreMode::Replace if store.cas.is_some() => (Change::Keep, Answer::NotFound),
            StoreMode::Set | StoreMode::Add => (fresh(store.expiry), stored),
            StoreMode::Append | StoreMode::Prepend if store.vivify.is_some() => {
                (fresh(store.vivify.unwrap_or_default()), stored)
            }
            StoreMode::Replace | StoreMode::Append | StoreMode::Prepend => (Change::Keep, Answer::NotStored),
        };
    };
    let extended =
        |value| Change::Rewrite { value, flags: item.flags, expiry: item.expiry, stale: false, win_sent: false };
    // 0 is no version, not even where every item's is (`-C`).
    let matches = |rule: CasRule| rule.expected != 0 && rule.expected == item.cas;
    match store.mode {
        StoreMode::Add => (Change::Keep, Answer::NotStored),
        StoreMode::Set | StoreMode::Replace => match store.cas {
            Some(rule) if matches(rule) => (fresh(store.expiry), stored),
            Some(rule) if rule.or_stale && rule.expected != 0 && rule.expected < item.cas => {
                let change = Change::Rewrite {
                    value: NewValue::Bytes(store.value),
                    flags: store.flags,
                    expiry: item.expiry,
                    stale: true,
                    win_sent: item.win_sent,
                };
                (change, stored)
            }
            Some(_) => (Change::Keep, Answer::Exists),
            None => (fresh(store.expiry), stored),
        },
        StoreMode::Append | StoreMode::Prepend if !store.cas.is_none_or(matches) => (Change::Keep, Answer::Exists),
        StoreMode::Append => (extended(NewValue::Append(store.value)), stored),
        StoreMode::Prepend => (extended(NewValue::Prepend(store.value)), stored),
    }
}

fn apply_delete<'a>(delete: Delete, current: Option<&Current<'_>>) -> (Change<'a>, Answer) {
    let Some(item) = current else { return (Change::Keep, Answer::NotFound) };
    if delete.cas.is_some_and(|expected| expected != item.cas) {
        return (Change::Keep, Answer::Exists);
    }
    match delete.invalidate {
        None => (Change::Remove, Answer::Deleted),
        Some(invalidate) => {
            let change = Change::Mark {
                expiry: invalidate.touch.unwrap_or(item.expiry),
                stale: true,
                win_sent: false,
                new_version: true,
            };
            (change, Answer::Invalidated)
        }
    }
}

fn apply_arithmetic<'a>(arithmetic: Arithmetic, current: Option<&Current<'_>>, next_cas: u64) -> (Change<'a>, Answer) {
    let rewrite = |value, len_min, flags, expiry, stale, win_sent| Change::Rewrite {
        value: NewValue::Number(Decimal::new(value, len_min)),
        flags,
        expiry,
        stale,
        win_sent,
    };
    let Some(item) = current else {
        let Some((value, expiry)) = arithmetic.create else { return (Change::Keep, Answer::NotFound) };
        let answer = Answer::Number { value, cas: next_cas, expiry_before: expiry, expiry, created: true };
        return (rewrite(value, 0, 0, expiry, false, false), answer);
    };
    if item.value_len == 0 {
        return (Change::Keep, Answer::NonNumeric);
    }
    if arithmetic.cas.is_some_and(|expected| expected != item.cas) {
        return (Change::Keep, Answer::Exists);
    }
    let Some(before) = item.value.and_then(leading_number) else { return (Change::Keep, Answer::NonNumeric) };
    let value = match arithmetic.mode {
        ArithmeticMode::Increment => before.wrapping_add(arithmetic.delta),
        ArithmeticMode::Decrement => before.saturating_sub(arithmetic.delta),
    };
    let expiry = arithmetic.touch.unwrap_or(item.expiry);
    let answer = Answer::Number { value, cas: next_cas, expiry_before: item.expiry, expiry, created: false };
    // A number that grows is a new item to memcached, without the marks of the old one.
    let (stale, win_sent) =
        if Decimal::len_of(value) > item.value_len { (false, false) } else { (item.stale, item.win_sent) };
    (rewrite(value, item.value_len, item.flags, expiry, stale, win_sent), answer)
}

/// The number at the front of `text` as C's `strtoull` and memcached's `safe_strtoull` take it: white space and a sign may
/// stand before it, and behind it the end, white space or a NUL. A minus sign negates modulo 2^64; what is beyond 2^63 then is
/// refused.
fn leading_number(text: &[u8]) -> Option<u64> {
    let is_space = |byte: u8| byte == b' ' || (b'\t'..=b'\r').contains(&byte);
    let start = text.iter().position(|byte| !is_space(*byte))?;
    let (negative, text) = match text[start] {
        b'-' => (true, &text[start + 1..]),
        b'+' => (false, &text[start + 1..]),
        _ => (false, &text[start..]),
    };
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || text.get(digits).is_some_and(|byte| !is_space(*byte) && *byte != 0) {
        return None;
    }
    let digits = text[..digits].iter();
    let number =
        digits.copied().try_fold(0u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))?;
    if !negative {
        return Some(number);
    }
    Some(number.wrapping_neg()).filter(|number| *number <= i64::MAX as u64)
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
