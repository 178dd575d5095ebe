//! `guira cluster up`: what it is told, and what is the same whatever members there are.
//!
//! Always true: what is given of another topology's is refused before anything is started.

use std::{
    fs::{self, DirBuilder},
    net::{IpAddr, SocketAddr},
    num::NonZero,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
};

use clap::{
    ArgMatches, Args, Command, FromArgMatches,
    builder::{PossibleValuesParser, TypedValueParser},
    parser::ValueSource,
};
use guira_cluster::{ITEM_LEN_MAX, ITEM_LEN_MIN, LineSocket};
use guira_openflow::RulesOfKeys;
use guira_server::CaughtSignals;
use guira_switched::{CacheMode, Member, backend::HotConfig};

use super::{
    At, LOOK_EVERY, Wish, lock,
    network::RunningRouter,
    open_socket,
    running::{How, RunningMembers},
    symmetric::SymmetricArguments,
    tell, within, write,
};
use crate::{rest::RestArguments, serve::start_log, size::size_bytes, with_parent::end_with};

#[derive(clap::Args, Debug)]
pub(super) struct Up {
    /// How hot keys are kept from being a load: switched, with cache nodes before backends; or symmetric, with the same hottest keys at all nodes
    #[arg(long, default_value = "switched", value_parser = ["switched", "symmetric"])]
    pub(super) topology: String,
    /// Backends, which have the items
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) backends: u16,
    /// Cache nodes, which have copies of the hottest
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=256))]
    pub(super) caches: u16,
    /// Threads of each cache node, each with its part of the copies
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(Member::CACHE_THREADS_MAX)))]
    pub(super) cache_threads: u16,
    /// Where clients find it
    #[arg(short, long, default_value = "127.0.0.1")]
    pub(super) listen: IpAddr,
    /// The TCP port for clients; of a symmetric cluster node 1's, and the others' are behind it
    #[arg(short, long, default_value_t = 11211, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) port: u16,
    /// What brings reads of hot keys to cache nodes: the gateway; or a switch of its own (Open vSwitch), or an eBPF program on links (XDP), with a network
    /// namespace for each cache node and backend, which takes root's rights
    #[arg(long, default_value = "gateway", value_parser = ["gateway", "openflow", "xdp"])]
    pub(super) router: String,
    /// How reads say what they ask for, to a switch or a program: in IPv6 addresses, or in MAC addresses as in the paper
    #[arg(long, value_parser = ["ipv6", "mac"])]
    pub(super) encoding: Option<String>,
    /// Switches of --router openflow, in a ring, to which hosts are dealt out
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=8))]
    pub(super) switches: u16,
    /// Which of several switches have the rules of hot keys: all of them all (replicated), or each those of the backends that are plugged into it (parted)
    #[arg(long, default_value_t, value_parser = PossibleValuesParser::new(RulesOfKeys::ALL.map(RulesOfKeys::name)).try_map(|name| name.parse::<RulesOfKeys>()))]
    pub(super) rules: RulesOfKeys,
    /// Threads that serve clients
    #[arg(short, long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: u16,
    /// Where items last: rocksdb (in the folder) or memory
    #[arg(long, default_value = "rocksdb", value_parser = ["rocksdb", "memory"])]
    pub(super) store: String,
    /// When a change counts as stored: always, interval:MS or os
    #[arg(long, default_value = "always")]
    pub(super) durability: String,
    /// Operations a second of each backend's store, at most
    #[arg(long)]
    pub(super) store_limit: Option<u64>,
    /// The largest item, in bytes or with k or m, up to 16m
    #[arg(short = 'I', long, default_value = "1m")]
    pub(super) max_item_size: String,
    /// Requests a second that each backend takes, at most: for experiments
    #[arg(long, value_name = "PER_SECOND")]
    pub(super) request_limit: Option<NonZero<u32>>,
    /// Items of a cache node, at most, shared out over its threads
    #[arg(long, default_value_t = 10_000)]
    pub(super) items_max: usize,
    /// Megabytes of keys and values of a cache node, at most, shared out over its threads
    #[arg(long, default_value_t = 64)]
    pub(super) cache_megabytes: usize,
    /// What backends tell of hot keys
    #[arg(long, default_value = "both", value_parser = ["every-query", "periodic", "instant", "both", "none"])]
    pub(super) reports: String,
    /// Keys that a backend reports each second, the hottest that are not cached
    #[arg(long, default_value_t = HotConfig::default().reported, value_name = "N")]
    pub(super) reported: usize,
    /// Of a backend's queries one in so many is counted for that
    #[arg(long, default_value_t = HotConfig::default().sample_one_in, value_name = "N")]
    pub(super) sample_one_in: u32,
    /// Who is asked first for what is only read, to compare: switched, look-aside, look-through or none; of several each is a gateway's, on the
    /// ports from --port on
    #[arg(long, default_value = "switched", value_delimiter = ',', value_name = "MODE,...")]
    pub(super) cache_mode: Vec<CacheMode>,
    /// Queries a second of a backend below which no key of it bursts
    #[arg(long, default_value_t = 100.0)]
    pub(super) burst_load_min: f64,
    /// How long a lease is, in milliseconds: so long a change waits at most for a cache node that has fallen silent
    #[arg(long, default_value_t = 1_000)]
    pub(super) lease_ms: u64,
    /// Milliseconds, up to 19, that a cache node is waited for before a read is asked of its backend as well, of one read in twenty at most; 0: it is not
    #[arg(long, default_value_t = 0, value_name = "MS", value_parser = clap::value_parser!(u64).range(..=19))]
    pub(super) hedge_after_ms: u64,
    #[command(flatten)]
    pub(super) rest: RestArguments,
    /// Where Prometheus may scrape the gateway, under /metrics: an address and a port; of several gateways each is on the next port (default: off)
    #[arg(long, value_name = "ADDR")]
    pub(super) metrics: Option<SocketAddr>,
    /// All members in one process: one that fails is started again, but what kills the process ends all
    #[arg(long)]
    pub(super) one_process: bool,
    /// Each backend runs under this command, a profiler for instance
    #[arg(long, hide = true, value_name = "COMMAND", conflicts_with = "one_process")]
    pub(super) backend_under: Option<String>,
    /// The process that has started this one: it ends with that
    #[arg(long, hide = true, value_name = "PID")]
    pub(super) with_parent: Option<i32>,
    #[command(flatten)]
    pub(super) symmetric: SymmetricArguments,
    #[command(flatten)]
    pub(super) at: At,
}

