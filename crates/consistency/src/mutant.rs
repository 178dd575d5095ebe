//! Faults that can be put into the protocol: each opens a hole that is closed, and has to be found out.

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mutant {
    /// A write is over when all but one have acknowledged it.
    AckForgotten,
    /// Of two writes with one version neither is newer.
    TieIgnored,
    /// What is held is valid as soon as anything of its key is.
    ValidateAny,
    /// A write of a departed member is told again as a new one.
    ReplayFresh,
    /// A read-modify-write goes two versions up.
    ModifyByTwo,
    /// A read-modify-write goes on when there is something newer.
    ModifyNotAborted,
    /// One that somebody else has finished is tried again when there is something on top of it.
    ModifyTwice,
    /// What is told in another epoch is heeded.
    OldEpoch,
    /// A new view does not have those who have joined acknowledge what is under way.
    AcksKept,
    /// What is served is served past the lease.
    PastLease,
    /// A member that is back gives the timestamps of its former life.
    WriterReturns,
    /// Who joins serves before it has all there is.
    JoinerEarly,
    /// Who joins acknowledges writes of keys that it does not have yet, and does not keep them.
    JoinerDeaf,
    /// Who joins serves what it has copied from who was on the way to forget it.
    JoinerRevives,
    /// Who joins says that it serves a key no more before it has all there is.
    JoinerLeaves,
    /// A home writes back what it has when it announces that a key is to go.
    WriteBackEarly,
    /// Who is told that a key is to go has nothing of it any more.
    EvictDrops,
    /// Who has nothing of a key any more acknowledges no write of it.
    LeavingDeaf,
    /// A promotion that comes twice makes an entry twice.
    PromotesTwice,
    /// What was acknowledged of an earlier promotion counts for a later one.
    AckOfEarlier,
    /// A member serves a key whose promotion is not over.
    UnconfirmedServes,
    /// A successor lets a promotion be that it finds open.
    SuccessorIdle,
    /// A home serves a key from its shard before all have forgotten it.
    ForgottenByNobody,
    /// A home writes back what an earlier one may have known nothing of.
    DoubtIgnored,
    /// What is from an earlier time in the hot set is compared by its timestamp with what is from a later one.
    TimesAlike,
    /// Who finds that something is over does not remove it.
    Unburied,
    /// A request that is asked again is carried out again.
    AgainPlain,
    /// SC: an update is told once.
    UpdateOnce,
    /// SC: what departed members have written is told to nobody.
    DepartedUntold,
    /// SC: a session is served what is older than what it has seen.
    FloorIgnored,
    /// SC: a read-modify-write begins where others may have something older.
    ModifyUnsettled,
    /// SC: it begins where others may have something newer.
    SettledByAny,
    /// SC: a successor goes on with a promotion from what it has, though others may have written on top of that.
    SuccessorPromotes,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 33] = [
        Self::AckForgotten,
        Self::TieIgnored,
        Self::ValidateAny,
        Self::ReplayFresh,
        Self::ModifyByTwo,
        Self::ModifyNotAborted,
        Self::ModifyTwice,
        Self::OldEpoch,
        Self::AcksKept,
        Self::PastLease,
        Self::WriterReturns,
        Self::JoinerEarly,
        Self::JoinerDeaf,
        Self::JoinerRevives,
        Self::JoinerLeaves,
        Self::WriteBackEarly,
        Self::EvictDrops,
        Self::LeavingDeaf,
        Self::PromotesTwice,
        Self::AckOfEarlier,
        Self::UnconfirmedServes,
        Self::SuccessorIdle,
        Self::ForgottenByNobody,
        Self::DoubtIgnored,
        Self::TimesAlike,
        Self::Unburied,
        Self::AgainPlain,
        Self::UpdateOnce,
        Self::DepartedUntold,
        Self::FloorIgnored,
        Self::ModifyUnsettled,
        Self::SettledByAny,
        Self::SuccessorPromotes,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::AckForgotten => "ack-forgotten",
            Self::TieIgnored => "tie-ignored",
            Self::ValidateAny => "validate-any",
            Self::ReplayFresh => "replay-fresh",
            Self::ModifyByTwo => "modify-by-two",
            Self::ModifyNotAborted => "modify-not-aborted",
            Self::ModifyTwice => "modify-twice",
            Self::OldEpoch => "old-epoch",
            Self::AcksKept => "acks-kept",
            Self::PastLease => "past-lease",
            Self::WriterReturns => "writer-returns",
            Self::JoinerEarly => "joiner-early",
            Self::JoinerDeaf => "joiner-deaf",
            Self::JoinerRevives => "joiner-revives",
            Self::JoinerLeaves => "joiner-leaves",
            Self::WriteBackEarly => "write-back-early",
            Self::EvictDrops => "evict-drops",
            Self::LeavingDeaf => "leaving-deaf",
            Self::PromotesTwice => "promotes-twice",
            Self::AckOfEarlier => "ack-of-earlier",
            Self::UnconfirmedServes => "unconfirmed-serves",
            Self::SuccessorIdle => "successor-idle",
            Self::ForgottenByNobody => "forgotten-by-nobody",
            Self::DoubtIgnored => "doubt-ignored",
            Self::TimesAlike => "times-alike",
            Self::Unburied => "unburied",
            Self::AgainPlain => "again-plain",
            Self::UpdateOnce => "update-once",
            Self::DepartedUntold => "departed-untold",
            Self::FloorIgnored => "floor-ignored",
            Self::ModifyUnsettled => "modify-unsettled",
            Self::SettledByAny => "settled-by-any",
            Self::SuccessorPromotes => "successor-promotes",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.name() == name)
    }
}
