//! A round: connections that all have something to read are first read, then answered, then written to, so that one client's
//! cache misses are waited for together with the others', and the kernel's code for each step is fetched once for all.
//!
//! ```text
//! read all -> guess each one's first key, prefetch -> parse and answer each into its seat's outbox -> send all
//! ```
//! Always true: only connections without anything unfinished take part; what does not fit a seat goes on in turns of the
//! connection's own; between rounds all outboxes are empty.

use guira_item::Service;
use guira_memcache::{Guess, Output};
use slab::Slab;

use crate::connection::{After, Connection, Ended};
use crate::desk::{Desk, OUTPUT_LEN_SEND};

/// Connections in a round: several times what memory can be asked for at once, and few enough that the first one's answer is
/// not kept waiting for long: by the others' reads, some hundred microseconds, and by answers of at most `OUTPUT_LEN_SEND`
/// bytes.
const SEATS: usize = 64;

/// Bytes read for one connection in a round: a get of a hundred keys, and more than most sets. Whoever sends more is read by
/// itself, into a larger buffer.
pub(crate) const SEAT_LEN: usize = 2 << 10;

/// Memory that a seat's outbox keeps between rounds, in bytes: what the answers to such a get take, with values of a hundred
/// bytes.
const OUTBOX_CAPACITY_MAX: usize = 16 << 10;

/// Connections that are served together, and what each needs meanwhile.
#[derive(Default)]
pub(crate) struct Round {
    seats: Vec<Seat>,
    /// Who takes part in the next rounds.
    invited: Vec<usize>,
    /// How it ended for those who took part, until the worker has seen to it.
    ended: Vec<(usize, Result<After, Ended>)>,
}

struct Seat {
    input: Box<[u8]>,
    outbox: Output,
    guess: Guess,
    /// Bytes read, or why the connection is to be closed.
    read: Result<usize, Ended>,
}

impl Round {
    /// Has a connection take part.
    #[inline]
    pub(crate) fn invite(&mut self, key: usize) {
        self.invited.push(key);
    }

    /// Who took part and has not been asked for yet, and how it ended.
    #[inline]
    pub(crate) fn next_ended(&mut self) -> Option<(usize, Result<After, Ended>)> {
        self.ended.pop()
    }

    /// Serves those who were invited and are still there, and notes how it ended for each.
    pub(crate) fn serve<S: Service>(&mut self, desk: &mut Desk<S>, connections: &mut Slab<Connection>) {
        let mut invited = std::mem::take(&mut self.invited);
        invited.retain(|key| connections.contains(*key));
        for keys in invited.chunks(SEATS) {
            match keys {
                // Nothing to share.
                [key] => self.ended.push((*key, connections[*key].turn(desk))),
                keys => self.serve_together(desk, connections, keys),
            }
        }
        invited.clear();
        self.invited = invited;
    }

    fn serve_together<S: Service>(&mut self, desk: &mut Desk<S>, connections: &mut Slab<Connection>, keys: &[usize]) {
        while self.seats.len() < keys.len() {
            self.seats.push(Seat::new());
        }
        let seats = &mut self.seats[..keys.len()];
        for (key, seat) in keys.iter().zip(&mut *seats) {
            seat.read = connections[*key].read_into(&mut seat.input, desk);
        }
        prefetch(desk, connections, keys, seats);
        // Answers wait for each other only while they are few: all seats together hold what one connection may.
        let mut waiting_len = 0;
        for (key, seat) in keys.iter().zip(&mut *seats) {
            if let Ok(len @ 1..) = seat.read {
                let connection = &mut connections[*key];
                seat.read = connection.take_in(desk, &seat.input[..len]).map(|()| len);
                if waiting_len + desk.outbox.len() >= OUTPUT_LEN_SEND && seat.read.is_ok() {
                    seat.read = connection.send(desk).map(|()| len);
                } else {
                    waiting_len += desk.outbox.len();
                }
                if seat.read.is_err() {
                    // Nobody is sent these any more.
                    desk.outbox.clear();
                }
                std::mem::swap(&mut desk.outbox, &mut seat.outbox);
            }
        }
        desk.publish();
        for (key, seat) in keys.iter().zip(&mut *seats) {
            std::mem::swap(&mut desk.outbox, &mut seat.outbox);
            let connection = &mut connections[*key];
            let sent = seat.read.and_then(|_| connection.send_published(desk));
            std::mem::swap(&mut desk.outbox, &mut seat.outbox);
            seat.outbox.clear();
            seat.outbox.shrink(OUTBOX_CAPACITY_MAX);
            self.ended.push((*key, sent.and_then(|()| connection.conclude())));
        }
    }
}

/// Has what the connections in `seats` are likely to ask for first fetched into the caches.
fn prefetch<S: Service>(desk: &mut Desk<S>, connections: &Slab<Connection>, keys: &[usize], seats: &mut [Seat]) {
    let mut first_keys = [[].as_slice(); SEATS];
    let mut len = 0;
    for (key, seat) in keys.iter().zip(seats) {
        let input = &seat.input[..seat.read.unwrap_or(0)];
        if let Some(first_key) = seat.guess.first_key(connections[*key].dialect(), input) {
            first_keys[len] = first_key;
            len += 1;
        }
    }
    desk.shared.service.prefetch(&mut desk.worker, &first_keys[..len]);
}

impl Seat {
    fn new() -> Self {
        let input = vec![0; SEAT_LEN].into_boxed_slice();
        Self { input, outbox: Output::default(), guess: Guess::default(), read: Ok(0) }
    }
}
