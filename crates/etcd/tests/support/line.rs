//! A line to etcd that can be cut, or lose what is said.
//!
//! ```text
//! client --> [ line ] --> etcd        open: both ways; deaf: answers are lost; silent: all is lost; cut: hung up, at once
//!        <--          <--
//! ```
//! Always true: what was lost on a connection never comes later on that connection: it is cut when the line is opened again.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Open,
    Deaf,
    Silent,
    Cut,
}

struct State {
    mode: Mode,
    streams: Vec<TcpStream>,
    has_ended: bool,
}

pub struct Line {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Line {
    pub fn to(etcd: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("its address");
        let state = Arc::new(Mutex::new(State { mode: Mode::Open, streams: Vec::new(), has_ended: false }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                let mut state = shared.lock().expect("nobody has panicked");
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
        let mut state = self.state.lock().expect("nobody has panicked");
        state.mode = mode;
        if matches!(mode, Mode::Open | Mode::Cut) {
            state.hang_up();
        }
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
        let mut state = self.state.lock().expect("nobody has panicked");
        state.has_ended = true;
        state.hang_up();
        // Wakes who waits for one.
        let _ = TcpStream::connect(self.address);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_answer: bool, state: &Mutex<State>) {
    let mut bytes = [0; 16 << 10];
    loop {
        let len = match from.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => break,
            Ok(len) => len,
        };
        let is_carried = match state.lock().expect("nobody has panicked").mode {
            Mode::Open => true,
            Mode::Deaf => !is_answer,
            Mode::Silent | Mode::Cut => false,
        };
        if is_carried && to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
