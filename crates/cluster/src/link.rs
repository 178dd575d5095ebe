//! A link: what two nodes tell each other in one session, numbered both ways, in order, each once, over datagrams that are lost, doubled
//! and overtake each other. Pure: its driver sends frames and hands over those that come.
//!
//! ```text
//! sent      acked | on the way (at most WINDOW, a long one alone) | waiting (bounded with those, in number and bytes)
//! received  applied, in order | anything else is passed over: it comes again
//! ```
//! Always true: a message is handed over once, after all before it; an acknowledgement says that all up to it have been handed over; what a
//! link keeps is bounded, and who sends more is told.

use std::collections::VecDeque;

use guira_item::{Moment, Span};
use serde::{Deserialize, Serialize};

use crate::bundle::MESSAGE_LEN_MAX;

/// One life of a node: above the number of the life before it plus the sessions that were begun in that. Nanoseconds since 1970 do, where the
/// clock is not set back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

/// Counts the sessions that a node has begun, over all its lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Opening(pub u64);

impl Opening {
    /// The first one of a life: as high as this life's number, so above all of those before it.
    pub const fn first_of(incarnation: Incarnation) -> Self {
        Self(incarnation.0)
    }

    /// The one after it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A session: the opening of who has begun it, and the life of who has answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct SessionId {
    /// Of who has answered.
    pub incarnation: Incarnation,
    /// Of who has begun it.
    pub opening: Opening,
}

/// The number of a message in its session and direction, from 1; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Seq(pub u64);

/// What a link carries.
pub trait Weigh {
    /// Bytes that it takes on the wire, about: not less by more than a hundredth of a datagram.
    fn len_bytes(&self) -> usize;
}

/// Messages on the way: some 64 of them fit into what a socket keeps of datagrams.
const WINDOW: usize = 64;

/// Messages that may wait, those on the way included.
pub const QUEUE_LEN_MAX: usize = 16 * 1024;

/// How long an acknowledgement is waited for at first, and at most: each time twice as long. A long message's is waited for longer
/// ([`long_wait`]).
const RESEND_AFTER: Span = Span::from_ms(20);
const RESEND_AFTER_MAX: Span = Span::from_ms(320);

/// How much longer than a datagram a message of this length may take: ten megabytes a second is as slow as a network is taken to be. On a slower one
/// a message comes again before it has come, behind itself: so it is not held up, and takes no more than ten megabytes a second from others.
pub fn long_wait(len_bytes: usize) -> Span {
    if len_bytes <= MESSAGE_LEN_MAX { Span::default() } else { Span::from_ns(100 * len_bytes as u64) }
}

/// Bounds of a link beside the number of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct LinkBounds {
    /// Bytes that may wait, those on the way included; one message always may.
    pub bytes_max: usize,
    /// Messages of more bytes are on the way alone: they go through streams, and what follows in a datagram would come first and be passed over.
    pub alone_above: usize,
}

impl Default for LinkBounds {
    /// As much as may wait in streams for one node; whatever does not surely fit into a datagram is alone.
    fn default() -> Self {
        Self { bytes_max: 64 << 20, alone_above: MESSAGE_LEN_MAX / 100 * 98 }
    }
}

/// One direction of what goes over the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<M> {
    /// All up to this one have been handed over.
    pub ack: Seq,
    /// The number of `body`; 0 with none.
    pub seq: Seq,
    /// A message, or an acknowledgement alone.
    pub body: Option<M>,
}

/// More is waiting than may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkFull;

/// One end of a link.
#[derive(Clone, Debug, Serialize)]
pub struct Link<M> {
    bounds: LinkBounds,
    /// Bytes in `unacked`.
    bytes: usize,
    /// Not acknowledged; the first has the number after `acked`.
    unacked: VecDeque<M>,
    acked: Seq,
    /// The last that was sent at least once.
    sent: Seq,
    resend_at: Moment,
    resend_after: Span,
    /// The last that was handed over.
    received: Seq,
    owes_ack: bool,
}

impl<M: Weigh> Default for Link<M> {
    fn default() -> Self {
        Self::new(LinkBounds::default())
    }
}

impl<M: Weigh> Link<M> {
    /// A link on which nothing was said.
    pub fn new(bounds: LinkBounds) -> Self {
        Self {
            bounds,
            bytes: 0,
            unacked: VecDeque::new(),
            acked: Seq(0),
            sent: Seq(0),
            resend_at: Moment::default(),
            resend_after: RESEND_AFTER,
            received: Seq(0),
            owes_ack: false,
        }
    }

    /// Takes a message, which [`Link::emit`] sends; its number.
    ///
    /// # Errors
    /// [`LinkFull`]: it is not taken.
    pub fn send(&mut self, message: M) -> Result<Seq, LinkFull> {
        let len = message.len_bytes();
        let has_room = self.unacked.is_empty() || self.bytes + len <= self.bounds.bytes_max;
        if self.unacked.len() >= QUEUE_LEN_MAX || !has_room {
            return Err(LinkFull);
        }
        self.bytes += len;
        self.unacked.push_back(message);
        Ok(Seq(self.acked.0 + self.unacked.len() as u64))
    }

