//! The processes of a cluster's members: started, started again when they end, ended.
//!
//! Always true: they are started from the main thread, since a member ends with the thread that has started it.

use std::{
    collections::BTreeMap,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use guira_switched::{Member, Role, StaticFile};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{At, GATEWAY, tell};
use crate::rest::RestArguments;

/// A member that has ended is started again after so long.
const START_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long members may take to end: the gateways, and then all others.
pub(super) const END_WITHIN: Duration = Duration::from_secs(20);

/// The members' processes.
#[derive(Default)]
pub(super) struct Processes(BTreeMap<u16, Process>);

struct Process {
    child: Option<Child>,
    pid: u32,
    restarts: u64,
    ended_at: Instant,
}

/// How members are started.
pub(super) struct How<'h> {
    /// Threads of a gateway that serve clients.
    pub(super) threads: u16,
    /// Words of a command that runs a backend's.
    pub(super) backend_under: Option<&'h str>,
    /// Of the controller.
    pub(super) rest: &'h RestArguments,
}

impl How<'_> {
    fn command(&self, role: &Role, program: &Path) -> Command {
        let under = self.backend_under.filter(|_| matches!(role, Role::Backend(_)));
        let mut words = under.unwrap_or_default().split_whitespace();
        let Some(first) = words.next() else { return Command::new(program) };
        let mut command = Command::new(first);
        command.args(words).arg(program);
        command
    }
}

impl Processes {
    pub(super) fn start(&mut self, at: &At, member: &Member, how: &How<'_>) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut command = how.command(&member.role, &program);
        // A group of its own: what is typed at the terminal is for this process, which ends them in their order.
        command.process_group(0);
        command.args(["node", "--role", member.role.name(), "--id"]).arg(member.id.to_string());
        command.arg("--with-parent").arg(std::process::id().to_string());
        command.arg("--coordinator").arg(format!("static:{}", at.file().display()));
        command.arg("--status-socket").arg(at.node_socket(member.id));
        command.arg("--life-file").arg(at.life_file(member.id));
        command.arg("--threads").arg(how.threads.to_string());
        if member.role == Role::Controller {
            how.rest.pass_on(&mut command);
        }
        let child = command.spawn().map_err(|error| format!("cannot start a member: {error}"))?;
        let restarts = self.0.get(&member.id).map_or(0, |earlier| earlier.restarts + 1);
        let pid = child.id();
        self.0.insert(member.id, Process { child: Some(child), pid, restarts, ended_at: Instant::now() });
        Ok(())
    }

    /// Starts again what has ended.
    pub(super) fn look(&mut self, at: &At, file: &StaticFile, how: &How<'_>) {
        for member in &file.members {
            let Some(process) = self.0.get_mut(&member.id) else { continue };
            if let Some(child) = &mut process.child {
                let Ok(Some(status)) = child.try_wait() else { continue };
                tell(&format!("{} {} has ended ({status}), and is started again", member.role.name(), member.id));
                (process.child, process.ended_at) = (None, Instant::now());
            } else if process.ended_at.elapsed() >= START_AGAIN_AFTER
                && let Err(told) = self.start(at, member, how)
            {
                tell(&told);
            }
        }
    }

    /// Ends all: gateways first, so that nobody asks who is gone.
    pub(super) fn end(&mut self) {
        let rest = self.0.split_off(&GATEWAY);
        for processes in [rest, std::mem::take(&mut self.0)] {
            let mut children: Vec<Child> = processes.into_values().filter_map(|process| process.child).collect();
            for child in &children {
                if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    // It may have ended just now.
                    let _ = kill_process(pid, Signal::TERM);
                }
            }
            let started = Instant::now();
            for child in &mut children {
                while started.elapsed() < END_WITHIN && matches!(child.try_wait(), Ok(None)) {
                    pause();
                }
                if matches!(child.try_wait(), Ok(None)) {
                    let _ = child.kill();
                }
                let _ = child.wait();
            }
        }
    }

    pub(super) fn status(&self) -> String {
        let all = self.0.iter().map(|(id, process)| {
            let pid = process.child.as_ref().map(|_| process.pid);
            (id.to_string(), serde_json::json!({ "pid": pid, "restarts": process.restarts }))
        });
        Value::Object(all.collect()).to_string()
    }
}

#[expect(clippy::disallowed_methods, reason = "a child's end cannot be waited for with a deadline otherwise")]
fn pause() {
    thread::sleep(Duration::from_millis(5));
}
