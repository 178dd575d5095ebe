//! Streams over real sockets, in a time that tests say: what comes through, what is refused, and what is kept meanwhile.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use guira_item::Span;
use mio::{Events, Poll};
use socket2::{Domain, Socket, Type};

use super::*;
use crate::bundle::MESSAGE_LEN_MAX;
use crate::seal::{Epoch, Secret};

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const EPOCH: Epoch = Epoch(5);

/// Long enough for a busy machine: it ends a test that would fail anyway.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a look at the sockets may take, so that several nodes are served by turns.
const TURN: Duration = Duration::from_millis(1);

struct Node {
    sealer: Sealer,
    members: Members,
    address: SocketAddr,
    counts: Counts,
    streams: Streams,
    poll: Poll,
    now: Moment,
    got: Vec<(NodeId, Vec<u8>)>,
}

fn sealer(node: NodeId) -> Sealer {
    Sealer::new(&Secret::derive("test", b"secret"), node)
}

impl Node {
    fn bind(node: NodeId, address: SocketAddr) -> Self {
        let mut streams = Streams::bind(address, [node.0 as u8; 32]).unwrap();
        let poll = Poll::new().unwrap();
        streams.attach(poll.registry().try_clone().unwrap(), Token(7)).unwrap();
        let (members, counts, now) = (Members::default(), Counts::default(), Moment::from_ns(1));
        let address = streams.incoming.local_address();
        Self { sealer: sealer(node), members, address, counts, streams, poll, now, got: Vec::new() }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Streams, Moment, &mut View<'_>) -> T) -> T {
        let mut view = View { sealer: &self.sealer, members: &self.members, counts: &mut self.counts };
        act(&mut self.streams, self.now, &mut view)
    }

    fn send(&mut self, to: NodeId, message: &[u8]) {
        let address = self.members.address(to).unwrap();
        self.with(|streams, now, view| streams.send(now, to, address, message, view));
    }

    /// A round of a driver.
    fn turn(&mut self) {
        let mut events = Events::with_capacity(64);
        self.poll.poll(&mut events, Some(TURN)).unwrap();
        for event in &events {
            let is_readable = event.is_readable() || event.is_error() || event.is_read_closed();
            self.streams.on_event(event.token(), is_readable, event.is_writable());
        }
        let mut got = std::mem::take(&mut self.got);
        self.with(|streams, now, view| {
            streams.receive(now, view, &mut |long| got.push((long.from, long.message().to_vec())));
            streams.tend(now, view.counts);
            streams.flush(now, view);
        });
        self.got = got;
    }

    fn pass(&mut self, span: Span) {
        self.now = self.now + span;
    }
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn introduce(nodes: &mut [&mut Node], epoch: Epoch) {
    let members: Vec<_> = nodes.iter().map(|node| (node.sealer.me(), node.address)).collect();
    for node in nodes {
        node.members = Members::new(epoch, members.clone()).unwrap();
        node.with(|streams, _, view| streams.heed(view));
    }
}

/// A and B, which know each other.
fn pair() -> [Node; 2] {
    let mut nodes = [A, B].map(|node| Node::bind(node, loopback()));
    introduce(&mut nodes.each_mut(), EPOCH);
    nodes
}

/// Serves the nodes by turns until something is so.
fn until(nodes: &mut [&mut Node], mut is_so: impl FnMut(&mut [&mut Node]) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so(nodes) {
        assert!(Instant::now() < deadline, "{:#?}", nodes.iter().map(|node| node.counts).collect::<Vec<_>>());
        nodes.iter_mut().for_each(|node| node.turn());
    }
}

/// Who speaks for himself, from a host.
fn stranger(host: [u8; 4], to: &Node) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((host, 0)).into()).unwrap();
    socket.connect(&to.address.into()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.into()
}

/// What a stranger is told, until it is told `len` bytes or the connection ends; whether it has ended.
fn told(socket: &mut TcpStream, node: &mut Node, len: usize) -> (Vec<u8>, bool) {
    let (mut told, mut has_ended) = (Vec::new(), false);
    until(&mut [node], |_| {
        let mut buffer = [0; 1024];
        match socket.read(&mut buffer) {
            Ok(0) => has_ended = true,
            Ok(len) => told.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => has_ended = true,
        }
        has_ended || told.len() >= len
    });
    (told, has_ended)
}

fn message(len: usize, number: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + number) as u8).collect()
}

