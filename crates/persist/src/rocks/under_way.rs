//! A folder that gets its name when it is whole.
//!
//! ```text
//! PATH.next/guira-under-way   locked by whoever fills it
//! PATH.next/whole/            becomes PATH
//! ```
//! Always true: nothing that was there is changed, but for what another one has left under its own name that was cut short.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, process::geteuid};

use super::{backup::BackupError, backup::io_failure};
use crate::folder::{parent, sync};

/// Whose lock tells that somebody fills the folder that it is in, and whose name tells what that folder is.
const MARK: &str = "guira-under-way";

/// The names of what is to be whole: RocksDB fills another one first.
const WHOLE: &str = "whole";
const WHOLE_OF_ROCKSDB: &str = "whole.tmp";

/// A folder under way to its name; removed when it is dropped before it is there.
#[derive(Debug)]
pub(super) struct UnderWay {
    to: PathBuf,
    next: PathBuf,
    /// Locked as long as it is open.
    _mark: File,
}

fn next_to(to: &Path) -> PathBuf {
    let mut next = to.as_os_str().to_owned();
    next.push(".next");
    next.into()
}

impl UnderWay {
    /// Begins a folder that is to become `to`, where nothing is yet or an empty folder.
    ///
    /// # Errors
    /// [`BackupError::IsThere`], or [`BackupError::Told`].
    pub(super) fn begin(to: &Path) -> Result<Self, BackupError> {
        // Without a slash at its end.
        let to: PathBuf = to.components().collect();
        must_be_free(&to)?;
        let next = next_to(&to);
        match DirBuilder::new().mode(0o700).create(&next) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io_failure(parent(&to))(error)),
            _ => {}
        }
        let mark = claim(&next)?;
        let under_way = Self { to, next, _mark: mark };
        for left in [WHOLE, WHOLE_OF_ROCKSDB] {
            match fs::remove_dir_all(under_way.next.join(left)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io_failure(&under_way.next)(error));
                }
                _ => {}
            }
        }
        Ok(under_way)
    }

    /// Where it is filled; to be made by whoever does.
    pub(super) fn folder(&self) -> PathBuf {
        self.next.join(WHOLE)
    }

    /// Gives it its name, and the rights of the folder `like`. What is in it has been synced.
    ///
    /// # Errors
    /// What the system says; there is nothing under its name then.
    pub(super) fn finish(self, like: &Path) -> io::Result<()> {
        let whole = self.folder();
        fs::set_permissions(&whole, fs::metadata(like)?.permissions())?;
        sync(&whole)?;
        fs::rename(&whole, &self.to)?;
        sync(parent(&self.to))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // If it stays, whoever comes next removes it.
        let _ = fs::remove_dir_all(&self.next);
    }
}

/// Bytes that a folder under way to `to` has by now, as far as they can be seen.
pub fn bytes_under_way(to: &Path) -> u64 {
    let next = next_to(&to.components().collect::<PathBuf>());
    [WHOLE, WHOLE_OF_ROCKSDB].iter().map(|name| folder_bytes(&next.join(name))).sum()
}

/// Bytes of the files in a folder, as far as they can be seen.
pub fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len())).sum()
}

/// Whether nothing is there, or an empty folder that can be replaced.
fn must_be_free(to: &Path) -> Result<(), BackupError> {
    let there = match fs::symlink_metadata(to) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_failure(to)(error)),
    };
    if !there.is_dir() || fs::read_dir(to).map_err(io_failure(to))?.next().is_some() {
        return Err(BackupError::IsThere(to.to_owned()));
    }
    let around = fs::metadata(parent(to)).map_err(io_failure(parent(to)))?;
    if around.dev() != there.dev() {
        return Err(BackupError::Told(format!("{} is a mount point: choose a folder in it", to.display())));
    }
    Ok(())
}