/// The same, and which of its flags were given.
#[derive(Debug)]
pub(super) struct GivenUp {
    up: Up,
    given: Vec<String>,
}

/// Flags that mean the same for both topologies.
const SHARED: [&str; 11] = [
    "topology",
    "listen",
    "port",
    "threads",
    "max-item-size",
    "sample-one-in",
    "lease-ms",
    "metrics",
    "one-process",
    "with-parent",
    "folder",
];

impl FromArgMatches for GivenUp {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let command = Up::augment_args(Command::new("up"));
        let given = command.get_arguments().filter(|argument| is_given(argument.get_id().as_str()));
        let given = given.filter_map(|argument| argument.get_long().map(str::to_owned)).collect();
        Ok(Self { up: Up::from_arg_matches(matches)?, given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for GivenUp {
    fn augment_args(command: Command) -> Command {
        Up::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Up::augment_args_for_update(command)
    }
}

impl GivenUp {
    pub(super) fn run(&self) -> Result<(), String> {
        self.check()?;
        if self.up.topology == "symmetric" { self.up.run_symmetric() } else { self.up.run_switched() }
    }

    /// Whether nothing was given that is of the other topology.
    fn check(&self) -> Result<(), String> {
        let symmetric = SymmetricArguments::augment_args(Command::new("up"));
        let is_symmetric = |flag: &str| symmetric.get_arguments().any(|argument| argument.get_long() == Some(flag));
        let is_wanted = |flag: &&String| match self.up.topology.as_str() {
            "symmetric" => SHARED.contains(&flag.as_str()) || is_symmetric(flag),
            _ => !is_symmetric(flag),
        };
        let other = if self.up.topology == "symmetric" { "switched" } else { "symmetric" };
        match self.given.iter().find(|flag| !is_wanted(flag)) {
            Some(flag) => Err(format!("--{flag}: of --topology {other}, and this is to be {}", self.up.topology)),
            None => Ok(()),
        }
    }
}

/// Where a cluster comes to be, and through what it is asked.
pub(super) struct Site {
    pub(super) at: At,
    signals: CaughtSignals,
    members: Arc<Mutex<RunningMembers>>,
    // Gone before the socket is, which waits for who is being answered: whoever wants it down is let go with this.
    wished: Receiver<Wish>,
    socket: LineSocket,
}

/// What is dropped once nothing of the cluster is left: then who wanted it down is told.
pub(super) struct Down {
    _who: Option<Sender<()>>,
    _socket: LineSocket,
}

/// What is to be up.
pub(super) struct Plan<'p> {
    /// The cluster's file.
    pub(super) text: String,
    /// Its members.
    pub(super) how: How<'p>,
    /// What is said once they are started.
    pub(super) greeting: Vec<String>,
}

impl Up {
    /// A place for it, where no other one is.
    pub(super) fn site(&self) -> Result<Site, String> {
        let signals = CaughtSignals::catch().map_err(|error| format!("cannot catch signals: {error}"))?;
        if let Some(parent) = self.with_parent {
            end_with(parent)?;
        }
        let folder = &self.at.folder;
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| within(folder, &error))?;
        let folder = fs::canonicalize(folder).map_err(|error| within(folder, &error))?;
        let mode = fs::metadata(&folder).map_err(|error| within(&folder, &error))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(format!(
                "{}: others can look into it: chmod 700 it, or give another --folder",
                folder.display()
            ));
        }
        let at = At { folder };
        let (wishes, wished) = mpsc::channel();
        let members: Arc<Mutex<RunningMembers>> = Arc::default();
        let socket = open_socket(&at, &members, wishes)?;
        Ok(Site { at, signals, members, wished, socket })
    }

