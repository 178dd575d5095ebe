//! A Unix socket on which one line is answered with a text: how a process of a cluster on this machine is asked how it is.
//!
//! Always true: only the user that the process runs as, and root, get through; a line is bounded, and waited for a bounded time; once it is dropped nobody is
//! being answered.

use std::{
    io::{self, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::net::{Shutdown, shutdown};

use crate::SocketFile;

/// The longest line.
const LINE_LEN_MAX: usize = 256;

/// The longest answer that is read.
const ANSWER_LEN_MAX: u64 = 16 << 20;

/// How long each side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);

/// A socket that is answered; gone when it is dropped.
#[derive(Debug)]
pub struct LineSocket {
    /// `None` once it is closed.
    file: Option<SocketFile>,
    listener: Arc<UnixListener>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LineSocket {
    /// Opens it at `path`, where nobody else answers; `answer` is called for one line at a time.
    ///
    /// # Errors
    /// Somebody answers there, something that is no socket lies there, or the system refuses.
    pub fn open(path: &Path, answer: impl Fn(&str) -> String + Send + 'static) -> io::Result<Self> {
        let file = SocketFile::bind(path)?;
        let listener = Arc::new(file.listener()?);
        let is_over = Arc::new(AtomicBool::new(false));
        let (waits_at, ends) = (Arc::clone(&listener), Arc::clone(&is_over));
        let thread = thread::Builder::new().name("guira-status".into()).spawn(move || {
            for stream in waits_at.incoming() {
                match stream {
                    _ if ends.load(Relaxed) => return,
                    // Who hangs up is not told.
                    Ok(stream) => drop(serve(&stream, &answer)),
                    // No descriptors are left, for instance: later there may be.
                    Err(_) => thread::park_timeout(PATIENCE / 50),
                }
            }
        })?;
        Ok(Self { file: Some(file), listener, is_over, thread: Some(thread) })
    }

    /// Nobody gets through any more, and another may be opened there; who is being answered is answered yet.
    pub fn close(&mut self) {
        if self.is_over.swap(true, Relaxed) {
            return;
        }
        // Before anybody can take it for one that was left, and put another there.
        drop(self.file.take());
        // Who waits for somebody to ask is woken up.
        let _ = shutdown(&*self.listener, Shutdown::Read);
    }
}

impl Drop for LineSocket {
    fn drop(&mut self) {
        self.close();
        if let Some(thread) = self.thread.take() {
            // What has panicked there was said.
            let _ = thread.join();
        }
    }
}

fn serve(mut stream: &UnixStream, answer: &impl Fn(&str) -> String) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let (mut line, mut len) = ([0; LINE_LEN_MAX], 0);
    while len < LINE_LEN_MAX && !line[..len].ends_with(b"\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut line[len..])? {
            0 => break,
            read => len += read,
        }
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(answer(String::from_utf8_lossy(&line[..len]).trim_end()).as_bytes())
}

/// Asks whoever answers at `path`; to the end of what is said, or of `patience`.
///
/// # Errors
/// Nobody answers there, or not in time.
pub fn ask_line(path: &Path, line: &str, patience: Duration) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut text = String::new();
    stream.take(ANSWER_LEN_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_line_is_answered_by_the_one_who_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let asked = Arc::new(());
        let answers = Arc::clone(&asked);
        let answer = move |line: &str| {
            let _has = &answers;
            format!("you said {line}")
        };
        let socket = LineSocket::open(&path, answer).expect("a socket");
        assert_eq!(ask_line(&path, "hello", PATIENCE).expect("an answer"), "you said hello");
        assert!(LineSocket::open(&path, |_| String::new()).is_err(), "there is one already");
        drop(socket);
        assert!(!path.exists());
        assert_eq!(Arc::strong_count(&asked), 1, "nobody has what answered");
        fs::write(&path, "mine").expect("a file");
        assert!(LineSocket::open(&path, |_| String::new()).is_err() && path.exists(), "what is no socket stays");
    }
}
