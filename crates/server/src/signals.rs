//! Signals, as memcached takes them: SIGTERM and SIGINT stop at once, SIGUSR1 gracefully, SIGHUP has files read again.

use std::io;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::server::Stopper;

/// Starts a thread that passes signals on to the server, and calls `on_hangup` for SIGHUP. Signals that come before are not lost if this is called first
/// thing; the thread lives as long as the process.
///
/// # Errors
/// If the system refuses a handler or a thread.
pub fn watch_signals(stopper: Stopper, on_hangup: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP])?;
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
