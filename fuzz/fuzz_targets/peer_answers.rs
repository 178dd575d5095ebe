//! What programs under measurement answer: memcached's text, RESP, CPSERVER's values, and the lines of a contender for the best map. Any bytes
//! with any cut, and answers put together so that it is known what they say.
#![no_main]
#![allow(dead_code)]

#[path = "../../crates/bench/src/map/phase.rs"]
mod phase;

use guira_loadgen::error::LoadError;
use guira_loadgen::protocol::{Answered, FixedShape, KeyList, Protocol, Turn};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [which, pick, cut, rest @ ..] = data else { return };
    let protocol = [Protocol::MemcacheText, Protocol::Resp, Protocol::Cp][usize::from(which % 3)];
    let turn = Turn { lines: u32::from(pick >> 1 & 3), get_keys: u32::from(pick >> 3 & 3) };
    match pick >> 5 {
        0..=3 => check_bytes(protocol, turn, rest, usize::from(*cut)),
        4 | 5 => check_composed(protocol, turn, rest, usize::from(*cut)),
        6 => check_counters(protocol, rest, usize::from(*cut)),
        _ => check_lines(&String::from_utf8_lossy(rest)),
    }
});

/// An answer that is cut off is waited for, or nonsense if the whole of it is; one that is there stays what it is.
fn check_cut<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    cut: usize,
    read: impl Fn(&[u8]) -> Result<Option<T>, LoadError>,
) -> Option<T> {
    let whole = read(bytes);
    match (read(&bytes[..cut.min(bytes.len())]), &whole) {
        (Ok(None), _) | (Err(_), Err(_)) => {}
        (Ok(Some(early)), Ok(Some(whole))) => assert_eq!(early, *whole),
        (early, whole) => panic!("{early:?} came to be {whole:?}"),
    }
    whole.ok().flatten()
}

/// Keys that are asked for: a, b, c.
fn keys(count: u32) -> KeyList {
    let mut keys = KeyList::default();
    (0..count).for_each(|number| keys.push_with(|out| out.push(b'a' + number as u8)));
    keys
}

fn values(protocol: Protocol, bytes: &[u8], turn: Turn) -> Result<Vec<(usize, Vec<u8>)>, LoadError> {
    let mut found = Vec::new();
    protocol
        .for_each_value(bytes, turn.lines, &keys(turn.get_keys), |index, value| found.push((index, value.to_vec())))?;
    Ok(found)
}

fn check_bytes(protocol: Protocol, turn: Turn, bytes: &[u8], cut: usize) {
    let read = |bytes: &[u8]| protocol.measure(bytes, turn, None);
    let Some(answered) = check_cut(bytes, cut, read) else { return };
    let Answered { len_bytes, hits, misses, done, refused, errors } = answered;
    assert!(len_bytes <= bytes.len());
    let answer = &bytes[..len_bytes];
    assert_eq!(check_cut(answer, cut, read), Some(answered), "depends on what follows");
    assert!(answer.is_empty() || read(&answer[..len_bytes - 1]).is_ok_and(|early| early.is_none()), "ends too late");
    let was_read = hits + misses == turn.get_keys && done + refused + errors == turn.lines;
    let failed = hits + misses == 0 && done + refused + errors == turn.lines + 1;
    assert!(was_read || failed, "{answered:?} of {turn:?}");
    match values(protocol, answer, turn) {
        Ok(found) => {
            assert!(failed || found.len() == hits as usize);
            assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0));
            assert!(found.iter().all(|(index, value)| *index < turn.get_keys as usize && value.len() < len_bytes));
        }
        // Keys that nobody asked for are noticed only where there are keys.
        Err(_) => assert_eq!(protocol, Protocol::MemcacheText),
    }
}

