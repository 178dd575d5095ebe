//! What can go wrong in a benchmark, each as one line that says what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

use guira_loadgen::error::LoadError;

/// A failure of a benchmark of servers.
#[derive(Debug)]
pub enum BenchError {
    /// A peer's binary is not there; says which Debian package has it.
    PeerMissing {
        /// The peer.
        peer: &'static str,
        /// Where it was looked for.
        program: PathBuf,
        /// What installs it.
        remedy: &'static str,
    },
    /// A server did not start to answer, or ended.
    PeerFailed {
        /// The peer.
        peer: &'static str,
        /// Its last line on standard error, or how it ended.
        reason: String,
    },
    /// A flag that makes no sense; the text says what would.
    Setting(String),
    /// The binary that is measured is of another build, which does not have this.
    Lacking(String),
    /// The generator failed while it measured a peer.
    Load {
        /// The peer.
        peer: String,
        /// The experiment.
        experiment: &'static str,
        /// What happened.
        source: LoadError,
    },
    /// What was measured is not what was meant: keys missing that had been loaded, values refused.
    Invalid(String),
    /// A result could not be written.
    Output {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The operating system refused something else.
    System {
        /// What was tried.
        doing: &'static str,
        /// Its reason.
        source: io::Error,
    },
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerMissing { peer, program, remedy } => {
                write!(f, "{peer} is not at {}: {remedy}", program.display())
            }
            Self::PeerFailed { peer, reason } => write!(f, "{peer} did not start: {reason}"),
            Self::Lacking(what) => write!(f, "the guira that is started has no {what}: give one that has by --guira"),
            Self::Setting(text) | Self::Invalid(text) => write!(f, "{text}"),
            Self::Load { peer, experiment, source } => write!(f, "{experiment}, {peer}: {source}"),
            Self::Output { path, source } => write!(f, "cannot write {}: {source}", path.display()),
            Self::System { doing, source } => write!(f, "{doing}: {source}"),
        }
    }
}

impl std::error::Error for BenchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Load { source, .. } => Some(source),
            Self::Output { source, .. } | Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}
