//! The first line of the answer to a meta command: a status, then the flags that ask for something, in their order.

use guira_item::{Answer, Expiry, Hit, Key, Time};

use crate::base64::{self, ENCODED_KEY_LEN_MAX};
use crate::batch::{MetaCommand, MetaPlan};
use crate::meta_flags::is_opaque_too_long;
use crate::text::Text;
use crate::tokens::words;

/// The longest line: status and length, then once each at most the key in base64, an opaque and a few numbers.
pub(crate) const META_LINE_LEN_MAX: usize = ENCODED_KEY_LEN_MAX + 512;

/// Why a line was not written.
pub(crate) struct OpaqueTooLong;

/// What is known when the flags are answered.
pub(crate) enum Facts<'h> {
    /// A read found something.
    Hit(&'h Hit),
    /// Anything else.
    Answer(&'h Answer),
}

/// Writes the line after its status.
pub(crate) fn flags(
    text: &mut Text<'_>,
    plan: &MetaPlan<'_>,
    key: Key<'_>,
    facts: &Facts<'_>,
    now: Time,
) -> Result<(), OpaqueTooLong> {
    // An item that the command itself created has no expiry until N (or T) has been reached.
    let (mut expiry_now, expiry_after) = expiries(facts);
    for word in words(plan.flags) {
        let (letter, token) = (word[0], &word[1..]);
        match (letter, facts) {
            (b'O', _) => {
                if is_opaque_too_long(token) {
                    return Err(OpaqueTooLong);
                }
                text.byte(b' ');
                text.bytes(word);
            }
            (b'k', _) => {
                text.bytes(b" k");
                write_key(text, key, plan.base64);
                if plan.base64 {
                    text.bytes(b" b");
                }
            }
            (b'T' | b'N', _) => {
                expiry_now = if letter == b'T' || is_created(facts) { expiry_after } else { expiry_now }
            }
            (b't', Facts::Hit(_) | Facts::Answer(Answer::Number { .. })) => {
                text.bytes(b" t");
                match expiry_now.remaining_s(now) {
                    None => text.bytes(b"-1"),
                    Some(remaining_s) => text.number(u64::from(remaining_s)),
                }
            }
            (b'c', Facts::Hit(hit)) => text.flag(b'c', hit.cas),
            (b'c', Facts::Answer(Answer::Number { cas, .. })) => text.flag(b'c', *cas),
            (b'c', Facts::Answer(answer)) if matches!(plan.command, MetaCommand::Set { .. }) => {
                text.flag(b'c', if let Answer::Stored { cas } = answer { *cas } else { 0 });
            }
            (b's', Facts::Hit(hit)) => text.flag(b's', hit.value_len as u64),
            (b'f', Facts::Hit(hit)) => text.flag(b'f', u64::from(hit.flags)),
            (b'l', Facts::Hit(hit)) => text.flag(b'l', u64::from(hit.idle_s)),
            (b'h', Facts::Hit(hit)) => text.flag(b'h', u64::from(hit.fetched)),
            _ => {}
        }
    }
    if let Facts::Hit(hit) = facts {
        for (is_so, flag) in [(hit.win_sent, b" Z"), (hit.stale, b" X"), (hit.won, b" W")] {
            if is_so {
                text.bytes(flag);
            }
        }
    }
    Ok(())
}

fn is_created(facts: &Facts<'_>) -> bool {
    matches!(facts, Facts::Hit(Hit { created: true, .. }) | Facts::Answer(Answer::Number { created: true, .. }))
}

fn expiries(facts: &Facts<'_>) -> (Expiry, Expiry) {
    let (before, after) = match facts {
        Facts::Hit(hit) => (hit.expiry_before, hit.expiry),
        Facts::Answer(Answer::Number { expiry_before, expiry, .. }) => (*expiry_before, *expiry),
        Facts::Answer(_) => (Expiry::NEVER, Expiry::NEVER),
    };
    (if is_created(facts) { Expiry::NEVER } else { before }, after)
}

fn write_key(text: &mut Text<'_>, key: Key<'_>, base64: bool) {
    if base64 {
        let mut encoded = [0; ENCODED_KEY_LEN_MAX];
        let len = base64::encode(key.as_bytes(), &mut encoded);
        text.bytes(&encoded[..len]);
    } else {
        text.bytes(key.as_bytes());
    }
}

/// The whole answer of me to a hit.
pub(crate) fn debug(text: &mut Text<'_>, plan: &MetaPlan<'_>, key: Key<'_>, hit: &Hit, now: Time) {
    text.bytes(b"ME ");
    write_key(text, key, plan.base64);
    // memcached prints now - exptime: the time left with a minus sign before it.
    text.bytes(b" exp=-");
    match hit.expiry.remaining_s(now) {
        None => text.byte(b'1'),
        Some(remaining_s) => text.number(u64::from(remaining_s)),
    }
    text.bytes(b" la=");
    text.number(u64::from(hit.idle_s));
    text.bytes(b" cas=");
    text.number(hit.cas);
    text.bytes(if hit.fetched { b" fetch=yes cls=" } else { b" fetch=no cls=" });
    text.number(u64::from(hit.class));
    text.bytes(b" size=");
    text.number(hit.total_len as u64);
    text.bytes(b"\r\n");
}
