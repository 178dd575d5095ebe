//! Listeners: TCP on several addresses, a Unix socket, UDP.
//!
//! Always true: binding all of them succeeds or nothing stays bound; an accepted TCP connection inherits no-delay and
//! keep-alive from its listener, so that accepting costs one system call.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use guira_memcache::Dialect;
use mio::net::{TcpListener, UdpSocket, UnixListener};
use rustix::fs::Mode;
use socket2::{Domain, Protocol, Socket, Type};

use crate::settings::{ListenAddress, Settings};

/// Datagrams may come in bursts: what the kernel may hold of them, in bytes.
const UDP_RECEIVE_BUFFER_LEN: usize = 4 << 20;

/// Bound, not yet served.
#[derive(Debug, Default)]
pub struct Listeners {
    pub(crate) tcp: Vec<BoundTcp>,
    pub(crate) udp: Vec<UdpSocket>,
    pub(crate) unix: Option<BoundUnix>,
    pub(crate) metrics: Option<std::net::TcpListener>,
}

/// A TCP listener, and what its clients speak.
#[derive(Debug)]
pub(crate) struct BoundTcp {
    pub(crate) listener: TcpListener,
    pub(crate) dialect: Dialect,
}

/// A Unix socket's listener and its file, which goes when the listener does.
#[derive(Debug)]
pub(crate) struct BoundUnix {
    pub(crate) listener: UnixListener,
    pub(crate) path: PathBuf,
}

impl Drop for BoundUnix {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Why listening failed, in one line that says what to do.
#[derive(Debug)]
pub enum ListenError {
    /// Another program listens there.
    Taken {
        /// `TCP`, `CPSERVER`, `UDP` or `metrics`.
        kind: &'static str,
        /// Where.
        address: SocketAddr,
    },
    /// A port below 1024 without the right to it.
    Forbidden {
        /// `TCP`, `CPSERVER`, `UDP` or `metrics`.
        kind: &'static str,
        /// Where.
        address: SocketAddr,
    },
    /// No interface has this address.
    NotHere {
        /// `TCP`, `CPSERVER`, `UDP` or `metrics`.
        kind: &'static str,
        /// Where.
        address: SocketAddr,
    },
    /// A name that resolves to nothing.
    UnknownHost {
        /// The name.
        host: String,
    },
    /// The Unix socket's path is taken by something else, or cannot be made.
    Unix {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Anything else.
    Other {
        /// Where.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// Nothing to listen on.
    Nothing,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { kind: "metrics", address } => {
                write!(f, "{address} is taken: choose another address with --metrics")
            }
            Self::Taken { kind, address } => {
                let (port, ip, flag) = (address.port(), address.ip(), port_flag(kind));
                write!(f, "{kind} port {port} on {ip} is taken: stop the other server or choose another with {flag}")
            }
            Self::Forbidden { kind, address } => {
                let flag = port_flag(kind);
                write!(
                    f,
                    "no permission to listen on {address}: choose a port above 1023 with {flag}, or start as root"
                )
            }
            Self::NotHere { kind, address } => {
                let flag = if *kind == "metrics" { "--metrics" } else { "-l" };
                write!(f, "no interface of this machine has the address {}: check {flag}", address.ip())
            }
            Self::UnknownHost { host } => write!(f, "the host {host:?} is unknown: check -l"),
            Self::Unix { path, error } => {
                write!(f, "cannot listen on the Unix socket {}: {error}; choose another path with -s", path.display())
            }
            Self::Other { address, error } => write!(f, "cannot listen on {address}: {error}"),
            Self::Nothing => write!(f, "nothing to listen on: give a port with -p, or a Unix socket with -s"),
        }
    }
}

impl std::error::Error for ListenError {}

impl Listeners {
    /// Binds everything `settings` asks for.
    ///
    /// # Errors
    /// [`ListenError`] for the first that fails; none stays bound.
    pub fn bind(settings: &Settings) -> Result<Self, ListenError> {
        let mut listeners = Self::default();
        if let Some(path) = &settings.unix_socket {
            listeners.unix = Some(bind_unix(path, settings)?);
        } else {
            let everywhere = [ListenAddress { host: None, port: None }];
            let wanted = if settings.listen.is_empty() { &everywhere[..] } else { &settings.listen };
            for address in wanted {
                if let Some(port) = settings.tcp_port.map(|port| address.port.unwrap_or(port)) {
                    for address in resolve(address, port)? {
                        listeners.tcp.extend(bind_tcp(address, Dialect::Memcached, settings.backlog)?);
                    }
                }
                if let Some(port) = settings.udp_port {
                    for address in resolve(address, port)? {
                        listeners.udp.extend(bind_udp(address)?);
                    }
                }
            }
            if let Some(port) = settings.cp_port {
                listeners.bind_cp(wanted, port, settings.backlog)?;
            }
            if listeners.tcp.is_empty() && listeners.udp.is_empty() {
                return Err(ListenError::Nothing);
            }
        }
        if let Some(address) = settings.metrics {
            let listener = std::net::TcpListener::bind(address).map_err(|error| explain("metrics", address, error))?;
            listeners.metrics = Some(listener);
        }
        Ok(listeners)
    }

