//! A cluster that three etcds keep, which let in whom they know alone: by TLS, and as a user of theirs.

use std::{fs, path::Path, process::Command, sync::Arc, thread};

use super::{
    etcd::{
        Server,
        certificates::{CLIENT, Certificates},
        users::{PASSWORD, USER, Users},
    },
    kept::{Clients, Cluster, answers, guira, local, member},
};
use crate::{
    condition::wait_for,
    server::{Process, free_port},
};

fn argument(name: &str, value: &Path) -> [String; 2] {
    [name.to_owned(), value.to_str().expect("text").to_owned()]
}

/// What it says to its end, in a line, which it has to come to by itself.
#[track_caller]
fn is_refused(command: Command, with: &str) {
    let ended = Process::start(command).end();
    let said = ended.stderr;
    assert!(!ended.status.success() && said.lines().count() == 1 && said.contains(with), "{said}");
}

#[test]
fn etcds_that_let_in_whom_they_know_are_killed_one_by_one_while_clients_are_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let certificates = Arc::new(Certificates::new());
    let etcds = Server::start_several(3, Some(&certificates));
    let mut users = Users::of(&etcds[0], "shop");
    users.are_asked(&etcds[0]);
    let password = folder.path().join("password");
    fs::write(&password, PASSWORD).expect("it is written");

    let files = certificates.files(CLIENT);
    let by_tls = [
        argument("--etcd-ca", &certificates.ca()),
        argument("--etcd-cert", &files.certificate),
        argument("--etcd-key", &files.key),
    ];
    let as_user = [["--etcd-user", USER].map(str::to_owned), argument("--etcd-password-file", &password)];
    let access: Vec<String> = by_tls.iter().chain(&as_user).flatten().cloned().collect();
    let listen = local(free_port());
    let mut cluster = Cluster::start_kept_by(etcds, access, listen);
    answers(listen);
    let coordinator = cluster.coordinator();
    let members = |access: &[[String; 2]]| {
        let mut command = guira(&["cluster", "members", "--coordinator", &coordinator]);
        command.args(access.iter().flatten());
        command
    };
    is_refused(members(&[]), "does it want TLS?");
    // A certificate of somebody who is no user.
    is_refused(members(&by_tls), "etcd does not let it");
    is_refused(members(&by_tls[..1]), "does it want a certificate?");

    let clients = Clients::of("hot", listen);
    thread::scope(|scope| {
        let clients = &clients;
        let over = clients.work(scope, listen);
        // Who is alive has a connection, and is known: it says so once that is forgotten.
        let are_alive = |cluster: &Cluster, ids: &[u64]| {
            wait_for("all are heard of", || (cluster.try_alive()? == ids).then_some(()));
        };
        for (etcd, cache) in (0..3).zip([101, 102, 103]) {
            cluster.etcds[etcd].kill();
            clients.some_more();
            cluster.adds_in_the_end(cache, &member(cache, "cache", ""));
            are_alive(&cluster, &[1, 100, cache.into(), 1_000, 1_001, 10_000]);
            users.silence(&cluster.etcds[(etcd + 1) % 3], "shop", &[1, 100, 1_000, 1_001, 10_000]);
            are_alive(&cluster, &[1, 100, cache.into(), 1_000, 1_001, 10_000]);
            cluster.removes_in_the_end(cache);
            cluster.etcds[etcd].start_again();
        }

        // All are killed, and who asks has another password and another certificate from then on.
        users.change_password(&cluster.etcds[0], "known to fewer");
        fs::write(&password, "known to fewer").expect("it is written");
        cluster.etcds.iter_mut().for_each(Server::kill);
        certificates.renew();
        clients.some_more();
        Server::start_all_again(&mut cluster.etcds);
        users.silence(&cluster.etcds[0], "shop", &[1, 100, 1_000, 1_001, 10_000]);
        cluster.adds_in_the_end(104, &member(104, "cache", ""));
        are_alive(&cluster, &[1, 100, 104, 1_000, 1_001, 10_000]);
        clients.some_more();
        drop(over);
    });
}

#[test]
fn what_is_said_of_no_etcd_is_told_in_a_line() {
    let node = |arguments: &[&str]| {
        let mut command = guira(&["node", "--id", "7"]);
        command.args(arguments);
        command
    };
    let of_a_file = ["--coordinator", "static:nowhere.toml", "--etcd-ca", "ca.pem"];
    is_refused(node(&of_a_file), "--etcd-... are of a cluster that is in etcd");
    let members = ["cluster", "members", "--coordinator", "etcd:127.0.0.1:1"];
    is_refused(guira(&[&members[..], &["--etcd-ca", "/is/not/there"]].concat()), "/is/not/there: No such file");
    for (arguments, missing) in [
        (["--etcd-user", "one"], "--etcd-password-file"),
        (["--etcd-password-file", "one"], "--etcd-user"),
        (["--etcd-cert", "one"], "--etcd-key"),
        (["--etcd-key", "one"], "--etcd-cert"),
    ] {
        let ended = Process::start(guira(&[&members[..], &arguments].concat())).end();
        assert!(!ended.status.success() && ended.stderr.contains(missing), "{}", ended.stderr);
    }
}
