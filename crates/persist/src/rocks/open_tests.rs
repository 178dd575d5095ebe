//! What a store does with folders that have something else in them, that are damaged, full or read-only.

use std::{collections::BTreeMap, fs, io, os::unix::fs::PermissionsExt, path::Path, process::Command};

use guira_item::store::Condition;
use rocksdb::{IteratorMode, Options};
use tempfile::{TempDir, tempdir};

use super::{
    tests::{get, keys, open, options, put, record, value, wait, write},
    *,
};

fn try_open(path: &Path) -> Result<RocksStore, OpenError> {
    RocksStore::open(path, &options(Durability::Os).0)
}

/// Why a store is not opened, as the type and as its one line.
fn refused(path: &Path) -> (OpenError, String) {
    let error = try_open(path).expect_err("it is not opened");
    let line = error.to_string();
    assert!(!line.contains(['\n', '\r']), "{line}");
    (error, line)
}

/// The files of a folder by name, but for those that RocksDB writes for people.
fn listed(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("a folder").map(|entry| entry.expect("disk"));
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().expect("text")).collect();
    names.retain(|name| name != "LOG" && !name.starts_with("LOG.old."));
    names.sort();
    names
}

/// Everything in a folder, but for what RocksDB notes for people. A store that is open merges and removes files by
/// itself, so what was read counts only if the same files are there before and after.
fn contents(path: &Path) -> BTreeMap<String, Vec<u8>> {
    for _ in 0..1_000 {
        let names = listed(path);
        let read: io::Result<_> = names.iter().map(|name| Ok((name.clone(), fs::read(path.join(name))?))).collect();
        match read {
            Ok(all) if listed(path) == names => return all,
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}"),
        }
    }
    panic!("{}: files come and go without end", path.display());
}

/// The same in another folder, as a power cut would leave it.
fn copied(from: &Path) -> TempDir {
    let folder = tempdir().expect("a folder");
    for (name, bytes) in contents(from) {
        fs::write(folder.path().join(name), bytes).expect("disk");
    }
    folder
}

/// The files whose names begin and end so, the newest last.
fn files(path: &Path, start: &str, end: &str) -> Vec<std::path::PathBuf> {
    let names = contents(path).into_keys().filter(|name| name.starts_with(start) && name.ends_with(end));
    names.map(|name| path.join(name)).collect()
}

/// What cannot be made shorter than it is.
fn noise(seed: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| crc32fast::hash(&[seed.to_le_bytes(), at.to_le_bytes()].concat()) as u8).collect()
}

/// A folder with a store whose items are all in one searched file.
fn folder_with_items(count: u32) -> TempDir {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    let batch = (0..count).map(|number| put(&number.to_be_bytes(), &noise(number, 500))).collect();
    assert_eq!(write(&store, batch), Ok(Written::All));
    store.merge();
    drop(store);
    folder
}

#[test]
fn one_at_a_time_has_a_store() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    let (error, line) = refused(folder.path());
    assert!(matches!(error, OpenError::InUse), "{error:?}");
    assert!(line.starts_with("is in use by another process"), "{line}");
    assert_eq!(write(&store, vec![put(b"key", b"value")]), Ok(Written::All));
    drop(store);
    assert!(value(&open(folder.path()), b"key").is_some());
}

/// RocksDB names the lock in other failures, too.
#[test]
fn a_lock_that_cannot_be_had_for_another_reason_is_not_in_use() {
    let folder = tempdir().expect("a folder");
    fs::create_dir(folder.path().join("LOCK")).expect("disk");
    let (error, line) = refused(folder.path());
    assert!(matches!(error, OpenError::Rocks(_)), "{error:?}");
    assert!(line.contains("LOCK"), "{line}");
}

#[test]
fn a_folder_that_is_not_there_is_made() {
    let folder = tempdir().expect("a folder");
    drop(open(&folder.path().join("a/b/c")));
    drop(open(&folder.path().join("a/b/c")));
}

