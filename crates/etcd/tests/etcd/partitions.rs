//! Who owns which partitions, in a real etcd: it is made with the cluster, begun to be served by one life at a time, and backends come and go by it.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use guira_cluster::{Epoch, Incarnation};
use guira_etcd::{Etcd, EtcdError, Removal, Share, View};
use guira_routing::{NodeId, PARTITIONS, PartitionId, PartitionMap};
use guira_switched::{BackendRole, Member, Revision, Role, StaticFile};

use crate::support::{
    Raw, SECRET, Server, backend, cluster, connect, gateway,
    line::{Line, Mode},
    wait_until,
};

const VIEW: &str = "/guira/guira/view";
const MAP: &str = "/guira/guira/partitions";
const LIFE_OF_1000: &str = "/guira/guira/life/1000";

fn one_line(error: &EtcdError) -> String {
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

fn over(backends: &[u16]) -> PartitionMap {
    PartitionMap::over(&backends.iter().copied().map(NodeId).collect::<Vec<_>>()).expect("a map")
}

/// All that one backend owns is another's.
fn given(map: &PartitionMap, from: u16, to: u16) -> PartitionMap {
    map.with_owner(map.partitions_of(NodeId(from)), NodeId(to))
}

fn begin() -> (Server, Etcd, Raw) {
    let server = Server::start();
    let etcd = server.etcd("guira");
    etcd.create(&cluster("guira")).expect("it is made");
    let raw = Raw::of(&server);
    (server, etcd, raw)
}

#[test]
fn a_cluster_is_made_with_owners_of_all_partitions() {
    let (_server, etcd, mut raw) = begin();
    let (view, key) = (etcd.read(SECRET).expect("it is there"), raw.get(MAP).expect("it is there"));
    assert_eq!(*view.map, over(&[1_000, 1_001]));
    assert_eq!((key.value(), key.mod_revision()), (&view.map.encode()[..], view.epoch.0.cast_signed()));
    assert_eq!(view.revision, Revision(view.epoch.0));
    let shares = view.shares();
    assert_eq!((&shares.map, shares.revision, &shares.wanted), (&view.map, view.revision, &view.map));
    // A member that comes changes nothing in it.
    let view = etcd.add(&[gateway(10_001)]).expect("it comes");
    assert_eq!(view.revision, Revision(raw.get(MAP).expect("it is there").mod_revision().cast_unsigned()));
    assert!(view.epoch > Epoch(view.revision.0));
    assert_eq!(StaticFile { secret: SECRET.into(), ..view.file.clone() }, etcd.read(SECRET).expect("it is there").file);
}

#[test]
fn a_cluster_that_is_made_again_has_what_its_backends_own() {
    let (_server, etcd, mut raw) = begin();
    let map = given(&over(&[1_000, 1_001]), 1_000, 1_001);
    let revision = raw.put(MAP, map.encode());
    raw.delete(VIEW);
    etcd.create(&cluster("guira")).expect("it is made");
    let view = etcd.read(SECRET).expect("it is there");
    assert_eq!((&*view.map, view.revision), (&map, Revision(revision.cast_unsigned())));
    assert_eq!(*view.shares().wanted, over(&[1_000, 1_001]));

    raw.put(MAP, given(&over(&[1_000, 7, 8]), 1_000, 1_000).encode());
    raw.delete(VIEW);
    let told = etcd.create(&cluster("guira")).expect_err("who owns something is not there");
    assert!(matches!(&told, EtcdError::Earlier { owners, .. } if owners[..] == [NodeId(7), NodeId(8)]), "{told:?}");
    let told = one_line(&told);
    assert!(
        told.contains("earlier cluster guira, owned by 7, 8") && told.ends_with(&format!("delete {MAP}")),
        "{told}"
    );
    raw.put(MAP, "no map");
    let told = one_line(&etcd.create(&cluster("guira")).expect_err("nobody can say who owns what"));
    assert!(told.contains(MAP), "{told}");
    assert!(raw.get(VIEW).is_none());
    raw.delete(MAP);
    etcd.create(&cluster("guira")).expect("it is made");
    assert_eq!(*etcd.read(SECRET).expect("it is there").map, over(&[1_000, 1_001]));
}

#[test]
fn a_cluster_whose_owners_nobody_knows_is_not_read() {
    let (_server, etcd, mut raw) = begin();
    raw.delete(MAP);
    type IsIt = fn(&EtcdError) -> bool;
    let no_map = |error: &EtcdError| matches!(error, EtcdError::NoMap { .. });
    let no_one = |error: &EtcdError| matches!(error, EtcdError::NotAMap { .. });
    let strangers =
        |error: &EtcdError| matches!(error, EtcdError::Strangers { owners, .. } if owners[..] == [NodeId(7)]);
    for (what, is_it) in [("deleted", no_map as IsIt), ("no map", no_one), ("a stranger", strangers)] {
        match what {
            "no map" => drop(raw.put(MAP, "no map")),
            "a stranger" => drop(raw.put(MAP, over(&[1_000, 7]).encode())),
            _ => {}
        }
        let told = [
            etcd.read(SECRET).map(drop),
            etcd.members().map(drop),
            etcd.begin_life(NodeId(1_000), Incarnation(1), SECRET).map(drop),
            etcd.add(&[gateway(10_001)]).map(drop),
            etcd.remove(&[1_000]).map(drop),
        ];
        for told in told {
            let told = told.expect_err(what);
            assert!(is_it(&told) && one_line(&told).contains(MAP), "{what}: {told:?}");
        }
    }
}

#[test]
fn a_life_begins_unless_a_later_one_has() {
    let (_server, etcd, mut raw) = begin();
    let begin = |life| etcd.begin_life(NodeId(1_000), Incarnation(life), SECRET);
    let read = etcd.read(SECRET).expect("it is there");
    assert_eq!(begin(5).expect("the first"), read);
    let said = raw.get(LIFE_OF_1000).expect("it is there");
    assert_eq!((said.value(), said.lease()), (&b"5"[..], 0));
    begin(5).expect("the same");
    assert_eq!(raw.get(LIFE_OF_1000).expect("it is there").version(), 1);
    begin(6).expect("a later one");
    let told = begin(5).expect_err("an earlier one");
    let later = Incarnation(6);
    let is_it = |told: &EtcdError| matches!(told, EtcdError::Outlived { later: other, .. } if *other == later);
    assert!(is_it(&told) && one_line(&told).starts_with("member 1000 has begun a later life (6) than this one (5)"));
    assert_eq!(raw.get(LIFE_OF_1000).expect("it is there").value(), b"6");
    // What is no life is nobody's.
    raw.put(LIFE_OF_1000, "no life");
    begin(5).expect("one");
    // Others have lives of their own.
    etcd.begin_life(NodeId(1_001), Incarnation(1), SECRET).expect("the first");
    assert_eq!(raw.get(LIFE_OF_1000).expect("it is there").value(), b"5");
}

fn behind(line: &Line) -> Etcd {
    connect(&format!("{}/guira", line.address()).parse().expect("a place")).expect("it answers")
}

#[test]
fn a_later_life_is_not_overwritten_by_one_that_began_to_begin_before() {
    let (server, etcd, mut raw) = begin();
    let line = Line::to(server.address());
    let earlier = behind(&line);
    line.set_when_said(Mode::Held, "77777");
    thread::scope(|scope| {
        let told = scope.spawn(|| earlier.begin_life(NodeId(1_000), Incarnation(77_777), SECRET));
        wait_until("it begins", || line.is(Mode::Held));
        etcd.begin_life(NodeId(1_000), Incarnation(88_888), SECRET).expect("a later one");
        line.set(Mode::Open);
        let told = told.join().expect("no panic");
        assert!(matches!(told, Err(EtcdError::Outlived { .. })), "{told:?}");
    });
    assert_eq!(raw.get(LIFE_OF_1000).expect("it is there").value(), b"88888");
}

#[test]
fn owners_that_come_while_a_cluster_is_made_stay() {
    let server = Server::start();
    let (line, mut raw) = (Line::to(server.address()), Raw::of(&server));
    let etcd = behind(&line);
    let map = over(&[1_000]);
    line.set_within_a_map(Mode::Held);
    thread::scope(|scope| {
        let made = scope.spawn(|| etcd.create(&cluster("guira")));
        wait_until("it is made", || line.is(Mode::Held));
        raw.put(MAP, map.encode());
        line.set(Mode::Open);
        made.join().expect("no panic").expect("it is made");
    });
    let view = etcd.read(SECRET).expect("it is there");
    assert_eq!((&*view.map, raw.get(MAP).expect("it is there").version()), (&map, 1));
}

#[test]
fn of_lives_that_begin_at_once_the_last_is_the_latest() {
    let (server, _etcd, mut raw) = begin();
    let begin = |life| {
        let etcd = server.etcd("guira");
        move || etcd.begin_life(NodeId(1_000), Incarnation(life), SECRET).is_ok()
    };
    let begun = thread::scope(|scope| {
        let threads = [1, 2, 3, 4, 5, 6].map(|life| scope.spawn(begin(life)));
        threads.map(|thread| thread.join().expect("no panic"))
    });
    assert!(begun[5]);
    assert_eq!(raw.get(LIFE_OF_1000).expect("it is there").value(), b"6");
}

#[test]
fn a_life_whose_beginning_was_not_answered_begins_once() {
    let (server, _etcd, mut raw) = begin();
    let line = Line::to(server.address());
    let place = format!("{},{}/guira", line.address(), server.address()).parse().expect("a place");
    let etcd = connect(&place).expect("it answers");
    for (mode, life) in [(Mode::Deaf, 1), (Mode::Silent, 2)] {
        line.set(mode);
        etcd.begin_life(NodeId(1_000), Incarnation(life), SECRET).expect("it begins");
        assert_eq!(raw.get(LIFE_OF_1000).expect("it is there").version(), i64::try_from(life).expect("few"));
    }
}

fn share(etcd: &Etcd, id: u16) -> Option<Share> {
    let members = etcd.members().expect("it is there");
    members.into_iter().find(|known| known.member.id == id).expect("a member").share
}

#[test]
fn a_backend_comes_and_is_to_have_its_share() {
    let (_server, etcd, _raw) = begin();
    let view = etcd.add(&[backend(1_002, None)]).expect("it comes");
    assert_eq!((&*view.map, &*view.shares().wanted), (&over(&[1_000, 1_001]), &over(&[1_000, 1_001, 1_002])));
    let wanted = over(&[1_000, 1_001, 1_002]).partitions_of(NodeId(1_002)).count();
    assert_eq!(share(&etcd, 1_002), Some(Share { partitions: 0, wanted }));
    assert_eq!(share(&etcd, 100), None);
    let shares = [1_000, 1_001, 1_002].map(|id| share(&etcd, id).expect("a backend"));
    assert_eq!(shares.iter().map(|share| share.partitions).sum::<usize>(), PARTITIONS);
    assert_eq!(shares.iter().map(|share| share.wanted).sum::<usize>(), PARTITIONS);
    // It owns nothing yet.
    let (view, removals) = etcd.remove(&[1_002]).expect("it goes");
    assert_eq!((view.file.backends().len(), &removals[..]), (2, &[Removal::Gone][..]));
    assert!(etcd.add(&[gateway(1_002)]).is_err(), "its number is not another's");
    etcd.add(&[backend(1_002, None)]).expect("it is back");
}

#[test]
fn a_backend_leaves_until_it_owns_nothing() {
    let (_server, etcd, mut raw) = begin();
    let map = over(&[1_000, 1_001]);
    let partitions = map.partitions_of(NodeId(1_001)).count();
    let is_leaving = |view: &View| view.file.staying() == [NodeId(1_000)] && view.file.backends().len() == 2;
    for _ in 0..2 {
        let (view, removals) = etcd.remove(&[1_001]).expect("it leaves");
        assert_eq!(removals, [Removal::Leaving { partitions }]);
        assert!(is_leaving(&view) && is_leaving(&etcd.read(SECRET).expect("it is there")));
        assert_eq!(*view.shares().wanted, over(&[1_000]));
        assert_eq!(share(&etcd, 1_001), Some(Share { partitions, wanted: 0 }));
    }
    assert!(matches!(etcd.remove(&[1_000]), Err(EtcdError::Change(_))), "nobody would stay");
    raw.put(MAP, given(&map, 1_001, 1_000).with_owner([PartitionId(0)], NodeId(1_001)).encode());
    assert_eq!(etcd.remove(&[1_001]).expect("it leaves").1, [Removal::Leaving { partitions: 1 }]);
    raw.put(MAP, given(&map, 1_001, 1_000).encode());
    let (view, removals) = etcd.remove(&[1_001]).expect("it goes");
    assert_eq!((&removals[..], view.file.backends()), (&[Removal::Gone][..], vec![NodeId(1_000)]));
    assert_eq!(*etcd.read(SECRET).expect("it is there").map, over(&[1_000]).with_owner([], NodeId(1_000)));
}

#[test]
fn a_backend_that_leaves_may_stay_after_all() {
    let (_server, etcd, _raw) = begin();
    etcd.remove(&[1_001]).expect("it leaves");
    let view = etcd.add(&[backend(1_001, None)]).expect("it stays");
    assert_eq!(view.file.staying(), [NodeId(1_000), NodeId(1_001)]);
    assert_eq!(view.shares().wanted, view.map);
}

/// Who owns nothing when it is read may have been given something when it is to go.
#[test]
fn a_backend_that_is_given_something_meanwhile_does_not_go() {
    let (_server, etcd, mut raw) = begin();
    etcd.add(&[backend(1_002, None)]).expect("it comes");
    let map = over(&[1_000, 1_001]).with_owner([PartitionId(3)], NodeId(1_002));
    let mut tries = 0;
    let told = etcd.change(|file| {
        tries += 1;
        if tries == 1 {
            // Not in the runtime of this one.
            thread::scope(|scope| {
                scope.spawn(|| raw.put(MAP, map.encode()));
            });
        }
        file.members.retain(|member| member.id != 1_002);
        Ok(())
    });
    assert!(matches!(&told, Err(EtcdError::Strangers { owners, .. }) if owners[..] == [NodeId(1_002)]), "{told:?}");
    assert_eq!(tries, 2);
    assert_eq!(etcd.read(SECRET).expect("it is there").file.backends().len(), 3);
    assert_eq!(etcd.remove(&[1_002]).expect("it leaves").1, [Removal::Leaving { partitions: 1 }]);
}

#[test]
fn a_removal_whose_answer_is_lost_is_found_out_though_the_map_has_changed_since() {
    let (server, etcd, mut raw) = begin();
    etcd.add(&[backend(1_002, None)]).expect("it comes");
    let line = Line::to(server.address());
    let place = format!("{},{}/guira", line.address(), server.address()).parse().expect("a place");
    let other = connect(&place).expect("it answers");
    let map = over(&[1_000, 1_001]).with_owner([PartitionId(3)], NodeId(1_000));
    for (mode, is_done) in [(Mode::Deaf, true), (Mode::Silent, false)] {
        etcd.change(|file| {
            if file.member(NodeId(1_002)).is_none() {
                file.members.push(backend(1_002, None));
            }
            Ok(())
        })
        .expect("it is there");
        let versions = raw.get(VIEW).expect("it is there").version();
        let mut tries = 0;
        thread::scope(|scope| {
            let change = scope.spawn(|| {
                other.change(|file| {
                    tries += 1;
                    if tries == 1 {
                        line.set(mode);
                    }
                    file.members.retain(|member| member.id != 1_002);
                    Ok(())
                })
            });
            wait_until("it is asked for", || line.is(mode));
            if is_done {
                wait_until("it is done", || raw.get(VIEW).expect("it is there").version() > versions);
            }
            raw.put(MAP, map.encode());
            change.join().expect("no panic").expect("it is done");
        });
        assert_eq!(raw.get(VIEW).expect("it is there").version(), versions + 1);
        assert_eq!(tries, if is_done { 1 } else { 2 }, "{mode:?}");
        line.set(Mode::Open);
    }
    let homes = |file: &StaticFile| {
        let is_one = |role: &Role| matches!(role, Role::Backend(_));
        file.members.iter().filter(|member| is_one(&member.role)).count()
    };
    assert_eq!(homes(&etcd.read(SECRET).expect("it is there").file), 2);
}

/// A cluster in which 1002 stands by for 1000.
fn begin_with_a_standby() -> (Server, Etcd, Raw) {
    let server = Server::start();
    let etcd = server.etcd("guira");
    let mut file = cluster("guira");
    let on_cassandra = |standby_of, cache| {
        Role::Backend(BackendRole { store: "cassandra:h/a".into(), standby_of, cache, ..BackendRole::default() })
    };
    for member in file.members.iter_mut().filter(|member| member.id == 1_000) {
        member.role = on_cassandra(None, Some(100));
    }
    etcd.create(&file).expect("it is made");
    etcd.add(&[Member { role: on_cassandra(Some(1_000), None), ..backend(1_002, None) }]).expect("it comes");
    let raw = Raw::of(&server);
    (server, etcd, raw)
}

/// 1002 as it waits.
fn standby(etcd: &Etcd) -> Member {
    etcd.read(SECRET).expect("it is there").file.member(NodeId(1_002)).expect("it stands by").clone()
}

#[test]
fn who_stands_by_takes_over_all_at_one_revision_and_nothing_moves() {
    let (_server, etcd, mut raw) = begin_with_a_standby();
    let (before, standby) = (etcd.read(SECRET).expect("it is there"), standby(&etcd));
    assert_eq!((share(&etcd, 1_002), before.file.backends()), (None, vec![NodeId(1_000), NodeId(1_001)]));
    assert_eq!(*before.shares().wanted, *before.map, "who stands by is to have nothing");
    let taken = etcd.take_over(&standby, SECRET, || true).expect("it stands by");
    assert_eq!(*taken.map, given(&before.map, 1_000, 1_002));
    assert_eq!((taken.shares().wanted, taken.file.backends()), (taken.map.clone(), vec![NodeId(1_001), NodeId(1_002)]));
    assert_eq!(etcd.read(SECRET).expect("it is there"), taken);
    let [view, map] = [VIEW, MAP].map(|key| raw.get(key).expect("it is there").mod_revision());
    assert_eq!((view, map), (taken.epoch.0.cast_signed(), taken.revision.0.cast_signed()));
    assert_eq!(view, map);
    assert!(matches!(etcd.add(&[backend(1_000, None)]), Err(EtcdError::Change(_))), "its place is another's");
    // Who is back in its own place leaves and stays as any other.
    let on_cassandra = |standby_of| {
        Role::Backend(BackendRole {
            store: "cassandra:h/a".into(),
            standby_of,
            cache: Some(100),
            ..BackendRole::default()
        })
    };
    let first = Member { role: on_cassandra(Some(1_002)), ..backend(1_000, None) };
    let waits = etcd.add(&[first]).expect("it stands by").file.member(NodeId(1_000)).expect("it is there").clone();
    assert_eq!(waits.role.as_backend().expect("a backend").cache, None);
    let back = etcd.take_over(&waits, SECRET, || true).expect("it stands by");
    assert_eq!((&back.map, back.file.backends()), (&before.map, before.file.backends()));
    etcd.remove(&[1_000]).expect("it leaves");
    let stays = etcd.add(&[Member { role: on_cassandra(None), ..backend(1_000, None) }]).expect("it stays");
    assert_eq!(stays.file.staying(), before.file.staying());
}

#[test]
fn who_is_another_than_when_it_began_to_wait_takes_nothing_over() {
    let (_server, etcd, _raw) = begin_with_a_standby();
    let (before, standby) = (etcd.read(SECRET).expect("it is there"), standby(&etcd));
    let is_refused = |member: &Member| {
        let told = etcd.take_over(member, SECRET, || true).expect_err("it is none");
        assert!(one_line(&told).starts_with(&format!("member {}", member.id)), "{told}");
    };
    for other in [1_000, 1_001] {
        let told = etcd.take_over(before.file.member(NodeId(other)).expect("it is there"), SECRET, || true);
        assert!(one_line(&told.expect_err("it is none")).contains("it stands by for nobody"));
    }
    is_refused(&backend(7, None));
    let store = "cassandra:h/b".into();
    let other = BackendRole { store, standby_of: Some(1_001), ..BackendRole::default() };
    is_refused(&Member { role: Role::Backend(other), ..standby.clone() });
    assert_eq!(etcd.read(SECRET).expect("it is there"), before);
    etcd.take_over(&standby, SECRET, || true).expect("it stands by");
    is_refused(&standby);
}

#[test]
fn who_has_its_store_back_keeps_its_place() {
    let (server, etcd, _raw) = begin_with_a_standby();
    let (standby, before) = (standby(&etcd), etcd.read(SECRET).expect("it is there"));
    let begin = |life| etcd.begin_life(NodeId(1_000), Incarnation(life), SECRET).map(drop).expect("it begins");
    begin(1);
    // As soon as who stands by has found that it has the store it is asleep, and finds that it has not when it asks next.
    let is_first = AtomicBool::new(true);
    let has_store = || {
        let has = is_first.swap(false, Relaxed);
        if has {
            thread::scope(|scope| scope.spawn(|| begin(2)).join().expect("no panic"));
        }
        has
    };
    let taken = server.etcd("guira").take_over(&standby, SECRET, has_store);
    assert!(matches!(taken, Err(EtcdError::StoreLost)), "{taken:?}");
    assert_eq!(etcd.read(SECRET).expect("it is there"), before);
    etcd.take_over(&standby, SECRET, || true).expect("none begins after that");
}

#[test]
fn a_takeover_whose_answer_is_lost_is_found_out() {
    let (server, etcd, mut raw) = begin_with_a_standby();
    let (standby, before) = (standby(&etcd), etcd.read(SECRET).expect("it is there"));
    let versions = raw.get(VIEW).expect("it is there").version();
    let line = Line::to(server.address());
    let place = format!("{},{}/guira", line.address(), server.address()).parse().expect("a place");
    let other = connect(&place).expect("it answers");
    line.set_within_a_map(Mode::Deaf);
    let taken = other.take_over(&standby, SECRET, || true).expect("it stands by");
    assert!(line.is(Mode::Deaf));
    assert_eq!(raw.get(VIEW).expect("it is there").version(), versions + 1);
    assert_eq!((*taken.map).clone(), given(&before.map, 1_000, 1_002));
    assert_eq!(etcd.read(SECRET).expect("it is there"), taken);
}

#[test]
fn what_is_given_while_somebody_takes_over_goes_along() {
    let (server, etcd, mut raw) = begin_with_a_standby();
    let standby = standby(&etcd);
    let line = Line::to(server.address());
    let other = behind(&line);
    let map = etcd.read(SECRET).expect("it is there").map.with_owner((0..9).map(PartitionId), NodeId(1_000));
    line.set_within_a_map(Mode::Held);
    thread::scope(|scope| {
        let taken = scope.spawn(|| other.take_over(&standby, SECRET, || true));
        wait_until("it is put", || line.is(Mode::Held));
        raw.put(MAP, map.encode());
        line.set(Mode::Open);
        let taken = taken.join().expect("no panic").expect("it stands by");
        assert_eq!(*taken.map, given(&map, 1_000, 1_002));
        assert_eq!(etcd.read(SECRET).expect("it is there"), taken);
    });
}
