//! A cluster's members as they run, each a process or a thread of this one: started, started again when they end, ended.
//!
//! Always true: processes are started from the main thread, since such a member ends with the thread that has started it.

use std::{
    collections::BTreeMap,
    fmt,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, ExitStatus},
    sync::mpsc::{self, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{network::Hosts, tell};
use crate::node::{self, EndedBy};

/// A member that has ended is started again after so long: one that cannot start would end all the time.
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
    ends_first: bool,
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

/// A member, and what it is started with.
pub(super) struct Seat<'h> {
    /// Its number.
    pub(super) id: u16,
    /// Its role's name.
    pub(super) role: &'static str,
    /// What it is told.
    pub(super) arguments: node::Arguments,
    /// Words of a command that runs it.
    pub(super) under: Option<&'h str>,
    /// It ends before those of which that is not said.
    pub(super) ends_first: bool,
    /// The first time that it ends it is started again at once: others cannot go on for long without it.
    pub(super) is_waited_for: bool,
}

/// How members are started.
pub(super) struct How<'h> {
    /// Whether they are all in this process.
    pub(super) in_one_process: bool,
    /// Files that each one's store may have open there.
    pub(super) store_files: Option<u64>,
    /// The hosts of members that are not here.
    pub(super) hosts: Option<&'h Hosts>,
    /// Who they are.
    pub(super) seats: Vec<Seat<'h>>,
}

impl How<'_> {
    fn command(&self, seat: &Seat<'_>, program: &Path) -> Command {
        let on_its_host = |program: &Path| match self.hosts {
            Some(hosts) => hosts.command(seat.id, program),
            None => Command::new(program),
        };
        let mut words = seat.under.unwrap_or_default().split_whitespace();
        let Some(first) = words.next() else { return on_its_host(program) };
        let mut command = on_its_host(Path::new(first));
        command.args(words).arg(program);
        command
    }

    fn start(&self, seat: &Seat<'_>) -> Result<Runs, String> {
        if self.in_one_process { self.start_thread(seat) } else { self.start_process(seat) }
    }

    fn start_process(&self, seat: &Seat<'_>) -> Result<Runs, String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut command = self.command(seat, &program);
        // A group of its own: what is typed at the terminal is for this process, which ends them in their order.
        command.process_group(0);
        command.arg("node").arg("--with-parent").arg(std::process::id().to_string());
        seat.arguments.pass_on(&mut command);
        command.spawn().map(Runs::Process).map_err(|error| format!("cannot start a member: {error}"))
    }

    fn start_thread(&self, seat: &Seat<'_>) -> Result<Runs, String> {
        let arguments = seat.arguments.clone();
        let (end, ended) = mpsc::channel();
        let store_files = self.store_files;
        let run = move || node::run_until(&arguments, EndedBy::Starter(ended), store_files);
        let thread = thread::Builder::new().name(format!("guira-m{}", seat.id)).spawn(run);
        let thread = thread.map_err(|error| format!("cannot start a member: {error}"))?;
        Ok(Runs::Thread { end, thread: Some(thread) })
    }
}

impl RunningMembers {
    /// Starts all, or those before the first that cannot be.
    pub(super) fn start_all(&mut self, how: &How<'_>) -> Result<(), String> {
        how.seats.iter().try_for_each(|seat| self.start(seat, how))
    }

    fn start(&mut self, seat: &Seat<'_>, how: &How<'_>) -> Result<(), String> {
        let runs = Some(how.start(seat)?);
        let restarts = self.members.get(&seat.id).map_or(0, |earlier| earlier.restarts + 1);
        let member = RunningMember { runs, restarts, ended_at: Instant::now(), ends_first: seat.ends_first };
        self.members.insert(seat.id, member);
        Ok(())
    }

    /// Starts again what has ended.
    pub(super) fn look(&mut self, how: &How<'_>) {
        for seat in &how.seats {
            let Some(running) = self.members.get_mut(&seat.id) else { continue };
            if let Some(runs) = &mut running.runs {
                let Some(why) = runs.ended() else { continue };
                tell(&format!("{} {} has ended ({why}), and is started again", seat.role, seat.id));
                (running.runs, running.ended_at) = (None, Instant::now());
                if !seat.is_waited_for || running.restarts > 0 {
                    continue;
                }
            } else if running.ended_at.elapsed() < START_AGAIN_AFTER {
                continue;
            }
            if let Err(told) = self.start(seat, how) {
                tell(&told);
            }
        }
    }

    /// Ends all, those that end first before the others. If a thread does not end, this process does, once all others have.
    pub(super) fn end(&mut self) {
        let mut all_have = true;
        let members = std::mem::take(&mut self.members);
        let (first, rest): (BTreeMap<_, _>, BTreeMap<_, _>) =
            members.into_iter().partition(|(_, member)| member.ends_first);
        for members in [first, rest] {
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
