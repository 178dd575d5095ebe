//! The model must be able to fail: users with one fault each, which a schedule has to notice.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
};

use shuttle::{
    FailurePersistence,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};

use super::{Boxed, Inline, Map, PREEMPTIONS, Storage, Tracked, Value, Ways, run};

/// Schedules of each kind within which a fault must have been noticed: many times what it takes.
const SCHEDULES: usize = 10_000;

#[test]
fn shuttle_seeded_faults_of_a_maps_users_are_noticed() {
    are_noticed::<[u64; 2], Inline>("words");
    are_noticed::<Tracked, Boxed>("entries");
}

fn are_noticed<V: Value, L: Storage<u64, V>>(storage: &str) {
    let faults = [
        ("an increment that another may come before", Ways { increment: increment_in_two_steps, ..Ways::SOUND }),
        ("a token that two may take", Ways { take: take_in_two_steps, ..Ways::SOUND }),
        ("a map that is emptied key by key", Ways { clear: |map: &Map<V, L>| map.retain(|_, _| false), ..Ways::SOUND }),
    ];
    for (fault, ways) in faults {
        let noticed = notices(PctScheduler::new_from_seed(1, PREEMPTIONS, SCHEDULES), ways)
            .or_else(|| notices(RandomScheduler::new_from_seed(1, SCHEDULES), ways));
        println!("{fault}, in a map of {storage}: noticed in schedule {noticed:?}");
        assert!(noticed.is_some(), "not noticed: {fault}, in a map of {storage}");
    }
}

fn increment_in_two_steps<V: Value, L: Storage<u64, V>>(map: &Map<V, L>, key: u64) -> bool {
    map.get(&key).is_some_and(|value| map.upsert(key, value.next(key)).is_ok())
}

fn take_in_two_steps<V: Value, L: Storage<u64, V>>(map: &Map<V, L>, key: u64) -> bool {
    let is_there = map.contains_key(&key);
    map.delete(&key);
    is_there
}

/// The schedule in which a fault is noticed.
fn notices<V: Value, L: Storage<u64, V>>(scheduler: impl Scheduler + 'static, ways: Ways<V, L>) -> Option<usize> {
    let coverage = Arc::<super::Coverage>::default();
    let outcome = catch_unwind(AssertUnwindSafe(|| run(scheduler, ways, FailurePersistence::None, &coverage)));
    outcome.is_err().then(|| coverage.schedules.load(Ordering::Relaxed))
}
