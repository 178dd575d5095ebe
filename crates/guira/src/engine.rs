//! Wiring: from the options to an engine, with a store behind it or not, behind the server's `Service`.

use std::sync::Arc;

use guira_item::{Engine, Immediate};
use guira_persist::{Loaded, MemoryFile, MemoryFileError, Saved};
use guira_server::{Listeners, Server, Settings, Watch};

use crate::{
    cores,
    options::Options,
    store::{Behind, Chosen},
};

/// An engine that is ready to serve.
pub(crate) trait Ready {
    /// Opens the store behind it, if there is to be one; returns what the user is to know. Once privileges are given up, and
    /// before anything else.
    fn open(&mut self, _settings: &Settings) -> Result<Option<String>, String> {
        Ok(None)
    }

    /// Loads what a file has; `None` if there is none. Before it serves; not with a store.
    fn load(&self, file: &MemoryFile, watch: &Watch, evicts: bool) -> Result<Option<Loaded>, MemoryFileError>;

    /// Starts a server on it; called once privileges are given up.
    fn start(&self, settings: Settings, listeners: Listeners) -> std::io::Result<Server>;

    /// Saves its items. When it does not serve any more; not with a store.
    fn save(&self, file: MemoryFile, watch: &Watch) -> Result<Saved, MemoryFileError>;

    /// Closes the store behind it, if there is one. When it does not serve any more.
    fn close(&self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: Engine> Ready for Arc<E> {
    fn load(&self, file: &MemoryFile, watch: &Watch, evicts: bool) -> Result<Option<Loaded>, MemoryFileError> {
        file.load(&**self, watch.clock(), watch.now(), evicts)
    }

    fn start(&self, settings: Settings, listeners: Listeners) -> std::io::Result<Server> {
        Server::start(settings, listeners, Immediate(Self::clone(self)))
    }

    fn save(&self, file: MemoryFile, watch: &Watch) -> Result<Saved, MemoryFileError> {
        file.save(&**self, &watch.clock_by_now(), watch.now())
    }
}

/// As many as `-t` allows.
const SERVER_THREADS_MAX: usize = 1024;

/// What the options say to every engine.
struct Wanted<'o> {
    options: &'o Options,
    store: Chosen,
    /// For the engine alone.
    memory_limit: usize,
    item_len_max: usize,
    huge_pages: bool,
}

/// Makes an engine ready to serve.
type Build = fn(&Wanted<'_>) -> Result<Box<dyn Ready>, String>;

/// The engines by name. Another one is one line.
const ENGINES: [(&str, Build); 3] = [("memc3", memc3), ("cphash", cphash), ("lockhash", lockhash)];

/// Makes the engine the options ask for.
pub(crate) fn build(options: &Options, memory_limit: usize, item_len_max: usize) -> Result<Box<dyn Ready>, String> {
    let (_, build) = named("--engine", "engine", &options.engine, &ENGINES, |(name, _)| name)?;
    let store = Chosen::of(options, memory_limit)?;
    let memory_limit = memory_limit - store.memory_bytes();
    let huge_pages = match options.huge_pages.as_str() {
        "auto" => true,
        "off" => options.enable_largepages,
        other => return Err(format!("--huge-pages {other}: write auto or off")),
    };
    build(&Wanted { options, store, memory_limit, item_len_max, huge_pages })
}

/// The one of `all` that is called `wanted`.
fn named<'a, T>(
    flag: &str,
    what: &str,
    wanted: &str,
    all: &'a [T],
    name: impl Fn(&'a T) -> &'a str,
) -> Result<&'a T, String> {
    all.iter().find(|one| name(one) == wanted).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(&name).collect();
        format!("{flag} {wanted}: no such {what}, use one of {}", names.join(", "))
    })
}

/// The policy of `--eviction`, the first of `all` without the flag.
fn policy<T: Copy>(wanted: &Wanted<'_>, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let names: Vec<(&str, T)> = all.iter().map(|policy| (name(*policy), *policy)).collect();
    let default = names[0].0.to_owned();
    let chosen = wanted.options.eviction.as_ref().unwrap_or(&default);
    let what = format!("policy of {}", wanted.options.engine);
    named("--eviction", &what, chosen, &names, |(name, _)| name).map(|(_, policy)| *policy)
}

/// The engine, with a store behind it if that is wanted.
fn ready<E: Engine>(wanted: &Wanted<'_>, engine: E) -> Box<dyn Ready> {
    let engine = Arc::new(engine);
    match &wanted.store {
        Chosen::Memory => Box::new(engine),
        Chosen::Rocks(rocks) => Box::new(Behind::new(engine, rocks.clone(), wanted.item_len_max)),
        #[cfg(feature = "cassandra")]
        Chosen::Cassandra(cassandra) => Box::new(Behind::new(engine, cassandra.clone(), wanted.item_len_max)),
    }
}

