//! An etcd that wants to know who asks, and one that shows who it is; and one of several.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Instant,
};

use guira_cluster::Epoch;
use guira_etcd::{Access, CertificateFiles, Etcd, EtcdError, Known, Place, Tls, Told, User, View};
use tempfile::TempDir;

use crate::support::{
    Raw, SECRET, Server, cache,
    certificates::{CLIENT, Certificates},
    cluster,
    member::{LONG, Member, SHORT},
    server::TOKEN_LASTS,
    users::{PASSWORD, READER, STRANGER, USER, Users},
    wait_until,
};

const NAME: &str = "guira";

/// Who follows.
const ME: u16 = 10_000;

fn over_tls(ca: &Path, certificate: Option<CertificateFiles>) -> Access {
    Access { tls: Some(Tls { ca: ca.to_owned(), certificate }), user: None }
}

fn follow(etcd: Etcd, seen: Epoch) -> Member {
    Member::follow_as(ME, etcd, seen, LONG)
}

#[track_caller]
fn is_refused(place: &Place, access: &Access, with: &str) -> EtcdError {
    let error = Etcd::connect(place, access).expect_err("it is refused");
    let line = error.to_string();
    assert!(line.contains(with) && !line.contains('\n'), "{line}");
    error
}

/// A cache node that is not there comes. Whoever leads may just have been killed: then it is tried again.
fn adds(etcd: &Etcd, id: u16) -> View {
    wait_until("it comes", || match etcd.add(&[cache(id)]) {
        Ok(_) => true,
        // Of an attempt before it was not known whether it was done.
        Err(EtcdError::Change(why)) => why.contains("is there already"),
        Err(EtcdError::Unreachable { .. } | EtcdError::Unknown(_)) => false,
        Err(other) => panic!("{other}"),
    });
    etcd.read(SECRET).expect("it is there")
}

fn is_alive(etcd: &Etcd) -> bool {
    let is_me = |known: &Known| known.member.id == ME && known.alive.is_some();
    etcd.members().is_ok_and(|known| known.iter().any(is_me))
}

/// It says so once that is forgotten: it has a connection.
fn says_that_it_is_alive(etcd: &Etcd, server: &Server) {
    wait_until("it is alive", || is_alive(etcd));
    Raw::of(server).delete(&format!("/guira/{NAME}/alive/{ME}"));
    wait_until("it is alive again", || is_alive(etcd));
}

#[test]
fn over_tls_both_show_who_they_are_and_files_are_read_anew() {
    let certificates = Arc::new(Certificates::new());
    let mut server = Server::start_with(&certificates);
    let etcd = server.etcd(NAME);
    let made = etcd.create(&cluster(NAME)).expect("it is made");
    let member = follow(server.etcd(NAME), made);
    member.is_told(&adds(&etcd, 102));

    // Somebody else signs from now on. Who has read files once only is not let in any more, nor knows etcd.
    server.kill();
    certificates.renew();
    server.start_again();
    member.is_told(&adds(&etcd, 103));
    assert!(member.following.touch().reconnects > 0);
    member.was_told_all();
}

#[test]
fn whom_tls_does_not_let_in_is_told_so_in_a_line() {
    let certificates = Arc::new(Certificates::new());
    let server = Server::start_with(&certificates);
    let place = server.place(NAME);
    let unreachable = |access: &Access, with: &str| {
        let error = is_refused(&place, access, with);
        assert!(matches!(error, EtcdError::Unreachable { .. }), "{error:?}");
    };
    let (others, plain) = (Certificates::new(), Server::start());
    let (mine, ca, files) = (certificates.access(), certificates.ca(), certificates.files(CLIENT));
    // Each is tried for some seconds.
    thread::scope(|scope| {
        for (access, with) in [
            (Access::default(), "(does it want TLS?)"),
            (over_tls(&ca, None), "(does it want a certificate?)"),
            (over_tls(&others.ca(), Some(files)), "invalid peer certificate"),
            (over_tls(&ca, Some(others.files(CLIENT))), "cannot be reached"),
        ] {
            scope.spawn(move || unreachable(&access, with));
        }
        // An etcd that does without.
        scope.spawn(|| is_refused(&plain.place(NAME), &mine, "cannot be reached"));
    });
}

