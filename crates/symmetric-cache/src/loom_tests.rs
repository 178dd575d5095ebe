//! A reader beside the writer, in every order of their accesses that the memory model allows.

use guira_item::{Expiry, Moment};
use loom::thread;

use super::*;

const CONFIG: Config = Config { keys_max: 1, records_len_max: 256, item_len_max: 16, shards_max: 1 };

fn content(value: &[u8]) -> Content<'_> {
    Content { flags: u32::from(value[0]), cas: u64::from(value[0]), expiry: Expiry::NEVER, value }
}

fn at(version: u32) -> At {
    At { version, writer: 1 }
}

/// What a reader is told of a key: its value's bytes, all of which are the same and the same as its flags.
fn read(reader: &Reader, key: &[u8]) -> Option<u8> {
    let mut values = Vec::new();
    let Read::Hit(found) = reader.read(key, 3, &mut values) else { return None };
    let value = &values[found.value];
    assert!(value.iter().all(|byte| u32::from(*byte) == found.flags) && found.cas == u64::from(found.flags));
    assert_eq!(value.len(), 8);
    Some(value[0])
}

fn model(steps: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(steps);
}

#[test]
fn loom_a_reader_sees_one_value_of_a_key() {
    model(|| {
        let (mut writer, reader) = new(&CONFIG);
        writer.serve(b"a", 3, at(1), Some(content(&[1; 8])));
        let thread = thread::spawn(move || read(&reader, b"a"));
        writer.serve(b"a", 3, at(2), Some(content(&[2; 8])));
        assert!(matches!(thread.join().unwrap(), None | Some(1 | 2)));
    });
}

#[test]
fn loom_a_record_that_is_another_keys_is_told_of_neither() {
    model(|| {
        let (mut writer, reader) = new(&CONFIG);
        writer.serve(b"a", 3, at(1), Some(content(&[1; 8])));
        let thread = thread::spawn(move || (read(&reader, b"a"), read(&reader, b"b")));
        // It takes the same units, under the same timestamp.
        writer.remove(b"a");
        writer.serve(b"b", 3, at(1), Some(content(&[2; 8])));
        let (a, b) = thread.join().unwrap();
        assert!(matches!(a, None | Some(1)) && matches!(b, None | Some(2)));
    });
}

/// A key comes to be hot, and is taken out of its shard after that; a reader that has found it cold, and nothing in the shard, must not say so.
#[test]
fn loom_a_key_that_has_left_its_shard_is_not_missing_there() {
    use guira_sync::atomic::{AtomicU64, Ordering};
    model(|| {
        let shard = Arc::new(AtomicU64::new(1));
        let (mut writer, reader) = new(&CONFIG);
        let seen = Arc::clone(&shard);
        let thread = thread::spawn(move || {
            let Read::Cold(absence) = reader.read(b"a", 3, &mut Vec::new()) else { return true };
            // Acquire: as an engine's read of what was written.
            let is_there = seen.load(Ordering::Acquire) == 1;
            !reader.is_still_cold(absence) || is_there
        });
        writer.withhold(b"a", 3);
        shard.store(0, Ordering::Release);
        assert!(thread.join().unwrap(), "nothing, of what was there all the time");
    });
}

/// A node that is home no more, and has forgotten what it was home of.
#[test]
fn loom_what_is_done_after_a_grant_is_over_is_told_under_none() {
    use guira_sync::atomic::{AtomicU64, Ordering};
    model(|| {
        let shard = Arc::new(AtomicU64::new(1));
        let (mut writer, reader) = new(&CONFIG);
        writer.grant(Moment::from_ns(10), 1, |_| true);
        let seen = Arc::clone(&shard);
        let thread = thread::spawn(move || {
            let visit = reader.visit();
            let is_home = reader.is_home_of(0);
            let is_there = seen.load(Ordering::Relaxed) == 1;
            !is_home || is_there || !reader.holds(visit, Moment::from_ns(1))
        });
        writer.close();
        shard.store(0, Ordering::Relaxed);
        writer.grant(Moment::from_ns(10), 1, |_| false);
        assert!(thread.join().unwrap(), "it was told what is nobody's");
    });
}
