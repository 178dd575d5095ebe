//! A peer's datagram: any bytes; any bytes that a member has sealed; and messages, then any bytes. What is taken from them was put there.
#![no_main]

use std::sync::LazyLock;

use guira_cluster::{BODY_LEN_MAX, Bundle, Epoch, HEADER_LEN, Opened, Sealer, Secret, messages};
use guira_routing::NodeId;

const PEER: NodeId = NodeId(1);
const ME: NodeId = NodeId(2);
static SECRET: LazyLock<Secret> = LazyLock::new(|| Secret::derive("fuzz", b"a secret that the fuzzer does not know"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let me = Sealer::new(&SECRET, ME);
    if let Ok(Opened { from, epoch, body }) = me.open(data) {
        assert_eq!(sealed(from, epoch, body), data, "only what was sealed is opened");
    }
    let [cuts, changed, rest @ ..] = data else { return };
    let rest = &rest[..rest.len().min(BODY_LEN_MAX)];

    let mut datagram = sealed(PEER, Epoch(u64::from(*cuts)), rest);
    assert_eq!(me.open(&datagram), Ok(Opened { from: PEER, epoch: Epoch(u64::from(*cuts)), body: rest }));
    check_body(rest);
    let at = usize::from(*changed) % datagram.len();
    datagram[at] ^= cuts | 1;
    assert!(me.open(&datagram).is_err(), "byte {at} was changed");

    check_composed(rest, usize::from(*cuts));
});

fn sealed(from: NodeId, epoch: Epoch, body: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    Sealer::new(&SECRET, from).seal(epoch, ME, body, &mut datagram);
    assert_eq!(datagram.len(), HEADER_LEN + body.len());
    datagram
}

/// What is read of any body is its beginning, and all of it if there is no error.
fn check_body(body: &[u8]) {
    let read: Vec<_> = messages(body).collect();
    let good: Vec<&[u8]> = read.iter().map_while(|message| message.ok()).collect();
    assert!(read.len() - good.len() <= 1, "an error is the end");
    let mut again = Bundle::new();
    assert!(good.iter().all(|message| again.append(message)));
    assert!(body.starts_with(again.body()));
    assert_eq!(again.body() == body, good.len() == read.len());
}

/// Messages that were put there come first, whatever follows.
fn check_composed(bytes: &[u8], cuts: usize) {
    let (put, rest) = bytes.split_at(bytes.len() / 2);
    let mut bundle = Bundle::new();
    let mut kept = Vec::new();
    for message in put.split(|byte| usize::from(*byte) % 16 == cuts % 16) {
        kept.extend(bundle.append(message).then_some(message));
    }
    let body = [bundle.body(), rest].concat();
    let read: Vec<&[u8]> = messages(&body).map_while(Result::ok).take(kept.len()).collect();
    assert_eq!(read, kept);
    assert!(messages(bundle.body()).eq(kept.into_iter().map(Ok)));
}
