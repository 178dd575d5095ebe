//! Reads: a run of them from the engine at once, and one by one from what the store has in memory.
//!
//! Always true: what is read here changes nothing, so a read whose reader would win is answered by the key's chain, which is told how
//! used the item was before.

use std::collections::HashMap;

use guira_chain::{Base, Reply, UseBefore};
use guira_item::{Answer, Engine, Get, Hit, Key, Operation, Request, Single, Sink, store::Store};

use super::{
    Worker, WriteThrough,
    asking::{AskedEngine, Asking},
    sinks::{Kept, Split, wins},
};

impl<E: Engine, S: Store> WriteThrough<E, S> {
    /// Answers a run of reads from the engine, and what it cannot answer one by one.
    pub(super) fn read_run<T: Sink>(
        &self,
        worker: &mut Worker<E>,
        requests: &[Request<'_>],
        asking: &mut Asking,
        offset: usize,
        sink: &mut T,
    ) {
        let (mut kept, mut room) = (std::mem::take(&mut worker.kept), std::mem::take(&mut worker.room));
        let mut split = Split::new(sink, offset, requests, &mut kept, &mut room);
        if requests.iter().all(|request| matches!(&request.operation, Operation::Get(get) if *get == only_reading(get)))
        {
            self.engine.execute(&mut worker.engine, worker.now, requests, &mut split);
        } else {
            let plain: Vec<Request<'_>> = requests.iter().map(plainly).collect();
            self.engine.execute(&mut worker.engine, worker.now, &plain, &mut split);
        }
        let first = requests.len() - kept.len();
        // Keys that are asked for once more, each with whether a read of this run changes the item: the engine has told those behind it
        // what was before.
        let mut again: HashMap<&[u8], bool> = HashMap::new();
        for (at, kept) in kept.drain(..).enumerate() {
            let (request, index) = (&requests[first + at], offset + first + at);
            let name = request.key.as_bytes();
            let asked = match kept {
                Kept::Reply(reply) => match (again.get(name), &reply) {
                    (Some(true), Reply::Hit(hit, _)) => AskedEngine::InVain(Some(UseBefore::of(hit))),
                    (Some(_), _) => AskedEngine::No,
                    (None, _) => {
                        asking.settle(index, Some(reply), sink);
                        continue;
                    }
                },
                Kept::Open(use_before) => {
                    *again.entry(name).or_default() |= use_before.is_some();
                    AskedEngine::InVain(use_before)
                }
            };
            let reply = self.ask(worker, request, asking, index, asked);
            asking.settle(index, reply, sink);
        }
        (worker.kept, worker.room) = (kept, room);
    }

    /// Answers a read of a key without a chain from the engine, or from what the store has in memory. If it cannot, it tells how used the
    /// item was before the engine was asked for it. The caller holds the key's shard.
    pub(super) fn read_now(
        &self,
        worker: &mut Worker<E>,
        key: Key<'_>,
        get: &Get,
        asked: AskedEngine,
    ) -> Result<Reply, Option<UseBefore>> {
        if asked == AskedEngine::No {
            let mut sink = Single::default();
            let plain = Request { key, operation: Operation::Get(only_reading(get)) };
            self.engine.execute(&mut worker.engine, worker.now, &[plain], &mut sink);
            if let Some((hit, value)) = sink.found {
                if wins(get, &hit) {
                    return Err(Some(UseBefore::of(&hit)));
                }
                return Ok(Reply::Hit(hit, get.value.then_some(value)));
            }
        }
        match self.stored_now(key, worker.now).ok_or(None)? {
            Base::Absent(death) if get.vivify.is_none() => Ok(Reply::Answer(Answer::Miss, death)),
            Base::Present(mut item) => {
                item.fetched = get.bump;
                let base = Base::Present(item);
                self.install(worker, key, &base, false);
                let Base::Present(item) = base else { unreachable!("it is") };
                let hit = Hit {
                    flags: item.flags,
                    cas: if self.config.versions_shown { item.version } else { 0 },
                    value_len: item.value.len(),
                    expiry_before: item.expiry,
                    expiry: item.expiry,
                    stale: item.stale,
                    win_sent: item.win_sent,
                    total_len: key.as_bytes().len() + item.value.len(),
                    ..Hit::default()
                };
                if wins(get, &hit) {
                    return Err(Some(UseBefore::of(&hit)));
                }
                Ok(Reply::Hit(hit, get.value.then_some(item.value)))
            }
            _ => Err(None),
        }
    }
}

/// A read without what might change the item.
fn only_reading(get: &Get) -> Get {
    Get { wins: false, vivify: None, recache: None, ..*get }
}

fn plainly<'r>(request: &Request<'r>) -> Request<'r> {
    match &request.operation {
        Operation::Get(get) => Request { operation: Operation::Get(only_reading(get)), ..*request },
        _ => *request,
    }
}

/// Whether a request may be part of a run of reads.
pub(super) fn may_be_read(request: &Request<'_>) -> bool {
    matches!(&request.operation, Operation::Get(get) if get.touch.is_none())
}
