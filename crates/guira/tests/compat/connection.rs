//! A client's connection, with a deadline on everything that could wait for ever.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
};

use crate::condition::DEADLINE;

/// How a conversation went on: a test that does not look at it may go on with a connection that is closed.
#[must_use]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The awaited end of the answer came.
    Answer(Vec<u8>),
    /// The server closed the connection after these bytes.
    Closed(Vec<u8>),
    /// Neither came before the deadline.
    Nothing(Vec<u8>),
}

/// A TCP connection to a server.
pub struct Connection {
    stream: TcpStream,
}

impl Connection {
    /// Connects; panics if nobody listens.
    pub fn open(address: SocketAddr) -> Self {
        Self::try_open(address).unwrap_or_else(|error| panic!("connecting to {address}: {error}"))
    }

    /// Connects.
    pub fn try_open(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::from_stream(TcpStream::connect(address)?))
    }

    /// A connection that was made in another way.
    pub fn from_stream(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("no delay");
        stream.set_read_timeout(Some(DEADLINE)).expect("a read deadline");
        stream.set_write_timeout(Some(DEADLINE)).expect("a write deadline");
        Self { stream }
    }

    /// The socket, for what only few tests do.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends all of `bytes`, or as much as the server takes before it closes.
    pub fn send(&mut self, bytes: &[u8]) {
        match self.stream.write_all(bytes) {
            Ok(()) => {}
            Err(error) if is_closed(error.kind()) => {}
            Err(error) => panic!("sending {} bytes: {error}", bytes.len()),
        }
    }

    /// Says that nothing more will come.
    pub fn finish_sending(&mut self) {
        self.stream.shutdown(Shutdown::Write).ok();
    }

    /// Reads until what was heard ends with `end`.
    pub fn hear(&mut self, end: &[u8]) -> Heard {
        let mut heard = Vec::new();
        let mut piece = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Heard::Closed(heard),
                Ok(len) => heard.extend_from_slice(&piece[..len]),
                Err(error) if is_closed(error.kind()) => return Heard::Closed(heard),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Heard::Nothing(heard),
            }
            if !end.is_empty() && heard.ends_with(end) {
                return Heard::Answer(heard);
            }
        }
    }

    /// Reads until the server closes.
    pub fn hear_all(&mut self) -> Heard {
        self.hear(b"")
    }

    /// Sends and reads at the same time: a server may stop reading while nobody reads its answers.
    pub fn converse(&mut self, bytes: &[u8], end: &[u8]) -> Heard {
        let mut sender = Self { stream: self.stream.try_clone().expect("a second handle of a socket") };
        thread::scope(|scope| {
            scope.spawn(move || sender.send(bytes));
            let heard = self.hear(end);
            if !matches!(heard, Heard::Answer(_)) {
                // The sender, if it still waits, waits in vain.
                self.stream.shutdown(Shutdown::Both).ok();
            }
            heard
        })
    }

    /// Sends a request and returns its answer, which ends with `end`.
    pub fn ask(&mut self, request: &[u8], end: &[u8]) -> Vec<u8> {
        self.send(request);
        match self.hear(end) {
            Heard::Answer(answer) => answer,
            other => panic!("{:?} was asked; awaited {:?}, heard {other:?}", show(request), show(end)),
        }
    }

    /// Sends a request and insists on this very answer.
    #[track_caller]
    pub fn expect(&mut self, request: &[u8], answer: &[u8]) {
        // Items may come one by one.
        let end = if answer.ends_with(b"\r\nEND\r\n") { b"END\r\n".len() } else { b"\r\n".len() };
        let heard = self.ask(request, &answer[answer.len().saturating_sub(end)..]);
        assert_eq!(show(&heard), show(answer), "to {:?}", show(request));
    }
}

fn is_closed(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe)
}

/// Bytes as a person reads them, shortened.
pub fn show(bytes: &[u8]) -> String {
    const SHOWN_LEN_MAX: usize = 300;
    let text = bytes[..bytes.len().min(SHOWN_LEN_MAX)].escape_ascii().to_string();
    if bytes.len() <= SHOWN_LEN_MAX { text } else { format!("{text}... ({} bytes)", bytes.len()) }
}
