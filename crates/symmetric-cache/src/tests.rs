//! What a reader is told, beside a map; and while the writer changes everything.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use guira_item::{Expiry, Moment};
use proptest::prelude::*;

use super::*;

const CONFIG: Config = Config { keys_max: 64, records_len_max: 4 << 20, item_len_max: 1 << 16, shards_max: 70 };

/// Some have one tag, or one bucket.
fn hash_of(key: &[u8]) -> u64 {
    let sum: u64 = key.iter().map(|byte| u64::from(*byte)).sum();
    (sum % 3) | ((sum % 5) << 32)
}

fn at(version: u32) -> At {
    At { version, writer: 7 }
}

fn content(version: u32, value: &[u8]) -> Content<'_> {
    Content { flags: version, cas: u64::from(version) << 20, expiry: Expiry::from_raw(version), value }
}

/// What a key is to be read as.
#[derive(Clone, PartialEq, Debug)]
enum State {
    Served(u32, Option<Vec<u8>>),
    Withheld,
}

fn expect(reader: &Reader, key: &[u8], state: Option<&State>) -> Result<(), TestCaseError> {
    let mut values = b"before".to_vec();
    match (reader.read(key, hash_of(key), &mut values), state) {
        // There may be no room for it, or more keys than places.
        (Read::Ask, _) => {}
        (Read::Cold(absence), None) => prop_assert!(reader.is_still_cold(absence)),
        (Read::Nothing, Some(State::Served(_, None))) => {}
        (Read::Hit(found), Some(State::Served(version, Some(value)))) => {
            let Content { flags, cas, expiry, .. } = content(*version, value);
            prop_assert_eq!((found.flags, found.cas, found.expiry), (flags, cas, expiry));
            prop_assert_eq!((&values[..6], &values[found.value]), (&b"before"[..], &value[..]));
            return Ok(());
        }
        (read, state) => prop_assert!(false, "{:?}, {:?}", read, state),
    }
    prop_assert_eq!(&values[..], b"before");
    Ok(())
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_said_last(
        steps in prop::collection::vec((0..40_u8, 0..6_u8, prop_oneof![0..40_usize, 0..70_000_usize]), 1..200),
    ) {
        let (mut writer, reader) = new(&CONFIG);
        let mut states = BTreeMap::new();
        let name = |number: u8| format!("{number:0>width$}", width = usize::from(number) % 20 + 2).into_bytes();
        for (version, (number, what, len)) in (1..).zip(steps) {
            let key = name(number);
            match what {
                0 => {
                    writer.remove(&key);
                    states.remove(&key);
                }
                1 => {
                    writer.withhold(&key, hash_of(&key));
                    states.insert(key.clone(), State::Withheld);
                }
                2 => {
                    writer.serve(&key, hash_of(&key), at(version), None);
                    states.insert(key.clone(), State::Served(version, None));
                }
                _ => {
                    let value = vec![number; len];
                    writer.serve(&key, hash_of(&key), at(version), Some(content(version, &value)));
                    states.insert(key.clone(), State::Served(version, Some(value)));
                }
            }
            (0..40).map(name).try_for_each(|key| expect(&reader, &key, states.get(&key)))?;
        }
        // What is gone leaves nothing behind.
        writer.clear();
        (0..40).map(name).try_for_each(|key| {
            prop_assert!(matches!(reader.read(&key, hash_of(&key), &mut Vec::new()), Read::Cold(_)));
            Ok(())
        })?;
    }
}

#[test]
fn nearly_all_keys_that_it_is_made_for_are_told_by_it() {
    let config = Config { keys_max: 4_096, ..CONFIG };
    let (mut writer, reader) = new(&config);
    let mixed = |number: u64| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    let keys: Vec<(Vec<u8>, u64)> =
        (0..4_096).map(|number| (format!("{number}").into_bytes(), mixed(number))).collect();
    keys.iter().for_each(|(key, hash)| writer.serve(key, *hash, at(1), Some(content(1, b"value"))));
    let mut values = Vec::new();
    let hits = keys.iter().filter(|(key, hash)| matches!(reader.read(key, *hash, &mut values), Read::Hit(_))).count();
    assert!(hits > 4_000, "{hits}");
}