    /// Bytes of the largest item.
    pub(super) fn item_len_max(&self) -> Result<usize, String> {
        let size = &self.max_item_size;
        let item_len_max = size_bytes(size).filter(|len| (ITEM_LEN_MIN..=ITEM_LEN_MAX).contains(len));
        item_len_max.ok_or_else(|| format!("-I {size}: from 1k to 16m"))
    }

    /// What becomes of a member that ends.
    pub(super) fn what_of_members(&self) -> &'static str {
        if self.one_process {
            "all members are in this process, and one that fails is started again"
        } else {
            "a member that is killed is started again"
        }
    }
}

impl Site {
    /// Starts what is to be up, and keeps it up until it is to end; what routes beside it, too.
    pub(super) fn keep_up(self, plan: &Plan<'_>, mut router: Option<&mut RunningRouter>) -> Result<Down, String> {
        let Self { at, signals, members, wished, mut socket } = self;
        let Plan { text, how, greeting } = plan;
        if how.in_one_process {
            start_log(0);
        }
        write(&at.file(), text)?;
        if let Some(router) = &mut router {
            router.begin()?;
        }
        let signalled = signals.pass_the_end().map_err(|error| format!("cannot watch signals: {error}"))?;
        if let Err(told) = lock(&members).start_all(how) {
            tell(&told);
            lock(&members).end();
            return Err("not all members could be started, so none is".into());
        }
        greeting.iter().for_each(|line| tell(line));
        router.iter().flat_map(|router| router.hints()).for_each(|hint| tell(&hint));
        let who = loop {
            match wished.recv_timeout(LOOK_EVERY) {
                Ok(Wish::End(who)) => break who,
                Err(RecvTimeoutError::Timeout) if signalled.try_recv().is_ok() => break None,
                Err(RecvTimeoutError::Timeout) => {
                    lock(&members).look(how);
                    if let Some(router) = &mut router {
                        router.look();
                        lock(&members).beside = router.process();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        lock(&members).end();
        socket.close();
        drop(wished);
        Ok(Down { _who: who, _socket: socket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> Result<(), String> {
        let command = GivenUp::augment_args(Command::new("up"));
        let matches = command.try_get_matches_from(format!("up {line}").split_whitespace());
        GivenUp::from_arg_matches(&matches.map_err(|error| error.to_string())?).expect("they were taken").check()
    }

    #[test]
    fn flags_of_the_other_topology_are_refused() {
        for line in [
            "--backends 2 --lease-ms 500",
            "--topology symmetric --nodes 2 --lease-ms 500 -p 1 --hot-keys 9 --uncoalesced",
        ] {
            assert_eq!(told(line), Ok(()));
        }
        let other = "--backends: of --topology switched, and this is to be symmetric";
        assert_eq!(told("--topology symmetric --backends 8"), Err(other.into()));
        let other = "--nodes: of --topology symmetric, and this is to be switched";
        assert_eq!(told("--nodes 3"), Err(other.into()));
    }

    #[test]
    fn what_means_the_same_for_both_is_there() {
        let command = Up::augment_args(Command::new("up"));
        let longs: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        assert!(SHARED.iter().all(|flag| longs.contains(flag)), "{longs:?}");
    }
}
