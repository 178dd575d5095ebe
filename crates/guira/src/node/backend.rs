//! A backend: before the store that the cluster's file names.

use std::{
    path::Path,
    sync::{Arc, Weak, mpsc::Receiver},
};

use guira_cluster::{CLOCK, unix_now};
use guira_etcd::Following;
use guira_item::store::Store;
use guira_persist::{
    Limit, Limited, MemoryStore,
    rocks::{RocksOptions, RocksStore},
};
use guira_server::allow_open_files;
use guira_switched::{BackendRole, backend::BackendConfig, host::BackendHost};
use rustix::process::{Resource, getrlimit};
use serde_json::json;

#[cfg(feature = "cassandra")]
use super::cassandra;
use super::{Begun, Kept, Start, dropped::with_dropped};

/// Files that a RocksDB is to be allowed to have open.
pub(super) const FILES_OF_A_STORE: u64 = 4_096;

/// Files of a backend beside its store's, in a process of its own.
const FILES_BESIDE: u64 = 256;

/// A store that a backend can have.
pub(super) trait BackendStore: Store {
    /// Closes it; an error is a line.
    fn shut(&self) -> Result<(), String> {
        Ok(())
    }

    /// Another has it, for good.
    fn was_followed(&self) -> bool {
        false
    }
}

impl BackendStore for MemoryStore {}

impl BackendStore for RocksStore {
    fn shut(&self) -> Result<(), String> {
        Self::shut(self).map_err(|error| error.to_string())
    }
}

impl Start<'_> {
    pub(super) fn backend(&self, role: &BackendRole, kept: Option<Kept>, ended: &Receiver<()>) -> Result<(), String> {
        let (limit, store) = (limit_of(role)?, &role.store);
        match store.split_once(':') {
            None if store == "memory" => {
                let begun = self.begin(kept.as_ref())?;
                self.serve_store(role, MemoryStore::default(), limit, kept, begun, ended)
            }
            Some(("rocksdb", path)) if !path.is_empty() => {
                let opened = self.open(Path::new(path)).map_err(|told| format!("store {store}: {told}"))?;
                let begun = self.begin(kept.as_ref())?;
                self.serve_store(role, opened, limit, kept, begun, ended)
            }
            #[cfg(feature = "cassandra")]
            Some(("cassandra", place)) if !place.is_empty() => {
                let options = cassandra::options(self.file, place).map_err(|told| format!("store {store}: {told}"))?;
                self.serve_keyspace(role, limit, &options, kept, ended)
            }
            #[cfg(not(feature = "cassandra"))]
            Some(("cassandra", place)) if !place.is_empty() => {
                Err(format!("store {store}: this guira was built without it, build with --features cassandra"))
            }
            _ => Err(format!("store {store}: write memory, rocksdb:PATH or cassandra:HOST[:PORT],.../KEYSPACE")),
        }
    }

    fn open(&self, path: &Path) -> Result<RocksStore, String> {
        let durability = self.file.durability.parse()?;
        let of_the_process = || {
            allow_open_files(0, FILES_OF_A_STORE).map_err(|error| error.to_string())?;
            Ok::<u64, String>(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(FILES_BESIDE))
        };
        let options = RocksOptions {
            descriptors: self.store_files.map_or_else(of_the_process, Ok)?,
            ..RocksOptions::with_memory(self.file.store_megabytes << 20, durability, Arc::new(|| unix_now().as_secs()))
        };
        RocksStore::open(path, &options).map_err(|error| error.to_string())
    }

    /// Serves what is in a store, in a life whose sockets are bound.
    pub(super) fn serve_store<S: BackendStore>(
        &self,
        role: &BackendRole,
        store: S,
        limit: Option<Limit>,
        kept: Option<Kept>,
        Begun { mut transport, life }: Begun,
        ended: &Receiver<()>,
    ) -> Result<(), String> {
        let store = Arc::new(store);
        let limited = Limited::new(Arc::clone(&store), limit);
        let limited = Arc::new(limited.map_err(|error| format!("cannot start: {error}"))?);
        let kept = kept.map(|kept| kept.begin_life(self.member, life)).transpose()?;
        // It may have changed since it was read for the socket.
        transport.set_members(self.members(kept.as_ref())?);
        let file = kept.as_ref().map_or(self.file, |kept| &kept.view.file);
        let shares = self.shares(kept.as_ref())?;
        let config = BackendConfig {
            caches_change: kept.is_some(),
            cleans_up: self.arguments.cleanup,
            ..file.backend_config(self.me(), &shares, life)
        };
        let host = BackendHost::start_paced(transport, config, Arc::clone(&limited), role.request_limit);
        let host = host.map_err(|error| format!("cannot start: {error}"))?;
        let id = self.member.id;
        let why = || {
            store.was_followed().then(|| {
                format!(
                    "another backend has taken over the store of member {id}, which answers nothing any more: guira cluster add, with standby_of, has \
                     it stand by for that one"
                )
            })
        };
        let served = self.serve_with(ended, host, (kept, life), commit_by, why, |host| {
            host.status().map(|status| {
                let mut told = json!({
                    "serves": status.serves,
                    "withheld": status.withheld,
                    "partitions": status.partitions,
                    "partitions_wanted": status.partitions_wanted,
                    "partitions_unclear": status.partitions_unclear,
                    "given": status.counts.given,
                    "moved": status.counts.moved,
                    "operations": status.counts.operations,
                    "load_per_s": status.load_per_s,
                    "cached_keys": status.cached_keys,
                    "fetches": status.counts.fetches,
                    "bursts": status.counts.bursts,
                    "updates": status.counts.updates,
                    "spreads": status.counts.spreads,
                    "two_phased": status.counts.two_phased,
                    "lease_waits": status.counts.lease_waits,
                    "refused": status.counts.refused,
                    "unheeded": {
                        "repeated": status.counts.repeated,
                        "strangers": status.counts.strangers,
                        "ignored": status.counts.ignored,
                    },
                });
                for (name, number) in [("records", status.holdings.records), ("disk_bytes", status.holdings.disk_bytes)]
                {
                    if let Some(number) = number {
                        told[name] = json!(number);
                    }
                }
                if let Some(at) = status.flush_to_come {
                    told["flush_at_unix_s"] = json!(CLOCK.to_unix_s(at));
                }
                if let Some(standstill) = status.standstill {
                    told["standstill"] = json!(standstill.to_string());
                }
                with_dropped(told, &[status.wire])
            })
        });
        limited.shut();
        served.and(store.shut())
    }
}

/// What its store may do a second, at most.
pub(super) fn limit_of(role: &BackendRole) -> Result<Option<Limit>, String> {
    let limit = role
        .store_limit
        .map(|limit| Limit::new(limit).ok_or_else(|| format!("store_limit {limit}: from 1 to {}", Limit::MAX)));
    limit.transpose()
}

/// Has what a backend gives away put into the map.
fn commit_by<S: Store>(host: &Arc<BackendHost<S>>, following: &Following) {
    let (committer, told) = (following.committer().clone(), Arc::downgrade(host));
    let commit_by = move |commit| {
        let told = Weak::clone(&told);
        committer.commit(commit, move |committed| {
            // Nor is it told anything.
            let _ = told.upgrade().map(|host| host.committed(committed));
        });
    };
    // Who has ended gives nothing.
    let _ = host.commit_by(commit_by);
}
