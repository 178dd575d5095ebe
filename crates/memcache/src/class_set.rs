//! The slab classes that a command names: `all`, or their numbers separated by commas.

use crate::counters::CLASSES_MAX;
use crate::tokens::parse_u64;

/// Classes of a word.
const WORD_CLASSES: usize = u64::BITS as usize;

/// Slab classes by their numbers: 1 to 255, as `stats slabs` shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassSet([u64; CLASSES_MAX / WORD_CLASSES]);

impl ClassSet {
    /// Every class.
    pub const ALL: Self = Self([u64::MAX; CLASSES_MAX / WORD_CLASSES]);

    /// One class, if it is below 256; 0, which stands for none, is no item's.
    pub fn of(class: u32) -> Self {
        let mut set = Self([0; CLASSES_MAX / WORD_CLASSES]);
        set.insert(class as usize);
        set
    }

    /// The classes of `all` or a list such as `1,5,12`, in which nothing between two commas counts as nothing; `None` if a number
    /// is no class's.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if text == b"all" {
            return Some(Self::ALL);
        }
        let mut set = Self([0; CLASSES_MAX / WORD_CLASSES]);
        for number in text.split(|byte| *byte == b',').filter(|number| !number.is_empty()) {
            let class = parse_u64(number).filter(|class| (1..CLASSES_MAX as u64).contains(class))?;
            set.insert(class as usize);
        }
        Some(set)
    }

    fn insert(&mut self, class: usize) {
        if let Some(word) = self.0.get_mut(class / WORD_CLASSES) {
            *word |= 1 << (class % WORD_CLASSES);
        }
    }

    /// Whether a class is one of them.
    pub fn contains(&self, class: u32) -> bool {
        let class = class as usize;
        self.0.get(class / WORD_CLASSES).is_some_and(|word| word >> (class % WORD_CLASSES) & 1 != 0)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &[u8]) -> Option<Vec<u32>> {
        ClassSet::parse(text).map(|set| (0..300).filter(|class| set.contains(*class)).collect())
    }

    #[test]
    fn lists_name_their_classes_and_no_others() {
        assert_eq!(numbers(b"1"), Some(vec![1]));
        assert_eq!(numbers(b"255,64,63,64,1"), Some(vec![1, 63, 64, 255]));
        assert_eq!(numbers(b",1,,2,"), Some(vec![1, 2]));
        assert_eq!(numbers(b","), Some(vec![]));
        for class in 0..256 {
            assert!(ClassSet::ALL.contains(class));
        }
        for bad in [&b"0"[..], b"256", b"1,256", b"1x", b"1,all", b"hash", b"18446744073709551617", b"-1"] {
            assert_eq!(numbers(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn a_class_beyond_all_is_none() {
        assert!(ClassSet::of(7).contains(7) && !ClassSet::of(7).contains(8));
        assert!(ClassSet::of(256).is_empty() && !ClassSet::ALL.contains(256));
    }
}
