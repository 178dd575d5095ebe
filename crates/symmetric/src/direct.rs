//! What a thread of a node answers by itself: reads of what is hot and valid, and of what is cold in the node's own shards, without a message and without its core.
//!
//! ```text
//! get --> SymmetricCache: hot and served ----------------------------> told, if the lease holds
//!              |--- cold, and home is here: shard --> still cold? ---> told, if the lease holds
//!              \--- anything else ----------------------------------> the core is asked
//! ```
//! Always true (R1): the clock by which the lease holds is read after all else; what was found is told only if this node was the same member, home of the same shards, all the time;
//! what may be over by this thread's clock is the core's to say, which removes it first.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use guira_cluster::{NodeClock, boot_now};
use guira_front::{Direct, Known};
use guira_hotkeys::Sampler;
use guira_item::{Answer, Get, Hit, Moment, Operation, Request, Span, Time};
use guira_symmetric_cache::{Found, Read, Reader, Visit};

use crate::{
    NodeCounts,
    items::{SharedItems, SharedRead},
    node::hash_of,
};

/// Keys that are told together to who counts them.
const PICKED_MAX: usize = 32;

/// Those that are fewer are told after so long.
const PICKED_WAIT: Span = Span::from_ms(100);

/// Tellings that may be on their way: further ones are dropped, since who does not come to count them has other things to do.
const TELLINGS_MAX: usize = 64;

/// What all threads of a node have answered by themselves.
#[derive(Debug, Default)]
pub struct DirectCounts {
    /// Reads of hot keys.
    hot: AtomicU64,
    /// Reads of cold keys whose home is here.
    at_home: AtomicU64,
    /// Tellings of picked keys that are on their way.
    tellings: AtomicUsize,
}

/// One in so many reads, for who counts them.
pub struct Picked {
    /// Which.
    pub(crate) keys: Vec<Box<[u8]>>,
    counts: Arc<DirectCounts>,
}

impl DirectCounts {
    /// Adds to what a node has counted itself.
    pub(crate) fn add_to(&self, counts: &mut NodeCounts) {
        counts.hot_reads += self.hot.load(Relaxed);
        counts.at_home += self.at_home.load(Relaxed);
    }
}

impl fmt::Debug for Picked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Picked").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

impl Drop for Picked {
    fn drop(&mut self) {
        self.counts.tellings.fetch_sub(1, Relaxed);
    }
}

/// Brings keys that were picked to who counts them.
pub trait TellsPicked: Send {
    /// Tells them; never waits.
    fn tell(&self, picked: Picked);
}

/// What threads need to answer by themselves.
#[derive(Clone, Debug)]
pub(crate) struct DirectParts<S> {
    pub(crate) reader: Reader,
    /// What is cold here; `None`: it is the core's alone.
    pub(crate) shard: Option<S>,
    pub(crate) clock: NodeClock,
    pub(crate) sample_one_in: u32,
    pub(crate) seed: u64,
    pub(crate) counts: Arc<DirectCounts>,
}

/// One thread's reads.
pub struct DirectReads<S: SharedItems, T> {
    reader: Reader,
    shard: Option<(S, S::Reads)>,
    clock: NodeClock,
    sampler: Sampler,
    counts: Arc<DirectCounts>,
    tell: T,
    picked: Vec<Box<[u8]>>,
    told_at: Moment,
    visit: Visit,
    now: Moment,
    time: Time,
    hot: u64,
    at_home: u64,
}

