//! A flow: which packets it takes, and what becomes of them (OpenFlow Switch Specification 1.3.5, sections 7.2.2 to 7.2.5).
//!
//! Always true: a value has no bit outside its mask, so that two matches of the same packets by the same fields are equal; fields are written
//! in an order in which each stands behind those that it wants.

use std::mem::replace;

use guira_routing::MacAddress;

use crate::{
    Malformed,
    wire::{Reader, pad_to_8},
};

/// A field that is compared under a mask.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Masked<const N: usize> {
    value: [u8; N],
    mask: [u8; N],
}

impl<const N: usize> Masked<N> {
    /// The bits of `value` where `mask` has ones.
    pub fn new(value: [u8; N], mask: [u8; N]) -> Self {
        let mut masked = value;
        masked.iter_mut().zip(mask).for_each(|(byte, mask)| *byte &= mask);
        Self { value: masked, mask }
    }

    /// All of it.
    pub fn exact(value: [u8; N]) -> Self {
        Self { value, mask: [0xff; N] }
    }

    /// The first bits of it.
    pub fn prefix(value: [u8; N], bits: usize) -> Self {
        let byte = |at: usize| 0xff_u8.checked_shl(8_u32.saturating_sub(bits.saturating_sub(at * 8) as u32));
        Self::new(value, std::array::from_fn(|at| byte(at).unwrap_or(0)))
    }

    /// The bits that are wanted, where the mask has ones.
    pub fn value(&self) -> [u8; N] {
        self.value
    }

    /// Where it has ones the bits are wanted.
    pub fn mask(&self) -> [u8; N] {
        self.mask
    }

    /// Whether all bits are wanted.
    pub fn is_exact(&self) -> bool {
        self.mask == [0xff; N]
    }

    /// Whether these bytes have the bits that are wanted.
    pub fn takes(&self, bytes: [u8; N]) -> bool {
        Self::new(bytes, self.mask) == *self
    }

    /// Whether all that the other takes this takes, too.
    fn includes(&self, other: &Self) -> bool {
        let wants_no_more = self.mask.iter().zip(other.mask).all(|(ours, others)| ours & !others == 0);
        wants_no_more && self.takes(other.value)
    }
}

/// Which packets a flow takes: those that have all of what is said.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Match {
    /// By which port the frame came.
    pub in_port: Option<Port>,
    /// Where the frame goes.
    pub eth_dst: Option<Masked<6>>,
    /// What is in the frame.
    pub eth_type: Option<u16>,
    /// What is in the packet: wants `eth_type`.
    pub ip_proto: Option<u8>,
    /// Where the packet goes: wants `eth_type`.
    pub ipv4_dst: Option<Masked<4>>,
    /// The same over IPv6.
    pub ipv6_dst: Option<Masked<16>>,
    /// The port: wants `ip_proto`.
    pub udp_dst: Option<u16>,
}

/// `eth_type` of IPv4.
pub const IPV4: u16 = 0x0800;
/// `eth_type` of IPv6.
pub const IPV6: u16 = 0x86dd;
/// `ip_proto` of UDP.
pub const UDP: u8 = 17;

/// A port of a switch, or one of the numbers that mean more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Port(pub u32);

impl Port {
    /// The last one that is a number.
    pub const MAX: Self = Self(0xffff_ff00);
    /// Where a switch that has no controller would send it: by the addresses that it has learned.
    pub const NORMAL: Self = Self(0xffff_fffa);
    /// Back by the port by which it came: by its number nothing goes there.
    pub const IN_PORT: Self = Self(0xffff_fff8);
    /// A switch's own.
    pub const LOCAL: Self = Self(0xffff_fffe);
    /// Any.
    pub(crate) const ANY: Self = Self(0xffff_ffff);

    /// Whether it is the number of a port, and means no more.
    pub fn is_number(self) -> bool {
        (1..=Self::MAX.0).contains(&self.0)
    }
}

