//! A cache node of several parts, each on a thread and a socket of its own.

use std::num::NonZero;

use guira_routing::NodeId;

use super::{super::PartStatus, *};

fn in_parts(threads: u16) -> LocalConfig {
    LocalConfig { backends: 2, cache_threads: NonZero::new(threads).expect("not none"), ..quick() }
}

/// Hits of each part.
fn hits(cluster: &LocalCluster<MemoryStore>) -> Vec<u64> {
    cluster.cache_parts(0).into_iter().map(|part| part.expect("it runs").counts.hits).collect()
}

#[test]
fn each_part_serves_what_is_its_own_and_answers_are_one_nodes() {
    let (cluster, service) = start(in_parts(3));
    let mut client = Client::of(&service);
    let names: Vec<String> = (0..12).map(|at| format!("hot {at}")).collect();
    for name in &names {
        assert!(client.ask(name, set(name.as_bytes())).is_stored());
    }
    let deadline = Instant::now() + PATIENCE;
    while hits(&cluster).iter().any(|hits| *hits < 50) {
        assert!(Instant::now() < deadline, "not all parts serve: {:#?}", cluster.cache_parts(0));
        for name in &names {
            assert_eq!(client.ask(name, GET).value(), name.as_bytes());
        }
    }
    let parts: Vec<PartStatus> = cluster.cache_parts(0).into_iter().flatten().collect();
    let status = cluster.status().caches[0].expect("it runs");
    assert_eq!(parts.iter().map(|part| part.part).collect::<Vec<_>>(), [100, 101, 102].map(NodeId));
    assert!(parts.iter().all(|part| part.backends == 2 && part.items > 0), "{parts:#?}");
    assert!(status.backends == 2 && status.items >= 6, "{status:?}");
    let held: Vec<(Box<[u8]>, f64)> = cluster.hottest(0, 100);
    assert!(held.is_sorted_by(|a, b| a.1 >= b.1), "{held:?}");
    let mut held: Vec<Box<[u8]>> = held.into_iter().map(|(key, _)| key).collect();
    let len = held.len();
    held.sort();
    held.dedup();
    assert_eq!(held.len(), len, "a key that two parts have is told once");
    let is_there = |name: &String| held.contains(&name.as_bytes().into());
    assert!(names.iter().filter(|name| is_there(name)).count() >= 6, "of all parts: {held:?}");
    // A change is told to the part that has the key.
    for name in &names {
        assert!(client.ask(name, set(b"new")).is_stored());
        assert_eq!(client.ask(name, GET).value(), b"new");
    }
}

#[test]
fn the_hottest_key_of_one_cache_node_is_had_by_two_of_its_parts_and_stays_one_key() {
    let (cluster, service) = start(in_parts(3));
    let mut client = Client::of(&service);
    assert!(client.ask("hot", set(b"0")).is_stored());
    let deadline = Instant::now() + PATIENCE;
    while hits(&cluster).iter().filter(|hits| **hits > 100).count() < 2 {
        assert!(Instant::now() < deadline, "two do not have it: {:#?}", cluster.cache_parts(0));
        (0..100).for_each(|_| drop(client.ask("hot", GET)));
    }
    let hottest = cluster.hottest(0, 10);
    assert!(matches!(&hottest[..], [(key, _)] if **key == *b"hot"), "once, though two have it: {hottest:?}");
    write_while_it_is_read(&service, &mut client);
    let counts = |at: usize| cluster.status().backends[at].expect("it runs").counts;
    let (spreads, two_phased) = (0..2)
        .map(|at| (counts(at).spreads, counts(at).two_phased))
        .fold((0, 0), |sum, its| (sum.0 + its.0, sum.1 + its.1));
    assert!(spreads > 0 && two_phased > 0, "{spreads} {two_phased}");
}
