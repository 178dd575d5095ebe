//! A switch that calls our controller: Open vSwitch, or the program in the kernel with a table of flows before it.
//!
//! Always true: it calls one address for as long as it is there, whoever listens, so that a controller that is started again is found; what it has is
//! read from itself and not from who has told it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use std::thread::JoinHandle;

use guira_networks::{Namespace, OpenVswitch};
use guira_openflow::{Actions, Controllers, DatapathConfig, DatapathId, FlowKey, FlowTable, obey};
use guira_xdp::{Action, Frames, Router, Verdict};

use super::bench::{Bench, namespace};
use super::rule_set::{RuleSet, get_frame};
use super::wire::Wire;
use crate::error::BenchError;

/// A switch, and where it calls.
pub(super) trait Site {
    /// Where its controller is to listen.
    fn listener(&self) -> Result<TcpListener, BenchError>;

    /// Has it call its controller from now on.
    fn call(&mut self) -> Result<(), BenchError>;

    /// Takes its power away, with all its flows.
    fn power_off(&mut self) -> Result<(), BenchError>;

    /// Gives it back.
    fn power_on(&mut self) -> Result<(), BenchError>;

    /// That it has these rules, and no others: that of those that were there before it has none.
    fn expect_exactly(&self, wanted: &RuleSet, before: &RuleSet) -> Result<(), BenchError>;

    /// How many rules of hashes it has.
    fn rules_len(&self) -> Result<u64, BenchError>;
}

fn bind(address: SocketAddr) -> Result<TcpListener, BenchError> {
    TcpListener::bind(address).map_err(|source| BenchError::System { doing: "listening to switches", source })
}

fn any_address() -> Result<SocketAddr, BenchError> {
    let address = bind((Ipv4Addr::LOCALHOST, 0).into())?.local_addr();
    address.map_err(|source| BenchError::System { doing: "looking for a free port", source })
}

/// Open vSwitch in a network of its own.
pub(super) struct OvsSite {
    switch: OpenVswitch,
    namespace: Namespace,
    address: SocketAddr,
}

impl OvsSite {
    /// One that nobody has told anything, with a folder of this name.
    pub fn start(bench: &Bench, folder: &str) -> Result<Self, BenchError> {
        let namespace = namespace()?;
        namespace.ip("link set lo up").map_err(BenchError::Invalid)?;
        let folder = bench.clusters.workplace.place(folder);
        let switch = OpenVswitch::start_in(&namespace, &folder).map_err(BenchError::Invalid)?;
        let address = namespace.within(any_address)?;
        Ok(Self { switch, namespace, address })
    }

    /// Its own tool, with a command, and words behind the switch's name.
    pub fn tool(&self, what: &str, words: &[&str]) -> Result<String, BenchError> {
        self.switch.ofctl(what, words).map_err(BenchError::Invalid)
    }

    fn dump(&self) -> Result<String, BenchError> {
        self.tool("dump-flows", &[])
    }
}

impl Site for OvsSite {
    fn listener(&self) -> Result<TcpListener, BenchError> {
        self.namespace.within(|| bind(self.address))
    }

    fn call(&mut self) -> Result<(), BenchError> {
        self.switch.set_controller(self.address).map_err(BenchError::Invalid)
    }

    fn power_off(&mut self) -> Result<(), BenchError> {
        self.switch.power_off();
        Ok(())
    }

    fn power_on(&mut self) -> Result<(), BenchError> {
        self.switch.power_on().map_err(BenchError::Invalid)
    }

    fn expect_exactly(&self, wanted: &RuleSet, _before: &RuleSet) -> Result<(), BenchError> {
        wanted.is_told(&self.dump()?).map_err(|told| BenchError::Invalid(format!("Open vSwitch: {told}")))
    }

    fn rules_len(&self) -> Result<u64, BenchError> {
        Ok(RuleSet::of_hashes_told(&self.dump()?))
    }
}

type Table = FlowTable<Router>;
type Look = Box<dyn FnOnce(&Table) + Send>;

/// The program with a table of flows before it, on a thread that obeys a controller.
pub(super) struct XdpSite {
    running: Option<Running>,
    wire: Wire,
    address: SocketAddr,
    rules_max: u64,
}

struct Running {
    goes_on: Arc<AtomicBool>,
    looks: Sender<Look>,
    thread: JoinHandle<Result<(), BenchError>>,
}

impl XdpSite {
    /// One that is off.
    pub fn new(bench: &Bench) -> Result<Self, BenchError> {
        // Rules are made before others are taken back.
        let rules_max = 2 * (bench.keys + bench.buffer);
        Ok(Self { running: None, wire: Wire::new()?, address: any_address()?, rules_max })
    }

