//! What can happen next.

use guira_routing::NodeId;

use crate::switched::disk::Fate;

/// A clock that leases go by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timed {
    /// The backends'.
    Backend,
    /// The cache nodes'.
    Caches,
}

/// What becomes of a message, by its place among those that are under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// It comes.
    Comes,
    /// It comes, and may come again.
    ComesAndStays,
    /// It does not come any more.
    IsLost,
}

/// What becomes of the first call that has not happened when a backend dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It never does.
    Never,
    /// It is a write, and may yet.
    Late,
}

/// One thing that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// A client asks what is next.
    Asks(usize),
    /// Something becomes of a message.
    Datagram(usize, Way),
    /// Something becomes of a call of a backend's disk.
    Disk(usize, usize, Fate),
    /// A clock goes on by a tick; nobody has looked at it yet.
    ClockGoesOn(Timed),
    /// A backend does what is due.
    BackendIsDue(usize),
    /// A cache node does what is due.
    CacheIsDue(usize),
    /// A gateway has waited for long enough.
    GatewayWaited(usize),
    /// A write comes of which a backend's disk had lost sight, by its place among those.
    ComesLate(usize, usize),
    /// A backend dies when so many calls of its disk have happened, and begins another life.
    BackendDies(usize, usize, Next),
    /// The first cache node dies and begins another life.
    CacheDies,
    /// The backend hears that the first cache node is in the cluster no more, and that has not heard of it.
    CacheGoes,
    /// The backend hears that it is there again.
    CacheComesBack,
    /// The partition of key A is to be another backend's.
    IsToMove,
    /// A member hears who has what now, and who is to.
    Hears(NodeId),
    /// A commit takes place, if it may.
    Commits(usize),
    /// A commit is refused, though it might take place.
    IsRefused(usize),
    /// What came of a commit is told.
    IsAnswered(usize),
}
