//! A driver with a real socket: what it heeds, in which order, when it sleeps and how it ends.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::{Epoch, Members, Sealer, Secret};

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);

/// Long enough for a busy machine: it ends a test that would fail anyway.
const PATIENCE: Duration = Duration::from_secs(20);

/// Tells what it is told; sends what it is told to.
struct Parrot {
    heard: Sender<(Moment, Heard)>,
    wake_at: Option<Moment>,
    /// Wants to be ticked all the time.
    nags: bool,
}

#[derive(PartialEq, Eq, Debug)]
enum Heard {
    Message(NodeId, Vec<u8>),
    Local(u64),
    Tick,
}

enum Local {
    Number(u64),
    Send(NodeId, Vec<u8>),
    WakeAt(Moment),
    Panic,
}

impl Core for Parrot {
    type Local = Local;

    fn on_message(&mut self, now: Moment, from: NodeId, message: &[u8], _: &mut Transport) {
        let _ = self.heard.send((now, Heard::Message(from, message.to_vec())));
    }

    fn on_get(&mut self, _: Moment, _: NodeId, _: Header, _: &[u8], _: &mut Transport) {
        unreachable!("it takes none");
    }

    fn on_local(&mut self, now: Moment, local: Local, transport: &mut Transport) {
        match local {
            Local::Number(number) => drop(self.heard.send((now, Heard::Local(number)))),
            Local::Send(to, message) => transport.send(to, &message),
            Local::WakeAt(at) => self.wake_at = Some(at),
            Local::Panic => panic!("it was told to"),
        }
    }

    fn on_tick(&mut self, now: Moment, _: &mut Transport) {
        self.wake_at = None;
        let _ = self.heard.send((now, Heard::Tick));
    }

    fn wake_at(&self, now: Moment) -> Option<Moment> {
        if self.nags { Some(now) } else { self.wake_at }
    }
}

type Node = (DriverHandle<Local>, Receiver<(Moment, Heard)>);

fn transports() -> [Transport; 2] {
    let secret = Secret::derive("test", b"secret");
    let host = SocketAddr::from(([127, 0, 0, 1], 0));
    let bind = |node| Transport::bind(host, Sealer::new(&secret, node), Arc::default()).unwrap();
    let mut both = [bind(A), bind(B)];
    let members = [A, B].into_iter().zip(both.iter().map(Transport::local_address));
    let members = Arc::new(Members::new(Epoch(1), members).unwrap());
    both.iter_mut().for_each(|transport| transport.set_members(Arc::clone(&members)));
    both
}

fn start(transport: Transport, nags: bool) -> Node {
    let (heard, hear) = channel();
    (DriverHandle::start("test", transport, |_| Parrot { heard, wake_at: None, nags }).unwrap(), hear)
}

fn hear((_, heard): &Node) -> (Moment, Heard) {
    heard.recv_timeout(PATIENCE).expect("something is heard")
}

#[test]
fn a_core_hears_messages_and_what_is_posted_after_they_came() {
    let [a, b] = transports().map(|transport| start(transport, false));
    for number in 0..1_000 {
        let before = boot_now();
        if number % 2 == 0 {
            assert!(a.0.post(Local::Send(B, vec![number as u8; 3])).is_ok());
        } else {
            assert!(b.0.post(Local::Number(number)).is_ok());
        }
        let (now, heard) = hear(&b);
        assert!(now >= before, "read after it had come");
        let expected = if number % 2 == 0 { Heard::Message(A, vec![number as u8; 3]) } else { Heard::Local(number) };
        assert_eq!(heard, expected);
    }
    assert!(a.0.stop().is_ok() && b.0.stop().is_ok());
}

#[test]
fn what_many_threads_post_is_heard_once_and_in_the_order_of_each() {
    const EACH: u64 = 20_000;
    let [a, _] = transports();
    let node = start(a, false);
    thread::scope(|scope| {
        for thread in 0..4 {
            let poster = node.0.poster();
            scope
                .spawn(move || (0..EACH).for_each(|at| assert!(poster.post(Local::Number(thread << 32 | at)).is_ok())));
        }
    });
    let mut next = [0; 4];
    for _ in 0..4 * EACH {
        let (_, Heard::Local(number)) = hear(&node) else { panic!("nothing else was told") };
        let next = &mut next[(number >> 32) as usize];
        assert_eq!(number & u64::from(u32::MAX), *next);
        *next += 1;
    }
}

#[test]
fn a_core_is_ticked_when_it_is_due_and_not_before() {
    let [a, _] = transports();
    let node = start(a, false);
    for ms in [0, 1, 3, 20] {
        let at = boot_now() + Span::from_ms(ms);
        assert!(node.0.post(Local::WakeAt(at)).is_ok());
        let (now, heard) = hear(&node);
        assert!(heard == Heard::Tick && now >= at);
    }
}

#[test]
fn a_core_that_is_always_due_does_not_keep_the_thread_busy() {
    let [a, _] = transports();
    let node = start(a, true);
    let (mut last, _) = hear(&node);
    for _ in 0..20 {
        let (now, heard) = hear(&node);
        assert!(heard == Heard::Tick && now.since(last) >= PAUSE_MIN);
        last = now;
    }
}

#[test]
fn neither_posted_things_nor_datagrams_wait_for_the_end_of_the_other() {
    let [a, b] = transports().map(|transport| start(transport, false));
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    thread::scope(|scope| {
        let (poster, flag) = (b.0.poster(), Arc::clone(&is_over));
        scope.spawn(move || {
            while !flag.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = poster.post(Local::WakeAt(Moment::from_ns(u64::MAX)));
            }
        });
        for _ in 0..50 {
            assert!(a.0.post(Local::Send(B, b"hello".to_vec())).is_ok());
            assert_eq!(hear(&b).1, Heard::Message(A, b"hello".to_vec()));
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn long_messages_come_whole() {
    let [a, b] = transports().map(|transport| start(transport, false));
    for round in 0..64u8 {
        assert!(a.0.post(Local::Send(B, vec![round; 60_000])).is_ok());
        assert_eq!(hear(&b).1, Heard::Message(A, vec![round; 60_000]));
    }
}

#[test]
fn messages_that_are_longer_than_a_datagram_come_whole_beside_short_ones() {
    let [a, b] = transports().map(|transport| start(transport, false));
    for round in 0..20u8 {
        let (short, long) = (Heard::Message(A, vec![round; 10]), Heard::Message(A, vec![round; 1 << 20]));
        assert!(a.0.post(Local::Send(B, vec![round; 1 << 20])).is_ok());
        assert!(a.0.post(Local::Send(B, vec![round; 10])).is_ok());
        let heard = [hear(&b).1, hear(&b).1];
        assert!(heard.contains(&short) && heard.contains(&long));
    }
    assert!(a.0.stop().is_ok() && b.0.stop().is_ok());
}

#[test]
fn a_driver_that_has_ended_takes_nothing() {
    let [a, b] = transports();
    let node = start(a, false);
    let poster = node.0.poster();
    assert!(node.0.stop().is_ok());
    assert!(poster.post(Local::Number(1)).is_err());
    assert!(node.1.recv().is_err(), "the core is gone");
    drop(start(b, false));
}

#[test]
fn who_stops_a_driver_notices_that_its_core_has_panicked() {
    let [a, _] = transports();
    let node = start(a, false);
    assert!(node.0.post(Local::Panic).is_ok());
    assert!(node.1.recv_timeout(PATIENCE).is_err());
    assert!(matches!(node.0.stop(), Err(DriverError::Panicked)));
}
