//! What goes when memory is short, what stays, and where pages go.

use guira_arena::PageId;
use guira_engine_suite::caller::{NOW, get, run, set};
use guira_item::{Delete, Engine, Operation};

use crate::{
    Config, Eviction, Memc3,
    engine_tests::{POLICIES, engine},
    item::Header,
    large,
};

/// The policies that keep an order of their own.
const LISTS: [Eviction; 3] = [Eviction::S3Fifo, Eviction::Sieve, Eviction::Lru];

/// A policy that keeps nodes has one of every item, and of every judged piece, and no others. Nobody uses the engine meanwhile.
pub(crate) fn check_nodes(engine: &Memc3) {
    let shared = engine.shared();
    for class in shared.slabs.ids() {
        let pages =
            (0..shared.arena.pages() as u32).map(PageId).filter(|page| shared.slabs.class_of(*page) == Some(class));
        let chunks = pages.flat_map(|page| {
            (0..shared.slabs.chunks_to_visit(class, page))
                .map(move |index| shared.slabs.chunk(&shared.arena, class, page, index))
        });
        let stands_for_an_item = |place: &_| {
            let words = shared.words(*place);
            Header::of(words).is_item() || large::judged_owner(words).is_some()
        };
        let wanted = chunks.filter(stands_for_an_item).count();
        assert_eq!(shared.slabs.lock(class).nodes(), wanted, "{:?}: class {}", shared.config.eviction, class.number());
    }
}

/// A store tells its policy after it has let go of the key: the item may have been moved to another chunk by then.
#[test]
fn an_item_that_is_moved_before_its_policy_knows_it_is_known_afterwards() {
    for eviction in LISTS {
        let engine = engine(4, eviction);
        let mut worker = engine.worker();
        let shared = engine.shared();
        let class = shared.slabs.sizes.fitting(8 + 12 + 3_000).expect("a class");
        let name = |number: usize| format!("item {number:07}");
        let chunks = shared.slabs.sizes.chunks_per_page(class);
        (0..chunks).for_each(|number| assert!(set(&engine, &mut worker, name(number).as_bytes(), &[1; 3_000])));
        let first = {
            let mut locked = shared.slabs.lock(class);
            let (_, page) = shared.slabs.age_turns(&mut locked).expect("a page");
            locked.forget_nodes(shared, page);
            page
        };
        // The next page, to which they can go.
        assert!(set(&engine, &mut worker, b"item of more", &[1; 3_000]));
        assert!(shared.slabs.start_draining(&shared.arena, &mut shared.slabs.lock(class), first));
        shared.empty_page(class, first, NOW, &worker.station);
        assert_eq!(shared.slabs.class_of(first), None, "{eviction:?}: the page is empty");
        assert!((0..chunks).any(|number| get(&engine, &mut worker, name(number).as_bytes()).is_some()));
        check_nodes(&engine);
    }
}

/// Values of one chunk and pieces of larger ones lie in the same class: those that are read stay, whichever they are.
#[test]
fn what_is_read_stays_whether_its_value_is_in_pieces_or_not() {
    for eviction in [Eviction::Clock, Eviction::Lru, Eviction::S3Fifo, Eviction::Sieve] {
        for (hot_len, hot_count, cold_len, cold_count) in [(15_000, 200, 100_000, 600), (100_000, 30, 15_000, 4_000)] {
            let engine = engine(16, eviction);
            let mut worker = engine.worker();
            let hot: Vec<String> = (0..hot_count).map(|number| format!("hot {number:06}")).collect();
            hot.iter().for_each(|key| assert!(set(&engine, &mut worker, key.as_bytes(), &vec![1; hot_len])));
            for number in 0..cold_count {
                let key = format!("cold {number:06}");
                assert!(set(&engine, &mut worker, key.as_bytes(), &vec![2; cold_len]), "{eviction:?}");
                // All of them while less than the memory has been stored.
                let reads = 1 + hot_count * cold_len / (4 << 20);
                for read in 0..reads {
                    get(&engine, &mut worker, hot[(number * reads + read) % hot.len()].as_bytes());
                }
            }
            let kept = hot.iter().filter(|key| get(&engine, &mut worker, key.as_bytes()).is_some()).count();
            assert!(kept * 10 >= hot_count * 9, "{eviction:?}: {kept} of {hot_count} values of {hot_len} bytes");
            assert!(engine.stats().evictions > 300, "{eviction:?}");
            if LISTS.contains(&eviction) {
                check_nodes(&engine);
            }
        }
    }
}

