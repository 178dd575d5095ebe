//! A router: links of this host, on which an eBPF program sends gets on by their content, as the controller has told it.
//!
//! Always true: it is no member, says nothing that members say, and reads of their file where they are; while the controller is away it goes by what it was told.

use std::{
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::TryRecvError},
};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use guira_cluster::{LineSocket, SocketFile, boot_now};
use guira_item::Span;
use guira_openflow::{ControllerTold, Controllers, DatapathConfig, DatapathId, FlowTable, Gone, Port, obey};
use guira_switched::{Network, StaticFile};
use guira_xdp::{Link, LinkStatus, Links, Mode, Router, RouterConfig};
use serde_json::{Value, json};

use super::EndedBy;

/// Flows beside those of hashes that a table has room for: two of each node that there may be, and those of others.
const FLOWS_BESIDE: usize = 2 * (1 << 16) + 2;

/// A link as it is given: a port and an interface, or the one interface of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LinkArgument {
    port: Option<Port>,
    name: String,
}

impl FromStr for LinkArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (port, name) = match text.split_once('=') {
            Some((port, name)) => (Some(port), name),
            None => (None, text),
        };
        let port = port.map(|port| port.parse().map(Port).map_err(|_| "write PORT=LINK, or LINK alone".to_owned()));
        if name.is_empty() {
            return Err("write PORT=LINK, or LINK alone".into());
        }
        Ok(Self { port: port.transpose()?, name: name.to_owned() })
    }
}

impl fmt::Display for LinkArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Port(port)) = self.port {
            write!(f, "{port}=")?;
        }
        f.write_str(&self.name)
    }
}

/// What a router is given beside what each member is.
#[derive(clap::Args, Clone, PartialEq, Eq, Debug)]
pub(crate) struct RouterArguments {
    /// Of a router: each of its links, with the number that a member's switch_port is; or, without a number, a host's only link: what is not for that host
    /// goes back by it
    #[arg(long, value_name = "PORT=LINK")]
    link: Vec<LinkArgument>,
    /// Of a router: where frames are seen: driver, generic, or by the driver where it can (default)
    #[arg(long, value_name = "MODE", value_parser = modes())]
    xdp_mode: Option<Mode>,
    /// Of a router: rules of hashes, at most; memory is taken for them
    #[arg(long, default_value_t = RULES_MAX, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    rules_max: u32,
    /// Of a router: a socket at which ovs-ofctl (-O OpenFlow13, unix:PATH) is answered
    #[arg(long, value_name = "PATH")]
    management_socket: Option<PathBuf>,
}

/// What is told of its status is looked at no more often.
const TELL_EVERY: Span = Span::from_ms(100);

/// Rules of hashes, unless something else is said: for a cache of 10,000 items some times over.
const RULES_MAX: u32 = 1 << 16;

impl Default for RouterArguments {
    fn default() -> Self {
        Self { link: Vec::new(), xdp_mode: None, rules_max: RULES_MAX, management_socket: None }
    }
}

fn modes() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(["driver", "generic"])
        .map(|text| if text == "driver" { Mode::Driver } else { Mode::Generic })
}

impl RouterArguments {
    /// Of links between hosts, by their ports.
    pub(crate) fn between(links: impl IntoIterator<Item = (u32, String)>) -> Self {
        let link = links.into_iter().map(|(port, name)| LinkArgument { port: Some(Port(port)), name }).collect();
        Self { link, ..Self::default() }
    }

    /// The first flag of a router's alone, if there is one.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--link", !self.link.is_empty()),
            ("--xdp-mode", self.xdp_mode.is_some()),
            ("--rules-max", self.rules_max != RULES_MAX),
            ("--management-socket", self.management_socket.is_some()),
        ];
        given.iter().find_map(|(flag, is_given)| is_given.then_some(*flag))
    }

    /// As words for another process.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let mut words = vec!["--rules-max".to_owned(), self.rules_max.to_string()];
        words.extend(self.link.iter().flat_map(|link| ["--link".to_owned(), link.to_string()]));
        words.extend(self.xdp_mode.iter().flat_map(|mode| ["--xdp-mode".to_owned(), mode.to_string()]));
        let path = self.management_socket.iter().flat_map(|path| ["--management-socket".into(), path.into()]);
        words.into_iter().map(OsString::from).chain(path).collect()
    }

    fn links(&self) -> Result<Links, String> {
        match &self.link[..] {
            [] => Err("--role router: give its links (--link PORT=LINK)".into()),
            [LinkArgument { port: None, name }] => Ok(Links::Own(name.clone())),
            links => {
                let between = links.iter().map(|LinkArgument { port, name }| {
                    let port =
                        port.ok_or_else(|| format!("--link {name}: of several each has a number (PORT=LINK)"))?;
                    Ok(Link { port, name: name.clone() })
                });
                between.collect::<Result<_, String>>().map(Links::Between)
            }
        }
    }
}

