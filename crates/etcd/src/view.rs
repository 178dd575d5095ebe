//! What is in the keys.
//!
//! Always true: a view that was read is a cluster, of the name that its place has; who owns a partition is one of its backends.

use std::sync::Arc;

use guira_cluster::{Epoch, Incarnation};
use guira_routing::{NodeId, PartitionMap};
use guira_switched::{FileError, Member, Revision, Shares, StaticFile, StaticFileError};

use crate::{EtcdError, Place};

/// In place of the secret where nobody needs it: long enough to be one.
pub(crate) const NO_SECRET: &str = "not known to who only reads";

/// Who is in a cluster, and who has which keys.
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    /// The revision of the last change of who is in it: files with higher ones replace those with lower ones.
    pub epoch: Epoch,
    /// The cluster.
    pub file: StaticFile,
    /// Who has which keys: backends of the cluster.
    pub map: Arc<PartitionMap>,
    /// The map's number: maps with higher ones replace those with lower ones.
    pub revision: Revision,
}

impl View {
    /// Who has which keys, and who is to have them: backends that are not leaving.
    pub fn shares(&self) -> Shares {
        // There is such a map of all that is a cluster; of anything else nothing is to move.
        let wanted = self.file.wanted().map_or_else(|_| Arc::clone(&self.map), Arc::new);
        Shares { map: Arc::clone(&self.map), revision: self.revision, wanted }
    }
}

/// What a backend has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// So many partitions.
    pub partitions: usize,
    /// So many it is to have.
    pub wanted: usize,
}

/// A member, and what is known of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Known {
    /// Who it is.
    pub member: Member,
    /// What it has said, if it is alive.
    pub alive: Option<Alive>,
    /// What it has, if it is a backend.
    pub share: Option<Share>,
}

/// Those who own something and are no backends of the cluster.
pub(crate) fn strangers(file: &StaticFile, map: &PartitionMap) -> Vec<NodeId> {
    let backends = file.backends();
    map.backends().iter().filter(|owner| !backends.contains(owner)).copied().collect()
}

/// A member that has said that it is alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alive {
    /// The number of its life.
    pub life: Incarnation,
}

impl Alive {
    /// Reads what a member has said; `None` if no member says so.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let life = std::str::from_utf8(value).ok()?.parse().ok()?;
        Some(Self { life: Incarnation(life) })
    }

    pub(crate) fn print(self) -> String {
        self.life.0.to_string()
    }
}

/// The keys of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    name: String,
}

impl Keys {
    pub(crate) fn of(place: &Place) -> Self {
        Self { name: place.name().to_owned() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn view(&self) -> String {
        format!("/guira/{}/view", self.name)
    }

    pub(crate) fn partitions(&self) -> String {
        format!("/guira/{}/partitions", self.name)
    }

    /// The key of the number of a backend's life, which stays when that is over.
    pub(crate) fn life(&self, member: NodeId) -> String {
        format!("/guira/{}/life/{}", self.name, member.0)
    }

    /// What the keys of all members that are alive begin with.
    pub(crate) fn all_alive(&self) -> String {
        format!("/guira/{}/alive/", self.name)
    }

    pub(crate) fn alive(&self, member: NodeId) -> String {
        format!("{}{}", self.all_alive(), member.0)
    }

    /// The member that has a key.
    pub(crate) fn member(&self, key: &[u8]) -> Option<NodeId> {
        let id = std::str::from_utf8(key).ok()?.strip_prefix(&self.all_alive())?;
        id.parse().ok().map(NodeId)
    }

    /// Reads a view's text, for somebody with the secret.
    pub(crate) fn read(&self, text: &[u8], secret: &str) -> Result<StaticFile, EtcdError> {
        let text =
            std::str::from_utf8(text).map_err(|error| StaticFileError::from(FileError::Syntax(error.to_string())))?;
        let file = StaticFile::parse_with_secret(text, secret.to_owned())?;
        self.check_name(&file)?;
        Ok(file)
    }

    /// Reads a map.
    pub(crate) fn read_map(&self, bytes: &[u8]) -> Result<PartitionMap, EtcdError> {
        PartitionMap::decode(bytes).ok_or_else(|| EtcdError::NotAMap { key: self.partitions() })
    }

    /// Whether a view and a map are of one cluster.
    pub(crate) fn check_owners(&self, file: &StaticFile, map: &PartitionMap) -> Result<(), EtcdError> {
        let owners = strangers(file, map);
        if owners.is_empty() { Ok(()) } else { Err(EtcdError::Strangers { key: self.partitions(), owners }) }
    }

    /// Members know each other by the secret and the name: both would be of no use if the name were another.
    pub(crate) fn check_name(&self, file: &StaticFile) -> Result<(), EtcdError> {
        if file.cluster == self.name {
            return Ok(());
        }
        Err(EtcdError::OtherName { place: self.name.clone(), file: file.cluster.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_read_as_it_was_written_and_nothing_else_is_one() {
        let alive = Alive { life: Incarnation(u64::MAX) };
        assert_eq!(Alive::read(alive.print().as_bytes()), Some(alive));
        for other in ["", "-1", "life", "18446744073709551616"] {
            assert_eq!(Alive::read(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_key_is_of_one_member() {
        let keys = Keys::of(&"h:1/shop".parse().expect("a place"));
        assert_eq!(keys.alive(NodeId(7)), "/guira/shop/alive/7");
        assert_eq!(keys.life(NodeId(7)), "/guira/shop/life/7");
        assert_eq!(keys.member(keys.alive(NodeId(7)).as_bytes()), Some(NodeId(7)));
        for other in ["/guira/shop/alive/", "/guira/shop/alive/70000", "/guira/shop/view", "/guira/other/alive/7"] {
            assert_eq!(keys.member(other.as_bytes()), None, "{other}");
        }
    }
}
