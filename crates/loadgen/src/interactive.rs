//! Clients that react to answers: each connection asks its player what to send next, one turn at a time.
//!
//! Always true: a player is asked for a turn only when the answer to its last one has been shown to it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::Events;

use crate::affinity;
use crate::connection::{Connection, expect_heard, open_poll, wait};
use crate::driver::{Begun, Moment, Observer, Outcome};
use crate::error::LoadError;
use crate::latency::Latencies;
use crate::protocol::{Answered, FixedShape, Protocol, Turn};
use crate::tally::Tally;

/// What a player does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It appended a turn that gets these answers.
    Turn(Turn),
    /// Nothing before this time, nanoseconds from the start of the run.
    NotBefore(u64),
    /// It has finished.
    Done,
}

/// Decides what one connection sends.
pub trait Player {
    /// Appends the next turn's bytes to `out` (empty on entry), or says why there is none now.
    fn next(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<Next, LoadError>;

    /// Sees the complete answer to its last turn and what it was measured to say.
    fn answered(&mut self, bytes: &[u8], answered: Answered) -> Result<(), LoadError>;
}

/// One run of players.
#[derive(Clone, Debug)]
pub struct PlayPlan {
    /// The server.
    pub address: SocketAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// The answers' one shape, if there is one.
    pub shape: Option<FixedShape>,
    /// Time before the clock starts.
    pub warm_up: Duration,
    /// The measured interval; `None` until every player is done.
    pub measure: Option<Duration>,
    /// The generator's core; `None` for any.
    pub core: Option<usize>,
}

/// Connects one connection a player and lets them play. The players come back with what they learned.
pub fn play<P: Player>(plan: &PlayPlan, players: &mut [P], observe: &mut Observer<'_>) -> Result<Outcome, LoadError> {
    let _pinned = plan.core.map(affinity::pin).transpose()?;
    let mut poll = open_poll()?;
    let mut seats = Vec::with_capacity(players.len());
    for (number, player) in players.iter_mut().enumerate() {
        let mut seat = Seat::connect(plan, player)?;
        seat.connection.register(&poll, number)?;
        seats.push(seat);
    }
    let start = Instant::now();
    let now = || start.elapsed().as_nanos() as u64;
    let mut table = Table { tally: Tally::default(), latencies: Latencies::default(), turns: 0, heard_ns: 0 };
    let mut begun: Option<Begun> = None;
    let mut events = Events::with_capacity(1024);
    let mut buffer = Vec::new();
    loop {
        let now_ns = now();
        if begun.is_none() && now_ns >= plan.warm_up.as_nanos() as u64 {
            observe(Moment::Begin);
            table.latencies = Latencies::default();
            begun = Some(Begun::at(now(), table.tally, table.turns));
        }
        let finished = seats.iter().all(|seat| seat.wait == Wait::Finished);
        if let Some(begun) = &begun {
            let ends_ns = plan.measure.map(|measure| begun.at_ns + measure.as_nanos() as u64);
            if finished || ends_ns.is_some_and(|ends_ns| now_ns >= ends_ns) {
                let outcome = begun.outcome(now(), &table.tally, table.turns);
                observe(Moment::End);
                return Ok(Outcome { latencies: table.latencies, ..outcome });
            }
        }
        let mut timeout = Duration::from_millis(if finished { 1 } else { 50 });
        for seat in &mut seats {
            if let Wait::Until(due_ns) = seat.wait {
                if due_ns <= now_ns {
                    seat.proceed(now_ns)?;
                } else {
                    timeout = timeout.min(Duration::from_nanos(due_ns - now_ns));
                }
            }
        }
        wait(&mut poll, &mut events, timeout)?;
        for event in &events {
            let seat = &mut seats[event.token().0];
            if event.is_writable() {
                seat.flush()?;
            }
            if event.is_readable() || event.is_read_closed() {
                seat.receive(plan, &mut buffer, &mut table, &now)?;
            }
        }
        expect_heard(table.heard_ns, now_ns, || seats.iter().any(|seat| matches!(seat.wait, Wait::Answer(_))))?;
    }
}

/// Sums over all seats.
struct Table {
    tally: Tally,
    latencies: Latencies,
    turns: u64,
    heard_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Answer(Turn),
    Until(u64),
    Finished,
}

struct Seat<'p, P> {
    connection: Connection,
    player: &'p mut P,
    out: Vec<u8>,
    written: usize,
    wait: Wait,
    sent_ns: u64,
}

