//! A member follows a real etcd that is killed, forgets, revokes leases, and is behind lines that are cut.

use std::time::{Duration, Instant};

use guira_cluster::{Epoch, Incarnation};
use guira_etcd::{Etcd, EtcdError, Told, View};
use guira_switched::{Role, StaticFile};

use crate::support::{
    PATIENCE, Raw, SECRET, Server, as_of, cache, cluster, connect, gateway,
    line::{Line, Mode},
    member::{LIFE, LONG, Member, SHORT},
    wait_until,
};

const VIEW: &str = "/guira/guira/view";

/// A cache node.
const ME: u16 = 100;
const MY_KEY: &str = "/guira/guira/alive/100";

/// Another one.
const OTHER: u16 = 101;
const OTHER_KEY: &str = "/guira/guira/alive/101";

/// Member [`ME`], who has read what [`cluster`] is.
fn follow(etcd: Etcd, seen: Epoch, lease: Duration) -> Member {
    Member::follow_as(ME, etcd, seen, lease)
}

fn is_alive(etcd: &Etcd) -> bool {
    let members = etcd.members().expect("it is there");
    let me = members.into_iter().find(|known| known.member.id == ME).expect("a member");
    me.alive.is_some_and(|alive| alive.life == Incarnation(LIFE))
}

/// An etcd with a cluster in it, who looks at it, and a member that has said that it is alive.
fn begin(lease: Duration) -> (Server, Etcd, Member) {
    let server = Server::start();
    let etcd = server.etcd("guira");
    let seen = etcd.create(&cluster("guira")).expect("it is made");
    let member = follow(server.etcd("guira"), seen, lease);
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
    views.push(etcd.remove(&[101]).expect("it goes").0);
    views.iter().for_each(|view| member.is_told(view));
    member.was_told_all();
}

