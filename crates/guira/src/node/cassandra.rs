//! A backend before a Cassandra: in a keyspace of its own, or once it can have that of the backend for which it stands by.

use std::sync::{
    Arc,
    mpsc::{Receiver, TryRecvError},
};

use guira_cluster::unix_now;
use guira_persist::{
    Limit,
    cassandra::{CassandraError, CassandraOptions, CassandraStore, RECORD_LEN_MAX},
};
use guira_switched::{BackendRole, StaticFile, part_of};

use super::{
    Kept, Start,
    backend::{BackendStore, limit_of},
    kept::was_removed,
};

/// Bytes that a record has beside its key and value, at most.
const RECORD_HEAD_LEN_MAX: usize = 1 << 10;

impl BackendStore for CassandraStore {
    fn shut(&self) -> Result<(), String> {
        Self::shut(self).map_err(|error| error.to_string())
    }

    fn was_followed(&self) -> bool {
        Self::was_followed(self)
    }
}

/// Where it is; an error goes on from the store's name.
pub(super) fn options(file: &StaticFile, place: &str) -> Result<CassandraOptions, String> {
    let most = RECORD_LEN_MAX - RECORD_HEAD_LEN_MAX;
    if file.item_len_max > most {
        return Err(format!("item_len_max is {}, and a Cassandra takes {most}", file.item_len_max));
    }
    Ok(CassandraOptions { address: place.parse()?, unix_now: Arc::new(|| unix_now().as_secs()), part_of })
}

/// Whether nobody has ended the process.
pub(super) fn goes_on(ended: &Receiver<()>) -> bool {
    ended.try_recv() == Err(TryRecvError::Empty)
}

impl Start<'_> {
    /// Serves what is in a keyspace: at once, or when it can be had.
    pub(super) fn serve_keyspace(
        &self,
        role: &BackendRole,
        limit: Option<Limit>,
        options: &CassandraOptions,
        kept: Option<Kept>,
        ended: &Receiver<()>,
    ) -> Result<(), String> {
        let begun = self.begin(kept.as_ref())?;
        match (kept, role.standby_of) {
            (Some(kept), Some(of)) => {
                let taken = self.stand_by(of, options, kept, &begun, ended);
                let taken = taken.map_err(|told| format!("store {}: {told}", role.store))?;
                let Some((store, kept)) = taken else { return Ok(()) };
                // What it is now, it is in another's place, and within that one's limits.
                let file = kept.view.file.clone();
                let me = file.member(self.me()).and_then(|member| Some((member, member.role.as_backend()?)));
                let (member, role) = me.ok_or_else(|| was_removed(self.me()))?;
                let start = Start { file: &file, member, arguments: self.arguments, store_files: self.store_files };
                start.serve_store(role, store, limit_of(role)?, Some(kept), begun, ended)
            }
            (kept, _) => {
                let opened = CassandraStore::open(options, || goes_on(ended));
                let opened = opened.map_err(|error| format!("store {}: {}", role.store, self.told(&error)))?;
                let Some(store) = opened else { return Ok(()) };
                self.serve_store(role, store, limit, kept, begun, ended)
            }
        }
    }

    /// Why a keyspace cannot be had, for somebody who may have been followed in it.
    fn told(&self, error: &CassandraError) -> String {
        match error {
            CassandraError::InUse(holder) => format!(
                "{holder} has it: another backend must not have the same one, unless it stands by for member {} and has followed it, which \
                 guira cluster members shows",
                self.member.id
            ),
            other => other.to_string(),
        }
    }
}
