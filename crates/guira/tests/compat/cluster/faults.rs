//! Faults of the network between the processes of a cluster, while clients are at work: what they saw can have been so, and when all is healed
//! everything is answered again, by the cache node too.
//!
//! `GUIRA_FAULTS_SEED` says what is drawn: what is lost, doubled and late, and what clients ask.

use std::time::Duration;

use guira_history::{Event, Violation, check};

use super::{
    members::{ACTS, BACKENDS, CACHE, CONTROLLER, GATEWAY, Members, Patience, is_answered, place_of, seed, victim},
    relay::Treatment,
    relayed::{Relayed, relayed, way},
    rising::Rising,
};
use crate::{
    book::{Act, Book, CLIENTS, STEPS_AN_ACT},
    condition::wait_for,
};

/// Acts of one key of which an order is looked for in vain.
const ACTS_MANY: usize = 200;

/// Bytes of a value that no datagram takes.
const LARGE_LEN: usize = 100_000;

/// How long a slow datagram is under way: so long that a lease counted from when it is heard of would be too long, and not so long that none is given
/// for updates that wait.
const SLOW: Duration = Duration::from_millis(200);

#[test]
fn a_network_that_loses_doubles_and_delays_costs_nothing_but_time() {
    let (seed, book) = (seed(), Book::of_a_cluster());
    let histories = relayed(seed, Patience::Long).survive(&book, seed, |members| {
        book.wait_for_acts(ACTS);
        members.wait_until_the_cache_serves();
        let ms = Duration::from_millis;
        let bad = Treatment { lost: 0.05, doubled: 0.05, delay: ms(0)..=ms(20), cut: false };
        members.relay().treat_all(&bad);
        members.wait_until_the_cache_serves();
        large_values_are_stored_and_read(members);
        book.wait_for_acts(ACTS);
        members.relay().treat_all(&Treatment { delay: ms(50)..=ms(200), ..bad });
        // As many as there are clients and more: some have waited for all that can happen to a request.
        book.wait_for_acts(8 * CLIENTS as u64);
        let counts = members.relay().all_counts();
        assert!(counts.lost > 0 && counts.doubled > 0 && counts.overtaken > 0, "{counts:?}");
        members.heal();
        book.wait_for_acts(ACTS);
    });
    an_old_value_would_be_found_out(&histories);
}

/// Of each backend, beyond a datagram: they go by streams, through the relay.
fn large_values_are_stored_and_read(members: &Members<Relayed>) {
    let mut client = members.connect();
    for (backend, letter) in BACKENDS.into_iter().zip(["x", "y", "z"]) {
        let (key, value) = (members.key_of(backend, "large"), letter.repeat(LARGE_LEN));
        let item = format!("{key} 0 0 {LARGE_LEN}\r\n{value}\r\n");
        client.expect(format!("set {item}").as_bytes(), b"STORED\r\n");
        let found = format!("VALUE {key} 0 {LARGE_LEN}\r\n{value}\r\nEND\r\n");
        client.expect(format!("get {key}\r\n").as_bytes(), found.as_bytes());
    }
}

/// An old value, put into the beginning of what was recorded where a later one was read.
fn an_old_value_would_be_found_out(histories: &[Vec<Event<Act>>]) {
    let is_found = |history: &Vec<Event<Act>>| {
        let history = beginning(history);
        let sets = |after: u64| {
            history.iter().filter(move |event| event.is_certain && event.invoked > after).filter_map(
                |event| match event.act {
                    Act::Set(value, Some(version)) => Some((value, version, event.returned?)),
                    _ => None,
                },
            )
        };
        let (value, version, written) = sets(0).next()?;
        let (_, _, replaced) = sets(written).next()?;
        let at = history.iter().position(|event| event.invoked > replaced && matches!(event.act, Act::Get(_)))?;
        let steps_max = STEPS_AN_ACT * history.len() as u64;
        assert_eq!(check(&Rising, &history, steps_max), Ok(()));
        let mut seeded = history.clone();
        seeded[at].act = Act::Get(Some((value, version)));
        assert!(matches!(check(&Rising, &seeded, steps_max), Err(Violation::Impossible { .. })), "{seeded:?}");
        Some(())
    };
    assert!(histories.iter().filter_map(is_found).count() > 0, "no key was written twice and then read");
}

/// What was known of a key at a moment, when all that was over was certain: so few acts that all their orders can be looked at.
fn beginning(history: &[Event<Act>]) -> Vec<Event<Act>> {
    let mut known: Vec<u64> = history.iter().map_while(|event| event.returned.filter(|_| event.is_certain)).collect();
    known.truncate(ACTS_MANY);
    let end = known.into_iter().max().unwrap_or(0);
    let begun = history.iter().filter(|event| event.invoked < end);
    begun
        .filter_map(|event| {
            if event.is_certain && event.returned.is_some_and(|returned| returned <= end) {
                return Some(event.clone());
            }
            let act = match event.act {
                Act::Set(value, _) => Act::Set(value, None),
                Act::Cas(value, expected, _) => Act::Cas(value, expected, None),
                Act::Delete(_) => Act::Delete(None),
                Act::Get(_) => return None,
            };
            Some(Event { returned: None, is_certain: false, act, ..*event })
        })
        .collect()
}