/// A table of a switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TableId(pub u8);

impl TableId {
    /// To which packets come.
    pub const FIRST: Self = Self(0);
}

/// What becomes of a packet; nothing of all this: it is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Actions {
    /// Where the frame goes from here on.
    pub set_eth_dst: Option<MacAddress>,
    /// By which port it leaves.
    pub output: Option<Port>,
    /// In which table, behind the flow's own, it is looked up then.
    pub next_table: Option<TableId>,
}

/// What tells flows of a switch apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FlowKey {
    /// In which table.
    pub table: TableId,
    /// Higher ones come first.
    pub priority: u16,
    /// Of which packets.
    pub matched: Match,
}

impl FlowKey {
    /// A byte of table, two of priority, and the match as switches are told it: no two keys have the same.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.table.0];
        bytes.extend(self.priority.to_be_bytes());
        self.matched.put(&mut bytes);
        bytes
    }

    /// The key of these bytes.
    ///
    /// # Errors
    /// [`Malformed`]: they are none's.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let (table, priority) = (TableId(reader.u8()?), reader.u16()?);
        let key = Self { table, priority, matched: Match::take(&mut reader)?.ok_or(Malformed)? };
        if key.to_bytes() == bytes { Ok(key) } else { Err(Malformed) }
    }
}

/// Marks flows of one owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cookie(pub u64);

const MATCH_OXM: u16 = 1;
/// The class of the standard's own fields.
const BASIC: u16 = 0x8000;
const IN_PORT: u8 = 0;
const ETH_DST: u8 = 3;
const ETH_TYPE: u8 = 5;
const IP_PROTO: u8 = 10;
const IPV4_DST: u8 = 12;
const UDP_DST: u8 = 16;
const IPV6_DST: u8 = 27;

const GOTO_TABLE: u16 = 1;
const APPLY_ACTIONS: u16 = 4;
const OUTPUT: u16 = 0;
const SET_FIELD: u16 = 25;

/// Properties of a table, by which it says what it can do.
mod property {
    pub(super) const INSTRUCTIONS: u16 = 0;
    pub(super) const NEXT_TABLES: u16 = 2;
    pub(super) const WRITE_ACTIONS: u16 = 4;
    pub(super) const APPLY_ACTIONS: u16 = 6;
    pub(super) const MATCH: u16 = 8;
    pub(super) const WILDCARDS: u16 = 10;
    pub(super) const WRITE_SET_FIELD: u16 = 12;
    pub(super) const APPLY_SET_FIELD: u16 = 14;
}

/// Of a packet that goes to a port, nothing goes to a controller.
const NOTHING_TO_CONTROLLER: u16 = 0;

fn put_field<const N: usize>(into: &mut Vec<u8>, field: u8, masked: Masked<N>) {
    let has_mask = !masked.is_exact();
    into.extend(BASIC.to_be_bytes());
    into.push(field << 1 | u8::from(has_mask));
    into.push((N << u8::from(has_mask)) as u8);
    into.extend(masked.value);
    if has_mask {
        into.extend(masked.mask);
    }
}

