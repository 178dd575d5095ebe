//! How a server becomes the owner of a keyspace, and says that it is no more.
//!
//! Always true: whoever has a claim was the only one to whom it was given; its lease counts from before the first time that it asked.

use std::hash::{BuildHasher, RandomState};

use tokio::time::sleep;

use super::{
    CassandraError,
    driving::PAUSE_MAX,
    lease::{Claim, RENEWAL, Verdict, Watcher, boot_now_ns},
    tables::{Tables, Told},
};
use crate::state;

/// Waiting for longer than a living owner is silent is told.
const WAIT_TOLD_AFTER: u32 = 7;

/// Times that a keyspace is asked for.
const TAKES_MAX: u32 = 5;

/// Times that the owner cannot be read before that is told: with what a request may take, some twenty seconds.
const READ_FAILURES_MAX: u32 = 5;

/// Says that a keyspace is nobody's; whether nobody, or another, has it.
pub(super) async fn give_up(tables: &Tables, claim: Claim) -> Result<bool, Told> {
    match tables.renew(claim.epoch, claim.renewals, "").await {
        Ok(true) => Ok(true),
        // A renewal of which nothing was heard had come first, or this one has been heard of by now.
        Ok(false) | Err(_) => match tables.read_owner().await? {
            Some((_, found)) if found.epoch == claim.epoch && found.holder == claim.holder => {
                tables.renew(claim.epoch, found.renewals, "").await
            }
            _ => Ok(true),
        },
    }
}

/// A name that no other owner has.
pub(super) fn holder_name() -> String {
    let system = rustix::system::uname();
    let node = system.nodename().to_string_lossy();
    let mark = RandomState::new().hash_one(boot_now_ns()) as u32;
    format!("process {} on {node} ({mark:08x})", std::process::id())
}

/// Becomes the owner; the claim, and boot time before it was asked for.
pub(super) async fn take_over(tables: &Tables, holder: &str) -> Result<(Claim, u64), CassandraError> {
    let failed = |told: Told| CassandraError::Failed(told.line);
    let (mut watcher, mut failures, mut waits) = (Watcher::default(), 0, 0);
    let mut first_asked_ns = None;
    let mut told_last = "others take it all the time".into();
    for _ in 0..TAKES_MAX {
        // Until it is free, or seen to be held.
        let found = loop {
            let found = match tables.read_owner().await {
                Ok(found) => found,
                Err(told) if failures == READ_FAILURES_MAX => return Err(failed(told)),
                Err(_) => {
                    failures += 1;
                    sleep(PAUSE_MAX).await;
                    continue;
                }
            };
            if let Some((format, _)) = found
                && format != state::FORMAT as i32
            {
                return Err(CassandraError::OtherFormat(format as u32));
            }
            let found = found.map(|(_, claim)| claim);
            match (watcher.judge(found.as_ref(), boot_now_ns()), found) {
                // A try of which nothing was heard; which one is not known.
                (_, Some(claim)) if claim.holder == holder => {
                    return Ok((claim, first_asked_ns.expect("nobody else has this name")));
                }
                (Verdict::Held, claim) => {
                    return Err(CassandraError::InUse(claim.map(|claim| claim.holder).unwrap_or_default()));
                }
                (Verdict::Wait, claim) => {
                    waits += 1;
                    if waits == WAIT_TOLD_AFTER {
                        let holder = claim.map(|claim| claim.holder).unwrap_or_default();
                        tracing::warn!(
                            "waiting until the lease of {holder} has ended, which did not give up the store"
                        );
                    }
                    sleep(RENEWAL / 4).await;
                }
                (Verdict::Free, found) => break found,
            }
        };
        let asked_ns = boot_now_ns();
        first_asked_ns.get_or_insert(asked_ns);
        match tables.take(found.as_ref(), holder).await {
            Ok(Some(claim)) => return Ok((claim, asked_ns)),
            // Another was faster, and is seen to be.
            Ok(None) => watcher = Watcher::default(),
            Err(told) => told_last = told.line,
        }
    }
    Err(CassandraError::Failed(told_last))
}
