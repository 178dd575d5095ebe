//! File descriptors: one a connection, and some for the server itself.

use std::fmt;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The process may not open as many files as it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooFewFiles {
    /// Connections wanted.
    pub connections_max: usize,
    /// Files needed for them.
    pub needed: u64,
    /// Files allowed.
    pub allowed: u64,
}

impl fmt::Display for TooFewFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections_max, needed, allowed } = self;
        write!(
            f,
            "-c {connections_max} needs {needed} open files and {allowed} are allowed: lower -c, or raise `ulimit -n` \
             (LimitNOFILE= in systemd)"
        )
    }
}

impl std::error::Error for TooFewFiles {}

/// Raises the limit on open files to `needed` if it is lower.
///
/// # Errors
/// [`TooFewFiles`] if the system does not allow it.
pub fn allow_open_files(connections_max: usize, needed: u64) -> Result<(), TooFewFiles> {
    let limit = getrlimit(Resource::Nofile);
    let suffices = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if suffices(limit.current) {
        return Ok(());
    }
    let maximum = if suffices(limit.maximum) { limit.maximum } else { Some(needed) };
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).map_err(|_| TooFewFiles {
        connections_max,
        needed,
        allowed: limit.maximum.unwrap_or(u64::MAX),
    })
}
