//! A ring of cache-line buffers from one producer to one consumer (CPHASH, PPoPP'12, section 3.4): messages are words of
//! 64 bits, eight to a line, and a line changes hands once it is full or once the producer has nothing to add.
//!
//! ```text
//!              read                    write      temporary write
//!                |                       |               |
//!   ... taken ...|== for the consumer ==|-- not shown --|... free ...
//! ```
//! Always true: `read <= write <= temporary write <= read + capacity`, all counted in words from the beginning and never
//! wrapped; the consumer sees whole messages only, in the order in which they were put; `read` and `write` have a cache
//! line each, which changes hands once for a line of messages, and the temporary write index and both sides' memory of
//! the other's index stay with their owner.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::atomic::{AtomicU64, Ordering};

/// Words of a cache line.
pub const LINE_WORDS: usize = 8;

/// One line of messages.
#[repr(align(64))]
struct Line([AtomicU64; LINE_WORDS]);

const _: () = assert!(size_of::<Line>() == 64 || cfg!(any(loom, shuttle)));

struct Shared {
    lines: Box<[Line]>,
    /// Words up to here have been taken.
    read: CachePadded<AtomicU64>,
    /// Words up to here may be taken.
    write: CachePadded<AtomicU64>,
}

impl Shared {
    #[inline]
    fn word(&self, index: u64) -> &AtomicU64 {
        let words = index as usize & (self.lines.len() * LINE_WORDS - 1);
        &self.lines[words / LINE_WORDS].0[words % LINE_WORDS]
    }

    fn capacity(&self) -> u64 {
        (self.lines.len() * LINE_WORDS) as u64
    }
}

/// The consumer has not taken enough yet for the message to find room: wait, or do something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingFull;

/// The end of a ring that puts messages in.
pub struct Producer {
    shared: Arc<Shared>,
    /// The temporary write index.
    put: u64,
    /// What `write` says.
    shown: u64,
    /// What `read` said when it was last looked at.
    taken: u64,
    /// Lines shown so far, each as often as it was.
    handed_over: u64,
}

/// The end of a ring that takes messages out.
pub struct Consumer {
    shared: Arc<Shared>,
    /// The next word to be taken.
    next: u64,
    /// What `read` says.
    told: u64,
    /// What `write` said when it was last looked at.
    shown: u64,
}

/// An empty ring of `lines` cache lines.
///
/// # Panics
/// If `lines` is not a power of two.
pub fn ring(lines: usize) -> (Producer, Consumer) {
    assert!(lines.is_power_of_two(), "a ring has a power of two of lines");
    let line = || Line([const { 0 }; LINE_WORDS].map(AtomicU64::new));
    let shared = Arc::new(Shared {
        lines: (0..lines).map(|_| line()).collect(),
        read: CachePadded::new(AtomicU64::new(0)),
        write: CachePadded::new(AtomicU64::new(0)),
    });
    let producer = Producer { shared: Arc::clone(&shared), put: 0, shown: 0, taken: 0, handed_over: 0 };
    (producer, Consumer { shared, next: 0, told: 0, shown: 0 })
}

impl Producer {
    /// Puts a message of some words, all or nothing; what fills its line is shown to the consumer.
    ///
    /// # Errors
    /// [`RingFull`] if there is no room; what has been put so far is shown then, so that the consumer can make some.
    #[inline]
    pub fn put(&mut self, message: &[u64]) -> Result<(), RingFull> {
        if !self.has_room(message.len()) {
            self.flush();
            return Err(RingFull);
        }
        for word in message {
            self.shared.word(self.put).store(*word, Ordering::Relaxed);
            self.put += 1;
        }
        if self.put / LINE_WORDS as u64 != self.shown / LINE_WORDS as u64 {
            self.flush();
        }
        Ok(())
    }

    /// Whether a message of so many words finds room now.
    #[inline]
    pub fn has_room(&mut self, words: usize) -> bool {
        if self.put + words as u64 - self.taken > self.shared.capacity() {
            // Acquire: pairs with the Release in `Consumer::tell`; the words were read before they are written over.
            self.taken = self.shared.read.load(Ordering::Acquire);
        }
        self.put + words as u64 - self.taken <= self.shared.capacity()
    }

