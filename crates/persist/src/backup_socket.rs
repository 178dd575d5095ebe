//! A socket in the folder of a store that is served, through which its copies are asked for.
//!
//! ```text
//! request  "backup " | absolute path, to the end of what is sent
//! answer   "made\n", or one line that says why not
//! ```
//! Always true: only the user that the server runs as, and root, get through; one request is carried out at a time, on a thread
//! of its own; a client that says nothing is waited for a bounded time.

use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    io::{self, Read, Write},
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt,
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use guira_item::store::Store;
use rustix::{
    net::{Shutdown, shutdown, sockopt::socket_peercred},
    process::geteuid,
};

/// Its name in the folder of the store.
const NAME: &str = "guira.sock";

const BACKUP: &[u8] = b"backup ";

/// The longest request: the longest path that Linux takes.
const REQUEST_LEN_MAX: u64 = 4_096;

/// The longest answer that is read, in bytes.
const ANSWER_LEN_MAX: u64 = 64 << 10;

/// How long each side waits for the other to send or take what is ready.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a socket that is not there is waited for: a server has its store before it has its socket.
const STARTING: Duration = Duration::from_secs(1);

/// How often whoever waits for a copy is told that it still does.
const WAITING_TOLD_EVERY: Duration = Duration::from_millis(100);

/// The answer to a request that was carried out.
const MADE: &[u8] = b"made\n";

/// The server's end; closed when it is dropped.
#[derive(Debug)]
pub struct BackupSocket {
    listener: Arc<UnixListener>,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl BackupSocket {
    /// Opens it in the folder of `store`, which this process has for itself.
    ///
    /// # Errors
    /// What the system says.
    pub fn open<S: Store>(folder: &Path, store: Arc<S>) -> io::Result<Self> {
        let path = folder.join(NAME);
        match fs::remove_file(&path) {
            // Of a server that was killed: while it lived this process had not the store.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = Arc::new(at(folder, |path| UnixListener::bind(path))?);
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let own = Arc::clone(&listener);
        let thread = thread::Builder::new().name("guira-backup".into()).spawn(move || {
            loop {
                match own.accept() {
                    Ok((stream, _)) => {
                        if let Err(error) = attend(&stream, &*store) {
                            tracing::warn!("a request for a copy of the store was not answered: {error}");
                        }
                    }
                    // It was shut down.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                    // The process has as many files open as it may, for instance.
                    Err(error) => {
                        tracing::warn!("a request for a copy of the store was not taken: {error}");
                        thread::park_timeout(PATIENCE);
                    }
                }
            }
        })?;
        Ok(Self { listener, path, thread: Some(thread) })
    }
}

impl Drop for BackupSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        // Whoever accepts is woken. If not, the thread is left alone rather than waited for.
        if shutdown(&self.listener, Shutdown::Both).is_ok()
            && let Some(thread) = self.thread.take()
        {
            thread.thread().unpark();
            // A copy that is being made is waited for. A panic has been told about already.
            let _ = thread.join();
        }
    }
}

/// Calls `connect` with the socket's path; if that is longer than a socket's may be, with another one for the same place.
fn at<T>(folder: &Path, connect: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    match connect(&folder.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let folder = File::open(folder)?;
            connect(&Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(NAME))
        }
        connected => connected,
    }
}

fn attend(stream: &UnixStream, store: &impl Store) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut out, mut request) = (stream, Vec::new());
    // Whatever is answered: where something is left unread, the answer would be lost.
    stream.take(REQUEST_LEN_MAX).read_to_end(&mut request)?;
    let peer = socket_peercred(stream)?.uid;
    if !peer.is_root() && peer != geteuid() {
        return out.write_all(b"copies are made only for the user that the server runs as\n");
    }
    let to = request.strip_prefix(BACKUP).map(|path| Path::new(OsStr::from_bytes(path)));
    let Some(to) = to.filter(|to| to.is_absolute() && request.len() < REQUEST_LEN_MAX as usize) else {
        return out.write_all(b"is no request that this server knows\n");
    };
    let (told, outcome) = mpsc::channel();
    store.snapshot(to.to_owned(), Box::new(move |made| drop(told.send(made))));
    match outcome.recv().expect("what was asked for is completed") {
        Ok(()) => {
            tracing::info!("a copy of the store is in {}", to.display());
            out.write_all(MADE)
        }
        Err(error) => out.write_all(format!("{}\n", error.to_string().replace('\n', " ")).as_bytes()),
    }
}