/// What a reader holds keeps its page from going; the free chunks beside it are of no use to anybody.
#[test]
fn chunks_of_pages_that_are_being_emptied_are_not_to_spare() {
    let engine = engine(8, Eviction::Clock);
    let shared = engine.shared();
    let (slabs, arena) = (&shared.slabs, &shared.arena);
    let class = slabs.sizes.fitting(16_000).expect("a class");
    let chunks = slabs.sizes.chunks_per_page(class);
    let fill_page = || {
        let page = arena.take_page().expect("a page");
        slabs.adopt(arena, class, page);
        (page, slabs.take_batch(arena, class, chunks))
    };
    let filled: Vec<_> = (0..5).map(|_| fill_page()).collect();
    let (kept, drained) = filled.split_first().expect("five");
    for (page, places) in drained {
        // Some of them before the page is to go, some afterwards.
        slabs.free(arena, &places[2..]);
        assert!(slabs.start_draining(arena, &mut slabs.lock(class), *page));
        slabs.free(arena, &places[1..2]);
    }
    slabs.free(arena, &kept.1[1..]);
    assert!(4 * (chunks - 1) > 2 * chunks, "more than two pages' worth");
    assert_eq!(slabs.spare_page(&mut slabs.lock(class), 2), None);
    assert!(slabs.lock(class).has_draining());
    for (page, places) in drained {
        slabs.free(arena, &places[..1]);
        assert_eq!(slabs.class_of(*page), None);
    }
    assert!(!slabs.lock(class).has_draining());
    let more: Vec<_> = (0..3).map(|_| fill_page()).collect();
    more.iter().for_each(|(_, places)| slabs.free(arena, places));
    let spare = slabs.spare_page(&mut slabs.lock(class), 2);
    assert!(spare.is_some_and(|page| more.iter().any(|(more, _)| *more == page)), "an empty one");
}

/// Whoever empties a page looks at it without its class's lock. It used to go on by the sizes of the class that the page had
/// left meanwhile, with the number of chunks that the page had in the next one: past the page's end.
#[test]
fn a_page_that_has_become_another_class_s_is_not_emptied_for_the_first_one() {
    let engine = engine(8, Eviction::Clock);
    let mut worker = engine.worker();
    let shared = engine.shared();
    assert!(set(&engine, &mut worker, b"large chunk", &[1; 8_000]));
    let first = shared.slabs.sizes.fitting(8 + 11 + 8_000).expect("a class");
    let page = {
        let mut locked = shared.slabs.lock(first);
        let (_, page) = shared.slabs.age_turns(&mut locked).expect("a page");
        assert!(shared.slabs.start_draining(&shared.arena, &mut locked, page));
        page
    };
    shared.recall(|_| true);
    assert!(shared.slabs.is_draining(page), "an item is left in it");
    run(&engine, &mut worker, NOW, b"large chunk", Operation::Delete(Delete { cas: None, invalidate: None }));
    assert_eq!(shared.slabs.class_of(page), None, "its last chunk is free");

    assert_eq!(shared.arena.take_page(), Some(page), "the last one given is the first one taken");
    let second = shared.slabs.sizes.fitting(8 + 22 + 24).expect("a class");
    shared.slabs.adopt(&shared.arena, second, page);
    let chunks = shared.slabs.sizes.chunks_per_page(second);
    assert!(chunks > 2 * shared.slabs.sizes.chunks_per_page(first));
    // More than the page has, so that the pages behind it have items too.
    let name = |number: usize| format!("small chunk {number:010}");
    for number in 0..8 * chunks {
        assert!(set(&engine, &mut worker, name(number).as_bytes(), &[2; 24]));
    }
    let before = engine.stats();
    shared.empty_page(first, page, NOW, &worker.station);
    let after = engine.stats();
    assert_eq!((after.curr_items, after.evictions), (before.curr_items, before.evictions));
    assert_eq!(shared.slabs.class_of(page), Some(second));
    for number in 0..8 * chunks {
        assert!(get(&engine, &mut worker, name(number).as_bytes()).is_some(), "{number}");
    }
}