#[test]
fn a_folder_with_something_else_in_it_is_left_as_it_is() {
    // Names like those of RocksDB's among them.
    for name in ["notes", "000012.sst", "000004.log", "access.log", "LOGO.png", ".hidden"] {
        let folder = tempdir().expect("a folder");
        fs::write(folder.path().join(name), "something").expect("disk");
        let (error, line) = refused(folder.path());
        assert!(matches!(error, OpenError::NotOne), "{name}: {error:?}");
        assert!(line.contains("choose an empty folder"), "{line}");
        assert_eq!(contents(folder.path()).into_keys().collect::<Vec<_>>(), [name]);
    }
}

#[test]
fn what_is_no_folder_is_told() {
    let folder = tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "something").expect("disk");
    for path in [&file, &file.join("below"), Path::new("/proc/guira"), Path::new("/proc/1/guira/store")] {
        let (error, line) = refused(path);
        assert!(matches!(error, OpenError::Folder(_)), "{path:?}: {error:?}");
        assert!(line.starts_with("cannot be used as a folder ("), "{line}");
    }
    assert_eq!(fs::read(&file).expect("disk"), b"something");
}

/// RocksDB's with the families given, in which something is if `is_used`.
fn rocks_of_somebody_else(families: &[&str], is_used: bool) -> TempDir {
    let folder = tempdir().expect("a folder");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let db = DB::open_cf(&options, folder.path(), families).expect("disk");
    if is_used {
        db.put(b"their key", b"their value").expect("disk");
    }
    folder
}

#[test]
fn the_database_of_somebody_else_is_left_as_it_is() {
    for (families, is_used) in [(&["default"][..], true), (&["default", "theirs"], true), (&["theirs"], false)] {
        let folder = rocks_of_somebody_else(families, is_used);
        let before = contents(folder.path());
        let (error, _) = refused(folder.path());
        assert!(matches!(error, OpenError::NotOne), "{families:?}: {error:?}");
        assert!(contents(folder.path()) == before, "{families:?}");
        let mut found = DB::list_cf(&Options::default(), folder.path()).expect("sound");
        found.sort();
        assert!(families.iter().all(|family| found.iter().any(|name| name == family)) && found.len() <= 2);
    }
}

/// A family with our name makes no store, nor is anything thrown away by it.
#[test]
fn a_database_without_a_state_is_none_of_ours() {
    let folder = rocks_of_somebody_else(&["default", state::FAMILY], true);
    let (error, _) = refused(folder.path());
    assert!(matches!(error, OpenError::NotOne), "{error:?}");
    let db = DB::open_cf(&Options::default(), folder.path(), ["default", state::FAMILY]).expect("sound");
    let all: Vec<_> = db.iterator(IteratorMode::Start).map(|item| item.expect("sound")).collect();
    assert_eq!(all, [(b"their key"[..].into(), b"their value"[..].into())]);
}

/// The process ended while the store was made: before its family was, or before its state was.
#[test]
fn a_store_that_was_never_finished_is_made_anew() {
    for families in [&["default"][..], &["default", state::FAMILY]] {
        let folder = rocks_of_somebody_else(families, false);
        let store = open(folder.path());
        assert_eq!(write(&store, vec![put(b"key", b"value")]), Ok(Written::All));
        drop(store);
        assert!(value(&open(folder.path()), b"key").is_some());
    }
    let folder = tempdir().expect("a folder");
    for name in ["LOCK", "LOG", "LOG.old.1700000000000000", "IDENTITY", "MANIFEST-000001", "000001.dbtmp"] {
        fs::write(folder.path().join(name), "").expect("disk");
    }
    drop(open(folder.path()));
}

/// Its items were all in the log, which RocksDB removes when it makes a new database there.
#[test]
fn a_store_that_lost_a_file_is_not_taken_for_an_unfinished_one() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    assert_eq!(write(&store, vec![put(b"key", b"value")]), Ok(Written::All));
    drop(store);
    let current = fs::read(folder.path().join("CURRENT")).expect("disk");
    fs::remove_file(folder.path().join("CURRENT")).expect("disk");
    refused(folder.path());
    fs::write(folder.path().join("CURRENT"), current).expect("disk");
    assert!(value(&open(folder.path()), b"key").is_some(), "nothing was changed");
}

