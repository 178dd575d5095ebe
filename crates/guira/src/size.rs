//! Sizes as memcached's flags take them: a number, with a unit or without.

/// Bytes of `512`, `64k`, `1m`, `1g`.
pub(crate) fn size_bytes(text: &str) -> Option<usize> {
    let (digits, unit) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size_bytes("1024"), Some(1024));
        assert_eq!(size_bytes("512k"), Some(512 << 10));
        assert_eq!(size_bytes("4M"), Some(4 << 20));
        assert_eq!(size_bytes("1g"), Some(1 << 30));
        for bad in ["", "m", "-1", "1.5m", "99999999999999999999g", "1x"] {
            assert_eq!(size_bytes(bad), None, "{bad}");
        }
    }
}
