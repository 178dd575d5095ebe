//! The network that routes, as a file has it.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    io,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use guira_cluster::{GetWay, GetsOf, Transport};
use guira_openflow::{DatapathId, Place, Port, Rules, RulesOfKeys};
use guira_routing::{Encoding, MacAddress, NodeId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{JoinedError, JoinedSwitch, Member, Role, StaticFile};

/// What routes, where gateways do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Router {
    /// Switches that speak OpenFlow 1.3, which call the controller.
    Openflow,
    /// Linux with an eBPF program on its links (`guira node --role router`), which calls the controller as a switch does.
    Xdp,
}

impl Router {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Openflow => "openflow",
            Self::Xdp => "xdp",
        }
    }
}

/// The network of a cluster whose gateways do not route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// What routes there.
    pub router: Router,
    /// How headers are encoded, and with which addresses.
    #[serde(with = "as_text")]
    pub encoding: Encoding,
    /// The port of UDP to which gets go.
    pub gets_port: u16,
    /// Where the controller listens for switches (OpenFlow's own port is 6653).
    pub switches: SocketAddr,
    /// Which of several switches have the rules of keys.
    #[serde(default, with = "as_text", skip_serializing_if = "is_default")]
    pub rules: RulesOfKeys,
    /// Switches that are not alike, and how they are joined; none: there is one, or each finds out ways by itself.
    #[serde(default, rename = "switch", skip_serializing_if = "Vec::is_empty")]
    pub joined: Vec<JoinedSwitch>,
}

/// Where a member is for a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Plug {
    /// The address of its host's interface.
    #[serde(default, with = "maybe_as_text", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddress>,
    /// The switch's port that leads there; without it the switch finds it by the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_port: Option<u32>,
    /// The switch that has that port, where they are joined as the file says.
    #[serde(default, with = "maybe_as_text", skip_serializing_if = "Option::is_none")]
    pub switch: Option<DatapathId>,
}

/// What is wrong with a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkError {
    /// The port of gets is none, or one that this member has.
    Port(u16),
    /// A member's address is not the one that the encoding gives it.
    Address {
        /// The member.
        id: u16,
        /// What it has to be.
        expected: IpAddr,
    },
    /// It is not said where this member is for a switch.
    NoMac(u16),
    /// With headers in MAC addresses the encoding has none for a member of this number.
    NoAddress(u16),
    /// With headers in MAC addresses a host's interface has the address of one of its members, and this is none.
    OtherMac(u16),
    /// With headers in MAC addresses switches do not find out ports by addresses.
    NoPort(u16),
    /// Two members are on one host, that cannot be.
    OneHost(u16, u16),
    /// Where this member is for a switch is said, and there is no network that routes.
    NoNetwork(u16),
    /// How switches are joined is not as it has to be.
    Joined(JoinedError),
}

