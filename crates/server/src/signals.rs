//! Signals, as memcached takes them: SIGTERM and SIGINT stop at once, SIGUSR1 gracefully, SIGHUP has files read again.

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::server::Stopper;

/// Signals that are kept for the server from now on, even while it is still to be started.
#[derive(Debug)]
pub struct CaughtSignals(Signals);

impl CaughtSignals {
    /// Catches them. To be called before anybody can know that the program serves: whoever has had an answer may send one.
    ///
    /// # Errors
    /// If the system refuses a handler.
    pub fn catch() -> io::Result<Self> {
        Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP]).map(Self)
    }

    /// Waits for one that ends a program, a closed terminal's included, on a thread of its own, and passes it on.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn pass_the_end(self) -> io::Result<Receiver<()>> {
        let Self(mut signals) = self;
        let (sender, receiver) = channel();
        thread::Builder::new().name("guira-signals".into()).spawn(move || {
            signals.forever().next();
            // Nobody waits any more: then it ends already.
            let _ = sender.send(());
        })?;
        Ok(receiver)
    }

    /// Passes them on to the server, from a thread that lives as long as the process; SIGHUP calls `on_hangup`.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn pass_on(self, stopper: Stopper, on_hangup: impl Fn() + Send + 'static) -> io::Result<()> {
        let Self(mut signals) = self;
        thread::Builder::new().name("guira-signals".into()).spawn(move || {
            for signal in signals.forever() {
                match signal {
                    SIGTERM | SIGINT => {
                        tracing::info!(signal, "stopping");
                        stopper.stop_now();
                    }
                    SIGUSR1 => {
                        tracing::info!("stopping gracefully");
                        stopper.stop_gracefully();
                    }
                    _ => on_hangup(),
                }
            }
        })?;
        Ok(())
    }
}
