//! A caller of an engine: one request at a time, answers kept.

use guira_item::{
    Answer, Engine, Expiry, Get, Hit, Key, Operation, PinnedValue, Request, Sink, Store, StoreMode, Time,
    VALUE_SLACK_LEN,
};

/// When the tests take place, unless they say otherwise.
pub const NOW: Time = Time(1_000);

/// Keeps answers as they come.
#[derive(Default)]
pub struct Answers {
    room: Vec<u8>,
    /// In the order in which they came.
    pub list: Vec<Reply>,
    /// Large values that are being sent.
    pub pins: Vec<Box<dyn PinnedValue>>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A read found this.
    Hit(Hit, Vec<u8>),
    /// Any other.
    Other(Answer),
}

impl Sink for Answers {
    fn reserve(&mut self, _index: usize, hit: &Hit) -> &mut [u8] {
        self.room.clear();
        self.room.resize(VALUE_SLACK_LEN + hit.value_len + VALUE_SLACK_LEN, 0xee);
        &mut self.room
    }

    fn commit(&mut self, index: usize, hit: &Hit) {
        assert_eq!(index, self.list.len());
        let value = self.room[VALUE_SLACK_LEN..][..hit.value_len].to_vec();
        self.list.push(Reply::Hit(*hit, value));
    }

    fn pinned(&mut self, index: usize, hit: &Hit, value: Box<dyn PinnedValue>) {
        assert_eq!(index, self.list.len());
        self.list.push(Reply::Hit(*hit, bytes_of(&*value)));
        self.pins.push(value);
    }

    fn metadata(&mut self, index: usize, hit: &Hit) {
        assert_eq!(index, self.list.len());
        self.list.push(Reply::Hit(*hit, Vec::new()));
    }

    fn answer(&mut self, index: usize, answer: Answer) {
        assert_eq!(index, self.list.len());
        self.list.push(Reply::Other(answer));
    }
}

/// All of a value that is sent from where it lies.
pub fn bytes_of(value: &dyn PinnedValue) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < value.len() {
        bytes.extend_from_slice(value.piece(bytes.len()));
    }
    bytes
}

/// The answer to one operation.
pub fn run<E: Engine>(engine: &E, worker: &mut E::Worker, now: Time, key: &[u8], operation: Operation<'_>) -> Reply {
    let mut answers = Answers::default();
    engine.execute(worker, now, &[Request { key: Key::new(key).expect("key"), operation }], &mut answers);
    answers.list.pop().expect("one answer")
}

/// A store without flags or expiry.
pub fn store(mode: StoreMode, value: &[u8]) -> Operation<'_> {
    Operation::Store(Store { mode, flags: 0, expiry: Expiry::NEVER, cas: None, vivify: None, value })
}

/// Whether a set was stored.
pub fn set<E: Engine>(engine: &E, worker: &mut E::Worker, key: &[u8], value: &[u8]) -> bool {
    matches!(run(engine, worker, NOW, key, store(StoreMode::Set, value)), Reply::Other(Answer::Stored { .. }))
}

/// The value of a key.
pub fn get<E: Engine>(engine: &E, worker: &mut E::Worker, key: &[u8]) -> Option<Vec<u8>> {
    match run(engine, worker, NOW, key, Operation::Get(Get::PLAIN)) {
        Reply::Hit(_, value) => Some(value),
        Reply::Other(answer) => {
            assert_eq!(answer, Answer::Miss);
            None
        }
    }
}
