//! What a disk may have after a cut, and what it must have.

use std::collections::BTreeSet;

use super::*;
use crate::choices::Dice;

const FOLDER: &str = "/disk";

/// A journal in the making, applied to a disk that was empty.
struct Story {
    disk: Disk,
    end: u64,
    syncs: u64,
}

impl Story {
    fn new() -> Self {
        Self { disk: Disk::with(Path::new(FOLDER), &Tree::default()), end: 0, syncs: 0 }
    }

    fn act(&mut self, act: Act) -> &mut Self {
        self.end += 1;
        self.disk.apply(&Entry { end: self.end, act }).expect("possible");
        self
    }

    fn open(&mut self, fd: i32, name: &str) -> &mut Self {
        self.act(Act::Open { fd, path: path(name), creates: true, truncates: false })
    }

    fn write(&mut self, fd: i32, at: u64, bytes: &[u8]) -> &mut Self {
        self.act(Act::Write { fd, at, bytes: bytes.into() })
    }

    fn rename(&mut self, from: &str, to: &str) -> &mut Self {
        self.act(Act::Rename(path(from), path(to)))
    }

    fn begin_sync(&mut self, fd: i32) -> u64 {
        self.syncs += 1;
        let sync = self.syncs;
        self.act(Act::SyncBegins(sync, fd));
        sync
    }

    fn sync(&mut self, fd: i32) -> &mut Self {
        let sync = self.begin_sync(fd);
        self.act(Act::Synced(sync))
    }

    /// Syncs the folder that everything is in.
    fn sync_top(&mut self) -> &mut Self {
        self.act(Act::Open { fd: 99, path: path(""), creates: false, truncates: false });
        self.sync(99)
    }

    /// What many cuts leave.
    fn trees(&self) -> Vec<Tree> {
        let mut dice = Dice::new(7);
        (0..2_000).map(|_| self.disk.after_cut(&Choices::any(&mut dice))).collect()
    }

    /// What many cuts leave of a file, `None` among it where it is not there.
    fn contents(&self, name: &str) -> BTreeSet<Option<Vec<u8>>> {
        self.trees().iter().map(|tree| tree.file(name).map(<[u8]>::to_vec)).collect()
    }

    fn names(&self) -> BTreeSet<String> {
        let names = |tree: &Tree| tree.0.keys().map(|path| format!("{} ", path.display())).collect::<String>();
        self.trees().iter().map(names).collect()
    }
}

fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

