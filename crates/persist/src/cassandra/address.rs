//! Where a Cassandra is, as a user writes it: `HOST[:PORT],...[/KEYSPACE]`.

use std::str::FromStr;

/// Cassandra's own port for clients.
const PORT: u16 = 9042;

/// The keyspace, if none is given.
const KEYSPACE: &str = "guira";

/// Cassandra's limit on the name of a keyspace.
const KEYSPACE_LEN_MAX: usize = 48;

/// Nodes to ask first, and the keyspace that is the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CassandraAddress {
    /// Each with its port: `10.0.0.1:9042`, `[::1]:9042`, `db.example:9042`.
    pub(super) nodes: Vec<String>,
    pub(super) keyspace: String,
}

impl FromStr for CassandraAddress {
    type Err = String;

    /// The error says what is wrong with which part.
    fn from_str(text: &str) -> Result<Self, String> {
        let (hosts, keyspace) = text.split_once('/').unwrap_or((text, KEYSPACE));
        let is_name = keyspace.starts_with(|first: char| first.is_ascii_lowercase())
            && keyspace.chars().all(|other| matches!(other, 'a'..='z' | '0'..='9' | '_'));
        if !is_name || keyspace.len() > KEYSPACE_LEN_MAX {
            return Err(format!(
                "keyspace '{keyspace}': write at most {KEYSPACE_LEN_MAX} of a-z, 0-9 and _, a letter first"
            ));
        }
        let nodes: Result<Vec<String>, String> = hosts.split(',').map(node).collect();
        Ok(Self { nodes: nodes?, keyspace: keyspace.into() })
    }
}

fn node(text: &str) -> Result<String, String> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, port) = match bracketed {
        Some((host, "")) => (format!("[{host}]"), None),
        Some((host, rest)) => (format!("[{host}]"), Some(rest.strip_prefix(':').unwrap_or(rest))),
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host.into(), Some(port)),
            None => (text.into(), None),
        },
    };
    let is_host = !host.is_empty() && (bracketed.is_some() || !host.contains([':', '[', ']', ' ']));
    if !is_host {
        return Err(format!("host '{text}': write HOST or HOST:PORT, an IPv6 address in brackets"));
    }
    let port = match port {
        None => PORT,
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or(format!("'{text}': no such port"))?,
    };
    Ok(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_completed() {
        let parsed = |text: &str| text.parse::<CassandraAddress>().map(|address| (address.nodes, address.keyspace));
        let is = |nodes: &[&str], keyspace: &str| {
            Ok((nodes.iter().map(|node| node.to_string()).collect::<Vec<_>>(), keyspace.to_string()))
        };
        assert_eq!(parsed("127.0.0.1"), is(&["127.0.0.1:9042"], "guira"));
        assert_eq!(parsed("a,b:1,[::1],[::2]:3/k_1"), is(&["a:9042", "b:1", "[::1]:9042", "[::2]:3"], "k_1"));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, wanted) in [
            ("", "host ''"),
            ("a,", "host ''"),
            ("a,:9042", "host ':9042'"),
            ("::1", "in brackets"),
            ("a:0", "no such port"),
            ("a:99999", "no such port"),
            ("a:x", "no such port"),
            ("[::1]9042x", "no such port"),
            ("a/", "keyspace ''"),
            ("a/Cache", "keyspace 'Cache'"),
            ("a/1", "keyspace '1'"),
            ("a/b/c", "keyspace 'b/c'"),
        ] {
            let error = text.parse::<CassandraAddress>().expect_err(text);
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
