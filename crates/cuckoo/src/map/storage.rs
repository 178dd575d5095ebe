//! Where a map's keys and values lie: in the slots themselves, or on the heap behind a pointer in the slot.

use std::any::TypeId;

use crate::tags::{HalfWord, OneWord, TagWords, TwoWords};

/// Bytes of the largest pair that is kept in a slot: a cache line, and a key beside it. A larger one would be copied while its
/// bucket is locked, and again whenever it is displaced; on the heap it is written beforehand, and a pointer is put in place
/// (`docs/design/0004-one-table-for-index-and-map.md` says how long each takes).
pub const INLINE_BYTES_MAX: usize = 80;

/// Data whose bytes are all there is to it.
///
/// # Safety
/// The type has no padding, no interior mutability and no pointer or reference in it, so that its bytes, copied elsewhere as
/// integers, are the same value there.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($primitive:ty),*; $($array:ty),* $(,)?) => {
        $(
            // SAFETY: a primitive type has no padding and no interior mutability.
            unsafe impl Plain for $primitive {}
        )*

        /// Whether it is one of the types that are known to be plain wherever they turn up. The compiler knows the answer.
        #[inline(always)]
        fn is_known<T>() -> bool {
            let id = typeid::of::<T>();
            $(id == TypeId::of::<$primitive>() ||)* $(id == TypeId::of::<$array>())||*
        }
    };
}

plain!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64, bool, char, ();
    [u8; 1], [u8; 2], [u8; 3], [u8; 4], [u8; 5], [u8; 6], [u8; 7], [u8; 8], [u8; 12], [u8; 16], [u8; 20], [u8; 24],
    [u8; 28], [u8; 32], [u8; 36], [u8; 40], [u8; 48], [u8; 56], [u8; 64], [u16; 2], [u16; 4], [u16; 8], [u32; 2],
    [u32; 3], [u32; 4], [i32; 2], [i32; 3], [i32; 4], [f32; 2], [f32; 3], [f32; 4], [u32; 8], [u32; 16], [u64; 1],
    [u64; 2], [u64; 3], [u64; 4], [u64; 5], [u64; 6], [u64; 7], [u64; 8], [i64; 2], [i64; 3], [i64; 4], [f64; 2],
    [f64; 3], [f64; 4],
);

// SAFETY: an array has no padding beside its elements', which have none.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Where a map keeps its pairs: one of [`Auto`], [`Inline`] and [`Boxed`]. Everything else is the same: reads take no lock either
/// way.
pub trait Storage<K, V>: Sealed + 'static {
    /// Whether pairs lie in the slots.
    fn is_inline() -> bool;
}

mod sealed {
    /// What a map's unsafe code relies on is only for the types of this file to say.
    pub trait Sealed {}
}

use sealed::Sealed;

impl Sealed for Auto {}
impl Sealed for Inline {}
impl Sealed for Boxed {}

/// In the slots if key and value are primitive types or one of a list of short arrays of them, and 80 bytes at most; on the
/// heap otherwise. The list has `[u8; N]` for N up to 8, every fourth up to 40, and 48, 56, 64; `[u64; N]` up to 8; of `u16`,
/// `u32`, `i32`, `f32`, `i64` and `f64` those of 2, 3 and 4 (of `u16` 2, 4 and 8, of `u32` 8 and 16 too). A type of one's own,
/// even one word in a `struct`, is not known to the compiler to be plain: say [`Inline`] for it.
/// [`is_inline`](super::CuckooMap::is_inline) tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Auto {}

/// In the slots: for plain types of one's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inline {}

/// On the heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Boxed {}

const fn fits<K, V>() -> bool {
    size_of::<K>() + size_of::<V>() <= INLINE_BYTES_MAX
}

impl<K, V> Storage<K, V> for Auto {
    #[inline(always)]
    fn is_inline() -> bool {
        fits::<K, V>() && is_known::<K>() && is_known::<V>()
    }
}

impl<K: Plain, V: Plain> Storage<K, V> for Inline {
    #[inline(always)]
    fn is_inline() -> bool {
        const { assert!(fits::<K, V>(), "a pair in a slot has at most 80 bytes: keep it on the heap") };
        true
    }
}

impl<K, V> Storage<K, V> for Boxed {
    #[inline(always)]
    fn is_inline() -> bool {
        false
    }
}

/// A number of slots in a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ways<const WAYS: usize> {}

/// A width that buckets can have.
pub trait Width: 'static {
    /// The words of a bucket's tags.
    type Tags: TagWords + 'static;
}

impl Width for Ways<4> {
    type Tags = HalfWord<4>;
}

impl Width for Ways<8> {
    type Tags = OneWord<8>;
}

impl Width for Ways<16> {
    type Tags = TwoWords<16>;
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn only_small_plain_pairs_lie_in_slots() {
        fn auto<K, V>() -> bool {
            <Auto as Storage<K, V>>::is_inline()
        }
        assert!(auto::<u64, u64>() && auto::<[u8; 16], f64>() && auto::<char, ()>());
        assert!(!auto::<u64, String>() && !auto::<String, u64>() && !auto::<u64, std::sync::atomic::AtomicU64>());
        assert!(!auto::<&u64, u64>() && !auto::<u64, (u8, u64)>(), "padding");
        assert!(auto::<[u8; 36], [f64; 3]>() && auto::<i64, [i32; 4]>() && !auto::<u64, [u8; 9]>());
        assert!(auto::<[u8; 16], [u8; 64]>() && !auto::<[u8; 24], [u64; 8]>(), "88 bytes");
        assert!(<Inline as Storage<[u64; 4], [u16; 4]>>::is_inline() && !<Boxed as Storage<u64, u64>>::is_inline());
    }
}
