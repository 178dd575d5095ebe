//! Reads that a backend's core answers in this process, one after the other, with a store that has every item at once: the same in every run, but for
//! what is measured and how maps are seeded. Started by `bench cluster`, under valgrind.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use guira_cluster::{Incarnation, NodeClock, Opening};
use guira_item::{
    Get, Key, Moment, Operation, Span,
    store::{Found, Record, StoreState, Written},
};
use guira_loadgen::changing::ChangingKeys;
use guira_loadgen::payload::push_key;
use guira_routing::NodeId;
use guira_switched::{
    Ask, Asker, CacheMode, Life, Member, Message, Number, Outbox, Role, StaticFile, StoreCall,
    backend::{Backend, BackendConfig, Happened, HotConfig, Reports},
    hash_of,
};
use rand::{SeedableRng, rngs::Xoshiro256PlusPlus};

use super::bench::{KEY_LEN, VALUE_LEN};
use crate::error::BenchError;

/// What is read.
#[derive(Clone, Debug, Args)]
pub struct CoreReadsArgs {
    /// The backend finds out which keys are hot.
    #[arg(long)]
    pub trackers: bool,
    /// How many reads.
    #[arg(long)]
    pub reads: u64,
    /// Of so many keys.
    #[arg(long)]
    pub keys: u64,
    /// Zipf; 0 is uniform.
    #[arg(long)]
    pub exponent: f64,
    /// How many come a second, by the backend's clock.
    #[arg(long)]
    pub per_s: u32,
}

const CONTROLLER: NodeId = NodeId(1);
const BACKEND: NodeId = NodeId(2);
const GATEWAY: NodeId = NodeId(3);

/// Any address: nobody is sent anything.
const NOWHERE: ([u8; 4], u16) = ([127, 0, 0, 1], 1);

/// A backend, and what its store gives.
struct Alone {
    backend: Backend,
    value: Arc<[u8]>,
    out: Outbox,
    answers: u64,
}

impl Alone {
    fn new(reports: Reports, now: Moment) -> Result<Self, BenchError> {
        let gateway = Role::Gateway { listen: NOWHERE.into(), cache_mode: CacheMode::None };
        let roles = [(CONTROLLER, Role::Controller), (BACKEND, Role::backend(None)), (GATEWAY, gateway)];
        let member = |(node, role): (NodeId, Role)| Member::new(node.0, NOWHERE.into(), role);
        let file = StaticFile { members: roles.into_iter().map(member).collect(), ..StaticFile::default() };
        let shares = file.shares().map_err(|error| BenchError::Invalid(format!("a cluster of one: {error}")))?;
        let clock = NodeClock::set(now, Duration::from_secs(1_800_000_000));
        let config = file.backend_config(BACKEND, &shares, Life { incarnation: Incarnation(1), clock, seed: 1 });
        let hot = HotConfig { reports, ..config.hot };
        let backend = Backend::new(BackendConfig { hot, ..config }, StoreState::default(), now);
        Ok(Self { backend, value: vec![b'v'; VALUE_LEN as usize].into(), out: Outbox::default(), answers: 0 })
    }

    /// One thing happens, and then all that the store does for it.
    fn step(&mut self, now: Moment, happened: Happened<'_>) {
        self.backend.step(now, happened, &mut self.out);
        while let Some(call) = self.out.store.pop() {
            let done = match call {
                StoreCall::Read(key) => Happened::Read(key, Ok(Found::from(Some(self.record())))),
                StoreCall::State(_) => Happened::StateWritten(Ok(Written::All)),
                call => unreachable!("nobody has asked for {call:?}"),
            };
            self.backend.step(now, done, &mut self.out);
        }
    }

    fn record(&self) -> Record<Arc<[u8]>> {
        Record {
            flags: 0,
            expires_unix_s: 0,
            version: 1,
            generation: StoreState::default().generation,
            stale: false,
            win_sent: false,
            value: Arc::clone(&self.value),
        }
    }

    /// Forgets what was sent.
    fn end_step(&mut self) {
        let is_answer = |bytes: &[u8]| matches!(Message::decode(bytes), Ok(Message::Reply { .. }));
        self.answers += self.out.sends().filter(|(to, bytes)| *to == GATEWAY && is_answer(bytes)).count() as u64;
        self.out.clear();
    }
}

/// Reads, and says how many were answered.
///
/// # Errors
/// One was not.
pub fn core_reads_main(arguments: &CoreReadsArgs) -> Result<(), BenchError> {
    let CoreReadsArgs { trackers, reads, keys, exponent, per_s } = *arguments;
    let mut now = Moment::from_ns(1_000_000_000);
    let each = Span::from_ns(1_000_000_000 / u64::from(per_s.max(1)));
    let mut alone = Alone::new(if trackers { Reports::Both } else { Reports::None }, now)?;
    alone.step(now, Happened::Tick);
    alone.end_step();
    alone.step(now, Happened::Message(GATEWAY, Message::Join { opening: Opening(1) }));
    let session = alone.out.sends().find_map(|(_, bytes)| match Message::decode(bytes) {
        Ok(Message::Joined { session }) => Some(session),
        _ => None,
    });
    let session = session.ok_or_else(|| BenchError::Invalid("the backend lets nobody in".into()))?;
    alone.end_step();

    let popularity = ChangingKeys::new(keys, exponent, 42);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut name = Vec::new();
    for number in (1..=reads).map(Number) {
        now = now + each;
        name.clear();
        push_key(&mut name, popularity.key(popularity.draw(&mut rng)), KEY_LEN as usize);
        let key = Key::new(&name).expect("a key");
        let asker = Asker { gateway: GATEWAY, session, number, done_below: number };
        let operation = Operation::Get(Get::PLAIN);
        let ask = Ask { asker, hash: hash_of(&name), key, operation };
        alone.step(now, Happened::Message(GATEWAY, Message::Request(ask)));
        if alone.backend.wake_at().is_some_and(|at| at <= now) {
            alone.step(now, Happened::Tick);
        }
        alone.end_step();
    }
    match alone.answers {
        answers if answers == reads => {
            println!("{answers} reads answered");
            Ok(())
        }
        answers => Err(BenchError::Invalid(format!("of {reads} reads {answers} were answered"))),
    }
}