/// What a router is asked of itself.
#[derive(Default)]
struct Status {
    controller: bool,
    told: Value,
}

/// Routes until it is ended.
///
/// # Errors
/// The program is not to be had on the links, or the system gives no descriptors.
pub(super) fn run(
    file: &StaticFile,
    id: u16,
    arguments: &RouterArguments,
    status_socket: Option<&Path>,
    ended_by: EndedBy,
) -> Result<(), String> {
    let network = file.network.as_ref().ok_or("--role router: the cluster's gateways route (it has no [network])")?;
    let Network { encoding, gets_port, switches, .. } = *network;
    let RouterArguments { xdp_mode: mode, rules_max, .. } = *arguments;
    // Before anything is put on links: who has it already routes on them.
    let within = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    let management = arguments.management_socket.as_deref();
    let management = management.map(|path| SocketFile::bind(path).map_err(|error| within(path, error))).transpose()?;
    let links = arguments.links()?;
    check_links(&links, file)?;
    let config = RouterConfig { encoding, gets_port, rules_max, links, mode };
    let router = Router::start(config).map_err(|error| format!("--role router: {error}"))?;
    router.links().iter().for_each(tell_of_link);
    let ended = ended_by.receiver()?;
    let status: Arc<Mutex<Status>> = Arc::default();
    let shown = Arc::clone(&status);
    let answer = move |line: &str| match line {
        "status" => lock(&shown).told.to_string(),
        _ => String::new(),
    };
    let _socket =
        status_socket.map(|path| LineSocket::open(path, answer).map_err(|error| within(path, error))).transpose()?;
    let mut flows = FlowTable::new(router, rules_max as usize + FLOWS_BESIDE);
    let mut told_at = None;
    let go_on = |flows: &FlowTable<Router>| {
        let now = boot_now();
        if told_at.is_none_or(|at| now.since(at) >= TELL_EVERY) {
            told_at = Some(now);
            let mut status = lock(&status);
            status.told = told(status.controller, flows);
        }
        // Whoever would end it is gone, or has said so.
        ended.try_recv() == Err(TryRecvError::Empty)
    };
    let on = |told: ControllerTold| {
        lock(&status).controller = matches!(told, ControllerTold::Called(_));
        tell_of_controller(&told);
    };
    let callers = management.as_ref().map(SocketFile::listener).transpose();
    callers
        .and_then(|callers| {
            let controllers = Controllers { called: switches, callers };
            obey(controllers, DatapathConfig::new(DatapathId(id.into())), &mut flows, go_on, on)
        })
        .map_err(|error| format!("--role router: {error}"))
}

/// Whether links lead to all members, as the file says where these are.
fn check_links(links: &Links, file: &StaticFile) -> Result<(), String> {
    file.members.iter().try_for_each(|member| {
        let (id, port) = (member.id, member.plug.switch_port);
        match (links, port) {
            (Links::Own(name), Some(port)) => {
                Err(format!("--link {name}: member {id} has switch_port {port}: give --link {port}=LINK, and so on"))
            }
            (Links::Between(_), None) => Err(format!("--link: member {id} has no switch_port to say by which one")),
            (Links::Between(links), Some(port)) if !links.iter().any(|link| link.port == Port(port)) => {
                Err(format!("--link: member {id} has switch_port {port}: give --link {port}=LINK"))
            }
            _ => Ok(()),
        }
    })
}

fn lock(status: &Mutex<Status>) -> MutexGuard<'_, Status> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

