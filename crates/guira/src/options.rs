//! The options of `serve`, as one table: memcached's flags, Guira's own, their environment variables and defaults.
//!
//! Always true: a name is the same on the command line (`--memory-limit`), in the environment (`GUIRA_MEMORY_LIMIT`) and in
//! the file (`memory-limit`).

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use serde::{Deserialize, Serialize};

use crate::mistake::Origins;

macro_rules! options {
    (
        $(value [$($value_attr:tt)*] $value:ident: $value_type:ty = $default:expr, $value_doc:literal;)*
        $(maybe [$($maybe_attr:tt)*] $maybe:ident: $maybe_type:ty, $maybe_doc:literal;)*
        $(switch [$($switch_attr:tt)*] $switch:ident, $switch_doc:literal;)*
    ) => {
        /// What the command line and the environment say.
        #[derive(clap::Args, Clone, Debug, Default, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub(crate) struct Flags {
            $(#[doc = $value_doc] #[arg($($value_attr)*)] pub(crate) $value: Option<$value_type>,)*
            $(#[doc = $maybe_doc] #[arg($($maybe_attr)*)] pub(crate) $maybe: Option<$maybe_type>,)*
            $(
                #[doc = $switch_doc]
                #[arg($($switch_attr)*, num_args = 0..=1, require_equals = true, default_missing_value = "true",
                    value_parser = BoolishValueParser::new())]
                pub(crate) $switch: Option<bool>,
            )*
            /// Print the flags.
            #[arg(short = 'h', long = "help", action = clap::ArgAction::SetTrue)]
            #[serde(skip)]
            pub(crate) help: bool,
            /// Print the version.
            #[arg(short = 'V', long = "version", action = clap::ArgAction::SetTrue)]
            #[serde(skip)]
            pub(crate) show_version: bool,
            /// Print the licence.
            #[arg(short = 'i', long = "license", action = clap::ArgAction::SetTrue)]
            #[serde(skip)]
            pub(crate) license: bool,
            /// Read options from this file.
            #[arg(long = "config", env = "GUIRA_CONFIG")]
            #[serde(skip)]
            pub(crate) config: Option<PathBuf>,
            /// Print what the options come to, and exit.
            #[arg(long = "print-config", action = clap::ArgAction::SetTrue)]
            #[serde(skip)]
            pub(crate) print_config: bool,
            /// By which names to tell mistakes.
            #[arg(skip)]
            #[serde(skip)]
            pub(crate) origins: Origins,
        }

        /// What holds: flag, else environment, else file, else default.
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
        pub(crate) struct Options {
            $(#[doc = $value_doc] pub(crate) $value: $value_type,)*
            $(#[doc = $maybe_doc] pub(crate) $maybe: Option<$maybe_type>,)*
            $(#[doc = $switch_doc] pub(crate) $switch: bool,)*
        }

        impl Options {
            /// The names of those that nobody has given and that have no default value: whoever needs one chooses it.
            pub(crate) fn left_open(&self) -> Vec<String> {
                [$((stringify!($maybe), self.$maybe.is_none())),*]
                    .into_iter()
                    .filter(|(_, is_open)| *is_open)
                    .map(|(name, _)| name.replace('_', "-"))
                    .collect()
            }
        }

        impl Default for Options {
            fn default() -> Self {
                Self { $($value: $default,)* $($maybe: None,)* $($switch: false,)* }
            }
        }
    };
}

options! {
    value [short = 'p', long, env = "GUIRA_PORT", allow_hyphen_values = true]
        port: i32 = 11211, "TCP port; 0: none, -1: any free one.";
    value [short = 'U', long, env = "GUIRA_UDP_PORT", allow_hyphen_values = true]
        udp_port: i32 = 0, "UDP port; 0: none, -1: any free one.";
    value [long, env = "GUIRA_CP_PORT", allow_hyphen_values = true]
        cp_port: i32 = 0, "TCP port for CPSERVER's protocol; 0: none, -1: any free one.";
    value [short = 'a', long, env = "GUIRA_UNIX_MASK"]
        unix_mask: String = "700".into(), "Mode of the Unix socket, octal.";
    value [short = 'l', long, env = "GUIRA_LISTEN"]
        listen: Vec<String> = Vec::new(), "Where to listen: host, host:port, lists of them.";
    value [short = 'm', long, env = "GUIRA_MEMORY_LIMIT"]
        memory_limit: usize = 64, "Memory for items and index, in megabytes.";
    value [short = 'c', long, env = "GUIRA_CONN_LIMIT"]
        conn_limit: usize = 1024, "Connections at a time.";
    value [short = 'v', long, env = "GUIRA_VERBOSE", action = clap::ArgAction::Count]
        verbose: u8 = 0, "How much to say, 0 to 3.";
    value [short = 't', long, env = "GUIRA_THREADS"]
        threads: usize = 4, "Worker threads.";
    value [short = 'R', long, env = "GUIRA_MAX_REQS_PER_EVENT"]
        max_reqs_per_event: usize = 20, "Batches a connection may have answered before it is another's turn.";
    value [short = 'b', long, env = "GUIRA_LISTEN_BACKLOG"]
        listen_backlog: u32 = 1024, "Connections the kernel holds until they are accepted.";
    value [short = 'B', long, env = "GUIRA_PROTOCOL"]
        protocol: String = "auto".into(), "ascii or auto.";
    value [short = 'I', long, env = "GUIRA_MAX_ITEM_SIZE"]
        max_item_size: String = "1m".into(), "The largest item, in bytes or with k, m or g.";
    value [short = 'o', long, env = "GUIRA_EXTENDED"]
        extended: Vec<String> = Vec::new(), "memcached's extended options.";
    value [long, env = "GUIRA_ENGINE"]
        engine: String = "memc3".into(), "The engine.";
    value [long, env = "GUIRA_HUGE_PAGES"]
        huge_pages: String = "auto".into(), "auto: where the system gives them; off.";
    value [long, env = "GUIRA_STORE"]
        store: String = "memory".into(), "Where items last: memory, rocksdb:PATH or cassandra:HOSTS, with the engine as a cache before it.";

    maybe [short = 's', long, env = "GUIRA_UNIX_SOCKET"]
        unix_socket: PathBuf, "A Unix socket instead of TCP and UDP.";
    maybe [short = 'u', long, env = "GUIRA_USER"]
        user: String, "Whom to become when started as root.";
    maybe [short = 'P', long, env = "GUIRA_PIDFILE"]
        pidfile: PathBuf, "Where to write the process id.";
    maybe [short = 'f', long, env = "GUIRA_SLAB_GROWTH_FACTOR"]
        slab_growth_factor: f64, "Ratio between neighbouring chunk sizes.";
    maybe [short = 'n', long, env = "GUIRA_SLAB_MIN_SIZE"]
        slab_min_size: usize, "Smallest chunk's room for key, value and flags, in bytes.";
    maybe [short = 'D', env = "GUIRA_DELIMITER"]
        delimiter: char, "Between prefix and rest of a key; counts by prefix.";
    maybe [short = 'Y', long, env = "GUIRA_AUTH_FILE"]
        auth_file: PathBuf, "user:password lines; clients must authenticate.";
    maybe [short = 'e', long, env = "GUIRA_MEMORY_FILE"]
        memory_file: PathBuf, "Keeps the items over a restart: written at a stop, loaded and removed at the next start.";
    maybe [short = 'N', long, env = "GUIRA_NAPI_IDS"]
        napi_ids: u32, "Without a meaning here.";
    maybe [long, env = "GUIRA_EVICTION"]
        eviction: String, "Which item goes when memory is full; without it, as the engine likes it.";
    maybe [long, env = "GUIRA_DURABILITY"]
        durability: String, "When a change counts as stored, for --store: always (on disk), interval:MS or os.";
    maybe [long, env = "GUIRA_STORE_MEMORY"]
        store_memory: usize, "Megabytes of -m for the store; without it, a quarter.";
    maybe [long, env = "GUIRA_STORE_LIMIT"]
        store_limit: u64, "Records read (from the store's memory too), stored and deleted a second, at most.";
    maybe [long, env = "GUIRA_PARTITIONS"]
        partitions: usize, "Parts of the table, for the engines that have them.";
    maybe [long, env = "GUIRA_SERVER_THREADS"]
        server_threads: usize, "Most threads that serve partitions, for --engine cphash: so many do as the load needs.";
    maybe [long, env = "GUIRA_SERVER_CORES"]
        server_cores: String, "Cores that those threads keep to, in turn: 0,2-5.";
    maybe [long, env = "GUIRA_METRICS"]
        metrics: String, "Where Prometheus may scrape, address:port.";

    switch [long, env = "GUIRA_BUCKET_LOCKS"] bucket_locks, "A lock in every bucket, for --engine lockhash --eviction random.";
    switch [short = 'A', long, env = "GUIRA_ENABLE_SHUTDOWN"] enable_shutdown, "Allow the shutdown command.";
    switch [short = 'd', long, env = "GUIRA_DAEMON"] daemon, "Run in the background.";
    switch [short = 'r', long, env = "GUIRA_ENABLE_COREDUMPS"] enable_coredumps, "Raise the limit on core files.";
    switch [short = 'M', long, env = "GUIRA_DISABLE_EVICTIONS"] disable_evictions, "Refuse rather than evict.";
    switch [short = 'k', long, env = "GUIRA_LOCK_MEMORY"] lock_memory, "Keep all memory out of the swap.";
    switch [short = 'L', long, env = "GUIRA_ENABLE_LARGEPAGES"] enable_largepages, "Huge pages even if --huge-pages says off.";
    switch [short = 'C', long, env = "GUIRA_DISABLE_CAS"] disable_cas, "Tell no versions: each is 0.";
    switch [short = 'S', long, env = "GUIRA_ENABLE_SASL"] enable_sasl, "Not supported.";
    switch [short = 'F', long, env = "GUIRA_DISABLE_FLUSH_ALL"] disable_flush_all, "Refuse flush_all.";
    switch [short = 'X', long, env = "GUIRA_DISABLE_DUMPING"] disable_dumping, "Refuse dumps.";
    switch [short = 'W', long, env = "GUIRA_DISABLE_WATCH"] disable_watch, "Refuse watch.";
    switch [short = 'Z', long, env = "GUIRA_ENABLE_SSL"] enable_ssl, "Not supported.";
}
