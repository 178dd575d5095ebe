//! A home's cold keys: what they have, under which timestamp they come to be hot, and what has become of other nodes' requests.
//!
//! Only while a key is hot does each write have a timestamp that others know. So an item here has none of its own: all of a shard's together have the highest that
//! there has been, and whatever comes to be hot, or is written, is above it. What clients know a content by is made of a timestamp, too.
//!
//! Always true:
//! - timestamps of a key go up, through the hot set and back, as long as its home has not lost it. A home that begins in a later epoch begins above one that was lost if that had no more than
//!   2^20 writes in an epoch; on that nothing depends but the order of what clients know contents by ("cas unique"), which is nobody else's whatever comes, since it has the writer in it;
//! - what is settled of a session is its last request that has changed something here, or was refused for good (R3).

use std::collections::BTreeMap;

use guira_chain::Reply;
use guira_consistency::{
    Answer, Changed, Done, Epoch, Key, Kind, RequestId, Session, Timestamp, Value, Version, Window, Wish, WriteBack,
    Writer,
};
use guira_item::Time;
use guira_routing::NodeId;

use crate::{
    Fetch, HomecomingConfig, HomecomingMutant, Items, Page, PageNumber, Place, Replied, Rest, SharedRead,
    giving::{self, Giving},
};

/// Versions that an epoch is apart from the next.
const EPOCH_BITS: u32 = 20;

/// What has become of a session's last request.
#[derive(Clone, Debug)]
struct Settled {
    request: RequestId,
    told: Replied,
    /// Of which key, if it has changed that.
    key: Option<Key>,
}

/// Whether a request has been settled.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Known {
    /// It has not been.
    New,
    /// It was told this.
    Told(Replied),
    /// A later one of its session was: nobody waits for it.
    Late,
}

/// The cold keys of a home.
#[derive(Clone, Debug)]
pub(crate) struct Shard<I> {
    items: I,
    /// The highest version that any key of this home has had.
    highest: u32,
    settled: BTreeMap<Session, Settled>,
    homecoming: HomecomingConfig,
    /// Copies of shards that go on.
    givings: Vec<Giving>,
}

impl<I: Items> Shard<I> {
    pub(crate) fn new(items: I, homecoming: HomecomingConfig) -> Self {
        Self { items, highest: 0, settled: BTreeMap::new(), homecoming, givings: Vec::new() }
    }

    pub(crate) fn items(&self) -> &I {
        &self.items
    }

    /// What a key has, as another thread would read it; the value is appended.
    pub(crate) fn read(&mut self, key: &Key, now: Time, values: &mut Vec<u8>) -> SharedRead {
        let Some(Value { flags, cas, expiry, bytes, .. }) = self.items.get(key, now) else {
            return SharedRead::Nothing;
        };
        if expiry.is_past(now) {
            return SharedRead::Over;
        }
        let begin = values.len();
        values.extend_from_slice(&bytes);
        SharedRead::Hit { flags, cas, value: begin..values.len() }
    }

    pub(crate) fn maintain(&mut self, now: Time) -> bool {
        self.items.maintain(now)
    }

    /// This node comes to be home of some keys in an epoch.
    pub(crate) fn become_home(&mut self, epoch: Epoch) {
        self.raise((epoch.0 << EPOCH_BITS) as u32);
    }

    /// What it has of keys of which it was home before, and others meanwhile, is worth nothing; O(n) in all that it has.
    pub(crate) fn keep(&mut self, now: Time, keeps: &dyn Fn(&[u8]) -> bool) {
        self.items.retain(now, keeps);
    }

    /// Everything is gone but what is copied from another home; copies that go on begin anew.
    pub(crate) fn clear(&mut self, now: Time, is_copied: &dyn Fn(&[u8]) -> bool) {
        self.givings.clear();
        if !self.items.is_empty() {
            self.items.retain(now, is_copied);
        }
    }

