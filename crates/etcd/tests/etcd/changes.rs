//! A cluster in a real etcd is made, read and changed, by several at a time and over lines that lose answers.

use std::{
    net::{Ipv4Addr, TcpListener},
    thread,
    time::{Duration, Instant},
};

use guira_cluster::Epoch;
use guira_etcd::{EtcdError, Place};
use guira_routing::NodeId;
use guira_switched::{FileError, StaticFile, StaticFileError};

use crate::support::{
    Raw, SECRET, Server, cache, cluster, connect, gateway,
    line::{Line, Mode},
    wait_until,
};

/// The key of the view of a cluster whose name is the usual one.
const VIEW: &str = "/guira/guira/view";

fn one_line(error: &EtcdError) -> String {
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn a_cluster_is_made_once_and_read_by_who_has_the_secret() {
    let server = Server::start();
    let etcd = server.etcd("shop");
    let file = cluster("shop");
    assert!(matches!(etcd.read(SECRET), Err(EtcdError::NoCluster(name)) if name == "shop"));
    assert!(matches!(etcd.members(), Err(EtcdError::NoCluster(_))));
    assert!(matches!(etcd.change(|_| Ok(())), Err(EtcdError::NoCluster(_))));
    let epoch = etcd.create(&file).expect("it is made");
    assert!(matches!(etcd.create(&file), Err(EtcdError::Exists(name)) if name == "shop"));
    let view = etcd.read(SECRET).expect("it is there");
    assert_eq!((view.epoch, view.file), (epoch, file.clone()));
    assert!(matches!(etcd.read("short"), Err(EtcdError::NotACluster(StaticFileError::File(FileError::Secret)))));
    let key = Raw::of(&server).get("/guira/shop/view").expect("it is there");
    assert!(!key.value_str().expect("text").contains(SECRET));
    assert_eq!(epoch, Epoch(key.mod_revision().cast_unsigned()));

    let members = etcd.members().expect("it is there");
    assert!(members.iter().map(|known| &known.member).eq(&file.members));
    assert!(members.iter().all(|known| known.alive.is_none()));
    // Another one beside it.
    assert!(matches!(server.etcd("other").read(SECRET), Err(EtcdError::NoCluster(_))));
}

#[test]
fn what_is_no_cluster_of_this_name_is_neither_made_nor_read() {
    let server = Server::start();
    let (etcd, mut raw) = (server.etcd("shop"), Raw::of(&server));
    let told = one_line(&etcd.create(&cluster("other")).expect_err("another name"));
    assert!(told.contains("\"other\"") && told.contains("shop"), "{told}");
    let none = StaticFile { members: Vec::new(), ..cluster("shop") };
    assert!(matches!(etcd.create(&none), Err(EtcdError::NotACluster(StaticFileError::Controllers(0)))));
    assert!(raw.get("/guira/shop/view").is_none());

    raw.put("/guira/shop/view", cluster("other").print_without_secret().expect("a file"));
    assert!(matches!(etcd.read(SECRET), Err(EtcdError::OtherName { .. })));
    raw.put("/guira/shop/view", "members = \"what?\"");
    let told = one_line(&etcd.read(SECRET).expect_err("no cluster"));
    assert!(told.starts_with("not a cluster: line 1"), "{told}");
    assert!(matches!(etcd.add(&[cache(102)]), Err(EtcdError::NotACluster(_))));
}

#[test]
fn members_come_and_go() {
    let server = Server::start();
    let etcd = server.etcd("guira");
    let made = etcd.create(&cluster("guira")).expect("it is made");
    let added = etcd.add(&[cache(102), gateway(10_001)]).expect("they come");
    assert!(added.epoch > made);
    assert_eq!(added.file.secret, "");
    assert!(matches!(etcd.add(&[cache(103), cache(102)]), Err(EtcdError::Change(_))));
    let removed = etcd.remove(&[100, 10_000]).expect("they go").0;
    assert!(removed.epoch > added.epoch);
    let view = etcd.read(SECRET).expect("it is there");
    assert_eq!(view.epoch, removed.epoch);
    let ids: Vec<u16> = view.file.members.iter().map(|member| member.id).collect();
    assert_eq!(ids, [1, 101, 1_000, 1_001, 102, 10_001]);
    let homes: Vec<Option<u16>> =
        view.file.members.iter().filter_map(|member| member.role.as_backend().map(|backend| backend.cache)).collect();
    assert_eq!(homes, [Some(102), Some(101)]);
    assert!(matches!(etcd.remove(&[10_001]), Err(EtcdError::Change(_))));
    let told = etcd.change(|file| {
        file.members.clear();
        Ok(())
    });
    assert!(matches!(told, Err(EtcdError::NotACluster(_))));
    assert_eq!(etcd.read(SECRET).expect("it is there"), view, "what is refused changes nothing");
}

#[test]
fn two_who_change_at_once_lose_nothing() {
    const EACH: u16 = 10;
    let server = Server::start();
    server.etcd("guira").create(&cluster("guira")).expect("it is made");
    let change = |first: u16| {
        let etcd = server.etcd("guira");
        move || {
            let mut epochs = Vec::new();
            for id in first..first + EACH {
                epochs.push(etcd.add(&[gateway(id)]).expect("it comes").epoch);
            }
            epochs
        }
    };
    let mut epochs = thread::scope(|scope| {
        let threads = [20_000, 30_000].map(|first| scope.spawn(change(first)));
        threads.map(|thread| thread.join().expect("no panic")).concat()
    });
    let file = server.etcd("guira").read(SECRET).expect("it is there").file;
    for id in (20_000..20_000 + EACH).chain(30_000..30_000 + EACH) {
        assert!(file.members.iter().any(|member| member.id == id), "{id} is lost");
    }
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!(epochs.len(), 2 * usize::from(EACH), "each change is its own");
}

#[test]
fn a_change_that_others_are_always_faster_than_ends() {
    let server = Server::start();
    let (etcd, other) = (server.etcd("guira"), server.etcd("guira"));
    etcd.create(&cluster("guira")).expect("it is made");
    let mut tries = 0;
    let told = etcd.change(|_| {
        tries += 1;
        // Not in the runtime of this one.
        thread::scope(|scope| {
            scope.spawn(|| other.add(&[gateway(20_000 + tries)]).expect("it comes"));
        });
        Ok(())
    });
    assert!(matches!(told, Err(EtcdError::ChangedMeanwhile { tries: 16 })), "{told:?}");
    assert_eq!(tries, 16);
}

fn both(line: &Line, server: &Server) -> Place {
    format!("{},{}/guira", line.address(), server.address()).parse().expect("a place")
}

#[test]
fn an_answer_that_is_lost_is_found_out_whatever_came_after() {
    let server = Server::start();
    let line = Line::to(server.address());
    let made = server.etcd("guira").create(&cluster("guira")).expect("it is made");
    let etcd = connect(&both(&line, &server)).expect("it answers");
    let mut raw = Raw::of(&server);
    let mut tries = 0;
    let view = thread::scope(|scope| {
        let change = scope.spawn(|| {
            etcd.change(|file| {
                tries += 1;
                line.set(Mode::Deaf);
                file.members.push(cache(102));
                Ok(())
            })
        });
        wait_until("it is done", || raw.get(VIEW).expect("it is there").version() == 2);
        server.etcd("guira").add(&[cache(103)]).expect("it comes");
        change.join().expect("no panic").expect("it was done")
    });
    let now = server.etcd("guira").read(SECRET).expect("it is there");
    assert!(made < view.epoch && view.epoch < now.epoch);
    assert_eq!((raw.get(VIEW).expect("it is there").version(), tries), (3, 1), "it was done once");
    assert!([102, 103].iter().all(|id| now.file.caches().is_node(NodeId(*id))));
}

#[test]
fn what_another_has_done_meanwhile_is_not_taken_for_ones_own() {
    let server = Server::start();
    let line = Line::to(server.address());
    server.etcd("guira").create(&cluster("guira")).expect("it is made");
    let etcd = connect(&both(&line, &server)).expect("it answers");
    let other = server.etcd("guira");
    let mut tries = 0;
    let view = etcd.change(|file| {
        tries += 1;
        if tries == 1 {
            line.set(Mode::Deaf);
            thread::scope(|scope| scope.spawn(|| other.add(&[cache(103)]).expect("it comes")).join().map(drop))
                .unwrap();
        }
        file.members.push(cache(102));
        Ok(())
    });
    let file = view.expect("it is done").file;
    assert_eq!(tries, 2);
    assert!([102, 103].iter().all(|id| file.caches().is_node(NodeId(*id))));
}

#[test]
fn what_nobody_can_say_is_said_to_be_so() {
    let server = Server::start();
    let line = Line::to(server.address());
    server.etcd("guira").create(&cluster("guira")).expect("it is made");
    let etcd = connect(&format!("{}/guira", line.address()).parse().expect("a place")).expect("it answers");
    let told = etcd.change(|file| {
        line.set(Mode::Deaf);
        file.members.push(cache(102));
        Ok(())
    });
    let told = told.expect_err("no answer comes");
    assert!(matches!(told, EtcdError::Unknown(_)), "{told:?}");
    one_line(&told);
    assert_eq!(Raw::of(&server).get(VIEW).expect("it is there").version(), 2, "it was done");
}

#[test]
fn who_cannot_be_reached_is_said_in_bounded_time() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("its address");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let silent = listener.local_addr().expect("its address");
    thread::scope(|scope| {
        for place in [format!("{closed}/guira"), format!("{silent},{closed}"), "no-such-host.invalid:1".into()] {
            scope.spawn(move || {
                let begun = Instant::now();
                let told = connect(&place.parse().expect("a place")).expect_err("nobody is there");
                assert!(matches!(told, EtcdError::Unreachable { .. }), "{told:?}");
                assert!(begun.elapsed() < Duration::from_secs(30), "{place}: {:?}", begun.elapsed());
                one_line(&told);
            });
        }
    });
}

#[test]
fn another_host_is_asked_when_the_first_is_silent_or_away() {
    let server = Server::start();
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("its address");
    let silent = Line::to(server.address());
    silent.set(Mode::Silent);
    let place = format!("{closed},{},{}/guira", silent.address(), server.address());
    let etcd = connect(&place.parse().expect("a place")).expect("one of them answers");
    etcd.create(&cluster("guira")).expect("it is made");
    assert_eq!(etcd.members().expect("it is there").len(), 6);
}