#[test]
fn a_file_that_will_not_do_is_named() {
    let certificates = Certificates::new();
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("it is written");
        path
    };
    let [empty, blank] = [write("empty", ""), write("blank", " \n")];
    let garbage = write("garbage", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n");
    let nowhere = folder.path().join("nowhere");
    let CertificateFiles { certificate, key } = certificates.files(CLIENT);
    let by = |ca: &Path| over_tls(ca, None);
    let as_one = |certificate: &Path, key: &Path| {
        let files = CertificateFiles { certificate: certificate.to_owned(), key: key.to_owned() };
        over_tls(&certificates.ca(), Some(files))
    };
    let with = |password: &Path| Access { user: user(USER, password.to_owned()), ..Access::default() };
    let (endless, long) = (Path::new("/dev/zero"), write("long", &"-".repeat((1 << 20) + 1)));
    for (access, path, why) in [
        (by(&nowhere), &*nowhere, "No such file"),
        (by(folder.path()), folder.path(), "it is not a file"),
        (by(endless), endless, "it is not a file"),
        (by(&long), &long, "more than 1048576 bytes"),
        (by(&empty), &empty, "no certificate"),
        (by(&garbage), &garbage, "certificate"),
        (as_one(&key, &key), &key, "no certificate"),
        (as_one(&garbage, &key), &garbage, "certificate"),
        (as_one(&certificate, &nowhere), &nowhere, "No such file"),
        (as_one(&certificate, &empty), &empty, "key"),
        (as_one(&certificate, &certificates.files("etcd").key), &certificates.files("etcd").key, "key"),
        (with(&nowhere), &nowhere, "No such file"),
        (with(&blank), &blank, "no password"),
    ] {
        // Nobody is asked.
        let place = "127.0.0.1:1".parse().expect("a place");
        let error = is_refused(&place, &access, why);
        assert!(error.to_string().starts_with(&format!("{}: ", path.display())), "{error}");
        assert!(matches!(error, EtcdError::Access(_)), "{error:?}");
    }
}

fn user(name: &str, password: PathBuf) -> Option<User> {
    Some(User { name: name.to_owned(), password })
}

/// A file with a password.
struct Password(TempDir);

impl Password {
    fn of(password: &str) -> Self {
        let file = Self(tempfile::tempdir().expect("a folder"));
        file.set(password);
        file
    }

    fn set(&self, password: &str) {
        fs::write(self.path(), format!("{password}\n")).expect("it is written");
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("password")
    }

    fn access_of(&self, name: &str) -> Access {
        Access { user: user(name, self.path()), ..Access::default() }
    }
}

#[test]
fn users_are_let_in_before_and_after_they_are_asked_for_and_passwords_change() {
    let server = Server::start();
    let mut users = Users::of(&server, NAME);
    let password = Password::of(PASSWORD);
    let connect = || Etcd::connect(&server.place(NAME), &password.access_of(USER)).expect("it answers");
    // Nobody is asked who he is yet.
    let etcd = connect();
    let made = etcd.create(&cluster(NAME)).expect("it is made");
    let member = follow(connect(), made);
    member.is_told(&adds(&etcd, 102));

    users.are_asked(&server);
    member.is_told(&adds(&etcd, 103));
    // What it has shown is void once users have changed: it shows its password again.
    wait_until("it is alive", || is_alive(&etcd));
    users.change_password(&server, "known to fewer");
    password.set("known to fewer");
    users.silence(&server, NAME, &[ME]);
    wait_until("it says again that it is alive", || is_alive(&etcd));
    // And once that has not been used for long, which etcd looks after now and then: it is turned to anew.
    let before = member.following.touch().reconnects;
    wait_until("what it has shown has run out", || {
        let shown = Instant::now();
        wait_until("it is not used for some time", || shown.elapsed() > TOKEN_LASTS * 2);
        users.silence(&server, NAME, &[ME]);
        wait_until("it says again that it is alive", || is_alive(&etcd));
        member.following.touch().reconnects > before
    });
    member.is_told(&adds(&etcd, 104));
    member.was_told_all();
}

