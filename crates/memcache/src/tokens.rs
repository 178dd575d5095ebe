//! Words of a command line, and numbers as C reads them.
//!
//! Always true: a word has no space and no NUL; at most [`TOKENS_MAX`] words are seen, what follows is ignored (memcached
//! cuts a line into 23 words and looks no further unless it is a get). Only the space separates: a tab is part of a word.

/// The most words of a line that are looked at.
pub(crate) const TOKENS_MAX: usize = 23;

/// The words of a line.
pub(crate) struct Tokens<'a> {
    words: [&'a [u8]; TOKENS_MAX],
    len: usize,
}

impl<'a> Tokens<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Self {
        let mut tokens = Self { words: [b""; TOKENS_MAX], len: 0 };
        let mut at = 0;
        while at < line.len() && tokens.len < TOKENS_MAX {
            let end = word_end(line, at);
            if end > at {
                tokens.words[tokens.len] = &line[at..end];
                tokens.len += 1;
            }
            at = end + 1;
        }
        tokens
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Word number `index`; empty if there is none.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> &'a [u8] {
        self.words.get(index).copied().unwrap_or_default()
    }

    /// The last word.
    pub(crate) fn last(&self) -> &'a [u8] {
        self.get(self.len.wrapping_sub(1))
    }

    /// Whether the last word asks for silence.
    pub(crate) fn noreply(&self) -> bool {
        self.last() == b"noreply"
    }

    /// The words from number `from` on.
    pub(crate) fn from(&self, from: usize) -> &[&'a [u8]] {
        self.words[..self.len].get(from..).unwrap_or_default()
    }
}

/// The words of `line`.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
const SPACES: u64 = LOW_BITS * b' ' as u64;

/// Where the word that starts at `start` ends: the index of the next space, or the length of `line`.
#[inline]
pub(crate) fn word_end(line: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(chunk) = line.get(at..).and_then(|rest| rest.first_chunk()) {
        let differs = u64::from_le_bytes(*chunk) ^ SPACES;
        let spaces = differs.wrapping_sub(LOW_BITS) & !differs & HIGH_BITS;
        if spaces != 0 {
            return at + (spaces.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while line.get(at).is_some_and(|byte| *byte != b' ') {
        at += 1;
    }
    at
}

fn is_c_space(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

/// Sign and digits at the front of a word, `None` where C would find no number or memcached stops reading: behind the
/// digits the word must end or go on with white space.
fn sign_and_digits(word: &[u8]) -> Option<(bool, &[u8])> {
    let start = word.iter().position(|byte| !is_c_space(*byte))?;
    let (negative, rest) = match word[start] {
        b'-' => (true, &word[start + 1..]),
        b'+' => (false, &word[start + 1..]),
        _ => (false, &word[start..]),
    };
    let digits_len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits_len == 0 || rest.get(digits_len).is_some_and(|byte| !is_c_space(*byte)) {
        return None;
    }
    Some((negative, &rest[..digits_len]))
}

fn magnitude(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

/// A number as `strtoull` takes it and memcached's `safe_strtoull` lets it pass: a minus sign negates modulo 2^64, and
/// anything with one that is still beyond 2^63 afterwards is refused.
pub(crate) fn parse_u64(word: &[u8]) -> Option<u64> {
    let (negative, digits) = sign_and_digits(word)?;
    let magnitude = magnitude(digits)?;
    let number = if negative { magnitude.wrapping_neg() } else { magnitude };
    if number > i64::MAX as u64 && word.contains(&b'-') { None } else { Some(number) }
}

/// A 32-bit number as memcached's `safe_strtoul` takes it: a 64-bit one whose upper half is dropped.
pub(crate) fn parse_u32(word: &[u8]) -> Option<u32> {
    parse_u64(word).map(|number| number as u32)
}

/// A signed 32-bit number as memcached's `safe_strtol` takes it: a 64-bit one whose upper half is dropped.
pub(crate) fn parse_i32(word: &[u8]) -> Option<i32> {
    let (negative, digits) = sign_and_digits(word)?;
    let magnitude = i128::from(magnitude(digits)?);
    i64::try_from(if negative { -magnitude } else { magnitude }).ok().map(|number| number as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_spaces_separate_words() {
        let tokens = Tokens::new(b"  set \ta  0 ");
        assert_eq!(tokens.from(0), [&b"set"[..], b"\ta", b"0"]);
        assert_eq!((tokens.len(), tokens.get(1), tokens.get(9), tokens.last()), (3, &b"\ta"[..], &b""[..], &b"0"[..]));
        let many = b"x ".repeat(40);
        assert_eq!(Tokens::new(&many).len(), TOKENS_MAX);
    }

    #[test]
    fn words_end_at_the_first_space() {
        let line = b"!0123456789\x21abcdefghijklmnopqrstuvwxyz\x1f\xa0 ";
        for start in 0..line.len() {
            assert_eq!(word_end(line, start), line.len() - 1, "{start}");
        }
        for len in 0..40 {
            for space in 0..len {
                let mut line = vec![b'!'; len];
                line[space] = b' ';
                assert_eq!(word_end(&line, 0), space);
                assert_eq!(word_end(&line, space + 1), len);
            }
        }
    }

    /// What Debian's memcached 1.6.18 made of these as flags, delta, exptime and length.
    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, number) in [
            (&b"0"[..], Some(0)),
            (b"+1", Some(1)),
            (b"007", Some(7)),
            (b"\t5", Some(5)),
            (b"1\tfoo", Some(1)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"-18446744073709551615", Some(1)),
            (b"-9223372036854775809", Some(i64::MAX as u64)),
            (b"-1", None),
            (b"1x", None),
            (b"0x10", None),
            (b"", None),
            (b"+", None),
            (b"x", None),
        ] {
            assert_eq!(parse_u64(text), number, "{text:?}");
        }
        for (text, number) in [
            (&b"-1"[..], Some(-1)),
            (b"4294967295", Some(-1)),
            (b"4294967296", Some(0)),
            (b"-4294967295", Some(1)),
            (b"9223372036854775807", Some(-1)),
            (b"-9223372036854775808", Some(0)),
            (b"9223372036854775808", None),
            (b"-9223372036854775809", None),
            (b"18446744073709551615", None),
        ] {
            assert_eq!(parse_i32(text), number, "{text:?}");
        }
        assert_eq!(parse_u32(b"4294967296"), Some(0));
    }
}