/// What another state makes of opening a store, which goes on with the one before.
fn with_state(bytes: &[u8]) -> OpenError {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    assert_eq!(write(&store, vec![put(b"key", b"value")]), Ok(Written::All));
    drop(store);
    let set = |bytes: &[u8]| {
        let db = DB::open_cf(&Options::default(), folder.path(), ["default", state::FAMILY]).expect("sound");
        db.put_cf(db.cf_handle(state::FAMILY).expect("there"), state::KEY, bytes).expect("disk");
    };
    set(bytes);
    let (error, _) = refused(folder.path());
    set(&state::encode(&StoreState::default()));
    assert!(value(&open(folder.path()), b"key").is_some());
    error
}

#[test]
fn a_store_of_another_format_is_left_to_its_version() {
    let mut bytes = state::encode(&StoreState::default());
    bytes[0] = 2;
    let error = with_state(&bytes);
    assert!(matches!(error, OpenError::OtherFormat(2)), "{error:?}");
    assert_eq!(error.to_string(), "is of format 2, and this guira reads 1: use the version that wrote it");
}

#[test]
fn a_damaged_state_is_told() {
    for bytes in [&b""[..], b"\x01\0\0", b"\x01\0\0\0no state"] {
        let error = with_state(bytes);
        assert!(matches!(error, OpenError::Damaged(_)), "{error:?}");
        assert_eq!(error.to_string(), "is damaged (its state): put a backup in its place");
    }
}

#[test]
fn damage_in_a_file_is_told_and_what_is_sound_is_served() {
    let count = 2_000;
    let folder = folder_with_items(count);
    let [file] = &files(folder.path(), "", ".sst")[..] else { panic!("not one file") };
    let mut bytes = fs::read(file).expect("disk");
    let middle = bytes.len() / 2;
    bytes[middle..][..10_000].fill(0x55);
    fs::write(file, bytes).expect("disk");
    let store = open(folder.path());
    let mut damaged = 0;
    for number in 0..count {
        match get(&store, &number.to_be_bytes()) {
            Ok(found) => assert!(found.is_some_and(|found| *found.value == noise(number, 500)), "{number}"),
            Err(error) => {
                assert!(error.kind == StoreErrorKind::Damaged && !error.told.contains('\n'), "{error:?}");
                damaged += 1;
            }
        }
    }
    assert!((10..100).contains(&damaged), "{damaged}");
    let scanned = keys(&store, Scan::ALL).map_err(|error| error.kind);
    assert_eq!(scanned, Err(StoreErrorKind::Damaged));
    assert_eq!(store.stats().failures, damaged + 1);
}

/// Any bit of it.
#[test]
fn damage_anywhere_in_a_file_never_shows_a_wrong_value() {
    let count = 60;
    let folder = folder_with_items(count);
    let [file] = &files(folder.path(), "", ".sst")[..] else { panic!("not one file") };
    let sound = fs::read(file).expect("disk");
    let mut told = 0;
    let rounds = 60;
    for round in 0..rounds {
        let mut bytes = sound.clone();
        bytes[sound.len() * round / rounds + round] ^= 1 << (round % 8);
        fs::write(file, bytes).expect("disk");
        // What was read of it is not to be found under its number.
        let Ok(store) = try_open(folder.path()) else {
            told += 1;
            continue;
        };
        let found = (0..count).map(|number| get(&store, &number.to_be_bytes()).map(|found| (number, found)));
        let mut is_told = false;
        for found in found {
            match found {
                Ok((number, found)) => {
                    assert!(found.is_some_and(|found| *found.value == noise(number, 500)), "{number} in round {round}");
                }
                Err(error) => {
                    assert_eq!(error.kind, StoreErrorKind::Damaged, "{error:?}");
                    is_told = true;
                }
            }
        }
        told += u32::from(is_told);
    }
    assert!(told > 50, "{told}");
}

