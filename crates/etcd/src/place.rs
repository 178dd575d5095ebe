//! Where a cluster is: the hosts of an etcd, and the cluster's name there. What stands behind `etcd:`.
//!
//! ```text
//! HOST:PORT[,HOST:PORT...][/NAME]
//! ```
//! Always true: there is a host, and no more than are tried within an operation; the name is part of a key as it is.

use std::{fmt, net::SocketAddr, str::FromStr};

/// Hosts at most: etcd itself is advised to have seven.
const HOSTS_MAX: usize = 16;

/// Bytes of a name, at most.
const NAME_LEN_MAX: usize = 64;

/// The name of a cluster that is given none.
const NAME: &str = "guira";

/// Where a cluster is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    hosts: Vec<String>,
    name: String,
}

/// Why that is no place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlaceError {
    /// It is no host with its port.
    Host(String),
    /// More hosts than there may be.
    Hosts(usize),
    /// It is no name.
    Name(String),
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(f, "'{host}': write HOST:PORT, such as 10.0.0.1:2379"),
            Self::Hosts(count) => write!(f, "{count} hosts: {HOSTS_MAX} at most"),
            Self::Name(name) => write!(f, "'{name}': a name has 1 to {NAME_LEN_MAX} letters, digits or any of -_."),
        }
    }
}

impl std::error::Error for PlaceError {}

impl Place {
    /// Hosts of etcd, with their ports.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Whether all hosts are this machine, as addresses or by the name of it.
    pub fn is_loopback(&self) -> bool {
        let is_this = |host: &String| match host.parse::<SocketAddr>() {
            Ok(address) => address.ip().to_canonical().is_loopback(),
            Err(_) => host.starts_with("localhost:"),
        };
        self.hosts.iter().all(is_this)
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn is_host(host: &str) -> bool {
    let Some((host, port)) = host.rsplit_once(':') else { return false };
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    is_port
        && match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(is_name),
        }
}

fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_part)
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let (hosts, name) = text.split_once('/').unwrap_or((text, NAME));
        if !is_name(name) {
            return Err(PlaceError::Name(name.to_owned()));
        }
        let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        if hosts.len() > HOSTS_MAX {
            return Err(PlaceError::Hosts(hosts.len()));
        }
        match hosts.iter().find(|host| !is_host(host)) {
            Some(host) => Err(PlaceError::Host(host.clone())),
            None => Ok(Self { hosts, name: name.to_owned() }),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.hosts.join(","), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_as_it_is_read() {
        for (text, hosts, name) in [
            ("127.0.0.1:2379", 1, "guira"),
            ("a-1.example:1,b_2:65535,[::1]:2379/shop.eu-1_b", 3, "shop.eu-1_b"),
            (&format!("{}/{}", vec!["h:1"; HOSTS_MAX].join(","), "n".repeat(NAME_LEN_MAX)), 16, &"n".repeat(64)),
        ] {
            let place: Place = text.parse().expect(text);
            assert_eq!((place.hosts().len(), place.name()), (hosts, name));
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        assert_eq!("h:1".parse::<Place>().expect("a place").to_string(), "h:1/guira");
    }

    #[test]
    fn a_place_on_this_machine_is_told_from_another() {
        for (text, is_loopback) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1,[::1]:1,localhost:2/shop", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("127.0.0.1:1,10.0.0.1:1", false),
            ("localhost.example:1", false),
        ] {
            assert_eq!(text.parse::<Place>().expect(text).is_loopback(), is_loopback, "{text}");
        }
    }

    #[test]
    fn what_is_no_place_is_said_in_a_line() {
        let hosts_too_many = vec!["h:1"; HOSTS_MAX + 1].join(",");
        for (text, says) in [
            ("", "'': write HOST:PORT"),
            ("host", "'host': write HOST:PORT"),
            ("host:", "'host:': write"),
            ("host:0", "'host:0': write"),
            ("host:+1", "'host:+1': write"),
            ("host:65536", "'host:65536': write"),
            (":1", "':1': write"),
            ("h:1,", "'': write"),
            ("http://h:1", "'/h:1': a name has"),
            ("a b:1", "'a b:1': write"),
            ("::1:1", "'::1:1': write"),
            ("[::g]:1", "'[::g]:1': write"),
            ("h:1/", "'': a name has 1 to 64"),
            ("h:1/a/b", "'a/b': a name has"),
            ("h:1/ü", "'ü': a name has"),
            (&format!("h:1/{}", "n".repeat(NAME_LEN_MAX + 1)), "'nnn"),
            (&hosts_too_many, "17 hosts: 16 at most"),
        ] {
            let line = text.parse::<Place>().expect_err(text).to_string();
            assert!(line.starts_with(says) && !line.contains('\n'), "{line}");
        }
    }
}
