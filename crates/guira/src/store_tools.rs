//! `guira store`: looks at stores, copies them, fills them. What is done is in crate `guira-persist`; here it is asked for and
//! told.

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, IsTerminal, Seek, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use guira_loadgen::progress::Progress;
use guira_persist::{
    Durability, MemoryFile,
    backup_socket::{AskError, ask_for_backup},
    dump::{load_records, put_record},
    format::{Head, Writer},
    rocks::{
        BackupError, Findings, OpenError, RocksOptions, RocksStore, Step, StoppedStore, UnixNow, back_up,
        bytes_under_way, folder_bytes, restore,
    },
};
use guira_server::Watch;
use rustix::fs::OFlags;
use serde_json::json;

/// Memory of a store that is loaded into, in bytes.
const LOAD_MEMORY_BYTES: usize = 256 << 20;

/// What follows `store` on the command line.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    tool: Tool,
}

/// What to do.
#[derive(clap::Subcommand, Debug)]
enum Tool {
    /// Tell what a stopped store has
    Stats {
        /// The store: rocksdb:PATH
        store: String,
        /// Read everything, and count what is live, what has expired, what a flush_all has taken and what is damaged
        #[arg(long)]
        exact: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Read everything in a stopped store, or in a copy of one, and tell what is damaged; exit status 0 if nothing is
    Check {
        /// The store: rocksdb:PATH
        store: String,
    },
    /// Write the items of a stopped store to a file, which `guira store load` and `guira serve -e` read
    Dump {
        /// The store: rocksdb:PATH
        store: String,
        /// The file, which must not be there yet; -: standard output
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Load a file of `guira store dump`, or one that `guira serve -e` saved, into a store that nobody serves
    Load {
        /// The store: rocksdb:PATH, made if it is not there
        store: String,
        /// The file; -: standard input
        file: PathBuf,
        /// The store may have items: those in the file replace them
        #[arg(long)]
        merge: bool,
    },
    /// Copy a store, while it serves or not
    Backup {
        /// The store: rocksdb:PATH
        store: String,
        /// A folder that is empty or not there yet
        to: PathBuf,
    },
    /// Check a copy and make a store of it
    Restore {
        /// The copy
        from: PathBuf,
        /// The store to be: rocksdb:PATH, a folder that is empty or not there yet
        store: String,
    },
}

/// Does it, and prints what came of it.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    match &arguments.tool {
        Tool::Stats { store, exact, json } => stats(store, *exact, *json),
        Tool::Check { store } => check(store),
        Tool::Dump { store, file } => dump(store, file),
        Tool::Load { store, file, merge } => load(store, file, *merge),
        Tool::Backup { store, to } => backup(store, to),
        Tool::Restore { from, store } => restore_to(from, store),
    }
}

fn path_of(store: &str) -> Result<&Path, String> {
    match store.strip_prefix("rocksdb:") {
        Some(path) if !path.is_empty() => Ok(Path::new(path)),
        _ => Err(format!("{store}: write which store, rocksdb:PATH")),
    }
}

/// The wall clock, as a server reads it.
fn unix_now() -> UnixNow {
    let watch = Watch::start();
    Arc::new(move || watch.clock_by_now().to_unix_s(watch.now()))
}

fn open(store: &str) -> Result<StoppedStore, String> {
    StoppedStore::open(path_of(store)?, unix_now()).map_err(|error| match error {
        OpenError::InUse => cannot_open(store, &error) + ", or look at a backup of it",
        error => cannot_open(store, &error),
    })
}

fn cannot_open(store: &str, error: &OpenError) -> String {
    match error {
        OpenError::InUse => format!("{store} is in use by a server or another tool: stop that one first"),
        error => format!("{store} {error}"),
    }
}

/// Bytes as people read them.
fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} KB", bytes / 1_000),
        10_000_000..10_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

