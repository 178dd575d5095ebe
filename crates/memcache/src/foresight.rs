//! A guess at what is coming, cheap enough to be made before parsing.

use guira_item::KEY_LEN_MAX;

/// The longest command with a key, in bytes.
const COMMAND_LEN_MAX: usize = b"replace".len();

/// The key that the first command in `input` is likely to be about: its second word. Good for prefetching and nothing else:
/// some commands have no key, and `gat` has it elsewhere.
#[inline]
pub fn first_key(input: &[u8]) -> Option<&[u8]> {
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
        assert_eq!(first_key(b"get abc\r\nget other\r\n"), Some(b"abc".as_slice()));
        assert_eq!(first_key(b"set abc 0 0 5\r\nhello\r\n"), Some(b"abc".as_slice()));
        assert_eq!(first_key(b"mg abc v\n"), Some(b"abc".as_slice()));
        assert_eq!(first_key(b"get \r\n"), None);
        assert_eq!(first_key(b"get unended"), None);
        assert_eq!(first_key(b""), None);
        assert_eq!(first_key(b"averylongword abc\r\n"), None);
        let overlong = [b"get ".as_slice(), &[b'k'; KEY_LEN_MAX + 1], b"\r\n"].concat();
        assert_eq!(first_key(&overlong), None);
        let longest = [b"get ".as_slice(), &[b'k'; KEY_LEN_MAX], b"\r\n"].concat();
        assert_eq!(first_key(&longest), Some([b'k'; KEY_LEN_MAX].as_slice()));
    }
}