/// Locks the mark of a folder, if that is one of ours.
fn claim(next: &Path) -> Result<File, BackupError> {
    let is_own = |path: &Path, is_kind: fn(&fs::Metadata) -> bool| {
        fs::symlink_metadata(path).is_ok_and(|there| is_kind(&there) && there.uid() == geteuid().as_raw())
    };
    let path = next.join(MARK);
    // Whoever made it was cut short before it had its mark.
    let is_empty = || fs::read_dir(next).is_ok_and(|mut entries| entries.next().is_none());
    if !is_own(next, fs::Metadata::is_dir) || !(is_own(&path, fs::Metadata::is_file) || is_empty()) {
        return Err(BackupError::IsThere(next.to_owned()));
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    let mark = options.open(&path).map_err(io_failure(&path))?;
    let in_use = || BackupError::Told(format!("{} is being filled by another process: wait for it", next.display()));
    match mark.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(in_use()),
        Err(TryLockError::Error(error)) => return Err(io_failure(&path)(error)),
    }
    // Whoever had it may have ended meanwhile, and removed it.
    let own = mark.metadata().map_err(io_failure(&path))?;
    let is_it = fs::symlink_metadata(&path).is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()));
    if !is_it {
        return Err(in_use());
    }
    // On disk before what it tells of: after a power cut nobody could know otherwise what that is.
    sync(next).map_err(io_failure(next))?;
    Ok(mark)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn filled(to: &Path) -> UnderWay {
        let under_way = UnderWay::begin(to).expect("it is free");
        fs::create_dir(under_way.folder()).expect("not there yet");
        fs::write(under_way.folder().join("file"), "something").expect("disk");
        under_way
    }

    #[test]
    fn it_has_its_name_when_it_is_whole_and_not_before() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o710)).expect("ours");
        let empty = folder.path().join("empty");
        fs::create_dir(&empty).expect("disk");
        for to in [folder.path().join("new"), empty.clone(), folder.path().join("slash/")] {
            let under_way = filled(&to);
            assert_eq!(bytes_under_way(&to), 9);
            assert!(!to.join("file").exists());
            drop(under_way);
            assert!(!to.join("file").exists());
            filled(&to).finish(folder.path()).expect("named");
            assert_eq!(fs::read(to.join("file")).expect("there"), b"something");
            let (made, like) = (fs::metadata(&to).expect("there"), fs::metadata(folder.path()).expect("there"));
            assert_eq!(made.mode(), like.mode());
            assert!(matches!(UnderWay::begin(&to), Err(BackupError::IsThere(there)) if there == to));
        }
        assert_eq!(fs::read_dir(folder.path()).expect("disk").count(), 3, "nothing else is left");
    }

    #[test]
    fn what_one_has_left_that_was_cut_short_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let (to, next) = (folder.path().join("to"), folder.path().join("to.next"));
        // Killed before it had its mark, and when it had half of everything.
        fs::create_dir(&next).expect("disk");
        drop(filled(&to));
        for left in [WHOLE, WHOLE_OF_ROCKSDB] {
            fs::create_dir_all(next.join(left)).expect("disk");
            fs::write(next.join(left).join("old"), "").expect("disk");
        }
        fs::write(next.join(MARK), "").expect("disk");
        filled(&to).finish(folder.path()).expect("named");
        assert!(!to.join("old").exists() && !next.exists());
    }

    #[test]
    fn one_at_a_time_fills_it_and_what_is_something_else_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let (to, next) = (folder.path().join("to"), folder.path().join("to.next"));
        let first = filled(&to);
        let line = UnderWay::begin(&to).expect_err("the first is at work").to_string();
        assert!(line.ends_with("to.next is being filled by another process: wait for it"), "{line}");
        first.finish(folder.path()).expect("the second has not disturbed it");
        fs::remove_dir_all(&to).expect("disk");
        fs::create_dir(&next).expect("disk");
        fs::write(next.join("letter"), "Dear all").expect("disk");
        assert!(matches!(UnderWay::begin(&to), Err(BackupError::IsThere(there)) if there == next));
        assert_eq!(fs::read(next.join("letter")).expect("as it was"), b"Dear all");
        let line = UnderWay::begin(&folder.path().join("no/such")).expect_err("no folder to be in").to_string();
        assert!(line.contains("/no: "), "{line}");
        assert!(matches!(UnderWay::begin(&next.join("letter")), Err(BackupError::IsThere(_))));
    }
}