#[test]
fn who_is_no_user_or_may_not_is_denied() {
    let server = Server::start();
    Users::of(&server, NAME).are_asked(&server);
    let [right, wrong] = [PASSWORD, "guessed"].map(Password::of);
    for (access, why) in [
        (Access::default(), "user name is empty"),
        (wrong.access_of(USER), "authentication failed"),
        (right.access_of("nobody"), "authentication failed"),
        (right.access_of(STRANGER), "permission denied"),
    ] {
        let error = is_refused(&server.place(NAME), &access, why);
        assert!(matches!(error, EtcdError::Denied(_)), "{error:?}");
    }
    // He may do what one cluster needs, and nothing of another.
    let other = is_refused(&server.place("other"), &right.access_of(USER), "permission denied");
    assert!(matches!(other, EtcdError::Denied(_)), "{other:?}");
    let etcd = Etcd::connect(&server.place(NAME), &right.access_of(USER)).expect("he may");
    etcd.create(&cluster(NAME)).expect("it is made");
}

#[test]
fn who_may_only_read_is_told_so_hears_of_views_and_is_alive_once_he_may() {
    let server = Server::start();
    let mut users = Users::of(&server, NAME);
    users.are_asked(&server);
    let password = Password::of(PASSWORD);
    let etcd = Etcd::connect(&server.place(NAME), &password.access_of(USER)).expect("he may");
    let made = etcd.create(&cluster(NAME)).expect("it is made");
    let reader = Etcd::connect(&server.place(NAME), &password.access_of(READER)).expect("he may");
    let told = reader.add(&[cache(102)]).expect_err("he may not");
    assert!(matches!(told, EtcdError::Denied(_)), "{told:?}");

    let member = Member::follow_as(ME, reader, made, SHORT);
    member.is_told_that_it_may_not_say("permission denied");
    member.is_told(&adds(&etcd, 102));
    users.let_the_reader_write();
    assert_eq!(member.next(), Told::Said);
    wait_until("it is alive", || is_alive(&etcd));
    member.is_told(&adds(&etcd, 103));
}

#[test]
fn a_certificate_says_who_asks() {
    let certificates = Arc::new(Certificates::new());
    let server = Server::start_with(&certificates);
    let mut users = Users::of(&server, NAME);
    users.add_certified(CLIENT);
    users.are_asked(&server);
    let etcd = server.etcd(NAME);
    let made = etcd.create(&cluster(NAME)).expect("it is made");
    let member = follow(server.etcd(NAME), made);
    member.is_told(&adds(&etcd, 102));
    let other = is_refused(&server.place("other"), &certificates.access(), "permission denied");
    assert!(matches!(other, EtcdError::Denied(_)), "{other:?}");
}

#[test]
fn one_of_three_that_is_killed_keeps_nobody_from_a_change() {
    let mut servers = Server::start_several(3, None);
    let hosts: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    let place: Place = format!("{}/{NAME}", hosts.join(",")).parse().expect("a place");
    let connect = || crate::support::connect(&place).expect("one of them answers");
    let etcd = connect();
    let made = etcd.create(&cluster(NAME)).expect("it is made");
    let member = Member::follow_as(ME, connect(), made, SHORT);
    // The one that leads is among them.
    for (number, id) in (0..3).zip(102..) {
        servers[number].kill();
        member.is_told(&adds(&etcd, id));
        says_that_it_is_alive(&etcd, &servers[(number + 1) % 3]);
        servers[number].start_again();
    }

    // When two are killed the one that is left does nothing for now, and nothing is lost.
    servers[0].kill();
    servers[1].kill();
    let told = etcd.add(&[cache(105)]).expect_err("most are away").to_string();
    assert!(!told.contains('\n'), "{told}");
    servers[1].start_again();
    wait_until("most are back", || etcd.members().is_ok());
    let last = adds(&etcd, 106);
    // Before that, perhaps, what was asked for when nobody could do it.
    while !matches!(member.next(), Told::View(view) if view.epoch == last.epoch) {}
    says_that_it_is_alive(&etcd, &servers[2]);
}
