//! One request on a partition that the calling thread holds meanwhile: how LOCKHASH works, and CPHASH when there are too few
//! requests for messages to pay.
//!
//! Always true: a partition is held while an element of it is looked at or its short value copied, and never while anything else
//! is waited for.

use std::sync::Arc;

use guira_item::{Answer, Death, Get, Hit, Request, Sink, Time, VALUE_SLACK_LEN};

use crate::{
    context::{Context, Lookup, Outcome},
    element::Slot,
    element_ops::refer,
    heap::ClassId,
    pin::Pin,
    shards::{Held, Shards},
};

/// Times that pages are emptied for one request.
const ROOM_TRIES: usize = 8;

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

/// Carries out any operation and answers it.
pub(crate) fn change<H: Shards + 'static, S: Sink>(
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
    for _ in 0..ROOM_TRIES {
        let mut held = shards.hold(number);
        let (partition, supply) = held.parts();
        match partition.execute(cx, supply, hash, request, &mut filled) {
            Ok((death, outcome)) => return (held, death, outcome),
            Err(shortage) => {
                // Memory may be with other partitions, of which one is held at a time.
                drop(held);
                if !shards.make_room(shards.group_of(number), cx.now, shortage) {
                    break;
                }
            }
        }
    }
    let mut held = shards.hold(number);
    let (partition, supply) = held.parts();
    let outcome = partition.out_of_memory(cx, supply, hash, request);
    (held, None, outcome)
}
