//! The items of an engine in a file, over a restart: saved when nobody uses the engine any more, loaded before anybody does.
//!
//! Always true: the file has its name only when it is whole and on disk; a file that is refused is left as it is; one process at a time
//! has it, by a lock on the file that is still to be written, which ends with the process however that ends.

use std::{
    collections::VecDeque,
    fmt,
    fs::{self, File, Metadata, OpenOptions, Permissions, TryLockError},
    io::{self, BufReader},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use guira_item::{
    Answer, Clock, Engine, Expiry, Get, Hit, ItemInfo, Key, Operation, OrderCursor, PinnedValue, Request, Restore,
    Sink, Standing, Time, VALUE_SLACK_LEN,
};

use rustix::{fs::OFlags, io::Errno, process::geteuid};

use crate::{
    folder,
    format::{FormatError, Head, Item, Reader, Writer},
};

/// Items that are looked at together.
const PLACES: usize = 1_024;

/// Items that an engine is asked for, or given, together.
const BATCH_LEN: usize = 512;

/// Symbolic links that are followed to a file, as many as Linux follows.
const LINKS_MAX: usize = 40;

/// Who may read and write a file with items: its owner.
const MODE: u32 = 0o600;

/// What was saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Saved {
    /// Items.
    pub items: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// What was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loaded {
    /// Items that are there again.
    pub items: u64,
    /// Items that had expired meanwhile.
    pub expired: u64,
    /// Items that a flush would have taken that came due meanwhile.
    pub flushed: u64,
    /// Items that are larger than the engine's largest.
    pub too_large: u64,
    /// Items, those that would have gone first, for which there is no memory now.
    pub no_room: u64,
}

/// Why items were not saved or loaded.
#[derive(Debug)]
pub enum MemoryFileError {
    /// What is in the file, or with it.
    Format(FormatError),
    /// Another process has it.
    InUse,
    /// What has the name of the file that is still to be written is not a file of this user's alone.
    Foreign(PathBuf),
    /// The engine evicts nothing, and has not the memory for all of the file.
    NoRoom,
}

impl fmt::Display for MemoryFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(error) => error.fmt(f),
            Self::InUse => {
                f.write_str("is another server's, which runs or is still saving: wait for it, or choose another file")
            }
            Self::Foreign(next) => {
                write!(
                    f,
                    "is written as {} first, which is there and no file of this user's: remove that",
                    next.display()
                )
            }
            Self::NoRoom => {
                f.write_str("has more items than there is memory for, and -M lets none go: raise -m or leave out -M")
            }
        }
    }
}

impl std::error::Error for MemoryFileError {}

impl From<FormatError> for MemoryFileError {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

impl From<io::Error> for MemoryFileError {
    fn from(error: io::Error) -> Self {
        Self::Format(FormatError::Io(error))
    }
}

/// A file for the items of one process.
#[derive(Debug)]
pub struct MemoryFile {
    path: PathBuf,
    /// What is to become of it, under a name of its own until it is whole.
    next: File,
    next_path: PathBuf,
    is_saved: bool,
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if !self.is_saved {
            // What is there of it is of no use. If it stays, it is taken over by whoever claims it next.
            let _ = fs::remove_file(&self.next_path);
        }
    }
}

impl MemoryFile {
    /// Claims a file, which need not be there yet. If its name is a symbolic link's it is the file that this names.
    ///
    /// # Errors
    /// [`MemoryFileError::InUse`], [`MemoryFileError::Foreign`], or what the system says to a file beside it.
    pub fn claim(path: &Path) -> Result<Self, MemoryFileError> {
        let path = target(path)?;
        let mut next_path = path.as_os_str().to_owned();
        next_path.push(".next");
        let next_path = PathBuf::from(next_path);
        loop {
            // Whoever may write to the folder could have put something there: a link to what it would be written over, or a pipe.
            let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(MODE).custom_flags(flags);
            let is_foreign = || fs::symlink_metadata(&next_path).is_ok_and(|there| !is_own(&there));
            let next = match options.open(&next_path) {
                Err(_) if is_foreign() => return Err(MemoryFileError::Foreign(next_path)),
                next => next?,
            };
            let own = next.metadata()?;
            if !is_own(&own) {
                return Err(MemoryFileError::Foreign(next_path));
            }
            match next.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(MemoryFileError::InUse),
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            // Whoever had it may have given it its final name, or removed it, before it was locked here.
            let is_it = fs::symlink_metadata(&next_path)
                .is_ok_and(|there| (own.dev(), own.ino()) == (there.dev(), there.ino()));
            if is_it {
                next.set_permissions(Permissions::from_mode(MODE))?;
                return Ok(Self { path, next, next_path, is_saved: false });
            }
        }
    }

