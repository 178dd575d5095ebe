//! A server process under test: Guira, or Debian's memcached as its peer.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    os::unix::{fs::MetadataExt, process::ExitStatusExt},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU16, Ordering::Relaxed},
    thread,
};

use guira_bench::server::listening;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{condition::wait_for, connection::Connection};

/// Whose process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// The program under test.
    Guira,
    /// Debian's memcached.
    Memcached,
}

impl Program {
    /// The file to run.
    pub fn path(self) -> PathBuf {
        match self {
            Self::Guira => env::var_os("GUIRA_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_guira").into()).into(),
            Self::Memcached => "memcached".into(),
        }
    }

    /// Whether it takes memcached's flags directly, because it is called `memcached`.
    pub fn is_memcached(self) -> bool {
        self.path().file_name().is_some_and(|name| name == "memcached")
    }

    /// The program with `arguments`, as one would type them behind `guira serve` or `memcached`.
    pub fn command(self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path());
        if self.is_memcached() {
            // memcached refuses to run as root unless told to.
            if fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
                command.args(["-u", "root"]);
            }
        } else {
            command.arg("serve");
        }
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs the program to its end, which has to come by itself.
    pub fn ends(self, arguments: &[&str]) -> Ended {
        Process::start(self.command(arguments)).end()
    }
}

/// What a program left behind.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// A port that nobody has now.
pub fn free_port() -> u16 {
    free_ports(1)
}

/// The first of so many ports, side by side, that nobody has now, no other test was given, and the system gives nobody by itself: that is from 32,768 on.
pub fn free_ports(count: u16) -> u16 {
    const FIRST: u16 = 20_000;
    const LEN: u16 = 12_000;
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let address = |port: u16| (Ipv4Addr::LOCALHOST, port);
    let is_free = |port| TcpListener::bind(address(port)).is_ok() && UdpSocket::bind(address(port)).is_ok();
    // Other processes begin elsewhere.
    let begin = std::process::id() as u16 % LEN;
    let next = || FIRST + begin.wrapping_add(GIVEN.fetch_add(count, Relaxed)) % LEN;
    let fits = |first: &u16| first + count <= FIRST + LEN && (0..count).all(|at| is_free(first + at));
    let first = std::iter::repeat_with(next).take(1_000).find(fits);
    first.expect("so many are free side by side")
}

/// A process that is killed with its handle; what it says is kept.
pub struct Process {
    child: Child,
    folder: TempDir,
}