fn memc3(wanted: &Wanted<'_>) -> Result<Box<dyn Ready>, String> {
    use guira_memc3::{Config, Eviction, Memc3};
    let Wanted { options, memory_limit, item_len_max, huge_pages, .. } = *wanted;
    has_none("memc3", "--partitions", options.partitions.as_ref(), "cphash or lockhash")?;
    has_no_server_threads("memc3", options)?;
    has_no_bucket_locks("memc3", options)?;
    let policies = [Eviction::Clock, Eviction::S3Fifo, Eviction::Sieve, Eviction::Lru, Eviction::Random];
    let defaults = Config::new(memory_limit);
    let config = Config {
        item_len_max,
        eviction: policy(wanted, &policies, Eviction::name)?,
        evictions_enabled: !options.disable_evictions,
        versions_shown: !options.disable_cas,
        huge_pages,
        growth_factor: options.slab_growth_factor.unwrap_or(defaults.growth_factor),
        chunk_len_min: options.slab_min_size.map_or(defaults.chunk_len_min, |len| len.max(defaults.chunk_len_min)),
        ..defaults
    };
    Memc3::new(config).map(|engine| ready(wanted, engine)).map_err(|error| error.to_string())
}

/// Refuses what is said about something that an engine does not have.
fn has_none<T: std::fmt::Display>(engine: &str, flag: &str, given: Option<&T>, who_has: &str) -> Result<(), String> {
    let refusal = |given| format!("{flag} {given}: {engine} has none, leave it out or choose --engine {who_has}");
    given.map_or(Ok(()), |given| Err(refusal(given)))
}

fn has_no_bucket_locks(engine: &str, options: &Options) -> Result<(), String> {
    let refusal = format!("--bucket-locks: {engine} has none, leave it out or choose --engine lockhash");
    if options.bucket_locks { Err(refusal) } else { Ok(()) }
}

fn has_no_server_threads(engine: &str, options: &Options) -> Result<(), String> {
    has_none(engine, "--server-threads", options.server_threads.as_ref(), "cphash")?;
    has_none(engine, "--server-cores", options.server_cores.as_ref(), "cphash")
}

/// The settings of `cphash` and `lockhash`.
fn partitioned(wanted: &Wanted<'_>) -> Result<guira_cphash::Config, String> {
    use guira_cphash::{Config, Eviction};
    let Wanted { options, memory_limit, item_len_max, huge_pages, .. } = *wanted;
    Ok(Config {
        item_len_max,
        eviction: policy(wanted, &[Eviction::Lru, Eviction::Random], Eviction::name)?,
        evictions_enabled: !options.disable_evictions,
        versions_shown: !options.disable_cas,
        huge_pages,
        partitions: options.partitions,
        server_threads: options.server_threads,
        ..Config::new(memory_limit)
    })
}

fn cphash(wanted: &Wanted<'_>) -> Result<Box<dyn Ready>, String> {
    has_no_bucket_locks("cphash", wanted.options)?;
    if let Some(number) = wanted.options.server_threads.filter(|number| *number > SERVER_THREADS_MAX) {
        return Err(format!("--server-threads {number}: at most {SERVER_THREADS_MAX} threads"));
    }
    let list = wanted.options.server_cores.as_deref();
    if let (Some(list), Some(0)) = (list, wanted.options.server_threads) {
        return Err(format!("--server-cores {list}: there is no thread to keep there with --server-threads 0"));
    }
    let server_cores = list.map(cores::parse).transpose().map_err(|told| format!("--server-cores {told}"))?;
    let config = guira_cphash::Config { server_cores: server_cores.unwrap_or_default(), ..partitioned(wanted)? };
    guira_cphash::Cphash::new(config).map(|engine| ready(wanted, engine)).map_err(|error| error.to_string())
}

fn lockhash(wanted: &Wanted<'_>) -> Result<Box<dyn Ready>, String> {
    has_no_server_threads("lockhash", wanted.options)?;
    let config = partitioned(wanted)?;
    let made = if wanted.options.bucket_locks {
        guira_cphash::BucketLockhash::new(config).map(|engine| ready(wanted, engine))
    } else {
        guira_cphash::Lockhash::new(config).map(|engine| ready(wanted, engine))
    };
    made.map_err(|error| error.to_string())
}
