//! That the relay loses, doubles, delays and cuts what it is told to, and nothing else.

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    time::Duration,
};

use super::{Counts, Relay, Treatment, Way};
use crate::{
    cluster::loopback::Loopback,
    condition::{DEADLINE, wait_for},
};

const THERE: Way = Way { from: 0, to: 1 };
const BACK: Way = Way { from: 1, to: 0 };

/// Datagrams at a time: so few that no socket's buffer is full.
const MANY: u64 = 100;

/// Two sockets with a relay between them.
struct Two {
    relay: Relay,
    sockets: [UdpSocket; 2],
    loopback: Loopback,
}

impl Two {
    fn new() -> Self {
        let loopback = Loopback::claim();
        let real = [loopback.member(0), loopback.member(1)];
        let sockets = real.map(|address| UdpSocket::bind(address).expect("an address of ours"));
        sockets.iter().for_each(|socket| socket.set_nonblocking(true).expect("a socket that does not block"));
        Self { relay: Relay::between(&real, 7, |way| loopback.seen(way)), sockets, loopback }
    }

    fn send(&self, way: Way, number: u64) {
        self.sockets[way.from].send_to(&number.to_le_bytes(), self.loopback.seen(way)).expect("room for a few bytes");
    }

    /// A datagram that has arrived this way, if one has.
    fn heard(&self, way: Way) -> Option<u64> {
        let mut bytes = [0; 8];
        match self.sockets[way.to].recv_from(&mut bytes) {
            Ok((len, from)) => {
                assert_eq!((len, from), (8, self.loopback.seen(Way { from: way.to, to: way.from })));
                Some(u64::from_le_bytes(bytes))
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                None
            }
        }
    }

    /// Sends many, and returns what arrives, and what the relay says of it once it is done with all.
    fn send_many(&self) -> (Vec<u64>, Counts) {
        (0..MANY).for_each(|number| self.send(THERE, number));
        let mut heard = Vec::new();
        let counts = wait_for("the relay is done with all", || {
            heard.extend(std::iter::from_fn(|| self.heard(THERE)));
            let counts = self.relay.counts(THERE);
            let is_done = counts.came == MANY && counts.arrived + counts.lost + counts.cut == MANY + counts.doubled;
            (is_done && heard.len() as u64 == counts.arrived).then_some(counts)
        });
        (heard, counts)
    }

    fn hears(&self, way: Way) -> u64 {
        wait_for("it arrives", || self.heard(way))
    }
}

#[test]
fn what_is_sent_arrives_in_order_from_where_its_sender_is_seen() {
    let two = Two::new();
    let (heard, counts) = two.send_many();
    assert!(heard.into_iter().eq(0..MANY));
    assert_eq!(counts, Counts { came: MANY, arrived: MANY, ..Counts::default() });
    two.send(BACK, 5);
    assert_eq!(two.hears(BACK), 5);
}

#[test]
fn what_comes_from_a_stranger_goes_nowhere() {
    let two = Two::new();
    let stranger = UdpSocket::bind(two.loopback.member(2)).expect("an address of ours");
    stranger.send_to(&[0; 8], two.loopback.seen(THERE)).expect("room");
    two.send(THERE, 1);
    // It has come behind the stranger's.
    assert_eq!(two.hears(THERE), 1);
    assert_eq!(two.relay.counts(THERE), Counts { came: 1, arrived: 1, ..Counts::default() });
}

#[test]
fn a_share_is_lost() {
    let two = Two::new();
    two.relay.treat(THERE, &Treatment { lost: 0.3, ..Treatment::GOOD });
    let (heard, counts) = two.send_many();
    assert!((MANY / 10..MANY / 2).contains(&counts.lost), "{counts:?}");
    assert_eq!(heard.len() as u64, MANY - counts.lost);
    assert!(heard.is_sorted_by(|one, next| one < next));
}

