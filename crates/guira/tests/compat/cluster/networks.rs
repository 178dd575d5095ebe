//! Members in network namespaces of their own, joined by a bridge: what is cut is cut by the kernel, between real addresses.
//!
//! ```text
//! the test, on the bridge
//!   port of 1 -- veth -- namespace of member 1
//!   port of 100 -- veth -- namespace of member 100 ...
//! ```
//! A test runs itself again in a namespace that has the bridge: as root, or as any user where user namespaces are allowed. Where neither is, it fails
//! and says what to do; `cargo xtask test` leaves it out there, and says that.
//!
//! Always true: a namespace lasts as long as the process that holds it, which ends when the test's process does, however that ends; links go with
//! their namespaces.

use std::{
    env, fs,
    io::ErrorKind,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::members::{
    ACTS, BACKENDS, CACHE, GATEWAY, IDS, Members, Patience, Place, is_answered, place_of, seed, victim,
};
use crate::{
    book::{Book, CLIENTS},
    condition::wait_for,
};

/// Set in a test that runs in a namespace of its own.
const INSIDE: &str = "GUIRA_TEST_IN_NAMESPACE";

/// The bridge's name, and a member's for its link.
const BRIDGE: &str = "bridge";
const LINK: &str = "member";

/// How a process gets a network namespace: with what root may do, or what anybody may in a user namespace.
const WAYS_IN: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];

/// Runs a program to its end; what it complained about, if it failed, or what to do if it is not there.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| {
        let what_to_do = if error.kind() == ErrorKind::NotFound { "; `make test` installs it" } else { "" };
        format!("{:?}: {error}{what_to_do}", command.get_program())
    })?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}: {complaints}", output.status)) }
}

fn ip(words: &str) {
    run(Command::new("ip").args(words.split(' '))).unwrap_or_else(|told| panic!("{told}"));
}

/// Runs a test of this name in a network namespace of its own.
fn in_a_namespace(name: &str, test: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        // With the test's thread that has started this process, and so with its process.
        set_parent_process_death_signal(Some(Signal::KILL)).expect("a signal");
        test();
        return;
    }
    let probe = ["ip", "link", "add", BRIDGE, "type", "bridge"];
    let tried: Vec<Result<(), String>> =
        WAYS_IN.iter().map(|way| run(Command::new("unshare").args(*way).args(probe))).collect();
    let Some(way) = WAYS_IN.iter().zip(&tried).find_map(|(way, tried)| tried.is_ok().then_some(way)) else {
        panic!(
            "not possible here: network namespaces with a bridge. Run it as root, or allow user namespaces; `make test` installs \
             what it needs, and leaves it out where it cannot be. {tried:?}"
        );
    };
    let path = format!("{}::{name}", module_path!().split_once("::").expect("below the test program's root").1);
    let mut command = Command::new("unshare");
    command.args(*way).arg(env::current_exe().expect("this program"));
    command.args(["--exact", &path, "--nocapture"]).env(INSIDE, "1").stdin(Stdio::null());
    let output = command.output().expect("it could be run a moment ago");
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success(), "{}: {}", output.status, said.join("\n"));
    assert!(said[0].contains("1 passed"), "it was run: {}", said[0]);
}

/// A namespace, for as long as this is there.
struct Namespace {
    holder: Child,
    /// Its holder reads this, and ends with it.
    _input: ChildStdin,
}

impl Namespace {
    fn new() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut holder = command.spawn().expect("it could be run a moment ago");
        let input = holder.stdin.take().expect("its input");
        let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).expect("a process of ours");
        wait_for("the holder has a namespace of its own", || {
            (of(&holder.id().to_string()) != of("self")).then_some(())
        });
        Self { holder, _input: input }
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id())).arg(program);
        command
    }

    fn ip(&self, words: &str) {
        run(self.command("ip").args(words.split(' '))).unwrap_or_else(|told| panic!("{told}"));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.holder.kill().ok();
        self.holder.wait().ok();
    }
}

/// Members' namespaces, by their places, joined by a bridge.
struct Bridged(Vec<Namespace>);

