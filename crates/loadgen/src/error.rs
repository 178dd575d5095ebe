//! What can go wrong in the generator, each as one line that says what to do.

use std::fmt;
use std::io;

/// A failure of the generator or of what it was told.
#[derive(Debug)]
pub enum LoadError {
    /// A flag or setting that makes no sense; the text says what would.
    Setting(String),
    /// A bad line in a workload table or trace.
    Line {
        /// The file, as the user named it.
        file: String,
        /// Line number, counted from 1.
        line: u64,
        /// Name of the offending column; empty if the whole line is at fault.
        column: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A file could not be read or written.
    File {
        /// The file, as the user named it.
        file: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The connection to the server failed.
    Network {
        /// What the generator was doing.
        doing: &'static str,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The server sent what no server of its protocol sends.
    Garbled {
        /// The start of the bytes that made no sense, printable.
        near: String,
    },
    /// The server closed a connection or stopped answering during a run.
    Gone(&'static str),
    /// A plot could not be drawn.
    Plot(String),
}

impl LoadError {
    /// A garbled answer, quoting at most 40 bytes of it.
    pub fn garbled(bytes: &[u8]) -> Self {
        let near = &bytes[..bytes.len().min(40)];
        Self::Garbled { near: near.escape_ascii().to_string() }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(text) => write!(f, "{text}"),
            Self::Line { file, line, column: "", problem } => {
                write!(f, "{file}: line {line}: {problem}")
            }
            Self::Line { file, line, column, problem } => {
                write!(f, "{file}: line {line}, column {column}: {problem}")
            }
            Self::File { file, source } => write!(f, "{file}: {source}"),
            Self::Network { doing, source } => write!(f, "{doing}: {source}"),
            Self::Garbled { near } => write!(f, "the server's answer makes no sense near \"{near}\""),
            Self::Gone(doing) => write!(f, "the server closed the connection while {doing}"),
            Self::Plot(text) => write!(f, "cannot draw the plot: {text}"),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } | Self::Network { source, .. } => Some(source),
            _ => None,
        }
    }
}
