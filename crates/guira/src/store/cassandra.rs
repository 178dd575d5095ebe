//! `--store cassandra:HOSTS`.

use std::sync::Arc;

use guira_item::store::StoreError;
use guira_persist::{
    Limited,
    backup_socket::BackupSocket,
    cassandra::{CassandraAddress, CassandraOptions, CassandraStore},
};
use guira_server::Settings;
use guira_switched::part_of;

use super::{Backing, Common};
use crate::options::Options;

/// Where.
#[derive(Clone, Debug)]
pub(crate) struct Cassandra {
    common: Common,
    address: CassandraAddress,
}

impl Cassandra {
    pub(super) fn of(options: &Options, common: Common, place: &str) -> Result<Self, String> {
        if let Some(durability) = &options.durability {
            return Err(format!(
                "--durability {durability} does not go with --store cassandra: what is answered is on its nodes' disks as they are set"
            ));
        }
        if let Some(megabytes) = options.store_memory {
            return Err(format!(
                "--store-memory {megabytes} does not go with --store cassandra: it has memory of its own"
            ));
        }
        let address = place.parse().map_err(|error| format!("--store {}: {error}", common.shown))?;
        Ok(Self { common, address })
    }
}

impl Backing for Cassandra {
    type Store = CassandraStore;

    fn common(&self) -> &Common {
        &self.common
    }

    fn open(&self, settings: &Settings) -> Result<(CassandraStore, String), String> {
        let watch = settings.watch;
        let unix_now = Arc::new(move || watch.clock_by_now().to_unix_s(watch.now()));
        let options = CassandraOptions { address: self.address.clone(), unix_now, part_of };
        let opened = CassandraStore::open(&options, || true).map_err(|error| error.to_string())?;
        let store = opened.ok_or("was not waited for")?;
        Ok((store, String::new()))
    }

    fn open_socket(&self, _: &Arc<Limited<CassandraStore>>) -> Option<BackupSocket> {
        None
    }

    fn shut(store: &CassandraStore) -> Result<(), StoreError> {
        store.shut()
    }
}
