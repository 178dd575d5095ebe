//! How a program becomes a member of a cluster.

use std::{fmt, io, net::SocketAddr, path::PathBuf, sync::Arc};

use guira_cluster::{Members, Sealer, Transport};
use guira_routing::NodeId;
use guira_switched::{
    Life, LifeError, Member, Role, Shares, StaticFile, StaticFileError,
    host::{Caller, CallerBounds, GatewayHost},
};

/// What a client may be told beside who it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientOptions {
    /// Keeps the number of this member's last life, so that it is let in again although the clock was set back since. Without, the clock alone
    /// says which life is the later one.
    pub life_file: Option<PathBuf>,
}

/// Why a program cannot be a member.
#[derive(Debug)]
pub enum ConnectError {
    /// The file describes no cluster.
    File(StaticFileError),
    /// What etcd says, or does not: who is in the cluster.
    #[cfg(feature = "etcd")]
    Etcd(guira_etcd::EtcdError),
    /// No member of the cluster has this number, or what has it is no gateway.
    NoGateway(NodeId),
    /// The member's address is not to be had: another has it, or it is not this machine's.
    Address(SocketAddr, io::Error),
    /// No life can begin.
    Life(LifeError),
    /// The system gives no thread, or no descriptors.
    Start(io::Error),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            #[cfg(feature = "etcd")]
            Self::Etcd(error) => error.fmt(f),
            Self::NoGateway(NodeId(id)) => write!(f, "member {id}: the cluster has to name it, as a gateway"),
            Self::Address(address, error) => write!(f, "cannot bind {address}: {error}"),
            Self::Life(error) => write!(f, "life_file: {error}"),
            Self::Start(error) => write!(f, "cannot start: {error}"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// A member's sockets. Whoever has them is the member: nobody else can have them meanwhile.
pub(crate) fn bind(file: &StaticFile, members: Members, me: NodeId) -> Result<Transport, ConnectError> {
    let member = gateway(file, me)?;
    let sealer = Sealer::new(&file.secret(), me);
    let transport = Transport::bind(member.address, sealer, Arc::new(members));
    let transport = transport.and_then(|transport| file.in_network(member, transport));
    transport.map_err(|error| ConnectError::Address(member.address, error))
}

/// The member of this number, which has to be a gateway.
pub(crate) fn gateway(file: &StaticFile, me: NodeId) -> Result<&Member, ConnectError> {
    let is_gateway = |member: &&Member| matches!(member.role, Role::Gateway { .. });
    file.member(me).filter(is_gateway).ok_or(ConnectError::NoGateway(me))
}

/// Begins a life: once the sockets are bound.
pub(crate) fn begin_life(options: &ClientOptions) -> Result<Life, ConnectError> {
    Life::begin(options.life_file.as_deref()).map_err(ConnectError::Life)
}

/// A gateway on them, and what asks it.
pub(crate) fn start(
    transport: Transport,
    file: &StaticFile,
    shares: &Shares,
    me: NodeId,
    life: Life,
) -> Result<(GatewayHost, Caller), ConnectError> {
    let config = file.gateway_config(me, shares, life);
    // If all of it goes to one backend the gateway takes that.
    let bounds = CallerBounds {
        operations_max: config.pending_max,
        asked_len_max: config.pending_len_max,
        kept_len_max: file.values_len_max(),
    };
    let host = GatewayHost::start(transport, config).map_err(ConnectError::Start)?;
    let caller = Caller::before(host.front(), bounds);
    Ok((host, caller))
}