impl Process {
    /// Starts `command`, keeping what it says.
    pub fn start(mut command: Command) -> Self {
        let folder = tempfile::tempdir().expect("a folder for what it says");
        let file = |name| File::create(folder.path().join(name)).expect("a file for what it says");
        let child = command.stdout(file("stdout")).stderr(file("stderr")).spawn();
        let child = child.unwrap_or_else(|error| {
            panic!("{:?}: {error}; `make test` installs what the tests need", command.get_program())
        });
        Self { child, folder }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it listens on a TCP port.
    pub fn listens_on(&self, port: u16) -> bool {
        listening::listens(self.pid(), port)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("a signal to a child of ours");
    }

    /// Stops it in its tracks (SIGSTOP), all its threads, until it is sent SIGCONT.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid());
        let is_still = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // Behind the name, which may be anything.
            stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
        };
        wait_for("all its threads stop", || {
            fs::read_dir(&tasks).expect("/proc of a child of ours").flatten().all(is_still).then_some(())
        });
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the state of a child of ours")
    }

    /// Waits until it ends.
    pub fn wait(&mut self) -> ExitStatus {
        wait_for("the process ends", || self.ended())
    }

    /// Waits until it ends, and keeps what it said.
    pub fn end(mut self) -> Ended {
        let status = self.wait();
        Ended { status, stdout: self.said("stdout"), stderr: self.complaints() }
    }

    /// What it complained about so far.
    pub fn complaints(&self) -> String {
        self.said("stderr")
    }

    fn said(&self, name: &str) -> String {
        let bytes = fs::read(self.folder.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Memory it has in use now (VmRSS), in bytes; without the pages of the program's own file, which are the system's cache of
    /// it, and many in a build that is not optimised.
    pub fn resident_bytes(&self) -> u64 {
        self.memory_bytes("VmRSS:") - self.memory_bytes("RssFile:")
    }

    /// The most memory it ever had in use (VmHWM), in bytes; without the same.
    pub fn peak_resident_bytes(&self) -> u64 {
        self.memory_bytes("VmHWM:") - self.memory_bytes("RssFile:")
    }

    fn memory_bytes(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("/proc of a child of ours");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
        kibibytes * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            // A test that failed because its server crashed must say so.
            eprintln!("process {}: ended {:?}; it said: {}", self.pid(), self.ended(), self.complaints());
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A server that answers on a TCP port of its own.
pub struct Server {
    process: Process,
    address: SocketAddr,
    _store: Option<TempDir>,
}

/// The kind of store to put behind every server that a test says nothing about: the test itself is the same.
fn store_behind(program: Program, arguments: &[&str]) -> Option<(TempDir, String)> {
    let kind = env::var("GUIRA_TEST_STORE").ok().filter(|_| program == Program::Guira)?;
    if arguments.iter().any(|argument| ["-e", "-M", "--store"].contains(argument)) {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder for the store");
    let store = format!("{kind}:{}", folder.path().join("store").to_str().expect("a path in text"));
    Some((folder, store))
}

impl Server {
    /// Starts `program` on one thread with 64 MB and `arguments` besides, and waits until it listens.
    pub fn start(program: Program, arguments: &[&str]) -> Self {
        Self::start_prepared(program, arguments, |_| {})
    }

    /// The same, with its command prepared further.
    pub fn start_prepared(program: Program, arguments: &[&str], prepare: impl Fn(&mut Command)) -> Self {
        // Somebody else may take the port between our look and the server's start.
        for _ in 0..5 {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
            if let Some(server) = Self::try_start(address, program, arguments, &prepare) {
                return server;
            }
        }
        panic!("{program:?} does not start with {arguments:?}");
    }

    /// The same at `address`; `None` if it ends instead of listening there.
    pub fn start_at(address: SocketAddr, program: Program, arguments: &[&str]) -> Option<Self> {
        Self::try_start(address, program, arguments, &|_: &mut Command| {})
    }

    fn try_start(
        address: SocketAddr,
        program: Program,
        arguments: &[&str],
        prepare: &dyn Fn(&mut Command),
    ) -> Option<Self> {
        let port_text = address.port().to_string();
        let mut all = vec!["-l", "127.0.0.1", "-p", &port_text, "-U", "0", "-t", "1", "-m", "64"];
        all.extend(arguments);
        let (folder, store) = store_behind(program, arguments).unzip();
        if let Some(store) = &store {
            // So that the engine has what it has without one.
            if !arguments.contains(&"-m") {
                all.extend(["-m", "80"]);
            }
            all.extend(["--store-memory", "16", "--store", store, "--durability", "os"]);
        }
        let mut command = program.command(&all);
        prepare(&mut command);
        let mut process = Process::start(command);
        let listens = wait_for("the server listens or ends", || match process.ended() {
            Some(status) => {
                eprintln!("{program:?} {all:?}: {status}: {}", process.complaints());
                Some(false)
            }
            None => process.listens_on(address.port()).then_some(true),
        });
        listens.then_some(Self { process, address, _store: folder })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A new connection to it.
    pub fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// The process behind it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Panics unless the process is still there.
    pub fn assert_alive(&mut self) {
        if let Some(status) = self.process.ended() {
            let how = status.signal().map_or_else(|| status.to_string(), |signal| format!("signal {signal}"));
            panic!("the server ended ({how}): {}", self.process.complaints());
        }
    }

    /// One number out of `stats`.
    pub fn stat(&self, name: &str) -> u64 {
        let text = self.connect().ask(b"stats\r\n", b"END\r\n");
        let text = String::from_utf8_lossy(&text);
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        value
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or_else(|| panic!("no number {name} in stats:\n{text}"))
    }
}

/// Runs a client to its end; panics with what it printed unless it succeeds.
pub fn client(program: impl Into<OsString>, arguments: &[&str]) -> String {
    let program = program.into();
    let output = Command::new(&program).args(arguments).stdin(Stdio::null()).output();
    let output =
        output.unwrap_or_else(|error| panic!("{program:?}: {error}; `make test` installs what the tests need"));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?} {arguments:?}: {}\n{stdout}{stderr}", output.status);
    stdout
}
