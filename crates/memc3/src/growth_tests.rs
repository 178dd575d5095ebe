//! The index grows while stores go on: whoever is in the middle of it may lose its core for long.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use guira_engine_suite::caller::{get, set};
use guira_item::Engine;

use crate::{Eviction, engine_tests::engine};

/// A store that found the index full while another thread was about to let it grow, and had lost its core, evicted what had been
/// stored, though there was memory: keys of all threads were lost at once.
#[test]
fn nothing_is_evicted_while_another_thread_begins_a_growth() {
    let engine = engine(40, Eviction::Clock);
    let keys = engine.stats().hash_slots as usize;
    let name = |number: usize| format!("key {number:08}");
    let (begins, stored) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let begun = engine.shared().index.begin_growth(|segments| {
                begins.store(true, Ordering::Release);
                // Until the index is so full that whoever stores waits for this, or does not and has stored everything.
                let mut seen = (0, 0);
                while seen.0 < keys && seen.1 < 100 {
                    thread::park_timeout(Duration::from_millis(1));
                    let now = stored.load(Ordering::Relaxed);
                    seen = (now, if now == seen.0 { seen.1 + 1 } else { 0 });
                }
                2 * segments
            });
            assert_eq!(begun, Ok(()));
        });
        let mut worker = engine.worker();
        while !begins.load(Ordering::Acquire) {
            thread::yield_now();
        }
        for number in 0..keys {
            assert!(set(&engine, &mut worker, name(number).as_bytes(), b"value"), "{number}: no memory");
            stored.store(number + 1, Ordering::Relaxed);
        }
        assert_eq!(engine.stats().evictions, 0, "there was memory");
        let lost = (0..keys).filter(|number| get(&engine, &mut worker, name(*number).as_bytes()).is_none()).count();
        assert_eq!(lost, 0);
    });
}
