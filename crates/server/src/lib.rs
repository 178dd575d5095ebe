//! Guira's server: listeners, worker threads with an event loop each, sessions, statistics, a clean stop. It serves
//! anything behind [`Service`](guira_item::Service) and knows neither engines nor the syntax of a command.
//!
//! ```text
//! acceptor --connections--> worker 0..n: epoll -> read -> parse -> Service -> write
//! janitor  --time---------> Service::maintain
//! metrics  <--HTTP--------- Prometheus
//! ```
//!
//! - [`Settings`], [`Listeners::bind`], [`Server::start`], [`Server::join`]: the life of a server. Binding comes first, so
//!   that a program can give up its privileges in between.
//! - [`Stopper`]: how another thread, a signal or the `shutdown` command ends it.
//! - [`CaughtSignals`] and [`allow_open_files`]: what a program that is nothing but a server does besides.
//!
//! Always true: everything a client can make grow is bounded; an idle server sleeps.
#![forbid(unsafe_code)]

mod acceptor;
mod clock;
mod connection;
mod connections_report;
mod control;
mod cpu_time;
mod desk;
mod dump;
mod http;
mod http_request;
mod input_account;
mod janitor;
mod limits;
mod listener;
mod malformed_log;
mod metrics;
mod prefixes;
mod round;
mod server;
mod settings;
mod shared;
mod signals;
mod stats;
mod stream;
mod tally;
mod udp;
mod watchers;
mod worker;

pub use clock::Watch;
pub use limits::{TooFewFiles, allow_open_files};
pub use listener::{ListenError, Listeners};
pub use server::{Server, Stopper, WorkerPanicked};
pub use settings::{ListenAddress, MEMCACHED_VERSION, Settings, Shown, VerbosityHook};
pub use signals::CaughtSignals;
pub use stats::reserved_fds;
