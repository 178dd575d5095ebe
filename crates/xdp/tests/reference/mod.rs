//! A switch of a few lines, which has read the standard and not our program: the flow of the highest priority that takes a frame says what becomes of it.

use std::collections::BTreeMap;

use guira_openflow::{Actions, FlowKey, IPV4, IPV6, Match, Port, UDP};

/// What has become of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was dropped.
    Dropped,
    /// It goes by the addresses that the switch has learned.
    Others,
    /// It went out, by a flow of a key or of a node.
    Went {
        /// The flow's.
        priority: u16,
        /// Where.
        port: Port,
    },
}

/// The switch.
#[derive(Default)]
pub struct Reference {
    flows: BTreeMap<FlowKey, Actions>,
}

/// The fields of a frame that it has whole.
#[derive(Default)]
struct Fields {
    eth_dst: [u8; 6],
    eth_type: u16,
    ip_proto: Option<u8>,
    ipv4_dst: Option<[u8; 4]>,
    ipv6_dst: Option<[u8; 16]>,
    udp_dst: Option<u16>,
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

impl Fields {
    fn of(frame: &[u8]) -> Self {
        let eth_type = u16::from_be_bytes(part(frame, 12).unwrap());
        let mut fields = Self { eth_dst: part(frame, 0).unwrap(), eth_type, ..Self::default() };
        let packet = &frame[14..];
        match eth_type {
            IPV4 => fields.read_ipv4(packet),
            IPV6 => fields.read_ipv6(packet),
            _ => {}
        }
        fields
    }

    fn read_ipv4(&mut self, packet: &[u8]) {
        let Some(head) = part::<20>(packet, 0) else { return };
        self.ipv4_dst = part(&head, 16);
        if head[0] >> 4 != 4 {
            return;
        }
        self.ip_proto = Some(head[9]);
        // Options, which nobody of ours makes, and fragments are looked at no further.
        let (has_options, is_fragment) = (head[0] & 15 != 5, head[6] & 0x3f != 0 || head[7] != 0);
        if !has_options && !is_fragment {
            self.read_udp(&packet[20..]);
        }
    }

    fn read_ipv6(&mut self, packet: &[u8]) {
        let Some(head) = part::<40>(packet, 0) else { return };
        self.ipv6_dst = part(&head, 24);
        if head[0] >> 4 == 6 {
            self.ip_proto = Some(head[6]);
            self.read_udp(&packet[40..]);
        }
    }

    fn read_udp(&mut self, datagram: &[u8]) {
        if self.ip_proto == Some(UDP) && datagram.len() >= 8 {
            self.udp_dst = part(datagram, 2).map(u16::from_be_bytes);
        }
    }

    fn are_taken_by(&self, matched: &Match) -> bool {
        let Match { in_port, eth_dst, eth_type, ip_proto, ipv4_dst, ipv6_dst, udp_dst } = *matched;
        assert_eq!(in_port, None, "no rule of one switch asks for it");
        eth_dst.is_none_or(|wanted| wanted.takes(self.eth_dst))
            && eth_type.is_none_or(|wanted| wanted == self.eth_type)
            && ip_proto.is_none_or(|wanted| self.ip_proto == Some(wanted))
            && ipv4_dst.is_none_or(|wanted| self.ipv4_dst.is_some_and(|to| wanted.takes(to)))
            && ipv6_dst.is_none_or(|wanted| self.ipv6_dst.is_some_and(|to| wanted.takes(to)))
            && udp_dst.is_none_or(|wanted| self.udp_dst == Some(wanted))
    }
}

impl Reference {
    pub fn make(&mut self, key: FlowKey, actions: Actions) {
        self.flows.insert(key, actions);
    }

    pub fn take_back(&mut self, key: &FlowKey) {
        self.flows.remove(key);
    }

    /// What becomes of a frame, and how it is then.
    pub fn route(&self, frame: &[u8]) -> (Outcome, Vec<u8>) {
        let fields = Fields::of(frame);
        let mut frame = frame.to_vec();
        // They are in the order of their priorities.
        let first = self.flows.iter().rev().find(|(key, _)| fields.are_taken_by(&key.matched));
        let Some((key, actions)) = first else { return (Outcome::Dropped, frame) };
        if let Some(mac) = actions.set_eth_dst {
            frame[..6].copy_from_slice(&mac.0);
        }
        let outcome = match actions.output {
            None => Outcome::Dropped,
            Some(Port::NORMAL) => Outcome::Others,
            Some(port) => Outcome::Went { priority: key.priority, port },
        };
        (outcome, frame)
    }
}