/// First all memory goes to one size, then the load changes to another, twenty times over: nothing is refused, and the second
/// size gets nearly all the memory.
#[test]
fn memory_is_never_stuck_in_the_wrong_class() {
    for eviction in [Eviction::Clock, Eviction::Lru, Eviction::S3Fifo, Eviction::Sieve] {
        let engine = engine(8, eviction);
        let mut worker = engine.worker();
        for (size, times) in [(32, 200_000), (3_000, 20_000), (100_000, 2_000), (40, 400_000)] {
            for i in 0..times {
                assert!(
                    set(&engine, &mut worker, format!("{size}-{i:012}").as_bytes(), &vec![7; size]),
                    "{eviction:?} {size}"
                );
            }
            let held = (0..times)
                .filter(|i| get(&engine, &mut worker, format!("{size}-{i:012}").as_bytes()).is_some())
                .count();
            assert!(
                held * size * 100 > (8 << 20) * if size < 64 { 30 } else { 75 },
                "{eviction:?}: {held} of {size} {:#?}",
                engine.stats()
            );
        }
    }
}

/// Of another worker, which does nothing any more: the chunk of its one item and those that wait in its magazine.
#[test]
fn what_waits_for_an_idle_worker_serves_others_when_memory_is_short() {
    let config = Config { evictions_enabled: false, hash_seed: 7, ..Config::new(4 << 20) };
    let engine = Memc3::new(config).expect("memory");
    let (mut idle, mut busy) = (engine.worker(), engine.worker());
    assert!(set(&engine, &mut idle, b"the idle one's", &[1; 32]));
    let stored = (0..).take_while(|i| set(&engine, &mut busy, format!("{i:014}").as_bytes(), &[2; 32])).count();
    let stats = engine.stats();
    assert_eq!(stats.curr_items, stored as u64 + 1);
    assert_eq!(stats.classes.iter().map(|class| class.free_chunks).sum::<u64>(), 0, "{stats:#?}");
}

#[test]
fn a_page_does_not_wait_for_an_idle_worker_either() {
    for eviction in POLICIES {
        let engine = engine(4, eviction);
        let (mut idle, mut busy) = (engine.worker(), engine.worker());
        assert!(set(&engine, &mut idle, b"small", &[1; 32]));
        let small = engine.stats().classes[0];
        assert_eq!((small.total_pages, small.used_chunks), (1, 1), "what waits is not in use");
        for i in 0..20_000 {
            assert!(set(&engine, &mut busy, format!("{i:014}").as_bytes(), &[2; 3_000]), "{eviction:?} {i}");
        }
        let stats = engine.stats();
        let left = stats.classes.iter().find(|class| class.class == small.class).expect("its count stays");
        assert_eq!((left.total_pages, left.used_chunks, left.evicted), (0, 0, 1), "{eviction:?}");
        assert_eq!(stats.evictions, stats.classes.iter().map(|class| class.evicted).sum(), "{eviction:?}");
    }
}

#[test]
fn what_is_read_outlives_what_is_not() {
    for eviction in [Eviction::Clock, Eviction::Lru, Eviction::S3Fifo, Eviction::Sieve] {
        let engine = engine(4, eviction);
        let mut worker = engine.worker();
        let hot: Vec<String> = (0..1_000).map(|i| format!("hot{i:012}")).collect();
        hot.iter().for_each(|key| assert!(set(&engine, &mut worker, key.as_bytes(), &[1; 32])));
        for i in 0..300_000u32 {
            assert!(set(&engine, &mut worker, format!("cold{i:012}").as_bytes(), &[2; 32]));
            if i % 4 == 0 {
                get(&engine, &mut worker, hot[i as usize / 4 % hot.len()].as_bytes());
            }
        }
        let kept = hot.iter().filter(|key| get(&engine, &mut worker, key.as_bytes()).is_some()).count();
        assert!(kept > 950, "{eviction:?} kept {kept}");
    }
}