fn counts(findings: &Findings) -> String {
    let Findings { live, expired, flushed, live_value_bytes, .. } = findings;
    format!("{live} items ({}), {expired} expired, {flushed} flushed", size(*live_value_bytes))
}

/// Reads everything, with a bar.
fn read<E>(
    store: &StoppedStore,
    what: &str,
    visit: impl FnMut(guira_item::Key<'_>, &guira_item::store::Record<&[u8]>) -> Result<(), E>,
) -> Result<Findings, E> {
    let records = store.extent().map_or(0, |extent| extent.records);
    let progress = Progress::new(what, records);
    store.read(visit, |done| progress.at(done))
}

/// The first defects, on standard error.
fn tell_defects(findings: &Findings) {
    for line in &findings.told {
        eprintln!("guira: {}", crate::mistake::one_line(line));
    }
    let more = findings.defects - findings.told.len() as u64;
    if more > 0 {
        eprintln!("guira: and {more} more");
    }
}

/// What is known of a log that has a damaged place, on standard error.
fn tell_log_damage(findings: &Findings) {
    if let Some(line) = &findings.log_damage {
        eprintln!(
            "guira: a log is damaged ({}): changes behind that place are lost; after a power cut they are what was not synced",
            crate::mistake::one_line(line)
        );
    }
}

fn stats(name: &str, exact: bool, as_json: bool) -> Result<(), String> {
    let store = open(name)?;
    let extent = store.extent().map_err(|error| format!("{name}: {error}"))?;
    let state = store.state();
    let findings = if exact {
        let Ok(findings) = read::<std::convert::Infallible>(&store, "reading", |_, _| Ok(()));
        tell_log_damage(&findings);
        tell_defects(&findings);
        Some(findings)
    } else {
        None
    };
    let mut rows = vec![("format", json!(extent.format))];
    match &findings {
        Some(found) => rows.extend([
            ("items", json!(found.live)),
            ("items_value_bytes", json!(found.live_value_bytes)),
            ("records_expired", json!(found.expired)),
            ("records_flushed", json!(found.flushed)),
            ("defects", json!(found.defects)),
        ]),
        None => rows.push(("records_estimated", json!(extent.records))),
    }
    let flush_at = (state.flush_at_unix_s != 0).then_some(state.flush_at_unix_s);
    rows.extend([
        ("generation", json!(state.generation.0)),
        ("flush_at_unix_s", json!(flush_at)),
        ("versions_reserved", json!(state.versions_reserved)),
        ("file_bytes", json!(extent.file_bytes)),
        ("log_bytes", json!(extent.log_bytes)),
        ("files_by_level", json!(extent.files_by_level)),
    ]);
    if as_json {
        let object: serde_json::Map<_, _> = rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        println!("{}", serde_json::Value::Object(object));
    } else {
        for (name, value) in rows {
            let shown = if value.is_null() { "none".to_owned() } else { value.to_string() };
            println!("{name:<20} {shown}");
        }
    }
    Ok(())
}

fn check(name: &str) -> Result<(), String> {
    let store = open(name)?;
    let Ok(findings) = read::<std::convert::Infallible>(&store, "checking", |_, _| Ok(()));
    println!("{name}: {}; {} defects", counts(&findings), findings.defects);
    tell_log_damage(&findings);
    tell_defects(&findings);
    match (findings.defects, &findings.log_damage) {
        (0, None) => Ok(()),
        (0, Some(_)) => Err(format!("{name} is damaged (a log): a server goes on without what is lost")),
        (defects, _) => Err(format!("{name} is damaged ({defects} defects): restore a backup")),
    }
}

/// Why there is no dump.
enum DumpError {
    Io(io::Error),
    Damaged(Findings),
}

impl From<io::Error> for DumpError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn dump(name: &str, file: &Path) -> Result<(), String> {
    let store = open(name)?;
    let state = store.state();
    let head = Head {
        saved_unix_s: (unix_now())(),
        last_version: state.versions_reserved,
        flush_unix_s: state.flush_at_unix_s,
    };
    let mut found = Findings::default();
    let is_stdout = file == Path::new("-");
    let shown = if is_stdout { "standard output".into() } else { file.display().to_string() };
    let dumped = if is_stdout {
        if io::stdout().is_terminal() {
            return Err("a dump is no text for a terminal: name a file for it, or redirect standard output".into());
        }
        let dumped = (|| {
            let mut writer = Writer::begin(BufWriter::new(io::stdout().lock()), &head)?;
            write_items(&store, &mut writer, &mut found)?;
            let (_, mut out) = writer.finish()?;
            Ok(out.flush()?)
        })();
        dumped.map(|()| None)
    } else {
        if fs::symlink_metadata(file).is_ok() {
            return Err(format!("{shown} is there already: choose another file, or remove it"));
        }
        let target = MemoryFile::claim(file).map_err(|error| format!("{shown}: {error}"))?;
        target.save_with(&head, |writer| write_items(&store, writer, &mut found)).map(Some)
    };
    match dumped {
        Ok(saved) => {
            let bytes = saved.map_or_else(String::new, |saved| format!(", {}", size(saved.bytes)));
            tell_log_damage(&found);
            eprintln!(
                "guira: {shown}: {} items{bytes}; {} dead records were left out",
                found.live,
                found.expired + found.flushed
            );
            Ok(())
        }
        Err(DumpError::Io(error)) if is_stdout => Err(format!("{shown}: {error}; the dump is not whole")),
        Err(DumpError::Io(error)) => Err(format!("{shown}: {error}; nothing was kept")),
        Err(DumpError::Damaged(findings)) => {
            tell_defects(&findings);
            let kept = if is_stdout { "the dump is not whole" } else { "nothing was dumped" };
            Err(format!("{name} is damaged ({} defects): {kept}", findings.defects))
        }
    }
}

fn write_items<W: io::Write>(
    store: &StoppedStore,
    writer: &mut Writer<W>,
    found: &mut Findings,
) -> Result<(), DumpError> {
    *found = read(store, "dumping", |key, record| put_record(writer, key, record).map_err(DumpError::Io))?;
    if found.defects > 0 { Err(DumpError::Damaged(found.clone())) } else { Ok(()) }
}

fn load(name: &str, file: &Path, merges: bool) -> Result<(), String> {
    let path = path_of(name)?;
    let shown = if file == Path::new("-") { "standard input".into() } else { file.display().to_string() };
    let source = source(file, &shown)?;
    let unix_now = unix_now();
    let options = RocksOptions::with_memory(LOAD_MEMORY_BYTES, Durability::Os, Arc::clone(&unix_now));
    let items = guira_persist::format::Reader::open(&source)
        .map_err(|error| format!("{shown}: {error}; nothing was loaded"))?
        .len();
    let store = RocksStore::open(path, &options).map_err(|error| cannot_open(name, &error))?;
    if let Some(why) = store.read_only() {
        return Err(format!("{name}: {why}"));
    }
    let progress = Progress::new("loading", items);
    let loaded = load_records(&store, BufReader::new(source), merges, unix_now(), |done| progress.at(done));
    drop(progress);
    let closed = store.shut();
    let loaded = loaded.map_err(|error| match error {
        guira_persist::dump::LoadError::File(..) => format!("{shown}: {error}"),
        error => format!("{name} {error}"),
    })?;
    closed.map_err(|error| format!("{name} was not closed as it should be: {error}"))?;
    let versions = if loaded.has_new_versions { "under new versions" } else { "under their versions" };
    println!(
        "{name}: {} items loaded {versions}, {} had expired, {} went with a flush_all that came due",
        loaded.items, loaded.expired, loaded.flushed
    );
    Ok(())
}

/// A file that can be read in any order: what comes from a pipe goes through one that has no name.
fn source(file: &Path, shown: &str) -> Result<File, String> {
    let given = || {
        let given = match file == Path::new("-") {
            true => File::from(io::stdin().as_fd().try_clone_to_owned()?),
            false => File::open(file)?,
        };
        let is_file = given.metadata()?.is_file();
        io::Result::Ok((given, is_file))
    };
    let (given, is_file) = given().map_err(|error| format!("{shown}: {error}"))?;
    if is_file {
        return Ok(given);
    }
    if file.is_dir() {
        return Err(format!("{shown} is a folder: name a file of `guira store dump`"));
    }
    if given.is_terminal() {
        return Err(format!("{shown} is a terminal: name a file of `guira store dump`"));
    }
    let folder = std::env::temp_dir();
    let mut options = File::options();
    options.read(true).write(true).mode(0o600).custom_flags(OFlags::TMPFILE.bits() as i32);
    let copy = options.open(&folder).and_then(|mut copy| {
        io::copy(&mut &given, &mut copy)?;
        copy.rewind()?;
        Ok(copy)
    });
    copy.map_err(|error| {
        format!("{shown} cannot be kept in {} ({error}): name a file, or another folder in TMPDIR", folder.display())
    })
}

fn backup(name: &str, to: &Path) -> Result<(), String> {
    let path = path_of(name)?;
    let to = std::path::absolute(to).map_err(|error| format!("{}: {error}", to.display()))?;
    let mut bar = Bar::default();
    let made = back_up(path, &to, unix_now(), |step, done, of| bar.at(step, done, of));
    drop(bar);
    let from = match made {
        Ok(()) => "no server had it",
        Err(BackupError::Store(OpenError::InUse)) => {
            let progress = Progress::new("copying", folder_bytes(path));
            let asked = ask_for_backup(path, &to, || progress.at(bytes_under_way(&to)));
            drop(progress);
            asked.map_err(|error| match error {
                AskError::Unreachable(error) => {
                    format!("{name} is in use, by nobody who can be asked for a copy ({error})")
                }
                AskError::Refused(line) => format!("{name}: the server that has it says: {line}"),
            })?;
            "by the server that has it"
        }
        Err(error) => return Err(told(name, &error)),
    };
    println!("{}: {} ({from})", to.display(), size(folder_bytes(&to)));
    Ok(())
}

/// A bar for each step.
#[derive(Default)]
struct Bar(Option<(Step, Progress)>);

impl Bar {
    fn at(&mut self, step: Step, done: u64, of: u64) {
        if self.0.as_ref().is_none_or(|(shown, _)| *shown != step) {
            let what = match step {
                Step::Check => "checking the copy",
                Step::Copy => "copying",
            };
            // One that is done goes before the next one comes.
            self.0 = None;
            self.0 = Some((step, Progress::new(what, of)));
        }
        if let Some((_, progress)) = &self.0 {
            progress.at(done);
        }
    }
}

fn told(name: &str, error: &BackupError) -> String {
    match error {
        BackupError::Store(error) => cannot_open(name, error),
        BackupError::Damaged(findings) => {
            tell_defects(findings);
            format!("{name} is damaged ({} defects): nothing was restored", findings.defects)
        }
        error => error.to_string(),
    }
}

fn restore_to(from: &Path, name: &str) -> Result<(), String> {
    let to = std::path::absolute(path_of(name)?).map_err(|error| format!("{name}: {error}"))?;
    let mut bar = Bar::default();
    let restored = restore(from, &to, unix_now(), |step, done, of| bar.at(step, done, of));
    drop(bar);
    let restored = restored.map_err(|error| told(&from.display().to_string(), &error))?;
    let (findings, state) = (&restored.findings, restored.state);
    tell_log_damage(findings);
    println!("{name}: {}, {}; versions go on from {}", counts(findings), size(restored.bytes), state.versions_reserved);
    if restored.has_no_more_versions {
        eprintln!("guira: the copy is so old that versions run out: clients may hold old ones that come again");
    }
    Ok(())
}
