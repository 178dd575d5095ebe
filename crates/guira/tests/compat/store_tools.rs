//! `guira store`, run as its users run it: nothing is lost on the way through a file or a copy, damage is found, and nothing is
//! put where something is.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    condition::wait_for,
    connection::{Connection, Heard},
    server::{Ended, Process, Program, Server},
};

/// A folder for stores, copies and files.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("a path in text").to_owned()
    }

    fn store(&self, name: &str) -> String {
        format!("rocksdb:{}", self.text(name))
    }

    /// A server before a store; `os` is enough where no process is killed by a power cut.
    fn serve(&self, name: &str) -> Server {
        Server::start(Program::Guira, &["-m", "80", "-t", "2", "--store", &self.store(name), "--durability", "os"])
    }

    /// A store with `count` items, and some that are dead.
    fn fill(&self, name: &str, count: usize) {
        let server = self.serve(name);
        let mut client = server.connect();
        client.expect(b"set flushed 0 0 1\r\nx\r\n", b"STORED\r\n");
        client.expect(b"flush_all\r\n", b"OK\r\n");
        for key in 0..count {
            let value = value_of(key);
            let head = format!("ms key{key} {} F{key} T4000\r\n", value.len());
            client.expect(&[head.as_bytes(), &value, b"\r\n"].concat(), b"HD\r\n");
        }
        client.expect(b"set binary 7 0 6\r\n\0\r\n\xff\x80\n\r\n", b"STORED\r\n");
        stop(server);
    }
}

fn value_of(key: usize) -> Vec<u8> {
    // Incompressible enough to take blocks.
    (0..key % 900).flat_map(|at| ((key * 2_654_435_761 + at * 40_503) as u32).to_le_bytes()).collect()
}

fn stop(mut server: Server) {
    server.process().signal(Signal::TERM);
    assert!(server.process().wait().success());
}

fn tool(arguments: &[&str]) -> Ended {
    let mut command = Command::new(Program::Guira.path());
    command.arg("store").args(arguments).stdin(Stdio::null());
    Process::start(command).end()
}

