//! Redis' RESP2 as far as a comparison needs it: GET, MGET and SET, for the peer `redis-server`.

use crate::answer_lines::{Verdict, line_of, measure_lines};
use crate::error::LoadError;
use crate::mix::Kind;
use crate::payload::VALUE_LEN_MAX_BYTES;
use crate::protocol::{Answered, KeyList, Turn};

const OK: &[u8] = b"+OK\r\n";

/// Appends GET of one key or MGET of several.
pub fn push_get(out: &mut Vec<u8>, keys: &KeyList) {
    if keys.len() == 1 {
        out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
    } else {
        push_number(out, b'*', keys.len() + 1);
        out.extend_from_slice(b"$4\r\nMGET\r\n");
    }
    keys.iter().for_each(|key| push_bulk(out, key));
}

/// Appends SET, with EX if `exptime` is not 0. Other writes are memcached's alone and refused.
pub fn push_write(out: &mut Vec<u8>, kind: Kind, key: &[u8], value: &[u8], exptime: u64) -> Result<(), LoadError> {
    if !matches!(kind, Kind::Set | Kind::Insert) {
        let text = format!("redis is measured with get and set only; '{}' is not one of them", kind.name());
        return Err(LoadError::Setting(text));
    }
    push_number(out, b'*', if exptime == 0 { 3 } else { 5 });
    push_bulk(out, b"SET");
    push_bulk(out, key);
    push_bulk(out, value);
    if exptime != 0 {
        push_bulk(out, b"EX");
        push_bulk(out, itoa::Buffer::new().format(exptime).as_bytes());
    }
    Ok(())
}

