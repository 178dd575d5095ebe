//! Every index of many threads against a reference set, alone and under concurrent change.

use std::collections::HashSet;
use std::sync::Arc;

use guira_bench_memory::Pages;

use super::{
    Locking, PointerIndex, chaining::Chaining, guira_index::GuiraIndex, key, key::Draw, records::Compare,
    records::Records, shared_cuckoo::SharedCuckoo,
};

const ITEMS: usize = 7_000;

fn all() -> Vec<(&'static str, Box<dyn PointerIndex>)> {
    let records = || Arc::new(Records::new(ITEMS * 2, Pages::Small).expect("memory"));
    let chaining = |compare, locking| {
        Box::new(Chaining::new(records(), 4096, Pages::Small, compare, locking).expect("memory"))
            as Box<dyn PointerIndex>
    };
    let cuckoo = |tags, locking| {
        Box::new(SharedCuckoo::new(records(), 2048, Pages::Huge, tags, locking).expect("memory"))
            as Box<dyn PointerIndex>
    };
    vec![
        ("chaining, global", chaining(Compare::Bytes, Locking::Global)),
        ("chaining, bucket", chaining(Compare::Words, Locking::Bucket)),
        ("cuckoo, bucket", cuckoo(false, Locking::Bucket)),
        ("cuckoo, tags, bucket", cuckoo(true, Locking::Bucket)),
        ("cuckoo, optimistic", cuckoo(true, Locking::Optimistic)),
        ("guira", Box::new(GuiraIndex::new(records(), ITEMS, Pages::Small).expect("memory"))),
    ]
}

#[test]
fn they_hold_what_a_set_holds() {
    for (name, index) in all() {
        let mut reference = HashSet::new();
        let mut draw = Draw::new(5);
        for _ in 0..40_000 {
            let item = draw.below(ITEMS) as u32;
            if reference.remove(&item) {
                index.remove(item);
            } else {
                reference.insert(item);
                index.insert(item).expect("there is room");
            }
        }
        for item in 0..ITEMS as u32 {
            let is_there = index.contains(&key::numbered(u64::from(item)));
            assert_eq!(is_there, reference.contains(&item), "{name}: {item}");
        }
        assert_eq!(index.count(&[ITEMS as u32 + 1, ITEMS as u32 + 2]), 0, "{name}");
    }
}

#[test]
fn readers_never_miss_a_key_while_others_come_and_go() {
    for (name, index) in all() {
        let (stable, index) = (ITEMS as u32 / 2, &*index);
        (0..stable).for_each(|item| index.insert(item).expect("there is room"));
        std::thread::scope(|scope| {
            for writer in 0..2u32 {
                let span = ITEMS as u32 / 4;
                scope.spawn(move || {
                    for _ in 0..5 {
                        let own = stable + writer * span..stable + (writer + 1) * span;
                        own.clone().for_each(|item| index.insert(item).expect("there is room"));
                        own.for_each(|item| index.remove(item));
                    }
                });
            }
            let numbers: Vec<u32> = (0..stable).collect();
            for _ in 0..20 {
                assert_eq!(index.count(&numbers), u64::from(stable), "{name}");
            }
        });
    }
}