    /// Binds `port` on the hosts of `wanted`, whose own ports are memcached's: a host may stand there several times, or
    /// beside a wildcard that covers it.
    fn bind_cp(&mut self, wanted: &[ListenAddress], port: u16, backlog: u32) -> Result<(), ListenError> {
        let mut addresses = Vec::new();
        for address in wanted {
            addresses.extend(resolve(address, port)?);
        }
        for address in each_once(addresses) {
            self.tcp.extend(bind_tcp(address, Dialect::Cp, backlog)?);
        }
        Ok(())
    }

    /// Where memcached's TCP clients may connect.
    pub fn tcp_addresses(&self) -> Vec<SocketAddr> {
        self.addresses_for(Dialect::Memcached)
    }

    /// Where CPSERVER's clients may connect.
    pub fn cp_addresses(&self) -> Vec<SocketAddr> {
        self.addresses_for(Dialect::Cp)
    }

    fn addresses_for(&self, dialect: Dialect) -> Vec<SocketAddr> {
        let bound = self.tcp.iter().filter(|bound| bound.dialect == dialect);
        bound.filter_map(|bound| bound.listener.local_addr().ok()).collect()
    }

    /// Where UDP clients may send.
    pub fn udp_addresses(&self) -> Vec<SocketAddr> {
        self.udp.iter().filter_map(|socket| socket.local_addr().ok()).collect()
    }

    /// Where Prometheus may scrape.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// The Unix socket's path.
    pub fn unix_path(&self) -> Option<&Path> {
        self.unix.as_ref().map(|unix| unix.path.as_path())
    }

    /// File descriptors held.
    pub fn len(&self) -> usize {
        self.tcp.len() + self.udp.len() + usize::from(self.unix.is_some()) + usize::from(self.metrics.is_some())
    }

    /// Whether nothing is bound.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Everything a host name stands for; for "everywhere" both families, of which one may be missing.
fn resolve(address: &ListenAddress, port: u16) -> Result<Vec<SocketAddr>, ListenError> {
    let Some(host) = &address.host else {
        let v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        // With port 0 the two families would get different ports; one is then enough.
        if port == 0 {
            return Ok(vec![SocketAddr::new(v4, port)]);
        }
        return Ok(vec![SocketAddr::new(v4, port), SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)]);
    };
    let unknown = || ListenError::UnknownHost { host: host.clone() };
    let mut found: Vec<SocketAddr> = (host.as_str(), port).to_socket_addrs().map_err(|_| unknown())?.collect();
    found.dedup();
    if found.is_empty() { Err(unknown()) } else { Ok(found) }
}

/// What of `addresses`, which have one port, has to be bound to hear on all of them: a wildcard covers its family, and no more
/// than that, as IPv6 sockets are for IPv6 only.
fn each_once(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let covers = |a: &SocketAddr, b: &SocketAddr| a.ip().is_unspecified() && a.is_ipv4() == b.is_ipv4();
    let mut kept: Vec<SocketAddr> = Vec::new();
    for address in addresses {
        if !kept.iter().any(|other| *other == address || covers(other, &address)) {
            kept.retain(|other| !covers(&address, other));
            kept.push(address);
        }
    }
    kept
}

fn port_flag(kind: &str) -> &'static str {
    match kind {
        "metrics" => "--metrics",
        "UDP" => "-U",
        "CPSERVER" => "--cp-port",
        _ => "-p",
    }
}

