//! Network namespaces, each held by a process.

use std::{
    env,
    ffi::OsStr,
    fs::File,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    iter, mem,
    os::{fd::AsFd, unix::process::CommandExt},
    process::{Child, ChildStdin, Command, Stdio},
    thread,
};

use rustix::{
    process::{Signal, set_parent_process_death_signal},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

/// Set in a test that runs in a namespace of its own.
const INSIDE: &str = "GUIRA_TEST_IN_NAMESPACE";

/// How a process gets a network namespace: with what root may do, or what anybody may in a user namespace.
const WAYS_IN: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];

/// Where programs are that change networks, for who has not got that in his own.
pub(crate) fn with_system_programs(command: &mut Command) -> &mut Command {
    let path = env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"))
}

/// Runs a program to its end: what it said.
///
/// # Errors
/// What it complained about, if it failed, or what to do if it is not there.
pub fn run(command: &mut Command) -> Result<String, String> {
    run_with(command, Stdio::null())
}

fn run_with(command: &mut Command, input: Stdio) -> Result<String, String> {
    let output = with_system_programs(command).stdin(input).output().map_err(|error| not_run(command, &error))?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{}: {}: {}", name_of(command), output.status, complaints.trim().replace('\n', "; ")))
    }
}

/// A command as one could type it.
fn name_of(command: &Command) -> String {
    let words = iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Why a program was not run, and what to do about it.
pub(crate) fn not_run(command: &Command, error: &io::Error) -> String {
    let program = command.get_program().to_string_lossy();
    let package = match &*program {
        "ovsdb-tool" | "ovsdb-server" | "ovs-vsctl" | "ovs-ofctl" | "ovs-vswitchd" => "openvswitch-switch",
        "ip" => "iproute2",
        "unshare" | "nsenter" | "setpriv" => "util-linux",
        "ethtool" => "ethtool",
        _ => "",
    };
    match error.kind() {
        ErrorKind::NotFound if !package.is_empty() => {
            format!("{program} is not installed (on Debian: apt install {package})")
        }
        _ => format!("{program}: {error}"),
    }
}

/// `ip` with these words, here.
///
/// # Errors
/// It failed.
pub fn ip(words: &str) -> Result<(), String> {
    run(Command::new("ip").args(words.split(' '))).map(drop)
}

/// `ip` for each of these lines, here, one after the other.
///
/// # Errors
/// The first that failed.
pub fn ip_all<L: AsRef<str>>(lines: impl IntoIterator<Item = L>) -> Result<(), String> {
    ip_all_by(Command::new("ip"), lines)
}

fn ip_all_by<L: AsRef<str>>(mut ip: Command, lines: impl IntoIterator<Item = L>) -> Result<(), String> {
    ip.args(["-batch", "-"]);
    let mut text = String::new();
    for line in lines {
        let line = line.as_ref();
        if text.len() + line.len() + 1 > PIPE_LEN_MIN {
            ip_batch(&mut ip, &mem::take(&mut text))?;
        }
        text += line;
        text.push('\n');
    }
    ip_batch(&mut ip, &text)
}

fn ip_batch(ip: &mut Command, text: &str) -> Result<(), String> {
    // No longer than what a pipe takes at once, so that nobody waits for a reader.
    let (reader, mut writer) = io::pipe().map_err(|error| format!("ip: {error}"))?;
    writer.write_all(text.as_bytes()).map_err(|error| format!("ip: {error}"))?;
    drop(writer);
    let done = run_with(ip, reader.into());
    done.map(drop).map_err(|told| format!("{told} (of: {})", text.trim().replace('\n', "; ")))
}

/// What any pipe takes without a reader, in bytes (pipe(7)).
const PIPE_LEN_MIN: usize = 65_536;

/// Whether this process may make networks: namespaces, and links between them.
///
/// # Errors
/// Why it may not.
pub fn may_have_networks() -> Result<(), String> {
    run(Command::new("unshare").args(["--net", "ip"]).args(PROBE)).map(drop)
}

/// What is tried of `ip` to see whether all else can be done.
const PROBE: [&str; 5] = ["link", "add", "probe", "type", "bridge"];

/// Runs a test, of which `module_path!()` and its name are given, in a network namespace of its own.
///
/// # Panics
/// The test has failed, or there is no way to have a namespace here.
pub fn in_a_namespace(module_path: &str, name: &str, test: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        // With the test's thread that has started this process, and so with its process.
        set_parent_process_death_signal(Some(Signal::KILL)).expect("a signal");
        test();
        return;
    }
    let tried: Vec<Result<String, String>> =
        WAYS_IN.iter().map(|way| run(Command::new("unshare").args(*way).arg("ip").args(PROBE))).collect();
    let Some(way) = WAYS_IN.iter().zip(&tried).find_map(|(way, tried)| tried.is_ok().then_some(way)) else {
        panic!(
            "not possible here: network namespaces with a bridge. Run it as root, or allow user namespaces; `make test` installs \
             what it needs, and leaves it out where it cannot be. {tried:?}"
        );
    };
    let path = module_path.split_once("::").map_or(name.to_owned(), |(_, module)| format!("{module}::{name}"));
    let mut command = Command::new("unshare");
    command.args(*way).arg(env::current_exe().expect("this program"));
    command.args(["--exact", &path, "--nocapture"]).env(INSIDE, "1").stdin(Stdio::null());
    let output = command.output().expect("it could be run a moment ago");
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success(), "{}: {}", output.status, said.join("\n"));
    assert!(said[0].contains("1 passed"), "it was run: {}", said[0]);
}

