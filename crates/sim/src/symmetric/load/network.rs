//! A member's network: a link out and a link in, each of which takes a packet at a time, for as long as its bytes or its being a packet take, whichever is longer.
//!
//! Always true: what goes from one member to another comes in its order; a packet goes to one member; a packet of several messages is made only of what has waited for the link.

use std::collections::{BTreeMap, VecDeque};

use guira_item::Moment;

/// Bytes of a packet that several messages share, at most: InfiniBand's longest.
const SHARED_LEN_MAX: usize = 4_096;

const PS_PER_NS: u64 = 1_000;

/// Which member, among all.
pub(super) type Place = usize;

/// Messages on their way.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) messages: Vec<Vec<u8>>,
}

/// What a link carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    ps_per_byte: f64,
    ps_per_packet: f64,
}

impl Rate {
    /// So much a second; infinity: no limit.
    pub(super) fn new(bytes_per_s: f64, packets_per_s: f64) -> Self {
        Self { ps_per_byte: 1e12 / bytes_per_s, ps_per_packet: 1e12 / packets_per_s }
    }

    fn takes_ps(self, len: usize) -> u64 {
        (len as f64 * self.ps_per_byte).max(self.ps_per_packet) as u64
    }
}

/// One direction of a member's network.
#[derive(Debug)]
pub(super) struct Link {
    rate: Rate,
    free_at_ps: u64,
    busy_ps: u64,
}

impl Link {
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, free_at_ps: 0, busy_ps: 0 }
    }

    /// From here on it carries another rate, and counts anew.
    pub(super) fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// Takes a packet of so many bytes: when it is through.
    pub(super) fn take(&mut self, now: Moment, len: usize) -> Moment {
        let takes = self.rate.takes_ps(len);
        self.free_at_ps = self.free_at_ps.max(now.ns() * PS_PER_NS) + takes;
        self.busy_ps += takes;
        Moment::from_ns(self.free_at_ps.div_ceil(PS_PER_NS))
    }

    /// Nanoseconds that it has been busy, or will have been.
    pub(super) fn busy_ns(&self) -> u64 {
        self.busy_ps / PS_PER_NS
    }
}

/// What waits for a member's link out.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    of: BTreeMap<Place, VecDeque<Vec<u8>>>,
    /// Whom messages wait for, in turn: of each message once, or of each member once where messages share packets.
    turns: VecDeque<Place>,
}

impl Waiting {
    /// One message more.
    pub(super) fn add(&mut self, to: Place, message: Vec<u8>, shares: bool) {
        let queue = self.of.entry(to).or_default();
        if queue.is_empty() || !shares {
            self.turns.push_back(to);
        }
        queue.push_back(message);
    }

    /// What goes next, and to whom.
    pub(super) fn next(&mut self, shares: bool) -> Option<(Place, Vec<Vec<u8>>)> {
        let to = self.turns.pop_front()?;
        let queue = self.of.get_mut(&to)?;
        let mut messages: Vec<Vec<u8>> = queue.pop_front().into_iter().collect();
        let mut len = messages.iter().map(|message| framed_len(message, shares)).sum::<usize>();
        while shares && let Some(next) = queue.front() {
            len += framed_len(next, shares);
            if len > SHARED_LEN_MAX {
                break;
            }
            messages.extend(queue.pop_front());
        }
        if shares && !queue.is_empty() {
            self.turns.push_back(to);
        }
        Some((to, messages))
    }
}

/// Bytes that a message takes of a packet: where others may be in it, its length stands before it.
pub(super) fn framed_len(message: &[u8], shares: bool) -> usize {
    let prefix = if !shares {
        0
    } else if message.len() < 128 {
        1
    } else {
        2
    };
    prefix + message.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_takes_a_packet_at_a_time_by_its_bytes_or_as_a_packet() {
        let mut link = Link::new(Rate::new(1e9, 1e7));
        let at = Moment::from_ns(1_000);
        assert_eq!(link.take(at, 50).ns(), 1_100, "as a packet");
        assert_eq!(link.take(at, 200).ns(), 1_300, "by its bytes");
        assert_eq!((link.take(Moment::from_ns(5_000), 200).ns(), link.busy_ns()), (5_200, 500));
        assert_eq!(Link::new(Rate::new(1e9, f64::INFINITY)).take(at, 50).ns(), 1_050);
    }

    #[test]
    fn what_waits_for_one_member_shares_a_packet_and_members_take_turns() {
        let messages = [(1, 10), (2, 20), (1, 30), (1, 4_090), (2, 40)];
        let sent = |shares| {
            let mut waiting = Waiting::default();
            messages.iter().for_each(|(to, len)| waiting.add(*to, vec![0; *len], shares));
            let lens = |(to, messages): (Place, Vec<Vec<u8>>)| (to, messages.iter().map(Vec::len).collect::<Vec<_>>());
            std::iter::from_fn(|| waiting.next(shares)).map(lens).collect::<Vec<_>>()
        };
        assert_eq!(sent(false), messages.map(|(to, len)| (to, vec![len])));
        assert_eq!(sent(true), [(1, vec![10, 30]), (2, vec![20, 40]), (1, vec![4_090])]);
    }
}
