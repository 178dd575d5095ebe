//! Requests to partitions whose buckets have locks: plain reads of short values take their bucket's lock, and all else goes the way of
//! `direct.rs`. A bucket's lock lies in the word that has to be looked at anyway, where a partition's is a line of its own; in turn the
//! line of every bucket that is read has to belong to the reading core.
//!
//! Always true: a bucket is shut while an element of it is looked at or its short value copied; a reader that has shut one waits for
//! nothing else.

use std::sync::Arc;

use guira_item::{Answer, Expiry, Get, Operation, Request, Sink, Time, VALUE_SLACK_LEN};
use guira_sync::prefetch_to_write;

use crate::{
    direct::{self, STAGE_LEN, STAGES, WINDOW_LEN},
    element::mark,
    element_ops::{is_plain, plain_hit},
    shards::Shards,
    table::find_from,
};

/// Carries out requests one after the other, asking for each one's lines while others are carried out; `hashes` is a place for
/// their hash keys.
pub(crate) fn carry_out<H: Shards + 'static, S: Sink>(
    shards: &Arc<H>,
    hashes: &mut Vec<u64>,
    now: Time,
    requests: &[Request<'_>],
    sink: &mut S,
) {
    let mut index = 0;
    for window in requests.chunks(WINDOW_LEN) {
        hashes.clear();
        hashes.extend(window.iter().map(|request| shards.common().hash(request.key.as_bytes())));
        let distance = if window.len() > 1 { STAGE_LEN } else { 0 };
        for turn in 0..window.len() + STAGES * distance {
            let ahead = |stages: usize| {
                let number = (turn + stages * distance).wrapping_sub(STAGES * distance);
                hashes.get(number).filter(|_| distance > 0).map(|hash| (*hash, &window[number]))
            };
            ahead(3).inspect(|(hash, request)| prefetch_bucket(&**shards, *hash, request));
            ahead(2).inspect(|(hash, _)| shards.common().prefetch_element(*hash));
            ahead(1).inspect(|(hash, _)| prefetch_behind_first(&**shards, *hash));
            let Some(number) = turn.checked_sub(STAGES * distance) else { continue };
            let (hash, request) = (hashes[number], &window[number]);
            let is_done =
                plain_read(request).is_some_and(|get| self::get(shards, now, hash, request, get, index, sink));
            if !is_done {
                direct::carry_out_one(shards, now, hash, request, index, sink);
            }
            index += 1;
        }
    }
}

#[inline]
fn plain_read<'r>(request: &'r Request<'_>) -> Option<&'r Get> {
    match &request.operation {
        Operation::Get(get) if is_plain(get) => Some(get),
        _ => None,
    }
}

/// Asks for the bucket of a key, and for the partition that has it unless a plain read does without.
#[inline]
fn prefetch_bucket<H: Shards>(shards: &H, hash: u64, request: &Request<'_>) {
    let (buckets, partition) = (&shards.common().memory.buckets, shards.common().partition(hash));
    prefetch_to_write(buckets.address(partition, hash));
    if plain_read(request).is_none() {
        direct::prefetch_partition(shards, partition);
    }
}

/// Asks for the next element of a chain whose first one is another key's.
#[inline]
fn prefetch_behind_first<H: Shards>(shards: &H, hash: u64) {
    let memory = &shards.common().memory;
    let Some(shut) = memory.buckets.try_shut(hash) else { return };
    // SAFETY: the bucket is shut; of an element in its chain hash and link are read.
    let chunks = unsafe { memory.chunks() };
    if let Some(first) = shut.first().some()
        && chunks.header(first).hash.get() != hash
        && let Some(next) = chunks.header(first).link.get().some()
    {
        memory.prefetch_element(next);
    }
}

/// Answers a plain read under its bucket's lock; false if the partition has to be asked: for a large value, for what has died, and
/// for another key of the same hash.
#[inline]
fn get<H: Shards, S: Sink>(
    shards: &Arc<H>,
    now: Time,
    hash: u64,
    request: &Request<'_>,
    get: &Get,
    index: usize,
    sink: &mut S,
) -> bool {
    let common = shards.common();
    let Some(shut) = common.memory.buckets.shut_to_read(hash) else { return false };
    // SAFETY: the bucket is shut, and only what its readers may is touched.
    let cx = unsafe { common.context(now) };
    let Some(slot) = find_from(shut.first(), cx.chunks, hash) else {
        drop(shut);
        sink.answer(index, Answer::Miss);
        return true;
    };
    let (header, body) = (cx.chunks.header(slot), cx.chunks.memory.body(slot));
    if header.is_large() || Expiry::from_raw(header.expiry.get()).is_past(now) || body.key() != request.key.as_bytes() {
        return false;
    }
    if get.bump {
        header.set(mark::FETCHED, true);
        header.set_used(now);
    }
    let (hit, value) = (plain_hit(&cx, slot), body.value());
    sink.reserve(index, &hit)[VALUE_SLACK_LEN..][..value.len()].copy_from_slice(value);
    drop(shut);
    sink.commit(index, &hit);
    true
}