#[track_caller]
fn does(arguments: &[&str]) -> String {
    let ended = tool(arguments);
    assert!(ended.status.success(), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    ended.stdout
}

/// Fails with one line at its end that says so.
#[track_caller]
fn refuses(arguments: &[&str], line: &str) {
    let ended = tool(arguments);
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(!ended.status.success() && last.contains(line), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
}

/// Everything about all items of `fill`, but for seconds that go by.
fn look(server: &Server, count: usize, with_versions: bool) -> Vec<u8> {
    let mut client = server.connect();
    let flags = if with_versions { "c f v" } else { "f v" };
    let keys = (0..count).map(|key| format!("mg key{key} {flags}\r\n")).collect::<String>();
    let all = format!("{keys}mg binary {flags} t\r\nmg flushed v\r\nmn\r\n");
    match client.converse(all.as_bytes(), b"MN\r\n") {
        Heard::Answer(answer) => answer,
        other => panic!("{other:?}"),
    }
}

const ITEMS: usize = 1_500;

#[test]
fn items_go_through_a_dump_a_memory_file_and_a_copy_and_are_what_they_were() {
    let place = Place::new();
    place.fill("store", ITEMS);
    let server = place.serve("store");
    let before = look(&server, ITEMS, true);
    assert!(before.ends_with(b"EN\r\nMN\r\n") && before.len() > 1_000_000);
    stop(server);
    let (store, file) = (place.store("store"), place.text("file"));

    // An item that was flushed and one of another kind besides, at most.
    let told = does(&["stats", &store]);
    let estimate = told.lines().find_map(|line| line.strip_prefix("records_estimated")?.trim().parse::<usize>().ok());
    assert!(estimate.is_some_and(|estimate| (ITEMS..ITEMS + 3).contains(&estimate)), "{told}");
    let told = does(&["stats", &store, "--exact", "--json"]);
    assert!(told.contains(&format!("\"items\":{}", ITEMS + 1)) && told.contains("\"generation\":1"), "{told}");
    assert!(does(&["check", &store]).contains("; 0 defects"));
    does(&["dump", &store, &file]);
    does(&["load", &place.store("loaded"), &file]);
    let server = place.serve("loaded");
    assert!(look(&server, ITEMS, true) == before, "a dump that was loaded");
    stop(server);
    refuses(&["load", &place.store("loaded"), &file], "has items already");
    does(&["load", &place.store("loaded"), &file, "--merge"]);
    assert!(does(&["check", &place.store("loaded")]).contains("; 0 defects"));

    // To a pipe and from one.
    let pipe = format!(
        "{0} store dump {store} - | {0} store load {1} -",
        Program::Guira.path().display(),
        place.store("piped")
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &pipe]).stdin(Stdio::null());
    assert!(Process::start(shell).end().status.success());
    let server = place.serve("piped");
    assert!(look(&server, ITEMS, true) == before, "a dump through a pipe");
    stop(server);

    // Without a store.
    let server = Server::start(Program::Guira, &["-m", "80", "-e", &file]);
    assert!(look(&server, ITEMS, true) == before, "a dump as a memory file");
    stop(server);
    does(&["load", &place.store("saved"), &file]);
    let server = place.serve("saved");
    assert!(look(&server, ITEMS, true) == before, "a memory file in a store");
    stop(server);

    let untouched = listing(&place.path("store"));
    does(&["backup", &store, &place.text("copy")]);
    assert_eq!(listing(&place.path("store")), untouched, "a store that is copied is not changed");
    // A slash at the end is no other folder, and what a restore has left that was killed is no obstacle.
    fs::create_dir_all(place.path("restored.next/whole")).expect("a folder");
    fs::write(place.path("restored.next/guira-under-way"), "").expect("a file");
    fs::write(place.path("restored.next/whole/CURRENT"), "half").expect("a file");
    does(&["restore", &place.text("copy"), &format!("{}/", place.store("restored"))]);
    assert!(!place.path("restored.next").exists());
    let server = place.serve("restored");
    assert!(look(&server, ITEMS, true) == before, "a copy");
    stop(server);
}

/// Writes one number after the other under a key of its own until it is killed; tells what was acknowledged.
fn count_up(mut connection: Connection, client: usize, acknowledged: &AtomicU64) {
    for number in 1.. {
        let text = number.to_string();
        connection.send(format!("set client{client} 0 0 {}\r\n{text}\r\n", text.len()).as_bytes());
        match connection.hear(b"\r\n") {
            Heard::Answer(answer) if answer == b"STORED\r\n" => acknowledged.store(number, SeqCst),
            Heard::Closed(_) => return,
            other => panic!("{other:?}"),
        }
    }
}

/// Without an end of their server clients would go on for ever, also where the test has failed.
struct KilledAtLast<'a>(&'a mut Server);

impl Drop for KilledAtLast<'_> {
    fn drop(&mut self) {
        self.0.process().signal(Signal::KILL);
    }
}

fn number_at(client: &mut Connection, name: &str) -> u64 {
    let answer = client.ask(format!("get {name}\r\n").as_bytes(), b"END\r\n");
    let text = String::from_utf8(answer).expect("text");
    text.lines().nth(1).and_then(|line| line.parse().ok()).unwrap_or(0)
}

