//! A member follows a real etcd that is killed, forgets, revokes leases, and is behind lines that are cut.
#![forbid(unsafe_code)]

mod support;

use std::{
    sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError},
    time::Duration,
};

use guira_cluster::{Epoch, Incarnation};
use guira_etcd::{Etcd, FollowOptions, Follower, Following, Told, View};
use guira_routing::NodeId;
use support::{
    PATIENCE, Raw, SECRET, Server, cache, cluster, gateway,
    line::{Line, Mode},
    wait_until,
};

const VIEW: &str = "/guira/guira/view";

/// A cache node.
const ME: u16 = 100;
const MY_KEY: &str = "/guira/guira/alive/100";

const LIFE: u64 = 1_000;

/// Longer than a test: what is done at once does not wait for a lease to run out.
const LONG: Duration = Duration::from_secs(600);

/// As short as may be: what etcd is asked each third of it is asked soon.
const SHORT: Duration = Duration::from_secs(1);

struct Member {
    following: Following,
    told: Receiver<Told>,
}

impl Member {
    fn follow(etcd: Etcd, seen: Epoch, lease: Duration) -> Self {
        let (tell, told) = mpsc::channel();
        let who = Follower { me: NodeId(ME), life: Incarnation(LIFE), seen, secret: SECRET.into() };
        let tell = move |what| drop(tell.send(what));
        let following = etcd.follow(who, FollowOptions { lease }, tell).expect("a thread");
        Self { following, told }
    }

    #[track_caller]
    fn next(&self) -> Told {
        self.told.recv_timeout(PATIENCE).expect("something is told")
    }

    #[track_caller]
    fn is_told(&self, view: &View) {
        match self.next() {
            Told::View(told) => assert_eq!((told.epoch, told.file.members), (view.epoch, view.file.members.clone())),
            other => panic!("{other:?}"),
        }
    }

    /// Nothing was told that was not asked for above.
    #[track_caller]
    fn was_told_all(&self) {
        assert_eq!(self.told.try_recv(), Err(TryRecvError::Empty));
    }

