//! Why partitions do not move, for who looks.

use std::fmt;

use guira_routing::NodeId;

/// What has ended the last attempt to give partitions away, since the last that succeeded. There is another one soon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standstill {
    /// Who was to have them.
    pub taker: NodeId,
    /// What has ended it.
    pub why: Why,
}

/// What has ended an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The taker has not answered, or not made room.
    Unready,
    /// The taker has ended the session, or was not heard of for a lease.
    Ended,
    /// The taker has more to store than may be under way.
    Behind,
    /// The taker has not said in time that it has all.
    NotStored,
    /// The store here has not said in time what became of what was under way.
    Undrained,
    /// The store here could not read something, or may have written something or not.
    Unsure,
    /// An item is larger than a message.
    TooLarge,
    /// Others are to have what, or a `flush_all` came.
    Changed,
    /// The map was not put.
    NotPut,
}

impl fmt::Display for Standstill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeId(taker) = self.taker;
        match self.why {
            Why::Unready => write!(f, "member {taker} does not answer, or makes no room"),
            Why::Ended => write!(
                f,
                "member {taker} took no more: it is not heard of, its store fails, or it has another flush_all to come (flush_at_unix_s), after which it does"
            ),
            Why::Behind => write!(f, "member {taker} stores more slowly than is changed here"),
            Why::NotStored => write!(f, "member {taker} has not stored all in time"),
            Why::Undrained => f.write_str("the store here did not finish what was under way in time"),
            Why::Unsure => f.write_str("the store here fails, or an item in it is damaged"),
            Why::TooLarge => f.write_str("an item is larger than what members can send each other: delete it"),
            Why::Changed => f.write_str("a flush_all came, or others are to have them"),
            Why::NotPut => f.write_str("the map in etcd had changed, or etcd is away"),
        }
    }
}
