//! The journal that `recorder.c` writes: what a process did to its files, in order.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Bytes before those of an entry itself.
const HEAD_LEN: usize = 4 + 4 + 8 + 8 + 4;

/// What was done. Files are named by their descriptors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// A process begins; descriptors of another one's are closed.
    Begin,
    /// A file or a folder was opened.
    Open {
        /// Under this descriptor.
        fd: i32,
        /// By this name.
        path: PathBuf,
        /// And made, if it was not there.
        creates: bool,
        /// And cut to no length.
        truncates: bool,
    },
    /// It was closed.
    Close(i32),
    /// Bytes were written.
    Write {
        /// To this file.
        fd: i32,
        /// From this one of its bytes on.
        at: u64,
        /// These.
        bytes: Arc<[u8]>,
    },
    /// A file has this length from now on.
    SetLen(i32, u64),
    /// A file has at least this length from now on.
    Allocate(i32, u64),
    /// What had the first name has the second.
    Rename(PathBuf, PathBuf),
    /// What has the first name has the second, too.
    Link(PathBuf, PathBuf),
    /// A name was removed.
    Remove(PathBuf),
    /// A folder was made.
    MakeFolder(PathBuf),
    /// The sync of this number began, of this file or folder.
    SyncBegins(u64, i32),
    /// It was told to have succeeded.
    Synced(u64),
    /// It was told to have failed.
    SyncFailed(u64),
}

/// An act, and where it ends in the journal: whatever comes later is told of by a longer one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The journal's length behind it, in bytes.
    pub end: u64,
    /// What was done.
    pub act: Act,
}

/// What was noted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Journal {
    /// All of it, in order.
    pub entries: Vec<Entry>,
}

impl Journal {
    /// Reads a journal. An entry that a killed process has not finished is left out.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn read(path: &Path) -> io::Result<Self> {
        Self::parse(&fs::read(path)?).ok_or_else(|| io::Error::other(format!("{} is no journal", path.display())))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut entries = Vec::new();
        let mut at = 0;
        while let Some(head) = bytes.get(at..at + HEAD_LEN) {
            let number = |from: usize| i64::from_ne_bytes(head[from..from + 8].try_into().expect("eight bytes"));
            let short = |from: usize| u32::from_ne_bytes(head[from..from + 4].try_into().expect("four bytes"));
            let (kind, fd, first, len) = (short(0), short(4) as i32, number(8), short(24) as usize);
            let Some(rest) = bytes.get(at + HEAD_LEN..at + HEAD_LEN + len) else { break };
            at += HEAD_LEN + len;
            let count = u64::try_from(first).ok()?;
            let path = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
            let two = || rest.split_at_checked(count as usize).map(|(from, to)| (path(from), path(to)));
            let act = match kind {
                0 => Act::Begin,
                1 => Act::Open { fd, path: path(rest), creates: count & 1 != 0, truncates: count & 2 != 0 },
                2 => Act::Close(fd),
                3 => Act::Write { fd, at: count, bytes: rest.into() },
                4 => Act::SetLen(fd, count),
                5 => Act::Allocate(fd, count),
                6 => two().map(|(from, to)| Act::Rename(from, to))?,
                7 => two().map(|(from, to)| Act::Link(from, to))?,
                8 => Act::Remove(path(rest)),
                9 => Act::MakeFolder(path(rest)),
                10 => Act::SyncBegins(count, fd),
                11 => Act::Synced(count),
                12 => Act::SyncFailed(count),
                _ => return None,
            };
            entries.push(Entry { end: at as u64, act });
        }
        Some(Self { entries })
    }

    /// Its length, in bytes.
    pub fn len(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.end)
    }

    /// Whether nothing was done.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
