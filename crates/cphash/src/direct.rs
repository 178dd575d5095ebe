//! One request on a partition that the calling thread holds meanwhile: how LOCKHASH works, and CPHASH when there are too few
//! requests for messages to pay.
//!
//! Always true: a partition is held while an element of it is looked at or its short value copied, and never while anything else
//! is waited for.

use std::sync::Arc;

use guira_item::{Answer, Get, Hit, Request, Sink, Time, VALUE_SLACK_LEN};

use crate::{
    element::Slot,
    element_ops::refer,
    heap::ClassId,
    partition::{Context, Lookup, Outcome},
    pin::Pin,
    shards::{Held, Shards},
};

/// Times that pages are emptied for one request.
pub(crate) const ROOM_TRIES: usize = 8;

/// Answers a plain read.
#[inline]
pub(crate) fn get<H: Shards + 'static, S: Sink>(
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
                let header = cx.chunks.header(slot);
                let hit = Hit {
                    flags: header.flags.get(),
                    cas: common.settings.shown(header.version.get()),
                    value_len: header.value_len.get() as usize,
                    class: ClassId(header.class.get()).number(),
                    ..Hit::default()
                };
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

/// Carries out any operation.
pub(crate) fn change<H: Shards + 'static, S: Sink>(
    shards: &Arc<H>,
    now: Time,
    hash: u64,
    request: &Request<'_>,
    index: usize,
    sink: &mut S,
) {
    let common = shards.common();
    let number = common.partition(hash);
    // SAFETY: what is touched through it is touched while the partition is held.
    let cx = unsafe { common.context(now) };
    for attempt in 0.. {
        let mut held = shards.hold(number);
        let (partition, supply) = held.parts();
        let (death, outcome) = match partition.execute(&cx, supply, hash, request, &mut None) {
            Ok(done) => done,
            Err(_) if attempt == ROOM_TRIES => (None, partition.out_of_memory(&cx, supply, hash, request)),
            Err(shortage) => {
                drop(held);
                if shards.make_room(shards.group_of(number), now, shortage) {
                    continue;
                }
                held = shards.hold(number);
                let (partition, supply) = held.parts();
                (None, partition.out_of_memory(&cx, supply, hash, request))
            }
        };
        if let Some(death) = death {
            sink.found_dead(index, death);
        }
        return match outcome {
            Outcome::Metadata(hit) => {
                drop(held);
                sink.metadata(index, &hit);
            }
            Outcome::Hit(hit, slot) => deliver(shards, held, &cx, slot, hash, &hit, index, sink),
            Outcome::Answer(answer, items) => {
                drop(held);
                sink.answer_change(index, answer, &items);
            }
        };
    }
}
