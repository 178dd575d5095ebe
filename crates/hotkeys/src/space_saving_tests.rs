//! The counter beside Algorithm 1 of the paper written down in the plainest way, and beside exact counts.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Algorithm 1 over one list: count, when the key came to that count, key, what it may be too much.
#[derive(Default)]
struct Plain {
    tracked: Vec<(u64, u64, u8, u64)>,
    clock: u64,
}

impl Plain {
    fn see(&mut self, key: u8, len_max: usize) {
        self.clock += 1;
        if let Some(entry) = self.tracked.iter_mut().find(|entry| entry.2 == key) {
            (entry.0, entry.1) = (entry.0 + 1, self.clock);
        } else if self.tracked.len() < len_max {
            self.tracked.push((1, self.clock, key, 0));
        } else {
            let least = self.tracked.iter_mut().min_by_key(|(count, came, ..)| (*count, *came)).expect("it is full");
            *least = (least.0 + 1, self.clock, key, least.0);
        }
    }

    fn descending(&self) -> Vec<(u8, Count)> {
        let mut tracked = self.tracked.clone();
        tracked.sort_unstable_by(|a, b| b.cmp(a));
        tracked.into_iter().map(|(count, _, key, over)| (key, Count { at_most: count, over })).collect()
    }
}

fn listed(counter: &SpaceSaving) -> Vec<(u8, Count)> {
    counter.descending().map(|(key, count)| (key[0], count)).collect()
}

/// What is always true of the lists.
fn check(counter: &SpaceSaving) {
    let (mut at, mut lower, mut buckets, mut keys, mut sum) = (counter.lowest, None, 0, 0, 0);
    while let Some(bucket) = at {
        let here = &counter.buckets[bucket as usize];
        assert_eq!(here.lower, lower);
        assert!(lower.is_none_or(|lower: u32| counter.buckets[lower as usize].count < here.count));
        assert!(here.oldest.is_some() && here.newest.is_some(), "an empty bucket");
        let (mut node, mut older) = (here.oldest, None);
        while let Some(slot) = node {
            let entry = &counter.nodes[slot as usize];
            assert_eq!((entry.bucket, entry.older), (bucket, older));
            (keys, sum) = (keys + 1, sum + here.count);
            (older, node) = (node, entry.newer);
        }
        assert_eq!(here.newest, older);
        buckets += 1;
        (lower, at) = (at, here.higher);
    }
    assert_eq!(counter.highest, lower);
    assert_eq!((keys, sum), (counter.keys.len(), counter.seen));
    assert_eq!(buckets + counter.free.len(), counter.buckets.len(), "buckets are used again");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn it_does_as_the_plainest_form_of_the_algorithm(
        len_max in 1usize..9,
        queries in prop::collection::vec(prop::option::weighted(0.99, 0u8..16), 1..400),
    ) {
        let (mut counter, mut plain) = (SpaceSaving::new(len_max, 3), Plain::default());
        for query in queries {
            match query {
                Some(key) => {
                    counter.see(&[key]);
                    plain.see(key, len_max);
                }
                None => {
                    counter.clear();
                    plain = Plain::default();
                }
            }
            check(&counter);
            prop_assert_eq!(listed(&counter), plain.descending());
        }
    }

    /// Metwally's lemmas.
    #[test]
    fn counts_are_between_their_bounds_and_who_is_frequent_is_tracked(
        len_max in 1usize..20,
        queries in prop::collection::vec((0u8..40, 0u8..40), 1..600),
    ) {
        let mut counter = SpaceSaving::new(len_max, 5);
        let mut exact: HashMap<u8, u64> = HashMap::new();
        for (one, other) in queries {
            // The smaller of two is skewed.
            let key = one.min(other);
            counter.see(&[key]);
            *exact.entry(key).or_default() += 1;
        }
        let bound = counter.seen() / len_max as u64;
        for (key, seen) in exact {
            match counter.count(&[key]) {
                Some(count) => {
                    prop_assert!(count.at_least() <= seen && seen <= count.at_most, "{seen} {count:?}");
                    prop_assert!(count.over <= bound);
                }
                None => prop_assert!(seen <= bound, "{key} was seen {seen} times and is not tracked"),
            }
        }
    }
}

#[test]
fn memory_does_not_grow_with_what_is_seen() {
    let mut counter = SpaceSaving::new(100, 1);
    for round in 0..50u64 {
        for number in 0..10_000u64 {
            counter.see(&(number * number % (97 + 1_000 * round)).to_le_bytes());
        }
        if round % 10 == 9 {
            counter.clear();
        }
        assert!(counter.nodes.len() <= 100 && counter.buckets.len() <= 101);
    }
    check(&counter);
}