impl<S: SharedItems, T> fmt::Debug for DirectReads<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectReads").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl<S: SharedItems, T: TellsPicked> DirectReads<S, T> {
    pub(crate) fn new(parts: &DirectParts<S>, tell: T) -> Self {
        let DirectParts { reader, shard, clock, sample_one_in, seed, counts } = parts;
        let now = boot_now();
        Self {
            reader: reader.clone(),
            shard: shard.clone().map(|shard| (shard.clone(), shard.reads())),
            clock: *clock,
            sampler: Sampler::new((*sample_one_in).max(1), *seed),
            counts: Arc::clone(counts),
            tell,
            picked: Vec::new(),
            told_at: now,
            visit: reader.visit(),
            now,
            time: clock.time(now),
            hot: 0,
            at_home: 0,
        }
    }

    fn tell_picked(&mut self) {
        let is_due = self.picked.len() >= PICKED_MAX || self.now.since(self.told_at) >= PICKED_WAIT;
        if self.picked.is_empty() || !is_due {
            return;
        }
        self.told_at = self.now;
        let keys = std::mem::take(&mut self.picked);
        // One more than there is room for is noted and dropped.
        let on_their_way = self.counts.tellings.fetch_add(1, Relaxed);
        let picked = Picked { keys, counts: Arc::clone(&self.counts) };
        if on_their_way < TELLINGS_MAX {
            self.tell.tell(picked);
        }
    }
}

impl<S: SharedItems, T: TellsPicked> Direct for DirectReads<S, T> {
    fn begin(&mut self) -> bool {
        self.visit = self.reader.visit();
        self.now = boot_now();
        self.time = self.clock.time(self.now);
        (self.hot, self.at_home) = (0, 0);
        self.reader.holds(self.visit, self.now)
    }

    fn read(&mut self, request: &Request<'_>, values: &mut Vec<u8>) -> Option<Known> {
        let get = wanted(&request.operation)?;
        let (key, time, shard) = (request.key.as_bytes(), self.time, self.shard.as_mut());
        let cold = |values: &mut Vec<u8>| shard.map(|(shard, reads)| shard.read(reads, key, time, values));
        let (known, is_hot) = read(&self.reader, key, time, values, cold)?;
        *if is_hot { &mut self.hot } else { &mut self.at_home } += 1;
        if self.sampler.picks() {
            self.picked.push(key.into());
        }
        Some(match known {
            Known::Hit(hit, _) if !get.value => Known::Metadata(hit),
            known => known,
        })
    }

    fn end(&mut self) -> bool {
        let holds = self.reader.holds(self.visit, boot_now());
        if holds {
            self.counts.hot.fetch_add(self.hot, Relaxed);
            self.counts.at_home.fetch_add(self.at_home, Relaxed);
        }
        self.tell_picked();
        holds
    }
}

/// What a key has, and whether it is hot; `None`: the core is to be asked. It may be told if the visit that it is part of holds. `cold` reads a key in the shard, if this thread can.
pub(crate) fn read(
    reader: &Reader,
    key: &[u8],
    time: Time,
    values: &mut Vec<u8>,
    cold: impl FnOnce(&mut Vec<u8>) -> Option<SharedRead>,
) -> Option<(Known, bool)> {
    let hash = hash_of(key);
    let hit = |flags, cas, value: Range<usize>| {
        let hit = Hit { flags, cas, value_len: value.len(), ..Hit::default() };
        Known::Hit(hit, value)
    };
    match reader.read(key, hash, values) {
        Read::Hit(found) if found.expiry.is_past(time) => None,
        Read::Hit(Found { flags, cas, value, .. }) => Some((hit(flags, cas, value), true)),
        Read::Nothing => Some((Known::Answer(Answer::Miss), true)),
        Read::Ask => None,
        Read::Cold(absence) => {
            if !reader.is_home_of(hash) {
                return None;
            }
            let known = match cold(values)? {
                SharedRead::Hit { flags, cas, value } => hit(flags, cas, value),
                SharedRead::Nothing => Known::Answer(Answer::Miss),
                SharedRead::Over => return None,
            };
            reader.is_still_cold(absence).then_some((known, false))
        }
    }
}

/// Whether a read is one that can be answered so: who wants to know more than the value asks who knows.
pub(crate) fn wanted(operation: &Operation<'_>) -> Option<Get> {
    if let Operation::Get(get @ Get { tells: false, .. }) = operation
        && operation.only_reads()
    {
        return Some(*get);
    }
    None
}
