//! `guira serve`: checks the options, puts the server together, runs it.

use std::io::{ErrorKind, IsTerminal, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use guira_memcache::{AuthFile, Credentials};
use guira_server::{CaughtSignals, ListenAddress, Listeners, Settings, Shown};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

use crate::extended::Extended;
use crate::kept::Kept;
use crate::lock_memory::Locking;
use crate::options::{Flags, Options};
use crate::pidfile::{Pidfile, write_ports};
use crate::size::size_bytes;
use crate::{config_file, daemon, engine, extended, store, user};

const MIB: usize = 1 << 20;

/// Bounds of `-I`, in bytes: memcached's.
const ITEM_LEN_MIN: usize = 1 << 10;
const ITEM_LEN_MAX: usize = 1 << 30;

/// Shares of `-m` that unfinished requests and unread answers may each take beside it: with both at their bound the process
/// stays within 5 % of what `-m` promises, from about 480 MB up; below that the least that is useful counts for more.
const BUFFER_SHARE: usize = 48;
const BUFFER_LEN_MIN: usize = 8 * MIB;

/// Runs a server until it is stopped.
pub(crate) fn run(mut flags: Flags) -> Result<(), String> {
    let ended = resolve_and_serve(&mut flags);
    ended.map_err(|line| flags.origins.rename(&line))
}

fn resolve_and_serve(flags: &mut Flags) -> Result<(), String> {
    let options = config_file::resolve(flags)?;
    let plan = Plan::of(&options)?;
    if flags.print_config {
        // Only what could be served with is worth keeping in a file.
        drop(engine::build(&options, plan.memory_limit, plan.settings.protocol.item_len_max)?);
        print!("{}", config_file::print(&options)?);
        return Ok(());
    }
    if options.daemon && !daemon::is_daemon() {
        return daemon::start();
    }
    if daemon::is_daemon() {
        daemon::detach();
    }
    start(&options, plan)
}

/// Files that are open beside those of a store.
pub(crate) fn files_of_the_server(settings: &Settings) -> u64 {
    let files = settings.connections_max + guira_server::reserved_fds(settings.threads) + 4 * settings.listen.len();
    files as u64
}

/// Options that have been found sound.
struct Plan {
    settings: Settings,
    memory_limit: usize,
    user: Option<user::User>,
    warnings: Vec<String>,
}

fn start(options: &Options, plan: Plan) -> Result<(), String> {
    let signals = CaughtSignals::catch().map_err(|error| cannot("catch signals", &error))?;
    let Plan { mut settings, memory_limit, user, mut warnings } = plan;
    if options.enable_coredumps {
        let maximum = getrlimit(Resource::Core).maximum;
        setrlimit(Resource::Core, Rlimit { current: maximum, maximum })
            .map_err(|error| format!("-r: cannot raise the limit on core files: {error}"))?;
    }
    let files = files_of_the_server(&settings) + store::descriptors(options, &settings);
    guira_server::allow_open_files(settings.connections_max, files).map_err(|error| error.to_string())?;
    let locking = if options.lock_memory { Some(Locking::begin(memory_limit)?) } else { None };
    let mut engine = engine::build(options, memory_limit, settings.protocol.item_len_max)?;
    warnings.extend(locking.and_then(Locking::finish));
    let listeners = Listeners::bind(&settings).map_err(|error| error.to_string())?;
    let pidfile =
        options.pidfile.as_deref().map(absolute).transpose()?.map(|path| Pidfile::write(&path)).transpose()?;
    write_ports(&listeners.tcp_addresses(), &listeners.udp_addresses())?;
    if let (Some(user), Some(name)) = (&user, &options.user) {
        user::become_user(user, name)?;
    }
    settings.on_verbosity = Some(start_log(options.verbose));
    let on_hangup = reload(options.auth_file.as_deref(), settings.protocol.auth.clone())?;
    let mut greeting: String = warnings.iter().map(|line| format!("guira: {line}\n")).collect();
    greeting += &greet(&listeners, &settings);
    let watch = settings.watch;
    if let Some(line) = engine.open(&settings)? {
        greeting += &format!("guira: {line}\n");
    }
    let kept = settings.shown.memory_file.as_deref().map(Kept::claim).transpose()?;
    if let Some(kept) = &kept {
        greeting += &format!("guira: {}\n", kept.load(&*engine, &watch, !options.disable_evictions)?);
    }
    let mut is_sound = true;
    let serve = || {
        let server = engine.start(settings, listeners).map_err(|error| cannot("start", &error))?;
        signals.pass_on(server.stopper(), on_hangup).map_err(|error| cannot("watch signals", &error))?;
        if daemon::is_daemon() {
            daemon::tell_ready(options.enable_coredumps, options.verbose > 0)?;
        } else {
            // A closed standard error is no reason to end.
            let _ = std::io::stderr().write_all(greeting.as_bytes());
        }
        server.join().map_err(|error| {
            // What a bug has left is not worth keeping.
            is_sound = false;
            error.to_string()
        })
    };
    let ended = serve();
    // What was loaded has no file any more, however this has ended.
    let saved = kept.filter(|_| is_sound).map_or(Ok(()), |kept| kept.save(&*engine, &watch));
    let closed = engine.close();
    drop(pidfile);
    ended.and(saved).and(closed)
}

/// What could not be done, and what helps if a limit is why.
fn cannot(what: &str, error: &std::io::Error) -> String {
    let advice = match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::OutOfMemory => {
            ": no memory or no threads left: raise `ulimit -v` and `ulimit -u`, or lower -m and -t"
        }
        _ => "",
    };
    format!("cannot {what}: {error}{advice}")
}

