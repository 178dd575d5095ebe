//! A client that says bytes and expects bytes.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;

use guira_server::Server;

use super::PATIENCE;

/// A connection.
pub struct Client<T> {
    pub stream: T,
    /// Received and not yet expected.
    held: Vec<u8>,
}

impl Client<TcpStream> {
    pub fn connect(server: &Server) -> Self {
        Self::connect_to(server.tcp_addresses()[0])
    }

    /// A connection for CPSERVER's protocol.
    pub fn connect_cp(server: &Server) -> Self {
        Self::connect_to(server.cp_addresses()[0])
    }

    fn connect_to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, held: Vec::new() }
    }
}

impl Client<UnixStream> {
    pub fn connect_unix(path: &std::path::Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, held: Vec::new() }
    }
}

impl<T: Read + Write> Client<T> {
    pub fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Exactly these bytes must come next.
    #[track_caller]
    pub fn expect(&mut self, wanted: impl AsRef<[u8]>) {
        let wanted = wanted.as_ref();
        while self.held.len() < wanted.len() {
            assert!(self.receive(), "closed after {} bytes: {:?}", self.held.len(), shortened(&self.held));
        }
        let got: Vec<u8> = self.held.drain(..wanted.len()).collect();
        assert!(got == wanted, "got {:?}, wanted {:?}", shortened(&got), shortened(wanted));
    }

    /// Says and expects.
    #[track_caller]
    pub fn ask(&mut self, bytes: impl AsRef<[u8]>, wanted: impl AsRef<[u8]>) {
        self.say(bytes);
        self.expect(wanted);
    }

    /// Everything up to and including `end`.
    #[track_caller]
    pub fn read_to(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.held.windows(end.len()).position(|window| window == end.as_bytes()) {
                let text = self.held.drain(..at + end.len()).collect();
                return String::from_utf8(text).unwrap();
            }
            assert!(self.receive(), "closed before {end:?}");
        }
    }

    /// The rest, until the server closes.
    pub fn read_all(&mut self) -> Vec<u8> {
        while self.receive() {}
        std::mem::take(&mut self.held)
    }

    /// The server must close without another byte.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        let rest = self.read_all();
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }

    /// `stats ...` as a table.
    pub fn stats(&mut self, which: &str) -> HashMap<String, String> {
        self.say(format!("stats {which}\r\n"));
        let text = self.read_to("END\r\n");
        text.lines()
            .filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    fn receive(&mut self) -> bool {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(len) => {
                self.held.extend_from_slice(&buffer[..len]);
                len > 0
            }
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => false,
            Err(error) => panic!("{error}; so far: {:?}", shortened(&self.held)),
        }
    }
}

/// Enough of it to see what it is.
fn shortened(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(500)]).into_owned()
}
