//! CPHASH's way: a ring of cache lines in each direction, as its clients and partitions have them.

use guira_sync::ring::{Consumer, LINE_WORDS, Producer, ring};

use super::exchange::{Answer, Ask, wait_for};

/// Lines of a ring, as in the engine; more where a window takes more.
const RING_LINES: usize = 128;

/// The end that sends requests.
pub(super) struct Client {
    requests: Producer,
    replies: Consumer,
    /// Messages sent, each of which is its number.
    sent: u64,
}

/// The end that serves them.
pub(super) struct Server {
    requests: Consumer,
    replies: Producer,
}

/// Both ends of a pair of rings that hold a window each.
pub(super) fn ends(window: u64) -> (Client, Server) {
    let lines = RING_LINES.max((window as usize / LINE_WORDS).next_power_of_two());
    let ((requests, served), (answered, replies)) = (ring(lines), ring(lines));
    (Client { requests, replies, sent: 0 }, Server { requests: served, replies: answered })
}

impl Ask for Client {
    fn ask(&mut self, window: u64) {
        let first = self.sent;
        for _ in 0..window {
            self.requests.put(&[self.sent]).expect("the ring holds a window");
            self.sent += 1;
        }
        self.requests.flush();
        for number in first..self.sent {
            assert_eq!(wait_for(|| self.replies.take()), !number, "each message is answered once, in order");
        }
    }

    fn lines(&self) -> u64 {
        self.requests.lines()
    }
}

impl Answer for Server {
    fn answer(&mut self) -> bool {
        let come = self.requests.available();
        for _ in 0..come {
            let number = self.requests.take().expect("it is there");
            self.replies.put(&[!number]).expect("the ring holds a window");
        }
        self.replies.flush();
        come > 0
    }

    fn lines(&self) -> u64 {
        self.replies.lines()
    }
}
