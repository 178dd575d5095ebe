//! A store that nobody serves, looked at.

use std::{fs, path::PathBuf};

use guira_item::store::{Generation, Write, Written};
use tempfile::{TempDir, tempdir};

use super::*;
use crate::rocks::{
    keys::StoredKey,
    tests::{open, put, write},
};

fn read(path: &Path) -> Findings {
    let store = StoppedStore::open(path, Arc::new(|| 1_800_000_000)).expect("a store");
    let Ok(findings) = store.read::<std::convert::Infallible>(|_, _| Ok(()), |_| {});
    findings
}

/// A copy of a store with so many items, all in its log, as if its process had been killed; and the log.
fn killed(count: u32) -> (TempDir, PathBuf) {
    let [folder, copy] = [(); 2].map(|()| tempdir().expect("a folder"));
    let store = open(folder.path());
    let state = StoreState { versions_reserved: 1_000, ..StoreState::default() };
    assert_eq!(write(&store, vec![Write::State(state)]), Ok(Written::All));
    for number in 0..count {
        assert_eq!(write(&store, vec![put(&number.to_be_bytes(), &[7; 1_000])]), Ok(Written::All));
    }
    for entry in fs::read_dir(folder.path()).expect("disk") {
        let path = entry.expect("disk").path();
        fs::copy(&path, copy.path().join(path.file_name().expect("a name"))).expect("disk");
    }
    let mut logs = fs::read_dir(copy.path()).expect("disk").map(|entry| entry.expect("disk").path());
    let log = logs.find(|path| path.extension().is_some_and(|extension| extension == "log")).expect("a log");
    (copy, log)
}

#[test]
fn a_log_that_ends_in_the_middle_of_a_record_is_sound_and_one_that_has_rotted_is_not() {
    let (folder, log) = killed(200);
    let sound = fs::read(&log).expect("a log");
    assert_eq!((read(folder.path()).live, read(folder.path()).log_damage), (200, None));
    for cut in [1, 500, 40_000] {
        fs::write(&log, &sound[..sound.len() - cut]).expect("disk");
        let found = read(folder.path());
        assert_eq!((found.defects, &found.log_damage), (0, &None), "{cut}");
        assert!((150..200).contains(&found.live), "{cut}: {}", found.live);
    }
    let mut rotten = sound.clone();
    rotten[sound.len() / 2] ^= 4;
    fs::write(&log, &rotten).expect("disk");
    let found = read(folder.path());
    assert!(found.log_damage.is_some() && found.defects == 0 && (90..110).contains(&found.live), "{found:?}");
    assert_eq!(fs::read(&log).expect("a log"), rotten, "looking changes nothing");
    // Servers go on with what is before that place.
    let store = open(folder.path());
    assert_eq!(write(&store, vec![put(b"goes on", b"value")]), Ok(Written::All));
    drop(store);
    let again = read(folder.path());
    assert_eq!((again.live, again.log_damage), (found.live + 1, None));
}

#[test]
fn what_is_no_item_or_stands_where_it_does_not_belong_is_a_defect() {
    let (folder, _) = killed(3);
    let store = open(folder.path());
    let stored = |key: &[u8]| StoredKey::of(Key::new(key).expect("a key")).as_bytes().to_vec();
    let put = |at: &[u8], bytes: &[u8]| store.inside.db.put(at, bytes).expect("disk");
    let sound = store.inside.db.get(stored(&[0; 4])).expect("disk").expect("there");
    let with = |version, generation| {
        let mut bytes = Vec::new();
        record::encode(&Record { version, generation, ..record::decode(&sound).expect("an item") }, &mut bytes);
        bytes
    };
    let mut misplaced = stored(b"misplaced");
    misplaced[0] ^= 1;
    put(&misplaced, &sound);
    put(&stored(b"none"), b"no item");
    put(&[], &sound);
    put(&stored(b"above"), &with(1_001, Generation(0)));
    put(&stored(b"later"), &with(1, Generation(1)));
    drop(store);
    let found = read(folder.path());
    let told = found.told.join("\n");
    assert_eq!((found.live, found.defects), (3, 5), "{told}");
    for what in [
        "item misplaced: it is not in its partition",
        "item none: it is no item",
        "its key is none",
        "item above: its version 1001 is above those reserved, 1000",
        "item later: its generation 1 is above the store's, 0",
    ] {
        assert!(told.contains(what), "{what}: {told}");
    }
}
