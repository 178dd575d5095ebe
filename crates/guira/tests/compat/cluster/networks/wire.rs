//! What comes to hosts of a cluster, as their links have it: messages, of which a seal hides nothing.
//!
//! Always true: what is told came from elsewhere, and is told in the order in which it came to each host.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use guira_cluster::{HEADER_LEN, SessionId, messages};
use guira_networks::Frames;
use guira_routing::NodeId;
use guira_switched::{Ask, Message, Number};

/// A message about a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A request by its content, that the network has routed.
    Get,
    /// One to the host itself.
    Request,
    Probe,
    Absent,
    Reply,
}

/// A message that has come to a host.
#[derive(Clone, Debug)]
pub struct Came {
    /// The host's number among those that are listened to.
    pub at: usize,
    pub kind: Kind,
    /// Who asks, and for what, where it says that.
    asked: Option<(NodeId, Vec<u8>)>,
    session: SessionId,
    number: Number,
}

/// Listens to hosts, until it is dropped.
pub struct Wire {
    came: Arc<Mutex<Vec<Came>>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Wire {
    /// Listens to links, each where it is. Gets come to that port.
    pub fn listen(links: Vec<Frames>, gets_port: u16) -> Self {
        let (came, is_over): (Arc<Mutex<Vec<Came>>>, Arc<AtomicBool>) = Default::default();
        let listen = |(at, frames): (usize, Frames)| {
            let (came, is_over) = (Arc::clone(&came), Arc::clone(&is_over));
            thread::spawn(move || {
                while !is_over.load(Relaxed) {
                    // It comes back now and then, to look whether it is over.
                    if let Some(frame) = frames.next_that_came() {
                        came.lock().expect("nobody panics with it").extend(read(at, gets_port, &frame));
                    }
                }
            })
        };
        let threads = links.into_iter().enumerate().map(listen).collect();
        Self { came, is_over, threads }
    }

    /// What has come about the last of so many requests of one gateway for a key, once all of them are answered.
    pub fn about_the_last(&self, requests: usize, gateway: NodeId, key: &[u8]) -> Option<Vec<Came>> {
        let came = self.came.lock().expect("nobody panics with it");
        let is_its = |(by, of): &(NodeId, Vec<u8>)| (*by, &of[..]) == (gateway, key);
        let of_key = came.iter().filter(|came| came.asked.as_ref().is_some_and(is_its));
        // Numbers of different sessions of a gateway differ.
        let asked: BTreeMap<Number, SessionId> = of_key.map(|came| (came.number, came.session)).collect();
        let about = |number: Number, session: SessionId| {
            came.iter().filter(move |came| (came.number, came.session) == (number, session))
        };
        let is_answered =
            |(number, session): (&Number, &SessionId)| about(*number, *session).any(|came| came.kind == Kind::Reply);
        let all_are = asked.len() == requests && asked.iter().all(is_answered);
        let (number, session) = asked.into_iter().next_back().filter(|_| all_are)?;
        Some(about(number, session).cloned().collect())
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// The messages about requests in a frame.
fn read(at: usize, gets_port: u16, frame: &[u8]) -> Vec<Came> {
    let Ok(packet) = SlicedPacket::from_ethernet(frame) else { return Vec::new() };
    let (Some(NetSlice::Ipv4(_) | NetSlice::Ipv6(_)), Some(TransportSlice::Udp(datagram))) =
        (&packet.net, &packet.transport)
    else {
        return Vec::new();
    };
    let Some(body) = datagram.payload().get(HEADER_LEN..) else { return Vec::new() };
    let about = |message: &[u8]| {
        let asked = |kind, Ask { asker, key, .. }: Ask<'_>| Came {
            at,
            kind,
            asked: Some((asker.gateway, key.as_bytes().to_vec())),
            session: asker.session,
            number: asker.number,
        };
        let answered = |kind, session, number| Came { at, kind, asked: None, session, number };
        match Message::decode(message).ok()? {
            Message::Request(ask) if datagram.destination_port() == gets_port => Some(asked(Kind::Get, ask)),
            Message::Request(ask) => Some(asked(Kind::Request, ask)),
            Message::Probe(ask) => Some(asked(Kind::Probe, ask)),
            Message::Absent { session, number } => Some(answered(Kind::Absent, session, number)),
            Message::Reply { session, number, .. } => Some(answered(Kind::Reply, session, number)),
            _ => None,
        }
    };
    messages(body).flatten().filter_map(about).collect()
}