    /// What it was told was the last.
    #[track_caller]
    fn has_ended(&self) {
        assert_eq!(self.told.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
    }
}

fn is_alive(etcd: &Etcd) -> bool {
    let members = etcd.members().expect("it is there");
    let (_, alive) = members.into_iter().find(|(member, _)| member.id == ME).expect("a member");
    alive.is_some_and(|alive| alive.life == Incarnation(LIFE))
}

/// An etcd with a cluster in it, who looks at it, and a member that has said that it is alive.
fn begin(lease: Duration) -> (Server, Etcd, Member) {
    let server = Server::start();
    let etcd = server.etcd("guira");
    let seen = etcd.create(&cluster("guira")).expect("it is made");
    let member = Member::follow(server.etcd("guira"), seen, lease);
    wait_until("it is alive", || is_alive(&etcd));
    (server, etcd, member)
}

#[test]
fn a_member_is_told_of_each_view_in_order() {
    let (_server, etcd, member) = begin(LONG);
    wait_until("it is in touch", || member.following.is_in_touch());
    let mut views = Vec::new();
    for id in 10_001..10_006 {
        views.push(etcd.add(&[gateway(id)]).expect("it comes"));
    }
    views.push(etcd.remove(&[101]).expect("it goes"));
    views.iter().for_each(|view| member.is_told(view));
    member.was_told_all();
}

#[test]
fn a_member_is_told_of_what_came_between_that_it_read_and_that_it_follows() {
    let server = Server::start();
    let etcd = server.etcd("guira");
    let seen = etcd.create(&cluster("guira")).expect("it is made");
    let views = [10_001, 10_002].map(|id| etcd.add(&[gateway(id)]).expect("it comes"));
    let member = Member::follow(server.etcd("guira"), seen, LONG);
    views.iter().for_each(|view| member.is_told(view));
    let last = etcd.remove(&[10_001]).expect("it goes");
    member.is_told(&last);
    member.was_told_all();
}

#[test]
fn a_lease_that_was_revoked_changes_nothing_for_the_member() {
    let (server, etcd, member) = begin(LONG);
    let mut raw = Raw::of(&server);
    let lease = raw.get(MY_KEY).expect("it is alive").lease();
    raw.revoke_all();
    wait_until("it is alive again", || raw.get(MY_KEY).is_some_and(|said| said.lease() != lease));
    assert!(is_alive(&etcd));
    assert_eq!(raw.leases().len(), 1);
    assert_eq!(member.following.touch().leases_lost, 1);
    // The key alone.
    raw.delete(MY_KEY);
    wait_until("it is alive again", || is_alive(&etcd));
    assert_eq!(member.following.touch().leases_lost, 1);
    let view = etcd.add(&[cache(102)]).expect("it comes");
    member.is_told(&view);
    member.was_told_all();
    assert_eq!(member.following.touch().reconnects, 0);
}

#[test]
fn a_member_stays_alive_for_longer_than_a_lease() {
    let (server, etcd, member) = begin(SHORT);
    let mut raw = Raw::of(&server);
    let said = raw.get(MY_KEY).expect("it is alive");
    // A lease that nobody keeps runs out meanwhile.
    raw.lease_another(3);
    wait_until("the other lease has run out", || raw.leases().len() == 1);
    assert_eq!(raw.get(MY_KEY).expect("it is alive").mod_revision(), said.mod_revision());
    assert!(is_alive(&etcd) && member.following.is_in_touch());
    assert_eq!(member.following.touch().leases_lost, 0);
}

#[test]
fn an_etcd_that_is_killed_and_starts_again_is_followed_again() {
    let (mut server, etcd, member) = begin(SHORT);
    server.kill();
    wait_until("it is out of touch", || !member.following.is_in_touch());
    server.start_again();
    let view = etcd.add(&[cache(102)]).expect("it comes");
    member.is_told(&view);
    member.was_told_all();
    wait_until("it is alive", || is_alive(&etcd));
    wait_until("it is in touch", || member.following.is_in_touch());
    assert!(member.following.touch().reconnects > 0);
}

/// A member whose line to etcd was cut just now.
fn begin_and_cut() -> (Server, Line, Etcd, Member) {
    let server = Server::start();
    let line = Line::to(server.address());
    let etcd = server.etcd("guira");
    let seen = etcd.create(&cluster("guira")).expect("it is made");
    let place = format!("{}/guira", line.address()).parse().expect("a place");
    let member = Member::follow(Etcd::connect(&place).expect("it answers"), seen, LONG);
    wait_until("it is alive", || is_alive(&etcd));
    line.set(Mode::Cut);
    wait_until("it has noticed", || member.following.touch().reconnects > 0);
    (server, line, etcd, member)
}

#[test]
fn who_was_cut_off_is_told_of_each_view_in_between() {
    let (_server, line, etcd, member) = begin_and_cut();
    let views = [10_001, 10_002].map(|id| etcd.add(&[gateway(id)]).expect("it comes"));
    line.set(Mode::Open);
    views.iter().for_each(|view| member.is_told(view));
    let view = etcd.remove(&[10_001]).expect("it goes");
    member.is_told(&view);
    member.was_told_all();
    assert_eq!(member.following.touch().leases_lost, 0, "the lease of before is kept");
}

#[test]
fn who_was_cut_off_for_longer_than_etcd_remembers_reads_anew() {
    let (server, line, etcd, member) = begin_and_cut();
    etcd.add(&[gateway(10_001)]).expect("it comes");
    let last = etcd.add(&[gateway(10_002)]).expect("it comes");
    // And something that is no view, so that the last one is not kept as an event.
    let mut raw = Raw::of(&server);
    raw.put("/somebody/else", "");
    raw.compact();
    line.set(Mode::Open);
    member.is_told(&last);
    let view = etcd.remove(&[10_001]).expect("it goes");
    member.is_told(&view);
    member.was_told_all();
}

#[test]
fn a_cluster_that_was_deleted_and_made_anew_meanwhile_is_another() {
    let (server, line, etcd, member) = begin_and_cut();
    let mut raw = Raw::of(&server);
    raw.delete(VIEW);
    etcd.create(&cluster("guira")).expect("it is made");
    raw.put("/somebody/else", "");
    raw.compact();
    line.set(Mode::Open);
    assert_eq!(member.next(), Told::Removed);
    member.has_ended();
}

#[test]
fn a_member_whose_host_falls_silent_turns_to_another() {
    let server = Server::start();
    let line = Line::to(server.address());
    let etcd = server.etcd("guira");
    let seen = etcd.create(&cluster("guira")).expect("it is made");
    let place = format!("{},{}/guira", line.address(), server.address()).parse().expect("a place");
    let member = Member::follow(Etcd::connect(&place).expect("it answers"), seen, SHORT);
    wait_until("it is alive", || is_alive(&etcd));
    line.set(Mode::Silent);
    let view = etcd.add(&[cache(102)]).expect("it comes");
    member.is_told(&view);
    member.was_told_all();
    assert!(member.following.touch().reconnects > 0);
}

#[test]
fn who_is_removed_is_told_so_and_gives_up_its_lease() {
    let (server, etcd, member) = begin(LONG);
    let view = etcd.add(&[cache(102)]).expect("it comes");
    etcd.remove(&[ME]).expect("it goes");
    member.is_told(&view);
    assert_eq!(member.next(), Told::Removed);
    member.has_ended();
    wait_until("it is not alive", || Raw::of(&server).leases().is_empty());
    assert!(Raw::of(&server).get(MY_KEY).is_none());
}

#[test]
fn members_of_a_cluster_that_is_deleted_are_removed() {
    let (server, _etcd, member) = begin(LONG);
    Raw::of(&server).delete(VIEW);
    assert_eq!(member.next(), Told::Removed);
    member.has_ended();
}

#[test]
fn a_later_life_ends_an_earlier_one_and_an_earlier_one_nothing() {
    let (server, etcd, member) = begin(LONG);
    let mut raw = Raw::of(&server);
    for earlier in [(LIFE - 1).to_string(), "no life".into()] {
        raw.put(MY_KEY, &earlier);
        wait_until("it says so again", || is_alive(&etcd));
    }
    member.was_told_all();
    raw.put(MY_KEY, &(LIFE + 1).to_string());
    assert_eq!(member.next(), Told::Outlived { life: Incarnation(LIFE + 1) });
    member.has_ended();
    assert_eq!(raw.get(MY_KEY).expect("it is there").value(), (LIFE + 1).to_string().as_bytes(), "it stays");
}

#[test]
fn who_begins_overwrites_an_earlier_life_and_ends_before_a_later_one() {
    let server = Server::start();
    let etcd = server.etcd("guira");
    let seen = etcd.create(&cluster("guira")).expect("it is made");
    let mut raw = Raw::of(&server);
    raw.put(MY_KEY, &(LIFE - 1).to_string());
    let member = Member::follow(server.etcd("guira"), seen, LONG);
    wait_until("it is alive", || is_alive(&etcd));
    member.was_told_all();
    drop(member);
    raw.put(MY_KEY, &(LIFE + 1).to_string());
    let member = Member::follow(server.etcd("guira"), seen, LONG);
    assert_eq!(member.next(), Told::Outlived { life: Incarnation(LIFE + 1) });
    member.has_ended();
}

#[test]
fn a_view_that_cannot_be_read_is_told_once_and_the_next_one_as_ever() {
    let (server, etcd, member) = begin(LONG);
    let mut raw = Raw::of(&server);
    let good = raw.get(VIEW).expect("it is there").value_str().expect("text").to_owned();
    raw.put(VIEW, "no view");
    assert!(matches!(member.next(), Told::Unreadable(line) if line.starts_with("not a cluster: line 1")));
    let revision = raw.put(VIEW, &good);
    match member.next() {
        Told::View(view) => assert_eq!(view.epoch, Epoch(revision.cast_unsigned())),
        other => panic!("{other:?}"),
    }
    let view = etcd.add(&[cache(102)]).expect("it comes");
    member.is_told(&view);
    member.was_told_all();
}

#[test]
fn a_member_that_ends_is_not_alive_any_more_at_once() {
    let (server, etcd, member) = begin(LONG);
    drop(member);
    assert!(!is_alive(&etcd));
    assert!(Raw::of(&server).leases().is_empty());
}

#[test]
fn a_member_that_ends_while_etcd_is_away_does_not_wait_for_it() {
    let (mut server, _etcd, member) = begin(LONG);
    server.kill();
    wait_until("it has noticed", || member.following.touch().reconnects > 0);
    drop(member);
}

#[test]
fn an_etcd_that_has_forgotten_all_removes_nobody() {
    let (mut server, etcd, member) = begin(SHORT);
    let last = etcd.add(&[cache(102)]).expect("it comes");
    member.is_told(&last);
    server.kill();
    server.forget();
    server.start_again();
    assert!(matches!(member.next(), Told::Unreadable(line) if line.contains("began anew")));
    let mut raw = Raw::of(&server);
    wait_until("it says that it is alive", || raw.get(MY_KEY).is_some());
    // Nor when that there is nothing is read anew, at a revision that it had seen before.
    while raw.put("/somebody/else", "").cast_unsigned() <= last.epoch.0 {}
    let reconnects = member.following.touch().reconnects;
    server.kill();
    wait_until("it has noticed", || member.following.touch().reconnects > reconnects);
    wait_until("it is out of touch", || !member.following.is_in_touch());
    server.start_again();
    wait_until("it is in touch", || member.following.is_in_touch());
    member.was_told_all();
    // Until there is a view that is later than those it has seen.
    let again = etcd.create(&cluster("guira")).expect("it is made");
    assert!(matches!(member.next(), Told::View(view) if view.epoch == again));
    let view = etcd.add(&[cache(102)]).expect("it comes");
    member.is_told(&view);
    member.was_told_all();
}
