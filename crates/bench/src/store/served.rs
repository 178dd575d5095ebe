//! Servers as processes, with a store and without, and what they are asked for.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use guira_loadgen::blocking::Blocking;
use guira_loadgen::error::LoadError;
use guira_loadgen::key_source::Popularity;
use guira_loadgen::mix::Mix;
use guira_loadgen::pacing::Pacing;
use guira_loadgen::size::Sizes;
use guira_loadgen::workload::Workload;

use super::bench::Bench;
use super::items::{KEY_LEN, VALUE_LEN};
use crate::error::BenchError;
use crate::metric;
use crate::report::ExperimentReport;
use crate::server::bench::{Contestant, Interval, QUANTILES, failed};
use crate::server::peer::{Peer, Setup};
use crate::server::process::{Counters, Server};

/// The server without a store, as it is called in reports.
pub(super) const IN_MEMORY: &str = "in-memory";

/// Silence after which a server counts as gone.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How clients ask.
pub(super) struct Asked {
    /// As a variant.
    pub name: &'static str,
    pub keys_per_get: u32,
    pub clients: usize,
    pub depth: u32,
    /// Turns of a script.
    turns: usize,
}

/// One key at a time, where the kernel's TCP takes most of the time, and many, where the server does.
pub(super) const ASKED: [Asked; 2] = [
    Asked { name: "1 key a get", keys_per_get: 1, clients: 50, depth: 1, turns: 200_000 },
    Asked { name: "100 keys a get", keys_per_get: 100, clients: 8, depth: 2, turns: 5_000 },
];

/// What all of them do, in words.
pub(super) fn words() -> String {
    let asked = ASKED.map(|Asked { name, clients, depth, .. }| {
        format!("{name} ({clients} connections, {depth} turns in flight each)")
    });
    asked.join(" and ")
}

/// Reads of `keys` items of 1 KB, all alike.
pub(super) fn reads(keys: u64) -> Workload {
    Workload {
        popularity: Popularity::Uniform,
        mix: Mix::get_set(1.0),
        key_size: Sizes::Fixed(KEY_LEN as u32),
        value_size: Sizes::Fixed(VALUE_LEN as u32),
        keys_per_get: 1,
        writes_per_turn: 1,
        ..Workload::small_items(keys)
    }
}

/// The binary that serves.
pub(super) fn guira(bench: &Bench) -> &Peer {
    &bench.processes.peers()[0]
}

/// Starts a server on the server core.
pub(super) fn start(bench: &Bench, memory_mib: u64, flags: &[String]) -> Result<Server, BenchError> {
    let processes = &bench.processes;
    let setup = Setup { flags: flags.to_vec(), ..processes.setup(memory_mib, 1, processes.server_cores(1)) };
    Server::start(guira(bench), &setup)
}

/// The flags of a store.
pub(super) fn store_flags(path: &Path, memory_mib: u64) -> Vec<String> {
    let (place, memory) = (format!("rocksdb:{}", path.display()), memory_mib.to_string());
    ["--store", &place, "--store-memory", &memory, "--durability", "os"].map(String::from).to_vec()
}

/// A server that takes part.
pub(super) fn contestant(bench: &Bench, name: &str, server: Server) -> Contestant {
    Contestant { name: name.into(), peer: guira(bench).clone(), servers: vec![server], scripts: Vec::new() }
}

/// What the server says of itself.
pub(super) fn counters(experiment: &'static str, contestant: &Contestant) -> Result<Counters, BenchError> {
    contestant.servers[0].counters().map_err(failed(experiment, &contestant.name))
}

/// Says one line to a server, and expects a good answer.
pub(super) fn tell(experiment: &'static str, contestant: &Contestant, line: &str) -> Result<(), BenchError> {
    let fail = || failed(experiment, &contestant.name);
    let mut connection =
        Blocking::connect(contestant.servers[0].address(), contestant.peer.protocol()).map_err(fail())?;
    let push = |out: &mut Vec<u8>| {
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(b"\r\n");
        Ok(())
    };
    connection.write_with(push).map_err(fail())?;
    connection.flush().map_err(fail())?;
    match connection.tally().done {
        1 => Ok(()),
        _ => Err(BenchError::Invalid(format!("{experiment}, {}: {line} was refused", contestant.name))),
    }
}

