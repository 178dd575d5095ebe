//! Which units are free: buddies (Knowlton, CACM 1965), in blocks of 1, 2, 4, ... units.
//!
//! Always true: blocks that are taken do not overlap, each begins at a multiple of what it is long, and two free buddies are one block.

use std::collections::BTreeSet;

use crate::segments::{Segments, UNIT_LEN, Unit};

/// A block's length: two to this, in units.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Order(u32);

impl Order {
    /// The least that holds so many bytes.
    pub(crate) fn of(len: usize) -> Self {
        Self(len.div_ceil(UNIT_LEN).next_power_of_two().ilog2())
    }

    /// Units of it.
    fn units(self) -> u32 {
        1 << self.0
    }
}

/// The room of all segments.
#[derive(Debug)]
pub(crate) struct Room {
    /// By order.
    free: Vec<BTreeSet<Unit>>,
    /// Segments that have been begun, and that may be.
    segments: u32,
    segments_max: u32,
}

impl Room {
    pub(crate) fn new(segments: &Segments) -> Self {
        let free = vec![BTreeSet::new(); segments.order() as usize + 1];
        Self { free, segments: 0, segments_max: segments.len() as u32 }
    }

    /// Of a whole segment.
    fn order_max(&self) -> u32 {
        self.free.len() as u32 - 1
    }

    /// Takes a block; `None`: there is none.
    pub(crate) fn take(&mut self, order: Order) -> Option<Unit> {
        let there = (order.0..=self.order_max()).find(|larger| !self.free[*larger as usize].is_empty());
        let mut larger = match there {
            Some(larger) => larger,
            None if order.0 <= self.order_max() && self.segments < self.segments_max => {
                let larger = self.order_max();
                self.free[larger as usize].insert(Unit(self.segments << larger));
                self.segments += 1;
                larger
            }
            None => return None,
        };
        let unit = self.free[larger as usize].pop_first()?;
        while larger > order.0 {
            larger -= 1;
            self.free[larger as usize].insert(Unit(unit.0 + (1 << larger)));
        }
        Some(unit)
    }

    /// Gives a block back.
    pub(crate) fn give(&mut self, Unit(mut unit): Unit, order: Order) {
        let mut order = order;
        while order.0 < self.order_max() && self.free[order.0 as usize].remove(&Unit(unit ^ order.units())) {
            unit &= !order.units();
            order.0 += 1;
        }
        self.free[order.0 as usize].insert(Unit(unit));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_do_not_overlap_and_all_come_back(steps in prop::collection::vec((0..2000_usize, any::<bool>()), 1..400)) {
            let segments = Segments::new(4 << 20, 1 << 20);
            let (mut room, mut taken) = (Room::new(&segments), Vec::<(Unit, Order)>::new());
            for (size, gives) in steps {
                if gives && !taken.is_empty() {
                    let (unit, order) = taken.swap_remove(size % taken.len());
                    room.give(unit, order);
                } else {
                    let order = Order::of(size * size);
                    let is_small = order <= Order::of(1 << 20);
                    if let Some(unit) = room.take(order) {
                        prop_assert!(is_small && unit.0 % order.units() == 0);
                        prop_assert!(unit.0 + order.units() <= 4 << segments.order());
                        let apart = |(other, len): &(Unit, Order)| {
                            unit.0 + order.units() <= other.0 || other.0 + len.units() <= unit.0
                        };
                        prop_assert!(taken.iter().all(apart));
                        taken.push((unit, order));
                    } else {
                        let units: u32 = taken.iter().map(|(_, order)| order.units()).sum();
                        prop_assert!(!is_small || units > 0);
                    }
                }
            }
            taken.drain(..).for_each(|(unit, order)| room.give(unit, order));
            for number in 0..4 {
                prop_assert!(room.take(Order::of(1 << 20)).is_some(), "segment {} is whole again", number);
            }
            prop_assert_eq!(room.take(Order::of(1)), None);
        }
    }
}
