//! A file system for RocksDB whose reads do not wait for a device where the reader has no time.
//!
//! RocksDB can be asked for what it has in memory itself, its block cache. What the operating system has in memory of its files, which
//! may be far more, it reads with a system call that nobody knows beforehand whether it will take microseconds or wait for a device. In
//! the [`environment`] of this crate a read that has an `io_timeout` never waits: it is a `preadv2` with `RWF_NOWAIT`, and fails
//! with [`rocksdb::ErrorKind::TimedOut`] if the system has not all of what is wanted. So a thread that must not wait can still
//! read everything that is in memory, whoever keeps it there.
//!
//! What fails for not being in memory has at least begun to be read (since Linux 5.9): whoever asks again, and waits, waits less. It is the
//! caller's business not to have more begun than a device takes without making callers wait. A file that is not open is not opened by such a
//! read, which may have to wait for another thread that opens it: whoever must not wait keeps all files open. More than 64 KiB in one
//! piece fails, too: that takes as long to copy and to check as a device takes. On a file system that has no such reads
//! ([`has_reads_that_do_not_wait`]) all of them fail.

use std::{fs::File, io, path::Path};

use rocksdb::Env;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// What makes a read one that does not wait, for [`rocksdb::ReadOptions::set_io_timeout`]; any other timeout does, too, and so does a deadline.
pub const NO_WAIT_US: u64 = 1;

unsafe extern "C" {
    fn guira_nowait_env() -> *mut librocksdb_sys::rocksdb_env_t;
}

/// A new environment, which is the default one but for the reads that do not wait. It takes a second descriptor for each file that is
/// open for random reads.
///
/// # Panics
/// There is no memory for it.
pub fn environment() -> Env {
    // SAFETY: the function takes nothing, does not throw, and returns null or what `rocksdb_env_destroy` frees.
    let env = unsafe { guira_nowait_env() };
    assert!(!env.is_null(), "no memory for RocksDB's environment");
    // SAFETY: it is a valid environment, made here and known to nobody else: whoever drops the last `Env` of it destroys it once. Its
    // file system is free of data that threads would share, but for files' descriptors, which are constant.
    unsafe { Env::from_raw(env) }
}

