//! What is wrong with a switched cluster's file.

use std::fmt;

use guira_cluster::FileError;
use guira_routing::PartitionError;

use super::{Member, NetworkError, StandbyError};

/// What is wrong with a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StaticFileError {
    /// It is no cluster's.
    File(FileError),
    /// Not one controller.
    Controllers(usize),
    /// Nobody of a role that is needed.
    Nobody(&'static str),
    /// A cache node has more threads than it may, or than there are numbers or ports behind its own.
    Threads(u16),
    /// What has the keys cannot share them.
    Partitions(PartitionError),
    /// All backends are to give away what they have.
    AllLeave,
    /// A backend is to give away what it has, where none may.
    Leaves(u16),
    /// The network.
    Network(NetworkError),
    /// A backend stands by, or has another's place, where none may.
    StandbyInFile(u16),
    /// A backend stands by for one that is none, or in a way that it cannot.
    Standby {
        /// The one that stands by.
        id: u16,
        /// What is wrong.
        why: StandbyError,
    },
    /// The cache node of a backend is none.
    NoCache {
        /// The backend.
        backend: u16,
        /// Who is said to be its cache node.
        cache: u16,
    },
}

impl fmt::Display for StaticFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Controllers(count) => write!(f, "{count} members are the controller: one has to be"),
            Self::Nobody(role) => write!(f, "no member is a {role}: at least one has to be"),
            Self::Threads(id) => write!(
                f,
                "member {id}: threads: up to {}, and as many numbers and ports as that, from the member's own on",
                Member::CACHE_THREADS_MAX
            ),
            Self::Partitions(error) => write!(f, "backends: {error}"),
            Self::Network(error) => error.fmt(f),
            Self::AllLeave => f.write_str("all backends are leaving: one at least has to stay"),
            Self::Leaves(id) => write!(f, "member {id}: leaving is for clusters in etcd (guira cluster remove)"),
            Self::StandbyInFile(id) => {
                write!(
                    f,
                    "member {id}: standby_of is for clusters in etcd (guira cluster add), and place stands there alone"
                )
            }
            Self::Standby { id, why } => write!(f, "member {id}: {why}"),
            Self::NoCache { backend, cache } => write!(f, "member {backend}: its cache, {cache}, is no cache node"),
        }
    }
}

impl std::error::Error for StaticFileError {}

impl From<FileError> for StaticFileError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}
