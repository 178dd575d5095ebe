//! Two sockets, and a third that is no member: what comes through, and what is counted instead.

use std::time::{Duration, Instant};

use mio::{Events, Poll};

use super::*;
use crate::bundle::{Bundle, MESSAGE_LEN_MAX};
use crate::seal::{Epoch, HEADER_LEN, Secret};

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);
const EPOCH: Epoch = Epoch(5);

/// Long enough for a busy machine: it ends a test that would fail anyway.
const PATIENCE: Duration = Duration::from_secs(20);

fn secret() -> Secret {
    Secret::derive("test", b"secret")
}

/// A transport under a poll.
struct Node {
    transport: UdpTransport,
    poll: Poll,
}

impl Node {
    fn bind(node: NodeId, host: &str) -> Self {
        let address = SocketAddr::new(host.parse().unwrap(), 0);
        let sealer = Sealer::new(&secret(), node);
        let mut transport = UdpTransport::bind(address, sealer, Arc::default()).unwrap();
        let poll = Poll::new().unwrap();
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut transport, Token(0), both).unwrap();
        Self { transport, poll }
    }

    /// Receives until so many datagrams have come since it was bound; the messages.
    fn receive_until(&mut self, datagrams: u64) -> Vec<(NodeId, Vec<u8>)> {
        let mut got = Vec::new();
        self.wait(|transport| {
            while transport.receive(|from, message| got.push((from, message.to_vec()))).unwrap() > 0 {}
            transport.counts().datagrams_in >= datagrams
        });
        got
    }

    /// Flushes until all is sent.
    fn flush(&mut self) {
        self.wait(|transport| {
            transport.flush();
            !transport.has_unsent()
        });
    }

    fn wait(&mut self, mut is_done: impl FnMut(&mut UdpTransport) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_done(&mut self.transport) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{:?}", self.transport.counts());
            self.poll.poll(&mut Events::with_capacity(8), Some(left)).unwrap();
        }
    }
}

/// A and B, which know each other.
fn pair(host: &str) -> [Node; 2] {
    let mut nodes = [A, B].map(|node| Node::bind(node, host));
    set_epoch(&mut nodes, EPOCH);
    nodes
}

fn set_epoch(nodes: &mut [Node; 2], epoch: Epoch) {
    let addresses = nodes.each_ref().map(|node| node.transport.local_address());
    let members = Arc::new(Members::new(epoch, [A, B].into_iter().zip(addresses)).unwrap());
    nodes.iter_mut().for_each(|node| node.transport.set_members(Arc::clone(&members)));
}

/// Sends a datagram to B as it is, from A's socket.
fn send_raw(nodes: &[Node; 2], datagram: &[u8]) {
    nodes[0].transport.socket.send_to(datagram, nodes[1].transport.local_address()).unwrap();
}

fn sealed(secret: &Secret, from: NodeId, to: NodeId, epoch: Epoch, messages: &[&[u8]]) -> Vec<u8> {
    let mut bundle = Bundle::new();
    assert!(messages.iter().all(|message| bundle.append(message)));
    let mut datagram = Vec::new();
    Sealer::new(secret, from).seal(epoch, to, bundle.body(), &mut datagram);
    datagram
}

/// B drops what comes next, for the one reason that `reason` reads, and shows nothing of it.
fn assert_dropped(nodes: &mut [Node; 2], reason: impl Fn(&Counts) -> u64) {
    let before = nodes[1].transport.counts();
    let got = nodes[1].receive_until(before.datagrams_in + 1);
    let after = nodes[1].transport.counts();
    assert_eq!((got, reason(&after)), (vec![], reason(&before) + 1), "{after:?}");
    // Nothing stays behind.
    nodes[0].transport.send(B, b"well");
    nodes[0].flush();
    assert_eq!(nodes[1].receive_until(after.datagrams_in + 1), [(A, b"well".to_vec())]);
}

#[test]
fn a_transport_can_move_to_its_thread() {
    fn is_send<T: Send>() {}
    is_send::<UdpTransport>();
}