/// What matches and actions can say, as properties of a table.
pub(crate) fn put_properties(into: &mut Vec<u8>) {
    let field = |field: u8, len: u8, has_mask: bool| {
        let [high, low] = BASIC.to_be_bytes();
        [high, low, field << 1 | u8::from(has_mask), len << u8::from(has_mask)]
    };
    // Of an instruction, or an action, by its number and its length.
    let kind = |kind: u16| [0, kind as u8, 0, 4];
    let matched = |has_masks| {
        [
            field(ETH_DST, 6, has_masks),
            field(ETH_TYPE, 2, false),
            field(IP_PROTO, 1, false),
            field(IPV4_DST, 4, has_masks),
            field(IPV6_DST, 16, has_masks),
            field(UDP_DST, 2, false),
        ]
    };
    for (property, can) in [
        (property::INSTRUCTIONS, &[kind(APPLY_ACTIONS)][..]),
        (property::NEXT_TABLES, &[]),
        (property::WRITE_ACTIONS, &[]),
        (property::APPLY_ACTIONS, &[kind(OUTPUT), kind(SET_FIELD)]),
        (property::MATCH, &matched(true)),
        // Each of them may be left away.
        (property::WILDCARDS, &matched(false)),
        (property::WRITE_SET_FIELD, &[]),
        (property::APPLY_SET_FIELD, &[field(ETH_DST, 6, false)]),
    ] {
        let start = into.len();
        into.extend(property.to_be_bytes());
        into.extend((4 + 4 * can.len() as u16).to_be_bytes());
        into.extend(can.as_flattened());
        pad_to_8(into, start);
    }
}

fn take_field<const N: usize>(reader: &mut Reader<'_>, has_mask: bool) -> Result<Masked<N>, Malformed> {
    let value = reader.array()?;
    let mask = if has_mask { reader.array()? } else { [0xff; N] };
    Ok(Masked::new(value, mask))
}

fn take_exact<const N: usize>(reader: &mut Reader<'_>, has_mask: bool) -> Result<Option<[u8; N]>, Malformed> {
    let masked = take_field::<N>(reader, has_mask)?;
    Ok(masked.is_exact().then_some(masked.value))
}

impl Match {
    /// Whether all packets that the other takes this takes, too: it has the same fields, or fewer, and wants no more bits of them.
    pub fn includes(&self, other: &Self) -> bool {
        fn masked<const N: usize>(ours: Option<Masked<N>>, others: Option<Masked<N>>) -> bool {
            ours.is_none_or(|ours| others.is_some_and(|others| ours.includes(&others)))
        }
        fn exact<T: PartialEq>(ours: Option<T>, others: Option<T>) -> bool {
            ours.is_none() || ours == others
        }
        exact(self.in_port, other.in_port)
            && masked(self.eth_dst, other.eth_dst)
            && exact(self.eth_type, other.eth_type)
            && exact(self.ip_proto, other.ip_proto)
            && masked(self.ipv4_dst, other.ipv4_dst)
            && masked(self.ipv6_dst, other.ipv6_dst)
            && exact(self.udp_dst, other.udp_dst)
    }

    /// Whether its fields have those that they want.
    pub(crate) fn is_whole(&self) -> bool {
        let Self { eth_type, ip_proto, .. } = *self;
        (self.ipv4_dst.is_none() || eth_type == Some(IPV4))
            && (self.ipv6_dst.is_none() || eth_type == Some(IPV6))
            && (ip_proto.is_none() || eth_type == Some(IPV4) || eth_type == Some(IPV6))
            && (self.udp_dst.is_none() || ip_proto == Some(UDP))
    }

    /// Without fields of which no bit is wanted: packets are taken by others.
    pub(crate) fn without_idle_fields(self) -> Self {
        fn busy<const N: usize>(field: Option<Masked<N>>) -> Option<Masked<N>> {
            field.filter(|field| field.mask != [0; N])
        }
        Self { eth_dst: busy(self.eth_dst), ipv4_dst: busy(self.ipv4_dst), ipv6_dst: busy(self.ipv6_dst), ..self }
    }

