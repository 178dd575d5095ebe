//! A member is told of maps that change, are deleted, cannot be read, or do not fit, in a real etcd.

use guira_cluster::Epoch;
use guira_etcd::{Etcd, Told, View};
use guira_routing::{NodeId, PartitionId};
use guira_switched::Revision;

use crate::support::{
    Raw, SECRET, Server, as_of, backend, cluster, connect, gateway,
    line::{Line, Mode},
    member::{LONG, Member, SHORT},
    wait_until,
};

const VIEW: &str = "/guira/guira/view";
const MAP: &str = "/guira/guira/partitions";

/// A cache node.
const ME: u16 = 100;
const MY_KEY: &str = "/guira/guira/alive/100";

struct Followed {
    server: Server,
    etcd: Etcd,
    raw: Raw,
    line: Line,
    made: Epoch,
    member: Member,
}

impl Followed {
    fn begin() -> Self {
        let server = Server::start();
        let (etcd, mut raw, line) = (server.etcd("guira"), Raw::of(&server), Line::to(server.address()));
        let made = etcd.create(&cluster("guira")).expect("it is made");
        let place = format!("{}/guira", line.address()).parse().expect("a place");
        let member = Member::follow_as(ME, connect(&place).expect("it answers"), made, LONG);
        wait_until("it is alive", || raw.get(MY_KEY).is_some());
        Self { server, etcd, raw, line, made, member }
    }

    fn cut(&self) {
        let reconnects = self.member.following.touch().reconnects;
        self.line.set(Mode::Cut);
        wait_until("it has noticed", || self.member.following.touch().reconnects > reconnects);
    }

    /// Partition 0 is another's: the map, and its number.
    fn give(&mut self, to: u16) -> Revision {
        let map = as_of(0, cluster("guira")).map.with_owner([PartitionId(0)], NodeId(to));
        Revision(self.raw.put(MAP, map.encode()).cast_unsigned())
    }

