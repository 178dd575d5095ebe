//! A Unix socket that lies in a folder: where processes of this machine call one of a cluster.
//!
//! Always true: only the user that the process runs as, and root, get through; a socket at which somebody answers is not taken from him; the file goes before
//! what answers there, so that nobody takes it for one that was left while it is.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

/// A socket and its file; gone when it is dropped.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    listener: UnixListener,
}

impl SocketFile {
    /// Binds it at `path`, where nobody else answers.
    ///
    /// # Errors
    /// Somebody answers there, something that is no socket lies there, or the system refuses.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "it is answered already"));
        }
        match fs::symlink_metadata(path) {
            Ok(left) if left.file_type().is_socket() => fs::remove_file(path)?,
            Ok(_) => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket lies there"));
            }
            Err(_) => {}
        }
        let file = Self { path: path.to_owned(), listener: UnixListener::bind(path)? };
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(file)
    }

    /// What hears those who call there.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody else may have taken it away.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_was_left_is_taken_and_one_that_is_answered_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        drop(UnixListener::bind(&path).expect("a socket that is left"));
        let file = SocketFile::bind(&path).expect("the place of one that was left");
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let heard = file.listener().expect("a descriptor");
        assert_eq!(SocketFile::bind(&path).map(drop).map_err(|error| error.kind()), Err(io::ErrorKind::AddrInUse));
        assert!(path.exists());
        drop(file);
        assert!(!path.exists(), "before what hears there");
        drop(heard);
        fs::write(&path, "mine").expect("a file");
        assert!(SocketFile::bind(&path).is_err() && path.exists(), "what is no socket stays");
    }
}
