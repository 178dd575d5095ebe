//! Open vSwitch with its datapath in userspace: a database and a daemon of its own, which know of nobody else's.
//!
//! Always true: its processes end with the thread that has started them, and what they have written is gone then.

use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::namespace::{run, with_system_programs};

/// The bridge's name.
const BRIDGE: &str = "switch";

/// One switch.
#[derive(Debug)]
pub struct OpenVswitch {
    folder: TempDir,
    database: Child,
    daemon: Option<Child>,
}

impl OpenVswitch {
    /// One without ports, which sends packets by the addresses that it learns.
    ///
    /// # Panics
    /// It is not installed, or does not start.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().display().to_string();
        let schema = ["/usr/share/openvswitch/vswitch.ovsschema", "/usr/local/share/openvswitch/vswitch.ovsschema"];
        let schema = schema.into_iter().find(|file| std::fs::exists(file).unwrap_or(false));
        let schema = schema.expect("Open vSwitch is installed: `make test` installs it");
        let make = ["create", &format!("{place}/conf.db"), schema];
        run(Command::new("ovsdb-tool").args(make)).unwrap_or_else(|told| panic!("{told}"));
        let database = [&format!("{place}/conf.db"), &format!("--remote=punix:{place}/db.sock")];
        let database = start(&folder, "ovsdb-server", &database.map(String::as_str));
        let mut switch = Self { folder, database, daemon: None };
        switch.vsctl("--no-wait init");
        switch.start_daemon();
        switch.vsctl(&format!(
            "add-br {BRIDGE} -- set bridge {BRIDGE} datapath_type=netdev protocols=OpenFlow13 fail_mode=secure"
        ));
        switch
    }

    /// Starts the daemon, which has no flows then.
    ///
    /// # Panics
    /// It does not start, or runs.
    pub fn power_on(&mut self) {
        self.start_daemon();
        // This waits until it has its bridge, and says so.
        self.vsctl(&format!("set bridge {BRIDGE} other_config:was_off=true"));
    }

    fn start_daemon(&mut self) {
        assert!(self.daemon.is_none(), "it runs");
        let database = format!("unix:{}/db.sock", self.folder.path().display());
        self.daemon = Some(start(&self.folder, "ovs-vswitchd", &[&database]));
    }

    /// Kills the daemon: its flows are gone, its ports are not.
    pub fn power_off(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().ok();
            daemon.wait().ok();
        }
    }

    /// `ovs-vsctl` with these words.
    ///
    /// # Panics
    /// It failed.
    pub fn vsctl(&self, words: &str) -> String {
        let database = format!("--db=unix:{}/db.sock", self.folder.path().display());
        let mut command = self.command("ovs-vsctl");
        command.args([&database, "--retry", "--timeout=20"]).args(words.split(' '));
        run(&mut command).unwrap_or_else(|told| panic!("{told}"))
    }

    /// `ovs-ofctl` with a command for the bridge, and words behind it.
    ///
    /// # Panics
    /// It failed.
    pub fn ofctl(&self, what: &str, words: &[&str]) -> String {
        let mut command = self.command("ovs-ofctl");
        command.args(["-O", "OpenFlow13", what, BRIDGE]).args(words);
        run(&mut command).unwrap_or_else(|told| panic!("{told}"))
    }

    /// Adds a link of this namespace as the port of that number.
    ///
    /// # Panics
    /// It failed.
    pub fn add_port(&self, link: &str, port: u32) {
        self.vsctl(&format!("add-port {BRIDGE} {link} -- set interface {link} ofport_request={port}"));
    }

    /// Has it call a controller.
    ///
    /// # Panics
    /// It failed.
    pub fn set_controller(&self, at: SocketAddr) {
        // By itself it waits up to eight seconds before it calls again.
        self.vsctl(&format!(
            "set-controller {BRIDGE} tcp:{at} -- set controller {BRIDGE} max_backoff=1000 connection_mode=out-of-band"
        ));
    }

    fn command(&self, program: &str) -> Command {
        environment(&self.folder, Command::new(program))
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
fn environment(folder: &TempDir, mut command: Command) -> Command {
    for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
        command.env(name, folder.path());
    }
    command
}

/// A daemon, which ends with this thread.
fn start(folder: &TempDir, program: &str, arguments: &[&str]) -> Child {
    let log = format!("--log-file={}/{program}.log", folder.path().display());
    let mut command = environment(folder, Command::new("setpriv"));
    command.args(["--pdeathsig", "KILL", program, "--pidfile", "--overwrite-pidfile", &log]).args(arguments);
    with_system_programs(&mut command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("setpriv, of util-linux")
}
