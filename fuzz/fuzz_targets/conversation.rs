//! Feeds bytes to a session, whole or in pieces, answers every request from what the bytes say, and checks what is always
//! true of a batch.

use guira_item::{Answer, Clock, Expiry, Failure, Hit, KEY_LEN_MAX, Operation, Request, Sink, Time, VALUE_SLACK_LEN};
use guira_memcache::{
    AuthFile, BATCH_LEN_MAX, Batch, Counters, Credentials, Dialect, Next, Output, Scratch, Session, Settings,
};

const NOW: Time = Time(1000);

/// The most bytes an answer has beyond a value: a line with a key in base64 and every flag once.
const ANSWER_LEN_MAX: usize = 1024;

/// The most bytes that are waited for even if there is no memory for a value: what stands before one of CPSERVER's.
const HEADER_LEN_MAX: usize = 12;

/// What came of some input.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    pub requests: Vec<String>,
    pub sent: Vec<u8>,
    pub controls: Vec<String>,
    pub closed: bool,
}

/// Parses `input`, cut after each of `lens` bytes again and again; with `refuses`, as if there were no memory for any value
/// that is not all there; with `users`, for a client that must say first that it is one of them.
pub fn hold(dialect: Dialect, users: Option<&AuthFile>, input: &[u8], lens: &[u8], refuses: bool) -> Outcome {
    let auth = users.cloned().map(Credentials::new);
    let settings = Settings { item_len_max: 4096, shutdown_enabled: true, auth, ..Settings::default() };
    let clock = Clock::starting_at(1_700_000_000);
    let mut session = Session::speaking(dialect, &settings);
    let mut scratch = Scratch::new();
    let mut counters = Counters::default();
    let mut outcome = Outcome::default();
    let mut cuts = lens.iter().cycle();
    let (mut from, mut to) = (0, 0);
    while to < input.len() && !outcome.closed {
        to = cuts.next().map_or(input.len(), |len| (to + 1 + usize::from(*len)).min(input.len()));
        loop {
            let mut batch = Batch::new();
            if refuses {
                session.refuse_unfinished();
            }
            let parsed = session.parse(&settings, &clock, NOW, &input[from..to], &scratch, &mut batch);
            assert!(parsed.consumed <= to - from);
            let requests = batch.requests();
            assert!(requests.len() <= BATCH_LEN_MAX);
            let mut output = Output::new();
            let mut replies = batch.replies(0, NOW, &mut output, &mut counters);
            for (index, request) in requests.iter().enumerate() {
                assert!((1..=KEY_LEN_MAX).contains(&request.key.as_bytes().len()));
                outcome.requests.push(format!("{request:?}"));
                answer(index, request, &mut replies);
            }
            replies.finish();
            assert!(output.len() <= (requests.len() + BATCH_LEN_MAX) * ANSWER_LEN_MAX);
            take(&mut output, &mut outcome.sent);
            from += parsed.consumed;
            match parsed.next {
                Next::NeedInput { total_len } => {
                    assert!(total_len > to - from, "asks for what is there");
                    // A user's name and password, which are short, are waited for in any case.
                    let waits = total_len > (to - from + 1).max(HEADER_LEN_MAX);
                    assert!(!refuses || users.is_some() || !waits, "waits for a value it has no memory for");
                    break;
                }
                Next::More => {}
                Next::Control(control) => outcome.controls.push(format!("{control:?}")),
                Next::Close | Next::Hopeless(_) => {
                    outcome.closed = true;
                    break;
                }
            }
            drop(batch);
            scratch.reset();
        }
        scratch.reset();
    }
    outcome
}

fn take(output: &mut Output, into: &mut Vec<u8>) {
    let mut slices = [std::io::IoSlice::new(&[]); 4];
    while !output.is_empty() {
        let filled = output.io_slices(&mut slices);
        let before = into.len();
        slices[..filled].iter().for_each(|slice| into.extend_from_slice(slice));
        let len = into.len() - before;
        slices = [std::io::IoSlice::new(&[]); 4];
        output.advance(len);
    }
}

/// An answer that depends on the request alone.
fn answer(index: usize, request: &Request<'_>, sink: &mut impl Sink) {
    let dice =
        request.key.as_bytes().iter().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    let hit = Hit {
        flags: dice as u32,
        cas: dice as u64,
        value_len: dice % 40,
        expiry_before: Expiry::at(Time(2000)),
        stale: dice.is_multiple_of(2),
        win_sent: dice.is_multiple_of(3),
        won: dice.is_multiple_of(5),
        ..Hit::default()
    };
    let other =
        [Answer::NotStored, Answer::Exists, Answer::NotFound, Answer::OutOfMemory, Answer::Failed(Failure::Unknown)];
    match request.operation {
        Operation::Get(_) if dice.is_multiple_of(4) => sink.answer(index, Answer::Miss),
        Operation::Get(get) if get.value => {
            let room = sink.reserve(index, &hit);
            room.fill(b'*');
            room[VALUE_SLACK_LEN..VALUE_SLACK_LEN + hit.value_len].fill(b'v');
            sink.commit(index, &hit);
        }
        Operation::Get(_) => sink.metadata(index, &hit),
        Operation::Store(_) if dice.is_multiple_of(3) => sink.answer(index, other[dice % other.len()]),
        Operation::Store(_) => sink.answer(index, Answer::Stored { cas: 1 }),
        Operation::Delete(delete) if delete.invalidate.is_some() => sink.answer(index, Answer::Invalidated),
        Operation::Delete(_) => sink.answer(index, Answer::Deleted),
        Operation::Arithmetic(_) if dice.is_multiple_of(3) => sink.answer(index, Answer::NonNumeric),
        Operation::Arithmetic(arithmetic) => {
            let (expiry, created) = (Expiry::NEVER, dice.is_multiple_of(2));
            let answer = Answer::Number { value: arithmetic.delta, cas: 1, expiry_before: expiry, expiry, created };
            sink.answer(index, answer);
        }
        Operation::Touch(_) => sink.answer(index, Answer::Touched),
        Operation::Restore(_) => unreachable!("no client can ask for that"),
    }
}

/// Whole and in pieces, the same must come of it, and is returned. Lines that memcached's bound cuts off while incomplete are
/// left out.
pub fn check(dialect: Dialect, users: Option<&AuthFile>, input: &[u8], lens: &[u8]) -> Outcome {
    const UNENDED_LEN_MAX: usize = 2048;
    let hold = |lens, refuses| hold(dialect, users, input, lens, refuses);
    hold(lens, true);
    let whole = hold(&[], false);
    let is_cut_off = |line: &[u8]| dialect.has_lines() && line.len() >= UNENDED_LEN_MAX;
    if !input.split(|byte| *byte == b'\n').any(is_cut_off) {
        assert_eq!(hold(lens, false), whole);
    }
    whole
}
