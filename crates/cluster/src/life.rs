//! What a member begins with: the number of its life, which may be kept in a file, so that each is above those before it whatever the wall clock says.
//!
//! Always true: a number is on disk before it is used; no two lives that were begun with one file have the same.

use std::{
    fmt, fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{Incarnation, NodeClock, boot_now, unix_now, write_whole};

/// What a life's number is above that of the life before it, at least: sessions are numbered on from it, and no life begins so many.
pub const LIVES_APART: u64 = 1 << 30;

/// What a member begins with: its life, its clock, and something drawn. [`Life::begin`] begins one.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// This life's number.
    pub incarnation: Incarnation,
    /// Ties its moments to the cluster's seconds.
    pub clock: NodeClock,
    /// Seeds what is drawn.
    pub seed: u64,
}

/// Why a life cannot begin.
#[derive(Debug)]
pub enum LifeError {
    /// The file cannot be read or written.
    File(PathBuf, io::Error),
    /// What is in it is no number.
    NoNumber(PathBuf),
    /// There is no number above the one in it.
    NoneAbove(PathBuf),
    /// The clock is past all that has a number.
    Clock,
}

impl fmt::Display for LifeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::NoNumber(path) => write!(
                f,
                "{}: not the number of a life; remove it, if the clock was not set back since this member last ran",
                path.display()
            ),
            Self::NoneAbove(path) => write!(
                f,
                "{}: the number of the last life that could be; remove it, if the clock was not set back since this member last ran",
                path.display()
            ),
            Self::Clock => f.write_str("the clock says that it is after the year 2554; set it"),
        }
    }
}

impl std::error::Error for LifeError {}

impl Life {
    /// Begins one, by the clocks as they are now; above all that were begun with the same file, if there is one.
    ///
    /// # Errors
    /// The file cannot be read or written, or something else is in it; no number is left for this life.
    pub fn begin(kept: Option<&Path>) -> Result<Self, LifeError> {
        let unix = unix_now();
        let incarnation = match kept {
            Some(path) => next_in(path, unix)?,
            None => by_clock(unix)?,
        };
        Ok(Self { incarnation, clock: NodeClock::set(boot_now(), unix), seed: rand::random() })
    }
}

fn by_clock(unix: Duration) -> Result<Incarnation, LifeError> {
    u64::try_from(unix.as_nanos()).map(Incarnation).map_err(|_| LifeError::Clock)
}

fn next_in(path: &Path, unix: Duration) -> Result<Incarnation, LifeError> {
    let failed = |error| LifeError::File(path.to_owned(), error);
    let before = match fs::read_to_string(path) {
        Ok(text) => text.trim().parse::<u64>().map_err(|_| LifeError::NoNumber(path.to_owned()))?,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) if error.kind() == ErrorKind::InvalidData => return Err(LifeError::NoNumber(path.to_owned())),
        Err(error) => return Err(failed(error)),
    };
    let above = before.checked_add(LIVES_APART).ok_or_else(|| LifeError::NoneAbove(path.to_owned()))?;
    let number = Incarnation(by_clock(unix)?.0.max(above));
    write_whole(path, format!("{}\n", number.0).as_bytes()).map_err(failed)?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_life_is_above_those_before_it_whatever_the_clock_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("life");
        let begin = |unix_s| next_in(&path, Duration::from_secs(unix_s)).expect("begun").0;
        let first = begin(1_000);
        assert_eq!(first, 1_000_000_000_000, "the clock's, where nothing says otherwise");
        assert_eq!(begin(2_000), 2_000_000_000_000);
        let set_back = begin(500);
        assert_eq!(set_back, 2_000_000_000_000 + LIVES_APART);
        assert_eq!(begin(500), set_back + LIVES_APART);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing else is left");
    }

    #[test]
    fn what_is_no_number_is_told_and_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("life");
        for text in [&b""[..], b"soon", b"-1", b"18446744073709551616", b"\xff\xfe"] {
            fs::write(&path, text).expect("written");
            let told = next_in(&path, Duration::from_secs(1)).expect_err("no number").to_string();
            assert!(told.contains("not the number of a life") && !told.contains('\n'), "{told}");
            assert_eq!(fs::read(&path).expect("there"), text);
        }
        let nowhere = folder.path().join("nowhere").join("life");
        assert!(matches!(next_in(&nowhere, Duration::from_secs(1)), Err(LifeError::File(..))));
    }

    #[test]
    fn where_numbers_end_no_life_has_that_of_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("life");
        assert!(matches!(next_in(&path, Duration::MAX), Err(LifeError::Clock)));
        assert!(!path.exists(), "nothing is kept of it");
        let last = (u64::MAX - LIVES_APART + 1).to_string();
        fs::write(&path, &last).expect("written");
        assert!(matches!(next_in(&path, Duration::from_secs(1)), Err(LifeError::NoneAbove(_))));
        assert_eq!(fs::read_to_string(&path).expect("there"), last);
    }
}