/// What a thread does that is in the network of a process: sockets that it opens stay there.
///
/// # Panics
/// It does, or cannot be there.
pub fn within_network_of<T: Send>(process: u32, act: impl FnOnce() -> T + Send) -> T {
    let place = File::open(format!("/proc/{process}/ns/net")).expect("the process' namespace");
    thread::scope(|scope| {
        let inside = scope.spawn(move || {
            move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("who may make it may enter it");
            act()
        });
        inside.join().expect("what is done in the namespace")
    })
}

/// A namespace, for as long as this is there.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
    /// Its holder reads this, and ends with it.
    _input: Option<ChildStdin>,
}

impl Namespace {
    /// One with nothing in it.
    ///
    /// # Errors
    /// There is none to be had.
    pub fn new() -> Result<Self, String> {
        let mut command = Command::new("unshare");
        // It says something once it is in it. What is typed at a terminal is not for it.
        command.args(["--net", "sh", "-c", "echo; exec cat"]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = command.spawn().map_err(|error| not_run(&command, &error))?;
        let (input, output) = (holder.stdin.take(), holder.stdout.take());
        let mut namespace = Self { holder, _input: input };
        let said = output.map(|output| BufReader::new(output).read_line(&mut String::new()));
        if matches!(said, Some(Ok(1))) {
            return Ok(namespace);
        }
        let mut complaint = String::new();
        let complaints = namespace.holder.stderr.take();
        complaints.map(|mut complaints| complaints.read_to_string(&mut complaint).ok());
        Err(format!("no network namespace is to be had: {}", complaint.trim()))
    }

    /// The process that holds it, whose number stands for it: `ip link add ... netns NUMBER`.
    pub fn holder(&self) -> u32 {
        self.holder.id()
    }

    /// A command that runs in it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id())).arg(program);
        command
    }

    /// What a thread does that is in it: sockets that it opens stay there.
    ///
    /// # Panics
    /// It does, or cannot be there.
    pub fn within<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        within_network_of(self.holder.id(), act)
    }

    /// `ip` with these words, there.
    ///
    /// # Errors
    /// It failed.
    pub fn ip(&self, words: &str) -> Result<(), String> {
        run(self.command("ip").args(words.split(' '))).map(drop)
    }

    /// See [`ip_all`]; there.
    ///
    /// # Errors
    /// The first that failed.
    pub fn ip_all<L: AsRef<str>>(&self, lines: impl IntoIterator<Item = L>) -> Result<(), String> {
        ip_all_by(self.command("ip"), lines)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.holder.kill().ok();
        self.holder.wait().ok();
    }
}
