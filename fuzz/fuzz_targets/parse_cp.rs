//! Any bytes in CPSERVER's protocol, whole and in pieces: the same requests, and an answer to each LOOKUP. The first byte says how
//! many of the next ones are lengths of pieces.
#![no_main]

mod conversation;

use guira_cpwire::{Request, Step, Unfinished, answer, push_insert, push_lookup, step};
use guira_memcache::Dialect;

const VALUE_LEN_MAX: usize = 4096;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((count, rest)) = data.split_first() else { return };
    let (lens, input) = rest.split_at(usize::from(count % 8).min(rest.len()));
    understand(input);
    let outcome = conversation::check(Dialect::Cp, None, input, lens);
    let lookups = outcome.requests.iter().filter(|request| request.contains("Get(")).count();
    let (mut answers, mut sent) = (0, outcome.sent.as_slice());
    while let Some(answer) = answer(sent) {
        answers += 1;
        sent = &sent[answer.len..];
    }
    assert_eq!((answers, sent.len()), (lookups, 0));
});

/// What is understood is what would be written to say it, and no more is waited for than that.
fn understand(mut input: &[u8]) {
    loop {
        let mut written = Vec::new();
        match step(input, VALUE_LEN_MAX) {
            Step::Whole { request, len } => {
                match request {
                    Request::Lookup(key) => push_lookup(&mut written, key),
                    Request::Insert { key, value } => push_insert(&mut written, key, value),
                }
                assert_eq!(written, &input[..len]);
                input = &input[len..];
            }
            Step::Unfinished(Unfinished::Header { total_len }) => {
                assert!((input.len() + 1..=12).contains(&total_len));
                return;
            }
            Step::Unfinished(Unfinished::Value { key, value_len }) => {
                assert!((1..=VALUE_LEN_MAX).contains(&value_len));
                push_insert(&mut written, key, &vec![0; value_len]);
                assert!(written.len() > input.len() && written[..12] == input[..12]);
                return;
            }
            Step::Malformed(_) => return,
        }
    }
}
