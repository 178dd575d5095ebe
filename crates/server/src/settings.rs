//! What an operator may choose about the server: plain values, fixed while it runs.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Watch;

/// Called when a client changes the verbosity, with the new level (as many as `-v` were given).
pub type VerbosityHook = Arc<dyn Fn(u32) + Send + Sync>;

/// Where to listen: a host name, an address or a pattern, as `-l` takes them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenAddress {
    /// Host name or address; `None`: every interface.
    pub host: Option<String>,
    /// Port, if it is not the common one.
    pub port: Option<u16>,
}

/// Everything the server needs to know. The defaults are memcached's.
#[derive(Clone)]
pub struct Settings {
    /// Interfaces for TCP and UDP; empty: all.
    pub listen: Vec<ListenAddress>,
    /// TCP port: 0 picks a free one, `None` is off.
    pub tcp_port: Option<u16>,
    /// TCP port for CPSERVER's protocol: 0 picks a free one, `None` is off. Not with a Unix socket.
    pub cp_port: Option<u16>,
    /// UDP port: 0 picks a free one, `None` is off.
    pub udp_port: Option<u16>,
    /// A Unix socket instead of TCP and UDP.
    pub unix_socket: Option<PathBuf>,
    /// Permissions of the Unix socket (`-a`), for instance 0o700.
    pub unix_mask: u32,
    /// Connections the kernel holds until they are accepted.
    pub backlog: u32,
    /// Worker threads, at least 1.
    pub threads: usize,
    /// Connections at a time.
    pub connections_max: usize,
    /// Beyond that, tell clients and close, rather than leave them waiting.
    pub connections_max_fast: bool,
    /// Batches a connection may have answered before it is another's turn (`-R`).
    pub batches_per_turn_max: usize,
    /// A connection that says nothing for so long is closed.
    pub idle_timeout: Option<Duration>,
    /// What the protocol obeys.
    pub protocol: guira_memcache::Settings,
    /// Bytes of unfinished commands that all connections together may have sent; beyond that the service lends memory for
    /// them, or they are refused.
    pub input_len_max: usize,
    /// Bytes of answers that all connections together may leave unread.
    pub output_len_max: usize,
    /// Bytes waiting for one watcher; what comes beyond is dropped and counted.
    pub watcher_queue_len_max: usize,
    /// Where Prometheus may scrape.
    pub metrics: Option<SocketAddr>,
    /// Answer to `version`.
    pub version: &'static str,
    /// Called on `verbosity`.
    pub on_verbosity: Option<VerbosityHook>,
    /// Count by prefix of the key from the start on (`stats detail`).
    pub prefix_stats: bool,
    /// `stats sizes` works from the start on (`-o track_sizes`).
    pub track_sizes: bool,
    /// What `stats settings` shows of the engine's options.
    pub shown: Shown,
    /// The server's time; it begins with the settings, so that what is loaded before the server starts goes by it.
    pub watch: Watch,
}

/// Options that only `stats settings` shows: they mean something to the engine or the operator, not to the server.
#[derive(Clone, Debug)]
pub struct Shown {
    /// `-v` at the start.
    pub verbosity: u32,
    /// Items may be evicted (off with `-M`).
    pub evictions: bool,
    /// `-f`.
    pub growth_factor: f64,
    /// `-n`, in bytes.
    pub chunk_size_min: usize,
    /// `-D`: what a prefix ends with.
    pub prefix_delimiter: u8,
    /// `-e`.
    pub memory_file: Option<PathBuf>,
}

/// The version of memcached whose behaviour is spoken. Bare digits, because clients and proxies parse it.
pub const MEMCACHED_VERSION: &str = "1.6.18";

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            tcp_port: Some(11211),
            cp_port: None,
            udp_port: None,
            unix_socket: None,
            unix_mask: 0o700,
            backlog: 1024,
            threads: 4,
            connections_max: 1024,
            connections_max_fast: true,
            batches_per_turn_max: 20,
            idle_timeout: None,
            protocol: guira_memcache::Settings::default(),
            input_len_max: 64 << 20,
            output_len_max: 64 << 20,
            watcher_queue_len_max: 256 << 10,
            metrics: None,
            version: MEMCACHED_VERSION,
            on_verbosity: None,
            prefix_stats: false,
            track_sizes: false,
            shown: Shown {
                verbosity: 0,
                evictions: true,
                growth_factor: 1.25,
                chunk_size_min: 48,
                prefix_delimiter: b':',
                memory_file: None,
            },
            watch: Watch::start(),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("listen", &self.listen)
            .field("tcp_port", &self.tcp_port)
            .field("cp_port", &self.cp_port)
            .field("udp_port", &self.udp_port)
            .field("unix_socket", &self.unix_socket)
            .field("threads", &self.threads)
            .field("connections_max", &self.connections_max)
            .finish_non_exhaustive()
    }
}

impl ListenAddress {
    /// Reads one `-l` value: `host`, `host:port`, `[v6]`, `[v6]:port`, a bare IPv6 address, `*`; a comma-separated list of
    /// them.
    ///
    /// # Errors
    /// A line that names what was not understood.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(Self::parse).collect()
    }

    fn parse(text: &str) -> Result<Self, String> {
        // memcached's mark for an address without TLS, which none here has.
        let text = text.strip_prefix("notls:").unwrap_or(text);
        let port_of = |port: &str| {
            port.parse::<u16>().map(Some).map_err(|_| format!("-l {text}: {port:?} is not a port; write host:port"))
        };
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, after) =
                rest.split_once(']').ok_or_else(|| format!("-l {text}: the closing bracket is missing"))?;
            match after.strip_prefix(':') {
                Some(port) => (host, port_of(port)?),
                None if after.is_empty() => (host, None),
                None => return Err(format!("-l {text}: write [address]:port")),
            }
        } else {
            match text.split_once(':') {
                Some((_, rest)) if rest.contains(':') => (text, None),
                Some((host, port)) => (host, port_of(port)?),
                None => (text, None),
            }
        };
        let host = (!matches!(host, "" | "*")).then(|| host.to_owned());
        Ok(Self { host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_in_many_forms() {
        let one = |text: &str| {
            let list = ListenAddress::parse_list(text).expect(text);
            assert_eq!(list.len(), 1, "{text}");
            (list[0].host.clone(), list[0].port)
        };
        let host = |name: &str| Some(name.to_owned());
        assert_eq!(one("localhost"), (host("localhost"), None));
        assert_eq!(one("127.0.0.1:11212"), (host("127.0.0.1"), Some(11212)));
        assert_eq!(one("::1"), (host("::1"), None));
        assert_eq!(one("[::1]:11213"), (host("::1"), Some(11213)));
        assert_eq!(one("[::1]"), (host("::1"), None));
        assert_eq!(one("*:11214"), (None, Some(11214)));
        assert_eq!(ListenAddress::parse_list("a:1, b,,c").expect("three").len(), 3);
        assert_eq!(one("notls:a:1"), (host("a"), Some(1)));
        assert!(ListenAddress::parse_list("a:port").is_err());
        assert!(ListenAddress::parse_list("[::1").is_err());
    }

    /// Each `notls:` was read by a call within the one before, so that a file with many of them in a row ended the program for
    /// want of stack.
    #[test]
    fn a_mark_counts_once() {
        assert_eq!(ListenAddress::parse_list("notls:notls:1").expect("a host of that name")[0].port, Some(1));
        let many = "notls:".repeat(1 << 20);
        assert_eq!(ListenAddress::parse_list(&many).expect("a strange host")[0].port, None);
    }
}
