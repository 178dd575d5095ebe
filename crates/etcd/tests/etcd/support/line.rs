//! A line to etcd that can be cut, or lose what is said.
//!
//! ```text
//! client --> [ line ] --> etcd        open: both ways; deaf: answers are lost; silent: all is lost; cut: hung up, at once;
//!        <--          <--             held: what is asked waits until the line is opened
//! ```
//! Always true: what was lost on a connection never comes later on that connection: it is cut when the line is opened again, unless nothing was lost.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Open,
    Deaf,
    Silent,
    Cut,
    Held,
}

/// What clients have said.
enum When {
    /// So many bytes more.
    Bytes(usize),
    /// This, at a time.
    Said(&'static str),
}

impl When {
    fn is_now(&mut self, said: &[u8]) -> bool {
        match self {
            Self::Bytes(rest) => {
                *rest = rest.saturating_sub(said.len());
                *rest == 0
            }
            Self::Said(text) => said.windows(text.len()).any(|window| window == text.as_bytes()),
        }
    }
}

struct State {
    mode: Mode,
    /// It is in that mode from then on.
    then: Option<(Mode, When)>,
    streams: Vec<TcpStream>,
    has_ended: bool,
}

/// And who waits for another mode.
type Shared = (Mutex<State>, Condvar);

pub struct Line {
    address: SocketAddr,
    state: Arc<Shared>,
}

impl Line {
    pub fn to(etcd: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("its address");
        let state =
            (Mutex::new(State { mode: Mode::Open, then: None, streams: Vec::new(), has_ended: false }), Condvar::new());
        let state: Arc<Shared> = Arc::new(state);
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                let mut state = shared.0.lock().expect("nobody has panicked");
                if state.has_ended {
                    return;
                }
                let Some(server) = TcpStream::connect(etcd).ok().filter(|_| state.mode != Mode::Cut) else { continue };
                for (from, to, is_answer) in [(&client, &server, false), (&server, &client, true)] {
                    let (from, to) = (from.try_clone().expect("one more"), to.try_clone().expect("one more"));
                    state.streams.push(from.try_clone().expect("one more"));
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || carry(from, to, is_answer, &shared));
                }
            }
        });
        Self { address, state }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn set(&self, mode: Mode) {
        let mut state = self.state.0.lock().expect("nobody has panicked");
        let was = std::mem::replace(&mut state.mode, mode);
        state.then = None;
        if mode == Mode::Cut || (mode == Mode::Open && was != Mode::Held) {
            state.hang_up();
        }
        self.state.1.notify_all();
    }

    /// In that mode once clients have said so many bytes more: more than all but a map is, which is not said whole before it is so.
    pub fn set_within_a_map(&self, mode: Mode) {
        self.state.0.lock().expect("nobody has panicked").then = Some((mode, When::Bytes(8 << 10)));
    }

    /// In that mode once a client says that.
    pub fn set_when_said(&self, mode: Mode, text: &'static str) {
        self.state.0.lock().expect("nobody has panicked").then = Some((mode, When::Said(text)));
    }

    pub fn is(&self, mode: Mode) -> bool {
        self.state.0.lock().expect("nobody has panicked").mode == mode
    }
}

impl State {
    fn hang_up(&mut self) {
        for stream in self.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut state = self.state.0.lock().expect("nobody has panicked");
        state.has_ended = true;
        state.mode = Mode::Cut;
        state.hang_up();
        self.state.1.notify_all();
        // Wakes who waits for one.
        let _ = TcpStream::connect(self.address);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_answer: bool, state: &Shared) {
    let mut bytes = [0; 16 << 10];
    loop {
        let len = match from.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => break,
            Ok(len) => len,
        };
        let mut now = state.0.lock().expect("nobody has panicked");
        if let Some((mode, _)) = now.then.take_if(|(_, when)| !is_answer && when.is_now(&bytes[..len])) {
            now.mode = mode;
        }
        let is_held = |now: &mut State| now.mode == Mode::Held && !is_answer;
        let now = state.1.wait_while(now, is_held).expect("nobody has panicked");
        let is_carried = match now.mode {
            Mode::Open | Mode::Held => true,
            Mode::Deaf => !is_answer,
            Mode::Silent | Mode::Cut => false,
        };
        drop(now);
        if is_carried && to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