    /// Removes some of what is not kept, if there is any: where to go on.
    pub(crate) fn sweep(&mut self, now: Time, from: &Place, keeps: &dyn Fn(&[u8]) -> bool) -> Option<Place> {
        let mut goes = Vec::new();
        let next = self.items.walk(from, &|key| !keeps(key), &mut goes);
        goes.iter().for_each(|key| _ = self.items.put(key, None, now));
        next
    }

    /// What somebody asks of a copy of a shard of which this is home, one of so many; `is_quiet`: see [`Giving::next`].
    pub(crate) fn give(
        &mut self,
        from: NodeId,
        fetch: Fetch,
        shards: usize,
        is_quiet: &dyn Fn() -> bool,
    ) -> Option<Page> {
        let Self { items, highest, homecoming, givings, .. } = self;
        let going_on = givings.iter().position(|giving| giving.shard == fetch.shard);
        let asked = going_on.map_or(giving::Asked::Other, |at| givings[at].asked(from, &fetch));
        let at = match (asked, going_on) {
            (giving::Asked::Late, _) => return None,
            (giving::Asked::Last, Some(at)) => return Some(givings[at].again(fetch.epoch)),
            (giving::Asked::Next, Some(at)) => at,
            _ if fetch.page != PageNumber::FIRST => {
                return Some(Page { fetch, items: Vec::new(), highest: *highest, rest: Rest::All });
            }
            _ => {
                givings.retain(|giving| giving.shard != fetch.shard);
                givings.push(Giving::new(from, fetch, shards));
                givings.len() - 1
            }
        };
        Some(givings[at].next(items, fetch, *highest, is_quiet, homecoming))
    }

    /// Copies that cannot go on do not; those that do go on in another view.
    pub(crate) fn keep_givings(&mut self, goes_on: impl Fn(&Giving) -> bool) {
        self.givings.retain(goes_on);
        self.givings.iter_mut().for_each(Giving::unseal);
    }

    /// All of a shard was given away.
    pub(crate) fn is_sealed(&self, shard: usize) -> bool {
        let is_sealed = |giving: &Giving| giving.shard == shard && giving.is_sealed();
        self.givings.iter().any(is_sealed) && !self.homecoming.has(HomecomingMutant::Unsealed)
    }

    /// No key of a shard may begin to come to be hot, or to cease to.
    pub(crate) fn is_closing(&self, shard: usize) -> bool {
        self.givings.iter().any(|giving| giving.shard == shard && giving.is_closing)
    }

    /// Takes what another home has of a key.
    pub(crate) fn accept(&mut self, key: &Key, value: Option<Value>, now: Time) {
        if !self.items.put(key, value, now) {
            self.items.put(key, None, now);
        }
    }

    /// Another home has had versions up to this.
    pub(crate) fn accept_highest(&mut self, version: u32) {
        self.raise(version);
    }

    /// A key may have something else than it had.
    fn note(&mut self, key: &Key) {
        if !self.givings.is_empty() && !self.homecoming.has(HomecomingMutant::WriteUntold) {
            self.givings.retain_mut(|giving| giving.note(key));
        }
    }

    /// This node is another member than it was: nothing that was asked of it before is asked again.
    pub(crate) fn forget_requests(&mut self) {
        self.settled.clear();
    }

    /// Of those who are no members any more nothing is asked again.
    pub(crate) fn keep_sessions(&mut self, is_member: impl Fn(&Session) -> bool) {
        self.settled.retain(|session, _| is_member(session));
    }

    /// What has become of a request.
    pub(crate) fn known(&self, request: RequestId) -> Known {
        match self.settled.get(&request.session) {
            Some(settled) if settled.request == request => Known::Told(settled.told.clone()),
            Some(settled) if settled.request.sequence > request.sequence => Known::Late,
            _ => Known::New,
        }
    }

    /// A request is settled for good.
    pub(crate) fn settle(&mut self, request: RequestId, told: Replied, key: Option<Key>) {
        if self.known(request) == Known::New {
            self.settled.insert(request.session, Settled { request, told, key });
        }
    }