#[test]
fn messages_of_all_lengths_come_through_whole() {
    for host in ["127.0.0.1", "::1"] {
        if std::net::UdpSocket::bind((host, 0)).is_err() {
            // A machine without IPv6.
            continue;
        }
        let [mut a, mut b] = pair(host);
        let mut datagrams = 0;
        for len in [0, 1, 2, 100, 1_400, 9_000, 60_000, MESSAGE_LEN_MAX] {
            let message: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
            a.transport.send(B, &message);
            a.flush();
            datagrams += 1;
            assert_eq!(b.receive_until(datagrams), [(A, message.clone())]);
            // The answer.
            b.transport.send(A, &message);
            b.flush();
            assert_eq!(a.receive_until(datagrams), [(B, message)]);
        }
        let (sent, received) = (a.transport.counts(), b.transport.counts());
        assert_eq!((sent.datagrams_out, sent.bytes_out), (received.datagrams_in, received.bytes_in));
        assert_eq!(sent.datagrams_out, datagrams);
    }
}

#[test]
fn messages_to_one_node_are_bundled() {
    let [mut a, mut b] = pair("127.0.0.1");
    for message in [&b"one"[..], b"", b"three"] {
        a.transport.send(B, message);
    }
    assert!(a.transport.has_unsent());
    a.flush();
    let got = b.receive_until(1);
    assert_eq!(got, [(A, b"one".to_vec()), (A, vec![]), (A, b"three".to_vec())]);
    assert_eq!(b.transport.counts().bytes_in, (HEADER_LEN + 3 * 2 + 8) as u64);
}

#[test]
fn a_burst_of_small_messages_needs_few_datagrams() {
    const MESSAGES: u32 = 10_000;
    let [mut a, mut b] = pair("127.0.0.1");
    for number in 0..MESSAGES {
        a.transport.send(B, &number.to_le_bytes());
    }
    a.flush();
    let datagrams = a.transport.counts().datagrams_out;
    assert_eq!(datagrams, 1, "6 bytes each");
    assert_eq!(a.transport.counts().messages_out, u64::from(MESSAGES));
    let sent: Vec<_> = (0..MESSAGES).map(|number| (A, number.to_le_bytes().to_vec())).collect();
    assert!(b.receive_until(datagrams) == sent);
}

#[test]
fn more_datagrams_than_a_batch_are_sent_and_received() {
    let mut receiver = Node::bind(B, "127.0.0.1");
    let mut senders: Vec<Node> = (10..13).map(|node| Node::bind(NodeId(node), "127.0.0.1")).collect();
    let addresses = senders.iter().map(|node| (node.transport.sealer.me(), node.transport.local_address()));
    let everybody = addresses.chain([(B, receiver.transport.local_address())]);
    let members = Arc::new(Members::new(EPOCH, everybody).unwrap());
    receiver.transport.set_members(Arc::clone(&members));
    let each = BATCH_MAX as u64 + 6;
    for (number, sender) in senders.iter_mut().enumerate() {
        for _ in 0..each {
            // A new view ends a datagram.
            sender.transport.set_members(Arc::clone(&members));
            sender.transport.send(B, b"x");
        }
        sender.flush();
        assert_eq!(sender.transport.counts().datagrams_out, each);
        let got = receiver.receive_until(each * (number as u64 + 1));
        let from = sender.transport.sealer.me();
        assert_eq!(got, vec![(from, b"x".to_vec()); each as usize]);
    }
}

#[test]
fn forged_and_foreign_datagrams_are_counted_and_not_seen() {
    let mut nodes = pair("127.0.0.1");
    let good = sealed(&secret(), A, B, EPOCH, &[b"message"]);

    let mut forged = good.clone();
    *forged.last_mut().unwrap() ^= 1;
    send_raw(&nodes, &forged);
    assert_dropped(&mut nodes, |counts| counts.in_forged);

    let others = Secret::derive("another", b"secret");
    send_raw(&nodes, &sealed(&others, A, B, EPOCH, &[b"message"]));
    assert_dropped(&mut nodes, |counts| counts.in_forged);

    send_raw(&nodes, &good[..good.len() - 1]);
    assert_dropped(&mut nodes, |counts| counts.in_forged);

    for len in [0, HEADER_LEN - 1] {
        send_raw(&nodes, &good[..len]);
        assert_dropped(&mut nodes, |counts| counts.in_too_short);
    }

    send_raw(&nodes, b"something else altogether, from another program");
    assert_dropped(&mut nodes, |counts| counts.in_version);
}

