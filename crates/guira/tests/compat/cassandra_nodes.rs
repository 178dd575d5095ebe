//! The Cassandra that tests run against: `GUIRA_CASSANDRA` says where it is, `GUIRA_CASSANDRA_FOLDER` what `scripts/cassandra` knows
//! it by. `cargo xtask test` starts one.
//!
//! Always true: nodes are killed only by who has all of them for itself, and run again when it is done.

use std::{
    cell::Cell,
    env,
    path::Path,
    process::{self, Command},
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

/// Tests that need the nodes to live share them.
static NODES: RwLock<()> = RwLock::new(());

fn setting(name: &str) -> String {
    env::var(name)
        .unwrap_or_else(|_| panic!("{name} is not set: `cargo xtask test` starts Cassandra and says where it is"))
}

/// `--store` for a test that has a keyspace of its own, `name`.
pub fn store(name: &str) -> String {
    format!("cassandra:{}/test_{name}_{}", setting("GUIRA_CASSANDRA"), process::id())
}

/// Nodes that nobody kills meanwhile.
pub fn shared() -> RwLockReadGuard<'static, ()> {
    NODES.read().unwrap_or_else(PoisonError::into_inner)
}

/// All nodes for one test, which may kill them.
pub fn alone() -> Alone {
    Alone { _nodes: NODES.write().unwrap_or_else(PoisonError::into_inner), killed: Cell::new(None) }
}

/// The nodes, of which at most one is dead.
pub struct Alone {
    _nodes: RwLockWriteGuard<'static, ()>,
    killed: Cell<Option<usize>>,
}

impl Alone {
    /// Kills a node (SIGKILL), from 1.
    pub fn kill(&self, node: usize) {
        assert_eq!(self.killed.replace(Some(node)), None, "one at a time");
        assert!(script("kill", node), "node {node} could not be killed");
    }

    /// Starts the node that was killed, and returns when it answers.
    pub fn restart(&self) {
        let node = self.killed.take().expect("one was killed");
        assert!(script("restart", node), "node {node} does not start again");
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // A test that failed takes no others with it.
        if let Some(node) = self.killed.take() {
            script("restart", node);
        }
    }
}

fn script(what: &str, node: usize) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/cassandra");
    let mut command = Command::new(path);
    command.arg(what).arg(setting("GUIRA_CASSANDRA_FOLDER")).arg(node.to_string());
    command.status().is_ok_and(|status| status.success())
}