fn all(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn what_was_synced_is_there_and_what_was_not_may_be() {
    let mut story = Story::new();
    story.open(3, "a").write(3, 0, b"one").sync(3).write(3, 3, b"two");
    let seen = story.contents("a");
    assert!(seen.iter().all(|bytes| bytes.as_ref().is_some_and(|bytes| bytes.starts_with(b"one"))), "{seen:?}");
    assert!(seen.contains(&Some(b"one".into())) && seen.contains(&Some(b"onetwo".into())));
    assert!(seen.contains(&Some(b"one\0\0\0".into())), "its length, without its bytes");
    assert!(seen.iter().flatten().any(|bytes| bytes.len() == 6 && !bytes[3..].starts_with(b"two") && bytes[3] != 0));
    story.sync(3);
    assert_eq!(story.contents("a"), BTreeSet::from([Some(b"onetwo".to_vec())]));
}

#[test]
fn a_sync_promises_only_what_was_there_when_it_began() {
    let mut story = Story::new();
    story.open(3, "a").write(3, 0, b"one");
    let sync = story.begin_sync(3);
    story.write(3, 3, b"two");
    let lost = |story: &Story| story.contents("a").contains(&Some(b"one".to_vec()));
    assert!(story.contents("a").contains(&None), "it has not ended");
    story.act(Act::Synced(sync));
    assert!(lost(&story) && !story.contents("a").contains(&None));
    story.sync(3);
    assert!(!lost(&story));
}

#[test]
fn sectors_are_torn_dropped_and_written_in_any_order() {
    let mut story = Story::new();
    story.open(3, "a").write(3, 0, &[1; 1_536]).sync(3);
    story.write(3, 0, &[2; 1_536]).write(3, 512, &[3; 512]);
    // Sectors as they are on disk, of the one length that there is.
    let sectors = |bytes: &Vec<u8>| {
        assert!(bytes.len() == 1_536 && bytes.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        [bytes[0], bytes[512], bytes[1_024]]
    };
    let seen: BTreeSet<_> = story.contents("a").iter().flatten().map(sectors).collect();
    for first in [1, 2] {
        for second in [1, 2, 3] {
            for third in [1, 2] {
                assert!(seen.contains(&[first, second, third]), "{first} {second} {third}");
            }
        }
    }
    assert_eq!(seen.len(), 12);
}

#[test]
fn what_is_written_after_a_cut_to_a_length_never_stands_among_what_was_before() {
    let mut story = Story::new();
    story.open(3, "a").write(3, 0, b"oldold").sync(3);
    story.act(Act::SetLen(3, 0)).write(3, 0, b"new");
    for bytes in story.contents("a").iter().flatten() {
        assert!(bytes == b"oldold" || bytes.len() <= 3, "{bytes:?}");
    }
}

#[test]
fn names_come_with_a_sync_of_their_file_or_their_folder() {
    let mut story = Story::new();
    story.open(3, "a").open(4, "b");
    assert_eq!(story.names(), all(&["", "a ", "b ", "a b "]));
    story.sync(4);
    assert_eq!(story.names(), all(&["b ", "a b "]));
    story.sync_top();
    assert_eq!(story.names(), all(&["a b "]));
    // A name of a name: what it is in comes with it.
    story.act(Act::MakeFolder(path("f"))).open(5, "f/c").open(6, "d").sync(5);
    assert_eq!(story.names(), all(&["a b f f/c ", "a b d f f/c "]));
}

#[test]
fn a_rename_is_whole_or_not_there_and_may_come_before_the_bytes() {
    let mut story = Story::new();
    story.open(3, "a").write(3, 0, b"old").sync(3).open(4, "next").write(4, 0, b"new").rename("next", "a");
    assert_eq!(story.names(), all(&["a ", "a next "]), "never without an a, next is gone with the rename");
    assert!(story.contents("a").contains(&Some(Vec::new())), "it was not synced before");
    let mut story = Story::new();
    story.open(3, "a").write(3, 0, b"old").sync(3).open(4, "next").write(4, 0, b"new").sync(4).rename("next", "a");
    assert_eq!(story.contents("a"), BTreeSet::from([Some(b"old".to_vec()), Some(b"new".to_vec())]));
    story.sync_top();
    assert_eq!(story.contents("a"), BTreeSet::from([Some(b"new".to_vec())]));
    assert_eq!(story.names(), all(&["a "]));
}

#[test]
fn links_and_removals_are_names_too() {
    let mut story = Story::new();
    story.open(3, "a").write(3, 0, b"x").sync(3).act(Act::Link(path("a"), path("b"))).act(Act::Remove(path("a")));
    assert_eq!(story.names(), all(&["", "a ", "b ", "a b "]));
    let in_order = |tree: &Tree| tree.file("a").or(tree.file("b")).is_some();
    let ordered = Choices { names_in_order: true, names_kept: 500, ..Choices::all_kept() };
    for seed in 0..200 {
        assert!(in_order(&story.disk.after_cut(&Choices { dice: Dice::new(seed), ..ordered.clone() })));
    }
    story.sync_top();
    assert_eq!(story.contents("b"), BTreeSet::from([Some(b"x".to_vec())]));
    assert_eq!(story.names(), all(&["b "]));
}

/// The system forgets what it could not write: a later sync succeeds without it.
#[test]
fn what_a_failed_sync_was_for_no_later_one_promises() {
    let mut story = Story::new();
    story.open(3, "a").write(3, 0, &[1; 512]).sync(3).write(3, 512, &[2; 512]);
    let sync = story.begin_sync(3);
    story.act(Act::SyncFailed(sync)).write(3, 1_024, &[3; 512]).sync(3);
    let seen = story.contents("a");
    for bytes in seen.iter().map(|bytes| bytes.as_ref().expect("its name is on disk")) {
        assert!(bytes.len() == 1_536 && bytes[..512] == [1; 512] && bytes[1_024..] == [3; 512]);
    }
    assert!(seen.iter().flatten().any(|bytes| bytes[512] != 2) && seen.iter().flatten().any(|bytes| bytes[512] == 2));
}

#[test]
fn with_all_choices_made_one_way_there_is_one_outcome() {
    let mut story = Story::new();
    story.open(3, "a").write(3, 0, b"one").sync(3).write(3, 1, b"two").act(Act::Allocate(3, 9)).open(4, "b");
    let tree = |bytes: &[(&str, &[u8])]| {
        Tree(bytes.iter().map(|(name, bytes)| (name.into(), Node::File(bytes.to_vec()))).collect())
    };
    assert_eq!(story.disk.as_seen(), tree(&[("a", b"otwo\0\0\0\0\0"), ("b", b"")]));
    assert_eq!(story.disk.after_cut(&Choices::none_kept()), tree(&[("a", b"one")]));
    // From a tree it begins with all of it on disk.
    let again = Disk::with(Path::new(FOLDER), &story.disk.as_seen());
    assert_eq!(again.after_cut(&Choices::none_kept()), story.disk.as_seen());
}

#[test]
fn what_cannot_have_been_is_told() {
    let mut disk = Disk::with(Path::new(FOLDER), &Tree::default());
    for act in [
        Act::Write { fd: 3, at: 0, bytes: [].into() },
        Act::Open { fd: 3, path: path("a"), creates: false, truncates: false },
        Act::Open { fd: 3, path: path("no/a"), creates: true, truncates: false },
        Act::Open { fd: 3, path: "/other".into(), creates: true, truncates: false },
        Act::Synced(1),
    ] {
        let told = disk.apply(&Entry { end: 1, act: act.clone() });
        assert!(told.is_err_and(|strange| !strange.to_string().is_empty()), "{act:?}");
    }
}
