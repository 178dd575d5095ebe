//! The other way that the paper describes, and its own first design (CPHASH, section 3.4): for each client and server there is one
//! buffer of one message, which the server polls, and where the client finds the result.
//!
//! ```text
//! request: message, number 2n - 1 ──> polled by the server
//! reply:   message, number 2n     <── written when it is served: in the request's place, or in a line of its own
//! ```
//! Always true: a number is written after its message; one message is under way at most, since only its reply says that its place
//! may be written again. There are no indices, and each message is a line.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use guira_sync::atomic::{AtomicU64, Ordering};

use super::exchange::{Answer, Ask, wait_for};

/// Where the reply is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReplyPlace {
    /// Over the request, as in the paper: the line goes to and fro.
    SameLine,
    /// In a line of its own: one that the other end polls must be taken away from it before it can be written.
    OwnLine,
}

/// A buffer.
#[derive(Default)]
struct Line {
    number: AtomicU64,
    message: AtomicU64,
}

const _: () = assert!(size_of::<Line>() <= 64, "a message takes one line");

impl Line {
    #[inline]
    fn write(&self, number: u64, message: u64) {
        self.message.store(message, Ordering::Relaxed);
        // Release: pairs with the Acquire in `read`; publishes the message.
        self.number.store(number, Ordering::Release);
    }

    /// The message of that number, if it has come.
    #[inline]
    fn read(&self, number: u64) -> Option<u64> {
        // Acquire: pairs with the Release in `write`.
        (self.number.load(Ordering::Acquire) == number).then(|| self.message.load(Ordering::Relaxed))
    }
}

/// The buffers of a client and a server; the second one is for replies that have a line of their own.
type Lines = [CachePadded<Line>; 2];

/// The last message has no reply yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outstanding;

/// The end that sends requests.
pub(super) struct Client {
    lines: Arc<Lines>,
    replies: ReplyPlace,
    sent: u64,
    replied: u64,
}

/// The end that serves them.
pub(super) struct Server {
    lines: Arc<Lines>,
    replies: ReplyPlace,
    served: u64,
}

/// Both ends.
pub(super) fn ends(replies: ReplyPlace) -> (Client, Server) {
    let lines = Arc::<Lines>::default();
    (Client { lines: Arc::clone(&lines), replies, sent: 0, replied: 0 }, Server { lines, replies, served: 0 })
}

impl ReplyPlace {
    fn of(self, lines: &Lines) -> &Line {
        &lines[usize::from(self == Self::OwnLine)]
    }
}

impl Client {
    /// Sends a message.
    ///
    /// # Errors
    /// [`Outstanding`] as long as the reply to the one before has not been fetched.
    #[inline]
    pub fn send(&mut self, message: u64) -> Result<(), Outstanding> {
        if self.replied < self.sent {
            return Err(Outstanding);
        }
        self.sent += 1;
        self.lines[0].write(2 * self.sent - 1, message);
        Ok(())
    }

    /// Fetches the reply to what was sent, if it has come.
    #[inline]
    pub fn reply(&mut self) -> Option<u64> {
        let reply = self.replies.of(&self.lines).read(2 * (self.replied + 1))?;
        self.replied += 1;
        Some(reply)
    }
}

impl Server {
    /// Serves the message that has come, if one has: `serve` makes a reply of it.
    #[inline]
    pub fn serve(&mut self, serve: impl FnOnce(u64) -> u64) -> bool {
        let Some(message) = self.lines[0].read(2 * self.served + 1) else { return false };
        self.served += 1;
        self.replies.of(&self.lines).write(2 * self.served, serve(message));
        true
    }
}

impl Ask for Client {
    fn ask(&mut self, window: u64) {
        for _ in 0..window {
            let message = self.sent;
            self.send(message).expect("every message before has its reply");
            assert_eq!(wait_for(|| self.reply()), !message, "each message is answered once");
        }
    }

    fn lines(&self) -> u64 {
        self.sent
    }
}

impl Answer for Server {
    fn answer(&mut self) -> bool {
        self.serve(|message| !message)
    }

    fn lines(&self) -> u64 {
        self.served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: [ReplyPlace; 2] = [ReplyPlace::SameLine, ReplyPlace::OwnLine];

    #[test]
    fn one_message_is_under_way_at_most() {
        for place in PLACES {
            let (mut client, mut server) = ends(place);
            assert!(!server.serve(|_| unreachable!("nothing has come")));
            assert_eq!((client.send(7), client.send(8), client.reply()), (Ok(()), Err(Outstanding), None));
            assert!(server.serve(|message| message + 1));
            assert!(!server.serve(|_| unreachable!("a message is served once")));
            assert_eq!((client.send(8), client.reply(), client.reply()), (Err(Outstanding), Some(8), None));
            assert_eq!(client.send(8), Ok(()));
        }
    }

    #[test]
    fn nothing_is_lost_or_served_twice() {
        const MESSAGES: u64 = 100_000;
        for place in PLACES {
            let (mut client, mut server) = ends(place);
            let serve_all = move || {
                for number in 0..MESSAGES {
                    let mut come = None;
                    wait_for(|| server.serve(|message| !*come.insert(message)).then_some(()));
                    assert_eq!(come, Some(number), "in order");
                }
                server.answer()
            };
            std::thread::scope(|scope| {
                let serving = scope.spawn(serve_all);
                client.ask(MESSAGES);
                assert!(!serving.join().expect("serves"), "nothing is left");
            });
            assert_eq!(client.replied, MESSAGES);
        }
    }
}