#[test]
fn a_copy_of_a_store_that_serves_has_what_was_acknowledged_before_and_versions_go_on_above() {
    const CLIENTS: usize = 4;
    let place = Place::new();
    let mut server = place.serve("store");
    let store = place.store("store");
    let acknowledged: Vec<_> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    let sums = || acknowledged.iter().map(|number| number.load(SeqCst)).collect::<Vec<_>>();
    let mut before = Vec::new();
    thread::scope(|scope| {
        for (client, acknowledged) in acknowledged.iter().enumerate() {
            let connection = server.connect();
            scope.spawn(move || count_up(connection, client, acknowledged));
        }
        let _killed = KilledAtLast(&mut server);
        for copy in ["one", "two"] {
            let goal: Vec<_> = sums().iter().map(|number| number + 50).collect();
            wait_for("clients are at work", || sums().iter().zip(&goal).all(|(now, goal)| now >= goal).then_some(()));
            before.push(sums());
            does(&["backup", &store, &place.text(copy)]);
        }
        refuses(&["backup", &store, &place.text("one")], "is there already");
        refuses(&["backup", &store, "/proc/nothing/here"], "no copy in /proc/nothing/here");
        for command in ["stats", "check", "dump"] {
            refuses(&[command, &store], "is in use by a server");
        }
        let goal: Vec<_> = sums().iter().map(|number| number + 50).collect();
        wait_for("they go on", || sums().iter().zip(&goal).all(|(now, goal)| now >= goal).then_some(()));
    });
    let after = sums();
    server.process().wait();
    // What a restart gives is above what the copies have reserved.
    let server = place.serve("store");
    let last_version = set_version(&mut server.connect());
    stop(server);
    for (copy, before) in ["one", "two"].iter().zip(&before) {
        let name = format!("{copy} restored");
        does(&["restore", &place.text(copy), &place.store(&name)]);
        // What rots in one place is not to rot in two.
        assert_eq!(largest_table(&place.path(&name)).metadata().expect("a file").nlink(), 1);
        let server = place.serve(&name);
        let mut client = server.connect();
        for (at, (before, after)) in before.iter().zip(&after).enumerate() {
            let number = number_at(&mut client, &format!("client{at}"));
            assert!((*before..=*after + 1).contains(&number), "client{at}: {before} before, {number} in the copy");
        }
        let version = set_version(&mut client);
        assert!(version > last_version, "{version} after {last_version}");
        stop(server);
    }
    // A server that was killed has left a socket: the store is anybody's.
    does(&["backup", &store, &place.text("three")]);
    let server = place.serve("store");
    does(&["backup", &store, &place.text("four")]);
    stop(server);
}

/// Others cannot so much as connect; and if somebody gave them the right, the server asks who they are.
#[test]
fn copies_are_made_for_nobody_else() {
    const NOBODY: u32 = 65_534;
    let place = Place::new();
    if fs::metadata(place.0.path()).expect("a folder").uid() != 0 {
        println!("not tested: only root can be somebody else");
        return;
    }
    let server = place.serve("store");
    // Where everybody can read and write, the program included.
    let everybody = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o777)).expect("a file of ours");
    let program = place.path("guira");
    fs::copy(Program::Guira.path(), &program).expect("the program");
    everybody(place.0.path());
    everybody(&program);
    let asks = |to: &str| {
        let mut command = Command::new(&program);
        command.args(["store", "backup", &place.store("store"), &place.text(to)]).uid(NOBODY).gid(NOBODY);
        Process::start(command).end()
    };
    let ended = asks("one");
    assert!(!ended.status.success() && ended.stderr.contains("Permission denied"), "{}", ended.stderr);
    everybody(&place.path("store/guira.sock"));
    let ended = asks("two");
    assert!(!ended.status.success(), "{}", ended.stdout);
    assert!(ended.stderr.contains("only for the user that the server runs as"), "{}", ended.stderr);
    assert!(!place.path("one").exists() && !place.path("two").exists());
    does(&["backup", &place.store("store"), &place.text("three")]);
    stop(server);
}

/// Sets something, and tells the version that it has got.
fn set_version(client: &mut Connection) -> u64 {
    version_in(std::str::from_utf8(&client.ask(b"ms client0 1 c\r\nx\r\n", b"\r\n")).expect("text"))
}

fn version_in(answer: &str) -> u64 {
    let found = answer.split([' ', '\r']).find_map(|word| word.strip_prefix('c')?.parse().ok());
    found.unwrap_or_else(|| panic!("no version in {answer:?}"))
}

/// The largest file of items in a store.
fn largest_table(store: &Path) -> PathBuf {
    let files = fs::read_dir(store).expect("a store").map(|entry| entry.expect("an entry").path());
    let tables = files.filter(|path| path.extension().is_some_and(|extension| extension == "sst"));
    tables.max_by_key(|path| path.metadata().expect("a file").len()).expect("a table")
}

/// Names, lengths and times of everything in a folder.
fn listing(folder: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let mut all: Vec<_> = entries
        .map(|entry| (entry.path(), entry.metadata().expect("there")))
        .map(|(path, file)| (path, file.len(), file.modified().expect("a time")))
        .collect();
    all.sort();
    all
}

