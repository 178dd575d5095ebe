//! Ports on this machine: whether clients can be listened for there, and such that members may have.

use std::{
    io, iter,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
};

use guira_server::allow_open_files;
use socket2::{Domain, Socket, Type};

/// Whether all of these could be listened on, each by one.
pub(super) fn can_listen_on(addresses: impl IntoIterator<Item = SocketAddr>) -> Result<(), String> {
    let mut seen: Vec<SocketAddr> = Vec::new();
    for address in addresses {
        // One that is everywhere is there, too.
        let is_there = |other: &SocketAddr| {
            let ips = [other.ip(), address.ip()];
            other.port() == address.port() && (ips[0] == ips[1] || ips.iter().any(IpAddr::is_unspecified))
        };
        if seen.iter().any(is_there) {
            return Err(format!("cannot listen on {address} twice"));
        }
        can_listen(address).map_err(|error| format!("cannot listen on {address}: {error}"))?;
        seen.push(address);
    }
    Ok(())
}

/// Allows what takes to find so many ports.
pub(super) fn allow_ports(ports: u64) -> Result<(), String> {
    let files = 2 * ports + 256;
    let allowed = allow_open_files(0, files);
    allowed.map(drop).map_err(|_| format!("{ports} ports: {files} open files have to be allowed (ulimit -n)"))
}

/// Whether one could listen there. Nobody who comes meanwhile is let in, and left alone then.
fn can_listen(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // As who is to listen there does: connections that have ended are in nobody's way.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}

/// Ports that are tried in vain at most.
const PORTS_MISSED_MAX: usize = 1_000;

/// Addresses on this machine that nobody has now, for datagrams and for streams, on other ports than the clients'; for each as many ports side by side as it has parts.
pub(super) fn free_addresses(parts: impl IntoIterator<Item = u16>, clients: &[u16]) -> io::Result<Vec<SocketAddr>> {
    // Held until all are there, so that none comes twice.
    let (mut held, mut missed) = (Vec::new(), 0);
    let mut free = |parts: u16| loop {
        match hold_all(parts, clients) {
            Ok((address, sockets)) => {
                held.extend(sockets);
                break Ok(address);
            }
            // Some are free for datagrams and not for streams, or have one behind them that is not.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && missed < PORTS_MISSED_MAX => missed += 1,
            Err(error) => break Err(error),
        }
    };
    parts.into_iter().map(&mut free).collect()
}

/// A port that nobody else is given meanwhile.
type Held = (UdpSocket, TcpListener);

/// So many ports on this machine, side by side.
fn hold_all(parts: u16, clients: &[u16]) -> io::Result<(SocketAddr, Vec<Held>)> {
    let (address, first) = hold((Ipv4Addr::LOCALHOST, 0).into(), clients)?;
    // Beyond the last port there is none.
    let port = |at: u16| address.port().checked_add(at).ok_or(io::Error::from(io::ErrorKind::AddrInUse));
    let others = (1..parts).map(|at| hold((Ipv4Addr::LOCALHOST, port(at)?).into(), clients).map(|(_, held)| held));
    let held = iter::once(Ok(first)).chain(others).collect::<io::Result<Vec<_>>>()?;
    Ok((address, held))
}

fn hold(address: SocketAddr, clients: &[u16]) -> io::Result<(SocketAddr, Held)> {
    let datagrams = UdpSocket::bind(address)?;
    let address = datagrams.local_addr()?;
    if clients.contains(&address.port()) {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    Ok((address, (datagrams, TcpListener::bind(address)?)))
}