#[test]
fn datagrams_that_are_not_ours_to_have_are_counted_and_not_seen() {
    let mut nodes = pair("127.0.0.1");
    // One to C, sent to B as well.
    send_raw(&nodes, &sealed(&secret(), A, C, EPOCH, &[b"message"]));
    assert_dropped(&mut nodes, |counts| counts.in_not_for_me);

    send_raw(&nodes, &sealed(&secret(), C, B, EPOCH, &[b"message"]));
    assert_dropped(&mut nodes, |counts| counts.in_stranger);

    // One of A's, sent again from elsewhere; and A's socket with B's name.
    let elsewhere = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let good = sealed(&secret(), A, B, EPOCH, &[b"message"]);
    elsewhere.send_to(&good, nodes[1].transport.local_address()).unwrap();
    assert_dropped(&mut nodes, |counts| counts.in_wrong_address);
    send_raw(&nodes, &sealed(&secret(), B, B, EPOCH, &[b"message"]));
    assert_dropped(&mut nodes, |counts| counts.in_wrong_address);
}

#[test]
fn datagrams_of_other_epochs_are_counted_and_seen() {
    let mut nodes = pair("127.0.0.1");
    for (datagrams, epoch, wanted) in [(1, EPOCH.0 - 1, (1, 0)), (2, EPOCH.0 + 1, (1, 1))] {
        send_raw(&nodes, &sealed(&secret(), A, B, Epoch(epoch), &[b"message"]));
        assert_eq!(nodes[1].receive_until(datagrams), [(A, b"message".to_vec())]);
        let counts = nodes[1].transport.counts();
        assert_eq!((counts.in_old_epoch, counts.in_new_epoch), wanted);
    }
    // What A has queued in one epoch stays of that one.
    nodes[0].transport.send(B, b"of the old view");
    set_epoch(&mut nodes, Epoch(EPOCH.0 + 1));
    nodes[0].flush();
    assert_eq!(nodes[1].receive_until(3), [(A, b"of the old view".to_vec())]);
    assert_eq!(nodes[1].transport.counts().in_old_epoch, 2);
}

#[test]
fn what_a_member_has_sent_is_not_seen_once_it_has_gone() {
    let mut nodes = pair("127.0.0.1");
    let only_b = [(B, nodes[1].transport.local_address())];
    nodes[1].transport.set_members(Arc::new(Members::new(Epoch(EPOCH.0 + 1), only_b).unwrap()));
    send_raw(&nodes, &sealed(&secret(), A, B, EPOCH, &[b"message"]));
    assert_eq!((nodes[1].receive_until(1), nodes[1].transport.counts().in_stranger), (vec![], 1));
}

#[test]
fn nothing_of_a_malformed_bundle_is_seen() {
    let mut nodes = pair("127.0.0.1");
    let mut datagram = Vec::new();
    Sealer::new(&secret(), A).seal(EPOCH, B, b"\x03\0one\x04\0two", &mut datagram);
    send_raw(&nodes, &datagram);
    assert_dropped(&mut nodes, |counts| counts.in_malformed);
}

#[test]
fn messages_that_cannot_be_sent_are_counted() {
    let [mut a, _b] = pair("127.0.0.1");
    a.transport.send(C, b"nobody");
    a.transport.send(B, &[0; MESSAGE_LEN_MAX + 1]);
    assert!(!a.transport.has_unsent());
    while a.transport.counts().out_queue_full == 0 {
        a.transport.send(B, &[0; MESSAGE_LEN_MAX]);
    }
    let expected = Counts { out_unknown_receiver: 1, out_too_long: 1, out_queue_full: 1, ..Counts::default() };
    assert_eq!(a.transport.counts(), expected);
}

#[test]
fn a_datagram_without_a_way_does_not_hold_up_the_others() {
    let [mut a, mut b] = pair("127.0.0.1");
    // Port 0 is nobody's.
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let addresses = [(A, a.transport.local_address()), (B, b.transport.local_address()), (C, nowhere)];
    a.transport.set_members(Arc::new(Members::new(EPOCH, addresses).unwrap()));
    for to in [C, B, C] {
        a.transport.send(to, b"message");
    }
    a.flush();
    assert_eq!(b.receive_until(1), [(A, b"message".to_vec())]);
    let counts = a.transport.counts();
    assert_eq!((counts.out_unsendable, counts.datagrams_out), (1, 1), "two messages in one datagram");
}
