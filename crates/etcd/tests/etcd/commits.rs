//! Backends give partitions away in a real etcd, over lines that lose what is said, while others change the cluster and the map.

use std::{
    cell::Cell,
    fs,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    time::Duration,
};

use guira_cluster::{Epoch, Incarnation};
use guira_etcd::{Access, Etcd, FollowOptions, Follower, Following, Told, User, View};
use guira_routing::{NodeId, PartitionId};
use guira_switched::{Commit, Committed, Revision};

use crate::support::{
    PATIENCE, Raw, SECRET, Server, backend, cluster, connect, gateway,
    line::{Line, Mode},
    member::{LIFE, LONG},
    users::{PASSWORD, USER, Users},
    wait_until,
};

const VIEW: &str = "/guira/guira/view";
const MAP: &str = "/guira/guira/partitions";
const LIFE_OF_1000: &str = "/guira/guira/life/1000";

/// What a backend is told, in the order in which it is.
#[derive(Debug, PartialEq)]
enum Heard {
    Told(Told),
    Done(Committed),
}

struct Backend {
    id: u16,
    seen: View,
    following: Following,
    tell: Sender<Heard>,
    heard: Receiver<Heard>,
    /// What was told last of the cluster, and of the map.
    last: Cell<(Epoch, Revision)>,
}

impl Backend {
    fn begin(id: u16, life: u64, etcd: Etcd) -> Self {
        let seen = etcd.begin_life(NodeId(id), Incarnation(life), SECRET).expect("it begins");
        let me = seen.file.member(NodeId(id)).expect("a member").clone();
        let who = Follower { me, life: Incarnation(life), seen: seen.clone() };
        let (tell, heard) = mpsc::channel();
        let told = tell.clone();
        let told = move |what| drop(told.send(Heard::Told(what)));
        let following = etcd.follow(who, FollowOptions { lease: LONG }, told).expect("a thread");
        let last = Cell::new((seen.epoch, seen.revision));
        Self { id, seen, following, tell, heard, last }
    }

    /// Some that it owned when it began, from the `at`th on.
    fn some(&self, at: usize) -> Vec<PartitionId> {
        self.seen.map.partitions_of(NodeId(self.id)).skip(at).take(3).collect()
    }

    fn commit(&self, partitions: Vec<PartitionId>, to: u16) {
        let tell = self.tell.clone();
        let commit = Commit { partitions, to: NodeId(to), to_life: Incarnation(LIFE) };
        self.following.committer().commit(commit, move |what| drop(tell.send(Heard::Done(what))));
    }

    /// What is told next. Views rise, and have who owns something.
    #[track_caller]
    fn next(&self) -> Heard {
        loop {
            match self.heard.recv_timeout(PATIENCE).expect("something is told") {
                Heard::Told(Told::OutOfTouch(_) | Told::InTouch) => {}
                Heard::Told(Told::View(view)) => {
                    let (is, was) = ((view.epoch, view.revision), self.last.replace((view.epoch, view.revision)));
                    assert!(is != was && is.0 >= was.0 && is.1 >= was.1, "{is:?} after {was:?}");
                    let backends = view.file.backends();
                    assert!(view.map.backends().iter().all(|owner| backends.contains(owner)));
                    return Heard::Told(Told::View(view));
                }
                heard => return heard,
            }
        }
    }

    /// What came of it, and the highest number of a map that was told before.
    #[track_caller]
    fn done(&self) -> (Committed, Revision) {
        loop {
            match self.next() {
                Heard::Done(committed) => return (committed, self.last.get().1),
                Heard::Told(Told::View(_)) => {}
                Heard::Told(other) => panic!("{other:?}"),
            }
        }
    }

