//! What all experiments share: peers, cores, scale, and one round of one server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use guira_loadgen::affinity;
use guira_loadgen::driver::{self, Moment, Outcome, Plan, Reach, Target};
use guira_loadgen::error::LoadError;
use guira_loadgen::interactive::{self, PlayPlan, Player};
use guira_loadgen::pacing::Pacing;
use guira_loadgen::preload::preload;
use guira_loadgen::progress::Progress;
use guira_loadgen::protocol::FixedShape;
use guira_loadgen::script::Script;
use guira_loadgen::workload::Workload;

use super::Options;
use super::peer::{CONNECTIONS_MAX, Peer, PeerKind, Setup};
use super::process::Server;
use crate::error::BenchError;
use crate::experiment::Extent;
use crate::metric::{self, Metric};
use crate::placement::Placement;
use crate::report::ExperimentReport;

/// What is told of latencies: metrics and their quantiles.
pub const QUANTILES: [(Metric, f64); 3] = [(metric::P50, 0.5), (metric::P99, 0.99), (metric::P999, 0.999)];
/// Memory limit of experiments in which nothing shall be evicted, MiB.
pub const ROOMY_MIB: u64 = 1024;

/// Peers, cores and scale of a run.
pub struct Bench {
    peers: Vec<Peer>,
    echo: Option<Peer>,
    cores: Vec<usize>,
    placement: Placement,
    /// Rounds of every measurement.
    pub rounds: usize,
    /// Warm-up before every measured interval.
    pub warm_up: Duration,
    /// The measured interval.
    pub measure: Duration,
    /// How much to measure.
    pub extent: Extent,
}

/// Something measured: one server, or several that share the keys.
pub struct Contestant {
    /// Name in the report.
    pub name: String,
    /// The peer it is made of.
    pub peer: Peer,
    /// The processes.
    pub servers: Vec<Server>,
    /// What to send to each.
    pub scripts: Vec<Arc<Script>>,
}

impl Contestant {
    /// Where its servers listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(Server::address).collect()
    }

    /// CPU time of all its servers, seconds; NaN if one has ended.
    fn cpu_s(&self) -> f64 {
        self.servers.iter().map(|server| server.usage().map_or(f64::NAN, |usage| usage.cpu_s)).sum()
    }

    /// Records the resident memory of all its servers.
    pub fn record_rss(&self, report: &mut ExperimentReport, variant: &str) -> Result<(), BenchError> {
        let bytes: u64 =
            self.servers.iter().map(|server| Ok(server.usage()?.rss_bytes)).sum::<Result<_, BenchError>>()?;
        report.record(variant, &self.name, metric::RSS, bytes as f64 / f64::from(1 << 20));
        Ok(())
    }
}

/// One measured interval.
pub struct Interval {
    /// What the generator saw.
    pub outcome: Outcome,
    /// CPU time of the servers, seconds.
    pub server_cpu_s: f64,
}

impl Interval {
    /// Records throughput over `keys` keys, CPU per million of them, and how busy both sides were.
    pub fn record(&self, report: &mut ExperimentReport, variant: &str, name: &str, keys: u64) {
        let (keys, elapsed_s) = (keys as f64, self.outcome.elapsed_s);
        report.record(variant, name, metric::THROUGHPUT, keys / elapsed_s);
        report.record(variant, name, metric::SERVER_CPU, self.server_cpu_s / keys * 1e6);
        report.record(variant, name, metric::SERVER_BUSY, self.server_cpu_s / elapsed_s);
        report.record(variant, name, metric::GENERATOR_BUSY, self.outcome.generator_cpu_s / elapsed_s);
    }

    /// Records latencies, by some of the [`QUANTILES`].
    pub fn record_latencies(
        &self,
        report: &mut ExperimentReport,
        variant: &str,
        name: &str,
        quantiles: &[(Metric, f64)],
    ) {
        for (metric, quantile) in quantiles {
            report.record(variant, name, *metric, self.outcome.latencies.quantile_us(*quantile));
        }
    }