#[test]
fn long_messages_come_whole_and_are_answered() {
    let [mut a, mut b] = pair();
    for (number, len) in [MESSAGE_LEN_MAX + 1, 100_000, 1 << 20, LONG_MESSAGE_LEN_MAX].into_iter().enumerate() {
        let sent = message(len, number);
        a.send(B, &sent);
        until(&mut [&mut a, &mut b], |nodes| !nodes[1].got.is_empty());
        assert!(b.got.drain(..).eq([(A, sent.clone())]), "{len} bytes");
        b.send(A, &sent);
        until(&mut [&mut a, &mut b], |nodes| !nodes[0].got.is_empty());
        assert!(a.got.drain(..).eq([(B, sent)]), "{len} bytes, back");
    }
    assert_eq!((a.counts.streams_out, a.counts.streams_in, a.counts.long_out), (1, 1, 4));
    assert_eq!((b.counts.streams_out, b.counts.streams_in, b.counts.long_in), (1, 1, 4));
    a.send(B, &vec![0; LONG_MESSAGE_LEN_MAX + 1]);
    assert_eq!(a.counts.out_too_long, 1);
}

#[test]
fn many_messages_of_many_members_all_come_and_memory_is_bounded_meanwhile() {
    const EACH: usize = 3;
    let mut b = Node::bind(B, loopback());
    let mut others: Vec<Node> = (10..16).map(|node| Node::bind(NodeId(node), loopback())).collect();
    let mut all: Vec<&mut Node> = others.iter_mut().chain([&mut b]).collect();
    introduce(&mut all, EPOCH);
    for (number, other) in others.iter_mut().enumerate() {
        (0..EACH).for_each(|at| other.send(B, &message(LONG_MESSAGE_LEN_MAX - at, number)));
    }
    let count = others.len() * EACH;
    let mut all: Vec<&mut Node> = others.iter_mut().chain([&mut b]).collect();
    let (mut came, mut waited) = (vec![0; 6], false);
    until(&mut all, |nodes| {
        let b = nodes.last_mut().expect("it is there");
        let (len, some_wait) = b.streams.incoming.reading();
        assert!(len <= 64 << 20);
        waited |= some_wait;
        for (from, got) in b.got.drain(..) {
            let number = usize::from(from.0) - 10;
            // In the order of each.
            assert!(got == message(LONG_MESSAGE_LEN_MAX - came[number], number));
            came[number] += 1;
        }
        came.iter().sum::<usize>() == count
    });
    assert!(waited, "six times 16 MiB do not fit");
}

/// As short as they are here, a socket takes them all.
#[test]
fn what_waits_goes_in_one_write_or_each_message_in_its_own() {
    for is_coalesced in [true, false] {
        let [mut a, mut b] = pair();
        if !is_coalesced {
            a.streams.uncoalesce();
        }
        (0..5).for_each(|number| a.send(B, &message(100, number)));
        until(&mut [&mut a, &mut b], |nodes| nodes[1].got.len() == 5);
        assert!(b.got.iter().enumerate().all(|(number, (_, got))| *got == message(100, number)));
        assert_eq!((a.counts.long_out, a.counts.long_writes), (5, if is_coalesced { 1 } else { 5 }));
    }
}

#[test]
fn a_stranger_is_told_nothing_and_closed() {
    let [_a, mut b] = pair();
    // From where nobody is.
    let mut elsewhere = stranger([127, 0, 0, 2], &b);
    assert_eq!(told(&mut elsewhere, &mut b, 1), (vec![], true));
    assert_eq!(b.counts.in_unwanted, 1);
    // With nothing to say, for as long as it may take.
    let mut silent = stranger([127, 0, 0, 1], &b);
    until(&mut [&mut b], |nodes| nodes[0].streams.incoming.len() == 1);
    b.pass(Span::from_s(3));
    assert_eq!(told(&mut silent, &mut b, 1), (vec![], true));
    assert_eq!(b.counts.in_unwanted, 2);
    // With anything to say.
    let mut loud = stranger([127, 0, 0, 1], &b);
    loud.write_all(&[b'x'; 10_000]).unwrap();
    assert_eq!(told(&mut loud, &mut b, 1), (vec![], true));
    assert_eq!((b.counts.in_version, b.counts.long_bytes_in), (1, GREETING_LEN as u64), "no more is read");
    // With another cluster's secret.
    let mut other = stranger([127, 0, 0, 1], &b);
    let forger = Sealer::new(&Secret::derive("test", b"another"), A);
    other.write_all(&Caller::new(B, EPOCH, Nonce([1; 16])).hello(&forger)).unwrap();
    assert_eq!(told(&mut other, &mut b, 1), (vec![], true));
    assert_eq!(b.counts.in_forged, 1);
    assert_eq!((b.streams.incoming.len(), b.counts.streams_in), (0, 0));
}

