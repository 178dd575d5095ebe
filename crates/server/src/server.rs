//! The life of a server: start its threads, stop them, wait for them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use guira_item::Service;
use mio::{Poll, Waker};

use crate::acceptor::{self, Acceptor};
use crate::listener::{BoundTcp, Listeners};
use crate::settings::Settings;
use crate::shared::{Addresses, Mailbox, Shared, Stop, locked};
use crate::worker::{self, Worker};
use crate::{http, janitor, metrics};

/// A running server. Dropping it stops it at once.
#[derive(Debug)]
pub struct Server {
    threads: Vec<JoinHandle<()>>,
    stopper: Stopper,
    addresses: Addresses,
}

/// Ends a server, from any thread.
#[derive(Clone)]
pub struct Stopper(Arc<dyn Fn(Stop) + Send + Sync>);

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopper")
    }
}

impl Stopper {
    /// Connections are closed where they stand.
    pub fn stop_now(&self) {
        self.0(Stop::Now);
    }

    /// No new connections; what clients have sent is answered, then they are closed.
    pub fn stop_gracefully(&self) {
        self.0(Stop::Graceful);
    }
}

/// A thread of the server has hit a bug; the others were stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerPanicked;

impl fmt::Display for WorkerPanicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a server thread has panicked; please report the lines above")
    }
}

impl std::error::Error for WorkerPanicked {}

/// Stops the others when its thread panics, rather than leave a server that answers only some of its clients.
struct Alarm(Stopper);

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop_now();
        }
    }
}

impl Server {
    /// Serves `service` on `listeners`.
    ///
    /// # Errors
    /// If the system refuses threads, pollers or wakers.
    ///
    /// # Panics
    /// If `settings.threads` is 0.
    pub fn start<S: Service>(settings: Settings, listeners: Listeners, service: S) -> io::Result<Self> {
        assert!(settings.threads > 0, "a server has at least one worker");
        let addresses = addresses(&listeners);
        let mut polls = Vec::with_capacity(settings.threads);
        let mut mailboxes = Vec::with_capacity(settings.threads);
        for _ in 0..settings.threads {
            let poll = Poll::new()?;
            mailboxes.push(Mailbox::new(Waker::new(poll.registry(), worker::WAKE)?));
            polls.push(poll);
        }
        let accept_poll = Poll::new()?;
        let accept_waker = Arc::new(Waker::new(accept_poll.registry(), acceptor::WAKE)?);
        let shared = Arc::new(Shared::new(settings, service, mailboxes, Some(accept_waker), addresses.clone()));
        let for_stopper = Arc::clone(&shared);
        let stopper = Stopper(Arc::new(move |how| for_stopper.stop(how)));
        let mut server = Self { threads: Vec::new(), stopper, addresses };

        let Listeners { tcp, udp, unix, metrics: metrics_listener } = listeners;
        // UDP sockets go round: socket i to worker i modulo n.
        let mut udp_of: Vec<Vec<_>> = polls.iter().map(|_| Vec::new()).collect();
        for (number, socket) in udp.into_iter().enumerate() {
            udp_of[number % polls.len()].push(socket);
        }
        for (index, (poll, sockets)) in polls.into_iter().zip(udp_of).enumerate() {
            let worker = Worker::new(Arc::clone(&shared), index, poll, sockets)?;
            server.spawn(format!("guira-worker-{index}"), move || worker.run())?;
        }
        let for_janitor = Arc::clone(&shared);
        let janitor = server.spawn("guira-janitor".into(), move || janitor::run(&for_janitor))?;
        locked(&shared.sleepers).push(janitor);
        if let Some(listener) = metrics_listener {
            let registry = metrics::registry(Arc::clone(&shared));
            let shared = Arc::clone(&shared);
            server.spawn("guira-metrics".into(), move || {
                let render = |text: &mut String| prometheus_client::encoding::text::encode(text, &registry).is_ok();
                http::serve(&listener, metrics::CONTENT_TYPE, render, || shared.stopping() != Stop::Not);
            })?;
        }
        // Last, so that nobody is accepted whom no worker would serve.
        let acceptor = Acceptor::new(accept_poll, tcp, unix)?;
        server.spawn("guira-acceptor".into(), move || acceptor.run(&shared))?;
        Ok(server)
    }

    fn spawn(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> io::Result<thread::Thread> {
        let alarm = Alarm(self.stopper.clone());
        let handle = thread::Builder::new().name(name).spawn(move || {
            let _alarm = alarm;
            run();
        })?;
        let thread = handle.thread().clone();
        self.threads.push(handle);
        Ok(thread)
    }

    /// Where memcached's TCP clients may connect.
    pub fn tcp_addresses(&self) -> &[SocketAddr] {
        &self.addresses.tcp
    }

    /// Where CPSERVER's clients may connect.
    pub fn cp_addresses(&self) -> &[SocketAddr] {
        &self.addresses.cp
    }

    /// Where UDP clients may send.
    pub fn udp_addresses(&self) -> &[SocketAddr] {
        &self.addresses.udp
    }

    /// Where Prometheus may scrape.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.addresses.metrics
    }

    /// Ends this server, now or later.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until the server has stopped: through a [`Stopper`] or the `shutdown` command.
    ///
    /// # Errors
    /// [`WorkerPanicked`] if it stopped because of a bug.
    pub fn join(mut self) -> Result<(), WorkerPanicked> {
        self.join_threads()
    }

    fn join_threads(&mut self) -> Result<(), WorkerPanicked> {
        let panicked = self.threads.drain(..).map(JoinHandle::join).filter(Result::is_err).count();
        if panicked == 0 { Ok(()) } else { Err(WorkerPanicked) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.stopper.stop_now();
            let _ = self.join_threads();
        }
    }
}

fn addresses(listeners: &Listeners) -> Addresses {
    let mut listening = Vec::new();
    for BoundTcp { listener, .. } in &listeners.tcp {
        let text = listener.local_addr().map(|address| format!("tcp:{address}")).unwrap_or_default();
        listening.push((listener.as_raw_fd(), text));
    }
    for socket in &listeners.udp {
        let text = socket.local_addr().map(|address| format!("udp:{address}")).unwrap_or_default();
        listening.push((socket.as_raw_fd(), text));
    }
    if let Some(unix) = &listeners.unix {
        listening.push((unix.listener.as_raw_fd(), format!("unix:{}", unix.path.display())));
    }
    Addresses {
        tcp: listeners.tcp_addresses(),
        cp: listeners.cp_addresses(),
        udp: listeners.udp_addresses(),
        metrics: listeners.metrics_address(),
        listening,
    }
}
