//! The contenders: each made, filled and measured under a load, one after the other.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use guira_cphash::{BucketLockhash, ClientCycles, Config, Cphash, Eviction, Lockhash, Served, Traffic};
use guira_item::Engine;
use guira_memc3::Memc3;
use guira_sync::cycles;
use rapidhash::fast::RandomState;

use super::{
    Bench, BenchError,
    caller::{Caller, TURN, turns},
    contender::WRITE,
    crew::{self, Rate},
    load::Load,
};

/// Partitions for each client where there are no server threads: several, and few enough that each has a batch's worth to do.
const PARTITIONS_PER_CLIENT: usize = 4;

/// How long a load goes on before it is measured how CPHASH bears it with as many server threads as it needs: some retreats of its
/// server threads, of which each is twice as long as the one before.
const SETTLING: Duration = Duration::from_secs(1);

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Contender {
    /// Clients and server threads, as the load has them.
    Cphash,
    /// The same partitions, and no server threads: clients carry batches out, partition by partition.
    NoServers,
    /// A client on every core, and as many server threads beside them as the load needs, as in `guira serve`.
    ByLoad,
    Lockhash,
    /// With a lock in every bucket, which reads take instead of their partition's.
    BucketLocks,
    Memc3,
    /// A map that stores no items, one key at a time, with rapidhash like the engines.
    Dashmap,
}

impl Contender {
    pub const ALL: [Self; 7] =
        [Self::Cphash, Self::ByLoad, Self::NoServers, Self::Lockhash, Self::BucketLocks, Self::Memc3, Self::Dashmap];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cphash => "cphash",
            Self::NoServers => "cphash, no servers",
            Self::ByLoad => "cphash, by load",
            Self::Lockhash => "lockhash",
            Self::BucketLocks => "lockhash, bucket locks",
            Self::Memc3 => "memc3",
            Self::Dashmap => "dashmap",
        }
    }

    /// Whether it can do what the load asks for: a map evicts nothing, and who has locks in buckets has no order of use.
    pub fn can_bear(self, load: &Load) -> bool {
        match self {
            Self::Dashmap => load.capacity == load.keys,
            Self::BucketLocks => load.eviction == Eviction::Random,
            _ => true,
        }
    }

    /// What it achieves under a load.
    pub fn measure(self, bench: &Bench, load: &Load, draws: &[u32]) -> Result<Achieved, BenchError> {
        let locked = || Config { partitions: load.partitions, ..load.config() };
        let rate = match self {
            Self::Cphash => return cphash(bench, load, draws, Split::Fixed),
            Self::NoServers => return cphash(bench, &Load { servers: 0, ..*load }, draws, Split::ByLoad),
            Self::ByLoad => return cphash(bench, &Load { servers: load.cores, ..*load }, draws, Split::ByLoad),
            Self::Lockhash => play(bench, load, draws, &Lockhash::new(locked()).map_err(refused)?)?,
            Self::BucketLocks => play(bench, load, draws, &BucketLockhash::new(locked()).map_err(refused)?)?,
            Self::Memc3 => {
                // Its items take half of what an element does; CLOCK is its own policy.
                let config = guira_memc3::Config::new(load.memory_bytes() / 2);
                let config = guira_memc3::Config { huge_pages: true, hash_seed: 42, ..config };
                play(bench, load, draws, &Memc3::new(config).map_err(refused)?)?
            }
            Self::Dashmap => dashmap(bench, load, draws)?,
        };
        Ok(Achieved { rate, askers: load.cores, flow: None })
    }
}

/// What a contender achieved.
pub(super) struct Achieved {
    pub rate: Rate,
    /// Threads that ask.
    pub askers: usize,
    /// What went to and fro, if there were messages.
    pub flow: Option<Flow>,
}

/// What clients of CPHASH have sent and received, and what it took at both ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    operations: u64,
    traffic: Traffic,
    clients: ClientCycles,
    /// By server threads.
    served: Served,
    /// What the server threads had, together.
    server_cycles: u64,
}

/// Cycles for each operation, none of them in two places.
pub(super) struct Stages {
    /// Of clients.
    pub client: ClientStages,
    /// Of server threads.
    pub server: ServerStages,
}

pub(super) struct ClientStages {
    /// To send messages.
    pub send: f64,
    /// To wait for replies and to take them.
    pub receive: f64,
    /// To serve partitions to which no server thread comes.
    pub serve: f64,
    /// To read what was found, or to write it.
    pub access: f64,
}

pub(super) struct ServerStages {
    /// To take messages, to carry them out and to reply.
    pub serve: f64,
    /// To look for messages where there are none.
    pub idle: f64,
}

impl Flow {
    /// Lines of messages for each operation, in both directions together.
    pub fn lines_per_operation(&self) -> f64 {
        (self.traffic.request_lines + self.traffic.reply_lines) as f64 / self.operations as f64
    }

    /// Where the cycles of an operation go.
    pub fn stages(&self) -> Stages {
        let each = |cycles: u64| cycles as f64 / self.operations as f64;
        let ClientCycles { send, receive, serve, access } = self.clients;
        let idle = self.server_cycles.saturating_sub(self.served.cycles);
        Stages {
            client: ClientStages { send: each(send), receive: each(receive), serve: each(serve), access: each(access) },
            server: ServerStages { serve: each(self.served.cycles), idle: each(idle) },
        }
    }

