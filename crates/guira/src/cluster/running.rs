//! A cluster's members as they run, each a process or a thread of this one: started, started again when they end, ended.
//!
//! Always true: processes are started from the main thread, since such a member ends with the thread that has started it.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, ExitStatus},
    sync::mpsc::{self, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use guira_switched::{Member, Role, StaticFile};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{At, GATEWAY, network::Hosts, tell};
use crate::{
    node::{self, EndedBy},
    rest::RestArguments,
};

/// A member that has ended is started again after so long.
pub(super) const START_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long members may take to end: the gateways, and then all others.
pub(super) const END_WITHIN: Duration = Duration::from_secs(20);

/// The members.
#[derive(Default)]
pub(super) struct RunningMembers {
    members: BTreeMap<u16, RunningMember>,
    /// A router, which is no member: its process, and how often it was started again.
    pub(super) beside: Option<(u16, Option<u32>, u64)>,
}

struct RunningMember {
    runs: Option<Runs>,
    restarts: u64,
    ended_at: Instant,
}

/// How one runs.
enum Runs {
    Process(Child),
    Thread {
        /// Says that it is to end, as does that it is gone.
        end: Sender<()>,
        /// Until it has ended, and that is known.
        thread: Option<JoinHandle<Result<(), String>>>,
    },
}

impl Runs {
    fn pid(&self) -> u32 {
        match self {
            Self::Process(child) => child.id(),
            Self::Thread { .. } => std::process::id(),
        }
    }

    /// How it has ended, if it has.
    fn ended(&mut self) -> Option<Ended> {
        match self {
            Self::Process(child) => child.try_wait().ok().flatten().map(Ended::Process),
            Self::Thread { thread, .. } => {
                let thread = thread.take_if(|thread| thread.is_finished())?;
                Some(Ended::Thread(thread.join().unwrap_or_else(|_| Err("a panic".into()))))
            }
        }
    }

    /// Has it end, sooner or later.
    fn end(&self) {
        // It may have ended just now.
        match self {
            Self::Process(child) => ask_to_end(child),
            Self::Thread { end, .. } => drop(end.send(())),
        }
    }

    /// Ends it at once, if that can be: a thread ends only with this process.
    fn kill(&mut self) -> bool {
        let Self::Process(child) = self else { return false };
        let _ = child.kill();
        let _ = child.wait();
        true
    }
}

fn ask_to_end(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Has a process end, and kills it if it does not.
pub(super) fn end_process(child: &mut Child) {
    ask_to_end(child);
    let asked = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < END_WITHIN {
        pause();
    }
    // It has ended, as a rule.
    let _ = child.kill();
    let _ = child.wait();
}

/// How one has ended.
enum Ended {
    Process(ExitStatus),
    /// What it said in the end.
    Thread(Result<(), String>),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(status) => write!(f, "{status}"),
            Self::Thread(Ok(())) => f.write_str("by itself"),
            Self::Thread(Err(told)) => f.write_str(told),
        }
    }
}

/// How members are started.
pub(super) struct How<'h> {
    /// Whether they are all in this process.
    pub(super) in_one_process: bool,
    /// Files that each one's store may have open there.
    pub(super) store_files: Option<u64>,
    /// Threads of a gateway that serve clients.
    pub(super) threads: u16,
    /// The hosts of members that are not here.
    pub(super) hosts: Option<&'h Hosts>,
    /// Words of a command that runs a backend's.
    pub(super) backend_under: Option<&'h str>,
    /// Of the controller.
    pub(super) rest: &'h RestArguments,
    /// Where each gateway's metrics are, if they are anywhere.
    pub(super) metrics: BTreeMap<u16, SocketAddr>,
}