    /// Shows the consumer what has been put.
    #[inline]
    pub fn flush(&mut self) {
        if self.shown != self.put {
            // A line that was shown in part goes to the consumer once more.
            self.handed_over += self.put.div_ceil(LINE_WORDS as u64) - self.shown / LINE_WORDS as u64;
            self.shown = self.put;
            // Release: pairs with the Acquire in `Consumer::available`; publishes the words.
            self.shared.write.store(self.shown, Ordering::Release);
        }
    }

    /// Words put since the beginning.
    pub fn words(&self) -> u64 {
        self.put
    }

    /// Lines handed over since the beginning, full or not; a line that was shown in parts counts for each of them.
    pub fn lines(&self) -> u64 {
        self.handed_over
    }
}

impl Consumer {
    /// Words that can be taken now.
    #[inline]
    pub fn available(&mut self) -> usize {
        if self.next == self.shown {
            // Acquire: pairs with the Release in `Producer::flush`.
            self.shown = self.shared.write.load(Ordering::Acquire);
        }
        (self.shown - self.next) as usize
    }

    /// The word `ahead` of the next one, if it is there: for asking the memory for what it will need.
    #[inline]
    pub fn peek(&self, ahead: usize) -> Option<u64> {
        let index = self.next + ahead as u64;
        (index < self.shown).then(|| self.shared.word(index).load(Ordering::Relaxed))
    }

    /// Takes the next word, if there is one. The producer hears of it once a line is through, or nothing is left.
    #[inline]
    pub fn take(&mut self) -> Option<u64> {
        if self.available() == 0 {
            return None;
        }
        let word = self.shared.word(self.next).load(Ordering::Relaxed);
        self.next += 1;
        if self.next.is_multiple_of(LINE_WORDS as u64) || self.next == self.shown {
            self.tell();
        }
        Some(word)
    }

    /// Gives the room of what has been taken back to the producer.
    #[inline]
    fn tell(&mut self) {
        if self.told != self.next {
            self.told = self.next;
            // Release: pairs with the Acquire in `Producer::put`; the words have been read.
            self.shared.read.store(self.told, Ordering::Release);
        }
    }

    /// Whether the other end is gone, and nothing it put is left.
    pub fn is_abandoned(&mut self) -> bool {
        // Whoever drops the other end does so after its last flush; the count is looked at first.
        let is_alone = Arc::strong_count(&self.shared) == 1;
        crate::atomic::fence(Ordering::Acquire);
        is_alone && self.available() == 0
    }
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("put", &self.put).field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("next", &self.next).field("shown", &self.shown).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_when_it_is_full_or_flushed() {
        let (mut producer, mut consumer) = ring(2);
        (0..7).for_each(|word| producer.put(&[word]).expect("room"));
        assert_eq!(consumer.available(), 0);
        producer.put(&[7]).expect("room");
        assert_eq!((consumer.available(), producer.lines()), (8, 1));
        producer.put(&[8]).expect("room");
        producer.flush();
        assert_eq!((0..9).map(|_| consumer.take()).collect::<Option<Vec<_>>>(), Some((0..9).collect()));
        assert_eq!((consumer.take(), producer.lines(), producer.words()), (None, 2, 9));
    }

    #[test]
    fn a_message_hands_over_every_line_it_touches() {
        let (mut producer, _consumer) = ring(8);
        producer.put(&[0; 20]).expect("room");
        assert_eq!(producer.lines(), 3, "two full ones, and half of a third");
        producer.put(&[0; 4]).expect("room");
        assert_eq!(producer.lines(), 4, "the other half takes the third once more");
        producer.put(&[0; 8]).expect("room");
        assert_eq!(producer.lines(), 5);
        producer.put(&[0; 7]).expect("room");
        assert_eq!(producer.lines(), 5, "nothing is shown yet");
        (0..2).for_each(|_| producer.flush());
        assert_eq!(producer.lines(), 6, "nothing is shown twice");
        producer.put(&[0; 2]).expect("room");
        assert_eq!(producer.lines(), 8, "a word in each of two lines");
    }

    #[test]
    fn a_full_ring_refuses_and_loses_nothing() {
        let (mut producer, mut consumer) = ring(1);
        (0..7).for_each(|word| producer.put(&[word]).expect("room"));
        assert_eq!(producer.put(&[7, 8]), Err(RingFull), "not half of it either");
        assert_eq!(consumer.take(), Some(0), "what was put is shown");
        assert_eq!(producer.put(&[7, 8]), Err(RingFull), "the line is not through");
        assert_eq!((1..7).map(|_| consumer.take()).collect::<Option<Vec<_>>>(), Some((1..7).collect()));
        producer.put(&[7, 8]).expect("room");
        assert_eq!((consumer.take(), consumer.peek(0), consumer.peek(1)), (Some(7), Some(8), None));
        assert!(!consumer.is_abandoned());
        drop(producer);
        assert!(!consumer.is_abandoned(), "a word is left");
        assert_eq!((consumer.take(), consumer.is_abandoned()), (Some(8), true));
    }

