//! The file that tells the process id, for as long as the process runs; and memcached's file that tells the ports.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Removes its file when dropped.
#[derive(Debug)]
pub(crate) struct Pidfile(PathBuf);

impl Pidfile {
    pub(crate) fn write(path: &Path) -> Result<Self, String> {
        std::fs::write(path, format!("{}\n", std::process::id()))
            .map_err(|error| format!("-P {}: cannot be written ({error}): choose another path", path.display()))?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes the ports where `MEMCACHED_PORT_FILENAME` says, as memcached's tests and wrappers expect; whole or not at all.
pub(crate) fn write_ports(tcp: &[SocketAddr], udp: &[SocketAddr]) -> Result<(), String> {
    let Some(path) = std::env::var_os("MEMCACHED_PORT_FILENAME").map(PathBuf::from) else { return Ok(()) };
    let line = |kind: &str, address: &SocketAddr| {
        let family = if address.is_ipv6() { "INET6" } else { "INET" };
        format!("{kind} {family}: {}\n", address.port())
    };
    let tcp = tcp.iter().map(|address| line("TCP", address));
    let text: String = tcp.chain(udp.iter().map(|address| line("UDP", address))).collect();
    let draft = path.with_extension("new");
    std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, &path)).map_err(|error| {
        let path = path.display();
        format!("MEMCACHED_PORT_FILENAME={path}: cannot be written ({error}): choose another path or unset it")
    })
}