impl Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(0) => f.write_str("network: gets_port: from 1 on"),
            Self::Port(id) => write!(f, "network: gets_port: member {id} has that port"),
            Self::Address { id, expected } => {
                write!(f, "member {id}: address: in this network it is {expected}, with whatever port")
            }
            Self::NoMac(id) => {
                write!(f, "member {id}: mac: switches have to know the address of its interface (ip link show)")
            }
            Self::NoAddress(id) => write!(f, "member {id}: id: mac=PREFIX has addresses for 1 to {}", u16::MAX - 1),
            Self::OtherMac(id) => write!(
                f,
                "member {id}: mac: with mac=PREFIX the interface of its host has the address of a member there, for instance {}",
                MacAddress::of_member(NodeId(*id))
            ),
            Self::NoPort(id) => write!(f, "member {id}: switch_port: with mac=PREFIX switches have to be told it"),
            Self::OneHost(id, other) => write!(
                f,
                "members {id} and {other}: mac: a host with a cache node or a backend has no other one, and no gateway: the network brings gets to one of them, or none would leave it"
            ),
            Self::NoNetwork(id) => {
                write!(f, "member {id}: mac, switch_port and switch are for clusters with [network]")
            }
            Self::Joined(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for NetworkError {}

impl Network {
    /// One of a single switch, or of several that are alike.
    pub fn new(router: Router, encoding: Encoding, gets_port: u16, switches: SocketAddr) -> Self {
        Self { router, encoding, gets_port, switches, rules: RulesOfKeys::default(), joined: Vec::new() }
    }

    /// Where gets go.
    pub fn get_way(&self) -> GetWay {
        GetWay { encoding: self.encoding, port: self.gets_port }
    }

    /// A member's own address; `None`: the encoding has none for that number.
    fn address_of(&self, member: NodeId) -> Option<IpAddr> {
        match self.encoding {
            Encoding::Ipv6(plan) => Some(plan.member(member).into()),
            Encoding::Mac(plan) => plan.ip(member).map(IpAddr::from),
        }
    }
}

impl Plug {
    /// As switches are told it.
    pub fn place(&self) -> Option<Place> {
        Some(Place { mac: self.mac?, port: self.switch_port.map_or(Port::NORMAL, Port), switch: self.switch })
    }
}

impl StaticFile {
    /// Whether the network routes.
    pub fn network_routes(&self) -> bool {
        self.network.is_some()
    }

    /// A member's sockets as they have to be where the network routes: a gateway's send gets by their content, and those of a cache node and of a backend
    /// take what comes so. Of a cache node each part's is given here, in their order.
    ///
    /// # Errors
    /// The port of gets is not to be had, or whole frames are not.
    pub fn in_network(&self, member: &Member, transport: Transport) -> io::Result<Transport> {
        let Some(way) = self.network.as_ref().map(Network::get_way) else { return Ok(transport) };
        match member.role {
            Role::Controller => Ok(transport),
            Role::Gateway { .. } => transport.with_routed_gets(way),
            Role::Backend(_) => transport.taking_gets(way, GetsOf::Own),
            Role::Cache { .. } => match self.caches().steering(NodeId(member.id)) {
                Some(steering) => {
                    let part = transport.node().0.wrapping_sub(member.id);
                    transport.taking_gets(way, GetsOf::Part { steering, part })
                }
                None => Ok(transport),
            },
        }
    }

    /// How a cluster's rules look in its switches, and where these call the controller; `None` where there are none.
    pub fn switch_rules(&self) -> Option<(Rules, SocketAddr)> {
        let Network { encoding, gets_port, switches, .. } = self.network.as_ref()?;
        Some((Rules::new(*encoding, *gets_port), *switches))
    }

    /// Where members are for switches.
    pub(super) fn places(&self) -> impl Iterator<Item = (NodeId, Place)> + '_ {
        self.members.iter().filter_map(|member| Some((NodeId(member.id), member.plug.place()?)))
    }

    pub(super) fn check_network(&self) -> Result<(), NetworkError> {
        let Some(network) = &self.network else {
            let plugged = self.members.iter().find(|member| member.plug != Plug::default());
            return plugged.map_or(Ok(()), |Member { id, .. }| Err(NetworkError::NoNetwork(*id)));
        };
        let port = network.gets_port;
        if port == 0 {
            return Err(NetworkError::Port(0));
        }
        for member in &self.members {
            let id = member.id;
            let expected = network.address_of(NodeId(id)).ok_or(NetworkError::NoAddress(id))?;
            if member.address.ip() != expected {
                return Err(NetworkError::Address { id, expected });
            }
            if member.places().any(|(_, place)| place.port() == port) {
                return Err(NetworkError::Port(id));
            }
            let mac = member.plug.mac.ok_or(NetworkError::NoMac(id))?;
            if let Encoding::Mac(_) = network.encoding {
                let is_its =
                    |other: &Member| MacAddress::of_member(NodeId(other.id)) == mac && other.plug.mac == Some(mac);
                if !self.members.iter().any(is_its) {
                    return Err(NetworkError::OtherMac(id));
                }
                member.plug.switch_port.ok_or(NetworkError::NoPort(id))?;
            }
        }
        self.check_hosts()?;
        self.check_joined().map_err(NetworkError::Joined)
    }

    /// Whoever takes gets is alone with them, and with no gateway.
    fn check_hosts(&self) -> Result<(), NetworkError> {
        let takes_gets = |member: &Member| matches!(member.role, Role::Cache { .. } | Role::Backend(_));
        let mut hosts: BTreeMap<Option<MacAddress>, &Member> = BTreeMap::new();
        for member in self.members.iter().filter(|member| takes_gets(member)) {
            if let Some(other) = hosts.insert(member.plug.mac, member) {
                return Err(NetworkError::OneHost(other.id, member.id));
            }
        }
        let gateways = self.members.iter().filter(|member| matches!(member.role, Role::Gateway { .. }));
        let with = |gateway: &Member| Some(NetworkError::OneHost(hosts.get(&gateway.plug.mac)?.id, gateway.id));
        gateways.filter_map(with).next().map_or(Ok(()), Err)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What is written as a text of its own.
pub(super) mod as_text {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer, de};

    pub(in super::super) fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(in super::super) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

/// The same, where there need not be any.
mod maybe_as_text {
    use super::{Deserializer, Display, FromStr, Serializer, as_text};

    pub(super) fn serialize<T: Display, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.collect_str(value),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        as_text::deserialize(from).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::StaticFileError;

    const NETWORK: &str = "
        [network]
        router = \"openflow\"
        encoding = \"ipv6=fd5e:a1c0::/32\"
        gets_port = 7100
        switches = \"10.0.0.1:6653\"\n";

    fn text(network: &str) -> String {
        let mut text = format!("secret = \"a secret that is long enough\"\n{network}");
        let roles = [(1, "controller"), (100, "cache"), (1_000, "backend"), (10_000, "gateway")];
        for (id, role) in roles {
            let more = if role == "gateway" { "listen = \"127.0.0.1:11211\"" } else { "" };
            text += &format!(
                "[[member]]\nid = {id}\nrole = \"{role}\"\naddress = \"[fd5e:a1c0:0:{id:x}::1]:7000\"\nmac = \"02:00:00:00:00:{:02x}\"\n{more}\n",
                id % 256
            );
        }
        text
    }

    fn refused(text: &str) -> String {
        StaticFile::parse(text).expect_err("it is refused").to_string()
    }

    #[test]
    fn a_network_is_read_as_it_is_written() {
        let file =
            StaticFile::parse(&text(NETWORK).replace("role = \"cache\"", "role = \"cache\"\nswitch_port = 7")).unwrap();
        assert_eq!(StaticFile::parse(&file.print().unwrap()).unwrap(), file);
        let (_, switches) = file.switch_rules().unwrap();
        assert_eq!((file.network_routes(), switches), (true, "10.0.0.1:6653".parse().unwrap()));
        let ports: Vec<Port> = file.places().map(|(_, place)| place.port).collect();
        assert_eq!(ports, [Port::NORMAL, Port(7), Port::NORMAL, Port::NORMAL]);
        let without = StaticFile { network: None, members: Vec::new(), ..file };
        assert!(!without.print().unwrap().contains("network"), "earlier builds read it");
    }

    #[test]
    fn the_examples_of_the_documentation_are_clusters() {
        let file = StaticFile::parse(include_str!("../../../../docs/examples/routed.toml")).unwrap();
        assert_eq!(file.network.as_ref().map(|network| network.router), Some(Router::Xdp));
        assert!(file.members.iter().all(|member| member.plug.switch_port.is_some()));
        let file = StaticFile::parse(include_str!("../../../../docs/examples/joined.toml")).unwrap();
        assert_eq!(file.fabric().map(|(_, rules)| rules), Some(RulesOfKeys::Parted));
    }

    #[test]
    fn networks_that_cannot_be_are_refused_with_what_to_do() {
        let network = |from: &str, to: &str| refused(&text(&NETWORK.replace(from, to)));
        assert!(network("openflow", "gateway").contains("unknown variant `gateway`, expected `openflow` or `xdp`"));
        assert_eq!(network("7100", "0"), "network: gets_port: from 1 on");
        assert_eq!(network("7100", "7000"), "network: gets_port: member 1 has that port");
        let elsewhere = network("fd5e:a1c0", "fd5e:a1c1");
        assert_eq!(elsewhere, "member 1: address: in this network it is fd5e:a1c1:0:1::1, with whatever port");
        assert!(network("ipv6=", "ipv5=").contains("an encoding is written ipv6=PREFIX or mac=PREFIX"));
        assert!(network("gets_port", "get_port").contains("unknown field"));
        let no_mac = text(NETWORK).replacen("mac = \"02:00:00:00:00:64\"\n", "", 1);
        assert_eq!(refused(&no_mac), NetworkError::NoMac(100).to_string());
        assert!(refused(&text(NETWORK).replacen("02:00:00:00:00:64", "2:0:0:0:0:64", 1)).contains("six pairs"));
        // The backend's is 03e8, of which the last byte is written; the gateway's is 2710.
        for (from, to, both) in [("e8", "64", (100, 1_000)), ("10", "64", (100, 10_000)), ("10", "e8", (1_000, 10_000))]
        {
            let together = text(NETWORK).replace(&format!(":{from}\"\n"), &format!(":{to}\"\n"));
            assert_eq!(refused(&together), NetworkError::OneHost(both.0, both.1).to_string());
        }
        let plugged = StaticFile::parse(&text(""));
        assert_eq!(plugged, Err(StaticFileError::Network(NetworkError::NoNetwork(1))));
    }

    #[test]
    fn with_headers_in_mac_addresses_hosts_have_their_members_addresses_and_ports() {
        // The gateway and the controller are on one host.
        let macs = [(1_u16, 1), (100, 100), (1_000, 1_000), (10_000, 1)]
            .map(|(id, on)| (id, MacAddress::of_member(NodeId(on))));
        let mut text = text(&NETWORK.replace("ipv6=fd5e:a1c0::/32", "mac=10.77.0.0/16"));
        for (id, mac) in macs {
            let ip = Ipv4Addr::from(0x0a4d_0000 | u32::from(id));
            text = text.replace(&format!("[fd5e:a1c0:0:{id:x}::1]"), &ip.to_string());
            let given = format!("mac = \"02:00:00:00:00:{:02x}\"", id % 256);
            text = text.replace(&given, &format!("mac = \"{mac}\"\nswitch_port = {id}"));
        }
        let file = StaticFile::parse(&text).unwrap();
        assert_eq!(StaticFile::parse(&file.print().unwrap()).unwrap(), file);
        let with = |from: &str, to: &str| refused(&text.replacen(from, to, 1));
        assert_eq!(with("switch_port = 100\n", ""), NetworkError::NoPort(100).to_string());
        assert_eq!(with("06:00:00:00:00:64", "02:00:00:00:00:64"), NetworkError::OtherMac(100).to_string());
        assert!(NetworkError::OtherMac(100).to_string().ends_with("for instance 06:00:00:00:00:64"));
        // That member is elsewhere.
        assert_eq!(with("06:00:00:00:00:64", "06:00:00:00:03:e9"), NetworkError::OtherMac(100).to_string());
        assert_eq!(
            with("10.77.0.100", "10.77.0.101"),
            "member 100: address: in this network it is 10.77.0.100, with whatever port"
        );
        assert_eq!(with("id = 10000", "id = 65535"), NetworkError::NoAddress(65_535).to_string());
    }
}