    /// Refuses an interval in which something that had been loaded was not there, or a write was not done.
    pub fn expect_all_answered(&self, experiment: &str, name: &str) -> Result<(), BenchError> {
        let tally = self.outcome.tally;
        if tally.misses + tally.errors + tally.refused > 0 {
            let text = format!("{experiment}, {name}: keys that had been loaded were not answered: {tally:?}");
            return Err(BenchError::Invalid(text));
        }
        Ok(())
    }
}

impl Bench {
    /// Resolves the options: finds the binaries, chooses the cores.
    pub fn new(options: &Options) -> Result<Self, BenchError> {
        let this = || std::env::current_exe().unwrap_or_else(|_| PathBuf::from("guira"));
        let guira = options.placement.guira.clone().unwrap_or_else(this);
        let found = |given: &Option<PathBuf>, name: &str| given.clone().unwrap_or_else(|| Peer::find_program(name));
        let mut peers = Vec::new();
        for name in &options.peers {
            let Some(kind) = PeerKind::named(name) else {
                let known = PeerKind::NAMES.map(|(name, _)| name).join(", ");
                return Err(BenchError::Setting(format!("there is no peer '{name}'; choose from {known}")));
            };
            let program = match kind {
                PeerKind::Memcached => found(&options.memcached, "memcached"),
                PeerKind::Redis => found(&options.redis, "redis-server"),
                _ => guira.clone(),
            };
            peers.push(Peer { kind, program });
        }
        if let Some(peer) = peers.iter().find(|peer| !peer.program.is_file()) {
            return Err(peer.missing());
        }
        if !Path::new(&Peer::find_program("taskset")).is_file() {
            let text = "taskset keeps servers on their cores and is not there: install it with `apt-get install \
                        util-linux`";
            return Err(BenchError::Setting(text.into()));
        }
        let extent = &options.extent;
        let rounds = extent.rounds()?;
        let seconds = options.seconds.unwrap_or(extent.scaled(2.0, 0.05));
        if peers.is_empty() || !(0.001..=3600.0).contains(&seconds) {
            return Err(BenchError::Setting("a run needs a peer and 0.001 to 3600 seconds".into()));
        }
        let measure = Duration::from_secs_f64(seconds);
        let warm_up = Duration::from_millis(extent.scaled(500, 20));
        let with_guira = peers.iter().any(|peer| peer.kind == PeerKind::Guira);
        let echo = with_guira.then_some(Peer { kind: PeerKind::Echo, program: guira });
        Ok(Self {
            peers,
            echo,
            cores: affinity::cores(),
            placement: options.placement.clone(),
            rounds,
            warm_up,
            measure,
            extent: extent.clone(),
        })
    }

    /// Names and versions of the peers.
    pub fn versions(&self) -> Result<Vec<(String, String)>, BenchError> {
        self.peers.iter().map(|peer| Ok((peer.name().to_string(), peer.version()?))).collect()
    }

    /// The peers, Guira's echo floor not among them.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// The echo floor, if Guira's binary takes part.
    pub fn echo(&self) -> Option<&Peer> {
        self.echo.as_ref()
    }

    /// Number of cores this process may use.
    pub fn core_count(&self) -> usize {
        self.cores.len()
    }

    /// The cores of servers with `threads` threads in all: the chosen ones, or the first.
    pub fn server_cores(&self, threads: usize) -> Vec<usize> {
        let chosen = &self.placement.server_cores;
        let from = if chosen.is_empty() { &self.cores } else { chosen };
        from.iter().copied().take(threads.max(1)).collect()
    }

