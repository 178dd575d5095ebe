//! A folder on a disk while a process works in it: what is certainly there, and what is not there yet for certain.
//!
//! ```text
//! file     bytes that are on disk | writes and lengths, in order: open, synced (behind one that is not) or abandoned
//! names    (folder, name) -> file | operations on names, in order: open or synced (behind one that is not)
//! ```
//! What a sync promises: all that was done to the file, or to the names in the folder, before the sync began; and the names of what is
//! synced, and of the folders that it is in, as all file systems of Linux with a journal have it (POSIX does not). After a sync
//! that failed nothing promises what it was for, whatever later syncs say: the system has forgotten that it is to be written.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::{OsStr, OsString},
    fmt, io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use crate::{
    choices::{Choices, Lengths},
    journal::{Act, Entry},
    tree::{Node, Tree},
};

/// Something in the journal that cannot have been so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Strange(String);

impl fmt::Display for Strange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Strange {}

/// A file or a folder, whatever its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Inode(usize);

/// The folder that everything is in.
const TOP: Inode = Inode(0);

/// A name in a folder.
type Place = (Inode, OsString);

/// Whether a change is on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It may be.
    Open,
    /// It is.
    Synced,
    /// It may be, and no sync will change that.
    Abandoned,
}

#[derive(Clone, Debug)]
enum Change {
    Write { at: u64, bytes: Arc<[u8]> },
    SetLen(u64),
    AtLeast(u64),
}

#[derive(Clone, Debug)]
struct FileChange {
    /// Where the journal has it.
    end: u64,
    change: Change,
    fate: Fate,
}

#[derive(Clone, Debug, Default)]
struct File {
    is_folder: bool,
    on_disk: Vec<u8>,
    changes: Vec<FileChange>,
    /// As the process sees it.
    len: u64,
}

/// An operation on names. All of it is on disk or nothing.
#[derive(Clone, Debug)]
struct NameChange {
    end: u64,
    /// Whose names.
    inode: Inode,
    moves: Vec<(Place, Option<Inode>)>,
    is_synced: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Disk {
    folder: PathBuf,
    files: Vec<File>,
    names_on_disk: BTreeMap<Place, Inode>,
    name_changes: Vec<NameChange>,
    /// As the process sees them.
    names: BTreeMap<Place, Inode>,
    open: HashMap<i32, Inode>,
    /// Syncs that have begun: of what, and when.
    syncs: HashMap<u64, (Inode, u64)>,
}

impl Disk {
    /// A disk that has `tree`, under the absolute path `folder`.
    pub fn with(folder: &Path, tree: &Tree) -> Self {
        let top = File { is_folder: true, ..File::default() };
        let mut disk = Self {
            folder: folder.to_owned(),
            files: vec![top],
            names_on_disk: BTreeMap::new(),
            name_changes: Vec::new(),
            names: BTreeMap::new(),
            open: HashMap::new(),
            syncs: HashMap::new(),
        };
        // Folders come before what is in them.
        for (path, node) in &tree.0 {
            let place = disk.place(&folder.join(path)).expect("its folder is there");
            let on_disk = if let Node::File(bytes) = node { bytes.clone() } else { Vec::new() };
            let is_folder = *node == Node::Folder;
            let inode = Inode(disk.files.len());
            disk.files.push(File { is_folder, len: on_disk.len() as u64, on_disk, changes: Vec::new() });
            disk.names_on_disk.insert(place.clone(), inode);
            disk.names.insert(place, inode);
        }
        disk
    }

    /// A disk that has what is in `folder` now.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_folder(folder: &Path) -> io::Result<Self> {
        Ok(Self::with(folder, &Tree::of_folder(folder)?))
    }

    /// What has a path, as the process sees it.
    fn find(&self, path: &Path) -> Option<Inode> {
        let below = path.strip_prefix(&self.folder).ok()?;
        below.components().try_fold(TOP, |folder, part| match part {
            Component::Normal(name) => self.names.get(&(folder, name.to_owned())).copied(),
            Component::CurDir => Some(folder),
            _ => None,
        })
    }

    /// The folder that a path is in, and its name there.
    fn place(&self, path: &Path) -> Result<Place, Strange> {
        let strange = || Strange(format!("{} is not below {}", path.display(), self.folder.display()));
        let (parent, name) = path.parent().zip(path.file_name()).ok_or_else(strange)?;
        Ok((self.find(parent).ok_or_else(strange)?, OsStr::to_owned(name)))
    }

    fn opened(&self, fd: i32) -> Result<Inode, Strange> {
        self.open.get(&fd).copied().ok_or_else(|| Strange(format!("descriptor {fd} is not open")))
    }

    fn change(&mut self, inode: Inode, end: u64, change: Change) {
        let file = &mut self.files[inode.0];
        file.len = match &change {
            Change::Write { at, bytes } => file.len.max(at + bytes.len() as u64),
            Change::SetLen(len) => *len,
            Change::AtLeast(len) => file.len.max(*len),
        };
        file.changes.push(FileChange { end, change, fate: Fate::Open });
    }