    /// Does what is wished; O(1) beside what the items take.
    pub(crate) fn carry_out(
        &mut self,
        key: &Key,
        wish: &Wish,
        request: Option<RequestId>,
        writer: Writer,
        item_len_max: usize,
    ) -> Answer {
        let held = self.items.get(key, wish.now());
        if held.is_none() {
            // It may have been over, or have had to make room; it is told that there is nothing.
            self.note(key);
        }
        let at = Timestamp { version: self.highest, writer };
        let next = at.next(Kind::Modify, writer);
        match wish.apply(held.as_ref(), at, next, key.len(), item_len_max) {
            Err(answer) => answer,
            Ok(Changed { value, answer }) => {
                self.highest = next.version;
                self.note(key);
                let mut answer = answer;
                if !self.items.put(key, value, wish.now()) {
                    // What was there goes, too, as in memcached: nobody is told of what is older.
                    self.items.put(key, None, wish.now());
                    answer.reply = Reply::Answer(guira_item::Answer::OutOfMemory, None);
                }
                if let Some(request) = request {
                    self.settle_answer(request, &answer, key);
                }
                answer
            }
        }
    }

    /// A request was carried out, and told this.
    pub(crate) fn settle_answer(&mut self, request: RequestId, answer: &Answer, key: &Key) {
        self.settle_done(Done::new(request, answer), key);
    }

    /// One of which the value that it was told is not kept is not told it again.
    fn settle_done(&mut self, Done { request, answer }: Done, key: &Key) {
        self.settle(request, answer.map_or(Replied::Unknown, Replied::Answer), Some(key.clone()));
    }

    /// Takes a key out of it, that is to be hot; with what is remembered of requests.
    pub(crate) fn take(&mut self, key: &Key, writer: Writer, now: Time) -> (Version, Window) {
        self.note(key);
        let value: Option<Value> = self.items.get(key, now);
        self.items.put(key, None, now);
        let base = Timestamp { version: self.highest, writer };
        let at = base.next(Kind::Modify, writer);
        self.highest = at.version;
        let mut done = Window::default();
        for settled in self.settled.values().filter(|settled| settled.key.as_ref() == Some(key)) {
            let answer = if let Replied::Answer(answer) = &settled.told { Some(answer.clone()) } else { None };
            done.add(&Done { request: settled.request, answer });
        }
        (Version { at, base, kind: Kind::Plain, value, by: None }, done)
    }

    /// A key is hot no more: this is the newest of all that members had.
    ///
    /// What is doubtful is not: there has been a home that knew nothing of it, and what its clients were told of is gone with it.
    pub(crate) fn put_back(&mut self, WriteBack { key, version, done, is_doubtful }: WriteBack, now: Time) {
        self.raise(version.at.version);
        if is_doubtful {
            return;
        }
        // What was written last, if it is not known to be over, is so by this.
        for done in done.iter().chain(&version.by) {
            self.settle_done(done.clone(), &key);
        }
        self.note(&key);
        self.accept(&key, version.value, now);
    }

    fn raise(&mut self, version: u32) {
        let at = |version| Timestamp { version, writer: Writer(0) };
        if at(version).is_newer_than(at(self.highest)) {
            self.highest = version;
        }
    }
}

#[cfg(test)]
mod tests {
    use guira_chain::Owned;
    use guira_consistency::Sequence;
    use guira_item::{Expiry, Operation, Store, StoreMode};
    use guira_routing::NodeId;

    use super::*;
    use crate::MemoryItems;

    fn shard_of(bytes_max: usize) -> Shard<MemoryItems> {
        Shard::new(MemoryItems::new(bytes_max), HomecomingConfig::USUAL)
    }

    const WRITER: Writer = Writer(3);
    const NOW: Time = Time(10);

    fn shard() -> Shard<MemoryItems> {
        shard_of(1_000)
    }