#[test]
fn a_file_that_is_cut_short_or_gone_is_told() {
    let folder = folder_with_items(1_000);
    let [file] = &files(folder.path(), "", ".sst")[..] else { panic!("not one file") };
    let sound = fs::read(file).expect("disk");
    for len in [0, 1, sound.len() / 2, sound.len() - 1] {
        fs::write(file, &sound[..len]).expect("disk");
        let (error, line) = refused(folder.path());
        assert!(matches!(error, OpenError::Damaged(_)), "{len} bytes: {error:?}");
        assert!(line.ends_with("put a backup in its place"), "{line}");
    }
    fs::remove_file(file).expect("disk");
    refused(folder.path());
    fs::write(file, sound).expect("disk");
    assert_eq!(keys(&open(folder.path()), Scan::ALL).map(|all| all.len()), Ok(1_000), "nothing was changed");
}

#[test]
fn a_damaged_manifest_is_told() {
    let folder = folder_with_items(100);
    let manifest = files(folder.path(), "MANIFEST-", "").pop().expect("there");
    let sound = fs::read(&manifest).expect("disk");
    let overwritten = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let damaged = [overwritten(2), overwritten(sound.len() / 2), overwritten(20), vec![], vec![0; 100]];
    for (number, bytes) in damaged.iter().enumerate() {
        fs::write(&manifest, bytes).expect("disk");
        let (error, line) = refused(folder.path());
        assert!(matches!(error, OpenError::Damaged(_)), "{number}: {error:?} {line}");
    }
    fs::remove_file(&manifest).expect("disk");
    let (error, line) = refused(folder.path());
    assert!(matches!(error, OpenError::Rocks(_) | OpenError::Damaged(_)), "{error:?} {line}");
    fs::write(&manifest, &sound).expect("disk");
    assert_eq!(keys(&open(folder.path()), Scan::ALL).map(|all| all.len()), Ok(100), "nothing was changed");
}

/// The last record was on its way to the disk when the power went.
#[test]
fn a_torn_log_loses_its_last_record_only() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    for number in 0..50u32 {
        assert_eq!(write(&store, vec![put(&number.to_be_bytes(), &noise(number, 200))]), Ok(Written::All));
    }
    for cut in [0, 1, 7, 100, 220] {
        let copy = copied(folder.path());
        let log = files(copy.path(), "", ".log").pop().expect("there");
        let bytes = fs::read(&log).expect("disk");
        fs::write(&log, &bytes[..bytes.len() - cut]).expect("disk");
        let left = 50 - u32::from(cut > 0);
        let reopened = open(copy.path());
        assert_eq!(reopened.read_only(), None);
        assert_eq!(keys(&reopened, Scan::ALL).map(|all| all.len()), Ok(left as usize), "{cut} bytes");
        for number in 0..left {
            assert_eq!(value(&reopened, &number.to_be_bytes()), Some(noise(number, 200)));
        }
        assert_eq!(write(&reopened, vec![put(b"goes on", b"value")]), Ok(Written::All));
        drop(reopened);
        assert_eq!(value(&open(copy.path()), b"goes on").as_deref(), Some(&b"value"[..]));
    }
}

/// RocksDB reads for ever in a manifest with such a record, too, before it says anything. What comes behind it may be what was stored
/// last, so nobody cuts it off.
#[test]
fn a_manifest_that_rocksdb_would_not_come_past_is_told() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    assert_eq!(write(&store, vec![put(b"key", b"value")]), Ok(Written::All));
    drop(store);
    let manifest = files(folder.path(), "MANIFEST-", "").pop().expect("there");
    let bytes = fs::read(&manifest).expect("disk");
    fs::write(&manifest, [&bytes[..], &[9; 6], &[5; 300]].concat()).expect("disk");
    let is_told = |error: OpenError| {
        let wanted = format!("byte {}", bytes.len());
        assert!(matches!(&error, OpenError::Damaged(told) if told.contains(&wanted)), "{error}");
    };
    is_told(RocksStore::open(folder.path(), &options(Durability::Os).0).expect_err("it is damaged"));
    is_told(StoppedStore::open(folder.path(), Arc::new(|| 0)).expect_err("it is damaged"));
    fs::write(&manifest, &bytes).expect("disk");
    assert_eq!(value(&open(folder.path()), b"key").as_deref(), Some(&b"value"[..]));
}

