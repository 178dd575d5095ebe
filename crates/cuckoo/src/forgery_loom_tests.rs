//! Reads under every interleaving while the memory that they look at goes to a next owner, who keeps there what looks like the
//! key, or like its absence: hits in both buckets and misses, by readers that know of no growth and by those beside it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicUsize, Ordering},
};

use guira_sync::reuse;
use loom::{sync::Arc, thread};

use crate::{
    Growth, Index, Probe, SEGMENT_BUCKETS,
    loom_tests::{SEGMENTS_MAX, displace, grow_by, hash_in_growth, index_half_grown, insert, model, model_within},
    model_heap::{Forgery, Heap},
    model_reads::ReadFault,
    read::Disturbed,
    reuse_loom_tests::read_beside_reuse,
    tags::Lane,
};

const KEY: u32 = 5;

/// What the next owner's payloads say.
const FORGED: u32 = 99;

/// Where the key is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lies {
    Home,
    Away,
    Nowhere,
}

/// What the next owner's slots look like.
#[derive(Clone, Copy, Debug)]
enum Forged {
    /// The key in its first bucket.
    Home,
    /// The key in its second bucket.
    Away,
    /// Free slots.
    Nothing,
}

fn heap(forged: Forged) -> Heap {
    let lanes = match forged {
        Forged::Home => vec![Lane::home(KEY as u8)],
        Forged::Away => vec![Lane::away(KEY as u8)],
        Forged::Nothing => Vec::new(),
    };
    Heap::with_forgery(Forgery { lanes, payload: FORGED })
}

fn check_seen(seen: Option<u32>, lies: Lies) {
    assert_eq!(seen, (lies != Lies::Nowhere).then_some(KEY), "what a reader believes");
}

/// The first bucket is the second one, so that growth comes by the key's second bucket, where it may lie, before the stripe that
/// the reader asks.
fn hash_behind_of_bucket_one(key: u32) -> u64 {
    hash_in_growth(key) | 1
}

fn grow(index: &Index<Heap>) {
    index.begin_growth(|_| 2).expect("may grow");
    while index.grow_by(usize::MAX, |_| (), hash_behind_of_bucket_one).expect("memory") != Growth::Complete {}
}

/// A reader that knows of no growth, and gives up when it comes to know of one, beside one from its beginning until the segment has
/// gone.
fn look_beside_growth(
    lies: Lies,
    forged: Forged,
    grow: fn(&Index<Heap>),
    look: impl FnOnce(&Index<Heap>, &Probe) -> Result<Option<u32>, Disturbed>,
) {
    let index = Arc::new(Index::<Heap>::new(heap(forged), 1, SEGMENTS_MAX).expect("memory"));
    if lies != Lies::Nowhere {
        insert(&index, hash_behind_of_bucket_one(KEY), KEY);
    }
    if lies == Lies::Away {
        displace(&index, 1, 0, Lane::home(KEY as u8));
    }
    let grower = {
        let index = Arc::clone(&index);
        thread::spawn(move || grow(&index))
    };
    if let Ok(seen) = look(&index, &Probe::new(hash_behind_of_bucket_one(KEY))) {
        check_seen(seen, lies);
    }
    grower.join().expect("grower");
}

/// A reader that comes to know of a growth which has passed the key's first bucket: no stripe of it is marked when the old segment
/// goes.
fn read_behind_growth(lies: Lies, forged: Forged, read: impl FnOnce(&Index<Heap>, &Probe) -> Option<u32>) {
    let index = index_half_grown(heap(forged), lies != Lies::Nowhere);
    assert_eq!(grow_by(&index, 1), Ok(Growth::Underway));
    let grower = {
        let index = Arc::clone(&index);
        thread::spawn(move || assert_eq!(grow_by(&index, 1), Ok(Growth::Complete)))
    };
    check_seen(read(&index, &Probe::new(hash_in_growth(KEY))), lies);
    grower.join().expect("grower");
}

/// Both short ways.
fn steady_read(lies: Lies, forged: Forged) {
    model(move || {
        look_beside_growth(lies, forged, grow, |index, probe| index.look_in_both(probe, &mut Some, &mut Some))
    });
    model(move || look_beside_growth(lies, forged, grow, |index, probe| index.look_first(probe, Some, Some)));
}

#[test]
fn loom_a_steady_read_of_a_key_at_home_believes_nothing_of_the_next_owner() {
    steady_read(Lies::Home, Forged::Home);
}

#[test]
fn loom_a_steady_read_of_a_key_that_is_away_believes_nothing_of_the_next_owner() {
    steady_read(Lies::Away, Forged::Away);
}

#[test]
fn loom_a_steady_read_misses_no_key_that_the_next_owner_has_not() {
    steady_read(Lies::Home, Forged::Nothing);
    steady_read(Lies::Away, Forged::Nothing);
}

#[test]
fn loom_a_steady_read_finds_no_key_that_only_the_next_owner_has() {
    steady_read(Lies::Nowhere, Forged::Home);
    steady_read(Lies::Nowhere, Forged::Away);
}