    /// The cores of the generator beside servers with `threads` threads: the chosen ones, or the last ones, as many
    /// as the servers have but at least one; with too few cores they are shared.
    pub fn generator_cores(&self, threads: usize) -> Vec<usize> {
        if !self.placement.generator_cores.is_empty() {
            return self.placement.generator_cores.clone();
        }
        let free = self.cores.len().saturating_sub(threads).clamp(1, threads.max(1));
        self.cores[self.cores.len() - free..].to_vec()
    }

    /// A core that neither a server with one thread nor its generator uses, if there is one.
    pub fn free_core(&self) -> Option<usize> {
        let (servers, generator) = (self.server_cores(1), self.generator_cores(1));
        self.cores.iter().copied().find(|core| !servers.contains(core) && !generator.contains(core))
    }

    /// Starts `peer` with one thread on the server core.
    pub fn start(&self, peer: &Peer, memory_mib: u64) -> Result<Server, BenchError> {
        Server::start(peer, &self.setup(memory_mib, 1, self.server_cores(1)))
    }

    /// A setup for `threads` threads on `cores`.
    pub fn setup(&self, memory_mib: u64, threads: usize, cores: Vec<usize>) -> Setup {
        let (connections_max, flags) = (CONNECTIONS_MAX, Vec::new());
        Setup { memory_mib, threads, cores, connections_max, echo_answer_bytes: 0, flags }
    }

    /// Starts every peer with one thread and loads `workload` into it; each gets a script of `turns` turns.
    pub fn contestants(
        &self,
        experiment: &'static str,
        workload: &Workload,
        turns: usize,
        memory_mib: u64,
    ) -> Result<Vec<Contestant>, BenchError> {
        let mut contestants = Vec::new();
        for peer in &self.peers {
            let server = self.start(peer, memory_mib)?;
            let scripts = self.scripts(experiment, peer, workload, turns, 1)?;
            let contestant =
                Contestant { name: peer.name().into(), peer: peer.clone(), servers: vec![server], scripts };
            self.load(experiment, &contestant, workload)?;
            contestants.push(contestant);
        }
        Ok(contestants)
    }

    /// Starts `peer` with one thread and nothing in it, for players.
    pub fn empty(&self, peer: &Peer, memory_mib: u64) -> Result<Contestant, BenchError> {
        let servers = vec![self.start(peer, memory_mib)?];
        Ok(Contestant { name: peer.name().into(), peer: peer.clone(), servers, scripts: vec![] })
    }

    /// Scripts of `turns` turns for `shards` servers of `peer`.
    pub fn scripts(
        &self,
        experiment: &'static str,
        peer: &Peer,
        workload: &Workload,
        turns: usize,
        shards: usize,
    ) -> Result<Vec<Arc<Script>>, BenchError> {
        let scripts = Script::build(workload, peer.protocol(), turns, shards, 0);
        Ok(scripts.map_err(failed(experiment, peer.name()))?.into_iter().map(Arc::new).collect())
    }

    /// Loads every key of `workload`; refuses to go on if one is not stored.
    pub fn load(
        &self,
        experiment: &'static str,
        contestant: &Contestant,
        workload: &Workload,
    ) -> Result<(), BenchError> {
        let loaded = preload(&contestant.addresses(), contestant.peer.protocol(), workload);
        let loaded = loaded.map_err(failed(experiment, &contestant.name))?;
        if loaded.errors + loaded.refused > 0 {
            let (name, lost) = (&contestant.name, loaded.errors + loaded.refused);
            return Err(BenchError::Invalid(format!("{experiment}, {name}: {lost} keys could not be loaded")));
        }
        Ok(())
    }

    /// Drives `contestant` through its scripts for one warmed-up interval.
    pub fn drive(
        &self,
        experiment: &'static str,
        contestant: &Contestant,
        clients: usize,
        pacing: Pacing,
        generator_cores: Vec<usize>,
    ) -> Result<Interval, BenchError> {
        let plan = self.plan(contestant, clients, pacing, generator_cores);
        let mut cpu = CpuClock::new(contestant);
        let outcome = driver::run(&plan, &mut |moment| cpu.read(moment));
        cpu.interval(outcome.map_err(failed(experiment, &contestant.name))?)
    }

