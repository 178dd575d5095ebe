//! Why what has come is dropped, and where that is counted.

use std::net::SocketAddr;

use guira_routing::NodeId;

use crate::counts::Counts;
use crate::members::Members;
use crate::seal::{Epoch, Rejection};

/// Why what has come is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    Rejected(Rejection),
    Stranger,
    WrongAddress,
    OldEpoch,
    NewEpoch,
    Malformed,
}

/// Whether what a node has sealed in an epoch is a member's of this view. `is_there`: whether it came from where that member is.
pub(crate) fn judge(
    members: &Members,
    from: NodeId,
    epoch: Epoch,
    is_there: impl FnOnce(SocketAddr) -> bool,
) -> Result<(), Refusal> {
    let address = members.address(from).ok_or(Refusal::Stranger)?;
    if !is_there(address) {
        return Err(Refusal::WrongAddress);
    }
    if epoch < members.epoch() {
        return Err(Refusal::OldEpoch);
    }
    if epoch > members.epoch() {
        return Err(Refusal::NewEpoch);
    }
    Ok(())
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
        Refusal::OldEpoch => &mut counts.in_old_epoch,
        Refusal::NewEpoch => &mut counts.in_new_epoch,
        Refusal::Malformed => &mut counts.in_malformed,
    }
}
