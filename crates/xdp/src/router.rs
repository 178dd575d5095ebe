//! The program, loaded and on links.
//!
//! Always true: it is on its links for as long as this is there, and gone from all of them with it, however the process ends.

use std::{error::Error, fmt, io, os::fd::AsFd};

use aya::{
    Ebpf, EbpfError, EbpfLoader, include_bytes_aligned,
    maps::{
        MapError,
        xdp::{DevMap, XdpMapError},
    },
    programs::{Program, ProgramError, Xdp, XdpFlags, xdp::XdpLinkId},
    util::KernelVersion,
};
use guira_openflow::{Actions, FlowKey, Lookups, Port, PortStats, PortStatus, Refusal, Rules, TableStats};
use guira_routing::{Encoding, MacAddress};
use nix::{ifaddrs::getifaddrs, net::if_::if_nametoindex};

use crate::{
    place::PORTS_MAX,
    tables::{Counts, Ports, Tables},
    trial::{self, Frames, Trial},
};

/// What clang has made of `bpf/route.c`.
static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/route.o"));

/// Programs end with who has put them on links since 5.9, maps are not counted against what a process may lock since 5.11, and the end of a veth takes frames that a
/// driver sends on without a program of its own since this one.
const OLDEST_KERNEL: (u8, u8, u16) = (5, 13, 0);

/// Links that a router is on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Links {
    /// Of a box between hosts: what comes by one leaves by another.
    Between(Vec<Link>),
    /// A host's own: what is for somebody else goes back by it.
    Own(String),
}

/// A link, and the number by which rules name it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// From 1 on, and below [`PORTS_MAX`].
    pub port: Port,
    /// The interface.
    pub name: String,
}

/// Where a program sees a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// As soon as the driver has it.
    Driver,
    /// Once the kernel has made a packet of it: slower, and everywhere.
    Generic,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Driver => "driver",
            Self::Generic => "generic",
        })
    }
}

/// What is routed, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouterConfig {
    /// How gets say what they are for.
    pub encoding: Encoding,
    /// The port of UDP that they go to.
    pub gets_port: u16,
    /// Rules of hashes at a time: memory is taken for them, some 100 bytes each.
    pub rules_max: u32,
    /// The links.
    pub links: Links,
    /// How the program is on them; `None`: by the driver where that can do it, and else by the generic way.
    pub mode: Option<Mode>,
}

/// Why there is no router.
#[derive(Debug)]
pub enum RouterError {
    /// A program may not be loaded, or not be on links: that takes `CAP_BPF` and `CAP_NET_ADMIN`, or root's rights.
    NoRights,
    /// There is no such interface.
    NoLink(String),
    /// A port has a number that none may have, or two have one.
    Port(Port),
    /// A link is named twice.
    Twice(String),
    /// Another program is on the link.
    Taken(String),
    /// The kernel is too old: before this one a program stays on its links when its process is killed.
    OldKernel(KernelVersion),
    /// The kernel does not take the program.
    Load(Box<EbpfError>),
    /// It does not take it on a link.
    Attach(String, Box<ProgramError>),
    /// It does not do what is asked of a map.
    Map(MapError),
}

impl fmt::Display for RouterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRights => f.write_str("an XDP program takes the capabilities BPF and NET_ADMIN, or root's rights"),
            Self::NoLink(name) => write!(f, "there is no link {name}"),
            Self::Port(Port(port)) => {
                write!(f, "port {port}: each link has a number of its own, from 1 to {}", PORTS_MAX - 1)
            }
            Self::Twice(name) => write!(f, "{name} is given twice"),
            Self::Taken(name) => {
                write!(f, "{name} has an XDP program already: another router, perhaps (bpftool net says whose)")
            }
            Self::OldKernel(there) => write!(f, "it takes Linux 5.13 or later, and this is {there:?}"),
            Self::Load(error) => write!(f, "the kernel does not take the program: {}", with_causes(error)),
            Self::Attach(name, error) => write!(f, "{name} does not take the program: {}", with_causes(error)),
            Self::Map(error) => write!(f, "a map: {}", with_causes(error)),
        }
    }
}

impl Error for RouterError {}

/// An error, and what is behind it.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// An error of aya's says what it was at, and its causes why it failed.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The system's error that is behind this one.
fn errno(error: &(dyn Error + 'static)) -> Option<i32> {
    causes(error).find_map(|error| error.downcast_ref::<io::Error>()).and_then(io::Error::raw_os_error)
}

impl From<EbpfError> for RouterError {
    fn from(error: EbpfError) -> Self {
        if errno(&error) == Some(libc::EPERM) { Self::NoRights } else { Self::Load(Box::new(error)) }
    }
}

impl From<MapError> for RouterError {
    fn from(error: MapError) -> Self {
        if errno(&error) == Some(libc::EPERM) { Self::NoRights } else { Self::Map(error) }
    }
}

impl From<ProgramError> for RouterError {
    fn from(error: ProgramError) -> Self {
        Self::from(EbpfError::from(error))
    }
}

/// Whether this process may load the program, and the kernel takes it.
///
/// # Errors
/// Why not.
pub fn check(encoding: Encoding) -> Result<(), RouterError> {
    Router::start(RouterConfig { encoding, gets_port: 1, rules_max: 1, links: Links::Between(Vec::new()), mode: None })
        .map(drop)
}

/// A link that the program is on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkStatus {
    /// Its number; a host's own has none.
    pub port: Option<Port>,
    /// The interface.
    pub name: String,
    /// Its address.
    pub mac: MacAddress,
    /// Where the program sees its frames.
    pub mode: Mode,
    /// Frames that were given to it to be sent.
    pub sent: u64,
}

