//! Streams in all pieces, and what is none.

use proptest::prelude::*;

use super::super::greeting::Caller;
use super::*;
use crate::seal::Secret;

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);
const EPOCH: Epoch = Epoch(5);
const THEIRS: Nonce = Nonce([3; 16]);
const OURS: Nonce = Nonce([4; 16]);

fn sealer(node: NodeId) -> Sealer {
    Sealer::new(&Secret::derive("test", b"secret"), node)
}

/// A's side of a stream to B that has the nonce `ours`: all that A says.
fn said(ours: Nonce, messages: &[Vec<u8>]) -> Vec<u8> {
    let caller = Caller::new(B, EPOCH, THEIRS);
    let challenge = say(&sealer(B), Kind::Challenge, EPOCH, A, THEIRS, ours);
    let proof = caller.proof(&sealer(A), &challenge).expect("it is the answer");
    let frames = messages.iter().map(|message| long_frame(&sealer(A), EPOCH, B, message));
    [caller.hello(&sealer(A)).to_vec(), proof.to_vec()].into_iter().chain(frames).flatten().collect()
}

/// What B makes of the bytes, in pieces of these lengths; how it ends.
fn heard(bytes: &[u8], pieces: impl IntoIterator<Item = usize>) -> (Vec<Step>, Option<StreamError>) {
    let mut reader = StreamReader::new(OURS);
    let mut pieces = pieces.into_iter();
    let (mut rest, mut steps) = (bytes, Vec::new());
    while !rest.is_empty() {
        let piece = pieces.next().unwrap_or(usize::MAX).clamp(1, reader.wanted().min(rest.len()));
        let (now, later) = rest.split_at(piece);
        rest = later;
        match reader.take(&sealer(B), now) {
            Ok(Step::More) => {}
            Ok(step) => steps.push(step),
            Err(error) => return (steps, Some(error)),
        }
        let came = bytes.len() - rest.len();
        assert!(reader.kept_len() <= 2 * came + 64, "{} bytes for {came}", reader.kept_len());
    }
    (steps, None)
}

fn messages_of(steps: &[Step]) -> Vec<Vec<u8>> {
    let messages = steps.iter().filter_map(|step| match step {
        Step::Message(long) => Some(long),
        _ => None,
    });
    messages
        .map(|long| {
            assert_eq!((long.from, long.epoch), (A, EPOCH));
            long.message().to_vec()
        })
        .collect()
}

/// Hello and proof of a stream that goes on with `rest`.
fn greeted(rest: &[u8]) -> Vec<u8> {
    [said(OURS, &[]), rest.to_vec()].concat()
}

fn ends_with(bytes: &[u8]) -> Option<StreamError> {
    let whole = heard(bytes, []);
    assert_eq!(heard(bytes, std::iter::repeat(1)), whole, "byte by byte");
    whole.1
}

#[test]
fn a_stream_is_read_as_it_was_said() {
    let sent = [vec![], vec![1], vec![2; 70_000], vec![3; 1_000_000]];
    let (steps, error) = heard(&said(OURS, &sent), []);
    assert_eq!(error, None);
    assert!(matches!(steps[0], Step::Hello { from: A, epoch: EPOCH, .. }));
    assert_eq!(steps[1], Step::Greeted { from: A });
    assert_eq!(messages_of(&steps), sent);
}

#[test]
fn the_longest_message_is_read_and_none_longer() {
    let longest = vec![vec![7; LONG_MESSAGE_LEN_MAX]];
    assert_eq!(messages_of(&heard(&said(OURS, &longest), []).0), longest);
    let too_long = (HEADER_LEN + LONG_MESSAGE_LEN_MAX + 1) as u32;
    for len in [0, HEADER_LEN as u32 - 1, too_long, u32::MAX] {
        assert_eq!(ends_with(&greeted(&len.to_le_bytes())), Some(StreamError::Length(len)));
    }
}

