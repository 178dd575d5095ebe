//! CPSERVER's protocol through a session: requests, answers, and what is counted, in any pieces.

use std::collections::HashMap;
use std::io::IoSlice;

use guira_cpwire::{HashKey, INSERT_HEADER_LEN, push_insert, push_lookup, size_field};
use guira_item::{Answer, Clock, Expiry, Hit, Operation, PinnedValue, Sink, StoreMode, Time, VALUE_SLACK_LEN};
use guira_memcache::{BATCH_LEN_MAX, Batch, Counters, Dialect, Malformed, Next, Output, Scratch, Session, Settings};

const NOW: Time = Time(1000);

/// Values from this length on are handed over where they lie.
const PINNED_LEN: usize = 100;

/// memcached's header, version and line end, and a key of 15 digits and its end.
const OVERHEAD_LEN: usize = 48 + 8 + 16 + 2;

struct Lying(Vec<u8>);

impl PinnedValue for Lying {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn piece(&self, offset: usize) -> &[u8] {
        &self.0[offset..]
    }
}

/// A client, and a server that keeps items in a plain map.
struct Conversation {
    session: Session,
    settings: Settings,
    items: HashMap<Vec<u8>, Vec<u8>>,
    counters: Counters,
    sent: Vec<u8>,
    malformed: Option<Malformed>,
    batches: usize,
}

impl Conversation {
    fn new() -> Self {
        let settings = Settings::default();
        Self {
            session: Session::speaking(Dialect::Cp, &settings),
            settings,
            items: HashMap::new(),
            counters: Counters::default(),
            sent: Vec::new(),
            malformed: None,
            batches: 0,
        }
    }