    #[track_caller]
    fn next_view(&self) -> View {
        match self.member.next() {
            Told::View(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    /// What is told next is the cluster as it is, and nothing was before.
    #[track_caller]
    fn is_told_all(&self) {
        let view = self.next_view();
        assert_eq!(view, self.etcd.read(SECRET).expect("it is there"));
        self.member.was_told_all();
    }
}

#[test]
fn a_member_is_told_of_each_map_that_it_hears_of() {
    let mut followed = Followed::begin();
    for to in [1_001, 1_000, 1_001] {
        let revision = followed.give(to);
        let view = followed.next_view();
        assert_eq!((view.epoch, view.revision), (followed.made, revision));
        assert_eq!(view.map.owner(PartitionId(0)), NodeId(to));
    }
    let view = followed.etcd.add(&[gateway(10_001)]).expect("it comes");
    followed.member.is_told(&view);
    let last = followed.give(1_000);
    assert_eq!(followed.next_view().revision, last);
    followed.member.was_told_all();
    assert_eq!(followed.member.following.touch().reconnects, 0);
}

#[test]
fn who_was_cut_off_is_told_of_the_newest_map_alone() {
    let mut followed = Followed::begin();
    followed.cut();
    for to in [1_001, 1_000, 1_001] {
        followed.give(to);
    }
    followed.line.set(Mode::Open);
    followed.is_told_all();
    // Of each cluster, with the newest map.
    followed.cut();
    let epochs = [10_001, 10_002].map(|id| followed.etcd.add(&[gateway(id)]).expect("it comes").epoch);
    let newest = followed.give(1_000);
    followed.line.set(Mode::Open);
    for epoch in epochs {
        let view = followed.next_view();
        assert_eq!((view.epoch, view.revision), (epoch, newest));
    }
    followed.member.was_told_all();
}

#[test]
fn who_was_cut_off_for_longer_than_etcd_remembers_hears_of_the_newest() {
    let mut followed = Followed::begin();
    followed.cut();
    followed.give(1_001);
    followed.etcd.add(&[gateway(10_001)]).expect("it comes");
    followed.etcd.add(&[gateway(10_002)]).expect("it comes");
    followed.give(1_000);
    followed.raw.put("/somebody/else", "");
    followed.raw.compact();
    followed.line.set(Mode::Open);
    followed.is_told_all();
    let revision = followed.give(1_001);
    assert_eq!(followed.next_view().revision, revision);
}

/// It has not heard yet of who owns something: it is told of both at once.
#[test]
fn a_map_that_is_heard_before_who_owns_something_waits_for_that() {
    let mut followed = Followed::begin();
    followed.cut();
    // It is a backend no more when this is heard, but the next one is.
    followed.etcd.add(&[backend(1_002, None)]).expect("it comes");
    followed.etcd.add(&[backend(1_003, None)]).expect("it comes");
    followed.give(1_003);
    followed.etcd.remove(&[1_002]).expect("it goes");
    followed.line.set(Mode::Open);
    loop {
        let view = followed.next_view();
        let backends = view.file.backends();
        assert!(view.map.backends().iter().all(|owner| backends.contains(owner)), "{view:?}");
        if view == followed.etcd.read(SECRET).expect("it is there") {
            break;
        }
    }
    followed.member.was_told_all();
}

#[test]
fn a_map_that_is_deleted_or_cannot_be_read_or_does_not_fit_changes_nothing() {
    let mut followed = Followed::begin();
    followed.raw.delete(MAP);
    followed.member.is_told_a_line("partitions is not in etcd any more");
    // Once, though it is looked again, and others come.
    followed.cut();
    followed.line.set(Mode::Open);
    let view = followed.etcd.change(|_| Ok(()));
    assert!(view.is_err());
    let lines: [(&[u8], &str); 2] = [
        (b"no map", "is not what owners of partitions are read from"),
        (
            &as_of(0, cluster("guira")).map.with_owner([PartitionId(0)], NodeId(7)).encode(),
            "are owned by 7, no backends",
        ),
    ];
    for (bytes, says) in lines {
        followed.raw.put(MAP, bytes);
        followed.member.is_told_a_line(says);
        followed.cut();
        followed.line.set(Mode::Open);
        // Who is there is heard of nevertheless, once it fits.
        wait_until("it follows again", || followed.member.following.is_in_touch());
        followed.raw.put(MAP, as_of(0, cluster("guira")).map.encode());
        followed.is_told_all();
    }
    // While the map is away clusters are told with the one that was there.
    let before = followed.etcd.read(SECRET).expect("it is there");
    followed.raw.delete(MAP);
    followed.member.is_told_a_line("partitions is not in etcd any more");
    let text = followed.raw.get(VIEW).expect("it is there").value().to_vec();
    let epoch = Epoch(followed.raw.put(VIEW, text).cast_unsigned());
    assert_eq!(followed.next_view(), View { epoch, ..before });
    followed.member.was_told_all();
}

#[test]
fn a_map_of_an_etcd_that_has_forgotten_all_is_not_heard_until_it_is_past_the_last() {
    let mut followed = Followed::begin();
    let mut last = Revision::default();
    for to in [1_001, 1_000, 1_001, 1_000, 1_001] {
        last = followed.give(to);
        assert_eq!(followed.next_view().revision, last);
    }
    followed.server.kill();
    followed.server.forget();
    followed.server.start_again();
    followed.raw = Raw::of(&followed.server);
    followed.member.is_told_a_line(&format!("are not heard until etcd is past revision {}: start", last.0));
    // Others, the member itself among them, put something too: none of these need be the last itself.
    let mut revision = followed.give(1_000);
    while revision <= last {
        revision = followed.give(1_000);
    }
    // The first that is told.
    let view = followed.next_view();
    assert_eq!((view.epoch, view.revision), (followed.made, revision));
}

#[test]
fn who_follows_from_an_earlier_map_is_told_of_the_newest_at_once() {
    let server = Server::start();
    let etcd = server.etcd("guira");
    let made = etcd.create(&cluster("guira")).expect("it is made");
    let map = as_of(0, cluster("guira")).map.with_owner([PartitionId(0)], NodeId(1_001));
    let mut raw = Raw::of(&server);
    raw.put(MAP, as_of(0, cluster("guira")).map.encode());
    raw.put(MAP, map.encode());
    let member = Member::follow_as(ME, server.etcd("guira"), made, SHORT);
    assert_eq!(member.next(), Told::View(Box::new(etcd.read(SECRET).expect("it is there"))));
    member.was_told_all();
}
