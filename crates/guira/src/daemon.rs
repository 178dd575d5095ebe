//! `-d`: the program starts itself again in a session of its own, waits until that one listens, and leaves.
//!
//! Always true: whoever started the daemon sees its complaint and its exit status if it could not start.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Tells the second process that it is the daemon.
const MARK: &str = "GUIRA_DAEMON_CHILD";

/// What the daemon writes when it listens.
const READY: &[u8] = b"ready\n";

/// Whether this process is the one that stays.
pub(crate) fn is_daemon() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Starts the daemon; returns when it listens.
pub(crate) fn start() -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot start the daemon: {error}");
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let mut child = Command::new("/proc/self/exe")
        .arg0(name)
        .args(arguments)
        .env(MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut said = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut said).map_err(failed)?;
    }
    if said == READY {
        return Ok(());
    }
    // It has said why on standard error, which it shares with this process.
    let status = child.wait().map_err(failed)?;
    std::process::exit(status.code().unwrap_or(1));
}

/// In the daemon: leaves the terminal.
pub(crate) fn detach() {
    // Fails only for a process that leads its session already.
    let _ = rustix::process::setsid();
}

/// In the daemon, once it listens: lets the first process go, and the folder and standard streams with it.
pub(crate) fn tell_ready(keeps_folder: bool, keeps_stderr: bool) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot become a daemon: {error}");
    let mut stdout = std::io::stdout();
    stdout.write_all(READY).and_then(|()| stdout.flush()).map_err(failed)?;
    let null = File::options().read(true).write(true).open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stdout(&null).map_err(|errno| failed(errno.into()))?;
    if !keeps_stderr {
        rustix::stdio::dup2_stderr(&null).map_err(|errno| failed(errno.into()))?;
    }
    if !keeps_folder {
        std::env::set_current_dir("/").map_err(failed)?;
    }
    Ok(())
}
