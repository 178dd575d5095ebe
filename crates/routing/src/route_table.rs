//! Which cache node, or which two, a hash is routed to: what a switch has as its table of rules, or a gateway in a switch's stead.
//!
//! Always true: no rule is added beyond those that there is room for, and nothing is allocated but when that changes.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, Hasher},
};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use crate::{Choices, KeyHash};

/// A table that is full: the rule was not installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableFull {
    /// So many rules there are.
    pub len_max: usize,
}

impl fmt::Display for TableFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the route table is full with {} rules", self.len_max)
    }
}

impl std::error::Error for TableFull {}

/// The rules, by hash.
#[derive(Clone)]
pub struct RouteTable {
    rules: HashMap<KeyHash, Choices, Rehash>,
    len_max: usize,
}

impl fmt::Debug for RouteTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteTable").field("len", &self.len()).field("len_max", &self.len_max).finish_non_exhaustive()
    }
}

impl RouteTable {
    /// Room for `len_max` rules. `seed` is the table's own, and nobody else's: who knows the cluster's can choose keys whose hashes are all
    /// alike.
    pub fn new(len_max: usize, seed: u64) -> Self {
        // For twice as many: then what removals leave behind is always cleared in place.
        let rules = HashMap::with_capacity_and_hasher(len_max.saturating_mul(2), Rehash(RapidSecrets::seed(seed)));
        Self { rules, len_max }
    }

    /// So many rules there is room for.
    pub fn len_max(&self) -> usize {
        self.len_max
    }

    /// Routes `hash` to these, and no longer to others.
    pub fn install(&mut self, hash: KeyHash, choices: Choices) -> Result<(), TableFull> {
        if let Some(installed) = self.rules.get_mut(&hash) {
            *installed = choices;
            return Ok(());
        }
        if self.rules.len() >= self.len_max {
            return Err(TableFull { len_max: self.len_max });
        }
        self.rules.insert(hash, choices);
        Ok(())
    }

    /// Routes `hash` to no cache node any more. Whether it was.
    pub fn remove(&mut self, hash: KeyHash) -> bool {
        self.rules.remove(&hash).is_some()
    }

    /// The cache nodes that a hash is routed to, each as good as the other; `None`: to the owner of its partition.
    pub fn lookup(&self, hash: KeyHash) -> Option<Choices> {
        self.rules.get(&hash).copied()
    }

    /// Has room for so many rules from now on. Those that there are stay, also if they are more.
    pub fn set_len_max(&mut self, len_max: usize) {
        self.rules.reserve(len_max.saturating_mul(2).saturating_sub(self.rules.len()));
        self.len_max = len_max;
    }

    /// Routes nothing to any cache node.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// Hashes what is a hash already, by secrets of the table's own.
#[derive(Clone)]
struct Rehash(RapidSecrets);

impl BuildHasher for Rehash {
    type Hasher = Rehashed;

    fn build_hasher(&self) -> Rehashed {
        Rehashed { secrets: self.0, hash: 0 }
    }
}

struct Rehashed {
    secrets: RapidSecrets,
    hash: u64,
}

impl Hasher for Rehashed {
    fn write(&mut self, bytes: &[u8]) {
        self.hash ^= rapidhash_v3_seeded(bytes, &self.secrets);
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::NodeId;

    #[test]
    fn a_full_table_takes_no_more_but_replaces() {
        let mut table = RouteTable::new(2, 1);
        assert_eq!(table.install(KeyHash(1), NodeId(1).into()), Ok(()));
        assert_eq!(table.install(KeyHash(2), NodeId(1).into()), Ok(()));
        assert_eq!(table.install(KeyHash(3), NodeId(1).into()), Err(TableFull { len_max: 2 }));
        assert_eq!(table.install(KeyHash(2), NodeId(3).into()), Ok(()));
        assert_eq!((table.lookup(KeyHash(2)), table.lookup(KeyHash(3))), (Some(NodeId(3).into()), None));
        assert!(table.remove(KeyHash(1)) && !table.remove(KeyHash(1)));
        assert_eq!(table.install(KeyHash(3), NodeId(1).into()), Ok(()));
    }

    #[test]
    fn rules_that_come_and_go_allocate_nothing() {
        for len_max in [0, 1, 7, 28, 112, 448, 1_000] {
            let mut table = RouteTable::new(len_max, 2);
            let capacity = table.rules.capacity();
            for hash in 0..20 * len_max as u64 {
                table.install(KeyHash(hash), NodeId(1).into()).unwrap();
                if hash + 1 >= len_max as u64 {
                    assert_eq!(table.len(), len_max);
                    assert!(table.remove(KeyHash(hash + 1 - len_max as u64)));
                }
            }
            // What removals have left behind counts against it, so that it may say less.
            assert!(table.rules.capacity() <= capacity, "for {len_max} rules");
        }
    }

    #[test]
    fn a_table_with_room_for_others_keeps_what_it_has() {
        let mut table = RouteTable::new(2, 1);
        let both = Choices::of(NodeId(1), NodeId(2));
        assert_eq!([1, 2].map(|hash| table.install(KeyHash(hash), both)), [Ok(()), Ok(())]);
        table.set_len_max(1);
        assert_eq!((table.len(), table.install(KeyHash(3), both)), (2, Err(TableFull { len_max: 1 })));
        table.set_len_max(3);
        assert_eq!(table.install(KeyHash(3), NodeId(2).into()), Ok(()));
    }

    #[test]
    fn tables_hash_each_by_their_own_seed() {
        let hash = |seed| Rehash(RapidSecrets::seed(seed)).hash_one(KeyHash(17));
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }

    proptest! {
        #[test]
        fn routes_are_the_last_ones_installed(acts in prop::collection::vec((0u8..11, 0u64..9, 0u16..3, 0u16..3), 1..200)) {
            const LEN_MAX: usize = 5;
            let (mut table, mut model) = (RouteTable::new(LEN_MAX, 3), BTreeMap::new());
            for (act, hash, node, other) in acts {
                let (hash, choices) = (KeyHash(hash), Choices::of(NodeId(node), NodeId(other)));
                match act {
                    0..7 => {
                        let fits = model.len() < LEN_MAX || model.contains_key(&hash);
                        prop_assert_eq!(table.install(hash, choices).is_ok(), fits);
                        if fits {
                            model.insert(hash, choices);
                        }
                    }
                    7..10 => prop_assert_eq!(table.remove(hash), model.remove(&hash).is_some()),
                    _ => {
                        table.clear();
                        model.clear();
                    }
                }
                prop_assert_eq!((table.len(), table.is_empty()), (model.len(), model.is_empty()));
                for hash in (0..9).map(KeyHash) {
                    prop_assert_eq!(table.lookup(hash), model.get(&hash).copied());
                }
            }
        }
    }
}
