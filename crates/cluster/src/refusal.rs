//! Why what has come is dropped, and where that is counted.
//!
//! What was sealed in another epoch is taken all the same, if it is a member's: views change here sooner or later than there, and nothing that members say to
//! each other is true in one view and not in another.

use std::net::SocketAddr;

use guira_routing::NodeId;

use crate::bundle::{Malformed, messages};
use crate::counts::Counts;
use crate::members::Members;
use crate::seal::{Epoch, Opened, Rejection};

/// Why what has come is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    Rejected(Rejection),
    Stranger,
    WrongAddress,
    Malformed,
    Misrouted,
    Damaged,
}

/// Whether what a node has sealed is a member's of this view. `is_there`: whether it came from where that member is.
pub(crate) fn judge(members: &Members, from: NodeId, is_there: impl FnOnce(SocketAddr) -> bool) -> Result<(), Refusal> {
    let address = members.address(from).ok_or(Refusal::Stranger)?;
    if is_there(address) { Ok(()) } else { Err(Refusal::WrongAddress) }
}

/// What is in a datagram that was opened: a bundle of messages, from a member of our view and from where that is.
pub(crate) fn admit<'d>(
    opened: Result<Opened<'d>, Rejection>,
    members: &Members,
    from: Option<SocketAddr>,
) -> Result<Opened<'d>, Refusal> {
    let opened = opened.map_err(Refusal::Rejected)?;
    let is_there = |_| from.and_then(|address| members.node_at(address)) == Some(opened.from);
    judge(members, opened.from, is_there)?;
    match messages(opened.body).find_map(Result::err) {
        Some(Malformed) => Err(Refusal::Malformed),
        None => Ok(opened),
    }
}

/// Counts what was taken if it is of another epoch.
pub(crate) fn note(counts: &mut Counts, members: &Members, epoch: Epoch) {
    counts.in_old_epoch += u64::from(epoch < members.epoch());
    counts.in_new_epoch += u64::from(epoch > members.epoch());
}

/// Where it is counted.
pub(crate) fn counter(counts: &mut Counts, reason: Refusal) -> &mut u64 {
    match reason {
        Refusal::Rejected(Rejection::TooShort) => &mut counts.in_too_short,
        Refusal::Rejected(Rejection::Version) => &mut counts.in_version,
        Refusal::Rejected(Rejection::NotForMe) => &mut counts.in_not_for_me,
        Refusal::Rejected(Rejection::Forged) => &mut counts.in_forged,
        Refusal::Stranger => &mut counts.in_stranger,
        Refusal::WrongAddress => &mut counts.in_wrong_address,
        Refusal::Malformed => &mut counts.in_malformed,
        Refusal::Misrouted => &mut counts.in_misrouted,
        Refusal::Damaged => &mut counts.in_damaged,
    }
}
