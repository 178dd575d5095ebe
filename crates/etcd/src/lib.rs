//! What a cluster has in etcd: who its members are, and which of them are alive.
//!
//! ```text
//! /guira/NAME/view         the cluster's file, without its secret: its revision is the epoch
//!            /alive/ID     the number of a member's life, under a lease of its own
//! ```
//! Always true: `view` changes only if it is still as it was read, and what is put there is a cluster; every operation takes a bounded time; the secret
//! is never in etcd. From top to bottom:
//!
//! - [`Etcd`]: a cluster is made, read, changed.
//! - [`Following`]: a member says that it is alive, and is [`Told`] of views.
//! - `changes`: what may come and go. `view`: what is in the keys. `link`: who of etcd is spoken with.
//! - [`Place`]: where all of that is.
#![forbid(unsafe_code)]

mod changes;
mod error;
mod etcd;
mod follow;
mod link;
mod place;
mod view;

pub use error::EtcdError;
pub use etcd::Etcd;
pub use follow::{FollowOptions, Follower, Following, Told, Touch};
pub use place::{Place, PlaceError};
pub use view::{Alive, View};