/// Where the server listens and how to talk to it.
fn greet(listeners: &Listeners, settings: &Settings) -> String {
    let mut text = String::new();
    let mut add =
        |kind: &str, address: &dyn std::fmt::Display| text += &format!("guira: listening on {kind} {address}\n");
    listeners.tcp_addresses().iter().for_each(|address| add("TCP", address));
    listeners.cp_addresses().iter().for_each(|address| add("TCP (CPSERVER's protocol)", address));
    listeners.udp_addresses().iter().for_each(|address| add("UDP", address));
    if let Some(path) = listeners.unix_path() {
        add("Unix socket", &path.display());
    }
    if let Some(address) = listeners.metrics_address() {
        text += &format!("guira: metrics on http://{address}/metrics\n");
    }
    let with = match (listeners.tcp_addresses().first(), &settings.unix_socket) {
        (Some(address), _) if address.ip().is_unspecified() => format!("nc 127.0.0.1 {}", address.port()),
        (Some(address), _) => format!("nc {} {}", address.ip(), address.port()),
        (None, Some(path)) => format!("nc -U {}", path.display()),
        (None, None) => return text,
    };
    text + &format!("guira: try: printf 'set greeting 0 0 5\\r\\nhello\\r\\nget greeting\\r\\nquit\\r\\n' | {with}\n")
}

