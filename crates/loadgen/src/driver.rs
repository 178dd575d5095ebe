//! Drives connections through pre-built scripts and measures: epoll, one thread a generator core.
//!
//! A *client* has one connection (lane) to every shard. Its turn `i` is answered once every lane has answered its
//! part, so with shards the slowest sets the pace, as it does for a real client of a sharded fleet. Where each server has
//! all keys it has one connection, to one of them. The observer is
//! called at both ends of the measured interval, on the first worker's thread, to read the server's CPU time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Poll};
use rustix::time::{ClockId, clock_gettime};

use crate::affinity;
use crate::connection::{expect_heard, open_poll, wait};
use crate::error::LoadError;
use crate::lane::Lane;
use crate::latency::Latencies;
use crate::pacing::{Pacing, Schedule};
use crate::script::Script;
use crate::tally::Tally;

/// Turns an open-loop client has on the wire at most; more wait in the client, their latency running.
const OPEN_IN_FLIGHT_MAX: u64 = 64;
/// Turns waiting in all open-loop clients at which the run is given up as overloaded.
const BACKLOG_MAX: u64 = 500_000;

/// A server (or shard) and what to send to it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its part of the turns.
    pub script: Arc<Script>,
}

/// Whom of several servers a client speaks to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// All: they share the keys.
    #[default]
    All,
    /// One, the next client the next one: each has all keys.
    One,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The servers; those that share the keys have scripts with equally many turns.
    pub targets: Vec<Target>,
    /// To which of them a client has a connection.
    pub reach: Reach,
    /// Clients.
    pub clients: usize,
    /// When to send.
    pub pacing: Pacing,
    /// Time before the clock starts.
    pub warm_up: Duration,
    /// The measured interval.
    pub measure: Duration,
    /// Cores of the generator, one thread each; empty for one thread that may run anywhere.
    pub cores: Vec<usize>,
    /// Seed of the open loop's schedule.
    pub seed: u64,
}

/// The ends of the measured interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Just before the clock starts.
    Begin,
    /// Just after it stopped.
    End,
}

/// Called at both ends of the measured interval.
pub type Observer<'a> = dyn FnMut(Moment) + Send + 'a;

/// What a run measured.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Turns answered in the interval.
    pub turns: u64,
    /// What the answers said.
    pub tally: Tally,
    /// Length of the interval, seconds.
    pub elapsed_s: f64,
    /// CPU time the generator's threads used in it, seconds.
    pub generator_cpu_s: f64,
    /// Latencies of the turns.
    pub latencies: Latencies,
    /// The server fell so far behind the open loop's schedule that the run was given up.
    pub overloaded: bool,
}

impl Outcome {
    /// Turns per second.
    pub fn turns_per_s(&self) -> f64 {
        self.turns as f64 / self.elapsed_s
    }

    /// Keys asked for or written per second.
    pub fn keys_per_s(&self) -> f64 {
        self.tally.keys() as f64 / self.elapsed_s
    }

    /// Share of the asked keys that were not there, 0 to 1.
    pub fn miss_ratio(&self) -> f64 {
        self.tally.misses as f64 / ((self.tally.hits + self.tally.misses) as f64).max(1.0)
    }

    fn add(&mut self, other: &Self) {
        self.turns += other.turns;
        self.tally.add(&other.tally);
        self.elapsed_s = self.elapsed_s.max(other.elapsed_s);
        self.generator_cpu_s += other.generator_cpu_s;
        self.latencies.add(&other.latencies);
        self.overloaded |= other.overloaded;
    }
}

