//! Logs of RocksDB whose ends were not written when the power went, and have in them what had been on the disk before.
//!
//! ```text
//! block of 32 KiB: records, none of which goes beyond it    record: checksum u32 | length u16 | type u8 | bytes
//! ```
//! RocksDB (11.8) reads one kind of such an end for ever: a record of a type that only logs have that were used before, in one
//! that was not. It neither goes past it nor says so. Here it is found, and cut off with what comes behind it: recovery would end
//! there in any case.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Bytes of a block.
const BLOCK_LEN: usize = 32 << 10;

/// Bytes of a record before its own.
const HEAD_LEN: usize = 7;

/// Types of records in logs that were used before. Ours never are.
const RECYCLED: [u8; 6] = [5, 6, 7, 8, 11, 131];

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
        if log.extension().is_some_and(|extension| extension == "log")
            && let Some(at) = find_in(File::open(&log)?)?
        {
            found.push(Impassable { log, at });
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

/// Cuts it off.
pub(super) fn cut_off(Impassable { log, at }: &Impassable) -> io::Result<()> {
    let log = OpenOptions::new().write(true).open(log)?;
    log.set_len(*at)?;
    log.sync_all()
}

fn find_in(log: impl Read) -> io::Result<Option<u64>> {
    let mut log = io::BufReader::with_capacity(BLOCK_LEN, log);
    let mut block = Vec::with_capacity(BLOCK_LEN);
    let mut before = 0;
    loop {
        block.clear();
        log.by_ref().take(BLOCK_LEN as u64).read_to_end(&mut block)?;
        if let Some(at) = find_in_block(&block) {
            return Ok(Some(before + at as u64));
        }
        before += block.len() as u64;
        if block.len() < BLOCK_LEN {
            return Ok(None);
        }
    }
}

/// Looks at all records that RocksDB may look at, and perhaps more: checksums are not compared.
fn find_in_block(block: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some([_, _, _, _, low, high, kind]) = block[at..].first_chunk::<HEAD_LEN>() {
        if RECYCLED.contains(kind) {
            return Some(at);
        }
        let len = usize::from(u16::from_le_bytes([*low, *high]));
        if (*kind == 0 && len == 0) || at + HEAD_LEN + len > block.len() {
            // What comes behind it in this block is not looked at.
            return None;
        }
        at += HEAD_LEN + len;
    }
    None
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
        for kind in RECYCLED {
            assert_eq!(found(&[record(1, 100), record(kind, 5), record(kind, 5)]), Some(107));
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
        assert_eq!(found(&[long]), Some(0));
    }
}
