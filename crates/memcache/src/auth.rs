//! Who may talk to the server: the `user:password` lines of memcached's `-Y` file.
//!
//! Always true: checking takes the same time wherever the first difference lies, and looks at every line; one check sees
//! one file, be it replaced meanwhile.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// The most lines a file may have: every check walks all of them.
const ENTRIES_MAX: usize = 64;

/// Credentials, as `user:password` each.
#[derive(Clone)]
pub struct AuthFile {
    entries: Vec<Box<[u8]>>,
}

/// Why the text of an auth file was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthFileError {
    /// It has no line.
    Empty,
    /// A line has no colon.
    NoColon {
        /// Which line, from 1.
        line: usize,
    },
    /// It has more lines than are checked.
    TooManyLines {
        /// The limit.
        max: usize,
    },
}

impl fmt::Display for AuthFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the auth file is empty; write one user:password a line"),
            Self::NoColon { line } => write!(f, "line {line} of the auth file is not user:password"),
            Self::TooManyLines { max } => write!(f, "the auth file has more than {max} lines"),
        }
    }
}

impl std::error::Error for AuthFileError {}

impl AuthFile {
    /// Reads the text of an auth file; empty lines are passed over.
    ///
    /// # Errors
    /// [`AuthFileError`] when it holds nothing, too much, or a line without a colon.
    pub fn parse(text: &[u8]) -> Result<Self, AuthFileError> {
        let mut entries = Vec::new();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            if !line.contains(&b':') {
                return Err(AuthFileError::NoColon { line: index + 1 });
            }
            if entries.len() == ENTRIES_MAX {
                return Err(AuthFileError::TooManyLines { max: ENTRIES_MAX });
            }
            entries.push(line.into());
        }
        if entries.is_empty() { Err(AuthFileError::Empty) } else { Ok(Self { entries }) }
    }

    /// Whether one of the lines is `user:password`.
    pub fn check(&self, user: &[u8], password: &[u8]) -> bool {
        let offered = user.iter().chain(b":").chain(password);
        let mut found = false;
        for entry in &self.entries {
            let mut differs = entry.len() != user.len() + 1 + password.len();
            for (index, byte) in offered.clone().enumerate() {
                differs |= entry.get(index).is_none_or(|wanted| std::hint::black_box(wanted ^ byte) != 0);
            }
            found |= !differs;
        }
        found
    }
}

impl fmt::Debug for AuthFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthFile({} entries)", self.entries.len())
    }
}

/// The auth file that holds, for all sessions; it may be replaced while they run. Whoever has authenticated stays so.
#[derive(Clone, Debug)]
pub struct Credentials(Arc<RwLock<AuthFile>>);

impl Credentials {
    /// What holds until it is replaced.
    pub fn new(file: AuthFile) -> Self {
        Self(Arc::new(RwLock::new(file)))
    }

    /// From now on `file` holds, in all clones.
    pub fn replace(&self, file: AuthFile) {
        // What a panic left behind is whole: a file is put in place by one assignment.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = file;
    }

    /// Whether one of the lines is `user:password`.
    pub fn check(&self, user: &[u8], password: &[u8]) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).check(user, password)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_holds_in_all_clones() {
        let file = |text: &[u8]| AuthFile::parse(text).expect("valid");
        let credentials = Credentials::new(file(b"ann:secret"));
        let session = credentials.clone();
        assert!(session.check(b"ann", b"secret"));
        credentials.replace(file(b"ann:changed"));
        assert!(!session.check(b"ann", b"secret") && session.check(b"ann", b"changed"));
    }

    #[test]
    fn only_whole_lines_match() {
        let file = AuthFile::parse(b"ann:secret\r\n\nbob:a:b\n").expect("two lines");
        assert!(file.check(b"ann", b"secret"));
        assert!(file.check(b"bob", b"a:b"));
        for (user, password) in [("ann", "secre"), ("ann", "secrets"), ("", ""), ("bob", "a"), ("ann:secret", "")] {
            assert!(!file.check(user.as_bytes(), password.as_bytes()), "{user} {password}");
        }
    }

    #[test]
    fn a_useless_file_is_refused() {
        assert_eq!(AuthFile::parse(b"\n").err(), Some(AuthFileError::Empty));
        assert_eq!(AuthFile::parse(b"a:b\nnobody\n").err(), Some(AuthFileError::NoColon { line: 2 }));
        let many = b"a:b\n".repeat(ENTRIES_MAX + 1);
        assert_eq!(AuthFile::parse(&many).err(), Some(AuthFileError::TooManyLines { max: ENTRIES_MAX }));
    }
}
