//! A member of a cluster, as its file has it.

use std::{net::SocketAddr, num::NonZero};

use guira_routing::NodeId;
use serde::{Deserialize, Serialize};

use super::network::Plug;
use crate::CacheMode;

/// One member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Its number.
    pub id: u16,
    /// Where it is for other members.
    pub address: SocketAddr,
    /// Where it is for switches, where these route.
    #[serde(flatten)]
    pub plug: Plug,
    /// What it is.
    #[serde(flatten)]
    pub role: Role,
}

/// What a member is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Role {
    /// Makes routes.
    Controller,
    /// Has items of hot keys.
    Cache {
        /// Its parts, each with a thread: the first has the member's number and address, the others the numbers and ports behind it.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        threads: NonZero<u16>,
    },
    /// Has a part of all keys, or stands by for who has.
    Backend(BackendRole),
    /// Speaks with clients.
    Gateway {
        /// Where clients find it.
        listen: SocketAddr,
        /// Who is asked first for what is only read.
        #[serde(default)]
        cache_mode: CacheMode,
    },
}

/// What a backend is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BackendRole {
    /// Who caches its hot keys, as long as that has not too much to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<u16>,
    /// Where its items last: `memory`, `rocksdb:PATH` or `cassandra:HOSTS/KEYSPACE`.
    pub store: String,
    /// Operations a second of the store, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_limit: Option<u64>,
    /// Requests a second that it takes, at most: for experiments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_limit: Option<NonZero<u32>>,
    /// It is to give away all that it has, where members come and go.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// It has nothing, and takes over what this backend has once that does not serve any more; their store is one, and
    /// written the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standby_of: Option<u16>,
    /// Keys are dealt out to it as to a backend of this number: one whose place it has taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<u16>,
}

impl Default for BackendRole {
    /// In memory, without a cache node and without limits.
    fn default() -> Self {
        Self {
            cache: None,
            store: "memory".into(),
            store_limit: None,
            request_limit: None,
            leaving: false,
            standby_of: None,
            place: None,
        }
    }
}

fn one() -> NonZero<u16> {
    NonZero::<u16>::MIN
}

fn is_one(threads: &NonZero<u16>) -> bool {
    *threads == one()
}

impl Member {
    /// One that no switch has to know.
    pub fn new(id: u16, address: SocketAddr, role: Role) -> Self {
        Self { id, address, plug: Plug::default(), role }
    }

    /// Threads of a cache node, at most: as many as it may have cores.
    pub const CACHE_THREADS_MAX: u16 = 256;

    /// How many numbers and ports it has, its own and those behind them.
    pub fn parts(&self) -> NonZero<u16> {
        if let Role::Cache { threads } = self.role { threads } else { one() }
    }

    /// Its numbers, each with where others find it. Beyond the last number or port there is none.
    pub fn places(&self) -> impl Iterator<Item = (NodeId, SocketAddr)> + use<> {
        let Self { id, address, .. } = *self;
        let place = move |at: u16| {
            let port = address.port().checked_add(at)?;
            Some((NodeId(id.checked_add(at)?), SocketAddr::new(address.ip(), port)))
        };
        (0..self.parts().get()).map_while(place)
    }
}

impl Role {
    /// A cache node of one thread.
    pub const CACHE: Self = Self::Cache { threads: NonZero::<u16>::MIN };

    /// A backend in memory, with this cache node and without limits.
    pub fn backend(cache: Option<u16>) -> Self {
        Self::Backend(BackendRole { cache, ..BackendRole::default() })
    }

    /// What it is as a backend, if it is one.
    pub fn as_backend(&self) -> Option<&BackendRole> {
        if let Self::Backend(backend) = self { Some(backend) } else { None }
    }

    /// Its name, as the file has it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Cache { .. } => "cache",
            Self::Backend(_) => "backend",
            Self::Gateway { .. } => "gateway",
        }
    }
}