    /// Hears a frame; what is to be handed over, if it is the next.
    pub fn hear<B>(&mut self, now: Moment, frame: Frame<B>) -> Option<B> {
        self.hear_ack(now, frame.ack);
        let body = frame.body?;
        self.owes_ack = true;
        if frame.seq.0 != self.received.0 + 1 {
            return None;
        }
        self.received = frame.seq;
        Some(body)
    }

    fn hear_ack(&mut self, now: Moment, ack: Seq) {
        // What was never sent cannot have been heard: not from an honest peer.
        if ack <= self.acked || ack > self.sent {
            return;
        }
        let heard = self.unacked.drain(..(ack.0 - self.acked.0) as usize);
        self.bytes -= heard.map(|message| message.len_bytes()).sum::<usize>();
        self.acked = ack;
        self.resend_after = RESEND_AFTER;
        self.resend_at = now + self.patience();
    }

    /// How long an acknowledgement of the first is waited for now.
    fn patience(&self) -> Span {
        self.resend_after + long_wait(self.unacked.front().map_or(0, Weigh::len_bytes))
    }

    /// How many of the first may be on the way.
    fn window(&self) -> usize {
        let is_long = |message: &M| message.len_bytes() > self.bounds.alone_above;
        let first_long = self.unacked.iter().take(WINDOW).position(is_long);
        first_long.map_or(self.unacked.len().min(WINDOW), |at| at.max(1))
    }

    /// Has sent what is to be sent by now.
    pub fn emit(&mut self, now: Moment, mut send: impl FnMut(Frame<&M>)) {
        let on_the_way = (self.sent.0 - self.acked.0) as usize;
        let is_late = on_the_way > 0 && now >= self.resend_at;
        let from = if is_late { 0 } else { on_the_way };
        let to = self.window();
        for at in from..to {
            let seq = Seq(self.acked.0 + 1 + at as u64);
            send(Frame { ack: self.received, seq, body: Some(&self.unacked[at]) });
            self.sent = self.sent.max(seq);
            self.owes_ack = false;
        }
        if is_late {
            self.resend_after = self.resend_after.times(2).min(RESEND_AFTER_MAX);
        }
        if is_late || (on_the_way == 0 && to > 0) {
            self.resend_at = now + self.patience();
        }
        if std::mem::take(&mut self.owes_ack) {
            send(Frame { ack: self.received, seq: Seq(0), body: None });
        }
    }

    /// When [`Link::emit`] has something to send, if nothing happens before.
    pub fn wake_at(&self) -> Option<Moment> {
        let on_the_way = (self.sent.0 - self.acked.0) as usize;
        if on_the_way < self.window() {
            return Some(Moment::default());
        }
        (on_the_way > 0).then_some(self.resend_at)
    }

    /// All up to this one have been handed over at the other end.
    pub fn acked(&self) -> Seq {
        self.acked
    }

