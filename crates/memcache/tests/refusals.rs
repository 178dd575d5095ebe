//! Values for which there is no memory: the command is refused, the rest of the value passed over, the next command heard.

use std::io::IoSlice;

use guira_item::{Answer, Clock, Operation, Sink, Time};
use guira_memcache::{Batch, Counters, Next, Output, Scratch, Session, Settings};

const NOW: Time = Time(1000);

/// What came of parsing.
struct Parsed {
    consumed: usize,
    needs: Option<usize>,
    deleted: usize,
    said: Vec<u8>,
    refused: u64,
}

/// Parses once; what is deleted is not there.
fn parse(session: &mut Session, input: &[u8]) -> Parsed {
    let (settings, clock) = (Settings::default(), Clock::starting_at(1_700_000_000));
    let (scratch, mut batch, mut output, mut counters) =
        (Scratch::new(), Batch::new(), Output::new(), Counters::default());
    let parsed = session.parse(&settings, &clock, NOW, input, &scratch, &mut batch);
    let mut replies = batch.replies(0, NOW, &mut output, &mut counters);
    for (index, request) in batch.requests().iter().enumerate() {
        assert!(matches!(request.operation, Operation::Delete(_)), "{request:?}");
        replies.answer(index, Answer::NotFound);
    }
    replies.finish();
    let mut slices = [IoSlice::new(&[])];
    let filled = output.io_slices(&mut slices);
    let needs = match parsed.next {
        Next::NeedInput { total_len } => Some(total_len),
        _ => None,
    };
    let said = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
    Parsed {
        consumed: parsed.consumed,
        needs,
        deleted: batch.requests().len(),
        said,
        refused: counters.store_no_memory,
    }
}

#[test]
fn an_unfinished_value_is_refused_and_passed_over() {
    let refusal = b"SERVER_ERROR out of memory storing object\r\n".as_slice();
    for (line, deletes, says) in [
        ("set k 0 0 1000\r\n", 1, refusal),
        ("add k 0 0 1000\r\n", 0, refusal),
        ("replace k 0 0 1000\r\n", 0, refusal),
        ("append k 0 0 1000\r\n", 0, refusal),
        ("prepend k 0 0 1000\r\n", 0, refusal),
        ("cas k 0 0 1000 7\r\n", 0, refusal),
        ("set k 0 0 1000 noreply\r\n", 1, b""),
        ("ms k 1000 T0\r\n", 1, refusal),
        ("ms k 1000 ME\r\n", 0, refusal),
    ] {
        let mut session = Session::new(&Settings::default());
        let begun = [line.as_bytes(), &[b'v'; 100]].concat();
        let waiting = parse(&mut session, &begun);
        assert_eq!((waiting.consumed, waiting.needs), (0, Some(line.len() + 1002)), "{line:?}");
        session.refuse_unfinished();
        let mut twin = session.clone();
        for session in [&mut session, &mut twin] {
            let refused = parse(session, &begun);
            assert_eq!((refused.consumed, refused.needs), (begun.len(), Some(1)), "{line:?}");
            assert_eq!((refused.deleted, refused.said.as_slice(), refused.refused), (deletes, says, 1), "{line:?}");
            let rest = [&[b'v'; 900], b"\r\nmn\r\n".as_slice()].concat();
            let after = parse(session, &rest);
            assert_eq!((after.consumed, after.said.as_slice()), (rest.len(), b"MN\r\n".as_slice()), "{line:?}");
        }
    }
}

#[test]
fn a_value_that_is_all_there_is_not_refused() {
    let mut session = Session::new(&Settings::default());
    session.refuse_unfinished();
    let parsed = parse(&mut session, b"delete k\r\nmn\r\n");
    assert_eq!((parsed.consumed, parsed.refused), (14, 0));
    // And the refusal does not outlive the call.
    let waiting = parse(&mut session, b"set k 0 0 10\r\nv");
    assert_eq!((waiting.consumed, waiting.needs), (0, Some(26)));
}