    /// Nothing more is told but views, and that was all.
    #[track_caller]
    fn ends_outlived(mut self, by: u64) {
        loop {
            match self.next() {
                Heard::Told(Told::View(_)) => {}
                heard => {
                    assert_eq!(heard, Heard::Told(Told::Outlived { life: Incarnation(by) }));
                    break;
                }
            }
        }
        // What is never called is dropped with its sender.
        self.tell = mpsc::channel().0;
        assert_eq!(self.heard.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
    }
}

struct Cluster {
    server: Server,
    line: Line,
    etcd: Etcd,
    raw: Raw,
}

impl Cluster {
    /// With backends 1000, 1001 and 1002, of which the last owns nothing.
    fn begin() -> Self {
        let server = Server::start();
        let (line, etcd, raw) = (Line::to(server.address()), server.etcd("guira"), Raw::of(&server));
        etcd.create(&cluster("guira")).expect("it is made");
        etcd.add(&[backend(1_002, None)]).expect("it comes");
        for id in [1_001, 1_002] {
            etcd.begin_life(NodeId(id), Incarnation(LIFE), SECRET).expect("it begins");
        }
        Self { server, line, etcd, raw }
    }

    fn backend(&self, id: u16) -> Backend {
        Backend::begin(id, LIFE, self.server.etcd("guira"))
    }

    /// Backend 1000, behind the line alone.
    fn behind_the_line(&self) -> Backend {
        let place = format!("{}/guira", self.line.address()).parse().expect("a place");
        Backend::begin(1_000, LIFE, connect(&place).expect("it answers"))
    }

    fn view(&self) -> View {
        self.etcd.read(SECRET).expect("it is there")
    }

    fn owners(&self, partitions: &[PartitionId]) -> Vec<u16> {
        let map = self.view().map;
        let mut owners: Vec<u16> = partitions.iter().map(|partition| map.owner(*partition).0).collect();
        owners.dedup();
        owners
    }

    fn versions(&mut self) -> i64 {
        self.raw.get(MAP).expect("it is there").version()
    }

    /// What is asked for is in that mode while it is on its way.
    #[track_caller]
    fn wait_for(&self, mode: Mode) {
        wait_until("a map is on its way", || self.line.is(mode));
    }

    /// The map was put so many times.
    #[track_caller]
    fn wait_for_version(&mut self, versions: i64) {
        let raw = &mut self.raw;
        wait_until("it is put", || raw.get(MAP).expect("it is there").version() >= versions);
    }