#[test]
fn a_length_alone_takes_no_memory() {
    let mut reader = StreamReader::new(OURS);
    let mut bytes = &greeted(&(LONG_MESSAGE_LEN_MAX as u32).to_le_bytes())[..];
    while !bytes.is_empty() {
        let (now, rest) = bytes.split_at(reader.wanted().min(bytes.len()));
        bytes = rest;
        reader.take(&sealer(B), now).expect("a good beginning");
    }
    assert_eq!((reader.announced(), reader.kept_len()), (Some(LONG_MESSAGE_LEN_MAX), 0));
}

#[test]
fn a_stream_that_is_played_again_is_not_greeted() {
    let earlier = said(Nonce([9; 16]), &[b"message".to_vec()]);
    let (steps, error) = heard(&earlier, []);
    assert_eq!(error, Some(StreamError::Greeting(NoGreeting::NotAnAnswer)));
    assert!(matches!(steps[..], [Step::Hello { .. }]), "{steps:?}");
}

#[test]
fn who_cannot_seal_is_not_answered() {
    let stranger = Sealer::new(&Secret::derive("test", b"another"), A);
    let hello = Caller::new(B, EPOCH, THEIRS).hello(&stranger);
    let rejected = |rejection| Some(StreamError::Greeting(NoGreeting::Rejected(rejection)));
    assert_eq!(heard(&hello, []), (vec![], rejected(Rejection::Forged)));
    let elsewhere = Caller::new(C, EPOCH, THEIRS).hello(&sealer(A));
    assert_eq!(heard(&elsewhere, []), (vec![], rejected(Rejection::NotForMe)));
    assert_eq!(heard(&[b'x'; GREETING_LEN], []), (vec![], rejected(Rejection::Version)));
    // What was a part of another step.
    assert_eq!(heard(&said(OURS, &[])[GREETING_LEN..], []), (vec![], rejected(Rejection::Version)));
}

#[test]
fn only_who_has_greeted_is_heard() {
    let others = long_frame(&sealer(C), EPOCH, B, b"message");
    assert_eq!(ends_with(&greeted(&others)), Some(StreamError::OtherSender));
    let elsewhere = long_frame(&sealer(A), EPOCH, C, b"message");
    assert_eq!(ends_with(&greeted(&elsewhere)), Some(StreamError::Rejected(Rejection::NotForMe)));
    let mut datagram = Vec::new();
    sealer(A).seal(EPOCH, B, b"message", &mut datagram);
    let framed = [&(datagram.len() as u32).to_le_bytes()[..], &datagram].concat();
    assert_eq!(ends_with(&greeted(&framed)), Some(StreamError::Rejected(Rejection::Version)));
}

#[test]
fn nothing_is_heard_from_a_changed_byte_on() {
    let whole = said(OURS, &[b"one".to_vec(), b"two".to_vec()]);
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        // A length that was changed may be one that is waited for.
        let (steps, _) = heard(&changed, []);
        assert!(messages_of(&steps).len() < 2, "byte {at}: {steps:?}");
    }
}

proptest! {
    #[test]
    fn pieces_change_nothing(
        sent in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..5),
        pieces in prop::collection::vec(1usize..200, 0..100),
        cut in 0usize..2_000,
    ) {
        let whole = said(OURS, &sent);
        let (steps, error) = heard(&whole, pieces.iter().copied());
        prop_assert_eq!(error, None);
        prop_assert_eq!(&messages_of(&steps), &sent);
        let cut = cut.min(whole.len());
        let (begun, error) = heard(&whole[..cut], pieces);
        prop_assert_eq!(error, None);
        prop_assert!(steps.starts_with(&begun));
    }

    #[test]
    fn any_bytes_end_or_wait(bytes in prop::collection::vec(any::<u8>(), 0..400), is_greeted in any::<bool>()) {
        let bytes = if is_greeted { greeted(&bytes) } else { bytes };
        let (steps, _) = heard(&bytes, [7, 1, 30]);
        prop_assert!(messages_of(&steps).is_empty());
    }
}
