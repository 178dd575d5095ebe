//! Replays a trace: requests in their order, batched only where the order allows, as fast as answers come or at the
//! recorded times.
//!
//! A turn is a run of writes followed by a run of reads, so that within one replay a read never overtakes a write.

use std::collections::VecDeque;
use std::io::Read;

use crate::error::LoadError;
use crate::interactive::{Next, Player};
use crate::mix::Kind;
use crate::payload::push_value;
use crate::protocol::{Answered, KeyList, Protocol, Turn};
use crate::trace::{Request, Trace};

/// Bad lines after which a file is taken for something else than a trace.
const BAD_LINES_MAX: u64 = 1000;
/// Messages about bad lines that are kept.
const MESSAGES_MAX: usize = 10;

/// How to replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayPace {
    /// Requests in one turn at most.
    pub batch: usize,
    /// Recorded seconds replayed in one; `None` as fast as answers come.
    pub speed: Option<f64>,
    /// Requests replayed at most.
    pub requests_max: u64,
}

/// Plays a trace on one connection.
pub struct Replay<R> {
    trace: Trace<R>,
    protocol: Protocol,
    pace: ReplayPace,
    ahead: VecDeque<Request>,
    first_s: Option<u64>,
    replayed: u64,
    ended: bool,
    bad_lines: u64,
    messages: Vec<String>,
    keys: KeyList,
    value: Vec<u8>,
    version: u32,
}

impl<R: Read> Replay<R> {
    /// A replay of `trace`.
    pub fn new(trace: Trace<R>, protocol: Protocol, pace: ReplayPace) -> Self {
        Self {
            trace,
            protocol,
            pace,
            ahead: VecDeque::new(),
            first_s: None,
            replayed: 0,
            ended: false,
            bad_lines: 0,
            messages: Vec::new(),
            keys: KeyList::default(),
            value: Vec::new(),
            version: 0,
        }
    }

    /// Number of bad lines so far, and what is wrong with the first of them.
    pub fn bad_lines(&self) -> (u64, &[String]) {
        (self.bad_lines, &self.messages)
    }

    /// Makes sure that the next request, if there is one, is in `ahead`.
    fn look_ahead(&mut self) -> Result<(), LoadError> {
        while self.ahead.is_empty() && !self.ended {
            match self.trace.next() {
                _ if self.replayed >= self.pace.requests_max => self.ended = true,
                None => self.ended = true,
                Some(Ok(request)) => self.ahead.push_back(request),
                Some(Err(error @ LoadError::Line { .. })) => {
                    self.bad_lines += 1;
                    if self.bad_lines > BAD_LINES_MAX {
                        return Err(error);
                    }
                    if self.messages.len() < MESSAGES_MAX {
                        self.messages.push(error.to_string());
                    }
                }
                Some(Err(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// When a request of this time is due, nanoseconds from the start of the replay.
    fn due_ns(&mut self, timestamp_s: u64) -> u64 {
        let first_s = *self.first_s.get_or_insert(timestamp_s);
        let Some(speed) = self.pace.speed else { return 0 };
        (timestamp_s.saturating_sub(first_s) as f64 * 1e9 / speed) as u64
    }
}

impl<R: Read> Player for Replay<R> {
    fn next(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<Next, LoadError> {
        let mut turn = Turn::default();
        let mut with_cas = false;
        self.keys.clear();
        while (turn.lines as usize + self.keys.len()) < self.pace.batch.max(1) {
            self.look_ahead()?;
            let Some(request) = self.ahead.pop_front() else { break };
            let due_ns = self.due_ns(request.timestamp_s);
            let nothing_yet = turn.lines == 0 && self.keys.is_empty();
            if due_ns > now_ns {
                self.ahead.push_front(request);
                if nothing_yet {
                    return Ok(Next::NotBefore(due_ns));
                }
                break;
            }
            if request.kind.reads() {
                if !self.keys.is_empty() && with_cas != (request.kind == Kind::Gets) {
                    self.ahead.push_front(request);
                    break;
                }
                with_cas = request.kind == Kind::Gets;
                self.keys.push_with(|out| out.extend_from_slice(&request.key));
            } else if self.keys.is_empty() {
                self.version = self.version.wrapping_add(1);
                self.value.clear();
                push_value(&mut self.value, &request.key, self.version, request.value_len_bytes as usize);
                let exptime = u64::from(request.ttl_s);
                self.protocol.push_write(out, request.kind, &request.key, &self.value, exptime)?;
                turn.lines += 1;
            } else {
                self.ahead.push_front(request);
                break;
            }
            self.replayed += 1;
        }
        if !self.keys.is_empty() {
            self.protocol.push_get(out, &self.keys, with_cas);
            turn.get_keys = self.keys.len() as u32;
        }
        self.protocol.push_turn_end(out, turn);
        Ok(if turn == Turn::default() { Next::Done } else { Next::Turn(turn) })
    }

    fn answered(&mut self, _: &[u8], _: Answered) -> Result<(), LoadError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0,a,1,3,1,set,0\n0,a,1,3,1,get,0\nbad\n0,b,1,3,1,get,0\n5,a,1,3,1,delete,0\n";

    fn replay(pace: ReplayPace) -> Replay<&'static [u8]> {
        Replay::new(Trace::new("t.csv".into(), TRACE.as_bytes()), Protocol::MemcacheText, pace)
    }

    #[test]
    fn order_is_kept_and_bad_lines_are_reported() {
        let mut replay = replay(ReplayPace { batch: 100, speed: None, requests_max: u64::MAX });
        let mut out = Vec::new();
        assert_eq!(replay.next(0, &mut out).expect("a turn"), Next::Turn(Turn { lines: 1, get_keys: 2 }));
        assert!(out.ends_with(b"\r\nget a b\r\n"));
        out.clear();
        assert_eq!(replay.next(0, &mut out).expect("a turn"), Next::Turn(Turn { lines: 1, get_keys: 0 }));
        assert_eq!(out, b"delete a\r\n");
        assert_eq!(replay.next(0, &mut out).expect("the end"), Next::Done);
        let (bad, messages) = replay.bad_lines();
        assert_eq!(bad, 1);
        assert!(messages[0].starts_with("t.csv: line 3"), "{messages:?}");
    }

    #[test]
    fn recorded_times_are_waited_for() {
        let mut replay = replay(ReplayPace { batch: 100, speed: Some(10.0), requests_max: u64::MAX });
        let mut out = Vec::new();
        assert!(matches!(replay.next(0, &mut out), Ok(Next::Turn(_))));
        out.clear();
        assert_eq!(replay.next(1, &mut out).expect("waits"), Next::NotBefore(500_000_000));
        assert!(matches!(replay.next(500_000_000, &mut out), Ok(Next::Turn(_))));
    }

    #[test]
    fn a_replay_can_be_cut_short() {
        let mut replay = replay(ReplayPace { batch: 1, speed: None, requests_max: 1 });
        let mut out = Vec::new();
        assert!(matches!(replay.next(0, &mut out), Ok(Next::Turn(_))));
        assert_eq!(replay.next(0, &mut out).expect("the end"), Next::Done);
    }
}
