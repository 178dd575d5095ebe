//! A switch of ours and a controller of ours, each on its thread, with a socket between them; and tools that call the switch at another.
#![expect(clippy::unwrap_used, reason = "a failure here is the test's failure")]

use std::{
    collections::BTreeMap,
    env,
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        mpsc::{self, Receiver},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use guira_cluster::SocketFile;
use guira_item::Span;
use guira_openflow::{
    Actions, Broken, ControllerTold, Controllers, Cookie, DatapathConfig, DatapathId, FlowKey, FlowTable, Gone,
    HEADER_LEN, Heard, Lookups, Masked, Match, Port, PortStats, PortStatus, Refusal, Said, SwitchConfig, Switches,
    SwitchesConfig, SwitchesTold, TableStats, Told, Xid, message_len, obey,
};
use guira_routing::MacAddress;
use nix::sys::socket::{Backlog, listen};

/// Far longer than a loaded machine needs.
const DEADLINE: Duration = Duration::from_secs(60);

const FLOWS: u32 = 10_000;

/// Of flows of an operator's.
const THEIRS: Cookie = Cookie(7);

#[derive(Default)]
struct InAMap(BTreeMap<FlowKey, Actions>);

impl Lookups for InAMap {
    fn make(&mut self, key: FlowKey, actions: Actions) -> Result<(), Refusal> {
        self.0.insert(key, actions);
        Ok(())
    }

    fn take_back(&mut self, key: &FlowKey) {
        self.0.remove(key);
    }

    fn table(&self) -> TableStats {
        TableStats { lookups: 3, ..TableStats::default() }
    }

    fn ports(&self) -> Vec<PortStatus> {
        let stats = PortStats { port: Port(1), packets_in: 1, packets_out: 2, dropped: 3 };
        vec![PortStatus { stats, mac: MacAddress([2, 0, 0, 0, 0, 1]), name: "eth0".into() }]
    }
}

fn key(number: u32) -> FlowKey {
    let [a, b, c, d] = number.to_be_bytes();
    FlowKey {
        priority: 300,
        matched: Match { eth_dst: Some(Masked::exact([2, 0, a, b, c, d])), ..Match::default() },
        ..FlowKey::default()
    }
}

fn to(port: u32) -> Actions {
    Actions { output: Some(Port(port)), ..Actions::default() }
}

/// A switch on its thread, until it is told to end.
struct Running {
    goes_on: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
    told: Receiver<ControllerTold>,
    /// Where tools call.
    management: PathBuf,
    thread: JoinHandle<FlowTable<InAMap>>,
}

impl Running {
    fn begin(controller: SocketAddr) -> Self {
        let (tell, told) = mpsc::channel();
        let (goes_on, made) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (going_on, making) = (Arc::clone(&goes_on), Arc::clone(&made));
        let management = new_path();
        let file = SocketFile::bind(&management).unwrap();
        let thread = thread::spawn(move || {
            let controllers = Controllers { called: controller, callers: Some(file.listener().unwrap()) };
            let patience = Span::from_s(DEADLINE.as_secs());
            // Tools of these tests are not asked whether they are there.
            let config =
                DatapathConfig { ask_after: patience, give_up_after: patience, ..DatapathConfig::new(DatapathId(9)) };
            let mut flows = FlowTable::new(InAMap::default(), FLOWS as usize + 10);
            let go_on = |flows: &FlowTable<InAMap>| {
                making.store(flows.len(), Relaxed);
                going_on.load(Relaxed)
            };
            obey(controllers, config, &mut flows, go_on, |told| drop(tell.send(told))).unwrap();
            flows
        });
        Self { goes_on, made, told, management, thread }
    }

    fn end(self) -> FlowTable<InAMap> {
        self.goes_on.store(false, Relaxed);
        self.thread.join().unwrap()
    }
}

/// Where nothing lies.
fn new_path() -> PathBuf {
    static PATHS: AtomicUsize = AtomicUsize::new(0);
    env::temp_dir().join(format!("guira-openflow-{}-{}.mgmt", process::id(), PATHS.fetch_add(1, Relaxed)))
}

/// Where nobody is.
fn nowhere() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Binds an address that nobody listened at. A connection of somebody else's may have it for a moment.
fn bind_again(address: SocketAddr) -> TcpListener {
    let mut bound = None;
    until(|| {
        bound = TcpListener::bind(address).ok();
        bound.is_some()
    });
    bound.unwrap()
}

/// A tool of an operator's, on one connection.
struct Tool(UnixStream);

impl Tool {
    /// One that has called, and may be taken or not.
    fn call(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self(stream)
    }

    /// One that was taken, and has said who it is.
    fn begin(running: &Running) -> Self {
        let mut tool = Self::call(&running.management);
        tool.say(&[Said::Hello]);
        tool.ask(&[]);
        tool
    }

    fn say(&mut self, all: &[Said<'_>]) {
        let mut bytes = Vec::new();
        all.iter().for_each(|said| said.put(Xid(1), &mut bytes));
        self.0.write_all(&bytes).unwrap();
    }

    /// Says that, and hears flows that it has asked for until all is done.
    fn ask(&mut self, all: &[Said<'_>]) -> Vec<(FlowKey, Actions)> {
        self.say(all);
        self.say(&[Said::Barrier]);
        let mut flows = Vec::new();
        loop {
            let mut message = vec![0; HEADER_LEN];
            self.0.read_exact(&mut message).unwrap();
            message.resize(message_len(&message).unwrap().unwrap(), 0);
            self.0.read_exact(&mut message[HEADER_LEN..]).unwrap();
            match Heard::take(&message).unwrap().1 {
                Heard::Hello { speaks_ours: true } => {}
                Heard::Flows(some, _) => flows.extend(some.into_iter().map(Option::unwrap)),
                Heard::Barrier => return flows,
                other => panic!("{other:?}"),
            }
        }
    }

    /// It is hung up on, with what it has said heard or not.
    fn sees_the_end(mut self) {
        let read = self.0.read_to_end(&mut Vec::new());
        assert!(read.is_ok() || read.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    }
}

fn switches(listener: TcpListener) -> (Switches, Receiver<SwitchesTold>) {
    switches_with(listener, SwitchesConfig::default())
}

fn switches_with(listener: TcpListener, config: SwitchesConfig) -> (Switches, Receiver<SwitchesTold>) {
    let (tell, told) = mpsc::channel();
    let switches = Switches::listen_at(listener, config, move |told| drop(tell.send(told)));
    (switches.unwrap(), told)
}

/// What was read of it, once nothing more is to be told to it.
fn settled(told: &Receiver<SwitchesTold>) -> Told {
    let mut read = None;
    loop {
        match told.recv_timeout(DEADLINE).unwrap() {
            SwitchesTold::Of(_, Told::Settled) => return read.unwrap(),
            SwitchesTold::Of(_, told @ Told::Read { .. }) => read = Some(told),
            SwitchesTold::Of(_, Told::Known(DatapathId(9)) | Told::Takes { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not come to be so");
        thread::yield_now();
    }
}

#[test]
fn ten_thousand_flows_are_told_and_outlive_the_controller_that_told_them() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let running = Running::begin(address);
    let (first, told) = switches(listener);
    let wanted: BTreeMap<FlowKey, Actions> = (0..FLOWS).map(|number| (key(number), to(number))).collect();
    first.update(wanted.iter().map(|(key, actions)| (*key, Some(*actions)))).unwrap();
    assert!(matches!(running.told.recv_timeout(DEADLINE), Ok(ControllerTold::Called(called)) if called == address));
    until(|| first.status().unwrap().iter().any(|status| status.made == wanted.len()));
    let status = first.status().unwrap();
    assert_eq!((status[0].datapath, status[0].counts.refused), (Some(DatapathId(9)), 0));

    drop((first, told));
    // Either end may be the first to see it.
    let gone = running.told.recv_timeout(DEADLINE);
    assert!(matches!(gone, Ok(ControllerTold::Gone(Gone::Closed | Gone::Failed(_)))), "{gone:?}");
    let (second, told) = switches(bind_again(address));
    // All but one are wanted by the next one, too.
    second.update(wanted.iter().skip(1).map(|(key, actions)| (*key, Some(*actions)))).unwrap();
    let read = settled(&told);
    assert!(matches!(read, Told::Read { flows: 10_000, differing: 1 | 10_000 }), "{read:?}");
    until(|| running.made.load(Relaxed) == wanted.len() - 1);
    let status = &second.status().unwrap()[0];
    assert_eq!((status.tables[0].lookups, status.ports[0].packets_out), (3, 2));
    let flows = running.end();
    assert!(flows.lookups().0.iter().eq(wanted.iter().skip(1)));
    assert_eq!(flows.len(), wanted.len() - 1);
}

#[test]
fn a_controller_that_is_not_there_is_called_until_it_is() {
    let address = nowhere();
    let running = Running::begin(address);
    assert!(matches!(running.told.recv_timeout(DEADLINE), Ok(ControllerTold::NotThere(_))));
    let (_switches, told) = switches(bind_again(address));
    assert!(
        matches!(running.told.recv_timeout(DEADLINE), Ok(ControllerTold::Called(_))),
        "said once that it is not there"
    );
    assert_eq!(settled(&told), Told::Read { flows: 0, differing: 0 });
    running.end();
}

#[test]
fn who_speaks_something_else_is_told_so_and_called_again() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let running = Running::begin(listener.local_addr().unwrap());
    for _ in 0..2 {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(&[1, 0, 0, 8, 0, 0, 0, 0]).unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        // Its hello, and that it failed.
        assert_eq!((said[..2].to_vec(), said[16..18].to_vec()), (vec![4, 0], vec![4, 1]));
    }
    // Said once: it is as good as not there.
    let told = running.told.recv_timeout(DEADLINE);
    assert!(matches!(told, Ok(ControllerTold::NotThere(Gone::Broken(Broken::Version)))), "{told:?}");
    assert!(running.told.try_recv().is_err());
    running.end();
}

#[test]
fn what_tools_do_while_no_controller_is_there_is_left_alone_by_it_unless_it_has_its_cookie() {
    let ours = SwitchConfig::default().cookie;
    let address = nowhere();
    let running = Running::begin(address);
    let (mut first, mut second) = (Tool::begin(&running), Tool::begin(&running));
    first.ask(&[Said::Add(THEIRS, key(1), to(1)), Said::Add(ours, key(2), to(2)), Said::Add(ours, key(3), to(3))]);
    assert_eq!(second.ask(&[Said::AskFlows(THEIRS)]), [(key(1), to(1))]);
    assert_eq!(second.ask(&[Said::AskFlows(ours)]), [(key(2), to(2)), (key(3), to(3))]);

    let (switches, told) = switches(bind_again(address));
    switches.want(key(3), to(3)).unwrap();
    let read = settled(&told);
    assert!(matches!(read, Told::Read { flows: 2, differing: 1 | 2 }), "{read:?}");
    until(|| first.ask(&[Said::AskFlows(ours)]) == [(key(3), to(3))]);
    assert_eq!(second.ask(&[Said::AskFlows(THEIRS)]), [(key(1), to(1))]);
    // What is the controller's they can take away, too.
    first.ask(&[Said::DeleteAll(THEIRS), Said::DeleteAll(ours)]);
    assert!(running.end().is_empty());
}

#[test]
fn tools_that_say_much_keep_no_one_from_his_turn() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let running = Running::begin(listener.local_addr().unwrap());
    let mut looks_on = Tool::begin(&running);
    let goes_on = Arc::new(AtomicBool::new(true));
    let busy = [(); 2].map(|()| {
        let (mut tool, goes_on) = (Tool::begin(&running), Arc::clone(&goes_on));
        thread::spawn(move || {
            while goes_on.load(Relaxed) {
                tool.ask(&[Said::AskFlows(SwitchConfig::default().cookie); 8]);
            }
        })
    });
    let (switches, _told) = switches(listener);
    switches.update((0..FLOWS).map(|number| (key(number), Some(to(number))))).unwrap();
    until(|| {
        looks_on.ask(&[]);
        running.made.load(Relaxed) == FLOWS as usize
    });
    goes_on.store(false, Relaxed);
    busy.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(looks_on.ask(&[Said::AskFlows(SwitchConfig::default().cookie)]).len(), FLOWS as usize);
    running.end();
}

#[test]
fn a_tool_that_is_one_too_many_is_hung_up_on_and_so_is_one_that_speaks_something_else_alone() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let running = Running::begin(listener.local_addr().unwrap());
    let (switches, told) = switches(listener);
    settled(&told);
    let mut tools: Vec<Tool> = (0..8).map(|_| Tool::begin(&running)).collect();
    Tool::call(&running.management).sees_the_end();
    let mut last = tools.pop().unwrap();
    last.0.write_all(&[4, 0, 0, 7, 0, 0, 0, 0]).unwrap();
    last.sees_the_end();
    let mut next = Tool::begin(&running);
    tools.iter_mut().for_each(|tool| assert!(tool.ask(&[Said::AskFlows(THEIRS)]).is_empty()));
    // One that goes makes room, too.
    drop(tools.pop());
    tools.push(Tool::begin(&running));
    switches.want(key(1), to(1)).unwrap();
    until(|| next.ask(&[Said::AskFlows(SwitchConfig::default().cookie)]) == [(key(1), to(1))]);
    assert!(matches!(running.told.try_iter().last(), Some(ControllerTold::Called(_))), "the controller has not gone");
    drop(running.end());
}

#[test]
fn tools_are_answered_while_a_controller_is_called_that_does_not_answer() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    // One waits to be taken, which is as many as may: the system answers nobody else.
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let _waiting = TcpStream::connect(address).unwrap();
    // On a machine that was busy elsewhere for that second it is tried again.
    until(|| {
        let running = Running::begin(address);
        let mut tool = Tool::begin(&running);
        let mut answered = 0;
        let why = loop {
            match running.told.try_recv() {
                Ok(ControllerTold::NotThere(why)) => break why,
                Ok(other) => panic!("{other:?}"),
                Err(_) => tool.ask(&[]),
            };
            answered += 1;
        };
        assert!(matches!(&why, Gone::Failed(error) if error.kind() == ErrorKind::TimedOut), "{why:?}");
        running.end();
        answered > 1
    });
}

#[test]
fn the_socket_of_a_switch_that_runs_is_not_taken_from_it() {
    let running = Running::begin(nowhere());
    let management = running.management.clone();
    assert_eq!(SocketFile::bind(&management).unwrap_err().kind(), ErrorKind::AddrInUse);
    Tool::begin(&running);
    running.end();
    assert!(!management.exists());
}

/// It calls, instead of being called, and on several connections.
#[test]
fn the_tool_of_open_vswitch_shows_and_changes_what_is_there() {
    let running = Running::begin(nowhere());
    let switch = format!("unix:{}", running.management.display());
    let tool = |arguments: &[&str]| {
        let mut command = Command::new("ovs-ofctl");
        command.args(["-O", "OpenFlow13", "--timeout=30", arguments[0], &switch]).args(&arguments[1..]);
        let output = command.output().expect("ovs-ofctl is there (apt-get install openvswitch-switch)");
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let says = |arguments: &[&str], all: &[&str]| {
        let output = tool(arguments);
        all.iter().for_each(|text| assert!(output.contains(text), "{arguments:?}: {text} is not in {output}"));
    };
    says(
        &["show"],
        &["dpid:0000000000000009", "n_tables:1", " 1(eth0): addr:02:00:00:00:00:01", "frags=normal miss_send_len=128"],
    );
    let matched = "priority=300,udp6,ipv6_dst=fd5e::/64";
    let actions = "actions=set_field:02:00:00:00:00:09->eth_dst,output:1";
    assert_eq!(tool(&["add-flow", &format!("cookie=7,{matched},udp_dst=7100,{actions}")]), "");
    assert_eq!(tool(&["add-flow", "cookie=8,priority=0,actions=NORMAL"]), "");
    says(&["add-flow", "in_port=1,actions=NORMAL"], &["OFPBMC_BAD_FIELD"]);
    says(&["add-flow", "idle_timeout=7,actions=NORMAL"], &["OFPFMFC_BAD_TIMEOUT"]);
    says(&["add-flow", "ip,actions=dec_ttl,output:1"], &["OFPBAC_BAD_TYPE"]);
    let (first, second) = (format!("{matched},tp_dst=7100 {actions}\n"), "n_bytes=?, priority=0 actions=NORMAL\n");
    says(&["dump-flows"], &[&first, second, "cookie=0x7, ", "cookie=0x8, "]);
    says(&["dump-tables"], &["active=2, lookup=3, matched=0"]);
    says(
        &["dump-table-features"],
        &["max_entries=10010", "arbitrary mask: eth_dst ip_dst ipv6_dst", "output set_field"],
    );
    says(&["dump-ports"], &["port  1: rx pkts=1, bytes=?, drop=3, errs=?", "tx pkts=2, bytes=?, drop=0"]);
    says(&["dump-ports-desc"], &[" 1(eth0): addr:02:00:00:00:00:01", "state:      LIVE"]);
    says(&["dump-desc"], &["Manufacturer: Guira"]);
    assert_eq!(tool(&["mod-flows", "udp6,actions=drop"]), "");
    says(&["dump-flows"], &["tp_dst=7100 actions=drop\n", second]);
    assert_eq!(tool(&["del-flows", "priority=0", "--strict"]), "");
    assert!(!tool(&["dump-flows"]).contains("NORMAL"));
    assert_eq!(tool(&["del-flows"]), "");
    assert!(running.end().lookups().0.is_empty());
}

/// It was heeded after the round in which it came, and told in the next one, which began when something else happened: a switch was asked whether it is there, two seconds later.
#[test]
fn what_is_wished_of_an_idle_switch_is_told_with_nothing_else_happening() {
    let hour = Span::from_s(3_600);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let running = Running::begin(listener.local_addr().unwrap());
    let switch = SwitchConfig {
        ask_after: hour,
        give_up_after: hour.times(2),
        read_again_after: hour,
        ..SwitchConfig::default()
    };
    let (switches, told) = switches_with(listener, SwitchesConfig { switch, ..SwitchesConfig::default() });
    settled(&told);
    for number in 1..=20 {
        switches.want(key(number), to(1)).unwrap();
        until(|| running.made.load(Relaxed) == number as usize);
    }
    running.end();
}
