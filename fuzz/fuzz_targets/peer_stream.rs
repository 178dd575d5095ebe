//! A peer's stream: any bytes; any bytes behind a greeting; and messages, in any pieces. What is taken from them was put there.
#![no_main]

use std::sync::LazyLock;

use guira_cluster::{
    Caller, Epoch, GREETING_LEN, Greeting, Nonce, Sealer, Secret, Step, StreamError, StreamReader, long_frame,
};
use guira_routing::NodeId;

const PEER: NodeId = NodeId(1);
const ME: NodeId = NodeId(2);
const EPOCH: Epoch = Epoch(3);
static SECRET: LazyLock<Secret> = LazyLock::new(|| Secret::derive("fuzz", b"a secret that the fuzzer does not know"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [piece, changed, rest @ ..] = data else { return };
    let piece = usize::from(*piece) + 1;
    let mut strangers = StreamReader::new(Nonce([9; 16]));
    let (steps, _) = read(&mut strangers, rest, piece);
    assert!(steps.is_empty(), "nobody without the secret is heard");

    let mut reader = greeted();
    let (steps, _) = read(&mut reader, rest, piece);
    assert!(steps.is_empty(), "nor behind who has it");

    let messages: Vec<&[u8]> = rest.split(|byte| *byte == *changed).collect();
    let peer = Sealer::new(&SECRET, PEER);
    let mut said: Vec<u8> = messages.iter().flat_map(|message| long_frame(&peer, EPOCH, ME, message)).collect();
    let (steps, error) = read(&mut greeted(), &said, piece);
    assert!(steps.iter().eq(&messages) && error.is_none());

    let at = usize::from(*changed) * piece % said.len();
    said[at] ^= changed | 1;
    let (steps, _) = read(&mut greeted(), &said, piece);
    assert!(steps.len() < messages.len() && messages.iter().zip(&steps).all(|(put, got)| put == got));
});

/// A reader to which the peer has shown who it is.
fn greeted() -> StreamReader {
    let mut reader = StreamReader::new(Nonce([7; 16]));
    let (me, peer) = (Sealer::new(&SECRET, ME), Sealer::new(&SECRET, PEER));
    let caller = Caller::new(ME, EPOCH, Nonce([8; 16]));
    let Ok(Step::Hello { challenge, .. }) = reader.take(&me, &caller.hello(&peer)) else { panic!("a good hello") };
    let proof: Greeting = caller.proof(&peer, &challenge).expect("a good challenge");
    assert_eq!((reader.take(&me, &proof), proof.len()), (Ok(Step::Greeted { from: PEER }), GREETING_LEN));
    reader
}

/// The messages in the bytes, and why they end.
fn read(reader: &mut StreamReader, mut bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<StreamError>) {
    let me = Sealer::new(&SECRET, ME);
    let (whole, mut messages) = (bytes.len(), Vec::new());
    while !bytes.is_empty() {
        let (now, rest) = bytes.split_at(piece.min(reader.wanted()).min(bytes.len()));
        bytes = rest;
        match reader.take(&me, now) {
            Ok(Step::Message(long)) => {
                assert_eq!((long.from, long.epoch), (PEER, EPOCH));
                messages.push(long.message().to_vec());
            }
            Ok(_) => {}
            Err(error) => return (messages, Some(error)),
        }
        assert!(reader.kept_len() <= 2 * whole + piece, "no more than has come");
    }
    (messages, None)
}
