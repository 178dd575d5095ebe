//! A guess at what is coming, cheap enough to be made before parsing.

use guira_cpwire::NAME_LEN;
use guira_item::KEY_LEN_MAX;

use crate::Dialect;

/// The longest command with a key, in bytes.
const COMMAND_LEN_MAX: usize = b"replace".len();

/// Room for a guess that is not in the input as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guess([u8; NAME_LEN]);

impl Guess {
    /// The key that the first thing in `input` is likely to be about. Good for prefetching and nothing else: some commands have
    /// no key, and what `input` begins with may be the rest of a value.
    #[inline]
    pub fn first_key<'k>(&'k mut self, dialect: Dialect, input: &'k [u8]) -> Option<&'k [u8]> {
        match dialect {
            Dialect::Memcached => second_word(input),
            Dialect::Cp => {
                self.0 = guira_cpwire::first_key(input)?.name();
                Some(&self.0)
            }
        }
    }
}

/// The second word of a line: but for `gat` and a few, where the key stands.
#[inline]
fn second_word(input: &[u8]) -> Option<&[u8]> {
    let space = input.iter().take(COMMAND_LEN_MAX + 1).position(|byte| *byte == b' ')?;
    let rest = &input[space + 1..];
    let len = rest.iter().take(KEY_LEN_MAX + 1).position(|byte| matches!(byte, b' ' | b'\r' | b'\n'))?;
    (len > 0).then(|| &rest[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_word_is_the_guess() {
        assert_eq!(second_word(b"get abc\r\nget other\r\n"), Some(b"abc".as_slice()));
        assert_eq!(second_word(b"set abc 0 0 5\r\nhello\r\n"), Some(b"abc".as_slice()));
        assert_eq!(second_word(b"mg abc v\n"), Some(b"abc".as_slice()));
        assert_eq!(second_word(b"get \r\n"), None);
        assert_eq!(second_word(b"get unended"), None);
        assert_eq!(second_word(b""), None);
        assert_eq!(second_word(b"averylongword abc\r\n"), None);
        let overlong = [b"get ".as_slice(), &[b'k'; KEY_LEN_MAX + 1], b"\r\n"].concat();
        assert_eq!(second_word(&overlong), None);
        let longest = [b"get ".as_slice(), &[b'k'; KEY_LEN_MAX], b"\r\n"].concat();
        assert_eq!(second_word(&longest), Some([b'k'; KEY_LEN_MAX].as_slice()));
    }

    #[test]
    fn a_hash_key_goes_by_its_name() {
        let mut input = Vec::new();
        guira_cpwire::push_lookup(&mut input, guira_cpwire::HashKey::from_low_bits(0x1f));
        let mut guess = Guess::default();
        assert_eq!(guess.first_key(Dialect::Cp, &input), Some(b"00000000000001f".as_slice()));
        assert_eq!(guess.first_key(Dialect::Cp, &input[..7]), None);
        assert_eq!(guess.first_key(Dialect::Memcached, b"get k\r\n"), Some(b"k".as_slice()));
    }
}