    fn rename(&mut self, inode: Inode, end: u64, moves: Vec<(Place, Option<Inode>)>) {
        for (place, to) in &moves {
            set(&mut self.names, place, *to);
        }
        self.name_changes.push(NameChange { end, inode, moves, is_synced: false });
    }

    fn make(&mut self, path: &Path, end: u64, is_folder: bool) -> Result<Inode, Strange> {
        let place = self.place(path)?;
        let inode = Inode(self.files.len());
        self.files.push(File { is_folder, ..File::default() });
        self.rename(inode, end, vec![(place, Some(inode))]);
        Ok(inode)
    }

    /// Goes on by an entry of the journal.
    ///
    /// # Errors
    /// [`Strange`] if it does not go with those before.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), Strange> {
        let end = entry.end;
        match &entry.act {
            Act::Begin => {
                self.open.clear();
                self.syncs.clear();
            }
            Act::Open { fd, path, creates, truncates } => {
                let inode = match self.find(path) {
                    Some(inode) => inode,
                    None if *creates => self.make(path, end, false)?,
                    None => return Err(Strange(format!("{} was opened and never made", path.display()))),
                };
                if *truncates && self.files[inode.0].len > 0 {
                    self.change(inode, end, Change::SetLen(0));
                }
                self.open.insert(*fd, inode);
            }
            Act::Close(fd) => drop(self.open.remove(fd)),
            Act::Write { fd, at, bytes } => {
                self.change(self.opened(*fd)?, end, Change::Write { at: *at, bytes: Arc::clone(bytes) });
            }
            Act::SetLen(fd, len) => self.change(self.opened(*fd)?, end, Change::SetLen(*len)),
            Act::Allocate(fd, len) => self.change(self.opened(*fd)?, end, Change::AtLeast(*len)),
            Act::Rename(from, to) => {
                // Sockets, and what else is no file, are not known.
                if let Some(inode) = self.find(from) {
                    let moves = vec![(self.place(from)?, None), (self.place(to)?, Some(inode))];
                    self.rename(inode, end, moves);
                }
            }
            Act::Link(from, to) => {
                if let Some(inode) = self.find(from) {
                    self.rename(inode, end, vec![(self.place(to)?, Some(inode))]);
                }
            }
            Act::Remove(path) => {
                if let Some(inode) = self.find(path) {
                    self.rename(inode, end, vec![(self.place(path)?, None)]);
                }
            }
            Act::MakeFolder(path) => drop(self.make(path, end, true)?),
            Act::SyncBegins(sync, fd) => drop(self.syncs.insert(*sync, (self.opened(*fd)?, end))),
            Act::Synced(sync) => {
                let (inode, begun) = self.ended(*sync)?;
                self.files[inode.0].settle(begun, Fate::Synced);
                self.settle_names(inode, begun);
            }
            Act::SyncFailed(sync) => {
                let (inode, begun) = self.ended(*sync)?;
                self.files[inode.0].settle(begun, Fate::Abandoned);
            }
        }
        Ok(())
    }

    fn ended(&mut self, sync: u64) -> Result<(Inode, u64), Strange> {
        self.syncs.remove(&sync).ok_or_else(|| Strange(format!("sync {sync} ended and never began")))
    }

    /// The names in a folder, or of a file, that were there at `begun`, are on disk.
    fn settle_names(&mut self, inode: Inode, begun: u64) {
        // Whose names are: it, and the folders that it is in.
        let mut whose = HashSet::from([inode]);
        loop {
            let mut is_more = false;
            // What a name goes through, it goes through in order: names of operations that are on disk, from the last one back.
            let mut needed: HashSet<Place> = HashSet::new();
            for change in self.name_changes.iter_mut().rev().filter(|change| change.end < begun) {
                let places = || change.moves.iter().map(|(place, _)| place);
                let is_meant =
                    whose.contains(&change.inode) || places().any(|place| place.0 == inode || needed.contains(place));
                if is_meant && !change.is_synced {
                    change.is_synced = true;
                    is_more = true;
                }
                if change.is_synced {
                    needed.extend(places().cloned());
                    whose.extend(places().map(|place| place.0));
                }
            }
            if !is_more {
                break;
            }
        }
        let done = self.name_changes.iter().take_while(|change| change.is_synced).count();
        for change in self.name_changes.drain(..done) {
            for (place, to) in &change.moves {
                set(&mut self.names_on_disk, place, *to);
            }
        }
    }

    /// What is there if the power goes now.
    pub fn after_cut(&self, choices: &Choices) -> Tree {
        let mut choices = choices.clone();
        let names = self.names_after_cut(&mut choices);
        let mut contents = HashMap::new();
        let mut tree = Tree::default();
        self.add(&names, TOP, Path::new(""), &mut choices, &mut contents, &mut tree);
        tree
    }

    /// What the process sees.
    pub fn as_seen(&self) -> Tree {
        self.after_cut(&Choices::all_kept())
    }

    fn names_after_cut(&self, choices: &mut Choices) -> BTreeMap<Place, Inode> {
        let mut names = self.names_on_disk.clone();
        let mut lost: HashSet<&Place> = HashSet::new();
        let first_free = self.name_changes.iter().rposition(|change| change.is_synced).map_or(0, |last| last + 1);
        let mut is_over = false;
        for (at, change) in self.name_changes.iter().enumerate() {
            let is_kept = if choices.names_in_order {
                is_over |= at >= first_free && !choices.dice.is_in(choices.names_kept);
                !is_over
            } else {
                let follows_lost = change.moves.iter().any(|(place, _)| lost.contains(place));
                change.is_synced || (!follows_lost && choices.dice.is_in(choices.names_kept))
            };
            if is_kept {
                for (place, to) in &change.moves {
                    set(&mut names, place, *to);
                }
            } else {
                lost.extend(change.moves.iter().map(|(place, _)| place));
            }
        }
        names
    }

    fn add(
        &self,
        names: &BTreeMap<Place, Inode>,
        folder: Inode,
        path: &Path,
        choices: &mut Choices,
        contents: &mut HashMap<Inode, Vec<u8>>,
        tree: &mut Tree,
    ) {
        let in_it = names.range((folder, OsString::new())..).take_while(|((of, _), _)| *of == folder);
        for ((_, name), inode) in in_it {
            let (path, file) = (path.join(name), &self.files[inode.0]);
            if file.is_folder {
                tree.0.insert(path.clone(), Node::Folder);
                self.add(names, *inode, &path, choices, contents, tree);
            } else {
                // All its names have the same.
                let bytes = contents.entry(*inode).or_insert_with(|| file.after_cut(choices));
                tree.0.insert(path, Node::File(bytes.clone()));
            }
        }
    }
}

