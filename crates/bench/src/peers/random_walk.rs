//! MemC3's search for a free slot (section 3.2.2): one or several cuckoo paths walked at random, in step, first without
//! moving anything; then the moves from the free end backwards.

use super::{IndexFull, key::Draw};

/// Displacements looked at before a table counts as full, all paths together.
pub const DISPLACEMENTS_MAX: usize = 500;

/// Times a path that ran through itself is searched anew before the table counts as full.
const SEARCHES_MAX: usize = 64;

/// Slots in a bucket of MemC3's tables.
pub const WAYS: usize = 4;

/// A slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Number of the bucket.
    pub bucket: usize,
    /// Number within the bucket.
    pub way: usize,
}

/// A table of buckets whose items each have one other bucket.
pub trait Buckets {
    /// Slots in a bucket.
    const WAYS: usize;
    /// A free slot of a bucket.
    fn free(&self, bucket: usize) -> Option<usize>;
    /// The other bucket of the item in a slot, if there is one.
    fn other(&self, slot: Slot) -> Option<usize>;
}

/// The same for its only writer.
pub trait Displace: Buckets {
    /// Moves an item into a slot that is free, in its other bucket.
    fn displace(&mut self, from: Slot, to: Slot);
}

/// Search paths, kept between searches so that none allocates.
#[derive(Clone, Debug)]
pub struct Walk {
    paths: Vec<Vec<Slot>>,
    draw: Draw,
}

impl Walk {
    /// `paths` walks side by side.
    pub fn new(paths: usize) -> Self {
        assert!(paths >= 1, "a search needs a path");
        Self { paths: vec![Vec::with_capacity(DISPLACEMENTS_MAX); paths], draw: Draw::new(paths as u64) }
    }

    /// Frees a slot in one of the two full buckets `roots`; returns it and the displacements it took.
    pub fn make_room(&mut self, table: &mut impl Displace, roots: [usize; 2]) -> Result<(Slot, usize), IndexFull> {
        let mut moved = 0;
        for _ in 0..SEARCHES_MAX {
            let (path, end) = self.search(table, roots).ok_or(IndexFull)?;
            let mut free = end;
            let broken = path.iter().rev().any(|slot| {
                // A path that crosses itself finds another item than it saw; what was moved until then lies well.
                if table.other(*slot) != Some(free.bucket) {
                    return true;
                }
                table.displace(*slot, free);
                moved += 1;
                free = *slot;
                false
            });
            if !broken {
                return Ok((free, moved));
            }
            let found = roots.into_iter().find_map(|bucket| Some(Slot { bucket, way: table.free(bucket)? }));
            if let Some(slot) = found {
                return Ok((slot, moved));
            }
        }
        Err(IndexFull)
    }

    /// A path to a free slot, which nothing is moved along yet, and the slot.
    pub fn search<T: Buckets>(&mut self, table: &T, roots: [usize; 2]) -> Option<(&[Slot], Slot)> {
        let first = self.draw.below(2);
        self.paths.iter_mut().for_each(Vec::clear);
        let mut looked_at = 0;
        while looked_at < DISPLACEMENTS_MAX {
            for number in 0..self.paths.len() {
                let path = &mut self.paths[number];
                let bucket = match path.last() {
                    None => roots[(first + number) % 2],
                    Some(last) => table.other(*last)?,
                };
                let slot = Slot { bucket, way: self.draw.below(T::WAYS) };
                path.push(slot);
                let other = table.other(slot)?;
                if let Some(way) = table.free(other) {
                    return Some((&self.paths[number], Slot { bucket: other, way }));
                }
                looked_at += 1;
            }
        }
        None
    }
}