#[test]
fn nothing_is_told_but_under_the_lease_by_which_it_was_read() {
    let moment = Moment::from_ns;
    let (mut writer, reader) = new(&CONFIG);
    let visit = reader.visit();
    assert!(!reader.holds(visit, moment(0)) && !reader.is_home_of(0), "there is none");
    writer.renew(moment(50));
    assert!(!reader.holds(reader.visit(), moment(1)), "and none is made longer");
    writer.grant(moment(100), 70, |shard| shard % 3 == 0);
    assert!(!reader.holds(visit, moment(1)), "it came later");
    let visit = reader.visit();
    assert!(reader.holds(visit, moment(99)) && !reader.holds(visit, moment(100)));
    (0..200).for_each(|hash| assert_eq!(reader.is_home_of(hash), hash % 70 % 3 == 0));
    writer.renew(moment(200));
    assert!(!reader.holds(visit, moment(150)), "as it was when it was read");
    assert!(reader.holds(visit, moment(99)) && reader.holds(reader.visit(), moment(199)));
    let visit = reader.visit();
    writer.close();
    assert!(!reader.holds(visit, moment(1)) && !reader.holds(reader.visit(), moment(1)));
    writer.grant(moment(300), 70, |_| false);
    assert!(!reader.holds(visit, moment(1)), "others may have been home meanwhile");
    assert!(reader.holds(reader.visit(), moment(299)) && !reader.is_home_of(0));
}

#[test]
fn a_key_that_was_here_meanwhile_was_not_cold_all_along() {
    let (mut writer, reader) = new(&CONFIG);
    let mut values = Vec::new();
    let Read::Cold(absence) = reader.read(b"a", 1, &mut values) else { panic!("it is not here") };
    assert!(reader.is_still_cold(absence));
    writer.withhold(b"a", 1);
    assert!(!reader.is_still_cold(absence));
    writer.remove(b"a");
    assert!(!reader.is_still_cold(absence));
}

/// A value that says itself whether it is whole.
fn whole(key: u8, version: u32) -> Vec<u8> {
    let len = 8 + (version as usize * 37) % 300;
    [&[key][..], &version.to_le_bytes()].concat().into_iter().cycle().take(len).collect()
}

#[test]
fn readers_never_see_half_of_anything() {
    const KEYS: u8 = 12;
    let (mut writer, reader) = new(&Config { keys_max: 4, ..CONFIG });
    let (is_over, hits) = (AtomicBool::new(false), AtomicUsize::new(0));
    // All in one bucket and with one tag, so more than fit; records are each other's all the time.
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = [0; KEYS as usize];
                while !is_over.load(Ordering::Relaxed) {
                    for key in 0..KEYS {
                        let mut values = Vec::new();
                        let Read::Hit(found) = reader.read(&[key], 5, &mut values) else { continue };
                        let version = found.flags;
                        assert_eq!(values, whole(key, version), "{key}");
                        assert_eq!(found.cas, u64::from(version) << 20);
                        assert!(version >= last[usize::from(key)], "never older");
                        last[usize::from(key)] = version;
                        hits.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut version = 0;
        while version < 200_000 || hits.load(Ordering::Relaxed) < 10_000 {
            version += 1;
            let key = (version % u32::from(KEYS)) as u8;
            match version / 5 % 11 {
                0 => writer.remove(&[key]),
                1 => writer.withhold(&[key], 5),
                _ => {
                    let value = whole(key, version);
                    writer.serve(&[key], 5, at(version), Some(content(version, &value)));
                }
            }
            if version.is_multiple_of(64) {
                thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