    /// Cycles of a server thread to serve a message, if one has served any.
    pub fn cycles_per_message(&self) -> Option<f64> {
        (self.served.messages > 0).then(|| self.served.cycles as f64 / self.served.messages as f64)
    }

    /// Messages that server threads serve for each operation.
    pub fn messages_per_operation(&self) -> f64 {
        self.served.messages as f64 / self.operations as f64
    }

    /// Words in a line of requests.
    pub fn words_per_line(&self) -> f64 {
        self.traffic.request_words as f64 / self.traffic.request_lines as f64
    }
}

/// An engine that cannot be made as a load wants it.
fn refused(error: impl std::error::Error) -> BenchError {
    BenchError::Setting(error.to_string())
}

fn play<E: Engine>(bench: &Bench, load: &Load, draws: &[u32], engine: &E) -> Result<Rate, BenchError> {
    Caller::fill(engine, load.stored);
    let cores = load.cores(bench);
    let workers = (0..cores.len()).map(|number| {
        let mut caller = Caller::new(engine);
        let mut batches = turns(draws, load.batch, number, cores.len());
        move || caller.turn(&mut batches)
    });
    crew::run(cores, bench.measure, workers.collect())
}

/// Who decides how the cores are divided.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Split {
    /// The load says it.
    Fixed,
    /// The engine does, up to what the load says.
    ByLoad,
}

fn cphash(bench: &Bench, load: &Load, draws: &[u32], split: Split) -> Result<Achieved, BenchError> {
    let (clients, servers) = load.split(bench);
    let partitions = servers.is_empty().then(|| (PARTITIONS_PER_CLIENT * clients.len()).next_power_of_two());
    let config = Config {
        server_threads: Some(servers.len()),
        server_threads_fixed: split == Split::Fixed,
        server_cores: servers.to_vec(),
        partitions,
        ..load.config()
    };
    let engine = Cphash::new(config).map_err(refused)?;
    Caller::fill(&engine, load.stored);
    let sum = Mutex::<Flow>::default();
    if split == Split::ByLoad && !servers.is_empty() {
        let draws = load.settling_draws(bench);
        let settling = (0..clients.len()).map(|number| {
            let (mut caller, mut batches) = (Caller::new(&engine), turns(&draws, load.batch, number, clients.len()));
            move || caller.turn(&mut batches)
        });
        crew::run(clients, bench.extent.scaled(SETTLING, bench.measure), settling.collect())?;
    }
    let workers = (0..clients.len()).map(|number| {
        let mut counted = Counted { caller: Caller::new(&engine), operations: 0, sum: &sum };
        let mut batches = turns(draws, load.batch, number, clients.len());
        move || {
            let operations = counted.caller.turn(&mut batches);
            counted.operations += operations;
            operations
        }
    });
    let (before, begin) = (engine.served(), cycles());
    let rate = crew::run(clients, bench.measure, workers.collect())?;
    let (elapsed, after) = (cycles() - begin, engine.served());
    let mut flow = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    flow.served.messages = after.messages - before.messages;
    flow.served.cycles = after.cycles - before.cycles;
    flow.server_cycles = elapsed * servers.len() as u64;
    Ok(Achieved { rate, askers: clients.len(), flow: (flow.traffic.request_lines > 0).then_some(flow) })
}

/// A caller whose messages are counted when it is done.
struct Counted<'a> {
    caller: Caller<'a, Cphash>,
    operations: u64,
    sum: &'a Mutex<Flow>,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let own = self.caller.worker.traffic();
        let mut sum = self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.operations += self.operations;
        sum.traffic.request_lines += own.request_lines;
        sum.traffic.request_words += own.request_words;
        sum.traffic.reply_lines += own.reply_lines;
        sum.traffic.reply_words += own.reply_words;
        let own = self.caller.worker.cycles();
        sum.clients.send += own.send;
        sum.clients.receive += own.receive;
        sum.clients.serve += own.serve;
        sum.clients.access += own.access;
    }
}

fn dashmap(bench: &Bench, load: &Load, draws: &[u32]) -> Result<Rate, BenchError> {
    let map = dashmap::DashMap::with_capacity_and_hasher(load.keys, RandomState::default());
    (0..load.stored as u64).for_each(|key| assert!(map.insert(key, key).is_none()));
    let cores = load.cores(bench);
    let workers = (0..cores.len()).map(|number| {
        let map = &map;
        let mut batches = turns(draws, load.batch, number, cores.len());
        move || {
            let mut operations = 0;
            while operations < TURN {
                let batch = batches.next().expect("endless");
                for draw in batch {
                    let key = u64::from(draw & !WRITE);
                    if draw & WRITE != 0 {
                        std::hint::black_box(map.insert(key, key));
                    } else {
                        std::hint::black_box(map.get(&key).map(|value| *value));
                    }
                }
                operations += batch.len();
            }
            operations as u64
        }
    });
    crew::run(cores, bench.measure, workers.collect())
}
