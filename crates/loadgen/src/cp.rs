//! CPSERVER's binary protocol as a load generator needs it: requests appended, answers measured by their sizes.
//!
//! Always true: writes have no answers of their own. Requests of a connection are carried out in order, so the answer to a
//! LOOKUP behind them says that they are done; a turn of writes alone ends in one for that purpose ([`push_turn_end`]).

use guira_cpwire::{ANSWER_HEADER_LEN, HashKey, answer, push_insert, push_lookup};

use crate::error::LoadError;
use crate::mix::Kind;
use crate::payload::{VALUE_LEN_MAX_BYTES, key_seed};
use crate::protocol::{Answered, FixedShape, KeyList, Turn};

/// Bits of a word above those a hash key's next digit may be shifted into.
const FULL_FROM: u32 = 56;

/// The hash key of a key: its number if it is one in hexadecimal digits, as this generator's are, or else what its bytes hash to.
fn hash_key(key: &[u8]) -> HashKey {
    let number = key.iter().try_fold(0u64, |number, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        (number >> FULL_FROM == 0).then_some(number << 4 | u64::from(digit))
    });
    HashKey::from_low_bits(number.unwrap_or_else(|| key_seed(key)))
}

/// Appends a LOOKUP of each key.
pub fn push_get(out: &mut Vec<u8>, keys: &KeyList) {
    keys.iter().for_each(|key| push_lookup(out, hash_key(key)));
}

/// Appends an INSERT. Other writes, lifetimes and empty values cannot be said and are refused.
pub fn push_write(out: &mut Vec<u8>, kind: Kind, key: &[u8], value: &[u8], exptime: u64) -> Result<(), LoadError> {
    let problem = if !matches!(kind, Kind::Set | Kind::Insert) {
        format!("lookups and inserts only; '{}' is neither", kind.name())
    } else if exptime != 0 {
        "inserts without a lifetime".to_string()
    } else if value.is_empty() {
        "inserts of at least one byte".to_string()
    } else {
        push_insert(out, hash_key(key), value);
        return Ok(());
    };
    Err(LoadError::Setting(format!("CPSERVER's protocol has {problem}")))
}

/// Appends what ends `turn`: a LOOKUP if nothing else in it has an answer.
pub fn push_turn_end(out: &mut Vec<u8>, turn: Turn) {
    if is_silent(turn) {
        push_lookup(out, HashKey::from_low_bits(0));
    }
}

fn is_silent(turn: Turn) -> bool {
    turn.lines > 0 && turn.get_keys == 0
}

/// Measures the answer to `turn`; `None` while it is incomplete.
#[inline]
pub fn measure(bytes: &[u8], turn: Turn, shape: Option<FixedShape>) -> Result<Option<Answered>, LoadError> {
    let mut answered = Answered { done: turn.lines, ..Answered::default() };
    for _ in 0..turn.get_keys {
        let Some(value_len) = next_len(&bytes[answered.len_bytes..])? else { return Ok(None) };
        match value_len {
            0 => answered.misses += 1,
            _ if shape.is_some_and(|shape| shape.value_len_bytes as usize != value_len) => {
                return Err(LoadError::garbled(&bytes[answered.len_bytes..]));
            }
            _ => answered.hits += 1,
        }
        answered.len_bytes += ANSWER_HEADER_LEN + value_len;
    }
    if is_silent(turn) {
        let Some(value_len) = next_len(bytes)? else { return Ok(None) };
        answered.len_bytes = ANSWER_HEADER_LEN + value_len;
    }
    Ok(Some(answered))
}

/// The length of the value in the answer that `bytes` begin with; `None` while it is incomplete.
#[inline]
fn next_len(bytes: &[u8]) -> Result<Option<usize>, LoadError> {
    let Some(size) = bytes.first_chunk() else { return Ok(None) };
    let size = u32::from_le_bytes(*size);
    if size > VALUE_LEN_MAX_BYTES {
        return Err(LoadError::garbled(bytes));
    }
    let value_len = size as usize;
    Ok((bytes.len() >= ANSWER_HEADER_LEN + value_len).then_some(value_len))
}

