//! Signals, as memcached takes them: SIGTERM and SIGINT stop at once, SIGUSR1 gracefully, SIGHUP has files read again.

use std::io;
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

    /// Waits for one that ends a program: any but SIGHUP.
    pub fn wait_for_the_end(self) {
        let Self(mut signals) = self;
        signals.forever().find(|signal| *signal != SIGHUP);
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
