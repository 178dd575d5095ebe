//! What waits to be sent: datagrams, first come first sent, each filled with messages to one node for as long as it waits.
//!
//! ```text
//! front                            back
//! [to 3, sealed] [to 1] [to 3] [to 2]
//!                 open   open   open        the last one to a node that is not sealed takes further messages
//! ```
//! A queue may be told to give each message a datagram of its own, to compare.
//!
//! Always true: a message keeps the address and the epoch of the view in which it was queued, because it was written under that view and
//! its receiver judges it by that; messages to a node are sent in the order in which they came; a get that the network routes is alone in its datagram; what waits is
//! bounded.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use guira_routing::NodeId;

use crate::bundle::{Bundle, MESSAGE_LEN_MAX, bundled_len};
use crate::seal::{Epoch, HEADER_LEN, Kind, Sealer};

/// Datagrams that may wait: 64 batches. What would stand behind so many is better sent again by its session, which knows whether it still
/// matters.
pub(crate) const DATAGRAMS_MAX: usize = 4096;

/// Bytes that may wait: 256 full datagrams, a seventh of a second at a gigabit a second.
pub(crate) const BYTES_MAX: usize = 16 << 20;

/// Bundles kept for the next messages: a batch's, 4 MiB if all were full.
const SPARE_MAX: usize = 64;

/// Why a message is not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    TooLong,
    Full,
}

struct Queued {
    to: NodeId,
    address: SocketAddr,
    epoch: Epoch,
    kind: Kind,
    bundle: Bundle,
    /// In the bundle.
    messages: u64,
    is_sealed: bool,
}

/// A datagram that was taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Popped {
    pub(crate) len_bytes: usize,
    pub(crate) messages: u64,
}

/// The queue.
#[derive(Default)]
pub(crate) struct Outgoing {
    queue: VecDeque<Queued>,
    /// The numbers of the datagrams that take further messages. A datagram's number is how many were queued before it.
    open: HashMap<NodeId, u64>,
    /// The number of the front.
    front: u64,
    /// Of all that is queued, headers included.
    bytes: usize,
    spare: Vec<Bundle>,
    /// Each message gets a datagram.
    is_uncoalesced: bool,
}

impl Outgoing {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Gives each message a datagram of its own from now on.
    pub(crate) fn uncoalesce(&mut self) {
        self.is_uncoalesced = true;
    }

    /// Queues a message.
    pub(crate) fn push(
        &mut self,
        to: NodeId,
        address: SocketAddr,
        epoch: Epoch,
        message: &[u8],
    ) -> Result<(), Refused> {
        let len = bundled_len(message);
        if message.len() <= MESSAGE_LEN_MAX
            && self.bytes + len <= BYTES_MAX
            && let Some(number) = self.open.get(&to)
        {
            let queued = &mut self.queue[(number - self.front) as usize];
            if queued.bundle.append(message) {
                queued.messages += 1;
                self.bytes += len;
                return Ok(());
            }
        }
        self.push_alone(Kind::Datagram, to, address, epoch, message)?;
        if !self.is_uncoalesced {
            self.open.insert(to, self.front + self.queue.len() as u64 - 1);
        }
        Ok(())
    }

    /// Queues a message in a datagram of its own, sealed as that kind for `to`.
    pub(crate) fn push_alone(
        &mut self,
        kind: Kind,
        to: NodeId,
        address: SocketAddr,
        epoch: Epoch,
        message: &[u8],
    ) -> Result<(), Refused> {
        if message.len() > MESSAGE_LEN_MAX {
            return Err(Refused::TooLong);
        }
        let len = HEADER_LEN + bundled_len(message);
        if self.queue.len() == DATAGRAMS_MAX || self.bytes + len > BYTES_MAX {
            return Err(Refused::Full);
        }
        let mut bundle = self.spare.pop().unwrap_or_default();
        assert!(bundle.append(message), "an empty bundle has room for any message");
        self.bytes += len;
        self.queue.push_back(Queued { to, address, epoch, kind, bundle, messages: 1, is_sealed: false });
        Ok(())
    }