    #[test]
    fn a_million_messages_come_in_order() {
        let (mut producer, mut consumer) = ring(4);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..500_000u64 {
                    let mut round = 0;
                    while producer.put(&[2 * number, 2 * number + 1]).is_err() {
                        crate::hint::spin(&mut round);
                    }
                }
                producer.flush();
            });
            let mut round = 0;
            for number in 0..1_000_000 {
                let word = loop {
                    if let Some(word) = consumer.take() {
                        break word;
                    }
                    crate::hint::spin(&mut round);
                };
                assert_eq!(word, number);
            }
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;

    use super::*;
    use crate::SpinLock;

    /// Messages of one and of two words through a ring that fills: every interleaving within the bounds delivers each
    /// word once, in order, and the words that belong together.
    fn deliver(messages: u64, lines: usize) {
        loom::model(move || {
            let (mut producer, mut consumer) = ring(lines);
            let sender = thread::spawn(move || {
                for number in 0..messages {
                    while producer.put(&[2 * number, 2 * number + 1]).is_err() {
                        thread::yield_now();
                    }
                }
                producer.flush();
            });
            let mut next = 0;
            while next < 2 * messages {
                match consumer.available() {
                    0 => thread::yield_now(),
                    some => {
                        assert!(some >= 2 || next % 2 == 1, "half a message");
                        assert_eq!(consumer.take(), Some(next));
                        next += 1;
                    }
                }
            }
            sender.join().expect("sends");
            assert_eq!(consumer.take(), None);
        });
    }

    #[test]
    fn loom_a_ring_delivers_each_message_once_and_in_order() {
        deliver(3, 1);
    }

    #[test]
    fn loom_a_ring_that_fills_is_written_over_only_when_read() {
        deliver(6, 1);
    }

    /// A station as CPHASH has it: who serves it changes from one turn to the next.
    struct Station {
        requests: Consumer,
        replies: Producer,
        /// Known to the model, which notices if one holder does not leave it to the next.
        served: loom::cell::Cell<u64>,
    }

    impl Station {
        fn serve(&mut self) {
            while let Some(word) = self.requests.take() {
                assert_eq!(self.served.get(), word, "served once, and in order");
                self.served.set(word + 1);
                self.replies.put(&[word]).expect("room");
            }
            self.replies.flush();
        }
    }

    /// A station is handed over while its client sends: the thread that had it, the one that it is assigned to now and the client
    /// itself may all try to serve it, and each message is served once and replied to in order.
    #[test]
    fn loom_a_station_that_changes_hands_serves_each_message_once() {
        loom::model(|| {
            let ((mut requests, served), (answered, mut replies)) = (ring(1), ring(1));
            let station = Station { requests: served, replies: answered, served: loom::cell::Cell::new(0) };
            let station = Arc::new(SpinLock::new(station));
            let servers = [(); 2].map(|()| {
                let station = Arc::clone(&station);
                thread::spawn(move || station.try_lock().iter_mut().for_each(|station| station.serve()))
            });
            for word in 0..2 {
                requests.put(&[word]).expect("room");
                requests.flush();
            }
            servers.into_iter().for_each(|server| server.join().expect("serves"));
            station.lock().serve();
            assert_eq!([replies.take(), replies.take(), replies.take()], [Some(0), Some(1), None]);
        });
    }

    /// A word published without an ordering: the model must notice.
    #[test]
    #[should_panic(expected = "a word before it was put")]
    fn loom_a_seeded_fault_an_index_shown_without_release_is_noticed() {
        loom::model(|| {
            let (producer, mut consumer) = ring(1);
            let shared = Arc::clone(&producer.shared);
            let sender = thread::spawn(move || {
                shared.word(0).store(7, Ordering::Relaxed);
                shared.write.store(1, Ordering::Relaxed);
            });
            if consumer.available() == 1 {
                assert_eq!(consumer.take(), Some(7), "a word before it was put");
            }
            sender.join().expect("sends");
        });
    }
}
