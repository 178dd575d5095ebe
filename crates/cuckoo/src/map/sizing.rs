//! How large a map is made, and how a small one grows.
//!
//! ```text
//! one small segment of 16 buckets, 32, ... half a full-sized one          doubled by rebuilding
//! one full-sized segment, two, three, ...                                 grown a few buckets at a time
//! ```
//! Always true: a small segment is smaller than a full-sized one, so there is always a larger layout that the next growth goes to.

use super::{ReserveError, Storage, Ways, Width, pairs::Pairs};
use crate::{
    layout::{Layout, SEGMENTS_MAX},
    modelled,
    segment::Geometry,
};

/// Buckets of the smallest segment.
const SMALLEST_BITS: u32 = modelled(16, 2).trailing_zeros();

/// Occupancy, in percent, for which a fixed map is made: its fullest segment is some percent above it.
const FIXED_PERCENT: usize = 95;
/// The same with four ways, which fill less.
const FIXED_PERCENT_OF_FOUR_WAYS: usize = 92;

/// Bytes of one segment.
pub(super) fn segment_bytes<K, V, L: Storage<K, V>, const WAYS: usize>(layout: Layout) -> usize
where
    Ways<WAYS>: Width,
{
    let full_mask = <Pairs<K, V, L, WAYS> as Geometry>::BUCKETS - 1;
    <Pairs<K, V, L, WAYS> as Geometry>::segment_bytes(layout.bucket_mask(full_mask) + 1)
}

/// The smallest layout that has room for so many keys.
pub(super) fn layout_for<K, V, L: Storage<K, V>, const WAYS: usize>(
    keys: usize,
    is_fixed: bool,
) -> Result<Layout, ReserveError>
where
    Ways<WAYS>: Width,
{
    let full = <Pairs<K, V, L, WAYS> as Geometry>::BUCKETS;
    // Below where growth begins, so that so many keys do not begin it; a map that does not grow takes what its slots hold.
    let percent = match is_fixed {
        true if WAYS == 4 => FIXED_PERCENT_OF_FOUR_WAYS,
        true => FIXED_PERCENT,
        false => Pairs::<K, V, L, WAYS>::FULL_PERCENT - 1,
    };
    let slots = keys.checked_mul(100).ok_or(ReserveError)?.div_ceil(percent);
    let buckets = slots.div_ceil(WAYS);
    if buckets > full / 2 {
        let segments = buckets.div_ceil(full);
        return if segments <= SEGMENTS_MAX { Ok(Layout::steady(0, segments)) } else { Err(ReserveError) };
    }
    let buckets = (keys * 10 / 8).div_ceil(WAYS).next_power_of_two();
    Ok(small(full, buckets.trailing_zeros().max(SMALLEST_BITS)))
}

/// One segment of so many buckets: a small one, unless it is full-sized.
fn small(full: usize, bits: u32) -> Layout {
    if bits < full.trailing_zeros() { Layout::small(0, bits) } else { Layout::steady(0, 1) }
}

/// The next larger layout than that of one small segment.
pub(super) fn doubled(full: usize, bits: u32) -> Layout {
    small(full, bits + 1)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{
        super::{Auto, Builder, CuckooMap, RandomState},
        *,
    };

    #[test]
    fn a_small_segment_is_smaller_than_a_full_sized_one() {
        for (keys, is_fixed) in (0..40_000).flat_map(|keys| [(keys, false), (keys, true)]) {
            let layouts = [
                layout_for::<u64, u64, Auto, 4>(keys, is_fixed),
                layout_for::<u64, u64, Auto, 8>(keys, is_fixed),
                layout_for::<u64, u64, Auto, 16>(keys, is_fixed),
            ];
            for (layout, ways) in layouts.into_iter().zip([4, 8, 16]) {
                let layout = layout.expect("few keys");
                assert!(layout.small_bits.is_none_or(|bits| bits < 12), "{keys} keys, {ways} ways: {layout:?}");
                assert!(layout.current * (layout.bucket_mask(4095) + 1) * ways >= keys, "{keys} keys, {ways} ways");
            }
        }
    }

    /// Maps for some 13,000 to 15,000 keys were once made of a small segment as large as a full-sized one, which nothing was
    /// larger than: whoever filled it asked for growth for ever.
    #[test]
    fn a_map_of_any_size_grows_beyond_it() {
        fn outgrow<const WAYS: usize>(capacity: usize)
        where
            Ways<WAYS>: Width,
        {
            let map: CuckooMap<u64, u64, RandomState, Auto, WAYS> =
                Builder::new().capacity(capacity).build().expect("memory");
            let keys = capacity as u64 * 5 / 2 + 100;
            (0..keys).for_each(|key| assert_eq!(map.insert(key, key), None, "{key} into a map for {capacity}"));
            assert_eq!(map.len() as u64, keys);
        }
        for capacity in [0, 1, 1_000, 7_000, 13_108, 14_000, 14_909, 15_000, 28_000, 29_818] {
            outgrow::<4>(capacity);
            outgrow::<8>(capacity);
            outgrow::<16>(capacity);
        }
    }
}