#[test]
fn a_share_comes_twice() {
    let two = Two::new();
    two.relay.treat(THERE, &Treatment { doubled: 0.3, ..Treatment::GOOD });
    let (heard, counts) = two.send_many();
    assert!((MANY / 10..MANY / 2).contains(&counts.doubled), "{counts:?}");
    let mut times: BTreeMap<u64, u64> = BTreeMap::new();
    heard.into_iter().for_each(|number| *times.entry(number).or_default() += 1);
    assert!(times.keys().copied().eq(0..MANY));
    assert!(times.values().all(|times| (1..=2).contains(times)));
    assert_eq!(times.values().filter(|times| **times == 2).count() as u64, counts.doubled);
}

#[test]
fn what_is_delayed_overtakes_and_arrives() {
    let two = Two::new();
    let delay = Duration::from_millis(1)..=Duration::from_millis(50);
    two.relay.treat(THERE, &Treatment { delay, ..Treatment::GOOD });
    let (mut heard, counts) = two.send_many();
    assert!(counts.overtaken > 0 && !heard.is_sorted(), "{counts:?}");
    heard.sort_unstable();
    assert!(heard.into_iter().eq(0..MANY));
}

#[test]
fn nothing_passes_in_a_way_that_is_cut_until_it_is_healed() {
    let two = Two::new();
    // Under way for so long that the cut finds it there.
    two.relay.treat(THERE, &Treatment { delay: DEADLINE..=DEADLINE, ..Treatment::GOOD });
    let send_many = |came| {
        (0..MANY).for_each(|number| two.send(THERE, number));
        wait_for("the relay has all", || (two.relay.counts(THERE).came == came).then_some(()));
    };
    send_many(MANY);
    two.relay.treat(THERE, &Treatment::CUT);
    send_many(2 * MANY);
    assert_eq!(two.relay.counts(THERE).cut, MANY, "the others are not due");
    two.send(BACK, 1);
    assert_eq!(two.hears(BACK), 1, "the other way");
    assert_eq!(two.heard(THERE), None);
    two.relay.treat(THERE, &Treatment::GOOD);
    two.send(THERE, 9);
    assert_eq!(two.hears(THERE), 9);
}

#[test]
fn a_stream_stands_still_while_it_is_cut_and_loses_nothing() {
    let two = Two::new();
    let listener = TcpListener::bind(two.loopback.member(1)).expect("an address of ours");
    let mut here = TcpStream::connect(two.loopback.seen(THERE)).expect("the relay listens");
    let (mut there, from) = listener.accept().expect("what comes through");
    assert_eq!(from.ip(), two.loopback.seen(BACK).ip(), "the address at which its sender is seen");
    for stream in [&here, &there] {
        stream.set_read_timeout(Some(DEADLINE)).expect("a deadline");
        stream.set_write_timeout(Some(DEADLINE)).expect("a deadline");
    }
    let mut word = [0; 4];
    here.write_all(b"here").expect("room");
    there.read_exact(&mut word).expect("it comes");
    assert_eq!(&word, b"here");
    two.relay.treat(THERE, &Treatment::CUT);
    here.write_all(b"more").expect("room");
    there.write_all(b"back").expect("room");
    here.read_exact(&mut word).expect("the other way");
    assert_eq!(&word, b"back");
    there.set_nonblocking(true).expect("a socket that does not block");
    assert_eq!(there.read(&mut word).expect_err("nothing has come").kind(), ErrorKind::WouldBlock);
    there.set_nonblocking(false).expect("a socket that blocks");
    two.relay.treat(THERE, &Treatment::GOOD);
    there.read_exact(&mut word).expect("it comes");
    assert_eq!(&word, b"more");
    drop(here);
    assert_eq!(there.read(&mut word).expect("its end"), 0);
    let long = vec![7; 3 << 20];
    let mut here = TcpStream::connect(two.loopback.seen(THERE)).expect("the relay listens");
    let (mut there, _) = listener.accept().expect("what comes through");
    there.set_read_timeout(Some(DEADLINE)).expect("a deadline");
    let delay = Duration::from_millis(1)..=Duration::from_millis(5);
    two.relay.treat(THERE, &Treatment { lost: 0.5, delay, ..Treatment::GOOD });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            here.write_all(&long).expect("it is read");
            drop(here);
        });
        let mut heard = Vec::new();
        there.read_to_end(&mut heard).expect("all of it, and its end");
        assert!(heard == long, "{} bytes", heard.len());
    });
}