#[test]
fn a_member_is_told_of_what_came_between_that_it_read_and_that_it_follows() {
    let server = Server::start();
    let etcd = server.etcd("guira");
    let seen = etcd.create(&cluster("guira")).expect("it is made");
    let views = [10_001, 10_002].map(|id| etcd.add(&[gateway(id)]).expect("it comes"));
    let member = follow(server.etcd("guira"), seen, LONG);
    views.iter().for_each(|view| member.is_told(view));
    let last = etcd.remove(&[10_001]).expect("it goes").0;
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
fn who_loses_one_lease_after_the_other_turns_to_etcd_anew_and_is_alive() {
    let (server, etcd, member) = begin(LONG);
    let mut raw = Raw::of(&server);
    for lost in 1..=4 {
        let lease = raw.get(MY_KEY).expect("it is alive").lease();
        raw.revoke_all();
        wait_until("it is alive again", || raw.get(MY_KEY).is_some_and(|said| said.lease() != lease));
        let touch = member.following.touch();
        // None of them was kept: a third of it has not gone by.
        assert!(touch.leases_lost >= lost && touch.reconnects >= lost - 1, "{lost}: {touch:?}");
    }
    let view = etcd.add(&[cache(102)]).expect("it comes");
    member.is_told(&view);
    member.was_told_all();
}

#[test]
fn a_member_stays_alive_for_longer_than_a_lease() {
    let (server, etcd, member) = begin(SHORT);
    let mut raw = Raw::of(&server);
    // A machine that stalls for a lease loses it: then it is looked once more.
    wait_until("the lease is kept for three times as long", || {
        let (said, lost) = (raw.get(MY_KEY), member.following.touch().leases_lost);
        // A lease that nobody keeps runs out meanwhile.
        let other = raw.lease_another(3);
        wait_until("the other lease has run out", || !raw.leases().contains(&other));
        let revision = |said: Option<etcd_client::KeyValue>| said.map(|said| said.mod_revision());
        let (before, after) = (revision(said), revision(raw.get(MY_KEY)));
        before.is_some() && before == after && member.following.touch().leases_lost == lost
    });
    wait_until("it is alive, and in touch", || is_alive(&etcd) && member.following.is_in_touch());
}

#[test]
fn who_is_out_of_touch_is_told_why_and_when_it_is_over() {
    let (mut server, etcd, member) = begin(SHORT);
    server.kill();
    let of_touch = || member.told.recv_timeout(PATIENCE).expect("it is told");
    // Of a stalled machine it may have been told before.
    let why = loop {
        match of_touch() {
            Told::OutOfTouch(why) => break why,
            Told::InTouch => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(!why.is_empty() && !why.contains('\n'), "{why}");
    let reconnects = member.following.touch().reconnects;
    wait_until("it has tried again", || member.following.touch().reconnects > reconnects + 2);
    server.start_again();
    assert_eq!(of_touch(), Told::InTouch);
    wait_until("it is alive", || is_alive(&etcd));
}

#[test]
fn views_are_heard_while_etcd_has_no_space_for_leases() {
    let server = Server::start();
    let etcd = server.etcd("guira");
    let seen = etcd.create(&cluster("guira")).expect("it is made");
    let view = etcd.add(&[cache(102)]).expect("it comes");
    let mut raw = Raw::of(&server);
    raw.set_full(true);
    let member = follow(server.etcd("guira"), seen, SHORT);
    member.is_told_that_it_may_not_say("space exceeded");
    member.is_told(&view);
    // What is deleted needs no space, and is heard in the same session: it is watched.
    raw.delete(VIEW);
    member.is_told_a_line("not in etcd any more");
    assert!(raw.leases().is_empty());
    raw.set_full(false);
    wait_until("it is alive", || raw.get(MY_KEY).is_some());
    assert_eq!(member.next(), Told::Said);
    let again = etcd.create(&cluster("guira")).expect("it is made");
    assert!(matches!(member.next(), Told::View(view) if view.epoch == again));
    member.was_told_all();
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
    let member = follow(connect(&place).expect("it answers"), seen, LONG);
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
    let view = etcd.remove(&[10_001]).expect("it goes").0;
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
    let view = etcd.remove(&[10_001]).expect("it goes").0;
    member.is_told(&view);
    member.was_told_all();
}

#[test]
fn a_cluster_that_was_deleted_and_made_anew_meanwhile_is_followed() {
    let (server, line, etcd, member) = begin_and_cut();
    let mut raw = Raw::of(&server);
    raw.delete(VIEW);
    let again = etcd.create(&cluster("guira")).expect("it is made");
    raw.put("/somebody/else", "");
    raw.compact();
    line.set(Mode::Open);
    assert!(matches!(member.next(), Told::View(view) if view.epoch == again));
    let view = etcd.add(&[cache(102)]).expect("it comes");
    member.is_told(&view);
    member.was_told_all();
}

#[test]
fn a_member_whose_host_falls_silent_turns_to_another() {
    let server = Server::start();
    let line = Line::to(server.address());
    let etcd = server.etcd("guira");
    let seen = etcd.create(&cluster("guira")).expect("it is made");
    let place = format!("{},{}/guira", line.address(), server.address()).parse().expect("a place");
    let member = follow(connect(&place).expect("it answers"), seen, SHORT);
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

/// Puts a view as somebody does who does not ask whether it may be.
fn put(raw: &mut Raw, change: impl FnOnce(&mut StaticFile)) -> View {
    let mut file = cluster("guira");
    change(&mut file);
    let revision = raw.put(VIEW, file.print_without_secret().expect("a file"));
    as_of(revision.cast_unsigned(), file)
}

fn at(file: &mut StaticFile, id: u16) -> &mut guira_switched::Member {
    file.members.iter_mut().find(|member| member.id == id).expect("a member")
}

#[test]
fn a_member_that_is_elsewhere_or_of_another_role_in_a_view_is_removed() {
    for change in [
        |file: &mut StaticFile| at(file, ME).address.set_port(9),
        |file: &mut StaticFile| {
            // What was its backend has another home.
            at(file, 1_000).role = at(file, 1_001).role.clone();
            at(file, ME).role = gateway(ME).role;
        },
    ] {
        let (server, _etcd, member) = begin(LONG);
        let mut raw = Raw::of(&server);
        let other = put(&mut raw, |file| at(file, 101).address.set_port(9));
        member.is_told(&other);
        put(&mut raw, change);
        assert_eq!(member.next(), Told::Removed);
        member.has_ended();
    }
}

#[test]
fn a_view_with_another_controller_or_without_who_owns_something_is_not_followed() {
    let (server, etcd, member) = begin(LONG);
    let mut raw = Raw::of(&server);
    type Change = fn(&mut StaticFile);
    let changes: [(Change, &str); 2] = [
        (|file| at(file, 1_001).id = 1_002, "partitions are owned by 1001, no backends of the cluster"),
        (|file| at(file, 1).id = 2, "the controller does not come and go yet"),
    ];
    for (change, says) in changes {
        put(&mut raw, change);
        member.is_told_a_line(says);
        let view = put(&mut raw, |_| {});
        member.is_told(&view);
        let refused = etcd.change(|file| {
            change(file);
            Ok(())
        });
        assert!(matches!(&refused, Err(EtcdError::Change(_) | EtcdError::Strangers { .. })), "{refused:?}");
        assert!(refused.is_err_and(|refused| refused.to_string().starts_with(says)));
    }
    // Another home is none.
    let view = put(&mut raw, |file| {
        if let Role::Backend(backend) = &mut at(file, 1_001).role {
            backend.cache = Some(100);
        }
    });
    member.is_told(&view);
    member.was_told_all();
}

#[test]
fn members_of_a_cluster_that_is_deleted_go_on() {
    let (server, etcd, member) = begin(LONG);
    Raw::of(&server).delete(VIEW);
    member.is_told_a_line("the cluster is not in etcd any more");
    let again = etcd.create(&cluster("guira")).expect("it is made");
    assert!(matches!(member.next(), Told::View(view) if view.epoch == again));
    member.was_told_all();
}

#[test]
fn a_later_life_ends_an_earlier_one_and_an_earlier_one_nothing() {
    let (server, etcd, member) = begin(LONG);
    let mut raw = Raw::of(&server);
    for earlier in [(LIFE - 1).to_string(), "no life".into()] {
        raw.put(MY_KEY, earlier);
        wait_until("it says so again", || is_alive(&etcd));
    }
    member.was_told_all();
    raw.put(MY_KEY, (LIFE + 1).to_string());
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
    raw.put(MY_KEY, (LIFE - 1).to_string());
    let member = follow(server.etcd("guira"), seen, LONG);
    wait_until("it is alive", || is_alive(&etcd));
    member.was_told_all();
    drop(member);
    raw.put(MY_KEY, (LIFE + 1).to_string());
    let member = follow(server.etcd("guira"), seen, LONG);
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
    let revision = raw.put(VIEW, good.as_str());
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
    let begun = Instant::now();
    drop(member);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

#[test]
fn an_etcd_that_has_forgotten_all_removes_nobody() {
    let (mut server, etcd, member) = begin(SHORT);
    let last = etcd.add(&[cache(102)]).expect("it comes");
    member.is_told(&last);
    server.kill();
    server.forget();
    server.start_again();
    member.is_told_a_line(&format!("are not heard until etcd is past revision {}: start", last.epoch.0));
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
    member.is_told_made(again);
    let view = etcd.add(&[cache(102)]).expect("it comes");
    member.is_told(&view);
    member.was_told_all();
}

#[test]
fn who_was_cut_off_while_etcd_lost_all_is_not_removed_whatever_others_have_said_since() {
    let (mut server, line, etcd, cut_off) = begin_and_cut();
    let seen = etcd.read(SECRET).expect("it is there").epoch;
    let other = Member::follow_as(OTHER, server.etcd("guira"), seen, SHORT);
    let mut raw = Raw::of(&server);
    wait_until("the other one is alive", || raw.get(OTHER_KEY).is_some());
    server.kill();
    server.forget();
    server.start_again();
    let mut raw = Raw::of(&server);
    other.is_told_a_line("began anew");
    wait_until("the other one is alive", || raw.get(OTHER_KEY).is_some());
    // It says so again and again, until the revision is beyond all that the one that is cut off has seen.
    while raw.get(OTHER_KEY).is_none_or(|said| said.mod_revision() < 20) {
        raw.delete(OTHER_KEY);
        wait_until("the other one is alive", || raw.get(OTHER_KEY).is_some());
    }
    line.set(Mode::Open);
    cut_off.is_told_a_line("the cluster is not in etcd any more");
    wait_until("it is alive", || raw.get(MY_KEY).is_some());
    let again = etcd.create(&cluster("guira")).expect("it is made");
    for member in [&cut_off, &other] {
        member.is_told_made(again);
        member.was_told_all();
    }
}

#[test]
fn an_etcd_that_is_behind_what_was_seen_of_it_has_gone_back_though_no_view_is_missed() {
    let (mut server, etcd, member) = begin(SHORT);
    let seen = etcd.read(SECRET).expect("it is there").epoch;
    // Each time that it is alive again raises what it has seen.
    let mut raw = Raw::of(&server);
    for _ in 0..10 {
        raw.delete(MY_KEY);
        wait_until("it is alive again", || is_alive(&etcd));
    }
    server.kill();
    server.forget();
    server.start_again();
    // As a cluster that is made anew at once is, at the very revision.
    let mut raw = Raw::of(&server);
    while raw.put("/somebody/else", "").cast_unsigned() <= seen.0 {}
    member.is_told_a_line(&format!("are not heard until etcd is past revision {}: start", seen.0));
    let again = etcd.create(&cluster("guira")).expect("it is made");
    member.is_told_made(again);
    member.was_told_all();
}