impl File {
    /// What was changed before `begun` has this fate now.
    fn settle(&mut self, begun: u64, fate: Fate) {
        for change in self.changes.iter_mut().filter(|change| change.end < begun && change.fate == Fate::Open) {
            change.fate = fate;
        }
        let done = self.changes.iter().take_while(|change| change.fate == Fate::Synced).count();
        for FileChange { change, .. } in self.changes.drain(..done) {
            match change {
                Change::Write { at, bytes } => put(&mut self.on_disk, at, &bytes),
                Change::SetLen(len) => self.on_disk.resize(len as usize, 0),
                Change::AtLeast(len) => grow(&mut self.on_disk, len, || 0),
            }
        }
    }

    fn after_cut(&self, choices: &mut Choices) -> Vec<u8> {
        let mut bytes = self.on_disk.clone();
        let count = self.changes.len();
        let first_free = self.changes.iter().rposition(|change| change.fate == Fate::Synced).map_or(0, |last| last + 1);
        // Lengths change in order, up to this one.
        let reached = match choices.lengths {
            Lengths::Shortest => first_free,
            Lengths::Any => first_free + choices.dice.below((count - first_free) as u64 + 1) as usize,
            Lengths::Longest => count,
        };
        for (number, FileChange { change, fate, .. }) in self.changes.iter().enumerate() {
            match change {
                Change::SetLen(len) if number < reached => bytes.resize(*len as usize, 0),
                // What comes later lies in blocks that the file had not before.
                Change::SetLen(len) if *len < bytes.len() as u64 => break,
                Change::AtLeast(len) if number < reached => grow(&mut bytes, *len, || 0),
                Change::SetLen(_) | Change::AtLeast(_) => {}
                Change::Write { at, bytes: written } => {
                    let (at, end) = (*at, at + written.len() as u64);
                    let sector_len = choices.sector_len;
                    let len = match number {
                        number if number < reached => end,
                        // Some of it.
                        number if number == reached && choices.lengths == Lengths::Any => {
                            at + choices.dice.below(written.len() as u64 + 1) / sector_len * sector_len
                        }
                        _ => 0,
                    };
                    let leftovers = choices.leftovers;
                    grow(&mut bytes, len, || if leftovers { choices.dice.roll() as u8 } else { 0 });
                    let mut from = at;
                    while from < end {
                        let to = ((from / sector_len + 1) * sector_len).min(end);
                        if *fate == Fate::Synced || choices.dice.is_in(choices.sectors_kept) {
                            let there = to.min(bytes.len() as u64);
                            if from < there {
                                put(&mut bytes, from, &written[(from - at) as usize..(there - at) as usize]);
                            }
                        }
                        from = to;
                    }
                }
            }
        }
        bytes
    }
}

fn set(names: &mut BTreeMap<Place, Inode>, place: &Place, to: Option<Inode>) {
    match to {
        Some(inode) => drop(names.insert(place.clone(), inode)),
        None => drop(names.remove(place)),
    }
}

fn grow(bytes: &mut Vec<u8>, len: u64, fill: impl FnMut() -> u8) {
    let len = bytes.len().max(len as usize);
    bytes.resize_with(len, fill);
}

fn put(bytes: &mut Vec<u8>, at: u64, written: &[u8]) {
    let at = at as usize;
    let end = at + written.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(written);
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
