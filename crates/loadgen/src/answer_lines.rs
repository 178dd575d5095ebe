//! Answers of one line, which both protocols have: where a line ends, and how many said what.

use memchr::memchr;

use crate::error::LoadError;
use crate::protocol::Answered;

/// No answer line is longer; a server that sends more without a line break speaks another protocol.
const LINE_LEN_MAX_BYTES: usize = 2048;

/// What a line says of the write it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    Refused,
    Error,
}

/// Measures `lines` answers of one line each, behind what is `answered` already; false while they are incomplete. Nearly all are
/// the `usual` line; what another line says is for `verdict`, which is `None` for nonsense.
#[inline]
pub(crate) fn measure_lines(
    bytes: &[u8],
    lines: u32,
    usual: &[u8],
    verdict: impl Fn(&[u8]) -> Option<Verdict>,
    answered: &mut Answered,
) -> Result<bool, LoadError> {
    for _ in 0..lines {
        let rest = &bytes[answered.len_bytes..];
        if rest.starts_with(usual) {
            answered.done += 1;
            answered.len_bytes += usual.len();
            continue;
        }
        let Some(line) = line_of(rest)? else { return Ok(false) };
        match verdict(line).ok_or_else(|| LoadError::garbled(line))? {
            Verdict::Done => answered.done += 1,
            Verdict::Refused => answered.refused += 1,
            Verdict::Error => answered.errors += 1,
        }
        answered.len_bytes += line.len();
    }
    Ok(true)
}

/// The first line, its `\r\n` included: at least one byte before it. `None` while it is incomplete.
pub(crate) fn line_of(bytes: &[u8]) -> Result<Option<&[u8]>, LoadError> {
    let window = &bytes[..bytes.len().min(LINE_LEN_MAX_BYTES)];
    match memchr(b'\n', window) {
        Some(end) if end > 1 && bytes[end - 1] == b'\r' => Ok(Some(&bytes[..=end])),
        Some(_) => Err(LoadError::garbled(bytes)),
        None if window.len() == LINE_LEN_MAX_BYTES => Err(LoadError::garbled(bytes)),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_in_both_bytes_and_is_never_empty_or_endless() {
        assert_eq!(line_of(b"OK\r\nmore").expect("a line"), Some(&b"OK\r\n"[..]));
        assert_eq!(line_of(b"OK\r").expect("incomplete"), None);
        for nonsense in [&b"\r\n"[..], b"\n", b"OK\n", &[b'x'; LINE_LEN_MAX_BYTES]] {
            assert!(line_of(nonsense).is_err(), "{nonsense:?}");
        }
    }
}
