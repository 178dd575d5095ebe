//! Members in network namespaces of their own, joined by a bridge: what is cut is cut by the kernel, between real addresses.
//!
//! ```text
//! the test, on the bridge
//!   port of 1 -- veth -- namespace of member 1
//!   port of 100 -- veth -- namespace of member 100 ...
//! ```
//! A test runs itself again in a namespace that has the bridge (`guira_networks`).

mod routed;
mod wire;

use std::{net::SocketAddr, path::PathBuf, process::Command};

use guira_networks::{Namespace, in_a_namespace, ip};

use super::members::{
    ACTS, BACKENDS, CACHE, GATEWAY, IDS, Members, Patience, Place, is_answered, place_of, seed, victim,
};
use crate::{
    book::{Book, CLIENTS},
    condition::wait_for,
};

/// The bridge's name, and a member's for its link.
const BRIDGE: &str = "bridge";
const LINK: &str = "member";

/// Members' namespaces, by their places, joined by a bridge.
struct Bridged(Vec<Namespace>);

impl Bridged {
    fn new() -> Self {
        ip("link set lo up").expect("a link");
        ip(&format!("link add {BRIDGE} type bridge")).expect("a link");
        ip(&format!("address add {}/24 dev {BRIDGE}", host(254))).expect("a link");
        ip(&format!("link set {BRIDGE} up")).expect("a link");
        let joined = IDS.map(|id| {
            let (namespace, port) = (Namespace::new().expect("a namespace"), port(id));
            ip(&format!("link add {port} type veth peer name {LINK} netns {}", namespace.holder())).expect("a link");
            ip(&format!("link set {port} master {BRIDGE} up")).expect("a link");
            namespace.ip("link set lo up").expect("a link");
            namespace.ip(&format!("address add {}/24 dev {LINK}", address(id).ip())).expect("a link");
            namespace.ip(&format!("link set {LINK} up")).expect("a link");
            namespace
        });
        Self(joined.into())
    }

    /// From now on these do not hear of each other; everybody else hears both.
    fn part(one: u16, other: u16) {
        // A bridge passes nothing from one isolated port to another.
        [one, other].into_iter().for_each(|id| set_link(id, "type bridge_slave isolated on"));
    }

    fn join(one: u16, other: u16) {
        [one, other].into_iter().for_each(|id| set_link(id, "type bridge_slave isolated off"));
    }

    /// From now on nobody hears of this one.
    fn unplug(id: u16) {
        set_link(id, "down");
    }

    fn plug_in(id: u16) {
        set_link(id, "up");
    }
}

fn set_link(id: u16, words: &str) {
    ip(&format!("link set {} {words}", port(id))).expect("a link");
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
    in_a_namespace(module_path!(), "what_the_kernel_cuts_costs_answers_and_nothing_else", || {
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
