//! Open vSwitch with its datapath in userspace: a database and a daemon of its own, which know of nobody else's.
//!
//! Always true: its processes end with the thread that has started them, and what they have written is gone then.

use std::{
    fs,
    io::ErrorKind,
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use tempfile::TempDir;

use crate::namespace::{Namespace, not_run, run, with_system_programs};

/// The bridge's name.
const BRIDGE: &str = "switch";

/// One switch.
#[derive(Debug)]
pub struct OpenVswitch {
    folder: PathBuf,
    /// The same, if it is to be gone with the switch.
    _temporary: Option<TempDir>,
    /// How something is run where its ports are.
    inside: Vec<String>,
    database: Child,
    daemon: Option<Child>,
    /// Times that it was given its power back.
    powered: u32,
}

impl OpenVswitch {
    /// One without ports, which sends packets by the addresses that it learns, here and in a folder that is gone with it.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| format!("no folder for a switch: {error}"))?;
        Self::begin(folder.path().to_owned(), Some(folder), Vec::new())
    }

    /// The same, in a namespace, with a folder that is made if it is not there, and stays.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start_in(namespace: &Namespace, folder: &Path) -> Result<Self, String> {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let inside = namespace.command("setpriv");
        let words = [inside.get_program()].into_iter().chain(inside.get_args());
        // The program itself is what is run in each place.
        let mut words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        words.pop();
        Self::begin(folder.to_owned(), None, words)
    }

    fn begin(folder: PathBuf, temporary: Option<TempDir>, inside: Vec<String>) -> Result<Self, String> {
        let schemas = ["/usr/share/openvswitch/vswitch.ovsschema", "/usr/local/share/openvswitch/vswitch.ovsschema"];
        let schema = schemas.into_iter().find(|file| fs::exists(file).unwrap_or(false));
        let schema = schema.ok_or("Open vSwitch is not installed (on Debian: apt install openvswitch-switch)")?;
        let conf = folder.join("conf.db");
        // Of an earlier one, which had other ports.
        match fs::remove_file(&conf) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(format!("{}: {error}", conf.display())),
            _ => {}
        }
        let conf = conf.display().to_string();
        run(Command::new("ovsdb-tool").args(["create", &conf, schema]))?;
        let remote = format!("--remote=punix:{}/db.sock", folder.display());
        let database = start(&folder, &inside, "ovsdb-server", &[&conf, &remote])?;
        let mut switch = Self { folder, _temporary: temporary, inside, database, daemon: None, powered: 0 };
        switch.vsctl("--no-wait init")?;
        switch.start_daemon()?;
        switch.vsctl(&format!(
            "add-br {BRIDGE} -- set bridge {BRIDGE} datapath_type=netdev protocols=OpenFlow13 fail_mode=secure"
        ))?;
        Ok(switch)
    }

    /// Starts the daemon, which has no flows then.
    ///
    /// # Errors
    /// It does not start.
    ///
    /// # Panics
    /// It runs.
    pub fn power_on(&mut self) -> Result<(), String> {
        self.start_daemon()?;
        // This waits until it has its bridge, and says so, as long as it changes something.
        self.powered += 1;
        self.vsctl(&format!("set bridge {BRIDGE} other_config:powered={}", self.powered)).map(drop)
    }

    /// Gives it a datapath id.
    ///
    /// # Errors
    /// It failed.
    pub fn set_datapath_id(&self, id: u64) -> Result<(), String> {
        self.vsctl(&format!("set bridge {BRIDGE} other_config:datapath-id={id:016x}")).map(drop)
    }

    fn start_daemon(&mut self) -> Result<(), String> {
        assert!(self.daemon.is_none(), "it runs");
        let database = format!("unix:{}/db.sock", self.folder.display());
        self.daemon = Some(start(&self.folder, &self.inside, "ovs-vswitchd", &[&database])?);
        Ok(())
    }

    /// Kills the daemon: its flows are gone, its ports are not.
    pub fn power_off(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().ok();
            daemon.wait().ok();
        }
    }

    /// How the daemon has ended, if it has by itself; it is off then.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        let ended = self.daemon.as_mut().and_then(|daemon| daemon.try_wait().ok().flatten());
        if ended.is_some() {
            self.daemon = None;
        }
        ended
    }

    /// The daemon's process, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }

    /// Where `ovs-ofctl` finds it.
    pub fn management(&self) -> String {
        format!("unix:{}/{BRIDGE}.mgmt", self.folder.display())
    }

    /// `ovs-vsctl` with these words.
    ///
    /// # Errors
    /// It failed.
    pub fn vsctl(&self, words: &str) -> Result<String, String> {
        let database = format!("--db=unix:{}/db.sock", self.folder.display());
        let mut command = self.command("ovs-vsctl");
        command.args([&database, "--retry", "--timeout=20"]).args(words.split(' '));
        run(&mut command)
    }

    /// `ovs-ofctl` with a command for the bridge, and words behind it.
    ///
    /// # Errors
    /// It failed.
    pub fn ofctl(&self, what: &str, words: &[&str]) -> Result<String, String> {
        let mut command = self.command("ovs-ofctl");
        command.args(["-O", "OpenFlow13", what, &self.management()]).args(words);
        run(&mut command)
    }

    /// Adds links that are where the switch is, each as the port of a number.
    ///
    /// # Errors
    /// It failed.
    pub fn add_ports<L: AsRef<str>>(&self, links: impl IntoIterator<Item = (L, u32)>) -> Result<(), String> {
        let add = |(link, port): (L, u32)| {
            let link = link.as_ref();
            format!("add-port {BRIDGE} {link} -- set interface {link} ofport_request={port}")
        };
        let words: Vec<String> = links.into_iter().map(add).collect();
        // As long as a command's words may be, by far.
        words.chunks(100).try_for_each(|some| self.vsctl(&some.join(" -- ")).map(drop))
    }

    /// Has it call a controller.
    ///
    /// # Errors
    /// It failed.
    pub fn set_controller(&self, at: SocketAddr) -> Result<(), String> {
        // By itself it waits up to eight seconds before it calls again.
        let settings = "max_backoff=1000 connection_mode=out-of-band";
        self.vsctl(&format!("set-controller {BRIDGE} tcp:{at} -- set controller {BRIDGE} {settings}")).map(drop)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        environment(&self.folder, &mut command);
        command
    }
}

impl Drop for OpenVswitch {
    fn drop(&mut self) {
        self.power_off();
        self.database.kill().ok();
        self.database.wait().ok();
    }
}

/// Without these they look for others' folders.
fn environment(folder: &Path, command: &mut Command) {
    for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
        command.env(name, folder);
    }
}

/// A daemon, which ends with this thread. What is typed at a terminal is not for it.
fn start(folder: &Path, inside: &[String], program: &str, arguments: &[&str]) -> Result<Child, String> {
    let log = format!("--log-file={}/{program}.log", folder.display());
    let mut words = inside.iter().map(String::as_str).chain(["setpriv"]);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).args(["--pdeathsig", "KILL", program, "--pidfile", "--overwrite-pidfile", &log]);
    command.args(arguments).process_group(0);
    environment(folder, &mut command);
    with_system_programs(&mut command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|error| not_run(&command, &error))
}
