//! What goes wrong with etcd, each in a line.

use std::{error::Error, fmt, io};

use guira_cluster::Incarnation;
use guira_routing::NodeId;
use guira_switched::StaticFileError;

use crate::AccessError;

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
    /// A file of [`Access`](crate::Access) will not do.
    Access(AccessError),
    /// etcd does not know who asks, or does not let him.
    Denied(String),
    /// etcd does not do it, for another reason.
    Refused(String),
    /// The store may be another's again, so its place was not taken.
    StoreLost,
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
    /// Nobody owns the partitions.
    NoMap {
        /// Where it should stand.
        key: String,
    },
    /// Who owns the partitions cannot be read.
    NotAMap {
        /// Where it stands.
        key: String,
    },
    /// Partitions of an earlier cluster of this name are owned by some who are not backends of the new one.
    Earlier {
        /// The name.
        name: String,
        /// Where it stands.
        key: String,
        /// They.
        owners: Vec<NodeId>,
    },
    /// Partitions are owned by some who are not backends of the cluster.
    Strangers {
        /// Where it stands.
        key: String,
        /// They.
        owners: Vec<NodeId>,
    },
    /// A later life of a member has begun.
    Outlived {
        /// The member.
        member: NodeId,
        /// This life.
        life: Incarnation,
        /// The later one.
        later: Incarnation,
    },
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
            Self::Access(error) => error.fmt(f),
            Self::Denied(why) => write!(f, "etcd does not let it: {why}"),
            Self::Refused(why) => write!(f, "etcd does not do it: {why}"),
            Self::StoreLost => {
                f.write_str("the store may be another's again, so its place was not taken: start the standby again")
            }
            Self::NoCluster(name) => write!(f, "no cluster {name} is in etcd: guira cluster create"),
            Self::Exists(name) => write!(f, "a cluster {name} is in etcd already"),
            Self::OtherName { place, file } => {
                write!(f, "the file says cluster = \"{file}\", and its place is {place}: give both one name")
            }
            Self::NotACluster(error) => write!(f, "not a cluster: {error}"),
            Self::NoMap { key } => {
                write!(
                    f,
                    "nobody owns partitions, {key} is not in etcd: it was deleted, or the cluster is of an earlier version"
                )
            }
            Self::NotAMap { key } => {
                write!(
                    f,
                    "{key} is not what owners of partitions are read from: put what it was, or, if nothing is to be kept, delete it"
                )
            }
            Self::Earlier { name, key, owners } => {
                write!(
                    f,
                    "etcd has partitions of an earlier cluster {name}, owned by {}, no backends of the file: add these to it, or, if what they have is \
                     not to be kept, delete {key}",
                    named(owners)
                )
            }
            Self::Strangers { key, owners } => {
                write!(f, "partitions are owned by {}, no backends of the cluster: put {key} as it was", named(owners))
            }
            Self::Outlived { member, life, later } => {
                let (member, life, later) = (member.0, life.0, later.0);
                write!(
                    f,
                    "member {member} has begun a later life ({later}) than this one ({life}): another process is it, or its clock was set back \
                     (--life-file)"
                )
            }
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

fn named(nodes: &[NodeId]) -> String {
    nodes.iter().map(|node| node.0.to_string()).collect::<Vec<_>>().join(", ")
}

impl Error for EtcdError {}

impl From<StaticFileError> for EtcdError {
    fn from(error: StaticFileError) -> Self {
        Self::NotACluster(error)
    }
}

/// What has led to an error of etcd's client, which does not tell its own causes.
pub(crate) fn cause_of(error: &etcd_client::Error) -> String {
    match error {
        etcd_client::Error::TransportError(error) => cause(error),
        other => cause(other),
    }
}

/// What has led to an error: that a connection was refused, for instance.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    line(&cause.to_string())
}

pub(crate) fn line(text: &str) -> String {
    text.replace('\n', ", ")
}
