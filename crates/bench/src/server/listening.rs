//! Whether a process listens on a port, as the kernel tells in /proc.
//!
//! A connection that is accepted does not show it: while a port is looked for, it is listened on for a moment, and a process that
//! another thread starts meanwhile keeps a copy of that socket until it executes its program. Who connects then is cut off.

use std::fs;

/// The state of a socket that listens, in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Whether process `pid` listens on TCP `port`, on any address. False if the process has ended or may not be looked at.
pub fn listens(pid: u32, port: u16) -> bool {
    let tables =
        ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default());
    let sockets: Vec<String> = tables.iter().flat_map(|table| listeners(table, port)).collect();
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut open = open.flatten().filter_map(|file| fs::read_link(file.path()).ok());
    open.any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
}

/// The sockets of `table`, `/proc/net/tcp` or `tcp6`, that listen on `port`, as links to them name them.
fn listeners(table: &str, port: u16) -> impl Iterator<Item = String> {
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_whitespace();
        let (_, local_port) = fields.nth(1)?.rsplit_once(':')?;
        let (state, inode) = (fields.nth(1)?, fields.nth(5)?);
        let is_it = u16::from_str_radix(local_port, 16) == Ok(port) && state == LISTENING;
        is_it.then(|| format!("socket:[{inode}]"))
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::process::{Command, Stdio};

    use super::*;

    /// Servers were taken for ready because somebody else had their port for a moment, and their first client was cut off.
    #[test]
    fn who_accepts_is_told_from_who_listens() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("its number").port();
        let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().expect("a process");
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        assert!(listens(std::process::id(), port));
        assert!(!listens(other.id(), port), "it has been started, and does not listen");
        let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        let client_port = connected.local_addr().expect("its number").port();
        assert!(!listens(std::process::id(), client_port), "it is connected");
        drop(listener);
        assert!(!listens(std::process::id(), port), "nobody listens any more");
        drop(other.stdin.take());
        other.wait().expect("it ends with its input");
        assert!(!listens(other.id(), port));
    }
}