    /// Takes in what has come; returns how many bytes are done with, and how many are needed from there on.
    fn hear(&mut self, input: &[u8]) -> (usize, usize) {
        let mut consumed = 0;
        loop {
            let (scratch, mut batch) = (Scratch::new(), Batch::new());
            let clock = Clock::starting_at(1_700_000_000);
            let parsed = self.session.parse(&self.settings, &clock, NOW, &input[consumed..], &scratch, &mut batch);
            self.answer(&batch);
            self.batches += 1;
            consumed += parsed.consumed;
            match parsed.next {
                Next::NeedInput { total_len } => return (consumed, total_len),
                Next::More => {}
                Next::Hopeless(malformed) => {
                    self.malformed = Some(malformed);
                    return (consumed, 0);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn answer(&mut self, batch: &Batch<'_>) {
        let mut output = Output::new();
        let mut replies = batch.replies(0, NOW, &mut output, &mut self.counters);
        for (index, request) in batch.requests().iter().enumerate() {
            let key = request.key.as_bytes().to_vec();
            match request.operation {
                Operation::Get(_) => match self.items.get(&key) {
                    None => replies.answer(index, Answer::Miss),
                    Some(value) => {
                        let hit = Hit { value_len: value.len(), ..Hit::default() };
                        if value.len() >= PINNED_LEN {
                            replies.pinned(index, &hit, Box::new(Lying(value.clone())));
                            continue;
                        }
                        let room = replies.reserve(index, &hit);
                        room.fill(b'*');
                        room[VALUE_SLACK_LEN..VALUE_SLACK_LEN + value.len()].copy_from_slice(value);
                        replies.commit(index, &hit);
                    }
                },
                Operation::Store(store) => {
                    assert_eq!((store.mode, store.flags, store.expiry), (StoreMode::Set, 0, Expiry::NEVER));
                    self.items.insert(key, store.value.to_vec());
                    replies.answer(index, Answer::Stored { cas: 1 });
                }
                Operation::Delete(_) => {
                    let deleted = self.items.remove(&key).is_some();
                    replies.answer(index, if deleted { Answer::Deleted } else { Answer::NotFound });
                }
                other => panic!("{other:?}"),
            }
        }
        replies.finish();
        while !output.is_empty() {
            let mut slices = [IoSlice::new(&[]); 4];
            let filled = output.io_slices(&mut slices);
            let len = slices[..filled].iter().map(|slice| slice.len()).sum();
            slices[..filled].iter().for_each(|slice| self.sent.extend_from_slice(slice));
            output.advance(len);
        }
    }
}

fn key(number: u64) -> HashKey {
    HashKey::from_low_bits(number)
}

/// Requests, and the answers to them.
fn script() -> (Vec<u8>, Vec<u8>) {
    let (mut asked, mut wanted) = (Vec::new(), Vec::new());
    push_lookup(&mut asked, key(1));
    wanted.extend(size_field(0));
    for (number, len) in [(1, 1), (2, 8), (3, PINNED_LEN), (1, 30)] {
        let value = vec![b'a' + number as u8; len];
        push_insert(&mut asked, key(number), &value);
        push_lookup(&mut asked, key(number));
        wanted.extend(size_field(len));
        wanted.extend(value);
    }
    (asked, wanted)
}

#[test]
fn answers_are_the_same_whatever_the_pieces() {
    let (asked, wanted) = script();
    for cut in 0..=asked.len() {
        let mut conversation = Conversation::new();
        let (consumed, needed) = conversation.hear(&asked[..cut]);
        assert!(consumed <= cut && consumed + needed > cut, "{consumed} of {cut}, {needed} needed");
        assert_eq!(conversation.hear(&asked[consumed..]), (asked.len() - consumed, 8));
        assert_eq!(conversation.sent, wanted, "cut at {cut}");
        let counters = conversation.counters;
        assert_eq!((counters.cmd_get, counters.get_hits, counters.get_misses, counters.cmd_set), (5, 4, 1, 4));
        assert_eq!(conversation.items[b"000000000000003".as_slice()].len(), PINNED_LEN);
    }
}

#[test]
fn thousands_of_requests_make_full_batches() {
    let mut asked = Vec::new();
    (0..4 * BATCH_LEN_MAX as u64).for_each(|number| push_lookup(&mut asked, key(number)));
    let mut conversation = Conversation::new();
    conversation.hear(&asked);
    assert_eq!(conversation.sent.len(), 4 * 4 * BATCH_LEN_MAX);
    assert_eq!(conversation.batches, 5, "four full ones, and the empty one that finds the end");
}

#[test]
fn what_cannot_be_understood_ends_it_behind_the_answers() {
    let longest = Settings::default().item_len_max - OVERHEAD_LEN;
    let insert = |size: u32| [(2u64 << 60).to_le_bytes().as_slice(), &size.to_le_bytes()].concat();
    let too_long = longest as u32 + 1;
    for (nonsense, malformed) in [
        (0u64.to_le_bytes().to_vec(), Malformed::Kind(0)),
        (u64::MAX.to_le_bytes().to_vec(), Malformed::Kind(15)),
        (insert(0), Malformed::Empty),
        (insert(too_long), Malformed::TooLong { len: too_long, max: longest }),
    ] {
        let mut conversation = Conversation::new();
        let mut asked = Vec::new();
        push_lookup(&mut asked, key(1));
        asked.extend(nonsense);
        push_lookup(&mut asked, key(1));
        assert_eq!(conversation.hear(&asked), (8, 0));
        assert_eq!((conversation.malformed, conversation.sent.len()), (Some(malformed), 4));
    }
    let mut conversation = Conversation::new();
    assert_eq!(conversation.hear(&insert(longest as u32)), (0, INSERT_HEADER_LEN + longest));
}

#[test]
fn an_insert_without_memory_is_passed_over_and_leaves_nothing() {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    push_insert(&mut before, key(5), b"old");
    push_insert(&mut after, key(5), &[b'n'; 50]);
    push_lookup(&mut after, key(5));
    let mut conversation = Conversation::new();
    conversation.hear(&before);
    conversation.session.refuse_unfinished();
    let (mut consumed, needed) = conversation.hear(&after[..INSERT_HEADER_LEN + 10]);
    assert_eq!((consumed, needed), (INSERT_HEADER_LEN + 10, 1));
    while consumed < after.len() {
        let to = (consumed + 9).min(after.len());
        consumed += conversation.hear(&after[consumed..to]).0;
    }
    assert_eq!(conversation.sent, size_field(0));
    assert_eq!(conversation.counters.store_no_memory, 1);
}
