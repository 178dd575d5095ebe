//! Items that go from a store into a memory file and back.

use std::{collections::BTreeMap, io::Cursor};

use guira_item::store::Generation;

use super::*;
use crate::{MemoryStore, format::Head};

const NOW: u64 = 1_800_000_000;

/// Records by their keys.
type Records = BTreeMap<Vec<u8>, Record<Vec<u8>>>;

/// A file of items of many lengths, and the items by their keys.
fn file(count: u64, head: Head) -> (Vec<u8>, Records) {
    let mut writer = Writer::begin(Vec::new(), &head).expect("memory");
    let mut items = BTreeMap::new();
    for number in 0..count {
        let record = Record {
            flags: number as u32,
            expires_unix_s: [0, NOW + 5, NOW][number as usize % 3],
            version: number + 1,
            generation: Generation(3),
            stale: number % 5 == 0,
            win_sent: number % 7 == 0,
            value: vec![number as u8; if number % 97 == 5 { 300_000 } else { number as usize % 700 }],
        };
        let key = format!("key{number}").into_bytes();
        put_record(&mut writer, Key::new(&key).expect("a key"), &record.borrowed()).expect("memory");
        items.insert(key, record);
    }
    (writer.finish().expect("memory").1, items)
}

fn load(store: &MemoryStore, bytes: &[u8], merges: bool) -> Result<LoadedRecords, LoadError> {
    load_records(store, Cursor::new(bytes), merges, NOW, |_| {})
}

#[test]
fn what_is_loaded_is_what_was_dumped_under_the_versions_it_had() {
    let (bytes, items) = file(3_000, Head { saved_unix_s: NOW - 9, last_version: 5_000, flush_unix_s: NOW + 60 });
    let store = MemoryStore::default();
    let loaded = load(&store, &bytes, false).expect("sound");
    assert_eq!(loaded, LoadedRecords { items: 2_000, expired: 1_000, flushed: 0, has_new_versions: false });
    for (key, item) in &items {
        let wanted = (item.expires_unix_s != NOW).then(|| Record { generation: Generation(0), ..item.borrowed() });
        assert_eq!(store.record(key).as_ref().map(Record::borrowed), wanted);
    }
    let state = store.written_state();
    assert_eq!((state.versions_reserved, state.flush_at_unix_s), (5_000, NOW + 60));
    assert!(matches!(load(&store, &bytes, false), Err(LoadError::NotEmpty)));
    assert!(matches!(load(&store, &bytes, true), Err(LoadError::FlushToCome)));
}

#[test]
fn in_a_store_that_had_items_they_get_versions_that_nobody_was_told() {
    let (bytes, _) = file(1_000, Head { saved_unix_s: NOW, last_version: 0, flush_unix_s: 0 });
    let (store, (told, outcome)) = (MemoryStore::default(), mpsc::channel());
    let before = StoreState { generation: Generation(4), flush_at_unix_s: 0, versions_reserved: 700 };
    store.write(vec![Write::State(before)], Box::new(move |written| drop(told.send(written))));
    outcome.recv().expect("completed").expect("written");
    let loaded = load(&store, &bytes, false).expect("it is empty");
    assert!(loaded.has_new_versions);
    assert!(matches!(load(&store, &bytes, false), Err(LoadError::NotEmpty)));
    let first = store.record(b"key0").expect("loaded").version;
    load(&store, &bytes, true).expect("merged");
    let second = store.record(b"key0").expect("replaced");
    assert!(first > 700 && second.version > first && second.generation == Generation(4));
    assert!(store.written_state().versions_reserved >= first + 1_000);
}

#[test]
fn a_version_above_the_files_last_is_reserved_and_one_that_cannot_be_is_damage() {
    let (bytes, _) = file(1_000, Head { saved_unix_s: NOW, last_version: 10, flush_unix_s: 0 });
    let store = MemoryStore::default();
    load(&store, &bytes, false).expect("sound");
    // The last has expired.
    assert_eq!(store.written_state().versions_reserved, 1_000);
    let (bytes, _) = file(10, Head { saved_unix_s: NOW, last_version: u64::MAX, flush_unix_s: 0 });
    let error = load(&MemoryStore::default(), &bytes, false).expect_err("no such version").to_string();
    assert_eq!(error, "is cut short or damaged (its versions); nothing was loaded");
}

#[test]
fn what_a_flush_took_meanwhile_is_not_loaded_and_damage_is_told_with_what_was_loaded() {
    let (bytes, _) = file(1_000, Head { saved_unix_s: NOW - 9, last_version: 2_000, flush_unix_s: NOW });
    let store = MemoryStore::default();
    let loaded = load(&store, &bytes, false).expect("sound");
    assert_eq!((loaded.items, loaded.flushed), (0, 1_000));
    assert_eq!(store.written_state().versions_reserved, 2_000);
    let (mut bytes, _) = file(1_000, Head { saved_unix_s: NOW, last_version: 2_000, flush_unix_s: 0 });
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let error = load(&MemoryStore::default(), &bytes, false).expect_err("damaged").to_string();
    assert!(error.starts_with("is cut short or damaged (items); the ") && error.ends_with("were loaded"), "{error}");
}
