//! Several switches that are told which way it is: how a file says that they are joined, and which of them have the rules of keys (SwitchKV, section 3.4).
//!
//! ```text
//! [network]
//! rules = "parted"                          # a key's rule is where its backend is; "replicated": everywhere
//! [[network.switch]]
//! datapath = "0000000000000001"
//! links = [{ port = 9, to = "0000000000000002" }]
//! [[network.switch]]
//! datapath = "0000000000000002"
//! links = [{ port = 9, to = "0000000000000001" }]
//! [[member]]
//! switch = "0000000000000002"               # each member: its switch, and the port there
//! switch_port = 3
//! ```
//! Always true: each switch is reached from each, and each host is at one port of one of them.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
};

use guira_openflow::{DatapathId, Fabric, FabricError, Port, RulesOfKeys};
use guira_routing::{Encoding, MacAddress};
use serde::{Deserialize, Serialize};

use super::{Member, Network, Router, StaticFile, network::as_text};

/// A switch of several.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinedSwitch {
    /// Which.
    #[serde(with = "as_text")]
    pub datapath: DatapathId,
    /// Its ports that lead to others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
}

/// A port that leads to another switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The port.
    pub port: u32,
    /// The other switch.
    #[serde(with = "as_text")]
    pub to: DatapathId,
}

/// What is wrong with how switches are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinedError {
    /// They are not OpenFlow switches, or headers are not in IPv6 addresses.
    OneSwitch,
    /// They cannot be joined so.
    Fabric(FabricError),
    /// It is not said, or not of one of them, at which switch a member is.
    Switch(u16),
    /// At which port a member is is not said, or none.
    Port(u16),
    /// Two members are on one host, and not at one port.
    TwoPlaces(u16, u16),
    /// Rules of keys are parted, and it is not said among which switches.
    NoneToPart,
}

impl Display for JoinedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneSwitch => f.write_str(
                "network: switch: switches that are joined have router = \"openflow\" and encoding = \"ipv6=PREFIX\": a router of ours, and mac=PREFIX, take one",
            ),
            Self::Fabric(error) => write!(f, "network: switch: {error}"),
            Self::Switch(id) => {
                write!(f, "member {id}: switch: the datapath of a [[network.switch]], where there are such, and else none")
            }
            Self::Port(id) => {
                write!(f, "member {id}: switch_port: where switches are joined they have to be told it, and it leads to no switch")
            }
            Self::TwoPlaces(id, other) => {
                write!(f, "members {id} and {other}: switch_port: one mac is at one port of one switch")
            }
            Self::NoneToPart => f.write_str("network: rules: parted among switches that a [[network.switch]] each names"),
        }
    }
}

impl std::error::Error for JoinedError {}

impl Network {
    /// How switches are joined, if a file says so.
    fn fabric(&self) -> Option<Result<Fabric, FabricError>> {
        let links = |switch: &JoinedSwitch| switch.links.clone().into_iter().map(|Link { port, to }| (Port(port), to));
        let switches = self.joined.iter().map(|switch| (switch.datapath, links(switch)));
        (!self.joined.is_empty()).then(|| Fabric::new(switches))
    }
}

impl StaticFile {
    /// How a cluster's switches are joined, and which of them have the rules of keys; `None`: the file does not say.
    pub fn fabric(&self) -> Option<(Fabric, RulesOfKeys)> {
        let network = self.network.as_ref()?;
        Some((network.fabric()?.ok()?, network.rules))
    }