fn push_number(out: &mut Vec<u8>, sigil: u8, number: usize) {
    out.push(sigil);
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn push_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    push_number(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Measures the answer to `turn`; `None` while it is incomplete.
pub fn measure(bytes: &[u8], turn: Turn) -> Result<Option<Answered>, LoadError> {
    let mut answered = Answered::default();
    if !measure_lines(bytes, turn.lines, OK, verdict, &mut answered)? {
        return Ok(None);
    }
    if turn.get_keys == 0 {
        return Ok(Some(answered));
    }
    let mut at = answered.len_bytes;
    if turn.get_keys > 1 || bytes.get(at) == Some(&b'-') {
        let Some(line) = line_of(&bytes[at..])? else { return Ok(None) };
        at += line.len();
        if line[0] == b'-' {
            answered.errors += 1;
            answered.len_bytes = at;
            return Ok(Some(answered));
        }
        if line[0] != b'*' || number_of(line)? != i64::from(turn.get_keys) {
            return Err(LoadError::garbled(line));
        }
    }
    for _ in 0..turn.get_keys {
        if at > bytes.len() {
            return Ok(None);
        }
        let Some((header, len)) = bulk_header(&bytes[at..])? else { return Ok(None) };
        at += header;
        match len {
            None => answered.misses += 1,
            Some(len) => {
                answered.hits += 1;
                at += len + 2;
            }
        }
    }
    answered.len_bytes = at;
    Ok((at <= bytes.len()).then_some(answered))
}

/// What a line other than +OK says.
fn verdict(line: &[u8]) -> Option<Verdict> {
    match line[0] {
        b'+' | b':' => Some(Verdict::Done),
        b'-' => Some(Verdict::Error),
        _ => None,
    }
}

/// Calls `found` with index and value of every key found in a complete answer.
pub fn for_each_value(
    bytes: &[u8],
    lines: u32,
    keys: &KeyList,
    mut found: impl FnMut(usize, &[u8]),
) -> Result<(), LoadError> {
    let mut skipped = Answered::default();
    measure_lines(bytes, lines, OK, verdict, &mut skipped)?;
    let mut rest = &bytes[skipped.len_bytes..];
    if rest.starts_with(b"-") {
        return Ok(());
    }
    if keys.len() > 1 {
        let Some(line) = line_of(rest)? else { return Err(LoadError::garbled(rest)) };
        rest = &rest[line.len()..];
    }
    for index in 0..keys.len() {
        let Some((header, len)) = bulk_header(rest)? else { return Err(LoadError::garbled(rest)) };
        rest = &rest[header..];
        if let Some(len) = len {
            if rest.len() < len + 2 {
                return Err(LoadError::garbled(rest));
            }
            found(index, &rest[..len]);
            rest = &rest[len + 2..];
        }
    }
    Ok(())
}

/// Reads the answer to INFO, lines of `name:value` in one bulk string; `None` while it is incomplete.
pub fn counters(bytes: &[u8]) -> Result<Option<Vec<(String, String)>>, LoadError> {
    let Some((header, len)) = bulk_header(bytes)? else { return Ok(None) };
    let len = len.ok_or_else(|| LoadError::garbled(bytes))?;
    if bytes.len() < header + len + 2 {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&bytes[header..header + len]);
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    Ok(Some(pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect()))
}

/// Header length and value length (`None` for a miss) of a bulk string.
fn bulk_header(bytes: &[u8]) -> Result<Option<(usize, Option<usize>)>, LoadError> {
    let Some(line) = line_of(bytes)? else { return Ok(None) };
    if line[0] != b'$' {
        return Err(LoadError::garbled(line));
    }
    match number_of(line)? {
        -1 => Ok(Some((line.len(), None))),
        len if (0..=i64::from(VALUE_LEN_MAX_BYTES)).contains(&len) => Ok(Some((line.len(), Some(len as usize)))),
        _ => Err(LoadError::garbled(line)),
    }
}

fn number_of(line: &[u8]) -> Result<i64, LoadError> {
    let digits = std::str::from_utf8(&line[1..line.len() - 2]).ok();
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| LoadError::garbled(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multiget_is_waited_for_at_every_cut() {
        let bytes = b"+OK\r\n*3\r\n$2\r\nab\r\n$-1\r\n$0\r\n\r\n";
        let turn = Turn { lines: 1, get_keys: 3 };
        for cut in 0..bytes.len() {
            assert_eq!(measure(&bytes[..cut], turn).expect("well formed"), None, "cut at {cut}");
        }
        let answered = measure(bytes, turn).expect("well formed").expect("complete");
        assert_eq!((answered.done, answered.hits, answered.misses, answered.len_bytes), (1, 2, 1, bytes.len()));
        let mut found = Vec::new();
        for_each_value(bytes, 1, &KeyList::of(&["a", "b", "c"]), |index, value| found.push((index, value.to_vec())))
            .expect("well formed");
        assert_eq!(found, [(0, b"ab".to_vec()), (2, Vec::new())]);
    }

    #[test]
    fn a_single_get_has_no_array() {
        let answered = measure(b"$-1\r\n", Turn { lines: 0, get_keys: 1 }).expect("well formed").expect("complete");
        assert_eq!(answered.misses, 1);
    }

    #[test]
    fn errors_and_nonsense() {
        let turn = Turn { lines: 1, get_keys: 0 };
        let answered = measure(b"-OOM command not allowed\r\n", turn).expect("well formed").expect("complete");
        assert_eq!(answered.errors, 1);
        assert!(measure(b"VALUE\r\n", turn).is_err());
        for names in [&["a"][..], &["a", "b"]] {
            let found = |_: usize, _: &[u8]| panic!("an error holds no value");
            for_each_value(b"+OK\r\n-LOADING wait\r\n", 1, &KeyList::of(names), found).expect("an error is an answer");
        }
        assert!(measure(b"*2\r\n", Turn { lines: 0, get_keys: 3 }).is_err());
    }

    /// Any negative length was taken for a miss, and any positive one waited for, memory permitting.
    #[test]
    fn a_length_that_no_value_has_is_nonsense() {
        for header in ["$-2\r\n", "$1073741825\r\n", "$9223372036854775807\r\n", "$\r\n"] {
            assert!(measure(header.as_bytes(), Turn { lines: 0, get_keys: 1 }).is_err(), "{header:?}");
        }
    }

    /// The length was added to before it was looked at, so that the largest there is ended the program.
    #[test]
    fn counters_are_waited_for_at_every_cut() {
        let bytes = b"$31\r\n# Server\r\nevicted_keys:12\r\nx:\r\n\r\n";
        for cut in 0..bytes.len() {
            assert_eq!(counters(&bytes[..cut]).expect("well formed"), None, "cut at {cut}");
        }
        let found = counters(bytes).expect("well formed").expect("complete");
        assert_eq!(found, [("evicted_keys".into(), "12".into()), ("x".into(), String::new())]);
        for nonsense in ["$18446744073709551615\r\n", "$-1\r\n", "-NOAUTH\r\n", "INFO\r\n"] {
            assert!(counters(nonsense.as_bytes()).is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn requests_are_bulk_strings() {
        let mut out = Vec::new();
        push_get(&mut out, &KeyList::of(&["a"]));
        push_write(&mut out, Kind::Set, b"k", b"v", 0).expect("a set");
        let expected = "*2\r\n$3\r\nGET\r\n$1\r\na\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
        assert!(push_write(&mut out, Kind::Incr, b"k", b"", 0).is_err());
    }
}
