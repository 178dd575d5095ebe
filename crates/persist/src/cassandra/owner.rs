//! How a server becomes the owner of a keyspace, and says that it is no more.
//!
//! Always true: whoever has a claim was the only one to whom it was given; its lease counts from before the first time that it asked.

use std::{
    hash::{BuildHasher, RandomState},
    mem,
};

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

/// What is done while a keyspace has an owner that lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WhileHeld {
    /// That is told.
    Refuse,
    /// It is waited, also for one that has yet to begin, and while nobody can say.
    Wait,
}

/// Becomes the owner; the claim, and boot time before it was asked for. `None` if it is not to be waited any more.
pub(super) async fn take_over(
    tables: &Tables,
    holder: &str,
    while_held: WhileHeld,
    goes_on: impl Fn() -> bool,
) -> Result<Option<(Claim, u64)>, CassandraError> {
    let failed = |told: Told| CassandraError::Failed(told.line);
    let (mut watcher, mut failures, mut waits, mut takes) = (Watcher::default(), 0, 0, 0);
    let (waits_for_it, mut is_told_of_nobody) = (while_held == WhileHeld::Wait, false);
    let mut first_asked_ns = None;
    let mut told_last = "others take it all the time".into();
    while takes < TAKES_MAX {
        // Until it is free, or seen to be held.
        let found = loop {
            if !goes_on() {
                return Ok(None);
            }
            let found = match tables.read_owner().await {
                Ok(found) => {
                    failures = 0;
                    found
                }
                Err(told) if failures == READ_FAILURES_MAX && !waits_for_it => return Err(failed(told)),
                Err(told) => {
                    if failures == READ_FAILURES_MAX {
                        tracing::warn!("the owner of the store cannot be read ({}); it is tried again", told.line);
                    }
                    failures += 1;
                    if waits_for_it {
                        // Nobody can renew what nobody can read: that is no silence of its owner.
                        watcher = Watcher::default();
                    }
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
            match (watcher.judge(found.as_ref(), boot_now_ns()), &found) {
                // A try of which nothing was heard; which one is not known.
                (_, Some(claim)) if claim.holder == holder => {
                    return Ok(Some((claim.clone(), first_asked_ns.expect("nobody else has this name"))));
                }
                // It lives; or it has never begun, and is to begin.
                (Verdict::Held, _) | (Verdict::Free, None) if waits_for_it => {
                    if found.is_none() && !mem::replace(&mut is_told_of_nobody, true) {
                        tracing::warn!("nobody has ever had the store: it is waited until its backend begins");
                    }
                    (watcher, waits, takes) = (Watcher::default(), 0, 0);
                    sleep(RENEWAL / 4).await;
                }
                (Verdict::Held, claim) => {
                    let holder = claim.as_ref().map(|claim| claim.holder.clone());
                    return Err(CassandraError::InUse(holder.unwrap_or_default()));
                }
                (Verdict::Wait, claim) => {
                    waits += 1;
                    if waits == WAIT_TOLD_AFTER {
                        let holder = claim.as_ref().map_or("", |claim| &claim.holder);
                        tracing::warn!(
                            "waiting until the lease of {holder} has ended, which did not give up the store"
                        );
                    }
                    sleep(RENEWAL / 4).await;
                }
                (Verdict::Free, _) => break found,
            }
        };
        takes += 1;
        let asked_ns = boot_now_ns();
        first_asked_ns.get_or_insert(asked_ns);
        match tables.take(found.as_ref(), holder).await {
            Ok(Some(claim)) => return Ok(Some((claim, asked_ns))),
            // Another was faster, and is seen to be.
            Ok(None) => watcher = Watcher::default(),
            Err(told) => told_last = told.line,
        }
    }
    Err(CassandraError::Failed(told_last))
}
