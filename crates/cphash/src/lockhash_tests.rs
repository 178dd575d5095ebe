//! What every engine has to pass.

use guira_engine_suite::{Setup, Subject, engine_suite};

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
