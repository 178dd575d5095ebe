//! What is done with one element in the hands of whoever has its partition: filling it, telling about it, references, its end.
//!
//! Always true: an element that is in a bucket is changed only without references, but for its marks.

use guira_item::{Change, Current, Expiry, Footprint, Footprints, Get, Hit, ItemInfo, NewValue, Operation, Request};

use crate::{
    context::{Context, Settings, Shape, Supply},
    element::{Header, Kind, Parts, Slot, mark},
    heap::ClassId,
};

/// Longest value in which a number is looked for, in bytes: what memcached keeps in one piece.
const NUMBER_LEN_MAX: usize = 512 << 10;

/// Whether an element may be written over: its chunk is as large as the new value needs, and nobody reads it.
#[inline]
pub(crate) fn is_replaceable(cx: &Context<'_>, slot: Slot, shape: Shape, value: &NewValue<'_>) -> bool {
    let header = cx.chunks.header(slot);
    let fits = header.class.get() == shape.class.0 && !shape.in_pieces && !header.is_large();
    fits && header.references.get() == 0 && matches!(value, NewValue::Bytes(_) | NewValue::Number(_))
}

/// Whether an element counts as read after its value has changed as it had before: a number that keeps its length is changed in
/// place for clients.
pub(crate) fn keeps_use(value: &NewValue<'_>, current: Option<&Current<'_>>) -> bool {
    matches!((value, current), (NewValue::Number(number), Some(item))
        if item.fetched && item.value_len == number.padded_len())
}

#[inline]
pub(crate) fn set_marks(header: &Header, expiry: Expiry, is_stale: bool, is_won: bool, is_fetched: bool) {
    header.expiry.set(expiry.to_raw());
    header.clear_marks();
    header.set(mark::FETCHED, is_fetched);
    header.set(mark::STALE, is_stale);
    header.set(mark::WON, is_won);
}

/// What a mark with a new version comes to for an element that is being read.
pub(crate) fn marked_copy<'a>(cx: &Context<'_>, slot: Slot, change: &Change<'a>) -> Option<Change<'a>> {
    let header = cx.chunks.header(slot);
    match change {
        Change::Mark { expiry, stale, win_sent, new_version: true } if header.references.get() > 0 => {
            let (value, flags) = (NewValue::Append(&[]), header.flags.get());
            Some(Change::Rewrite { value, flags, expiry: *expiry, stale: *stale, win_sent: *win_sent })
        }
        _ => None,
    }
}

/// What a plain read tells of an element.
#[inline]
pub(crate) fn plain_hit(cx: &Context<'_>, slot: Slot) -> Hit {
    let header = cx.chunks.header(slot);
    Hit {
        flags: header.flags.get(),
        cas: cx.settings.shown(header.version.get()),
        value_len: header.value_len.get() as usize,
        class: ClassId(header.class.get()).number(),
        ..Hit::default()
    }
}

/// Takes a reference.
#[inline]
pub(crate) fn refer(cx: &Context<'_>, slot: Slot) {
    let references = &cx.chunks.header(slot).references;
    references.set(references.get() + 1);
}

/// Gives up a reference; frees what nobody reads any more and no bucket has.
pub(crate) fn drop_reference<S: Supply>(cx: &Context<'_>, supply: &mut S, slot: Slot) {
    let header = cx.chunks.header(slot);
    let left = header.references.get() - 1;
    header.references.set(left);
    if left == 0 && header.kind() == Kind::Dead {
        free_element(cx, supply, slot);
    }
}

/// Frees an element that is in no bucket, with its pieces.
pub(crate) fn free_element<S: Supply>(cx: &Context<'_>, supply: &mut S, head: Slot) {
    let header = cx.chunks.header(head);
    if header.is_large() {
        supply.count_in_pieces(header.value_len.get() as usize, false);
    }
    let mut piece = header.pieces.get();
    let pieces = std::iter::from_fn(|| {
        let at = piece.some()?;
        piece = cx.chunks.memory.piece(at).1;
        Some(at)
    });
    supply.free(cx.chunks, pieces.chain(std::iter::once(head)));
}

