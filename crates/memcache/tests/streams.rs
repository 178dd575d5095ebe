//! Random streams: whatever comes in and however it is cut, the answers are the same and nothing panics.

use guira_memcache::{Settings, grammar};
use proptest::prelude::*;

use crate::reference::Server;

mod reference;

/// What a server answers to `input` cut after each of `lens` bytes, again and again.
fn answers(input: &[u8], lens: &[usize]) -> Server {
    let mut server = Server::new(Settings::default());
    let mut rest = input;
    for len in lens.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, behind) = rest.split_at((*len).clamp(1, rest.len()));
        server.receive(piece);
        rest = behind;
    }
    server
}

fn check(input: &[u8], lens: &[usize]) {
    let whole = answers(input, &[input.len()]);
    let pieces = answers(input, lens);
    assert_eq!(reference::escape(&pieces.sent), reference::escape(&whole.sent));
    assert_eq!((pieces.closed, pieces.requests, pieces.counters), (whole.closed, whole.requests, whole.counters));
}

/// Bytes that are often nearly commands.
fn nearly_commands() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        &b"get"[..],
        b"gets",
        b"gat",
        b"set",
        b"cas",
        b"append",
        b"delete",
        b"incr",
        b"touch",
        b"mg",
        b"ms",
        b"md",
        b"ma",
        b"me",
        b"mn",
        b"a",
        b"b",
        b"noreply",
        b"0",
        b"1",
        b"2",
        b"-1",
        b"99999999999",
        b"2000000",
        b"k",
        b"v",
        b"q",
        b"b",
        b"O1",
        b"T5",
        b"N5",
        b"R9",
        b"I",
        b"C1",
        b"MA",
        b"F1",
        b"YQ==",
        b"\r\n",
        b"\r\n",
        b"\r\n",
        b"\n",
        b"\0",
        b"\r",
        b"flush_all",
        b"stats",
        b"lru_crawler",
        b"watch",
        b"version",
        b"verbosity",
    ]);
    let word = prop_oneof![
        8 => words.prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..8),
        1 => (200usize..260).prop_map(|len| vec![b'k'; len]),
    ];
    let spaced = (word, prop_oneof![6 => Just(&b" "[..]), 1 => Just(&b""[..]), 1 => Just(&b"  "[..])]);
    prop::collection::vec(spaced, 0..60)
        .prop_map(|words| words.into_iter().flat_map(|(word, space)| [word, space.to_vec()].concat()).collect())
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_get_the_same_answers(
        // Longer lines may be cut off when they come in pieces, as in memcached.
        input in prop_oneof![nearly_commands(), prop::collection::vec(any::<u8>(), 0..2000)],
        lens in prop::collection::vec(1usize..50, 1..10),
    ) {
        prop_assume!(input.split(|byte| *byte == b'\n').all(|line| line.len() < 2000));
        check(&input, &lens);
    }

    #[test]
    fn commands_in_any_pieces_get_the_same_answers(seed: u64, lens in prop::collection::vec(1usize..400, 1..10)) {
        let input = grammar::commands(seed, 60).collect::<Vec<_>>().concat();
        check(&input, &lens);
    }
}

#[test]
fn long_pipelines_are_answered_in_batches() {
    let input = grammar::commands(7, 20_000).collect::<Vec<_>>().concat();
    let server = answers(&input, &[input.len()]);
    assert!(!server.closed);
    assert!(server.counters.get_hits > 1000 && server.counters.incr_hits > 10, "{:?}", server.counters);
    assert!(server.sent.windows(8).filter(|bytes| bytes == b"VALUE a ").count() > 100);
}

/// A line of more keys than a batch takes is gone through once: each batch begins where the one before it ended, and what ends
/// the line, or fails it, is known from the first one.
#[test]
fn long_multigets_are_asked_for_in_batches_or_not_at_all() {
    let keys = |count: usize| (0..count).map(|n| format!(" key{n}")).collect::<String>();
    let sent = |line: String| {
        let server = answers(line.as_bytes(), &[line.len()]);
        check(line.as_bytes(), &[7_919]);
        (server.requests, server.sent, server.closed)
    };
    let (requests, answer, closed) = sent(format!("set key4000 0 0 1\r\nx\r\nget{}\r\nmn\r\n", keys(5_000)));
    assert_eq!((requests, closed), (5_001, false));
    assert_eq!(answer, b"STORED\r\nVALUE key4000 0 1\r\nx\r\nEND\r\nMN\r\n");

    let (requests, answer, closed) = sent(format!("get{} {}\r\nmn\r\n", keys(5_000), "k".repeat(251)));
    assert_eq!((requests, closed), (0, false), "the last key is too long");
    assert_eq!(answer, b"CLIENT_ERROR bad command line format\r\nMN\r\n");

    let (requests, answer, closed) = sent(format!("get{}\0 {}\nmn\r\n", keys(3_000), keys(2_000)));
    assert_eq!((requests, closed), (3_000, false), "a NUL ends the words of a line");
    assert_eq!(answer, b"END\r\nMN\r\n");
}
