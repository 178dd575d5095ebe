//! The network that routes, as a file has it.

use std::{
    fmt::{self, Display},
    io,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use guira_cluster::{GetWay, GetsOf, Transport};
use guira_openflow::{Place, Port, Rules};
use guira_routing::{Encoding, MacAddress, NodeId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Member, Role, StaticFile};

/// What routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Router {
    /// Each gateway, by a table of its own.
    #[default]
    Gateway,
    /// Switches that speak OpenFlow 1.3, which call the controller.
    Openflow,
}

impl Display for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gateway => "gateway",
            Self::Openflow => "openflow",
        })
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
}

/// What is wrong with a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkError {
    /// It is one that does not route.
    Gateways,
    /// Headers are encoded in a way that no member sends.
    Encoding,
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
    /// Where this member is for a switch is said, and there is no network that routes.
    NoNetwork(u16),
}

impl Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateways => f.write_str("network: router: with gateway there is no such section"),
            Self::Encoding => f.write_str("network: encoding: members send ipv6=PREFIX, and no other yet"),
            Self::Port(0) => f.write_str("network: gets_port: from 1 on"),
            Self::Port(id) => write!(f, "network: gets_port: member {id} has that port"),
            Self::Address { id, expected } => {
                write!(f, "member {id}: address: in this network it is {expected}, with whatever port")
            }
            Self::NoMac(id) => {
                write!(f, "member {id}: mac: switches have to know the address of its interface (ip link show)")
            }
            Self::NoNetwork(id) => write!(f, "member {id}: mac and switch_port are for clusters with [network]"),
        }
    }
}

impl std::error::Error for NetworkError {}

impl Network {
    /// Where gets go; `None`: the encoding is one that no member sends.
    pub fn get_way(&self) -> Option<GetWay> {
        match self.encoding {
            Encoding::Ipv6(plan) => Some(GetWay { plan, port: self.gets_port }),
            Encoding::Mac(_) => None,
        }
    }
}

impl Plug {
    /// As switches are told it.
    pub fn place(&self) -> Option<Place> {
        Some(Place { mac: self.mac?, port: self.switch_port.map_or(Port::NORMAL, Port) })
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
    /// The port of gets is not to be had.
    pub fn in_network(&self, member: &Member, transport: Transport) -> io::Result<Transport> {
        let Some(way) = self.network.as_ref().and_then(Network::get_way) else { return Ok(transport) };
        match member.role {
            Role::Controller => Ok(transport),
            Role::Gateway { .. } => Ok(transport.with_routed_gets(way)),
            Role::Backend(_) => transport.taking_gets(way, GetsOf::Own),
            Role::Cache { .. } => match self.caches().steering(NodeId(member.id)) {
                Some(steering) => transport.taking_gets(way, GetsOf::All(steering)),
                None => Ok(transport),
            },
        }
    }

    /// How a cluster's rules look in its switches, and where these call the controller; `None` where there are none.
    pub fn switch_rules(&self) -> Option<(Rules, SocketAddr)> {
        let Network { encoding, gets_port, switches, .. } = *self.network.as_ref()?;
        Some((Rules::new(encoding, gets_port), switches))
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
        if network.router == Router::Gateway {
            return Err(NetworkError::Gateways);
        }
        let GetWay { plan, port } = network.get_way().ok_or(NetworkError::Encoding)?;
        if port == 0 {
            return Err(NetworkError::Port(0));
        }
        for member in &self.members {
            let (id, expected) = (member.id, IpAddr::V6(plan.member(NodeId(member.id))));
            if member.address.ip() != expected {
                return Err(NetworkError::Address { id, expected });
            }
            if member.places().any(|(_, place)| place.port() == port) {
                return Err(NetworkError::Port(id));
            }
            if member.plug.mac.is_none() {
                return Err(NetworkError::NoMac(id));
            }
        }
        Ok(())
    }
}

/// What is written as a text of its own.
mod as_text {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer, de};

    pub(super) fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
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