/// RocksDB reads for ever in a log whose next record is of a type that only logs have that were used before: after a power cut, when its
/// end has in it what had been on the disk before, and when one bit of a type has rotted. A server with such a store never served.
#[test]
fn what_rocksdb_would_not_come_past_in_a_log_is_put_right_and_costs_nothing_that_is_sound() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    for number in 0..50u32 {
        assert_eq!(write(&store, vec![put(&number.to_be_bytes(), &noise(number, 200))]), Ok(Written::All));
    }
    let ends_after = |left: usize, change: &dyn Fn(&mut Vec<u8>)| {
        let copy = copied(folder.path());
        let log = files(copy.path(), "", ".log").pop().expect("there");
        let mut bytes = fs::read(&log).expect("disk");
        change(&mut bytes);
        fs::write(&log, bytes).expect("disk");
        let refused = StoppedStore::open(copy.path(), Arc::new(|| 0)).expect_err("it may not be changed");
        assert!(matches!(refused, OpenError::Torn(_)), "{refused}");
        let reopened = open(copy.path());
        assert_eq!(keys(&reopened, Scan::ALL).map(|all| all.len()), Ok(left));
        assert_eq!(write(&reopened, vec![put(b"goes on", b"value")]), Ok(Written::All));
        drop(reopened);
        assert_eq!(keys(&open(copy.path()), Scan::ALL).map(|all| all.len()), Ok(left + 1));
    };
    for kind in [5, 6, 7, 8, 11, 131] {
        ends_after(50, &|bytes| bytes.extend([noise(0, 6), vec![kind], noise(1, 300)].concat()));
    }
    // A sound record of whose type a bit has rotted.
    ends_after(50, &|bytes| {
        let len_at = |at: usize| usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
        let next = |at: &usize| Some(at + 7 + len_at(*at)).filter(|next| *next < bytes.len());
        let last = std::iter::successors(Some(0), next).last().expect("a record");
        bytes[last + 6] ^= 4;
    });
}

/// A batch is in one piece of the log.
#[test]
fn a_torn_batch_is_gone_as_a_whole() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    assert_eq!(write(&store, vec![put(b"before", b"value")]), Ok(Written::All));
    let state = StoreState { generation: Generation(1), ..StoreState::default() };
    let batch = (0..1_000u32).map(|number| put(&number.to_be_bytes(), &noise(number, 100)));
    assert_eq!(write(&store, [Write::State(state)].into_iter().chain(batch).collect()), Ok(Written::All));
    for cut in [1, 50_000] {
        let copy = copied(folder.path());
        let log = files(copy.path(), "", ".log").pop().expect("there");
        let bytes = fs::read(&log).expect("disk");
        fs::write(&log, &bytes[..bytes.len() - cut]).expect("disk");
        let reopened = open(copy.path());
        assert_eq!(keys(&reopened, Scan::ALL), Ok(vec![b"before".to_vec()]));
        assert_eq!(reopened.state(), StoreState::default());
    }
}

/// What was acknowledged is there though the process was killed, also what is in files by now.
#[test]
fn what_was_written_is_there_after_a_kill() {
    let folder = tempdir().expect("a folder");
    let store = open(folder.path());
    for number in 0..200u32 {
        assert_eq!(write(&store, vec![put(&number.to_be_bytes(), &noise(number, 200))]), Ok(Written::All));
        if number % 50 == 20 {
            store.inside.db.flush().expect("disk");
        }
    }
    let state = StoreState { generation: Generation(0), flush_at_unix_s: 7, versions_reserved: 8 };
    assert_eq!(write(&store, vec![Write::State(state)]), Ok(Written::All));
    let copy = copied(folder.path());
    let reopened = open(copy.path());
    assert_eq!(reopened.state(), state);
    assert_eq!(keys(&reopened, Scan::ALL).map(|all| all.len()), Ok(200));
    assert!((0..200u32).all(|number| value(&reopened, &number.to_be_bytes()) == Some(noise(number, 200))));
}

