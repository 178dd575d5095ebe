//! What every engine has to pass.

use guira_engine_suite::{
    Setup, Subject,
    caller::{NOW, set},
    engine_suite,
};
use guira_item::Engine;

use crate::{Config, Eviction, Lockhash};

fn policy(name: &str) -> Eviction {
    [Eviction::Lru, Eviction::Random].into_iter().find(|policy| policy.name() == name).expect("a policy")
}

engine_suite!(Subject {
    policies: &["lru", "random"],
    make: |setup: &Setup| {
        let config = Config::new(setup.memory_limit);
        let (eviction, evictions_enabled) = (policy(setup.eviction), setup.evictions_enabled);
        // Few enough that each has an order of use worth the name in a cache of a few megabytes.
        Lockhash::new(Config { eviction, evictions_enabled, partitions: Some(64), hash_seed: 7, ..config })
            .expect("memory")
    },
    bytes_per_item_max: |_| 145.0,
    header_len: 80,
    check_busy: |_, _| {},
    check_empty: |_, _| {},
});

/// A full cache has no page for more buckets, and small items need many more of them than large ones did.
#[test]
fn buckets_take_memory_from_elements_when_small_ones_replace_large_ones() {
    let engine = Lockhash::new(Config { partitions: Some(64), hash_seed: 7, ..Config::new(8 << 20) }).expect("memory");
    let mut worker = engine.worker();
    (0..2_000).for_each(|i| assert!(set(&engine, &mut worker, format!("large{i}").as_bytes(), &[1; 15_000])));
    (0..60_000).for_each(|i| assert!(set(&engine, &mut worker, format!("small{i}").as_bytes(), &[1; 64])));
    while engine.maintain(&mut worker, NOW) {}
    let stats = engine.stats();
    assert!(stats.curr_items > 30_000 && stats.hash_slots * 2 >= stats.curr_items, "{stats:?}");
    assert!(stats.total_malloced + stats.hash_bytes <= 8 << 20, "{stats:?}");
}
