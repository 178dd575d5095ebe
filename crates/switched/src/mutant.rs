//! Faults that can be put into the protocol: each opens the hole that one rule closes, and has to be found out.

/// A fault, named for the rule it breaks (ARCHITECTURE.md, "Rules of the switched cluster").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mutant {
    /// A lease is counted from when it was heard of, not from before it was asked for.
    R1,
    /// A backend that was restarted serves at once, whatever cache nodes have of its earlier life.
    R2,
    /// A cache node that is in no view any more is forgotten, with its leases.
    R2View,
    /// A backend that begins where cache nodes change serves at once, if none of its view may serve what it gave.
    R2Begin,
    /// A request that comes again is carried out again.
    R3,
    /// Cache nodes are told of a change before the store has it, and it is answered without them.
    R4,
    /// A fetch is answered with what was there before the change that is on its way.
    R5,
    /// A drop takes a key out of the set that was told again after it.
    R6Drop,
    /// A session goes on after its lease has lapsed.
    R6Lapse,
    /// Two cache nodes that have a key are given a new item at once, without both having ceased to serve the old one.
    R7,
    /// A cache node takes what has the same hash for the same key.
    R8,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::R1,
        Self::R2,
        Self::R2View,
        Self::R2Begin,
        Self::R3,
        Self::R4,
        Self::R5,
        Self::R6Drop,
        Self::R6Lapse,
        Self::R7,
        Self::R8,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::R1 => "r1",
            Self::R2 => "r2",
            Self::R2View => "r2-view",
            Self::R2Begin => "r2-begin",
            Self::R3 => "r3",
            Self::R4 => "r4",
            Self::R5 => "r5",
            Self::R6Drop => "r6-drop",
            Self::R6Lapse => "r6-lapse",
            Self::R7 => "r7",
            Self::R8 => "r8",
        }
    }

    /// The one of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.name() == name)
    }
}