/// Which lines are logged.
fn lines_for(verbosity: u32) -> Targets {
    let level = match verbosity {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // Cassandra's driver tells every connection that it loses; the store tells what comes of it.
    let driver_level = if verbosity == 0 { LevelFilter::OFF } else { level };
    Targets::new().with_default(level).with_target("scylla", driver_level)
}

/// Logs to standard error; returns what changes how much.
pub(crate) fn start_log(verbosity: u8) -> guira_server::VerbosityHook {
    let (filter, handle) = tracing_subscriber::reload::Layer::new(lines_for(verbosity.into()));
    let is_terminal = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(is_terminal).with_target(false);
    // Fails only if there is a logger already: then that one it is.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    std::sync::Arc::new(move |verbosity| drop(handle.reload(lines_for(verbosity))))
}

impl Plan {
    fn of(options: &Options) -> Result<Self, String> {
        refuse(options)?;
        let extended = extended::parse(&options.extended)?;
        let memory_limit = options.memory_limit.saturating_mul(MIB);
        let item_len_max = size_bytes(&options.max_item_size)
            .ok_or_else(|| format!("-I {}: not a size; write for instance 512k or 4m", options.max_item_size))?;
        check(item_len_max >= ITEM_LEN_MIN, || format!("-I {}: at least 1k", options.max_item_size))?;
        check(item_len_max <= ITEM_LEN_MAX, || format!("-I {}: at most 1024m", options.max_item_size))?;
        check(item_len_max <= memory_limit / 2, || {
            let needed = (2 * item_len_max).div_ceil(MIB);
            format!(
                "-m {} is too small for items of {}: give at least -m {needed}, or lower -I",
                options.memory_limit, options.max_item_size
            )
        })?;
        check(options.threads > 0, || "-t 0: at least one thread is needed".into())?;
        check(options.threads <= 1024, || format!("-t {}: at most 1024 threads", options.threads))?;
        check(options.conn_limit > 0, || "-c 0: at least one connection is needed".into())?;
        check(options.max_reqs_per_event > 0, || "-R 0: at least 1 is needed".into())?;
        check(options.slab_growth_factor.is_none_or(|factor| factor > 1.0), || "-f: must be greater than 1".into())?;
        check(options.slab_min_size != Some(0), || "-n 0: at least 1 byte is needed".into())?;
        let user = match &options.user {
            Some(name) if user::is_root() => Some(user::find(name)?),
            _ => None,
        };
        let settings = settings(options, &extended, memory_limit, item_len_max)?;
        let warnings = warnings(options, &extended);
        Ok(Self { settings, memory_limit, user, warnings })
    }
}

fn check(holds: bool, line: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(line()) }
}

/// What memcached has and Guira does not.
fn refuse(options: &Options) -> Result<(), String> {
    check(!options.enable_sasl, || "-S: SASL needs the binary protocol, which is not supported: use -Y".into())?;
    check(!options.enable_ssl, || "-Z: TLS is not supported yet: put a TLS proxy in front".into())?;
    match options.protocol.as_str() {
        "ascii" | "auto" => Ok(()),
        "binary" => Err("-B binary: the deprecated binary protocol is not supported: use ascii or auto".into()),
        other => Err(format!("-B {other}: no such protocol: use ascii or auto")),
    }
}

fn warnings(options: &Options, extended: &Extended) -> Vec<String> {
    let mut warnings = Vec::new();
    if user::is_root() && options.user.is_none() {
        warnings.push("running as root: -u <user> gives that up once the ports are open".to_owned());
    }
    let mut ignored: Vec<String> = extended.ignored.iter().map(|name| format!("-o {name}")).collect();
    ignored.extend(options.napi_ids.map(|_| "-N".to_owned()));
    if options.engine != "memc3" {
        // The other engines have chunk sizes of their own.
        ignored.extend(options.slab_growth_factor.map(|_| "-f".to_owned()));
        ignored.extend(options.slab_min_size.map(|_| "-n".to_owned()));
    }
    if !ignored.is_empty() {
        warnings.push(format!("accepted without effect: {}", ignored.join(", ")));
    }
    warnings
}

