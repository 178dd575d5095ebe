//! A key: 1 to 250 bytes of any value; which bytes a client may send is the protocol's business.

/// The longest key, in bytes (memcached's limit).
pub const KEY_LEN_MAX: usize = 250;

/// A key of 1 to [`KEY_LEN_MAX`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key<'a>(&'a [u8]);

/// Why bytes are not a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyError {
    /// A key has at least one byte.
    Empty,
    /// A key has at most [`KEY_LEN_MAX`] bytes.
    TooLong {
        /// Length in bytes of what was offered.
        len: usize,
    },
}

impl<'a> Key<'a> {
    /// Checks the length and nothing else.
    ///
    /// # Errors
    /// [`KeyError`] when the length is 0 or more than [`KEY_LEN_MAX`] bytes.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Result<Self, KeyError> {
        match bytes.len() {
            0 => Err(KeyError::Empty),
            1..=KEY_LEN_MAX => Ok(Self(bytes)),
            len => Err(KeyError::TooLong { len }),
        }
    }

    /// The bytes of the key, 1 to [`KEY_LEN_MAX`] of them.
    #[inline]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_decides() {
        assert_eq!(Key::new(b""), Err(KeyError::Empty));
        assert!(Key::new(&[0; KEY_LEN_MAX]).is_ok());
        assert_eq!(Key::new(&[0; KEY_LEN_MAX + 1]), Err(KeyError::TooLong { len: 251 }));
    }
}