#[test]
fn damage_is_found_and_goes_nowhere() {
    let place = Place::new();
    place.fill("store", ITEMS);
    let store = place.store("store");
    // One that a server makes has all items in tables, none in a log.
    let server = place.serve("store");
    does(&["backup", &store, &place.text("copy")]);
    stop(server);
    let copy = place.store("copy");
    let before = listing(&place.path("copy"));
    assert!(does(&["check", &copy]).contains("; 0 defects"));
    does(&["stats", &copy, "--exact"]);
    assert_eq!(listing(&place.path("copy")), before, "looking changes nothing");
    // Not the link that the store has too.
    let table = largest_table(&place.path("copy"));
    let mut bytes = fs::read(&table).expect("a table");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::remove_file(&table).expect("a link");
    fs::write(&table, bytes).expect("written");
    refuses(&["check", &copy], "is damaged (");
    refuses(&["dump", &copy, &place.text("file")], "nothing was dumped");
    refuses(&["restore", &place.text("copy"), &place.store("back")], "nothing was restored");
    assert!(!place.path("file").exists() && !place.path("file.next").exists() && !place.path("back").exists());
    assert!(does(&["check", &store]).contains("; 0 defects"));
}

#[test]
fn what_cannot_be_done_is_one_line_and_changes_nothing() {
    let place = Place::new();
    place.fill("store", 50);
    let (store, file) = (place.store("store"), place.text("file"));
    does(&["dump", &store, &file]);
    does(&["backup", &store, &place.text("copy")]);
    fs::create_dir(place.path("folder")).expect("a folder");
    fs::write(place.path("folder/letter"), "Dear all").expect("a file");
    let mut cut = fs::read(&file).expect("a dump");
    cut.truncate(cut.len() - 1);
    fs::write(place.path("cut"), &cut).expect("a file");
    let mut changed = fs::read(&file).expect("a dump");
    changed[200] ^= 1;
    fs::write(place.path("changed"), &changed).expect("a file");
    fs::create_dir(place.path("taken.next")).expect("a folder");
    fs::write(place.path("taken.next/letter"), "Dear all").expect("a file");
    let (folder, nothing) = (place.store("folder"), place.store("nothing"));
    for (arguments, line) in [
        (["check", "memory"].as_slice(), "write which store, rocksdb:PATH"),
        (&["check", &nothing], "is no store"),
        (&["stats", &folder], "is no store"),
        (&["dump", &folder, "-"], "is no store"),
        (&["dump", &store, &file], "is there already"),
        (&["dump", &store, "/proc/nothing/here"], "/proc/nothing/here"),
        (&["dump", &store, "/dev/full"], "is there already"),
        (&["load", &nothing, &place.text("letter")], "letter"),
        (&["load", &nothing, &place.text("folder")], "folder is a folder"),
        (&["load", &nothing, &place.text("folder/letter")], "is no memory file of guira's"),
        (&["load", &nothing, &place.text("cut")], "is cut short or damaged (its end); nothing was loaded"),
        (&["load", &folder, &file], "has something else in it"),
        (&["load", &store, &file], "has items already"),
        (&["backup", &nothing, &place.text("other")], "is no store"),
        (&["backup", &folder, &place.text("other")], "is no store"),
        (&["backup", &store, &place.text("folder")], "is there already"),
        (&["restore", &place.text("folder"), &nothing], "is no store"),
        (&["restore", &place.text("copy"), &folder], "is there already"),
        (&["restore", &place.text("copy"), &store], "is there already"),
        (&["backup", &store, &place.text("taken")], "taken.next is there already"),
        (&["restore", &place.text("copy"), &place.store("taken")], "taken.next is there already"),
        (&["restore", &place.text("copy"), &place.store("no/such")], "/no: No such file"),
        (&["restore", &place.text("copy"), "here"], "write which store, rocksdb:PATH"),
    ] {
        refuses(arguments, line);
    }
    assert!(!place.path("nothing").exists() && !place.path("other").exists());
    refuses(&["load", &nothing, &place.text("changed")], "is cut short or damaged (items); nothing was loaded");
    assert!(does(&["check", &store]).contains("51 items"));
}

#[test]
fn a_server_and_a_tool_do_not_have_a_store_together() {
    let place = Place::new();
    place.fill("store", 10);
    let server = place.serve("store");
    refuses(&["load", &place.store("store"), "/dev/null"], "is no memory file of guira's");
    refuses(&["check", &place.store("store")], "is in use by a server");
    refuses(&["restore", &place.text("store"), &place.store("other")], "is in use by a server");
    stop(server);
    assert!(!place.path("store/guira.sock").exists());
    does(&["check", &place.store("store")]);
}
