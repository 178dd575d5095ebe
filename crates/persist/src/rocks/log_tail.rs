//! Logs of RocksDB with records that it would read for ever.
//!
//! ```text
//! block of 32 KiB: records, none of which goes beyond it    record: checksum u32 | length u16 | type u8 | bytes
//! ```
//! RocksDB (11.8) neither goes past nor tells a record of a type that only logs have that were used before, in one that was not: what had
//! been on the disk before, at an end that was not written when the power went, or a sound record of whose type one bit has rotted.
//! Such a type is put right here, in its one byte: then RocksDB's checksum says whether the record is sound, and all that follows goes
//! by its own rules. Nothing is cut off, and a log that begins as a used one is left alone.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    ops::ControlFlow,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// Bytes of a block.
const BLOCK_LEN: usize = 32 << 10;

/// Bytes of a record before its own.
const HEAD_LEN: usize = 7;

/// Where in these the type is.
const TYPE_AT: usize = 6;

/// Types of records in logs that were used before, which ours never are, each with what it is in one that was not. The last two have
/// no such; whatever stands for them, their checksums are of something else.
const RECYCLED: [(u8, u8); 6] = [(5, 1), (6, 2), (7, 3), (8, 4), (11, 3), (131, 3)];

/// Where a log has a record that RocksDB would not come past.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Impassable {
    pub(super) log: PathBuf,
    /// Bytes before it.
    pub(super) at: u64,
}

/// The first such record of each log in a folder.
pub(super) fn find(folder: &Path) -> io::Result<Vec<Impassable>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let log = entry?.path();
        if log.extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        match File::open(&log) {
            Ok(file) => found.extend(find_in(file)?.map(|at| Impassable { log, at })),
            // A server that has the store does not need it any more.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The first such record of the manifest that `CURRENT` names, if there is one: a log of the same form, which names all files. It is
/// not cut off: what comes behind a rotten bit in it may be what was stored last.
pub(super) fn find_in_manifest(folder: &Path) -> io::Result<Option<Impassable>> {
    let Ok(current) = fs::read_to_string(folder.join("CURRENT")) else { return Ok(None) };
    let name = current.trim_end();
    if !name.starts_with("MANIFEST-") || name.contains('/') {
        return Ok(None);
    }
    let log = folder.join(name);
    match File::open(&log) {
        Ok(file) => Ok(find_in(file)?.map(|at| Impassable { log, at })),
        // RocksDB says so itself.
        Err(_) => Ok(None),
    }
}

/// Puts the types of all such records of its log right.
pub(super) fn put_right(Impassable { log, .. }: &Impassable) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(log)?;
    each_in(&file, |at, plain| {
        file.write_all_at(&[plain], at + TYPE_AT as u64)?;
        Ok(ControlFlow::Continue(()))
    })?;
    file.sync_all()
}

fn find_in(log: impl Read) -> io::Result<Option<u64>> {
    let mut first = None;
    each_in(log, |at, _| {
        first = Some(at);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(first)
}

/// Visits the places of such records, each with the type that it should have.
fn each_in(log: impl Read, mut visit: impl FnMut(u64, u8) -> io::Result<ControlFlow<()>>) -> io::Result<()> {
    let mut log = io::BufReader::with_capacity(BLOCK_LEN, log);
    let mut block = Vec::with_capacity(BLOCK_LEN);
    let (mut before, mut is_first) = (0, true);
    loop {
        block.clear();
        log.by_ref().take(BLOCK_LEN as u64).read_to_end(&mut block)?;
        let mut at = 0;
        while let Some([_, _, _, _, low, high, kind]) = block[at..].first_chunk::<HEAD_LEN>() {
            let plain = RECYCLED.iter().find(|(recycled, _)| recycled == kind).map(|(_, plain)| *plain);
            match plain {
                // The log was used before, and RocksDB knows.
                Some(_) if is_first => return Ok(()),
                Some(plain) if visit(before + at as u64, plain)?.is_break() => return Ok(()),
                _ => is_first = false,
            }
            let len = usize::from(u16::from_le_bytes([*low, *high]));
            if (*kind == 0 && len == 0) || at + HEAD_LEN + len > block.len() {
                // What comes behind it in this block is not looked at.
                break;
            }
            at += HEAD_LEN + len;
        }
        before += block.len() as u64;
        if block.len() < BLOCK_LEN {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, len: usize) -> Vec<u8> {
        let mut bytes = vec![1, 2, 3, 4];
        bytes.extend_from_slice(&u16::try_from(len).expect("short").to_le_bytes());
        bytes.push(kind);
        bytes.resize(HEAD_LEN + len, 5);
        bytes
    }

    fn found(records: &[Vec<u8>]) -> Option<u64> {
        find_in(&records.concat()[..]).expect("memory")
    }

    #[test]
    fn the_first_record_of_a_used_log_is_found() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[record(1, 100), record(1, 5), vec![5; 6]]), None);
        for (kind, _) in RECYCLED {
            assert_eq!(found(&[record(1, 100), record(kind, 5), record(kind, 5)]), Some(107));
            // A used log, as RocksDB knows by its first record.
            assert_eq!(found(&[record(kind, 5), record(1, 100), record(kind, 5)]), None);
        }
        // In a later block; the one before has a few bytes left in which there is no room for one.
        let full = record(2, BLOCK_LEN - HEAD_LEN - 6);
        assert_eq!(found(&[full, vec![5; 6], record(4, 9), record(5, 1)]), Some(BLOCK_LEN as u64 + 16));
    }

    #[test]
    fn behind_what_ends_a_block_for_rocksdb_only_the_next_is_looked_at() {
        let mut zeros = vec![0; BLOCK_LEN - 107];
        zeros[50] = 5;
        let torn = [record(1, 100), zeros].concat();
        assert_eq!(found(&[torn.clone(), record(1, 3)]), None);
        assert_eq!(found(&[torn, record(6, 3)]), Some(BLOCK_LEN as u64));
        let mut long = record(1, BLOCK_LEN);
        long.truncate(2 * HEAD_LEN);
        assert_eq!(found(&[long.clone()]), None);
        long[6] = 7;
        assert_eq!(found(&[record(1, 3), long]), Some(10));
    }

    #[test]
    fn types_are_put_right_and_nothing_else_is_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("1.log");
        let records = |kinds: [u8; 4]| {
            let [first, second, third, fourth] = kinds.map(|kind| record(kind, 30));
            let rest = vec![0; BLOCK_LEN - 3 * 37];
            [first, second, third, rest, fourth, vec![6; 3]].concat()
        };
        fs::write(&log, records([1, 5, 7, 8])).expect("disk");
        let [torn] = &find(folder.path()).expect("disk")[..] else { panic!("one log has some") };
        assert_eq!(torn, &Impassable { log: log.clone(), at: 37 });
        put_right(torn).expect("disk");
        assert!(fs::read(&log).expect("disk") == records([1, 1, 3, 4]));
        assert_eq!(find(folder.path()).expect("disk"), []);
    }
}