    fn key() -> Key {
        Key::from(&b"a"[..])
    }

    fn store(mode: StoreMode, value: &str) -> Wish {
        let (expiry, value) = (Expiry::NEVER, value.as_bytes());
        Wish::new(Owned::of(&Operation::Store(Store { mode, flags: 0, expiry, cas: None, vivify: None, value })), NOW)
    }

    fn request(lane: u16, sequence: u64) -> RequestId {
        RequestId { session: Session { node: NodeId(1), life: 1, lane }, sequence: Sequence(sequence) }
    }

    fn told(answer: &Answer) -> guira_item::Answer {
        if let Reply::Answer(told, _) = &answer.reply { *told } else { panic!("{answer:?}") }
    }

    #[test]
    fn a_request_is_carried_out_once_here_and_where_the_key_is_hot() {
        let mut shard = shard();
        shard.carry_out(&key(), &store(StoreMode::Set, "a"), None, WRITER, 100);
        let first = request(0, 1);
        assert_eq!(shard.known(first), Known::New);
        let answer = shard.carry_out(&key(), &store(StoreMode::Append, "b"), Some(first), WRITER, 100);
        assert_eq!(shard.known(first), Known::Told(Replied::Answer(answer.clone())));
        let (version, done) = shard.take(&key(), WRITER, NOW);
        assert_eq!(version.value.as_ref().map(|value| &value.bytes[..]), Some(&b"ab"[..]));
        assert_eq!(done.last_of(first).and_then(|done| done.answer.as_ref()), Some(&answer));
        assert!(version.at.is_newer_than(answer.at), "above all that was");
        assert_eq!(shard.items().len(), 0);
        // Written as hot, by a request of another lane, and back.
        let second = Done { request: request(1, 1), answer: Some(Answer { at: version.at, ..answer }) };
        let mut done = done;
        done.add(&second);
        let at = Timestamp { version: version.at.version + 10, writer: Writer(9) };
        shard.put_back(WriteBack { key: key(), version: Version { at, ..version }, done, is_doubtful: false }, NOW);
        assert_eq!(shard.known(second.request), Known::Told(Replied::Answer(second.answer.unwrap())));
        let next = shard.carry_out(&key(), &store(StoreMode::Append, "c"), Some(request(0, 2)), WRITER, 100);
        assert!(next.at.is_newer_than(at));
        assert_eq!(shard.known(first), Known::Late);
    }

    #[test]
    fn a_home_that_comes_later_begins_above_all_that_was() {
        let mut shard = shard();
        shard.become_home(Epoch(5));
        let before = shard.carry_out(&key(), &store(StoreMode::Set, "a"), None, WRITER, 100).at;
        shard.become_home(Epoch(6));
        shard.keep(NOW, &|_| false);
        assert_eq!(shard.items().len(), 0);
        let after = shard.carry_out(&key(), &store(StoreMode::Set, "b"), None, WRITER, 100).at;
        assert!(after.is_newer_than(before) && after.version - before.version > 1 << 19);
    }

    #[test]
    fn what_finds_no_room_takes_what_was_there_with_it() {
        let mut shard = shard_of(10);
        shard.carry_out(&key(), &store(StoreMode::Set, "old"), None, WRITER, 100);
        let answer = shard.carry_out(&key(), &store(StoreMode::Set, "longer than it may be"), None, WRITER, 100);
        assert_eq!(told(&answer), guira_item::Answer::OutOfMemory);
        assert_eq!(shard.items().len(), 0);
    }

    #[test]
    fn those_who_are_no_members_any_more_are_forgotten() {
        let mut shard = shard();
        for node in [1, 2] {
            let session = Session { node: NodeId(node), ..request(0, 1).session };
            shard.settle(RequestId { session, sequence: Sequence(1) }, Replied::Busy, None);
        }
        shard.keep_sessions(|session| session.node == NodeId(2));
        assert_eq!(shard.known(request(0, 1)), Known::New);
    }
}