fn told(controller: bool, flows: &FlowTable<Router>) -> Value {
    let (counts, router) = (flows.counts(), flows.lookups().counts());
    let links = flows.lookups().links();
    let links = links.iter().map(|link| {
        let port = link.port.map(|Port(port)| port);
        json!({ "port": port, "link": link.name, "mode": link.mode.to_string(), "sent": link.sent })
    });
    json!({
        "controller": controller,
        "flows": flows.len(),
        "flows_made": counts.made,
        "flows_taken_back": counts.taken_back,
        "flows_refused": counts.refused,
        "frames_by_hash": router.by_hash,
        "frames_by_backend": router.by_backend,
        "frames_of_nobody": router.of_nobody,
        "frames_to_members": router.to_member,
        "frames_of_others": router.of_others,
        "links": links.collect::<Value>(),
    })
}

fn tell_of_link(LinkStatus { name, mode, .. }: &LinkStatus) {
    eprintln!("guira: routing on {name} ({mode} mode)");
}

fn tell_of_controller(told: &ControllerTold) {
    let why = |gone: &Gone| match gone {
        Gone::Closed => "it has hung up".to_owned(),
        Gone::Broken(why) => why.to_string(),
        Gone::Failed(error) => error.to_string(),
    };
    match told {
        ControllerTold::Called(address) => eprintln!("guira: the controller at {address} is there"),
        ControllerTold::NotThere(gone) => {
            eprintln!("guira: the controller is not there ({}), and is called again and again", why(gone));
        }
        ControllerTold::Gone(gone) => eprintln!("guira: the controller has gone ({}), and is called again", why(gone)),
    }
}

#[cfg(test)]
mod tests {
    use guira_switched::{Member, Plug, Role};

    use super::*;

    #[test]
    fn links_are_given_with_ports_or_one_alone() {
        let links = |texts: &[&str]| {
            let link = texts.iter().map(|text| text.parse().unwrap()).collect();
            RouterArguments { link, ..RouterArguments::default() }.links()
        };
        let between = ["1=eth0", "2=eth1"];
        let expected = [(1, "eth0"), (2, "eth1")];
        let expected = expected.map(|(port, name)| Link { port: Port(port), name: name.into() }).into();
        assert_eq!(links(&between), Ok(Links::Between(expected)));
        assert_eq!(links(&["eth0"]), Ok(Links::Own("eth0".into())));
        assert!(links(&[]).is_err() && links(&["1=eth0", "eth1"]).is_err());
        for text in ["", "1=", "=eth0", "x=eth0", "-1=eth0"] {
            assert!(text.parse::<LinkArgument>().is_err(), "{text}");
        }
    }

    #[test]
    fn links_lead_to_all_members_or_that_is_said() {
        let member = |id, switch_port| {
            let plug = Plug { switch_port, ..Plug::default() };
            Member { plug, ..Member::new(id, ([127, 0, 0, 1], 1).into(), Role::CACHE) }
        };
        let file = |ports: [Option<u32>; 2]| StaticFile {
            members: vec![member(100, ports[0]), member(101, ports[1])],
            ..StaticFile::default()
        };
        let between = |ports: &[u32]| {
            Links::Between(ports.iter().map(|port| Link { port: Port(*port), name: format!("eth{port}") }).collect())
        };
        let own = Links::Own("eth0".into());
        assert_eq!(check_links(&between(&[1, 2, 3]), &file([Some(2), Some(3)])), Ok(()));
        assert_eq!(check_links(&own, &file([None, None])), Ok(()));
        let refused = |links: &Links, ports| check_links(links, &file(ports)).unwrap_err();
        assert!(
            refused(&between(&[1, 2]), [Some(2), Some(3)])
                .ends_with("member 101 has switch_port 3: give --link 3=LINK")
        );
        assert!(refused(&between(&[1]), [Some(1), None]).contains("member 101 has no switch_port"));
        assert!(refused(&own, [None, Some(1)]).starts_with("--link eth0: member 101 has switch_port 1"));
    }

    #[test]
    fn arguments_are_passed_on() {
        let given = RouterArguments {
            xdp_mode: Some(Mode::Generic),
            management_socket: Some("router.mgmt".into()),
            ..RouterArguments::between([(1, "eth0".to_owned()), (2, "eth1".to_owned())])
        };
        let expected = ["--rules-max", "65536", "--link", "1=eth0", "--link", "2=eth1", "--xdp-mode", "generic"];
        assert_eq!(given.words(), [&expected[..], &["--management-socket", "router.mgmt"]].concat());
        assert!(given.given() == Some("--link") && RouterArguments::default().given().is_none());
    }
}