#[test]
fn who_plays_a_stream_again_is_told_no_more_than_it_has_said() {
    let [_a, mut b] = pair();
    let caller = Caller::new(B, EPOCH, Nonce([1; 16]));
    let hello = caller.hello(&sealer(A));
    let open = |b: &mut Node| {
        let mut socket = stranger([127, 0, 0, 1], b);
        socket.write_all(&hello).unwrap();
        let (challenge, has_ended) = told(&mut socket, b, GREETING_LEN);
        assert_eq!((challenge.len(), has_ended), (hello.len(), false));
        (socket, Greeting::try_from(challenge).unwrap())
    };
    let frame = long_frame(&sealer(A), EPOCH, B, b"message");
    let (mut first, challenge) = open(&mut b);
    let proof = caller.proof(&sealer(A), &challenge).unwrap();
    first.write_all(&[&proof[..], &frame].concat()).unwrap();
    until(&mut [&mut b], |nodes| nodes[0].got == [(A, b"message".to_vec())]);
    let (mut second, _) = open(&mut b);
    second.write_all(&[&proof[..], &frame].concat()).unwrap();
    assert_eq!(told(&mut second, &mut b, 1), (vec![], true));
    assert_eq!((b.got.len(), b.counts.in_unwanted), (1, 1));
}

#[test]
fn strangers_have_few_places_and_do_not_keep_members_out() {
    let [mut a, mut b] = pair();
    let strangers: Vec<TcpStream> = (0..100).map(|_| stranger([127, 0, 0, 1], &b)).collect();
    until(&mut [&mut b], |nodes| {
        assert!(nodes[0].streams.incoming.len() <= 16);
        nodes[0].counts.in_unwanted == 100 - 16
    });
    a.send(B, &message(100_000, 1));
    until(&mut [&mut a, &mut b], |nodes| !nodes[1].got.is_empty());
    assert_eq!(b.streams.incoming.len(), 16, "the member's, and one stranger less");
    drop(strangers);
    until(&mut [&mut a, &mut b], |nodes| nodes[1].streams.incoming.len() == 1);
}

#[test]
fn who_has_said_hello_keeps_its_place_and_the_next_waits_if_all_have() {
    let [_a, mut b] = pair();
    let caller = Caller::new(B, EPOCH, Nonce([1; 16]));
    let hello = caller.hello(&sealer(A));
    let open = |b: &mut Node| {
        let mut socket = stranger([127, 0, 0, 1], b);
        socket.write_all(&hello).unwrap();
        let (challenge, _) = told(&mut socket, b, GREETING_LEN);
        (socket, Greeting::try_from(challenge).unwrap())
    };
    let finish = |b: &mut Node, (mut socket, challenge): (TcpStream, Greeting)| {
        let (proof, got) = (caller.proof(&sealer(A), &challenge).unwrap(), b.got.len());
        socket.write_all(&[&proof[..], &long_frame(&sealer(A), EPOCH, B, b"message")].concat()).unwrap();
        until(&mut [b], |nodes| nodes[0].got.len() == got + 1);
    };
    let first = open(&mut b);
    let silent: Vec<TcpStream> = (0..100).map(|_| stranger([127, 0, 0, 1], &b)).collect();
    until(&mut [&mut b], |nodes| nodes[0].counts.in_unwanted == 100 - 15);
    finish(&mut b, first);
    drop(silent);
    until(&mut [&mut b], |nodes| nodes[0].streams.incoming.len() == 0);
    let mut callers: Vec<_> = (0..16).map(|_| open(&mut b)).collect();
    let unwanted = b.counts.in_unwanted;
    let mut next = stranger([127, 0, 0, 1], &b);
    next.write_all(&hello).unwrap();
    (0..3).for_each(|_| b.turn());
    assert!(!b.streams.has_work(), "nothing can be done for it yet");
    assert_eq!((b.streams.incoming.len(), b.counts.in_unwanted), (16, unwanted));
    finish(&mut b, callers.remove(0));
    assert_eq!(told(&mut next, &mut b, GREETING_LEN).0.len(), GREETING_LEN);
    callers.drain(..).for_each(|caller| finish(&mut b, caller));
}

