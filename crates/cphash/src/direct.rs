//! One request on a partition that the calling thread holds meanwhile: how LOCKHASH works, and CPHASH when there are too few
//! requests for messages to pay.
//!
//! Always true: a partition is held while an element of it is looked at or its short value copied, and never while anything else
//! is waited for.

use std::sync::Arc;

use guira_item::{Answer, Death, Get, Hit, Operation, Request, Sink, Time, VALUE_SLACK_LEN};
use guira_sync::prefetch_to_write;

use crate::{
    context::{Context, Lookup, Outcome},
    element::{LINE_LEN, Slot},
    element_ops::{is_plain, plain_hit, refer},
    pin::Pin,
    shards::{Held, Shards},
};

/// Times that pages are emptied for one request.
const ROOM_TRIES: usize = 8;

/// Requests from one stage of the pipeline to the next: while some are carried out, the memory brings what the next ones need.
pub(crate) const STAGE_LEN: usize = 8;

/// Stages before a request is carried out: its bucket is asked for, its element, and what comes behind that.
pub(crate) const STAGES: usize = 3;

/// Requests whose hashes are kept at a time.
pub(crate) const WINDOW_LEN: usize = 512;

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
            // A little before each request: a core waits for a dozen lines at a time, and would stand still for more.
            let ahead = |stages: usize| {
                let number = (turn + stages * distance).wrapping_sub(STAGES * distance);
                hashes.get(number).filter(|_| distance > 0)
            };
            ahead(3).inspect(|hash| prefetch_bucket(&**shards, **hash));
            ahead(2).inspect(|hash| shards.common().prefetch_element(**hash));
            ahead(1).inspect(|hash| prefetch_behind_first(&**shards, now, **hash));
            let Some(number) = turn.checked_sub(STAGES * distance) else { continue };
            carry_out_one(shards, now, hashes[number], &window[number], index, sink);
            index += 1;
        }
    }
}

/// Carries out one request and answers it.
#[inline]
pub(crate) fn carry_out_one<H: Shards + 'static, S: Sink>(
    shards: &Arc<H>,
    now: Time,
    hash: u64,
    request: &Request<'_>,
    index: usize,
    sink: &mut S,
) {
    match &request.operation {
        Operation::Get(get) if is_plain(get) => self::get(shards, now, hash, request, get, index, sink),
        _ => change(shards, now, hash, request, index, sink),
    }
}

/// Asks for the bucket of a key, and for the partition that has it.
#[inline]
pub(crate) fn prefetch_bucket<H: Shards>(shards: &H, hash: u64) {
    let common = shards.common();
    common.prefetch_bucket(hash);
    prefetch_partition(shards, common.partition(hash));
}

/// Asks for a partition and its lock.
#[inline]
pub(crate) fn prefetch_partition<H: Shards>(shards: &H, partition: usize) {
    let partition = shards.address(partition);
    prefetch_to_write(partition);
    prefetch_to_write(partition.wrapping_add(LINE_LEN));
}

/// Asks for what comes behind the first element of a chain. A lock waits for all that its thread has written: a neighbour in the
/// order of use that is not there yet would hold up the next request.
#[inline]
fn prefetch_behind_first<H: Shards>(shards: &H, now: Time, hash: u64) {
    let common = shards.common();
    if let Some(mut held) = shards.try_hold(common.partition(hash)) {
        // SAFETY: the partition is held.
        held.parts().0.prefetch_behind_first(&unsafe { common.context(now) }, hash);
    }
}

/// Answers a plain read.
#[inline]
fn get<H: Shards + 'static, S: Sink>(
    shards: &Arc<H>,
    now: Time,
    hash: u64,
    request: &Request<'_>,
    get: &Get,
    index: usize,
    sink: &mut S,
) {
    let common = shards.common();
    let mut held = shards.hold(common.partition(hash));
    // SAFETY: the partition is held.
    let cx = unsafe { common.context(now) };
    let (partition, supply) = held.parts();
    let death = match partition.lookup(&cx, supply, hash) {
        Lookup::Miss(death) => death,
        Lookup::Hit(slot) => {
            if cx.chunks.memory.body(slot).key() == request.key.as_bytes() {
                let hit = plain_hit(&cx, slot);
                if get.bump {
                    partition.use_element(&cx, slot);
                }
                return deliver(shards, held, &cx, slot, hash, &hit, index, sink);
            }
            None
        }
    };
    drop(held);
    if let Some(death) = death {
        sink.found_dead(index, death);
    }
    sink.answer(index, Answer::Miss);
}

/// Delivers a value: a short one is copied before the partition is given up, a large one is sent from where it lies.
#[inline]
#[expect(clippy::too_many_arguments, reason = "the parts of one answer")]
fn deliver<H: Shards + 'static, S: Sink>(
    shards: &Arc<H>,
    held: H::Held<'_>,
    cx: &Context<'_>,
    slot: Slot,
    hash: u64,
    hit: &Hit,
    index: usize,
    sink: &mut S,
) {
    let header = cx.chunks.header(slot);
    if header.is_large() {
        refer(cx, slot);
        let pieces = header.pieces.get();
        drop(held);
        return sink.pinned(index, hit, Box::new(Pin::new(Arc::clone(shards), slot, hash, pieces, hit.value_len)));
    }
    let value = cx.chunks.memory.body(slot).value();
    sink.reserve(index, hit)[VALUE_SLACK_LEN..][..value.len()].copy_from_slice(value);
    drop(held);
    sink.commit(index, hit);
}

/// Carries out any operation and answers it.
fn change<H: Shards + 'static, S: Sink>(
    shards: &Arc<H>,
    now: Time,
    hash: u64,
    request: &Request<'_>,
    index: usize,
    sink: &mut S,
) {
    // SAFETY: what is touched through it is touched while the partition is held.
    let cx = unsafe { shards.common().context(now) };
    let (held, death, outcome) = execute(&**shards, &cx, hash, request, None);
    if let Some(death) = death {
        sink.found_dead(index, death);
    }
    match outcome {
        Outcome::Hit(hit, slot) => deliver(shards, held, &cx, slot, hash, &hit, index, sink),
        Outcome::Metadata(hit) => {
            drop(held);
            sink.metadata(index, &hit);
        }
        Outcome::Answer(answer, items) => {
            drop(held);
            sink.answer_change(index, answer, &items);
        }
    }
}

/// Carries out any operation, making room for it wherever there is some; what it came to, and the partition, still held. A
/// store's element may have been filled beforehand; it is used or freed.
pub(crate) fn execute<'h, H: Shards>(
    shards: &'h H,
    cx: &Context<'_>,
    hash: u64,
    request: &Request<'_>,
    mut filled: Option<Slot>,
) -> (H::Held<'h>, Option<Death>, Outcome) {
    let number = shards.common().partition(hash);
    let mut tries = 0;
    loop {
        let mut held = shards.hold(number);
        let (partition, supply) = held.parts();
        match partition.execute(cx, supply, hash, request, &mut filled) {
            Ok((death, outcome)) => return (held, death, outcome),
            Err(shortage) => {
                // Memory may be with other partitions, of which one is held at a time.
                drop(held);
                if tries == ROOM_TRIES || !shards.make_room(shards.group_of(number), cx.now, shortage) {
                    let mut held = shards.hold(number);
                    let (partition, supply) = held.parts();
                    let outcome = partition.out_of_memory(cx, supply, hash, request, shortage.class);
                    return (held, None, outcome);
                }
                tries += 1;
            }
        }
    }
}
