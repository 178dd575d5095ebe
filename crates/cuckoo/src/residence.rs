//! Where a key that is locked may lie, and what holds its stripes: one segment and locks alone while the table does not grow, two
//! segments while the key is being moved.

use guira_sync::{HeldStripes, LockGuard, PairGuard};

use crate::segment::{Geometry, SegmentRef};

/// The segments in which a key may lie, oldest first: two while it is being moved.
#[derive(Debug)]
pub struct Homes<'a, G> {
    pub(crate) from: SegmentRef<'a, G>,
    pub(crate) to: Option<SegmentRef<'a, G>>,
}

/// The segment in which a key lies, while the table does not grow.
#[derive(Debug)]
pub struct Home<'a, G>(pub(crate) SegmentRef<'a, G>);

/// Where a key that is locked may lie.
pub trait Residence<'a, G> {
    /// What holds the stripes meanwhile.
    type Guard<T: 'a>: HeldStripes;

    /// Where it is, or comes from.
    fn oldest(&self) -> SegmentRef<'a, G>;

    /// Where it is being moved to, if it is.
    fn next(&self) -> Option<SegmentRef<'a, G>>;

    /// Where new keys go.
    #[inline(always)]
    fn newest(&self) -> SegmentRef<'a, G> {
        self.next().unwrap_or(self.oldest())
    }

    /// All of these, oldest first.
    #[inline(always)]
    fn each(&self) -> impl Iterator<Item = SegmentRef<'a, G>> + use<'a, G, Self> {
        std::iter::once(self.oldest()).chain(self.next())
    }
}

impl<'a, G> Residence<'a, G> for Home<'a, G> {
    type Guard<T: 'a> = LockGuard<'a, T>;

    #[inline(always)]
    fn oldest(&self) -> SegmentRef<'a, G> {
        self.0
    }

    #[inline(always)]
    fn next(&self) -> Option<SegmentRef<'a, G>> {
        None
    }
}

impl<'a, G: Geometry> Residence<'a, G> for Homes<'a, G> {
    type Guard<T: 'a> = PairGuard<'a, T>;

    #[inline]
    fn oldest(&self) -> SegmentRef<'a, G> {
        self.from
    }

    #[inline]
    fn next(&self) -> Option<SegmentRef<'a, G>> {
        self.to
    }
}