impl Bridged {
    fn new() -> Self {
        ip("link set lo up");
        ip(&format!("link add {BRIDGE} type bridge"));
        ip(&format!("address add {}/24 dev {BRIDGE}", host(254)));
        ip(&format!("link set {BRIDGE} up"));
        let joined = IDS.map(|id| {
            let (namespace, port) = (Namespace::new(), port(id));
            ip(&format!("link add {port} type veth peer name {LINK} netns {}", namespace.holder.id()));
            ip(&format!("link set {port} master {BRIDGE} up"));
            namespace.ip("link set lo up");
            namespace.ip(&format!("address add {}/24 dev {LINK}", address(id).ip()));
            namespace.ip(&format!("link set {LINK} up"));
            namespace
        });
        Self(joined.into())
    }

    /// From now on these do not hear of each other; everybody else hears both.
    fn part(one: u16, other: u16) {
        // A bridge passes nothing from one isolated port to another.
        [one, other].into_iter().for_each(|id| ip(&format!("link set {} type bridge_slave isolated on", port(id))));
    }

    fn join(one: u16, other: u16) {
        [one, other].into_iter().for_each(|id| ip(&format!("link set {} type bridge_slave isolated off", port(id))));
    }

    /// From now on nobody hears of this one.
    fn unplug(id: u16) {
        ip(&format!("link set {} down", port(id)));
    }

    fn plug_in(id: u16) {
        ip(&format!("link set {} up", port(id)));
    }
}

fn port(id: u16) -> String {
    format!("port{id}")
}

fn host(number: usize) -> String {
    format!("10.77.0.{number}")
}

fn address(id: u16) -> SocketAddr {
    SocketAddr::new(host(1 + place_of(id)).parse().expect("an address"), 7_000)
}

impl Place for Bridged {
    fn seen(&self, _: u16, whom: u16) -> SocketAddr {
        address(whom)
    }

    fn for_clients(&self) -> SocketAddr {
        SocketAddr::new(address(GATEWAY).ip(), 11_211)
    }

    fn command(&self, id: u16, program: PathBuf) -> Command {
        self.0[place_of(id)].command(program)
    }
}

#[test]
fn what_the_kernel_cuts_costs_answers_and_nothing_else() {
    in_a_namespace("what_the_kernel_cuts_costs_answers_and_nothing_else", || {
        let (seed, book) = (seed(), Book::of_a_cluster());
        Members::up(Bridged::new(), Patience::Short).survive(&book, seed, |members| {
            book.wait_for_acts(ACTS);
            let victim = victim(members);
            let (cold, lukewarm) = (members.key_of(victim, "cold"), members.key_of(victim, "lukewarm"));
            let elsewhere = BACKENDS.into_iter().find(|backend| *backend != victim).expect("there are three");
            let elsewhere = members.key_of(elsewhere, "cold");
            let mut client = members.connect();

            // The cache node from the backend: changes wait until its lease is over.
            members.wait_until_the_cache_serves();
            members.wait_for_more(victim, "cached_keys", 0);
            let waits = members.number(victim, "lease_waits");
            Bridged::part(CACHE, victim);
            members.wait_for_more(victim, "lease_waits", waits);
            assert!(is_answered(&mut client, &cold), "the gateway sees both");
            book.wait_for_acts(ACTS);
            Bridged::join(CACHE, victim);
            members.wait_for_more(victim, "cached_keys", 0);

            // The gateway from the backend.
            Bridged::part(GATEWAY, victim);
            assert!(!is_answered(&mut client, &cold));
            assert!(is_answered(&mut client, &elsewhere));
            book.wait_for_refusals(CLIENTS as u64);
            Bridged::join(GATEWAY, victim);
            members.wait_until_all_is_answered();
            wait_for("this thread of the gateway hears of it", || is_answered(&mut client, &cold).then_some(()));
            members.wait_until_the_cache_serves();

            // The backend from everybody.
            Bridged::unplug(victim);
            assert!(!is_answered(&mut client, &lukewarm));
            assert!(is_answered(&mut client, &elsewhere));
            book.wait_for_refusals(CLIENTS as u64);
            Bridged::plug_in(victim);
            members.wait_until_all_is_answered();
            book.wait_for_acts(ACTS);
        });
    });
}
