//! Hostile clients: a thread that does something unpleasant to a server a thousand times a second, until it is told to stop.
//!
//! Always true: what it does in a millisecond is little and the same for every server, so that what a healthy client
//! feels is the server's doing; a server that cannot keep up is not waited for beyond the socket's own buffers, but for
//! the floods, which wait for their answers.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use guira_loadgen::affinity;
use guira_loadgen::error::LoadError;
use rustix::process::setpriority_process;
use socket2::SockRef;

/// Time between two acts.
const PERIOD: Duration = Duration::from_millis(1);

/// Bytes that the slow add in one act, each to another command.
const TRICKLED_PER_ACT: usize = 5;

/// Keys that a flood asks for or sets in one act.
const FLOODED_PER_ACT: usize = 5;

/// Every so many acts of a flood are sets.
const FLOOD_SET_EVERY: usize = 10;

/// Connections that liars keep open before they leave them.
const LIARS_KEPT: usize = 100;

/// What liars announce: within the limit of an item, just below what is an error, and far beyond.
const LIES: [u64; 5] = [1_000_000, (1 << 31) - 3, (1 << 32) - 1, (1 << 63) - 1, u64::MAX];

/// Silence after which a server counts as gone.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What hostile clients do.
pub enum Hostility {
    /// Their connections are in the middle of a set, whose value comes a byte at a time.
    Slow {
        /// The connections.
        connections: Vec<TcpStream>,
        /// Whose turn it is.
        next: usize,
    },
    /// They connect, announce a long value, send a little of it and leave.
    Lying {
        /// The last ones.
        connections: Vec<TcpStream>,
        /// How many there have been.
        count: usize,
    },
    /// Somebody sets and gets keys of one hash.
    Flooding {
        /// Its connection.
        connection: TcpStream,
        /// The keys.
        keys: Vec<Vec<u8>>,
        /// How many it has asked for or set.
        count: usize,
    },
}

fn failed(source: std::io::Error) -> LoadError {
    LoadError::Network { doing: "being hostile", source }
}

fn connect(address: SocketAddr) -> Result<TcpStream, LoadError> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    // Whoever is through is gone at once, and leaves no port behind that waits for stragglers.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).map_err(failed)?;
    Ok(stream)
}

/// Sends a little, if the other side wants it.
fn offer(mut stream: &TcpStream, bytes: &[u8]) -> Result<(), LoadError> {
    match stream.write(bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        // The server is free to close.
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(_) => Ok(()),
    }
}

impl Hostility {
    /// `count` connections in the middle of a set.
    pub fn slow(address: SocketAddr, count: usize) -> Result<Self, LoadError> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            let stream = connect(address)?;
            offer(&stream, b"set slow 0 0 1000\r\n")?;
            stream.set_nonblocking(true).map_err(failed)?;
            connections.push(stream);
        }
        Ok(Self::Slow { connections, next: 0 })
    }

    /// Clients that announce more than they send.
    pub fn lying() -> Self {
        Self::Lying { connections: Vec::new(), count: 0 }
    }

    /// `keys`, all of them set once.
    pub fn flooding(address: SocketAddr, keys: Vec<Vec<u8>>) -> Result<Self, LoadError> {
        let mut connection = connect(address)?;
        for some in keys.chunks(FLOODED_PER_ACT) {
            set(&mut connection, some)?;
        }
        Ok(Self::Flooding { connection, keys, count: 0 })
    }

    /// One act; returns how many clients, bytes or keys that were.
    fn act(&mut self, address: SocketAddr) -> Result<u64, LoadError> {
        match self {
            Self::Slow { connections, next } => {
                for _ in 0..TRICKLED_PER_ACT {
                    offer(&connections[*next], b"x")?;
                    *next = (*next + 1) % connections.len();
                }
                Ok(TRICKLED_PER_ACT as u64)
            }
            Self::Lying { connections, count } => {
                let stream = connect(address)?;
                let len = LIES[*count % LIES.len()];
                offer(&stream, format!("set liar 0 0 {len}\r\nand this is all there is").as_bytes())?;
                if connections.len() < LIARS_KEPT {
                    connections.push(stream);
                } else {
                    connections[*count % LIARS_KEPT] = stream;
                }
                *count += 1;
                Ok(1)
            }
            Self::Flooding { connection, keys, count } => {
                let act = *count / FLOODED_PER_ACT;
                let from = *count % keys.len();
                let some = &keys[from..keys.len().min(from + FLOODED_PER_ACT)];
                if act.is_multiple_of(FLOOD_SET_EVERY) {
                    set(connection, some)?
                } else {
                    get(connection, some)?
                }
                *count += some.len();
                Ok(some.len() as u64)
            }
        }
    }
}

fn set(connection: &mut TcpStream, keys: &[Vec<u8>]) -> Result<(), LoadError> {
    let mut request = Vec::new();
    for key in keys {
        request.extend([b"set ", &key[..], b" 0 0 1\r\nx\r\n"].concat());
    }
    ask(connection, &request, &b"STORED\r\n".repeat(keys.len()))
}

fn get(connection: &mut TcpStream, keys: &[Vec<u8>]) -> Result<(), LoadError> {
    let mut answer = Vec::new();
    for key in keys {
        answer.extend([b"VALUE ", &key[..], b" 0 1\r\nx\r\n"].concat());
    }
    answer.extend(b"END\r\n");
    ask(connection, &[b"get ", &keys.join(&b' ')[..], b"\r\n"].concat(), &answer)
}

/// Insists on this very answer: a flood that lost its keys would be none.
fn ask(connection: &mut TcpStream, request: &[u8], answer: &[u8]) -> Result<(), LoadError> {
    connection.write_all(request).map_err(failed)?;
    let mut heard = vec![0; answer.len()];
    connection.read_exact(&mut heard).map_err(failed)?;
    if heard == answer { Ok(()) } else { Err(LoadError::garbled(&heard)) }
}

/// Hostile clients at work.
pub struct Assault {
    over: Arc<AtomicBool>,
    acts: Arc<AtomicU64>,
    began: Instant,
    thread: JoinHandle<Result<(), LoadError>>,
}

impl Assault {
    /// Begins, on `core` if one is given.
    pub fn begin(address: SocketAddr, mut hostility: Hostility, core: Option<usize>) -> Self {
        let (over, acts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_over, counted, began) = (Arc::clone(&over), Arc::clone(&acts), Instant::now());
        let thread = std::thread::spawn(move || {
            let _pinned = core.map(affinity::pin).transpose()?;
            // The least of all threads: if it has the generator's core, the healthy client's requests are not to wait for it there.
            // Of Linux's threads each has a priority of its own.
            setpriority_process(None, 19).map_err(|errno| failed(errno.into()))?;
            let mut due = Instant::now();
            while !is_over.load(Relaxed) {
                wait_until(due);
                // What could not be done in time is not made up for in a burst.
                due = (due + PERIOD).max(Instant::now());
                counted.fetch_add(hostility.act(address)?, Relaxed);
            }
            Ok(())
        });
        Self { over, acts, began, thread }
    }

    /// Ends; returns how many acts there were a second.
    pub fn end(self) -> Result<f64, LoadError> {
        let acts_per_s = self.acts.load(Relaxed) as f64 / self.began.elapsed().as_secs_f64();
        self.over.store(true, Relaxed);
        match self.thread.join() {
            Ok(result) => result.map(|()| acts_per_s),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a generator paces what it sends")]
fn wait_until(due: Instant) {
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
}