    pub(super) fn check_joined(&self) -> Result<(), JoinedError> {
        let Some(network) = &self.network else { return Ok(()) };
        let Some(fabric) = network.fabric() else {
            let plugged = self.members.iter().find(|member| member.plug.switch.is_some());
            return match plugged {
                Some(member) => Err(JoinedError::Switch(member.id)),
                None if network.rules == RulesOfKeys::Parted => Err(JoinedError::NoneToPart),
                None => Ok(()),
            };
        };
        let Encoding::Ipv6(_) = network.encoding else { return Err(JoinedError::OneSwitch) };
        if network.router != Router::Openflow {
            return Err(JoinedError::OneSwitch);
        }
        let fabric = fabric.map_err(JoinedError::Fabric)?;
        let mut hosts: BTreeMap<MacAddress, &Member> = BTreeMap::new();
        for member in &self.members {
            let (id, plug) = (member.id, member.plug);
            let switch = plug.switch.filter(|switch| fabric.has(*switch)).ok_or(JoinedError::Switch(id))?;
            let is_free = |port: &Port| port.is_number() && !fabric.is_link(switch, *port);
            plug.switch_port.map(Port).filter(is_free).ok_or(JoinedError::Port(id))?;
            let other = plug.mac.and_then(|mac| hosts.insert(mac, member));
            if let Some(other) = other.filter(|other| other.plug != plug) {
                return Err(JoinedError::TwoPlaces(other.id, id));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two switches: the controller, the gateway and the cache node are at the first, the backend at the second.
    fn text() -> String {
        let mut text = String::from(
            "secret = \"a secret that is long enough\"
            [network]
            router = \"openflow\"
            encoding = \"ipv6=fd5e:a1c0::/32\"
            gets_port = 7100
            switches = \"10.0.0.1:6653\"
            rules = \"parted\"
            [[network.switch]]
            datapath = \"0000000000000001\"
            links = [{ port = 9, to = \"0000000000000002\" }]
            [[network.switch]]
            datapath = \"0000000000000002\"
            links = [{ port = 8, to = \"0000000000000001\" }]\n",
        );
        let members = [
            (1, "controller", 1, 1, ""),
            (100, "cache", 1, 2, ""),
            (1_000, "backend", 2, 1, ""),
            (10_000, "gateway", 1, 1, "listen = \"127.0.0.1:11211\""),
        ];
        for (id, role, switch, port, more) in members {
            text += &format!(
                "[[member]]\nid = {id}\nrole = \"{role}\"\naddress = \"[fd5e:a1c0:0:{id:x}::1]:7000\"\n\
                 mac = \"02:00:00:00:0{switch}:0{port}\"\nswitch = \"{switch:016x}\"\nswitch_port = {port}\n{more}\n"
            );
        }
        text
    }

    fn refused(from: &str, to: &str) -> String {
        let text = text();
        assert!(text.contains(from), "{from}");
        StaticFile::parse(&text.replace(from, to)).expect_err("it is refused").to_string()
    }

    #[test]
    fn switches_are_read_as_they_are_written() {
        let file = StaticFile::parse(&text()).unwrap();
        assert_eq!(StaticFile::parse(&file.print().unwrap()).unwrap(), file);
        let (fabric, of_keys) = file.fabric().unwrap();
        assert_eq!(of_keys, RulesOfKeys::Parted);
        assert!(fabric.is_link(DatapathId(1), Port(9)) && fabric.is_link(DatapathId(2), Port(8)));
        let switches: Vec<Option<DatapathId>> = file.places().map(|(_, place)| place.switch).collect();
        assert_eq!(switches, [1, 1, 2, 1].map(|id| Some(DatapathId(id))));
        let replicated = StaticFile::parse(&text().replace("rules = \"parted\"", "")).unwrap();
        assert_eq!(replicated.fabric().unwrap().1, RulesOfKeys::Replicated);
    }

    #[test]
    fn what_cannot_be_joined_is_refused_with_what_to_do() {
        assert_eq!(refused("\"openflow\"", "\"xdp\""), JoinedError::OneSwitch.to_string());
        let unknown = "links = [{ port = 8, to = \"0000000000000003\" }]";
        let leads_nowhere = refused("links = [{ port = 8, to = \"0000000000000001\" }]", unknown);
        let no_way_back = FabricError::NoWayBack(DatapathId(1), DatapathId(2));
        assert_eq!(leads_nowhere, JoinedError::Fabric(no_way_back).to_string());
        assert!(refused("datapath = \"0000000000000002\"", "datapath = \"2\"").contains("16 hexadecimal digits"));
        assert!(refused("\"parted\"", "\"everywhere\"").contains("are replicated"));
        assert_eq!(refused("\nswitch = \"0000000000000002\"", ""), JoinedError::Switch(1_000).to_string());
        let elsewhere = refused("\nswitch = \"0000000000000002\"", "\nswitch = \"0000000000000007\"");
        assert_eq!(elsewhere, JoinedError::Switch(1_000).to_string());
        assert_eq!(refused("switch_port = 2", ""), JoinedError::Port(100).to_string());
        assert_eq!(refused("switch_port = 2", "switch_port = 9"), JoinedError::Port(100).to_string());
        assert_eq!(refused("switch_port = 2", "switch_port = 0"), JoinedError::Port(100).to_string());
        // The gateway is on the controller's host.
        let two = refused("switch_port = 1\nlisten", "switch_port = 7\nlisten");
        assert_eq!(two, JoinedError::TwoPlaces(1, 10_000).to_string());

        let text = text();
        let (switches, members) = (text.find("[[network.switch]]").unwrap(), text.find("[[member]]").unwrap());
        let without = format!("{}{}", &text[..switches], &text[members..]);
        assert_eq!(StaticFile::parse(&without).unwrap_err().to_string(), JoinedError::Switch(1).to_string());
        let lines: Vec<&str> = without.lines().filter(|line| !line.starts_with("switch =")).collect();
        let unplugged = StaticFile::parse(&lines.join("\n")).unwrap_err();
        assert_eq!(unplugged.to_string(), JoinedError::NoneToPart.to_string());
    }
}