/// Why the server that has a store has made no copy.
#[derive(Debug)]
pub enum AskError {
    /// It cannot be reached.
    Unreachable(io::Error),
    /// It says so.
    Refused(String),
}

/// Has the server that has the store in `folder` make a copy of it; calls `waiting` now and then.
///
/// # Errors
/// [`AskError`].
pub fn ask_for_backup(folder: &Path, to: &Path, mut waiting: impl FnMut()) -> Result<(), AskError> {
    let begun = Instant::now();
    let mut ask = || {
        let mut stream = loop {
            match at(folder, |path| UnixStream::connect(path)) {
                // One that was killed has left one.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
                        && begun.elapsed() < STARTING =>
                {
                    thread::park_timeout(WAITING_TOLD_EVERY);
                    waiting();
                }
                connected => break connected?,
            }
        };
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_read_timeout(Some(WAITING_TOLD_EVERY))?;
        stream.write_all(BACKUP)?;
        stream.write_all(to.as_os_str().as_bytes())?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let (mut answer, mut stream) = (Vec::new(), stream.take(ANSWER_LEN_MAX));
        loop {
            match stream.read_to_end(&mut answer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => waiting(),
                Err(error) => return Err(error),
                Ok(_) => return Ok(answer),
            }
        }
    };
    match ask().map_err(AskError::Unreachable)? {
        answer if answer == MADE => Ok(()),
        answer if answer.is_empty() => Err(AskError::Refused("the server has ended meanwhile".into())),
        answer => Err(AskError::Refused(String::from_utf8_lossy(&answer).trim_end().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use guira_item::store::{
        Done, Found, Part, Record, Scan, StoreError, StoreErrorKind, StoreState, StoreStats, Visit, Written,
    };

    use super::*;

    /// A store that can be copied, to names that end with "good".
    struct Copied;

    impl Store for Copied {
        fn state(&self) -> StoreState {
            StoreState::default()
        }

        fn get_now<T>(&self, _: guira_item::Key<'_>, _: impl FnOnce(Option<Record<&[u8]>>) -> T) -> Option<T> {
            None
        }

        fn get(&self, _: guira_item::Key<'_>, _: Done<Found>) {}

        fn write(&self, _: Vec<guira_item::store::Write>, _: Done<Written>) {}

        fn flush(&self, _: Done<()>) {}

        fn fence(&self, _: Vec<Part>, _: Done<()>) {}

        fn scan(&self, _: Scan, _: Visit, _: Done<()>) {}

        fn snapshot(&self, to: PathBuf, done: Done<()>) {
            let is_good = to.as_os_str().as_bytes().ends_with(b"good");
            done(if is_good { Ok(()) } else { Err(StoreError::refused(StoreErrorKind::Unavailable, "no\nroom")) });
        }

        fn stats(&self) -> StoreStats {
            StoreStats::default()
        }
    }

    fn told(asked: Result<(), AskError>) -> String {
        match asked {
            Err(AskError::Refused(line)) => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_copy_is_made_or_it_is_told_why_not_until_the_socket_is_closed() {
        let folder = tempfile::tempdir().expect("a folder");
        // Too long for a socket's address.
        let long = folder.path().join("x".repeat(120));
        fs::create_dir(&long).expect("a folder");
        for folder in [folder.path(), &long] {
            let socket = BackupSocket::open(folder, Arc::new(Copied)).expect("a socket");
            let mode = fs::metadata(folder.join(NAME)).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            ask_for_backup(folder, Path::new("/good"), || {}).expect("made");
            assert_eq!(told(ask_for_backup(folder, Path::new("/bad"), || {})), "no room");
            let unknown = "is no request that this server knows";
            assert_eq!(told(ask_for_backup(folder, Path::new("good"), || {})), unknown);
            let endless = "/".repeat(REQUEST_LEN_MAX as usize) + "good";
            // What it has not read when it answers resets the connection, or not.
            assert!(ask_for_backup(folder, Path::new(&endless), || {}).is_err());
            ask_for_backup(folder, Path::new("/good"), || {}).expect("it goes on");
            drop(socket);
            assert!(matches!(ask_for_backup(folder, Path::new("/good"), || {}), Err(AskError::Unreachable(_))));
            assert!(!folder.join(NAME).exists());
            // What a server that was killed has left is replaced.
            fs::write(folder.join(NAME), "").expect("a file");
            drop(BackupSocket::open(folder, Arc::new(Copied)).expect("a socket"));
        }
    }
}
