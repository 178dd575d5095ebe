//! Sizes of chunks: every eight bytes up to 256, from there on by a factor, each stretched so that its chunks fill a page.
//!
//! Always true: sizes ascend strictly, each a multiple of the arena's granule; the last is the largest chunk there is.

use guira_arena::PAGE_LEN;

/// Largest chunk in bytes: a quarter of a page. Longer items are cut into pieces.
pub(crate) const CHUNK_LEN_MAX: usize = PAGE_LEN / 4;

/// Up to this many bytes every multiple of eight has a class of its own.
const FINE_LEN_MAX: usize = 256;

/// A class's number, from 0; users see it plus one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ClassId(pub u8);

impl ClassId {
    /// What users see.
    #[inline]
    pub fn number(self) -> u32 {
        u32::from(self.0) + 1
    }
}

/// The sizes, and which one fits.
#[derive(Debug)]
pub(crate) struct SizeClasses {
    lens: Vec<u32>,
    /// For each multiple of eight bytes, rounded up, the class that fits.
    by_eights: Vec<u8>,
    /// Bytes in front of the chunks of a page for every chunk in it, kept for the eviction policy.
    node_len: usize,
}

impl SizeClasses {
    /// Sizes from `min` bytes on, growing by `factor`, with `node_len` bytes beside each chunk.
    pub fn new(min: usize, factor: f64, granule: usize, node_len: usize) -> Self {
        let mut lens: Vec<u32> = Vec::new();
        let mut wanted = min.next_multiple_of(granule);
        while wanted <= CHUNK_LEN_MAX {
            let count = PAGE_LEN / (wanted + node_len);
            // The longest chunk of which as many fit into a page, unless the fine classes want exactly this one.
            let stretched = (PAGE_LEN / count - node_len) / granule * granule;
            let len = if wanted < FINE_LEN_MAX { wanted } else { stretched.min(CHUNK_LEN_MAX) };
            if lens.last().is_none_or(|last| (*last as usize) < len) {
                lens.push(len as u32);
            }
            let step = if len < FINE_LEN_MAX { granule } else { (len as f64 * (factor - 1.0)) as usize };
            wanted = (len + step.max(granule)).next_multiple_of(granule);
        }
        let largest = (PAGE_LEN / 4 - node_len).min(CHUNK_LEN_MAX) / granule * granule;
        if lens.last().is_none_or(|last| (*last as usize) < largest) {
            lens.push(largest as u32);
        }
        let mut by_eights = Vec::with_capacity(CHUNK_LEN_MAX / 8 + 1);
        let mut class = 0;
        for eights in 0..=lens.last().copied().unwrap_or(0) as usize / 8 {
            while (lens[class] as usize) < eights * 8 {
                class += 1;
            }
            by_eights.push(class as u8);
        }
        Self { lens, by_eights, node_len }
    }

    /// The smallest class whose chunks hold `len` bytes; `None` for more than a chunk can.
    #[inline]
    pub fn fitting(&self, len: usize) -> Option<ClassId> {
        self.by_eights.get(len.div_ceil(8)).map(|class| ClassId(*class))
    }

    /// The number by which users know the class of an item of `len` bytes; 0 if there is none. What small items need of the
    /// table is a cache line or two.
    #[inline]
    pub fn number_fitting(&self, len: usize) -> u32 {
        self.fitting(len).map_or(0, ClassId::number)
    }

    /// Bytes of a chunk.
    #[inline]
    pub fn chunk_len(&self, class: ClassId) -> usize {
        self.lens[usize::from(class.0)] as usize
    }

    /// Bytes of the largest chunk.
    pub fn chunk_len_max(&self) -> usize {
        self.lens.last().copied().unwrap_or(0) as usize
    }

    /// Chunks in a page.
    pub fn chunks_per_page(&self, class: ClassId) -> usize {
        PAGE_LEN / (self.chunk_len(class) + self.node_len)
    }

    /// Bytes into the page at which the chunks begin: they stand at its end.
    pub fn chunks_offset(&self, class: ClassId) -> usize {
        PAGE_LEN - self.chunks_per_page(class) * self.chunk_len(class)
    }

    /// How many classes there are.
    pub fn len(&self) -> usize {
        self.lens.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_the_smallest_class_that_holds_it() {
        for (granule, node_len) in [(8, 0), (8, 8), (16, 0), (64, 8)] {
            let classes = SizeClasses::new(24, 1.08, granule, node_len);
            assert!(classes.len() < 128, "{}", classes.len());
            for len in 1..=classes.chunk_len_max() {
                let class = classes.fitting(len).expect("fits");
                assert!(classes.chunk_len(class) >= len);
                assert!(class.0 == 0 || classes.chunk_len(ClassId(class.0 - 1)) < len);
            }
            assert_eq!(classes.fitting(classes.chunk_len_max() + 1), None);
            for class in (0..classes.len() as u8).map(ClassId) {
                assert_eq!(classes.chunk_len(class) % granule, 0);
                assert_eq!(classes.chunks_offset(class) % granule, 0);
                assert!(classes.chunks_offset(class) >= classes.chunks_per_page(class) * node_len);
            }
        }
    }

    #[test]
    fn an_item_of_16_and_32_bytes_wastes_nothing() {
        let classes = SizeClasses::new(24, 1.08, 8, 0);
        assert_eq!(classes.chunk_len(classes.fitting(56).expect("fits")), 56);
    }

    #[test]
    fn at_most_a_tenth_of_a_chunk_is_wasted() {
        let classes = SizeClasses::new(24, 1.08, 8, 0);
        for len in 80..=classes.chunk_len_max() {
            let chunk = classes.chunk_len(classes.fitting(len).expect("fits"));
            let page_share =
                PAGE_LEN as f64 / classes.chunks_per_page(ClassId(classes.fitting(len).expect("fits").0)) as f64;
            assert!(page_share <= len as f64 * 1.26 && chunk >= len, "{len} in {chunk}");
        }
    }
}