    pub(crate) fn put(&self, into: &mut Vec<u8>) {
        let start = into.len();
        into.extend(MATCH_OXM.to_be_bytes());
        into.extend([0; 2]);
        self.in_port.into_iter().for_each(|Port(port)| put_field(into, IN_PORT, Masked::exact(port.to_be_bytes())));
        self.eth_dst.into_iter().for_each(|to| put_field(into, ETH_DST, to));
        self.eth_type.into_iter().for_each(|kind| put_field(into, ETH_TYPE, Masked::exact(kind.to_be_bytes())));
        self.ip_proto.into_iter().for_each(|kind| put_field(into, IP_PROTO, Masked::exact([kind])));
        self.ipv4_dst.into_iter().for_each(|to| put_field(into, IPV4_DST, to));
        self.ipv6_dst.into_iter().for_each(|to| put_field(into, IPV6_DST, to));
        self.udp_dst.into_iter().for_each(|port| put_field(into, UDP_DST, Masked::exact(port.to_be_bytes())));
        let len = (into.len() - start) as u16;
        into[start + 2..start + 4].copy_from_slice(&len.to_be_bytes());
        pad_to_8(into, start);
    }

    /// Reads one; `None` if it says more than we can.
    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Option<Self>, Malformed> {
        let (kind, len) = (reader.u16()?, usize::from(reader.u16()?));
        let mut fields = reader.part(len.checked_sub(4).ok_or(Malformed)?)?;
        reader.skip(len.next_multiple_of(8) - len)?;
        let (mut matched, mut is_ours) = (Self::default(), kind == MATCH_OXM);
        while !fields.is_empty() {
            let (class, field, len) = (fields.u16()?, fields.u8()?, usize::from(fields.u8()?));
            let mut value = fields.part(len)?;
            let (field, has_mask) = (field >> 1, field & 1 == 1);
            let is_known = class == BASIC
                && match field {
                    IN_PORT => {
                        let port = take_exact(&mut value, has_mask)?.map(|port| Port(u32::from_be_bytes(port)));
                        port.is_some() && replace(&mut matched.in_port, port).is_none()
                    }
                    ETH_DST => matched.eth_dst.replace(take_field(&mut value, has_mask)?).is_none(),
                    IPV4_DST => matched.ipv4_dst.replace(take_field(&mut value, has_mask)?).is_none(),
                    IPV6_DST => matched.ipv6_dst.replace(take_field(&mut value, has_mask)?).is_none(),
                    ETH_TYPE => {
                        let kind = take_exact(&mut value, has_mask)?.map(u16::from_be_bytes);
                        kind.is_some() && replace(&mut matched.eth_type, kind).is_none()
                    }
                    IP_PROTO => {
                        let kind = take_exact(&mut value, has_mask)?.map(|[kind]| kind);
                        kind.is_some() && replace(&mut matched.ip_proto, kind).is_none()
                    }
                    UDP_DST => {
                        let port = take_exact(&mut value, has_mask)?.map(u16::from_be_bytes);
                        port.is_some() && replace(&mut matched.udp_dst, port).is_none()
                    }
                    _ => false,
                };
            is_ours &= is_known;
            if is_known && !value.is_empty() {
                return Err(Malformed);
            }
        }
        Ok(is_ours.then_some(matched))
    }
}

impl Actions {
    /// As the instructions of a flow.
    pub(crate) fn put(&self, into: &mut Vec<u8>) {
        let start = into.len();
        into.extend(APPLY_ACTIONS.to_be_bytes());
        into.extend([0; 6]);
        if let Some(MacAddress(to)) = self.set_eth_dst {
            let action = into.len();
            into.extend(SET_FIELD.to_be_bytes());
            // Four bytes before the field, four of its own, six of the address, and two behind it.
            into.extend(16_u16.to_be_bytes());
            put_field(into, ETH_DST, Masked::exact(to));
            pad_to_8(into, action);
        }
        if let Some(Port(port)) = self.output {
            into.extend(OUTPUT.to_be_bytes());
            into.extend(16_u16.to_be_bytes());
            into.extend(port.to_be_bytes());
            into.extend(NOTHING_TO_CONTROLLER.to_be_bytes());
            into.extend([0; 6]);
        }
        let len = (into.len() - start) as u16;
        into[start + 2..start + 4].copy_from_slice(&len.to_be_bytes());
        if let Some(TableId(table)) = self.next_table {
            into.extend(GOTO_TABLE.to_be_bytes());
            into.extend(8_u16.to_be_bytes());
            into.extend([table, 0, 0, 0]);
        }
    }