fn settings(
    options: &Options,
    extended: &Extended,
    memory_limit: usize,
    item_len_max: usize,
) -> Result<Settings, String> {
    let mut listen = Vec::new();
    for list in &options.listen {
        listen.extend(ListenAddress::parse_list(list)?);
    }
    let port = |flag: &str, port: i32| match port {
        0 => Ok(None),
        -1 => Ok(Some(0)),
        1..=65535 => Ok(Some(port as u16)),
        _ => Err(format!("{flag} {port}: a port is a number up to 65535 (0: off)")),
    };
    let auth = options.auth_file.as_deref().map(auth_file).transpose()?.map(Credentials::new);
    let (tcp_port, udp_port) = (port("-p", options.port)?, port("-U", options.udp_port)?);
    let cp_port = port("--cp-port", options.cp_port)?;
    if let Some(number) = cp_port {
        check_cp_port(number, tcp_port, &listen)?;
        check(auth.is_none(), || "-Y does not go with --cp-port: CPSERVER's protocol cannot authenticate".into())?;
        check(options.unix_socket.is_none(), || {
            "--cp-port does not go with -s: a Unix socket stands instead of ports".into()
        })?;
    }
    check(auth.is_none() || udp_port.is_none(), || "-Y does not go with -U: UDP cannot authenticate".into())?;
    let unix_mask = u32::from_str_radix(&options.unix_mask, 8)
        .ok()
        .filter(|mask| *mask <= 0o777)
        .ok_or_else(|| format!("-a {}: write an octal mode up to 777", options.unix_mask))?;
    let metrics = match &options.metrics {
        Some(text) => Some(address(text)?),
        None => None,
    };
    let buffer_len = (memory_limit / BUFFER_SHARE).max(BUFFER_LEN_MIN + 2 * item_len_max);
    let delimiter = match options.delimiter.map(u8::try_from) {
        None => None,
        Some(Ok(byte)) if byte.is_ascii_graphic() => Some(byte),
        Some(_) => return Err("-D: write one ASCII character, such as :".into()),
    };
    let defaults = Settings::default();
    Ok(Settings {
        listen,
        tcp_port,
        cp_port,
        udp_port,
        unix_socket: options.unix_socket.as_deref().map(absolute).transpose()?,
        unix_mask,
        backlog: options.listen_backlog,
        threads: options.threads,
        connections_max: options.conn_limit,
        connections_max_fast: extended.maxconns_fast,
        batches_per_turn_max: options.max_reqs_per_event,
        idle_timeout: extended.idle_timeout,
        protocol: guira_memcache::Settings {
            item_len_max,
            cas_enabled: !options.disable_cas,
            flush_enabled: !options.disable_flush_all,
            dump_enabled: !options.disable_dumping,
            watch_enabled: !options.disable_watch,
            shutdown_enabled: options.enable_shutdown,
            auth,
        },
        input_len_max: extended.read_buf_mem_limit.unwrap_or(buffer_len),
        output_len_max: buffer_len,
        watcher_queue_len_max: extended.watcher_logbuf_size.unwrap_or(defaults.watcher_queue_len_max),
        metrics,
        prefix_stats: delimiter.is_some(),
        track_sizes: extended.track_sizes,
        shown: Shown {
            verbosity: options.verbose.into(),
            evictions: !options.disable_evictions,
            growth_factor: options.slab_growth_factor.unwrap_or(defaults.shown.growth_factor),
            chunk_size_min: options.slab_min_size.unwrap_or(defaults.shown.chunk_size_min),
            prefix_delimiter: delimiter.unwrap_or(defaults.shown.prefix_delimiter),
            memory_file: options.memory_file.as_deref().map(absolute).transpose()?,
        },
        ..defaults
    })
}

/// CPSERVER's port is bound on all hosts of `-l`, so none of them may have it for memcached's protocol.
fn check_cp_port(number: u16, tcp_port: Option<u16>, listen: &[ListenAddress]) -> Result<(), String> {
    // 0 is any free port, and without -p the ports of -l are not bound.
    let Some(tcp_port) = tcp_port.filter(|_| number != 0) else { return Ok(()) };
    if let Some(taken) = listen.iter().find(|address| address.port == Some(number)) {
        let host = taken.host.as_deref().unwrap_or("*");
        let shown = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        return Err(format!(
            "--cp-port {number}: -l {shown}:{number} has that port for memcached's protocol: write another with --cp-port"
        ));
    }
    let uses_tcp_port = listen.is_empty() || listen.iter().any(|address| address.port.is_none());
    check(!uses_tcp_port || number != tcp_port, || format!("--cp-port {number}: -p has that port: choose another"))
}

