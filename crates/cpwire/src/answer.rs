//! Answers: a size, and so many bytes of value.

/// Bytes of an answer before its value.
pub const ANSWER_HEADER_LEN: usize = 4;

/// The answer to a LOOKUP that finds nothing.
pub const MISS: [u8; ANSWER_HEADER_LEN] = [0; ANSWER_HEADER_LEN];

/// One whole answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<'a> {
    /// The value; empty if there is none.
    pub value: &'a [u8],
    /// Length of the answer, bytes.
    pub len: usize,
}

/// What stands before a value of `value_len` bytes.
///
/// # Panics
/// If the value is longer than 4 GiB - 1 bytes, four times what any engine keeps.
#[inline]
pub fn size_field(value_len: usize) -> [u8; ANSWER_HEADER_LEN] {
    u32::try_from(value_len).expect("a value below 4 GiB").to_le_bytes()
}

/// The answer at the front of `input`; `None` if it has not all come.
#[inline]
pub fn answer(input: &[u8]) -> Option<Answer<'_>> {
    let (size, rest) = input.split_first_chunk()?;
    let value = rest.get(..u32::from_le_bytes(*size) as usize)?;
    Some(Answer { value, len: ANSWER_HEADER_LEN + value.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_waited_for_at_every_cut() {
        let bytes = [size_field(3).as_slice(), b"abc", &MISS].concat();
        for cut in 0..7 {
            assert_eq!(answer(&bytes[..cut]), None, "cut at {cut}");
        }
        assert_eq!(answer(&bytes), Some(Answer { value: b"abc", len: 7 }));
        assert_eq!(answer(&bytes[7..]), Some(Answer { value: b"", len: 4 }));
    }
}