/// Whether a server answers one get of a key with an item.
pub(super) fn finds(experiment: &'static str, contestant: &Contestant, key: &[u8]) -> Result<bool, BenchError> {
    let ask = || {
        let mut stream = TcpStream::connect(contestant.servers[0].address())?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(&[b"get ", key, b"\r\n"].concat())?;
        let (mut answer, mut more) = (Vec::new(), [0; 4096]);
        while !answer.ends_with(b"END\r\n") {
            match stream.read(&mut more)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                len => answer.extend_from_slice(&more[..len]),
            }
        }
        Ok(answer.starts_with(b"VALUE "))
    };
    let failure = |source| LoadError::Network { doing: "asking for an item", source };
    ask().map_err(failure).map_err(failed(experiment, &contestant.name))
}

/// Gives a contestant what it is to be asked.
pub(super) fn script(
    experiment: &'static str,
    bench: &Bench,
    contestant: &mut Contestant,
    workload: &Workload,
    asked: &Asked,
) -> Result<(), BenchError> {
    let workload = Workload { keys_per_get: asked.keys_per_get, ..workload.clone() };
    let turns = bench.extent.scaled(asked.turns, asked.turns / 10);
    contestant.scripts = bench.processes.scripts(experiment, &contestant.peer, &workload, turns, 1)?;
    Ok(())
}

/// Asks for an interval; everything must be found.
pub(super) fn ask(
    experiment: &'static str,
    bench: &Bench,
    contestant: &Contestant,
    asked: &Asked,
) -> Result<Interval, BenchError> {
    let (processes, pacing) = (&bench.processes, Pacing::Closed { depth: asked.depth });
    let interval = processes.drive(experiment, contestant, asked.clients, pacing, processes.generator_cores(1))?;
    interval.expect_all_answered(experiment, &contestant.name)?;
    Ok(interval)
}

/// Lets a server with a store, the first, and one without take turns at what clients ask, and records both and their ratio, and how
/// often the store was asked.
pub(super) fn compare(
    experiment: &'static str,
    bench: &Bench,
    contestants: &mut [Contestant; 2],
    workload: &Workload,
    report: &mut ExperimentReport,
) -> Result<(), BenchError> {
    for asked in &ASKED {
        for contestant in contestants.iter_mut() {
            script(experiment, bench, contestant, workload, asked)?;
        }
        let progress = bench.processes.progress(experiment, 1);
        for round in 0..bench.rounds {
            progress.at(round as u64);
            let mut rates = [0.0; 2];
            for (contestant, rate) in contestants.iter().zip(&mut rates) {
                let before = counters(experiment, contestant)?;
                let interval = ask(experiment, bench, contestant, asked)?;
                let after = counters(experiment, contestant)?;
                let keys = interval.outcome.tally.keys();
                interval.record(report, asked.name, &contestant.name, keys);
                interval.record_latencies(report, asked.name, &contestant.name, &QUANTILES[..2]);
                *rate = interval.outcome.keys_per_s();
                let grew = |name| Some(after.number(name)? - before.number(name)?);
                if let (Some(at_once), Some(waited), Some(gets)) =
                    (grew("store_reads_at_once"), grew("store_reads_waited"), grew("cmd_get"))
                {
                    let gets = gets.max(1) as f64;
                    report.record(asked.name, &contestant.name, metric::STORE_READS, (at_once + waited) as f64 / gets);
                    report.record(asked.name, &contestant.name, metric::STORE_WAITS, waited as f64 / gets);
                }
            }
            report.record(asked.name, &contestants[0].name, metric::OVER_IN_MEMORY, rates[0] / rates[1]);
        }
    }
    Ok(())
}