    /// Puts the map with something that is another's now, as its owner does who does not wait.
    fn give(&mut self, partitions: &[PartitionId], to: u16) -> Revision {
        let map = self.view().map.with_owner(partitions.iter().copied(), NodeId(to));
        Revision(self.raw.put(MAP, map.encode()).cast_unsigned())
    }
}

#[test]
fn what_is_given_away_is_anothers_and_all_are_told() {
    let mut cluster = Cluster::begin();
    let [one, other] = [1_000, 1_001].map(|id| cluster.backend(id));
    let mut last = one.seen.revision;
    for at in [0, 3] {
        let partitions = one.some(at);
        one.commit(partitions.clone(), 1_002);
        let (Committed::As(revision), _) = one.done() else { panic!("it is done") };
        assert!(revision > last);
        last = revision;
        assert_eq!(cluster.owners(&partitions), [1_002]);
        assert_eq!(Revision(cluster.raw.get(MAP).expect("it is there").mod_revision().cast_unsigned()), revision);
        loop {
            let Heard::Told(Told::View(view)) = other.next() else { panic!("a view") };
            if view.revision == revision {
                assert_eq!((view.epoch, &view.map), (other.seen.epoch, &cluster.view().map));
                break;
            }
        }
    }
    assert_eq!(cluster.versions(), 3);
}

#[test]
fn who_may_not_write_any_more_is_told_that_nothing_was_given() {
    let cluster = Cluster::begin();
    let folder = tempfile::tempdir().expect("a folder");
    let password = folder.path().join("password");
    fs::write(&password, PASSWORD).expect("it is written");
    let mut users = Users::of(&cluster.server, "guira");
    let access = Access { user: Some(User { name: USER.into(), password }), ..Access::default() };
    let etcd = Etcd::connect(&cluster.server.place("guira"), &access).expect("it answers");
    let one = Backend::begin(1_000, LIFE, etcd);
    let given = |at| {
        one.commit(one.some(at), 1_001);
        one.done().0
    };
    assert!(matches!(given(0), Committed::As(_)));
    // Over that connection it is not known who asks, from now on.
    users.are_asked(&cluster.server);
    wait_until("it shows who it is", || matches!(given(3), Committed::As(_)));
    // Twice: the first time it may not be known who asks.
    users.forbid("guira");
    assert_eq!([6, 9].map(given), [Committed::Not; 2]);
}

#[test]
fn what_may_not_be_given_is_not() {
    let mut cluster = Cluster::begin();
    let one = cluster.backend(1_000);
    let map = cluster.view().map;
    let others = map.partitions_of(NodeId(1_001)).take(1);
    let mixed: Vec<PartitionId> = one.some(0).into_iter().chain(others).collect();
    for (partitions, to) in [(mixed, 1_002), (one.some(0), 1_003), (one.some(0), 100)] {
        one.commit(partitions, to);
        assert_eq!(one.done().0, Committed::Not);
    }
    cluster.give(&one.some(0), 1_002);
    let theirs = cluster.view().revision;
    one.commit(one.some(0), 1_001);
    assert_eq!(one.done(), (Committed::Not, theirs), "it is told whose it is before");
    cluster.etcd.remove(&[1_001]).expect("it leaves");
    one.commit(one.some(3), 1_001);
    assert_eq!(one.done().0, Committed::Not);
    // Nor what nobody can read, or with a view that nobody can.
    let good = cluster.raw.get(VIEW).expect("it is there").value().to_vec();
    let map = cluster.view().map.encode();
    cluster.raw.put(VIEW, "no view");
    one.commit(one.some(3), 1_002);
    let is_done = |heard| if let Heard::Done(committed) = heard { Some(committed) } else { None };
    let done = || loop {
        if let Some(committed) = is_done(one.next()) {
            break committed;
        }
    };
    assert_eq!(done(), Committed::Not);
    cluster.raw.put(VIEW, good);
    cluster.raw.put(MAP, "no map");
    one.commit(one.some(3), 1_002);
    assert_eq!(done(), Committed::Not);
    cluster.raw.put(MAP, map);
    one.commit(one.some(3), 1_002);
    assert!(matches!(done(), Committed::As(_)));
}

#[test]
fn two_who_give_at_once_lose_nothing() {
    const EACH: usize = 10;
    let mut cluster = Cluster::begin();
    let backends = [1_000, 1_001].map(|id| cluster.backend(id));
    for at in 0..EACH {
        backends.iter().for_each(|one| one.commit(one.some(3 * at), 1_002));
        for one in &backends {
            assert!(matches!(one.done().0, Committed::As(_)));
        }
    }
    for one in &backends {
        for at in 0..EACH {
            assert_eq!(cluster.owners(&one.some(3 * at)), [1_002]);
        }
    }
    assert_eq!(cluster.versions(), 1 + 2 * i64::try_from(EACH).expect("few"));
}

#[test]
fn a_map_that_another_has_changed_meanwhile_is_not_overwritten() {
    let cluster = Cluster::begin();
    let [one, other] = [cluster.behind_the_line(), cluster.backend(1_001)];
    cluster.line.set_within_a_map(Mode::Held);
    one.commit(one.some(0), 1_002);
    cluster.wait_for(Mode::Held);
    other.commit(other.some(0), 1_002);
    let (Committed::As(theirs), _) = other.done() else { panic!("it is done") };
    cluster.line.set(Mode::Open);
    let (Committed::As(mine), told) = one.done() else { panic!("it is done") };
    assert!(mine > theirs && told >= theirs);
    assert_eq!((cluster.owners(&one.some(0)), cluster.owners(&other.some(0))), (vec![1_002], vec![1_002]));
}

#[test]
fn who_is_leaving_or_gone_meanwhile_is_given_nothing() {
    let mut cluster = Cluster::begin();
    let one = cluster.behind_the_line();
    for to in [1_001, 1_002] {
        cluster.line.set_within_a_map(Mode::Held);
        one.commit(one.some(0), to);
        cluster.wait_for(Mode::Held);
        // The second owns nothing, and goes at once.
        cluster.etcd.remove(&[to]).expect("it leaves");
        cluster.line.set(Mode::Open);
        assert_eq!(one.done().0, Committed::Not);
        assert_eq!((cluster.owners(&one.some(0)), cluster.versions()), (vec![1_000], 1));
    }
}

/// A life reads the map once it has begun: what an earlier one has asked for must not take place after that.
#[test]
fn what_an_earlier_life_has_asked_for_does_not_take_place_after_a_later_one_has_begun() {
    let mut cluster = Cluster::begin();
    let one = cluster.behind_the_line();
    cluster.line.set_within_a_map(Mode::Held);
    let partitions = one.some(0);
    one.commit(partitions.clone(), 1_002);
    cluster.wait_for(Mode::Held);
    let seen = cluster.etcd.begin_life(NodeId(1_000), Incarnation(LIFE + 1), SECRET).expect("it begins");
    cluster.line.set(Mode::Open);
    one.ends_outlived(LIFE + 1);
    assert_eq!((cluster.owners(&partitions), cluster.versions()), (vec![1_000], 1));
    assert_eq!(cluster.view().revision, seen.revision);
}

#[test]
fn a_life_that_is_over_or_never_began_gives_nothing() {
    let mut cluster = Cluster::begin();
    let one = cluster.backend(1_000);
    for other in [(LIFE - 1).to_string(), "no life".into()] {
        cluster.raw.put(LIFE_OF_1000, other);
        one.commit(one.some(0), 1_002);
        assert_eq!(one.done().0, Committed::Not);
    }
    cluster.raw.put(LIFE_OF_1000, (LIFE + 1).to_string());
    one.commit(one.some(0), 1_002);
    one.ends_outlived(LIFE + 1);
    assert_eq!(cluster.versions(), 1);
}

/// Who has taken something has it for that life alone: a later one knows nothing of it.
#[test]
fn a_later_life_of_who_is_to_have_it_is_given_nothing() {
    for mode in [None, Some(Mode::Held), Some(Mode::Silent)] {
        let mut cluster = Cluster::begin();
        let one = cluster.behind_the_line();
        if let Some(mode) = mode {
            cluster.line.set_within_a_map(mode);
            one.commit(one.some(0), 1_002);
            cluster.wait_for(mode);
        }
        cluster.etcd.begin_life(NodeId(1_002), Incarnation(LIFE + 1), SECRET).expect("it begins");
        match mode {
            Some(_) => cluster.line.set(Mode::Open),
            None => one.commit(one.some(0), 1_002),
        }
        assert_eq!(one.done().0, Committed::Not, "{mode:?}");
        assert_eq!((cluster.owners(&one.some(0)), cluster.versions()), (vec![1_000], 1), "{mode:?}");
    }
}

#[test]
fn a_lost_answer_is_found_out_and_what_was_put_is_not_put_again() {
    let mut cluster = Cluster::begin();
    let one = cluster.behind_the_line();
    cluster.line.set_within_a_map(Mode::Deaf);
    one.commit(one.some(0), 1_002);
    cluster.wait_for_version(2);
    let mine = Revision(cluster.raw.get(MAP).expect("it is there").mod_revision().cast_unsigned());
    assert_eq!(one.heard.recv_timeout(Duration::from_millis(100)), Err(RecvTimeoutError::Timeout), "it is not known");
    cluster.line.set(Mode::Open);
    assert_eq!(one.done(), (Committed::As(mine), mine));
    assert_eq!(cluster.versions(), 2);
}

#[test]
fn a_lost_answer_is_found_out_whatever_others_have_changed_since() {
    let mut cluster = Cluster::begin();
    let (one, other) = (cluster.behind_the_line(), cluster.backend(1_001));
    cluster.line.set_within_a_map(Mode::Deaf);
    one.commit(one.some(0), 1_002);
    cluster.wait_for_version(2);
    let mine = Revision(cluster.raw.get(MAP).expect("it is there").mod_revision().cast_unsigned());
    cluster.etcd.add(&[gateway(10_001)]).expect("it comes");
    let mut theirs = mine;
    for at in [0, 3] {
        other.commit(other.some(at), 1_002);
        let (Committed::As(revision), _) = other.done() else { panic!("it is done") };
        theirs = revision;
    }
    // Even if it has come back.
    let back = cluster.give(&one.some(0), 1_000);
    assert!(back > theirs);
    cluster.line.set(Mode::Open);
    assert_eq!(one.done(), (Committed::As(mine), back), "the newest map is told before");
    assert_eq!(cluster.versions(), 5);
}

#[test]
fn what_was_lost_itself_is_put_again() {
    let mut cluster = Cluster::begin();
    let one = cluster.behind_the_line();
    cluster.line.set_within_a_map(Mode::Silent);
    one.commit(one.some(0), 1_002);
    cluster.wait_for(Mode::Silent);
    cluster.line.set(Mode::Open);
    let (Committed::As(revision), _) = one.done() else { panic!("it is done") };
    assert_eq!((cluster.owners(&one.some(0)), cluster.view().revision), (vec![1_002], revision));
    assert_eq!(cluster.versions(), 2);
}

#[test]
fn what_was_lost_itself_is_not_taken_for_what_others_have_put_since() {
    let mut cluster = Cluster::begin();
    let (one, other) = (cluster.behind_the_line(), cluster.backend(1_001));
    cluster.line.set_within_a_map(Mode::Silent);
    one.commit(one.some(0), 1_002);
    cluster.wait_for(Mode::Silent);
    for at in [0, 3] {
        other.commit(other.some(at), 1_002);
        assert!(matches!(other.done().0, Committed::As(_)));
    }
    let theirs = cluster.view().revision;
    cluster.line.set(Mode::Open);
    let (Committed::As(mine), told) = one.done() else { panic!("it is done") };
    assert!(mine > theirs && told >= theirs);
    assert_eq!((cluster.owners(&one.some(0)), cluster.versions()), (vec![1_002], 4));
}

#[test]
fn what_was_lost_itself_is_not_put_again_if_it_may_not_be_any_more() {
    let mut cluster = Cluster::begin();
    let one = cluster.behind_the_line();
    for others_give in [false, true] {
        cluster.line.set_within_a_map(Mode::Silent);
        one.commit(one.some(0), 1_001);
        cluster.wait_for(Mode::Silent);
        cluster.etcd.remove(&[1_001]).expect("it leaves");
        if others_give {
            let theirs: Vec<PartitionId> = cluster.view().map.partitions_of(NodeId(1_001)).take(3).collect();
            cluster.give(&theirs, 1_002);
        }
        cluster.line.set(Mode::Open);
        assert_eq!(one.done().0, Committed::Not);
        assert_eq!(cluster.owners(&one.some(0)), [1_000]);
        cluster.etcd.add(&[backend(1_001, None)]).expect("it stays");
    }
}

#[test]
fn what_nobody_can_say_is_as_the_newest_map_has_it() {
    for (mode, is_mine) in [(Mode::Deaf, false), (Mode::Silent, true)] {
        let mut cluster = Cluster::begin();
        let (one, other) = (cluster.behind_the_line(), cluster.backend(1_001));
        cluster.line.set_within_a_map(mode);
        one.commit(one.some(0), 1_002);
        cluster.wait_for(mode);
        if !is_mine {
            cluster.wait_for_version(2);
        }
        for at in [0, 3, 6] {
            other.commit(other.some(at), 1_002);
            assert!(matches!(other.done().0, Committed::As(_)));
        }
        cluster.raw.compact();
        let newest = cluster.view().revision;
        cluster.line.set(Mode::Open);
        let is_so = if is_mine { Committed::Not } else { Committed::As(newest) };
        assert_eq!(one.done(), (is_so, newest), "{mode:?}");
    }
}

#[test]
fn a_map_that_was_deleted_and_made_anew_meanwhile_says_what_is_so() {
    let mut cluster = Cluster::begin();
    let one = cluster.behind_the_line();
    cluster.line.set_within_a_map(Mode::Silent);
    one.commit(one.some(0), 1_002);
    cluster.wait_for(Mode::Silent);
    let map = cluster.view().map;
    cluster.raw.delete(MAP);
    // As often as it would be if it had been put.
    for _ in 0..2 {
        cluster.raw.put(MAP, map.with_owner(one.some(0), NodeId(1_001)).encode());
    }
    let newest = cluster.view().revision;
    cluster.line.set(Mode::Open);
    assert_eq!(one.done(), (Committed::As(newest), newest));
}

#[test]
fn a_later_life_ends_one_that_waits_for_an_answer() {
    let mut cluster = Cluster::begin();
    let one = cluster.behind_the_line();
    cluster.line.set_within_a_map(Mode::Deaf);
    one.commit(one.some(0), 1_002);
    cluster.wait_for_version(2);
    let seen = cluster.etcd.begin_life(NodeId(1_000), Incarnation(LIFE + 1), SECRET).expect("it begins");
    assert_eq!(seen.map.owner(one.some(0)[0]), NodeId(1_002), "what took place it has read");
    cluster.line.set(Mode::Open);
    one.ends_outlived(LIFE + 1);
}

#[test]
fn an_etcd_that_is_away_is_waited_for() {
    let mut cluster = Cluster::begin();
    let one = cluster.backend(1_000);
    cluster.server.kill();
    one.commit(one.some(0), 1_002);
    wait_until("it has noticed", || one.following.touch().reconnects > 2);
    cluster.server.start_again();
    assert!(matches!(one.done().0, Committed::As(_)));
    assert_eq!(cluster.owners(&one.some(0)), [1_002]);
}

#[test]
fn an_etcd_that_has_an_older_map_is_given_nothing() {
    let mut cluster = Cluster::begin();
    let one = cluster.backend(1_000);
    for at in [0, 3, 6, 9] {
        one.commit(one.some(at), 1_002);
        assert!(matches!(one.done().0, Committed::As(_)));
    }
    // It is made anew, as of before.
    cluster.server.kill();
    cluster.server.forget();
    cluster.server.start_again();
    let mut raw = Raw::of(&cluster.server);
    raw.put(LIFE_OF_1000, LIFE.to_string());
    raw.put(VIEW, one.seen.file.print_without_secret().expect("a file"));
    raw.put(MAP, one.seen.map.encode());
    one.commit(one.some(12), 1_002);
    loop {
        match one.next() {
            Heard::Done(committed) => break assert_eq!(committed, Committed::Not),
            Heard::Told(Told::View(_) | Told::Unreadable(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(raw.get(MAP).expect("it is there").value(), one.seen.map.encode());
}

#[test]
#[should_panic(expected = "two commits at a time")]
fn a_second_one_at_a_time_is_a_mistake() {
    let cluster = Cluster::begin();
    let one = cluster.behind_the_line();
    cluster.line.set(Mode::Silent);
    for _ in 0..2 {
        one.commit(one.some(0), 1_002);
    }
}

#[test]
fn who_ends_does_not_wait_for_what_it_has_asked_for() {
    let cluster = Cluster::begin();
    let one = cluster.behind_the_line();
    cluster.line.set(Mode::Silent);
    one.commit(one.some(0), 1_002);
    let Backend { following, heard, .. } = one;
    drop(following);
    assert!(heard.try_iter().all(|heard| !matches!(heard, Heard::Done(_))));
}

/// Of a map only the newest need be told, but none after a newer one, and each view with one that has its owners.
#[test]
fn what_is_told_rises_and_fits_whatever_comes_first() {
    let mut cluster = Cluster::begin();
    let one = cluster.backend(1_000);
    let other = cluster.behind_the_line();
    cluster.line.set(Mode::Cut);
    wait_until("it has noticed", || other.following.touch().reconnects > 0);
    // Each of these gets something, and the one before has nothing any more.
    for (at, id) in (1_003..1_009).enumerate() {
        cluster.etcd.add(&[backend(id, None)]).expect("it comes");
        cluster.give(&one.some(3 * at), id);
        if at > 0 {
            cluster.give(&one.some(3 * (at - 1)), 1_000);
            cluster.etcd.remove(&[id - 1]).expect("it goes");
        }
    }
    cluster.line.set(Mode::Open);
    let last = cluster.view();
    for follower in [one, other] {
        while !matches!(follower.next(), Heard::Told(Told::View(view)) if *view == last) {}
    }
}
