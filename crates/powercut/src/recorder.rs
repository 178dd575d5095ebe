//! Puts `recorder.c` below a process.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

const SOURCE: &str = include_str!("recorder.c");

const COMPILER: &str =
    "cc -std=gnu11 -O1 -Wall -shared -fPIC -U_FORTIFY_SOURCE -o recorder.so recorder.c -ldl -lpthread";

/// An operation that is to fail, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault<'a> {
    /// `sync` or `write`.
    pub operation: &'a str,
    /// The system's number of the error: 5 is EIO, 28 is ENOSPC.
    pub errno: i32,
    /// Of a file whose path ends so.
    pub suffix: &'a str,
}

/// A recorder of what processes do to the files below one folder.
#[derive(Debug)]
pub struct Recorder {
    /// The library, the journal and the fault.
    own: TempDir,
    folder: PathBuf,
}

impl Recorder {
    /// Compiles it, for what is done below `folder`, which is an absolute path without links.
    ///
    /// # Errors
    /// There is no compiler, for instance.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let own = TempDir::new()?;
        fs::write(own.path().join("recorder.c"), SOURCE)?;
        let mut words = COMPILER.split(' ');
        let program = words.next().unwrap_or_default();
        let compiled = Command::new(program).args(words).current_dir(own.path()).stdin(Stdio::null()).output();
        let compiled =
            compiled.map_err(|error| io::Error::other(format!("{program}: {error}; `apt-get install gcc`")))?;
        if !compiled.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&compiled.stderr).into_owned()));
        }
        Ok(Self { own, folder: folder.to_owned() })
    }

    /// Has the process of `command` recorded, whose wall clock is set so many seconds forward, or back.
    pub fn record(&self, command: &mut Command, clock_s: i64) {
        command
            .env("LD_PRELOAD", self.own.path().join("recorder.so"))
            .env("GUIRA_RECORDER_FOLDER", &self.folder)
            .env("GUIRA_RECORDER_JOURNAL", self.journal())
            .env("GUIRA_RECORDER_FAULT", self.fault())
            .env("GUIRA_RECORDER_CLOCK_S", clock_s.to_string());
    }

    /// The journal's file: it grows while a process is recorded, and has an operation when its caller goes on.
    pub fn journal(&self) -> PathBuf {
        self.own.path().join("journal")
    }

    /// The journal's length now, in bytes: a moment, as cuts count it.
    pub fn now(&self) -> u64 {
        fs::metadata(self.journal()).map_or(0, |journal| journal.len())
    }

    /// Lets the next such operation fail.
    ///
    /// # Errors
    /// What the system says.
    pub fn inject(&self, fault: Fault<'_>) -> io::Result<()> {
        let Fault { operation, errno, suffix } = fault;
        let next = self.own.path().join("fault.next");
        fs::write(&next, format!("{operation} {errno} {suffix}\n"))?;
        fs::rename(next, self.fault())
    }

    /// Whether what was to fail has.
    pub fn has_failed(&self) -> bool {
        !self.fault().exists()
    }

    fn fault(&self) -> PathBuf {
        self.own.path().join("fault")
    }
}
