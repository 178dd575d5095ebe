//! What goes wrong with etcd, each in a line.

use std::{fmt, io};

use guira_switched::StaticFileError;

/// Why it was not done, or may not have been.
#[derive(Debug)]
pub enum EtcdError {
    /// Nobody of etcd has answered in time.
    Unreachable {
        /// Who was asked.
        hosts: String,
        /// What was heard last.
        why: String,
    },
    /// etcd wants to know who asks: that is not supported.
    Denied(String),
    /// etcd does not do it, for another reason.
    Refused(String),
    /// No cluster of this name is there.
    NoCluster(String),
    /// A cluster of this name is there.
    Exists(String),
    /// The file is of a cluster of another name.
    OtherName {
        /// The name in the place.
        place: String,
        /// The name in the file.
        file: String,
    },
    /// What is there, or would be, is no cluster.
    NotACluster(StaticFileError),
    /// A change that is not made.
    Change(String),
    /// Others have changed it each time between that it was read and that it was to be changed.
    ChangedMeanwhile {
        /// How often it was tried.
        tries: u32,
    },
    /// The answer was lost: nobody can say whether it was done.
    Unknown(String),
    /// The system gives no thread, or no descriptors.
    Io(io::Error),
}

impl fmt::Display for EtcdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { hosts, why } => write!(f, "etcd at {hosts} cannot be reached: {why}"),
            Self::Denied(why) => write!(f, "etcd wants a user and a password, which is not supported yet: {why}"),
            Self::Refused(why) => write!(f, "etcd does not do it: {why}"),
            Self::NoCluster(name) => write!(f, "no cluster {name} is in etcd: guira cluster create"),
            Self::Exists(name) => write!(f, "a cluster {name} is in etcd already"),
            Self::OtherName { place, file } => {
                write!(f, "the file says cluster = \"{file}\", and its place is {place}: give both one name")
            }
            Self::NotACluster(error) => write!(f, "not a cluster: {error}"),
            Self::Change(why) => f.write_str(why),
            Self::ChangedMeanwhile { tries } => {
                write!(f, "others have changed the cluster {tries} times meanwhile: try again")
            }
            Self::Unknown(why) => {
                write!(f, "nobody can say whether it was done: see `guira cluster members` ({why})")
            }
            Self::Io(error) => write!(f, "the system does not let it: {error}"),
        }
    }
}

impl std::error::Error for EtcdError {}

impl From<StaticFileError> for EtcdError {
    fn from(error: StaticFileError) -> Self {
        Self::NotACluster(error)
    }
}
