//! What the server's tests share: a reference engine, a service that answers later, and a client.
#![allow(clippy::unwrap_used, reason = "a failure here is the test's failure")]

pub mod client;
pub mod later;
pub mod reference;
pub mod warnings;

use std::sync::Arc;
use std::time::{Duration, Instant};

use guira_item::{Immediate, Service};
use guira_server::{ListenAddress, Listeners, Server, Settings};

use reference::Reference;

/// Longer than anything here takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Settings for a free port on loopback.
pub fn settings() -> Settings {
    let loopback = ListenAddress { host: Some("127.0.0.1".into()), port: None };
    Settings { listen: vec![loopback], tcp_port: Some(0), threads: 2, ..Settings::default() }
}

/// Starts a server on the reference engine.
pub fn start(settings: Settings) -> Server {
    start_with(settings, Immediate(Arc::new(Reference::default())))
}

/// Starts a server on a service.
pub fn start_with(settings: Settings, service: impl Service) -> Server {
    let listeners = Listeners::bind(&settings).unwrap();
    Server::start(settings, listeners, service).unwrap()
}

/// Waits until `condition` holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::yield_now();
    }
}
