//! The dissertation's search for a free slot (section 3.3.3.2): every slot of a bucket begins a path of its own, and all paths
//! grow in step, so that the one found is as short as any; the buckets to come are known, and can be asked for ahead.

use super::random_walk::{Buckets, Slot};

/// Slots looked at before a table counts as full, the dissertation's M.
const SLOTS_MAX: usize = 2_000;

/// A bucket that a path has come to.
#[derive(Clone, Copy, Debug)]
struct Node {
    bucket: usize,
    /// The node that the path comes from, and the way of the item there; meaningless in a root.
    parent: usize,
    way: usize,
}

/// A search, kept so that the next one does not allocate.
#[derive(Clone, Debug, Default)]
pub struct BreadthFirst {
    nodes: Vec<Node>,
    path: Vec<Slot>,
}

impl BreadthFirst {
    /// A shortest path from one of the buckets `roots` to a free slot, and the slot. Before a bucket is looked at, `ahead` is
    /// told of the next one.
    pub fn search<T: Buckets>(
        &mut self,
        table: &T,
        roots: [usize; 2],
        ahead: impl Fn(usize),
    ) -> Option<(&[Slot], Slot)> {
        self.nodes.clear();
        self.nodes.extend(roots.map(|bucket| Node { bucket, parent: 0, way: 0 }));
        let mut at = 0;
        while let Some(Node { bucket, .. }) = self.nodes.get(at).copied() {
            self.nodes.get(at + 1).into_iter().for_each(|next| ahead(next.bucket));
            if let Some(way) = table.free(bucket) {
                self.trace(at, roots.len());
                return Some((&self.path, Slot { bucket, way }));
            }
            let others = (0..T::WAYS).filter_map(|way| Some((way, table.other(Slot { bucket, way })?)));
            let room = SLOTS_MAX / T::WAYS - self.nodes.len();
            self.nodes.extend(others.take(room).map(|(way, bucket)| Node { bucket, parent: at, way }));
            at += 1;
        }
        None
    }

    /// The path to node `at`; the first nodes are roots.
    fn trace(&mut self, mut at: usize, roots: usize) {
        self.path.clear();
        while at >= roots {
            let Node { parent, way, .. } = self.nodes[at];
            self.path.push(Slot { bucket: self.nodes[parent].bucket, way });
            at = parent;
        }
        self.path.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two-slot buckets in a row: what lies in slot `way` of bucket `b` has `2 * b + way + 2` as its other bucket.
    struct Tree {
        free: usize,
    }

    impl Buckets for Tree {
        const WAYS: usize = 2;

        fn free(&self, bucket: usize) -> Option<usize> {
            (bucket == self.free).then_some(1)
        }

        fn other(&self, slot: Slot) -> Option<usize> {
            Some(2 * slot.bucket + slot.way + 2)
        }
    }

    #[test]
    fn the_path_leads_from_a_root_to_the_free_slot() {
        let mut search = BreadthFirst::default();
        let (path, end) = search.search(&Tree { free: 1 }, [0, 1], |_| ()).expect("a root is free");
        assert_eq!((path.len(), end), (0, Slot { bucket: 1, way: 1 }));
        let (path, end) = search.search(&Tree { free: 12 }, [0, 1], |_| ()).expect("there is a path");
        assert_eq!(end, Slot { bucket: 12, way: 1 });
        let mut bucket = path[0].bucket;
        assert!(bucket < 2, "it begins at a root");
        for slot in path {
            assert_eq!(slot.bucket, bucket);
            bucket = 2 * slot.bucket + slot.way + 2;
        }
        assert_eq!(bucket, 12);
    }

    #[test]
    fn a_full_table_is_given_up() {
        let looked_at = std::cell::Cell::new(0);
        let count = |_| looked_at.set(looked_at.get() + 1);
        assert!(BreadthFirst::default().search(&Tree { free: usize::MAX }, [0, 1], count).is_none());
        assert!((900..1_000).contains(&looked_at.get()), "{looked_at:?}");
    }
}
