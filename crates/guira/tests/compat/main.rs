//! The running program, seen from outside: by real clients, beside Debian's memcached, by hostile clients, and at its
//! start and end.
//!
//! The program is cargo's own build of `guira`, or the one named by `GUIRA_BINARY` (an optimised build; or `memcached`
//! itself, to try the tests on what they are modelled after). `make test` installs the clients and the peer.
//! Always true: a test waits for a condition with a deadline, never for time to pass.
#![forbid(unsafe_code)]

mod administration;
mod authentication;
mod book;
#[cfg(feature = "cassandra")]
mod cassandra;
#[cfg(feature = "cassandra")]
mod cassandra_nodes;
#[cfg(feature = "cassandra")]
mod cassandra_three;
mod clients;
mod cluster;
mod command_stream;
mod condition;
mod connection;
mod cp;
mod crash;
mod crowd;
mod differential;
mod durable;
mod hostile;
mod normalise;
mod power;
mod restarts;
mod server;
mod startup;
mod store_tools;
mod uploads;
mod warm_restart;