/// The bytes say which keys are found, and are the values.
fn check_composed(protocol: Protocol, turn: Turn, bytes: &[u8], cut: usize) {
    let Some((hits, bytes)) = bytes.split_first() else { return };
    let value_len = bytes.len() / turn.get_keys.max(1) as usize;
    let is_found = |index: &usize| hits >> index & 1 == 1 && (value_len > 0 || protocol != Protocol::Cp);
    let found: Vec<(usize, &[u8])> = (0..turn.get_keys as usize)
        .filter(is_found)
        .map(|index| (index, &bytes[index * value_len..][..value_len]))
        .collect();
    let mut answer = Vec::new();
    let mut say = |parts: &[&[u8]]| parts.iter().for_each(|part| answer.extend_from_slice(part));
    match protocol {
        Protocol::MemcacheText => {
            (0..turn.lines).for_each(|_| say(&[b"STORED\r\n"]));
            for (index, value) in &found {
                let header = format!("VALUE {} 0 {value_len}\r\n", char::from(b'a' + *index as u8));
                say(&[header.as_bytes(), value, b"\r\n"]);
            }
            say(&[if turn.get_keys > 0 { b"END\r\n" } else { b"" }]);
        }
        Protocol::Resp => {
            (0..turn.lines).for_each(|_| say(&[b"+OK\r\n"]));
            if turn.get_keys > 1 {
                say(&[format!("*{}\r\n", turn.get_keys).as_bytes()]);
            }
            for index in 0..turn.get_keys as usize {
                match found.iter().find(|(known, _)| *known == index) {
                    Some((_, value)) => say(&[format!("${value_len}\r\n").as_bytes(), value, b"\r\n"]),
                    None => say(&[b"$-1\r\n"]),
                }
            }
        }
        Protocol::Cp => {
            for index in 0..turn.get_keys as usize {
                match found.iter().find(|(known, _)| *known == index) {
                    Some((_, value)) => say(&[&(value_len as u32).to_le_bytes(), value]),
                    None => say(&[&[0; 4]]),
                }
            }
            // To a LOOKUP behind writes alone.
            say(&[if turn.lines > 0 && turn.get_keys == 0 { &[1, 0, 0, 0, b'v'] } else { b"" }]);
        }
    }
    let wanted = Answered {
        len_bytes: answer.len(),
        hits: found.len() as u32,
        misses: turn.get_keys - found.len() as u32,
        done: turn.lines,
        ..Answered::default()
    };
    for shape in [None, Some(FixedShape { key_len_bytes: 1, value_len_bytes: value_len as u32 })] {
        let read = |bytes: &[u8]| protocol.measure(bytes, turn, shape);
        assert_eq!(check_cut(&answer, cut, read), Some(wanted));
        assert_eq!(check_cut(&answer, answer.len().saturating_sub(1 + cut), read), Some(wanted));
    }
    let values = values(protocol, &answer, turn).expect("well formed");
    assert!(values.iter().map(|(index, value)| (*index, &value[..])).eq(found));
}

/// Counters are text that was there.
fn check_counters(protocol: Protocol, bytes: &[u8], cut: usize) {
    let Some(counters) = check_cut(bytes, cut, |bytes| protocol.counters(bytes)) else { return };
    let separator = if protocol == Protocol::MemcacheText { ' ' } else { ':' };
    // What is no text is replaced, and so is a character whose bytes the answer's length cuts in two.
    let is_replaced = |part: &str| part.contains(char::REPLACEMENT_CHARACTER);
    if let Ok(text) = std::str::from_utf8(bytes) {
        for (name, value) in &counters {
            assert!(is_replaced(name) || is_replaced(value) || text.contains(&format!("{name}{separator}{value}")));
        }
    }
    assert!(counters.iter().all(|(name, _)| !name.contains(['\n', separator])));
}

/// A phase and an outcome that were understood can be said again.
fn check_lines(line: &str) {
    if let Ok(phase) = line.parse::<phase::Phase>() {
        assert_eq!(phase.to_string().parse(), Ok(phase));
    }
    if let Ok(outcome) = line.parse::<phase::Outcome>() {
        assert_eq!(outcome.to_string().parse(), Ok(outcome));
    }
}
