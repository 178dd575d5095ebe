//! An etcd of a test's own, as crate `guira-etcd` has it for its tests.

#[path = "../../../../etcd/tests/etcd/support/certificates.rs"]
pub mod certificates;
#[path = "../../../../etcd/tests/etcd/support/server.rs"]
pub mod server;
#[path = "../../../../etcd/tests/etcd/support/users.rs"]
pub mod users;

pub use server::Server;