    /// What is seen of the table, and of the program behind it.
    fn look<T: Send + 'static>(&self, look: impl FnOnce(&Table) -> T + Send + 'static) -> Result<T, BenchError> {
        let ended = || BenchError::Invalid("the switch has ended".into());
        let (tell, told) = mpsc::channel();
        let look = Box::new(move |table: &Table| drop(tell.send(look(table))));
        self.running.as_ref().ok_or_else(ended)?.looks.send(look).map_err(|_| ended())?;
        told.recv().map_err(|_| ended())
    }
}

impl Site for XdpSite {
    fn listener(&self) -> Result<TcpListener, BenchError> {
        bind(self.address)
    }

    fn call(&mut self) -> Result<(), BenchError> {
        self.power_on()
    }

    fn power_off(&mut self) -> Result<(), BenchError> {
        let Some(Running { goes_on, thread, .. }) = self.running.take() else { return Ok(()) };
        goes_on.store(false, Relaxed);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn power_on(&mut self) -> Result<(), BenchError> {
        let router = self.wire.router(self.rules_max, Action::Route, None)?;
        let table = FlowTable::new(router, usize::try_from(self.rules_max).unwrap_or(usize::MAX));
        let (goes_on, address) = (Arc::new(AtomicBool::new(true)), self.address);
        let (looks, to_look) = mpsc::channel();
        let going_on = Arc::clone(&goes_on);
        let thread =
            std::thread::Builder::new().name("switch".into()).spawn(move || run(table, address, &going_on, &to_look));
        let thread = thread.map_err(|source| BenchError::System { doing: "starting a switch's thread", source })?;
        self.running = Some(Running { goes_on, looks, thread });
        Ok(())
    }

    fn expect_exactly(&self, wanted: &RuleSet, before: &RuleSet) -> Result<(), BenchError> {
        let (wanted, before) = (wanted.clone(), before.clone());
        let told = self.look(move |table| {
            let has: Vec<(FlowKey, Actions)> = table.flows(None).map(|(key, _, actions)| (*key, *actions)).collect();
            let mut all: Vec<(FlowKey, Actions)> = wanted.all().collect();
            all.sort_unstable();
            if has == all { goes_by(table.lookups(), &wanted, &before) } else { Err(differs(has.len(), all.len())) }
        })?;
        told.map_err(|told| BenchError::Invalid(format!("XDP: {told}")))
    }

    fn rules_len(&self) -> Result<u64, BenchError> {
        self.look(|table| table.len().saturating_sub(RuleSet::base().len()) as u64)
    }
}

impl Drop for XdpSite {
    fn drop(&mut self) {
        // What it failed with was told before, or nobody asked for it.
        let _ = self.power_off();
    }
}

fn differs(has: usize, wanted: usize) -> String {
    format!("its table has {has} flows, and not the {wanted} that are wanted")
}

fn run(mut table: Table, address: SocketAddr, goes_on: &AtomicBool, looks: &Receiver<Look>) -> Result<(), BenchError> {
    let go_on = |table: &Table| {
        looks.try_iter().for_each(|look| look(table));
        goes_on.load(Relaxed)
    };
    let controllers = Controllers { called: address, callers: None };
    let told = obey(controllers, DatapathConfig::new(DatapathId(9)), &mut table, go_on, drop);
    told.map_err(|source| BenchError::System { doing: "obeying a controller", source })
}

/// That the program itself goes by these rules: each is there, and those that were there before and are not wanted are not.
pub(super) fn goes_by(router: &Router, wanted: &RuleSet, before: &RuleSet) -> Result<(), String> {
    let earlier = router.counts();
    let gone = before.keys().filter(|key| !wanted.keys().contains(key));
    let (mut left, mut tried_gone) = ([0; 256], 0);
    for key in wanted.keys().chain(gone.inspect(|_| tried_gone += 1)) {
        let trial = router.try_frame(&get_frame(key), 1, Frames::Dry, &mut left).map_err(|error| error.to_string())?;
        if trial.verdict != Verdict::Redirect {
            return Err(format!("a get of key {key} is not sent on: {:?}", trial.verdict));
        }
    }
    let counts = router.counts();
    let (by_hash, by_backend) = (counts.by_hash - earlier.by_hash, counts.by_backend - earlier.by_backend);
    if (by_hash, by_backend) == (wanted.len(), tried_gone) {
        return Ok(());
    }
    Err(format!(
        "of {} and {tried_gone} gets {by_hash} went by their hash and {by_backend} by their backend",
        wanted.len()
    ))
}