/// Grows a table without keys, and marks no bucket's stripe when its turn comes.
fn grow_unmarked(index: &Index<Heap>) {
    index.begin_growth(|_| 2).expect("may grow");
    for stage in [Growth::Underway, Growth::Complete] {
        assert_eq!(grow_by(index, 0), Ok(Growth::Underway));
        let mut run = index.migration.next_run(SEGMENT_BUCKETS);
        while run.claim_next().is_some() {
            run.done();
        }
        drop(run);
        assert_eq!(grow_by(index, usize::MAX), Ok(stage));
    }
}

#[test]
#[should_panic(expected = "what a reader believes")]
fn loom_growth_that_marks_no_bucket_without_a_key_is_noticed() {
    model(|| {
        look_beside_growth(Lies::Nowhere, Forged::Home, grow_unmarked, |index, probe| {
            index.look_in_both(probe, &mut Some, &mut Some)
        });
    });
}

fn unsteady_read(lies: Lies, forged: Forged) {
    model_within(2, move || read_behind_growth(lies, forged, |index, probe| index.read(probe, Some)));
}

/// The layout that is asked for again is all that tells these readers.
#[test]
fn loom_a_read_behind_growth_believes_nothing_of_the_next_owner() {
    unsteady_read(Lies::Home, Forged::Home);
    unsteady_read(Lies::Home, Forged::Away);
}

#[test]
fn loom_a_read_behind_growth_finds_no_key_that_only_the_next_owner_has() {
    unsteady_read(Lies::Nowhere, Forged::Home);
    unsteady_read(Lies::Nowhere, Forged::Away);
}

/// A model of reads with a fault.
type Model = (&'static str, fn(ReadFault));

const STEADY_HITS: [Model; 2] = [
    ("a steady read of a key at home", |fault| look_faultily(Lies::Home, Forged::Home, fault)),
    ("a steady read of a key that is away", |fault| look_faultily(Lies::Away, Forged::Away, fault)),
];

const STEADY_MISSES: [Model; 2] = [
    ("a key at home that the next owner has not", |fault| look_faultily(Lies::Home, Forged::Nothing, fault)),
    ("a key away that the next owner has not", |fault| look_faultily(Lies::Away, Forged::Nothing, fault)),
];

const STEADY_FORGERIES: [Model; 2] = [
    ("no key, the next owner has one at home", |fault| look_faultily(Lies::Nowhere, Forged::Home, fault)),
    ("no key, the next owner has one away", |fault| look_faultily(Lies::Nowhere, Forged::Away, fault)),
];

const BEHIND_GROWTH: [Model; 4] = [
    ("behind growth, a key forged at home", |fault| read_faultily(Lies::Home, Forged::Home, fault)),
    ("behind growth, a key forged away", |fault| read_faultily(Lies::Home, Forged::Away, fault)),
    ("behind growth, no key but one forged at home", |fault| read_faultily(Lies::Nowhere, Forged::Home, fault)),
    ("behind growth, no key but one forged away", |fault| read_faultily(Lies::Nowhere, Forged::Away, fault)),
];

const REUSE: [Model; 1] =
    [("what a payload names is used again", |fault| read_beside_reuse(reuse::vacate, Some(fault)))];

fn look_faultily(lies: Lies, forged: Forged, fault: ReadFault) {
    look_beside_growth(lies, forged, grow, |index, probe| fault.look_in_both(index, probe, &mut Some));
}

fn read_faultily(lies: Lies, forged: Forged, fault: ReadFault) {
    read_behind_growth(lies, forged, |index, probe| fault.read(index, probe, Some));
}

/// The interleaving in which a fault is noticed.
fn noticed(check: fn(ReadFault), fault: ReadFault) -> Option<usize> {
    let tried = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&tried);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        model(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            check(fault);
        });
    }));
    outcome.is_err().then(|| tried.load(Ordering::Relaxed))
}

#[test]
fn loom_seeded_faults_of_reads_are_noticed() {
    let faults: [(ReadFault, &[&[Model]]); 5] = [
        (ReadFault::AsksNothingAgain, &[&STEADY_HITS, &STEADY_MISSES, &STEADY_FORGERIES, &BEHIND_GROWTH, &REUSE]),
        (ReadFault::AsksSecondStripe, &[&REUSE]),
        (ReadFault::AsksLayoutFirst, &[&STEADY_HITS, &STEADY_MISSES, &STEADY_FORGERIES]),
        (ReadFault::AsksLayoutOnce, &[&BEHIND_GROWTH]),
        (ReadFault::BelievesMisses, &[&STEADY_MISSES]),
    ];
    let mut missed = Vec::new();
    for (fault, models) in faults {
        for (name, check) in models.iter().copied().flatten() {
            let noticed = noticed(*check, fault);
            println!("{fault:?}, {name}: noticed in {noticed:?}");
            if noticed.is_none() {
                missed.push((fault, *name));
            }
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

#[test]
fn loom_the_read_that_faults_are_seeded_into_is_sound() {
    for (_, check) in [&STEADY_HITS[..], &STEADY_MISSES, &STEADY_FORGERIES, &BEHIND_GROWTH, &REUSE].concat() {
        model_within(2, move || check(ReadFault::Harmless));
    }
}
