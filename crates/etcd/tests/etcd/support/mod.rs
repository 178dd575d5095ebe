//! What tests of etcd need: a [`Server`], what is in it without our code in between, a cluster to put there, and `line`s that fail.
//!
//! Always true: what is waited for is asked for until it is so.

pub mod certificates;
pub mod line;
pub mod member;
pub mod server;
pub mod users;

use std::{
    thread,
    time::{Duration, Instant},
};

use etcd_client::{AlarmAction, AlarmType, Client, KeyValue};
use guira_cluster::Epoch;
use guira_etcd::{Access, Etcd, EtcdError, Place, View};
use guira_switched::{CacheMode, Member, Revision, Role, StaticFile};
use tokio::runtime::{Builder, Runtime};

pub use server::Server;

/// Far more than a busy machine needs.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const SECRET: &str = "not much of a secret";

/// Waits until it is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so in {PATIENCE:?}: {what}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// To an etcd that lets everybody in.
pub fn connect(place: &Place) -> Result<Etcd, EtcdError> {
    Etcd::connect(place, &Access::default())
}

/// A cluster as it is when it is made, at a revision.
pub fn as_of(revision: u64, file: StaticFile) -> View {
    let map = file.partitions().expect("a map").into();
    View { epoch: Epoch(revision), file, map, revision: Revision(revision) }
}

/// A controller, two cache nodes, two backends and a gateway.
pub fn cluster(name: &str) -> StaticFile {
    let members = vec![
        member(1, Role::Controller),
        cache(100),
        cache(101),
        backend(1_000, Some(100)),
        backend(1_001, Some(101)),
        gateway(10_000),
    ];
    StaticFile { cluster: name.into(), secret: SECRET.into(), members, ..StaticFile::default() }
}

pub fn backend(id: u16, cache: Option<u16>) -> Member {
    member(id, Role::backend(cache))
}

pub fn cache(id: u16) -> Member {
    member(id, Role::CACHE)
}

pub fn gateway(id: u16) -> Member {
    member(id, Role::Gateway { listen: ([127, 0, 0, 1], 11_211).into(), cache_mode: CacheMode::default() })
}

fn member(id: u16, role: Role) -> Member {
    Member::new(id, ([127, 0, 0, 1], id).into(), role)
}

/// What is in etcd, without our code in between.
pub struct Raw {
    runtime: Runtime,
    pub client: Client,
}

impl Raw {
    pub fn of(server: &Server) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = runtime.block_on(Client::connect([server.address().to_string()], None)).expect("a client");
        Self { runtime, client }
    }

    pub fn get(&mut self, key: &str) -> Option<KeyValue> {
        self.runtime.block_on(self.client.get(key, None)).expect("it answers").take_kvs().pop()
    }

    pub fn put(&mut self, key: &str, value: impl Into<Vec<u8>>) -> i64 {
        let put = self.runtime.block_on(self.client.put(key, value, None)).expect("it answers");
        put.header().expect("a header").revision()
    }

    pub fn delete(&mut self, key: &str) {
        self.runtime.block_on(self.client.delete(key, None)).expect("it answers");
    }

    pub fn leases(&mut self) -> Vec<i64> {
        let leases = self.runtime.block_on(self.client.leases()).expect("it answers");
        leases.leases().iter().map(|lease| lease.id()).collect()
    }

    /// A lease that nobody keeps, which runs out after so many seconds.
    pub fn lease_another(&mut self, ttl_s: i64) -> i64 {
        self.runtime.block_on(self.client.lease_grant(ttl_s, None)).expect("it is granted").id()
    }

    /// From now on there is no space left, or there is again.
    pub fn set_full(&mut self, is_full: bool) {
        let action = if is_full { AlarmAction::Activate } else { AlarmAction::Deactivate };
        self.runtime.block_on(self.client.alarm(action, AlarmType::Nospace, None)).expect("it answers");
    }

    pub fn revoke_all(&mut self) {
        for lease in self.leases() {
            self.runtime.block_on(self.client.lease_revoke(lease)).expect("it is there");
        }
    }

    /// Forgets all that was before now.
    pub fn compact(&mut self) {
        let now = self.runtime.block_on(self.client.get("nothing", None)).expect("it answers");
        let revision = now.header().expect("a header").revision();
        self.runtime.block_on(self.client.compact(revision, None)).expect("it compacts");
    }
}
