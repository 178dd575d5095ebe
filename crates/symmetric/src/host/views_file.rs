//! `FOLDER/views`: who is there, as the coordinator has given it out last.
//!
//! Always true: it is there whole, or not at all; what is no such thing is told, and stays as it is.

use std::{
    error::Error,
    fmt, fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use guira_cluster::write_whole;

use crate::{Given, NotKept};

/// The file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ViewsFile {
    path: PathBuf,
}

/// Why it cannot be read.
#[derive(Debug)]
pub enum ViewsFileError {
    /// The system does not let it be.
    File(PathBuf, io::Error),
    /// What is in it is something else.
    NotKept(PathBuf, NotKept),
}

impl fmt::Display for ViewsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::NotKept(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl Error for ViewsFileError {}

impl ViewsFile {
    /// That of a folder.
    pub fn of(folder: &Path) -> Self {
        Self { path: folder.join("views") }
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
    use guira_routing::NodeId;

    use super::*;

    #[test]
    fn what_is_kept_is_read_and_what_is_damaged_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = ViewsFile::of(folder.path());
        assert_eq!(file.read().expect("nothing is no error"), None);
        let given = Given { nodes: vec![NodeId(1)], ..Given::default() };
        file.keep(&given).expect("kept");
        assert_eq!(file.read().expect("kept"), Some(given));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing else is left");
        fs::write(&file.path, b"something else").expect("written");
        let told = file.read().expect_err("damaged").to_string();
        assert!(told.contains("damaged") && told.contains("views") && !told.contains('\n'), "{told}");
        assert_eq!(fs::read(&file.path).expect("there"), b"something else");
        let nowhere = ViewsFile::of(&folder.path().join("nowhere"));
        assert!(matches!(nowhere.keep(&Given::default()), Err(ViewsFileError::File(..))));
    }
}