#[test]
fn what_the_kernel_has_taken_is_given_up_as_what_waits_here_is() {
    let [mut a, mut b] = pair();
    a.send(B, &message(100_000, 1));
    until(&mut [&mut a, &mut b], |nodes| nodes[1].got.len() == 1);
    assert_eq!(a.streams.outward.unacknowledged_for(), [Some(Duration::from_secs(5))]);
}

#[test]
fn what_a_node_does_not_read_is_bounded_and_dropped_in_the_end() {
    let mut a = Node::bind(A, loopback());
    // Takes connections and nothing else.
    let deaf = TcpListener::bind(loopback()).unwrap();
    let members = [(A, a.address), (B, deaf.local_addr().unwrap())];
    a.members = Members::new(EPOCH, members).unwrap();
    let mut sent = 0;
    while a.counts.out_long_full == 0 {
        a.send(B, &message(1 << 20, sent));
        a.turn();
        sent += 1;
    }
    assert!(sent <= 65 && a.streams.outward.len() <= 64 << 20, "{sent} were taken");
    assert_eq!(a.counts.streams_out, 0);
    a.pass(Span::from_s(5));
    a.turn();
    assert_eq!((a.streams.outward.len(), a.counts.out_long_lost), (0, sent as u64 - 1));
    // One who greets, and then reads no more.
    let (mut socket, _) = deaf.accept().unwrap();
    drop(socket);
    a.pass(Span::from_ms(100));
    a.send(B, &message(1 << 20, 0));
    a.turn();
    (socket, _) = deaf.accept().unwrap();
    let mut reader = StreamReader::new(Nonce([5; 16]));
    socket.set_nonblocking(true).unwrap();
    until(&mut [&mut a], |_| {
        let mut buffer = [0; GREETING_LEN];
        let room = reader.wanted();
        let Ok(len) = socket.read(&mut buffer[..room]) else { return false };
        match reader.take(&sealer(B), &buffer[..len]).unwrap() {
            Step::Hello { challenge, .. } => socket.write_all(&challenge).unwrap(),
            Step::Greeted { .. } => return true,
            _ => {}
        }
        false
    });
    let full = a.counts.out_long_full;
    for number in 1.. {
        a.send(B, &message(1 << 20, number));
        a.turn();
        assert!(a.streams.outward.len() <= 64 << 20);
        if a.counts.out_long_full > full {
            break;
        }
    }
    assert_eq!(a.counts.streams_out, 1);
    let lost = a.counts.out_long_lost;
    a.pass(Span::from_s(5));
    a.turn();
    assert!(a.streams.outward.len() == 0 && a.counts.out_long_lost >= lost + 50);
}

/// It was sent again first on each stream, for ever, and what stood behind it never went.
#[test]
fn a_message_that_its_receiver_cuts_each_time_is_dropped_in_the_end() {
    let mut a = Node::bind(A, loopback());
    let cutter = TcpListener::bind(loopback()).unwrap();
    cutter.set_nonblocking(true).unwrap();
    let members = [(A, a.address), (B, cutter.local_addr().unwrap())];
    a.members = Members::new(EPOCH, members).unwrap();
    // More than the kernel takes while nobody reads.
    a.send(B, &message(LONG_MESSAGE_LEN_MAX, 1));
    a.send(B, &message(LONG_MESSAGE_LEN_MAX, 2));
    let both = a.streams.outward.len();
    for cut in 1..=3 {
        let (mut socket, mut reader, mut is_open) = (None, StreamReader::new(Nonce([cut; 16])), false);
        until(&mut [&mut a], |_| {
            let Some(socket): &mut Option<TcpStream> = &mut socket else {
                socket = cutter.accept().ok().map(|(socket, _)| socket);
                socket.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
                return false;
            };
            let mut buffer = [0; 1_024];
            let room = reader.wanted().min(buffer.len());
            let Ok(len) = socket.read(&mut buffer[..room]) else { return false };
            match reader.take(&sealer(B), &buffer[..len]).unwrap() {
                Step::Hello { challenge, .. } => socket.write_all(&challenge).unwrap(),
                Step::Greeted { .. } => {}
                _ => is_open |= reader.announced().is_some(),
            }
            is_open
        });
        assert_eq!((a.streams.outward.len(), a.counts.out_long_lost), (both, 0), "it is sent again");
        drop(socket);
        until(&mut [&mut a], |nodes| nodes[0].streams.outward.streams() == 0);
        a.pass(Span::from_ms(100));
    }
    assert_eq!((a.streams.outward.len(), a.counts.out_long_lost), (both / 2, 1));
}