    /// One interval at `pacing` for a rate search, with errors still the generator's own.
    pub fn measure_rate(&self, contestant: &Contestant, clients: usize, pacing: Pacing) -> Result<Outcome, LoadError> {
        driver::run(&self.plan(contestant, clients, pacing, self.generator_cores(1)), &mut |_| ())
    }

    fn plan(&self, contestant: &Contestant, clients: usize, pacing: Pacing, cores: Vec<usize>) -> Plan {
        let targets = contestant.servers.iter().zip(&contestant.scripts);
        let target = |(server, script): (&Server, &Arc<Script>)| {
            let (address, script) = (server.address(), Arc::clone(script));
            Target { address, script }
        };
        let (warm_up, measure) = (self.warm_up, self.measure);
        let targets = targets.map(target).collect();
        Plan { targets, reach: Reach::All, clients, pacing, warm_up, measure, cores, seed: 42 }
    }

    /// A plan for players of a contestant's one server: warmed up and for the time `measure`, or to their end.
    pub fn play_plan(&self, contestant: &Contestant, shape: Option<FixedShape>, measure: Option<Duration>) -> PlayPlan {
        PlayPlan {
            address: contestant.servers[0].address(),
            protocol: contestant.peer.protocol(),
            shape,
            warm_up: if measure.is_some() { self.warm_up } else { Duration::ZERO },
            measure,
            core: self.generator_cores(1).first().copied(),
        }
    }

    /// Lets `players` play against the contestant's one server.
    pub fn play<P: Player>(
        &self,
        experiment: &'static str,
        contestant: &Contestant,
        plan: &PlayPlan,
        players: &mut [P],
    ) -> Result<Interval, BenchError> {
        let mut cpu = CpuClock::new(contestant);
        let outcome = interactive::play(plan, players, &mut |moment| cpu.read(moment));
        cpu.interval(outcome.map_err(failed(experiment, &contestant.name))?)
    }

    /// Lets the contestants take turns, round after round; `measure` is told the round.
    pub fn alternate(
        &self,
        experiment: &str,
        contestants: &[Contestant],
        mut measure: impl FnMut(&Contestant, usize) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let progress = self.progress(experiment, contestants.len());
        for step in 0..self.rounds * contestants.len() {
            progress.at(step as u64);
            measure(&contestants[step % contestants.len()], step / contestants.len())?;
        }
        Ok(())
    }

    /// A progress bar over all rounds of `contestants` contestants.
    pub fn progress(&self, experiment: &str, contestants: usize) -> Progress {
        Progress::new(experiment, (self.rounds * contestants) as u64)
    }
}

/// Adds peer and experiment to a generator's error.
pub fn failed(experiment: &'static str, peer: &str) -> impl FnOnce(LoadError) -> BenchError {
    let peer = peer.to_string();
    move |source| BenchError::Load { peer, experiment, source }
}

/// Reads the servers' CPU time at both ends of the interval.
struct CpuClock<'a> {
    contestant: &'a Contestant,
    begin_s: f64,
    end_s: f64,
}

impl<'a> CpuClock<'a> {
    fn new(contestant: &'a Contestant) -> Self {
        Self { contestant, begin_s: f64::NAN, end_s: f64::NAN }
    }

    fn read(&mut self, moment: Moment) {
        match moment {
            Moment::Begin => self.begin_s = self.contestant.cpu_s(),
            Moment::End => self.end_s = self.contestant.cpu_s(),
        }
    }

    fn interval(self, outcome: Outcome) -> Result<Interval, BenchError> {
        let server_cpu_s = self.end_s - self.begin_s;
        if server_cpu_s.is_nan() {
            return Err(BenchError::Invalid(format!("{} ended while it was measured", self.contestant.name)));
        }
        Ok(Interval { outcome, server_cpu_s })
    }
}
