//! Copies of a store, and stores made of them.

use guira_item::store::Generation;

use super::*;

const STATE: StoreState = StoreState { generation: Generation(3), flush_at_unix_s: 7, versions_reserved: 5_000_000 };

#[test]
fn versions_grow_with_the_age_of_the_copy_and_not_beyond_the_last() {
    let (now, is_out) = raised(STATE, 0);
    assert!(now.versions_reserved >= STATE.versions_reserved + (16 << 20) && !is_out);
    // Restored once, served for an hour at the rate that is allowed for, and restored again: nothing comes twice.
    let first = raised(STATE, 1_000).0;
    let second = raised(STATE, 1_000 + 3_600).0;
    assert!(second.versions_reserved >= first.versions_reserved + 3_600 * VERSIONS_A_SECOND);
    assert_eq!((second.generation, second.flush_at_unix_s), (STATE.generation, STATE.flush_at_unix_s));
    assert_eq!(raised(STATE, u64::MAX), (StoreState { versions_reserved: VERSION_LAST, ..STATE }, true));
}

fn unix_now() -> UnixNow {
    Arc::new(|| 1_800_000_000)
}

#[test]
fn a_copy_knows_when_it_was_made_and_nothing_is_put_where_something_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let [store, copy, back] = ["store", "copy", "back"].map(|name| folder.path().join(name));
    assert!(matches!(back_up(&store, &copy, unix_now(), |_, _, _| {}), Err(BackupError::Store(OpenError::NoStore))));
    let options = RocksOptions::with_memory(MEMORY_BYTES, Durability::Os, unix_now());
    drop(RocksStore::open(&store, &options).expect("a new one"));
    back_up(&store, &copy, unix_now(), |_, _, _| {}).expect("a copy");
    assert_eq!(taken_unix_s(&copy).expect("noted"), 1_800_000_000);
    assert!(matches!(back_up(&store, &copy, unix_now(), |_, _, _| {}), Err(BackupError::IsThere(_))));
    let later: UnixNow = Arc::new(|| 1_800_000_100);
    let restored = restore(&copy, &back, Arc::clone(&later), |_, _, _| {}).expect("restored");
    assert_eq!(restored.state.versions_reserved, 100 * VERSIONS_A_SECOND + VERSIONS_BESIDES);
    assert_eq!(RocksStore::open(&back, &options).expect("a store").state(), restored.state);
    assert!(matches!(restore(&copy, &back, later, |_, _, _| {}), Err(BackupError::IsThere(_))));
    // Without the note, the time of the file says when.
    fs::remove_file(copy.join(TAKEN)).expect("there");
    assert!(taken_unix_s(&copy).expect("a time") < 1_800_000_000);
}
