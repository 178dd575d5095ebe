//! Faults that can be put into the protocol: each opens the hole that one rule closes, and has to be found out.

/// A fault, named for the rule it breaks (ARCHITECTURE.md, "Rules of the switched cluster").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mutant {
    /// A lease is counted from when it was heard of, not from before it was asked for.
    R1,
    /// That an item is over is told without being written.
    R1Bury,
    /// A backend that was restarted serves at once, whatever cache nodes have of its earlier life.
    R2,
    /// A cache node that is in no view any more is forgotten, with its leases.
    R2View,
    /// A backend that begins where cache nodes change serves at once, if none of its view may serve what it gave.
    R2Begin,
    /// A request that comes again is carried out again.
    R3,
    /// A request that was answered with "moved" is carried out when it comes again, by who has the partition back.
    MoveAnswer,
    /// Partitions are put into the map for a life of their owner that is over.
    MoveLife,
    /// They are for a life of their taker that is over.
    MoveTakerLife,
    /// Requests for what is being given away are let in until it is another's.
    MoveGate,
    /// What is under way when nothing more is let in is not waited for.
    MoveDrain,
    /// A partition is given away while cache nodes have items of it.
    MoveUncache,
    /// A change believes that cache nodes have heard of it when they have heard of a drop.
    MoveCount,
    /// What changes while a partition is copied is not told to its taker.
    MoveChange,
    /// What a read shows that nobody knew of, while a partition is copied, is not told to its taker.
    MoveNews,
    /// What is left of earlier times at a taker stays there.
    MoveClear,
    /// What was on its way to a taker's store in earlier times is not fenced off.
    MoveFence,
    /// A taker gives versions that a giver has given before.
    MoveVersions,
    /// A `flush_all` takes place whoever has given what to whom meanwhile.
    MoveFlush,
    /// A `flush_all` takes place while cache nodes may serve what they have.
    FlushSessions,
    /// A backend that begins has forgotten the `flush_all` that was to come.
    FlushForgotten,
    /// A taker takes from a giver which has another `flush_all` to come than itself.
    MoveFlushAt,
    /// A `flush_all` whose time has come leaves what is being taken, part of which has come before and part of which comes behind it.
    MoveFlushTaken,
    /// A backend takes over what another has while that may still answer.
    TakesEarly,
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
    /// A read by which somebody may win is asked of a cache node and of its backend at a time.
    HedgeWin,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 31] = [
        Self::R1,
        Self::R1Bury,
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
        Self::MoveAnswer,
        Self::MoveLife,
        Self::MoveTakerLife,
        Self::MoveGate,
        Self::MoveDrain,
        Self::MoveUncache,
        Self::MoveCount,
        Self::MoveChange,
        Self::MoveNews,
        Self::MoveClear,
        Self::MoveFence,
        Self::MoveVersions,
        Self::FlushSessions,
        Self::FlushForgotten,
        Self::MoveFlush,
        Self::MoveFlushAt,
        Self::MoveFlushTaken,
        Self::TakesEarly,
        Self::HedgeWin,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::R1 => "r1",
            Self::R1Bury => "r1-bury",
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
            Self::MoveAnswer => "move-answer",
            Self::MoveLife => "move-life",
            Self::MoveTakerLife => "move-taker-life",
            Self::MoveGate => "move-gate",
            Self::MoveDrain => "move-drain",
            Self::MoveUncache => "move-uncache",
            Self::MoveCount => "move-count",
            Self::MoveChange => "move-change",
            Self::MoveNews => "move-news",
            Self::MoveClear => "move-clear",
            Self::MoveFence => "move-fence",
            Self::MoveVersions => "move-versions",
            Self::FlushSessions => "flush-sessions",
            Self::FlushForgotten => "flush-forgotten",
            Self::MoveFlush => "move-flush",
            Self::MoveFlushAt => "move-flush-at",
            Self::MoveFlushTaken => "move-flush-taken",
            Self::TakesEarly => "takes-early",
            Self::HedgeWin => "hedge-win",
        }
    }

    /// The one of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.name() == name)
    }
}
