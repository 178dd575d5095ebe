//! What other threads of a node may answer by themselves: what is hot and valid, and what is cold in its shards ([`DirectReads`](crate::DirectReads)).
//!
//! Always true: what a step changes is shown before anybody is told of it; a key that comes to be hot is shown to be before it leaves its shard, and until it is back there; nothing is
//! granted while homes change, and nothing to who is not whole.

use guira_chain::Reply;
use guira_consistency::{Key, Seen, Value};
use guira_front::Known;
use guira_item::{Moment, Operation};
use guira_symmetric_cache::{At, Config, Content, Reader, Writer};

use super::{Node, NodeConfig};
use crate::{Items, direct};

/// Bytes of what is shown, beside what the replica itself has, for each byte that items may take: an eighth, and room for a few that are as long as can be.
const ITEMS_PER_SHOWN: usize = 8;
const LONGEST_SHOWN: usize = 4;

/// A fault that has to be found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShownMutant {
    /// What others are writing is served until it is over.
    ServesInvalid,
    /// What was granted is granted for ever.
    LeaseUnseen,
    /// Who was home of a shard once answers for it.
    HomesKept,
}

impl ShownMutant {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ServesInvalid, Self::LeaseUnseen, Self::HomesKept];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ServesInvalid => "shown-serves-invalid",
            Self::LeaseUnseen => "shown-lease-unseen",
            Self::HomesKept => "shown-homes-kept",
        }
    }
}

/// Who shows what is hot.
pub(super) struct Shown {
    pub(super) cache: Writer,
    pub(super) reader: Reader,
    /// The shards for which something is granted, if it is.
    granted: Option<Vec<usize>>,
}

impl Shown {
    pub(super) fn new(config: &NodeConfig) -> Self {
        let config = Config {
            keys_max: config.hot_keys_max,
            records_len_max: (config.items_len_max / ITEMS_PER_SHOWN).max(LONGEST_SHOWN * config.item_len_max),
            item_len_max: config.item_len_max,
            shards_max: crate::ViewsConfig::NODES_MAX,
        };
        let (cache, reader) = guira_symmetric_cache::new(&config);
        Self { cache, reader, granted: None }
    }
}

impl<I: Items> Node<I> {
    /// Through which other threads read what is shown.
    pub fn reader(&self) -> Reader {
        self.shown.reader.clone()
    }

    /// What a client is answered that reads a key, as another thread would answer it; `None`: to be asked. `now` was read after whatever has happened (R1).
    pub fn read_directly(&mut self, now: Moment, key: &[u8], operation: &Operation<'_>) -> Option<Reply> {
        let Self { shown: Shown { reader, .. }, shard, config, counts, .. } = self;
        let (visit, mut values, time) = (reader.visit(), Vec::new(), config.life.clock.time(now));
        let get = direct::wanted(operation)?;
        let cold = |values: &mut Vec<u8>| Some(shard.read(&Key::from(key), time, values));
        let (known, is_hot) = direct::read(reader, key, time, &mut values, cold)?;
        if !reader.holds(visit, now) {
            return None;
        }
        *if is_hot { &mut counts.hot_reads } else { &mut counts.at_home } += 1;
        Some(match known {
            Known::Hit(hit, value) => Reply::Hit(hit, get.value.then(|| values[value].into())),
            Known::Metadata(hit) => Reply::Hit(hit, None),
            Known::Answer(answer) => Reply::Answer(answer, None),
        })
    }

    fn has_fault(&self, mutant: ShownMutant) -> bool {
        self.config.shown_mutant == Some(mutant)
    }

    /// A key may be something else than it was.
    pub(super) fn show(&mut self, now: Moment, key: &Key) {
        let hash = super::hash_of(key);
        let Some(Seen { version, is_valid, .. }) = self.replica.seen(key, now) else {
            return self.shown.cache.remove(key);
        };
        // Clients here know of something newer, and come to see it by asking.
        let is_old = self.floors.get(key).is_some_and(|floor| floor.is_newer_than(version.at));
        // Who reads what is stale may win by it, which is a write.
        let is_plain = version.value.as_ref().is_none_or(|value| !value.stale && !value.win_sent);
        let is_served = is_valid || self.has_fault(ShownMutant::ServesInvalid);
        if self.replica.is_hot(key) && is_served && is_plain && !is_old {
            let at = At { version: version.at.version, writer: version.at.writer.0 };
            self.shown.cache.serve(key, hash, at, version.value.as_ref().map(content));
        } else {
            self.shown.cache.withhold(key, hash);
        }
    }

    /// Says until when, and for which shards, this node answers; to be said again whenever either may be another.
    pub(super) fn show_grant(&mut self) {
        let mut served = self.served_shards();
        if self.has_fault(ShownMutant::HomesKept) {
            served.extend(&self.had_of);
        }
        let until = match self.has_fault(ShownMutant::LeaseUnseen) {
            true => Moment::from_ns(u64::MAX),
            false => self.holder.serves_until(),
        };
        if !self.replica.is_whole() {
            self.close_grant();
        } else if self.shown.granted.as_ref() == Some(&served) {
            self.shown.cache.renew(until);
        } else {
            self.shown.cache.grant(until, self.holder.view().homes.len(), |shard| served.contains(&shard));
            self.shown.granted = Some(served);
        }
    }

    /// Nothing is granted while homes change.
    pub(super) fn close_grant(&mut self) {
        self.shown.cache.close();
        self.shown.granted = None;
    }
}

fn content(value: &Value) -> Content<'_> {
    let Value { flags, cas, expiry, ref bytes, .. } = *value;
    Content { flags, cas, expiry, value: bytes }
}
