//! An etcd of a test's own, as crate `guira-etcd` has it for its tests.

#[path = "../../../../etcd/tests/support/certificates.rs"]
pub mod certificates;
#[path = "../../../../etcd/tests/support/server.rs"]
pub mod server;
#[path = "../../../../etcd/tests/support/users.rs"]
pub mod users;

pub use server::Server;