/// Whether the file system that a file is on has reads that do not wait.
///
/// # Errors
/// The file cannot be opened.
pub fn has_reads_that_do_not_wait(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let mut byte = [0];
    let read = preadv2(&file, &mut [io::IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT);
    // Whatever else it says, a kernel or a sandbox that does not know the call included, means that there are none.
    Ok(matches!(read, Ok(_) | Err(Errno::AGAIN)))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rocksdb::{BlockBasedOptions, DB, DBCompressionType, ErrorKind, Options, ReadOptions};
    use rustix::fs::{Advice, fadvise};

    use super::*;

    const KEYS: u32 = 1_000;

    fn value(number: u32) -> Vec<u8> {
        number.to_le_bytes().repeat(1_000)
    }

    /// A database that keeps no blocks in memory itself, and its files.
    fn filled(folder: &Path) -> (DB, Vec<PathBuf>) {
        let mut blocks = BlockBasedOptions::default();
        blocks.disable_cache();
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_env(&environment());
        // So that values lie where their numbers say.
        options.set_compression_type(DBCompressionType::None);
        options.set_block_based_table_factory(&blocks);
        let db = DB::open(&options, folder).expect("opens");
        (0..KEYS).for_each(|number| db.put(number.to_be_bytes(), value(number)).expect("disk"));
        db.flush().expect("disk");
        let entries = std::fs::read_dir(folder).expect("disk").map(|entry| entry.expect("disk").path());
        let files = entries.filter(|path| path.extension().is_some_and(|kind| kind == "sst")).collect();
        (db, files)
    }

    fn no_time() -> ReadOptions {
        let mut options = ReadOptions::default();
        options.set_io_timeout(NO_WAIT_US);
        options
    }

    /// Times that the system is asked to forget.
    const FORGOTTEN_MAX: u32 = 20;

    /// Has the system forget files; says whether it did.
    fn forget(files: &[PathBuf]) -> bool {
        let mut all_are = true;
        for path in files {
            let file = File::open(path).expect("there");
            file.sync_all().expect("disk");
            fadvise(&file, 0, None, Advice::DontNeed).expect("disk");
            // The look itself has one page read, and no more.
            fadvise(&file, 0, None, Advice::Random).expect("disk");
            let mut byte = [0];
            let first = preadv2(&file, &mut [io::IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT);
            // Where there are no such reads nothing is ever found without waiting.
            all_are &= first.is_err();
        }
        all_are
    }

    #[test]
    fn who_has_no_time_reads_what_the_system_has() {
        let folder = tempfile::tempdir().expect("a folder");
        let (db, files) = filled(folder.path());
        let has_them = has_reads_that_do_not_wait(&files[0]).expect("readable");
        for number in 0..KEYS {
            // Now the system has it.
            assert!(db.get(number.to_be_bytes()) == Ok(Some(value(number))), "{number}");
            match db.get_opt(number.to_be_bytes(), &no_time()) {
                Ok(found) => assert!(has_them && found == Some(value(number)), "{number}"),
                Err(error) => assert!(!has_them && error.kind() == ErrorKind::TimedOut, "{error}"),
            }
        }
        let keys: Vec<_> = (0..KEYS).map(u32::to_be_bytes).collect();
        let many = db.multi_get_opt(&keys, &no_time());
        assert!(many.iter().all(|found| found.is_ok() == has_them));
    }

    #[test]
    fn who_has_no_time_does_not_wait_for_what_the_system_has_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let (db, files) = filled(folder.path());
        for number in (0..KEYS).step_by(50) {
            let mut was_forgotten = false;
            // The system forgets what it likes to: a page that is in use elsewhere it keeps, and forgets it another time.
            let has_timed_out = (0..FORGOTTEN_MAX).any(|_| {
                was_forgotten |= forget(&files);
                let found = db.get_opt(number.to_be_bytes(), &no_time());
                found.is_err_and(|error| error.kind() == ErrorKind::TimedOut)
            });
            // Perhaps it lies beside the one byte that was looked at.
            assert!(has_timed_out || !was_forgotten || number < 50, "{number} was read");
            assert!(db.get(number.to_be_bytes()) == Ok(Some(value(number))), "who waits has {number}");
        }
    }

    #[test]
    fn who_has_no_time_is_not_given_what_takes_long() {
        let folder = tempfile::tempdir().expect("a folder");
        let (db, _) = filled(folder.path());
        for (len, key) in [(60 << 10, b"some"), (70 << 10, b"much")] {
            db.put(key, vec![b'x'; len]).expect("disk");
        }
        db.flush().expect("disk");
        for (key, len) in [(b"some", 60 << 10), (b"much", 70 << 10)] {
            assert_eq!(db.get(key).map(|found| found.map(|value| value.len())), Ok(Some(len)));
        }
        let now = |key: &[u8]| db.get_opt(key, &no_time()).map(|found| found.map(|value| value.len()));
        assert_eq!(now(b"much").map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
        if has_reads_that_do_not_wait(&folder.path().join("CURRENT")).expect("there") {
            assert_eq!(now(b"some"), Ok(Some(60 << 10)));
        }
    }

    #[test]
    fn a_file_that_is_not_open_is_not_opened_for_who_has_no_time() {
        const FILES: u32 = 40;
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_disable_auto_compactions(true);
        options.set_env(&environment());
        // The least there is: ten are open at a time.
        options.set_max_open_files(20);
        options.set_table_cache_num_shard_bits(0);
        let db = DB::open(&options, folder.path()).expect("opens");
        for number in 0..FILES {
            db.put(number.to_be_bytes(), value(number)).expect("disk");
            db.flush().expect("disk");
        }
        let mut not_open = 0;
        for number in 0..FILES {
            if let Err(error) = db.get_opt(number.to_be_bytes(), &no_time()) {
                assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
                not_open += 1;
            }
            assert!(db.get(number.to_be_bytes()) == Ok(Some(value(number))), "{number}");
        }
        assert!(not_open >= FILES / 2, "{not_open}");
    }
}
