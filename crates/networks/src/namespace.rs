//! Network namespaces, each held by a process.

use std::{
    env,
    ffi::OsStr,
    fs::File,
    io::{BufRead, BufReader, ErrorKind},
    os::fd::AsFd,
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
    let output = with_system_programs(command).stdin(Stdio::null()).output();
    let output = output.map_err(|error| {
        let what_to_do = if error.kind() == ErrorKind::NotFound { "; `make test` installs it" } else { "" };
        format!("{:?}: {error}{what_to_do}", command.get_program())
    })?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{command:?}: {}: {complaints}", output.status))
    }
}

/// `ip` with these words, here.
///
/// # Panics
/// It failed.
pub fn ip(words: &str) {
    run(Command::new("ip").args(words.split(' '))).unwrap_or_else(|told| panic!("{told}"));
}

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
    let probe = ["ip", "link", "add", "probe", "type", "bridge"];
    let tried: Vec<Result<String, String>> =
        WAYS_IN.iter().map(|way| run(Command::new("unshare").args(*way).args(probe))).collect();
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

/// A namespace, for as long as this is there.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
    /// Its holder reads this, and ends with it.
    _input: ChildStdin,
}

impl Namespace {
    /// One with nothing in it.
    ///
    /// # Panics
    /// There is none to be had.
    pub fn new() -> Self {
        let mut command = Command::new("unshare");
        // It says something once it is in it.
        command.args(["--net", "sh", "-c", "echo; exec cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().expect("it could be run a moment ago");
        let input = holder.stdin.take().expect("its input");
        let output = holder.stdout.take().expect("its output");
        let said = BufReader::new(output).read_line(&mut String::new());
        assert!(matches!(said, Ok(1)), "the holder has a namespace of its own");
        Self { holder, _input: input }
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
        let place = File::open(format!("/proc/{}/ns/net", self.holder.id())).expect("the holder's namespace");
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("who may make it may enter it");
                act()
            });
            inside.join().expect("what is done in the namespace")
        })
    }

    /// `ip` with these words, there.
    ///
    /// # Panics
    /// It failed.
    pub fn ip(&self, words: &str) {
        run(self.command("ip").args(words.split(' '))).unwrap_or_else(|told| panic!("{told}"));
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.holder.kill().ok();
        self.holder.wait().ok();
    }
}