/// Connects, warms up, measures.
pub fn run(plan: &Plan, observe: &mut Observer<'_>) -> Result<Outcome, LoadError> {
    if plan.clients == 0 || plan.targets.is_empty() {
        return Err(LoadError::Setting("a run needs a client and a server".into()));
    }
    let threads = plan.cores.len().clamp(1, plan.clients);
    let mut shares: Vec<Vec<Client>> = (0..threads).map(|_| Vec::new()).collect();
    for number in 0..plan.clients {
        let targets = match plan.reach {
            Reach::All => &plan.targets[..],
            Reach::One => std::slice::from_ref(&plan.targets[number % plan.targets.len()]),
        };
        shares[number % threads].push(Client::connect(targets, number, plan.clients)?);
    }
    let start = Instant::now();
    let mut shares = shares.into_iter().enumerate();
    let Some((_, first)) = shares.next() else { return Err(LoadError::Setting("a run needs a client".into())) };
    std::thread::scope(|scope| {
        let others: Vec<_> = shares
            .map(|(number, share)| scope.spawn(move || Worker::new(plan, number, start)?.work(share, &mut |_| ())))
            .collect();
        let mut outcome = Worker::new(plan, 0, start)?.work(first, observe)?;
        for other in others {
            match other.join() {
                Ok(more) => outcome.add(&more?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(outcome)
    })
}

struct Client {
    lanes: Vec<Lane>,
    /// Turns it may send.
    allowed: u64,
    /// Turns all lanes have answered.
    done: u64,
    /// Turns that have started (open loop: arrived), at least `allowed`.
    started: u64,
    /// Start times of the turns `done..started`, nanoseconds.
    starts: VecDeque<u64>,
}

impl Client {
    fn connect(targets: &[Target], number: usize, clients: usize) -> Result<Self, LoadError> {
        let lane = |target: &Target| {
            // Clients begin at different places, so that they do not ask for the same keys together.
            let first = target.script.len() * number as u64 / clients as u64;
            Lane::connect(target.address, Arc::clone(&target.script), first)
        };
        let lanes = targets.iter().map(lane).collect::<Result<_, _>>()?;
        Ok(Self { lanes, allowed: 0, done: 0, started: 0, starts: VecDeque::new() })
    }

    /// Sends what is allowed on all lanes.
    fn send(&mut self) -> Result<(), LoadError> {
        for lane in &mut self.lanes {
            lane.skip_empty(self.allowed);
            lane.send(self.allowed)?;
        }
        Ok(())
    }

    /// Books turns that all lanes have answered by `now_ns`; how many.
    fn settle(&mut self, now_ns: u64, latencies: &mut Latencies) -> u64 {
        let done = self.lanes.iter().map(Lane::answered).min().unwrap_or(0);
        let newly = done - self.done;
        for start in self.starts.drain(..newly as usize) {
            latencies.record_ns(now_ns.saturating_sub(start));
        }
        self.done = done;
        newly
    }

    /// Closed loop: keeps `depth` turns in flight.
    fn refill(&mut self, depth: u64, now_ns: u64) -> Result<(), LoadError> {
        while self.allowed < self.done + depth {
            self.allowed += 1;
            self.started += 1;
            self.starts.push_back(now_ns);
        }
        self.send()
    }

    /// Open loop: sends what has arrived, within the bound.
    fn release(&mut self) -> Result<(), LoadError> {
        let allowed = self.started.min(self.done + OPEN_IN_FLIGHT_MAX);
        if allowed > self.allowed {
            self.allowed = allowed;
            self.send()?;
        }
        Ok(())
    }
}

struct Worker<'a> {
    plan: &'a Plan,
    start: Instant,
    poll: Poll,
    schedule: Option<Schedule>,
    tally: Tally,
    turns: u64,
    /// Open loop: turns that have arrived.
    arrived: u64,
    latencies: Latencies,
    _pinned: Option<affinity::Pinned>,
}

/// Counters when the measured interval began.
pub(crate) struct Begun {
    pub at_ns: u64,
    tally: Tally,
    turns: u64,
    cpu_s: f64,
}

impl Begun {
    /// An interval that begins at `at_ns` on the calling thread.
    pub fn at(at_ns: u64, tally: Tally, turns: u64) -> Self {
        Self { at_ns, tally, turns, cpu_s: thread_cpu_s() }
    }

    /// What there is to say, but for latencies, of an interval that ends at `end_ns` on the thread it began on.
    pub fn outcome(&self, end_ns: u64, tally: &Tally, turns: u64) -> Outcome {
        Outcome {
            turns: turns - self.turns,
            tally: tally.since(&self.tally),
            elapsed_s: (end_ns - self.at_ns) as f64 / 1e9,
            generator_cpu_s: thread_cpu_s() - self.cpu_s,
            ..Outcome::default()
        }
    }
}

impl<'a> Worker<'a> {
    fn new(plan: &'a Plan, number: usize, start: Instant) -> Result<Self, LoadError> {
        let threads = plan.cores.len().clamp(1, plan.clients);
        let pinned = plan.cores.get(number).map(|core| affinity::pin(*core)).transpose()?;
        let schedule = match plan.pacing {
            Pacing::Closed { .. } => None,
            Pacing::Open { rate_per_s, arrivals } => {
                Some(Schedule::new(rate_per_s / threads as f64, arrivals, plan.seed ^ number as u64))
            }
        };
        let poll = open_poll()?;
        let (tally, latencies) = (Tally::default(), Latencies::default());
        Ok(Self { plan, start, poll, schedule, tally, turns: 0, arrived: 0, latencies, _pinned: pinned })
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn work(mut self, mut clients: Vec<Client>, observe: &mut Observer<'_>) -> Result<Outcome, LoadError> {
        let lanes = clients.first().map_or(1, |client| client.lanes.len());
        for (number, client) in clients.iter_mut().enumerate() {
            for (lane, connection) in client.lanes.iter_mut().enumerate() {
                connection.register(&self.poll, number * lanes + lane)?;
            }
        }
        if let Pacing::Closed { depth } = self.plan.pacing {
            let now_ns = self.now_ns();
            clients.iter_mut().try_for_each(|client| client.refill(u64::from(depth.max(1)), now_ns))?;
        }
        let warm_up_ns = self.plan.warm_up.as_nanos() as u64;
        let measure_ns = self.plan.measure.as_nanos() as u64;
        let mut begun: Option<Begun> = None;
        let mut events = Events::with_capacity(1024);
        let mut buffer = Vec::new();
        let mut next_client = 0;
        let (mut heard_ns, mut overloaded) = (0, false);
        loop {
            let now_ns = self.now_ns();
            let phase_ends_ns = match &begun {
                None if now_ns >= warm_up_ns => {
                    observe(Moment::Begin);
                    self.latencies = Latencies::default();
                    begun = Some(Begun::at(self.now_ns(), self.tally, self.turns));
                    continue;
                }
                None => warm_up_ns,
                Some(begun) => begun.at_ns + measure_ns,
            };
            if let Some(begun) = begun.as_ref().filter(|_| now_ns >= phase_ends_ns || overloaded) {
                return Ok(self.finish(begun, &clients, overloaded, observe));
            }
            overloaded |= self.arrive(&mut clients, &mut next_client, now_ns)?;
            self.wait(&mut events, phase_ends_ns)?;
            for event in &events {
                let (number, lane) = (event.token().0 / lanes, event.token().0 % lanes);
                let client = &mut clients[number];
                if event.is_readable() || event.is_read_closed() {
                    client.lanes[lane].receive(&mut buffer, client.allowed, &mut self.tally)?;
                    heard_ns = self.start.elapsed().as_nanos() as u64;
                    self.turns += client.settle(heard_ns, &mut self.latencies);
                    match self.plan.pacing {
                        Pacing::Closed { depth } => client.refill(u64::from(depth.max(1)), heard_ns)?,
                        Pacing::Open { .. } => client.release()?,
                    }
                }
                if event.is_writable() {
                    client.lanes[lane].send(client.allowed)?;
                }
            }
            expect_heard(heard_ns, now_ns, || clients.iter().any(|client| client.done < client.started))?;
        }
    }

    /// Open loop: hands due turns to the clients in rotation. Whether the backlog has grown past its bound.
    fn arrive(&mut self, clients: &mut [Client], next: &mut usize, now_ns: u64) -> Result<bool, LoadError> {
        let Some(schedule) = &mut self.schedule else { return Ok(false) };
        while let Some(due_ns) = schedule.due(now_ns) {
            let client = &mut clients[*next];
            client.started += 1;
            client.starts.push_back(due_ns);
            client.release()?;
            *next = (*next + 1) % clients.len();
            self.arrived += 1;
        }
        Ok(self.arrived - self.turns > BACKLOG_MAX)
    }

    /// Waits for events: blocking in a closed loop, spinning near an arrival (epoll counts in milliseconds).
    fn wait(&mut self, events: &mut Events, phase_ends_ns: u64) -> Result<(), LoadError> {
        let wake_ns = self.schedule.as_ref().map_or(phase_ends_ns, |schedule| schedule.next_ns().min(phase_ends_ns));
        let ahead_ms = wake_ns.saturating_sub(self.now_ns()) / 1_000_000;
        let timeout = match self.schedule {
            None => Duration::from_millis((ahead_ms + 1).min(100)),
            Some(_) => Duration::from_millis(ahead_ms.saturating_sub(1).min(100)),
        };
        wait(&mut self.poll, events, timeout)
    }

    fn finish(mut self, begun: &Begun, clients: &[Client], overloaded: bool, observe: &mut Observer<'_>) -> Outcome {
        let end_ns = self.now_ns();
        let outcome = begun.outcome(end_ns, &self.tally, self.turns);
        observe(Moment::End);
        if self.schedule.is_some() {
            // Turns still waiting have already taken this long; leaving them out would flatter a stalled server.
            for start in clients.iter().flat_map(|client| &client.starts) {
                self.latencies.record_ns(end_ns.saturating_sub(*start));
            }
        }
        Outcome { latencies: self.latencies, overloaded, ..outcome }
    }
}

/// CPU time of the calling thread, seconds.
fn thread_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
