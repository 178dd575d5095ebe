//! Whether a process listens on a port, as the kernel tells in /proc.
//!
//! A connection that is accepted does not show it: while a port is looked for, it is listened on for a moment, and a process that
//! another thread starts meanwhile keeps a copy of that socket until it executes its program. Who connects then is cut off.

use std::{
    fs,
    io::{self, ErrorKind},
};

/// The state of a socket that listens, in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Whether process `pid` listens on TCP `port`, on any address. False if the process has ended. Of one that may not be looked into,
/// since it has become another user's, it is told whether anyone listens there.
pub fn listens(pid: u32, port: u16) -> bool {
    let tables =
        ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default());
    let sockets: Vec<String> = tables.iter().flat_map(|table| listeners(table, port)).collect();
    let may_be = |error: io::Error| error.kind() == ErrorKind::PermissionDenied && !sockets.is_empty();
    match fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(mut open) => open.any(|file| match file.and_then(|file| fs::read_link(file.path())) {
            Ok(target) => sockets.iter().any(|socket| target.as_os_str() == socket.as_str()),
            Err(error) => may_be(error),
        }),
        Err(error) => may_be(error),
    }
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
    use std::{
        io::{Read, Write},
        net::{Ipv4Addr, TcpListener, TcpStream},
        process::{Command, Stdio},
    };

    use super::*;

    /// Servers were taken for ready because somebody else had their port for a moment, and their first client was cut off.
    #[test]
    fn who_accepts_is_told_from_who_listens() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("its number").port();
        let mut other = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        // Once it answers it executes its program, and has none of our sockets any more.
        let (mut input, mut output) =
            (other.stdin.take().expect("its input"), other.stdout.take().expect("its output"));
        input.write_all(b"x").expect("it reads");
        output.read_exact(&mut [0]).expect("it answers");
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        assert!(listens(std::process::id(), port));
        assert!(!listens(other.id(), port), "it has been started, and does not listen");
        let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        let client_port = connected.local_addr().expect("its number").port();
        assert!(!listens(std::process::id(), client_port), "it is connected");
        drop(listener);
        assert!(!listens(std::process::id(), port), "nobody listens any more");
        drop(input);
        other.wait().expect("it ends with its input");
        assert!(!listens(other.id(), port));
    }
}
