//! The janitor: a thread that gives the service time for its background work.
//!
//! Always true: it works back to back only while the service says that more is waiting, and sleeps otherwise.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use guira_item::Service;

use crate::shared::{Shared, Stop};

/// The nap after work, and the longest nap: short enough that a growing index is never far behind.
const NAP_MIN: Duration = Duration::from_millis(100);
const NAP_MAX: Duration = Duration::from_millis(400);

/// Slices of work between two short naps, so that the workers on a busy machine get the core back.
const SLICES_BACK_TO_BACK: u32 = 64;
const BREATH: Duration = Duration::from_micros(200);

/// Maintains the service until the server stops.
pub(crate) fn run<S: Service>(shared: &Arc<Shared<S>>) {
    let mut worker = shared.service.worker(Arc::new(|| {}));
    let mut nap = NAP_MIN;
    let mut slices = 0;
    while shared.stopping() == Stop::Not {
        let now = shared.watch.read().time;
        if shared.service.maintain(&mut worker, now) {
            shared.tallies.rare.maintenance_rounds.fetch_add(1, Relaxed);
            nap = NAP_MIN;
            slices += 1;
            if slices % SLICES_BACK_TO_BACK == 0 { thread::park_timeout(BREATH) } else { thread::yield_now() }
        } else {
            thread::park_timeout(nap);
            nap = (nap * 2).min(NAP_MAX);
        }
    }
}