    /// Reads instructions to their end; `None` if they do more than we can say.
    pub(crate) fn take(mut reader: Reader<'_>) -> Result<Option<Self>, Malformed> {
        let (mut taken, mut is_ours, mut is_applied) = (Self::default(), true, false);
        while !reader.is_empty() {
            let (kind, len) = (reader.u16()?, usize::from(reader.u16()?));
            let mut instruction = reader.part(len.checked_sub(4).ok_or(Malformed)?)?;
            // One of each kind, in whatever order.
            let is_first = match kind {
                APPLY_ACTIONS => !replace(&mut is_applied, true),
                GOTO_TABLE => taken.next_table.replace(TableId(instruction.u8()?)).is_none(),
                _ => false,
            };
            is_ours &= is_first;
            if kind != APPLY_ACTIONS || !is_first {
                continue;
            }
            instruction.skip(4)?;
            while !instruction.is_empty() {
                let (kind, len) = (instruction.u16()?, usize::from(instruction.u16()?));
                let mut action = instruction.part(len.checked_sub(4).ok_or(Malformed)?)?;
                is_ours &= match kind {
                    OUTPUT if taken.output.is_none() => {
                        taken.output = Some(Port(action.u32()?));
                        true
                    }
                    // What is done to a frame that has left does nothing.
                    SET_FIELD if taken.set_eth_dst.is_none() && taken.output.is_none() => {
                        let (class, field, len) = (action.u16()?, action.u8()?, action.u8()?);
                        let is_address = (class, field, len) == (BASIC, ETH_DST << 1, 6);
                        if is_address {
                            taken.set_eth_dst = Some(MacAddress(action.array()?));
                        }
                        is_address
                    }
                    _ => false,
                };
            }
        }
        Ok(is_ours.then_some(taken))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::{array, prelude::*};

    use super::*;

    prop_compose! {
        fn masked4()(value in array::uniform4(any::<u8>()), bits in 0_usize..33) -> Masked<4> { Masked::prefix(value, bits) }
    }

    prop_compose! {
        fn masked16()(value in array::uniform16(any::<u8>()), mask in array::uniform16(any::<u8>())) -> Masked<16> {
            Masked::new(value, mask)
        }
    }

    prop_compose! {
        pub(crate) fn matches()(
            in_port in prop::option::of(any::<u32>().prop_map(Port)),
            eth_dst in prop::option::of(array::uniform6(any::<u8>()).prop_map(Masked::exact)),
            eth_type in prop::option::of(any::<u16>()),
            ip_proto in prop::option::of(any::<u8>()),
            ipv4_dst in prop::option::of(masked4()),
            ipv6_dst in prop::option::of(masked16()),
            udp_dst in prop::option::of(any::<u16>()),
        ) -> Match {
            Match { in_port, eth_dst, eth_type, ip_proto, ipv4_dst, ipv6_dst, udp_dst }
        }
    }

    prop_compose! {
        pub(crate) fn actions()(
            set_eth_dst in prop::option::of(array::uniform6(any::<u8>()).prop_map(MacAddress)),
            output in prop::option::of(any::<u32>().prop_map(Port)),
            next_table in prop::option::of(any::<u8>().prop_map(TableId)),
        ) -> Actions {
            Actions { set_eth_dst, output, next_table }
        }
    }

    #[test]
    fn a_prefix_takes_what_begins_with_it() {
        let address = [0xfd, 0x5e, 0b1010_0000, 7];
        for (bits, other, is_taken) in [
            (0, [0; 4], true),
            (8, [0xfd, 0, 0, 0], true),
            (16, [0xfd, 0x5f, 0, 0], false),
            (19, [0xfd, 0x5e, 0b1011_1111, 0], true),
            (20, [0xfd, 0x5e, 0b1011_1111, 0], false),
            (32, address, true),
            (32, [0xfd, 0x5e, 0b1010_0000, 6], false),
        ] {
            assert_eq!(Masked::prefix(address, bits).takes(other), is_taken, "{bits} bits");
        }
        assert_eq!(Masked::prefix(address, 32), Masked::exact(address));
    }

    #[test]
    fn a_field_includes_those_of_which_it_takes_all_values() {
        let all = || (0_u8..8).flat_map(|value| (0..8).map(move |mask| Masked::new([value], [mask])));
        for (ours, others) in all().flat_map(|ours| all().map(move |others| (ours, others))) {
            let takes_all = (0..8).all(|byte| !others.takes([byte]) || ours.takes([byte]));
            assert_eq!(ours.includes(&others), takes_all, "{ours:?} {others:?}");
        }
    }

    proptest! {
        #[test]
        fn matches_come_back(matched in matches()) {
            let mut bytes = Vec::new();
            matched.put(&mut bytes);
            prop_assert_eq!(bytes.len() % 8, 0);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(Match::take(&mut reader), Ok(Some(matched)));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn keys_come_back_and_other_bytes_are_none(matched in matches(), table: u8, priority: u16, at: prop::sample::Index, bit in 0..8_u8) {
            let key = FlowKey { table: TableId(table), priority, matched };
            let mut bytes = key.to_bytes();
            prop_assert_eq!(FlowKey::from_bytes(&bytes), Ok(key));
            prop_assert_eq!(FlowKey::from_bytes(&bytes[..bytes.len() - 1]), Err(Malformed));
            *at.get_mut(&mut bytes) ^= 1_u8 << bit;
            prop_assert_ne!(FlowKey::from_bytes(&bytes), Ok(key));
            bytes.push(0);
            prop_assert_eq!(FlowKey::from_bytes(&bytes), Err(Malformed));
        }

        #[test]
        fn actions_come_back(actions in actions()) {
            let mut bytes = Vec::new();
            actions.put(&mut bytes);
            prop_assert_eq!(bytes.len() % 8, 0);
            prop_assert_eq!(Actions::take(Reader::new(&bytes)), Ok(Some(actions)));
        }
    }

    #[test]
    fn what_says_more_than_we_can_is_known_as_such() {
        // Where a packet comes from: a field that we have not.
        let ipv4_src = [0, 1, 0, 12, 0x80, 0, 22, 4, 10, 0, 0, 7, 0, 0, 0, 0];
        assert_eq!(Match::take(&mut Reader::new(&ipv4_src)), Ok(None));
        // Of two kinds at once, which no packet is.
        let kinds = [0, 1, 0, 16, 0x80, 0, 10, 2, 8, 0, 0x80, 0, 10, 2, 0x86, 0xdd];
        assert_eq!(Match::take(&mut Reader::new(&kinds)), Ok(None));
        // Two ports: a packet that is doubled.
        let output = [0, 0, 0, 16, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
        let twice = [&[0, 4, 0, 40, 0, 0, 0, 0], &output[..], &output].concat();
        assert_eq!(Actions::take(Reader::new(&twice)), Ok(None));
        // Two instructions of one kind, and one that writes metadata.
        let [first, next] = [[0, 1, 0, 8, 1, 0, 0, 0], [0, 1, 0, 8, 2, 0, 0, 0]];
        assert_eq!(Actions::take(Reader::new(&[first, next].concat())), Ok(None));
        assert_eq!(Actions::take(Reader::new(&[&[0, 2, 0, 24], &[0; 20][..]].concat())), Ok(None));
        // A length shorter than itself.
        assert_eq!(Match::take(&mut Reader::new(&[0, 1, 0, 3, 0, 0, 0, 0])), Err(Malformed));
        assert_eq!(Actions::take(Reader::new(&[0, 4, 0, 3, 0, 0, 0, 0])), Err(Malformed));
    }
}