fn explain(kind: &'static str, address: SocketAddr, error: io::Error) -> ListenError {
    match error.kind() {
        io::ErrorKind::AddrInUse => ListenError::Taken { kind, address },
        io::ErrorKind::PermissionDenied => ListenError::Forbidden { kind, address },
        io::ErrorKind::AddrNotAvailable => ListenError::NotHere { kind, address },
        _ => ListenError::Other { address, error },
    }
}

/// A machine without IPv6 still listens "everywhere".
fn is_missing_family(address: SocketAddr, error: &io::Error) -> bool {
    address.is_ipv6()
        && address.ip().is_unspecified()
        && matches!(error.raw_os_error(), Some(code) if
            code == rustix::io::Errno::AFNOSUPPORT.raw_os_error() || code == rustix::io::Errno::ADDRNOTAVAIL.raw_os_error())
}

fn bind_tcp(address: SocketAddr, dialect: Dialect, backlog: u32) -> Result<Option<BoundTcp>, ListenError> {
    let bind = || -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_tcp_nodelay(true)?;
        socket.set_keepalive(true)?;
        socket.bind(&address.into())?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(TcpListener::from_std(socket.into()))
    };
    match bind() {
        Ok(listener) => Ok(Some(BoundTcp { listener, dialect })),
        Err(error) if is_missing_family(address, &error) => Ok(None),
        Err(error) => {
            let kind = if dialect == Dialect::Cp { "CPSERVER" } else { "TCP" };
            Err(explain(kind, address, error))
        }
    }
}

fn bind_udp(address: SocketAddr) -> Result<Option<UdpSocket>, ListenError> {
    let bind = || -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        // A wish: the kernel grants less if its limit is lower.
        let _ = socket.set_recv_buffer_size(UDP_RECEIVE_BUFFER_LEN);
        socket.bind(&address.into())?;
        Ok(UdpSocket::from_std(socket.into()))
    };
    match bind() {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if is_missing_family(address, &error) => Ok(None),
        Err(error) => Err(explain("UDP", address, error)),
    }
}

fn bind_unix(path: &Path, settings: &Settings) -> Result<BoundUnix, ListenError> {
    let failed = |error| ListenError::Unix { path: path.to_owned(), error };
    // A socket left behind by a server that died is in the way; one that still answers, or another file, is not ours.
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, "the path is taken by a file")));
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(failed(io::Error::new(io::ErrorKind::AddrInUse, "another server answers there")));
        }
        std::fs::remove_file(path).map_err(failed)?;
    }
    let bind = || -> io::Result<BoundUnix> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        // memcached's -a is the mode the socket gets, through the complement as umask.
        let before = rustix::process::umask(Mode::from_raw_mode(!settings.unix_mask & 0o777));
        let bound = socket.bind(&socket2::SockAddr::unix(path)?);
        rustix::process::umask(before);
        bound?;
        let bound = BoundUnix { listener: UnixListener::from_std(socket.into()), path: path.to_owned() };
        socket2::SockRef::from(&bound.listener).listen(i32::try_from(settings.backlog).unwrap_or(i32::MAX))?;
        Ok(bound)
    };
    bind().map_err(failed)
}

/// How long accepting pauses when the process has no file descriptor left, unless a connection closes before.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    /// `-l 0.0.0.0:11211,127.0.0.1:11212 --cp-port 5000` used to find its own port taken.
    #[test]
    fn a_wildcard_covers_its_family() {
        let once = |list: &[&str]| {
            let addresses = list.iter().map(|text| text.parse().expect("an address")).collect();
            each_once(addresses).iter().map(SocketAddr::to_string).collect::<Vec<_>>()
        };
        assert_eq!(once(&["127.0.0.1:5", "127.0.0.2:5", "127.0.0.1:5"]), ["127.0.0.1:5", "127.0.0.2:5"]);
        assert_eq!(once(&["0.0.0.0:5", "127.0.0.1:5", "[::1]:5"]), ["0.0.0.0:5", "[::1]:5"]);
        assert_eq!(once(&["127.0.0.1:5", "[::1]:5", "127.0.0.2:5", "0.0.0.0:5"]), ["[::1]:5", "0.0.0.0:5"]);
        assert_eq!(once(&["127.0.0.1:5", "[::1]:5", "[::]:5", "[::]:5"]), ["127.0.0.1:5", "[::]:5"]);
    }
}
