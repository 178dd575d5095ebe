//! memcached's text protocol as a load generator needs it: requests appended, answers measured rather than parsed.
//!
//! With one key and one value length a hit has a known length, so an answer is walked in strides, looking at six
//! bytes a key; otherwise each VALUE line is read for its length. Values hold no line breaks of their own making
//! (see `payload`), and the walk never depends on that: it skips values by their declared length.

use crate::answer_lines::{Verdict, line_of, measure_lines};
use crate::error::LoadError;
use crate::mix::Kind;
use crate::payload::VALUE_LEN_MAX_BYTES;
use crate::protocol::{Answered, FixedShape, KeyList, Turn};

const STORED: &[u8] = b"STORED\r\n";
const END: &[u8] = b"END\r\n";

/// Appends `get` (or `gets`) of all keys.
pub fn push_get(out: &mut Vec<u8>, keys: &KeyList, with_cas: bool) {
    out.extend_from_slice(if with_cas { b"gets" } else { b"get" });
    for key in keys.iter() {
        out.push(b' ');
        out.extend_from_slice(key);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends one write; `value` is ignored by operations that carry none.
pub fn push_write(out: &mut Vec<u8>, kind: Kind, key: &[u8], value: &[u8], exptime: u64) {
    let mut number = itoa::Buffer::new();
    let mut words = |out: &mut Vec<u8>, name: &str, numbers: &[u64]| {
        out.extend_from_slice(name.as_bytes());
        out.push(b' ');
        out.extend_from_slice(key);
        for n in numbers {
            out.push(b' ');
            out.extend_from_slice(number.format(*n).as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    };
    let len = value.len() as u64;
    match kind {
        Kind::Delete => words(out, "delete", &[]),
        Kind::Incr => words(out, "incr", &[1]),
        Kind::Decr => words(out, "decr", &[1]),
        Kind::Touch => words(out, "touch", &[exptime]),
        Kind::Cas => words(out, "cas", &[0, exptime, len, 1]),
        Kind::Add | Kind::Replace | Kind::Append | Kind::Prepend => words(out, kind.name(), &[0, exptime, len]),
        Kind::Set | Kind::Insert | Kind::Get | Kind::Gets | Kind::ReadModifyWrite => {
            words(out, "set", &[0, exptime, len]);
        }
    }
    if !matches!(kind, Kind::Delete | Kind::Incr | Kind::Decr | Kind::Touch) {
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

/// Measures the answer to `turn`; `None` while it is incomplete.
#[inline]
pub fn measure(bytes: &[u8], turn: Turn, shape: Option<FixedShape>) -> Result<Option<Answered>, LoadError> {
    let mut answered = Answered::default();
    if !measure_lines(bytes, turn.lines, STORED, verdict, &mut answered)? {
        return Ok(None);
    }
    if turn.get_keys > 0 && !measure_get(bytes, turn.get_keys, shape, &mut answered)? {
        return Ok(None);
    }
    Ok(Some(answered))
}

/// What a line other than STORED says.
fn verdict(line: &[u8]) -> Option<Verdict> {
    match line {
        b"DELETED\r\n" | b"TOUCHED\r\n" | b"OK\r\n" => Some(Verdict::Done),
        b"NOT_STORED\r\n" | b"EXISTS\r\n" | b"NOT_FOUND\r\n" => Some(Verdict::Refused),
        _ if line[0].is_ascii_digit() => Some(Verdict::Done),
        _ if is_error(line) => Some(Verdict::Error),
        _ => None,
    }
}

#[inline]
fn measure_get(bytes: &[u8], keys: u32, shape: Option<FixedShape>, answered: &mut Answered) -> Result<bool, LoadError> {
    let stride = shape.map(hit_len_bytes);
    let mut at = answered.len_bytes;
    let mut hits = 0;
    loop {
        let rest = &bytes[at.min(bytes.len())..];
        if rest.starts_with(b"VALUE ") {
            hits += 1;
            if hits > keys {
                return Err(LoadError::garbled(rest));
            }
            at += match stride {
                Some(stride) => stride,
                None => match value_header(rest)? {
                    Some(header) => header.header_len_bytes + header.value_len_bytes + 2,
                    None => return Ok(false),
                },
            };
        } else if rest.starts_with(END) {
            answered.len_bytes = at + END.len();
            answered.hits += hits;
            answered.misses += keys - hits;
            return Ok(true);
        } else if rest.len() < 6 {
            return Ok(false);
        } else {
            let Some(line) = line_of(rest)? else { return Ok(false) };
            if !is_error(line) {
                return Err(LoadError::garbled(line));
            }
            answered.len_bytes = at + line.len();
            answered.errors += 1;
            return Ok(true);
        }
    }
}

/// Calls `found` with index and value of every key found. memcached answers in the order asked.
pub fn for_each_value(
    bytes: &[u8],
    lines: u32,
    keys: &KeyList,
    mut found: impl FnMut(usize, &[u8]),
) -> Result<(), LoadError> {
    let mut skipped = Answered::default();
    measure_lines(bytes, lines, STORED, verdict, &mut skipped)?;
    let mut rest = &bytes[skipped.len_bytes..];
    let mut next = 0;
    while rest.starts_with(b"VALUE ") {
        let Some(header) = value_header(rest)? else { return Err(LoadError::garbled(rest)) };
        let key = &rest[6..6 + header.key_len_bytes];
        while next < keys.len() && keys.key(next) != key {
            next += 1;
        }
        let end = header.header_len_bytes + header.value_len_bytes;
        if next == keys.len() || rest.len() < end + 2 {
            return Err(LoadError::garbled(rest));
        }
        found(next, &rest[header.header_len_bytes..end]);
        next += 1;
        rest = &rest[end + 2..];
    }
    Ok(())
}

/// Reads the answer to `stats`, lines of `STAT <name> <value>`; `None` while it is incomplete.
pub fn counters(bytes: &[u8]) -> Result<Option<Vec<(String, String)>>, LoadError> {
    let mut counters = Vec::new();
    let mut rest = bytes;
    while let Some(line) = line_of(rest)? {
        if line == END {
            return Ok(Some(counters));
        }
        let text = String::from_utf8_lossy(&line[..line.len() - 2]);
        let pair = text.strip_prefix("STAT ").and_then(|pair| pair.split_once(' '));
        let (name, value) = pair.ok_or_else(|| LoadError::garbled(line))?;
        counters.push((name.to_string(), value.to_string()));
        rest = &rest[line.len()..];
    }
    Ok(None)
}

/// Length of one hit with flags 0: `VALUE <key> 0 <len>\r\n<value>\r\n`, bytes.
pub fn hit_len_bytes(shape: FixedShape) -> usize {
    let digits = itoa::Buffer::new().format(shape.value_len_bytes).len();
    6 + shape.key_len_bytes as usize + 3 + digits + 2 + shape.value_len_bytes as usize + 2
}

struct ValueHeader {
    key_len_bytes: usize,
    value_len_bytes: usize,
    header_len_bytes: usize,
}

/// Reads `VALUE <key> <flags> <bytes>[ <cas>]\r\n`; `None` while it is incomplete.
fn value_header(bytes: &[u8]) -> Result<Option<ValueHeader>, LoadError> {
    let Some(line) = line_of(bytes)? else { return Ok(None) };
    let bad = || LoadError::garbled(line);
    let mut words = line[6..line.len() - 2].split(|byte| *byte == b' ');
    let key = words.next().filter(|key| !key.is_empty()).ok_or_else(bad)?;
    let len = words.nth(1).ok_or_else(bad)?;
    let len = std::str::from_utf8(len).ok().and_then(|len| len.parse().ok());
    let len: u32 = len.filter(|len| *len <= VALUE_LEN_MAX_BYTES).ok_or_else(bad)?;
    Ok(Some(ValueHeader { key_len_bytes: key.len(), value_len_bytes: len as usize, header_len_bytes: line.len() }))
}

fn is_error(line: &[u8]) -> bool {
    line.starts_with(b"ERROR") || line.starts_with(b"CLIENT_ERROR") || line.starts_with(b"SERVER_ERROR")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Option<FixedShape> = Some(FixedShape { key_len_bytes: 2, value_len_bytes: 3 });
    const TWO_HITS: &[u8] = b"VALUE k1 0 3\r\nabc\r\nVALUE k3 0 3\r\nxyz\r\nEND\r\n";

    #[test]
    fn hits_and_misses_are_counted_with_and_without_a_stride() {
        let turn = Turn { lines: 0, get_keys: 3 };
        for shape in [SHAPE, None] {
            let answered = measure(TWO_HITS, turn, shape).expect("well formed").expect("complete");
            assert_eq!((answered.hits, answered.misses, answered.len_bytes), (2, 1, TWO_HITS.len()));
        }
    }

    #[test]
    fn a_partial_answer_is_waited_for_at_every_cut() {
        let mut bytes = b"STORED\r\nNOT_STORED\r\n".to_vec();
        bytes.extend_from_slice(TWO_HITS);
        let turn = Turn { lines: 2, get_keys: 3 };
        for shape in [SHAPE, None] {
            for cut in 0..bytes.len() {
                assert_eq!(measure(&bytes[..cut], turn, shape).expect("well formed"), None, "cut at {cut}");
            }
            let answered = measure(&bytes, turn, shape).expect("well formed").expect("complete");
            assert_eq!((answered.done, answered.refused, answered.hits), (1, 1, 2));
        }
    }

    #[test]
    fn the_next_answer_is_left_alone() {
        let mut bytes = TWO_HITS.to_vec();
        bytes.extend_from_slice(b"END\r\n");
        let answered = measure(&bytes, Turn { lines: 0, get_keys: 2 }, SHAPE).expect("well formed").expect("complete");
        assert_eq!(answered.len_bytes, TWO_HITS.len());
    }

    #[test]
    fn error_lines_are_counted_and_nonsense_is_refused() {
        let turn = Turn { lines: 1, get_keys: 1 };
        let bytes = b"SERVER_ERROR out of memory storing object\r\nERROR\r\n";
        let answered = measure(bytes, turn, SHAPE).expect("well formed").expect("complete");
        assert_eq!((answered.errors, answered.misses, answered.len_bytes), (2, 0, bytes.len()));
        assert!(measure(b"WHAT IS THIS\r\n", turn, SHAPE).is_err());
        assert!(measure(&[b'x'; 4096], turn, SHAPE).is_err());
        assert!(measure(b"STORED\r\nVALUE \r\n", turn, None).is_err());
    }

    #[test]
    fn counters_are_waited_for_at_every_cut() {
        let bytes = b"STAT pid 1\r\nSTAT version 1.6.18 x\r\nEND\r\n";
        for cut in 0..bytes.len() {
            assert_eq!(counters(&bytes[..cut]).expect("well formed"), None, "cut at {cut}");
        }
        let found = counters(bytes).expect("well formed").expect("complete");
        assert_eq!(found, [("pid".into(), "1".into()), ("version".into(), "1.6.18 x".into())]);
        for nonsense in ["ERROR\r\n", "STAT pid\r\n", "\r\n"] {
            assert!(counters(nonsense.as_bytes()).is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn values_find_their_keys() {
        let mut found = Vec::new();
        for_each_value(TWO_HITS, 0, &KeyList::of(&["k1", "k2", "k3"]), |index, value| {
            found.push((index, value.to_vec()))
        })
        .expect("well formed");
        assert_eq!(found, [(0, b"abc".to_vec()), (2, b"xyz".to_vec())]);
        assert!(for_each_value(TWO_HITS, 0, &KeyList::of(&["k1"]), |_, _| ()).is_err(), "a key nobody asked for");
    }

    #[test]
    fn requests_are_memcacheds_own() {
        let mut out = Vec::new();
        push_get(&mut out, &KeyList::of(&["a", "b"]), false);
        push_write(&mut out, Kind::Set, b"k", b"val", 60);
        push_write(&mut out, Kind::Incr, b"k", b"ignored", 0);
        push_write(&mut out, Kind::Cas, b"k", b"v", 0);
        push_write(&mut out, Kind::Touch, b"k", b"", 9);
        push_write(&mut out, Kind::Delete, b"k", b"", 0);
        let expected = "get a b\r\nset k 0 60 3\r\nval\r\nincr k 1\r\ncas k 0 0 1 1\r\nv\r\ntouch k 9\r\ndelete k\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
