//! What a cluster has in etcd: who its members are, which of them are alive, and who has which keys.
//!
//! ```text
//! /guira/NAME/view         the cluster's file, without its secret: its revision is the epoch
//!            /partitions   the owner of each partition: its revision is the map's number
//!            /life/ID      the number of a backend's last life that has begun, for good
//!            /alive/ID     the number of a member's life, under a lease of its own
//! ```
//! Always true: `view` changes only if it is still as it was read, and what is put there is a cluster; a partition's owner is one of its backends, and
//! gives it away itself, in the life that `life/ID` has; every operation but a commit takes a bounded time; the secret is never in etcd. From top to bottom:
//!
//! - [`Etcd`]: a cluster is made, read, changed (`asking`: how).
//! - [`Following`]: a member says that it is alive, and is [`Told`] of views.
//! - `changes`: what may come and go. `view`: what is in the keys. `link`: who of etcd is spoken with.
//! - [`Place`]: where all of that is; [`Access`]: how etcd is known, and who asks it.
#![forbid(unsafe_code)]

mod access;
mod asking;
mod changes;
mod error;
mod etcd;
mod follow;
mod link;
mod place;
mod view;

pub use access::{Access, AccessError, CertificateFiles, Tls, User};
pub use changes::Removal;
pub use error::EtcdError;
pub use etcd::Etcd;
pub use follow::{Committer, FollowOptions, Follower, Following, Told, Touch};
pub use place::{Place, PlaceError};
pub use view::{Alive, Known, Share, View};