    /// All up to this one have been handed over here.
    pub fn received(&self) -> Seq {
        self.received
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A message that takes as many bytes as its number says.
    impl Weigh for u32 {
        fn len_bytes(&self) -> usize {
            *self as usize
        }
    }

    /// What happens to the next frame in a direction.
    #[derive(Clone, Copy, Debug)]
    enum Fate {
        Arrives,
        IsLost,
        /// Arrives, and again after so many frames.
        ComesAgain(u8),
        /// Arrives after so many frames.
        IsLate(u8),
    }

    fn fate() -> impl Strategy<Value = Fate> {
        prop_oneof![
            3 => Just(Fate::Arrives),
            1 => Just(Fate::IsLost),
            1 => (1u8..9).prop_map(Fate::ComesAgain),
            1 => (1u8..9).prop_map(Fate::IsLate),
        ]
    }

    /// One direction of a bad network.
    #[derive(Default)]
    struct Wire {
        frames: BTreeMap<(u64, u64), Frame<u32>>,
        count: u64,
    }

    impl Wire {
        fn carry(&mut self, frame: Frame<&u32>, fate: Fate) {
            let frame = Frame { ack: frame.ack, seq: frame.seq, body: frame.body.copied() };
            self.count += 1;
            let (first, second) = match fate {
                Fate::Arrives => (Some(0), None),
                Fate::IsLost => (None, None),
                Fate::ComesAgain(after) => (Some(0), Some(after)),
                Fate::IsLate(after) => (None, Some(after)),
            };
            for after in [first, second].into_iter().flatten() {
                self.frames.insert((self.count + u64::from(after), self.count), frame);
            }
        }

        fn arrived(&mut self) -> Vec<Frame<u32>> {
            let later = self.frames.split_off(&(self.count + 1, 0));
            std::mem::replace(&mut self.frames, later).into_values().collect()
        }
    }

    proptest! {
        #[test]
        fn every_message_is_handed_over_once_and_in_order(
            there in 0u32..200,
            back in 0u32..50,
            fates in prop::collection::vec(fate(), 1..80),
            alone_above in 0usize..300,
        ) {
            // Those above are alone.
            let bounds = LinkBounds { alone_above, ..LinkBounds::default() };
            let mut ends = [Link::new(bounds), Link::new(bounds)];
            let mut wires = [Wire::default(), Wire::default()];
            let mut heard = [Vec::new(), Vec::new()];
            for (end, count) in ends.iter_mut().zip([there, back]) {
                for number in 0..count {
                    end.send(number).expect("there is room");
                }
            }
            let mut fates = fates.iter().copied().chain(std::iter::repeat(Fate::Arrives));
            let mut now = Moment::default();
            let is_done = |heard: &[Vec<u32>; 2]| heard[1].len() == there as usize && heard[0].len() == back as usize;
            for _ in 0..3_000 {
                for at in 0..2 {
                    let (end, wire) = (&mut ends[at], &mut wires[at]);
                    end.emit(now, |frame| wire.carry(frame, fates.next().expect("without end")));
                    for frame in wires[at].arrived() {
                        heard[1 - at].extend(ends[1 - at].hear(now, frame));
                    }
                }
                now = now + Span::from_ms(7);
            }
            prop_assert!(is_done(&heard), "{heard:?}");
            prop_assert!(heard[1].iter().copied().eq(0..there) && heard[0].iter().copied().eq(0..back));
            prop_assert_eq!(ends[0].acked(), Seq(u64::from(there)));
            prop_assert!(ends.iter().all(|end| end.wake_at().is_none()), "nothing is waited for any more");
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut link = Link::default();
        for number in 0..QUEUE_LEN_MAX as u64 {
            assert_eq!(link.send(1u32), Ok(Seq(number + 1)));
        }
        assert_eq!(link.send(1), Err(LinkFull));
        let mut frames = 0;
        link.emit(Moment::default(), |_| frames += 1);
        assert_eq!(frames, WINDOW);
    }

    fn ack(ack: u64) -> Frame<u32> {
        Frame { ack: Seq(ack), seq: Seq(0), body: None }
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes_and_one_message_always_fits() {
        let mut link = Link::new(LinkBounds { bytes_max: 100, alone_above: 1_000 });
        assert_eq!(link.send(500u32), Ok(Seq(1)), "alone");
        assert_eq!(link.send(1), Err(LinkFull));
        link.emit(Moment::default(), |_| {});
        link.hear(Moment::default(), ack(1));
        for number in 0..10 {
            assert_eq!(link.send(10), Ok(Seq(2 + number)));
        }
        assert_eq!(link.send(1), Err(LinkFull));
        link.emit(Moment::default(), |_| {});
        link.hear(Moment::default(), ack(3));
        assert_eq!(link.send(10), Ok(Seq(12)), "there is room again");
    }

    #[test]
    fn a_long_message_is_on_the_way_alone_and_waited_for_longer() {
        let long = 1_000_000u32;
        let mut link = Link::default();
        for message in [1, 2, long, 3, long] {
            link.send(message).expect("room");
        }
        let mut now = Moment::default();
        let emitted = |link: &mut Link<u32>, now| {
            let mut seqs = Vec::new();
            link.emit(now, |frame| seqs.push(frame.seq.0));
            seqs
        };
        assert_eq!(emitted(&mut link, now), [1, 2]);
        link.hear(now, ack(1));
        assert_eq!(emitted(&mut link, now), [0; 0], "the second is on its way");
        link.hear(now, ack(2));
        assert_eq!(emitted(&mut link, now), [3]);
        now = now + RESEND_AFTER + long_wait(long as usize - 1);
        assert_eq!(emitted(&mut link, now), [0; 0], "not yet");
        now = now + Span::from_ns(100);
        assert_eq!(emitted(&mut link, now), [3], "again");
        link.hear(now, ack(3));
        assert_eq!(emitted(&mut link, now), [4]);
        link.hear(now, ack(4));
        assert_eq!(emitted(&mut link, now), [5]);
        assert_eq!(link.wake_at(), Some(now + RESEND_AFTER + long_wait(long as usize)));
    }

    #[test]
    fn an_acknowledgement_of_what_was_not_sent_is_none() {
        let mut link: Link<u32> = Link::default();
        link.send(1).expect("room");
        assert_eq!(link.hear(Moment::default(), ack(1)), None);
        assert_eq!(link.acked(), Seq(0));
        link.emit(Moment::default(), |_| {});
        link.hear(Moment::default(), ack(2));
        assert_eq!(link.acked(), Seq(0));
        link.hear(Moment::default(), ack(1));
        assert_eq!(link.acked(), Seq(1));
    }
}