/// Writes key and value into an element that is being filled.
pub(crate) fn fill(
    cx: &Context<'_>,
    slot: Slot,
    key: &[u8],
    flags: u32,
    value_len: usize,
    value: &NewValue<'_>,
    present: Option<Slot>,
) {
    let copy = match value {
        NewValue::Append(_) | NewValue::Prepend(_) => present.map(|slot| value_of(cx, slot)).unwrap_or_default(),
        NewValue::Bytes(_) | NewValue::Number(_) => Vec::new(),
    };
    let parts = match value {
        NewValue::Bytes(bytes) => [bytes, &[][..], &[]],
        NewValue::Append(bytes) => [&copy[..], bytes, &[]],
        NewValue::Prepend(bytes) => [bytes, &copy[..], &[]],
        NewValue::Number(decimal) => [decimal.digits(), &[], &[]],
    };
    let padding = value_len - parts.iter().map(|part| part.len()).sum::<usize>();
    // SAFETY: the element was allocated for this, or is as long as it needs and has no references; its partition is held.
    unsafe { cx.chunks.memory.fill(slot, key, flags, Parts::new(parts, padding)) };
}

/// A copy of an element's value.
pub(crate) fn value_of(cx: &Context<'_>, slot: Slot) -> Vec<u8> {
    let header = cx.chunks.header(slot);
    if !header.is_large() {
        return cx.chunks.memory.body(slot).value().to_vec();
    }
    let mut value = Vec::with_capacity(header.value_len.get() as usize);
    let mut piece = header.pieces.get();
    while let Some(at) = piece.some() {
        let (bytes, next) = cx.chunks.memory.piece(at);
        value.extend_from_slice(bytes);
        piece = next;
    }
    value
}

/// The text in which a number is looked for, if one is.
pub(crate) fn number_text(cx: &Context<'_>, slot: Slot, operation: &Operation<'_>) -> Option<Vec<u8>> {
    let is_short = || cx.chunks.header(slot).value_len.get() as usize <= NUMBER_LEN_MAX;
    (matches!(operation, Operation::Arithmetic(_)) && is_short()).then(|| value_of(cx, slot))
}

pub(crate) fn current<'a>(cx: &Context<'_>, slot: Slot, value: Option<&'a [u8]>) -> Current<'a> {
    let header = cx.chunks.header(slot);
    Current {
        flags: header.flags.get(),
        cas: cx.settings.shown(header.version.get()),
        expiry: Expiry::from_raw(header.expiry.get()),
        value_len: header.value_len.get() as usize,
        value,
        fetched: header.has(mark::FETCHED),
        stale: header.has(mark::STALE),
        win_sent: header.has(mark::WON),
        idle_s: header.idle_s(cx.now),
        class: u32::from(header.class.get()) + 1,
        total_len: header.total_len(),
    }
}

pub(crate) fn info<'a>(cx: &Context<'a>, slot: Slot) -> ItemInfo<'a> {
    let header = cx.chunks.header(slot);
    ItemInfo {
        key: cx.chunks.memory.body(slot).key(),
        cas: cx.settings.shown(header.version.get()),
        flags: header.flags.get(),
        expiry: Expiry::from_raw(header.expiry.get()),
        idle_s: header.idle_s(cx.now),
        fetched: header.has(mark::FETCHED),
        recent: false,
        stale: header.has(mark::STALE),
        win_sent: header.has(mark::WON),
        class: u32::from(header.class.get()) + 1,
        total_len: header.total_len(),
        value_len: header.value_len.get() as usize,
    }
}

/// What is told about the items of a change.
pub(crate) fn footprints(
    settings: &Settings,
    request: &Request<'_>,
    current: Option<&Current<'_>>,
    change: &Change<'_>,
) -> Footprints {
    let before = current.map(|item| Footprint { class: item.class, value_len: item.value_len, expiry: item.expiry });
    let come = match (change, &request.operation) {
        (Change::Rewrite { value, expiry, .. }, _) => {
            Some((value.len_with(before.map_or(0, |item| item.value_len)), *expiry))
        }
        (_, Operation::Store(store)) => Some((store.value.len(), store.expiry)),
        _ => None,
    };
    let after = come.and_then(|(value_len, expiry)| {
        let class = settings.shape(request.key.as_bytes().len(), value_len)?.class.number();
        Some(Footprint { class, value_len, expiry })
    });
    Footprints { before, after }
}

/// Whether a read asks for a value and what a plain `get` shows of it; whether it counts as a use is told by [`Get::bump`].
#[inline]
pub(crate) fn is_plain(get: &Get) -> bool {
    get.value && !get.wins && !get.tells && get.touch.is_none() && get.vivify.is_none() && get.recache.is_none()
}