impl<'p, P: Player> Seat<'p, P> {
    fn connect(plan: &PlayPlan, player: &'p mut P) -> Result<Self, LoadError> {
        let connection = Connection::connect(plan.address)?;
        Ok(Self { connection, player, out: Vec::new(), written: 0, wait: Wait::Until(0), sent_ns: 0 })
    }

    fn proceed(&mut self, now_ns: u64) -> Result<(), LoadError> {
        self.out.clear();
        self.written = 0;
        self.wait = match self.player.next(now_ns, &mut self.out)? {
            Next::Turn(turn) => Wait::Answer(turn),
            Next::NotBefore(due_ns) => Wait::Until(due_ns.max(now_ns + 1)),
            Next::Done => Wait::Finished,
        };
        self.sent_ns = now_ns;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), LoadError> {
        self.written += self.connection.write(&self.out[self.written..])?;
        Ok(())
    }

    fn receive(
        &mut self,
        plan: &PlayPlan,
        buffer: &mut Vec<u8>,
        table: &mut Table,
        now: &impl Fn() -> u64,
    ) -> Result<(), LoadError> {
        while let Some(filled) = self.connection.read(buffer)? {
            let bytes = &buffer[..filled.len];
            let Wait::Answer(turn) = self.wait else { return Err(LoadError::garbled(bytes)) };
            match plan.protocol.measure(bytes, turn, plan.shape)? {
                None => self.connection.keep(bytes),
                Some(answered) if answered.len_bytes < bytes.len() => {
                    return Err(LoadError::garbled(&bytes[answered.len_bytes..]));
                }
                Some(answered) => {
                    self.connection.keep(&[]);
                    table.heard_ns = now();
                    table.tally.count(answered);
                    table.turns += 1;
                    table.latencies.record_ns(table.heard_ns.saturating_sub(self.sent_ns));
                    self.player.answered(bytes, answered)?;
                    self.proceed(table.heard_ns)?;
                }
            }
            if filled.is_last {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Sends `left` gets of one absent key.
    struct Asking {
        left: u32,
        misses: u32,
        not_before_ns: u64,
        /// Times that it was asked for a turn before that.
        asked_too_early: u32,
    }

    impl Player for Asking {
        fn next(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<Next, LoadError> {
            if now_ns < self.not_before_ns {
                self.asked_too_early += 1;
                return Ok(Next::NotBefore(self.not_before_ns));
            }
            if self.left == 0 {
                return Ok(Next::Done);
            }
            self.left -= 1;
            out.extend_from_slice(b"get nothing\r\n");
            Ok(Next::Turn(Turn { lines: 0, get_keys: 1 }))
        }

        fn answered(&mut self, _: &[u8], answered: Answered) -> Result<(), LoadError> {
            self.misses += answered.misses;
            Ok(())
        }
    }

    #[test]
    fn players_take_turns_until_all_are_done() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for stream in listener.incoming().take(2).flatten() {
                std::thread::spawn(move || {
                    let mut stream = stream;
                    stream.set_nodelay(true).expect("no delay");
                    let mut buffer = [0; 1024];
                    // Split on purpose: an answer may come in pieces.
                    while stream.read(&mut buffer).is_ok_and(|read| read > 0)
                        && stream.write_all(b"EN").and_then(|()| stream.write_all(b"D\r\n")).is_ok()
                    {
                    }
                });
            }
        });
        let plan = PlayPlan {
            address,
            protocol: Protocol::MemcacheText,
            shape: None,
            warm_up: Duration::ZERO,
            measure: None,
            core: None,
        };
        let mut players = [
            Asking { left: 100, misses: 0, not_before_ns: 0, asked_too_early: 0 },
            Asking { left: 50, misses: 0, not_before_ns: 5_000_000, asked_too_early: 0 },
        ];
        let outcome = play(&plan, &mut players, &mut |_| ()).expect("plays");
        assert_eq!((players[0].misses, players[1].misses), (100, 50));
        assert_eq!((outcome.turns, outcome.tally.misses), (150, 150));
        assert!(outcome.elapsed_s > 0.0);
        // When it is first asked for one it may be late enough already.
        assert!(players[1].asked_too_early <= 1, "it is waited until then");
    }
}
