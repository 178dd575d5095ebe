//! The folder for a run's data: gone at the end of the run, and when the run is interrupted, as the servers are that it has started.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use rustix::fs::statvfs;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use tempfile::TempDir;

use crate::error::BenchError;

/// Tries to remove a folder in which RocksDB's threads are still making files.
const REMOVALS_MAX: usize = 20;

/// File systems by the number that the kernel gives them.
const FILE_SYSTEMS: [(u64, &str); 5] = [
    (0xef53, "ext4"),
    (0x0102_1994, "tmpfs"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x794c_7630, "overlayfs"),
];

/// A folder for data.
pub(crate) struct Workplace {
    folder: TempDir,
    handle: Handle,
    watcher: Option<JoinHandle<()>>,
}

impl Workplace {
    /// Makes one whose name begins so inside `parent`, or among the temporary files.
    pub fn new(parent: Option<&Path>, prefix: &str) -> Result<Self, BenchError> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let refused = |source| BenchError::Output { path: parent.clone(), source };
        std::fs::create_dir_all(&parent).map_err(refused)?;
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(&parent).map_err(refused)?;
        let failed = |source| BenchError::System { doing: "watching for signals", source };
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
        let (handle, path) = (signals.handle(), folder.path().to_path_buf());
        let watch = move || {
            if let Some(signal) = signals.forever().next() {
                // They would go on, and write where nothing is any more.
                for child in children() {
                    let _ = kill_process(child, Signal::KILL);
                }
                let _ = (0..REMOVALS_MAX).any(|_| std::fs::remove_dir_all(&path).is_ok() || !path.exists());
                // As the shell tells it of who dies of a signal.
                std::process::exit(128 + signal);
            }
        };
        let watcher = std::thread::Builder::new().name("interrupts".into()).spawn(watch).map_err(failed)?;
        Ok(Self { folder, handle, watcher: Some(watcher) })
    }

    /// A name for a folder that is not there yet.
    pub fn place(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What it lies on.
    pub fn file_system(&self) -> String {
        let Ok(told) = rustix::fs::statfs(self.folder.path()) else { return "an unknown file system".into() };
        let kind = u64::try_from(told.f_type).unwrap_or(0);
        let known = FILE_SYSTEMS.iter().find(|(number, _)| *number == kind);
        known.map_or_else(|| format!("file system {kind:#x}"), |(_, name)| (*name).to_string())
    }

    /// Refuses a disk that has less room than `bytes`.
    pub fn expect_room(&self, bytes: u64, what: &str) -> Result<(), BenchError> {
        let free = statvfs(self.folder.path()).map_or(u64::MAX, |told| told.f_bavail.saturating_mul(told.f_frsize));
        if free >= bytes {
            return Ok(());
        }
        let (needed_gb, free_gb) = (bytes as f64 / 1e9, free as f64 / 1e9);
        Err(BenchError::Setting(format!(
            "{what} needs {needed_gb:.1} GB of disk and there are {free_gb:.1}: choose another --dir, or less"
        )))
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(watcher) = self.watcher.take() {
            // It has nothing to panic about.
            let _ = watcher.join();
        }
    }
}

/// The processes that this one has started.
fn children() -> impl Iterator<Item = Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let numbers: Vec<i32> = lists.flat_map(|list| numbers_in(&list)).collect();
    numbers.into_iter().filter_map(Pid::from_raw)
}

fn numbers_in(list: &str) -> Vec<i32> {
    list.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Bytes of the files in `folder` whose names end in `ending`.
pub(crate) fn bytes_of(folder: &Path, ending: &str) -> u64 {
    files(folder).filter(|path| path.to_string_lossy().ends_with(ending)).map(|path| len_bytes(&path)).sum()
}

/// Has the system forget what it keeps of the files in `folder`, so that it reads from the disk.
pub(crate) fn drop_page_cache(folder: &Path) -> Result<(), BenchError> {
    let failed = |source| BenchError::System { doing: "having the system forget pages", source };
    for path in files(folder) {
        // What is merged away meanwhile needs no forgetting.
        let Ok(file) = std::fs::File::open(&path) else { continue };
        file.sync_all().map_err(failed)?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).map_err(|error| failed(error.into()))?;
    }
    Ok(())
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_file())
}

fn len_bytes(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_started_is_found() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("a process");
        assert!(children().any(|pid| pid == Pid::from_child(&child)));
        drop(child.stdin.take());
        child.wait().expect("it ends with its input");
    }

    #[test]
    fn it_is_gone_at_the_end_and_tells_of_too_small_a_disk() {
        let parent = tempfile::tempdir().expect("a folder");
        let workplace = Workplace::new(Some(&parent.path().join("new")), "data-").expect("made");
        let place = workplace.place("data");
        std::fs::create_dir(&place).expect("made");
        std::fs::write(place.join("1.log"), "four").expect("written");
        std::fs::write(place.join("2.sst"), "x").expect("written");
        assert_eq!((bytes_of(&place, ".log"), bytes_of(&place, "")), (4, 5));
        drop_page_cache(&place).expect("forgets");
        assert!(!workplace.file_system().is_empty());
        assert!(workplace.expect_room(1, "that").is_ok());
        let line = workplace.expect_room(u64::MAX - 1, "--start-gb").expect_err("too much").to_string();
        assert!(line.contains("--start-gb") && line.contains("--dir"), "{line}");
        drop(workplace);
        assert!(!place.exists());
    }
}