/// Calls `found` with index and value of every key found.
pub fn for_each_value(bytes: &[u8], keys: &KeyList, mut found: impl FnMut(usize, &[u8])) -> Result<(), LoadError> {
    let mut rest = bytes;
    for index in 0..keys.len() {
        let Some(answer) = answer(rest) else { return Err(LoadError::garbled(rest)) };
        if !answer.value.is_empty() {
            found(index, answer.value);
        }
        rest = &rest[answer.len..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use guira_cpwire::{MISS, size_field};

    const SHAPE: Option<FixedShape> = Some(FixedShape { key_len_bytes: 15, value_len_bytes: 3 });

    fn two_of_three() -> Vec<u8> {
        [size_field(3).as_slice(), b"abc", &MISS, &size_field(3), b"xyz"].concat()
    }

    #[test]
    fn a_partial_answer_is_waited_for_at_every_cut() {
        let bytes = two_of_three();
        let turn = Turn { lines: 2, get_keys: 3 };
        for shape in [SHAPE, None] {
            for cut in 0..bytes.len() {
                assert_eq!(measure(&bytes[..cut], turn, shape).expect("well formed"), None, "cut at {cut}");
            }
            let more = [bytes.as_slice(), b"more"].concat();
            let answered = measure(&more, turn, shape).expect("well formed").expect("complete");
            assert_eq!((answered.hits, answered.misses, answered.done), (2, 1, 2));
            assert_eq!(answered.len_bytes, bytes.len());
        }
    }

    #[test]
    fn writes_alone_are_done_when_the_lookup_behind_them_is_answered() {
        let turn = Turn { lines: 1, get_keys: 0 };
        let mut out = Vec::new();
        push_write(&mut out, Kind::Set, b"1f", b"v", 0).expect("an insert");
        let insert_len = out.len();
        push_turn_end(&mut out, turn);
        assert_eq!(out.len(), insert_len + 8);
        push_turn_end(&mut out, Turn { lines: 1, get_keys: 1 });
        assert_eq!(out.len(), insert_len + 8);
        assert_eq!(measure(b"", turn, SHAPE).expect("nothing yet"), None);
        for answer in [MISS.to_vec(), [size_field(5).as_slice(), b"hello"].concat()] {
            let answered = measure(&answer, turn, SHAPE).expect("well formed").expect("complete");
            assert_eq!(answered, Answered { len_bytes: answer.len(), done: 1, ..Answered::default() });
        }
    }

    #[test]
    fn other_sizes_than_were_stored_are_nonsense() {
        let turn = Turn { lines: 0, get_keys: 1 };
        assert!(measure(&[size_field(2).as_slice(), b"ab"].concat(), turn, SHAPE).is_err());
        assert!(measure(&u32::MAX.to_le_bytes(), turn, None).is_err());
    }

    #[test]
    fn values_find_their_keys() {
        let mut found = Vec::new();
        let keys = KeyList::of(&["1", "2", "3"]);
        for_each_value(&two_of_three(), &keys, |index, value| found.push((index, value.to_vec())))
            .expect("well formed");
        assert_eq!(found, [(0, b"abc".to_vec()), (2, b"xyz".to_vec())]);
        assert!(for_each_value(b"\x01", &keys, |_, _| ()).is_err());
    }

    #[test]
    fn a_number_is_its_own_hash_key() {
        assert_eq!(hash_key(b"00000000000001f").get(), 0x1f);
        assert_eq!(hash_key(b"0000000000000001f").get(), 0x1f);
        assert_eq!(hash_key(b"fffffffffffffff").get(), (1 << 60) - 1);
        assert_ne!(hash_key(b"1000000000000000").get(), 0);
        assert_ne!(hash_key(b"n000000000000001"), hash_key(b"n000000000000002"));
    }

    #[test]
    fn what_cannot_be_said_is_refused_in_one_line() {
        let mut out = Vec::new();
        for (kind, value, exptime) in [(Kind::Incr, &b"v"[..], 0), (Kind::Set, b"v", 5), (Kind::Set, b"", 0)] {
            let line = push_write(&mut out, kind, b"1", value, exptime).expect_err("must be refused").to_string();
            assert!(!line.contains('\n') && out.is_empty(), "{line}");
        }
    }
}
