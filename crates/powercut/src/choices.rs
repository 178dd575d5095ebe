//! What becomes of what was not synced: every choice that a disk and a file system have.

/// Random numbers of a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    /// True so often in a thousand times.
    pub fn is_in(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// One of some.
    pub fn one_of<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len() as u64) as usize]
    }
}

/// How far a file's length has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lengths {
    /// No further than it was synced.
    Shortest,
    /// To any that it has had since then, or to a sector on the way there.
    Any,
    /// As far as it was.
    Longest,
}

/// How one cut treats what was not synced.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Decides about each sector, length and name.
    pub dice: Dice,
    /// Bytes that are written as a whole or not at all.
    pub sector_len: u64,
    /// Of a thousand sectors that were not synced, how many are on disk.
    pub sectors_kept: u64,
    /// Lengths of files.
    pub lengths: Lengths,
    /// Of a thousand operations on names that were not synced, how many are on disk, if those before them are.
    pub names_kept: u64,
    /// Operations on names are on disk in the order in which they were done, as a journal has them. Otherwise only those on
    /// the same name are.
    pub names_in_order: bool,
    /// What lies where a sector was not written is what had been on the disk before, not zeros.
    pub leftovers: bool,
}

impl Choices {
    /// Nothing is lost: what the process has seen.
    pub fn all_kept() -> Self {
        Self {
            dice: Dice::new(0),
            sector_len: 4_096,
            sectors_kept: 1_000,
            lengths: Lengths::Longest,
            names_kept: 1_000,
            names_in_order: true,
            leftovers: false,
        }
    }

    /// Everything that was not synced is lost.
    pub fn none_kept() -> Self {
        Self { sectors_kept: 0, lengths: Lengths::Shortest, names_kept: 0, ..Self::all_kept() }
    }

    /// Any.
    pub fn any(dice: &mut Dice) -> Self {
        Self {
            sector_len: dice.one_of(&[512, 4_096]),
            sectors_kept: dice.one_of(&[0, 100, 500, 900, 990, 1_000]),
            lengths: dice.one_of(&[Lengths::Shortest, Lengths::Any, Lengths::Any, Lengths::Longest]),
            names_kept: dice.one_of(&[0, 300, 700, 950, 1_000]),
            names_in_order: dice.is_in(500),
            leftovers: dice.is_in(300),
            dice: Dice::new(dice.roll()),
        }
    }
}