impl How<'_> {
    fn command(&self, member: &Member, program: &Path) -> Command {
        let on_its_host = |program: &Path| match self.hosts {
            Some(hosts) => hosts.command(member.id, program),
            None => Command::new(program),
        };
        let under = self.backend_under.filter(|_| matches!(member.role, Role::Backend(_)));
        let mut words = under.unwrap_or_default().split_whitespace();
        let Some(first) = words.next() else { return on_its_host(program) };
        let mut command = on_its_host(Path::new(first));
        command.args(words).arg(program);
        command
    }

    fn start(&self, at: &At, member: &Member) -> Result<Runs, String> {
        if self.in_one_process { self.start_thread(at, member) } else { self.start_process(at, member) }
    }

    fn arguments(&self, at: &At, member: &Member) -> node::Arguments {
        let (socket, life) = (at.node_socket(member.id), at.life_file(member.id));
        let arguments = node::Arguments::in_company(at.file(), member, self.threads.into(), socket, life);
        match member.role {
            Role::Controller => arguments.with_rest(self.rest.clone()),
            Role::Gateway { .. } => arguments.with_metrics(self.metrics.get(&member.id).copied()),
            Role::Backend(_) | Role::Cache { .. } => arguments,
        }
    }

    fn start_process(&self, at: &At, member: &Member) -> Result<Runs, String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut command = self.command(member, &program);
        // A group of its own: what is typed at the terminal is for this process, which ends them in their order.
        command.process_group(0);
        command.arg("node").arg("--with-parent").arg(std::process::id().to_string());
        self.arguments(at, member).pass_on(&mut command);
        command.spawn().map(Runs::Process).map_err(|error| format!("cannot start a member: {error}"))
    }

    fn start_thread(&self, at: &At, member: &Member) -> Result<Runs, String> {
        let arguments = self.arguments(at, member);
        let (end, ended) = mpsc::channel();
        let store_files = self.store_files;
        let run = move || node::run_until(&arguments, EndedBy::Starter(ended), store_files);
        let thread = thread::Builder::new().name(format!("guira-m{}", member.id)).spawn(run);
        let thread = thread.map_err(|error| format!("cannot start a member: {error}"))?;
        Ok(Runs::Thread { end, thread: Some(thread) })
    }
}

impl RunningMembers {
    pub(super) fn start(&mut self, at: &At, member: &Member, how: &How<'_>) -> Result<(), String> {
        let runs = Some(how.start(at, member)?);
        let restarts = self.members.get(&member.id).map_or(0, |earlier| earlier.restarts + 1);
        self.members.insert(member.id, RunningMember { runs, restarts, ended_at: Instant::now() });
        Ok(())
    }

    /// Starts again what has ended.
    pub(super) fn look(&mut self, at: &At, file: &StaticFile, how: &How<'_>) {
        for member in &file.members {
            let Some(running) = self.members.get_mut(&member.id) else { continue };
            if let Some(runs) = &mut running.runs {
                let Some(why) = runs.ended() else { continue };
                tell(&format!("{} {} has ended ({why}), and is started again", member.role.name(), member.id));
                (running.runs, running.ended_at) = (None, Instant::now());
            } else if running.ended_at.elapsed() >= START_AGAIN_AFTER
                && let Err(told) = self.start(at, member, how)
            {
                tell(&told);
            }
        }
    }

    /// Ends all: gateways first, so that nobody asks who is gone. If a thread does not end, this process does, once all others have.
    pub(super) fn end(&mut self) {
        let mut all_have = true;
        let rest = self.members.split_off(&GATEWAY);
        for members in [rest, std::mem::take(&mut self.members)] {
            let running = members.into_iter().filter_map(|(id, member)| Some((id, member.runs?)));
            let mut running: Vec<(u16, Runs)> = running.collect();
            running.iter().for_each(|(_, runs)| runs.end());
            let started = Instant::now();
            for (id, runs) in &mut running {
                loop {
                    match runs.ended() {
                        // A process has said it itself.
                        Some(Ended::Thread(Err(told))) => tell(&format!("member {id}: {told}")),
                        Some(_) => {}
                        None if started.elapsed() < END_WITHIN => {
                            pause();
                            continue;
                        }
                        None => {
                            tell(&format!("member {id} does not end, and is killed"));
                            all_have &= runs.kill();
                        }
                    }
                    break;
                }
            }
        }
        if !all_have {
            // Not in order: what its threads use would be taken away below them.
            std::process::abort();
        }
    }

    pub(super) fn status(&self) -> String {
        let members = self.members.iter();
        let members = members.map(|(id, member)| (*id, member.runs.as_ref().map(Runs::pid), member.restarts));
        let all = members
            .chain(self.beside)
            .map(|(id, pid, restarts)| (id.to_string(), serde_json::json!({ "pid": pid, "restarts": restarts })));
        Value::Object(all.collect()).to_string()
    }
}

#[expect(clippy::disallowed_methods, reason = "a child's end cannot be waited for with a deadline otherwise")]
fn pause() {
    thread::sleep(Duration::from_millis(5));
}