    /// Loads its items into an engine that nobody uses meanwhile, those first that would be evicted first; `None` if there is no file. A flush that was
    /// still to come when they were saved takes them all if it has come due since, and is due in the engine otherwise.
    ///
    /// # Errors
    /// [`MemoryFileError`]: the file cannot be read, is damaged or of another version; there is no memory for all of it and `evicts`
    /// is false. The engine may have some of the items then, and the file is as it was.
    pub fn load<E: Engine>(
        &self,
        engine: &E,
        clock: &Clock,
        now: Time,
        evicts: bool,
    ) -> Result<Option<Loaded>, MemoryFileError> {
        match fs::metadata(&self.path) {
            // Opening a pipe would wait for somebody to write to it.
            Ok(found) if !found.is_file() => return Err(FormatError::NotOne.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let file = File::open(&self.path)?;
        let mut worker = engine.worker();
        let mut outcome = Outcome::default();
        let reader = Reader::open(BufReader::new(file))?;
        let (head, now_unix_s) = (reader.head(), clock.to_unix_s(now));
        // What is stored under a key that was deleted must not get a version that a client has seen there.
        engine.skip_versions(head.last_version);
        let flush_due = head.flush_unix_s != 0;
        if flush_due && head.flush_unix_s <= now_unix_s {
            return Ok(Some(Loaded { flushed: reader.len(), ..Loaded::default() }));
        }
        let down_s = u32::try_from(now_unix_s.saturating_sub(head.saved_unix_s)).unwrap_or(u32::MAX);
        reader.read::<MemoryFileError>(|items| {
            for batch in items.chunks(BATCH_LEN) {
                let requests: Vec<_> = batch.iter().filter_map(|item| put_back(item, down_s, clock, now)).collect();
                outcome.loaded.expired += (batch.len() - requests.len()) as u64;
                engine.execute(&mut worker, now, &requests, &mut outcome);
            }
            if !evicts && outcome.loaded.no_room > 0 { Err(MemoryFileError::NoRoom) } else { Ok(()) }
        })?;
        if flush_due {
            let left_s = u32::try_from(head.flush_unix_s - now_unix_s).unwrap_or(u32::MAX);
            engine.flush_all(Time(now.0.saturating_add(left_s)), now);
        }
        let mut loaded = outcome.loaded;
        // What had come before made room for what came later.
        let evicted = engine.stats().evictions.min(loaded.items);
        (loaded.items, loaded.no_room) = (loaded.items - evicted, loaded.no_room + evicted);
        Ok(Some(loaded))
    }

    /// Removes what was loaded: as soon as it is served it changes, and the file has what is no longer true.
    ///
    /// # Errors
    /// What the system says.
    pub fn forget(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => folder::sync(folder::parent(&self.path)),
        }
    }

    /// Saves all items of an engine that nobody uses meanwhile.
    ///
    /// # Errors
    /// [`MemoryFileError`] if they cannot be written; nothing has changed under the file's name then.
    pub fn save<E: Engine>(self, engine: &E, clock: &Clock, now: Time) -> Result<Saved, MemoryFileError> {
        let head = Head {
            saved_unix_s: clock.to_unix_s(now),
            last_version: engine.last_version(),
            flush_unix_s: engine.flush_due().map_or(0, |due| clock.to_unix_s(due)),
        };
        self.save_with(&head, |writer| {
            let mut worker = engine.worker();
            let mut cursor = Some(OrderCursor::default());
            while let Some(at) = cursor {
                let mut found = Vec::new();
                let mut note = |item: &ItemInfo<'_>, standing| found.push(Known::of(item, standing));
                cursor = engine.scan_in_order(at, PLACES, now, &mut note);
                for batch in found.chunks(BATCH_LEN) {
                    keep(engine, &mut worker, now, batch, clock, writer)?;
                }
            }
            Ok(())
        })
    }

    /// Saves the items that `write` writes.
    ///
    /// # Errors
    /// What `write` and the system say; nothing has changed under the file's name then.
    pub fn save_with<X: From<io::Error>>(
        mut self,
        head: &Head,
        write: impl FnOnce(&mut Writer<&File>) -> Result<(), X>,
    ) -> Result<Saved, X> {
        // Somebody may have left something there.
        self.next.set_len(0)?;
        let mut writer = Writer::begin(&self.next, head)?;
        write(&mut writer)?;
        let (items, _) = writer.finish()?;
        self.next.sync_all()?;
        let bytes = self.next.metadata()?.len();
        fs::rename(&self.next_path, &self.path)?;
        self.is_saved = true;
        folder::sync(folder::parent(&self.path))?;
        Ok(Saved { items, bytes })
    }
}

/// The file that a path names, which need not be there: what it links to, if it is a symbolic link, so that saving replaces that
/// and not the link.
fn target(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        if !fs::symlink_metadata(&path).is_ok_and(|there| there.is_symlink()) {
            return Ok(path);
        }
        let link = fs::read_link(&path)?;
        path = path.parent().unwrap_or(Path::new("")).join(link);
    }
    Err(Errno::LOOP.into())
}