fn auth_file(path: &Path) -> Result<AuthFile, String> {
    let text = std::fs::read(path).map_err(|error| {
        format!("-Y {}: cannot be read ({error}): give a file of user:password lines", path.display())
    })?;
    AuthFile::parse(&text).map_err(|error| format!("-Y {}: {error}", path.display()))
}

/// What SIGHUP does: the auth file, if there is one, is read again. A bad one changes nothing.
fn reload(path: Option<&Path>, credentials: Option<Credentials>) -> Result<impl Fn() + Send + 'static, String> {
    let path = path.map(absolute).transpose()?;
    Ok(move || match (&path, &credentials) {
        (Some(path), Some(credentials)) => match auth_file(path) {
            Ok(file) => {
                credentials.replace(file);
                tracing::info!("SIGHUP: {} is loaded again", path.display());
            }
            Err(line) => tracing::warn!("SIGHUP: {line}; what was loaded before holds"),
        },
        _ => tracing::info!("SIGHUP: nothing to load again"),
    })
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let whole = if text.contains(':') { text.to_owned() } else { format!("127.0.0.1:{text}") };
    let mut found = whole.to_socket_addrs().map_err(|_| format!("--metrics {text}: write address:port"))?;
    found.next().ok_or_else(|| format!("--metrics {text}: the host is unknown"))
}

/// The daemon leaves the folder it was started in.
fn absolute(path: &Path) -> Result<std::path::PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_found_before_anything_is_started() {
        let wrong = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            let line = Plan::of(&options).err().expect("refused");
            assert_eq!(line.lines().count(), 1, "{line}");
            line
        };
        assert!(wrong(|options| options.memory_limit = 1).contains("give at least -m 2"));
        assert!(wrong(|options| options.threads = 0).contains("-t"));
        assert!(wrong(|options| options.port = 70000).contains("65535"));
        assert!(wrong(|options| options.cp_port = 65536).contains("--cp-port 65536"));
        assert!(wrong(|options| options.cp_port = options.port).contains("-p has that port"));
        assert!(wrong(|options| (options.cp_port, options.unix_socket) = (1, Some("/x".into()))).contains("-s"));
        assert!(wrong(|options| options.protocol = "binary".into()).contains("not supported"));
        assert!(wrong(|options| options.extended = vec!["ext_path=/x:1g".into()]).contains("extstore"));
        assert!(wrong(|options| options.unix_mask = "9".into()).contains("octal"));
        assert!(wrong(|options| options.auth_file = Some("/nonexistent".into())).contains("-Y"));
        assert!(Plan::of(&Options::default()).is_ok());
    }

    #[test]
    fn cpservers_port_is_none_of_memcacheds() {
        let listen = |text: &str| ListenAddress::parse_list(text).expect("addresses");
        let refused = |tcp_port, text| check_cp_port(5000, tcp_port, &listen(text)).err();
        for (text, named) in [
            ("127.0.0.1:5000", "-l 127.0.0.1:5000 has"),
            ("127.0.0.1,*:5000", "-l *:5000 has"),
            ("[::1]:5000", "-l [::1]:5000 has"),
        ] {
            let line = refused(Some(11211), text).expect(text);
            assert!(line.contains(named) && line.contains("write another with --cp-port"), "{line}");
        }
        for text in ["", "127.0.0.1", "127.0.0.1:5001,127.0.0.2"] {
            assert!(refused(Some(5000), text).expect(text).contains("-p has that port"));
        }
        // Nothing listens there.
        assert_eq!(refused(Some(5000), "127.0.0.1:5001"), None);
        assert_eq!(refused(None, "127.0.0.1:5000"), None);
        assert_eq!(check_cp_port(0, Some(0), &listen("127.0.0.1:0")), Ok(()));
    }
}
