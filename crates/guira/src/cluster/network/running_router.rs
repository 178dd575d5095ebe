//! What routes while a cluster is up: Open vSwitches, or a router of ours, started again when they end.

use std::{
    os::unix::process::CommandExt,
    process::{Child, ExitStatus},
    time::Instant,
};

use guira_networks::{Namespace, OpenVswitch};

use super::{
    super::{
        At, ROUTER_ID,
        running::{START_AGAIN_AFTER, end_process},
        tell,
    },
    LINK, Links, switch_name,
};
use crate::node::{ROUTER, RouterArguments};

/// What routes, which is started again when it ends.
pub(in super::super) struct RunningRouter {
    routes: Vec<Route>,
    _links: Links,
    /// Where the ports of each are: gone after it.
    places: Vec<Namespace>,
    at: At,
}

/// One of several, or all there is.
pub(super) struct Route {
    what: What,
    ended_at: Option<Instant>,
    restarts: u64,
}

enum What {
    /// A switch.
    Openflow(OpenVswitch),
    /// A process of this program, once it was begun, and what it is told.
    Xdp(Option<Child>, RouterArguments),
}

impl Route {
    pub(super) fn switch(switch: OpenVswitch) -> Self {
        Self { what: What::Openflow(switch), ended_at: None, restarts: 0 }
    }

    /// A router of ours, which is still to be begun.
    pub(super) fn router(arguments: RouterArguments) -> Self {
        Self { what: What::Xdp(None, arguments), ended_at: None, restarts: 0 }
    }

    fn has_ended(&mut self) -> Option<ExitStatus> {
        match &mut self.what {
            What::Openflow(switch) => switch.has_ended(),
            What::Xdp(child, _) => {
                let ended = child.as_mut().and_then(|child| child.try_wait().ok().flatten());
                if ended.is_some() {
                    *child = None;
                }
                ended
            }
        }
    }

    /// Begins what is no switch.
    fn begin(&mut self, place: &Namespace, at: &At) -> Result<(), String> {
        let What::Xdp(child, arguments) = &mut self.what else { return Ok(()) };
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut command = place.command(program);
        // What is typed at the terminal is for this process.
        command.process_group(0);
        command.args(["node", "--role", ROUTER, "--id"]).arg(ROUTER_ID.to_string());
        command.arg("--coordinator").arg(format!("static:{}", at.file().display()));
        command.arg("--status-socket").arg(at.node_socket(ROUTER_ID));
        command.arg("--management-socket").arg(at.folder.join(RunningRouter::MANAGEMENT));
        command.arg("--with-parent").arg(std::process::id().to_string()).args(arguments.words());
        *child = Some(command.spawn().map_err(|error| format!("cannot start the router: {error}"))?);
        Ok(())
    }

    fn start_again(&mut self, place: &Namespace, at: &At) -> Result<(), String> {
        let What::Openflow(switch) = &mut self.what else { return self.begin(place, at) };
        let started = switch.power_on();
        if started.is_err() {
            switch.power_off();
        }
        started
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        if let What::Xdp(Some(child), _) = &mut self.what {
            end_process(child);
        }
    }
}

impl RunningRouter {
    /// Where a router of ours is looked at, in the cluster's folder.
    const MANAGEMENT: &str = "router.mgmt";

    /// Each is at the place of its number.
    pub(super) fn new(routes: Vec<Route>, links: Links, places: Vec<Namespace>, at: At) -> Self {
        Self { routes, _links: links, places, at }
    }

    /// Begins what is no switch: members are known by then.
    pub(in super::super) fn begin(&mut self) -> Result<(), String> {
        let Self { routes, places, at, .. } = self;
        routes.iter_mut().zip(places).try_for_each(|(route, place)| route.begin(place, at))
    }

    /// Starts again what has ended, after a while.
    pub(in super::super) fn look(&mut self) {
        let Self { routes, places, at, .. } = self;
        for (number, (route, place)) in (1..).zip(routes.iter_mut().zip(places)) {
            if let Some(why) = route.has_ended() {
                let what = match route.what {
                    What::Openflow(_) => switch_name(number),
                    What::Xdp(..) => ROUTER.to_owned(),
                };
                tell(&format!("the {what} has ended ({why}), and is started again"));
                route.ended_at = Some(Instant::now());
            }
            if route.ended_at.is_some_and(|at| at.elapsed() >= START_AGAIN_AFTER) {
                route.ended_at = None;
                route.restarts += 1;
                if let Err(told) = route.start_again(place, at) {
                    tell(&told);
                    route.ended_at = Some(Instant::now());
                }
            }
        }
    }

    /// Its number, its process and how often it was started again, if it is one of ours.
    pub(in super::super) fn process(&self) -> Option<(u16, Option<u32>, u64)> {
        let of = |route: &Route| match &route.what {
            What::Openflow(_) => None,
            What::Xdp(child, _) => Some((ROUTER_ID, child.as_ref().map(Child::id), route.restarts)),
        };
        self.routes.iter().find_map(of)
    }

    /// What to look at, to see what goes where.
    pub(in super::super) fn hints(&self) -> Vec<String> {
        let folder = &self.at.folder;
        let which = (1..).zip(&self.routes).map(|(number, route)| match &route.what {
            What::Openflow(switch) => format!(
                "its {name} is an Open vSwitch ({}): ovs-ofctl -O OpenFlow13 dump-flows {}",
                folder.join(switch_name(number)).join("ovs-vswitchd.log").display(),
                switch.management(),
                name = switch_name(number)
            ),
            What::Xdp(..) => format!(
                "its router is an eBPF program on links: guira cluster status --folder {} says how many reads go by rules of keys, and how many to backends; ovs-ofctl -O OpenFlow13 dump-flows unix:{} (of Open vSwitch's tools) shows its rules",
                folder.display(),
                folder.join(Self::MANAGEMENT).display()
            ),
        });
        let hosts = format!(
            "what the host of a cache node or a backend sees: nsenter --net=/proc/PID/ns/net tcpdump -ni {LINK}"
        );
        which.chain([hosts]).collect()
    }
}
