//! Who stands by for a backend, and has its place then (`docs/design/0026`).
//!
//! Always true: keys are dealt out to places, so that nothing moves when one backend takes another's; who stands by is dealt out nothing.

use std::fmt;

use guira_routing::{NodeId, PartitionMap};

use super::{BackendRole, Member, Role, StaticFile, StaticFileError};

/// What a store begins with that outlives the machine of its backend.
const SHARED: &str = "cassandra:";

/// Why a backend does not stand by for another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StandbyError {
    /// It stands by for nobody.
    ForNobody,
    /// Who it stands by for is no backend that has keys.
    NoBackend(u16),
    /// Another one does already.
    Another(u16),
    /// Its store is not written as that of the other one.
    OtherStore {
        /// The other one.
        of: u16,
        /// Its store.
        store: String,
    },
    /// The store of the other one is not one that two can have in turn.
    NotShared(u16),
    /// Two that have keys have one store.
    OneStore(u16),
    /// It is to give away what it has, or has a place: who stands by has neither.
    HasSomething,
}

impl fmt::Display for StandbyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForNobody => f.write_str("it stands by for nobody"),
            Self::NoBackend(of) => write!(f, "it is to stand by for member {of}, which is no backend that has keys"),
            Self::Another(other) => write!(f, "member {other} stands by for the same backend"),
            Self::OtherStore { of, store } => write!(f, "its store has to be written as that of member {of}: {store}"),
            Self::NotShared(of) => write!(
                f,
                "the store of member {of} is not another's, whatever becomes of it: one in a {SHARED}HOSTS/KEYSPACE can be"
            ),
            Self::OneStore(other) => write!(f, "its store is that of member {other}: give each a keyspace of its own"),
            Self::HasSomething => f.write_str("who stands by has nothing to give away, and no place"),
        }
    }
}

impl std::error::Error for StandbyError {}

fn as_backend(member: &Member) -> Option<(u16, &BackendRole)> {
    member.role.as_backend().map(|backend| (member.id, backend))
}

impl StaticFile {
    pub(super) fn check_standbys(&self) -> Result<(), StaticFileError> {
        let all = || self.members.iter().filter_map(as_backend);
        for (id, backend) in all() {
            let wrong = |why| Err(StaticFileError::Standby { id, why });
            let others = || all().take_while(|(other, _)| *other != id);
            let Some(of) = backend.standby_of else {
                let is_shared = backend.store.starts_with(SHARED);
                let mut same = others().filter(|(_, other)| other.standby_of.is_none() && other.store == backend.store);
                match same.next().filter(|_| is_shared) {
                    Some((other, _)) => return wrong(StandbyError::OneStore(other)),
                    None => continue,
                }
            };
            let served = all().find(|(other, served)| *other == of && served.standby_of.is_none());
            let Some((_, served)) = served else { return wrong(StandbyError::NoBackend(of)) };
            if let Some((other, _)) = others().find(|(_, other)| other.standby_of == Some(of)) {
                return wrong(StandbyError::Another(other));
            }
            if !served.store.starts_with(SHARED) {
                return wrong(StandbyError::NotShared(of));
            }
            if served.store != backend.store {
                return wrong(StandbyError::OtherStore { of, store: served.store.clone() });
            }
            if backend.leaving || backend.place.is_some() {
                return wrong(StandbyError::HasSomething);
            }
        }
        Ok(())
    }

    /// Who a member stands by for, if it does.
    pub fn standby_of(&self, node: NodeId) -> Option<NodeId> {
        self.member(node)?.role.as_backend()?.standby_of.map(NodeId)
    }

    /// Who stands by for a backend, if anybody does.
    pub fn standby_for(&self, node: NodeId) -> Option<NodeId> {
        let stands_by = |(_, backend): &(u16, &BackendRole)| backend.standby_of == Some(node.0);
        self.members.iter().filter_map(as_backend).find(stands_by).map(|(id, _)| NodeId(id))
    }

    /// One that stands by for a backend has its place, its cache node and its limits, gives away what that was to give away, and that is no member any more.
    /// Who it was.
    ///
    /// # Errors
    /// [`StandbyError`]; nothing is changed then.
    pub fn take_place(&mut self, node: NodeId) -> Result<NodeId, StandbyError> {
        let of = self.standby_of(node).ok_or(StandbyError::ForNobody)?;
        let at = self.members.iter().position(|member| member.id == of.0).ok_or(StandbyError::NoBackend(of.0))?;
        let served = self.members[at].role.as_backend().ok_or(StandbyError::NoBackend(of.0))?;
        let taken = BackendRole { standby_of: None, place: Some(served.place.unwrap_or(of.0)), ..served.clone() };
        if let Some(member) = self.members.iter_mut().find(|member| member.id == node.0) {
            member.role = Role::Backend(taken);
        }
        let gone = self.members.remove(at);
        self.former.push(gone);
        Ok(of)
    }

    /// The map over these backends, by the places that they have.
    pub(super) fn dealt_out_to(&self, backends: &[NodeId]) -> Result<PartitionMap, StaticFileError> {
        let place = |node: &NodeId| {
            let place = self.member(*node).and_then(|member| member.role.as_backend()?.place);
            place.map_or(*node, NodeId)
        };
        let places: Vec<NodeId> = backends.iter().map(place).collect();
        let map = PartitionMap::over(&places).map_err(StaticFileError::Partitions)?;
        let owner = |of: NodeId| places.iter().position(|place| *place == of).map_or(of, |at| backends[at]);
        Ok(if places == backends { map } else { map.renamed(owner) })
    }
}
