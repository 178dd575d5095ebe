//! `stats conns`: each worker writes down its own connections, the last one tells the worker that was asked.
//!
//! Always true: nobody looks into another worker's connections, so the hot path pays nothing for the report; at most
//! `ROLL_CALLS_MAX` reports, each as long as there are connections, are in the making.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use guira_item::{Service, Ticket};
use guira_memcache::Output;

use crate::connection::Connection;
use crate::shared::{Message, Shared, locked};

/// Reports in the making at a time: more than operators ask for in the same moment, and at 10,000 connections some 10 MiB.
const ROLL_CALLS_MAX: usize = 8;

/// A report in the making.
#[derive(Debug)]
pub(crate) struct RollCall {
    /// Counts the reports there are.
    _one_of: Arc<()>,
    worker: usize,
    asker: Ticket,
    missing: AtomicUsize,
    rows: Mutex<String>,
}

impl RollCall {
    /// Whether another one may be started now.
    pub(crate) fn may_start<S: Service>(shared: &Shared<S>) -> bool {
        // The first count is that of `shared` itself. Workers that look in the same moment may each start one more.
        Arc::strong_count(&shared.roll_calls) <= ROLL_CALLS_MAX
    }

    /// Asks all workers, for the connection that `asker` names on worker `worker`.
    pub(crate) fn start<S: Service>(shared: &Shared<S>, worker: usize, asker: Ticket) {
        let mut rows = String::new();
        for (fd, text) in &shared.addresses.listening {
            push_row(&mut rows, *fd, "addr", text);
            let state = if text.starts_with("udp") { "conn_read" } else { "conn_listening" };
            push_row(&mut rows, *fd, "state", state);
            push_row(&mut rows, *fd, "secs_since_last_cmd", 0);
        }
        let missing = AtomicUsize::new(shared.mailboxes.len());
        let list =
            Arc::new(Self { _one_of: Arc::clone(&shared.roll_calls), worker, asker, missing, rows: Mutex::new(rows) });
        for mailbox in &shared.mailboxes {
            mailbox.send(Message::RollCall(Arc::clone(&list)));
        }
    }

    /// The connection that waits for this report.
    pub(crate) fn asker(&self) -> Ticket {
        self.asker
    }

    /// Adds a worker's connections.
    pub(crate) fn add<'c, S: Service>(
        self: &Arc<Self>,
        shared: &Shared<S>,
        now_ms: u64,
        connections: impl Iterator<Item = &'c Connection>,
    ) {
        let mut text = String::new();
        for connection in connections {
            let fd = connection.stream.raw_fd();
            push_row(&mut text, fd, "addr", connection.stream.peer_text());
            push_row(&mut text, fd, "listen_addr", connection.stream.local_text());
            push_row(&mut text, fd, "state", connection.state());
            let silent_s = now_ms.saturating_sub(connection.last_active_ms) / 1000;
            push_row(&mut text, fd, "secs_since_last_cmd", silent_s);
        }
        locked(&self.rows).push_str(&text);
        // AcqRel: the last worker's decrement comes after all the others' rows.
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            shared.mailboxes[self.worker].send(Message::RollCallDone(Arc::clone(self)));
        }
    }

    /// Writes the answer.
    pub(crate) fn write(&self, output: &mut Output) {
        output.push(locked(&self.rows).as_bytes());
        output.push(b"END\r\n");
    }
}

fn push_row(text: &mut String, fd: i32, name: &str, value: impl std::fmt::Display) {
    let written = write!(text, "STAT {fd}:{name} {value}\r\n");
    debug_assert!(written.is_ok(), "writing to a String");
}
