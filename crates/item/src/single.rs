//! A sink for one request: keeps what is said.

use std::sync::Arc;

use crate::{Answer, Death, Hit, PinnedValue, Sink, VALUE_SLACK_LEN};

/// Keeps what an engine says about one item.
#[derive(Debug, Default)]
pub struct Single {
    /// What was read; without its value if only what is known about it was wanted.
    pub found: Option<(Hit, Arc<[u8]>)>,
    /// What was answered otherwise.
    pub answer: Option<Answer>,
    /// Why what lay there was not live, if something did.
    pub death: Option<Death>,
    room: Vec<u8>,
}

impl Single {
    /// For the next request.
    pub fn clear(&mut self) {
        (self.found, self.answer, self.death) = (None, None, None);
    }
}

impl Sink for Single {
    fn reserve(&mut self, _: usize, hit: &Hit) -> &mut [u8] {
        self.room.resize(VALUE_SLACK_LEN + hit.value_len + VALUE_SLACK_LEN, 0);
        &mut self.room
    }

    fn commit(&mut self, _: usize, hit: &Hit) {
        self.found = Some((*hit, self.room[VALUE_SLACK_LEN..][..hit.value_len].into()));
    }

    fn pinned(&mut self, _: usize, hit: &Hit, value: Box<dyn PinnedValue>) {
        self.found = Some((*hit, gathered(&*value).into()));
    }

    fn metadata(&mut self, _: usize, hit: &Hit) {
        self.found = Some((*hit, Arc::default()));
    }

    fn answer(&mut self, _: usize, answer: Answer) {
        self.answer = Some(answer);
    }

    fn found_dead(&mut self, _: usize, death: Death) {
        self.death = Some(death);
    }
}

/// The bytes of a pinned value, in one piece.
pub fn gathered(value: &dyn PinnedValue) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len());
    while bytes.len() < value.len() {
        bytes.extend_from_slice(value.piece(bytes.len()));
    }
    bytes
}