/// The backend and the gateway still see all: only that the lease ends keeps what is old from being served.
#[test]
fn a_cache_node_cut_off_from_a_backend_serves_nothing_old() {
    let (seed, book) = (seed(), Book::of_a_cluster());
    relayed(seed, Patience::Short).survive(&book, seed, |members| {
        book.wait_for_acts(ACTS);
        let victim = victim(members);
        let (there, back) = ((victim, CACHE), (CACHE, victim));
        let slow = Treatment { delay: SLOW..=SLOW, ..Treatment::GOOD };
        for (before, cut) in [(&slow, vec![there, back]), (&Treatment::GOOD, vec![there]), (&slow, vec![back])] {
            members.relay().treat(way(victim, CACHE), before);
            members.wait_until_the_cache_serves();
            members.wait_for_more(victim, "cached_keys", 0);
            let waits = members.number(victim, "lease_waits");
            cut.into_iter().for_each(|(from, to)| members.cut(from, to));
            // A change of what the cache node has waits until that serves it no longer.
            members.wait_for_more(victim, "lease_waits", waits);
            book.wait_for_acts(ACTS);
            members.heal();
            members.wait_for_more(victim, "cached_keys", 0);
        }
    });
}

#[test]
fn who_is_cut_off_from_a_backend_is_refused_and_told_nothing_wrong() {
    let (seed, book) = (seed(), Book::of_a_cluster());
    relayed(seed, Patience::Short).survive(&book, seed, |members| {
        book.wait_for_acts(ACTS);
        let victim = victim(members);
        let cold = members.key_of(victim, "cold");
        let others = BACKENDS.into_iter().filter(|backend| *backend != victim);
        let elsewhere: Vec<String> = others.map(|backend| members.key_of(backend, "cold")).collect();
        let mut client = members.connect();
        for ways in [vec![(GATEWAY, victim), (victim, GATEWAY)], vec![(GATEWAY, victim)], vec![(victim, GATEWAY)]] {
            members.wait_until_the_cache_serves();
            ways.iter().for_each(|(from, to)| members.cut(*from, *to));
            assert!(!is_answered(&mut client, &cold));
            assert!(elsewhere.iter().all(|key| is_answered(&mut client, key)));
            book.wait_for_refusals(CLIENTS as u64);
            members.heal();
            members.wait_until_all_is_answered();
            wait_for("this thread of the gateway hears of it", || is_answered(&mut client, &cold).then_some(()));
            book.wait_for_acts(ACTS);
        }
    });
}

/// Rules that are old send a request to who has the key no longer, or does not know it yet: that one passes it on.
#[test]
fn a_cluster_without_its_controller_refuses_nothing() {
    let (seed, book) = (seed(), Book::of_a_cluster());
    relayed(seed, Patience::Long).survive(&book, seed, |members| {
        book.wait_for_acts(ACTS);
        members.wait_until_the_cache_serves();
        let refusals = book.refusals();
        // A key that is removed takes its rule along: there are moments without any.
        wait_for("the gateway has rules when its controller is cut off", || {
            members.relay().treat_all_of(place_of(CONTROLLER), &Treatment::CUT);
            let has_rules = members.number(GATEWAY, "routes") > 0;
            if !has_rules {
                members.heal();
            }
            has_rules.then_some(())
        });
        book.wait_for_acts(ACTS);
        members.kill(CACHE);
        book.wait_for_acts(ACTS);
        members.start(CACHE);
        // By rules of the cache node's last life, which the gateway still goes by.
        members.wait_until_the_cache_serves();
        book.wait_for_acts(ACTS);
        assert_eq!(book.refusals(), refusals);
        assert!(members.number(GATEWAY, "routes") > 0);
        members.heal();
        book.wait_for_acts(ACTS);
    });
}

#[test]
fn a_cut_and_a_kill_together_lose_nothing_and_bring_back_nothing_old() {
    let (seed, book) = (seed(), Book::of_a_cluster());
    relayed(seed, Patience::Short).survive(&book, seed, |members| {
        book.wait_for_acts(ACTS);
        let victim = victim(members);
        let begin = |members: &Members<Relayed>| {
            members.wait_until_the_cache_serves();
            members.wait_for_more(victim, "cached_keys", 0);
        };
        // The backend's next life cannot ask what the cache node has, which serves what the last one gave until its lease is over.
        begin(members);
        members.cut_both(CACHE, victim);
        members.kill(victim);
        members.start(victim);
        members.wait_for_more(victim, "operations", 0);
        book.wait_for_acts(ACTS);
        members.heal();
        book.wait_for_acts(ACTS);
        // The cache node's next life cannot say that it has nothing.
        begin(members);
        members.cut_both(CACHE, victim);
        members.kill(CACHE);
        members.start(CACHE);
        book.wait_for_acts(ACTS);
        members.heal();
        book.wait_for_acts(ACTS);
        // Changes that were made, and of which nobody heard: of unknown outcome once their backend is another.
        begin(members);
        members.cut(victim, GATEWAY);
        book.wait_for_refusals(1);
        members.kill(victim);
        members.start(victim);
        members.heal();
        book.wait_for_acts(ACTS);
    });
}
