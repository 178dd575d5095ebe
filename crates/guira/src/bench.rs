//! `guira bench`: the experiments of crate `guira-bench`.

use std::path::PathBuf;

use guira_bench::{cluster, engine, map, router, server, store, symmetric};

/// What follows `bench` on the command line.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

/// What is measured.
#[derive(clap::Subcommand, Debug)]
enum Experiment {
    /// This server, memcached and Redis as processes, in alternating rounds
    Server(Box<server::Options>),
    /// The index and the engine in this process, beside the structures that the paper compares them with
    Engine(Box<engine::Options>),
    /// Concurrent maps in memory, a process each, with one kind of work or several mixed
    Map(Box<map::Options>),
    /// A store behind the engine, beside RocksDB called directly and the same server without one
    Store(Box<store::Options>),
    /// A switched cluster of processes with slow backends, by each way to use its cache, and what its members do to it
    Cluster(Box<cluster::Options>),
    /// A symmetric cluster of processes, beside itself without hot keys, with each message by itself, and with other promises; and what a node that is killed does to it
    Symmetric(Box<symmetric::Options>),
    /// What brings gets to cache nodes: an eBPF program beside one that only forwards and the gateway; how fast rules change there and in Open vSwitch
    Router(Box<router::Options>),
    /// Draw the plots of kept results again, from their JSON
    Redraw {
        /// Folders with a cluster.json, an engine.json, a map.json, a router.json, a server.json, a store.json or a symmetric.json
        #[arg(required = true, value_name = "FOLDER")]
        folders: Vec<PathBuf>,
    },
    /// The floor for a request over loopback; started by `bench server`
    #[command(hide = true)]
    EchoServer(server::EchoArgs),
    /// An engine before a store that is slow; started by `bench store`
    #[command(hide = true)]
    DelayedStoreServer(store::DelayedArgs),
    /// A backend's core alone, for valgrind; started by `bench cluster`
    #[command(hide = true)]
    CoreReads(cluster::CoreReadsArgs),
    /// A map under measurement, which standard input tells what to do; started by `bench map`
    #[command(hide = true)]
    MapContender,
}

/// Runs an experiment and prints its table.
pub(crate) fn run(arguments: Arguments) -> Result<(), String> {
    match arguments.experiment {
        Experiment::Server(options) => {
            let report = server::run(*options).map_err(|error| error.to_string())?;
            print!("{report}");
        }
        Experiment::Engine(options) => {
            let report = engine::run(*options).map_err(|error| error.to_string())?;
            print!("{report}");
        }
        Experiment::Map(options) => {
            let report = map::run(*options).map_err(|error| error.to_string())?;
            print!("{report}");
        }
        Experiment::Store(options) => {
            let report = store::run(*options).map_err(|error| error.to_string())?;
            print!("{report}");
        }
        Experiment::Cluster(options) => {
            let report = cluster::run(*options).map_err(|error| error.to_string())?;
            print!("{report}");
        }
        Experiment::Symmetric(options) => {
            let report = symmetric::run(*options).map_err(|error| error.to_string())?;
            print!("{report}");
        }
        Experiment::Router(options) => {
            let report = router::run(*options).map_err(|error| error.to_string())?;
            print!("{report}");
        }
        Experiment::Redraw { folders } => {
            for folder in folders {
                guira_bench::redraw(&folder).map_err(|error| error.to_string())?;
            }
        }
        Experiment::EchoServer(arguments) => {
            server::echo_server_main(&arguments).map_err(|error| error.to_string())?;
        }
        Experiment::DelayedStoreServer(arguments) => {
            store::delayed_store_server_main(&arguments).map_err(|error| error.to_string())?;
        }
        Experiment::CoreReads(arguments) => {
            cluster::core_reads_main(&arguments).map_err(|error| error.to_string())?;
        }
        Experiment::MapContender => map::contender_main().map_err(|error| error.to_string())?,
    }
    Ok(())
}