/// A router. Dropped, it is on no link any more.
#[derive(Debug)]
pub struct Router {
    tables: Tables,
    links: Vec<LinkStatus>,
    action: Action,
    /// With its links, which end with it.
    program: Ebpf,
}

/// What is done with frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// They are routed.
    Route,
    /// All leave by port 1, and nothing is looked up: what a router is measured beside.
    Forward,
    /// None gets any further.
    Drop,
}

impl Action {
    /// The program's name.
    fn name(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Forward => "forward",
            Self::Drop => "drop",
        }
    }
}

impl Router {
    /// Has all links' frames seen by a program that has no rules yet: what is a get is dropped.
    ///
    /// # Errors
    /// [`RouterError`]; it is on no link then.
    pub fn start(config: RouterConfig) -> Result<Self, RouterError> {
        Self::start_with(config, Action::Route)
    }

    /// Has something else done with frames: for measurements.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_with(config: RouterConfig, action: Action) -> Result<Self, RouterError> {
        let RouterConfig { encoding, gets_port, rules_max, links, mode } = config;
        let (major, minor, patch) = OLDEST_KERNEL;
        if let Ok(there) = KernelVersion::current()
            && there < KernelVersion::new(major, minor, patch)
        {
            return Err(RouterError::OldKernel(there));
        }
        let found = find(&links)?;
        let named: Vec<Port> = found.iter().filter_map(|(port, ..)| *port).collect();
        let ports = match (&links, &found[..]) {
            (Links::Own(_), [(.., mac)]) => Ports::Own(*mac),
            _ => Ports::Between(named.into_iter().collect()),
        };
        let own = if let Ports::Own(mac) = &ports { *mac } else { MacAddress([0; 6]) };
        let mut program = load(encoding, gets_port, rules_max, own)?;
        let mut devices = DevMap::try_from(program.take_map("ports").ok_or_else(no_such_map)?)?;
        for (port, _, index, _) in &found {
            if let Some(Port(port)) = port {
                devices.set(*port, *index, None, 0).map_err(of_devices)?;
            }
        }
        let tables = Tables::of(&mut program, Rules::new(encoding, gets_port), encoding, ports);
        let tables = tables.ok_or_else(no_such_map)??;
        let route = program_of(&mut program, action)?;
        route.load()?;
        let mode = attach_all(route, &found, mode)?;
        let status = |(port, name, _, mac)| LinkStatus { port, name, mac, mode, sent: 0 };
        let attached = found.into_iter().map(status).collect();
        Ok(Self { tables, links: attached, action, program })
    }

    /// The links, and what has left by them.
    pub fn links(&self) -> Vec<LinkStatus> {
        let sent = |port: Option<Port>| port.and_then(|port| self.tables.sent_by(port).ok()).unwrap_or(0);
        self.links.iter().map(|link| LinkStatus { sent: sent(link.port), ..link.clone() }).collect()
    }

    /// What has become of frames.
    pub fn counts(&self) -> Counts {
        // The kernel refuses to say only what is not there.
        self.tables.counts().unwrap_or_default()
    }

    /// Shows the program a frame so many times, as if it had come by some link. What it leaves of a dry one comes into `left`.
    ///
    /// # Errors
    /// The frame is shorter than 14 bytes or longer than a page, or the kernel cannot do this.
    pub fn try_frame(&self, frame: &[u8], repeat: u32, frames: Frames, left: &mut [u8]) -> io::Result<Trial> {
        let program = self.program.program(self.action.name()).ok_or(io::ErrorKind::NotFound)?;
        let Program::Xdp(program) = program else { return Err(io::ErrorKind::NotFound.into()) };
        let program = program.fd().map_err(io::Error::other)?;
        trial::run(program.as_fd(), frame, repeat, frames, left)
    }
}

impl Lookups for Router {
    fn make(&mut self, key: FlowKey, actions: Actions) -> Result<(), Refusal> {
        self.tables.make(key, actions)
    }

    fn take_back(&mut self, key: &FlowKey) {
        self.tables.take_back(key);
    }

    fn table(&self) -> TableStats {
        let counts = self.counts();
        TableStats { lookups: counts.all(), matches: counts.matched(), ..TableStats::default() }
    }