/// Whether it is a file that this user has, under no other name too.
fn is_own(there: &Metadata) -> bool {
    there.is_file() && there.uid() == geteuid().as_raw() && there.nlink() <= 1
}

/// Has the values of items read and written.
fn keep<E: Engine>(
    engine: &E,
    worker: &mut E::Worker,
    now: Time,
    batch: &[Known],
    clock: &Clock,
    writer: &mut Writer<&File>,
) -> io::Result<()> {
    let operation = Operation::Get(Get { bump: false, ..Get::PLAIN });
    let requests: Vec<Request<'_>> = batch.iter().map(|item| Request { key: key_of(item), operation }).collect();
    let mut sink = Keeper { items: batch.iter().collect(), clock, writer, room: Vec::new(), error: None };
    engine.execute(worker, now, &requests, &mut sink);
    sink.error.map_or(Ok(()), Err)
}

/// What a scan tells of an item.
struct Known {
    key: Vec<u8>,
    flags: u32,
    expiry: Expiry,
    version: u64,
    fetched: bool,
    stale: bool,
    win_sent: bool,
    recent: bool,
    idle_s: u32,
    standing: Standing,
}

impl Known {
    fn of(item: &ItemInfo<'_>, standing: Standing) -> Self {
        Self {
            key: item.key.to_vec(),
            flags: item.flags,
            expiry: item.expiry,
            version: item.cas,
            fetched: item.fetched,
            stale: item.stale,
            win_sent: item.win_sent,
            recent: item.recent,
            idle_s: item.idle_s,
            standing,
        }
    }
}

fn key_of(item: &Known) -> Key<'_> {
    Key::new(&item.key).expect("what an engine has an item under is a key")
}

/// Writes the values that an engine answers to the file.
struct Keeper<'k, W> {
    /// Those that are asked for, the next one first.
    items: VecDeque<&'k Known>,
    clock: &'k Clock,
    writer: &'k mut Writer<W>,
    room: Vec<u8>,
    error: Option<io::Error>,
}

