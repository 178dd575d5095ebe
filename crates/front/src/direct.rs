//! What a thread finds out by itself, without asking a core.
//!
//! Always true: what is told of a batch is all so at one time, or is asked of the core; a key of which something was asked is not looked at behind that.

use std::ops::Range;

use guira_chain::{Reply, give};
use guira_item::{Answer, Hit, Request, Sink, VALUE_SLACK_LEN};
use guira_routing::{HashSeed, KeyHash};

/// Reads for one thread.
pub trait Direct: Send {
    /// Reads begin, of one batch: whether anything is known at all.
    fn begin(&mut self) -> bool;

    /// What a request is answered with, if that can be said without asking; a value is appended to `values`. Nothing changes by it.
    fn read(&mut self, request: &Request<'_>, values: &mut Vec<u8>) -> Option<Known>;

    /// Whether what was read since [`begin`](Self::begin) may be told, all of it.
    fn end(&mut self) -> bool;
}

/// What is known of a key.
#[derive(Clone, Debug)]
pub enum Known {
    /// It has this value, of those that were appended.
    Hit(Hit, Range<usize>),
    /// It has a value of which only this was wanted.
    Metadata(Hit),
    /// Something else.
    Answer(Answer),
}

/// Nobody knows anything.
#[derive(Clone, Copy, Debug)]
pub struct AsksAlways;

impl Direct for AsksAlways {
    fn begin(&mut self) -> bool {
        false
    }

    fn read(&mut self, _: &Request<'_>, _: &mut Vec<u8>) -> Option<Known> {
        None
    }

    fn end(&mut self) -> bool {
        false
    }
}

/// What is known of a batch, of none if there is nothing; kept for its memory.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    known: Vec<Option<Known>>,
    values: Vec<u8>,
}

impl Looked {
    /// Looks at a batch.
    pub(crate) fn at(&mut self, requests: &[Request<'_>], direct: &mut impl Direct) {
        let Self { known, values } = self;
        values.clear();
        known.clear();
        let mut asked = KeySet::default();
        if !direct.begin() {
            return;
        }
        for request in requests {
            let key = request.key.as_bytes();
            let is_open = request.operation.only_reads() && !asked.may_have(key);
            let found = if is_open { direct.read(request, values) } else { None };
            if found.is_none() && requests.len() > 1 {
                asked.add(key);
            }
            known.push(found);
        }
        if !direct.end() {
            known.clear();
        }
    }

    /// How many of the first are known.
    pub(crate) fn prefix(&self) -> usize {
        self.known.iter().take_while(|known| known.is_some()).count()
    }

    /// Tells one of the first.
    pub(crate) fn tell<S: Sink>(&self, index: usize, sink: &mut S) {
        match &self.known[index] {
            Some(Known::Hit(hit, value)) => {
                let value = &self.values[value.clone()];
                sink.reserve(index, hit)[VALUE_SLACK_LEN..][..value.len()].copy_from_slice(value);
                sink.commit(index, hit);
            }
            Some(Known::Metadata(hit)) => sink.metadata(index, hit),
            Some(Known::Answer(answer)) => give(Reply::Answer(*answer, None), index, sink),
            None => unreachable!("it is known"),
        }
    }

    /// One that others come before, to be told with them.
    pub(crate) fn reply(&self, index: usize) -> Option<Reply> {
        Some(match self.known.get(index)?.as_ref()? {
            Known::Hit(hit, value) => Reply::Hit(*hit, Some(self.values[value.clone()].into())),
            Known::Metadata(hit) => Reply::Hit(*hit, None),
            Known::Answer(answer) => Reply::Answer(*answer, None),
        })
    }
}

/// Bits of a set of keys: a batch of a hundred keys has one in ten wrongly taken for another, which is asked for then.
const SET_BITS: u64 = 1_024;

/// Keys, about: one that was added is in it, others may seem to be.
#[derive(Default)]
struct KeySet([u64; (SET_BITS / 64) as usize]);

impl KeySet {
    fn bit(key: &[u8]) -> (usize, u64) {
        let bit = KeyHash::of(key, HashSeed(0)).0 % SET_BITS;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    fn add(&mut self, key: &[u8]) {
        let (word, bit) = Self::bit(key);
        self.0[word] |= bit;
    }

    fn may_have(&self, key: &[u8]) -> bool {
        // Mostly nothing has been added.
        self.0 != [0; (SET_BITS / 64) as usize] && {
            let (word, bit) = Self::bit(key);
            self.0[word] & bit != 0
        }
    }
}

#[cfg(test)]
mod tests {
    use guira_item::{Delete, Get, Key, Operation};

    use super::*;

    /// Knows all keys but some, for a while.
    struct Knows {
        not: &'static [u8],
        read: Vec<Vec<u8>>,
        holds: bool,
    }

    impl Direct for Knows {
        fn begin(&mut self) -> bool {
            true
        }

        fn read(&mut self, request: &Request<'_>, values: &mut Vec<u8>) -> Option<Known> {
            let key = request.key.as_bytes();
            self.read.push(key.to_vec());
            (key != self.not).then(|| {
                values.extend_from_slice(key);
                let hit = Hit { value_len: key.len(), ..Hit::default() };
                Known::Hit(hit, values.len() - key.len()..values.len())
            })
        }

        fn end(&mut self) -> bool {
            self.holds
        }
    }

    fn requests<'k>(keys: &[&'k str]) -> Vec<Request<'k>> {
        let operation = |key: &str| match key {
            "gone" => Operation::Delete(Delete { cas: None, invalidate: None }),
            _ => Operation::Get(Get::PLAIN),
        };
        let request = |key: &&'k str| Request { key: Key::new(key.as_bytes()).unwrap(), operation: operation(key) };
        keys.iter().map(request).collect()
    }

    #[test]
    fn what_is_known_is_told_and_nothing_behind_what_was_asked_of_its_key() {
        let mut knows = Knows { not: b"cold", read: Vec::new(), holds: true };
        let mut looked = Looked::default();
        looked.at(&requests(&["a", "b", "cold", "c", "cold", "gone", "gone"]), &mut knows);
        assert_eq!(knows.read, [&b"a"[..], b"b", b"cold", b"c"], "each that may be known, once");
        assert_eq!(looked.prefix(), 2);
        let value = |index| match looked.reply(index) {
            Some(Reply::Hit(_, value)) => value.map(|value| value.to_vec()),
            other => panic!("{other:?}"),
        };
        assert_eq!([value(0), value(1), value(3)], [&b"a"[..], b"b", b"c"].map(|value| Some(value.to_vec())));
        assert!([2, 4, 5, 6].into_iter().all(|index| looked.reply(index).is_none()));
        knows.holds = false;
        looked.at(&requests(&["a"]), &mut knows);
        assert!(looked.prefix() == 0 && looked.reply(0).is_none(), "the lease was over");
    }
}