#[test]
fn a_node_that_dies_in_the_middle_and_comes_again_is_found_again() {
    let [mut a, mut b] = pair();
    (0..30).for_each(|number| a.send(B, &message(1 << 20, number)));
    until(&mut [&mut a, &mut b], |nodes| nodes[1].got.len() >= 3);
    let (address, members) = (b.address, b.members.clone());
    drop(b);
    let mut b = Node::bind(B, address);
    b.members = members;
    let mut last = 100;
    until(&mut [&mut a, &mut b], |nodes| {
        // What waited may have been dropped when nobody was there: as sessions do, something is sent again.
        nodes[0].pass(Span::from_ms(100));
        if nodes[0].streams.outward.len() == 0 {
            last += 1;
            nodes[0].send(B, &message(1 << 20, last));
        }
        nodes[1].got.len() >= 3
    });
    assert!(a.counts.streams_out >= 2);
    for (from, got) in b.got {
        assert!(from == A && (0..=last).any(|number| got == message(1 << 20, number)), "whole, or not at all");
    }
}

#[test]
fn nobody_there_costs_a_try_now_and_then() {
    let mut a = Node::bind(A, loopback());
    let nobody = TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
    a.members = Members::new(EPOCH, [(A, a.address), (B, nobody)]).unwrap();
    a.send(B, &message(100_000, 1));
    until(&mut [&mut a], |nodes| nodes[0].counts.out_long_lost == 1);
    a.send(B, &message(100_000, 2));
    a.turn();
    assert_eq!(a.counts.out_long_lost, 1, "it waits until another try is due");
    a.pass(Span::from_ms(100));
    until(&mut [&mut a], |nodes| nodes[0].counts.out_long_lost == 2);
    a.pass(Span::from_ms(100));
    a.turn();
    assert_eq!((a.streams.wake_at(), a.streams.outward.len()), (None, 0), "nothing is left of it");
}

#[test]
fn a_message_that_waits_is_not_queued_again() {
    let [mut a, mut b] = pair();
    for number in [1, 2, 1, 1, 2, 3] {
        a.send(B, &message(100_000, number));
    }
    assert_eq!(a.counts.out_long_same, 3);
    until(&mut [&mut a, &mut b], |nodes| nodes[1].got.len() == 3);
    a.send(B, &message(100_000, 1));
    until(&mut [&mut a, &mut b], |nodes| nodes[1].got.len() == 4);
}

#[test]
fn idle_streams_are_closed_by_who_has_opened_them_and_opened_anew() {
    let [mut a, mut b] = pair();
    for round in 1..4 {
        a.send(B, &message(100_000, round));
        until(&mut [&mut a, &mut b], |nodes| nodes[1].got.len() == round);
        assert_eq!((a.counts.streams_out, b.streams.incoming.len()), (round as u64, 1));
        a.pass(Span::from_s(60));
        until(&mut [&mut a, &mut b], |nodes| nodes[1].streams.incoming.len() == 0);
        a.pass(Span::from_ms(100));
    }
}

#[test]
fn another_view_changes_nothing_for_who_is_in_both() {
    let [mut a, mut b] = pair();
    let view = |a: &mut Node, b: &mut Node, of: usize, epoch: u64| {
        let members = [(A, a.address), (B, b.address)];
        let node = if of == 0 { a } else { b };
        node.members = Members::new(Epoch(epoch), members).unwrap();
    };
    // B is ahead, then both are there, then A is ahead: all comes, through one stream.
    for (round, (of, epoch)) in [(1, 6), (0, 6), (0, 7)].into_iter().enumerate() {
        view(&mut a, &mut b, of, epoch);
        a.send(B, &message(100_000, round));
        until(&mut [&mut a, &mut b], |nodes| nodes[1].got.len() == round + 1);
        assert!(b.got[round].1 == message(100_000, round));
    }
    assert_eq!((a.counts.streams_out, b.counts.in_old_epoch, b.counts.in_new_epoch), (1, 1, 1));
    // Who has gone is heard no more, and its stream is closed.
    b.members = Members::new(Epoch(8), [(B, b.address)]).unwrap();
    a.send(B, &message(100_000, 3));
    until(&mut [&mut a, &mut b], |nodes| nodes[1].counts.in_stranger == 1);
    assert_eq!((b.got.len(), b.streams.incoming.len()), (3, 0));
    // A node that has gone has nothing to come.
    a.send(B, &message(100_000, 5));
    a.members = Members::new(Epoch(8), [(A, a.address)]).unwrap();
    a.with(|streams, _, view| streams.heed(view));
    assert_eq!((a.streams.outward.len(), a.counts.out_long_lost), (0, 1));
}