impl<W: io::Write> Keeper<'_, W> {
    fn keep<'p>(&mut self, value_len: usize, pieces: impl Iterator<Item = &'p [u8]>) {
        let known = self.items.pop_front().expect("there are as many answers as requests");
        let expires_unix_s = match known.expiry {
            Expiry::NEVER => 0,
            expiry => self.clock.to_unix_s(Time(expiry.to_raw())),
        };
        let Known { flags, version, idle_s, fetched, stale, win_sent, recent, standing, .. } = *known;
        let (key, spared, value) = (key_of(known), standing.is_spared, &[][..]);
        let item =
            Item { key, flags, expires_unix_s, version, idle_s, fetched, stale, win_sent, recent, spared, value };
        if self.error.is_none() {
            self.error = self.writer.put(standing.rank, &item, value_len, pieces).err();
        }
    }
}

impl<W: io::Write> Sink for Keeper<'_, W> {
    fn reserve(&mut self, _: usize, hit: &Hit) -> &mut [u8] {
        self.room.resize(VALUE_SLACK_LEN + hit.value_len + VALUE_SLACK_LEN, 0);
        &mut self.room
    }

    fn commit(&mut self, _: usize, hit: &Hit) {
        let room = std::mem::take(&mut self.room);
        self.keep(hit.value_len, std::iter::once(&room[VALUE_SLACK_LEN..][..hit.value_len]));
        self.room = room;
    }

    fn pinned(&mut self, _: usize, _: &Hit, value: Box<dyn PinnedValue>) {
        let mut at = 0;
        let pieces = std::iter::from_fn(|| {
            let piece = value.piece(at);
            at += piece.len();
            (!piece.is_empty()).then_some(piece)
        });
        self.keep(value.len(), pieces);
    }

    fn metadata(&mut self, _: usize, _: &Hit) {
        unreachable!("values were asked for");
    }

    fn answer(&mut self, _: usize, _: Answer) {
        // It expired between the scan and the read.
        self.items.pop_front();
    }
}

/// The request that puts an item back which was saved `down_s` seconds ago; `None` if it has expired.
fn put_back<'i>(item: &Item<'i>, down_s: u32, clock: &Clock, now: Time) -> Option<Request<'i>> {
    let expiry = match item.expires_unix_s {
        0 => Expiry::NEVER,
        unix_s => {
            let left_s = unix_s.checked_sub(clock.to_unix_s(now)).filter(|left_s| *left_s > 0)?;
            Expiry::at(Time(u32::try_from(left_s).unwrap_or(u32::MAX).saturating_add(now.0)))
        }
    };
    let Item { key, flags, version, fetched, stale, win_sent, recent, spared, value, .. } = *item;
    let idle_s = item.idle_s.saturating_add(down_s);
    let restore =
        Restore { replaces: false, flags, expiry, version, fetched, stale, win_sent, idle_s, recent, spared, value };
    let operation = Operation::Restore(restore);
    Some(Request { key, operation })
}

/// Counts what becomes of items that are put back.
#[derive(Default)]
struct Outcome {
    loaded: Loaded,
}

impl Sink for Outcome {
    fn reserve(&mut self, _: usize, _: &Hit) -> &mut [u8] {
        unreachable!("nothing is read");
    }

    fn commit(&mut self, _: usize, _: &Hit) {
        unreachable!("nothing is read");
    }

    fn pinned(&mut self, _: usize, _: &Hit, _: Box<dyn PinnedValue>) {
        unreachable!("nothing is read");
    }

    fn metadata(&mut self, _: usize, _: &Hit) {
        unreachable!("nothing is read");
    }

    fn answer(&mut self, _: usize, answer: Answer) {
        match answer {
            Answer::Stored { .. } => self.loaded.items += 1,
            Answer::TooLarge => self.loaded.too_large += 1,
            Answer::OutOfMemory => self.loaded.no_room += 1,
            // A scan may have shown it twice.
            Answer::NotStored => {}
            other => unreachable!("no answer to what is put back: {other:?}"),
        }
    }
}

#[cfg(test)]
#[path = "memory_file_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "order_tests.rs"]
mod order_tests;
