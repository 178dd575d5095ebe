//! `FOLDER/views`: who is there, as the coordinator has given it out last.
//!
//! Always true: it is there whole, or not at all; what is no such thing is told, and stays as it is. Who has it open has `FOLDER/views.lock`, and is the only one.

use std::{
    error::Error,
    fmt,
    fs::{self, File, TryLockError},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use guira_cluster::write_whole;

use crate::{Given, NotKept};

/// The file, and the right to write it until this is dropped.
#[derive(Debug)]
pub struct ViewsFile {
    path: PathBuf,
    _locked: File,
}

/// Why it cannot be had, read or written.
#[derive(Debug)]
pub enum ViewsFileError {
    /// The system does not let it be.
    File(PathBuf, io::Error),
    /// Another coordinator has this folder.
    Taken(PathBuf),
    /// What is in it is something else.
    NotKept(PathBuf, NotKept),
}

impl fmt::Display for ViewsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Taken(folder) => write!(
                f,
                "{}: another coordinator runs in this folder: end that one, or give this one a folder of its own",
                folder.display()
            ),
            Self::NotKept(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl Error for ViewsFileError {}

impl ViewsFile {
    /// That of a folder, which is made if it is not there.
    ///
    /// # Errors
    /// [`ViewsFileError::Taken`]; [`ViewsFileError::File`]: it is no folder, or nothing can be written into it.
    pub fn open(folder: &Path) -> Result<Self, ViewsFileError> {
        fs::create_dir_all(folder).map_err(|error| ViewsFileError::File(folder.into(), error))?;
        let lock = folder.join("views.lock");
        let locked = File::options().create(true).truncate(false).write(true).open(&lock);
        let locked = locked.map_err(|error| ViewsFileError::File(lock.clone(), error))?;
        match locked.try_lock() {
            Ok(()) => Ok(Self { path: folder.join("views"), _locked: locked }),
            Err(TryLockError::WouldBlock) => Err(ViewsFileError::Taken(folder.into())),
            Err(TryLockError::Error(error)) => Err(ViewsFileError::File(lock, error)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is kept, if anything is.
    ///
    /// # Errors
    /// [`ViewsFileError`].
    pub fn read(&self) -> Result<Option<Given>, ViewsFileError> {
        match fs::read(&self.path) {
            Ok(bytes) => {
                Given::decode(&bytes).map(Some).map_err(|error| ViewsFileError::NotKept(self.path.clone(), error))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ViewsFileError::File(self.path.clone(), error)),
        }
    }

    /// Keeps this: when this returns it is on disk.
    ///
    /// # Errors
    /// [`ViewsFileError::File`]: what was there before is there, or this.
    pub fn keep(&self, given: &Given) -> Result<(), ViewsFileError> {
        write_whole(&self.path, &given.encode()).map_err(|error| ViewsFileError::File(self.path.clone(), error))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, ffi::OsString};

    use guira_routing::NodeId;

    use super::*;

    #[test]
    fn what_is_kept_is_read_and_what_is_damaged_stays() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("made/by/it");
        let file = ViewsFile::open(&folder).expect("it is made");
        assert_eq!(file.read().expect("nothing is no error"), None);
        let given = Given { nodes: vec![NodeId(1)], ..Given::default() };
        file.keep(&given).expect("kept");
        assert_eq!(file.read().expect("kept"), Some(given));
        let names = fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("a name").file_name());
        let names: BTreeSet<OsString> = names.collect();
        assert_eq!(names, ["views", "views.lock"].map(OsString::from).into(), "nothing else is left");
        fs::write(&file.path, b"something else").expect("written");
        let told = file.read().expect_err("damaged").to_string();
        assert!(told.contains("damaged") && told.contains("views") && !told.contains('\n'), "{told}");
        assert_eq!(fs::read(&file.path).expect("there"), b"something else");
    }

    #[test]
    fn one_has_a_folder_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = ViewsFile::open(folder.path()).expect("nobody has it");
        let told = ViewsFile::open(folder.path()).expect_err("taken").to_string();
        assert!(told.contains("another coordinator runs in this folder") && !told.contains('\n'), "{told}");
        drop(file);
        let again = ViewsFile::open(folder.path()).expect("nobody has it any more");
        again.keep(&Given::default()).expect("kept");
        let no_folder = ViewsFile::open(again.path()).expect_err("a file");
        assert!(matches!(no_folder, ViewsFileError::File(..)), "{no_folder}");
    }
}
