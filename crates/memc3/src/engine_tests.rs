//! What every engine has to pass, and what only this one promises.

use guira_arena::PageId;
use guira_engine_suite::{
    Setup, Subject,
    caller::{NOW, Reply, get, run, set},
    engine_suite,
};
use guira_item::{Engine, Get, Operation};

use crate::{Config, Eviction, Memc3, Worker, eviction_tests::check_nodes};

pub(crate) const POLICIES: [Eviction; 5] =
    [Eviction::Clock, Eviction::S3Fifo, Eviction::Sieve, Eviction::Lru, Eviction::Random];

pub(crate) fn engine(megabytes: usize, eviction: Eviction) -> Memc3 {
    Memc3::new(Config { eviction, hash_seed: 7, ..Config::new(megabytes << 20) }).expect("memory")
}

fn policy(name: &str) -> Eviction {
    POLICIES.into_iter().find(|policy| policy.name() == name).expect("a policy")
}

engine_suite!(Subject {
    policies: &["clock", "s3fifo", "sieve", "lru", "random"],
    make: |setup: &Setup| {
        let config = Config::new(setup.memory_limit);
        let (eviction, evictions_enabled) = (policy(setup.eviction), setup.evictions_enabled);
        Memc3::new(Config { eviction, evictions_enabled, hash_seed: 7, ..config }).expect("memory")
    },
    bytes_per_item_max: |eviction| if crate::policy::node_len(policy(eviction)) == 0 { 75.0 } else { 84.0 },
    header_len: 16,
    check_busy: |engine, eviction| {
        if !matches!(policy(eviction), Eviction::Clock | Eviction::Random) {
            check_nodes(engine);
        }
    },
    check_empty: |engine, eviction| {
        let shared = engine.shared();
        let draining = (0..shared.arena.pages() as u32).filter(|page| shared.slabs.is_draining(PageId(*page))).count();
        assert_eq!(draining, 0, "{eviction:?}: pages wait for a chunk");
    },
});

#[test]
fn a_worker_takes_the_place_of_one_that_has_gone() {
    let engine = engine(4, Eviction::Clock);
    for i in 0..100 {
        assert!(set(&engine, &mut engine.worker(), format!("{i}").as_bytes(), &[1; 32]));
    }
    assert_eq!(engine.shared().stations().len(), 1);
    assert_eq!(engine.stats().total_items, 100);
    let _both = (engine.worker(), engine.worker());
    assert_eq!(engine.shared().stations().len(), 2);
}

/// The versions of a stripe begin again after some 2^38 stores: what a flush sweeps away, before or after, does not come back, and
/// what is stored afterwards is not taken for it.
#[test]
fn a_flush_parts_old_from_new_when_versions_begin_again() {
    let engine = engine(4, Eviction::Clock);
    let (mut worker, shared) = (engine.worker(), engine.shared());
    let to_the_turn = || (0..shared.index.stripes()).for_each(|stripe| shared.index.stripe_data(stripe).skip_to_turn());
    let version_of = |worker: &mut Worker, key: &[u8]| match run(&engine, worker, NOW, key, Operation::Get(Get::PLAIN))
    {
        Reply::Hit(hit, _) => Some(hit.cas),
        Reply::Other(_) => None,
    };
    let keys: Vec<String> = (0..2_000).map(|number| format!("key {number}")).collect();
    let store_all = |worker: &mut Worker| keys.iter().all(|key| set(&engine, worker, key.as_bytes(), b"1"));
    let versions = |worker: &mut Worker| -> Vec<u64> {
        keys.iter().filter_map(|key| version_of(worker, key.as_bytes())).collect()
    };
    assert!(store_all(&mut worker));
    to_the_turn();
    assert!(set(&engine, &mut worker, keys[0].as_bytes(), b"2"));
    assert_eq!(version_of(&mut worker, keys[0].as_bytes()), Some(1), "without a flush they begin again at once");
    assert_eq!(versions(&mut worker).len(), keys.len());

    to_the_turn();
    engine.flush_all(NOW, NOW);
    assert_eq!(versions(&mut worker), [], "of both rounds");
    assert!(store_all(&mut worker));
    let stored = versions(&mut worker);
    assert!(stored.len() == keys.len() && stored.iter().all(|version| *version > 1 << 37), "above what is swept away");
    while engine.maintain(&mut worker, NOW) {}
    assert!(set(&engine, &mut worker, keys[0].as_bytes(), b"3"));
    assert_eq!(version_of(&mut worker, keys[0].as_bytes()), Some(1), "nothing is left of it");
    assert_eq!(versions(&mut worker).len(), keys.len());
    engine.flush_all(NOW, NOW);
    assert_eq!(versions(&mut worker), [], "those of the round before as well");
}

/// Steady state: an engine whose whole arena may not be written any more still answers every GET.
#[test]
fn a_get_writes_no_shared_memory() {
    let engine = engine(8, Eviction::Clock);
    let mut worker = engine.worker();
    let keys: Vec<String> = (0..50_000).map(|i| format!("key{i:012}")).collect();
    keys.iter().for_each(|key| assert!(set(&engine, &mut worker, key.as_bytes(), key.as_bytes())));
    keys.iter().for_each(|key| assert!(get(&engine, &mut worker, key.as_bytes()).is_some()));
    let (start, len) = engine.shared().arena.span();
    let protect = |access| {
        // SAFETY: the span is the arena's own mapping; a forbidden write would end the test by a signal, as it should.
        assert_eq!(unsafe { libc::mprotect(start.cast(), len, access) }, 0);
    };
    protect(libc::PROT_READ);
    // Nor does it take a lock: every stripe is held meanwhile.
    engine.shared().index.with_all_stripes(|| {
        for key in &keys {
            assert_eq!(get(&engine, &mut worker, key.as_bytes()).as_deref(), Some(key.as_bytes()));
        }
        assert_eq!(get(&engine, &mut worker, b"missing"), None);
    });
    protect(libc::PROT_READ | libc::PROT_WRITE);
    assert!(set(&engine, &mut worker, b"writable again", b"v"));
}