    /// Leaves all datagrams as they are: further messages go into new ones, of another view.
    pub(crate) fn close_all(&mut self) {
        self.open.clear();
    }

    /// The first datagrams, no more than `max`, sealed.
    pub(crate) fn sealed(&mut self, max: usize, sealer: &Sealer) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        for (number, queued) in (self.front..).zip(self.queue.iter_mut().take(max)) {
            if !queued.is_sealed {
                sealer.seal_in_place(queued.kind, queued.epoch, queued.to, queued.bundle.datagram_mut());
                queued.is_sealed = true;
                if self.open.get(&queued.to) == Some(&number) {
                    self.open.remove(&queued.to);
                }
            }
        }
        self.queue.iter().take(max).map(|queued| (queued.address, queued.bundle.datagram()))
    }

    /// Takes the first datagram away, which has been sealed.
    pub(crate) fn pop(&mut self) -> Option<Popped> {
        let Queued { mut bundle, messages, is_sealed, .. } = self.queue.pop_front()?;
        debug_assert!(is_sealed, "one that may still be open is not taken away");
        self.front += 1;
        let len_bytes = bundle.datagram().len();
        self.bytes -= len_bytes;
        if self.spare.len() < SPARE_MAX {
            bundle.clear();
            self.spare.push(bundle);
        }
        Some(Popped { len_bytes, messages })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::messages;
    use crate::seal::Secret;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    fn address(node: NodeId) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], node.0))
    }

    fn push(outgoing: &mut Outgoing, to: NodeId, epoch: u64, message: &[u8]) -> Result<(), Refused> {
        outgoing.push(to, address(to), Epoch(epoch), message)
    }

    /// The first datagrams: to whom, of which epoch, and their messages.
    fn sealed(outgoing: &mut Outgoing, max: usize) -> Vec<(NodeId, Epoch, Vec<Vec<u8>>)> {
        let secret = Secret::derive("test", b"secret");
        let read = |(to_address, datagram): (SocketAddr, &[u8])| {
            let to = NodeId(to_address.port());
            let opened = Sealer::new(&secret, to).open(datagram).unwrap();
            (to, opened.epoch, messages(opened.body).map(|message| message.unwrap().to_vec()).collect())
        };
        outgoing.sealed(max, &Sealer::new(&secret, NodeId(9))).map(read).collect()
    }

    #[test]
    fn messages_to_one_node_share_a_datagram_until_it_is_sealed() {
        let mut outgoing = Outgoing::default();
        for (to, message) in [(A, "1"), (B, "2"), (A, "3")] {
            push(&mut outgoing, to, 1, message.as_bytes()).unwrap();
        }
        let first = (A, Epoch(1), vec![b"1".to_vec(), b"3".to_vec()]);
        assert_eq!(sealed(&mut outgoing, 1), std::slice::from_ref(&first));
        // The first is sealed and was not taken by the socket.
        push(&mut outgoing, A, 1, b"4").unwrap();
        push(&mut outgoing, B, 1, b"5").unwrap();
        let second = (B, Epoch(1), vec![b"2".to_vec(), b"5".to_vec()]);
        let third = (A, Epoch(1), vec![b"4".to_vec()]);
        assert_eq!(sealed(&mut outgoing, 9), [first, second.clone(), third.clone()]);
        assert!(outgoing.pop().is_some());
        push(&mut outgoing, A, 1, b"6").unwrap();
        let fourth = (A, Epoch(1), vec![b"6".to_vec()]);
        assert_eq!(sealed(&mut outgoing, 9), [second, third, fourth]);
        assert_eq!(std::iter::from_fn(|| outgoing.pop()).count(), 3);
        assert!(outgoing.is_empty() && outgoing.bytes == 0 && outgoing.open.is_empty());
    }

    #[test]
    fn each_message_has_a_datagram_of_its_own_if_that_is_wanted() {
        for is_coalesced in [true, false] {
            let mut outgoing = Outgoing::default();
            if !is_coalesced {
                outgoing.uncoalesce();
            }
            for (to, message) in [(A, "1"), (B, "2"), (A, "3"), (A, "4")] {
                push(&mut outgoing, to, 1, message.as_bytes()).unwrap();
            }
            sealed(&mut outgoing, 9);
            let popped = std::iter::from_fn(|| outgoing.pop()).map(|popped| popped.messages);
            let messages: Vec<u64> = popped.collect();
            assert_eq!(messages, if is_coalesced { vec![3, 1] } else { vec![1; 4] });
        }
    }

    #[test]
    fn a_message_keeps_the_epoch_in_which_it_was_queued() {
        let mut outgoing = Outgoing::default();
        push(&mut outgoing, A, 1, b"before").unwrap();
        outgoing.close_all();
        push(&mut outgoing, A, 2, b"after").unwrap();
        let expected = [(A, Epoch(1), vec![b"before".to_vec()]), (A, Epoch(2), vec![b"after".to_vec()])];
        assert_eq!(sealed(&mut outgoing, 9), expected);
    }

    #[test]
    fn a_get_that_is_routed_is_alone_in_its_datagram() {
        let mut outgoing = Outgoing::default();
        push(&mut outgoing, A, 1, b"before").unwrap();
        for get in [b"get 1", b"get 2"] {
            outgoing.push_alone(Kind::Get, A, address(B), Epoch(1), get).unwrap();
        }
        push(&mut outgoing, A, 1, b"after").unwrap();
        let (secret, sealer) =
            (Secret::derive("test", b"secret"), Sealer::new(&Secret::derive("test", b"secret"), NodeId(9)));
        let receiver = Sealer::new(&secret, A);
        let mut seen = Vec::new();
        for (to, datagram) in outgoing.sealed(9, &sealer) {
            let (kind, at) = if to == address(A) { (Kind::Datagram, A) } else { (Kind::Get, B) };
            let opened = receiver.open_as(kind, datagram).unwrap();
            seen.push((at, messages(opened.body).map(|message| message.unwrap().to_vec()).collect::<Vec<_>>()));
        }
        let get = |get: &[u8]| (B, vec![get.to_vec()]);
        let both = (A, vec![b"before".to_vec(), b"after".to_vec()]);
        assert_eq!(seen, [both, get(b"get 1"), get(b"get 2")]);
    }

    #[test]
    fn a_full_datagram_is_followed_by_another() {
        let mut outgoing = Outgoing::default();
        push(&mut outgoing, A, 1, &[1; MESSAGE_LEN_MAX]).unwrap();
        push(&mut outgoing, A, 1, b"2").unwrap();
        push(&mut outgoing, A, 1, b"3").unwrap();
        assert_eq!(push(&mut outgoing, A, 1, &[1; MESSAGE_LEN_MAX + 1]), Err(Refused::TooLong));
        let counts: Vec<_> = sealed(&mut outgoing, 9).iter().map(|(_, _, messages)| messages.len()).collect();
        assert_eq!(counts, [1, 2]);
    }

    #[test]
    fn what_waits_is_bounded_in_bytes_and_in_datagrams() {
        let mut outgoing = Outgoing::default();
        let fits = (0..).take_while(|_| push(&mut outgoing, A, 1, &[1; 60_000]).is_ok()).count();
        assert_eq!(fits, BYTES_MAX / (HEADER_LEN + 60_002));
        assert!(outgoing.bytes <= BYTES_MAX);

        let mut outgoing = Outgoing::default();
        let fits = (0..).take_while(|node| push(&mut outgoing, NodeId(*node), 1, b"").is_ok()).count();
        assert_eq!(fits, DATAGRAMS_MAX);
        assert_eq!(push(&mut outgoing, NodeId(3), 1, b"into one that waits"), Ok(()));
        assert_eq!(sealed(&mut outgoing, 64).len(), 64);
        assert!(outgoing.pop().is_some());
        assert_eq!(push(&mut outgoing, NodeId(u16::MAX), 1, b"there is room again"), Ok(()));
    }
}