    fn ports(&self) -> Vec<PortStatus> {
        let status = |link: LinkStatus| {
            // The number of a switch's own port, for the link that has none.
            let port = link.port.unwrap_or(Port::LOCAL);
            // What comes in and what is dropped is the link's to count.
            let stats = PortStats { port, packets_in: u64::MAX, packets_out: link.sent, dropped: u64::MAX };
            PortStatus { stats, mac: link.mac, name: link.name }
        };
        self.links().into_iter().map(status).collect()
    }
}

/// Has the kernel check the object's programs, and make its maps.
fn load(
    encoding: Encoding,
    gets_port: u16,
    rules_max: u32,
    MacAddress([m0, m1, m2, m3, m4, m5]): MacAddress,
) -> Result<Ebpf, EbpfError> {
    let (kind, prefix) = match encoding {
        Encoding::Ipv6(plan) => {
            let [p0, p1, p2, p3, ..] = plan.prefix().address.octets();
            (ENCODING_IPV6, [p0, p1, p2, p3])
        }
        Encoding::Mac(plan) => (ENCODING_MAC, plan.prefix().address.octets()),
    };
    let (prefix, gets_port) = (u32::from_ne_bytes(prefix), u16::from_ne_bytes(gets_port.to_be_bytes()));
    let own = u64::from_ne_bytes([m0, m1, m2, m3, m4, m5, 0, 0]);
    let mut loader = EbpfLoader::new();
    loader.set_global("ENCODING", &kind, true).set_global("PREFIX", &prefix, true);
    loader.set_global("GETS_PORT", &gets_port, true).set_global("OWN_MAC", &own, true);
    loader.set_max_entries("hashes", rules_max);
    loader.load(OBJECT)
}

/// As `route.c` has them.
const ENCODING_IPV6: u8 = 6;
const ENCODING_MAC: u8 = 4;

/// Ports, interfaces, their numbers and their addresses.
type Found = Vec<(Option<Port>, String, u32, MacAddress)>;

fn find(links: &Links) -> Result<Found, RouterError> {
    let links: Vec<(Option<Port>, &String)> = match links {
        Links::Between(links) => links.iter().map(|link| (Some(link.port), &link.name)).collect(),
        Links::Own(name) => vec![(None, name)],
    };
    let mut found: Found = Vec::new();
    for (port, name) in links {
        if let Some(port @ Port(number)) = port
            && (!(1..PORTS_MAX).contains(&number) || found.iter().any(|(other, ..)| *other == Some(port)))
        {
            return Err(RouterError::Port(port));
        }
        if found.iter().any(|(_, other, ..)| other == name) {
            return Err(RouterError::Twice(name.clone()));
        }
        let no_link = || RouterError::NoLink(name.clone());
        let index = if_nametoindex(name.as_str()).map_err(|_| no_link())?;
        found.push((port, name.clone(), index, mac_of(name).ok_or_else(no_link)?));
    }
    Ok(found)
}

fn mac_of(link: &str) -> Option<MacAddress> {
    let addresses = getifaddrs().ok()?.filter(|its| its.interface_name == link);
    addresses.filter_map(|its| its.address?.as_link_addr()?.addr()).map(MacAddress).next()
}

fn program_of(object: &mut Ebpf, action: Action) -> Result<&mut Xdp, RouterError> {
    let unknown = || RouterError::Load(Box::new(EbpfError::ProgramError(ProgramError::UnexpectedProgramType)));
    Ok(object.program_mut(action.name()).ok_or_else(unknown)?.try_into()?)
}

/// It is not the object that we have compiled.
fn no_such_map() -> MapError {
    MapError::InvalidMapType { map_type: 0 }
}

fn of_devices(error: XdpMapError) -> RouterError {
    match error {
        XdpMapError::MapError(error) => error.into(),
        // Of programs behind a device, which we have none of.
        XdpMapError::ChainedProgramNotSupported => no_such_map().into(),
    }
}

/// Has the program on all links in one mode: a driver sends on by none that the kernel's way alone is for.
fn attach_all(program: &mut Xdp, found: &Found, mode: Option<Mode>) -> Result<Mode, RouterError> {
    let mut all = |mode| {
        let mut attached = Vec::new();
        for (_, name, index, _) in found {
            match attach(program, name, *index, mode) {
                Ok(link) => attached.push(link),
                Err(error) => {
                    // Those that it is on already; what cannot be taken back goes with the program.
                    attached.into_iter().for_each(|link| drop(program.detach(link)));
                    return Err(error);
                }
            }
        }
        Ok(mode)
    };
    match mode {
        Some(mode) => all(mode),
        None => all(Mode::Driver).or_else(|_| all(Mode::Generic)),
    }
}

fn attach(program: &mut Xdp, name: &str, index: u32, mode: Mode) -> Result<XdpLinkId, RouterError> {
    let flags = if mode == Mode::Driver { XdpFlags::DRV_MODE } else { XdpFlags::SKB_MODE };
    program.attach_to_if_index(index, flags).map_err(|error| match errno(&error) {
        Some(libc::EPERM) => RouterError::NoRights,
        Some(libc::EBUSY | libc::EEXIST) => RouterError::Taken(name.to_owned()),
        _ => RouterError::Attach(name.to_owned(), Box::new(error)),
    })
}