/// A file system of its own, in memory; gone when it is dropped.
struct Mount(TempDir);

impl Mount {
    /// Only root can.
    fn new(size: &str) -> io::Result<Self> {
        let folder = tempdir().expect("a folder");
        mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "guira-test"], folder.path())?;
        Ok(Self(folder))
    }

    /// For a test that needs it: where there is none it says that it has tested nothing.
    fn needed(size: &str) -> Option<Self> {
        Self::new(size).map_err(|error| println!("not tested: nothing can be mounted ({error})")).ok()
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

fn mount(arguments: &[&str], path: &Path) -> io::Result<()> {
    let output = Command::new("mount").args(arguments).arg(path).output()?;
    let told = || io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    if output.status.success() { Ok(()) } else { Err(told()) }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Writes until that fails; returns how many writes were acknowledged.
fn fill_the_disk(store: &RocksStore, value_len: usize) -> u32 {
    for number in 0..10_000u32 {
        match write(store, vec![put(&number.to_be_bytes(), &noise(number, value_len))]) {
            Ok(written) => assert_eq!(written, Written::All),
            Err(error) => {
                // Nobody knows how much of it is there.
                assert!(error.unknown && error.kind == StoreErrorKind::ReadOnly, "{error:?}");
                return number;
            }
        }
    }
    panic!("the disk is never full");
}

/// What was acknowledged is there; of what failed all or nothing.
fn is_there(store: &RocksStore, count: u32, value_len: usize) {
    for number in 0..count {
        assert!(value(store, &number.to_be_bytes()) == Some(noise(number, value_len)), "{number} of {count}");
    }
    let next = value(store, &count.to_be_bytes());
    assert!(next.is_none_or(|next| next == noise(count, value_len)));
}

/// Tests nothing where nothing can be mounted, and says so.
#[test]
fn on_a_full_disk_reads_go_on_and_nothing_acknowledged_is_lost() {
    for (durability, value_len) in [(Durability::Os, 60_000), (Durability::Always, 5_000)] {
        let Some(disk) = Mount::needed("16m") else { return };
        let folder = disk.path().join("store");
        let options = options(durability).0;
        let store = RocksStore::open(&folder, &options).expect("opens");
        let count = fill_the_disk(&store, value_len);
        assert!(count > 20, "{count}");
        is_there(&store, count, value_len);
        let line = store.read_only().expect("it says why").to_owned();
        assert!(line.contains("No space left on device") && !line.contains('\n'), "{line}");
        let later = write(&store, vec![put(b"later", b"")]);
        assert_eq!(later, Err(StoreError::refused(StoreErrorKind::ReadOnly, &*line)));
        assert_eq!(wait(|done| store.flush(done)).map_err(|error| error.kind), Err(StoreErrorKind::ReadOnly));
        assert_eq!(store.stats().read_only.as_deref(), Some(&*line));
        drop(store);
        // Of what RocksDB had set aside for its log there is nothing left either.
        let ballast = disk.path().join("ballast");
        let filled = io::copy(&mut io::repeat(7), &mut fs::File::create(&ballast).expect("no room needed"));
        assert_eq!(filled.map_err(|error| error.kind()), Err(io::ErrorKind::StorageFull));
        for _ in 0..2 {
            let store = RocksStore::open(&folder, &options).expect("opens");
            is_there(&store, count, value_len);
            let line = store.read_only().expect("there is no room for its log");
            assert!(line.starts_with("the store can only be read (") && line.contains("No space left"), "{line}");
        }
        // There is room again.
        fs::remove_file(ballast).expect("ours");
        mount(&["-o", "remount,size=64m"], disk.path()).expect("root");
        let store = RocksStore::open(&folder, &options).expect("opens");
        is_there(&store, count, value_len);
        assert_eq!(write(&store, vec![put(b"later", b"")]), Ok(Written::All));
    }
}

/// Tests nothing where nothing can be mounted, and says so.
#[test]
fn a_store_is_not_begun_on_a_full_disk() {
    // Fewer pages than there are files that a store needs: how long those are that it does not need changes from time to time.
    let Some(disk) = Mount::needed("16k") else { return };
    let (error, _) = refused(&disk.path().join("store"));
    assert!(matches!(error, OpenError::Rocks(_)), "{error:?}");
}

/// A file system that is mounted read-only; where nothing can be mounted a folder that one may only read.
struct Unwritable {
    mount: Option<Mount>,
    folder: TempDir,
}

impl Unwritable {
    /// With what `fill` puts into it before.
    fn new(fill: impl FnOnce(&Path)) -> Self {
        let this = Self { mount: Mount::new("64m").ok(), folder: tempdir().expect("a folder") };
        fill(this.path());
        match &this.mount {
            Some(mounted) => mount(&["-o", "remount,ro"], mounted.path()).expect("root"),
            None => this.allow(0o555),
        }
        this
    }

    fn path(&self) -> &Path {
        self.mount.as_ref().map_or(self.folder.path(), Mount::path)
    }

    fn allow(&self, mode: u32) {
        fs::set_permissions(self.folder.path(), fs::Permissions::from_mode(mode)).expect("ours");
    }
}

impl Drop for Unwritable {
    fn drop(&mut self) {
        self.allow(0o755);
    }
}

#[test]
fn a_store_in_a_read_only_folder_serves_reads_and_refuses_writes() {
    let state = StoreState { generation: Generation(0), flush_at_unix_s: 2, versions_reserved: 3 };
    let folder = Unwritable::new(|path| {
        let store = open(path);
        assert_eq!(write(&store, vec![put(b"in a file", b"value"), Write::State(state)]), Ok(Written::All));
        store.merge();
        assert_eq!(write(&store, vec![put(b"in the log", b"value")]), Ok(Written::All));
    });
    let before = contents(folder.path());
    let store = open(folder.path());
    let line = store.read_only().expect("it says why").to_owned();
    assert!(line.starts_with("the store can only be read (") && !line.contains('\n'), "{line}");
    assert_eq!(store.state(), state);
    for name in [&b"in a file"[..], b"in the log"] {
        assert_eq!(value(&store, name).as_deref(), Some(&b"value"[..]), "{name:?}");
    }
    assert_eq!(keys(&store, Scan::ALL).map(|all| all.len()), Ok(2));
    let put_absent = Write::Put { key: (*b"key").into(), record: record(b""), condition: Condition::Absent };
    for batch in [vec![put(b"key", b"")], vec![put_absent], vec![Write::State(state)]] {
        assert_eq!(write(&store, batch), Err(StoreError::refused(StoreErrorKind::ReadOnly, &*line)));
    }
    assert_eq!(wait(|done| store.flush(done)).map_err(|error| error.kind), Err(StoreErrorKind::ReadOnly));
    assert_eq!(store.shut(), Ok(()));
    drop(store);
    assert!(contents(folder.path()) == before);
}

/// RocksDB would make one without the log, say that all is well, and not open it.
#[test]
fn there_is_no_copy_of_a_store_that_can_only_be_read() {
    let folder = Unwritable::new(|path| {
        assert_eq!(write(&open(path), vec![put(b"in the log", b"value")]), Ok(Written::All));
    });
    let elsewhere = tempdir().expect("a folder");
    let copy = elsewhere.path().join("copy");
    let failed = wait(|done| open(folder.path()).snapshot(copy.clone(), done)).expect_err("it would not be whole");
    assert_eq!((failed.kind, failed.unknown), (StoreErrorKind::ReadOnly, false));
    assert!(failed.told.starts_with("no copy in /") && !failed.told.contains('\n'), "{failed}");
    assert!(!copy.exists());
}

#[test]
fn a_store_is_not_begun_in_a_read_only_folder() {
    let folder = Unwritable::new(|_| ());
    let (error, line) = refused(folder.path());
    assert!(matches!(error, OpenError::Rocks(_)), "{error:?}");
    assert!(line.starts_with("cannot be opened ("), "{line}");
    let (error, _) = refused(&folder.path().join("below"));
    assert!(matches!(error, OpenError::Folder(_)), "{error:?}");
}
